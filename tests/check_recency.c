/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_recency.c - stamps, and the heap that finds the oldest entry (recency.h: R1, R2)
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

#include "mend.h"
#include "recency.h"

#define RECORDS 200

static uint64_t stamp_of(const kvshm *kv, uint32_t record)
{
    return KVSHM__LOAD(&kv->records[record].stamp);
}

/* ---- Stamps ----------------------------------------------------------------------------------------------------- */

/* By the shared counter and, where there is one, by the hardware's. */
START_TEST(test_stamps_strictly_grow)
{
    kvshm *kv = in_create(4, 8, 4);
    uint64_t before = 0;

    kv->hardware_clock = _i == 1 && kvshm__recency_hardware();
    for (unsigned i = 0; i < 100000; i++) {
        uint64_t now = kvshm__recency_now(kv);

        ck_assert_uint_gt(now, before);
        before = now;
    }
    ts_detach(kv);
}
END_TEST

#define DRAWS 20000
static void *draw(void *arg)
{
    uint64_t *drawn = malloc(DRAWS * sizeof(*drawn));

    for (unsigned i = 0; i < DRAWS; i++)
        drawn[i] = kvshm__recency_now(arg);
    return drawn;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* No stamp of the shared counter is given twice. */
START_TEST(test_shared_clock_gives_each_stamp_once)
{
    kvshm *kv[2] = {in_create(4, 8, 4), in_attach()};
    static uint64_t all[2 * DRAWS];
    pthread_t thread[2];

    for (unsigned i = 0; i < 2; i++) {
        kv[i]->hardware_clock = false;
        ck_assert_int_eq(pthread_create(&thread[i], NULL, draw, kv[i]), 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        void *drawn;

        pthread_join(thread[i], &drawn);
        memcpy(all + i * DRAWS, drawn, DRAWS * sizeof(*all));
        free(drawn);
    }
    qsort(all, 2 * DRAWS, sizeof(*all), compare);
    for (unsigned i = 1; i < 2 * DRAWS; i++)
        ck_assert_uint_lt(all[i - 1], all[i]);
    ts_detach(kv[1]);
    ts_detach(kv[0]);
}
END_TEST

/* A use is stored only where it was seen, never for no entry, never backwards. */
START_TEST(test_touch_moves_on_only_what_was_seen)
{
    kvshm *kv = in_create(4, 8, 4);
    kvshm_a64 *stamp = &kv->records[3].stamp;
    uint64_t later;

    ck_assert_uint_eq(kvshm__recency_touch(kv, 3, 0, kvshm__recency_now(kv)), 0);
    ck_assert_uint_eq(KVSHM__LOAD(stamp), 0);
    KVSHM__STORE(stamp, 5);
    later = kvshm__recency_touch(kv, 3, 5, kvshm__recency_now(kv));
    ck_assert_uint_gt(later, 5);
    ck_assert_uint_eq(KVSHM__LOAD(stamp), later);
    ck_assert_uint_eq(kvshm__recency_touch(kv, 3, 5, kvshm__recency_now(kv)),
                      later); /* used meanwhile: that use stands */
    ck_assert_uint_eq(KVSHM__LOAD(stamp), later);
    KVSHM__STORE(stamp, UINT64_MAX);
    ck_assert_uint_eq(kvshm__recency_touch(kv, 3, UINT64_MAX, kvshm__recency_now(kv)), UINT64_MAX);
    ck_assert_uint_eq(KVSHM__LOAD(stamp), UINT64_MAX);
    KVSHM__STORE(stamp, 0);
    ck_assert_uint_eq(kvshm__recency_touch(kv, 3, later, kvshm__recency_now(kv)),
                      0); /* removed meanwhile: it does not come back */
    ck_assert_uint_eq(KVSHM__LOAD(stamp), 0);
    ts_detach(kv);
}
END_TEST

/* ---- The heap --------------------------------------------------------------------------------------------------- */

enum where { OUT, IN, ASIDE };
static enum where where[RECORDS];

/* The oldest of the records that are IN, the slow way. */
static uint32_t oldest_by_list(const kvshm *kv)
{
    uint32_t oldest = KVSHM__NO_RECORD;

    for (uint32_t record = 0; record < RECORDS; record++) {
        if (where[record] == IN &&
            (oldest == KVSHM__NO_RECORD || stamp_of(kv, record) < stamp_of(kv, oldest)))
            oldest = record;
    }
    return oldest;
}

static uint64_t count_in(void)
{
    uint64_t n = 0;

    for (uint32_t record = 0; record < RECORDS; record++)
        n += where[record] != OUT;
    return n;
}

static void remove_one(kvshm *kv, uint32_t record, bool stale)
{
    uint64_t seen = stamp_of(kv, record);

    if (stale) {
        ck_assert(!kvshm__recency_remove_if(kv, record, seen - 1));
        return;
    }
    if (seen % 2)
        kvshm__recency_remove(kv, record);
    else
        ck_assert(kvshm__recency_remove_if(kv, record, seen));
    ck_assert_uint_eq(stamp_of(kv, record), 0);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->heap[record].position1), 0);
    where[record] = OUT;
}

static void set_aside(kvshm *kv)
{
    uint64_t stamp;
    uint32_t record = kvshm__recency_oldest(kv, &stamp);

    kvshm__recency_set_aside(kv);
    if (record != KVSHM__NO_RECORD)
        where[record] = ASIDE;
}

static void take_back(kvshm *kv)
{
    kvshm__recency_take_back(kv);
    for (uint32_t record = 0; record < RECORDS; record++)
        where[record] = where[record] == ASIDE ? IN : where[record];
}

/* R1, R2, and each record where its position says. */
static void check_heap(kvshm *kv)
{
    uint32_t length = KVSHM__LOAD(&kv->header->derived.heap_length);
    uint64_t all = KVSHM__LOAD(&kv->header->derived.entries);

    ck_assert_uint_eq(all, count_in());
    for (uint32_t i = 0; i < all; i++) {
        uint32_t record = KVSHM__LOAD(&kv->heap[i].record);

        ck_assert_uint_eq(KVSHM__LOAD(&kv->heap[record].position1), i + 1);
        ck_assert_uint_le(KVSHM__LOAD(&kv->heap[i].stamp), stamp_of(kv, record));
        ck_assert_int_eq(where[record], i < length ? IN : ASIDE);
        if (i > 0 && i < length)
            ck_assert_uint_ge(KVSHM__LOAD(&kv->heap[i].stamp),
                              KVSHM__LOAD(&kv->heap[(i - 1) / 4].stamp));
    }
}

/* Against a plain list, over random additions, uses, removals, and entries set aside. */
START_TEST(test_oldest_is_that_of_a_plain_list)
{
    kvshm *kv = in_create(4, RECORDS, 4);
    uint64_t chance = ts_seed() + (uint64_t)_i, stamp;

    kv->hardware_clock = _i % 2;
    memset(where, 0, sizeof(where));
    ts_is(kvshm__mend_lock(kv), 0);
    for (uint64_t i = 0; i < ts_amount(3000, 15000, 500000); i++) {
        uint32_t record = (uint32_t)ts_random(&chance, RECORDS), oldest;
        uint64_t what = ts_random(&chance, 100);

        if (what < 50 && where[record] != OUT) {
            kvshm__recency_touch(kv, record, stamp_of(kv, record), kvshm__recency_now(kv));
        } else if (what < 75 && where[record] == OUT) {
            kvshm__recency_add(kv, record);
            where[record] = IN;
        } else if (what < 90 && where[record] != OUT) {
            remove_one(kv, record, what % 4 == 0);
        } else if (what < 98) {
            set_aside(kv);
        } else {
            take_back(kv);
        }
        oldest = kvshm__recency_oldest(kv, &stamp);
        ck_assert_uint_eq(oldest, oldest_by_list(kv));
        if (oldest != KVSHM__NO_RECORD)
            ck_assert_uint_eq(stamp, stamp_of(kv, oldest));
        if (i % 64 == 0)
            check_heap(kv);
    }
    take_back(kv);
    check_heap(kv);
    for (uint32_t record = 0; record < RECORDS; record++) {
        if (where[record] != OUT)
            remove_one(kv, record, false);
    }
    ck_assert_uint_eq(kvshm__recency_oldest(kv, &stamp), KVSHM__NO_RECORD);
    kvshm__mend_unlock(kv);
    in_audit(kv);
    ts_detach(kv);
}
END_TEST

/* R1: a use costs the heap nothing until it is asked; then the recorded stamp follows. */
START_TEST(test_r1_recorded_stamps_are_corrected_when_asked)
{
    kvshm *kv = in_create(4, 8, 4);
    uint64_t stamp, first;

    ts_is(kvshm__mend_lock(kv), 0);
    kvshm__recency_add(kv, 1);
    kvshm__recency_add(kv, 2);
    first = KVSHM__LOAD(&kv->heap[0].stamp);
    kvshm__recency_touch(kv, 1, first, kvshm__recency_now(kv));
    ck_assert_uint_eq(KVSHM__LOAD(&kv->heap[0].stamp), first);
    ck_assert_uint_eq(kvshm__recency_oldest(kv, &stamp), 2);
    kvshm__recency_remove(kv, 2);
    ck_assert_uint_eq(kvshm__recency_oldest(kv, &stamp), 1);
    ck_assert_uint_eq(stamp, KVSHM__LOAD(&kv->heap[0].stamp));
    kvshm__recency_remove(kv, 1);
    kvshm__mend_unlock(kv);
    ts_detach(kv);
}
END_TEST

/* A heap that was damaged ends the search; a position beyond it removes nothing. */
START_TEST(test_damaged_heap_is_survived)
{
    kvshm *kv = in_create(4, 8, 4);
    uint64_t stamp;

    ts_is(kvshm__mend_lock(kv), 0);
    for (uint32_t record = 0; record < 8; record++)
        kvshm__recency_add(kv, record);
    KVSHM__STORE(&kv->heap[0].record, 8);
    ck_assert_uint_eq(kvshm__recency_oldest(kv, &stamp), 1); /* what is no entry leaves the heap */
    KVSHM__STORE(&kv->heap[0].record, UINT32_MAX);
    ck_assert_uint_eq(kvshm__recency_oldest(kv, &stamp), 2);
    KVSHM__STORE(&kv->heap[3].position1, UINT32_MAX);
    kvshm__recency_remove(kv, 3);
    KVSHM__STORE(&kv->header->derived.heap_length, UINT32_MAX);
    KVSHM__STORE(&kv->header->derived.entries, UINT64_MAX);
    kvshm__recency_set_aside(kv);
    kvshm__recency_take_back(kv);
    kvshm__recency_remove(kv, 4);
    kvshm__recency_add(kv, 5);
    for (uint32_t record = 0; record < 8; record++)
        KVSHM__STORE(&kv->records[record].stamp, 0);
    kvshm__mend_rebuild(kv);
    kvshm__mend_unlock(kv);
    in_audit(kv);
    ts_detach(kv);
}
END_TEST

/* ---- Entries ----------------------------------------------------------------------------------------------------- */

/* The true oldest leaves, one by one, after any uses. */
START_TEST(test_entries_leave_in_the_order_of_their_uses)
{
    const uint32_t n = 60;
    kvshm *kv = in_create(4, 64, 4);
    uint64_t chance = ts_seed(), used[60];

    for (uint32_t i = 0; i < n; i++)
        in_put(kv, 1000 * i, 3);
    for (uint32_t i = 0; i < n; i++)
        used[i] = i;
    for (uint32_t i = 0; i < 500; i++) {
        uint32_t which = (uint32_t)ts_random(&chance, n);
        struct kvshm_prefix prefix = in_range(1000 * which, 3);

        in_hit(kv, &prefix);
        used[which] = n + i;
    }
    for (uint32_t left = n; left > 0; left--) {
        uint32_t oldest = 0;

        for (uint32_t i = 0; i < n; i++)
            oldest = used[i] < used[oldest] ? i : oldest;
        ck_assert_int_eq(kvshm_evict_lru(kv), 1);
        for (uint32_t i = 0; i < n; i++) {
            struct kvshm_prefix prefix = in_range(1000 * i, 3);

            if (i == oldest)
                used[i] = UINT64_MAX;
            ck_assert_int_eq(kvshm_contains(kv, &prefix), used[i] != UINT64_MAX);
        }
    }
    ck_assert_int_eq(kvshm_evict_lru(kv), 0);
    in_audit_swept(kv);
    ts_detach(kv);
}
END_TEST

/* R2 after a rebuild: what has a stamp and is published is in the heap, of others the stamp goes. */
START_TEST(test_r2_rebuild_holds_the_published_alone)
{
    kvshm *kv = in_create(4, 16, 4);
    struct kvshm_prefix gone = in_range(50, 4);
    struct kvshm_lease lease;

    in_put(kv, 0, 4);
    in_put(kv, 10, 4);
    in_put(kv, 50, 4);
    ts_is(kvshm_lookup(kv, &gone, 0, &lease), 0);
    ts_is(kvshm_remove(kv, &gone), 0);
    KVSHM__STORE(&kv->records[lease.page].stamp, 99); /* of a page in limbo */
    KVSHM__STORE(&kv->records[15].stamp, 99);         /* of a free record */
    ts_is(kvshm__mend_lock(kv), 0);
    kvshm__recency_rebuild(kv);
    kvshm__mend_unlock(kv);
    ck_assert_uint_eq(in_entries(kv), 2);
    in_audit(kv);
    kvshm_release(kv, &lease);
    ts_detach(kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("recency");
    TCase *tcase = tcase_create("recency");
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_loop_test(tcase, test_stamps_strictly_grow, 0, 2);
    tcase_add_test(tcase, test_shared_clock_gives_each_stamp_once);
    tcase_add_test(tcase, test_touch_moves_on_only_what_was_seen);
    tcase_add_loop_test(tcase, test_oldest_is_that_of_a_plain_list, 0, 4);
    tcase_add_test(tcase, test_r1_recorded_stamps_are_corrected_when_asked);
    tcase_add_test(tcase, test_damaged_heap_is_survived);
    tcase_add_test(tcase, test_entries_leave_in_the_order_of_their_uses);
    tcase_add_test(tcase, test_r2_rebuild_holds_the_published_alone);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
