/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.c - settings of the whole host that a test changes.
 *
 * Tests of all runs on a host exclude one another by flock on the kernel's directory of pools. Who waits for the end of
 * the test to put the settings back is a child in a session of its own, at the other end of a pipe: it reads the end of
 * file that comes when the test has ended, and has the lock until it is done, since it shares the description.
 */
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

#define POOLS "/sys/kernel/mm/hugepages"

static const unsigned sizes_kib[] = {2048, 1048576};
static const char *const names[] = {"nr_hugepages", "nr_overcommit_hugepages"};
#define SIZES 2
#define NAMES 2

static int keeper_pipe = -1, lock_fd = -1;
static pid_t keeper;

static const char *pool_path(unsigned page_kib, const char *name)
{
    static char path[128];

    snprintf(path, sizeof(path), POOLS "/hugepages-%ukB/%s", page_kib, name);
    return path;
}

static bool get(unsigned page_kib, const char *name, uint64_t *value)
{
    char text[32] = "";
    int fd = open(pool_path(page_kib, name), O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (fd >= 0)
        close(fd);
    *value = strtoull(text, NULL, 10);
    return length > 0;
}

static bool write_number(const char *path, uint64_t value)
{
    char text[32];
    int length = snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, text, (size_t)length) == length;

    if (fd >= 0)
        close(fd);
    return done;
}

static bool set(unsigned page_kib, const char *name, uint64_t value)
{
    return write_number(pool_path(page_kib, name), value);
}

/* Caches of files lie across what could be one page, most of all after days of work; what is dropped is read again. */
static void gather_free_memory(void)
{
    write_number("/proc/sys/vm/drop_caches", 3);
    write_number("/proc/sys/vm/compact_memory", 1);
}

static void keep(int end_of_test, uint64_t before[SIZES][NAMES])
{
    char byte;

    setsid();
    prctl(PR_SET_NAME, "kvshm-keeper");
    for (int s = 1; s < NSIG; s++)
        signal(s, SIG_IGN);
    for (int fd = 3; fd < 1024; fd++) {
        if (fd != end_of_test && fd != lock_fd)
            close(fd);
    }
    while (read(end_of_test, &byte, 1) < 0 && errno == EINTR)
        ;
    for (unsigned i = 0; i < SIZES; i++) {
        for (unsigned j = 0; j < NAMES; j++)
            set(sizes_kib[i], names[j], before[i][j]);
    }
    _exit(0);
}

bool host_take(void)
{
    uint64_t before[SIZES][NAMES] = {{0}};
    int ends[2];

    lock_fd = open(POOLS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock_fd < 0 || access(pool_path(2048, names[0]), W_OK) != 0 || geteuid() != 0)
        return false;
    ck_assert_int_eq(flock(lock_fd, LOCK_EX), 0);
    for (unsigned i = 0; i < SIZES; i++) {
        for (unsigned j = 0; j < NAMES; j++)
            get(sizes_kib[i], names[j], &before[i][j]);
    }
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    keeper = fork();
    ck_assert_int_ge(keeper, 0);
    if (keeper == 0) {
        close(ends[1]);
        keep(ends[0], before);
    }
    close(ends[0]);
    keeper_pipe = ends[1];
    return true;
}

void host_give(void)
{
    close(keeper_pipe);
    waitpid(keeper, NULL, 0);
    close(lock_fd);
    keeper_pipe = lock_fd = -1;
}

uint64_t host_pool_free(unsigned page_kib)
{
    uint64_t unused, promised;

    if (!get(page_kib, "free_hugepages", &unused) || !get(page_kib, "resv_hugepages", &promised))
        return UINT64_MAX;
    return unused - promised;
}

uint64_t host_pool_all(unsigned page_kib)
{
    uint64_t all = 0, surplus = 0, surplus_max = 0;

    get(page_kib, names[0], &all);
    get(page_kib, "surplus_hugepages", &surplus);
    get(page_kib, names[1], &surplus_max);
    return all - surplus + surplus_max;
}

uint64_t host_pool_set(unsigned page_kib, uint64_t pages)
{
    uint64_t all;

    if (!get(page_kib, names[0], &all))
        return UINT64_MAX;
    all += pages - host_pool_free(page_kib);
    set(page_kib, names[0], all);
    if (host_pool_free(page_kib) < pages) {
        gather_free_memory();
        set(page_kib, names[0], all);
    }
    return host_pool_free(page_kib);
}

void host_pool_overcommit(unsigned page_kib, uint64_t pages)
{
    set(page_kib, names[1], pages);
}

/* All mounts of hugetlbfs that were there when the table was read. */
static void unmount_hugetlbfs(void)
{
    char line[4096], point[4096], *type;
    FILE *table = fopen("/proc/self/mountinfo", "r");

    ts_need(table != NULL);
    while (fgets(line, sizeof(line), table) != NULL) {
        type = strstr(line, " - hugetlbfs ");
        if (type != NULL && sscanf(line, "%*s %*s %*s %*s %4095s", point) == 1)
            umount2(point, MNT_DETACH);
    }
    fclose(table);
}

void host_alone(const char *options)
{
    ts_need(unshare(CLONE_NEWNS) == 0);
    ts_need(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    unmount_hugetlbfs();
    ts_need(mount("kvshm", "/dev/shm", "tmpfs", 0, options) == 0);
    unsetenv("KVSHM_DIR");
}
