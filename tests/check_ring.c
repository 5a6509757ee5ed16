/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_ring.c - transfers by each engine, on a real disk with O_DIRECT: every byte, every result
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ring_file.h"
#include "support.h"
#include "sys.h"

/* ---- Bytes --------------------------------------------------------------------------------------------- */

/* Entries into the kernel by io_uring, since count_calls(). */
static struct kvshm__uring real;
static unsigned calls;

static int counted_submit(struct io_uring *uring)
{
    calls++;
    return real.submit(uring);
}

static int counted_enter(struct io_uring *uring, struct io_uring_cqe **first, unsigned want,
                         struct __kernel_timespec *timeout)
{
    calls++;
    return real.enter(uring, first, want, timeout);
}

static void count_calls(void)
{
    calls = 0;
    if (kvshm__uring == NULL)
        return;
    if (real.enter == NULL)
        real = *kvshm__uring;
    kvshm__uring->submit = counted_submit;
    kvshm__uring->enter = counted_enter;
}

struct plan {
    uint32_t slot_of[TR_FRAMES];
    bool done[TR_FRAMES];
    unsigned n_done, most;
};

static void shuffle(uint32_t *numbers, uint64_t *state)
{
    for (uint32_t i = 0; i < TR_FRAMES; i++)
        numbers[i] = i;
    for (uint32_t i = TR_FRAMES; i > 1; i--) {
        uint32_t j = (uint32_t)ts_random(state, i), kept = numbers[j];

        numbers[j] = numbers[i - 1];
        numbers[i - 1] = kept;
    }
}

static void take_some(struct kvshm__ring *ring, struct plan *plan)
{
    struct kvshm__ring_done done[TR_FRAMES];
    int n;

    if (plan->most < kvshm__ring_in_flight(ring))
        plan->most = kvshm__ring_in_flight(ring);
    n = kvshm__ring_wait(ring, TR_DEPTH / 4, done, TR_FRAMES, -1);
    ck_assert_int_gt(n, 0);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(done[i].result, 0);
        ck_assert_uint_lt(done[i].cookie, TR_FRAMES);
        ck_assert(!plan->done[done[i].cookie]);
        plan->done[done[i].cookie] = true;
        plan->n_done++;
    }
}

/* All frames go to, or come from, their slots; as many at once as may be. */
static void move_all(struct kvshm__ring *ring, struct plan *plan, bool is_read)
{
    memset(plan->done, 0, sizeof(plan->done));
    plan->n_done = 0;
    for (uint32_t frame = 0; frame < TR_FRAMES;) {
        unsigned char *at = tr_memory + frame * TR_FRAME;
        uint64_t offset = (uint64_t)plan->slot_of[frame] * TR_FRAME;
        int code = is_read ? kvshm__ring_read(ring, at, TR_FRAME, offset, frame)
                           : kvshm__ring_write(ring, at, TR_FRAME, offset, frame);

        if (code == -EBUSY) {
            ck_assert_uint_eq(kvshm__ring_in_flight(ring), TR_DEPTH);
            take_some(ring, plan);
        } else {
            ck_assert_int_eq(code, 0);
            frame++;
        }
    }
    while (kvshm__ring_in_flight(ring) > 0)
        take_some(ring, plan);
    ck_assert_uint_eq(plan->n_done, TR_FRAMES);
}

START_TEST(test_many_in_flight)
{
    struct kvshm__ring *ring = tr_open(tr_engines[_i]);
    uint64_t state = ts_seed();
    struct plan plan = {0};

    for (uint32_t version = 0; version < ts_amount(2, 4, 40); version++) {
        for (uint32_t frame = 0; frame < TR_FRAMES; frame++)
            tr_fill(tr_memory + frame * TR_FRAME, frame, version);
        shuffle(plan.slot_of, &state);
        count_calls();
        move_all(ring, &plan, false);
        memset(tr_memory, 0xee, TR_FRAMES * TR_FRAME);
        move_all(ring, &plan, true);
        for (uint32_t frame = 0; frame < TR_FRAMES; frame++)
            ck_assert_uint_eq(tr_wrong_bytes(tr_memory + frame * TR_FRAME, frame, version), 0);
        ck_assert_uint_eq(plan.most, TR_DEPTH);
        if (tr_engines[_i] != KVSHM__ENGINE_SYNC) {
            ck_assert_uint_gt(calls, 0);
            ck_assert_uint_lt(calls, 2 * TR_FRAMES / 2); /* fewer than one for two transfers */
        }
    }
    tr_close(ring);
}
END_TEST

START_TEST(test_memory_of_any_kind)
{
    struct kvshm__ring *ring = tr_open(tr_engines[_i]);

    tr_round_trip(ring, 1);
    /* What crosses a multiple of the stride is not of one piece, and is moved all the same. */
    tr_fill(tr_memory + TR_FRAME + TR_BLOCK, 5, 2);
    ts_is(kvshm__ring_write(ring, tr_memory + TR_FRAME + TR_BLOCK, TR_FRAME, 0, 8), 0);
    ts_is(tr_take_one(ring, 8), 0);
    ts_is(kvshm__ring_read(ring, tr_memory + 4 * TR_FRAME, TR_FRAME, 0, 9), 0);
    ts_is(tr_take_one(ring, 9), 0);
    ck_assert_uint_eq(tr_wrong_bytes(tr_memory + 4 * TR_FRAME, 5, 2), 0);
    tr_close(ring);
}
END_TEST

START_TEST(test_sync_engine_keeps_the_order)
{
    struct kvshm__ring *ring = tr_open(KVSHM__ENGINE_SYNC);
    struct kvshm__ring_done done[4];

    ck_assert_str_eq(kvshm__ring_reason(ring),
                     TR_ENGINES == 1 ? "io_uring: built without liburing" : "io_uring: not wanted");
    for (uint64_t i = 0; i < 4; i++)
        ts_is(kvshm__ring_read(ring, tr_memory + i * TR_FRAME, TR_FRAME, i * TR_FRAME, 10 + i), 0);
    ts_is(kvshm__ring_submit(ring), 0);
    ts_is(kvshm__ring_wait(ring, 3, done, 4, 0), 3);
    for (uint64_t i = 0; i < 3; i++)
        ck_assert_uint_eq(done[i].cookie, 10 + i);
    ck_assert_uint_eq(kvshm__ring_in_flight(ring), 1);
    ts_is(kvshm__ring_wait(ring, 4, done, 4, 0), 1);
    ts_is(kvshm__ring_wait(ring, 4, done, 4, 0), 0);
    tr_close(ring);
}
END_TEST

START_TEST(test_end_of_file)
{
    struct kvshm__ring *ring = tr_open(tr_engines[_i]);

    ck_assert_int_eq(ftruncate(tr_file, 2 * TR_FRAME + TR_BLOCK + 100), 0);
    ts_is(kvshm__ring_read(ring, tr_memory, TR_FRAME, TR_FRAME, 1), 0);
    ts_is(tr_take_one(ring, 1), 0);
    ts_is(kvshm__ring_read(ring, tr_memory, TR_FRAME, 2 * TR_FRAME, 2), 0); /* ends in a block */
    ts_is(tr_take_one(ring, 2), -ENODATA);
    ts_is(kvshm__ring_read(ring, tr_memory, TR_FRAME, 3 * TR_FRAME, 3), 0);
    ts_is(tr_take_one(ring, 3), -ENODATA);
    ck_assert_int_eq(ftruncate(tr_file, 2 * TR_FRAME + TR_BLOCK), 0);
    ts_is(kvshm__ring_read(ring, tr_memory, TR_FRAME, 2 * TR_FRAME, 4), 0);
    ts_is(tr_take_one(ring, 4), -ENODATA);
    tr_close(ring);
}
END_TEST

START_TEST(test_setups_out_of_range)
{
    struct kvshm__ring_setup wanted = tr_ring_setup(KVSHM__ENGINE_NONE);
    struct kvshm__ring *ring;

    wanted.depth = 0;
    ts_is(kvshm__ring_open(&wanted, &ring), -EINVAL);
    ts_says("depth 0 is not from 1 to 4096");
    wanted.depth = KVSHM__RING_DEPTH_MAX + 1;
    ts_is(kvshm__ring_open(&wanted, &ring), -EINVAL);
    wanted = tr_ring_setup(KVSHM__ENGINE_NONE);
    wanted.quiet = -1;
    ts_is(kvshm__ring_open(&wanted, &ring), -EINVAL);
    ts_says("-1");
    wanted = tr_ring_setup(KVSHM__ENGINE_NONE);
    wanted.align = 0;
    ts_is(kvshm__ring_open(&wanted, &ring), -EINVAL);
    ts_says("align 0");
    wanted = tr_ring_setup(KVSHM__ENGINE_NONE);
    wanted.depth = KVSHM__RING_DEPTH_MAX;
    ts_is(kvshm__ring_open(&wanted, &ring), 0);
    tr_close(ring);
}
END_TEST

START_TEST(test_close_says_what_nobody_took)
{
    struct kvshm__ring *ring = tr_open(tr_engines[_i]);
    unsigned fds = ts_fds();

    for (uint32_t frame = 0; frame < 3; frame++) {
        tr_fill(tr_memory + frame * TR_FRAME, frame, 9);
        ts_is(kvshm__ring_write(ring, tr_memory + frame * TR_FRAME, TR_FRAME, frame * TR_FRAME,
                                frame),
              0);
    }
    ts_is(kvshm__ring_close(ring), 3);
    ck_assert_uint_eq(ts_fds(), fds - (_i > 0));
    for (uint32_t frame = 0; frame < 3; frame++) {
        ck_assert_int_eq(kvshm__sys.pread(tr_file, tr_private, TR_FRAME, frame * TR_FRAME),
                         TR_FRAME);
        ck_assert_uint_eq(tr_wrong_bytes(tr_private, frame, 9), 0);
    }
}
END_TEST

/* The locks of .quiet are its owner's again when the ring is closed, not when the kernel comes to it. */
START_TEST(test_locks_fall_at_close)
{
    char path[300];

    snprintf(path, sizeof(path), "%s/locks", getenv("KVSHM_DIR"));
    for (unsigned i = 0; i < 20; i++) {
        int own = kvshm__sys.open(path, O_RDWR, 0);
        struct kvshm__ring_setup wanted = tr_ring_setup(tr_engines[_i]);
        struct kvshm__ring *ring;

        wanted.quiet = own;
        ck_assert_int_eq(kvshm__sys.lock_set(own, F_WRLCK, 5, 1), 0);
        ts_is(kvshm__ring_open(&wanted, &ring), 0);
        tr_round_trip(ring, i);
        ts_is(kvshm__ring_read(ring, tr_memory, TR_FRAME, 0, 1), 0);
        ts_is(kvshm__ring_close(ring), 1);
        ck_assert_int_eq(kvshm__sys.lock_ask(tr_locks, F_RDLCK, 5, 1), 1);
        kvshm__sys.close(own);
        ck_assert_int_eq(kvshm__sys.lock_ask(tr_locks, F_RDLCK, 5, 1), 0);
    }
}
END_TEST

/* ---- Failing system calls, of the engine without io_uring ---------------------------------------------- */

static unsigned pauses, answers;
static int answer_code; /* 0: a part of a block */

static int counted_sleep(uint64_t ns)
{
    ck_assert_uint_le(ns, 10000000);
    pauses++;
    return 0;
}

static int failing_pread(int fd, void *to, size_t size, uint64_t offset)
{
    if (answers == 0)
        return kvshm__sys_real.pread(fd, to, size, offset);
    answers--;
    return answer_code < 0 ? answer_code : 100;
}

static int failing_pwrite(int fd, const void *from, size_t size, uint64_t offset)
{
    int code;

    if (answers > 0) {
        answers--;
        return answer_code;
    }
    code = kvshm__sys_real.pwrite(fd, from, size, offset);
    return code > (int)(4 * TR_BLOCK) ? (int)(3 * TR_BLOCK + 7) : code;
}

static void answer_next(unsigned n, int code)
{
    answers = n;
    answer_code = code;
    pauses = 0;
    kvshm__sys.sleep_ns = counted_sleep;
    kvshm__sys.pread = failing_pread;
    kvshm__sys.pwrite = failing_pwrite;
}

/* Each with as many answers as are borne, and with more than any that are. */
START_TEST(test_put_off_and_tried_again)
{
    struct kvshm__ring *ring = tr_open(KVSHM__ENGINE_SYNC);
    static const int codes[] = {-EAGAIN, -EINTR, 0};

    for (unsigned i = 0; i < 3; i++) {
        answer_next(15, codes[i]);
        ts_is(kvshm__ring_read(ring, tr_memory, TR_FRAME, 0, 1), 0);
        ts_is(tr_take_one(ring, 1), 0);
        ck_assert_uint_eq(pauses, 15);
        answer_next(1000, codes[i]);
        ts_is(kvshm__ring_read(ring, tr_memory, TR_FRAME, 0, 2), 0);
        ts_is(tr_take_one(ring, 2), codes[i] < 0 ? codes[i] : -ENODATA);
        ck_assert_uint_eq(answers, 1000 - 16);
    }
    answer_next(0, 0); /* writes in parts that end in a block */
    tr_round_trip(ring, 6);
    answer_next(1, 0); /* a write that moves nothing */
    ts_is(kvshm__ring_write(ring, tr_memory, TR_FRAME, 0, 3), 0);
    ts_is(tr_take_one(ring, 3), -EIO);
    kvshm__sys = kvshm__sys_real;
    tr_close(ring);
}
END_TEST

START_TEST(test_each_system_call_fails)
{
    struct kvshm__ring *ring = tr_open(KVSHM__ENGINE_SYNC);

    for (unsigned n = 1; n <= 3; n++) {
        unsigned bad = 0;

        ts_fail_nth(n, EIO);
        ts_is(kvshm__ring_write(ring, tr_memory, TR_FRAME, 0, 1), 0);
        bad += tr_take_one(ring, 1) == -EIO;
        ts_is(kvshm__ring_sync(ring, 2), 0);
        bad += tr_take_one(ring, 2) == -EIO;
        ts_is(kvshm__ring_read(ring, tr_memory, TR_FRAME, 0, 3), 0);
        bad += tr_take_one(ring, 3) == -EIO;
        ck_assert_uint_eq(ts_fail_calls(), 3);
        ck_assert_uint_eq(bad, 1);
        ts_fail_off();
    }
    tr_close(ring);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ring");
    TCase *tcase = tcase_create("ring");

    tcase_add_checked_fixture(tcase, tr_setup, tr_teardown);
    tcase_add_loop_test(tcase, test_many_in_flight, 0, TR_ENGINES);
    tcase_add_loop_test(tcase, test_memory_of_any_kind, 0, TR_ENGINES);
    tcase_add_test(tcase, test_sync_engine_keeps_the_order);
    tcase_add_loop_test(tcase, test_end_of_file, 0, TR_ENGINES);
    tcase_add_test(tcase, test_setups_out_of_range);
    tcase_add_loop_test(tcase, test_close_says_what_nobody_took, 0, TR_ENGINES);
    tcase_add_loop_test(tcase, test_locks_fall_at_close, 0, TR_ENGINES);
    tcase_add_test(tcase, test_put_off_and_tried_again);
    tcase_add_test(tcase, test_each_system_call_fails);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
