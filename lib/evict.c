/* SPDX-License-Identifier: Apache-2.0 */
#include "evict.h"

#include <errno.h>

#include "ages.h"
#include "client.h"
#include "frames.h"
#include "message.h"
#include "recency.h"
#include "slots.h"
#include "sys.h"
#include "writer.h"

/* Frames are taken from the oldest entries in batches, each with two scans of the lease words. */
#define BATCH_MAX 64

/* Entries passed over for one that may leave: those that are not in the file yet are the youngest. */
#define PASS_MAX 1024

/* Records or pages of long work between two steps of the progress word. */
#define SLICE 4096

static struct kvshm_derived *derived(const kvshm *kv)
{
    return &kv->header->derived;
}

static enum kvshm_place_state state_of(const kvshm *kv, uint32_t record)
{
    return kvshm__place_state(KVSHM__LOAD(&kv->records[record].place));
}

/* ---- Into limbo ------------------------------------------------------------------------------------------- */

void kvshm__evict_to_limbo(kvshm *kv, uint32_t record)
{
    uint32_t last = KVSHM__LOAD(&derived(kv)->limbo_last1) - 1;

    if (KVSHM__LOAD(&kv->links[record].link1) != 0)
        return; /* still listed from before it was called back (E4) */
    KVSHM__STORE(&kv->links[record].link1, KVSHM__LIST_END);
    if (last < kv->record_count)
        KVSHM__STORE(&kv->links[last].link1, record + 1);
    else
        KVSHM__STORE(&derived(kv)->limbo_first1, record + 1);
    KVSHM__STORE(&derived(kv)->limbo_last1, record + 1);
}

/* Is there a child in a frame, not in limbo; or one that will be published? New children stand first, so the look is
   short. Children in limbo keep the frame from being freed before theirs, but are no reason to keep the page. */
static bool has_child(const kvshm *kv, uint32_t record, bool also_parting)
{
    uint32_t child1 = KVSHM__LOAD(&kv->links[record].child1);

    for (uint32_t i = 0; child1 - 1 < kv->record_count && i < kv->record_count; i++) {
        enum kvshm_place_state state = state_of(kv, child1 - 1);
        if (state != KVSHM__PLACE_AWAY && (also_parting || state != KVSHM__PLACE_PARTING))
            return true;
        child1 = KVSHM__LOAD(&kv->links[child1 - 1].next1);
    }
    return false;
}

/* Has the page neither an entry, nor a child that has a reason to be, nor an insert at it? */
static bool for_nothing(const kvshm *kv, uint32_t record)
{
    return KVSHM__LOAD(&kv->records[record].stamp) == 0 && record + 1 != kv->pinned1 &&
           (!kv->ages || KVSHM__LOAD(&kv->ages[record].spilled1) == 0) && !has_child(kv, record, true);
}

/* May the page leave its frame? If an entry ends at it, only if that one gave its claim up, and was not used since. */
static bool may_part(kvshm *kv, uint32_t record, uint64_t stamp)
{
    if (!kvshm__place_published(KVSHM__LOAD(&kv->records[record].place)) || record + 1 == kv->pinned1 ||
        has_child(kv, record, false))
        return false;
    if (!kvshm__slots_written(kv, record))
        stamp = 0;
    if (!kvshm__recency_claims(kv, record) && KVSHM__LOAD(&kv->records[record].stamp) > stamp)
        kvshm__recency_claim(kv, record, false);
    return !kvshm__recency_claims(kv, record) && kvshm__slots_written(kv, record);
}

/* Pages from record upwards that nobody claims leave memory for the file. */
static void part_upwards(kvshm *kv, uint32_t record, uint64_t stamp)
{
    while (record != KVSHM__NO_RECORD && may_part(kv, record, stamp) && kvshm__pages_part(kv, record)) {
        kvshm__evict_to_limbo(kv, record);
        kvshm__count(kv, KVSHM__CNT_left_pages, 1);
        record = kvshm__pages_parent(kv, record);
    }
}

void kvshm__evict_take_away(kvshm *kv, uint32_t record)
{
    while (record != KVSHM__NO_RECORD && for_nothing(kv, record) && kvshm__pages_take_away(kv, record)) {
        if (kv->ages)
            kvshm__recency_remove(kv, record); /* it may have been kept */
        kvshm__evict_to_limbo(kv, record);
        if (kv->slots)
            kvshm__slots_drop(kv, record);
        if (KVSHM__LOAD(&kv->records[record].length) & KVSHM__KEY_ONLY)
            kvshm__index_clear(kv, record);
        kvshm__count(kv, KVSHM__CNT_evicted_pages, 1);
        record = kvshm__pages_parent(kv, record);
    }
    if (kv->ages)
        part_upwards(kv, record, 0);
}

void kvshm__evict_drop_entry(kvshm *kv, uint32_t record)
{
    kvshm__recency_remove(kv, record);
    kvshm__evict_take_away(kv, record);
}

bool kvshm__evict_oldest(kvshm *kv)
{
    uint64_t stamp;
    uint32_t record;

    do {
        record = kvshm__recency_oldest(kv, &stamp);
        if (record == KVSHM__NO_RECORD)
            return false;
        if (KVSHM__LOAD(&kv->records[record].stamp) == 0) { /* kept without an entry */
            kvshm__recency_give_up(kv, record);
            kvshm__evict_take_away(kv, record);
            stamp = 0;
        }
    } while (stamp == 0 || !kvshm__recency_remove_if(kv, record, stamp));
    kvshm__evict_take_away(kv, record);
    kvshm__count(kv, KVSHM__CNT_evicted_entries, 1);
    KVSHM__STORE(&derived(kv)->last_evict_ns, kvshm__sys.realtime_ns());
    return true;
}

/* ---- Out of limbo ----------------------------------------------------------------------------------------- */

static void give_frame(kvshm *kv, uint32_t record)
{
    uint32_t frame = kvshm__place_frame(KVSHM__LOAD(&kv->records[record].place));

    if (frame < kv->frame_count && KVSHM__LOAD(&kv->owners[frame].owner) == kvshm__owner_page(record))
        kvshm__frames_give(kv, frame);
}

void kvshm__evict_release_page(kvshm *kv, uint32_t record)
{
    kvshm__index_clear(kv, record);
    give_frame(kv, record);
    kvshm__recency_forget(kv, record);
    kvshm__pages_vacate(kv, record);
}

/* The page leaves its frame, if nothing is below it that has one, or the arena, if nothing is below it at all. */
static bool let_go(kvshm *kv, uint32_t record)
{
    switch (state_of(kv, record)) {
    case KVSHM__PLACE_AWAY:
        if (kvshm__pages_has_children(kv, record))
            return false;
        kvshm__evict_release_page(kv, record);
        return true;
    case KVSHM__PLACE_PARTING:
        if (KVSHM__LOAD(&kv->links[record].child1) != 0)
            return false;
        give_frame(kv, record);
        kvshm__pages_spill(kv, record);
        return true;
    default:
        return false;
    }
}

/* Free the page if nothing holds it, and then its parents for which the same holds. Frames that came back. */
static uint64_t free_upwards(kvshm *kv, uint32_t record, const uint64_t *held)
{
    uint64_t free_before = KVSHM__LOAD(&derived(kv)->frames_free);

    while (record != KVSHM__NO_RECORD && !kvshm__bit(held, record)) {
        uint32_t parent = kvshm__pages_parent(kv, record);
        if (!let_go(kv, record))
            break;
        record = parent;
    }
    return KVSHM__LOAD(&derived(kv)->frames_free) - free_before;
}

/* What is no longer in limbo leaves the list: to the free records, or, called back, to nowhere. */
static void unlist(kvshm *kv)
{
    uint32_t next1 = KVSHM__LOAD(&derived(kv)->limbo_first1);

    KVSHM__STORE(&derived(kv)->limbo_first1, 0);
    KVSHM__STORE(&derived(kv)->limbo_last1, 0);
    for (uint32_t i = 0; next1 - 1 < kv->record_count && i < kv->record_count; i++) {
        uint32_t record = next1 - 1;
        next1 = KVSHM__LOAD(&kv->links[record].link1);
        KVSHM__STORE(&kv->links[record].link1, 0);
        if (state_of(kv, record) == KVSHM__PLACE_AWAY || state_of(kv, record) == KVSHM__PLACE_PARTING)
            kvshm__evict_to_limbo(kv, record);
        else if (state_of(kv, record) == KVSHM__PLACE_NONE)
            kvshm__pages_give(kv, record);
    }
}

uint64_t kvshm__evict_sweep_limbo(kvshm *kv)
{
    uint64_t *held = kv->scratch, back = 0;
    uint32_t next1 = KVSHM__LOAD(&derived(kv)->limbo_first1);

    if (next1 == 0)
        return 0;
    kvshm__lease_scan(kv, held);
    for (uint32_t i = 0; next1 - 1 < kv->record_count && i < kv->record_count; i++) {
        uint32_t record = next1 - 1;
        next1 = KVSHM__LOAD(&kv->links[record].link1);
        back += free_upwards(kv, record, held);
        if (i % SLICE == SLICE - 1)
            kvshm__writer_progress(kv);
    }
    unlist(kv);
    return back;
}

/* ---- Room ------------------------------------------------------------------------------------------------- */

static bool above_capacity(const kvshm *kv)
{
    uint64_t entries = KVSHM__LOAD(&derived(kv)->entries) + KVSHM__LOAD(&kv->header->tier.left.length) -
                       KVSHM__LOAD(&kv->header->tier.pages_kept);

    return entries > KVSHM__LOAD(&kv->header->settings.capacity);
}

/* Those that gave up memory before those that have it. */
static bool drop_oldest(kvshm *kv)
{
    uint32_t record = kv->ages ? kvshm__ages_first(kv, KVSHM__AGES_LEFT) : KVSHM__NO_RECORD;

    if (record == KVSHM__NO_RECORD)
        return kvshm__evict_oldest(kv);
    kvshm__evict_drop_entry(kv, record);
    kvshm__count(kv, KVSHM__CNT_evicted_entries, 1);
    return true;
}

bool kvshm__evict_to_capacity(kvshm *kv, uint32_t n)
{
    uint32_t dropped = 0;

    while (dropped < n && above_capacity(kv) && drop_oldest(kv))
        dropped++;
    if (dropped > 0)
        kvshm__evict_sweep_limbo(kv);
    return dropped < n || !above_capacity(kv);
}

static uint64_t frames_free(const kvshm *kv)
{
    return KVSHM__LOAD(&derived(kv)->frames_free);
}

/* What costs nobody anything: cancelled and orphaned reservations, pages of earlier epochs, limbo. */
static void collect(kvshm *kv, uint64_t n)
{
    if (frames_free(kv) < n && kvshm__frames_sweep_worth(kv))
        kvshm__frames_sweep(kv, 0);
    if (kv->forsaken)
        kvshm__evict_forsake(kv);
    while (frames_free(kv) < n && !kvshm__evict_clear_slice(kv, SLICE))
        kvshm__writer_progress(kv);
    if (frames_free(kv) < n)
        kvshm__evict_sweep_limbo(kv);
}

/* Does the page have a frame of its own? */
static bool has_frame(const kvshm *kv, uint32_t record)
{
    uint32_t frame = kvshm__place_frame(KVSHM__LOAD(&kv->records[record].place));

    return frame < kv->frame_count && KVSHM__LOAD(&kv->owners[frame].owner) == kvshm__owner_page(record);
}

/* Frames that are not free, not filled by a client, and not of a page that a lease holds. */
static uint64_t evictable(kvshm *kv)
{
    uint64_t *held = kv->scratch, taken = frames_free(kv) + KVSHM__LOAD(&derived(kv)->frames_reserved) +
                                          KVSHM__LOAD(&kv->header->tier.frames_restoring);

    kvshm__lease_scan_chains(kv, held);
    for (uint64_t i = 0; i < kv->bitmap_words; i++) {
        for (uint64_t bits = held[i]; bits; bits &= bits - 1) {
            uint32_t record = (uint32_t)(i * 64) + (uint32_t)__builtin_ctzll(bits);
            taken += record < kv->record_count && has_frame(kv, record);
        }
    }
    return taken < kv->frame_count ? kv->frame_count - taken : 0;
}

/*
 * Drop the oldest entries until n pages are in limbo, or so many were dropped that gave none: their pages have others
 * below. Entries whose deepest page is leased stay.
 */
static bool drop_batch(kvshm *kv, uint64_t n)
{
    uint64_t *held = kv->scratch, until = KVSHM__LOAD(&derived(kv)->limbo) + n, stamp;
    uint32_t record, dropped = 0;

    kvshm__lease_scan(kv, held);
    while (KVSHM__LOAD(&derived(kv)->limbo) < until && dropped < n + BATCH_MAX &&
           (record = kvshm__recency_oldest(kv, &stamp)) != KVSHM__NO_RECORD) {
        if (kvshm__bit(held, record))
            kvshm__recency_set_aside(kv);
        else
            dropped += kvshm__evict_oldest(kv);
    }
    kvshm__recency_take_back(kv);
    return dropped > 0;
}

/* ---- Leaving memory for the file --------------------------------------------------------------------------- */

/*
 * The oldest that claims memory gives its claim up, and its pages that nobody else claims leave. false: its page is in
 * memory alone, or the file does not know the entry.
 */
static bool leave(kvshm *kv, uint32_t record, uint64_t stamp)
{
    if (!kvshm__slots_written(kv, record) || kvshm__slots_unnamed(kv, record))
        return false;
    kvshm__recency_give_up(kv, record);
    part_upwards(kv, record, stamp);
    return true;
}

static uint64_t pages_parting(const kvshm *kv)
{
    return KVSHM__LOAD(&kv->header->tier.pages_spilled);
}

/* Pages that are in the file leave until n have, the oldest first, passing over what is leased or not in the file. */
static bool leave_batch(kvshm *kv, uint64_t n)
{
    uint64_t *held = kv->scratch, until = pages_parting(kv) + n, stamp;
    uint32_t record, passed = 0;
    bool some = false;

    kvshm__lease_scan(kv, held);
    while (pages_parting(kv) < until && passed < PASS_MAX && (record = kvshm__recency_oldest(kv, &stamp)) != KVSHM__NO_RECORD) {
        if (!kvshm__bit(held, record) && leave(kv, record, stamp))
            some = true;
        else {
            kvshm__recency_set_aside(kv);
            passed++;
        }
    }
    kvshm__recency_take_back(kv);
    return some;
}

bool kvshm__evict_admitted(const kvshm *kv, uint32_t record)
{
    return KVSHM__LOAD(&kv->header->settings.admission) != KVSHM_ADMIT_REUSED ||
           KVSHM__LOAD(&kv->records[record].stamp) != KVSHM__LOAD(&kv->records[record].policy);
}

int64_t kvshm__evict_lru(kvshm *kv, bool pass_over)
{
    uint64_t stamp;
    uint32_t record;

    kvshm__evict_sweep_limbo(kv); /* what others released does not count as given back by this call */
    if (!kv->slots)
        return kvshm__evict_oldest(kv) ? (int64_t)kvshm__evict_sweep_limbo(kv) : 0;
    record = kvshm__recency_oldest(kv, &stamp);
    if (record == KVSHM__NO_RECORD)
        return 0;
    if (pass_over)
        leave_batch(kv, 1);
    else if (!leave(kv, record, stamp) && kvshm__evict_admitted(kv, record))
        return -EAGAIN;
    else if (kvshm__recency_claims(kv, record))
        kvshm__evict_oldest(kv); /* not worth being written */
    KVSHM__STORE(&derived(kv)->last_evict_ns, kvshm__sys.realtime_ns());
    return (int64_t)kvshm__evict_sweep_limbo(kv);
}

/* Is the page's frame being read into by someone who lives? */
static bool is_restored_by_the_living(const kvshm *kv, uint32_t record)
{
    uint32_t frame = kvshm__place_frame(KVSHM__LOAD(&kv->records[record].place));
    uint64_t owner = frame < kv->frame_count ? KVSHM__LOAD(&kv->owners[frame].owner) : 0;

    return kvshm__owner_kind(owner) == KVSHM__OWNER_RESTORING && kvshm__client_alive(kv, kvshm__owner_client(owner));
}

void kvshm__evict_forsake(kvshm *kv)
{
    kv->forsaken = false;
    for (uint32_t record = 0; record < kv->record_count; record++) {
        if (state_of(kv, record) == KVSHM__PLACE_RESTORING && !is_restored_by_the_living(kv, record))
            kvshm__pages_spill(kv, record);
        if (record % SLICE == SLICE - 1)
            kvshm__writer_progress(kv);
    }
}

bool kvshm__evict_part_page(kvshm *kv, uint32_t record)
{
    if (!may_part(kv, record, UINT64_MAX) || !kvshm__pages_part(kv, record))
        return false;
    kvshm__evict_to_limbo(kv, record);
    return true;
}

/* A request that fails costs the cache a batch, no more: the walk over all that is leased comes before the next. */
int kvshm__evict_make_room(kvshm *kv, uint64_t n, bool may_drop)
{
    uint64_t batch = kv->frame_count / 64 < BATCH_MAX ? kv->frame_count / 64 : BATCH_MAX;
    bool first = n <= batch;

    collect(kv, n);
    while (frames_free(kv) < n) {
        uint64_t missing = n - frames_free(kv);
        if (!first && n > frames_free(kv) + evictable(kv))
            return -ENOSPC;
        first = false;
        if (!(kv->slots && leave_batch(kv, missing)) && !(may_drop && drop_batch(kv, missing > batch ? missing : batch)))
            return may_drop ? -ENOSPC : -EAGAIN;
        kvshm__evict_sweep_limbo(kv);
    }
    return 0;
}

/* The oldest entry among the pages in reach of a hash that have no children. */
static uint32_t oldest_in_reach(kvshm *kv, uint64_t hash)
{
    uint32_t oldest = KVSHM__NO_RECORD;
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < 2 * KVSHM__BUCKET_WORDS; i++) {
        uint32_t record = kvshm__index_record(kv, KVSHM__LOAD(kvshm__index_reach(kv, hash, i)));
        if (record == KVSHM__NO_RECORD || kvshm__pages_has_children(kv, record))
            continue;
        uint64_t stamp = KVSHM__LOAD(&kv->records[record].stamp);
        if (stamp != 0 && stamp < least) {
            least = stamp;
            oldest = record;
        }
    }
    return oldest;
}

/* Words that cost nobody anything: of pages of earlier epochs, and in limbo. */
static kvshm_a64 *collect_word(kvshm *kv, uint64_t hash)
{
    while (!kvshm__evict_clear_slice(kv, SLICE))
        kvshm__writer_progress(kv);
    kvshm__evict_sweep_limbo(kv);
    return kvshm__index_empty(kv, hash);
}

kvshm_a64 *kvshm__evict_for_word(kvshm *kv, uint64_t hash)
{
    kvshm_a64 *word = kvshm__index_empty(kv, hash);

    if (!word)
        word = collect_word(kv, hash);
    while (!word) {
        uint32_t record = oldest_in_reach(kv, hash);
        if (record != KVSHM__NO_RECORD) {
            kvshm__evict_drop_entry(kv, record);
            kvshm__count(kv, KVSHM__CNT_evicted_entries, 1);
        } else if (!kvshm__evict_oldest(kv)) {
            return NULL;
        }
        kvshm__evict_sweep_limbo(kv);
        word = kvshm__index_empty(kv, hash);
    }
    return word;
}

/* ---- Clear ------------------------------------------------------------------------------------------------ */

void kvshm__evict_clear(kvshm *kv, uint64_t epoch)
{
    if (epoch <= KVSHM__LOAD(&kv->header->epoch)) /* another clear did all that this one would */
        return;
    kvshm__count(kv, KVSHM__CNT_cleared_entries, KVSHM__LOAD(&derived(kv)->entries) + KVSHM__LOAD(&kv->header->tier.left.length));
    KVSHM__STORE(&derived(kv)->sweep_record, 0);
    KVSHM__STORE(&derived(kv)->clear_ns, kvshm__sys.realtime_ns());
    KVSHM__STORE_REL(&kv->header->epoch, epoch);
    KVSHM__STORE(&kv->header->root_partials, 0);
    kvshm__recency_forget_all(kv);
}

bool kvshm__evict_clear_slice(kvshm *kv, uint32_t n)
{
    uint32_t record = KVSHM__LOAD(&derived(kv)->sweep_record);
    uint32_t end = KVSHM__LOAD(&derived(kv)->fresh_record);
    uint32_t epoch = (uint32_t)KVSHM__LOAD(&kv->header->epoch);

    if (end > kv->record_count)
        end = kv->record_count;
    if (record >= end)
        return true;
    for (; record < end && n > 0; record++, n--) {
        if (KVSHM__LOAD(&kv->records[record].epoch) == epoch)
            continue;
        kvshm__recency_forget(kv, record);
        if (kvshm__pages_take_away(kv, record))
            kvshm__evict_to_limbo(kv, record);
        if (kv->slots)
            kvshm__slots_drop(kv, record);
        if (state_of(kv, record) == KVSHM__PLACE_AWAY)
            kvshm__index_clear(kv, record);
    }
    KVSHM__STORE(&derived(kv)->sweep_record, record);
    /* Pages wait for children in later slices: a sweep in each slice would take the square of their number. */
    if (record >= end || KVSHM__LOAD(&derived(kv)->limbo) / 2 >= kv->limbo_left) {
        kvshm__evict_sweep_limbo(kv);
        kv->limbo_left = KVSHM__LOAD(&derived(kv)->limbo);
    }
    return record >= end;
}
