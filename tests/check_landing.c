/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_landing.c - transfers that take long: what they outlive, and what holds until they have landed
 *
 * On a slow file each case sees a transfer at a moment of its choice: asked for, but not begun; or begun, and not
 * ended. A child has two locks, one of a descriptor that dies with it (alive), one of the descriptor that its ring
 * keeps (quiet).
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ring.h"
#include "slow_file.h"
#include "support.h"
#include "sys.h"

#define BYTES 65536

enum { ALIVE_BYTE, QUIET_BYTE };
enum moment { NOT_BEGUN, NOT_ENDED, MOMENTS };
enum way { FROM_FILE, TO_FILE, WAYS };

static const enum kvshm__engine engines[] = {KVSHM__ENGINE_SYNC, KVSHM__ENGINE_RING,
                                             KVSHM__ENGINE_FIXED};
#ifdef KVSHM_LIBURING
enum { ENGINES = 3 };
#else
enum { ENGINES = 1 };
#endif

/* One case: what a child does, and what both see. */
struct scene {
    struct ts_slow slow;
    enum kvshm__engine engine;
    enum moment moment;
    enum way way;
    unsigned char *memory; /* shared, BYTES */
    int file;
};

static int open_locks(void)
{
    char path[300];
    int fd;

    snprintf(path, sizeof(path), "%s/locks", getenv("KVSHM_DIR"));
    fd = kvshm__sys.open(path, O_RDWR | O_CREAT, 0600);
    ck_assert_int_ge(fd, 0);
    return fd;
}

static struct kvshm__ring *open_ring(const struct scene *scene, int quiet, int *descriptor)
{
    struct kvshm__ring_setup setup = {
        .file = scene->file,
        .quiet = quiet,
        .best = scene->engine,
        .depth = 8,
        .align = 4096,
        .memory = scene->memory,
        .bytes = BYTES,
        .stride = BYTES,
        .descriptor = descriptor,
    };
    struct kvshm__ring *ring;

    ts_need(kvshm__ring_open(&setup, &ring) == 0);
    ts_need(kvshm__ring_engine(ring) == scene->engine);
    return ring;
}

static int queue_one(const struct scene *scene, struct kvshm__ring *ring)
{
    return scene->way == FROM_FILE ? kvshm__ring_read(ring, scene->memory, BYTES, 0, 7)
                                   : kvshm__ring_write(ring, scene->memory, BYTES, 0, 7);
}

/* In a child: lock, begin the transfer, and do no more. */
static int begin_transfer(void *arg)
{
    struct scene *scene = arg;
    int alive = open_locks(), quiet = open_locks(), descriptor;
    struct kvshm__ring_done done;
    struct kvshm__ring *ring;

    scene->file = kvshm__sys.open(scene->slow.path, O_RDWR | O_DIRECT, 0);
    ts_need(scene->file >= 0);
    ts_need(kvshm__sys.lock_set(alive, F_WRLCK, ALIVE_BYTE, 1) == 0);
    ts_need(kvshm__sys.lock_set(quiet, F_WRLCK, QUIET_BYTE, 1) == 0);
    ring = open_ring(scene, quiet, &descriptor);
    if (scene->moment == NOT_BEGUN)
        atomic_store(&scene->slow.words->hold_before, true);
    else
        atomic_store(&scene->slow.words->hold_after, true);
    ts_need(queue_one(scene, ring) == 0);
    ts_need(kvshm__ring_submit(ring) == 0);
    kvshm__ring_wait(ring, 1, &done, 1, -1);
    return 9;
}

static unsigned char wanted_byte(const struct scene *scene, uint32_t at)
{
    return (unsigned char)(at * 7 + at / 4096 + (scene->way == FROM_FILE ? 1 : 2));
}

/* How many bytes are there as the transfer puts them? */
static uint32_t landed(const struct scene *scene)
{
    const volatile unsigned char *bytes =
        scene->way == FROM_FILE ? scene->memory : scene->slow.words->bytes;
    uint32_t n = 0;

    for (uint32_t at = 0; at < BYTES; at++)
        n += bytes[at] == wanted_byte(scene, at);
    return n;
}

static void fill_source(struct scene *scene)
{
    unsigned char *to = scene->way == FROM_FILE ? scene->slow.words->bytes : scene->memory;

    for (uint32_t at = 0; at < BYTES; at++)
        to[at] = wanted_byte(scene, at);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* All that was asked of the slow file before is done when this was. */
static void pass_through(struct scene *scene)
{
    unsigned char *block = ts_shared(4096);
    int fd = kvshm__sys.open(scene->slow.path, O_RDWR | O_DIRECT, 0);

    ck_assert_int_eq(kvshm__sys.pread(fd, block, 4096, TS_SLOW_BYTES - 4096), 4096);
    kvshm__sys.close(fd);
}

static bool make_scene(struct scene *scene, const char *name, int number)
{
    memset(scene, 0, sizeof(*scene));
    scene->engine = engines[number % ENGINES];
    scene->moment = number / ENGINES % MOMENTS;
    scene->way = number / ENGINES / MOMENTS % WAYS;
    scene->memory = ts_shared(BYTES);
    if (!ts_slow_make(&scene->slow, name))
        return false;
    fill_source(scene);
    return true;
}

static void let_go(struct scene *scene)
{
    atomic_store(&scene->slow.words->hold_before, false);
    atomic_store(&scene->slow.words->hold_after, false);
}

/* I3: a process is killed in mid-transfer. Its quiet lock falls when nothing of it moves any more. */
START_TEST(test_i3_quiet_outlives_its_process)
{
    struct scene scene;
    int locks = open_locks();
    bool is_ring;
    uint32_t at_fall;
    pid_t child;

    if (!make_scene(&scene, "test_i3_quiet_outlives_its_process", _i))
        return;
    is_ring = scene.engine != KVSHM__ENGINE_SYNC;
    child = ts_fork(begin_transfer, &scene);
    if (scene.moment == NOT_BEGUN)
        ts_slow_until_asked(&scene.slow);
    else
        ts_slow_until_taken(&scene.slow, 1);
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    if (is_ring) {
        ck_assert_int_eq(ts_wait(child), 128 + SIGKILL);
        ck_assert_int_eq(kvshm__sys.lock_ask(locks, F_RDLCK, ALIVE_BYTE, 1), 0);
    }
    /* A pread that nobody has begun ends with its process, and never lands; all else is under way. */
    if (is_ring || scene.moment == NOT_ENDED) {
        ck_assert_int_eq(kvshm__sys.lock_ask(locks, F_RDLCK, QUIET_BYTE, 1), 1);
        ck_assert_uint_lt(landed(&scene), BYTES / 2);
    }
    let_go(&scene);
    while (kvshm__sys.lock_ask(locks, F_RDLCK, QUIET_BYTE, 1) != 0)
        nap();
    at_fall = landed(&scene);
    if (is_ring || scene.moment == NOT_ENDED)
        ck_assert_uint_eq(at_fall, BYTES);
    pass_through(&scene);
    ck_assert_uint_eq(landed(&scene), at_fall);
    if (!is_ring)
        ck_assert_int_eq(ts_wait(child), 128 + SIGKILL);
    ts_slow_end(&scene.slow);
}
END_TEST

/* ---- What else takes long ------------------------------------------------------------------------------ */

static int open_slow(struct scene *scene)
{
    scene->file = kvshm__sys.open(scene->slow.path, O_RDWR | O_DIRECT, 0);
    ck_assert_int_ge(scene->file, 0);
    return scene->file;
}

static int take_one(struct kvshm__ring *ring)
{
    struct kvshm__ring_done done = {0};

    ck_assert_int_eq(kvshm__ring_wait(ring, 1, &done, 1, -1), 1);
    ck_assert_uint_eq(done.cookie, 7);
    return done.result;
}

/* Numbers of the loop tests below: engine and way; those with a ring alone begin at 1. */
static bool make_plain_scene(struct scene *scene, const char *name, int engine, int way)
{
    if (!make_scene(scene, name, engine + way * ENGINES * MOMENTS))
        return false;
    open_slow(scene);
    return true;
}

static int let_go_soon(void *arg)
{
    for (unsigned i = 0; i < 20; i++)
        nap();
    let_go(arg);
    return 0;
}

/* Waits are bounded by their time, and a close waits for all. */
START_TEST(test_waits_while_a_transfer_is_held)
{
    struct scene scene;
    struct kvshm__ring_done done;
    struct kvshm__ring *ring;
    int quiet = open_locks(), descriptor;
    pid_t child;

    if (!make_plain_scene(&scene, "test_waits_while_a_transfer_is_held", 1 + _i % 2, _i / 2))
        return;
    ring = open_ring(&scene, quiet, &descriptor);
    atomic_store(&scene.slow.words->hold_after, true);
    ts_is(queue_one(&scene, ring), 0);
    ts_is(kvshm__ring_submit(ring), 0);
    ts_slow_until_taken(&scene.slow, 1);
    ts_is(kvshm__ring_wait(ring, 1, &done, 1, 0), 0);
    ts_is(kvshm__ring_wait(ring, 1, &done, 1, 1000000), 0);
    ck_assert_uint_eq(kvshm__ring_in_flight(ring), 1);
    ck_assert_uint_lt(landed(&scene), BYTES / 2);
    child = ts_fork(let_go_soon, &scene);
    ts_is(kvshm__ring_close(ring), 1);
    ck_assert_uint_eq(landed(&scene), BYTES);
    ck_assert_int_eq(ts_wait(child), 0);
    kvshm__sys.close(scene.file);
    ts_slow_end(&scene.slow);
}
END_TEST

struct fork_scene {
    struct scene *scene;
    struct kvshm__ring *ring;
    struct ts_gate forgotten, end;
    int quiet;
};

static int forget_and_stay(void *arg)
{
    struct fork_scene *both = arg;
    unsigned fds = ts_fds();

    kvshm__ring_forget(both->ring);
    ts_need(ts_fds() == fds - (both->scene->engine != KVSHM__ENGINE_SYNC));
    kvshm__sys.close(both->quiet);
    ts_gate_open(&both->forgotten);
    ts_need(ts_gate_wait(&both->end));
    return 0;
}

/* I4: a forked child lets go of its parent's ring and touches nothing: transfers go on, and locks fall with the parent's. */
START_TEST(test_i4_a_forked_child_forgets)
{
    struct scene scene;
    struct fork_scene both = {.scene = &scene};
    int locks = open_locks(), descriptor;
    pid_t child;

    if (!make_plain_scene(&scene, "test_i4_a_forked_child_forgets", _i % ENGINES, _i / ENGINES))
        return;
    ts_gate_make(&both.forgotten);
    ts_gate_make(&both.end);
    both.quiet = open_locks();
    ck_assert_int_eq(kvshm__sys.lock_set(both.quiet, F_WRLCK, QUIET_BYTE, 1), 0);
    both.ring = open_ring(&scene, both.quiet, &descriptor);
    atomic_store(&scene.slow.words->hold_after, true);
    ts_is(queue_one(&scene, both.ring), 0);
    ts_is(kvshm__ring_submit(both.ring), 0);
    if (scene.engine != KVSHM__ENGINE_SYNC)
        ts_slow_until_taken(&scene.slow, 1);
    child = ts_fork(forget_and_stay, &both);
    ck_assert(ts_gate_wait(&both.forgotten));
    let_go(&scene);
    ts_is(take_one(both.ring), 0);
    ck_assert_uint_eq(landed(&scene), BYTES);
    ts_is(queue_one(&scene, both.ring), 0);
    ts_is(take_one(both.ring), 0);
    ts_is(kvshm__ring_close(both.ring), 0);
    ck_assert_int_eq(kvshm__sys.lock_ask(locks, F_RDLCK, QUIET_BYTE, 1), 1);
    kvshm__sys.close(both.quiet);
    ck_assert_int_eq(kvshm__sys.lock_ask(locks, F_RDLCK, QUIET_BYTE, 1), 0);
    ts_gate_open(&both.end);
    ck_assert_int_eq(ts_wait(child), 0);
    kvshm__sys.close(scene.file);
    ts_slow_end(&scene.slow);
}
END_TEST

/* In a child that dies: its transfer is in flight, and a child of its own lives on. */
static int begin_with_a_child(void *arg)
{
    struct fork_scene *both = arg;
    int descriptor;

    both->quiet = open_locks();
    ts_need(kvshm__sys.lock_set(both->quiet, F_WRLCK, QUIET_BYTE, 1) == 0);
    open_slow(both->scene);
    both->ring = open_ring(both->scene, both->quiet, &descriptor);
    ts_fork(forget_and_stay, both);
    ts_need(ts_gate_wait(&both->forgotten));
    atomic_store(&both->scene->slow.words->hold_after, true);
    ts_need(queue_one(both->scene, both->ring) == 0);
    ts_need(kvshm__ring_submit(both->ring) == 0);
    kvshm__ring_wait(both->ring, 1, &(struct kvshm__ring_done){0}, 1, -1);
    return 9;
}

/* I4: nothing of a ring is left in a forked child that could keep the locks of a parent that died. */
START_TEST(test_i4_a_forked_child_keeps_no_lock)
{
    struct scene scene;
    struct fork_scene both = {.scene = &scene};
    int locks = open_locks();
    pid_t child;

    if (!make_scene(&scene, "test_i4_a_forked_child_keeps_no_lock", _i))
        return;
    ts_gate_make(&both.forgotten);
    ts_gate_make(&both.end);
    child = ts_fork(begin_with_a_child, &both);
    ts_slow_until_taken(&scene.slow, 1);
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    let_go(&scene);
    ck_assert_int_eq(ts_wait(child), 128 + SIGKILL);
    for (unsigned i = 0; i < 20000 && kvshm__sys.lock_ask(locks, F_RDLCK, QUIET_BYTE, 1) != 0; i++)
        nap();
    ck_assert_int_eq(kvshm__sys.lock_ask(locks, F_RDLCK, QUIET_BYTE, 1), 0);
    ck_assert_uint_eq(landed(&scene), BYTES);
    ts_gate_open(&both.end); /* until here it lived */
    ts_slow_end(&scene.slow);
}
END_TEST

/* Parts that end in a block and at the end of one; the rest is read, once more where it has to be. (FUSE knows no write
 * in parts with O_DIRECT.) */
START_TEST(test_parts_are_continued)
{
    static const uint32_t parts[] = {4096, 3 * 4096, 5 * 4096 + 100, BYTES - 1};
    struct scene scene;
    struct kvshm__ring *ring;
    int quiet = open_locks(), descriptor;

    if (!make_plain_scene(&scene, "test_parts_are_continued", _i, FROM_FILE))
        return;
    ring = open_ring(&scene, quiet, &descriptor);
    for (unsigned i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        unsigned before = atomic_load(&scene.slow.words->taken);

        atomic_store(&scene.slow.words->part_bytes, parts[i]);
        memset(scene.memory, 0, BYTES);
        ts_is(queue_one(&scene, ring), 0);
        ts_is(take_one(ring), 0);
        ck_assert_uint_eq(landed(&scene), BYTES);
        ck_assert_uint_ge(atomic_load(&scene.slow.words->taken), before + BYTES / parts[i]);
    }
    ts_is(kvshm__ring_close(ring), 0);
    kvshm__sys.close(scene.file);
    ts_slow_end(&scene.slow);
}
END_TEST

static void answer_next(struct scene *scene, int error, int times)
{
    atomic_store(&scene->slow.words->error, error);
    atomic_store(&scene->slow.words->error_times, times);
}

START_TEST(test_errors_are_results)
{
    static const int errors[] = {EIO, ENOSPC, EDQUOT, ENODEV};
    struct scene scene;
    struct kvshm__ring *ring;
    int quiet = open_locks(), descriptor;

    if (!make_plain_scene(&scene, "test_errors_are_results", _i % ENGINES, _i / ENGINES))
        return;
    ring = open_ring(&scene, quiet, &descriptor);
    for (unsigned i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
        answer_next(&scene, errors[i], 1);
        ts_is(queue_one(&scene, ring), 0);
        ts_is(take_one(ring), -errors[i]);
    }
    answer_next(&scene, EAGAIN, 5);
    ts_is(queue_one(&scene, ring), 0);
    ts_is(take_one(ring), 0);
    ck_assert_uint_eq(landed(&scene), BYTES);
    answer_next(&scene, 0, 0);
    ts_is(kvshm__ring_sync(ring, 7), 0);
    ts_is(take_one(ring), 0);
    ck_assert_uint_eq(atomic_load(&scene.slow.words->synced), 1);
    answer_next(&scene, EIO, 1);
    ts_is(kvshm__ring_sync(ring, 7), 0);
    ts_is(take_one(ring), -EIO);
    ts_is(kvshm__ring_close(ring), 0);
    kvshm__sys.close(scene.file);
    ts_slow_end(&scene.slow);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("landing");
    TCase *tcase = tcase_create("landing");

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_loop_test(tcase, test_i3_quiet_outlives_its_process, 0, ENGINES * MOMENTS * WAYS);
    tcase_add_loop_test(tcase, test_i4_a_forked_child_forgets, 0, ENGINES * WAYS);
    tcase_add_loop_test(tcase, test_i4_a_forked_child_keeps_no_lock, 0, ENGINES);
    tcase_add_loop_test(tcase, test_parts_are_continued, 0, ENGINES);
    tcase_add_loop_test(tcase, test_errors_are_results, 0, ENGINES * WAYS);
    if (ENGINES > 1)
        tcase_add_loop_test(tcase, test_waits_while_a_transfer_is_held, 0, 2 * WAYS);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
