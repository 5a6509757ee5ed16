/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_tier_disk.c - a disk that fails, at one slot or at all, for a while or for ever: counted, told, and all goes on
 *
 * Each failure is made with pread and pwrite, and with io_uring, whose results are changed between the kernel and the
 * library. Whatever had failed, no hit has a wrong byte, also after a start on the file, and slots are not lost.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef KVSHM_LIBURING
#include <liburing.h>
#endif

#include "batch.h"
#include "evict.h"
#include "mend.h"
#include "ring.h"
#include "slots.h"
#include "spill_file.h"
#include "spilling.h"
#include "sys.h"

#define ENTRIES 6u /* of three pages each */
#define ALWAYS  1000000

/* The engines: pread and pwrite, io_uring. */
#ifdef KVSHM_LIBURING
enum { ENGINES = 2 };
#else
enum { ENGINES = 1 };
#endif

static char other_path[300];
static struct kvshm__spill_file shape_of; /* .shape alone */

/* ---- What fails ------------------------------------------------------------------------------------------------ */

/* The next .times reads or writes that begin in this range are answered so: -errno, or so many bytes. */
static struct {
    _Atomic bool writes, reads;
    _Atomic uint64_t from, to;
    _Atomic int answer, times;
    _Atomic int enter_answer, enter_times; /* of io_uring_enter */
    _Atomic bool hold;                     /* transfers wait, */
    _Atomic unsigned held;                 /* so many of them */
    _Atomic unsigned failed;               /* so many failed */
    _Atomic unsigned entered;              /* calls of io_uring_enter */
    _Atomic unsigned headers;              /* written, with something in them */
} disk;

static void count_header(const void *from, uint64_t offset)
{
    const struct kvshm__spill_shape *s = &shape_of.shape;
    uint64_t first;

    if (offset < s->headers_offset || offset >= s->payload_offset)
        return;
    memcpy(&first, from, sizeof(first)); /* a write in parts goes on anywhere */
    disk.headers += first != 0;
}

static bool fails(bool write, uint64_t offset)
{
    if (!(write ? disk.writes : disk.reads) || offset < disk.from || offset >= disk.to ||
        disk.times == 0)
        return false;
    disk.times--;
    disk.failed++;
    return true;
}

static void hold_while_asked(void)
{
    if (!disk.hold)
        return;
    disk.held++;
    while (disk.hold)
        usleep(200);
}

static int disk_pread(int fd, void *to, size_t size, uint64_t offset)
{
    hold_while_asked();
    return fails(false, offset) ? disk.answer : kvshm__sys_real.pread(fd, to, size, offset);
}

static int disk_pwrite(int fd, const void *from, size_t size, uint64_t offset)
{
    hold_while_asked();
    count_header(from, offset);
    return fails(true, offset) ? disk.answer : kvshm__sys_real.pwrite(fd, from, size, offset);
}

static int no_ring(unsigned entries, struct io_uring *uring, struct io_uring_params *params)
{
    (void)entries, (void)uring, (void)params;
    return -ENOSYS;
}

#ifdef KVSHM_LIBURING
static struct kvshm__uring real;
static bool is_to_fail[KVSHM__RING_DEPTH_MAX];

/* Entries of the queue that the kernel has not seen: which of them are to fail? */
static void look_at_queue(struct io_uring *uring)
{
    for (unsigned i = uring->sq.sqe_head; i != uring->sq.sqe_tail; i++) {
        const struct io_uring_sqe *sqe = &uring->sq.sqes[i & uring->sq.ring_mask];
        bool write = sqe->opcode == IORING_OP_WRITE || sqe->opcode == IORING_OP_WRITE_FIXED;

        if (write)
            count_header((const void *)(uintptr_t)sqe->addr, sqe->off);
        if (sqe->user_data < KVSHM__RING_DEPTH_MAX && sqe->opcode != IORING_OP_FSYNC)
            is_to_fail[sqe->user_data] = fails(write, sqe->off);
    }
}

static int disk_enter(struct io_uring *uring, struct io_uring_cqe **first, unsigned want,
                      struct __kernel_timespec *timeout)
{
    struct io_uring_cqe *cqe;
    unsigned head;
    int code;

    disk.entered++;
    if (disk.enter_times > 0) {
        disk.enter_times--;
        disk.failed++;
        return disk.enter_answer;
    }
    hold_while_asked();
    look_at_queue(uring);
    code = real.enter(uring, first, want, timeout);
    io_uring_for_each_cqe(uring, head, cqe)
    {
        if (cqe->user_data < KVSHM__RING_DEPTH_MAX && is_to_fail[cqe->user_data]) {
            is_to_fail[cqe->user_data] = false;
            cqe->res = disk.answer;
        }
    }
    return code;
}
#endif

/* Pauses between tries are short here. */
static int short_sleep(uint64_t ns)
{
    return kvshm__sys_real.sleep_ns(ns / 50);
}

static int engine;

static void use_engine(int wanted)
{
    engine = wanted;
    kvshm__sys.pread = disk_pread;
    kvshm__sys.pwrite = disk_pwrite;
    kvshm__sys.sleep_ns = short_sleep;
    if (engine == 0 && kvshm__uring)
        kvshm__uring->queue_init_params = no_ring;
#ifdef KVSHM_LIBURING
    real = *kvshm__uring;
    kvshm__uring->enter = disk_enter;
#endif
}

static void fail_from(uint64_t from, uint64_t to, int answer, int times)
{
    disk.from = from;
    disk.to = to;
    disk.answer = answer;
    disk.failed = 0;
    disk.times = times;
}

/* Payloads alone: headers may be written by the caller's thread, without a ring. */
static void fail_payloads(bool write, int answer, int times)
{
    disk.writes = write;
    disk.reads = !write;
    fail_from(shape_of.shape.payload_offset, UINT64_MAX, answer, times);
}

static void fail_slot(bool write, uint64_t slot, int answer)
{
    fail_payloads(write, answer, ALWAYS);
    disk.from = kvshm__spill_payload_offset(&shape_of.shape, slot);
    disk.to = kvshm__spill_payload_offset(&shape_of.shape, slot + 1);
}

static void heal(void)
{
    disk.times = disk.enter_times = 0;
    disk.hold = false;
}

/* ---- The arena ------------------------------------------------------------------------------------------------- */

static struct kvshm_config config_of(void)
{
    snprintf(other_path, sizeof(other_path), "%s/other", getenv("KVSHM_DIR"));
    return spilling_config();
}

static kvshm *start_with(const struct kvshm_config *config)
{
    kvshm *kv = ts_create("inside", config);

    ts_is(kvshm__spill_open(config->spill_path, NULL, &shape_of), 0);
    kvshm__spill_close(&shape_of);
    return kv;
}

static kvshm *start(void)
{
    struct kvshm_config config = config_of();

    return start_with(&config);
}

static kvshm *restart(kvshm *kv)
{
    spilling_end(kv);
    return start();
}

static struct kvshm_prefix entry(uint32_t i)
{
    return in_range(100 * i, 10);
}

static void put_all(kvshm *kv)
{
    for (uint32_t i = 0; i < ENTRIES; i++)
        in_put(kv, 100 * i, 10);
}

/* What was lost can be inserted anew. */
static void insert_all(kvshm *kv)
{
    for (uint32_t i = 0; i < ENTRIES; i++) {
        struct kvshm_prefix prefix = entry(i);
        ck_assert_int_ge(in_insert(kv, &prefix, NULL, 0), 0);
        in_hit(kv, &prefix);
    }
}

/* Whatever is there of the entry has its bytes: 0 or KVSHM_MISS. */
static int asked(kvshm *kv, const struct kvshm_prefix *prefix)
{
    struct kvshm_lease lease;
    int code = kvshm_lookup(kv, prefix, KVSHM_WAIT, &lease);

    if (code == KVSHM_MISS)
        return code;
    ts_is(code, 0);
    ck_assert_uint_eq(lease.tokens, prefix->n);
    ck_assert_uint_eq(in_wrong(&lease, prefix), 0);
    kvshm_release(kv, &lease);
    return 0;
}

static int asked_for(kvshm *kv, uint32_t first)
{
    struct kvshm_prefix prefix = in_range(first, 10);

    return asked(kv, &prefix);
}

/* How many of the entries are there; with right bytes. */
static unsigned there(kvshm *kv)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < ENTRIES; i++) {
        struct kvshm_prefix prefix = entry(i);
        n += asked(kv, &prefix) == 0;
    }
    return n;
}

/* All is as if nothing had been: new entries go and come, also over a start; no frame is lost, and no slot. */
static void goes_on(kvshm *kv)
{
    struct kvshm_prefix fresh = in_range(7000, 22);
    struct kvshm_reservation all;

    ck_assert(engine == 0 || disk.entered > 0);
    heal();
    in_put(kv, 7000, 22);
    in_hit(kv, &fresh);
    spilling_leave_all(kv);
    ts_is(asked(kv, &fresh), 0);
    in_audit(kv);
    kv = restart(kv);
    ts_is(asked(kv, &fresh), 0);
    there(kv);
    in_audit(kv);
    ts_is(kvshm_clear(kv), 0);
    ts_is(kvshm_reserve(kv, SPILLING_FRAMES, 0, &all), 0);
    kvshm_cancel(kv, &all);
    ts_is(kvshm_flush(kv), 0);
    for (uint32_t i = 0; i < SPILLING_FRAMES - 4; i++)
        in_put(kv, 10000 + 10 * i, 4);
    ts_is(kvshm_flush(kv), 0);
    ck_assert_uint_eq(ts_stats(kv).spill_failures, 0);
    in_audit(kv);
    spilling_end(kv);
}

/* ---- Writing ---------------------------------------------------------------------------------------------------- */

/* One slot cannot be written: the flush tells it and counts it, what else was written is there, memory has all. */
START_TEST(test_one_slot_is_not_written)
{
    kvshm *kv;

    use_engine(_i);
    kv = start();
    put_all(kv);
    fail_slot(true, 4, -EIO);
    ts_is(kvshm_flush(kv), -EIO);
    ck_assert_uint_gt(disk.failed, 0);
    ck_assert_uint_gt(ts_stats(kv).spill_failures, 0);
    for (uint32_t i = 0; i < ENTRIES; i++) {
        struct kvshm_prefix prefix = entry(i);
        in_hit(kv, &prefix);
    }
    in_audit(kv);
    heal();
    spilling_leave_all(kv);
    ck_assert_uint_eq(there(kv), ENTRIES);
    kv = restart(kv);
    ck_assert_uint_eq(there(kv), ENTRIES);
    goes_on(kv);
}
END_TEST

/*
 * The header of one slot can be written no more: what else is to be erased is, pages are written into other slots, and who
 * removes what has no part of it is told that it cannot be promised, until the disk is well again.
 */
START_TEST(test_one_header_is_not_erased)
{
    struct kvshm_prefix gone;
    kvshm *kv;

    use_engine(_i);
    kv = start();
    put_all(kv);
    spilling_leave_all(kv);
    disk.writes = true;
    fail_from(kvshm__spill_header_offset(&shape_of.shape, 0), kvshm__spill_header_offset(&shape_of.shape, 1), -EIO, ALWAYS);
    gone = entry(0);
    ts_is(kvshm_remove(kv, &gone), -EIO);
    ck_assert(!kvshm_contains(kv, &gone));
    ck_assert_uint_eq(kvshm__slots_doomed(kv), 1);
    in_put(kv, 9000, 10);
    spilling_leave_all(kv);
    ts_is(asked_for(kv, 9000), 0);
    ts_is(asked_for(kv, 100), 0);
    in_audit(kv);
    heal();
    gone = entry(0);
    ts_is(kvshm_remove(kv, &gone), KVSHM_MISS);
    ck_assert_uint_eq(kvshm__slots_doomed(kv), 0);
    insert_all(kv);
    goes_on(kv);
}
END_TEST

/* No page can be written, also by the headers: inserts go on, what has to leave is dropped, and a start finds what was there. */
static const int write_errors[] = {-EIO, -ENOSPC, -EDQUOT, -EAGAIN, 100, 0};
#define WRITE_ERRORS (sizeof(write_errors) / sizeof(write_errors[0]))

START_TEST(test_nothing_is_written)
{
    int answer = write_errors[_i / ENGINES];
    kvshm *kv;

    use_engine(_i % ENGINES);
    kv = start();
    put_all(kv);
    spilling_leave_all(kv);
    fail_payloads(true, answer, ALWAYS);
    disk.from = shape_of.shape.headers_offset;
    in_put(kv, 5000, 10);
    ts_is(kvshm_flush(kv), answer < 0 && answer != -EAGAIN ? answer : -EIO);
    ck_assert_uint_gt(ts_stats(kv).spill_failures, 0);
    for (uint32_t i = 0; i < 2 * SPILLING_FRAMES; i++)
        in_put(kv, 10000 + 10 * i, 4);
    in_audit(kv);
    heal();
    ck_assert_uint_eq(there(kv), ENTRIES);
    kv = restart(kv);
    ck_assert_uint_eq(there(kv), ENTRIES);
    goes_on(kv);
}
END_TEST

/* ---- Reading ---------------------------------------------------------------------------------------------------- */

/* One slot cannot be read: one entry is a miss, the others are there, and one failure is counted for each page lost. */
START_TEST(test_one_slot_is_not_read)
{
    kvshm *kv;
    unsigned n;

    use_engine(_i);
    kv = start();
    put_all(kv);
    spilling_leave_all(kv);
    fail_slot(false, 4, -EIO);
    n = there(kv);
    ck_assert_uint_gt(disk.failed, 0);
    ck_assert_uint_eq(n, ENTRIES - 1);
    ck_assert_uint_gt(ts_stats(kv).restore_failures, 0);
    ck_assert_uint_le(ts_stats(kv).restore_failures, 3);
    in_audit(kv);
    insert_all(kv);
    heal();
    spilling_leave_all(kv);
    ck_assert_uint_eq(there(kv), ENTRIES);
    goes_on(kv);
}
END_TEST

static const int read_errors[] = {-EIO, -EAGAIN, 100, 0};
#define READ_ERRORS (sizeof(read_errors) / sizeof(read_errors[0]))

START_TEST(test_nothing_is_read)
{
    kvshm *kv;

    use_engine(_i % ENGINES);
    kv = start();
    put_all(kv);
    spilling_leave_all(kv);
    fail_payloads(false, read_errors[_i / ENGINES], ALWAYS);
    ck_assert_uint_eq(there(kv), 0);
    ck_assert_uint_ge(ts_stats(kv).restore_failures, ENTRIES);
    in_audit(kv);
    insert_all(kv);
    goes_on(kv);
}
END_TEST

/* ---- Put off, and in parts --------------------------------------------------------------------------------------- */

/* What moves in part, or is put off for a while, is no failure. */
START_TEST(test_put_off_for_a_while)
{
    static const int answers[] = {-EAGAIN, -EINTR, 100};
    kvshm *kv;

    use_engine(_i % ENGINES);
    kv = start();
    put_all(kv);
    fail_payloads(true, answers[_i / ENGINES], 8);
    spilling_leave_all(kv);
    ck_assert_uint_eq(disk.failed, 8);
    fail_payloads(false, answers[_i / ENGINES], 8);
    ck_assert_uint_eq(there(kv), ENTRIES);
    ck_assert_uint_eq(disk.failed, 8);
    ck_assert_uint_eq(ts_stats(kv).spill_failures + ts_stats(kv).restore_failures, 0);
    goes_on(kv);
}
END_TEST

#ifdef KVSHM_LIBURING
/* The kernel takes nothing for longer than a ring asks in one call: nothing is lost, and nothing is counted. */
START_TEST(test_kernel_takes_nothing_for_a_while)
{
    static const int answers[] = {-EAGAIN, -EBUSY, -EINTR};
    kvshm *kv;

    use_engine(1);
    kv = start();
    in_put(kv, 5000, 10);
    spilling_leave_all(kv); /* the ring is there */
    put_all(kv);
    disk.enter_answer = answers[_i];
    disk.enter_times = 50;
    spilling_leave_all(kv);
    ck_assert_int_eq(disk.enter_times, 0);
    disk.enter_times = 50;
    ck_assert_uint_eq(there(kv), ENTRIES);
    ck_assert_int_eq(disk.enter_times, 0);
    ck_assert_uint_eq(ts_stats(kv).spill_failures + ts_stats(kv).restore_failures, 0);
    goes_on(kv);
}
END_TEST
#endif

/* ---- Full ------------------------------------------------------------------------------------------------------- */

/* Of the file alone, which is larger than the arena's memory. */
static int no_space(int fd, uint64_t offset, uint64_t length)
{
    return length >= SPILLING_SLOTS * 4096u ? -ENOSPC : kvshm__sys_real.space(fd, offset, length);
}

/* No room for the file: no arena, no file, and the sentence says which; with room all is well. */
START_TEST(test_no_room_at_creation)
{
    struct kvshm_config config = config_of();
    unsigned names = ts_dir_names(), fds = ts_fds();
    kvshm *kv = NULL;

    kvshm__sys.space = no_space;
    ts_is(kvshm_create("inside", &config, 0, &kv), -ENOSPC);
    ck_assert_ptr_null(kv);
    ts_says("spilled");
    ck_assert_uint_eq(ts_dir_names(), names);
    ck_assert_uint_eq(ts_fds(), fds);
    kvshm__sys.space = kvshm__sys_real.space;
    goes_on(start());
}
END_TEST

/* Fewer slots than pages: the flush says so and counts it, memory keeps all of it, and a start finds what was written. */
START_TEST(test_fewer_slots_than_pages)
{
    struct kvshm_config config = config_of();
    struct kvshm_prefix kept;
    kvshm *kv;

    use_engine(_i);
    config.spill_bytes = 12 * 8192u + 32768u;
    kv = start_with(&config);
    ck_assert_uint_lt(shape_of.shape.slots, 30);
    for (uint32_t i = 0; i < 40; i++)
        in_put(kv, 10 * i, 4);
    ts_is(kvshm_flush(kv), -ENOSPC);
    ck_assert_uint_gt(ts_stats(kv).spill_full, 0);
    ck_assert_uint_eq(ts_stats(kv).spill_failures, 0);
    for (uint32_t i = 0; i < 40; i++) {
        kept = in_range(10 * i, 4);
        in_hit(kv, &kept);
    }
    in_audit(kv);
    for (uint32_t i = 0; i < 4 * SPILLING_FRAMES; i++) /* the oldest go */
        in_put(kv, 10000 + 10 * i, 4);
    spilling_end(kv);
    kv = start_with(&config);
    in_audit(kv);
    for (uint32_t i = 0; i < 4 * SPILLING_FRAMES; i++) {
        kept = in_range(10000 + 10 * i, 4);
        asked(kv, &kept);
    }
    spilling_end(kv);
}
END_TEST

/* ---- Another file ------------------------------------------------------------------------------------------------ */

/* Another arena's file takes the name: who has the old one open goes on with it; who comes is told; a start has the other. */
START_TEST(test_file_is_replaced)
{
    struct kvshm_config config = config_of();
    kvshm *kv, *other, *late = NULL;

    use_engine(_i);
    config.spill_path = other_path;
    other = ts_create("others", &config);
    in_put(other, 8000, 10);
    ts_is(kvshm_flush(other), 0);
    ts_detach(other);
    ts_is(kvshm_unlink("others", 0), 0);
    kv = start();
    put_all(kv);
    spilling_leave_all(kv);
    ck_assert_int_eq(rename(other_path, spilling_path), 0);
    ck_assert_uint_eq(there(kv), ENTRIES);
    in_put(kv, 350, 10);
    spilling_leave_all(kv);
    ts_is(asked_for(kv, 350), 0);
    ts_is(asked_for(kv, 8000), KVSHM_MISS);
    ts_is(kvshm_attach("inside", NULL, 0, &late), KVSHM_E_NOSPILL);
    ck_assert_ptr_null(late);
    late = ts_attach("inside", KVSHM_NOTIER);
    ts_detach(late);
    in_audit(kv);
    kv = restart(kv);
    ck_assert_uint_eq(there(kv), 0);
    ts_is(asked_for(kv, 8000), 0);
    goes_on(kv);
}
END_TEST

/* The file is cut behind its headers: what is lost are misses, counted; a start on it is refused by name. */
START_TEST(test_file_is_cut)
{
    struct kvshm_config config = config_of();
    kvshm *kv, *again = NULL;

    use_engine(_i);
    kv = start();
    put_all(kv);
    spilling_leave_all(kv);
    ck_assert_int_eq(truncate(spilling_path, (off_t)kvshm__spill_payload_offset(&shape_of.shape, 4)), 0);
    ck_assert_uint_lt(there(kv), ENTRIES);
    ck_assert_uint_gt(ts_stats(kv).restore_failures, 0);
    insert_all(kv);
    in_audit(kv);
    spilling_leave_all(kv); /* writing makes it longer again */
    ck_assert_uint_eq(there(kv), ENTRIES);
    ts_is(kvshm_flush(kv), 0);
    ck_assert_int_eq(truncate(spilling_path, (off_t)kvshm__spill_payload_offset(&shape_of.shape, 2)), 0);
    spilling_end(kv);
    ts_is(kvshm_create("inside", &config, 0, &again), KVSHM_E_DAMAGED);
    ts_says("bytes, and its header says");
    ck_assert_ptr_null(again);
    ck_assert_int_eq(unlink(spilling_path), 0);
    goes_on(start());
}
END_TEST

/* ---- A disk that does not answer ----------------------------------------------------------------------------------- */

static void *ask_first(void *arg)
{
    struct kvshm_prefix prefix = in_range(0, 10);
    struct kvshm_lease lease;

    ts_is(kvshm_lookup(arg, &prefix, KVSHM_WAIT, &lease), KVSHM_PENDING);
    return NULL;
}

static void until_held(void)
{
    while (disk.held == 0)
        usleep(200);
}

static void *flush(void *arg)
{
    ts_is(kvshm_flush(arg), 0);
    return NULL;
}

/* A page that goes while its payload is written gets no header, which would name bytes that another put there. */
START_TEST(test_page_goes_while_it_is_written)
{
    struct kvshm_prefix prefix = entry(0);
    pthread_t writer;
    kvshm *kv;

    use_engine(_i);
    kv = start();
    in_put(kv, 100, 10);
    ts_is(kvshm_flush(kv), 0); /* there is a ring, and what it waits for next is a payload */
    ck_assert_uint_gt(disk.headers, 0);
    in_put(kv, 0, 10);
    uint32_t record = in_record(kv, &prefix);
    disk.headers = 0;
    disk.hold = true;
    ck_assert_int_eq(pthread_create(&writer, NULL, flush, kv), 0);
    until_held();
    ts_is(kvshm__mend_lock(kv), 0);
    kvshm__evict_drop_entry(kv, record);
    kvshm__evict_sweep_limbo(kv);
    kvshm__mend_unlock(kv);
    heal();
    ck_assert_int_eq(pthread_join(writer, NULL), 0);
    ck_assert_uint_eq(disk.headers, 0);
    ck_assert_uint_eq(ts_stats(kv).spill_failures, 0);
    goes_on(kv);
}
END_TEST

static void *flush_unlinked(void *arg)
{
    ts_is(kvshm_flush(arg), KVSHM_E_UNLINKED);
    return NULL;
}

/* An arena that is unlinked while its pages are written: nothing can be said of them any more, and nothing waits. */
START_TEST(test_arena_goes_while_its_pages_are_written)
{
    struct kvshm_info info;
    pthread_t writer;
    kvshm *kv;

    use_engine(_i);
    kv = start();
    in_put(kv, 0, 10);
    kvshm_info_init(&info);
    ts_is(kvshm_info(kv, &info), 0);
    disk.hold = true;
    ck_assert_int_eq(pthread_create(&writer, NULL, flush_unlinked, kv), 0);
    until_held();
    ck_assert_int_eq(unlink(info.path), 0);
    heal();
    ck_assert_int_eq(pthread_join(writer, NULL), 0);
    ts_detach(kv);
    kv = start();
    goes_on(kv);
}
END_TEST

/* A lookup waits wait_ms, and then says that its pages are pending; when the disk answers they come. */
START_TEST(test_lookup_waits_no_longer)
{
    struct kvshm_prefix prefix, resident;
    struct kvshm_lease lease;
    struct kvshm_config config = config_of();
    pthread_t first;
    kvshm *kv;

    use_engine(_i);
    config.wait_ms = 20;
    kv = start_with(&config);
    put_all(kv);
    spilling_leave_all(kv);
    in_put(kv, 7000, 10);
    disk.hold = true;
    ck_assert_int_eq(pthread_create(&first, NULL, ask_first, kv), 0);
    until_held();
    ck_assert_int_eq(pthread_join(first, NULL), 0); /* nor for what it asked for itself */
    prefix = entry(1);
    resident = in_range(7000, 10);
    uint64_t began = kvshm__sys_real.monotonic_ns();
    ts_is(kvshm_lookup(kv, &prefix, KVSHM_WAIT, &lease), KVSHM_PENDING);
    ck_assert_uint_ge(kvshm__sys_real.monotonic_ns() - began, 20000000);
    ck_assert_uint_eq(lease.pages, 0);
    ts_is(kvshm_match(kv, &prefix, KVSHM_WAIT, &lease), KVSHM_PENDING);
    ck_assert_uint_eq(lease.pending_tokens, 10);
    in_hit(kv, &resident); /* nobody else is kept waiting */
    in_put(kv, 8000, 10);
    ck_assert_uint_eq(ts_stats(kv).restore_failures, 0);
    heal();
    atomic_store(&kv->header->settings.wait_ms, KVSHM_UNLIMITED);
    ts_is(asked(kv, &prefix), 0);
    goes_on(kv);
}
END_TEST

struct question {
    kvshm *kv;
    struct kvshm_prefix prefix;
};

static void *ask(void *arg)
{
    struct question *question = arg;

    ts_is(asked(question->kv, &question->prefix), 0);
    return NULL;
}

/* A prefetch of what another thread's call waits for, which has not come to be read yet, is told too. */
START_TEST(test_prefetch_of_what_a_call_waits_for)
{
    pthread_t first, second;
    kvshm *kv;

    use_engine(_i);
    kv = start();
    put_all(kv);
    spilling_leave_all(kv);
    struct question one = {kv, entry(0)}, other = {kv, entry(1)};
    disk.hold = true;
    ck_assert_int_eq(pthread_create(&first, NULL, ask, &one), 0);
    until_held();
    ck_assert_int_eq(pthread_create(&second, NULL, ask, &other), 0);
    usleep(20000); /* it is in the queue by then, mostly */
    ts_is(kvshm_prefetch(kv, &other.prefix, 1), 1);
    heal();
    ts_is(kvshm_wait(kv, NULL), 1);
    ck_assert_int_eq(pthread_join(first, NULL), 0);
    ck_assert_int_eq(pthread_join(second, NULL), 0);
    goes_on(kv);
}
END_TEST

/* A reservation waits wait_ms for the disk, and then the oldest are dropped, and counted. */
START_TEST(test_reserve_waits_no_longer)
{
    struct kvshm_config config = config_of();
    struct kvshm_reservation r;
    struct kvshm_prefix prefix;
    unsigned n = 0;
    kvshm *kv;

    use_engine(_i);
    config.wait_ms = 20;
    kv = start_with(&config);
    disk.hold = true;
    for (uint32_t i = 0; i < SPILLING_FRAMES; i++)
        in_put(kv, 10 * i, 4);
    uint64_t before = ts_stats(kv).evicted_pages;
    uint64_t began = kvshm__sys_real.monotonic_ns();
    ts_is(kvshm_reserve(kv, SPILLING_FRAMES / 2, KVSHM_WAIT, &r), 0);
    ck_assert_uint_ge(kvshm__sys_real.monotonic_ns() - began, 20000000);
    ck_assert_uint_eq(ts_stats(kv).evicted_pages, before + SPILLING_FRAMES / 2);
    kvshm_cancel(kv, &r);
    for (uint32_t i = 0; i < SPILLING_FRAMES; i++) {
        prefix = in_range(10 * i, 4);
        n += kvshm_contains(kv, &prefix);
    }
    ck_assert_uint_eq(n, SPILLING_FRAMES / 2);
    in_hit(kv, &prefix); /* the youngest */
    atomic_store(&kv->header->settings.wait_ms, KVSHM_UNLIMITED);
    goes_on(kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tier_disk");
    TCase *tcase = tcase_create("tier_disk");

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_loop_test(tcase, test_one_slot_is_not_written, 0, ENGINES);
    tcase_add_loop_test(tcase, test_one_header_is_not_erased, 0, ENGINES);
    tcase_add_loop_test(tcase, test_nothing_is_written, 0, (int)WRITE_ERRORS * ENGINES);
    tcase_add_loop_test(tcase, test_one_slot_is_not_read, 0, ENGINES);
    tcase_add_loop_test(tcase, test_nothing_is_read, 0, (int)READ_ERRORS * ENGINES);
    tcase_add_loop_test(tcase, test_put_off_for_a_while, 0, 3 * ENGINES);
#ifdef KVSHM_LIBURING
    tcase_add_loop_test(tcase, test_kernel_takes_nothing_for_a_while, 0, 3);
#endif
    tcase_add_test(tcase, test_no_room_at_creation);
    tcase_add_loop_test(tcase, test_fewer_slots_than_pages, 0, ENGINES);
    tcase_add_loop_test(tcase, test_file_is_replaced, 0, ENGINES);
    tcase_add_loop_test(tcase, test_file_is_cut, 0, ENGINES);
    tcase_add_loop_test(tcase, test_page_goes_while_it_is_written, 0, ENGINES);
    tcase_add_loop_test(tcase, test_arena_goes_while_its_pages_are_written, 0, ENGINES);
    tcase_add_loop_test(tcase, test_lookup_waits_no_longer, 0, ENGINES);
    tcase_add_loop_test(tcase, test_prefetch_of_what_a_call_waits_for, 0, ENGINES);
    tcase_add_loop_test(tcase, test_reserve_waits_no_longer, 0, ENGINES);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
