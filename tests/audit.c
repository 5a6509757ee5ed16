/* SPDX-License-Identifier: Apache-2.0 */
#include "audit.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "ages.h"
#include "audit_look.h"
#include "client.h"
#include "frames.h"
#include "lease.h"
#include "tokens.h"

void audit_found(struct look *l, const char *fmt, ...)
{
    va_list arguments;

    l->findings++;
    fprintf(l->out, "audit: ");
    va_start(arguments, fmt);
    vfprintf(l->out, fmt, arguments);
    va_end(arguments);
    fprintf(l->out, "\n");
}

/* Have all records of earlier epochs been swept? */
bool audit_epochs_swept(const kvshm *kv)
{
    const struct kvshm_derived *d = &kv->header->derived;

    return KVSHM__LOAD((kvshm_a32 *)&d->sweep_record) >= KVSHM__LOAD((kvshm_a32 *)&d->fresh_record);
}

/* ---- Index words ---------------------------------------------------------------------------------------- */

static void check_word(struct look *l, kvshm_a64 *at)
{
    const kvshm *kv = l->kv;
    uint64_t word = KVSHM__LOAD(at);
    uint32_t record = kvshm__index_record(kv, word);

    if (word == 0)
        return;
    if (record == KVSHM__NO_RECORD) {
        audit_found(l, "index word %#" PRIx64 " names no record", word);
        return;
    }
    if (l->words[record]++ > 0)
        audit_found(l, "record %u is named by %u index words", record, l->words[record]);
    if (kvshm__index_word_of(kv, record) != at)
        audit_found(l, "index word %#" PRIx64 " of record %u does not stand where its hash says", word,
              record);
    if (!in_use(kv, record))
        audit_found(l, "index word %#" PRIx64 " names record %u, which is free", word, record);
    else if (!of_this_epoch(kv, record) && audit_epochs_swept(kv))
        audit_found(l, "index word %#" PRIx64 " names record %u of epoch %u", word, record,
              KVSHM__LOAD(&kv->records[record].epoch));
}

static void check_words(struct look *l)
{
    for (uint32_t b = 0; b < l->kv->bucket_count; b++) {
        for (uint32_t i = 0; i < KVSHM__BUCKET_WORDS; i++)
            check_word(l, &l->kv->buckets[b].word[i]);
    }
}

/* ---- Records and places ----------------------------------------------------------------------------------- */

static void check_free_record(struct look *l, uint32_t record)
{
    const kvshm *kv = l->kv;

    if (l->words[record] != 0)
        audit_found(l, "free record %u is named by an index word", record);
    if (stamp_of(kv, record) != 0 && (of_this_epoch(kv, record) || audit_epochs_swept(kv)))
        audit_found(l, "free record %u has stamp %" PRIu64, record, stamp_of(kv, record));
}

static void check_frame_of(struct look *l, uint32_t record)
{
    const kvshm *kv = l->kv;
    uint32_t frame = kvshm__place_frame(KVSHM__LOAD(&kv->records[record].place));
    enum kvshm_place_state state = state_of(kv, record);

    /* What has left memory has no frame; what was taken away then, or while it was read, has none either. */
    if (state == KVSHM__PLACE_SPILLED || (kv->slots && state == KVSHM__PLACE_AWAY))
        return;
    if (state == KVSHM__PLACE_RESTORING) {
        if (frame >= kv->frame_count ||
            kvshm__owner_kind(KVSHM__LOAD(&kv->owners[frame].owner)) != KVSHM__OWNER_RESTORING)
            audit_found(l, "record %u is read into frame %u, which is not for that", record, frame);
        return;
    }
    if (frame >= kv->frame_count)
        audit_found(l, "record %u stands in frame %u of %u", record, frame, kv->frame_count);
    else if (KVSHM__LOAD(&kv->owners[frame].owner) != kvshm__owner_page(record))
        audit_found(l, "record %u stands in frame %u, whose owner word is %#" PRIx64, record, frame,
              KVSHM__LOAD(&kv->owners[frame].owner));
}

/* Does a word name it, as its state wants? A key-only page is not called back, so in limbo it needs none. */
static void check_named(struct look *l, uint32_t record)
{
    const kvshm *kv = l->kv;

    if (!of_this_epoch(kv, record)) {
        if (published(kv, record) && audit_epochs_swept(kv))
            audit_found(l, "record %u of epoch %u is still published", record,
                  KVSHM__LOAD(&kv->records[record].epoch));
        return;
    }
    if (l->words[record] == 0 &&
        (published(kv, record) || pending(kv, record) || !key_only(kv, record)))
        audit_found(l, "record %u, %s, is named by no index word", record,
              published(kv, record) ? "published" : "pending or in limbo");
    if (l->words[record] != 0 && !published(kv, record) && !pending(kv, record) &&
        key_only(kv, record))
        audit_found(l, "record %u, key-only and in limbo, keeps an index word", record);
}

static bool has_child(const kvshm *kv, uint32_t record)
{
    for (uint32_t child = 0; child < kv->record_count; child++) {
        if ((published(kv, child) || pending(kv, child)) &&
            kvshm__pages_parent(kv, child) == record)
            return true;
    }
    return false;
}

/* E3, and which pages an entry may end at. */
static void check_entry(struct look *l, uint32_t record)
{
    const kvshm *kv = l->kv;

    if (!(published(kv, record) || pending(kv, record)) || !of_this_epoch(kv, record))
        return;
    if (stamp_of(kv, record) == 0 && !has_child(kv, record))
        audit_found(l, "record %u is published, without an entry or a published child (E3)", record);
    if (key_only(kv, record) &&
        (stamp_of(kv, record) != 0) != !!(length_of(kv, record) & KVSHM__KEY_END))
        audit_found(l, "key-only record %u, length word %#x, has stamp %" PRIu64, record,
              length_of(kv, record), stamp_of(kv, record));
}

static void check_records(struct look *l)
{
    const kvshm *kv = l->kv;

    for (uint32_t record = 0; record < kv->record_count; record++) {
        if (KVSHM__LOAD(&kv->records[record].seq) & 1)
            audit_found(l, "the sequence of record %u is odd", record);
        if (state_of(kv, record) > (kv->slots ? KVSHM__PLACE_PARTING : KVSHM__PLACE_AWAY))
            audit_found(l, "record %u is in state %d", record, state_of(kv, record));
        if (!in_use(kv, record)) {
            check_free_record(l, record);
            continue;
        }
        check_frame_of(l, record);
        check_named(l, record);
        check_entry(l, record);
    }
}

/* ---- The tree --------------------------------------------------------------------------------------------- */

/* Is far on the way from record to its root? */
static bool stands_above(const kvshm *kv, uint32_t far, uint32_t record)
{
    for (uint32_t i = 0; record != KVSHM__NO_RECORD && i <= kv->record_count; i++) {
        if (record == far)
            return true;
        record = kvshm__pages_parent(kv, record);
    }
    return false;
}

static void check_parent(struct look *l, uint32_t record)
{
    const kvshm *kv = l->kv;
    uint32_t parent = kvshm__pages_parent(kv, record);

    if (KVSHM__LOAD(&kv->records[record].parent1) == 0) {
        if (KVSHM__LOAD(&kv->records[record].depth) != 0)
            audit_found(l, "root %u has depth %u", record, KVSHM__LOAD(&kv->records[record].depth));
    } else if (parent == KVSHM__NO_RECORD || !in_use(kv, parent)) {
        audit_found(l, "record %u is in use and its parent is not there", record);
    } else {
        if (published(kv, record) && !published(kv, parent) && of_this_epoch(kv, record))
            audit_found(l, "record %u is published and its parent %u is not", record, parent);
        if (pending(kv, record) && !published(kv, parent) && !pending(kv, parent) &&
            of_this_epoch(kv, record))
            audit_found(l, "record %u is pending and its parent %u is not there", record, parent);
        if (pending(kv, record) && state_of(kv, record) != KVSHM__PLACE_SPILLED &&
            state_of(kv, parent) == KVSHM__PLACE_SPILLED)
            audit_found(l, "record %u has a frame and its parent %u has left memory", record, parent);
        if (KVSHM__LOAD(&kv->records[record].epoch) != KVSHM__LOAD(&kv->records[parent].epoch))
            audit_found(l, "record %u is not of its parent's epoch", record);
        if (!key_only(kv, parent) && length_of(kv, parent) != kv->page_tokens)
            audit_found(l, "record %u stands below %u, a partial page", record, parent);
    }
    if (!stands_above(kv, KVSHM__LOAD(&kv->links[record].jump1) - 1, record))
        audit_found(l, "the jump of record %u does not lead to a page above it", record);
}

static void check_partial(struct look *l, uint32_t record)
{
    const kvshm *kv = l->kv;
    uint32_t parent = kvshm__pages_parent(kv, record), m = length_of(kv, record);
    uint64_t named;

    if (key_only(kv, record) || m == kv->page_tokens || !of_this_epoch(kv, record))
        return;
    named = KVSHM__LOAD(parent == KVSHM__NO_RECORD ? &kv->header->root_partials
                                                   : &kv->records[parent].partials);
    if (!(named & kvshm__partial_bit(kv, m)))
        audit_found(l, "record %u holds %u tokens, and its parent names no such child", record, m);
}

/* The hash of what the record holds, made from its text and its parent's hash. */
static uint64_t hash_anew(const kvshm *kv, uint32_t record)
{
    const struct kvshm_record *r = &kv->records[record];
    uint32_t parent = kvshm__pages_parent(kv, record),
             depth = KVSHM__LOAD(&kv->records[record].depth);
    uint64_t adapter = KVSHM__LOAD((kvshm_a64 *)&r->adapter_id);
    uint64_t tenant = KVSHM__LOAD((kvshm_a64 *)&r->tenant);

    if (key_only(kv, record))
        return kvshm__hash_key(kv->secret, adapter, tenant, (const uint8_t *)kvshm__text(kv, record),
                               length_of(kv, record) & KVSHM__KEY_END ? KVSHM__KEY_DEEPEST : depth);
    return kvshm__hash_page(kv->secret,
                            parent == KVSHM__NO_RECORD
                                ? kvshm__hash_root(kv->secret, adapter, tenant)
                                : KVSHM__LOAD(&kv->records[parent].hash),
                            (const uint32_t *)kvshm__text(kv, record), length_of(kv, record));
}

/*
 * A list of a page's children, those in frames or those in none: each a page in use whose parent it is, met for the first
 * time, both ways linked.
 */
static void walk_children(struct look *l, uint32_t parent, kvshm_a32 *list, bool spilled)
{
    const kvshm *kv = l->kv;
    uint32_t before1 = 0, child1 = KVSHM__LOAD(list);

    while (child1 != 0) {
        uint32_t child = child1 - 1;

        if (child >= kv->record_count || !in_use(kv, child) ||
            (state_of(kv, child) == KVSHM__PLACE_SPILLED) != spilled ||
            kvshm__pages_parent(kv, child) != parent) {
            audit_found(l, "the list of children of record %u holds %u, which is none", parent, child);
            return;
        }
        if (l->lists[child] & IN_CHILDREN) {
            audit_found(l, "record %u is twice in the list of children of %u", child, parent);
            return;
        }
        l->lists[child] |= IN_CHILDREN;
        if (KVSHM__LOAD(&kv->links[child].prev1) != before1)
            audit_found(l, "record %u is not linked back in the list of children of %u", child, parent);
        before1 = child1;
        child1 = KVSHM__LOAD(&kv->links[child].next1);
    }
}

static void check_tree(struct look *l)
{
    const kvshm *kv = l->kv;

    for (uint32_t record = 0; record < kv->record_count; record++) {
        if (in_use(kv, record))
            walk_children(l, record, &kv->links[record].child1, false);
        if (in_use(kv, record) && kv->ages)
            walk_children(l, record, &kv->ages[record].spilled1, true);
    }
    for (uint32_t record = 0; record < kv->record_count; record++) {
        if (!in_use(kv, record))
            continue;
        check_parent(l, record);
        check_partial(l, record);
        if (KVSHM__LOAD(&kv->records[record].hash) != hash_anew(kv, record))
            audit_found(l, "the hash of record %u is not that of what it holds", record);
        if (kvshm__pages_parent(kv, record) != KVSHM__NO_RECORD &&
            !(l->lists[record] & IN_CHILDREN))
            audit_found(l, "record %u is in no list of children (P3)", record);
    }
}

/* ---- No page twice, no page id twice ------------------------------------------------------------------- */

static const kvshm *sorting; /* qsort() passes no argument on */

static int by_hash(const void *a, const void *b)
{
    uint64_t x = KVSHM__LOAD(&sorting->records[*(const uint32_t *)a].hash);
    uint64_t y = KVSHM__LOAD(&sorting->records[*(const uint32_t *)b].hash);

    return x < y ? -1 : x > y;
}

static kvshm_a64 *page_id_of(const kvshm *kv, uint32_t record)
{
    return kv->records[record].page_id;
}

static int by_page_id(const void *a, const void *b)
{
    uint64_t x = KVSHM__LOAD(page_id_of(sorting, *(const uint32_t *)a) + 1);
    uint64_t y = KVSHM__LOAD(page_id_of(sorting, *(const uint32_t *)b) + 1);

    return x < y ? -1 : x > y;
}

/* Two token pages of this epoch that mean the same (hashes of equal pages are equal: compared above). */
static bool same_page(const kvshm *kv, uint32_t a, uint32_t b)
{
    if (key_only(kv, a) || key_only(kv, b) || !of_this_epoch(kv, a) || !of_this_epoch(kv, b))
        return false;
    return length_of(kv, a) == length_of(kv, b) &&
           kvshm__pages_parent(kv, a) == kvshm__pages_parent(kv, b) &&
           KVSHM__LOAD(&kv->records[a].adapter_id) == KVSHM__LOAD(&kv->records[b].adapter_id) &&
           KVSHM__LOAD(&kv->records[a].tenant) == KVSHM__LOAD(&kv->records[b].tenant) &&
           memcmp(kvshm__text(kv, a), kvshm__text(kv, b), length_of(kv, a) * sizeof(uint32_t)) == 0;
}

static void check_twins(struct look *l)
{
    const kvshm *kv = l->kv;
    uint32_t n = 0;

    for (uint32_t record = 0; record < kv->record_count; record++) {
        if (in_use(kv, record))
            l->order[n++] = record;
    }
    sorting = kv;
    qsort(l->order, n, sizeof(*l->order), by_hash);
    for (uint32_t i = 1; i < n; i++) {
        if (same_page(kv, l->order[i - 1], l->order[i]))
            audit_found(l, "records %u and %u are one page (I2)", l->order[i - 1], l->order[i]);
    }
    qsort(l->order, n, sizeof(*l->order), by_page_id);
    for (uint32_t i = 0; i < n; i++) {
        const kvshm_a64 *page_id = page_id_of(kv, l->order[i]);

        if (i > 0 && by_page_id(&l->order[i - 1], &l->order[i]) == 0)
            audit_found(l, "records %u and %u have one page id", l->order[i - 1], l->order[i]);
        if ((!kv->slots && KVSHM__LOAD((kvshm_a64 *)&page_id[0]) != kv->fixed->opening_id) ||
            KVSHM__LOAD((kvshm_a64 *)&page_id[1]) > KVSHM__LOAD(&kv->header->next_page_id))
            audit_found(l, "the page id of record %u was never given", l->order[i]);
    }
}

/* ---- Frames ----------------------------------------------------------------------------------------------- */

/* F2, and that the reservation is one that can be. */
static void check_reserved(struct look *l, uint32_t frame, uint64_t owner)
{
    const kvshm *kv = l->kv;
    uint32_t word = kvshm__owner_word(owner);
    int place = kvshm__client_find(kv, kvshm__owner_client(owner));

    if (word >= kv->max_leases)
        audit_found(l, "frame %u names word %u of a reservation table", frame, word);
    else if (place >= 0 && KVSHM__LOAD(&kv->reservations[(size_t)place * kv->max_leases + word]) ==
                               KVSHM__RESERVATION_EMPTY)
        audit_found(l, "frame %u names word %u of client %" PRIu64 ", which is empty (F2)", frame, word,
              kvshm__owner_client(owner));
}

static void check_owner(struct look *l, uint32_t frame, uint64_t owner)
{
    const kvshm *kv = l->kv;
    uint32_t record = (uint32_t)owner;

    switch (kvshm__owner_kind(owner)) {
    case KVSHM__OWNER_FREE:
        break;
    case KVSHM__OWNER_RESERVED:
    case KVSHM__OWNER_DEVICE:
        check_reserved(l, frame, owner);
        break;
    case KVSHM__OWNER_RESTORING:
        if (!kv->slots)
            audit_found(l, "frame %u is read into, and there is no spill file", frame);
        break;
    case KVSHM__OWNER_PAGE:
        if (record >= kv->record_count || !in_use(kv, record) ||
            kvshm__place_frame(KVSHM__LOAD(&kv->records[record].place)) != frame)
            audit_found(l, "frame %u is of record %u, which does not stand in it: it is lost", frame,
                  record);
        break;
    default:
        audit_found(l, "frame %u has owner word %#" PRIx64, frame, owner);
    }
}

/* The list of free frames: how many. */
static uint64_t walk_free_frames(struct look *l)
{
    const kvshm *kv = l->kv;
    uint32_t fresh = KVSHM__LOAD(&kv->header->derived.fresh_frame);
    uint32_t next1 = KVSHM__LOAD(&kv->header->derived.free_frame1);
    uint64_t n = 0;

    while (next1 != 0) {
        if (next1 - 1 >= kv->frame_count || next1 - 1 >= fresh ||
            kvshm__owner_kind(KVSHM__LOAD(&kv->owners[next1 - 1].owner)) != KVSHM__OWNER_FREE ||
            n > kv->frame_count) {
            audit_found(l, "the list of free frames leads to frame %u", next1 - 1);
            break;
        }
        n++;
        next1 = KVSHM__LOAD(&kv->owners[next1 - 1].next1);
    }
    return n;
}

void audit_count_is(struct look *l, const char *what, uint64_t is, uint64_t true_count)
{
    if (is != true_count)
        audit_found(l, "%s is %" PRIu64 ", there are %" PRIu64, what, is, true_count);
}

static void check_device_frames(struct look *l)
{
    const kvshm *kv = l->kv;

    for (uint32_t place = 0; place < kv->max_clients; place++) {
        uint64_t number = KVSHM__LOAD(&kv->clients[place].number), n = 0;

        for (uint32_t frame = 0; number != 0 && frame < kv->frame_count; frame++) {
            uint64_t owner = KVSHM__LOAD(&kv->owners[frame].owner);

            n += kvshm__owner_kind(owner) == KVSHM__OWNER_DEVICE &&
                 kvshm__owner_client(owner) == number;
        }
        if (number != 0)
            audit_count_is(l, "device_frames", KVSHM__LOAD(&kv->clients[place].device_frames), n);
    }
}

static void check_frames(struct look *l)
{
    const kvshm *kv = l->kv;
    const struct kvshm_derived *d = &kv->header->derived;
    uint32_t fresh = KVSHM__LOAD((kvshm_a32 *)&d->fresh_frame);
    uint64_t n_free = 0, n_reserved = 0,
             n_fresh = fresh < kv->frame_count ? kv->frame_count - fresh : 0;

    for (uint32_t frame = 0; frame < kv->frame_count; frame++) {
        uint64_t owner = KVSHM__LOAD(&kv->owners[frame].owner);
        enum kvshm_owner_kind kind = kvshm__owner_kind(owner);

        check_owner(l, frame, owner);
        n_free += kind == KVSHM__OWNER_FREE;
        n_reserved += kind == KVSHM__OWNER_RESERVED || kind == KVSHM__OWNER_DEVICE;
        if (frame >= fresh && kind != KVSHM__OWNER_FREE)
            audit_found(l, "frame %u, never used, has owner word %#" PRIx64, frame, owner);
    }
    audit_count_is(l, "frames_free", KVSHM__LOAD((kvshm_a64 *)&d->frames_free), n_free);
    audit_count_is(l, "frames_reserved", KVSHM__LOAD((kvshm_a64 *)&d->frames_reserved), n_reserved);
    audit_count_is(l, "the list of free frames, with those never used,", walk_free_frames(l) + n_fresh,
             n_free);
    check_device_frames(l);
}

/* ---- Free records and limbo ------------------------------------------------------------------------------ */

static void walk_free_records(struct look *l)
{
    const kvshm *kv = l->kv;
    uint32_t next1 = KVSHM__LOAD(&kv->header->derived.free_record1);

    while (next1 != 0) {
        if (next1 - 1 >= kv->record_count || in_use(kv, next1 - 1) ||
            l->lists[next1 - 1] & IN_FREE) {
            audit_found(l, "the list of free records leads to record %u", next1 - 1);
            return;
        }
        l->lists[next1 - 1] |= IN_FREE;
        next1 = KVSHM__LOAD(&kv->links[next1 - 1].link1);
    }
}

static void walk_limbo(struct look *l)
{
    const kvshm *kv = l->kv;
    uint32_t next1 = KVSHM__LOAD(&kv->header->derived.limbo_first1), last1 = 0;

    while (next1 != 0 && next1 != KVSHM__LIST_END) {
        if (next1 - 1 >= kv->record_count || !in_use(kv, next1 - 1) ||
            l->lists[next1 - 1] & IN_LIMBO) {
            audit_found(l, "the list of limbo leads to record %u", next1 - 1);
            return;
        }
        l->lists[next1 - 1] |= IN_LIMBO;
        last1 = next1;
        next1 = KVSHM__LOAD(&kv->links[next1 - 1].link1);
    }
    if (last1 != 0 && next1 != KVSHM__LIST_END)
        audit_found(l, "the list of limbo does not end as it should");
    if (last1 != KVSHM__LOAD(&kv->header->derived.limbo_last1))
        audit_found(l, "limbo_last1 is %u, the last is %u", KVSHM__LOAD(&kv->header->derived.limbo_last1),
              last1);
}

static void check_lists(struct look *l)
{
    const kvshm *kv = l->kv;
    uint32_t fresh = KVSHM__LOAD(&kv->header->derived.fresh_record);
    uint64_t pages = 0, limbo = 0;

    walk_free_records(l);
    walk_limbo(l);
    for (uint32_t record = 0; record < kv->record_count; record++) {
        pages += published(kv, record);
        limbo += state_of(kv, record) == KVSHM__PLACE_AWAY;
        if (state_of(kv, record) == KVSHM__PLACE_PARTING && !(l->lists[record] & IN_LIMBO))
            audit_found(l, "record %u leaves memory and is not in limbo's list", record);
        if (!in_use(kv, record) && !(l->lists[record] & IN_FREE) != (record >= fresh))
            audit_found(l, "free record %u is %s the list of free ones", record,
                  record < fresh ? "not in" : "in");
        if (in_use(kv, record) && record >= fresh)
            audit_found(l, "record %u is in use, and none from %u on should", record, fresh);
        if (state_of(kv, record) == KVSHM__PLACE_AWAY && !(l->lists[record] & IN_LIMBO))
            audit_found(l, "record %u is away and not in limbo's list (E4)", record);
        if (in_use(kv, record) && !(l->lists[record] & IN_LIMBO) &&
            KVSHM__LOAD(&kv->links[record].link1) != 0)
            audit_found(l, "record %u is linked and in no list (E4)", record);
    }
    audit_count_is(l, "pages", KVSHM__LOAD(&kv->header->derived.pages), pages);
    audit_count_is(l, "limbo", KVSHM__LOAD(&kv->header->derived.limbo), limbo);
}

/* ---- The heap --------------------------------------------------------------------------------------------- */

static void check_heap_slot(struct look *l, uint32_t i)
{
    const kvshm *kv = l->kv;
    uint32_t record = KVSHM__LOAD(&kv->heap[i].record);
    uint64_t stamp = KVSHM__LOAD(&kv->heap[i].stamp);

    if (record >= kv->record_count) {
        audit_found(l, "slot %u of the heap holds record %u", i, record);
        return;
    }
    l->positions[record]++;
    if (KVSHM__LOAD(&kv->heap[record].position1) != i + 1)
        audit_found(l, "record %u is in slot %u of the heap, its position says %u", record, i,
              KVSHM__LOAD(&kv->heap[record].position1) - 1);
    if (stamp > stamp_of(kv, record) &&
        !(kv->ages && stamp <= KVSHM__LOAD(&kv->ages[record].kept)))
        audit_found(l, "record %u was used at %" PRIu64 ", the heap says later (R1)", record,
              stamp_of(kv, record));
    if (i > 0 && stamp < KVSHM__LOAD(&kv->heap[(i - 1) / 4].stamp))
        audit_found(l, "slot %u of the heap is older than the one above", i);
}

static void check_heap(struct look *l)
{
    const kvshm *kv = l->kv;
    const struct kvshm_derived *d = &kv->header->derived;
    uint32_t length = KVSHM__LOAD((kvshm_a32 *)&d->heap_length);
    uint64_t entries = 0;

    if (length > kv->record_count) {
        audit_found(l, "the heap has %u slots in use of %u", length, kv->record_count);
        return;
    }
    for (uint32_t i = 0; i < length; i++)
        check_heap_slot(l, i);
    for (uint32_t record = 0; record < kv->record_count; record++) {
        bool entry = (stamp_of(kv, record) != 0 || (kv->ages && KVSHM__LOAD(&kv->ages[record].kept) != 0)) &&
                     (published(kv, record) || pending(kv, record)) && of_this_epoch(kv, record);

        if (kv->ages && KVSHM__LOAD(&kv->ages[record].list) == KVSHM__AGES_LEFT)
            entry = false; /* audit_tier.c */

        entries += entry;
        if (entry != (l->positions[record] == 1))
            audit_found(l, "record %u is %s entry and %u times in the heap (R2)", record,
                  entry ? "an" : "no", l->positions[record]);
        if (!entry && KVSHM__LOAD(&kv->heap[record].position1) != 0 &&
            (of_this_epoch(kv, record) || audit_epochs_swept(kv)))
            audit_found(l, "record %u is no entry and has position %u", record,
                  KVSHM__LOAD(&kv->heap[record].position1) - 1);
        if (stamp_of(kv, record) != 0 && !published(kv, record) && !pending(kv, record) &&
            of_this_epoch(kv, record))
            audit_found(l, "record %u has stamp %" PRIu64 " and is no entry", record,
                  stamp_of(kv, record));
    }
    audit_count_is(l, "heap_length", length, entries);
    audit_count_is(l, "entries", KVSHM__LOAD((kvshm_a64 *)&d->entries), entries);
    entries += KVSHM__LOAD(&kv->header->tier.left.length) - KVSHM__LOAD(&kv->header->tier.pages_kept);
    if (entries > KVSHM__LOAD(&kv->header->settings.capacity))
        audit_found(l, "there are more entries than capacity");
}

/* ---- Leases ----------------------------------------------------------------------------------------------- */

/* Calls fn for each lease word that counts. */
static void each_lease(struct look *l, void (*fn)(struct look *, uint32_t record, uint64_t value))
{
    const kvshm *kv = l->kv;

    for (uint32_t place = 0; place < kv->max_clients; place++) {
        uint64_t number = KVSHM__LOAD(&kv->clients[place].number);
        uint32_t high = KVSHM__LOAD(&kv->clients[place].lease_high);

        if (number == 0 || !kvshm__client_counts(kv, number))
            continue;
        l->living = kvshm__client_alive(kv, number);
        for (uint32_t i = 0; i < kv->max_leases; i++) {
            uint64_t value = KVSHM__LOAD(&kv->leases[(size_t)place * kv->max_leases + i].word);

            if (value == 0)
                continue;
            if (i >= high)
                audit_found(l, "lease word %u of client %" PRIu64 " is in use, the mark is %u (L3)", i,
                      number, high);
            fn(l, kvshm__index_record(kv, value), value);
        }
    }
}

static void check_lease(struct look *l, uint32_t record, uint64_t value)
{
    const kvshm *kv = l->kv;
    bool current = record != KVSHM__NO_RECORD &&
                   kvshm__lease_value(record, KVSHM__LOAD(&kv->records[record].seq)) == value;

    /* A dead one that was joined may have died before the page that its word names was there. */
    if (!l->living && (!current || !in_use(kv, record)))
        return;
    if (!current) {
        audit_found(l, "lease word %#" PRIx64 " names no page that is there", value);
        return;
    }
    for (; record != KVSHM__NO_RECORD; record = kvshm__pages_parent(kv, record)) {
        if (!in_use(kv, record))
            audit_found(l, "lease word %#" PRIx64 " holds record %u, which is free (L1)", value, record);
    }
}

static void mark_chain(struct look *l, uint32_t record, uint64_t value)
{
    const kvshm *kv = l->kv;

    if (record == KVSHM__NO_RECORD || !in_use(kv, record) ||
        kvshm__lease_value(record, KVSHM__LOAD(&kv->records[record].seq)) != value)
        return;
    for (; record != KVSHM__NO_RECORD; record = kvshm__pages_parent(kv, record))
        l->words[record] = 1;
}

/* ---- All of it -------------------------------------------------------------------------------------------- */

static void check_rest(struct look *l)
{
    const kvshm *kv = l->kv;

    if (KVSHM__LOAD(&kv->header->lock.word) != 0)
        audit_found(l, "client %" PRIu64 " holds the writer lock", KVSHM__LOAD(&kv->header->lock.word));
    if (kv->pinned1 != 0)
        audit_found(l, "record %u is still pinned (I4)", kv->pinned1 - 1);
    for (size_t i = 0; i < (size_t)kv->max_clients * kv->max_leases; i++) {
        if (KVSHM__LOAD(&kv->reservations[i]) > KVSHM__RESERVATION_SWEPT)
            audit_found(l, "reservation word %zu is %" PRIu64, i, KVSHM__LOAD(&kv->reservations[i]));
    }
}

static void look_begin(struct look *l, const kvshm *kv, FILE *out)
{
    memset(l, 0, sizeof(*l));
    l->kv = kv;
    l->out = out;
    l->words = calloc(4 * (size_t)kv->record_count, sizeof(*l->words));
    if (l->words == NULL)
        abort();
    l->lists = l->words + kv->record_count;
    l->positions = l->lists + kv->record_count;
    l->order = l->positions + kv->record_count;
}

unsigned audit(const kvshm *kv, FILE *out)
{
    struct look l;

    look_begin(&l, kv, out);
    check_words(&l);
    check_records(&l);
    check_tree(&l);
    check_twins(&l);
    check_frames(&l);
    check_lists(&l);
    check_heap(&l);
    if (kv->slots)
        audit_tier(&l);
    each_lease(&l, check_lease);
    check_rest(&l);
    free(l.words);
    return l.findings;
}

unsigned audit_limbo_held(const kvshm *kv, FILE *out)
{
    struct look l;

    look_begin(&l, kv, out);
    each_lease(&l, mark_chain);
    l.findings = 0; /* of audit() */
    for (uint32_t record = 0; record < kv->record_count; record++) {
        if (state_of(kv, record) == KVSHM__PLACE_AWAY && !l.words[record])
            audit_found(&l, "record %u waits in limbo and nobody holds it", record);
    }
    free(l.words);
    return l.findings;
}
