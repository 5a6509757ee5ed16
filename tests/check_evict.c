/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_evict.c - how entries and pages leave (evict.h: E1 to E4)
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

#include "evict.h"
#include "mend.h"
#include "reap.h"
#include "recency.h"
#include "sys.h"
#include "tokens.h"

static struct kvshm_lease lookup(kvshm *kv, const struct kvshm_prefix *prefix)
{
    struct kvshm_lease lease;

    ts_is(kvshm_lookup(kv, prefix, 0, &lease), 0);
    return lease;
}

static void sweep(kvshm *kv)
{
    ts_is(kvshm__mend_lock(kv), 0);
    kvshm__evict_sweep_limbo(kv);
    kvshm__mend_unlock(kv);
    in_audit_swept(kv);
}

static enum kvshm_place_state state_of(const kvshm *kv, uint32_t record)
{
    return kvshm__place_state(KVSHM__LOAD(&kv->records[record].place));
}

/* The range 0 .. n - 1 whose last token is another: it shares all but its last page. */
static struct kvshm_prefix branch(uint32_t n, uint32_t last)
{
    struct kvshm_prefix prefix = in_range(0, n);

    ((uint32_t *)prefix.tokens)[n - 1] = 1000 + last;
    return prefix;
}

/* ---- Histories -------------------------------------------------------------------------------------------------- */

/* Whatever is called, in whatever order: all that is derived is right after each call, and nothing is lost. */
START_TEST(test_any_history_audits_clean)
{
    static const uint64_t frames[] = {6, 12, 40, 130}, capacity[] = {KVSHM_UNLIMITED, 3, 1, 0};
    uint64_t seed = ts_seed() + 100 * (uint64_t)_i;

    for (uint64_t round = 0; round < ts_amount(4, 20, 300); round++) {
        kvshm *kv = in_create(4, frames[_i], 8);
        struct in_history h = {.kv = kv, .chance = seed + round};

        ts_is(kvshm__setting_set(kv, "capacity", capacity[round % 4]), 0);
        for (unsigned i = 0; i < 150; i++) {
            in_step(&h, true);
            in_audit(kv);
            if (i % 16 == 0)
                in_check_held(&h);
        }
        in_give_back(&h);
        ts_is(kvshm_clear(kv), 0);
        ck_assert_int_ge(kvshm__reap(kv, 0, NULL), 0);
        in_audit_swept(kv);
        ck_assert_uint_eq(in_free(kv), frames[_i]);
        ts_detach(kv);
        ts_is(kvshm_unlink("inside", 0), 0);
    }
}
END_TEST

/* The same by two clients in turn, each with leases of its own. */
START_TEST(test_any_history_of_two_clients_audits_clean)
{
    uint64_t seed = ts_seed();

    for (uint64_t round = 0; round < ts_amount(4, 20, 300); round++) {
        kvshm *kv = in_create(4, 20 + round % 2 * 60, 8), *other = in_attach();
        struct in_history h[2] = {{.kv = kv, .chance = seed + round},
                                  {.kv = other, .chance = ~seed + round}};

        for (unsigned i = 0; i < 200; i++) {
            in_step(&h[i % 2], true);
            in_audit(i % 3 ? kv : other);
        }
        in_check_held(&h[0]);
        in_check_held(&h[1]);
        in_give_back(&h[0]);
        in_give_back(&h[1]);
        ts_is(kvshm_clear(kv), 0);
        ck_assert_int_ge(kvshm__reap(other, 0, NULL), 0);
        in_audit_swept(kv);
        ck_assert_uint_eq(in_free(kv), kv->frame_count);
        ts_detach(other);
        ts_detach(kv);
        ts_is(kvshm_unlink("inside", 0), 0);
    }
}
END_TEST

/* ---- Limbo -------------------------------------------------------------------------------------------------------- */

/* E1: what is held keeps record, frame, place and word, and is given back by the first sweep after its release. */
START_TEST(test_e1_freed_only_by_a_sweep_that_finds_it_free)
{
    kvshm *kv = in_create(4, 8, 4);
    struct kvshm_prefix prefix = in_range(0, 8);
    struct kvshm_lease lease;
    uint64_t seq, frame;

    in_put(kv, 0, 8);
    lease = lookup(kv, &prefix);
    seq = KVSHM__LOAD(&kv->records[lease.page].seq);
    frame = kvshm__place_frame(KVSHM__LOAD(&kv->records[lease.page].place));
    ts_is(kvshm_remove(kv, &prefix), 0);
    for (int i = 0; i < 3; i++) {
        sweep(kv);
        ck_assert_int_eq(state_of(kv, lease.page), KVSHM__PLACE_AWAY);
        ck_assert_uint_eq(KVSHM__LOAD(&kv->records[lease.page].seq), seq);
        ck_assert_uint_eq(kvshm__place_frame(KVSHM__LOAD(&kv->records[lease.page].place)), frame);
        ck_assert_ptr_nonnull(kvshm__index_word_of(kv, lease.page));
        ck_assert_uint_eq(in_wrong(&lease, &prefix), 0);
        in_miss(kv, &prefix);
    }
    kvshm_release(kv, &lease);
    ck_assert_uint_eq(in_limbo(kv), 2); /* release is one store */
    sweep(kv);
    ck_assert_uint_eq(in_limbo(kv), 0);
    ck_assert_uint_eq(in_free(kv), 8);
    ts_detach(kv);
}
END_TEST

/* E2: two children in limbo below a parent in limbo, let go in either order: the parent goes with the last. */
START_TEST(test_e2_shared_parent_waits_for_both_children)
{
    kvshm *kv = in_create(4, 8, 4);
    struct kvshm_prefix prefix[2] = {in_range(0, 12), branch(12, 1)};
    struct kvshm_lease lease[2];
    uint32_t parent;

    for (unsigned i = 0; i < 2; i++) {
        ts_is(in_insert(kv, &prefix[i], NULL, 0), 0);
        lease[i] = lookup(kv, &prefix[i]);
    }
    parent = kvshm__pages_parent(kv, lease[0].page);
    for (unsigned i = 0; i < 2; i++)
        ts_is(kvshm_remove(kv, &prefix[i ^ (_i & 1)]), 0);
    ck_assert_uint_eq(in_limbo(kv), 4);
    sweep(kv);
    kvshm_release(kv, &lease[_i >> 1]);
    sweep(kv);
    ck_assert_uint_eq(in_limbo(kv), 3);
    ck_assert_int_eq(state_of(kv, parent), KVSHM__PLACE_AWAY);
    ck_assert_uint_eq(in_wrong(&lease[!(_i >> 1)], &prefix[!(_i >> 1)]), 0);
    kvshm_release(kv, &lease[!(_i >> 1)]);
    sweep(kv);
    ck_assert_uint_eq(in_limbo(kv), 0);
    ck_assert_uint_eq(in_free(kv), 8);
    ts_detach(kv);
}
END_TEST

/* E2: a child in limbo keeps a parent that lost its entry from being freed, however long it stays. */
START_TEST(test_e2_held_child_keeps_all_above)
{
    kvshm *kv = in_create(4, 8, 4);
    struct kvshm_prefix deep = in_range(0, 16), head = in_range(0, 4);
    struct kvshm_lease lease;

    in_put(kv, 0, 16);
    in_put(kv, 0, 4);
    lease = lookup(kv, &deep);
    ts_is(kvshm_remove(kv, &deep), 0);
    ck_assert_uint_eq(in_limbo(kv), 3); /* the head's entry keeps its page published */
    in_hit(kv, &head);
    ts_is(kvshm_remove(kv, &head), 0);
    ck_assert_uint_eq(in_limbo(kv), 4);
    sweep(kv);
    ck_assert_uint_eq(in_wrong(&lease, &deep), 0);
    ck_assert_int_eq(kvshm_evict_lru(kv), 0);
    ck_assert_uint_eq(in_wrong(&lease, &deep), 0);
    kvshm_release(kv, &lease);
    sweep(kv);
    ck_assert_uint_eq(in_free(kv), 8);
    ts_detach(kv);
}
END_TEST

/* E3: pages stay while an entry ends at or below them, and no longer. */
START_TEST(test_e3_pages_go_with_their_last_entry)
{
    kvshm *kv = in_create(4, 16, 4);
    struct kvshm_prefix head = in_range(0, 4), deep = in_range(0, 12), side = branch(12, 1);

    in_put(kv, 0, 4);
    in_put(kv, 0, 12);
    ts_is(in_insert(kv, &side, NULL, 0), 0);
    ck_assert_uint_eq(in_pages(kv), 4);
    ts_is(kvshm_remove(kv, &head), 0); /* a name goes, no page */
    in_audit_swept(kv);
    ck_assert_uint_eq(in_pages(kv), 4);
    ts_is(kvshm_remove(kv, &deep), 0);
    in_audit_swept(kv);
    ck_assert_uint_eq(in_pages(kv), 3);
    in_hit(kv, &side);
    ts_is(kvshm_remove(kv, &side), 0);
    in_audit_swept(kv);
    ck_assert_uint_eq(in_pages(kv), 0);
    ck_assert_uint_eq(in_free(kv), 16);
    ts_is(kvshm_remove(kv, &side), KVSHM_MISS);
    ts_detach(kv);
}
END_TEST

/* E4: a page that was called back stands in the list until the next sweep, once, however often it goes and comes. */
START_TEST(test_e4_called_back_pages_are_listed_once)
{
    kvshm *kv = in_create(4, 8, 4);
    struct kvshm_prefix a = in_range(0, 8), b = in_range(50, 4);
    struct kvshm_lease hold_a, hold_b;

    in_put(kv, 0, 8);
    in_put(kv, 50, 4);
    hold_a = lookup(kv, &a);
    hold_b = lookup(kv, &b);
    for (int i = 0; i < 5; i++) {
        ts_is(kvshm_remove(kv, &a), 0);
        ts_is(kvshm_remove(kv, &b), 0);
        in_audit_swept(kv);
        ck_assert_uint_eq(in_limbo(kv), 3);
        ts_is(in_insert(kv, i % 2 ? &a : &b, NULL, 0), 0);
        in_audit(kv);
        ts_is(in_insert(kv, i % 2 ? &b : &a, NULL, 0), 0);
        in_audit(kv);
        ck_assert_uint_eq(in_limbo(kv), 0);
        if (i == 2)
            sweep(kv); /* it leaves the list, to nowhere */
    }
    ck_assert_uint_eq(in_counter(kv, KVSHM__CNT_recalled_pages), 15);
    ck_assert_uint_eq(in_wrong(&hold_a, &a), 0);
    ck_assert_uint_eq(in_wrong(&hold_b, &b), 0);
    kvshm_release(kv, &hold_a);
    kvshm_release(kv, &hold_b);
    ts_is(kvshm_remove(kv, &a), 0);
    in_audit_swept(kv);
    ck_assert_uint_eq(in_free(kv), 7);
    in_hit(kv, &b);
    ts_detach(kv);
}
END_TEST

/* Sixteen and more held versions of one key cost nobody anything: they need no index words. */
START_TEST(test_held_versions_of_a_key_take_no_words)
{
    const unsigned versions = 40;
    kvshm *kv = in_create(4, 200, 64);
    struct kvshm_prefix key = in_key(7, 8), other;
    struct kvshm_lease lease[40];

    for (uint32_t i = 0; i < 20; i++)
        in_put(kv, 100 * i, 4);
    for (unsigned i = 0; i < versions; i++) {
        if (_i == 1 && i > 0) /* removed and inserted, instead of replaced */
            ts_is(kvshm_remove(kv, &key), 0);
        ts_is(in_insert(kv, &key, NULL, 0), _i == 0 && i > 0 ? KVSHM_REPLACED : 0);
        lease[i] = lookup(kv, &key);
        in_audit(kv);
    }
    ck_assert_uint_eq(in_entries(kv), 21);
    for (uint32_t i = 0; i < 20; i++) {
        other = in_range(100 * i, 4);
        in_hit(kv, &other);
    }
    for (unsigned i = 0; i < versions; i++) {
        ck_assert_uint_eq(in_wrong(&lease[i], &key), 0);
        kvshm_release(kv, &lease[i]);
    }
    sweep(kv);
    ck_assert_uint_eq(in_pages(kv), 22);
    ck_assert_uint_eq(in_free(kv), 178);
    ts_detach(kv);
}
END_TEST

/* ---- Room ------------------------------------------------------------------------------------------------------------ */

/* When frames run out the oldest entries go, and of those that are leased none. */
START_TEST(test_oldest_unleased_entries_give_room)
{
    kvshm *kv = in_create(4, 8, 8);
    struct kvshm_prefix prefix[8];
    struct kvshm_lease lease[2];

    for (uint32_t i = 0; i < 8; i++) {
        prefix[i] = in_range(100 * i, 4);
        ts_is(in_insert(kv, &prefix[i], NULL, 0), 0);
    }
    in_hit(kv, &prefix[0]); /* 1 is the oldest now */
    lease[0] = lookup(
        kv, &prefix[2]); /* and those that are held move up, too: hold them by an older use */
    lease[1] = lookup(kv, &prefix[3]);
    KVSHM__STORE(&kv->records[lease[0].page].stamp, 1);
    KVSHM__STORE(&kv->heap[KVSHM__LOAD(&kv->heap[lease[0].page].position1) - 1].stamp, 1);
    ts_is(kvshm__mend_lock(kv), 0);
    kvshm__recency_rebuild(kv);
    kvshm__mend_unlock(kv);
    in_put(kv, 1000, 4);
    in_miss(kv, &prefix[1]);
    in_put(kv, 1100, 8);
    in_miss(kv, &prefix[4]);
    in_miss(kv, &prefix[5]);
    in_hit(kv, &prefix[2]);
    in_hit(kv, &prefix[3]);
    in_hit(kv, &prefix[0]);
    in_hit(kv, &prefix[6]);
    in_hit(kv, &prefix[7]);
    in_audit_swept(kv);
    kvshm_release(kv, &lease[0]);
    kvshm_release(kv, &lease[1]);
    ts_detach(kv);
}
END_TEST

static unsigned waits;
static int no_wait(void *word, uint32_t expected, uint64_t timeout_ns)
{
    (void)word;
    (void)expected;
    (void)timeout_ns;
    waits++;
    return 0;
}

/* All is leased: -ENOSPC at once, with the numbers, and each entry is still there; with one frame less wanted than
   others could give, they give it. */
START_TEST(test_enospc_at_once_keeps_the_cache)
{
    kvshm *kv = in_create(4, 8, 8);
    struct kvshm_prefix prefix[8];
    struct kvshm_lease lease[8];
    struct kvshm_reservation r;

    kvshm__sys.futex_wait = no_wait;
    for (uint32_t i = 0; i < 8; i++) {
        prefix[i] = in_range(100 * i, 4);
        ts_is(in_insert(kv, &prefix[i], NULL, 0), 0);
        lease[i] = lookup(kv, &prefix[i]);
    }
    for (uint32_t want = 1; want <= 9; want++)
        ts_is(kvshm_reserve(kv, want, 0, &r), -ENOSPC);
    ts_says("9 frames");
    ts_says("8");
    kvshm_release(kv, &lease[5]);
    kvshm_release(kv, &lease[6]);
    ts_is(kvshm_reserve(kv, 3, 0, &r), -ENOSPC);
    ck_assert_uint_eq(in_counter(kv, KVSHM__CNT_no_space), 10);
    ck_assert_uint_eq(in_counter(kv, KVSHM__CNT_evicted_entries), 0);
    ck_assert_uint_eq(waits, 0);
    for (uint32_t i = 0; i < 8; i++)
        in_hit(kv, &prefix[i]);
    in_audit_swept(kv);
    ts_is(kvshm_reserve(kv, 2, 0, &r), 0);
    ck_assert_uint_eq(in_entries(kv), 6);
    in_audit_swept(kv);
    kvshm_cancel(kv, &r);
    for (uint32_t i = 0; i < 8; i++)
        kvshm_release(kv, &lease[i]);
    kvshm__sys = kvshm__sys_real;
    ts_detach(kv);
}
END_TEST

/* Many frames, so that small requests do not look at all that is leased first: a failure costs a batch of names. */
START_TEST(test_enospc_costs_a_batch_at_most)
{
    const uint32_t pages = 256;
    kvshm *kv = in_create(1, pages, 8);
    struct kvshm_prefix whole = in_range(0, pages);
    struct kvshm_reservation r;
    struct kvshm_lease lease = {0};

    for (uint32_t n = 1; n <= pages;
         n++) { /* every page has an entry, all above the one that is leased */
        struct kvshm_prefix prefix = in_range(0, n);

        ts_is(in_insert(kv, &prefix, &lease, KVSHM_HOLD), 0);
    }
    ck_assert_uint_eq(in_entries(kv), pages);
    ts_is(kvshm_reserve(kv, 1, 0, &r), -ENOSPC);
    ck_assert_uint_ge(in_entries(kv), pages - 4 - 64);
    ck_assert_uint_eq(in_wrong(&lease, &whole), 0);
    in_audit_swept(kv);
    kvshm_release(kv, &lease);
    ts_is(kvshm_reserve(kv, pages, 0, &r), 0);
    ck_assert_uint_eq(in_entries(kv), 0);
    in_audit_swept(kv);
    kvshm_cancel(kv, &r);
    ts_detach(kv);
}
END_TEST

/* What costs nobody anything is taken first: cancelled frames, pages of earlier epochs, limbo. */
START_TEST(test_entries_go_last)
{
    kvshm *kv = in_create(4, 8, 8);
    struct kvshm_prefix kept = in_range(0, 4), gone = in_range(50, 8), old = in_range(80, 8);
    struct kvshm_reservation r, more;
    struct kvshm_lease lease;

    in_put(kv, 80, 8);
    ts_is(kvshm__mend_lock(kv), 0);
    kvshm__evict_clear(kv, KVSHM__LOAD(&kv->header->epoch) + 1); /* by one who died before the rest */
    kvshm__mend_unlock(kv);
    in_audit(kv);
    in_miss(kv, &old);
    in_put(kv, 0, 4);
    in_put(kv, 50, 8);
    lease = lookup(kv, &gone);
    ts_is(kvshm_remove(kv, &gone), 0);
    kvshm_release(kv, &lease);
    ts_is(kvshm_reserve(kv, 2, 0, &r), 0);
    kvshm_cancel(kv, &r);
    in_audit(kv);
    ts_is(kvshm_reserve(kv, 7, 0, &more), 0);
    in_hit(kv, &kept);
    in_audit_swept(kv);
    kvshm_cancel(kv, &more);
    ts_detach(kv);
}
END_TEST

/* What waits in limbo and was let go suffices: nothing cached leaves for it. */
START_TEST(test_limbo_goes_before_entries)
{
    kvshm *kv = in_create(4, 8, 8);
    struct kvshm_prefix kept = in_range(0, 16), gone = in_range(50, 16);
    struct kvshm_reservation r;
    struct kvshm_lease lease;

    ts_is(kvshm__mend_lock(kv), 0);
    kvshm__mend_rebuild(kv); /* no records are to be looked at for earlier epochs, which would sweep too */
    kvshm__mend_unlock(kv);
    ts_is(in_insert(kv, &kept, NULL, 0), 0);
    ts_is(in_insert(kv, &gone, NULL, 0), 0);
    lease = lookup(kv, &gone);
    ts_is(kvshm_remove(kv, &gone), 0);
    kvshm_release(kv, &lease);
    ts_is(kvshm_reserve(kv, 4, 0, &r), 0);
    in_hit(kv, &kept);
    in_audit_swept(kv);
    kvshm_cancel(kv, &r);
    ts_detach(kv);
}
END_TEST

/* What is held in limbo takes nothing from what can be evicted beside it. */
START_TEST(test_held_limbo_beside_what_can_go)
{
    kvshm *kv = in_create(4, 8, 8);
    struct kvshm_prefix held = in_range(50, 16);
    struct kvshm_reservation r;
    struct kvshm_lease lease;

    ts_is(in_insert(kv, &held, NULL, 0), 0);
    lease = lookup(kv, &held);
    ts_is(kvshm_remove(kv, &held), 0);
    in_put(kv, 0, 4);
    in_put(kv, 100, 4);
    in_put(kv, 200, 8);
    ck_assert_uint_eq(in_free(kv), 0);
    ck_assert_uint_eq(in_limbo(kv), 4);
    ts_is(kvshm_reserve(kv, 5, 0, &r), -ENOSPC);
    ck_assert_uint_eq(in_entries(kv), 3);
    ts_is(kvshm_reserve(kv, 4, 0, &r), 0);
    ck_assert_uint_eq(in_wrong(&lease, &held), 0);
    kvshm_cancel(kv, &r);
    kvshm_release(kv, &lease);
    in_audit(kv);
    ts_detach(kv);
}
END_TEST

START_TEST(test_evict_lru_tells_what_came_back_at_once)
{
    kvshm *kv = in_create(4, 16, 8);
    struct kvshm_prefix deep = in_range(0, 12), side = branch(12, 1), held = in_range(50, 8);
    struct kvshm_lease lease;

    ts_is(in_insert(kv, &deep, NULL, 0), 0);
    ts_is(in_insert(kv, &side, NULL, 0), 0);
    ts_is(in_insert(kv, &held, NULL, 0), 0);
    lease = lookup(kv, &held);
    ck_assert_int_eq(kvshm_evict_lru(kv), 1); /* two are shared */
    in_miss(kv, &deep);
    ck_assert_int_eq(kvshm_evict_lru(kv), 3);
    ck_assert_int_eq(kvshm_evict_lru(kv), 0); /* held */
    in_miss(kv, &held);
    ck_assert_uint_eq(in_wrong(&lease, &held), 0);
    ck_assert_uint_eq(in_limbo(kv), 2);
    kvshm_release(kv, &lease);
    ck_assert_int_eq(kvshm_evict_lru(kv), 0); /* what others released is not this call's */
    ck_assert_uint_eq(in_free(kv), 16);
    in_audit_swept(kv);
    ts_detach(kv);
}
END_TEST

/* ---- Capacity ---------------------------------------------------------------------------------------------------------- */

START_TEST(test_capacity_keeps_the_newest)
{
    static const uint64_t capacity[] = {0, 1, 2, 3, 7};
    kvshm *kv = in_create(4, 32, 8);

    ts_is(kvshm__setting_set(kv, "capacity", capacity[_i]), 0);
    for (uint32_t i = 0; i < 20; i++) {
        in_put(kv, 100 * i, 4);
        in_audit_swept(kv);
        ck_assert_uint_eq(in_entries(kv), i + 1 < capacity[_i] ? i + 1 : capacity[_i]);
    }
    for (uint32_t i = 0; i < 20; i++) {
        struct kvshm_prefix prefix = in_range(100 * i, 4);

        ck_assert_int_eq(kvshm_contains(kv, &prefix), i + capacity[_i] >= 20);
    }
    ck_assert_uint_eq(in_free(kv), 32 - capacity[_i]);
    ts_detach(kv);
}
END_TEST

/* ---- Index words -------------------------------------------------------------------------------------------------------- */

/* Both lines of a hash are full: the oldest entry in reach that nothing stands below goes, others stay. */
START_TEST(test_word_is_had_from_the_oldest_in_reach)
{
    kvshm *kv = in_create(4, 64, 32);
    struct kvshm_prefix crowd, elsewhere = in_outsider(kv);

    ts_is(in_insert(kv, &elsewhere, NULL, 0), 0); /* the oldest of all */
    for (uint32_t i = 0; i < 16; i++) {
        crowd = in_crowd(kv, i);
        ts_is(in_insert(kv, &crowd, NULL, 0), 0);
    }
    ck_assert_uint_eq(in_entries(kv), 17);
    crowd = in_crowd(kv, 0);
    in_hit(kv, &crowd);
    crowd = in_crowd(kv, 16);
    ts_is(in_insert(kv, &crowd, NULL, 0), 0);
    in_audit_swept(kv);
    ck_assert_uint_eq(in_entries(kv), 17);
    for (uint32_t i = 0; i < 17; i++) {
        crowd = in_crowd(kv, i);
        ck_assert_int_eq(kvshm_contains(kv, &crowd), i != 1);
    }
    ck_assert(kvshm_contains(kv, &elsewhere));
    ts_detach(kv);
}
END_TEST

/* The oldest in reach is part of another entry: its word would not be had by its going, so it stays. */
START_TEST(test_word_is_not_had_from_what_has_children)
{
    kvshm *kv = in_create(4, 64, 32);
    struct kvshm_prefix crowd = in_crowd(kv, 0), deep;
    uint64_t above =
        kvshm__hash_page(kv->secret, kvshm__hash_root(kv->secret, 0, 0), crowd.tokens, 4);
    uint32_t tokens[5];

    memcpy(tokens, crowd.tokens, 4 * sizeof(*tokens));
    for (tokens[4] = 1;; tokens[4]++) { /* a child whose word stands elsewhere */
        kvshm_prefix_init(&deep, 0, 0, tokens, 5);
        if (in_elsewhere(kv, kvshm__hash_page(kv->secret, above, tokens + 4, 1)))
            break;
    }
    for (uint32_t i = 0; i < 16; i++) {
        crowd = in_crowd(kv, i);
        ts_is(in_insert(kv, &crowd, NULL, 0), 0);
    }
    ts_is(in_insert(kv, &deep, NULL, 0), 0);
    crowd = in_crowd(kv, 16);
    ts_is(in_insert(kv, &crowd, NULL, 0), 0);
    for (uint32_t i = 0; i < 17; i++) {
        crowd = in_crowd(kv, i);
        ck_assert_int_eq(kvshm_contains(kv, &crowd), i != 1);
    }
    in_hit(kv, &deep);
    in_audit_swept(kv);
    ts_detach(kv);
}
END_TEST

/* Words of what is in limbo and let go, and of earlier epochs, are had before any entry's. */
START_TEST(test_words_that_cost_nobody_are_had_first)
{
    kvshm *kv = in_create(4, 64, 32);
    struct kvshm_prefix crowd, outsider;
    struct kvshm_lease lease[16];

    for (uint32_t i = 0; i < 16; i++) {
        crowd = in_crowd(kv, i);
        ts_is(in_insert(kv, &crowd, NULL, 0), 0);
        lease[i] = lookup(kv, &crowd);
    }
    if (_i == 0) {
        crowd = in_crowd(kv, 7);
        ts_is(kvshm_remove(kv, &crowd), 0);
    } else {
        ts_is(kvshm__mend_lock(kv), 0);
        kvshm__evict_clear(kv, KVSHM__LOAD(&kv->header->epoch) + 1);
        kvshm__mend_unlock(kv);
    }
    for (uint32_t i = 0; i < 16; i++)
        kvshm_release(kv, &lease[i]);
    outsider = in_outsider(kv);
    ts_is(in_insert(kv, &outsider, NULL, 0), 0);
    crowd = in_crowd(kv, 16);
    ts_is(in_insert(kv, &crowd, NULL, 0), 0);
    in_audit_swept(kv);
    ck_assert_uint_eq(in_counter(kv, KVSHM__CNT_evicted_entries), 0);
    ck_assert_uint_eq(in_entries(kv), _i == 0 ? 17 : 2);
    ts_detach(kv);
}
END_TEST

/* ---- Clear --------------------------------------------------------------------------------------------------------------- */

/* One store, and all is a miss; slices, and all of it is free, but what is held; its bytes stay. */
START_TEST(test_clear_by_slices)
{
    kvshm *kv = in_create(4, 32, 8);
    struct kvshm_prefix prefix[6], again = in_range(0, 9);
    struct kvshm_lease lease[2];
    unsigned slices = 1;

    for (uint32_t i = 0; i < 6; i++) {
        prefix[i] = in_range(100 * i, 9);
        ts_is(in_insert(kv, &prefix[i], NULL, 0), 0);
    }
    in_put(kv, 900, 3);
    ck_assert_uint_ne(KVSHM__LOAD(&kv->header->root_partials), 0);
    lease[0] = lookup(kv, &prefix[0]);
    lease[1] = lookup(kv, &prefix[4]);
    ts_is(kvshm__mend_lock(kv), 0);
    kvshm__evict_clear(kv, KVSHM__LOAD(&kv->header->epoch) + 1);
    kvshm__mend_unlock(kv);
    in_audit(kv);
    for (uint32_t i = 0; i < 6; i++)
        in_miss(kv, &prefix[i]);
    ck_assert_uint_eq(in_entries(kv), 0);
    ck_assert_uint_eq(in_counter(kv, KVSHM__CNT_cleared_entries), 7);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->header->root_partials),
                      0);                     /* the next match looks for none of them */
    ts_is(in_insert(kv, &again, NULL, 0), 0); /* between the slices */
    for (bool done = false; !done; slices++) {
        ts_is(kvshm__mend_lock(kv), 0);
        done = kvshm__evict_clear_slice(kv, 2);
        kvshm__mend_unlock(kv);
        in_audit(kv);
        in_hit(kv, &again);
    }
    ck_assert_uint_gt(slices, 5);
    in_audit_swept(kv);
    ck_assert_uint_eq(in_limbo(kv), 6);
    ck_assert_uint_eq(in_free(kv), 32 - 6 - 3);
    ck_assert_uint_eq(in_wrong(&lease[0], &prefix[0]), 0);
    ck_assert_uint_eq(in_wrong(&lease[1], &prefix[4]), 0);
    kvshm_release(kv, &lease[0]);
    kvshm_release(kv, &lease[1]);
    sweep(kv);
    ck_assert_uint_eq(in_free(kv), 29);
    ts_detach(kv);
}
END_TEST

/* A clear in the midst of another's slices. */
START_TEST(test_clear_upon_clear)
{
    kvshm *kv = in_create(4, 32, 8);
    struct kvshm_prefix prefix = in_range(0, 9);

    for (unsigned i = 0; i < 4; i++) {
        ts_is(in_insert(kv, &prefix, NULL, 0), 0);
        in_put(kv, 1000, 7);
        ts_is(kvshm__mend_lock(kv), 0);
        kvshm__evict_clear(kv, KVSHM__LOAD(&kv->header->epoch) + 1);
        kvshm__evict_clear_slice(kv, i);
        kvshm__mend_unlock(kv);
        in_audit(kv);
    }
    ts_is(kvshm_clear(kv), 0);
    in_audit_swept(kv);
    ck_assert_uint_eq(in_free(kv), 32);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->header->epoch), 6);
    ts_detach(kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("evict");
    TCase *tcase = tcase_create("evict");
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_loop_test(tcase, test_any_history_audits_clean, 0, 4);
    tcase_add_test(tcase, test_any_history_of_two_clients_audits_clean);
    tcase_add_test(tcase, test_e1_freed_only_by_a_sweep_that_finds_it_free);
    tcase_add_loop_test(tcase, test_e2_shared_parent_waits_for_both_children, 0, 4);
    tcase_add_test(tcase, test_e2_held_child_keeps_all_above);
    tcase_add_test(tcase, test_e3_pages_go_with_their_last_entry);
    tcase_add_test(tcase, test_e4_called_back_pages_are_listed_once);
    tcase_add_loop_test(tcase, test_held_versions_of_a_key_take_no_words, 0, 2);
    tcase_add_test(tcase, test_oldest_unleased_entries_give_room);
    tcase_add_test(tcase, test_enospc_at_once_keeps_the_cache);
    tcase_add_test(tcase, test_enospc_costs_a_batch_at_most);
    tcase_add_test(tcase, test_entries_go_last);
    tcase_add_test(tcase, test_limbo_goes_before_entries);
    tcase_add_test(tcase, test_held_limbo_beside_what_can_go);
    tcase_add_test(tcase, test_evict_lru_tells_what_came_back_at_once);
    tcase_add_loop_test(tcase, test_capacity_keeps_the_newest, 0, 5);
    tcase_add_test(tcase, test_word_is_had_from_the_oldest_in_reach);
    tcase_add_test(tcase, test_word_is_not_had_from_what_has_children);
    tcase_add_loop_test(tcase, test_words_that_cost_nobody_are_had_first, 0, 2);
    tcase_add_test(tcase, test_clear_by_slices);
    tcase_add_test(tcase, test_clear_upon_clear);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
