/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_config.c - what callers ask for: sizes, geometry, every field, names, prefixes
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "support.h"

static struct kvshm_config dimensions(void)
{
    struct kvshm_config config;

    kvshm_config_init(&config);
    config.geometry.num_layers = 2;
    config.geometry.num_kv_heads = 4;
    config.geometry.head_dim = 16;
    config.frames = 10;
    return config;
}

/* Set a 32- or 64-bit field of a config at an offset. */
struct wrong {
    size_t offset;
    size_t width;
    uint64_t value;
    int code;
    const char *says;
};
#define AT(field, value, code, says)                                                              \
    {                                                                                             \
        offsetof(struct kvshm_config, field), sizeof(((struct kvshm_config *)0)->field), (value), \
            (code), (says)                                                                        \
    }

static const struct wrong wrongs[] = {
    AT(size, 0, -EINVAL, "config.size is 0"),
    AT(size, 8, -EINVAL, "kvshm_config_init"),
    AT(size, 1 << 20, -EINVAL, "config.size is 1048576"),
    AT(geometry.num_layers, 0, KVSHM_E_GEOMETRY, "geometry.num_layers is 0, not 1 to 65535"),
    AT(geometry.num_layers, 65536, KVSHM_E_GEOMETRY, "geometry.num_layers is 65536"),
    AT(geometry.num_kv_heads, 0, KVSHM_E_GEOMETRY, "geometry.num_kv_heads is 0"),
    AT(geometry.num_kv_heads, 65536, KVSHM_E_GEOMETRY, "geometry.num_kv_heads is 65536"),
    AT(geometry.head_dim, 0, KVSHM_E_GEOMETRY, "geometry.head_dim is 0"),
    AT(geometry.head_dim, 65536, KVSHM_E_GEOMETRY, "geometry.head_dim is 65536"),
    AT(geometry.dtype, 6, KVSHM_E_GEOMETRY, "geometry.dtype is 6, not 0 to 5"),
    AT(geometry.page_bytes, 64, KVSHM_E_GEOMETRY, "together with num_layers 2, num_kv_heads 4"),
    AT(geometry.page_tokens, 0, KVSHM_E_GEOMETRY, "geometry.page_tokens is 0"),
    AT(geometry.page_tokens, (1 << 20) + 1, KVSHM_E_GEOMETRY, "page_tokens is 1048577"),
    AT(geometry.shards, 0, KVSHM_E_GEOMETRY, "geometry.shards is 0"),
    AT(geometry.shards, 3, KVSHM_E_GEOMETRY, "num_kv_heads, 4, does not divide by shards, 3"),
    AT(geometry.shards, 65536, KVSHM_E_GEOMETRY, "geometry.shards is 65536"),
    AT(geometry.token_scale, 0, KVSHM_E_GEOMETRY, "geometry.token_scale is 0"),
    AT(geometry.reserved, 1, KVSHM_E_GEOMETRY, "geometry.reserved is 1"),
    AT(frames, 0, -EINVAL, "config.frames and config.memory_bytes are 0"),
    AT(frames, UINT64_C(1) << 28, -EINVAL, "config.frames is 268435456, not 1 to 268435455"),
    AT(memory_bytes, 1 << 20, -EINVAL, "config.memory_bytes 1048576; set one"),
    AT(max_clients, 0, -EINVAL, "config.max_clients is 0, not 1 to 4096"),
    AT(max_clients, 4097, -EINVAL, "config.max_clients is 4097"),
    AT(max_leases, 0, -EINVAL, "config.max_leases is 0, not 1 to 65535"),
    AT(max_leases, 65536, -EINVAL, "config.max_leases is 65536"),
    AT(backing, 5, -EINVAL, "config.backing is 5"),
    AT(numa, 3, -EINVAL, "config.numa is 3"),
    AT(numa, 255, -EINVAL, "config.numa is 255"),
    AT(numa, 1280, -EINVAL, "KVSHM_NUMA_NODE(0) to (1023)"),
    AT(reserved, 1, -EINVAL, "config.reserved is 1"),
    AT(mode, 01000, -EINVAL, "config.mode is 01000"),
};

START_TEST(test_each_field)
{
    const struct wrong *wrong = &wrongs[_i];
    struct kvshm_config config = dimensions();
    struct kvshm__config checked;

    ts_is(kvshm__config_create(&config, &checked), 0);
    if (wrong->width == 8)
        memcpy((char *)&config + wrong->offset, &wrong->value, 8);
    else
        memcpy((char *)&config + wrong->offset, &(uint32_t){(uint32_t)wrong->value}, 4);
    ts_is(kvshm__config_create(&config, &checked), wrong->code);
    ts_says(wrong->says);
}
END_TEST

START_TEST(test_label_and_null)
{
    char label[KVSHM_LABEL_MAX + 2];
    struct kvshm_config config = dimensions();
    struct kvshm__config checked;

    ts_is(kvshm__config_create(NULL, &checked), -EINVAL);
    ts_says("config is NULL");
    ts_is(kvshm__config_create(&config, &checked), 0);
    ck_assert_str_eq(checked.label, program_invocation_short_name);
    memset(label, 'l', sizeof(label));
    label[KVSHM_LABEL_MAX] = '\0';
    config.label = label;
    ts_is(kvshm__config_create(&config, &checked), 0);
    ck_assert_str_eq(checked.label, label);
    label[KVSHM_LABEL_MAX] = 'l';
    label[KVSHM_LABEL_MAX + 1] = '\0';
    ts_is(kvshm__config_create(&config, &checked), -EINVAL);
    ts_says("config.label is longer than 63 bytes");
}
END_TEST

/* A newer caller's struct: what this library does not know must be zero. Nothing beyond a size is touched. */
START_TEST(test_sizes)
{
    struct {
        struct kvshm_config config;
        unsigned char more[64];
    } newer;
    struct kvshm__config checked;

    memset(&newer, 0xee, sizeof(newer));
    kvshm_config_init_sized(&newer.config, sizeof(newer.config) + 16);
    ck_assert_uint_eq(newer.config.size, sizeof(newer.config) + 16);
    ck_assert_uint_eq(newer.more[15], 0);
    ck_assert_uint_eq(newer.more[16], 0xee);
    newer.config.geometry.page_bytes = 64;
    newer.config.frames = 1;
    ts_is(kvshm__config_create(&newer.config, &checked), 0);
    newer.more[3] = 1;
    ts_is(kvshm__config_create(&newer.config, &checked), -EINVAL);
    ts_says("does not know");
    memset(&newer, 0xee, sizeof(newer));
    kvshm_config_init_sized(&newer.config, 16);
    ck_assert_uint_eq(((unsigned char *)&newer)[16], 0xee);
    ck_assert_uint_eq(newer.config.size, 16);
    memset(&newer, 0xee, sizeof(newer));
    kvshm_info_init_sized((struct kvshm_info *)&newer, 24);
    ck_assert_uint_eq(((unsigned char *)&newer)[23], 0);
    ck_assert_uint_eq(((unsigned char *)&newer)[24], 0xee);
    kvshm_stats_init_sized((struct kvshm_stats *)&newer, 32);
    ck_assert_uint_eq(newer.config.size, 32);
    ck_assert_uint_eq(((unsigned char *)&newer)[32], 0xee);
}
END_TEST

START_TEST(test_expect)
{
    struct kvshm_config config = dimensions();
    struct kvshm__config checked;

    ts_is(kvshm__config_expect(NULL, &checked), 0);
    ck_assert_uint_eq(checked.page_bytes, 0);
    ck_assert(!checked.named_fingerprint);
    config.max_clients = 99999; /* the creator's: not looked at */
    config.frames = 0;
    config.fingerprint[31] = 1;
    ts_is(kvshm__config_expect(&config, &checked), 0);
    ck_assert_uint_eq(checked.page_bytes, UINT64_C(2) * 2 * 64 * 4 * 16 * 4);
    ck_assert(checked.named_fingerprint);
    config.geometry.head_dim = 0;
    ts_is(kvshm__config_expect(&config, &checked), KVSHM_E_GEOMETRY);
    config.geometry.num_layers = 0; /* none is named */
    ts_is(kvshm__config_expect(&config, &checked), 0);
}
END_TEST

START_TEST(test_page_bytes)
{
    static const uint64_t bytes_of_128[] = {512, 256, 256, 128, 128, 64};
    struct kvshm_geometry g = dimensions().geometry;

    for (uint32_t dtype = KVSHM_F32; dtype <= KVSHM_INT4; dtype++) {
        g.dtype = dtype;
        ck_assert_uint_eq(kvshm_page_bytes(&g), 2 * 64 * bytes_of_128[dtype]);
    }
    g.num_kv_heads = 3;
    g.head_dim = 5;
    ck_assert_uint_eq(kvshm_page_bytes(&g), 0);
    ts_says("is odd");
    g.num_layers = g.num_kv_heads = g.head_dim = 65535;
    g.page_tokens = 1 << 20;
    g.dtype = KVSHM_F32;
    ck_assert_uint_eq(kvshm_page_bytes(&g), 0);
    ts_says("overflows");
    ck_assert_uint_eq(kvshm_page_bytes(NULL), 0);
    g = (struct kvshm_geometry){.page_bytes = 7, .page_tokens = 1, .shards = 1, .token_scale = 1};
    ck_assert_uint_eq(kvshm_page_bytes(&g), 7);
    g.page_bytes = (UINT64_C(1) << 40) + 1;
    ck_assert_uint_eq(kvshm_page_bytes(&g), 0);
    ts_says("geometry.page_bytes is 1099511627777");
    g.page_bytes = 129;
    g.shards = 2;
    ck_assert_uint_eq(kvshm_page_bytes(&g), 0);
    ts_says("does not divide by shards, 2");
    g.page_bytes = 192;
    ck_assert_uint_eq(kvshm_page_bytes(&g), 0);
    ts_says("parts of 96, no multiple of 64");
    g.page_bytes = 256;
    ck_assert_uint_eq(kvshm_page_bytes(&g), 256);
}
END_TEST

START_TEST(test_geometry_compare)
{
    static const size_t fields[] = {
        offsetof(struct kvshm_geometry, num_layers), offsetof(struct kvshm_geometry, num_kv_heads),
        offsetof(struct kvshm_geometry, head_dim),   offsetof(struct kvshm_geometry, dtype),
        offsetof(struct kvshm_geometry, page_bytes), offsetof(struct kvshm_geometry, page_tokens),
        offsetof(struct kvshm_geometry, shards),
    };
    struct kvshm_geometry had = dimensions().geometry;

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        struct kvshm_geometry asked = had;

        ts_is(kvshm__geometry_compare(&asked, &had, NULL), 0);
        ((unsigned char *)&asked)[fields[i]]++;
        ts_is(kvshm__geometry_compare(&asked, &had, NULL), KVSHM_E_GEOMETRY);
    }
}
END_TEST

START_TEST(test_names)
{
    static const char *const good[] = {"a", "Z9", "0", "a.b_c-d", "m..", "prod-7b.v2"};
    static const char *const bad[] = {"",    ".",   "..",       ".a",    "-a",     "_a", "a/b",
                                      "a b", "a\n", "\xc3\xa4", "a\x7f", "../etc", "a%s"};
    char longest[KVSHM_NAME_MAX + 2];

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        ts_is(kvshm__name_check(good[i]), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ts_is(kvshm__name_check(bad[i]), -EINVAL);
    ts_is(kvshm__name_check(NULL), -EINVAL);
    memset(longest, 'n', sizeof(longest));
    longest[KVSHM_NAME_MAX] = '\0';
    ts_is(kvshm__name_check(longest), 0);
    longest[KVSHM_NAME_MAX] = 'n';
    longest[KVSHM_NAME_MAX + 1] = '\0';
    ts_is(kvshm__name_check(longest), -EINVAL);
}
END_TEST

START_TEST(test_prefixes)
{
    static const uint32_t tokens[2] = {1, 2};
    uint8_t key[KVSHM_KEY_BYTES] = {9, 8, 7};
    struct kvshm_prefix prefix;

    memset(&prefix, 0xff, sizeof(prefix));
    kvshm_prefix_init(&prefix, 3, 4, tokens, 2);
    ck_assert(prefix.adapter_id == 3 && prefix.tenant == 4 && prefix.tokens == tokens);
    ck_assert(prefix.n == 2 && prefix.reserved == 0 && prefix.key[0] == 0);
    kvshm_prefix_init_key(&prefix, 3, 4, key, 0);
    ck_assert(prefix.tokens == NULL && prefix.n == 0);
    ck_assert_mem_eq(prefix.key, key, sizeof(key));
    kvshm_prefix_init_hash(&prefix, 0, 0, UINT64_C(0x0102030405060708), 5);
    ck_assert(prefix.key[0] == 8 && prefix.key[7] == 1 && prefix.key[8] == 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config");
    TCase *tcase = tcase_create("config");

    tcase_add_loop_test(tcase, test_each_field, 0, sizeof(wrongs) / sizeof(wrongs[0]));
    tcase_add_test(tcase, test_label_and_null);
    tcase_add_test(tcase, test_sizes);
    tcase_add_test(tcase, test_expect);
    tcase_add_test(tcase, test_page_bytes);
    tcase_add_test(tcase, test_geometry_compare);
    tcase_add_test(tcase, test_names);
    tcase_add_test(tcase, test_prefixes);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
