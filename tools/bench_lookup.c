/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_lookup.c - ns of one hit: a lookup and its release
 *
 * An arena is filled with entries of equal size, none of which shares a page with another. Then entries are looked
 * up in random order: for each batch the prompts are written first (a server has its prompt at hand), then the
 * batch is timed. A round is LOOKUPS lookups; the result is the median of the rounds' means.
 */
#include <json-c/json.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "bench_arena.h"
#include "bench_progress.h"
#include "bench_report.h"
#include "kvshm.h"

#define LOOKUPS 65536u
#define BATCH   64u

struct bed {
    const struct bench_lookup_options *options;
    uint64_t entries;
    bool key_only;
    uint32_t prompt_tokens;
    struct bench_arena arena;
    kvshm *kv;
    uint32_t *tokens; /* of BATCH prompts */
    struct kvshm_prefix prefixes[BATCH];
    uint64_t *round_ps; /* ps of one hit, of each round */
    int signal;
};

/* The prefix of entry number, whose tokens stand in part of the batch. */
static void make_prefix(struct bed *bed, uint64_t number, uint32_t part)
{
    struct kvshm_prefix *prefix = &bed->prefixes[part];
    uint32_t *tokens = bed->tokens + (size_t)part * bed->prompt_tokens;
    uint64_t state = bench_mix(bed->options->seed) ^ number;
    uint64_t key[KVSHM_KEY_BYTES / sizeof(uint64_t)];

    if (bed->key_only) {
        for (size_t i = 0; i < sizeof(key) / sizeof(key[0]); i++)
            key[i] = bench_random(&state);
        kvshm_prefix_init_key(prefix, 0, 0, (const uint8_t *)key, bed->prompt_tokens);
        return;
    }
    for (uint32_t i = 0; i < bed->prompt_tokens; i++)
        tokens[i] = (uint32_t)(bench_random(&state) >> 32);
    kvshm_prefix_init(prefix, 0, 0, tokens, bed->prompt_tokens);
}

static int insert_one(struct bed *bed, uint64_t number)
{
    struct kvshm_reservation frames;
    uint32_t pages = (uint32_t)bed->options->pages;

    make_prefix(bed, number, 0);
    if (kvshm_reserve(bed->kv, pages, 0, &frames) < 0) {
        tool_error("reserve: %s", kvshm_errmsg(bed->kv));
        return -1;
    }
    for (uint32_t i = 0; i < pages; i++)
        memset(kvshm_reservation_page(&frames, i), (int)number, bed->options->page_bytes);
    if (kvshm_insert(bed->kv, &bed->prefixes[0], NULL, &frames, 0) != 0) {
        tool_error("insert: %s", kvshm_errmsg(bed->kv));
        kvshm_cancel(bed->kv, &frames);
        return -1;
    }
    return 0;
}

/* A signal that asks us to end? */
static bool is_interrupted(struct bed *bed)
{
    bed->signal = bench_signal_wait(0);
    if (bed->signal == SIGCHLD)
        bed->signal = 0;
    return bed->signal != 0;
}

static int fill(struct bed *bed)
{
    struct bench_progress progress;
    int status = 0;

    bench_progress_begin(&progress, bed->entries, "entries");
    for (uint64_t i = 0; status == 0 && i < bed->entries; i++) {
        status = insert_one(bed, i);
        if (i % 1024 == 0) {
            bench_progress_update(&progress, i);
            if (is_interrupted(bed))
                status = -1;
        }
    }
    bench_progress_end(&progress);
    return status;
}

/* Look all prompts of the batch up. ns in all; 0 after a message: not each was a hit. */
static uint64_t time_batch(struct bed *bed)
{
    struct kvshm_lease lease;
    uint64_t hits = 0, began_ns = bench_now_ns(), ns;

    for (uint32_t i = 0; i < BATCH; i++) {
        hits += kvshm_lookup(bed->kv, &bed->prefixes[i], 0, &lease) == 0 &&
                lease.pages == bed->options->pages;
        kvshm_release(bed->kv, &lease);
    }
    ns = bench_now_ns() - began_ns;
    if (hits == BATCH)
        return ns ? ns : 1;
    tool_error("%llu of %u lookups were hits", (unsigned long long)hits, BATCH);
    return 0;
}

static int run_rounds(struct bed *bed)
{
    uint64_t random = bed->options->seed, ns, total_ns;

    for (uint64_t round = 0; round < bed->options->rounds; round++) {
        total_ns = 0;
        for (uint32_t done = 0; done < LOOKUPS; done += BATCH) {
            for (uint32_t i = 0; i < BATCH; i++)
                make_prefix(bed, bench_below(&random, bed->entries), i);
            ns = time_batch(bed);
            if (ns == 0)
                return -1;
            total_ns += ns;
        }
        bed->round_ps[round] = total_ns * 1000 / LOOKUPS;
        if (is_interrupted(bed))
            return -1;
    }
    return 0;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static int make_arena(struct bed *bed)
{
    const struct bench_lookup_options *options = bed->options;
    struct kvshm_config config;

    kvshm_config_init(&config);
    config.label = "kvshm-bench";
    config.geometry.page_tokens = (uint32_t)options->page_tokens;
    config.geometry.page_bytes = options->page_bytes;
    config.frames = bed->entries * options->pages;
    config.max_clients = 2;
    config.backing = options->backing;
    return bench_arena_create(&bed->arena, NULL, &config, &bed->kv);
}

/* One size and kind: the rounds' times, sorted. */
static int measure(struct bed *bed)
{
    int status = make_arena(bed);

    if (status)
        return status;
    status = fill(bed);
    if (status == 0)
        status = run_rounds(bed);
    if (kvshm_detach(bed->kv) < 0) {
        tool_error("detach: %s", kvshm_errmsg(bed->kv));
        status = -1;
    }
    if (bench_arena_remove(&bed->arena))
        status = -1;
    bench_signal_obey(bed->signal);
    qsort(bed->round_ps, bed->options->rounds, sizeof(bed->round_ps[0]), by_value);
    return status;
}

static double ns_of(const struct bed *bed, uint64_t round)
{
    return (double)bed->round_ps[round] / 1000;
}

static double median_ns(const struct bed *bed)
{
    uint64_t rounds = bed->options->rounds;

    return (ns_of(bed, (rounds - 1) / 2) + ns_of(bed, rounds / 2)) / 2;
}

static void print_row(const struct bed *bed)
{
    printf("%10llu  %-7s %10.1f %10.1f %10.1f\n", (unsigned long long)bed->entries,
           bed->key_only ? "key" : "tokens", median_ns(bed), ns_of(bed, 0),
           ns_of(bed, bed->options->rounds - 1));
    fflush(stdout);
}

static void add_row(struct json_object *results, const struct bed *bed)
{
    struct json_object *row = json_object_new_object();

    bench_json_number(row, "entries", bed->entries);
    json_object_object_add(row, "kind", json_object_new_string(bed->key_only ? "key" : "tokens"));
    bench_json_decimal(row, "median_ns", median_ns(bed), 1);
    bench_json_decimal(row, "fastest_ns", ns_of(bed, 0), 1);
    bench_json_decimal(row, "slowest_ns", ns_of(bed, bed->options->rounds - 1), 1);
    json_object_array_add(results, row);
}

/* The whole result, with an empty array of results. */
static struct json_object *result_json(const struct bench_lookup_options *options,
                                       struct json_object *results)
{
    struct json_object *object = json_object_new_object();

    bench_json_number(object, "version", 1);
    json_object_object_add(object, "benchmark", json_object_new_string("lookup"));
    bench_json_number(object, "pages", options->pages);
    bench_json_number(object, "page_tokens", options->page_tokens);
    bench_json_number(object, "page_bytes", options->page_bytes);
    bench_json_number(object, "rounds", options->rounds);
    bench_json_number(object, "lookups_per_round", LOOKUPS);
    bench_json_number(object, "seed", options->seed);
    json_object_object_add(object, "results", results);
    return object;
}

static int measure_all(struct bed *bed, struct json_object *results)
{
    const struct bench_lookup_options *options = bed->options;

    for (uint32_t i = 0; i < options->sizes; i++) {
        for (int key_only = 1; key_only >= 0; key_only--) {
            bed->entries = options->entries[i];
            bed->key_only = key_only;
            if (measure(bed))
                return -1;
            if (options->json)
                add_row(results, bed);
            else
                print_row(bed);
        }
    }
    return 0;
}

int bench_lookup(const struct bench_lookup_options *options)
{
    struct bed bed = {
        .options = options,
        .prompt_tokens = (uint32_t)(options->pages * options->page_tokens),
    };
    struct json_object *results = json_object_new_array();
    int status = -1;

    bed.tokens = calloc((size_t)BATCH * bed.prompt_tokens, sizeof(*bed.tokens));
    bed.round_ps = calloc(options->rounds, sizeof(*bed.round_ps));
    if (bed.tokens && bed.round_ps && results) {
        if (!options->json)
            printf("lookup + release of %llu pages of %llu tokens, ns\n%10s  %-7s %10s %10s %10s\n",
                   (unsigned long long)options->pages, (unsigned long long)options->page_tokens,
                   "entries", "kind", "median", "fastest", "slowest");
        status = measure_all(&bed, results);
    } else {
        tool_error("no memory");
    }
    if (status == 0 && options->json)
        status = bench_json_print(result_json(options, results));
    else
        json_object_put(results);
    free(bed.tokens);
    free(bed.round_ps);
    return status ? TOOL_FAILED : TOOL_DONE;
}
