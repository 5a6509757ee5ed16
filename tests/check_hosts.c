/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_hosts.c - clients in namespaces, programs that replace themselves, numbers that a futex cannot tell apart, limits
 *
 * Namespaces need root. Each is made in a child of the test, and goes with it; what is mounted is mounted in a mount
 * namespace of that child's own.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"
#include "inside.h"
#include "sys.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

#define FRAMES 12
#define NOBODY 65534

static struct kvshm_config config;
static char *self; /* this program */

static void setup(void)
{
    ts_setup();
    config = ts_config(IN_PAGE_BYTES, 4, FRAMES);
    config.max_clients = 4;
    config.max_leases = 4;
    config.stall_ms = 20;
}

/* What the processes of a case tell each other. */
static struct shared {
    struct ts_gate ready, go, stay;
    _Atomic(uint64_t) number[2];
    _Atomic(int) pid[2]; /* as the test sees them */
    _Atomic(int) inner_pid[2], inner_tid[2];
    _Atomic(uint64_t) monotonic_ns;
} * shared;

static void share(void)
{
    shared = ts_shared(sizeof(*shared));
    ts_gate_make(&shared->ready);
    ts_gate_make(&shared->go);
    ts_gate_make(&shared->stay);
    /* No program inherits the other end of its standard input. */
    ck_assert_int_eq(fcntl(shared->stay.fd[1], F_SETFD, FD_CLOEXEC), 0);
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    ts_need(fd >= 0);
    ts_need(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

/* All frames can be had, and nothing derived is wrong. */
static void nothing_lost(kvshm *kv)
{
    struct kvshm_reservation all;

    in_audit(kv);
    ts_is(kvshm_clear(kv), 0);
    ts_is(kvshm_reserve(kv, FRAMES, 0, &all), 0);
    in_audit(kv);
    kvshm_cancel(kv, &all);
}

static void needs_root(const char *name)
{
    if (geteuid() != 0)
        printf("SKIP %s: namespaces are made by root alone\n", name);
}

/* ---- PID namespaces ---------------------------------------------------------------------------------------------- */

/* Process 1 of its namespace, thread 1 of it: attaches, leases, and stays, with the writer lock if it is the first. */
static int first_of_namespace(unsigned i)
{
    struct kvshm_prefix prefix = in_range(100, 8);
    struct kvshm_lease lease;
    kvshm *kv;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    shared->inner_pid[i] = getpid();
    shared->inner_tid[i] = (int)syscall(SYS_gettid);
    ts_need(kvshm_attach("a", NULL, 0, &kv) == 0);
    ts_need(kvshm_lookup(kv, &prefix, 0, &lease) == 0);
    shared->number[i] = kv->client;
    if (i == 0)
        atomic_store(&kv->header->lock.word, kv->client);
    ts_gate_open(&shared->ready);
    ts_gate_wait(&shared->go);
    if (i == 1) {
        struct kvshm_reservation r;

        ts_need(kvshm_reserve(kv, 2, 0, &r) == 0);
        kvshm_cancel(kv, &r);
        kvshm_release(kv, &lease);
        ts_need(kvshm_detach(kv) == 0);
    }
    return 0;
}

static int make_namespace(void *arg)
{
    unsigned i = *(unsigned *)arg;
    pid_t pid;
    int status;

    ts_need(unshare(CLONE_NEWPID) == 0);
    pid = fork();
    if (pid == 0)
        _exit(first_of_namespace(i));
    shared->pid[i] = pid;
    ts_need(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Two whose process and thread ids are all 1. One stops with the lock: it is alive. It dies: the other takes over. */
START_TEST(test_pid_namespaces)
{
    struct kvshm_reservation r;
    struct kvshm_stats stats;
    kvshm *kv;
    pid_t makers[2];

    if (geteuid() != 0)
        return needs_root("test_pid_namespaces");
    share();
    kv = ts_create("a", &config);
    in_put(kv, 100, 8);
    for (unsigned i = 0; i < 2; i++) {
        makers[i] = ts_fork(make_namespace, &i);
        ck_assert(ts_gate_wait(&shared->ready));
        ck_assert_int_eq(shared->inner_pid[i], 1);
        ck_assert_int_eq(shared->inner_tid[i], 1);
        ck_assert(kvshm__client_alive(kv, shared->number[i]));
    }
    ck_assert_uint_ne(kv->clients[1].pid_namespace, kv->clients[2].pid_namespace);
    ts_is(kvshm_reserve(kv, 2, 0, &r), KVSHM_E_STALLED);
    ck_assert_int_eq(kill(shared->pid[0], SIGKILL), 0);
    ck_assert_int_eq(ts_wait(makers[0]), 128 + SIGKILL);
    ck_assert(!kvshm__client_alive(kv, shared->number[0]));
    ck_assert(kvshm__client_alive(kv, shared->number[1]));
    ts_gate_open(&shared->go);
    ck_assert_int_eq(ts_wait(makers[1]), 0);
    stats = ts_stats(kv);
    ck_assert_uint_eq(stats.takeovers, 1);
    nothing_lost(kv);
    ts_detach(kv);
}
END_TEST

/* ---- Mount namespaces ----------------------------------------------------------------------------------------------- */

static void own_mounts(void)
{
    ts_need(unshare(CLONE_NEWNS) == 0);
    ts_need(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
}

/* The folder's path leads to another folder from now on, and the arena's to another arena. */
static int other_mounts(void *arg)
{
    const char *dir = getenv("KVSHM_DIR");
    struct kvshm_prefix prefix = in_range(100, 8);
    struct kvshm_info info, other_info;
    kvshm *before, *other;

    (void)arg;
    kvshm_info_init(&info);
    kvshm_info_init(&other_info);
    own_mounts();
    ts_need(kvshm_attach("a", NULL, 0, &before) == 0);
    ts_need(mount("other", dir, "tmpfs", 0, "size=4m") == 0);
    ts_need(kvshm_attach("a", NULL, 0, &other) == -ENOENT);
    ts_need(kvshm_create("a", &config, 0, &other) == 0);
    ts_need(kvshm_info(before, &info) == 0 && kvshm_info(other, &other_info) == 0);
    ts_need(strcmp(info.path, other_info.path) == 0);
    ts_need(info.arena_id[0] != other_info.arena_id[0]);
    ts_need(info.clients == 2 && other_info.clients == 1);
    ts_need(kvshm_contains(before, &prefix) && !kvshm_contains(other, &prefix));
    in_put(before, 200, 8); /* what was attached is written on, whatever its path leads to */
    ts_need(kvshm_unlink("a", 0) == -EBUSY);
    ts_need(kvshm_detach(other) == 0);
    ts_need(kvshm_unlink("a", 0) == 0);
    in_put(before, 300, 8);
    ts_need(kvshm_detach(before) == 0);
    return 0;
}

START_TEST(test_mount_namespaces)
{
    struct kvshm_prefix prefix = in_range(300, 8);
    kvshm *kv;

    if (geteuid() != 0)
        return needs_root("test_mount_namespaces");
    kv = ts_create("a", &config);
    in_put(kv, 100, 8);
    ck_assert_int_eq(ts_wait(ts_fork(other_mounts, NULL)), 0);
    in_hit(kv, &prefix);
    ts_is(kvshm_unlink("a", 0), -EBUSY);
    nothing_lost(kv);
    ts_detach(kv);
}
END_TEST

/* The same folder under another path, as in another container. */
static int bound_elsewhere(void *arg)
{
    struct kvshm_info info;
    struct kvshm_prefix prefix = in_range(100, 8);
    kvshm *kv;

    (void)arg;
    kvshm_info_init(&info);
    own_mounts();
    ts_need(mount(getenv("KVSHM_DIR"), "/mnt", NULL, MS_BIND, NULL) == 0);
    ts_need(setenv("KVSHM_DIR", "/mnt", 1) == 0);
    ts_need(kvshm_attach("a", NULL, 0, &kv) == 0);
    ts_need(kvshm_info(kv, &info) == 0);
    ts_need(strcmp(info.path, "/mnt/a") == 0 && info.clients == 2);
    ts_need(kvshm_contains(kv, &prefix));
    in_put(kv, 200, 8);
    ts_need(kvshm_unlink("a", 0) == -EBUSY);
    ts_need(kvshm_unlink("a", KVSHM_FORCE) == 0);
    ts_need(kvshm_clear(kv) == KVSHM_E_UNLINKED);
    ts_need(kvshm_detach(kv) == 0);
    return 0;
}

START_TEST(test_bind_mounts)
{
    struct kvshm_prefix prefix = in_range(200, 8);
    kvshm *kv;

    if (geteuid() != 0)
        return needs_root("test_bind_mounts");
    kv = ts_create("a", &config);
    in_put(kv, 100, 8);
    ck_assert_int_eq(ts_wait(ts_fork(bound_elsewhere, NULL)), 0);
    ck_assert(kvshm_contains(kv, &prefix));
    ts_is(kvshm_clear(kv), KVSHM_E_UNLINKED);
    ts_detach(kv);
}
END_TEST

/* ---- User namespaces ---------------------------------------------------------------------------------------------------- */

/* Root of a user namespace, who is nobody outside; its folder is under a path that all may pass. */
static void become_root_of_nobody(void)
{
    own_mounts();
    ts_need(mount(getenv("KVSHM_DIR"), "/mnt", NULL, MS_BIND, NULL) == 0);
    ts_need(setenv("KVSHM_DIR", "/mnt", 1) == 0);
    ts_need(unshare(CLONE_NEWUSER) == 0);
    ts_gate_open(&shared->ready);
    ts_need(ts_gate_wait(&shared->go)); /* the maps are written */
    ts_need(setresgid(0, 0, 0) == 0 && setresuid(0, 0, 0) == 0);
}

/* 0600 and 0644 of another user: refused with the mode; 0644 is read; 0660 of our group is shared. */
static int guest_of_user_namespace(void *arg)
{
    struct kvshm_prefix prefix = in_range(100, 8);
    uint8_t bytes[2 * IN_PAGE_BYTES];
    kvshm *kv;

    (void)arg;
    become_root_of_nobody();
    ts_need(getuid() == 0);
    ts_need(kvshm_attach("closed", NULL, 0, &kv) == -EACCES);
    ts_need(strstr(kvshm_errmsg(NULL), "mode 0600") != NULL);
    ts_need(kvshm_attach("closed", NULL, KVSHM_RDONLY, &kv) == -EACCES);
    ts_need(kvshm_attach("read", NULL, 0, &kv) == -EACCES);
    ts_need(strstr(kvshm_errmsg(NULL), "mode 0644; to read and write is asked for, KVSHM_RDONLY") !=
            NULL);
    ts_need(kvshm_attach("read", NULL, KVSHM_RDONLY, &kv) == 0);
    ts_need(kvshm_copy_out(kv, &prefix, 0, 2, bytes) == 2);
    ts_need(kvshm_detach(kv) == 0);
    ts_need(kvshm_attach("group", NULL, 0, &kv) == 0);
    in_put(kv, 200, 8);
    in_hit(kv, &prefix);
    ts_need(kvshm_detach(kv) == 0);
    ts_need(kvshm_unlink("group", 0) == -EACCES || kvshm_unlink("group", 0) == -EBUSY);
    ts_need(kvshm_create("own", &config, 0, &kv) == -EACCES);
    ts_need(strstr(kvshm_errmsg(NULL), "make it writable, or set KVSHM_DIR") != NULL);
    return 0;
}

static kvshm *with_mode(const char *name, uint32_t mode, uint32_t group)
{
    kvshm *kv;

    config.mode = mode;
    config.group = group;
    kv = ts_create(name, &config);
    in_put(kv, 100, 8);
    return kv;
}

START_TEST(test_user_namespaces)
{
    struct kvshm_prefix prefix = in_range(200, 8);
    char path[64];
    kvshm *handles[3];
    pid_t pid;

    if (geteuid() != 0)
        return needs_root("test_user_namespaces");
    share();
    ck_assert_int_eq(chmod(getenv("KVSHM_DIR"), 0755), 0);
    handles[0] = with_mode("closed", 0600, UINT32_MAX);
    handles[1] = with_mode("read", 0644, UINT32_MAX);
    handles[2] = with_mode("group", 0660, NOBODY);
    pid = ts_fork(guest_of_user_namespace, NULL);
    ck_assert(ts_gate_wait(&shared->ready));
    snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
    write_file(path, "0 65534 1");
    snprintf(path, sizeof(path), "/proc/%d/gid_map", pid);
    write_file(path, "0 65534 1");
    ts_gate_open(&shared->go);
    ck_assert_int_eq(ts_wait(pid), 0);
    in_hit(handles[2], &prefix);
    for (unsigned i = 0; i < 3; i++) {
        nothing_lost(handles[i]);
        ts_detach(handles[i]);
    }
}
END_TEST

/* ---- Time namespaces ------------------------------------------------------------------------------------------------------ */

#define SHIFT_S 1000000

/* A million seconds later by the clocks that a time namespace shifts. */
static int guest_of_time_namespace(void *arg)
{
    struct kvshm_prefix first = in_range(100, 4), second = in_range(200, 4);
    struct kvshm_lease lease;
    struct kvshm_reservation r;
    kvshm *kv;

    (void)arg;
    shared->monotonic_ns = kvshm__sys.monotonic_ns();
    ts_need(kvshm_attach("a", NULL, 0, &kv) == 0);
    ts_need(kvshm_lookup(kv, &first, 0, &lease) == 0); /* later than second */
    kvshm_release(kv, &lease);
    ts_gate_open(&shared->ready);
    ts_need(ts_gate_wait(
        &shared->go)); /* second was touched after that; the lock is held by the parent */
    ts_need(kvshm_reserve(kv, 1, 0, &r) == KVSHM_E_STALLED);
    ts_gate_open(&shared->ready);
    ts_need(ts_gate_wait(&shared->go)); /* it is free */
    ts_need(kvshm_evict_lru(kv) == 1);
    ts_need(!kvshm_contains(kv, &first) && kvshm_contains(kv, &second));
    ts_need(kvshm_detach(kv) == 0);
    ts_need(kvshm_create("b", &config, 0, &kv) == 0 && kvshm_detach(kv) == 0);
    return 0;
}

static int make_time_namespace(void *arg)
{
    char offsets[64];

    ts_need(unshare(CLONE_NEWTIME) == 0);
    snprintf(offsets, sizeof(offsets), "monotonic %d 0\nboottime %d 0\n", SHIFT_S, SHIFT_S);
    write_file("/proc/self/timens_offsets", offsets);
    return ts_wait(ts_fork(guest_of_time_namespace, arg));
}

/* Recency is exact between the two: neither stamps nor waiting compare clocks of two namespaces. */
START_TEST(test_time_namespaces)
{
    struct kvshm_prefix second = in_range(200, 4);
    struct kvshm_info info;
    kvshm *kv;
    pid_t pid;

    if (geteuid() != 0)
        return needs_root("test_time_namespaces");
    share();
    kv = ts_create("a", &config);
    in_put(kv, 100, 4);
    in_put(kv, 200, 4);
    pid = ts_fork(make_time_namespace, NULL);
    ck_assert(ts_gate_wait(&shared->ready));
    ck_assert_uint_gt(shared->monotonic_ns,
                      kvshm__sys.monotonic_ns() + UINT64_C(900000) * 1000000000);
    in_hit(kv, &second);
    atomic_store(&kv->header->lock.word, kv->client);
    ts_gate_open(&shared->go);
    ck_assert(ts_gate_wait(&shared->ready));
    atomic_store(&kv->header->lock.word, 0);
    ts_gate_open(&shared->go);
    ck_assert_int_eq(ts_wait(pid), 0);
    kvshm_info_init(&info);
    ts_is(kvshm_info(kv, &info), 0);
    ck_assert_uint_eq(info.clients, 1);
    ts_detach(ts_attach("b", 0));
    nothing_lost(kv);
    ts_detach(kv);
}
END_TEST

/* ---- Other programs -------------------------------------------------------------------------------------------------------- */

/* As "check_hosts fds": has this program inherited a descriptor of the segment, or a mapping? */
static int look_for_segment(void)
{
    char line[1024], path[64];
    FILE *maps = fopen("/proc/self/maps", "re");

    for (int fd = 3; fd < 64; fd++) {
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        n = readlink(path, line, sizeof(line) - 1);
        line[n > 0 ? n : 0] = '\0';
        if (n >= 2 && strcmp(line + n - 2, "/a") == 0)
            return 1;
    }
    while (maps == NULL || fgets(line, sizeof(line), maps) != NULL) {
        if (maps == NULL || strstr(line, "/a\n") != NULL)
            return 2;
    }
    fclose(maps);
    return 0;
}

/* As "check_hosts stay": the program goes on until its standard input ends. */
static int stay(void)
{
    char byte;

    return (int)read(STDIN_FILENO, &byte, 1);
}

static char *const fds_arguments[] = {"check_hosts", "fds", NULL};
static char *const stay_arguments[] = {"check_hosts", "stay", NULL};
extern char **environ;

START_TEST(test_programs_inherit_nothing)
{
    kvshm *kv = ts_create("a", &config), *reader = ts_attach("a", KVSHM_RDONLY);
    pid_t pid;

    ck_assert_int_eq(posix_spawn(&pid, self, NULL, NULL, fds_arguments, environ), 0);
    ck_assert_int_eq(ts_wait(pid), 0);
    pid = vfork();
    if (pid == 0) {
        execv(self, fds_arguments);
        _exit(127);
    }
    ck_assert_int_eq(ts_wait(pid), 0);
    ck_assert(kvshm__client_alive(
        reader, kv->client)); /* a child that shared all is gone, its parent is not */
    pid = fork();
    if (pid == 0) {
        execv(self, fds_arguments);
        _exit(127);
    }
    ck_assert_int_eq(ts_wait(pid), 0);
    in_put(kv, 100, 8);
    ts_detach(reader);
    nothing_lost(kv);
    ts_detach(kv);
}
END_TEST

/* A server that holds a lease and a reservation becomes another program, or starts one by vfork and is killed. */
static int server_of_programs(void *arg)
{
    bool replaces_itself = *(bool *)arg;
    struct kvshm_prefix prefix = in_range(100, 8);
    struct kvshm_reservation r;
    struct kvshm_lease lease;
    kvshm *kv;
    pid_t pid;

    ts_need(kvshm_attach("a", NULL, 0, &kv) == 0);
    ts_need(kvshm_lookup(kv, &prefix, 0, &lease) == 0 && kvshm_reserve(kv, 2, 0, &r) == 0);
    shared->number[0] = kv->client;
    ts_need(dup2(shared->stay.fd[0], STDIN_FILENO) == STDIN_FILENO);
    ts_gate_open(&shared->ready);
    ts_need(ts_gate_wait(&shared->go));
    if (replaces_itself)
        execv(self, stay_arguments);
    ts_need(posix_spawn(&pid, self, NULL, NULL, stay_arguments, environ) == 0);
    shared->pid[1] = pid;
    ts_gate_open(&shared->ready);
    while (true)
        pause();
    return 0;
}

/* What it held goes back while that program goes on. */
START_TEST(test_programs_keep_nobody_alive)
{
    bool replaces_itself = _i;
    kvshm *kv = ts_create("a", &config);
    pid_t pid;

    share();
    in_put(kv, 100, 8);
    pid = ts_fork(server_of_programs, &replaces_itself);
    ck_assert(ts_gate_wait(&shared->ready));
    ck_assert(kvshm__client_alive(kv, shared->number[0]));
    ts_gate_open(&shared->go);
    if (!replaces_itself) {
        ck_assert(ts_gate_wait(&shared->ready));
        ts_kill(pid);
    }
    /* The new program's descriptors are closed one after the other, and vfork's parent goes on before that. */
    for (unsigned i = 0; i < 60000 && (kvshm__client_alive(kv, shared->number[0]) ||
                                       !kvshm__client_quiet(kv, shared->number[0]));
         i++)
        kvshm__sys.sleep_ns(1000000);
    ck_assert(!kvshm__client_alive(kv, shared->number[0]));
    ck_assert(kvshm__client_quiet(kv, shared->number[0]));
    ck_assert_int_eq(kill(replaces_itself ? pid : shared->pid[1], 0), 0);
    ck_assert_int_eq(kvshm_evict_lru(kv), 2); /* no lease of the living holds it */
    nothing_lost(kv);
    if (replaces_itself)
        ts_kill(pid);
    ts_detach(kv);
}
END_TEST

/* ---- Numbers that a futex cannot tell apart ----------------------------------------------------------------------------------- */

/* The next number that is drawn will be this. */
static kvshm *attach_numbered(kvshm *kv, uint64_t number)
{
    kvshm *next;

    atomic_store(&kv->header->next_client, number - 1);
    next = ts_attach("a", 0);
    ck_assert_uint_eq(next->client, number);
    return next;
}

START_TEST(test_numbers_equal_in_the_low_half)
{
    struct kvshm_prefix prefix = in_range(100, 8);
    struct kvshm_reservation r, far_r;
    struct kvshm_lease lease;
    kvshm *kv = ts_create("a", &config), *far;
    uint64_t number;

    in_put(kv, 100, 8);
    far = attach_numbered(kv, kv->client + (UINT64_C(1) << 32));
    number = far->client;
    ck_assert(kvshm__client_alive(kv, number) && kvshm__client_alive(far, kv->client));
    ts_is(kvshm_reserve(kv, 2, 0, &r), 0);
    ts_is(kvshm_reserve(far, 2, 0, &far_r), 0);
    ts_is(kvshm_lookup(far, &prefix, 0, &lease), 0);
    ck_assert_int_eq(kvshm_evict_lru(kv), 0);
    /* The lock of the one is not the other's own. */
    atomic_store(&kv->header->lock.word, number);
    ts_is(kvshm_clear(kv), KVSHM_E_STALLED);
    atomic_store(&kv->header->lock.word, 0);
    kvshm_cancel(far, &far_r);
    kvshm_release(far, &lease);
    ts_detach(far);
    ck_assert(!kvshm__client_alive(kv, number) && kvshm__client_alive(kv, kv->client));
    /* It died with the lock; its frames are not ours, and ours not its. */
    atomic_store(&kv->header->lock.word, number);
    ts_is(in_insert(kv, &prefix, NULL, 0), 0);
    ck_assert_uint_eq(in_counter(kv, KVSHM__CNT_takeovers), 1);
    in_audit(kv);
    ts_is(kvshm_clear(kv), 0);
    ts_is(kvshm_reserve(kv, FRAMES - 1, 0, &far_r), -ENOSPC);
    ts_is(kvshm_reserve(kv, FRAMES - 2, 0, &far_r), 0);
    kvshm_cancel(kv, &far_r);
    kvshm_cancel(kv, &r);
    nothing_lost(kv);
    ts_detach(kv);
}
END_TEST

/* The lock passes from one to the other while a third waits: all that its futex sees is the same. */
static kvshm *near_handle, *far_handle;
static unsigned sleeps;

static int pass_on(void *word, uint32_t expected, uint64_t timeout_ns)
{
    sleeps++;
    ck_assert_uint_le(timeout_ns, 10000000); /* nobody sleeps longer than that, woken or not */
    if (sleeps == 1)
        atomic_store(&near_handle->header->lock.word, far_handle->client);
    else if (sleeps == 2)
        atomic_store(&near_handle->header->lock.word, 0);
    ck_assert_uint_eq(expected, (uint32_t)near_handle->client);
    return kvshm__sys_real.futex_wait(word, expected, timeout_ns);
}

START_TEST(test_lock_passes_between_equal_halves)
{
    static const uint64_t low[] = {
        2, UINT64_C(1) << 32}; /* of the second, all that is seen looks like free */
    struct kvshm_reservation r;
    kvshm *kv;

    config.stall_ms = 60000;
    kv = ts_create("a", &config);
    near_handle = attach_numbered(kv, low[_i]);
    far_handle = attach_numbered(kv, low[_i] + (UINT64_C(5) << 32));
    atomic_store(&kv->header->lock.word, near_handle->client);
    kvshm__sys.futex_wait = pass_on;
    ts_is(kvshm_reserve(kv, 1, 0, &r), 0);
    ts_fail_off();
    ck_assert_uint_eq(sleeps, 2);
    kvshm_cancel(kv, &r);
    ts_detach(near_handle);
    ts_detach(far_handle);
    nothing_lost(kv);
    ts_detach(kv);
}
END_TEST

/* Three at once, two of whom are equal in the low half, write in turns and wait for each other. */
#define TURNS 300

static void *take_turns(void *arg)
{
    kvshm *kv = arg;

    for (unsigned i = 0; i < TURNS; i++) {
        struct kvshm_reservation r;

        if (kvshm_reserve(kv, 2, 0, &r) != 0)
            return (void *)1;
        kvshm_cancel(kv, &r);
    }
    return NULL;
}

START_TEST(test_turns_of_equal_halves)
{
    kvshm *handles[3];
    pthread_t threads[3];
    void *wrong;

    config.stall_ms = 60000;
    handles[0] = ts_create("a", &config);
    handles[1] = attach_numbered(handles[0], 7);
    handles[2] = attach_numbered(handles[0], 7 + (UINT64_C(1) << 32));
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, take_turns, handles[i]), 0);
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(threads[i], &wrong);
        ck_assert_ptr_null(wrong);
    }
    ck_assert_uint_eq(in_counter(handles[0], KVSHM__CNT_takeovers), 0);
    ts_detach(handles[2]);
    ts_detach(handles[1]);
    nothing_lost(handles[0]);
    ts_detach(handles[0]);
}
END_TEST

/* ---- Limits ----------------------------------------------------------------------------------------------------------------------- */

static int labelled_client(void *arg)
{
    struct kvshm_config expect;
    kvshm *kv;

    kvshm_config_init(&expect);
    expect.label = arg;
    ts_need(kvshm_attach("a", &expect, 0, &kv) == 0);
    ts_gate_open(&shared->ready);
    ts_gate_wait(&shared->stay);
    return 0;
}

/* Refused with the names of the living, again and again; nothing is used up or lost by it. */
START_TEST(test_max_clients)
{
    static char *const labels[] = {"gpu-0", "gpu-1", "gpu-2"};
    kvshm *kv = ts_create("a", &config), *more, *last;
    unsigned fds, maps;
    char words[64];
    pid_t pids[3];

    share();
    for (unsigned i = 0; i < 3; i++) {
        pids[i] = ts_fork(labelled_client, labels[i]);
        ck_assert(ts_gate_wait(&shared->ready));
    }
    fds = ts_fds();
    maps = ts_maps();
    for (unsigned round = 0; round < 20; round++) {
        ts_is(kvshm_attach("a", NULL, 0, &more), KVSHM_E_CLIENTS);
        ts_says("all 4 client places are taken");
        ts_says("max_clients");
        for (unsigned i = 0; i < 3; i++) {
            snprintf(words, sizeof(words), "pid %d (%s)", pids[i], labels[i]);
            ts_says(words);
        }
    }
    ck_assert_uint_eq(ts_fds(), fds);
    ck_assert_uint_eq(ts_maps(), maps);
    ck_assert_uint_eq(kvshm__client_count_alive(kv), 4);
    ts_kill(pids[1]);
    more = ts_attach("a", 0);
    ts_is(kvshm_attach("a", NULL, 0, &last), KVSHM_E_CLIENTS);
    ck_assert_ptr_null(strstr(kvshm_errmsg(NULL), "gpu-1"));
    ts_kill(pids[0]);
    ts_kill(pids[2]);
    ts_detach(more);
    nothing_lost(kv);
    ts_detach(kv);
}
END_TEST

START_TEST(test_max_leases)
{
    struct kvshm_prefix prefix = in_range(100, 8);
    struct kvshm_reservation r[5];
    struct kvshm_lease leases[5];
    uint8_t bytes[2 * IN_PAGE_BYTES];
    kvshm *kv = ts_create("a", &config), *other = ts_attach("a", 0);

    in_put(kv, 100, 8);
    for (unsigned i = 0; i < 4; i++) {
        ts_is(kvshm_lookup(kv, &prefix, 0, &leases[i]), 0);
        ts_is(kvshm_reserve(kv, 1, 0, &r[i]), 0);
    }
    for (unsigned round = 0; round < 20; round++) {
        ts_is(kvshm_lookup(kv, &prefix, 0, &leases[4]), KVSHM_E_LEASES);
        ts_says("all 4 lease words");
        ts_is(kvshm_match(kv, &prefix, 0, &leases[4]), KVSHM_E_LEASES);
        ts_is(kvshm_copy_out(kv, &prefix, 0, 2, bytes), KVSHM_E_LEASES);
        ts_is(kvshm_reserve(kv, 1, 0, &r[4]), KVSHM_E_LEASES);
        ts_says("all 4");
        ck_assert_ptr_null(leases[4].kv);
        ck_assert_ptr_null(r[4].kv);
    }
    in_hit(other, &prefix); /* the limit is each client's own */
    in_audit(kv);
    kvshm_release(kv, &leases[2]);
    ts_is(kvshm_lookup(kv, &prefix, 0, &leases[2]), 0);
    for (unsigned i = 0; i < 4; i++) {
        kvshm_release(kv, &leases[i]);
        kvshm_cancel(kv, &r[i]);
    }
    ts_is(kvshm_reserve(kv, 1, 0, &r[0]), 0);
    kvshm_cancel(kv, &r[0]);
    ts_detach(other);
    nothing_lost(kv);
    ts_detach(kv);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite;
    TCase *tcase;

    if (argc == 2)
        return strcmp(argv[1], "fds") == 0 ? look_for_segment() : stay();
    suite = suite_create("hosts");
    tcase = tcase_create("hosts");
    self = realpath("/proc/self/exe", NULL);
    tcase_add_checked_fixture(tcase, setup, ts_teardown);
    tcase_add_test(tcase, test_pid_namespaces);
    tcase_add_test(tcase, test_mount_namespaces);
    tcase_add_test(tcase, test_bind_mounts);
    tcase_add_test(tcase, test_user_namespaces);
    tcase_add_test(tcase, test_time_namespaces);
    tcase_add_test(tcase, test_programs_inherit_nothing);
    tcase_add_loop_test(tcase, test_programs_keep_nobody_alive, 0, 2);
    tcase_add_test(tcase, test_numbers_equal_in_the_low_half);
    tcase_add_loop_test(tcase, test_lock_passes_between_equal_halves, 0, 2);
    tcase_add_test(tcase, test_turns_of_equal_halves);
    tcase_add_test(tcase, test_max_clients);
    tcase_add_test(tcase, test_max_leases);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
