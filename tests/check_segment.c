/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_segment.c - segments are built without a name, proven, and published whole
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include "segment.h"
#include "support.h"
#include "sys.h"
#include "validate.h"

static struct kvshm__config checked(struct kvshm_config config)
{
    struct kvshm__config to;

    ts_is(kvshm__config_create(&config, &to), 0);
    return to;
}

static int build(struct kvshm__making *making, const struct kvshm_config *config, int *fd)
{
    struct kvshm__config to = checked(*config);
    int code;

    *fd = -1;
    code = kvshm__segment_begin(making, "a");
    if (code == 0) {
        code = kvshm__segment_build(making, &to, false, fd);
        if (code < 0)
            kvshm__segment_end(making);
    }
    return code;
}

START_TEST(test_built_and_published)
{
    struct kvshm_config config = ts_config(4096, 64, 100);
    struct kvshm__making making;
    struct kvshm_static fixed;
    struct stat status;
    uint64_t bytes;
    int fd, other;

    ts_is(build(&making, &config, &fd), 0);
    ck_assert_uint_eq(ts_dir_names(), 0);
    ck_assert_int_eq(fstat(fd, &status), 0);
    ck_assert_uint_eq(status.st_nlink, 0);
    ck_assert_uint_ge((uint64_t)status.st_blocks * 512, (uint64_t)status.st_size);
    ts_is(kvshm__validate_read(fd, "a", &fixed, &bytes), 0);
    ts_is(kvshm__validate_fixed(&fixed, bytes, true, "a"), 0);
    ck_assert_uint_eq(fixed.frames, 100);
    ck_assert_str_eq(fixed.name, "a");
    ck_assert_uint_ne(fixed.backing_reason[0], '\0');
    ts_is(kvshm__segment_reopen(fd, "", &other), 0);
    close(other);
    ts_is(kvshm__segment_publish(&making, fd), 0);
    ts_is(kvshm__segment_reopen(fd, making.path, &other), 0);
    close(other);
    kvshm__segment_end(&making);
    ck_assert_uint_eq(ts_dir_names(), 1);
    ck_assert_int_eq(fstat(fd, &status), 0);
    ck_assert_uint_eq(status.st_mode & 0777, 0600);
    close(fd);
    ts_is(build(&making, &config, &fd), -EEXIST);
    ts_says("/a exists");
    ck_assert_int_eq(fd, -1);
}
END_TEST

/* The path names another file by now: the second description is of the first file all the same. */
START_TEST(test_reopened_by_descriptor)
{
    struct kvshm_config config = ts_config(64, 1, 1);
    struct kvshm__making making;
    struct stat one, two;
    int fd, other;

    ts_is(build(&making, &config, &fd), 0);
    kvshm__segment_end(&making);
    ts_is(kvshm__segment_reopen(fd, "/dev/null", &other), 0);
    ck_assert_int_eq(fstat(fd, &one) | fstat(other, &two), 0);
    ck_assert_uint_eq(one.st_ino, two.st_ino);
    ck_assert_int_eq(kvshm__sys.lock_set(fd, F_WRLCK, 5, 1), 0);
    ck_assert_int_eq(kvshm__sys.lock_ask(other, F_RDLCK, 5, 1), 1);
    close(fd);
    close(other);
}
END_TEST

START_TEST(test_lost_race)
{
    struct kvshm_config config = ts_config(64, 1, 1);
    struct kvshm__making making;
    FILE *faster;
    int fd;

    ts_is(build(&making, &config, &fd), 0);
    faster = fopen(making.path, "w"); /* by one who takes no turn */
    ck_assert_ptr_nonnull(faster);
    fclose(faster);
    ts_is(kvshm__segment_publish(&making, fd), -EEXIST);
    kvshm__segment_end(&making);
    close(fd);
}
END_TEST

START_TEST(test_mode_and_group)
{
    struct kvshm_config config = ts_config(64, 1, 1);
    struct stat status;
    char path[300];
    kvshm *kv;

    if (geteuid() != 0) {
        printf("SKIP test_mode_and_group: not root\n");
        return;
    }
    umask(0777);
    config.mode = 0640;
    config.group = 4;
    kv = ts_create("a", &config);
    snprintf(path, sizeof(path), "%s/a", getenv("KVSHM_DIR"));
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_uint_eq(status.st_mode & 07777, 0640);
    ck_assert_uint_eq(status.st_gid, 4);
    ts_detach(kv);
}
END_TEST

static int group_as_nobody(void *arg)
{
    struct kvshm_config config = ts_config(64, 1, 1);
    kvshm *kv;

    (void)arg;
    ts_need(setgid(65534) == 0 && setuid(65534) == 0);
    config.group = 4;
    ts_need(kvshm_create("a", &config, 0, &kv) == -EPERM);
    ts_need(strstr(kvshm_errmsg(NULL), "config.group 4") != NULL);
    ts_need(ts_dir_names() == 0);
    return 0;
}

START_TEST(test_group_not_ones_own)
{
    char dir[] = "/dev/shm/kvshm-test.XXXXXX";

    if (geteuid() != 0) {
        printf("SKIP test_group_not_ones_own: not root\n");
        return;
    }
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(chmod(dir, 0777), 0);
    setenv("KVSHM_DIR", dir, 1);
    int status = ts_wait(ts_fork(group_as_nobody, NULL));
    rmdir(dir);
    ck_assert_int_eq(status, 0);
}
END_TEST

/* ---- Space ------------------------------------------------------------------------------------------- */

/* A tmpfs of so many bytes in KVSHM_DIR, in a mount namespace of this process alone. */
static bool own_tmpfs(uint64_t bytes)
{
    char options[64];

    snprintf(options, sizeof(options), "size=%llu", (unsigned long long)bytes);
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("kvshm", getenv("KVSHM_DIR"), "tmpfs", 0, options) == 0;
}

#define SMALL_BYTES (UINT64_C(8) << 20)
#define UNMOUNTABLE 77

static int ask_for_too_much(void *arg)
{
    struct kvshm_config config = ts_config(65536, 64, 1000);
    uint64_t *bytes = arg;
    char number[32];
    kvshm *kv;

    if (!own_tmpfs(SMALL_BYTES))
        return UNMOUNTABLE;
    ts_need(kvshm_create("a", &config, 0, &kv) == -ENOSPC);
    ts_need(strstr(kvshm_errmsg(NULL), "for 1000 frames") != NULL);
    snprintf(number, sizeof(number), "%llu free", (unsigned long long)SMALL_BYTES);
    ts_need(strstr(kvshm_errmsg(NULL), number) != NULL);
    ts_need(strstr(kvshm_errmsg(NULL), "ask for less") != NULL);
    ts_need(ts_dir_names() == 0);
    config.frames = 0;
    config.memory_bytes = SMALL_BYTES;
    ts_need(kvshm_create("a", &config, 0, &kv) == 0);
    struct kvshm_info info;
    kvshm_info_init(&info);
    ts_need(kvshm_info(kv, &info) == 0);
    *bytes = info.segment_bytes;
    return 0;
}

START_TEST(test_too_little_memory)
{
    uint64_t *bytes = ts_shared(sizeof(*bytes));
    int status = ts_wait(ts_fork(ask_for_too_much, bytes));

    if (status == UNMOUNTABLE) {
        printf("SKIP test_too_little_memory: may not mount a tmpfs\n");
        return;
    }
    ck_assert_int_eq(status, 0);
    ck_assert_uint_le(*bytes, SMALL_BYTES);
    ck_assert_uint_gt(*bytes, SMALL_BYTES - 2 * 65536);
}
END_TEST

/* The file system says there is room, and there is none after all. */
static int no_room(int fd, uint64_t offset, uint64_t length)
{
    (void)fd;
    (void)offset;
    (void)length;
    return -ENOSPC;
}

static _Atomic unsigned *interruptions; /* counted where memory is taken: in child processes */

static int interrupted(int fd, uint64_t offset, uint64_t length)
{
    if (length > 100000) {
        (*interruptions)++;
        return -EINTR;
    }
    return kvshm__sys_real.space(fd, offset, length);
}

START_TEST(test_space_refused_and_interrupted)
{
    struct kvshm_config config = ts_config(4096, 64, 200);
    kvshm *kv;

    interruptions = ts_shared(sizeof(*interruptions));
    kvshm__sys.space = no_room;
    ts_is(kvshm_create("a", &config, 0, &kv), -ENOSPC);
    ck_assert_uint_eq(ts_dir_names(), 0);
    kvshm__sys.space = interrupted;
    ts_is(kvshm_create("a", &config, 0, &kv), 0);
    ck_assert_uint_gt(*interruptions, 3);
    ts_detach(kv);
}
END_TEST

static int limited(void *arg)
{
    struct kvshm_config config = ts_config(4096, 64, 200);
    struct rlimit limit = {65536, 65536};
    kvshm *kv;

    (void)arg;
    ts_need(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    ts_need(kvshm_create("a", &config, 0, &kv) == -EFBIG);
    ts_need(strstr(kvshm_errmsg(NULL), "RLIMIT_FSIZE is 65536") != NULL);
    ts_need(ts_dir_names() == 0);
    return 0;
}

/* Without the look at the limit this would end by SIGXFSZ. */
START_TEST(test_file_size_limit)
{
    ck_assert_int_eq(ts_wait(ts_fork(limited, NULL)), 0);
}
END_TEST

START_TEST(test_no_nameless_files)
{
    struct kvshm_config config = ts_config(64, 1, 1);
    kvshm *kv;

    setenv("KVSHM_DIR", "/proc", 1);
    ck_assert_int_lt(kvshm_create("a", &config, 0, &kv), 0);
    ck_assert_ptr_null(kv);
    ts_says("/proc");
}
END_TEST

/* ---- Creators ---------------------------------------------------------------------------------------- */

#define CREATORS 8

struct together {
    struct ts_gate ready, go, done, leave;
    unsigned created, attached;
};

static int open_together(void *arg)
{
    struct kvshm_config config = ts_config(65536, 64, 0);
    struct together *t = arg;
    struct kvshm_info info;
    kvshm *kv;

    config.memory_bytes = SMALL_BYTES * 3 / 4; /* two do not fit */
    ts_gate_open(&t->ready);
    ts_gate_wait(&t->go);
    ts_need(kvshm_open("one", &config, 0, &kv) == 0);
    kvshm_info_init(&info);
    ts_need(kvshm_info(kv, &info) == 0);
    if (info.creator_pid == (uint32_t)getpid() && info.client == 1)
        __atomic_add_fetch(&t->created, 1, __ATOMIC_SEQ_CST);
    else
        __atomic_add_fetch(&t->attached, 1, __ATOMIC_SEQ_CST);
    ts_gate_open(&t->done);
    ts_gate_wait(&t->leave); /* all stay until all have come */
    ts_need(kvshm_detach(kv) == 0);
    return 0;
}

static int eight_creators(void *arg)
{
    struct together *t = arg;
    pid_t pids[CREATORS];

    if (!own_tmpfs(SMALL_BYTES))
        return UNMOUNTABLE;
    for (unsigned i = 0; i < CREATORS; i++)
        pids[i] = ts_fork(open_together, t);
    for (unsigned i = 0; i < CREATORS; i++)
        ts_gate_wait(&t->ready);
    for (unsigned i = 0; i < CREATORS; i++)
        ts_gate_open(&t->go);
    for (unsigned i = 0; i < CREATORS; i++)
        ts_gate_open(&t->leave);
    for (unsigned i = 0; i < CREATORS; i++)
        ts_need(ts_wait(pids[i]) == 0);
    ts_need(t->created == 1);
    ts_need(t->attached == CREATORS - 1);
    ts_need(ts_dir_names() == 1);
    return 0;
}

START_TEST(test_creators_take_turns)
{
    struct together *t = ts_shared(sizeof(*t));
    int status;

    ts_gate_make(&t->ready);
    ts_gate_make(&t->go);
    ts_gate_make(&t->done);
    ts_gate_make(&t->leave);
    status = ts_wait(ts_fork(eight_creators, t));
    if (status == UNMOUNTABLE)
        printf("SKIP test_creators_take_turns: may not mount a tmpfs\n");
    else
        ck_assert_int_eq(status, 0);
}
END_TEST

#define CHILD_KILLED 3

static unsigned die_at, made;
static pid_t creator;
static bool child_dies; /* not the creator, but a child that takes memory for it */

static bool dies(void)
{
    return (getpid() == creator) != child_dies;
}

/* Any system call; the die_at-th is its last. */
#define DIE(name, parameters, arguments)       \
    static int dying_##name parameters         \
    {                                          \
        if (++made == die_at && dies())        \
            kill(getpid(), SIGKILL);           \
        return kvshm__sys_real.name arguments; \
    }
KVSHM__SYS_CALLS(DIE)

static int create_and_die(void *arg)
{
    struct kvshm_config config = ts_config(4096, 64, 50);
    kvshm *kv;

    die_at = *(unsigned *)arg;
    creator = getpid();
#define SET_DYING(name, parameters, arguments) kvshm__sys.name = dying_##name;
    KVSHM__SYS_CALLS(SET_DYING)
    if (kvshm_create("a", &config, 0, &kv) == 0)
        return 0;
    ts_need(strstr(kvshm_errmsg(NULL), "was killed by signal 9") != NULL);
    return CHILD_KILLED;
}

static uint64_t free_bytes(void)
{
    struct statvfs status;

    ck_assert_int_eq(statvfs(getenv("KVSHM_DIR"), &status), 0);
    return (uint64_t)status.f_bavail * status.f_frsize;
}

/* A dead creator's children end at once, but not before it. */
static bool comes_back(uint64_t bytes)
{
    for (unsigned i = 0; i < 10000 && free_bytes() != bytes; i++)
        usleep(1000);
    return free_bytes() == bytes;
}

/* A creator killed at its n-th call, for all n, or whose child is, leaves no name, or a whole arena. */
static int kill_creators(void *arg)
{
    unsigned n = 1, killed = 0;
    int status = 137;

    child_dies = *(int *)arg != 0;
    if (!own_tmpfs(SMALL_BYTES))
        return UNMOUNTABLE;
    for (; n < 200 && (status != 0 || killed == 0); n++) {
        uint64_t before = free_bytes();

        status = ts_wait(ts_fork(create_and_die, &n));
        ts_need(status == 0 || status == (child_dies ? CHILD_KILLED : 137));
        killed += status != 0;
        if (ts_dir_names() != 0) {
            kvshm *kv;

            ts_need(kvshm_attach("a", NULL, 0, &kv) == 0);
            ts_need(kvshm_detach(kv) == 0);
            ts_need(kvshm_unlink("a", 0) == 0);
        }
        ts_need(comes_back(before));
    }
    ts_need(killed > (child_dies ? 5 : 20));
    return 0;
}

START_TEST(test_killed_creators_leave_nothing)
{
    int status = ts_wait(ts_fork(kill_creators, &_i));

    if (status == UNMOUNTABLE)
        printf("SKIP test_killed_creators_leave_nothing: may not mount a tmpfs\n");
    else
        ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("segment");
    TCase *tcase = tcase_create("segment");

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_built_and_published);
    tcase_add_test(tcase, test_reopened_by_descriptor);
    tcase_add_test(tcase, test_lost_race);
    tcase_add_test(tcase, test_mode_and_group);
    tcase_add_test(tcase, test_group_not_ones_own);
    tcase_add_test(tcase, test_too_little_memory);
    tcase_add_test(tcase, test_space_refused_and_interrupted);
    tcase_add_test(tcase, test_file_size_limit);
    tcase_add_test(tcase, test_no_nameless_files);
    tcase_add_test(tcase, test_creators_take_turns);
    tcase_add_loop_test(tcase, test_killed_creators_leave_nothing, 0, 2);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
