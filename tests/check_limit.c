/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_limit.c - how much memory may be taken: cgroups of hosts that are not this one, and of this one
 *
 * What other hosts have in /proc and /sys is said by a table of files. What this one has is tried in cgroups of the test's
 * own, which are removed again.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "limit.h"
#include "mounts.h"
#include "support.h"
#include "sys.h"

#define MIB           (UINT64_C(1) << 20)
#define UNMOUNTABLE   77
#define HUGETLB_MAGIC 0x958458f6

/* ---- Other hosts ------------------------------------------------------------------------------------- */

struct file {
    const char *path, *text;
};

static const struct file *files; /* the last has no path */

static int open_text(const char *text)
{
    int fd = open(getenv("KVSHM_DIR"), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    return fd;
}

static int say_open(const char *path, int flags, unsigned mode)
{
    for (const struct file *file = files; file->path != NULL; file++) {
        if (strcmp(file->path, path) == 0)
            return open_text(file->text);
    }
    if (strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/sys/", 5) == 0)
        return -ENOENT;
    return kvshm__sys_real.open(path, flags, mode);
}

static int say_hugetlbfs(int fd, struct statfs *out)
{
    int code = kvshm__sys_real.fstatfs(fd, out);

    out->f_type = (__typeof__(out->f_type))HUGETLB_MAGIC;
    return code;
}

static int say_disk(int fd, struct statfs *out)
{
    int code = kvshm__sys_real.fstatfs(fd, out);

    out->f_type = EXT4_SUPER_MAGIC;
    return code;
}

/* May a file of so many bytes be made, where these files are? */
static int check(const struct file *host, uint64_t bytes, uint32_t page_size)
{
    struct kvshm__plan plan = {.segment_bytes = bytes, .frames = 5, .page_size = page_size};
    int fd = open(getenv("KVSHM_DIR"), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    int code;

    files = host;
    kvshm__sys.open = say_open;
    code = kvshm__limit_check(fd, &plan, "/x/a");
    close(fd);
    return code;
}

#define CGROUP2 "35 31 0:32 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
#define PROCESS "/proc/self/cgroup"
#define MOUNTS  "/proc/self/mountinfo"

START_TEST(test_version_2)
{
    const struct file host[] = {
        {PROCESS, "0::/a/b\n"},
        {MOUNTS, "22 27 0:21 / /proc rw - proc proc rw\n" CGROUP2},
        {"/sys/fs/cgroup/a/b/memory.max", "max\n"},
        {"/sys/fs/cgroup/a/b/memory.current", "4096\n"},
        {"/sys/fs/cgroup/a/memory.max", "67108864\n"},
        {"/sys/fs/cgroup/a/memory.current", "50000000\n"},
        {"/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 20000000\nactive_file 10000000\n"},
        {NULL, NULL},
    };

    ts_is(check(host, 40 * MIB, 4096), 0); /* with what is page cache */
    ts_is(check(host, 45 * MIB, 4096), -ENOSPC);
    ts_says("/x/a needs 48");
    ts_says("the cgroup's limit is 67108864 (/sys/fs/cgroup/a/memory.max), of which 50000000 are in use "
            "and 30000000 of those could be given up; raise that limit");
    kvshm__sys.fstatfs = say_disk;
    ts_is(check(host, 45 * MIB, 4096), 0);
}
END_TEST

/* A container sees its own group only, at the mount point; without a root of its own, below it. */
START_TEST(test_containers)
{
    const struct file own[] = {
        {PROCESS, "0::/a/b\n"},
        {MOUNTS, "35 31 0:32 /a/b /sys/fs/cgroup rw shared:5 master:1 - cgroup2 cgroup2 rw\n"},
        {"/sys/fs/cgroup/memory.max", "1048576\n"},
        {"/sys/fs/cgroup/memory.current", "0\n"},
        {NULL, NULL},
    };
    const struct file other[] = {
        {PROCESS, "0::/a/bc\n"},
        {MOUNTS, "35 31 0:32 /a/b /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"},
        {"/sys/fs/cgroup/memory.max", "1048576\n"},
        {"/sys/fs/cgroup/memory.current", "0\n"},
        {"/sys/fs/cgroupc/memory.max", "1048576\n"},
        {"/sys/fs/cgroupc/memory.current", "0\n"},
        {NULL, NULL},
    };
    const struct file outside[] = {
        {PROCESS, "0::/../x\n"},
        {MOUNTS, CGROUP2},
        {"/sys/fs/cgroup/memory.max", "1048576\n"},
        {"/sys/fs/cgroup/memory.current", "0\n"},
        {NULL, NULL},
    };
    const struct file nothing[] = {{NULL, NULL}};

    ts_is(check(own, 2 * MIB, 4096), -ENOSPC);
    ts_says("(/sys/fs/cgroup/memory.max)");
    ts_is(check(other, 2 * MIB, 4096), 0); /* it is not ours */
    ts_is(check(outside, 2 * MIB, 4096), 0);
    ts_is(check(nothing, 2 * MIB, 4096), 0);
}
END_TEST

/* Of several mounts the one that shows most; blanks in its path. */
START_TEST(test_version_1)
{
    const struct file host[] = {
        {PROCESS, "9:name=systemd:/\n4:memory:/x/y\n3:cpu,hugetlb:/h\n0::/z\n"},
        {MOUNTS, "35 31 0:32 /x /sys/fs/part rw - cgroup cgroup rw,memory\n"
                 "36 31 0:32 / /sys/fs/c\\040g rw - cgroup cgroup rw,memory\n"
                 "37 31 0:33 / /sys/fs/h rw - cgroup cgroup rw,cpu,hugetlb\n" CGROUP2},
        {"/sys/fs/c g/x/y/memory.limit_in_bytes", "9223372036854771712\n"},
        {"/sys/fs/c g/x/y/memory.usage_in_bytes", "1\n"},
        {"/sys/fs/c g/x/memory.limit_in_bytes", "9223372036854771712\n"},
        {"/sys/fs/c g/x/memory.usage_in_bytes", "1\n"},
        {"/sys/fs/c g/memory.limit_in_bytes", "33554432\n"},
        {"/sys/fs/c g/memory.usage_in_bytes", "10485760\n"},
        {"/sys/fs/c g/memory.stat", "total_inactive_file 1048576\ntotal_active_file 0\n"},
        {"/sys/fs/h/h/hugetlb.2MB.limit_in_bytes", "8388608\n"},
        {"/sys/fs/h/h/hugetlb.2MB.usage_in_bytes", "2097152\n"},
        {"/sys/fs/h/h/hugetlb.1GB.limit_in_bytes", "0\n"},
        {"/sys/fs/h/h/hugetlb.1GB.usage_in_bytes", "0\n"},
        {"/sys/fs/h/hugetlb.64KB.rsvd.limit_in_bytes", "131072\n"},
        {"/sys/fs/h/hugetlb.64KB.rsvd.usage_in_bytes", "65536\n"},
        {"/sys/fs/cgroup/z/memory.max", "1\n"}, /* the controller is in the other tree */
        {"/sys/fs/cgroup/z/memory.current", "0\n"},
        {NULL, NULL},
    };

    ts_is(check(host, 20 * MIB, 4096), 0);
    ts_is(check(host, 23 * MIB, 4096), -ENOSPC);
    ts_says("33554432 (/sys/fs/c g/memory.limit_in_bytes), of which 10485760 are in use and 1048576");
    kvshm__sys.fstatfs = say_hugetlbfs;
    ts_is(check(host, 6 * MIB, 2 * MIB), 0);
    ts_is(check(host, 8 * MIB, 2 * MIB), -ENOSPC);
    ts_says("/x/a needs 8388608 bytes of hugepages, and the cgroup's limit is 8388608 "
            "(/sys/fs/h/h/hugetlb.2MB.limit_in_bytes), of which 2097152 are in use");
    ts_is(check(host, MIB << 10, 1 << 30), -ENOSPC);
    ts_says("hugetlb.1GB.limit_in_bytes");
    ts_is(check(host, 65536, 65536), 0);
    ts_is(check(host, 131072, 65536), -ENOSPC);
    ts_says("(/sys/fs/h/hugetlb.64KB.rsvd.limit_in_bytes)");
}
END_TEST

START_TEST(test_hugetlb_of_version_2)
{
    const struct file host[] = {
        {PROCESS, "0::/a\n"},
        {MOUNTS, CGROUP2},
        {"/sys/fs/cgroup/a/hugetlb.2MB.max", "max\n"},
        {"/sys/fs/cgroup/a/hugetlb.2MB.current", "0\n"},
        {"/sys/fs/cgroup/a/hugetlb.2MB.rsvd.max", "4194304\n"},
        {"/sys/fs/cgroup/a/hugetlb.2MB.rsvd.current", "2097152\n"},
        {"/sys/fs/cgroup/a/memory.max", "1\n"}, /* of other memory */
        {"/sys/fs/cgroup/a/memory.current", "1\n"},
        {NULL, NULL},
    };

    kvshm__sys.fstatfs = say_hugetlbfs;
    ts_is(check(host, 2 * MIB, 2 * MIB), 0);
    ts_is(check(host, 4 * MIB, 2 * MIB), -ENOSPC);
    ts_says("(/sys/fs/cgroup/a/hugetlb.2MB.rsvd.max), of which 2097152 are in use");
}
END_TEST

/* Files that make no sense limit nothing. */
START_TEST(test_what_makes_no_sense)
{
    const struct file host[] = {
        {PROCESS, "\n:\nnonsense\n0:memory\n0::/a\n"},
        {MOUNTS, "\n1 2\n - cgroup2\n" CGROUP2},
        {"/sys/fs/cgroup/a/memory.max", "-5\n"},
        {"/sys/fs/cgroup/a/memory.current", "0\n"},
        {"/sys/fs/cgroup/memory.max", ""},
        {"/sys/fs/cgroup/memory.current", "0\n"},
        {NULL, NULL},
    };

    ts_is(check(host, 4 * MIB, 4096), 0);
}
END_TEST

START_TEST(test_memory_of_the_host)
{
    const struct file host[] = {
        {"/proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   20480 kB\nSwapFree: 1024 kB\n"},
        {NULL, NULL},
    };

    ts_is(check(host, 19 * MIB, 4096), 0);
    ts_is(check(host, 21 * MIB, 4096), -ENOSPC);
    ts_says("the system has 22020096 left (MemAvailable and SwapFree of /proc/meminfo); ask for less");
    kvshm__sys.fstatfs = say_hugetlbfs;
    ts_is(check(host, 22 * MIB, 2 * MIB), 0);
}
END_TEST

START_TEST(test_page_tables)
{
    const struct file host[] = {
        {PROCESS, "0::/\n"},
        {MOUNTS, CGROUP2},
        {"/sys/fs/cgroup/memory.max", "8388608\n"},
        {"/sys/fs/cgroup/memory.current", "1048576\n"},
        {"/sys/fs/cgroup/memory.high", "1000000\n"},
        {NULL, NULL},
    };
    char note[512];

    ck_assert_uint_eq(kvshm__limit_table_bytes(1, 4096), 4096);
    ck_assert_uint_eq(kvshm__limit_table_bytes(MIB << 10, 4096), 2 * MIB);
    ck_assert_uint_eq(kvshm__limit_table_bytes(MIB << 10, 2 * MIB), 4096);
    files = host;
    kvshm__sys.open = say_open;
    ts_is(kvshm__limit_tables(4 * MIB, "a"), 0);
    ts_is(kvshm__limit_tables(7 * MIB, "a"), -ENOMEM);
    ts_says("faulting in arena a (KVSHM_POPULATE) takes 7340032 bytes of page tables, and the cgroup's limit "
            "is 8388608 (/sys/fs/cgroup/memory.max)");
    ck_assert(kvshm__limit_note(note, sizeof(note)));
    ck_assert_ptr_nonnull(strstr(note, "/sys/fs/cgroup/memory.high is 1000000, and 1048576 are in use"));
    files = host + 3; /* nothing is mounted */
    ck_assert(!kvshm__limit_note(note, sizeof(note)));
}
END_TEST

/* ---- This host --------------------------------------------------------------------------------------- */

static bool write_to(const char *dir, const char *name, const char *text)
{
    char path[600];
    int fd;
    bool done;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return done;
}

static bool there(const char *dir, const char *name)
{
    char path[600];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

/* Where a controller's tree is mounted, of either version. */
struct tree {
    const char *controller;
    char top[256];
    unsigned version;
};

static int look(const struct kvshm__mount *mount, void *arg)
{
    struct tree *tree = arg;
    char value[8], path[300], controllers[512] = "";
    FILE *in;

    if (strcmp(mount->root, "/") != 0)
        return 0;
    if (strcmp(mount->type, "cgroup") == 0 &&
        kvshm__mounts_option(mount->options, tree->controller, value, sizeof(value)))
        tree->version = 1;
    if (strcmp(mount->type, "cgroup2") == 0) {
        snprintf(path, sizeof(path), "%s/cgroup.controllers", mount->point);
        in = fopen(path, "r");
        if (in != NULL && fgets(controllers, sizeof(controllers), in) != NULL &&
            strstr(controllers, tree->controller) != NULL)
            tree->version = 2;
        if (in != NULL)
            fclose(in);
    }
    if (tree->version != 0)
        snprintf(tree->top, sizeof(tree->top), "%s", mount->point);
    return tree->version != 0;
}

/* A group of the test's own, directly below the top, with a group in it for its process. */
struct group {
    struct tree tree;
    char dir[300], inner[320];
    bool switched_on; /* the controller, for the groups below the top */
};

static bool make_group(struct group *group, const char *controller)
{
    char on[32];

    memset(group, 0, sizeof(*group));
    group->tree.controller = controller;
    if (kvshm__mounts_each(look, &group->tree) != 1)
        return false;
    snprintf(group->dir, sizeof(group->dir), "%s/kvshm-test-%d", group->tree.top, getpid());
    snprintf(group->inner, sizeof(group->inner), "%s/inner", group->dir);
    snprintf(on, sizeof(on), "+%s", controller);
    if (mkdir(group->dir, 0755) != 0)
        return false;
    snprintf(on, sizeof(on), "%s.max", controller);
    if (group->tree.version == 2) {
        snprintf(on, sizeof(on), "+%s", controller);
        group->switched_on = !there(group->dir, strcmp(controller, "memory") == 0 ? "memory.max"
                                                                                  : "hugetlb.2MB.max");
        if (group->switched_on)
            write_to(group->tree.top, "cgroup.subtree_control", on);
        write_to(group->dir, "cgroup.subtree_control", on);
    }
    return mkdir(group->inner, 0755) == 0;
}

/* Processes that have just ended may still be in it. */
static void remove_group(struct group *group)
{
    char off[32];

    for (unsigned i = 0; i < 1000 && rmdir(group->inner) != 0 && errno == EBUSY; i++)
        usleep(10000);
    for (unsigned i = 0; i < 1000 && rmdir(group->dir) != 0 && errno == EBUSY; i++)
        usleep(10000);
    snprintf(off, sizeof(off), "-%s", group->tree.controller);
    if (group->switched_on)
        write_to(group->tree.top, "cgroup.subtree_control", off);
}

static bool enter(const struct group *group)
{
    char pid[32];

    snprintf(pid, sizeof(pid), "%d", getpid());
    return write_to(group->inner, "cgroup.procs", pid);
}

static bool own_tmpfs(const char *options)
{
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("kvshm", getenv("KVSHM_DIR"), "tmpfs", 0, options) == 0;
}

static uint64_t free_bytes(void)
{
    struct statvfs status;

    ck_assert_int_eq(statvfs(getenv("KVSHM_DIR"), &status), 0);
    return (uint64_t)status.f_bavail * status.f_frsize;
}

/* The limit was not seen: whoever has its memory cgroup hidden from it. */
static int hide_cgroup(const char *path, int flags, unsigned mode)
{
    return strcmp(path, PROCESS) == 0 ? -ENOENT : kvshm__sys_real.open(path, flags, mode);
}

static int in_64m(void *arg)
{
    struct kvshm_config config = ts_config(65536, 64, 0);
    const struct group *group = arg;
    uint64_t bytes;
    kvshm *kv;

    if (!own_tmpfs("size=1G"))
        return UNMOUNTABLE;
    ts_need(enter(group));
    bytes = free_bytes();
    config.backing = KVSHM_BACKING_SMALL;
    config.memory_bytes = 100 * MIB;
    ts_need(kvshm_create("a", &config, 0, &kv) == -ENOSPC);
    ts_need(strstr(kvshm_errmsg(NULL), "the cgroup's limit is 67108864 (") != NULL);
    ts_need(strstr(kvshm_errmsg(NULL), group->dir) != NULL);
    ts_need(strstr(kvshm_errmsg(NULL), "inner") == NULL); /* it is the limit of the group above */
    ts_need(free_bytes() == bytes);
    config.memory_bytes = 48 * MIB;
    ts_need(kvshm_create("a", &config, KVSHM_POPULATE, &kv) == 0);
    ts_need(kvshm_detach(kv) == 0 && kvshm_unlink("a", 0) == 0);
    kvshm__sys.open = hide_cgroup;
    config.memory_bytes = 100 * MIB;
    ts_need(kvshm_create("a", &config, 0, &kv) == -ENOMEM);
    ts_need(strstr(kvshm_errmsg(NULL), "was killed by signal 9") != NULL);
    ts_need(strstr(kvshm_errmsg(NULL), "OOM killer") != NULL);
    ts_need(free_bytes() == bytes && ts_dir_names() == 0);
    ts_need(waitpid(-1, NULL, __WALL | WNOHANG) == -1 && errno == ECHILD);
    config.memory_bytes = 16 * MIB; /* and it goes on */
    ts_need(kvshm_create("a", &config, 0, &kv) == 0);
    return 0;
}

/* A memory cgroup of 64 MiB: refused before; what was not seen kills a child, and not the creator. */
START_TEST(test_memory_cgroup)
{
    struct group group;
    int status;

    if (geteuid() != 0 || !make_group(&group, "memory")) {
        printf("SKIP test_memory_cgroup: may not make a memory cgroup\n");
        return;
    }
    status = write_to(group.dir,
                      group.tree.version == 1 ? "memory.limit_in_bytes" : "memory.max", "67108864")
                 ? ts_wait(ts_fork(in_64m, &group))
                 : 1;
    remove_group(&group);
    if (status == UNMOUNTABLE)
        printf("SKIP test_memory_cgroup: may not mount a tmpfs\n");
    else
        ck_assert_int_eq(status, 0);
    ck_assert_int_ne(access(group.dir, F_OK), 0);
}
END_TEST

static int in_hugetlb_group(void *arg)
{
    const struct group *group = arg;
    struct kvshm__plan plan = {.segment_bytes = 4 * MIB, .frames = 5, .page_size = 2 * MIB};
    int fd = open(getenv("KVSHM_DIR"), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

    ts_need(enter(group));
    kvshm__sys.fstatfs = say_hugetlbfs; /* the limit is read, no page is taken */
    ts_need(kvshm__limit_check(fd, &plan, "a") == -ENOSPC);
    ts_need(strstr(kvshm_errmsg(NULL), "the cgroup's limit is 2097152 (") != NULL);
    ts_need(strstr(kvshm_errmsg(NULL), group->dir) != NULL);
    plan.segment_bytes = 2 * MIB;
    ts_need(kvshm__limit_check(fd, &plan, "a") == 0);
    return 0;
}

START_TEST(test_hugetlb_cgroup)
{
    struct group group;
    int status;

    if (geteuid() != 0 || !make_group(&group, "hugetlb")) {
        printf("SKIP test_hugetlb_cgroup: may not make a hugetlb cgroup\n");
        return;
    }
    status = write_to(group.dir,
                      group.tree.version == 1 ? "hugetlb.2MB.limit_in_bytes" : "hugetlb.2MB.max",
                      "2097152")
                 ? ts_wait(ts_fork(in_hugetlb_group, &group))
                 : 1;
    remove_group(&group);
    ck_assert_int_eq(status, 0);
    ck_assert_int_ne(access(group.dir, F_OK), 0);
}
END_TEST

static int in_1m(void *arg)
{
    struct kvshm_config config = ts_config(4096, 64, 0);
    kvshm *kv;

    (void)arg;
    if (!own_tmpfs("size=1M"))
        return UNMOUNTABLE;
    config.max_clients = 2;
    config.max_leases = 16;
    config.memory_bytes = 2 * MIB;
    ts_need(kvshm_create("a", &config, 0, &kv) == -ENOSPC);
    ts_need(strstr(kvshm_errmsg(NULL), "has 1048576 free") != NULL);
    ts_need(ts_dir_names() == 0 && free_bytes() == MIB);
    config.memory_bytes = MIB;
    ts_need(kvshm_create("a", &config, KVSHM_POPULATE, &kv) == 0);
    for (uint32_t i = 0; i < 200; i++) /* all of it can be written: no SIGBUS */
        ts_insert(kv, i, 0, (uint32_t[]){i, i}, 2);
    ts_need(kvshm_detach(kv) == 0 && kvshm_unlink("a", 0) == 0);
    ts_need(free_bytes() == MIB);
    return 0;
}

START_TEST(test_tmpfs_of_1m)
{
    int status = ts_wait(ts_fork(in_1m, NULL));

    if (status == UNMOUNTABLE)
        printf("SKIP test_tmpfs_of_1m: may not mount a tmpfs\n");
    else
        ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("limit");
    TCase *tcase = tcase_create("limit");

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_version_2);
    tcase_add_test(tcase, test_containers);
    tcase_add_test(tcase, test_version_1);
    tcase_add_test(tcase, test_hugetlb_of_version_2);
    tcase_add_test(tcase, test_what_makes_no_sense);
    tcase_add_test(tcase, test_memory_of_the_host);
    tcase_add_test(tcase, test_page_tables);
    tcase_add_test(tcase, test_memory_cgroup);
    tcase_add_test(tcase, test_hugetlb_cgroup);
    tcase_add_test(tcase, test_tmpfs_of_1m);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
