/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_arena.c - arenas are made, attached, opened, detached, removed, listed; and every system call fails once
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client.h"
#include "recency.h"
#include "support.h"
#include "sys.h"
#include "validate.h"

static struct kvshm_config config;
static const uint32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};

static void setup(void)
{
    ts_setup();
    config = ts_config(256, 4, 20);
    config.label = "server";
}

static struct kvshm_info info_of(kvshm *kv)
{
    struct kvshm_info info;

    kvshm_info_init(&info);
    ts_is(kvshm_info(kv, &info), 0);
    return info;
}

/* ---- Arguments --------------------------------------------------------------------------------------- */

START_TEST(test_arguments)
{
    kvshm *kv = (kvshm *)&config;

    ts_is(kvshm_create("a", &config, 0, NULL), -EINVAL);
    ts_is(kvshm_create("a", &config, KVSHM_RDONLY, &kv), -EINVAL);
    ck_assert_ptr_null(kv);
    ts_says("kvshm_create: flags 0x1");
    ts_is(kvshm_create("../a", &config, 0, &kv), -EINVAL);
    ts_is(kvshm_create("a", NULL, 0, &kv), -EINVAL);
    ts_is(kvshm_attach("a", NULL, KVSHM_FORCE, &kv), -EINVAL);
    ts_is(kvshm_attach(NULL, NULL, 0, &kv), -EINVAL);
    ts_is(kvshm_attach("a", NULL, 0, NULL), -EINVAL);
    ts_is(kvshm_attach("a", NULL, 0, &kv), -ENOENT);
    ts_is(kvshm_open("a", NULL, 0, &kv), -EINVAL);
    ts_is(kvshm_open("a", &config, 0x8000, &kv), -EINVAL);
    ts_is(kvshm_open("a", &config, KVSHM_RDONLY, &kv), -ENOENT);
    ts_is(kvshm_unlink("a", KVSHM_RDONLY), -EINVAL);
    ts_is(kvshm_unlink("/a", 0), -EINVAL);
    ts_is(kvshm_unlink("a", 0), -ENOENT);
    ts_is(kvshm_list(NULL, NULL), -EINVAL);
    ts_is(kvshm_detach(NULL), 0);
    ck_assert_uint_eq(ts_dir_names(), 0);
    config.geometry.page_tokens = 0;
    ts_is(kvshm_open("a", &config, 0, &kv), KVSHM_E_GEOMETRY);
}
END_TEST

/* ---- Life -------------------------------------------------------------------------------------------- */

START_TEST(test_a_life)
{
    unsigned fds = ts_fds(), maps = ts_maps();
    kvshm *kv = ts_create("a", &config), *second, *reader;
    struct kvshm_info info = info_of(kv);

    ck_assert_str_eq(info.name, "a");
    ck_assert_ptr_nonnull(strstr(info.path, "/a"));
    ck_assert_uint_eq(info.client, 1);
    ts_is(kvshm_create("a", &config, 0, &second), -EEXIST);
    second = ts_attach("a", 0);
    reader = ts_attach("a", KVSHM_RDONLY);
    ck_assert_uint_eq(info_of(reader).clients, 2);
    ts_is(kvshm_unlink("a", 0), -EBUSY);
    ts_says("(server)");
    ts_detach(kv);
    ts_is(kvshm_unlink("a", 0), -EBUSY);
    ts_detach(second);
    ts_is(kvshm_unlink("a", 0), 0);
    ck_assert_uint_eq(info_of(reader).clients, 0);
    ts_detach(reader);
    ts_is(kvshm_attach("a", NULL, 0, &kv), -ENOENT);
    ck_assert_uint_eq(ts_fds(), fds);
    ck_assert_uint_eq(ts_maps(), maps);
    ck_assert_uint_eq(ts_dir_names(), 0);
}
END_TEST

START_TEST(test_open)
{
    struct kvshm_config attach_only;
    kvshm *one, *two, *three;

    kvshm_config_init(&attach_only);
    ts_is(kvshm_open("a", &config, 0, &one), 0);
    ts_is(kvshm_open("a", &config, KVSHM_POPULATE, &two), 0);
    ck_assert_uint_eq(info_of(one).arena_id[0], info_of(two).arena_id[0]);
    ts_is(kvshm_open("a", &attach_only, 0, &three), 0); /* nothing to create with is needed */
    ts_detach(three);
    ts_is(kvshm_open("b", &attach_only, 0, &three), KVSHM_E_GEOMETRY);
    ts_is(kvshm_open("a", &config, KVSHM_RDONLY, &three), 0);
    ts_detach(three);
    ts_detach(two);
    ts_detach(one);
}
END_TEST

/* Forced: the others read on, and can write no more. A new arena of the name is another. */
START_TEST(test_forced)
{
    struct kvshm_reservation reservation;
    struct kvshm_prefix prefix;
    struct kvshm_lease lease;
    kvshm *kv = ts_create("a", &config), *next;

    ts_insert(kv, 0, 0, tokens, 8);
    ts_is(kvshm_unlink("a", KVSHM_FORCE), 0);
    kvshm_prefix_init(&prefix, 0, 0, tokens, 8);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), 0);
    ck_assert_uint_eq(ts_filled(kvshm_lease_page(&lease, 1), 256, 0, 0, tokens, 8), 0);
    ts_is(kvshm_reserve(kv, 1, 0, &reservation), KVSHM_E_UNLINKED);
    next = ts_create("a", &config);
    ts_is(kvshm_reserve(kv, 1, 0, &reservation), KVSHM_E_UNLINKED);
    ck_assert_uint_eq(info_of(next).entries, 0);
    kvshm_release(kv, &lease);
    ts_detach(kv);
    ts_detach(next);
}
END_TEST

/* Unlinked between an attacher's opening and its taking of a place. */
static int unlink_then_lock(int fd, int kind, uint64_t offset, uint64_t length)
{
    kvshm__sys.lock_set = kvshm__sys_real.lock_set;
    ts_is(kvshm_unlink("a", 0), 0);
    return kvshm__sys.lock_set(fd, kind, offset, length);
}

START_TEST(test_unlinked_while_attaching)
{
    kvshm *kv;

    ts_detach(ts_create("a", &config));
    kvshm__sys.lock_set = unlink_then_lock;
    ts_is(kvshm_attach("a", NULL, 0, &kv), KVSHM_E_UNLINKED);
    ts_detach(ts_create("a", &config));
    kvshm__sys.lock_set = unlink_then_lock;
    ts_is(kvshm_open("a", &config, 0, &kv), 0); /* creates it anew */
    ck_assert_uint_eq(ts_dir_names(), 1);
    ts_detach(kv);
}
END_TEST

START_TEST(test_detach_while_holding)
{
    struct kvshm_reservation reservation;
    struct kvshm_prefix prefix;
    struct kvshm_lease lease;
    kvshm *kv = ts_create("a", &config);

    ts_insert(kv, 0, 0, tokens, 8);
    kvshm_prefix_init(&prefix, 0, 0, tokens, 8);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), 0);
    ts_is(kvshm_reserve(kv, 2, 0, &reservation), 0);
    ts_is(kvshm_detach(kv), -EBUSY);
    ts_says("1 leases and 1 reservations");
    kvshm_release(kv, &lease);
    ts_is(kvshm_detach(kv), -EBUSY);
    ts_says("0 leases and 1 reservations");
    kvshm_cancel(kv, &reservation);
    ts_detach(kv);
}
END_TEST

START_TEST(test_two_mappings)
{
    kvshm *kv = ts_create("a", &config), *reader = ts_attach("a", KVSHM_RDONLY);
    struct kvshm_info info = info_of(kv);

    ts_insert(kv, 0, 0, tokens, 4);
    ck_assert_uint_eq(
        ts_filled((const char *)info.read_base + info.frames_offset, 256, 0, 0, tokens, 4), 0);
    ck_assert_uint_eq(ts_filled((char *)info.write_base + info.frames_offset, 256, 0, 0, tokens, 4),
                      0);
    ck_assert_ptr_null(info_of(reader).write_base);
    ck_assert(info_of(reader).read_only && !info.read_only);
#ifndef KVSHM_TSAN
    ck_assert_ptr_ne(info.read_base, info.write_base);
    ck_assert_int_ne(mprotect((void *)reader->base, 4096, PROT_READ | PROT_WRITE), 0);
#endif
    ts_detach(reader);
    ts_detach(kv);
}
END_TEST

static int no_populate(void *address, uint64_t size, int advice)
{
    return advice > 20 && advice < 24 ? -EINVAL : kvshm__sys_real.advise(address, size, advice);
}

START_TEST(test_populate)
{
    kvshm *kv;

    ts_is(kvshm_create("a", &config, KVSHM_POPULATE, &kv), 0);
    ts_detach(kv);
    kvshm__sys.advise = no_populate; /* an older system */
    ts_is(kvshm_attach("a", NULL, KVSHM_POPULATE, &kv), 0);
    ts_detach(kv);
    ts_is(kvshm_attach("a", NULL, KVSHM_POPULATE | KVSHM_RDONLY, &kv), 0);
    ts_detach(kv);
}
END_TEST

/* Bytes on disk and mappings do not count: attach makes as many calls for a large arena as for a small one. */
START_TEST(test_attach_costs_the_same)
{
    unsigned calls[2];

    for (unsigned i = 0; i < 2; i++) {
        struct kvshm_config sized = ts_config(256, 4, i == 0 ? 10 : 100000);
        kvshm *kv;

        ts_detach(ts_create("a", &sized));
        ts_fail_nth(0, 0);
        ts_is(kvshm_attach("a", NULL, 0, &kv), 0);
        calls[i] = ts_fail_calls();
        ts_fail_off();
        ts_detach(kv);
        ts_is(kvshm_unlink("a", 0), 0);
    }
    ck_assert_uint_eq(calls[0], calls[1]);
}
END_TEST

/* ---- What attach compares ------------------------------------------------------------------------------ */

START_TEST(test_geometry)
{
    struct kvshm_config expect = config;
    kvshm *kv = ts_create("a", &config), *other;

    ts_is(kvshm_attach("a", &expect, 0, &other), 0);
    ts_detach(other);
    expect.geometry.page_tokens = 8;
    ts_is(kvshm_attach("a", &expect, 0, &other), KVSHM_E_GEOMETRY);
    ts_says("geometry.page_tokens is 8 and the arena's is 4");
    expect.geometry.page_bytes = 0;
    ts_is(kvshm_attach("a", &expect, 0, &other), 0); /* none named */
    ts_detach(other);
    ts_detach(kv);
}
END_TEST

START_TEST(test_fingerprint_of_the_creator)
{
    struct kvshm_config expect;
    kvshm *kv, *other;

    config.fingerprint[5] = 1;
    kv = ts_create("a", &config);
    ck_assert(info_of(kv).has_fingerprint);
    ck_assert_mem_eq(info_of(kv).fingerprint, config.fingerprint, KVSHM_FINGERPRINT_BYTES);
    ts_is(kvshm_attach("a", &config, 0, &other), 0);
    ts_detach(other);
    ts_is(kvshm_attach("a", &config, KVSHM_RDONLY, &other), 0);
    ts_detach(other);
    kvshm_config_init(&expect);
    expect.fingerprint[31] = 1;
    ts_is(kvshm_attach("a", &expect, 0, &other), KVSHM_E_FINGERPRINT);
    ts_is(kvshm_attach("a", &expect, KVSHM_RDONLY, &other), KVSHM_E_FINGERPRINT);
    ck_assert_uint_eq(kv->header->next_client, 2); /* who was refused took no number */
    other = ts_attach("a", 0);
    ts_detach(other);
    ts_detach(kv);
}
END_TEST

START_TEST(test_fingerprint_named_later)
{
    struct kvshm_config one, two;
    struct kvshm_prefix prefix;
    struct kvshm_lease lease;
    kvshm *kv = ts_create("a", &config), *other;

    kvshm_config_init(&one);
    one.fingerprint[0] = 1;
    two = one;
    two.fingerprint[0] = 2;
    ck_assert(!info_of(kv).has_fingerprint);
    ts_is(kvshm_attach("a", &one, KVSHM_RDONLY, &other), KVSHM_E_FINGERPRINT);
    ts_insert(kv, 0, 0, tokens, 8);
    ts_is(kvshm_attach("a", &one, 0, &other), KVSHM_E_FINGERPRINT);
    ts_says("holds pages already");
    /* A page in limbo could be called back. */
    kvshm_prefix_init(&prefix, 0, 0, tokens, 8);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), 0);
    ts_is(kvshm_remove(kv, &prefix), 0);
    ck_assert_uint_eq(info_of(kv).entries, 0);
    ts_is(kvshm_attach("a", &one, 0, &other), KVSHM_E_FINGERPRINT);
    ts_is(kvshm_clear(kv), 0); /* not from before a clear */
    ts_is(kvshm_attach("a", &one, 0, &other), 0);
    ck_assert(info_of(kv).has_fingerprint);
    ck_assert_mem_eq(info_of(kv).fingerprint, one.fingerprint, KVSHM_FINGERPRINT_BYTES);
    ts_detach(other);
    ts_is(kvshm_attach("a", &two, 0, &other), KVSHM_E_FINGERPRINT);
    ts_is(kvshm_attach("a", &one, 0, &other), 0);
    ts_detach(other);
    kvshm_release(kv, &lease);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), KVSHM_E_FINGERPRINT); /* named none */
    ts_detach(kv);
}
END_TEST

START_TEST(test_clock_of_another_machine)
{
    struct kvshm_static fixed;
    kvshm *kv = ts_create("a", &config);

    fixed = *kv->fixed;
    ck_assert_uint_eq(fixed.clock,
                      kvshm__recency_hardware() ? KVSHM__CLOCK_HARDWARE : KVSHM__CLOCK_SHARED);
    ck_assert_int_eq(info_of(kv).hardware_clock, kvshm__recency_hardware());
    if (!kvshm__recency_hardware()) {
        kvshm *other;

        fixed.clock = KVSHM__CLOCK_HARDWARE;
        fixed.checksum = kvshm__validate_checksum(&fixed);
        ck_assert_int_eq(pwrite(kv->fd, &fixed, sizeof(fixed), 0), sizeof(fixed));
        ts_is(kvshm_attach("a", NULL, 0, &other), KVSHM_E_FEATURE);
    }
    ts_detach(kv);
}
END_TEST

/* ---- List, looks ------------------------------------------------------------------------------------- */

static int remember(const char *name, const char *path, void *arg)
{
    unsigned *seen = arg;

    ck_assert_uint_eq(strlen(name), 1);
    ck_assert_int_eq(access(path, F_OK), 0);
    *seen |= 1u << (name[0] - 'a');
    return name[0] == 'q' ? 42 : 0;
}

START_TEST(test_list)
{
    unsigned seen = 0;

    ts_detach(ts_create("a", &config));
    ts_detach(ts_create("c", &config));
    ts_is(kvshm_list(remember, &seen), 0);
    ck_assert_uint_eq(seen, 5);
    ts_detach(ts_create("q", &config));
    ts_is(kvshm_list(remember, &seen), 42);
}
END_TEST

START_TEST(test_long_path)
{
    char deep[512];
    kvshm *kv;

    snprintf(deep, sizeof(deep), "%s/%0240d", getenv("KVSHM_DIR"), 7);
    ck_assert_int_eq(mkdir(deep, 0700), 0);
    setenv("KVSHM_DIR", deep, 1);
    kv = ts_create("a", &config);
    ck_assert_str_eq(info_of(kv).path, "");
    ts_detach(ts_attach("a", 0));
    ts_detach(kv);
    ts_is(kvshm_unlink("a", 0), 0);
    rmdir(deep);
}
END_TEST

/* Threads attach, look and detach at once, each with its own handle, on one name. */
static void *attach_often(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < ts_amount(20, 100, 1000); i++) {
        struct kvshm_info info;
        kvshm *kv;

        kvshm_info_init(&info);
        if (kvshm_open("a", &config, 0, &kv) != 0 || kvshm_info(kv, &info) != 0 ||
            info.client == 0 || kvshm_detach(kv) != 0)
            return (void *)1;
    }
    return NULL;
}

START_TEST(test_threads_attach)
{
    unsigned fds = ts_fds(), maps = ts_maps();
    pthread_t threads[4];
    void *wrong;

    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, attach_often, NULL), 0);
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(threads[i], &wrong);
        ck_assert_ptr_null(wrong);
    }
    ck_assert_uint_eq(ts_fds(), fds);
    ck_assert_uint_eq(ts_maps(), maps);
    ts_is(kvshm_unlink("a", 0), 0);
}
END_TEST

/* ---- Every system call fails once -------------------------------------------------------------------------- */

static int do_create(kvshm **kv)
{
    return kvshm_create("a", &config, 0, kv);
}

static int do_attach(kvshm **kv)
{
    return kvshm_attach("b", NULL, 0, kv);
}

static int do_attach_naming(kvshm **kv)
{
    struct kvshm_config expect;

    kvshm_config_init(&expect);
    expect.fingerprint[0] = 9;
    return kvshm_attach("b", &expect, KVSHM_POPULATE, kv);
}

static int do_read(kvshm **kv)
{
    return kvshm_attach("b", NULL, KVSHM_RDONLY, kv);
}

static int do_open(kvshm **kv)
{
    return kvshm_open("a", &config, 0, kv);
}

static int do_unlink(kvshm **kv)
{
    *kv = NULL;
    return kvshm_unlink("b", 0);
}

static int count(const char *name, const char *path, void *arg)
{
    (void)name;
    (void)path;
    ++*(unsigned *)arg;
    return 0;
}

static int do_list(kvshm **kv)
{
    unsigned names = 0;

    *kv = NULL;
    return kvshm_list(count, &names);
}

static int (*const steps[])(kvshm **) = {do_create, do_attach, do_attach_naming, do_read,
                                         do_open,   do_unlink, do_list};
static const int errors[] = {EIO, ENOMEM, EACCES, EINTR};

/* The n-th call fails: an error and nothing left, or it did not matter. */
static bool with_nth_failing(int (*step)(kvshm **), unsigned n, int error)
{
    unsigned fds = ts_fds(), maps = ts_maps(), names = ts_dir_names(), calls;
    kvshm *kv = NULL;
    int code;

    ts_fail_nth(n, error);
    code = step(&kv);
    calls = ts_fail_calls();
    const char *failed = ts_fail_name();
    ts_fail_off();
    if (code < 0) {
        ck_assert_ptr_null(kv);
        ck_assert_msg(kvshm_errmsg(NULL)[0] != '\0', "no message when %s fails", failed);
        ck_assert_msg(ts_dir_names() == names, "a name is left when %s, call %u, fails", failed, n);
    } else if (kv != NULL) {
        ts_detach(kv);
    }
    if (ts_fds() != fds || ts_maps() != maps)
        ck_abort_msg("%u descriptors, were %u; %u mappings, were %u, when %s, call %u, fails",
                     ts_fds(), fds, ts_maps(), maps, failed, n);
    kvshm_unlink("a", 0);
    return n <= calls;
}

START_TEST(test_every_call_fails)
{
    int (*step)(kvshm **) = steps[_i];
    unsigned n, failing = 0;

    for (size_t e = 0; e < sizeof(errors) / sizeof(errors[0]); e++) {
        for (n = 1;; n++) {
            if (access(getenv("KVSHM_DIR"), F_OK) == 0) {
                kvshm *kv;

                if (kvshm_create("b", &config, 0, &kv) == 0)
                    ts_detach(kv);
            }
            if (!with_nth_failing(step, n, errors[e]))
                break;
            failing++;
            if (step == do_attach_naming)
                ts_is(kvshm_unlink("b", 0), 0);
        }
    }
    ck_assert_uint_ge(failing, 4 * 4);
}
END_TEST

/* The same for a detach: whatever fails, it is detached, and nothing is left. */
START_TEST(test_every_call_of_detach_fails)
{
    unsigned fds, maps, n = 0, calls;

    ts_detach(ts_create("b", &config));
    fds = ts_fds();
    maps = ts_maps();
    do {
        kvshm *kv = ts_attach("b", 0), *reader = ts_attach("b", KVSHM_RDONLY);
        uint64_t number = kv->client;

        ts_fail_nth(++n, EIO);
        ts_is(kvshm_detach(kv), 0);
        calls = ts_fail_calls();
        ts_fail_off();
        ck_assert(!kvshm__client_alive(reader, number));
        ck_assert_int_eq(kvshm__client_find(reader, number), -1);
        ts_detach(reader);
        ck_assert_uint_eq(ts_fds(), fds);
        ck_assert_uint_eq(ts_maps(), maps);
    } while (n <= calls);
    ck_assert_uint_ge(n, 4);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arena");
    TCase *tcase = tcase_create("arena");

    tcase_add_checked_fixture(tcase, setup, ts_teardown);
    tcase_add_test(tcase, test_arguments);
    tcase_add_test(tcase, test_a_life);
    tcase_add_test(tcase, test_open);
    tcase_add_test(tcase, test_forced);
    tcase_add_test(tcase, test_unlinked_while_attaching);
    tcase_add_test(tcase, test_detach_while_holding);
    tcase_add_test(tcase, test_two_mappings);
    tcase_add_test(tcase, test_populate);
    tcase_add_test(tcase, test_attach_costs_the_same);
    tcase_add_test(tcase, test_geometry);
    tcase_add_test(tcase, test_fingerprint_of_the_creator);
    tcase_add_test(tcase, test_fingerprint_named_later);
    tcase_add_test(tcase, test_clock_of_another_machine);
    tcase_add_test(tcase, test_list);
    tcase_add_test(tcase, test_long_path);
    tcase_add_test(tcase, test_threads_attach);
    tcase_add_loop_test(tcase, test_every_call_fails, 0, sizeof(steps) / sizeof(steps[0]));
    tcase_add_test(tcase, test_every_call_of_detach_fails);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
