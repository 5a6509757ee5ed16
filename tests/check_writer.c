/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_writer.c - the writer lock (writer.h: W1 to W3), with a clock and a futex of the test's own
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inside.h"

#include "sys.h"
#include "writer.h"

/* ---- A clock that goes on only while someone waits --------------------------------------------------------- */

static uint64_t now_ns, sleeps, wakes, woken_at_most, longest_ns;
static uint32_t slept_on;
static void *slept_at;
static void (*while_asleep)(void);

static uint64_t fake_clock(void)
{
    return now_ns;
}

static int fake_wait(void *word, uint32_t expected, uint64_t timeout_ns)
{
    slept_at = word;
    slept_on = expected;
    longest_ns = timeout_ns > longest_ns ? timeout_ns : longest_ns;
    now_ns += timeout_ns;
    sleeps++;
    if (while_asleep)
        while_asleep();
    return -ETIMEDOUT;
}

static int fake_wake(void *word, int n)
{
    slept_at = word;
    woken_at_most = (uint64_t)n;
    wakes++;
    return 0;
}

static void fake_time(void)
{
    kvshm__sys.monotonic_ns = fake_clock;
    kvshm__sys.futex_wait = fake_wait;
    kvshm__sys.futex_wake = fake_wake;
    now_ns = 1000;
    sleeps = wakes = longest_ns = 0;
    while_asleep = NULL;
}

static void setup(void)
{
    ts_setup();
    fake_time();
}

/* With the real calls: its maker waits for those who take its memory. */
static kvshm *make_arena(void)
{
    kvshm *kv;

    kvshm__sys = kvshm__sys_real;
    kv = in_create(4, 8, 4);
    fake_time();
    return kv;
}

static void teardown(void)
{
    kvshm__sys = kvshm__sys_real;
    ts_teardown();
}

static kvshm_a64 *word_of(kvshm *kv)
{
    return &kv->header->lock.word;
}

/* ---- Taking and giving back --------------------------------------------------------------------------------- */

START_TEST(test_w1_word_names_the_owner)
{
    kvshm *kv = make_arena();
    uint64_t turn = KVSHM__LOAD(&kv->header->lock.turn);

    ck_assert_uint_eq(KVSHM__LOAD(word_of(kv)), 0);
    ts_is(kvshm__writer_acquire(kv), 0);
    ck_assert_uint_eq(KVSHM__LOAD(word_of(kv)), kv->client);
    kvshm__writer_release(kv);
    ck_assert_uint_eq(KVSHM__LOAD(word_of(kv)), 0);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->header->lock.turn), turn + 1);
    ck_assert_uint_eq(sleeps, 0);
    ck_assert_uint_eq(wakes, 0);
    ts_detach(kv);
}
END_TEST

static uint64_t rounds;
static _Atomic(uint64_t) counted; /* loaded and stored, not added to: two at once lose a round */

static void *count_up(void *arg)
{
    kvshm *kv = arg;

    for (uint64_t i = 0; i < rounds; i++) {
        if (kvshm__writer_acquire(kv) != 0)
            abort();
        atomic_store_explicit(&counted, atomic_load_explicit(&counted, memory_order_relaxed) + 1,
                              memory_order_relaxed);
        kvshm__writer_release(kv);
    }
    return NULL;
}

/* W1 between handles and between threads of one handle. */
START_TEST(test_w1_one_writer_at_a_time)
{
    kvshm *kv[2] = {make_arena(), in_attach()};
    pthread_t thread[4];

    kvshm__sys = kvshm__sys_real;
    KVSHM__STORE(&kv[0]->header->settings.stall_ms,
                 3600000); /* who has no processor is not stopped */
    rounds = ts_amount(2000, 20000, 500000);
    counted = 0;
    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, count_up, kv[i % 2]), 0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    ck_assert_uint_eq(counted, 4 * rounds);
    ck_assert_uint_eq(KVSHM__LOAD(&kv[0]->header->lock.turn), 4 * rounds);
    ck_assert_uint_eq(KVSHM__LOAD(&kv[0]->header->lock.waiters), 0);
    ts_detach(kv[1]);
    ts_detach(kv[0]);
}
END_TEST

/* The owner, alive, that gives the lock back while the other sleeps for the third time. */
static kvshm *owner;

static void give_back_third(void)
{
    if (sleeps == 3)
        kvshm__writer_release(owner);
}

START_TEST(test_waiter_gets_it_when_it_is_given_back)
{
    kvshm *kv = make_arena();

    owner = in_attach();
    ts_is(kvshm__writer_acquire(owner), 0);
    while_asleep = give_back_third;
    ts_is(kvshm__writer_acquire(kv), 0);
    ck_assert_uint_eq(sleeps, 3);
    ck_assert_uint_eq(KVSHM__LOAD(word_of(kv)), kv->client);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->header->lock.waiters), 0);
    kvshm__writer_release(kv);
    ts_detach(owner);
    ts_detach(kv);
}
END_TEST

/* The dead wake nobody: no sleep is longer than 10 ms, and it watches the half that the owner's number is in. */
START_TEST(test_sleeps_are_short_and_see_the_owner)
{
    kvshm *kv = make_arena();

    owner = in_attach();
    ts_is(kvshm__writer_acquire(owner), 0);
    while_asleep = give_back_third;
    ts_is(kvshm__writer_acquire(kv), 0);
    ck_assert_uint_le(longest_ns, 10000000);
    ck_assert_uint_eq(slept_on, (uint32_t)owner->client);
    ck_assert_uint_eq(*(uint32_t *)slept_at, (uint32_t)kv->client);
    kvshm__writer_release(kv);
    ts_detach(owner);
    ts_detach(kv);
}
END_TEST

START_TEST(test_release_wakes_one_if_someone_sleeps)
{
    kvshm *kv = make_arena();

    KVSHM__STORE(&kv->header->lock.waiters, 2);
    ts_is(kvshm__writer_acquire(kv), 0);
    kvshm__writer_release(kv);
    ck_assert_uint_eq(wakes, 1);
    ck_assert_uint_eq(woken_at_most, 1);
    ck_assert_ptr_eq(slept_at, (uint32_t *)word_of(kv) + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__));
    KVSHM__STORE(&kv->header->lock.waiters, 0);
    ts_detach(kv);
}
END_TEST

/* A call may be cancelled before and after, never inside; also when it was refused. */
START_TEST(test_no_cancellation_inside)
{
    kvshm *kv = make_arena();
    int state;

    ts_is(kvshm__writer_acquire(kv), 0);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    ck_assert_int_eq(state, PTHREAD_CANCEL_DISABLE);
    kvshm__writer_release(kv);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    ck_assert_int_eq(state, PTHREAD_CANCEL_ENABLE);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    ts_is(kvshm__writer_acquire(kv), 0);
    kvshm__writer_release(kv);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    ck_assert_int_eq(state, PTHREAD_CANCEL_DISABLE);

    owner = in_attach();
    ts_is(kvshm__writer_acquire(owner), 0);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL); /* one thread plays both */
    ts_is(kvshm__writer_acquire(kv), KVSHM_E_STALLED);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    ck_assert_int_eq(state, PTHREAD_CANCEL_ENABLE);
    kvshm__writer_release(owner);
    ts_detach(owner);
    ts_detach(kv);
}
END_TEST

/* ---- Taking over ------------------------------------------------------------------------------------------- */

START_TEST(test_w2_taken_over_from_the_dead)
{
    kvshm *kv = make_arena();

    KVSHM__STORE(word_of(kv), in_dead_number(kv));
    ts_is(kvshm__writer_acquire(kv), 1);
    ck_assert_uint_eq(KVSHM__LOAD(word_of(kv)), kv->client);
    ck_assert_uint_eq(sleeps, 0);
    kvshm__writer_release(kv);
    ts_is(kvshm__writer_acquire(kv), 0);
    kvshm__writer_release(kv);
    ts_detach(kv);
}
END_TEST

static int die_with_lock(void *arg)
{
    kvshm *kv;

    (void)arg;
    ts_need(kvshm_attach("inside", NULL, 0, &kv) == 0);
    ts_need(kvshm__writer_acquire(kv) == 0);
    return 7;
}

START_TEST(test_w2_taken_over_from_a_process_that_died)
{
    kvshm *kv = make_arena();

    ck_assert_int_eq(ts_wait(ts_fork(die_with_lock, NULL)), 7);
    ck_assert_uint_ne(KVSHM__LOAD(word_of(kv)), 0);
    ts_is(kvshm__writer_acquire(kv), 1);
    kvshm__writer_release(kv);
    ts_detach(kv);
}
END_TEST

/* The own number with nobody inside: a release that did not come about. Nobody else would give it back. */
START_TEST(test_w2_own_number_is_taken_over)
{
    kvshm *kv = make_arena();

    KVSHM__STORE(word_of(kv), kv->client);
    ts_is(kvshm__writer_acquire(kv), 1);
    kvshm__writer_release(kv);
    ts_detach(kv);
}
END_TEST

/* The living are never taken from, however long they stand still. */
START_TEST(test_w2_never_taken_from_the_living)
{
    kvshm *kv = make_arena();

    owner = in_attach();
    ts_is(kvshm__writer_acquire(owner), 0);
    for (int i = 0; i < 3; i++) {
        ts_is(kvshm__writer_acquire(kv), KVSHM_E_STALLED);
        ck_assert_uint_eq(KVSHM__LOAD(word_of(kv)), owner->client);
    }
    kvshm__writer_release(owner);
    ts_is(kvshm__writer_acquire(kv), 0);
    kvshm__writer_release(kv);
    ts_detach(owner);
    ts_detach(kv);
}
END_TEST

/* ---- Stalled ------------------------------------------------------------------------------------------------- */

/* Told after stall_ms, with who it is; then at once, while it has not moved. */
START_TEST(test_stalled_is_told_after_stall_ms_then_at_once)
{
    kvshm *kv = make_arena();
    uint64_t stalls = in_counter(kv, KVSHM__CNT_stalls), began = now_ns;
    char pid[32];

    owner = in_attach();
    KVSHM__STORE(&kv->header->settings.stall_ms, 250);
    ts_is(kvshm__writer_acquire(owner), 0);
    ts_is(kvshm__writer_acquire(kv), KVSHM_E_STALLED);
    ck_assert_uint_ge(now_ns - began, UINT64_C(250000000));
    ck_assert_uint_le(now_ns - began, UINT64_C(270000000));
    snprintf(pid, sizeof(pid), "pid %d", getpid());
    ts_says(pid);
    ts_says("250 ms");
    sleeps = 0;
    ts_is(kvshm__writer_acquire(kv), KVSHM_E_STALLED);
    ck_assert_uint_eq(sleeps, 0);
    ck_assert_uint_eq(in_counter(kv, KVSHM__CNT_stalls), stalls + 2);
    kvshm__writer_release(owner);
    ts_is(kvshm__writer_acquire(kv), 0);
    kvshm__writer_release(kv);
    /* It has moved: the next stop is waited for anew. */
    ts_is(kvshm__writer_acquire(owner), 0);
    sleeps = 0;
    ts_is(kvshm__writer_acquire(kv), KVSHM_E_STALLED);
    ck_assert_uint_ge(sleeps, 25);
    kvshm__writer_release(owner);
    ts_detach(owner);
    ts_detach(kv);
}
END_TEST

static kvshm_a64 *what_moves;

static void owner_moves(void)
{
    KVSHM__ADD(what_moves, 1);
    if (sleeps == 500)
        kvshm__writer_release(owner);
}

/* An owner that takes turns, or a mender that goes on, has not stopped, however long one waits. */
START_TEST(test_who_moves_is_not_stalled)
{
    kvshm *kv = make_arena();

    owner = in_attach();
    what_moves = _i ? &owner->header->lock.turn : &owner->header->lock.progress;
    KVSHM__STORE(&kv->header->settings.stall_ms, 25);
    ts_is(kvshm__writer_acquire(owner), 0);
    while_asleep = owner_moves;
    ts_is(kvshm__writer_acquire(kv), 0);
    ck_assert_uint_eq(sleeps, 500);
    kvshm__writer_release(kv);
    ts_detach(owner);
    ts_detach(kv);
}
END_TEST

/* stall_ms 0: told at the first look. */
START_TEST(test_stall_ms_0_waits_for_nobody)
{
    kvshm *kv = make_arena();

    owner = in_attach();
    KVSHM__STORE(&kv->header->settings.stall_ms, 0);
    ts_is(kvshm__writer_acquire(owner), 0);
    ts_is(kvshm__writer_acquire(kv), KVSHM_E_STALLED);
    ck_assert_uint_eq(sleeps, 0);
    kvshm__writer_release(owner);
    ts_detach(owner);
    ts_detach(kv);
}
END_TEST

static void both_are_stopped(void)
{
    if (sleeps == 2)
        now_ns += UINT64_C(3600000000000); /* an hour in which neither ran */
    if (sleeps == 4)
        kvshm__writer_release(owner);
}

/* Who was stopped while it waited has not seen the owner stand still. */
START_TEST(test_a_waiter_that_was_stopped_goes_on_waiting)
{
    kvshm *kv = make_arena();

    owner = in_attach();
    KVSHM__STORE(&kv->header->settings.stall_ms, 250);
    ts_is(kvshm__writer_acquire(owner), 0);
    while_asleep = both_are_stopped;
    ts_is(kvshm__writer_acquire(kv), 0);
    ck_assert_uint_eq(sleeps, 4);
    kvshm__writer_release(kv);
    ts_detach(owner);
    ts_detach(kv);
}
END_TEST

/* A refusal leaves the handle as it was: its threads are not locked out. */
START_TEST(test_stalled_gives_the_mutex_back)
{
    kvshm *kv = make_arena();

    owner = in_attach();
    ts_is(kvshm__writer_acquire(owner), 0);
    ts_is(kvshm__writer_acquire(kv), KVSHM_E_STALLED);
    ck_assert_int_eq(pthread_mutex_trylock(&kv->mutex), 0);
    pthread_mutex_unlock(&kv->mutex);
    kvshm__writer_release(owner);
    ts_detach(owner);
    ts_detach(kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("writer");
    TCase *tcase = tcase_create("writer");
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_w1_word_names_the_owner);
    tcase_add_test(tcase, test_w1_one_writer_at_a_time);
    tcase_add_test(tcase, test_waiter_gets_it_when_it_is_given_back);
    tcase_add_test(tcase, test_sleeps_are_short_and_see_the_owner);
    tcase_add_test(tcase, test_release_wakes_one_if_someone_sleeps);
    tcase_add_test(tcase, test_no_cancellation_inside);
    tcase_add_test(tcase, test_w2_taken_over_from_the_dead);
    tcase_add_test(tcase, test_w2_taken_over_from_a_process_that_died);
    tcase_add_test(tcase, test_w2_own_number_is_taken_over);
    tcase_add_test(tcase, test_w2_never_taken_from_the_living);
    tcase_add_test(tcase, test_stalled_is_told_after_stall_ms_then_at_once);
    tcase_add_loop_test(tcase, test_who_moves_is_not_stalled, 0, 2);
    tcase_add_test(tcase, test_stall_ms_0_waits_for_nobody);
    tcase_add_test(tcase, test_a_waiter_that_was_stopped_goes_on_waiting);
    tcase_add_test(tcase, test_stalled_gives_the_mutex_back);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
