/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "index.h"
#include "message.h"
#include "recency.h"
#include "slots.h"
#include "sys.h"
#include "tokens.h"

/* All valid headers of the epoch, in one piece of memory, and where the pages of their ids are. */
struct loading {
    kvshm *kv;
    uint64_t epoch;
    char *headers;         /* header_bytes each */
    uint64_t header_bytes;
    uint64_t count;
    uint64_t *order;       /* numbers of headers, by depth */
    uint32_t *ids;         /* hash table of page ids: record + 1 */
    uint64_t ids_mask;
};

static struct kvshm_slot_header *header_at(const struct loading *l, uint64_t i)
{
    return (void *)(l->headers + i * l->header_bytes);
}

static int collect(void *arg, const struct kvshm_slot_header *h)
{
    struct loading *l = arg;

    if (h->epoch == l->epoch)
        memcpy(header_at(l, l->count++), h, sizeof(*h) + 8 * (size_t)kvshm__slot_words(h->flags, h->length));
    return 0;
}

/* ---- Page ids ----------------------------------------------------------------------------------------------- */

static uint64_t start_of(const struct loading *l, const uint64_t id[2])
{
    return ((id[0] ^ id[1]) * 0x9e3779b97f4a7c15u >> 20) & l->ids_mask;
}

/* Only loaded pages stand in the table, under the ids of their headers. */
static uint32_t find_id(const struct loading *l, const uint64_t id[2])
{
    for (uint64_t i = start_of(l, id);; i = (i + 1) & l->ids_mask) {
        uint32_t record = l->ids[i] - 1;
        if (l->ids[i] == 0)
            return KVSHM__NO_RECORD;
        kvshm_a64 *other = l->kv->records[record].page_id;
        if (KVSHM__LOAD(&other[0]) == id[0] && KVSHM__LOAD(&other[1]) == id[1])
            return record;
    }
}

static void add_id(struct loading *l, const uint64_t id[2], uint32_t record)
{
    uint64_t i = start_of(l, id);

    while (l->ids[i] != 0)
        i = (i + 1) & l->ids_mask;
    l->ids[i] = record + 1;
}

/* ---- Pages -------------------------------------------------------------------------------------------------- */

/* What the header says of a page; false: its parent is not there. */
static bool spec_of(const struct loading *l, const struct kvshm_slot_header *h, struct kvshm__page_spec *spec)
{
    const kvshm *kv = l->kv;
    bool key_only = (h->flags & KVSHM__SLOT_KEY_ONLY) != 0, last = (h->flags & KVSHM__SLOT_ENTRY) != 0;

    *spec = (struct kvshm__page_spec){
        .parent = KVSHM__NO_RECORD,
        .length = h->length | (!key_only ? 0 : last ? KVSHM__KEY_ONLY | KVSHM__KEY_END : KVSHM__KEY_ONLY),
        .adapter_id = h->adapter_id,
        .tenant = h->tenant,
        .tokens = key_only ? NULL : (const uint32_t *)h->words,
        .key = key_only ? (const uint8_t *)h->words : NULL,
    };
    if (h->depth > 0) {
        spec->parent = find_id(l, h->parent_id);
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

static bool is_there(const kvshm *kv, const struct kvshm__page_spec *spec)
{
    uint64_t parent_seq = spec->parent == KVSHM__NO_RECORD ? 0 : KVSHM__LOAD(&kv->records[spec->parent].seq);
    struct kvshm__found found;
    bool gave_up;

    return kvshm__index_find(kv, spec, parent_seq, true, &found, &gave_up);
}

/* KVSHM__NO_RECORD: it is of no use. */
static uint32_t load_page(struct loading *l, const struct kvshm_slot_header *h)
{
    kvshm *kv = l->kv;
    struct kvshm__page_spec spec;

    if (!spec_of(l, h, &spec) || is_there(kv, &spec) || find_id(l, h->page_id) != KVSHM__NO_RECORD)
        return KVSHM__NO_RECORD;
    kvshm_a64 *word = kvshm__index_empty(kv, spec.hash);
    uint32_t record = word ? kvshm__pages_take(kv) : KVSHM__NO_RECORD;
    if (record == KVSHM__NO_RECORD)
        return record;
    kvshm__pages_write(kv, record, &spec);
    for (int i = 0; i < 2; i++) {
        KVSHM__STORE(&kv->records[record].page_id[i], h->page_id[i]);
        KVSHM__STORE(&kv->records[record].caller[i], h->caller[i]);
    }
    kvshm__slots_load(kv, record, (uint32_t)h->slot, h->payload_sum);
    kvshm__pages_load(kv, record);
    kvshm__index_set(word, spec.hash, record);
    add_id(l, h->page_id, record);
    return record;
}

/* ---- All of it ---------------------------------------------------------------------------------------------- */

static const struct loading *sorting; /* qsort has no argument for it; creators of this process take turns */

static int by_depth(const void *a, const void *b)
{
    uint32_t one = header_at(sorting, *(const uint64_t *)a)->depth, other = header_at(sorting, *(const uint64_t *)b)->depth;

    return one < other ? -1 : one > other;
}

static int by_stamp(const void *a, const void *b)
{
    uint64_t one = header_at(sorting, *(const uint64_t *)a)->stamp, other = header_at(sorting, *(const uint64_t *)b)->stamp;

    return one < other ? -1 : one > other;
}

/* Entries, and pages below which nothing is, the longest unused first. Stamps of another boot say no more than that. */
static void name_entries(struct loading *l)
{
    kvshm *kv = l->kv;

    qsort(l->order, l->count, sizeof(*l->order), by_stamp);
    for (uint64_t i = 0; i < l->count; i++) {
        const struct kvshm_slot_header *h = header_at(l, l->order[i]);
        uint32_t record = find_id(l, h->page_id);
        if (record == KVSHM__NO_RECORD || KVSHM__LOAD(&kv->records[record].stamp) != 0 ||
            (!(h->flags & KVSHM__SLOT_ENTRY) && kvshm__pages_has_children(kv, record)))
            continue;
        if ((h->flags & KVSHM__SLOT_KEY_ONLY) && !(h->flags & KVSHM__SLOT_ENTRY))
            continue; /* the rest of a key-only chain that was not written whole */
        KVSHM__STORE(&kv->records[record].policy, i + 1);
        KVSHM__STORE_REL(&kv->records[record].stamp, i + 1);
        kvshm__recency_give_up(kv, record);
    }
}

static int load_all(struct loading *l, const struct kvshm__spill_file *file)
{
    struct kvshm__spill_swept swept;
    int code = kvshm__spill_sweep(file, collect, l, &swept);

    if (code < 0)
        return kvshm__fail(code, "slot headers of the spill file: %s", kvshm_strerror(code));
    for (uint64_t i = 0; i < l->count; i++)
        l->order[i] = i;
    sorting = l;
    qsort(l->order, l->count, sizeof(*l->order), by_depth);
    for (uint64_t i = 0; i < l->count; i++)
        load_page(l, header_at(l, l->order[i]));
    name_entries(l);
    kvshm__slots_rebuild(l->kv);
    return 0;
}

static uint64_t power_of_two(uint64_t least)
{
    uint64_t power = 1;

    while (power < least)
        power *= 2;
    return power;
}

int kvshm__load(kvshm *kv, const struct kvshm__spill_file *file)
{
    struct loading l = {.kv = kv, .epoch = KVSHM__LOAD(&kv->header->epoch)};
    uint64_t slots = file->shape.slots, ids = power_of_two(2 * slots);
    void *headers = NULL, *order = NULL, *table = NULL;
    int code;

    l.header_bytes = file->shape.header_stride;
    l.ids_mask = ids - 1;
    code = kvshm__sys.map(slots * l.header_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                          &headers);
    if (code == 0)
        code = kvshm__sys.map(slots * sizeof(*l.order), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, &order);
    if (code == 0)
        code = kvshm__sys.map(ids * sizeof(*l.ids), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, &table);
    if (code == 0) {
        l.headers = headers;
        l.order = order;
        l.ids = table;
        code = load_all(&l, file);
    } else {
        kvshm__fail(code, "memory for the slot headers of the spill file: %s", kvshm_strerror(code));
    }
    if (headers)
        kvshm__sys.unmap(headers, slots * l.header_bytes);
    if (order)
        kvshm__sys.unmap(order, slots * sizeof(*l.order));
    if (table)
        kvshm__sys.unmap(table, ids * sizeof(*l.ids));
    return code;
}
