/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "evict.h"
#include "index.h"
#include "message.h"
#include "recency.h"
#include "slots.h"
#include "sys.h"
#include "tokens.h"

/* All valid headers of the epoch, in one piece of memory, and the pages that they have become. */
struct loading {
    kvshm *kv;
    const struct kvshm__spill_file *file;
    uint64_t epoch;
    char *headers;         /* header_bytes each */
    uint64_t header_bytes;
    uint64_t count;
    uint64_t *order;       /* numbers of headers */
    uint64_t *chain;       /* the same, of one key */
    uint32_t *records;     /* of each header: its record + 1; 0: none yet */
    uint32_t *ids;         /* hash table of page ids: number of the header + 1 */
    uint64_t ids_mask;
};

static struct kvshm_slot_header *header_at(const struct loading *l, uint64_t i)
{
    return (void *)(l->headers + i * l->header_bytes);
}

static bool is_key(const struct kvshm_slot_header *h)
{
    return (h->flags & KVSHM__SLOT_KEY_ONLY) != 0;
}

/* ---- Page ids ----------------------------------------------------------------------------------------------- */

#define NO_HEADER UINT64_MAX

static uint64_t start_of(const struct loading *l, const uint64_t id[2])
{
    return ((id[0] ^ id[1]) * 0x9e3779b97f4a7c15u >> 20) & l->ids_mask;
}

static uint64_t find_id(const struct loading *l, const uint64_t id[2])
{
    for (uint64_t i = start_of(l, id); l->ids[i] != 0; i = (i + 1) & l->ids_mask) {
        if (memcmp(header_at(l, l->ids[i] - 1)->page_id, id, 2 * sizeof(*id)) == 0)
            return l->ids[i] - 1;
    }
    return NO_HEADER;
}

/* Of two headers of one id (a page written anew after its slot had been given up) either will do for the page. */
static void add_id(struct loading *l, uint64_t number)
{
    uint64_t i = start_of(l, header_at(l, number)->page_id);

    while (l->ids[i] != 0)
        i = (i + 1) & l->ids_mask;
    l->ids[i] = (uint32_t)number + 1;
}

/* Ids go on behind all that stand in the file, so that a later page has a larger one. */
static int collect(void *arg, const struct kvshm_slot_header *h)
{
    struct loading *l = arg;
    kvshm_a64 *last = &l->kv->header->next_page_id;

    if (h->page_id[1] > KVSHM__LOAD(last))
        KVSHM__STORE(last, h->page_id[1]);
    if (h->epoch != l->epoch)
        return 0;
    memcpy(header_at(l, l->count), h, sizeof(*h) + 8 * (size_t)kvshm__slot_words(h->flags, h->length));
    add_id(l, l->count++);
    return 0;
}

/* ---- Pages -------------------------------------------------------------------------------------------------- */

/* The record of a page that is loaded. */
static uint32_t record_of(const struct loading *l, const uint64_t id[2])
{
    uint64_t number = find_id(l, id);

    return number == NO_HEADER || l->records[number] == 0 ? KVSHM__NO_RECORD : l->records[number] - 1;
}

/* What the header says of a page; false: its parent is not there. */
static bool spec_of(const struct loading *l, const struct kvshm_slot_header *h, struct kvshm__page_spec *spec)
{
    const kvshm *kv = l->kv;
    bool key_only = is_key(h), last = (h->flags & KVSHM__SLOT_ENTRY) != 0;

    *spec = (struct kvshm__page_spec){
        .parent = KVSHM__NO_RECORD,
        .length = h->length | (!key_only ? 0 : last ? KVSHM__KEY_ONLY | KVSHM__KEY_END : KVSHM__KEY_ONLY),
        .adapter_id = h->adapter_id,
        .tenant = h->tenant,
        .tokens = key_only ? NULL : (const uint32_t *)h->words,
        .key = key_only ? (const uint8_t *)h->words : NULL,
    };
    if (h->depth > 0) {
        spec->parent = record_of(l, h->parent_id);
        if (spec->parent == KVSHM__NO_RECORD || KVSHM__LOAD(&kv->records[spec->parent].depth) + 1 != h->depth)
            return false;
    }
    if (key_only)
        spec->hash = kvshm__hash_key(kv->secret, h->adapter_id, h->tenant, spec->key, last ? KVSHM__KEY_DEEPEST : h->depth);
    else
        spec->hash = kvshm__hash_page(kv->secret,
                                      spec->parent == KVSHM__NO_RECORD
                                          ? kvshm__hash_root(kv->secret, h->adapter_id, h->tenant)
                                          : KVSHM__LOAD(&kv->records[spec->parent].hash),
                                      spec->tokens, h->length);
    return true;
}

/* The record of such a page; KVSHM__NO_RECORD: none is loaded. The end of a key is looked for as the end of any filling of it. */
static uint32_t find_page(const kvshm *kv, const struct kvshm__page_spec *spec)
{
    struct kvshm__page_spec any = *spec;
    struct kvshm__found found = {.record = KVSHM__NO_RECORD};
    bool gave_up;

    if (spec->length & KVSHM__KEY_END)
        any.parent = KVSHM__NO_RECORD;
    uint64_t parent_seq = any.parent == KVSHM__NO_RECORD ? 0 : KVSHM__LOAD(&kv->records[any.parent].seq);
    kvshm__index_find(kv, &any, parent_seq, true, &found, &gave_up);
    return found.record;
}

static bool load_page(struct loading *l, uint64_t number)
{
    kvshm *kv = l->kv;
    const struct kvshm_slot_header *h = header_at(l, number);
    struct kvshm__page_spec spec;

    uint32_t record = record_of(l, h->page_id);
    if (record != KVSHM__NO_RECORD) {
        if (!is_key(h)) /* in two slots: an entry ends there if either says so */
            l->records[number] = record + 1;
        return false;
    }
    if (!spec_of(l, h, &spec))
        return false;
    record = find_page(kv, &spec);
    if (record != KVSHM__NO_RECORD) { /* token pages of one identity are one: what stands below this one stands below that */
        l->records[find_id(l, h->page_id)] = is_key(h) ? 0 : record + 1;
        return false;
    }
    kvshm_a64 *word = kvshm__index_empty(kv, spec.hash);
    record = word ? kvshm__pages_take(kv) : KVSHM__NO_RECORD;
    if (record == KVSHM__NO_RECORD)
        return false;
    uint64_t last_id = KVSHM__LOAD(&kv->header->next_page_id);
    kvshm__pages_write(kv, record, &spec);
    KVSHM__STORE(&kv->header->next_page_id, last_id);
    for (int i = 0; i < 2; i++) {
        KVSHM__STORE(&kv->records[record].page_id[i], h->page_id[i]);
        KVSHM__STORE(&kv->records[record].caller[i], h->caller[i]);
    }
    kvshm__slots_load(kv, record, (uint32_t)h->slot, h->payload_sum, h->flags);
    kvshm__pages_load(kv, record);
    kvshm__index_set(word, spec.hash, record);
    l->records[find_id(l, h->page_id)] = record + 1;
    l->records[number] = record + 1;
    return true;
}

static bool is_filled(const kvshm *kv, const struct kvshm_slot_header *end)
{
    struct kvshm__page_spec spec = {
        .parent = KVSHM__NO_RECORD,
        .length = end->length | KVSHM__KEY_ONLY | KVSHM__KEY_END,
        .adapter_id = end->adapter_id,
        .tenant = end->tenant,
        .key = (const uint8_t *)end->words,
    };

    spec.hash = kvshm__hash_key(kv->secret, spec.adapter_id, spec.tenant, spec.key, KVSHM__KEY_DEEPEST);
    return find_page(kv, &spec) != KVSHM__NO_RECORD;
}

/* The filling of a key that ends here, if all of it is in the file, and no later one is. */
static void load_key(struct loading *l, uint64_t end)
{
    uint64_t n = 0, number = end, most = header_at(l, end)->depth + UINT64_C(1);

    if (most > l->count) /* no chain is so long; links that lead in a circle are (damage) */
        return;
    while (n < most && number != NO_HEADER && is_key(header_at(l, number))) {
        l->chain[n++] = number;
        number = find_id(l, header_at(l, number)->parent_id);
    }
    if (n < most || header_at(l, l->chain[n - 1])->depth != 0 || is_filled(l->kv, header_at(l, end)))
        return;
    while (n > 0 && load_page(l, l->chain[n - 1]))
        n--;
}

/* ---- All of it ---------------------------------------------------------------------------------------------- */

static const struct loading *sorting; /* qsort has no argument for it; creators of this process take turns */

static const struct kvshm_slot_header *sorted(const void *number)
{
    return header_at(sorting, *(const uint64_t *)number);
}

/* Token pages from the roots down; behind them keys, the latest filling first. */
static int in_order(const void *a, const void *b)
{
    const struct kvshm_slot_header *one = sorted(a), *other = sorted(b);

    if (is_key(one) != is_key(other))
        return is_key(one) - is_key(other);
    if (is_key(one))
        return one->page_id[1] > other->page_id[1] ? -1 : one->page_id[1] < other->page_id[1];
    return one->depth < other->depth ? -1 : one->depth > other->depth;
}

static int by_stamp(const void *a, const void *b)
{
    const struct kvshm_slot_header *one = sorted(a), *other = sorted(b);

    return one->stamp < other->stamp ? -1 : one->stamp > other->stamp;
}

static void load_pages(struct loading *l)
{
    sorting = l;
    for (uint64_t i = 0; i < l->count; i++)
        l->order[i] = i;
    qsort(l->order, l->count, sizeof(*l->order), in_order);
    for (uint64_t i = 0; i < l->count; i++) {
        const struct kvshm_slot_header *h = header_at(l, l->order[i]);
        if (!is_key(h))
            load_page(l, l->order[i]);
        else if (h->flags & KVSHM__SLOT_ENTRY)
            load_key(l, l->order[i]);
    }
}

static int by_slot(const void *slot, const void *header)
{
    uint64_t one = *(const uint64_t *)slot, other = ((const struct kvshm_slot_header *)header)->slot;

    return one < other ? -1 : one > other;
}

/* Something may come below the page later: then the file has to know that an entry ends here, or it would be none. */
static void name_in_file(struct loading *l, uint32_t record)
{
    uint64_t slot = kvshm__slot_number(KVSHM__LOAD(&l->kv->records[record].slot));
    struct kvshm_slot_header *h = bsearch(&slot, l->headers, l->count, l->header_bytes, by_slot); /* as they were swept */

    if (!h || (h->flags & KVSHM__SLOT_ENTRY))
        return;
    h->flags |= KVSHM__SLOT_ENTRY;
    kvshm__slot_seal(l->file, h);
    if (kvshm__spill_header_write(l->file, h) == 0)
        KVSHM__STORE(&l->kv->slots[h->slot].flags, h->flags);
}

/* An entry ends at the page. */
static void name_entry(struct loading *l, uint32_t record, uint64_t stamp)
{
    kvshm *kv = l->kv;

    name_in_file(l, record);
    KVSHM__STORE(&kv->records[record].policy, stamp);
    KVSHM__STORE_REL(&kv->records[record].stamp, stamp);
    kvshm__recency_give_up(kv, record);
}

/* The record that was loaded of a header, if no entry ends there yet; KVSHM__NO_RECORD: none. */
static uint32_t unnamed(const struct loading *l, uint64_t number)
{
    uint32_t record = l->records[number] - 1;

    if (record >= l->kv->record_count || KVSHM__LOAD(&l->kv->records[record].stamp) != 0 ||
        !kvshm__place_pending(KVSHM__LOAD(&l->kv->records[record].place))) /* taken away with one below it */
        return KVSHM__NO_RECORD;
    return record;
}

/*
 * The longest unused are named first; stamps of another boot say no more than which was used before which. What is then
 * below no entry is the beginning of one that was not written whole, and becomes one; but not where one was removed.
 */
static void name_entries(struct loading *l)
{
    uint32_t record;

    qsort(l->order, l->count, sizeof(*l->order), by_stamp);
    for (uint64_t i = 0; i < l->count; i++) {
        record = unnamed(l, l->order[i]);
        if (record != KVSHM__NO_RECORD && (header_at(l, l->order[i])->flags & KVSHM__SLOT_ENTRY))
            name_entry(l, record, i + 1);
    }
    for (uint64_t i = 0; i < l->count; i++) {
        const struct kvshm_slot_header *h = header_at(l, l->order[i]);
        record = unnamed(l, l->order[i]);
        if (record == KVSHM__NO_RECORD || kvshm__pages_has_children(l->kv, record))
            continue;
        if (is_key(h) || (h->flags & KVSHM__SLOT_REMOVED)) /* of a key: there was no room for the rest */
            kvshm__evict_take_away(l->kv, record);
        else
            name_entry(l, record, i + 1);
    }
}

/* What is in the file, and nobody's page, would come back at the next start. */
static void refuse_rest(struct loading *l)
{
    for (uint64_t i = 0; i < l->count; i++) {
        uint32_t slot = (uint32_t)header_at(l, i)->slot;
        if (KVSHM__LOAD(&l->kv->slots[slot].owner) == KVSHM__OWNER_FREE)
            kvshm__slots_refuse(l->kv, slot);
    }
}

static int load_all(struct loading *l, const struct kvshm__spill_file *file)
{
    struct kvshm__spill_swept swept;
    int code = kvshm__spill_sweep(file, collect, l, &swept);

    if (code < 0)
        return kvshm__fail(code, "slot headers of the spill file: %s", kvshm_strerror(code));
    load_pages(l);
    name_entries(l);
    refuse_rest(l);
    kvshm__slots_rebuild(l->kv);
    while (!kvshm__evict_to_capacity(l->kv, KVSHM__CAPACITY_SLICE))
        ;
    return 0;
}

static uint64_t power_of_two(uint64_t least)
{
    uint64_t power = 1;

    while (power < least)
        power *= 2;
    return power;
}

static int map_table(uint64_t bytes, void **table)
{
    return kvshm__sys.map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, table);
}

/* Bytes of the tables of so many slots, which lie one behind the other. */
struct sizes {
    uint64_t headers, order, records, ids;
};

int kvshm__load(kvshm *kv, const struct kvshm__spill_file *file)
{
    struct loading l = {.kv = kv, .file = file, .epoch = KVSHM__LOAD(&kv->header->epoch)};
    uint64_t slots = file->shape.slots, ids = power_of_two(2 * slots);
    struct sizes size = {
        .headers = slots * file->shape.header_stride,
        .order = 2 * slots * sizeof(*l.order),
        .records = slots * sizeof(*l.records),
        .ids = ids * sizeof(*l.ids),
    };
    uint64_t bytes = size.headers + size.order + size.records + size.ids;
    void *tables;
    int code = map_table(bytes, &tables);

    if (code < 0)
        return kvshm__fail(code, "%llu bytes of memory for the slot headers of the spill file: %s", (unsigned long long)bytes,
                           kvshm_strerror(code));
    l.header_bytes = file->shape.header_stride;
    l.headers = tables;
    l.order = (void *)(l.headers + size.headers);
    l.chain = l.order + slots;
    l.records = (void *)(l.chain + slots);
    l.ids = l.records + slots;
    l.ids_mask = ids - 1;
    code = load_all(&l, file);
    kvshm__sys.unmap(tables, bytes);
    return code;
}
