/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_engine.c - which engine is had, and why no better one; every refusal and every failing call of liburing
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ring_file.h"
#include "support.h"
#include "sys.h"

#ifdef KVSHM_LIBURING

#include <liburing.h>

/* ---- Calls of liburing, wrapped ------------------------------------------------------------------------ */

static struct kvshm__uring real;
static unsigned calls, nth;
static int nth_code;
static const char *failed;

/* Is this call the one that fails? */
static bool fails(const char *name)
{
    if (++calls != nth)
        return false;
    failed = name;
    return true;
}

#define WRAP(name, parameters, arguments)                     \
    static int wrapped_##name parameters                      \
    {                                                         \
        return fails(#name) ? nth_code : real.name arguments; \
    }
KVSHM__URING_CALLS(WRAP)

/* The n-th call of liburing from now on answers this, once. */
static void fail_uring(unsigned n, int code)
{
    if (real.enter == NULL)
        real = *kvshm__uring;
#define PUT(name, parameters, arguments) kvshm__uring->name = wrapped_##name;
    KVSHM__URING_CALLS(PUT)
    calls = 0;
    nth = n;
    nth_code = code;
    failed = NULL;
}

/* ---- Refusals ------------------------------------------------------------------------------------------ */

/* In a child: the engine that is had, the reason, and that it works. */
static void need_engine(const struct kvshm__ring_setup *wanted, enum kvshm__engine engine,
                        const char *reason)
{
    struct kvshm__ring *ring;

    ts_is(kvshm__ring_open(wanted, &ring), 0);
    ck_assert_msg(kvshm__ring_engine(ring) == engine, "%s: %s",
                  kvshm__ring_engine_name(kvshm__ring_engine(ring)), kvshm__ring_reason(ring));
    ck_assert_str_eq(kvshm__ring_reason(ring), reason);
    tr_round_trip(ring, 3);
    tr_close(ring);
}

START_TEST(test_memory_not_registered)
{
    struct kvshm__ring_setup wanted = tr_ring_setup(KVSHM__ENGINE_NONE);
    unsigned char *reading = mmap(NULL, TR_FRAME, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    need_engine(&wanted, KVSHM__ENGINE_FIXED, "");
    wanted.best = KVSHM__ENGINE_RING;
    need_engine(&wanted, KVSHM__ENGINE_RING, "buffers: not wanted");
    wanted = tr_ring_setup(KVSHM__ENGINE_NONE);
    wanted.memory = reading;
    wanted.bytes = TR_FRAME;
    need_engine(&wanted, KVSHM__ENGINE_RING, "buffers: Bad address");
    wanted = tr_ring_setup(KVSHM__ENGINE_NONE);
    wanted.bytes = 0;
    need_engine(&wanted, KVSHM__ENGINE_RING, "buffers: there are none");
    wanted = tr_ring_setup(KVSHM__ENGINE_NONE);
    wanted.stride = (UINT64_C(1) << 30) + TR_BLOCK;
    need_engine(&wanted, KVSHM__ENGINE_RING, "buffers: a frame has more than 1 GiB");
    munmap(reading, TR_FRAME);
}
END_TEST

static int as_a_plain_user(void *arg)
{
    struct rlimit limit = {.rlim_cur = TR_FRAME, .rlim_max = TR_FRAME};

    ts_need(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    ts_need(geteuid() != 0 || setresuid(65534, 65534, 65534) == 0);
    need_engine(arg, KVSHM__ENGINE_RING, "buffers: Cannot allocate memory; raise RLIMIT_MEMLOCK");
    return 0;
}

/* A plain user has little memory to lock. */
START_TEST(test_memory_not_locked)
{
    struct kvshm__ring_setup wanted = tr_ring_setup(KVSHM__ENGINE_NONE);

    ck_assert_int_eq(ts_wait(ts_fork(as_a_plain_user, &wanted)), 0);
}
END_TEST

static void forbid(unsigned call, int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof(code) / sizeof(*code), .filter = code};

    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

START_TEST(test_forbidden_by_seccomp)
{
    static const struct {
        unsigned call;
        int error;
        const char *reason;
    } cases[] = {
        {SYS_io_uring_setup, EPERM,
         "io_uring: Operation not permitted; seccomp or io_uring_disabled"},
        {SYS_io_uring_setup, ENOSYS, "io_uring: Function not implemented; old kernel or seccomp"},
        {SYS_io_uring_setup, ENOMEM, "io_uring: Cannot allocate memory"},
        {SYS_io_uring_register, EPERM,
         "io_uring: Operation not permitted; seccomp or io_uring_disabled"},
        {SYS_io_uring_enter, ENOSYS, "io_uring: Function not implemented; old kernel or seccomp"},
    };
    struct kvshm__ring_setup wanted = tr_ring_setup(KVSHM__ENGINE_NONE);
    unsigned fds = ts_fds();

    forbid(cases[_i].call, cases[_i].error);
    need_engine(&wanted, KVSHM__ENGINE_SYNC, cases[_i].reason);
    ck_assert_uint_lt(strlen(cases[_i].reason), KVSHM__RING_REASON_BYTES);
    ck_assert_uint_eq(ts_fds(), fds);
}
END_TEST

/* A ring that cannot keep the lock is none. */
START_TEST(test_files_not_registered)
{
    struct kvshm__ring_setup wanted = tr_ring_setup(KVSHM__ENGINE_NONE);

    fail_uring(4, -EMFILE);
    need_engine(&wanted, KVSHM__ENGINE_SYNC, "io_uring files: Too many open files");
    ck_assert_str_eq(failed, "register_files");
}
END_TEST

static int without_ext_arg(unsigned entries, struct io_uring *uring, struct io_uring_params *params)
{
    int code = real.queue_init_params(entries, uring, params);

    uring->features &= ~IORING_FEAT_EXT_ARG;
    return code;
}

static int without_read(struct io_uring *uring, struct io_uring_probe *probe, unsigned n)
{
    int code = real.register_probe(uring, probe, n);

    probe->ops[IORING_OP_READ].flags = 0;
    return code;
}

static unsigned flags_seen;

static int without_new_flags(unsigned entries, struct io_uring *uring,
                             struct io_uring_params *params)
{
    if (params->flags != 0) {
        flags_seen++;
        return -EINVAL;
    }
    return real.queue_init_params(entries, uring, params);
}

START_TEST(test_old_kernels)
{
    struct kvshm__ring_setup wanted = tr_ring_setup(KVSHM__ENGINE_NONE);
    static const char words[] = "io_uring: Function not implemented; old kernel or seccomp";

    fail_uring(0, 0);
    kvshm__uring->queue_init_params = without_ext_arg;
    need_engine(&wanted, KVSHM__ENGINE_SYNC, words);
    fail_uring(0, 0);
    kvshm__uring->register_probe = without_read;
    need_engine(&wanted, KVSHM__ENGINE_SYNC, words);
    fail_uring(0, 0);
    kvshm__uring->queue_init_params = without_new_flags;
    need_engine(&wanted, KVSHM__ENGINE_FIXED, "");
    ck_assert_uint_eq(flags_seen, 2);
}
END_TEST

static struct {
    uint64_t bytes, largest;
    unsigned n;
} pieces;

/* Says that it registered them. */
static int seen_buffers(struct io_uring *uring, const struct iovec *buffers, unsigned n)
{
    (void)uring;
    pieces.n = n;
    for (unsigned i = 0; i < n; i++) {
        ck_assert_ptr_eq(buffers[i].iov_base, tr_memory + pieces.bytes);
        ck_assert_uint_eq(buffers[i].iov_len % (3 * TR_BLOCK), 0);
        pieces.bytes += buffers[i].iov_len;
        if (pieces.largest < buffers[i].iov_len)
            pieces.largest = buffers[i].iov_len;
    }
    return 0;
}

static struct io_uring_sqe last_seen;

/* Takes a look at what is queued, and does not submit it. */
static int seen_submit(struct io_uring *uring)
{
    last_seen = uring->sq.sqes[(uring->sq.sqe_tail - 1) & *uring->sq.kring_mask];
    return -EBUSY;
}

static int busy_enter(struct io_uring *uring, struct io_uring_cqe **first, unsigned want,
                      struct __kernel_timespec *timeout)
{
    (void)uring, (void)first, (void)want, (void)timeout;
    return -EBUSY;
}

/* How a transfer of one frame is queued. */
static void look_at_queued(struct kvshm__ring *ring, unsigned char *at)
{
    ck_assert_int_eq(kvshm__ring_read(ring, at, 3 * TR_BLOCK, 0, 1), 0);
    ck_assert_int_eq(kvshm__ring_submit(ring), 0);
}

/* I5: pieces end between frames; a transfer in one piece names it, one that is in none or in two is a plain one. */
START_TEST(test_i5_pieces_of_memory)
{
    struct kvshm__ring_setup wanted = tr_ring_setup(KVSHM__ENGINE_NONE);
    uint64_t stride = 3 * TR_BLOCK, piece = (UINT64_C(1) << 30) / stride * stride;
    struct kvshm__ring *ring;

    wanted.bytes = 2 * piece + 5 * stride;
    wanted.stride = stride;
    fail_uring(0, 0);
    kvshm__uring->register_buffers = seen_buffers;
    ts_is(kvshm__ring_open(&wanted, &ring), 0);
    ck_assert_uint_eq(pieces.bytes, wanted.bytes);
    ck_assert_uint_eq(pieces.largest, piece);
    ck_assert_uint_eq(pieces.n, 3);
    kvshm__uring->submit = seen_submit;
    kvshm__uring->enter = busy_enter;
    for (unsigned i = 0; i < 3; i++) {
        look_at_queued(ring, tr_memory + i * piece);
        ck_assert_int_eq(last_seen.opcode, IORING_OP_READ_FIXED);
        ck_assert_int_eq(last_seen.buf_index, i);
        ck_assert(last_seen.flags & IOSQE_FIXED_FILE);
        if (i == 0)
            continue;
        look_at_queued(ring, tr_memory + i * piece - stride);
        ck_assert_int_eq(last_seen.buf_index, i - 1);
        look_at_queued(ring, tr_memory + i * piece - TR_BLOCK);
        ck_assert_int_eq(last_seen.opcode, IORING_OP_READ);
    }
    look_at_queued(ring, tr_memory + wanted.bytes - TR_BLOCK);
    ck_assert_int_eq(last_seen.opcode, IORING_OP_READ);
    look_at_queued(ring, tr_private);
    ck_assert_int_eq(last_seen.opcode, IORING_OP_READ);
    ts_is(kvshm__ring_close(ring), -EBUSY);
}
END_TEST

/* ---- Failing calls of liburing ------------------------------------------------------------------------- */

/* As a caller that repeats what the kernel refused once: how often that was. */
static unsigned move_one(struct kvshm__ring *ring, bool is_read)
{
    struct kvshm__ring_done done = {.result = 1};
    unsigned refusals = 0;
    int code;

    code = is_read ? kvshm__ring_read(ring, tr_memory + TR_FRAME, TR_FRAME, TR_FRAME, 5)
                   : kvshm__ring_write(ring, tr_memory, TR_FRAME, TR_FRAME, 5);
    ck_assert_int_eq(code, 0);
    refusals += kvshm__ring_submit(ring) < 0;
    while ((code = kvshm__ring_wait(ring, 1, &done, 1, -1)) < 0) {
        ck_assert_uint_eq(kvshm__ring_in_flight(ring), 1);
        ck_assert_uint_lt(++refusals, 3);
    }
    ck_assert_int_eq(code, 1);
    ck_assert_int_eq(done.result, 0);
    return refusals;
}

START_TEST(test_each_call_of_liburing_fails)
{
    static const int codes[] = {-EIO, -EAGAIN, -EINTR, -EINVAL, -ENOMEM};
    struct kvshm__ring_setup wanted = tr_ring_setup(KVSHM__ENGINE_NONE);
    unsigned fds = ts_fds(), n = 0, sync_had = 0, refused = 0;

    do {
        struct kvshm__ring *ring;

        fail_uring(++n, codes[_i]);
        ts_is(kvshm__ring_open(&wanted, &ring), 0);
        sync_had += kvshm__ring_engine(ring) == KVSHM__ENGINE_SYNC;
        ck_assert((kvshm__ring_engine(ring) == KVSHM__ENGINE_FIXED) ==
                  (kvshm__ring_reason(ring)[0] == '\0'));
        tr_fill(tr_memory, n, 4);
        refused += move_one(ring, false);
        memset(tr_memory + TR_FRAME, 0, TR_FRAME);
        refused += move_one(ring, true);
        ck_assert_uint_eq(tr_wrong_bytes(tr_memory + TR_FRAME, n, 4), 0);
        tr_close(ring);
        ck_assert_uint_eq(ts_fds(), fds);
    } while (failed != NULL);
    ck_assert_uint_ge(n, 9);
    ck_assert_uint_ge(sync_had, 4 - (codes[_i] == -EINVAL));
    ck_assert_uint_eq(refused > 0, codes[_i] != -EAGAIN && codes[_i] != -EINTR);
}
END_TEST

static unsigned entered;

static int never_takes(struct io_uring *uring, struct io_uring_cqe **first, unsigned want,
                       struct __kernel_timespec *timeout)
{
    (void)uring;
    (void)first;
    (void)want;
    (void)timeout;
    entered++;
    return -EBUSY;
}

/* A kernel that puts off for ever is told of after some tries, and nothing is lost. */
START_TEST(test_a_kernel_that_takes_nothing)
{
    struct kvshm__ring *ring = tr_open(KVSHM__ENGINE_FIXED);
    struct kvshm__ring_done done;

    fail_uring(0, 0);
    kvshm__uring->enter = never_takes;
    ts_is(kvshm__ring_read(ring, tr_memory, TR_FRAME, 0, 1), 0);
    ts_is(kvshm__ring_wait(ring, 1, &done, 1, -1), -EBUSY);
    ts_says("Device or resource busy");
    ck_assert_uint_eq(entered, 16);
    ck_assert_uint_eq(kvshm__ring_in_flight(ring), 1);
    kvshm__uring->enter = real.enter;
    ts_is(tr_take_one(ring, 1), 0);
    kvshm__uring->enter = never_takes;
    ts_is(kvshm__ring_sync(ring, 1), 0);
    ts_is(kvshm__ring_close(ring), -EBUSY);
    ck_assert_int_eq(tr_descriptor, -1);
}
END_TEST

static unsigned pauses;

static int counted_sleep(uint64_t ns)
{
    ck_assert_uint_le(ns, 10000000);
    pauses++;
    return 0;
}

static int spoiled_code;
static unsigned spoil_n;

/* The next results are not what the kernel said. */
static int spoiling_enter(struct io_uring *uring, struct io_uring_cqe **first, unsigned want,
                          struct __kernel_timespec *timeout)
{
    int code = real.enter(uring, first, want, timeout);
    struct io_uring_cqe *cqe;
    unsigned head;

    io_uring_for_each_cqe(uring, head, cqe)
    {
        if (spoil_n > 0) {
            spoil_n--;
            cqe->res = spoiled_code;
        }
    }
    return code;
}

static int spoiled(struct kvshm__ring *ring, unsigned n, int code)
{
    spoil_n = n;
    spoiled_code = code;
    kvshm__uring->enter = spoiling_enter;
    memset(tr_memory, 0, TR_FRAME);
    ts_is(kvshm__ring_read(ring, tr_memory, TR_FRAME, 0, 1), 0);
    return tr_take_one(ring, 1);
}

START_TEST(test_results_of_any_kind)
{
    struct kvshm__ring *ring = tr_open(tr_engines[1 + _i]);

    tr_fill(tr_memory, 7, 7);
    ck_assert_int_eq(kvshm__sys.pwrite(tr_file, tr_memory, TR_FRAME, 0), TR_FRAME);
    fail_uring(0, 0);
    pauses = 0;
    kvshm__sys.sleep_ns = counted_sleep;
    ts_is(spoiled(ring, 1, 5 * (int)TR_BLOCK + 9),
          0); /* a part: the rest is read again, and right */
    ck_assert_uint_eq(tr_wrong_bytes(tr_memory, 7, 7), 0);
    ts_is(spoiled(ring, 15, -EAGAIN), 0);
    ck_assert_uint_eq(pauses, 15);
    ck_assert_uint_eq(tr_wrong_bytes(tr_memory, 7, 7), 0);
    ts_is(spoiled(ring, 15, -EINTR), 0);
    ts_is(spoiled(ring, 1000, -EAGAIN), -EAGAIN);
    ck_assert_uint_eq(spoil_n, 1000 - 16);
    ts_is(spoiled(ring, 1, -EIO), -EIO);
    ts_is(spoiled(ring, 1, TR_FRAME + 1), -EIO);
    ts_is(spoiled(ring, 1, 0), -ENODATA);
    spoil_n = 1; /* a write in parts, then one that moves nothing */
    spoiled_code = 3 * (int)TR_BLOCK + 9;
    tr_round_trip(ring, 8);
    spoil_n = 1;
    spoiled_code = 0;
    ts_is(kvshm__ring_write(ring, tr_memory, TR_FRAME, 0, 4), 0);
    ts_is(tr_take_one(ring, 4), -EIO);
    kvshm__sys = kvshm__sys_real;
    tr_close(ring);
}
END_TEST

#else

START_TEST(test_built_without_liburing)
{
    struct kvshm__ring *ring = tr_open(KVSHM__ENGINE_SYNC);

    ck_assert_ptr_null(kvshm__uring);
    ck_assert_str_eq(kvshm__ring_reason(ring), "io_uring: built without liburing");
    tr_round_trip(ring, 1);
    tr_close(ring);
}
END_TEST

#endif

int main(void)
{
    Suite *suite = suite_create("engine");
    TCase *tcase = tcase_create("engine");

    tcase_add_checked_fixture(tcase, tr_setup, tr_teardown);
#ifdef KVSHM_LIBURING
    tcase_add_test(tcase, test_memory_not_registered);
    tcase_add_test(tcase, test_memory_not_locked);
    tcase_add_loop_test(tcase, test_forbidden_by_seccomp, 0, 5);
    tcase_add_test(tcase, test_files_not_registered);
    tcase_add_test(tcase, test_old_kernels);
    tcase_add_test(tcase, test_i5_pieces_of_memory);
    tcase_add_loop_test(tcase, test_each_call_of_liburing_fails, 0, 5);
    tcase_add_test(tcase, test_a_kernel_that_takes_nothing);
    tcase_add_loop_test(tcase, test_results_of_any_kind, 0, 2);
#else
    tcase_add_test(tcase, test_built_without_liburing);
#endif
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
