/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_hugepages.c - arenas on the hugepages that this host has
 *
 * Each case changes the host's pools of hugepages, alone of all tests, and mounts what it needs in a mount namespace of a
 * child; see host.h for how they are put back. Where this is not permitted the cases are skipped.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "handle.h"
#include "host.h"
#include "place.h"
#include "support.h"
#include "sys.h"

#define MIB UINT64_C(1048576)
#define GIB (MIB * 1024)

static const uint32_t tokens[6] = {1, 2, 3, 4, 5, 6};

/* ---- In a child --------------------------------------------------------------------------------------- */

#define IS(code, wanted) is_at(__LINE__, #code, (code), (wanted))
#define SAYS(part)       says_at(__LINE__, (part))

static void is_at(int line, const char *what, int code, int wanted)
{
    if (code == wanted)
        return;
    fprintf(stderr, "line %d: %s answers %d, not %d: %s\n", line, what, code, wanted,
            kvshm_errmsg(NULL));
    _exit(1);
}

static void says_at(int line, const char *part)
{
    if (strstr(kvshm_errmsg(NULL), part) != NULL)
        return;
    fprintf(stderr, "line %d: no \"%s\" in: %s\n", line, part, kvshm_errmsg(NULL));
    _exit(1);
}

/* dir is made where the tmpfs of host_alone() is. */
static void mount_hugetlbfs(const char *dir, const char *options)
{
    ts_need(mkdir(dir, 0755) == 0 || errno == EEXIST);
    ts_need(mount("kvshm", dir, "hugetlbfs", 0, options) == 0);
}

static int create(const char *name, uint32_t backing, uint64_t memory_bytes, kvshm **kv)
{
    struct kvshm_config config = ts_config(65536, 4, 0);

    config.memory_bytes = memory_bytes;
    config.backing = backing;
    config.max_leases = 64;
    return kvshm_create(name, &config, 0, kv);
}

static struct kvshm_info info_of(kvshm *kv)
{
    struct kvshm_info info;

    kvshm_info_init(&info);
    IS(kvshm_info(kv, &info), 0);
    return info;
}

/* A value of smaps, in KiB, of the mapping that begins there; -1: no such mapping or line. */
static long smaps_kib(const void *address, const char *name)
{
    char line[512], begin[32];
    FILE *file = fopen("/proc/self/smaps", "r");
    bool inside = false;
    long value = -1;

    ts_need(file != NULL);
    snprintf(begin, sizeof(begin), "%lx-", (unsigned long)(uintptr_t)address);
    while (value < 0 && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, begin, strlen(begin)) == 0)
            inside = true;
        else if (inside && strncmp(line, name, strlen(name)) == 0)
            value = strtol(line + strlen(name), NULL, 10);
    }
    fclose(file);
    return value;
}

struct reading {
    const char *name;
    uint32_t backing;
    long page_kib;
};

/* All of a mapping of this process, touched, stands on large pages. */
static void on_large_pages(const void *base, uint64_t bytes, uint32_t backing, long page_kib)
{
    for (uint64_t at = 0; at < bytes; at += 4096)
        (void)*((const volatile char *)base + at);
    if (backing == KVSHM_BACKING_THP) {
        ts_need(smaps_kib(base, "ShmemPmdMapped:") * 1024 == (long)bytes);
    } else {
        ts_need(smaps_kib(base, "KernelPageSize:") == page_kib);
        ts_need(smaps_kib(base, "MMUPageSize:") == page_kib);
    }
}

/* Another process attaches, finds the right bytes, and has it all on large pages in both its mappings. */
static int read_it(void *arg)
{
    const struct reading *reading = arg;
    struct kvshm_prefix prefix;
    struct kvshm_lease lease;
    struct kvshm_info info;
    kvshm *kv;

    IS(kvshm_attach(reading->name, NULL, 0, &kv), 0);
    info = info_of(kv);
    ts_need(info.backing == reading->backing);
    kvshm_prefix_init(&prefix, 0, 0, tokens, 6);
    IS(kvshm_lookup(kv, &prefix, 0, &lease), 0);
    ts_need(ts_filled(kvshm_lease_page(&lease, 0), 65536, 0, 0, tokens, 4) == 0);
    ts_need(ts_filled(kvshm_lease_page(&lease, 1), 65536, 0, 0, tokens, 6) == 0);
    kvshm_release(kv, &lease);
    on_large_pages(info.read_base, info.segment_bytes, reading->backing, reading->page_kib);
    if (info.write_base != info.read_base)
        on_large_pages(info.write_base, info.segment_bytes, reading->backing, reading->page_kib);
    IS(kvshm_detach(kv), 0);
    return 0;
}

static void fill_and_read(kvshm *kv, const char *name, uint32_t backing, long page_kib)
{
    struct reading reading = {name, backing, page_kib};

    ts_insert(kv, 0, 0, tokens, 6);
    ts_need(ts_wait(ts_fork(read_it, &reading)) == 0);
}

/* Run a scene in a child; skip it where settings may not be changed. */
static void play(const char *name, int (*scene)(void *arg), void *arg)
{
    int status;

    if (!host_take()) {
        printf("SKIP %s: may not change the pools of hugepages\n", name);
        return;
    }
    status = ts_wait(ts_fork(scene, arg));
    host_give();
    ck_assert_int_eq(status, 0);
}

/* ---- Pages of 2 MiB ----------------------------------------------------------------------------------- */

static int on_2m(void *arg)
{
    struct kvshm_info info;
    kvshm *kv;

    (void)arg;
    host_alone("size=64M");
    mount_hugetlbfs("/dev/shm/huge", "pagesize=2M");
    ts_need(host_pool_set(2048, 12) == 12);
    IS(create("a", KVSHM_BACKING_HUGETLB_2M, 20 * MIB, &kv), 0);
    info = info_of(kv);
    ts_need(info.backing == KVSHM_BACKING_HUGETLB_2M);
    ts_need(info.segment_bytes == 20 * MIB);
    ts_need(info.frames_offset % (2 * MIB) == 0);
    ts_need(kv->fixed->page_size == 2 * MIB);
    ts_need(strcmp(info.path, "/dev/shm/huge/a") == 0);
    ts_need(host_pool_free(2048) == 2);
    fill_and_read(kv, "a", KVSHM_BACKING_HUGETLB_2M, 2048);
    IS(create("b", KVSHM_BACKING_HUGETLB_2M, 20 * MIB, &kv), -ENOSPC);
    SAYS("backing hugetlb-2m: 2 of ");
    SAYS(" pages free, 10 needed; echo ");
    ts_need(host_pool_free(2048) == 2);
    IS(kvshm_unlink("a", KVSHM_FORCE), 0);
    ts_need(host_pool_free(2048) == 2); /* still mapped */
    return 0;
}

START_TEST(test_2m)
{
    play("test_2m", on_2m, NULL);
}
END_TEST

/* Who took memory for a creator that died, or could not wait, ends with it, but not at the same moment. */
static bool comes_back(uint64_t pages)
{
    for (unsigned i = 0; i < 10000 && host_pool_free(2048) != pages; i++)
        usleep(1000);
    return host_pool_free(2048) == pages;
}

/* Pages come back: with the last handle of an arena that was removed, and after an error at any call. */
static int pages_come_back(void *arg)
{
    unsigned n = 0, fds, maps, calls;
    kvshm *kv;
    int code;

    (void)arg;
    host_alone("size=64M");
    mount_hugetlbfs("/dev/shm/huge", "pagesize=2M");
    ts_need(host_pool_set(2048, 8) == 8);
    fds = ts_fds();
    maps = ts_maps();
    do {
        ts_fail_nth(++n, EIO);
        code = create("a", KVSHM_BACKING_HUGETLB_2M, 16 * MIB, &kv);
        calls = ts_fail_calls();
        ts_fail_off();
        if (code == 0) {
            IS(kvshm_detach(kv), 0);
            IS(kvshm_unlink("a", 0), 0);
        }
        ts_need(kvshm_unlink("a", 0) == -ENOENT);
        ts_need(comes_back(8));
        ts_need(ts_fds() == fds);
        ts_need(ts_maps() == maps);
    } while (n <= calls);
    ts_need(n > 40);
    return 0;
}

START_TEST(test_pages_come_back)
{
    play("test_pages_come_back", pages_come_back, NULL);
}
END_TEST

static unsigned die_at, made;
static pid_t creator;

/* Any system call of a creator; the die_at-th is its last. */
#define DIE(name, parameters, arguments)             \
    static int dying_##name parameters               \
    {                                                \
        if (++made == die_at && getpid() == creator) \
            kill(getpid(), SIGKILL);                 \
        return kvshm__sys_real.name arguments;       \
    }
KVSHM__SYS_CALLS(DIE)

static int create_and_die(void *arg)
{
    kvshm *kv;

    die_at = *(unsigned *)arg;
    creator = getpid();
#define SET_DYING(name, parameters, arguments) kvshm__sys.name = dying_##name;
    KVSHM__SYS_CALLS(SET_DYING)
    IS(create("a", KVSHM_BACKING_HUGETLB_2M, 16 * MIB, &kv), 0);
    return 0;
}

static int kill_creators(void *arg)
{
    unsigned n = 1;
    int status = 137;

    (void)arg;
    host_alone("size=64M");
    mount_hugetlbfs("/dev/shm/huge", "pagesize=2M");
    ts_need(host_pool_set(2048, 8) == 8);
    for (; status == 137; n++) {
        int code;

        status = ts_wait(ts_fork(create_and_die, &n));
        ts_need(status == 137 || status == 0);
        code = kvshm_unlink("a", 0);
        ts_need(code == -ENOENT || (code == 0 && n > 40));
        ts_need(comes_back(8));
    }
    ts_need(n > 40);
    return 0;
}

/* A creator killed at its n-th call, for all n, leaves no name, or a whole arena, and no page is lost. */
START_TEST(test_killed_creators)
{
    play("test_killed_creators", kill_creators, NULL);
}
END_TEST

/* ---- Which mount, and which backing ------------------------------------------------------------------- */

static int choose_a_mount(void *arg)
{
    struct kvshm__places places;
    kvshm *kv;

    (void)arg;
    host_alone("size=64M");
    ts_need(host_pool_set(2048, 20) == 20);
    mount_hugetlbfs("/dev/shm/small one", "pagesize=2M,size=8M");
    IS(create("a", KVSHM_BACKING_HUGETLB_2M, 16 * MIB, &kv), -ENOSPC);
    SAYS("/dev/shm/small one has 4 of 4 pages free, 8 needed; mount -t hugetlbfs -o "
         "pagesize=2M,size=16777216 none");
    mount_hugetlbfs("/dev/shm/larger", "pagesize=2M,size=20M");
    mount_hugetlbfs("/dev/shm/closed", "pagesize=2M,size=30M");
    ts_need(mount("kvshm", "/dev/shm/closed", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0);
    IS(create("a", KVSHM_BACKING_AUTO, 16 * MIB, &kv), 0);
    ts_need(strcmp(info_of(kv).path, "/dev/shm/larger/a") == 0);
    IS(kvshm_detach(kv), 0);
    IS(create("b", KVSHM_BACKING_HUGETLB_2M, 16 * MIB, &kv), -ENOSPC);
    SAYS("small one has 4 of 4 pages free"); /* the other has 2 by now */
    /* Mounted twice it is one place; hidden by another it is none. */
    IS(kvshm__places_get(&places), 0);
    ts_need(places.count == 4);
    ts_need(mkdir("/dev/shm/again", 0755) == 0);
    ts_need(mount("/dev/shm/larger", "/dev/shm/again", NULL, MS_BIND, NULL) == 0);
    IS(kvshm_attach("a", NULL, 0, &kv), 0);
    IS(kvshm_detach(kv), 0);
    IS(kvshm__places_get(&places), 0);
    ts_need(places.count == 4);
    mount_hugetlbfs("/dev/shm/small one", "pagesize=2M");
    IS(kvshm__places_get(&places), 0);
    ts_need(places.count == 4);
    return 0;
}

START_TEST(test_choice_of_a_mount)
{
    play("test_choice_of_a_mount", choose_a_mount, NULL);
}
END_TEST

static int as_nobody(void *arg)
{
    kvshm *kv;

    ts_need(setgid(65534) == 0 && setuid(65534) == 0);
    IS(create("a", KVSHM_BACKING_HUGETLB_2M, 16 * MIB, &kv), -EACCES);
    SAYS(arg);
    IS(kvshm_attach("other", NULL, KVSHM_RDONLY, &kv), 0); /* it stands elsewhere */
    IS(kvshm_detach(kv), 0);
    IS(create("a", KVSHM_BACKING_AUTO, 4 * MIB, &kv), 0);
    ts_need(strstr(info_of(kv).backing_reason, "hugetlb-2m: user 65534 may not write /dev/shm/h") !=
            NULL);
    IS(kvshm_detach(kv), 0);
    IS(kvshm_unlink("a", 0), 0);
    return 0;
}

static int without_permission(void *arg)
{
    struct kvshm_config config = ts_config(64, 1, 1);
    kvshm *kv;

    (void)arg;
    host_alone("size=64M,mode=1777");
    ts_need(host_pool_set(2048, 8) == 8);
    config.mode = 0644;
    IS(kvshm_create("other", &config, 0, &kv), 0);
    mount_hugetlbfs("/dev/shm/h", "pagesize=2M,mode=0755");
    ts_need(ts_wait(ts_fork(as_nobody, "user 65534 may not write /dev/shm/h (mode 0755 of user 0); "
                                       "chmod 1777 /dev/shm/h")) == 0);
    ts_need(chmod("/dev/shm/h", 0700) == 0);
    ts_need(ts_wait(ts_fork(as_nobody, "user 65534 may not write /dev/shm/h (mode 0700")) == 0);
    ts_need(mount("kvshm", "/dev/shm/h", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0);
    IS(create("a", KVSHM_BACKING_HUGETLB_2M, 16 * MIB, &kv), -EROFS);
    SAYS("/dev/shm/h is mounted read-only; mount -o remount,rw /dev/shm/h");
    return 0;
}

START_TEST(test_without_permission)
{
    play("test_without_permission", without_permission, NULL);
}
END_TEST

static int count_names(const char *name, const char *path, void *arg)
{
    unsigned *count = arg;

    ts_need(strcmp(strrchr(path, '/') + 1, name) == 0);
    *count += strncmp(path, "/dev/shm/huge/", 14) == 0 ? 100 : 1;
    return 0;
}

/* Names are one world, wherever the arenas are. */
static int names_of_all_places(void *arg)
{
    unsigned count = 0;
    kvshm *kv;

    (void)arg;
    host_alone("size=64M");
    mount_hugetlbfs("/dev/shm/huge", "pagesize=2M");
    ts_need(host_pool_set(2048, 16) == 16);
    IS(create("a", KVSHM_BACKING_HUGETLB_2M, 16 * MIB, &kv), 0);
    IS(kvshm_detach(kv), 0);
    IS(create("a", KVSHM_BACKING_SMALL, 4 * MIB, &kv), -EEXIST);
    SAYS("/dev/shm/huge/a exists");
    IS(create("b", KVSHM_BACKING_SMALL, 4 * MIB, &kv), 0);
    IS(kvshm_detach(kv), 0);
    IS(create("b", KVSHM_BACKING_HUGETLB_2M, 16 * MIB, &kv), -EEXIST);
    SAYS("/dev/shm/b exists");
    IS(kvshm_attach("c", NULL, 0, &kv), -ENOENT);
    SAYS("no arena \"c\" in /dev/shm/huge, /dev/shm;");
    IS(kvshm_list(count_names, &count), 0);
    ts_need(count == 101);
    /* KVSHM_DIR is the only place. */
    setenv("KVSHM_DIR", "/dev/shm/huge", 1);
    IS(kvshm_attach("b", NULL, 0, &kv), -ENOENT);
    IS(create("b", KVSHM_BACKING_SMALL, 4 * MIB, &kv), -ENODEV);
    SAYS("KVSHM_DIR is /dev/shm/huge, where arenas are hugetlb-2m");
    IS(create("b", KVSHM_BACKING_AUTO, 4 * MIB, &kv), 0); /* small as it is */
    ts_need(info_of(kv).backing == KVSHM_BACKING_HUGETLB_2M);
    IS(kvshm_detach(kv), 0);
    unsetenv("KVSHM_DIR");
    IS(kvshm_attach("b", NULL, 0, &kv), KVSHM_E_CONFLICT);
    SAYS("/dev/shm/huge/b and /dev/shm/b both exist");
    IS(kvshm_unlink("b", 0), KVSHM_E_CONFLICT);
    setenv("KVSHM_DIR", "/dev/shm", 1);
    IS(kvshm_unlink("b", 0), 0);
    unsetenv("KVSHM_DIR");
    IS(kvshm_unlink("b", 0), 0);
    IS(kvshm_unlink("a", 0), 0);
    ts_need(host_pool_free(2048) == 16);
    return 0;
}

START_TEST(test_names_of_all_places)
{
    play("test_names_of_all_places", names_of_all_places, NULL);
}
END_TEST

static int no_collapse(void *address, uint64_t size, int advice)
{
    return advice == 25 ? -EINVAL : kvshm__sys_real.advise(address, size, advice);
}

static int as_auto(uint64_t bytes, const char *reason)
{
    uint32_t backing;
    kvshm *kv;

    IS(create("a", KVSHM_BACKING_AUTO, bytes, &kv), 0);
    backing = info_of(kv).backing;
    if (strcmp(info_of(kv).backing_reason, reason) != 0) {
        fprintf(stderr, "reason: %s\nwanted: %s\n", info_of(kv).backing_reason, reason);
        _exit(1);
    }
    IS(kvshm_detach(kv), 0);
    IS(kvshm_unlink("a", 0), 0);
    return (int)backing;
}

/* auto takes the best that is to be had, and says why it is not a better one. */
static int take_the_best(void *arg)
{
    char reason[128];

    (void)arg;
    host_alone("size=64M");
    ts_need(host_pool_set(2048, 0) == 0);
    ts_need(as_auto(16 * MIB, "hugetlb-1g: no hugetlbfs of 1G mounted; hugetlb-2m: no hugetlbfs of "
                              "2M mounted") == KVSHM_BACKING_THP);
    kvshm__sys.advise = no_collapse;
    ts_need(as_auto(16 * MIB, "hugetlb-1g: no hugetlbfs of 1G mounted; hugetlb-2m: no hugetlbfs of "
                              "2M mounted; thp: 0 of 8 hugepages had") == KVSHM_BACKING_SMALL);
    mount_hugetlbfs("/dev/shm/huge", "pagesize=2M");
    ts_need(as_auto(4 * MIB, "hugetlb-1g: no hugetlbfs of 1G mounted; hugetlb-2m: fewer than 8 "
                             "pages; thp: fewer than 8 pages") == KVSHM_BACKING_SMALL);
    kvshm__sys.advise = kvshm__sys_real.advise;
    ts_need(host_pool_set(2048, 7) == 7);
    ts_need(mount("kvshm", "/dev/shm/huge", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0);
    ts_need(as_auto(16 * MIB,
                    "hugetlb-1g: no hugetlbfs of 1G mounted; hugetlb-2m: /dev/shm/huge is "
                    "mounted read-only") == KVSHM_BACKING_THP);
    ts_need(mount("kvshm", "/dev/shm/huge", NULL, MS_REMOUNT | MS_BIND, NULL) == 0);
    kvshm__sys.advise = no_collapse;
    snprintf(reason, sizeof(reason),
             "hugetlb-1g: no hugetlbfs of 1G mounted; hugetlb-2m: 7 of %llu pages free, 8 needed; "
             "thp: 0 of 8 hugepages had",
             (unsigned long long)host_pool_all(2048));
    ts_need(as_auto(16 * MIB, reason) == KVSHM_BACKING_SMALL);
    ts_need(host_pool_set(2048, 8) == 8);
    ts_need(as_auto(16 * MIB, "hugetlb-1g: no hugetlbfs of 1G mounted") ==
            KVSHM_BACKING_HUGETLB_2M);
    return 0;
}

START_TEST(test_auto_takes_the_best)
{
    play("test_auto_takes_the_best", take_the_best, NULL);
}
END_TEST

/* Pages that the system adds when asked. */
static int on_surplus_pages(void *arg)
{
    kvshm *kv;

    (void)arg;
    host_alone("size=64M");
    mount_hugetlbfs("/dev/shm/huge", "pagesize=2M");
    ts_need(host_pool_set(2048, 2) == 2);
    host_pool_overcommit(2048, 5);
    IS(create("a", KVSHM_BACKING_HUGETLB_2M, 16 * MIB, &kv), -ENOSPC);
    SAYS("7 of ");
    host_pool_overcommit(2048, 6);
    IS(create("a", KVSHM_BACKING_HUGETLB_2M, 16 * MIB, &kv), 0);
    fill_and_read(kv, "a", KVSHM_BACKING_HUGETLB_2M, 2048);
    return 0;
}

START_TEST(test_surplus_pages)
{
    play("test_surplus_pages", on_surplus_pages, NULL);
}
END_TEST

/* Pages that a mount keeps are for arenas in it, whatever the numbers of the pool. */
static int on_kept_pages(void *arg)
{
    kvshm *kv;

    (void)arg;
    host_alone("size=64M");
    ts_need(host_pool_set(2048, 10) == 10);
    mount_hugetlbfs("/dev/shm/huge", "pagesize=2M,min_size=16M");
    ts_need(host_pool_free(2048) == 2);
    IS(create("a", KVSHM_BACKING_HUGETLB_2M, 20 * MIB, &kv), 0);
    IS(create("b", KVSHM_BACKING_HUGETLB_2M, 16 * MIB, &kv), -ENOSPC);
    ts_need(umount2("/dev/shm/huge", MNT_DETACH) == 0);
    return 0;
}

START_TEST(test_kept_pages)
{
    play("test_kept_pages", on_kept_pages, NULL);
}
END_TEST

static int no_more_files(void *arg)
{
    kvshm *kv;

    (void)arg;
    host_alone("size=64M");
    mount_hugetlbfs("/dev/shm/huge", "pagesize=2M,nr_inodes=1");
    ts_need(host_pool_set(2048, 8) == 8);
    IS(create("a", KVSHM_BACKING_HUGETLB_2M, 16 * MIB, &kv), -ENOSPC);
    SAYS("/dev/shm/huge takes no more files; remove some, or mount it with a larger nr_inodes=");
    return 0;
}

START_TEST(test_no_more_files)
{
    play("test_no_more_files", no_more_files, NULL);
}
END_TEST

#define CREATORS 8

struct together {
    struct ts_gate ready, go, leave;
    unsigned created, attached;
};

static int open_together(void *arg)
{
    struct kvshm_config config = ts_config(65536, 4, 0);
    struct together *t = arg;
    kvshm *kv;

    config.memory_bytes = 16 * MIB;
    config.backing = KVSHM_BACKING_HUGETLB_2M;
    ts_gate_open(&t->ready);
    ts_gate_wait(&t->go);
    IS(kvshm_open("one", &config, 0, &kv), 0);
    if (info_of(kv).creator_pid == (uint32_t)getpid())
        __atomic_add_fetch(&t->created, 1, __ATOMIC_SEQ_CST);
    else
        __atomic_add_fetch(&t->attached, 1, __ATOMIC_SEQ_CST);
    ts_gate_wait(&t->leave); /* all stay until all have come */
    IS(kvshm_detach(kv), 0);
    return 0;
}

static int eight_creators(void *arg)
{
    struct together *t = arg;
    pid_t pids[CREATORS];

    host_alone("size=64M");
    mount_hugetlbfs("/dev/shm/huge", "pagesize=2M");
    ts_need(host_pool_set(2048, 15) == 15); /* two do not fit */
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
    return 0;
}

START_TEST(test_creators_take_turns)
{
    struct together *t = ts_shared(sizeof(*t));

    ts_gate_make(&t->ready);
    ts_gate_make(&t->go);
    ts_gate_make(&t->leave);
    play("test_creators_take_turns", eight_creators, t);
}
END_TEST

/* ---- Pages of 1 GiB ----------------------------------------------------------------------------------- */

#define UNGRANTED 77

static int on_1g(void *arg)
{
    struct kvshm_info info;
    kvshm *kv;

    (void)arg;
    host_alone("size=64M");
    if (host_pool_set(1048576, 2) != 2)
        return UNGRANTED;
    mount_hugetlbfs("/dev/shm/huge", "pagesize=1G");
    IS(create("b", KVSHM_BACKING_HUGETLB_1G, 3 * GIB, &kv), -ENOSPC);
    SAYS("2 of ");
    IS(create("a", KVSHM_BACKING_HUGETLB_1G, 2 * GIB, &kv), 0);
    info = info_of(kv);
    ts_need(info.backing == KVSHM_BACKING_HUGETLB_1G);
    ts_need(info.frames_offset == GIB);
    ts_need(kv->fixed->page_size == GIB);
    fill_and_read(kv, "a", KVSHM_BACKING_HUGETLB_1G, 1048576);
    IS(kvshm_detach(kv), 0);
    IS(kvshm_unlink("a", 0), 0);
    ts_need(host_pool_free(1048576) == 2);
    return 0;
}

START_TEST(test_1g)
{
    int status;

    if (ts_amount(0, 1, 1) == 0)
        return; /* it takes seconds; check_backing has it with replaced system calls */
    if (!host_take()) {
        printf("SKIP test_1g: may not change the pools of hugepages\n");
        return;
    }
    status = ts_wait(ts_fork(on_1g, NULL));
    host_give();
    if (status == UNGRANTED)
        printf("SKIP test_1g: the system gives no two pages of 1 GiB\n");
    else
        ck_assert_int_eq(status, 0);
}
END_TEST

/* ---- Transparent hugepages ---------------------------------------------------------------------------- */

/* On a tmpfs of each kind, by name and by auto; another process has them all as hugepages. */
static int on_thp(void *arg)
{
    static const uint32_t asked[] = {KVSHM_BACKING_THP, KVSHM_BACKING_AUTO};
    kvshm *kv;

    host_alone(arg);
    for (unsigned i = 0; i < 2; i++) {
        struct kvshm_info info;

        IS(create("a", asked[i], 24 * MIB, &kv), 0);
        info = info_of(kv);
        ts_need(info.backing == KVSHM_BACKING_THP);
        ts_need(strstr(info.backing_reason, "thp") == NULL);
        ts_need(info.frames_offset % (2 * MIB) == 0);
        fill_and_read(kv, "a", KVSHM_BACKING_THP, 2048);
        IS(kvshm_detach(kv), 0);
        IS(kvshm_unlink("a", 0), 0);
    }
    return 0;
}

START_TEST(test_thp)
{
    static const char *const options[] = {"size=64M", "size=64M,huge=advise",
                                          "size=64M,huge=within_size", "size=64M,huge=always"};

    play("test_thp", on_thp, (void *)options[_i]);
}
END_TEST

static _Atomic unsigned *collapsed; /* by the children that take memory */

/* Every fourth piece of the memory cannot be made a hugepage. */
static int some_collapse(void *address, uint64_t size, int advice)
{
    if (advice == 25 && (size > 2 * MIB || (uintptr_t)address / (2 * MIB) % 4 == 0))
        return -EAGAIN;
    *collapsed += advice == 25;
    return kvshm__sys_real.advise(address, size, advice);
}

static int on_some_thp(void *arg)
{
    struct kvshm_info info;
    kvshm *kv;

    (void)arg;
    collapsed = ts_shared(sizeof(*collapsed));
    host_alone("size=64M");
    kvshm__sys.advise = some_collapse;
    IS(create("a", KVSHM_BACKING_THP, 24 * MIB, &kv), -ENOMEM);
    SAYS("backing thp: 9 of 12 hugepages had; mount the tmpfs with huge=advise");
    ts_need(kvshm_unlink("a", 0) == -ENOENT);
    IS(create("a", KVSHM_BACKING_AUTO, 24 * MIB, &kv), 0);
    info = info_of(kv);
    ts_need(info.backing == KVSHM_BACKING_THP);
    ts_need(strstr(info.backing_reason, "; thp: 9 of 12 hugepages had") != NULL);
    for (uint64_t at = 0; at < info.segment_bytes; at += 4096)
        (void)*((const volatile char *)info.read_base + at);
    ts_need(smaps_kib(info.read_base, "ShmemPmdMapped:") == 9 * 2048);
    ts_need(*collapsed >= 18);
    return 0;
}

START_TEST(test_some_thp)
{
    play("test_some_thp", on_some_thp, NULL);
}
END_TEST

/* A tmpfs that is too small for them, and one that is too small when rounded up to them. */
static int on_too_small_a_tmpfs(void *arg)
{
    struct kvshm_config config = ts_config(4096, 4, 4500);
    struct statvfs before, after;
    kvshm *kv;

    (void)arg;
    host_alone("size=17M,huge=advise");
    ts_need(statvfs("/dev/shm", &before) == 0);
    config.max_leases = 64;
    IS(kvshm_create("a", &config, 0, &kv), -ENOSPC);
    SAYS("for 4500 frames, and its file system has 17825792 free");
    config.frames = 4000;
    config.backing = KVSHM_BACKING_THP;
    IS(kvshm_create("a", &config, 0, &kv), -ENOSPC);
    ts_need(statvfs("/dev/shm", &after) == 0);
    ts_need(after.f_bavail == before.f_bavail);
    config.backing = KVSHM_BACKING_AUTO;
    IS(kvshm_create("a", &config, 0, &kv), 0);
    ts_need(info_of(kv).backing == KVSHM_BACKING_SMALL);
    ts_need(strstr(info_of(kv).backing_reason, "; thp: No space left on device") != NULL);
    return 0;
}

START_TEST(test_too_small_a_tmpfs)
{
    play("test_too_small_a_tmpfs", on_too_small_a_tmpfs, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hugepages");
    TCase *tcase = tcase_create("hugepages");

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_2m);
    tcase_add_test(tcase, test_pages_come_back);
    tcase_add_test(tcase, test_killed_creators);
    tcase_add_test(tcase, test_choice_of_a_mount);
    tcase_add_test(tcase, test_without_permission);
    tcase_add_test(tcase, test_names_of_all_places);
    tcase_add_test(tcase, test_auto_takes_the_best);
    tcase_add_test(tcase, test_surplus_pages);
    tcase_add_test(tcase, test_kept_pages);
    tcase_add_test(tcase, test_no_more_files);
    tcase_add_test(tcase, test_creators_take_turns);
    tcase_add_test(tcase, test_1g);
    tcase_add_loop_test(tcase, test_thp, 0, 4);
    tcase_add_test(tcase, test_some_thp);
    tcase_add_test(tcase, test_too_small_a_tmpfs);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
