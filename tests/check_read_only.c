/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_read_only.c - who attaches with KVSHM_RDONLY sees all there is, changes nothing, and is in nobody's way
 */
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host.h"
#include "inside.h"
#include "reap.h"

#define NOBODY 65534

static uint32_t tokens[12];

static struct kvshm_prefix prefix_of(uint32_t n)
{
    struct kvshm_prefix prefix;

    for (uint32_t i = 0; i < 12; i++)
        tokens[i] = 100 + i;
    kvshm_prefix_init(&prefix, 0, 0, tokens, n);
    return prefix;
}

/* An arena with one entry of three pages. */
static kvshm *make(uint32_t mode)
{
    struct kvshm_config config = ts_config(IN_PAGE_BYTES, 4, 16);
    struct kvshm_prefix prefix = prefix_of(12);
    kvshm *kv;

    config.mode = mode;
    ts_need(kvshm_create("seen", &config, 0, &kv) == 0);
    ts_need(in_insert(kv, &prefix, NULL, 0) == 0);
    return kv;
}

static int count(const struct kvshm_entry *entry, void *n)
{
    (void)entry;
    ++*(unsigned *)n;
    return 0;
}

/* All that a reader may do; ts_need(), since children do it too. */
static void read_all(kvshm *kv)
{
    struct kvshm_prefix prefix = prefix_of(12);
    uint8_t bytes[3 * IN_PAGE_BYTES];
    struct kvshm_lease lease;
    struct kvshm_stats stats;
    struct kvshm_info info;
    unsigned n = 0;

    kvshm_info_init(&info);
    kvshm_stats_init(&stats);
    ts_need(kvshm_contains(kv, &prefix));
    ts_need(kvshm_lookup(kv, &prefix, KVSHM_PEEK, &lease) == 0 && lease.tokens == 12 &&
            lease.kv == NULL);
    ts_need(kvshm_match(kv, &prefix, KVSHM_PEEK, &lease) == 0 && lease.pages == 3);
    ts_need(kvshm_copy_out(kv, &prefix, 0, 3, bytes) == 3);
    for (uint32_t i = 0; i < 3; i++)
        ts_need(ts_filled(bytes + i * IN_PAGE_BYTES, IN_PAGE_BYTES, 0, 0, tokens, 4 * (i + 1)) ==
                0);
    ts_need(kvshm_info(kv, &info) == 0 && info.read_only && info.write_base == NULL &&
            info.client == 0);
    ts_need(kvshm_stats(kv, &stats) == 0 && stats.inserted_entries >= 1);
    ts_need(kvshm_foreach(kv, count, &n) == 0 && n >= 1);
    ts_need(kvshm_at(kv, info.frames_offset) ==
            (const uint8_t *)info.read_base + info.frames_offset);
    ts_need(kvshm_at_writable(kv, info.frames_offset) == NULL);
}

/* Lines of a file of /proc that have this in them, and of those, how many have that too. */
static unsigned lines_of(const char *file, const char *with, const char *also, unsigned *both)
{
    char line[1024];
    unsigned n = 0;
    FILE *f = fopen(file, "r");

    ck_assert_ptr_nonnull(f);
    *both = 0;
    while (fgets(line, sizeof(line), f) != NULL) {
        if (strstr(line, with) == NULL)
            continue;
        n++;
        *both += strstr(line, also) != NULL;
    }
    fclose(f);
    return n;
}

/* The one mapping is readable, and nothing else, from the beginning. */
START_TEST(test_mapping)
{
    kvshm *writer = make(0600), *kv;
    unsigned shared, readable;

    ts_detach(writer);
    kv = ts_attach("seen", KVSHM_RDONLY);
    ck_assert_uint_eq(lines_of("/proc/self/maps", kv->path, " r--s ", &readable), 1);
    ck_assert_uint_eq(readable, 1);
    read_all(kv);
    ck_assert_uint_eq(lines_of("/proc/self/maps", kv->path, " r--s ", &readable), 1);
    ck_assert_uint_eq(readable, 1);
    /* So the look is one that sees: a writing handle has a writable one. */
    writer = ts_attach("seen", 0);
    lines_of("/proc/self/maps", kv->path, " rw-s ", &shared);
    ck_assert_uint_eq(shared, 1);
    ts_detach(writer);
    ts_detach(kv);
    lines_of("/proc/self/maps", "/seen", "", &shared);
    ck_assert_uint_eq(shared, 0);
}
END_TEST

/* The descriptor is open for reading alone, and nothing of the file is locked, whatever is called. */
START_TEST(test_no_lock)
{
    kvshm *writer = make(0600), *kv;
    struct stat status;
    char inode[64];
    unsigned all;

    ck_assert_int_eq(stat(writer->path, &status), 0);
    snprintf(inode, sizeof(inode), ":%" PRIu64 " ", (uint64_t)status.st_ino);
    ck_assert_uint_eq(lines_of("/proc/locks", inode, "OFDLCK", &all), 2);
    ts_detach(writer);
    kv = ts_attach("seen", KVSHM_RDONLY | KVSHM_POPULATE);
    read_all(kv);
    ck_assert_uint_eq(lines_of("/proc/locks", inode, "", &all), 0);
    ck_assert_int_eq(write(kv->fd, "", 1), -1);
    ck_assert_int_eq(errno, EBADF);
    ts_is(kvshm_unlink("seen", 0), 0);
    read_all(kv);
    ts_detach(kv);
}
END_TEST

/* What writes or leases is told so, and not a byte changes. */
START_TEST(test_calls_that_write)
{
    kvshm *writer = make(0600), *kv = ts_attach("seen", KVSHM_RDONLY);
    struct kvshm_prefix prefix = prefix_of(12);
    uint64_t client = writer->client;
    struct kvshm_reservation r;
    struct kvshm_lease lease;
    uint8_t *before;

    before = malloc(kv->segment_bytes);
    memcpy(before, kv->read_base, kv->segment_bytes);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), KVSHM_E_READ_ONLY);
    ts_is(kvshm_lookup(kv, &prefix, KVSHM_PEEK | KVSHM_TOUCH, &lease), KVSHM_E_READ_ONLY);
    ts_is(kvshm_match(kv, &prefix, 0, &lease), KVSHM_E_READ_ONLY);
    ts_is(kvshm_match(kv, &prefix, KVSHM_TOUCH, &lease), KVSHM_E_READ_ONLY);
    ts_is(kvshm_match(kv, &prefix, KVSHM_PEEK | KVSHM_TOUCH, &lease), KVSHM_E_READ_ONLY);
    kvshm_release(kv, &lease);
    ts_is(kvshm_reserve(kv, 1, 0, &r), KVSHM_E_READ_ONLY);
    ts_is(kvshm_reserve(kv, 1, KVSHM_DEVICE, &r), KVSHM_E_READ_ONLY);
    ts_is(kvshm_reserve(kv, 1000, 0, &r), KVSHM_E_READ_ONLY);
    kvshm_cancel(kv, &r);
    ts_is(kvshm_insert(kv, &prefix, NULL, NULL, 0), KVSHM_E_READ_ONLY);
    ts_is(kvshm_insert(kv, &prefix, &lease, NULL, KVSHM_HOLD), KVSHM_E_READ_ONLY);
    ts_is(kvshm_remove(kv, &prefix), KVSHM_E_READ_ONLY);
    ts_is(kvshm_evict_lru(kv), KVSHM_E_READ_ONLY);
    ts_is(kvshm_clear(kv), KVSHM_E_READ_ONLY);
    ts_is(kvshm_join(kv, client), KVSHM_E_READ_ONLY);
    ts_is(kvshm_leave(kv, client), KVSHM_E_READ_ONLY);
    ts_is(kvshm__setting_set(kv, "capacity", 1), KVSHM_E_READ_ONLY);
    ts_is(kvshm__reap(kv, client, NULL), KVSHM_E_READ_ONLY);
    ts_is(kvshm__reap(kv, 0, "label"), KVSHM_E_READ_ONLY);
    read_all(kv);
    ck_assert_mem_eq(before, kv->read_base, kv->segment_bytes);
    free(before);
    ts_detach(kv);
    ts_detach(writer);
}
END_TEST

/* ---- A stray write ---------------------------------------------------------------------------------------- */

static int write_to(void *address)
{
    signal(SIGSEGV, SIG_DFL); /* a sanitizer's is not asked */
    *(volatile uint8_t *)address = 1;
    return 0;
}

static void faults(const void *address)
{
    ck_assert_ptr_nonnull(address);
    ck_assert_int_eq(ts_wait(ts_fork(write_to, (void *)(uintptr_t)address)), 128 + SIGSEGV);
}

/* A child does not even have the mapping (MADV_DONTFORK): it attaches itself. */
static int write_through(void *which)
{
    struct kvshm_prefix prefix = prefix_of(12);
    const void *address = NULL, *pages[3];
    struct kvshm_lease lease;
    struct kvshm_info info;
    kvshm *kv;
    int n = *(int *)which;

    kvshm_info_init(&info);
    ts_need(kvshm_attach("seen", NULL, n < 3 ? KVSHM_RDONLY : 0, &kv) == 0 &&
            kvshm_info(kv, &info) == 0);
    if (n == 0)
        address = info.read_base;
    else if (n == 1 || n == 3)
        address = kvshm_at(kv, info.frames_offset);
    else if (n == 2)
        address = (const uint8_t *)info.read_base + info.segment_bytes - 1;
    else
        ts_need(kvshm_lookup(kv, &prefix, 0, &lease) == 0 &&
                kvshm_lease_pages(&lease, 0, 3, pages) == 3);
    if (n == 4)
        address = kvshm_lease_page(&lease, 1);
    if (n == 5)
        address = pages[2];
    ts_need(address != NULL && *(const volatile uint8_t *)address <= 255);
    return write_to((void *)(uintptr_t)address);
}

/* The last three are of a writing handle, whose leases and reservations have one mapping in the ThreadSanitizer build. */
#ifdef KVSHM_TSAN
#define ADDRESSES 3
#else
#define ADDRESSES 6
#endif

/* Through each address that a read-only handle gives, and each that a writing one gives of what it leases. */
START_TEST(test_stray_writes_fault)
{
    kvshm *writer = make(0600);

    ck_assert_int_eq(ts_wait(ts_fork(write_through, &_i)), 128 + SIGSEGV);
    faults(ts_dir_remove); /* so the answer is the one that a fault makes */
    ts_detach(writer);
}
END_TEST

/* ---- Other mounts, other users ---------------------------------------------------------------------------- */

/* In a mount namespace of its own, the folder of arenas is mounted for reading alone. */
static int on_a_read_only_mount(void *unused)
{
    const char *dir = getenv("KVSHM_DIR");
    kvshm *kv;

    (void)unused;
    ts_need(unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    ts_need(mount(dir, dir, NULL, MS_BIND, NULL) == 0);
    ts_need(mount("none", dir, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) == 0);
    ts_need(kvshm_attach("seen", NULL, 0, &kv) == -EROFS);
    ts_need(kvshm_attach("seen", NULL, KVSHM_RDONLY, &kv) == 0);
    read_all(kv);
    ts_need(kvshm_unlink("seen", 0) < 0);
    ts_need(kvshm_detach(kv) == 0);
    ts_need(kvshm_open("seen", NULL, KVSHM_RDONLY, &kv) == 0);
    read_all(kv);
    return kvshm_detach(kv);
}

START_TEST(test_read_only_mount)
{
    kvshm *writer;

    if (geteuid() != 0) {
        printf("SKIP test_read_only_mount: only root mounts\n");
        return;
    }
    writer = make(0600);
    ck_assert_int_eq(ts_wait(ts_fork(on_a_read_only_mount, NULL)), 0);
    ts_detach(writer);
    ts_is(kvshm_unlink("seen", 0), 0);
}
END_TEST

static int as_nobody(void *mode)
{
    bool readable = *(uint32_t *)mode & 04;
    kvshm *kv;

    ts_need(setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
            setresuid(NOBODY, NOBODY, NOBODY) == 0);
    ts_need(kvshm_attach("seen", NULL, 0, &kv) == -EACCES);
    ts_need(kvshm_unlink("seen", 0) < 0);
    if (!readable) {
        ts_need(kvshm_attach("seen", NULL, KVSHM_RDONLY, &kv) == -EACCES);
        return 0;
    }
    ts_need(kvshm_attach("seen", NULL, KVSHM_RDONLY, &kv) == 0);
    read_all(kv);
    return kvshm_detach(kv);
}

/* In a /dev/shm of its own, as a host has it, so that nobody can come there. */
static int as_others(void *mode)
{
    kvshm *writer;

    host_alone("mode=1777");
    writer = make(*(uint32_t *)mode);
    ts_need(ts_wait(ts_fork(as_nobody, mode)) == 0);
    ts_need(kvshm_detach(writer) == 0);
    ts_need(ts_wait(ts_fork(as_nobody, mode)) == 0); /* with nobody attached, the same */
    return kvshm_unlink("seen", 0);
}

START_TEST(test_another_user)
{
    uint32_t modes[] = {0644, 0604, 0600, 0640};

    if (geteuid() != 0) {
        printf("SKIP test_another_user: only root becomes another\n");
        return;
    }
    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(ts_wait(ts_fork(as_others, &modes[i])), 0);
}
END_TEST

/* ---- In nobody's way -------------------------------------------------------------------------------------- */

/* Attach and look, again and again, until told to end, with the arena there or not. */
static int look_on(void *ends)
{
    struct kvshm_prefix prefix = prefix_of(12);
    uint8_t bytes[3 * IN_PAGE_BYTES];
    volatile uint32_t *end = ends;

    while (*end == 0) {
        kvshm *kv;
        int code = kvshm_attach("seen", NULL, KVSHM_RDONLY, &kv);

        ts_need(code == 0 || code == -ENOENT || code == KVSHM_E_UNLINKED);
        for (unsigned looks = 0; code == 0 && looks < 16; looks++) {
            kvshm_contains(kv, &prefix);
            for (int64_t i = 0, n = kvshm_copy_out(kv, &prefix, 0, 3, bytes); i < n; i++)
                ts_need(ts_filled(bytes + i * IN_PAGE_BYTES, IN_PAGE_BYTES, 0, 0, tokens,
                                  4 * (size_t)(i + 1)) == 0);
        }
        ts_need(code != 0 || kvshm_detach(kv) == 0);
    }
    return 0;
}

/* Every call of a writer; none may say that someone else is in the way. */
static void write_all(kvshm *kv)
{
    struct kvshm_prefix prefix = prefix_of(12), longer = in_range(500, 8), key = in_key(7, 6);
    struct kvshm_reservation r;

    ck_assert_int_ge(in_insert(kv, &prefix, NULL, 0), 0);
    ck_assert_int_ge(in_insert(kv, &longer, NULL, 0), 0);
    ck_assert_int_ge(in_insert(kv, &key, NULL, 0), 0);
    ts_is(kvshm_remove(kv, &prefix), 0);
    ck_assert_int_ge(kvshm_evict_lru(kv), 0);
    ts_is(kvshm_reserve(kv, 16, 0, &r), 0); /* each frame, also those that it is looking at */
    for (uint32_t i = 0; i < 16; i++)
        memset(kvshm_reservation_page(&r, i), 0xee, IN_PAGE_BYTES);
    kvshm_cancel(kv, &r);
    ts_is(kvshm_clear(kv), 0);
    ck_assert_int_eq(in_insert(kv, &prefix, NULL, 0), 0);
    ts_is(kvshm__setting_set(kv, "capacity", KVSHM_UNLIMITED), 0);
}

/* It comes first: a child made later would have copies of the writer's descriptors, until it has closed them. */
START_TEST(test_a_stopped_one_delays_nobody)
{
    uint32_t *end = ts_shared(sizeof(*end));
    pid_t pid = ts_fork(look_on, end);

    for (uint64_t round = 0; round < ts_amount(5, 40, 1000); round++) {
        kvshm *writer = make(0600);

        for (unsigned i = 0; i < 4; i++) {
            write_all(writer);
            ts_stop(pid);
            write_all(writer);
            in_audit(writer);
            ts_continue(pid);
        }
        ts_stop(pid);
        write_all(writer);
        ts_detach(writer);
        ts_is(kvshm_unlink("seen", 0), 0); /* not busy */
        ts_continue(pid);
    }
    *end = 1;
    ck_assert_int_eq(ts_wait(pid), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("read_only");
    TCase *tcase = tcase_create("read_only");

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_mapping);
    tcase_add_test(tcase, test_no_lock);
    tcase_add_test(tcase, test_calls_that_write);
    tcase_add_loop_test(tcase, test_stray_writes_fault, 0, ADDRESSES);
    tcase_add_test(tcase, test_read_only_mount);
    tcase_add_test(tcase, test_another_user);
    tcase_add_test(tcase, test_a_stopped_one_delays_nobody);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
