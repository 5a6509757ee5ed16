/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_populate.c - memory is taken by child processes, whatever becomes of them and whatever the host is like
 *
 * The children run the replaced system calls of the test as well; what they see they leave in shared memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "populate.h"
#include "support.h"
#include "sys.h"

#define MIB         (UINT64_C(1) << 20)
#define UNMOUNTABLE 77

/* What the children saw. */
static struct {
    _Atomic unsigned pieces; /* of space */
    _Atomic int pid;         /* of one of them */
    _Atomic int descriptors;
    _Atomic int oom_score;
    _Atomic int blocked; /* SIGTERM and SIGUSR1 */
} * seen;

static pid_t host;

static void setup(void)
{
    ts_setup();
    seen = ts_shared(sizeof(*seen));
    host = getpid();
}

static struct kvshm__plan plan_of(uint64_t bytes)
{
    return (struct kvshm__plan){.segment_bytes = bytes, .frames = 7, .page_size = 4096};
}

static int nameless(void)
{
    int fd = open(getenv("KVSHM_DIR"), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

    ck_assert_int_ge(fd, 0);
    return fd;
}

static int populate(int fd, uint64_t bytes)
{
    struct kvshm__plan plan = plan_of(bytes);
    struct kvshm__populate request = {.fd = fd, .plan = &plan, .path = "/x/a"};

    return kvshm__populate(&request);
}

/* All of its bytes are there, and zero. */
static void is_whole(int fd, uint64_t bytes)
{
    struct stat status;
    const uint64_t *words;

    ck_assert_int_eq(fstat(fd, &status), 0);
    ck_assert_uint_eq((uint64_t)status.st_size, bytes);
    ck_assert_uint_ge((uint64_t)status.st_blocks * 512, bytes);
    words = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    ck_assert(words != MAP_FAILED);
    for (uint64_t i = 0; i < bytes / 8; i += 64)
        ck_assert_uint_eq(words[i], 0);
    munmap((void *)words, bytes);
}

/* No child is left, dead or alive. */
static void is_alone(void)
{
    ck_assert_int_eq(waitpid(-1, NULL, __WALL | WNOHANG), -1);
    ck_assert_int_eq(errno, ECHILD);
}

static int three_cpus(void)
{
    return 3;
}

START_TEST(test_sizes)
{
    static const uint64_t sizes[] = {4096, 32 * MIB - 4096, 32 * MIB, 32 * MIB + 4096, 66 * MIB};
    unsigned fds = ts_fds(), maps = ts_maps();

    for (unsigned i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
        int fd = nameless();

        kvshm__sys.cpus = i % 2 == 0 ? kvshm__sys_real.cpus : three_cpus;
        ts_is(populate(fd, sizes[i / 2]), 0);
        is_whole(fd, sizes[i / 2]);
        is_alone();
        close(fd);
    }
    ck_assert_uint_eq(ts_fds(), fds);
    ck_assert_uint_eq(ts_maps(), maps);
}
END_TEST

/* Kernels that cannot fault in a range at once. */
static int old_advise(void *address, uint64_t size, int advice)
{
    return advice == 23 ? -EINVAL : kvshm__sys_real.advise(address, size, advice);
}

static int no_space_but_size(int fd, uint64_t offset, uint64_t length)
{
    (void)fd;
    (void)offset;
    (void)length;
    seen->pieces++;
    return 0;
}

/* The children touch each page themselves: the file has all of them, though nothing else took them. */
START_TEST(test_touching)
{
    int fd = nameless();

    kvshm__sys.advise = old_advise;
    kvshm__sys.space = no_space_but_size;
    ts_is(populate(fd, 40 * MIB), 0);
    is_whole(fd, 40 * MIB);
    ck_assert_uint_eq(seen->pieces, 2);
    close(fd);
}
END_TEST

static int count_space(int fd, uint64_t offset, uint64_t length)
{
    seen->pieces++;
    return kvshm__sys_real.space(fd, offset, length);
}

static int say_disk(int fd, struct statfs *out)
{
    int code = kvshm__sys_real.fstatfs(fd, out);

    out->f_type = EXT4_SUPER_MAGIC;
    return code;
}

static int no_map_of_files(uint64_t size, int protection, int flags, int fd, void **out)
{
    ck_assert_int_lt(fd, 0);
    return kvshm__sys_real.map(size, protection, flags, fd, out);
}

/* A file on a disk gets its space, and is not mapped. */
START_TEST(test_disk)
{
    int fd = nameless();

    kvshm__sys.fstatfs = say_disk;
    kvshm__sys.map = no_map_of_files;
    kvshm__sys.space = count_space;
    ts_is(populate(fd, 40 * MIB), 0);
    is_whole(fd, 40 * MIB);
    ck_assert_uint_eq(seen->pieces, 2);
    close(fd);
}
END_TEST

/* ---- The child --------------------------------------------------------------------------------------- */

static int number_in(const char *path)
{
    char text[32] = "";
    int fd = open(path, O_RDONLY);

    if (read(fd, text, sizeof(text) - 1) < 0)
        text[0] = '\0';
    close(fd);
    return atoi(text);
}

static int look_around(int fd, uint64_t offset, uint64_t length)
{
    sigset_t mask;

    if (getpid() == host)
        return -EXDEV; /* not by the host */
    sigprocmask(SIG_SETMASK, NULL, &mask);
    seen->blocked = sigismember(&mask, SIGTERM) && sigismember(&mask, SIGUSR1);
    seen->oom_score = number_in("/proc/self/oom_score_adj");
    seen->descriptors = (int)ts_fds() - 1; /* but the one that counts */
    seen->pid = getpid();
    return kvshm__sys_real.space(fd, offset, length);
}

START_TEST(test_what_a_child_is)
{
    int others[2], fd = nameless();
    sigset_t before, after;

    ck_assert_int_eq(pipe(others), 0);
    sigprocmask(SIG_SETMASK, NULL, &before);
    kvshm__sys.space = look_around;
    ts_is(populate(fd, MIB), 0);
    ck_assert_int_ne(seen->pid, host);
    ck_assert_int_eq(seen->oom_score, 1000);
    ck_assert_int_eq(seen->descriptors, 1);
    ck_assert_int_eq(seen->blocked, 1);
    sigprocmask(SIG_SETMASK, NULL, &after);
    for (int signal = 1; signal < 32; signal++)
        ck_assert_int_eq(sigismember(&before, signal), sigismember(&after, signal));
    ck_assert_int_eq(number_in("/proc/self/oom_score_adj") == 1000, false);
    close(fd);
}
END_TEST

/* Dies at its third piece, while others are at theirs. */
static int die(int fd, uint64_t offset, uint64_t length)
{
    if (++seen->pieces == 3)
        kill(getpid(), SIGKILL);
    return kvshm__sys_real.space(fd, offset, length);
}

static int die_by_store(void *address, uint64_t size, int advice)
{
    char none[] = "/dev/shm/kvshm-none.XXXXXX";
    int fd;

    if (advice != 23 || getpid() == host)
        return kvshm__sys_real.advise(address, size, advice);
    fd = mkstemp(none);
    unlink(none);
    *(volatile char *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) = 1; /* SIGBUS */
    return 0;
}

static void refused(int code, const char *says, const char *also)
{
    struct kvshm_config config = ts_config(65536, 64, 0);
    unsigned fds = ts_fds();
    kvshm *kv;

    config.memory_bytes = 100 * MIB;
    config.backing = KVSHM_BACKING_SMALL;
    ts_is(kvshm_create("a", &config, 0, &kv), code);
    ts_says(says);
    ts_says(also);
    ck_assert_uint_eq(ts_dir_names(), 0);
    ck_assert_uint_eq(ts_fds(), fds);
    is_alone();
    kvshm__sys = kvshm__sys_real;
    config.memory_bytes = 8 * MIB;
    ts_is(kvshm_create("a", &config, 0, &kv), 0);
    ts_detach(kv);
    ts_is(kvshm_unlink("a", 0), 0);
}

START_TEST(test_a_child_is_killed)
{
    kvshm__sys.cpus = three_cpus;
    kvshm__sys.space = die;
    refused(-ENOMEM, "was killed by signal 9 at ", ", by the OOM killer if nobody else did it");
    kvshm__sys.cpus = three_cpus;
    kvshm__sys.advise = die_by_store;
    refused(-ENOMEM, "was ended by SIGBUS at 0 of ", "ask for less (config.frames");
}
END_TEST

static int no_child(void)
{
    return -EAGAIN;
}

static int second_piece_fails(int fd, uint64_t offset, uint64_t length)
{
    if (++seen->pieces == 2)
        return -EDQUOT;
    return kvshm__sys_real.space(fd, offset, length);
}

static int no_more_memory(void *address, uint64_t size, int advice)
{
    return advice == 23 ? -EFAULT : kvshm__sys_real.advise(address, size, advice);
}

START_TEST(test_a_child_is_refused)
{
    kvshm__sys.child = no_child;
    refused(-EAGAIN, "Resource temporarily unavailable", "raise the limit of processes (ulimit -u, pids.max");
    kvshm__sys.cpus = three_cpus;
    kvshm__sys.space = second_piece_fails;
    refused(-EDQUOT, "space of ", "Disk quota exceeded");
    kvshm__sys.advise = no_more_memory; /* a SIGBUS for who stores */
    refused(-ENOSPC, "and its file system has ", "ask for less");
}
END_TEST

/* ---- The host ---------------------------------------------------------------------------------------- */

static _Atomic unsigned handled;
static bool handlers_ran;

static void count_signal(int signal)
{
    (void)signal;
    handled++;
}

static void fork_handler(void)
{
    handlers_ran = true;
}

/* SIGCHLD ignored, never waited for, or handled: nothing of it is touched. */
START_TEST(test_hosts_with_children)
{
    const struct sigaction actions[] = {{.sa_handler = SIG_IGN},
                                        {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT},
                                        {.sa_handler = count_signal}};

    pthread_atfork(fork_handler, fork_handler, fork_handler);
    for (unsigned i = 0; i < 3; i++) {
        int fd = nameless();

        sigaction(SIGCHLD, &actions[i], NULL);
        ts_is(populate(fd, 40 * MIB), 0);
        is_whole(fd, 40 * MIB);
        close(fd);
        is_alone();
    }
    ck_assert_uint_eq(handled, 0);
    ck_assert(!handlers_ran);
}
END_TEST

static _Atomic bool stop;
static _Atomic unsigned taken; /* children that somebody else waited for */

static void *work_hard(void *arg)
{
    (void)arg;
    while (!stop) {
        free(malloc(100 + handled % 5000));
        if (waitpid(-1, NULL, WNOHANG) > 0)
            taken++;
    }
    return NULL;
}

/* Threads that allocate and wait for any child. */
START_TEST(test_hosts_with_threads)
{
    pthread_t threads[3];

    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work_hard, NULL), 0);
    for (unsigned i = 0; i < ts_amount(10, 20, 2000); i++) {
        int fd = nameless();

        ts_is(populate(fd, MIB), 0);
        close(fd);
    }
    stop = true;
    for (unsigned i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(taken, 0);
}
END_TEST

static struct ts_gate *taking;

/* Shows that it is at work, and is. */
static int take_long(int fd, uint64_t offset, uint64_t length)
{
    seen->pid = getpid();
    ts_gate_open(taking);
    sleep(1000);
    return kvshm__sys_real.space(fd, offset, length);
}

static int create_for_long(void *arg)
{
    struct kvshm_config config = ts_config(65536, 64, 100);
    kvshm *kv;

    (void)arg;
    kvshm__sys.space = take_long;
    return kvshm_create("a", &config, 0, &kv);
}

static int keep_all(int fd)
{
    return fd < 0;
}

/* A creator that is killed takes its children with it. */
START_TEST(test_creator_dies)
{
    struct ts_gate gate;
    pid_t creator;

    ts_gate_make(&gate);
    taking = &gate;
    kvshm__sys.keep_only = keep_all; /* for the gate */
    creator = ts_fork(create_for_long, NULL);
    ck_assert(ts_gate_wait(&gate));
    ck_assert_int_ne(seen->pid, creator);
    ts_kill(creator);
    for (unsigned i = 0; i < 10000 && kill(seen->pid, 0) == 0; i++)
        usleep(1000);
    ck_assert_int_eq(kill(seen->pid, 0), -1);
    ck_assert_uint_eq(ts_dir_names(), 0);
}
END_TEST

/* ---- Progress ---------------------------------------------------------------------------------------- */

static uint64_t shown_bytes;
static unsigned shown;
static bool went_back;

static void watch(uint64_t done_bytes, uint64_t all_bytes)
{
    ck_assert_uint_eq(all_bytes, 66 * MIB);
    went_back = went_back || done_bytes < shown_bytes;
    shown_bytes = done_bytes;
    shown++;
}

static int take_slowly(int fd, uint64_t offset, uint64_t length)
{
    usleep(60000);
    return kvshm__sys_real.space(fd, offset, length);
}

START_TEST(test_progress)
{
    int fd = nameless();

    kvshm__populate_watch = watch;
    kvshm__sys.space = take_slowly;
    ts_is(populate(fd, 66 * MIB), 0);
    ck_assert_uint_eq(shown_bytes, 66 * MIB);
    ck_assert(!went_back);
    ck_assert_uint_ge(shown, 2);
    close(fd);
}
END_TEST

/* ---- A full disk ------------------------------------------------------------------------------------- */

static bool mount_disk(const char *image)
{
    char command[600];

    snprintf(command, sizeof(command), "mke2fs -q -F -t ext4 %s 24M >/dev/null 2>&1 && mount -o loop %s %s 2>/dev/null",
             image, image, getenv("KVSHM_DIR"));
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           system(command) == 0;
}

static int on_a_disk(void *arg)
{
    struct kvshm_config config = ts_config(4096, 64, 0);
    struct statvfs before, after;
    char name[300];
    kvshm *kv;
    int fd;

    if (!mount_disk(arg))
        return UNMOUNTABLE;
    ts_need(statvfs(getenv("KVSHM_DIR"), &before) == 0);
    config.max_leases = 16;
    config.memory_bytes = 8 * MIB;
    ts_need(kvshm_create("a", &config, KVSHM_POPULATE, &kv) == 0);
    for (uint32_t i = 0; i < 500; i++)
        ts_insert(kv, i, 0, (uint32_t[]){i}, 1);
    ts_need(kvshm_detach(kv) == 0 && kvshm_unlink("a", 0) == 0);
    snprintf(name, sizeof(name), "%s/full", getenv("KVSHM_DIR"));
    fd = open(name, O_RDWR | O_CREAT, 0600);
    ts_need(posix_fallocate(fd, 0, (off_t)(before.f_bavail * before.f_frsize - 4 * MIB)) == 0);
    close(fd);
    ts_need(statvfs(getenv("KVSHM_DIR"), &before) == 0);
    ts_need(kvshm_create("a", &config, 0, &kv) == -ENOSPC);
    ts_need(strstr(kvshm_errmsg(NULL), "and its file system has ") != NULL);
    config.numa = KVSHM_NUMA_NODE(0);
    config.memory_bytes = 3 * MIB;
    ts_need(kvshm_create("a", &config, 0, &kv) == -EOPNOTSUPP);
    ts_need(strstr(kvshm_errmsg(NULL), "is on a disk") != NULL);
    ts_need(statvfs(getenv("KVSHM_DIR"), &after) == 0 && after.f_bavail == before.f_bavail);
    return 0;
}

START_TEST(test_full_disk)
{
    char image[] = "/tmp/kvshm-disk.XXXXXX";
    int fd, status;

    if (geteuid() != 0) {
        printf("SKIP test_full_disk: may not mount a disk\n");
        return;
    }
    fd = mkstemp(image);
    ck_assert_int_ge(fd, 0);
    close(fd);
    status = ts_wait(ts_fork(on_a_disk, image));
    unlink(image);
    if (status == UNMOUNTABLE)
        printf("SKIP test_full_disk: may not mount a disk\n");
    else
        ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("populate");
    TCase *tcase = tcase_create("populate");

    tcase_add_checked_fixture(tcase, setup, ts_teardown);
    tcase_add_test(tcase, test_sizes);
    tcase_add_test(tcase, test_touching);
    tcase_add_test(tcase, test_disk);
    tcase_add_test(tcase, test_what_a_child_is);
    tcase_add_test(tcase, test_a_child_is_killed);
    tcase_add_test(tcase, test_a_child_is_refused);
    tcase_add_test(tcase, test_hosts_with_children);
    tcase_add_test(tcase, test_hosts_with_threads);
    tcase_add_test(tcase, test_creator_dies);
    tcase_add_test(tcase, test_progress);
    tcase_add_test(tcase, test_full_disk);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
