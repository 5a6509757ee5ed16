/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_look.c - info, stats, addresses
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "handle.h"
#include "support.h"

static struct kvshm_config config;
static kvshm *kv;
static const uint32_t tokens[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

static void setup(void)
{
    ts_setup();
    config = ts_config(300, 4, 20);
    config.capacity = 7;
    config.stall_ms = 321;
    config.wait_ms = 654;
    config.admission = KVSHM_ADMIT_REUSED;
    config.max_clients = 5;
    config.max_leases = 6;
    config.mode = 0640;
    config.geometry.token_scale = 3;
    kv = ts_create("a", &config);
}

static void teardown(void)
{
    ts_detach(kv);
    ts_teardown();
}

static struct kvshm_info info_of(kvshm *handle)
{
    struct kvshm_info info;

    kvshm_info_init(&info);
    ts_is(kvshm_info(handle, &info), 0);
    return info;
}

START_TEST(test_info_of_a_new_arena)
{
    struct kvshm_info info = info_of(kv);

    ck_assert_uint_eq(info.size, sizeof(info));
    ck_assert_str_eq(info.name, "a");
    ck_assert_uint_eq(info.epoch, 1);
    ck_assert_mem_eq(&info.geometry, &config.geometry, sizeof(info.geometry));
    ck_assert(!info.has_fingerprint && !info.read_only);
    ck_assert_uint_eq(info.backing_asked, KVSHM_BACKING_AUTO);
    ck_assert_uint_eq(info.backing, KVSHM_BACKING_SMALL);
    ck_assert_uint_ne(info.backing_reason[0], '\0');
    ck_assert_uint_eq(info.numa_asked, KVSHM_NUMA_AUTO);
    ck_assert_uint_ne(info.numa, KVSHM_NUMA_AUTO);
    ck_assert_uint_eq(info.page_bytes, 300);
    ck_assert_uint_eq(info.frame_stride, 320);
    ck_assert_uint_eq(info.frames_offset % 4096, 0);
    ck_assert_uint_eq(info.frames_length, 20 * 320);
    ck_assert_uint_ge(info.segment_bytes, info.frames_offset + info.frames_length);
    ck_assert(info.frames == 20 && info.frames_free == 20 && info.frames_reserved == 0);
    ck_assert(info.pages == 0 && info.pages_limbo == 0 && info.entries == 0);
    ck_assert(info.capacity == 7 && info.stall_ms == 321);
    ck_assert(info.wait_ms == 654 && info.admission == KVSHM_ADMIT_REUSED);
    ck_assert(info.slots == 0 && info.engine == KVSHM_ENGINE_NONE && info.engine_reason[0] == '\0');
    ck_assert(info.max_clients == 5 && info.max_leases == 6 && info.clients == 1);
    ck_assert(info.mode == 0640 && info.uid == geteuid() && info.creator_uid == geteuid());
    ck_assert_uint_eq(info.creator_pid, (uint32_t)getpid());
    ck_assert_uint_gt(info.created_ns, 0);
    ck_assert(info.last_insert_ns == 0 && info.last_evict_ns == 0);
    ck_assert_uint_eq(info.index_bytes, (20 / 4 + 2) * 64 + 20 * (128 + 24 + 16 + 16));
    ck_assert_uint_eq(info.token_bytes, 20 * 32);
}
END_TEST

START_TEST(test_info_of_what_it_holds)
{
    struct kvshm_reservation reservation;
    kvshm *reader = ts_attach("a", KVSHM_RDONLY);
    struct kvshm_info info;

    ts_insert(kv, 0, 0, tokens, 12);
    ts_is(kvshm_reserve(kv, 5, 0, &reservation), 0);
    info = info_of(reader);
    ck_assert(info.entries == 1 && info.pages == 3);
    ck_assert(info.frames_free == 12 && info.frames_reserved == 5);
    ck_assert_uint_ne(info.last_insert_ns, 0);
    kvshm_cancel(kv, &reservation);
    ts_is(kvshm_clear(kv), 0);
    info = info_of(reader);
    ck_assert(info.entries == 0 && info.epoch == 2);
    ck_assert(info.read_only && info.client == 0);
    ts_detach(reader);
}
END_TEST

/* Derived words that a death left wrong, or damage: bounded. */
START_TEST(test_info_is_bounded)
{
    struct kvshm_derived before, *derived = &kv->header->derived;
    struct kvshm_info info;

    memcpy(&before, derived, sizeof(before));
    memset((void *)derived, 0xff, sizeof(*derived));
    info = info_of(kv);
    ck_assert(info.frames_free <= 20 && info.frames_reserved <= 20 && info.pages <= 20);
    ck_assert(info.entries <= 20 && info.pages_limbo <= 20);
    memcpy((void *)derived, &before, sizeof(before));
    KVSHM__STORE(&kv->clients[kv->place].lease_high, UINT32_MAX);
    (void)ts_stats(kv);
    KVSHM__STORE(&kv->clients[kv->place].lease_high, 0);
}
END_TEST

/* Callers of other sizes get what they know; nothing beyond is touched. */
START_TEST(test_sizes)
{
    union {
        struct kvshm_info info;
        struct kvshm_stats stats;
        unsigned char bytes[sizeof(struct kvshm_info) + 64];
    } u;

    memset(&u, 0xee, sizeof(u));
    u.info.size = 100;
    ts_is(kvshm_info(kv, &u.info), 0);
    ck_assert_uint_eq(u.info.size, 100);
    ck_assert_str_eq(u.info.name, "a");
    ck_assert_uint_ne(u.bytes[99], 0xee);
    ck_assert_uint_eq(u.bytes[100], 0xee);
    u.info.size = sizeof(u.info) + 8; /* a newer caller */
    ts_is(kvshm_info(kv, &u.info), 0);
    ck_assert_uint_eq(u.bytes[sizeof(u.info) + 7], 0);
    ck_assert_uint_eq(u.bytes[sizeof(u.info) + 8], 0xee);
    memset(&u, 0xee, sizeof(u));
    u.stats.size = 32;
    ts_is(kvshm_stats(kv, &u.stats), 0);
    ck_assert_uint_eq(u.bytes[31], 0);
    ck_assert_uint_eq(u.bytes[32], 0xee);
    u.info.size = 0;
    ts_is(kvshm_info(kv, &u.info), -EINVAL);
    ts_says("kvshm_info_init()");
    ts_is(kvshm_stats(kv, &u.stats), -EINVAL);
    ts_is(kvshm_info(kv, NULL), -EINVAL);
    ts_is(kvshm_stats(kv, NULL), -EINVAL);
    ts_is(kvshm_info(NULL, &u.info), -EINVAL);
    u.info.size = SIZE_MAX;
    ts_is(kvshm_info(kv, &u.info), -EINVAL);
}
END_TEST

START_TEST(test_stats)
{
    kvshm *other = ts_attach("a", 0), *reader = ts_attach("a", KVSHM_RDONLY);
    struct kvshm_prefix prefix;
    struct kvshm_stats stats;
    struct kvshm_lease lease;

    kvshm_prefix_init(&prefix, 0, 0, tokens, 12);
    ts_is(kvshm_lookup(other, &prefix, 0, &lease), KVSHM_MISS);
    ts_insert(kv, 0, 0, tokens, 12);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), 0);
    kvshm_release(kv, &lease);
    ts_is(kvshm_match(other, &prefix, 0, &lease), 0);
    kvshm_release(other, &lease);
    ts_detach(other); /* its counters stay */
    stats = ts_stats(reader);
    ck_assert(stats.lookup_hits == 1 && stats.match_hits == 1 && stats.lookup_misses == 1);
    ck_assert(stats.hit_pages == 6 && stats.hit_tokens == 24);
    ck_assert(stats.inserted_entries == 1 && stats.published_pages == 3);
    ck_assert(stats.reserved_pages == 3 && stats.evicted_pages == 0);
    other = ts_attach("a", 0); /* takes the place, and adds them to the totals */
    ts_is(kvshm_stats(reader, &stats), 0);
    ck_assert(stats.hit_pages == 6 && stats.lookup_misses == 1);
    ts_detach(other);
    ts_detach(reader);
}
END_TEST

START_TEST(test_addresses)
{
    struct kvshm_info info = info_of(kv);
    kvshm *reader = ts_attach("a", KVSHM_RDONLY);
    uint64_t last = info.frames_offset + info.frames_length;
    static const uint64_t none[] = {0, 64, 4096, UINT64_MAX, UINT64_MAX - 4096};

    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        if (none[i] < info.frames_offset || none[i] >= last)
            ck_assert(!kvshm_at(kv, none[i]) && !kvshm_at_writable(kv, none[i]));
    }
    ck_assert_ptr_null(kvshm_at(kv, info.frames_offset - 1));
    ck_assert_ptr_null(kvshm_at(kv, last));
    ck_assert_ptr_null(kvshm_at(kv, info.frames_offset + 300)); /* between two frames */
    ck_assert_ptr_null(kvshm_at(NULL, info.frames_offset));
    for (uint64_t offset = info.frames_offset; offset < last; offset += info.frame_stride) {
        ck_assert_ptr_eq(kvshm_at(kv, offset), (const char *)info.read_base + offset);
        ck_assert_ptr_eq(kvshm_at_writable(kv, offset + 299),
                         (char *)info.write_base + offset + 299);
        ck_assert_ptr_nonnull(kvshm_at(reader, offset));
        ck_assert_ptr_null(kvshm_at_writable(reader, offset));
    }
    ts_detach(reader);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("look");
    TCase *tcase = tcase_create("look");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_info_of_a_new_arena);
    tcase_add_test(tcase, test_info_of_what_it_holds);
    tcase_add_test(tcase, test_info_is_bounded);
    tcase_add_test(tcase, test_sizes);
    tcase_add_test(tcase, test_stats);
    tcase_add_test(tcase, test_addresses);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
