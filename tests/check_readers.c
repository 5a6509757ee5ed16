/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_readers.c - what readers see before each store that a writer makes (insert.h: I1, I3; DESIGN's rules 1 and 4), and
 * what others do there
 *
 * The library is linked in the build that calls kvshm__step() before each store; there a reader looks.
 */
#include <stdlib.h>
#include <string.h>

#include "inside.h"
#include "looker.h"

#include "evict.h"
#include "frames.h"
#include "mend.h"
#include "writer.h"

static kvshm *watcher;
static struct kvshm_prefix watched[3]; /* always there; to come; to go */
static bool came, went;

/* A hit has all the right bytes, always. */
static bool seen(const struct kvshm_prefix *prefix)
{
    struct kvshm_lease lease;
    int answer = kvshm_lookup(watcher, prefix, 0, &lease);

    if (answer == KVSHM_MISS)
        return false;
    ts_is(answer, 0);
    ck_assert_uint_eq(in_wrong(&lease, prefix), 0);
    kvshm_release(watcher, &lease);
    return true;
}

static void look_at_insert(void)
{
    bool now = seen(&watched[1]);

    ck_assert(seen(&watched[0]));
    ck_assert(now || !came); /* it does not go again */
    came = now;
}

static void look_at_replacement(void)
{
    ck_assert(seen(&watched[0]));
    ck_assert(seen(&watched[1])); /* before or after, never neither */
}

static void look_at_extension(void)
{
    bool new_one = seen(&watched[1]), old_one = seen(&watched[2]);

    ck_assert(new_one || old_one); /* one, the other, or both */
    ck_assert(new_one || !came);
    ck_assert(!old_one || !went);
    came = new_one;
    went = !old_one;
}

static void look_at_removal(void)
{
    bool now = seen(&watched[2]);

    ck_assert(seen(&watched[0]));
    ck_assert(!now || !went);
    went = !now;
}

static kvshm *watch(uint64_t frames)
{
    kvshm *kv = in_create(4, frames, 8);

#ifdef KVSHM_TSAN
    watcher = kv;
#else
    watcher = in_attach();
#endif
    came = went = false;
    return kv;
}

static void unwatch(kvshm *kv)
{
    in_audit(kv);
    if (watcher != kv)
        ts_detach(watcher);
    ts_detach(kv);
}

/* I1: a reader finds the entry only when all of it is there: new, behind a head, in frames that were others' before. */
START_TEST(test_i1_an_entry_is_seen_whole_or_not)
{
    kvshm *kv = watch(_i == 2 ? 7 : 16);
    struct kvshm_lease head = {0};
    struct kvshm_reservation r;
    int answer;

    watched[0] = in_range(0, 6);
    watched[1] = in_range(_i == 1 ? 0 : 100, 14);
    ts_is(in_insert(kv, &watched[0], NULL, 0), 0);
    if (_i == 2) {
        in_put(kv, 200, 20);
        in_hit(kv, &watched[0]);
    }
    if (_i == 1)
        ts_is(kvshm_match(kv, &watched[1], 0, &head), 0);
    ts_is(in_fill(kv, &watched[1], &head, &r), 0);
    WATCHED(look_at_insert, answer = kvshm_insert(kv, &watched[1], &head, &r, KVSHM_HOLD));
    ts_is(answer, 0);
    ck_assert(seen(&watched[1]));
    kvshm_release(kv, &head);
    unwatch(kv);
}
END_TEST

/* A replaced key is served throughout, from the old pages or from the new. */
START_TEST(test_a_key_is_replaced_by_one_store)
{
    kvshm *kv = watch(16);
    struct kvshm_reservation r;
    int answer;

    watched[0] = in_range(0, 6);
    watched[1] = in_key(3, 0); /* whatever length */
    ts_is(in_insert(kv, &watched[0], NULL, 0), 0);
    for (uint32_t n = 1; n < 12; n += 3) {
        struct kvshm_prefix key = in_key(3, n);

        ts_is(in_fill(kv, &key, NULL, &r), 0);
        if (n == 1) {
            ts_is(kvshm_insert(kv, &key, NULL, &r, 0), 0);
            continue;
        }
        WATCHED(look_at_replacement, answer = kvshm_insert(kv, &key, NULL, &r, 0));
        ts_is(answer, KVSHM_REPLACED);
        in_hit(kv, &key);
        in_audit(kv);
    }
    unwatch(kv);
}
END_TEST

START_TEST(test_an_extended_entry_is_one_the_other_or_both)
{
    kvshm *kv = watch(16);
    struct kvshm_lease head;
    struct kvshm_reservation r;
    int answer;

    watched[1] = in_range(0, 14);
    watched[2] = in_range(0, 5 + 3 * (uint32_t)_i); /* with a partial page, and without */
    ts_is(in_insert(kv, &watched[2], NULL, 0), 0);
    ts_is(kvshm_lookup(kv, &watched[2], 0, &head), 0);
    ts_is(in_fill(kv, &watched[1], &head, &r), 0);
    WATCHED(look_at_extension, answer = kvshm_insert(kv, &watched[1], &head, &r, KVSHM_EXTEND));
    ts_is(answer, 0);
    ck_assert(!seen(&watched[2]));
    kvshm_release(kv, &head);
    unwatch(kv);
}
END_TEST

/* Removal, eviction and clear: it goes once, and what shares its pages stays. */
START_TEST(test_what_goes_goes_once)
{
    kvshm *kv = watch(16);

    watched[0] = in_range(0, 6);
    watched[2] = in_range(0, 14);
    ts_is(in_insert(kv, &watched[2], NULL, 0), 0);
    ts_is(in_insert(kv, &watched[0], NULL, 0), 0);
    if (_i)
        WATCHED(look_at_removal, ts_is(kvshm_remove(kv, &watched[2]), 0));
    else
        WATCHED(look_at_removal, kvshm__mend_lock(kv);
                kvshm__evict_drop_entry(kv, in_record(kv, &watched[2]));
                kvshm__evict_sweep_limbo(kv); kvshm__mend_unlock(kv));
    ck_assert(!seen(&watched[2]));
    unwatch(kv);
}
END_TEST

/* A clear is one store: what is found by match before it is found by lookup, also a partial page without a parent. */
static void look_at_clear(void)
{
    struct kvshm_lease lease;

    if (kvshm_match(watcher, &watched[1], 0, &lease) == KVSHM_MISS)
        ck_assert(!seen(&watched[2]));
    kvshm_release(watcher, &lease);
}

START_TEST(test_a_clear_is_one_store)
{
    kvshm *kv = watch(16);

    watched[1] = in_range(0, 7); /* longer than what is cached */
    watched[2] = in_range(0, 3);
    ts_is(in_insert(kv, &watched[2], NULL, 0), 0);
    WATCHED(look_at_clear, ts_is(kvshm_clear(kv), 0));
    ck_assert(!seen(&watched[2]));
    unwatch(kv);
}
END_TEST

/* A rebuild is not seen by readers. */
START_TEST(test_readers_meet_every_entry_during_a_rebuild)
{
    kvshm *kv = watch(24);

    watched[0] = in_range(0, 14);
    watched[1] = in_key(4, 7);
    ts_is(in_insert(kv, &watched[0], NULL, 0), 0);
    ts_is(in_insert(kv, &watched[1], NULL, 0), 0);
    KVSHM__STORE(&kv->header->lock.word, in_dead_number(kv));
    WATCHED(look_at_replacement, ts_is(kvshm__mend_lock(kv), 0));
    kvshm__mend_unlock(kv);
    unwatch(kv);
}
END_TEST

/* I3: when the first frame becomes a page's, the lease word is there. */
static kvshm *holding;
static struct kvshm_reservation held;
static unsigned frames_changed;

static void look_at_hold(void)
{
    unsigned changed = 0, words = 0;

    for (uint32_t i = 0; i < held.pages; i++)
        changed += kvshm__owner_kind(KVSHM__LOAD(&holding->owners[held.frames[i]].owner)) !=
                   KVSHM__OWNER_RESERVED;
    for (uint32_t i = 0; i < holding->max_leases; i++)
        words += KVSHM__LOAD(&kvshm__own_leases(holding)[i].word) != 0;
    if (changed && frames_changed == 0)
        ck_assert_uint_eq(words, 1);
    frames_changed = changed;
}

START_TEST(test_i3_hold_stores_its_word_first)
{
    kvshm *kv = holding = in_create(4, 16, 8);
    struct kvshm_prefix prefix = _i ? in_key(3, 10) : in_range(0, 10);
    struct kvshm_lease lease = {0};
    struct kvshm_reservation r;
    uint32_t frames[3];

    ts_is(in_fill(kv, &prefix, NULL, &r), 0);
    held = r;
    memcpy(frames, r.frames, sizeof(frames));
    held.frames = frames;
    frames_changed = 0;
    WATCHED(look_at_hold, ts_is(kvshm_insert(kv, &prefix, &lease, &r, KVSHM_HOLD), 0));
    ck_assert_uint_eq(frames_changed, 3);
    ck_assert_uint_eq(in_wrong(&lease, &prefix), 0);
    in_audit(kv);
    kvshm_release(kv, &lease);
    ts_detach(kv);
}
END_TEST

/* ---- Between the look and the lease ----------------------------------------------------------------------------- */

static unsigned moves_left;

/* A writer is faster: the page is another, in another record, each time the reader is about to store. */
static void move_it(void)
{
    if (moves_left == 0)
        return;
    moves_left--;
    ts_is(kvshm_remove(watcher, &watched[1]), 0);
    ts_is(in_insert(watcher, &watched[0], NULL, 0), 0); /* takes the record that became free */
    ts_is(in_insert(watcher, &watched[1], NULL, 0), 0);
    ts_is(kvshm_remove(watcher, &watched[0]), 0);
}

/* A hit whose page moved is begun again, a bounded number of times; then it is a counted miss. */
START_TEST(test_a_hit_whose_page_moves_is_begun_again)
{
    kvshm *kv = watch(16);
    struct kvshm_lease lease;
    int answer;

    watched[0] = in_range(100, 7);
    watched[1] = in_range(0, 7);
    ts_is(in_insert(kv, &watched[1], NULL, 0), 0);
    moves_left = _i ? UINT32_MAX : 3;
    looker = move_it;
    answer = kvshm_lookup(kv, &watched[1], 0, &lease);
    looker = NULL;
    if (_i) {
        ck_assert_int_eq(answer, KVSHM_MISS);
        ck_assert_uint_eq(in_counter(kv, KVSHM__CNT_gave_up), 1);
        ck_assert_uint_lt(UINT32_MAX - moves_left, 200);
        ts_is(kvshm_lookup(kv, &watched[1], 0, &lease), 0);
    } else {
        ck_assert_int_eq(answer, 0);
        ck_assert_uint_eq(in_counter(kv, KVSHM__CNT_gave_up), 0);
    }
    ck_assert_uint_eq(in_wrong(&lease, &watched[1]), 0);
    kvshm_release(kv, &lease);
    unwatch(kv);
}
END_TEST

/* ---- Before one store of another ------------------------------------------------------------------------------------- */

static uint32_t high_before; /* the high mark, before the store that is to come */

static void look_at_mark(void)
{
    const struct kvshm_lease_word *own = kvshm__own_leases(holding);

    for (uint32_t i = 0; i < holding->max_leases; i++) {
        if (KVSHM__LOAD(&own[i].word) != 0)
            ck_assert_uint_gt(high_before, i);
    }
    high_before = KVSHM__LOAD(&holding->clients[holding->place].lease_high);
}

/* L3: before a lease word is stored, scans come to it. */
START_TEST(test_l3_high_mark_is_raised_first)
{
    kvshm *kv = holding = in_create(4, 8, 8);
    uint32_t word = KVSHM__NO_WORD;

    high_before = 0;
    WATCHED(look_at_mark, word = kvshm__lease_claim(kv, 1); kvshm__lease_drop(kv, word);
            word = kvshm__lease_claim(kv, 1));
    kvshm__lease_drop(kv, word);
    ts_detach(kv);
}
END_TEST

static uint32_t word_of_other;

static void claim_first(void)
{
    if (word_of_other == KVSHM__NO_WORD)
        word_of_other = kvshm__lease_claim(holding, 2);
}

/* A thread is faster, between the look at a word and its claim. */
START_TEST(test_a_lease_word_is_of_who_claims_it_first)
{
    kvshm *kv = holding = in_create(4, 8, 8);
    uint32_t word;

    word_of_other = kvshm__lease_claim(kv, 1);
    kvshm__lease_drop(kv, word_of_other); /* both look there first */
    word_of_other = KVSHM__NO_WORD;
    looker = claim_first;
    word = kvshm__lease_claim(kv, 1);
    looker = NULL;
    ck_assert_uint_ne(word_of_other, KVSHM__NO_WORD);
    ck_assert_uint_ne(word, word_of_other);
    kvshm__lease_drop(kv, word);
    kvshm__lease_drop(kv, word_of_other);
    ts_detach(kv);
}
END_TEST

static int acquired;

static void acquire_first(void)
{
    looker = NULL;
    acquired = kvshm__writer_acquire(watcher);
}

/* A writer is faster, between the look at the lock and its taking. */
START_TEST(test_the_lock_is_of_who_takes_it_first)
{
    kvshm *kv = in_create(4, 8, 8);

    watcher = in_attach();
    KVSHM__STORE(&kv->header->settings.stall_ms, 0);
    acquired = -1;
    looker = acquire_first;
    ts_is(kvshm__writer_acquire(kv), KVSHM_E_STALLED);
    ts_is(acquired, 0);
    kvshm__writer_release(watcher);
    ts_detach(watcher);
    ts_detach(kv);
}
END_TEST

/* Of the record that is written: its sequence and its text, before the store that is to come. */
static struct kvshm_record *written;
static uint64_t *written_text, text_before, seq_before;

static void look_at_record(void)
{
    uint64_t text = *written_text;

    if (text != text_before)
        ck_assert_uint_eq(seq_before % 2, 1);
    text_before = text;
    seq_before = KVSHM__LOAD(&written->seq);
}

/* W1: while a record's data change, its sequence is odd. */
START_TEST(test_w1_a_record_is_odd_while_it_is_written)
{
    kvshm *kv = in_create(4, 8, 8);
    uint32_t record;

    in_put(kv, 0, 4);
    watched[0] = in_range(0, 4);
    record = in_record(kv, &watched[0]);
    written = &kv->records[record];
    written_text = (uint64_t *)(uintptr_t)&kvshm__text(kv, record)[1];
    ts_is(kvshm_remove(kv, &watched[0]), 0);
    text_before = *written_text;
    seq_before = KVSHM__LOAD(&written->seq);
    WATCHED(look_at_record, in_put(kv, 100, 4));
    watched[0] = in_range(100, 4);
    ck_assert_uint_eq(in_record(kv, &watched[0]), record);
    ts_detach(kv);
}
END_TEST

static struct kvshm_reservation to_cancel;
static uint64_t cancel_at;

static void cancel_then(void)
{
    if (looks == cancel_at)
        kvshm_cancel(watcher, &to_cancel);
}

/* F2: what is cancelled while others sweep is swept by them, or wanted to be swept by the next. */
START_TEST(test_f2_what_is_cancelled_during_a_sweep_is_the_next_ones)
{
    kvshm *kv = in_create(4, 16, 8);
    struct kvshm_reservation r;

    watcher = in_attach();
    looks = 0;
    for (cancel_at = 1; looks + 1 >= cancel_at; cancel_at++) {
        ts_is(kvshm_reserve(kv, 3, 0, &r), 0);
        ts_is(kvshm_reserve(watcher, 3, 0, &to_cancel), 0);
        kvshm_cancel(kv, &r);
        ts_is(kvshm__mend_lock(kv), 0);
        WATCHED(cancel_then, kvshm__frames_sweep(kv, 0));
        if (to_cancel.kv != NULL)
            kvshm_cancel(watcher, &to_cancel);
        if (in_free(kv) < 16)
            ck_assert(kvshm__frames_sweep_worth(kv));
        kvshm__frames_sweep(kv, 0);
        kvshm__mend_unlock(kv);
        ck_assert_uint_eq(in_free(kv), 16);
        in_audit_swept(kv);
    }
    ts_detach(watcher);
    ts_detach(kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("readers");
    TCase *tcase = tcase_create("readers");
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_loop_test(tcase, test_i1_an_entry_is_seen_whole_or_not, 0, 3);
    tcase_add_test(tcase, test_a_key_is_replaced_by_one_store);
    tcase_add_loop_test(tcase, test_an_extended_entry_is_one_the_other_or_both, 0, 2);
    tcase_add_loop_test(tcase, test_what_goes_goes_once, 0, 2);
    tcase_add_test(tcase, test_a_clear_is_one_store);
    tcase_add_test(tcase, test_readers_meet_every_entry_during_a_rebuild);
    tcase_add_loop_test(tcase, test_i3_hold_stores_its_word_first, 0, 2);
    tcase_add_loop_test(tcase, test_a_hit_whose_page_moves_is_begun_again, 0, 2);
    tcase_add_test(tcase, test_l3_high_mark_is_raised_first);
    tcase_add_test(tcase, test_a_lease_word_is_of_who_claims_it_first);
    tcase_add_test(tcase, test_the_lock_is_of_who_takes_it_first);
    tcase_add_test(tcase, test_w1_a_record_is_odd_while_it_is_written);
    tcase_add_test(tcase, test_f2_what_is_cancelled_during_a_sweep_is_the_next_ones);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
