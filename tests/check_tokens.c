/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_tokens.c - the hash of token ids, and that it is never trusted
 *
 * tests/vectors/fxhash.tsv has the hashes that the single-process cache computes, and two prompts that it takes for
 * one.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

#define TOKENS_MAX 1000
#define PAGE_BYTES 256

/* A list "[1,2,5..9]" into tokens; how many. Ends the test if it is none. */
static size_t read_list(const char *text, uint32_t *tokens)
{
    const char *at = text + 1;
    size_t n = 0;

    ck_assert_msg(*text == '[', "no list: %s", text);
    while (*at != ']') {
        char *end = NULL;
        unsigned long first = strtoul(at, &end, 10);
        unsigned long last = first;

        ck_assert_msg(end != at, "no number: %s", at);
        if (strncmp(end, "..", 2) == 0)
            last = strtoul(end + 2, &end, 10);
        for (unsigned long token = first; token <= last; token++) {
            ck_assert_uint_lt(n, TOKENS_MAX);
            tokens[n++] = (uint32_t)token;
        }
        at = *end == ',' ? end + 1 : end;
        ck_assert_msg(*end == ',' || *end == ']', "list does not end: %s", text);
    }
    return n;
}

/* The one formula: i*A%B,i<N. */
static size_t read_formula(const char *text, uint32_t *tokens)
{
    unsigned factor = 0;
    unsigned modulus = 0;
    unsigned n = 0;

    ck_assert_msg(sscanf(text, "i*%u%%%u,i<%u", &factor, &modulus, &n) == 3, "no formula: %s",
                  text);
    ck_assert_uint_le(n, TOKENS_MAX);
    for (unsigned i = 0; i < n; i++)
        tokens[i] = i * factor % modulus;
    return n;
}

/* Calls fn with each vector of the file; how many there are. */
static unsigned each_vector(void (*fn)(const uint32_t *tokens, size_t n, uint64_t hash, void *arg),
                            void *arg)
{
    const char *folder = getenv("abs_top_srcdir");
    char path[4096];
    char line[256];
    uint32_t tokens[TOKENS_MAX];
    unsigned vectors = 0;
    FILE *file = NULL;

    snprintf(path, sizeof(path), "%s/tests/vectors/fxhash.tsv", folder ? folder : ".");
    file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
    while (fgets(line, sizeof(line), file)) {
        char *hash = strchr(line, '\t');

        if (*line == '#')
            continue;
        ck_assert_msg(hash != NULL, "no hash: %s", line);
        fn(tokens, *line == 'i' ? read_formula(line, tokens) : read_list(line, tokens),
           strtoull(hash + 1, NULL, 16), arg);
        vectors++;
    }
    ck_assert_int_eq(ferror(file), 0);
    fclose(file);
    return vectors;
}

static void same_hash(const uint32_t *tokens, size_t n, uint64_t hash, void *arg)
{
    struct kvshm_prefix prefix;
    uint8_t key[KVSHM_KEY_BYTES] = {0};
    (void)arg;

    ck_assert_msg(kvshm_hash_tokens(tokens, n) == hash,
                  "%zu tokens: %016" PRIx64 " instead of %016" PRIx64, n,
                  kvshm_hash_tokens(tokens, n), hash);
    for (unsigned i = 0; i < 8; i++)
        key[i] = (uint8_t)(hash >> 8 * i);
    kvshm_prefix_init_hash(&prefix, 3, 4, hash, (uint32_t)n);
    ck_assert_mem_eq(prefix.key, key, sizeof(key));
    ck_assert_ptr_null(prefix.tokens);
    ck_assert_uint_eq(prefix.n, n);
    ck_assert_uint_eq(prefix.adapter_id, 3);
    ck_assert_uint_eq(prefix.tenant, 4);
}

START_TEST(test_golden_hashes)
{
    ck_assert_uint_eq(each_vector(same_hash, NULL), 25);
    ck_assert_uint_eq(kvshm_hash_tokens(NULL, 0), UINT64_C(0xf456d26876d72d91));
}
END_TEST

/* The two colliding prompts of the file. */
struct twins {
    uint32_t tokens[2][16];
    uint32_t n;
    uint64_t hash[2];
};

static void last_two(const uint32_t *tokens, size_t n, uint64_t hash, void *arg)
{
    struct twins *twins = arg;

    if (n > 16)
        return;
    memcpy(twins->tokens[0], twins->tokens[1], sizeof(twins->tokens[0]));
    memcpy(twins->tokens[1], tokens, 4 * n);
    twins->hash[0] = twins->hash[1];
    twins->hash[1] = hash;
    twins->n = (uint32_t)n;
}

static struct twins colliding(void)
{
    struct twins twins = {0};

    each_vector(last_two, &twins);
    ck_assert_uint_eq(twins.n, 16);
    ck_assert_mem_ne(twins.tokens[0], twins.tokens[1], 4 * (size_t)twins.n);
    ck_assert_uint_eq(kvshm_hash_tokens(twins.tokens[0], twins.n),
                      kvshm_hash_tokens(twins.tokens[1], twins.n));
    return twins;
}

/* A lease of all of the prompt, whose bytes are its own. */
static void serves(kvshm *kv, const struct twins *twins, unsigned which, uint32_t page_tokens)
{
    const uint32_t *tokens = twins->tokens[which];
    struct kvshm_prefix prefix;
    struct kvshm_lease lease;

    kvshm_prefix_init(&prefix, 0, 0, tokens, twins->n);
    for (unsigned match = 0; match < 2; match++) {
        ts_is(match ? kvshm_match(kv, &prefix, 0, &lease) : kvshm_lookup(kv, &prefix, 0, &lease),
              0);
        ck_assert_uint_eq(lease.tokens, twins->n);
        ck_assert_uint_eq(lease.pages, kvshm_pages_for_tokens(twins->n, page_tokens));
        for (uint32_t i = 0; i < lease.pages; i++) {
            uint32_t end = (i + 1) * page_tokens < twins->n ? (i + 1) * page_tokens : twins->n;

            ck_assert_uint_eq(ts_filled(kvshm_lease_page(&lease, i), PAGE_BYTES, 0, 0, tokens, end),
                              0);
        }
        kvshm_release(kv, &lease);
    }
}

/* With pages of several sizes: prompts that are one page, and that share pages before they differ. */
START_TEST(test_colliding_prompts_are_two)
{
    static const uint32_t sizes[] = {64, 1, 4, 16, 5};
    uint32_t page_tokens = sizes[_i];
    struct twins twins = colliding();
    struct kvshm_config config = ts_config(PAGE_BYTES, page_tokens, 64);
    kvshm *kv = ts_create("tokens", &config);
    struct kvshm_prefix prefix;
    struct kvshm_lease lease;

    ck_assert_int_eq(ts_insert(kv, 0, 0, twins.tokens[0], twins.n), 0);
    serves(kv, &twins, 0, page_tokens);
    kvshm_prefix_init(&prefix, 0, 0, twins.tokens[1], twins.n);
    ck_assert(!kvshm_contains(kv, &prefix));
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), KVSHM_MISS);
    ts_is(kvshm_remove(kv, &prefix), KVSHM_MISS);
    if (kvshm_match(kv, &prefix, 0, &lease) == 0) { /* whole pages before the first that differs */
        ck_assert_uint_le(lease.tokens, 10);
        ck_assert_uint_eq(lease.tokens % page_tokens, 0);
        kvshm_release(kv, &lease);
    }
    ck_assert_int_eq(ts_insert(kv, 0, 0, twins.tokens[1], twins.n), 0);
    serves(kv, &twins, 0, page_tokens);
    serves(kv, &twins, 1, page_tokens);
    ts_is(kvshm_remove(kv, &prefix), 0);
    ck_assert(!kvshm_contains(kv, &prefix));
    serves(kv, &twins, 0, page_tokens);
    ts_detach(kv);
}
END_TEST

START_TEST(test_colliding_prompts_have_one_key)
{
    struct twins twins = colliding();
    struct kvshm_prefix prefix[2];

    for (unsigned i = 0; i < 2; i++) {
        ck_assert_uint_eq(kvshm_hash_tokens(twins.tokens[i], twins.n), twins.hash[i]);
        kvshm_prefix_init_hash(&prefix[i], 0, 0, twins.hash[i], twins.n);
    }
    ck_assert_mem_eq(&prefix[0], &prefix[1], sizeof(prefix[0]));
}
END_TEST

START_TEST(test_pages_for_tokens)
{
    ck_assert_uint_eq(kvshm_pages_for_tokens(0, 4), 0);
    ck_assert_uint_eq(kvshm_pages_for_tokens(4, 0), 0);
    ck_assert_uint_eq(kvshm_pages_for_tokens(1, 4), 1);
    ck_assert_uint_eq(kvshm_pages_for_tokens(4, 4), 1);
    ck_assert_uint_eq(kvshm_pages_for_tokens(5, 4), 2);
    ck_assert_uint_eq(kvshm_pages_for_tokens(UINT32_MAX, 1), UINT32_MAX);
    ck_assert_uint_eq(kvshm_pages_for_tokens(UINT32_MAX, UINT32_MAX), 1);
    ck_assert_uint_eq(kvshm_pages_for_tokens(UINT32_MAX, 2), UINT32_C(1) << 31);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokens");
    TCase *tcase = tcase_create("tokens");
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_golden_hashes);
    tcase_add_loop_test(tcase, test_colliding_prompts_are_two, 0, 5);
    tcase_add_test(tcase, test_colliding_prompts_have_one_key);
    tcase_add_test(tcase, test_pages_for_tokens);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
