/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_litmus.c - what may not be seen is not seen, in millions of rounds with two processes on two processors
 *
 * The pairs of litmus_cases.c, whose head has the argument for each, with the library's own accesses; and the same with
 * the library's own calls on a real arena: lease against take-away and scan, join against death, the writer lock, death.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"
#include "inside.h"
#include "lease.h"
#include "litmus_cases.h"
#include "sys.h"
#include "writer.h"

static bool skipped(const char *name)
{
    if (litmus_possible())
        return false;
    printf("SKIP %s: two processors are needed\n", name);
    return true;
}

/* How many times the rounds that are asked for may go by until each side was first. */
#define PATIENCE 1000u

/* What must never be seen is not, in so many rounds, in which each side was first. */
static void check_rounds(const struct litmus *litmus, uint64_t rounds)
{
    const unsigned both = 1u << LITMUS_LEFT_FIRST | 1u << LITMUS_RIGHT_FIRST;
    struct litmus_counts counts = litmus_run(litmus, rounds, PATIENCE * rounds, both);

    ck_assert_uint_ge(counts.rounds, rounds);
    ck_assert_uint_eq(counts.of[LITMUS_FORBIDDEN], 0);
    litmus_met(litmus, &counts, both);
}

/* ---- The cases -------------------------------------------------------------------------------------------------- */

START_TEST(test_pairs)
{
    if (!skipped("test_pairs"))
        check_rounds(&litmus_cases[_i].test, ts_amount(50000, 200000, 5000000));
}
END_TEST

#ifndef KVSHM_TSAN /* whose atomics are calls that take locks, and so order everything */
START_TEST(test_controls)
{
    const struct litmus_case *litmus = &litmus_cases[_i];

    if (skipped("test_controls"))
        return;
    for (unsigned i = 0; i < LITMUS_CONTROLS && litmus->control[i].name; i++) {
        const struct litmus *control = &litmus->control[i];
        struct litmus_counts counts = litmus_run(control, 0, 50000000, 1u << LITMUS_FORBIDDEN);

        litmus_met(control, &counts, 1u << LITMUS_FORBIDDEN);
    }
}
END_TEST
#endif

/* ---- A lease against take-away and scan --------------------------------------------------------------------------- */

static kvshm *handle;             /* of the process of this side */
static struct kvshm__found found; /* left: the page */
static uint32_t record;           /* right: the same */
static uint32_t word;             /* left: of its lease; KVSHM__NO_WORD */
static uint64_t bitmap[64];

static void lease_begin_left(void)
{
    struct kvshm_prefix prefix = in_range(0, 8);
    struct kvshm__walk walk;

    handle = in_attach();
    kvshm__index_walk(handle, &prefix, &walk);
    ts_need(walk.pages == 2);
    found = walk.deepest;
}

static void lease_begin_right(void)
{
    struct kvshm_prefix prefix = in_range(0, 8);

    handle = in_attach();
    record = in_record(handle, &prefix);
    ts_need(handle->bitmap_words <= sizeof(bitmap) / sizeof(*bitmap));
    ts_need(kvshm__writer_acquire(handle) == 0);
}

static void lease_left(struct litmus_cell *cell)
{
    cell->saw[0].note[0] = kvshm__lease_take(handle, &found, &word) == KVSHM__LEASED;
}

static void lease_right(struct litmus_cell *cell)
{
    ts_need(kvshm__pages_take_away(handle, record));
    kvshm__lease_scan(handle, bitmap);
    cell->saw[1].note[0] = kvshm__bit(bitmap, record);
}

static void lease_reset_left(struct litmus_cell *cell)
{
    if (cell->saw[0].note[0])
        kvshm__lease_drop(handle, word);
}

static void lease_reset_right(struct litmus_cell *cell)
{
    (void)cell;
    kvshm__pages_recall(handle, record);
}

static void lease_end_right(void)
{
    kvshm__writer_release(handle);
    ts_need(kvshm_detach(handle) == 0);
}

static void end_left(void)
{
    ts_need(kvshm_detach(handle) == 0);
}

/* Leased, and not held by the scan: that may not be. Held and not leased: the look came too late, the scan not. */
static enum litmus_outcome lease_outcome(const struct litmus_cell *cell)
{
    bool leased = cell->saw[0].note[0], held = cell->saw[1].note[0];

    if (leased)
        return held ? LITMUS_LEFT_FIRST : LITMUS_FORBIDDEN;
    return held ? LITMUS_TOGETHER : LITMUS_RIGHT_FIRST;
}

START_TEST(test_lease_or_freed)
{
    const struct litmus litmus = {"kvshm__lease_take and kvshm__lease_scan",
                                  {lease_left, lease_right},
                                  lease_outcome,
                                  {lease_reset_left, lease_reset_right},
                                  {lease_begin_left, lease_begin_right},
                                  {end_left, lease_end_right}};
    kvshm *kv;

    if (skipped("test_lease_or_freed"))
        return;
    kv = in_create(4, 8, 8);
    in_put(kv, 0, 8);
    check_rounds(&litmus, ts_amount(10000, 100000, 5000000));
    ts_detach(kv);
}
END_TEST

/* ---- Join against death ------------------------------------------------------------------------------------------- */

static int lock_fd; /* right: whose lock is the client's life */
static bool joined; /* left */

static uint64_t alive_byte(void)
{
    return KVSHM__LOCK_BASE + 2 * in_dead_number(handle);
}

static void join_begin_left(void)
{
    handle = in_attach();
}

static void join_begin_right(void)
{
    handle = in_attach();
    lock_fd = kvshm__sys.open(handle->path, O_RDWR | O_CLOEXEC, 0);
    ts_need(lock_fd >= 0);
    ts_need(kvshm__sys.lock_set(lock_fd, F_WRLCK, alive_byte(), 1) == 0);
}

static void join_left(struct litmus_cell *cell)
{
    joined = kvshm__client_join(handle, in_dead_number(handle)) == 0;
    cell->saw[0].note[0] = joined;
}

/* It dies, at another moment in each round; does it count? */
static void join_right(struct litmus_cell *cell)
{
    static unsigned round;

    for (unsigned i = round++ % 128; i > 0; i--)
        kvshm__pause();
    ts_need(kvshm__sys.lock_set(lock_fd, F_UNLCK, alive_byte(), 1) == 0);
    cell->saw[1].note[0] = kvshm__client_counts(handle, in_dead_number(handle));
}

static void join_reset_left(struct litmus_cell *cell)
{
    (void)cell;
    ts_need(!joined || kvshm__client_leave(handle, in_dead_number(handle)) == 0);
}

static void join_reset_right(struct litmus_cell *cell)
{
    (void)cell;
    ts_need(kvshm__sys.lock_set(lock_fd, F_WRLCK, alive_byte(), 1) == 0);
}

static void join_end_right(void)
{
    kvshm__sys.close(lock_fd);
    ts_need(kvshm_detach(handle) == 0);
}

START_TEST(test_join_or_refused)
{
    const struct litmus litmus = {"kvshm__client_join and kvshm__client_counts",
                                  {join_left, join_right},
                                  lease_outcome, /* joined, and not counted */
                                  {join_reset_left, join_reset_right},
                                  {join_begin_left, join_begin_right},
                                  {end_left, join_end_right}};
    kvshm *kv;

    if (skipped("test_join_or_refused"))
        return;
    kv = in_create(4, 8, 8);
    check_rounds(&litmus, ts_amount(3000, 20000, 1000000));
    ts_detach(kv);
}
END_TEST

/* ---- The writer lock ---------------------------------------------------------------------------------------------- */

static struct locked {
    kvshm_a64 begun, ended; /* changed one after the other, by relaxed loads and stores */
    kvshm_a64 torn;
} * locked;

struct writing {
    unsigned side;
    uint64_t rounds;
    bool with_lock;
};

static void add_one(kvshm_a64 *to)
{
    KVSHM__STORE(to, KVSHM__LOAD(to) + 1);
}

static int write_often(void *arg)
{
    const struct writing *writing = arg;
    kvshm *kv = in_attach();

    litmus_pin(writing->side);
    for (uint64_t i = 0; i < writing->rounds; i++) {
        if (writing->with_lock)
            ts_need(kvshm__writer_acquire(kv) == 0);
        add_one(&locked->begun);
        kvshm__pause();
        add_one(&locked->ended);
        if (KVSHM__LOAD(&locked->begun) != KVSHM__LOAD(&locked->ended))
            add_one(&locked->torn);
        if (writing->with_lock)
            kvshm__writer_release(kv);
    }
    ts_need(kvshm_detach(kv) == 0);
    return 0;
}

static void write_both(uint64_t rounds, bool with_lock)
{
    pid_t pids[2];

    locked = ts_shared(sizeof(*locked));
    for (unsigned side = 0; side < 2; side++) {
        struct writing writing = {side, rounds, with_lock};

        pids[side] = ts_fork(write_often, &writing);
    }
    for (unsigned side = 0; side < 2; side++)
        ck_assert_int_eq(ts_wait(pids[side]), 0);
    printf("%s the lock: %llu of %llu, torn %llu\n", with_lock ? "with" : "without",
           (unsigned long long)locked->ended, (unsigned long long)(2 * rounds),
           (unsigned long long)locked->torn);
}

/* Nothing is lost with the lock; without it, so often, something is. */
START_TEST(test_one_writer)
{
    uint64_t rounds = ts_amount(20000, 100000, 3000000);
    kvshm *kv;

    if (skipped("test_one_writer"))
        return;
    kv = in_create(4, 8, 8);
    KVSHM__STORE(&kv->header->settings.stall_ms, 3600000);
    write_both(rounds, true);
    ck_assert_uint_eq(locked->begun, 2 * rounds);
    ck_assert_uint_eq(locked->ended, 2 * rounds);
    ck_assert_uint_eq(locked->torn, 0);
    for (unsigned i = 0; i < PATIENCE; i++) {
        write_both(rounds, false);
        if (locked->ended != 2 * rounds || locked->torn != 0)
            break;
    }
    ck_assert_msg(locked->ended != 2 * rounds || locked->torn != 0, "without it nothing is lost");
    ts_detach(kv);
}
END_TEST

/* ---- Death ---------------------------------------------------------------------------------------------------------- */

static struct {
    _Alignas(64) kvshm_a64 word;
} * lines; /* shared */
#define LINES 8

/* Stores on several lines, as fast as it can, until it is killed. */
static int store_until_killed(void *arg)
{
    kvshm *kv = arg;

    litmus_pin(1);
    int fd = kvshm__sys.open(kv->path, O_RDWR | O_CLOEXEC, 0);
    ts_need(fd >= 0);
    ts_need(kvshm__sys.lock_set(fd, F_WRLCK, KVSHM__LOCK_BASE + 2 * in_dead_number(kv), 1) == 0);
    for (uint64_t n = 1;; n++)
        KVSHM__STORE(&lines[n % LINES].word, n);
    return 0;
}

static uint64_t sum_of_lines(void)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < LINES; i++)
        sum += KVSHM__LOAD(&lines[i].word);
    return sum;
}

/* Kills it. Did stores come between our decision and the kernel's word that it is dead? After that none may come. */
static bool dies(kvshm *kv, uint64_t *random)
{
    pid_t pid = 0;
    uint64_t decided, dead;

    memset((void *)lines, 0, LINES * sizeof(*lines));
    pid = ts_fork(store_until_killed, kv);
    while (KVSHM__LOAD(&lines[0].word) == 0)
        ck_assert_msg(waitpid(pid, NULL, WNOHANG) == 0, "the child has ended by itself");
    usleep((useconds_t)ts_random(random, 100));
    decided = sum_of_lines();
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    while (kvshm__client_alive(kv, in_dead_number(kv)))
        continue;
    dead = sum_of_lines();
    ck_assert_int_eq(ts_wait(pid), 128 + SIGKILL);
    ck_assert_uint_eq(sum_of_lines(), dead);
    return dead != decided;
}

START_TEST(test_dead_store_nothing)
{
    uint64_t rounds = ts_amount(50, 300, 20000), random = ts_seed(), storing = 0, i;
    kvshm *kv;

    if (skipped("test_dead_store_nothing"))
        return;
    kv = in_create(4, 8, 8);
    lines = ts_shared(LINES * sizeof(*lines));
    litmus_pin(0); /* the other processor is theirs */
    for (i = 0; i < rounds || (storing == 0 && i < PATIENCE * rounds); i++)
        storing += dies(kv, &random);
    litmus_unpin();
    printf("%llu deaths, %llu in the middle of stores\n", (unsigned long long)i,
           (unsigned long long)storing);
    ck_assert_uint_gt(storing, 0);
    ts_detach(kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("litmus");
    TCase *tcase = tcase_create("litmus");

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_loop_test(tcase, test_pairs, 0, (int)litmus_case_count);
#ifndef KVSHM_TSAN
    tcase_add_loop_test(tcase, test_controls, 0, (int)litmus_case_count);
#endif
    tcase_add_test(tcase, test_lease_or_freed);
    tcase_add_test(tcase, test_join_or_refused);
    tcase_add_test(tcase, test_one_writer);
    tcase_add_test(tcase, test_dead_store_nothing);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
