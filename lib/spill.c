/* SPDX-License-Identifier: Apache-2.0 */
#include "spill.h"

#include <errno.h>
#include <string.h>

#include "ages.h"
#include "client.h"
#include "evict.h"
#include "frames.h"
#include "recency.h"
#include "slots.h"
#include "sys.h"

/* Entries looked at for pages to be written; and pages that one chain may have waiting. */
#define LOOK_MAX 1024
#define CHAIN_MAX 4096

static enum kvshm_place_state state_of(const kvshm *kv, uint32_t record)
{
    return kvshm__place_state(KVSHM__LOAD(&kv->records[record].place));
}

static bool published(const kvshm *kv, uint32_t record)
{
    return kvshm__place_published(KVSHM__LOAD(&kv->records[record].place));
}

/* A page that was cleared is in no list any more, and is to come into none. */
static bool of_this_epoch(const kvshm *kv, uint32_t record)
{
    return KVSHM__LOAD(&kv->records[record].epoch) == (uint32_t)KVSHM__LOAD(&kv->header->epoch);
}

/* ---- To the file ------------------------------------------------------------------------------------------ */

uint64_t kvshm__spill_allowed(const kvshm *kv)
{
    uint64_t budget = KVSHM__LOAD(&kv->header->settings.spill_bytes);

    if (budget <= kv->spill_fixed_bytes || kv->slot_bytes == 0)
        return 0;
    budget = (budget - kv->spill_fixed_bytes) / kv->slot_bytes;
    return budget < kv->slot_count ? budget : kv->slot_count;
}

bool kvshm__spill_wanted(const kvshm *kv, bool high)
{
    uint64_t written = KVSHM__LOAD(&kv->header->tier.slots_written), away = KVSHM__LOAD(&kv->header->tier.pages_spilled);
    uint64_t clean = written > away ? written - away : 0;
    uint64_t ready = KVSHM__LOAD(&kv->header->derived.frames_free) + clean;

    return ready < kv->frame_count / (high ? 4 : 8) + 1 || kvshm__slots_free(kv) + kvshm__spill_allowed(kv) < kv->slot_count;
}

/* Slots that may be taken now. */
static uint64_t available(const kvshm *kv)
{
    uint64_t free_slots = kvshm__slots_free(kv), kept_free = kv->slot_count - kvshm__spill_allowed(kv);

    return free_slots > kept_free ? free_slots - kept_free : 0;
}

void kvshm__spill_make_room(kvshm *kv, unsigned n)
{
    uint64_t kept_free = kv->slot_count - kvshm__spill_allowed(kv);
    uint32_t record;

    if (n > 0)
        kvshm__count(kv, KVSHM__CNT_spill_full, 1);
    while (kvshm__slots_free(kv) + kvshm__slots_doomed(kv) < kept_free + n &&
           (record = kvshm__ages_first(kv, KVSHM__AGES_LEFT)) != KVSHM__NO_RECORD) {
        kvshm__evict_drop_entry(kv, record);
        kvshm__count(kv, KVSHM__CNT_evicted_entries, 1);
    }
    while (kvshm__slots_free(kv) + kvshm__slots_doomed(kv) < kept_free && kvshm__evict_oldest(kv))
        continue;
    kvshm__evict_sweep_limbo(kv);
}

void kvshm__spill_header(const kvshm *kv, uint32_t record, uint32_t slot, struct kvshm_slot_header *h)
{
    struct kvshm_record *r = &kv->records[record];
    uint32_t length = KVSHM__LOAD(&r->length), parent = kvshm__pages_parent(kv, record);
    kvshm_a64 *words = kvshm__text(kv, record);

    h->flags = (KVSHM__LOAD(&r->stamp) != 0 ? KVSHM__SLOT_ENTRY : 0) |
               (length & KVSHM__KEY_ONLY ? KVSHM__SLOT_KEY_ONLY : 0);
    h->slot = slot;
    h->epoch = KVSHM__LOAD(&kv->header->epoch);
    for (int i = 0; i < 2; i++) {
        h->page_id[i] = KVSHM__LOAD(&r->page_id[i]);
        h->caller[i] = KVSHM__LOAD(&r->caller[i]);
        if (parent != KVSHM__NO_RECORD)
            h->parent_id[i] = KVSHM__LOAD(&kv->records[parent].page_id[i]);
    }
    h->adapter_id = KVSHM__LOAD(&r->adapter_id);
    h->tenant = KVSHM__LOAD(&r->tenant);
    h->length = length & KVSHM__LENGTH;
    h->depth = KVSHM__LOAD(&r->depth);
    h->stamp = KVSHM__LOAD(&r->stamp);
    h->payload_sum = kvshm__slots_written(kv, record) ? KVSHM__LOAD(&kv->slots[slot].sum) : KVSHM__LOAD(&kv->ages[record].sum);
    for (uint32_t i = 0; i < kvshm__slot_words(h->flags, h->length); i++)
        h->words[i] = KVSHM__LOAD(&words[i]);
}

static bool pick_page(kvshm *kv, uint32_t record, struct kvshm__move *move, void *header)
{
    uint64_t place = KVSHM__LOAD(&kv->records[record].place);
    uint32_t slot = available(kv) > 0 ? kvshm__slots_take(kv, record) : KVSHM__NO_SLOT;

    if (slot == KVSHM__NO_SLOT)
        return false;
    kvshm__spill_header(kv, record, slot, header);
    *move = (struct kvshm__move){
        .record = record,
        .frame = kvshm__place_frame(place),
        .slot = slot,
        .seq = KVSHM__LOAD(&kv->records[record].seq),
        .place = place,
        .sum = KVSHM__LOAD(&kv->ages[record].sum),
        .flags = ((const struct kvshm_slot_header *)header)->flags,
    };
    return true;
}

/* Pages of the chain that have no slot, from the root on. -ENOSPC: no slot is to be had; -EAGAIN: others are at it. */
static int pick_chain(kvshm *kv, uint32_t record, struct kvshm__move *moves, unsigned max, char *headers,
                      uint32_t header_stride)
{
    uint32_t chain[CHAIN_MAX], n = 0;
    unsigned picked = 0;

    for (uint32_t page = record; page != KVSHM__NO_RECORD; page = kvshm__pages_parent(kv, page)) {
        uint64_t writer = kvshm__slots_writer(kv, page);
        if (kvshm__slots_written(kv, page) || writer == kv->client)
            break;
        if (writer != 0 || !published(kv, page))
            return -EAGAIN; /* another client is at it */
        chain[n++ % CHAIN_MAX] = page; /* of a longer one the part at the root */
    }
    for (uint32_t i = n; i-- > 0 && i + CHAIN_MAX >= n && picked < max;) {
        if (!pick_page(kv, chain[i % CHAIN_MAX], &moves[picked], headers + (size_t)picked * header_stride))
            return picked > 0 ? (int)picked : -ENOSPC;
        picked++;
    }
    return (int)picked;
}

/* Is it better to wait with this entry: it is used, or not worth it yet? */
static bool may_wait(const kvshm *kv, uint32_t record, enum kvshm__spill_zeal zeal)
{
    return (zeal < KVSHM__SPILL_ALL && !kvshm__evict_admitted(kv, record)) || (zeal == KVSHM__SPILL_AHEAD && kvshm__ages_used(kv, record));
}

unsigned kvshm__spill_pick(kvshm *kv, struct kvshm__move *moves, unsigned max, void *headers, uint32_t header_stride,
                           enum kvshm__spill_zeal zeal, struct kvshm__spill_rest *rest)
{
    uint32_t last = kvshm__ages_last(kv, KVSHM__AGES_UNWRITTEN), record = KVSHM__NO_RECORD;
    unsigned n = 0;

    *rest = (struct kvshm__spill_rest){.unnamed = KVSHM__NO_RECORD};
    for (uint32_t i = 0; n < max && record != last && (zeal == KVSHM__SPILL_ALL || i < LOOK_MAX); i++) {
        record = kvshm__ages_first(kv, KVSHM__AGES_UNWRITTEN);
        if (record == KVSHM__NO_RECORD)
            break;
        if (may_wait(kv, record, zeal)) {
            kvshm__ages_append(kv, record, KVSHM__AGES_UNWRITTEN);
            continue;
        }
        int got = pick_chain(kv, record, moves + n, max - n, (char *)headers + (size_t)n * header_stride, header_stride);
        if (got == -ENOSPC) {
            rest->hindered = got;
            break;
        }
        if (got == 0 && kvshm__slots_unnamed(kv, record) && rest->unnamed == KVSHM__NO_RECORD) {
            rest->unnamed = record;
            rest->unnamed_seq = KVSHM__LOAD(&kv->records[record].seq);
        }
        if (got == 0 && kvshm__slots_written(kv, record) && !kvshm__slots_unnamed(kv, record)) {
            kvshm__ages_remove(kv, record);
            continue;
        }
        if (got == -EAGAIN)
            rest->hindered = got;
        n += got > 0 ? (unsigned)got : 0;
        kvshm__ages_append(kv, record, KVSHM__AGES_UNWRITTEN); /* to be looked at again, when it is written */
    }
    return n;
}

void kvshm__spill_settle(kvshm *kv, const struct kvshm__move *move)
{
    if (move->result < 0) {
        kvshm__slots_fail(kv, move->slot);
        kvshm__count(kv, KVSHM__CNT_spill_failures, move->result != -ECANCELED);
    } else if (kvshm__slots_settle(kv, move->slot, move->sum, move->flags)) {
        kvshm__count(kv, KVSHM__CNT_spilled_pages, 1);
        kvshm__evict_part_page(kv, move->record);
    }
}

/* ---- From the file ---------------------------------------------------------------------------------------- */

static uint32_t now_ms(void)
{
    return (uint32_t)(kvshm__sys.monotonic_ns() / 1000000);
}

/* Is somebody reading the page who lives, and began no longer than stall_ms ago? */
static bool claimed_by_the_living(const kvshm *kv, uint32_t record)
{
    uint32_t frame = kvshm__place_frame(KVSHM__LOAD(&kv->records[record].place));
    uint64_t owner = frame < kv->frame_count ? KVSHM__LOAD(&kv->owners[frame].owner) : KVSHM__OWNER_FREE;

    return kvshm__owner_kind(owner) == KVSHM__OWNER_RESTORING && kvshm__client_alive(kv, kvshm__owner_client(owner)) &&
           now_ms() - KVSHM__LOAD(&kv->owners[frame].since_ms) <= KVSHM__LOAD(&kv->header->settings.stall_ms);
}

static bool claim_page(kvshm *kv, uint32_t record, struct kvshm__move *move)
{
    struct kvshm_record *r = &kv->records[record];
    uint32_t slot = kvshm__slot_number(KVSHM__LOAD(&r->slot));
    uint32_t frame = kvshm__frames_take(kv, kvshm__owner_reserved(KVSHM__OWNER_RESTORING, kv->client, 0));

    if (frame == KVSHM__NO_FRAME)
        return false;
    KVSHM__STORE(&kv->owners[frame].since_ms, now_ms());
    kvshm__pages_claim(kv, record, frame);
    *move = (struct kvshm__move){
        .record = record,
        .frame = frame,
        .slot = slot,
        .seq = KVSHM__LOAD(&r->seq),
        .place = KVSHM__LOAD(&r->place),
        .sum = KVSHM__LOAD(&kv->slots[slot].sum),
    };
    return true;
}

/* The depth of the first page of the chain that is not in memory; *above is the one above it. */
static uint32_t first_pending(const kvshm *kv, uint32_t record, uint32_t *above)
{
    uint32_t depth = KVSHM__LOAD(&kv->records[record].depth);

    *above = kvshm__pages_parent(kv, record);
    while (*above != KVSHM__NO_RECORD && !published(kv, *above)) {
        *above = kvshm__pages_parent(kv, *above);
        depth--;
    }
    return depth;
}

static int claim_chain(kvshm *kv, uint32_t record, uint32_t first, struct kvshm__move *moves, unsigned max)
{
    uint32_t end = KVSHM__LOAD(&kv->records[record].depth) + 1;
    unsigned n = 0;

    for (uint32_t depth = first; depth < end && n < max; depth++) {
        uint32_t page = kvshm__pages_ancestor(kv, record, depth);
        if (page == KVSHM__NO_RECORD || !kvshm__slots_whole(kv, page))
            return n > 0 ? (int)n : -ESTALE;
        if (state_of(kv, page) == KVSHM__PLACE_PARTING) {
            kvshm__pages_recall(kv, page);
            kvshm__recency_claim(kv, page, true);
        } else if (state_of(kv, page) == KVSHM__PLACE_RESTORING && claimed_by_the_living(kv, page)) {
            return n > 0 ? (int)n : -EAGAIN;
        } else if (state_of(kv, page) == KVSHM__PLACE_SPILLED || state_of(kv, page) == KVSHM__PLACE_RESTORING) {
            if (!claim_page(kv, page, &moves[n]))
                return n > 0 ? (int)n : -ENOSPC;
            n++;
        } else if (!published(kv, page)) {
            return n > 0 ? (int)n : -EAGAIN;
        }
    }
    return (int)n;
}

int kvshm__restore_claim(kvshm *kv, uint32_t record, uint64_t seq, struct kvshm__move *moves, unsigned max,
                         bool may_drop)
{
    uint32_t above, first, missing;

    if (KVSHM__LOAD(&kv->records[record].seq) != seq || !of_this_epoch(kv, record))
        return -ESTALE;
    if (!kvshm__place_pending(KVSHM__LOAD(&kv->records[record].place)))
        return published(kv, record) ? 0 : -ESTALE;
    first = first_pending(kv, record, &above);
    missing = KVSHM__LOAD(&kv->records[record].depth) + 1 - first;
    kv->pinned1 = above + 1;
    int code = kvshm__evict_make_room(kv, missing < max ? missing : max, may_drop);
    kv->pinned1 = 0;
    if (code == -EAGAIN)
        code = -ENOBUFS;
    /* What made room may have been what was asked for. */
    if (code == 0 && (KVSHM__LOAD(&kv->records[record].seq) != seq ||
                      !kvshm__place_pending(KVSHM__LOAD(&kv->records[record].place)) ||
                      first_pending(kv, record, &above) != first))
        code = -EAGAIN;
    return code < 0 ? code : claim_chain(kv, record, first, moves, max);
}

/* The page could not be read: it and all below it are no more. */
static void give_up_below(kvshm *kv, uint32_t record)
{
    for (uint32_t i = 0; i < kv->record_count; i++) {
        uint32_t page = record, child1;
        while ((child1 = KVSHM__LOAD(&kv->links[page].child1)) != 0 ||
               (child1 = KVSHM__LOAD(&kv->ages[page].spilled1)) != 0) {
            if (child1 - 1 >= kv->record_count || state_of(kv, child1 - 1) == KVSHM__PLACE_AWAY)
                break;
            page = child1 - 1;
        }
        bool last = page == record;
        kvshm__evict_drop_entry(kv, page);
        kvshm__evict_sweep_limbo(kv);
        if (last)
            return;
    }
}

void kvshm__spill_lost(kvshm *kv, uint32_t slot)
{
    uint32_t record = KVSHM__LOAD(&kv->slots[slot].record);
    bool its = record < kv->record_count && kvshm__slots_whole(kv, record) && of_this_epoch(kv, record) &&
               kvshm__slot_number(KVSHM__LOAD(&kv->records[record].slot)) == slot;

    kvshm__count(kv, KVSHM__CNT_spill_failures, 1);
    kvshm__slots_fail(kv, slot);
    if (its && kvshm__place_pending(KVSHM__LOAD(&kv->records[record].place)))
        give_up_below(kv, record);
    else if (its && KVSHM__LOAD(&kv->records[record].stamp) != 0) { /* to be written again */
        kvshm__recency_claim(kv, record, false);
        kvshm__ages_append(kv, record, KVSHM__AGES_UNWRITTEN);
    }
}

/* Is the page still the one that was claimed? */
static bool still_claimed(const kvshm *kv, const struct kvshm__move *move)
{
    return KVSHM__LOAD(&kv->records[move->record].place) == move->place && of_this_epoch(kv, move->record);
}

static void unclaim(kvshm *kv, const struct kvshm__move *move)
{
    if (KVSHM__LOAD(&kv->records[move->record].place) == move->place)
        kvshm__pages_spill(kv, move->record);
    if (KVSHM__LOAD(&kv->owners[move->frame].owner) ==
        kvshm__owner_reserved(KVSHM__OWNER_RESTORING, kv->client, 0))
        kvshm__frames_give(kv, move->frame);
}

static bool parent_is_published(const kvshm *kv, uint32_t record)
{
    uint32_t parent = kvshm__pages_parent(kv, record);

    return parent == KVSHM__NO_RECORD ? KVSHM__LOAD(&kv->records[record].parent1) == 0 : published(kv, parent);
}

unsigned kvshm__restore_settle(kvshm *kv, const struct kvshm__move *moves, unsigned n)
{
    unsigned done = 0;
    uint32_t last = KVSHM__NO_RECORD;

    for (unsigned i = 0; i < n; i++) {
        const struct kvshm__move *m = &moves[i];
        bool mine = still_claimed(kv, m);
        if (!mine || m->result < 0 || !parent_is_published(kv, m->record)) {
            unclaim(kv, m);
            if (mine && m->result < 0) {
                kvshm__count(kv, KVSHM__CNT_restore_failures, 1);
                give_up_below(kv, m->record);
            }
            continue;
        }
        kvshm__frames_to_page(kv, m->frame, m->record);
        KVSHM__STORE(&kv->ages[m->record].sum, m->sum);
        kvshm__pages_restore(kv, m->record, m->frame);
        if (KVSHM__LOAD(&kv->records[m->record].stamp) != 0)
            kvshm__recency_claim(kv, m->record, true);
        last = m->record;
        done++;
    }
    if (last != KVSHM__NO_RECORD && published(kv, last)) /* not so if all behind it was given up */
        kvshm__recency_claim(kv, last, true);
    kvshm__count(kv, KVSHM__CNT_restored_pages, done);
    return done;
}
