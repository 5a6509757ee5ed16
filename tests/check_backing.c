/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_backing.c - ways to back an arena on hosts that are not this one: what pools, mounts and kernels say is replaced
 *
 * KVSHM_DIR is a folder of a real tmpfs, of which the replaced calls say something else. What this host really has is
 * tried in check_hugepages.
 */
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "backing.h"
#include "handle.h"
#include "support.h"
#include "sys.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define GIB (MIB * KIB)

/* What the host is said to be; shared with the child processes that take memory. */
static struct host {
    uint64_t type, page_size, blocks, unused; /* of the file system */
    int may_write;
    int64_t nr, free, promised, surplus, overcommit; /* of the pool; nr < 0: there is none */
    int64_t thp_size;                                /* < 0: none */
    const char *table, *smaps;                       /* NULL: the real ones */
    unsigned takes;                                  /* how often space was asked for */
} * shared_host;
#define host (*shared_host)

static int say_statfs(int fd, struct statfs *out)
{
    (void)fd;
    memset(out, 0, sizeof(*out));
    out->f_type = (__typeof__(out->f_type))host.type;
    out->f_bsize = out->f_frsize = (__typeof__(out->f_bsize))host.page_size;
    out->f_blocks = host.blocks;
    out->f_bavail = out->f_bfree = host.unused;
    return 0;
}

static int say_may_write(int dir)
{
    (void)dir;
    return host.may_write;
}

/* A file with this content. */
static int open_text(const char *text)
{
    int fd = open(getenv("KVSHM_DIR"), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    return fd;
}

static int open_number(int64_t number)
{
    char text[32];

    snprintf(text, sizeof(text), "%lld\n", (long long)number);
    return number < 0 ? -ENOENT : open_text(text);
}

static bool ends(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);

    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static int say_open(const char *path, int flags, unsigned mode)
{
    if (ends(path, "/hpage_pmd_size"))
        return open_number(host.thp_size);
    if (strstr(path, "/mm/hugepages/hugepages-") != NULL && host.nr < 0)
        return -ENOENT;
    if (ends(path, "/nr_hugepages"))
        return open_number(host.nr);
    if (ends(path, "/free_hugepages"))
        return open_number(host.free);
    if (ends(path, "/resv_hugepages"))
        return open_number(host.promised);
    if (ends(path, "/surplus_hugepages"))
        return open_number(host.surplus);
    if (ends(path, "/nr_overcommit_hugepages"))
        return open_number(host.overcommit);
    if (ends(path, "/mountinfo") && host.table != NULL)
        return open_text(host.table);
    if (ends(path, "/smaps") && host.smaps != NULL)
        return open_text(host.smaps);
    return kvshm__sys_real.open(path, flags, mode);
}

/* No memory is taken for what is said to be there. */
static int say_space(int fd, uint64_t offset, uint64_t length)
{
    struct stat status;

    host.takes++;
    ck_assert_uint_eq(length % host.page_size, 0);
    ck_assert_int_eq(fstat(fd, &status), 0);
    if ((uint64_t)status.st_size >= offset + length)
        return 0;
    return kvshm__sys_real.truncate(fd, offset + length);
}

static int say_advise(void *address, uint64_t size, int advice)
{
    return advice == MADV_POPULATE_WRITE ? 0 : kvshm__sys_real.advise(address, size, advice);
}

/* A hugetlbfs with pages of page_size and so many of them free. */
static void be_hugetlbfs(uint64_t page_size, int64_t free_pages)
{
    if (shared_host == NULL)
        shared_host = ts_shared(sizeof(host));
    memset(&host, 0, sizeof(host));
    host.type = HUGETLBFS_MAGIC;
    host.page_size = page_size;
    host.nr = host.free = free_pages;
    host.thp_size = 2 * (int64_t)MIB;
    kvshm__sys.fstatfs = say_statfs;
    kvshm__sys.may_write = say_may_write;
    kvshm__sys.open = say_open;
    kvshm__sys.space = say_space;
    kvshm__sys.advise = say_advise;
}

static int create(uint32_t backing, uint64_t memory_bytes, kvshm **kv)
{
    struct kvshm_config config = ts_config(65536, 4, 0);

    config.memory_bytes = memory_bytes;
    config.backing = backing;
    return kvshm_create("a", &config, 0, kv);
}

/* Refused, with this in the message; nothing is left. */
static void refused(uint32_t backing, uint64_t memory_bytes, int code, const char *says)
{
    unsigned fds = ts_fds(), maps = ts_maps();
    kvshm *kv;

    ts_is(create(backing, memory_bytes, &kv), code);
    ck_assert_ptr_null(kv);
    ts_says(says);
    ck_assert_uint_eq(ts_dir_names(), 0);
    ck_assert_uint_eq(ts_fds(), fds);
    ck_assert_uint_eq(ts_maps(), maps);
}

static struct kvshm_info info_of(kvshm *kv)
{
    struct kvshm_info info;

    kvshm_info_init(&info);
    ts_is(kvshm_info(kv, &info), 0);
    return info;
}

static const uint32_t tokens[6] = {1, 2, 3, 4, 5, 6};

/* The prefix of tokens is found by another handle, with its bytes. */
static void serves(kvshm *kv)
{
    kvshm *other = ts_attach("a", 0);
    struct kvshm_prefix prefix;
    struct kvshm_lease lease;

    ts_insert(kv, 0, 0, tokens, 6);
    kvshm_prefix_init(&prefix, 0, 0, tokens, 6);
    ts_is(kvshm_lookup(other, &prefix, 0, &lease), 0);
    ck_assert_uint_eq(ts_filled(kvshm_lease_page(&lease, 0), 65536, 0, 0, tokens, 4), 0);
    ck_assert_uint_eq(ts_filled(kvshm_lease_page(&lease, 1), 65536, 0, 0, tokens, 6), 0);
    kvshm_release(other, &lease);
    ts_detach(other);
}

/* ---- Pages of 1 GiB, where there may be none ---------------------------------------------------------- */

START_TEST(test_pages_of_1g)
{
    static const uint32_t asked[] = {KVSHM_BACKING_HUGETLB_1G, KVSHM_BACKING_AUTO};
    kvshm *kv;

    for (unsigned i = 0; i < 2; i++) {
        struct kvshm_info info;

        be_hugetlbfs(GIB, 3);
        ts_is(create(asked[i], 3 * GIB + 12345, &kv), 0);
        info = info_of(kv);
        ck_assert_uint_eq(info.backing, KVSHM_BACKING_HUGETLB_1G);
        ck_assert_uint_eq(info.backing_asked, asked[i]);
        ck_assert_str_eq(info.backing_reason, "");
        ck_assert_uint_eq(info.segment_bytes, 3 * GIB);
        ck_assert_uint_eq(info.frames_offset, GIB);
        ck_assert_uint_eq(kv->fixed->page_size, GIB);
        ck_assert_uint_eq((uintptr_t)info.read_base % GIB, 0);
        ck_assert_uint_eq((uintptr_t)info.write_base % GIB, 0);
        ck_assert_uint_eq(host.takes, 3); /* by whole pages */
        serves(kv);
        ts_detach(kv);
        ts_is(kvshm_unlink("a", 0), 0);
    }
}
END_TEST

static int interrupted(int fd, uint64_t offset, uint64_t length)
{
    return length > 2 * MIB ? -EINTR : say_space(fd, offset, length);
}

/* Signals make the slices smaller, but never smaller than a page. */
START_TEST(test_interrupted_between_large_pages)
{
    kvshm *kv;

    be_hugetlbfs(2 * MIB, 8);
    kvshm__sys.space = interrupted;
    ts_is(create(KVSHM_BACKING_HUGETLB_2M, 16 * MIB, &kv), 0);
    ck_assert_uint_eq(host.takes, 8);
    ts_detach(kv);
}
END_TEST

/* ---- Refused ------------------------------------------------------------------------------------------ */

#define POOL_1G "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
#define POOL_2M "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"

START_TEST(test_pools)
{
    kvshm *kv;

    be_hugetlbfs(GIB, 0);
    refused(KVSHM_BACKING_HUGETLB_1G, 3 * GIB, -ENOSPC,
            "backing hugetlb-1g: the pool is empty, 3 pages needed; echo 3 > " POOL_1G);
    refused(KVSHM_BACKING_AUTO, 3 * GIB, -ENOSPC, "backing hugetlb-1g: the pool is empty");
    be_hugetlbfs(2 * MIB, 7);
    host.nr = 20;
    refused(KVSHM_BACKING_HUGETLB_2M, 16 * MIB, -ENOSPC,
            "backing hugetlb-2m: 7 of 20 pages free, 8 needed; echo 21 > " POOL_2M);
    host.free = 20;
    host.promised = 13;
    refused(KVSHM_BACKING_HUGETLB_2M, 16 * MIB, -ENOSPC, "7 of 20 pages free, 8 needed");
    /* The system would add one, but has already. */
    host.overcommit = host.surplus = 1;
    host.nr = 21;
    refused(KVSHM_BACKING_HUGETLB_2M, 16 * MIB, -ENOSPC, "7 of 21 pages free, 8 needed; echo 21 >");
    host.surplus = 0;
    host.nr = 20;
    ts_is(create(KVSHM_BACKING_HUGETLB_2M, 16 * MIB, &kv), 0);
    ts_detach(kv);
    ck_assert_uint_eq(host.takes, 1); /* what was refused was refused before anything was taken */
}
END_TEST

START_TEST(test_mounts_too_small)
{
    kvshm *kv;

    be_hugetlbfs(2 * MIB, 100);
    host.blocks = 10;
    host.unused = 7;
    refused(KVSHM_BACKING_HUGETLB_2M, 16 * MIB, -ENOSPC, " has 7 of 10 pages free, 8 needed");
    ts_says("mount -t hugetlbfs -o pagesize=2M,size=23068672 none");
    host.unused = 8;
    ts_is(create(KVSHM_BACKING_HUGETLB_2M, 16 * MIB, &kv), 0);
    ts_detach(kv);
    ts_is(kvshm_unlink("a", 0), 0);
    host.blocks = host.unused = UINT64_MAX; /* min_size= alone: no limit */
    ts_is(create(KVSHM_BACKING_HUGETLB_2M, 16 * MIB, &kv), 0);
    ts_detach(kv);
}
END_TEST

START_TEST(test_no_permission)
{
    char says[128];

    be_hugetlbfs(2 * MIB, 100);
    host.may_write = -EACCES;
    snprintf(says, sizeof(says), "backing hugetlb-2m: user %u may not write /", geteuid());
    refused(KVSHM_BACKING_HUGETLB_2M, 16 * MIB, -EACCES, says);
    ts_says("(mode 0700 of user 0); chmod 1777 /");
    host.may_write = -EROFS;
    refused(KVSHM_BACKING_AUTO, 16 * MIB, -EROFS, "is mounted read-only; mount -o remount,rw /");
}
END_TEST

START_TEST(test_no_such_pages)
{
    be_hugetlbfs(GIB, -1);
    refused(KVSHM_BACKING_HUGETLB_1G, 3 * GIB, -ENODEV,
            "backing hugetlb-1g: this kernel has no pages of 1G; boot with hugepagesz=");
    be_hugetlbfs(32 * MIB, 100);
    refused(KVSHM_BACKING_AUTO, 64 * MIB, -ENODEV, "a hugetlbfs with pages of 33554432 bytes");
    be_hugetlbfs(2 * MIB, 100);
    refused(KVSHM_BACKING_HUGETLB_1G, 3 * GIB, -ENODEV, "where arenas are hugetlb-2m");
    refused(KVSHM_BACKING_SMALL, 3 * MIB, -ENODEV, "where arenas are hugetlb-2m");
    refused(KVSHM_BACKING_THP, 16 * MIB, -ENODEV, "where arenas are hugetlb-2m");
    host.type = EXT4_SUPER_MAGIC;
    host.thp_size = -1;
    refused(KVSHM_BACKING_HUGETLB_2M, 16 * MIB, -ENODEV,
            "KVSHM_DIR is no hugetlbfs of 2M; unset it, or set it to such a mount");
    refused(KVSHM_BACKING_THP, 16 * MIB, -ENODEV, "this kernel tells of no transparent hugepages");
    host.thp_size = 2 * (int64_t)MIB;
    refused(KVSHM_BACKING_THP, 16 * MIB, -ENODEV, " is no tmpfs; ");
}
END_TEST

/* The numbers said there was room, and there was none when it was taken. */
static int no_space(int fd, uint64_t offset, uint64_t length)
{
    (void)fd;
    (void)length;
    host.free = 3;
    return offset == 0 ? -ENOSPC : 0;
}

START_TEST(test_lost_to_another)
{
    be_hugetlbfs(2 * MIB, 8);
    kvshm__sys.space = no_space;
    refused(KVSHM_BACKING_HUGETLB_2M, 16 * MIB, -ENOSPC, "3 of 8 pages free, 8 needed");
}
END_TEST

/* Pages that the mount keeps for itself are promised, to it: the numbers refuse nothing, the taking tells. */
START_TEST(test_mount_that_keeps_pages)
{
    struct stat status;
    char table[256];
    kvshm *kv;

    be_hugetlbfs(2 * MIB, 8);
    host.promised = 8;
    refused(KVSHM_BACKING_HUGETLB_2M, 16 * MIB, -ENOSPC, "0 of 8 pages free");
    ck_assert_int_eq(stat(getenv("KVSHM_DIR"), &status), 0);
    snprintf(table, sizeof(table),
             "1 2 0:1 / /x rw - hugetlbfs none rw,min_size=1\n"
             "1 2 %u:%u / /y rw - hugetlbfs none rw,min_size=16777216\n",
             major(status.st_dev), minor(status.st_dev));
    host.table = table;
    ts_is(create(KVSHM_BACKING_HUGETLB_2M, 16 * MIB, &kv), 0);
    ts_detach(kv);
}
END_TEST

/* ---- Transparent hugepages ---------------------------------------------------------------------------- */

/* Said to be mapped by large pages, of the mapping that is counted. */
static uint64_t huge_kib;

static int map_at_and_say(void *address, uint64_t size, int protection, int flags, int fd)
{
    static char smaps[512];

    snprintf(smaps, sizeof(smaps),
             "%lx-%lx rw-s 0 00:1 1 /other\nShmemPmdMapped:  999999 kB\n"
             "%lx-%lx r--s 0 00:1 1 /x\nRss: 5 kB\nShmemPmdMapped:  %llu kB\n",
             (unsigned long)(uintptr_t)address - 4096, (unsigned long)(uintptr_t)address,
             (unsigned long)(uintptr_t)address, (unsigned long)((uintptr_t)address + size),
             (unsigned long long)huge_kib);
    host.smaps = smaps;
    return kvshm__sys_real.map_at(address, size, protection, flags, fd);
}

static void be_tmpfs(uint64_t huge_bytes)
{
    be_hugetlbfs(4096, 0);
    host.type = TMPFS_MAGIC;
    huge_kib = huge_bytes / 1024;
    kvshm__sys.map_at = map_at_and_say;
}

START_TEST(test_had_is_what_was_counted)
{
    struct kvshm_info info;
    kvshm *kv;

    be_tmpfs(32 * MIB);
    ts_is(create(KVSHM_BACKING_THP, 32 * MIB, &kv), 0);
    info = info_of(kv);
    ck_assert_uint_eq(info.backing, KVSHM_BACKING_THP);
    ck_assert_str_eq(info.backing_reason, "");
    ts_detach(kv);
    ts_is(kvshm_unlink("a", 0), 0);
    be_tmpfs(30 * MIB);
    refused(KVSHM_BACKING_THP, 32 * MIB, -ENOMEM, "backing thp: 15 of 16 hugepages had; mount ");
    be_tmpfs(0);
    refused(KVSHM_BACKING_THP, 32 * MIB, -ENOMEM, "0 of 16 hugepages had");
}
END_TEST

START_TEST(test_auto_takes_half)
{
    struct kvshm_info info;
    kvshm *kv;

    be_tmpfs(16 * MIB);
    ts_is(create(KVSHM_BACKING_AUTO, 32 * MIB, &kv), 0);
    info = info_of(kv);
    ck_assert_uint_eq(info.backing, KVSHM_BACKING_THP);
    ck_assert_ptr_nonnull(strstr(info.backing_reason, "; thp: 8 of 16 hugepages had"));
    ts_detach(kv);
    ts_is(kvshm_unlink("a", 0), 0);
    be_tmpfs(14 * MIB);
    ts_is(create(KVSHM_BACKING_AUTO, 32 * MIB, &kv), 0);
    info = info_of(kv);
    ck_assert_uint_eq(info.backing, KVSHM_BACKING_SMALL);
    ck_assert_uint_eq(kv->fixed->page_size, (uint64_t)sysconf(_SC_PAGESIZE));
    ck_assert_str_eq(info.backing_reason,
                     "hugetlb-1g: KVSHM_DIR is no hugetlbfs of 1G; hugetlb-2m: "
                     "KVSHM_DIR is no hugetlbfs of 2M; thp: 7 of 16 hugepages "
                     "had");
    serves(kv);
    ts_detach(kv);
}
END_TEST

START_TEST(test_auto_makes_no_few_hugepages)
{
    struct kvshm_info info;
    kvshm *kv;

    be_tmpfs(0);
    ts_is(create(KVSHM_BACKING_AUTO, 14 * MIB, &kv), 0);
    info = info_of(kv);
    ck_assert_uint_eq(info.backing, KVSHM_BACKING_SMALL);
    ck_assert_ptr_nonnull(strstr(info.backing_reason, "; thp: fewer than 8 pages"));
    ts_detach(kv);
    ts_is(kvshm_unlink("a", 0), 0);
    be_tmpfs(0);
    host.nr = -1;
    ts_is(create(KVSHM_BACKING_AUTO, 3 * MIB, &kv), 0);
    info = info_of(kv);
    ck_assert_ptr_nonnull(
        strstr(info.backing_reason, "hugetlb-1g: this kernel has no pages of 1G; "));
    ck_assert_ptr_nonnull(strstr(info.backing_reason, "; thp: too little for such pages"));
    ts_detach(kv);
}
END_TEST

static int fail_smaps(const char *path, int flags, unsigned mode)
{
    return ends(path, "/smaps") ? -EACCES : say_open(path, flags, mode);
}

/* What cannot be counted is not had. */
START_TEST(test_not_counted_is_not_had)
{
    struct kvshm_info info;
    kvshm *kv;

    be_tmpfs(32 * MIB);
    kvshm__sys.open = fail_smaps;
    refused(KVSHM_BACKING_THP, 32 * MIB, -EACCES, "counting transparent hugepages");
    ts_is(create(KVSHM_BACKING_AUTO, 32 * MIB, &kv), 0);
    info = info_of(kv);
    ck_assert_uint_eq(info.backing, KVSHM_BACKING_SMALL);
    ck_assert_ptr_nonnull(strstr(info.backing_reason, "; thp: Permission denied"));
    ts_detach(kv);
    ts_is(kvshm_unlink("a", 0), 0);
    be_tmpfs(32 * MIB);
    kvshm__sys.map_at = kvshm__sys_real.map_at;
    host.smaps = "nothing of it\n";
    refused(KVSHM_BACKING_THP, 32 * MIB, -ENODATA, "counting transparent hugepages");
}
END_TEST

START_TEST(test_sizes_of_transparent_hugepages)
{
    static const int64_t sizes[] = {-1, 0, 100, 2 * MIB + 1, 1000000, 2 * GIB};

    be_tmpfs(0);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        host.thp_size = sizes[i];
        ck_assert_uint_eq(kvshm__backing_thp_size(), 0);
    }
    host.thp_size = 32 * (int64_t)MIB;
    ck_assert_uint_eq(kvshm__backing_thp_size(), 32 * MIB);
}
END_TEST

/* ---- Reasons, maps ------------------------------------------------------------------------------------ */

START_TEST(test_long_reasons_are_cut)
{
    struct kvshm__ways ways = {.count = 3, .asked = KVSHM_BACKING_AUTO};

    for (unsigned i = 0; i < 3; i++) {
        ways.way[i].backing = KVSHM_BACKING_THP;
        ways.way[i + 1].backing = KVSHM_BACKING_SMALL;
    }
    memset(ways.reason, 'x', 120);
    ck_assert(kvshm__backing_next(&ways, 0, -EIO));
    ck_assert_uint_eq(strlen(ways.reason), sizeof(ways.reason) - 1);
    ck_assert_str_eq(ways.reason + 120, "; th...");
    ck_assert(kvshm__backing_next(&ways, 1, -EIO));
    ck_assert_str_eq(ways.reason + 120, "; th...");
    ck_assert(!kvshm__backing_next(&ways, 2, -EIO));
}
END_TEST

START_TEST(test_words)
{
    ck_assert_str_eq(kvshm__backing_word(KVSHM_BACKING_AUTO), "auto");
    ck_assert_str_eq(kvshm__backing_word(KVSHM_BACKING_HUGETLB_1G), "hugetlb-1g");
    ck_assert_str_eq(kvshm__backing_word(KVSHM_BACKING_HUGETLB_1G + 1), "unknown");
}
END_TEST

/* Every mapping takes the same calls, wherever it falls, and leaves nothing when one of them fails. */
START_TEST(test_maps)
{
    int fd = open(getenv("KVSHM_DIR"), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    void *held[40], *address;
    unsigned maps;

    ck_assert_int_eq(ftruncate(fd, 4 * (off_t)MIB), 0);
    for (unsigned i = 0; i < 40; i++) {
        ts_fail_nth(0, 0);
        ck_assert_int_eq(kvshm__backing_map(fd, 4 * MIB, i % 2 ? 4096 : 2 * MIB,
                                            PROT_READ | PROT_WRITE, &address),
                         0);
        ck_assert_uint_eq(ts_fail_calls(), 4);
        ts_fail_off();
        ck_assert_uint_eq((uintptr_t)address % (2 * MIB), 0);
        memset(address, 1, 4 * MIB);
        ck_assert_int_eq(munmap(address, 4 * MIB), 0);
        held[i] =
            mmap(NULL, 4096 * (1 + i * 37 % 500), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    maps = ts_maps();
    for (unsigned n = 1; n <= 2; n++) {
        ts_fail_nth(n, ENOMEM);
        ck_assert_int_eq(kvshm__backing_map(fd, 4 * MIB, 4096, PROT_READ, &address), -ENOMEM);
        ts_fail_off();
        ck_assert_uint_eq(ts_maps(), maps);
    }
    for (unsigned i = 0; i < 40; i++)
        munmap(held[i], 4096 * (1 + i * 37 % 500));
    close(fd);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("backing");
    TCase *tcase = tcase_create("backing");

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_pages_of_1g);
    tcase_add_test(tcase, test_interrupted_between_large_pages);
    tcase_add_test(tcase, test_pools);
    tcase_add_test(tcase, test_mounts_too_small);
    tcase_add_test(tcase, test_no_permission);
    tcase_add_test(tcase, test_no_such_pages);
    tcase_add_test(tcase, test_lost_to_another);
    tcase_add_test(tcase, test_mount_that_keeps_pages);
    tcase_add_test(tcase, test_had_is_what_was_counted);
    tcase_add_test(tcase, test_auto_takes_half);
    tcase_add_test(tcase, test_auto_makes_no_few_hugepages);
    tcase_add_test(tcase, test_not_counted_is_not_had);
    tcase_add_test(tcase, test_sizes_of_transparent_hugepages);
    tcase_add_test(tcase, test_long_reasons_are_cut);
    tcase_add_test(tcase, test_words);
    tcase_add_test(tcase, test_maps);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
