/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_bench.c - the parts of kvshm-bench that need no arena: times in buckets, content of pages, traces.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tools/bench.h"
#include "../tools/bench_content.h"
#include "../tools/bench_hist.h"
#include "../tools/bench_trace.h"

/* ---- Times --------------------------------------------------------------------------------------------- */

static struct bench_hist hist;

static void hist_empty(void)
{
    memset(&hist, 0, sizeof(hist));
}

START_TEST(hist_small_times_are_exact)
{
    hist_empty();
    ck_assert_uint_eq(bench_hist_quantile(&hist, 500), 0);
    for (uint64_t ns = 0; ns < 64; ns++) {
        hist_empty();
        bench_hist_add(&hist, ns);
        ck_assert_uint_eq(bench_hist_quantile(&hist, 1), ns);
        ck_assert_uint_eq(bench_hist_quantile(&hist, 1000), ns);
        ck_assert_uint_eq(bench_hist_total(&hist), 1);
    }
}
END_TEST

static void assert_near(uint64_t got, uint64_t wanted)
{
    uint64_t off = got > wanted ? got - wanted : wanted - got;

    ck_assert_msg(off <= wanted / 64, "%llu for %llu", (unsigned long long)got,
                  (unsigned long long)wanted);
}

START_TEST(hist_any_time_is_near)
{
    for (uint32_t bit = 0; bit < 64; bit++) {
        for (int64_t off = -1; off <= 1; off++) {
            uint64_t ns = (UINT64_C(1) << bit) + (uint64_t)off;

            hist_empty();
            bench_hist_add(&hist, ns);
            assert_near(bench_hist_quantile(&hist, 500), ns);
        }
    }
    hist_empty();
    bench_hist_add(&hist, UINT64_MAX);
    assert_near(bench_hist_quantile(&hist, 500), UINT64_MAX);
}
END_TEST

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

START_TEST(hist_quantiles_are_those_of_the_sorted_times)
{
    enum { TIMES = 10007 };
    static uint64_t times[TIMES];
    static struct bench_hist part;
    uint64_t state = 5;

    hist_empty();
    for (uint32_t i = 0; i < TIMES; i++) {
        times[i] = bench_random(&state) >> (20 + bench_below(&state, 40));
        bench_hist_add(i % 2 ? &part : &hist, times[i]);
    }
    bench_hist_merge(&hist, &part);
    ck_assert_uint_eq(bench_hist_total(&hist), TIMES);
    qsort(times, TIMES, sizeof(times[0]), by_value);
    for (uint32_t permille = 1; permille <= 1000; permille++)
        assert_near(bench_hist_quantile(&hist, permille),
                    times[(TIMES * permille + 999) / 1000 - 1]);
}
END_TEST

/* ---- Content ------------------------------------------------------------------------------------------- */

START_TEST(tokens_are_a_function_of_the_id)
{
    static const uint64_t ids[] = {0, 1, 2, 511, 512, UINT32_MAX, INT64_MAX};
    uint32_t a[BENCH_BLOCK_TOKENS], b[BENCH_BLOCK_TOKENS];

    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        bench_block_tokens(ids[i], a);
        bench_block_tokens(ids[i], b);
        ck_assert_mem_eq(a, b, sizeof(a));
        for (size_t j = 0; j < i; j++) {
            uint32_t equal = 0;

            bench_block_tokens(ids[j], b);
            for (uint32_t t = 0; t < BENCH_BLOCK_TOKENS; t++)
                equal += a[t] == b[t];
            ck_assert_uint_le(equal, 1);
        }
    }
}
END_TEST

START_TEST(digest_depends_on_each_token)
{
    uint32_t tokens[BENCH_BLOCK_TOKENS];
    uint64_t whole, half;

    bench_block_tokens(3, tokens);
    whole = bench_digest(BENCH_DIGEST_ROOT, tokens, BENCH_BLOCK_TOKENS);
    half = bench_digest(BENCH_DIGEST_ROOT, tokens, 100);
    ck_assert_uint_eq(bench_digest(half, tokens + 100, BENCH_BLOCK_TOKENS - 100), whole);
    for (uint32_t i = 0; i < BENCH_BLOCK_TOKENS; i++) {
        tokens[i] ^= 1u << i % 32;
        ck_assert_uint_ne(bench_digest(BENCH_DIGEST_ROOT, tokens, BENCH_BLOCK_TOKENS), whole);
        tokens[i] ^= 1u << i % 32;
    }
}
END_TEST

START_TEST(each_wrong_byte_is_counted)
{
    uint8_t page[80];

    for (uint64_t bytes = 1; bytes <= 67; bytes++) {
        memset(page, 0xa5, sizeof(page));
        bench_page_fill(page, bytes, 77);
        for (uint64_t i = bytes; i < sizeof(page); i++)
            ck_assert_uint_eq(page[i], 0xa5);
        ck_assert_uint_eq(bench_page_wrong(page, bytes, 77), 0);
        for (uint64_t i = 0; i < bytes; i++) {
            page[i] ^= 0x10;
            ck_assert_uint_eq(bench_page_wrong(page, bytes, 77), 1);
            page[0] ^= 0x20;
            ck_assert_uint_eq(bench_page_wrong(page, bytes, 77), i ? 2 : 1);
            page[0] ^= 0x20;
            page[i] ^= 0x10;
        }
    }
    ck_assert_uint_gt(bench_page_wrong(page, 67, 78), 50);
}
END_TEST

/* ---- Traces -------------------------------------------------------------------------------------------- */

static void read_ids(const char *const *ids, size_t count, struct bench_trace *trace)
{
    char text[4096] = "";
    size_t used = 0;
    FILE *file;

    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used,
                                 "{\"timestamp\": 1, \"input_length\": 2, \"output_length\": 3, "
                                 "\"hash_ids\": [%s]}\n",
                                 ids[i]);
    ck_assert_uint_lt(used, sizeof(text));
    file = fmemopen(text, used, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(bench_trace_read(file, "text", trace), 0);
    fclose(file);
}

START_TEST(blocks_are_told_apart_by_all_ids_before_them)
{
    static const char *const ids[] = {"7, 8, 8", "7, 8", "8, 8", "8, 7, 8", "7, 8, 8, 9"};
    static const uint32_t nodes[] = {0, 1, 2, 0, 1, 3, 4, 3, 5, 6, 0, 1, 2, 7};
    static const uint64_t node_ids[] = {7, 8, 8, 8, 8, 7, 8, 9};
    static const uint64_t first[] = {0, 3, 5, 7, 10, 14};
    struct bench_trace trace;

    read_ids(ids, 5, &trace);
    ck_assert_uint_eq(trace.request_count, 5);
    ck_assert_uint_eq(trace.block_count, 14);
    ck_assert_uint_eq(trace.node_count, 8);
    ck_assert_uint_eq(trace.longest, 4);
    ck_assert_mem_eq(trace.first_block, first, sizeof(first));
    ck_assert_mem_eq(trace.nodes, nodes, sizeof(nodes));
    ck_assert_mem_eq(trace.node_ids, node_ids, sizeof(node_ids));
    bench_trace_free(&trace);
    ck_assert_ptr_null(trace.nodes);
}
END_TEST

/* Enough of them that every array and the table grow; each prompt twice. */
START_TEST(a_large_trace)
{
    enum { REQUESTS = 3000, BLOCKS = 5 };
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    struct bench_trace trace;

    ck_assert_ptr_nonnull(file);
    for (uint64_t i = 0; i < 2 * REQUESTS; i++) {
        uint64_t n = i % REQUESTS;

        fprintf(file,
                "{\"timestamp\": 1, \"input_length\": 2, \"output_length\": 3, \"hash_ids\": [");
        for (uint64_t j = 0; j < BLOCKS; j++)
            fprintf(file, "%s%llu", j ? "," : "", (unsigned long long)(j ? n * BLOCKS + j : 0));
        fprintf(file, "]}\n");
    }
    fclose(file);
    file = fmemopen(text, bytes, "r");
    ck_assert_int_eq(bench_trace_read(file, "text", &trace), 0);
    ck_assert_uint_eq(trace.request_count, 2 * REQUESTS);
    ck_assert_uint_eq(trace.node_count, 1 + REQUESTS * (BLOCKS - 1));
    for (uint64_t b = 0; b < REQUESTS * BLOCKS; b++) {
        ck_assert_uint_eq(trace.nodes[b], trace.nodes[b + REQUESTS * BLOCKS]);
        ck_assert_uint_eq(trace.node_ids[trace.nodes[b]], b % BLOCKS ? b : 0);
    }
    bench_trace_free(&trace);
    fclose(file);
    free(text);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        hist_small_times_are_exact,
        hist_any_time_is_near,
        hist_quantiles_are_those_of_the_sorted_times,
        tokens_are_a_function_of_the_id,
        digest_depends_on_each_token,
        each_wrong_byte_is_counted,
        blocks_are_told_apart_by_all_ids_before_them,
        a_large_trace,
    };
    Suite *suite = suite_create("bench");
    TCase *tcase = tcase_create("bench");
    SRunner *runner;
    int failed;

    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
