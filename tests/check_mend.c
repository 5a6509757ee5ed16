/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_mend.c - the rebuild: what it makes is what is true, whatever it was left with (mend.h)
 *
 * The last tests kill a client with SIGKILL between two stores to shared memory while it holds the writer lock. The
 * library is linked in a build of its own for it, which calls kvshm__step() before each of them.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inside.h"

#include "evict.h"
#include "frames.h"
#include "index.h"
#include "mend.h"
#include "reap.h"
#include "recency.h"

static struct in_view before, after;

/* The rebuild as after a death, without one. */
static void rebuild(kvshm *kv)
{
    ts_is(kvshm__mend_lock(kv), 0);
    kvshm__mend_rebuild(kv);
    kvshm__mend_unlock(kv);
}

static struct in_history *history(kvshm *kv, uint64_t seed)
{
    struct in_history *h = calloc(1, sizeof(*h));

    ck_assert_ptr_nonnull(h);
    h->kv = kv;
    h->chance = seed;
    return h;
}

/* ---- The audit itself ------------------------------------------------------------------------------------- */

/* Change a word, expect findings, change it back, expect none. */
static void finds_64(kvshm *kv, kvshm_a64 *word, uint64_t wrong)
{
    uint64_t right = KVSHM__LOAD(word);
    FILE *nowhere = fopen("/dev/null", "w");

    ck_assert_uint_ne(right, wrong);
    KVSHM__STORE(word, wrong);
    ck_assert_uint_gt(audit(kv, nowhere), 0);
    KVSHM__STORE(word, right);
    ck_assert_uint_eq(audit(kv, stderr), 0);
    fclose(nowhere);
}

static void finds_32(kvshm *kv, kvshm_a32 *word, uint32_t wrong)
{
    uint32_t right = KVSHM__LOAD(word);
    FILE *nowhere = fopen("/dev/null", "w");

    ck_assert_uint_ne(right, wrong);
    KVSHM__STORE(word, wrong);
    ck_assert_uint_gt(audit(kv, nowhere), 0);
    KVSHM__STORE(word, right);
    ck_assert_uint_eq(audit(kv, stderr), 0);
    fclose(nowhere);
}

/* Two entries that share a page, one partial, one in limbo, a reservation, a key. */
START_TEST(test_audit_finds_each_wrong_word)
{
    kvshm *kv = in_create(4, 16, 8);
    struct kvshm_derived *d = &kv->header->derived;
    struct kvshm_prefix a = in_range(0, 8), b = in_range(0, 6), gone = in_range(50, 4),
                        key = in_key(7, 5);
    struct kvshm_reservation r;
    struct kvshm_lease lease;
    uint32_t of_a, of_b, of_gone, of_key, root;
    FILE *nowhere;

    in_put(kv, 0, 8);
    in_put(kv, 0, 6);
    in_put(kv, 50, 4);
    ts_is(in_insert(kv, &key, NULL, 0), 0);
    ts_is(kvshm_lookup(kv, &gone, 0, &lease), 0);
    of_gone = lease.page;
    ts_is(kvshm_remove(kv, &gone), 0);
    ts_is(kvshm_reserve(kv, 2, KVSHM_DEVICE, &r), 0);
    of_a = in_record(kv, &a);
    of_b = in_record(kv, &b);
    of_key = in_record(kv, &key);
    root = kvshm__pages_parent(kv, of_a);
    in_audit_swept(kv);

    finds_32(kv, &d->free_frame1, 1 + r.frames[0]);
    finds_32(kv, &d->fresh_frame, 16);
    finds_32(kv, &d->free_record1, 1 + of_a);
    finds_32(kv, &d->fresh_record, 16);
    finds_32(kv, &d->limbo_first1, 0);
    finds_32(kv, &d->limbo_last1, 0);
    finds_32(kv, &d->heap_length, 2);
    finds_64(kv, &d->frames_free, 1);
    finds_64(kv, &d->frames_reserved, 1);
    finds_64(kv, &d->pages, 1);
    finds_64(kv, &d->limbo, 0);
    finds_64(kv, &d->entries, 1);
    finds_64(kv, &kv->records[root].partials, 0);
    finds_32(kv, &kv->links[root].child1, 1 + of_a);
    finds_32(kv, &kv->links[of_a].jump1, 1 + of_gone);
    finds_32(kv, &kv->records[of_a].depth, 0);
    finds_32(kv, &kv->records[of_a].epoch, 9);
    finds_64(kv, &kv->records[of_a].seq, KVSHM__LOAD(&kv->records[of_a].seq) + 1);
    finds_64(kv, &kv->records[root].seq, KVSHM__LOAD(&kv->records[root].seq) + 2);
    finds_64(kv, &kv->records[of_gone].place, 0);
    finds_64(kv, &kv->records[of_a].place, KVSHM__LOAD(&kv->records[of_a].place) + 5);
    finds_32(kv, &kv->links[of_a].prev1, 0);
    finds_32(kv, &kv->links[of_b].next1, 0);
    finds_32(kv, &kv->links[of_gone].link1, 0);
    finds_32(kv, &kv->links[of_a].link1, 3);
    finds_64(kv, &kv->records[of_a].stamp, 0);
    finds_64(kv, &kv->records[root].stamp, 5);
    finds_64(kv, &kv->records[of_a].hash, 5);
    finds_64(kv, &kv->records[of_a].page_id[1], KVSHM__LOAD(&kv->records[of_b].page_id[1]));
    finds_32(kv, &kv->heap[of_a].position1, 0);
    finds_32(kv, &kv->heap[0].record, of_gone);
    finds_64(kv, &kv->heap[0].stamp, UINT64_MAX);
    finds_64(kv, &kv->owners[r.frames[0]].owner, 0);
    finds_64(kv, &kvshm__own_reservations(kv)[r.word], KVSHM__RESERVATION_EMPTY);
    finds_64(kv, &kv->clients[kv->place].device_frames, 1);
    finds_32(kv, &kv->clients[kv->place].lease_high, 0);
    finds_64(kv, kvshm__index_word_of(kv, of_key), 0);
    finds_64(kv, kvshm__index_word_of(kv, of_gone), 0);
    finds_64(kv, &kv->header->lock.word, kv->client);

    kvshm_release(kv, &lease);
    in_audit(kv);
    nowhere = fopen("/dev/null", "w");
    ck_assert_uint_eq(audit_limbo_held(kv, nowhere), 1);
    fclose(nowhere);
    kvshm_cancel(kv, &r);
    ts_detach(kv);
}
END_TEST

/* ---- Without a death -------------------------------------------------------------------------------------- */

/* A rebuild after any history leaves the same entries in the same order, what is leased, and each frame. */
START_TEST(test_rebuild_changes_nothing_that_is_true)
{
    uint64_t seed = ts_seed() + (uint64_t)_i;

    for (uint64_t round = 0; round < ts_amount(8, 40, 400); round++) {
        kvshm *kv = in_create(4, 12 + round % 3 * 20, 8);
        struct in_history *h = history(kv, seed + round);

        for (unsigned i = 0; i < 80; i++) {
            uint64_t n_free;

            in_step(h, true);
            in_audit(kv);
            if (i % 8 != 7)
                continue;
            in_look(kv, &before);
            n_free = in_free(kv) + in_limbo(kv);
            rebuild(kv);
            in_audit_swept(kv);
            in_look(kv, &after);
            ck_assert(in_same(&before, &after));
            ck_assert_uint_eq(in_free(kv) + in_limbo(kv), n_free);
            in_check_held(h);
        }
        in_give_back(h);
        rebuild(kv);
        in_audit_swept(kv);
        ck_assert_uint_eq(in_limbo(kv), 0);
        free(h);
        ts_detach(kv);
        ts_is(kvshm_unlink("inside", 0), 0);
    }
}
END_TEST

/* Overwrite everything derived. */
static void ruin(kvshm *kv, uint64_t *chance)
{
    struct kvshm_derived *d = &kv->header->derived;
    uint32_t n = kv->record_count + 3;

    memset(d, 0, offsetof(struct kvshm_derived, last_insert_ns));
    KVSHM__STORE(&d->free_frame1, (uint32_t)ts_random(chance, n));
    KVSHM__STORE(&d->free_record1, (uint32_t)ts_random(chance, n));
    KVSHM__STORE(&d->limbo_first1, (uint32_t)ts_random(chance, n));
    KVSHM__STORE(&d->limbo_last1, (uint32_t)ts_random(chance, n));
    KVSHM__STORE(&d->heap_length, (uint32_t)ts_random(chance, n));
    KVSHM__STORE(&d->entries, ts_random(chance, n));
    KVSHM__STORE(&d->frames_free, ts_random(chance, n));
    KVSHM__STORE(&kv->header->root_partials, 0);
    for (uint32_t i = 0; i < kv->record_count; i++) {
        KVSHM__STORE(&kv->links[i].child1, (uint32_t)ts_random(chance, n));
        KVSHM__STORE(&kv->records[i].partials, 0);
        KVSHM__STORE(&kv->links[i].next1, (uint32_t)ts_random(chance, n));
        KVSHM__STORE(&kv->links[i].prev1, (uint32_t)ts_random(chance, n));
        KVSHM__STORE(&kv->links[i].link1, (uint32_t)ts_random(chance, n));
        KVSHM__STORE(&kv->heap[i].stamp, ts_random(chance, n));
        KVSHM__STORE(&kv->heap[i].record, (uint32_t)ts_random(chance, n));
        KVSHM__STORE(&kv->heap[i].position1, (uint32_t)ts_random(chance, n));
    }
    for (uint32_t i = 0; i < kv->frame_count; i++)
        KVSHM__STORE(&kv->owners[i].next1, (uint32_t)ts_random(chance, n));
    KVSHM__STORE(&kv->clients[kv->place].device_frames, 77);
    kv->pinned1 = 1;
}

/* Nothing derived is needed for the rebuild. */
START_TEST(test_rebuild_needs_nothing_derived)
{
    uint64_t seed = ts_seed() + 1000;

    for (uint64_t round = 0; round < ts_amount(20, 150, 2000); round++) {
        kvshm *kv = in_create(4, 12 + round % 3 * 20, 8);
        struct in_history *h = history(kv, seed + round);

        for (uint64_t i = ts_random(&h->chance, 60) + 10; i > 0; i--)
            in_step(h, false);
        in_look(kv, &before);
        ruin(kv, &h->chance);
        rebuild(kv);
        in_audit_swept(kv);
        in_look(kv, &after);
        ck_assert(in_same(&before, &after));
        in_check_held(h);
        for (unsigned i = 0; i < 20; i++)
            in_step(h, true);
        in_audit(kv);
        in_give_back(h);
        free(h);
        ts_detach(kv);
        ts_is(kvshm_unlink("inside", 0), 0);
    }
}
END_TEST

/* A writer that died between taking a key-only page away and clearing its word: the rebuild clears it. */
START_TEST(test_rebuild_takes_the_word_of_a_key_in_limbo)
{
    kvshm *kv = in_create(4, 16, 8);
    struct kvshm_prefix key = in_key(1, 3), tokens = in_range(0, 3);
    struct kvshm_lease lease[2];

    ts_is(in_insert(kv, &key, NULL, 0), 0);
    ts_is(in_insert(kv, &tokens, NULL, 0), 0);
    ts_is(kvshm_lookup(kv, &key, 0, &lease[0]), 0);
    ts_is(kvshm_lookup(kv, &tokens, 0, &lease[1]), 0);
    ts_is(kvshm__mend_lock(kv), 0);
    for (unsigned i = 0; i < 2; i++) {
        kvshm__recency_remove(kv, lease[i].page);
        ck_assert(kvshm__pages_take_away(kv, lease[i].page));
    }
    kvshm__mend_rebuild(kv);
    kvshm__mend_unlock(kv);
    in_audit_swept(kv);
    ck_assert_uint_eq(in_limbo(kv), 2);
    ck_assert_ptr_null(kvshm__index_word_of(kv, lease[0].page));
    ck_assert_ptr_nonnull(kvshm__index_word_of(kv, lease[1].page)); /* an insert may call it back */
    kvshm_release(kv, &lease[0]);
    kvshm_release(kv, &lease[1]);
    ts_detach(kv);
}
END_TEST

/* Owner words that name what is not so are nobody's: pages that stand elsewhere or nowhere, kinds that are none. */
START_TEST(test_rebuild_frees_frames_of_nothing)
{
    kvshm *kv = in_create(4, 16, 8);
    struct kvshm_prefix prefix = in_range(0, 6);

    in_put(kv, 0, 6);
    KVSHM__STORE(&kv->owners[9].owner, kvshm__owner_page(in_record(kv, &prefix)));
    KVSHM__STORE(&kv->owners[10].owner, kvshm__owner_page(15));
    KVSHM__STORE(&kv->owners[11].owner, kvshm__owner_page(16));
    KVSHM__STORE(&kv->owners[12].owner, UINT64_MAX);
    KVSHM__STORE(&kv->owners[13].owner, 5);
    rebuild(kv);
    in_audit_swept(kv);
    ck_assert_uint_eq(in_free(kv), 14);
    in_hit(kv, &prefix);
    ts_detach(kv);
}
END_TEST

/* Rebuilding twice is rebuilding once; readers meet every entry meanwhile, since no word of it is touched. */
START_TEST(test_rebuild_is_idempotent)
{
    kvshm *kv = in_create(4, 24, 8);
    struct in_history *h = history(kv, ts_seed() + 2000);
    size_t bytes = kv->frames_offset;
    uint8_t *once = malloc(bytes);

    for (unsigned i = 0; i < 60; i++)
        in_step(h, false);
    ts_is(kvshm__mend_lock(kv), 0);
    kvshm__mend_rebuild(kv);
    memcpy(once, kv->base, bytes);
    kvshm__mend_rebuild(kv);
    KVSHM__STORE(&((struct kvshm_header *)once)->lock.progress,
                 KVSHM__LOAD(&kv->header->lock.progress));
    ck_assert_mem_eq(once, kv->base, bytes);
    kvshm__mend_unlock(kv);
    free(once);
    in_give_back(h);
    free(h);
    ts_detach(kv);
}
END_TEST

/* Its progress shows in a word, so that who waits sees that the mender lives. */
START_TEST(test_rebuild_shows_progress)
{
    kvshm *kv = in_create(4, 20000, 8);
    uint64_t seen = KVSHM__LOAD(&kv->header->lock.progress);

    rebuild(kv);
    /* In each of its walks over records and frames. */
    ck_assert_uint_ge(KVSHM__LOAD(&kv->header->lock.progress), seen + 7 * (20000 / 4096));
    ts_detach(kv);
}
END_TEST

/* W3: who takes over rebuilds, and counts it; who does not take over does not. */
START_TEST(test_takeover_rebuilds)
{
    kvshm *kv = in_create(4, 16, 8);

    in_put(kv, 0, 10);
    ts_is(kvshm__mend_lock(kv), 0);
    kvshm__mend_unlock(kv);
    ck_assert_uint_eq(in_counter(kv, KVSHM__CNT_takeovers), 0);
    KVSHM__STORE(&kv->header->derived.frames_free, 99);
    KVSHM__STORE(&kv->header->lock.word, in_dead_number(kv));
    ts_is(kvshm__mend_lock(kv), 0);
    kvshm__mend_unlock(kv);
    ck_assert_uint_eq(in_counter(kv, KVSHM__CNT_takeovers), 1);
    in_audit_swept(kv);
    /* The dead had inserted, and not come to dropping what was then too much. */
    in_put(kv, 100, 4);
    KVSHM__STORE(&kv->header->settings.capacity, 1);
    KVSHM__STORE(&kv->header->lock.word, in_dead_number(kv));
    ts_is(kvshm__mend_lock(kv), 0);
    kvshm__mend_unlock(kv);
    ck_assert_uint_eq(in_entries(kv), 1);
    in_audit_swept(kv);
    ts_detach(kv);
}
END_TEST

/* ---- Killed between two stores --- ------------------------------------------------------------------------ */

enum deed {
    INSERT,
    BEHIND,
    REPLACE,
    REMOVE,
    EVICT,
    CLEAR,
    RESERVE,
    LOOKUP,
    DRAWN,
    MEND = DRAWN,
    DEEDS
};

/* What a client is to do before it is killed; made before fork. */
static struct order {
    enum deed deed;
    unsigned flags;
    uint64_t kill_at; /* stores with the lock; of a lookup: stores */
    uint32_t n, pages;
    uint32_t tokens[IN_TOKENS_MAX];
    struct kvshm_prefix prefix;
} order;

/* What clients tell: the stores that a deed took with the lock. */
static uint64_t *steps_of;

static struct {
    kvshm *kv;
    uint64_t left, done;
} stepping;

void kvshm__step(void)
{
    if (stepping.kv == NULL ||
        (order.deed != LOOKUP &&
         atomic_load(&stepping.kv->header->lock.word) != stepping.kv->client))
        return;
    stepping.done++;
    if (stepping.left-- == 0)
        kill(getpid(), SIGKILL);
}

/* The client: attach, prepare, do the deed until it is killed. */
static int client(void *arg)
{
    kvshm *kv;
    struct kvshm_lease lease = {0};
    struct kvshm_reservation r = {0};

    (void)arg;
    ts_need(kvshm_attach("inside", NULL, 0, &kv) == 0);
    if (order.deed == BEHIND && kvshm_match(kv, &order.prefix, 0, &lease) < 0)
        return 2;
    if (order.deed == INSERT || order.deed == BEHIND || order.deed == REPLACE) {
        if (in_fill(kv, &order.prefix, &lease, &r) != 0)
            return 0; /* no frames: nothing to be done */
    }
    stepping.left = order.kill_at;
    stepping.kv = kv;
    switch (order.deed) {
    case INSERT:
    case BEHIND:
    case REPLACE:
        kvshm_insert(kv, &order.prefix, &lease, &r, order.flags);
        break;
    case REMOVE:
        kvshm_remove(kv, &order.prefix);
        break;
    case EVICT:
        kvshm_evict_lru(kv);
        break;
    case CLEAR:
        kvshm_clear(kv);
        break;
    case RESERVE:
        kvshm_reserve(kv, order.pages, order.flags & KVSHM_DEVICE, &r);
        break;
    case MEND:
        if (kvshm__mend_lock(kv) == 0)
            kvshm__mend_unlock(kv);
        break;
    default:
        kvshm_lookup(kv, &order.prefix, 0, &lease);
    }
    stepping.kv = NULL;
    steps_of[order.deed] = stepping.done;
    return 0;
}

/* A random order. */
static void draw(uint64_t *chance)
{
    static const unsigned flags[] = {0, KVSHM_HOLD, KVSHM_EXTEND, KVSHM_EXTEND | KVSHM_HOLD};

    order.deed = (enum deed)ts_random(chance, DRAWN);
    order.flags = order.deed == RESERVE ? 0 : flags[ts_random(chance, 4)];
    order.pages = 1 + (uint32_t)ts_random(chance, 4);
    do
        order.prefix = in_any_prefix(chance, order.tokens);
    while ((order.deed == REPLACE) != (order.prefix.tokens == NULL) &&
           (order.deed == BEHIND || order.deed == REPLACE || order.deed == INSERT));
    order.kill_at = ts_random(chance, steps_of[order.deed] + 8);
}

/* Is this entry the one that the order names? */
static bool is_ordered(kvshm *kv, const struct in_entry *entry)
{
    struct kvshm__walk walk;

    if (order.prefix.tokens)
        kvshm__index_walk(kv, &order.prefix, &walk);
    else
        kvshm__index_find_key(kv, &order.prefix, kvshm__index_aim(kv, &order.prefix), &walk);
    return walk.deepest.record == entry->record &&
           (order.deed == REPLACE || walk.tokens == order.prefix.n);
}

/* The deed was done, or not begun, or is one of what DESIGN's table allows. roomy: nothing had to be evicted. */
static void check_outcome(kvshm *kv, bool roomy, const struct in_entry *target)
{
    uint32_t gone = in_lacks(&before, &after), come = in_lacks(&after, &before);

    switch (order.deed) {
    case INSERT:
    case BEHIND:
        ck_assert_uint_le(come, 1);
        if (roomy) /* the head's entry may have become this one */
            ck_assert_uint_le(gone, order.deed == BEHIND && order.flags & KVSHM_EXTEND);
        break;
    case REPLACE:
        ck_assert_uint_le(come, 1);
        if (roomy && target)
            ck_assert_uint_eq(come, gone); /* the old one or the new one, never none */
        else if (roomy)
            ck_assert_uint_eq(gone, 0);
        break;
    case REMOVE:
        ck_assert_uint_eq(come, 0);
        ck_assert_uint_le(gone, target != NULL);
        if (gone)
            ck_assert(!in_has(&after, target->page_id));
        break;
    case EVICT:
        ck_assert_uint_eq(come, 0);
        ck_assert_uint_le(gone, 1);
        if (gone)
            ck_assert(!in_has(&after, before.entry[0].page_id));
        break;
    case CLEAR:
        ck_assert_uint_eq(come, 0);
        ck_assert(gone == 0 || after.n == 0);
        break;
    default:
        ck_assert_uint_eq(come, 0);
        if (roomy)
            ck_assert_uint_eq(gone, 0);
    }
    for (uint32_t i = 0; i < after.n; i++)
        ck_assert(in_has(&before, after.entry[i].page_id) || is_ordered(kv, &after.entry[i]));
}

static uint64_t held_frames(const struct in_history *h)
{
    return h->reservation[0].pages + h->reservation[1].pages;
}

/* What the next writer finds: all is well, nothing of the living is lost, nothing of the dead stays. */
static void recover(kvshm *kv, struct in_history *h)
{
    ts_is(kvshm__mend_lock(kv), 0);
    kvshm__mend_unlock(kv);
    in_audit(kv);
    ck_assert_int_ge(kvshm__reap(kv, 0, NULL), 0);
    in_audit_swept(kv);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->header->derived.frames_reserved), held_frames(h));
    ck_assert_uint_eq(in_free(kv) + in_pages(kv) + in_limbo(kv) + held_frames(h), kv->frame_count);
    in_check_held(h);
    in_look(kv, &after);
}

/* The entry that the order names, as it is before. */
static const struct in_entry *target_of(kvshm *kv)
{
    for (uint32_t i = 0; i < before.n; i++) {
        if (is_ordered(kv, &before.entry[i]))
            return &before.entry[i];
    }
    return NULL;
}

static int run_client(void)
{
    return ts_wait(ts_fork(client, NULL));
}

/* One death with the lock, and in one of three cases one or two more in the rebuild that follows it. */
static bool kill_once(kvshm *kv, struct in_history *h, unsigned *menders)
{
    const struct in_entry *target;
    bool roomy, held;
    enum deed deed;
    int status;

    draw(&h->chance);
    in_look(kv, &before);
    target = target_of(kv);
    roomy = in_free(kv) >= 8;
    status = run_client();
    ck_assert_msg(status == 0 || status == 128 + SIGKILL, "client: %d", status);
    held = KVSHM__LOAD(&kv->header->lock.word) != 0;
    deed = order.deed;
    for (int i = 0; held && i < 2 && ts_random(&h->chance, 3) == 0; i++) {
        order.deed = MEND;
        order.kill_at = ts_random(&h->chance, steps_of[MEND] ? steps_of[MEND] + 20 : 400);
        *menders += run_client() != 0;
    }
    order.deed = deed;
    recover(kv, h);
    check_outcome(kv, roomy, target);
    return held;
}

static void kill_many(uint64_t seed, uint64_t kills, uint64_t frames)
{
    kvshm *kv = in_create(4, frames, 8);
    struct in_history *h = history(kv, seed);
    unsigned menders = 0, with_lock = 0;
    uint64_t done = 0;

    steps_of = ts_shared(DEEDS * sizeof(*steps_of));
    for (; done < kills || ((with_lock <= kills / 4 || menders == 0) && done < 100 * kills);
         done++) {
        for (uint64_t j = ts_random(&h->chance, 6); j > 0; j--)
            in_step(h, false);
        with_lock += kill_once(kv, h, &menders);
    }
    printf("%llu clients, %u killed with the lock, %u menders killed\n", (unsigned long long)done,
           with_lock, menders);
    ck_assert_uint_gt(with_lock, kills / 4);
    ck_assert_uint_gt(menders, 0);
    in_give_back(h);
    rebuild(kv);
    in_audit_swept(kv);
    free(h);
    ts_detach(kv);
}

/* Any prefix of the stores of an insert, eviction, removal, clear or reservation is mended; so is any of a rebuild. */
START_TEST(test_death_between_any_stores_is_mended)
{
    static const uint64_t frames[] = {64, 20, 9};

    kill_many(ts_seed() + (uint64_t)_i, ts_amount(60, 700, 20000), frames[_i]);
}
END_TEST

/* ---- Killed while another has joined it ------------------------------------------------------------------------ */

#define JOINED_PAGES 5
static struct {
    uint64_t client, kill_at;
    unsigned flags;
    uint64_t offset[JOINED_PAGES];
} * joined;
static struct ts_gate reserved, go_on;

/* Tokens of the prefix up to the end of its page i. */
static uint32_t end_of(const struct kvshm_prefix *prefix, uint32_t i)
{
    return i + 1 < JOINED_PAGES ? 4 * (i + 1) : prefix->n;
}

/* Reserve, fill, tell, and insert with HOLD until it is killed. */
static int fill_and_hold(void *arg)
{
    const struct kvshm_prefix *prefix = arg;
    struct kvshm_reservation r;
    struct kvshm_lease lease = {0};
    kvshm *kv;

    ts_need(kvshm_attach("inside", NULL, 0, &kv) == 0);
    ts_need(kvshm_reserve(kv, JOINED_PAGES, joined->flags, &r) == 0);
    for (uint32_t i = 0; i < JOINED_PAGES; i++)
        ts_fill(kvshm_reservation_page(&r, i), IN_PAGE_BYTES, 0, 0, prefix->tokens,
                end_of(prefix, i));
    ts_need(kvshm_reservation_offsets(&r, 0, JOINED_PAGES, joined->offset) == JOINED_PAGES);
    joined->client = kv->client;
    ts_gate_open(&reserved);
    ts_need(ts_gate_wait(&go_on));
    order.deed = INSERT;
    stepping.left = joined->kill_at;
    stepping.kv = kv;
    ts_need(kvshm_insert(kv, prefix, &lease, &r, KVSHM_HOLD) == 0);
    return 0;
}

/* Fill all frames that can be had with other bytes, and give them back. */
static void scribble(kvshm *kv)
{
    struct kvshm_reservation r;
    uint32_t n = kv->frame_count;

    while (n > 0 && kvshm_reserve(kv, n, 0, &r) != 0)
        n--;
    for (uint32_t i = 0; i < n; i++)
        memset(kvshm_reservation_page(&r, i), 0xff, IN_PAGE_BYTES);
    kvshm_cancel(kv, &r);
}

static void die_joined(kvshm *kv, uint32_t first, uint64_t kill_at)
{
    struct kvshm_prefix prefix = in_range(first, 4 * JOINED_PAGES - 1);
    pid_t pid;

    joined->kill_at = kill_at;
    pid = ts_fork(fill_and_hold, &prefix);
    ck_assert(ts_gate_wait(&reserved));
    ts_is(kvshm_join(kv, joined->client), 0);
    ts_gate_open(&go_on);
    ts_wait(pid);
    scribble(kv);
    ck_assert_int_ge(in_insert(kv, &prefix, NULL, 0), 0);
    in_audit(kv);
    in_hit(kv, &prefix);
    scribble(kv);
    in_audit(kv);
    for (uint32_t i = 0; i < JOINED_PAGES; i++)
        ck_assert_uint_eq(ts_filled(kvshm_at(kv, joined->offset[i]), IN_PAGE_BYTES, 0, 0,
                                    prefix.tokens, end_of(&prefix, i)),
                          0);
    ts_is(kvshm_leave(kv, joined->client), 0);
    ck_assert_int_ge(kvshm__reap(kv, joined->flags ? joined->client : 0, NULL), 0);
    in_audit_swept(kv);
    ck_assert_uint_eq(in_free(kv) + in_pages(kv), kv->frame_count);
}

/* What a client was filling, and inserts with HOLD, stays as it is for who joined it, whenever it dies. */
START_TEST(test_what_the_joined_dead_hold_stays)
{
    kvshm *kv = in_create(4, 16, 8);
    uint64_t chance = ts_seed();

    joined = ts_shared(sizeof(*joined));
    steps_of = ts_shared(DEEDS * sizeof(*steps_of));
    ts_gate_make(&reserved);
    ts_gate_make(&go_on);
    for (uint32_t i = 0; i < ts_amount(40, 300, 5000); i++) {
        in_put(kv, 100 * (i % 7), 6);
        joined->flags = i % 3 == 2 ? KVSHM_DEVICE : 0;
        die_joined(kv, 100000 + 100 * i, ts_random(&chance, 260));
    }
    ts_detach(kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mend");
    TCase *tcase = tcase_create("mend");
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_audit_finds_each_wrong_word);
    tcase_add_test(tcase, test_rebuild_changes_nothing_that_is_true);
    tcase_add_test(tcase, test_rebuild_needs_nothing_derived);
    tcase_add_test(tcase, test_rebuild_takes_the_word_of_a_key_in_limbo);
    tcase_add_test(tcase, test_rebuild_frees_frames_of_nothing);
    tcase_add_test(tcase, test_rebuild_is_idempotent);
    tcase_add_test(tcase, test_rebuild_shows_progress);
    tcase_add_test(tcase, test_takeover_rebuilds);
    tcase_add_loop_test(tcase, test_death_between_any_stores_is_mended, 0, 3);
    tcase_add_test(tcase, test_what_the_joined_dead_hold_stays);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
