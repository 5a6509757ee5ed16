/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_seed.c - the tests of the single-process cache that kvshm does for many processes, by their names
 *
 * Each runs twice: with prompts named by their tokens, and with prompts named by their hash alone, as that cache does.
 * And the order in which that cache drops the wrong entry.
 */
#include <stdlib.h>
#include <string.h>

#include "support.h"

static const uint32_t a_tokens[] = {1, 2, 3, 4};
static const uint32_t b_tokens[] = {5, 6, 7, 8};
static const uint32_t c_tokens[] = {9, 10, 11, 12};

static bool by_hash; /* this run names prompts by their hash */

static kvshm *make_cache(uint64_t capacity)
{
    struct kvshm_config config;

    kvshm_config_init(&config);
    config.geometry.num_layers = 2;
    config.geometry.num_kv_heads = 2;
    config.geometry.head_dim = 4;
    config.geometry.page_tokens = 4;
    config.capacity = capacity;
    config.frames = 16;
    return ts_create("seed", &config);
}

static struct kvshm_prefix make_key(uint64_t adapter_id, const uint32_t *tokens, uint32_t n)
{
    struct kvshm_prefix prefix;

    if (by_hash)
        kvshm_prefix_init_hash(&prefix, adapter_id, 0, kvshm_hash_tokens(tokens, n), n);
    else
        kvshm_prefix_init(&prefix, adapter_id, 0, tokens, n);
    return prefix;
}

/* Pages filled with marker, marker + 1, ... as 32-bit floats. */
static void insert(kvshm *kv, const struct kvshm_prefix *key, float marker)
{
    struct kvshm_reservation reservation;
    uint32_t pages = kvshm_pages_for_tokens(key->n, 4);

    ts_is(kvshm_reserve(kv, pages, 0, &reservation), 0);
    for (uint32_t i = 0; i < pages; i++) {
        float *page = kvshm_reservation_page(&reservation, i);

        for (size_t j = 0; j < 2 * 2 * 4 * 2 * 4; j++)
            page[j] = marker + (float)i;
    }
    ts_is(kvshm_insert(kv, key, NULL, &reservation, 0), 0);
}

static void hits(kvshm *kv, const struct kvshm_prefix *key)
{
    struct kvshm_lease lease;

    ts_is(kvshm_lookup(kv, key, 0, &lease), 0);
    kvshm_release(kv, &lease);
}

static void misses(kvshm *kv, const struct kvshm_prefix *key)
{
    struct kvshm_lease lease;

    ts_is(kvshm_lookup(kv, key, 0, &lease), KVSHM_MISS);
}

static uint64_t entries(kvshm *kv)
{
    struct kvshm_info info;

    kvshm_info_init(&info);
    ts_is(kvshm_info(kv, &info), 0);
    return info.entries;
}

START_TEST(test_empty_cache_lookup)
{
    const uint32_t tokens[] = {1, 2, 3};
    struct kvshm_prefix key;
    kvshm *kv = make_cache(4);

    by_hash = _i;
    key = make_key(0, tokens, 3);
    misses(kv, &key);
    ck_assert_uint_eq(entries(kv), 0);
    ts_detach(kv);
}
END_TEST

START_TEST(test_prefix_lookup_hit)
{
    struct kvshm_lease lease;
    struct kvshm_prefix key;
    kvshm *kv = make_cache(4);
    const float *page = NULL;

    by_hash = _i;
    key = make_key(0, a_tokens, 4);
    insert(kv, &key, 7.0f);
    ts_is(kvshm_lookup(kv, &key, 0, &lease), 0);
    ck_assert_uint_eq(lease.tokens, 4);
    ck_assert_uint_eq(lease.pages, 1);
    page = kvshm_lease_page(&lease, 0);
    ck_assert_ptr_nonnull(page);
    ck_assert_float_eq(page[0], 7.0f);
    ck_assert_float_eq(page[2 * 2 * 4 * 2 * 4 - 1], 7.0f);
    ck_assert_uint_gt(lease.last_used, 0);
    kvshm_release(kv, &lease);
    ts_detach(kv);
}
END_TEST

START_TEST(test_prefix_cache_miss)
{
    const uint32_t tokens[] = {99, 100};
    struct kvshm_prefix key;
    kvshm *kv = make_cache(4);

    by_hash = _i;
    key = make_key(0, tokens, 2);
    misses(kv, &key);
    ts_detach(kv);
}
END_TEST

START_TEST(test_evict_lru_reclaims_unreferenced)
{
    struct kvshm_prefix key_a;
    struct kvshm_prefix key_b;
    kvshm *kv = make_cache(2);

    by_hash = _i;
    key_a = make_key(0, a_tokens, 4);
    key_b = make_key(0, b_tokens, 4);
    insert(kv, &key_a, 1.0f);
    insert(kv, &key_b, 2.0f);
    hits(kv, &key_a);
    ck_assert_int_eq(kvshm_evict_lru(kv), 1);
    ck_assert(kvshm_contains(kv, &key_a));
    ck_assert(!kvshm_contains(kv, &key_b));
    ts_detach(kv);
}
END_TEST

START_TEST(test_adapter_keying_separates_entries)
{
    struct kvshm_prefix base_key;
    struct kvshm_prefix adapter_key;
    kvshm *kv = make_cache(4);

    by_hash = _i;
    base_key = make_key(0, a_tokens, 4);
    adapter_key = make_key(42, a_tokens, 4);
    insert(kv, &base_key, 1.0f);
    hits(kv, &base_key);
    misses(kv, &adapter_key);
    ts_detach(kv);
}
END_TEST

START_TEST(test_insert_at_capacity)
{
    struct kvshm_prefix key_a;
    struct kvshm_prefix key_b;
    kvshm *kv = make_cache(1);

    by_hash = _i;
    key_a = make_key(0, a_tokens, 4);
    key_b = make_key(0, c_tokens, 4);
    insert(kv, &key_a, 1.0f);
    insert(kv, &key_b, 2.0f);
    ck_assert_uint_eq(entries(kv), 1);
    ck_assert(!kvshm_contains(kv, &key_a));
    ck_assert(kvshm_contains(kv, &key_b));
    ts_detach(kv);
}
END_TEST

/* A hit makes its entry the newest and changes the place of no other: B is the oldest, and goes. */
START_TEST(test_lookup_moves_no_other_entry)
{
    struct kvshm_prefix key_a;
    struct kvshm_prefix key_b;
    struct kvshm_prefix key_c;
    kvshm *kv = make_cache(3);

    by_hash = _i;
    key_a = make_key(0, a_tokens, 4);
    key_b = make_key(0, b_tokens, 4);
    key_c = make_key(0, c_tokens, 4);
    insert(kv, &key_a, 1.0f);
    insert(kv, &key_b, 2.0f);
    insert(kv, &key_c, 3.0f);
    hits(kv, &key_a);
    ck_assert_int_eq(kvshm_evict_lru(kv), 1);
    ck_assert(!kvshm_contains(kv, &key_b));
    ck_assert(kvshm_contains(kv, &key_c));
    ck_assert_int_eq(kvshm_evict_lru(kv), 1);
    ck_assert(!kvshm_contains(kv, &key_c));
    ck_assert(kvshm_contains(kv, &key_a));
    ts_detach(kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("seed");
    TCase *tcase = tcase_create("seed");
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_loop_test(tcase, test_empty_cache_lookup, 0, 2);
    tcase_add_loop_test(tcase, test_prefix_lookup_hit, 0, 2);
    tcase_add_loop_test(tcase, test_prefix_cache_miss, 0, 2);
    tcase_add_loop_test(tcase, test_evict_lru_reclaims_unreferenced, 0, 2);
    tcase_add_loop_test(tcase, test_adapter_keying_separates_entries, 0, 2);
    tcase_add_loop_test(tcase, test_insert_at_capacity, 0, 2);
    tcase_add_loop_test(tcase, test_lookup_moves_no_other_entry, 0, 2);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
