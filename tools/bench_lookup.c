/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_lookup.c - ns of one hit, a lookup and its release, beside what it is compared with
 *
 * By key the peer is a get of LMDB (bench_lmdb.h). By tokens it is a plain walk that compares the same runs of
 * tokens by memcmp where they lie, and what is set against it is what a lookup by tokens costs more than one by key.
 *
 * A round is some 65,536 lookups in batches (bench_bed.h), then as many of the peer; its result is the median of the
 * batches' means, so that a batch in which the machine did something else does not count. The result is the median
 * of the rounds.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "bench_bed.h"
#include "bench_lmdb.h"
#include "bench_readers.h"
#include "bench_report.h"

#define BATCHES       1024u
#define BATCHES_COLD  32u
#define BATCHES_MATCH 256u

/* ps of one lookup in each round, sorted in the end. */
struct series {
    uint64_t *ps;
    uint64_t rounds;
};

struct run {
    const struct bench_lookup_options *options;
    struct bench_bed bed;
    struct bench_lmdb *lmdb;
    struct series own, peer;
    struct bench_readers_round *readers;
    double key_ns[2];            /* medians by key of this size: warm, cold */
    struct json_object *results; /* NULL: print text */
};

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static double ns_of(const struct series *series, uint64_t round)
{
    return (double)series->ps[round] / 1000;
}

static double fastest_ns(const struct series *series)
{
    return ns_of(series, 0);
}

static double slowest_ns(const struct series *series)
{
    return ns_of(series, series->rounds - 1);
}

static double median_ns(const struct series *series)
{
    return (ns_of(series, (series->rounds - 1) / 2) + ns_of(series, series->rounds / 2)) / 2;
}

/* ---- Rounds -------------------------------------------------------------------------------------------- */

enum side { OWN, PEER };

static uint64_t time_batch(struct run *run, enum side side, uint32_t n)
{
    if (run->bed.match)
        return side == OWN ? bench_bed_match(&run->bed, n) : bench_bed_walk(&run->bed, n);
    if (side == OWN)
        return bench_bed_lookup(&run->bed, n);
    return run->bed.key_only ? bench_lmdb_get(run->lmdb, &run->bed, n)
                             : bench_bed_compare(&run->bed, n);
}

/* ps of one lookup: the median of the batches; 0 after a message, or as a signal asked. */
static uint64_t time_round(struct run *run, enum side side, bool cold)
{
    static uint64_t batch_ns[BATCHES];
    const uint32_t batches = cold ? BATCHES_COLD : run->bed.match ? BATCHES_MATCH : BATCHES;
    const uint32_t n = cold || run->bed.match ? BENCH_BATCH_COLD : BENCH_BATCH;

    for (uint32_t i = 0; i < batches; i++) {
        bench_bed_batch(&run->bed, n, cold);
        batch_ns[i] = time_batch(run, side, n);
        if (batch_ns[i] == 0 || (i % 64 == 0 && bench_bed_interrupted(&run->bed)))
            return 0;
    }
    qsort(batch_ns, batches, sizeof(*batch_ns), by_value);
    return batch_ns[batches / 2] * 1000 / n;
}

static bool has_peer(const struct run *run)
{
    return !run->bed.key_only || BENCH_LMDB;
}

static int run_rounds(struct run *run, bool cold)
{
    run->own.rounds = run->peer.rounds = run->options->rounds;
    for (uint64_t round = 0; round < run->options->rounds; round++) {
        run->own.ps[round] = time_round(run, OWN, cold);
        if (run->own.ps[round] == 0)
            return -1;
        if (!has_peer(run))
            continue;
        run->peer.ps[round] = time_round(run, PEER, cold);
        if (run->peer.ps[round] == 0)
            return -1;
    }
    qsort(run->own.ps, run->own.rounds, sizeof(*run->own.ps), by_value);
    qsort(run->peer.ps, run->peer.rounds, sizeof(*run->peer.ps), by_value);
    return 0;
}

/* ---- What is told -------------------------------------------------------------------------------------- */

static const char *kind_of(const struct run *run)
{
    return run->bed.match ? "match" : run->bed.key_only ? "key" : "tokens";
}

/* By key: of LMDB's time. By tokens: what it costs more than by key, of the walk's time. A match: of its walk's time. */
static double ratio_of(const struct run *run, bool cold)
{
    double more_ns =
        median_ns(&run->own) - (run->bed.key_only || run->bed.match ? 0 : run->key_ns[cold]);

    return more_ns / median_ns(&run->peer);
}

static const char *peers(const struct bench_lookup_options *options)
{
    static char text[96];

    snprintf(text, sizeof(text), "%s by key, memcmp by tokens",
             BENCH_LMDB ? bench_lmdb_version() : "nothing (built without LMDB)");
    return options->match ? "a plain walk" : text;
}

static void print_head(const struct bench_lookup_options *options)
{
    printf("%s + release of %llu pages of %llu tokens, ns; beside it %s\n"
           "%10s  %-7s %-6s %9s %9s %9s %9s %9s %7s\n",
           options->match ? "match" : "lookup", (unsigned long long)options->pages,
           (unsigned long long)options->page_tokens, peers(options), "entries", "kind", "caches",
           "median", "fastest", "slowest", "beside", "fastest", "ratio");
}

static void tell_text(const struct run *run, bool cold)
{
    printf("%10llu  %-7s %-6s %9.1f %9.1f %9.1f", (unsigned long long)run->bed.entries,
           kind_of(run), cold ? "cold" : "warm", median_ns(&run->own), fastest_ns(&run->own),
           slowest_ns(&run->own));
    if (has_peer(run))
        printf(" %9.1f %9.1f %7.3f", median_ns(&run->peer), fastest_ns(&run->peer),
               ratio_of(run, cold));
    printf("\n");
    fflush(stdout);
}

static void add_series(struct json_object *row, const struct series *series, const char *name)
{
    char key[64];

    snprintf(key, sizeof(key), "%smedian_ns", name);
    bench_json_decimal(row, key, median_ns(series), 1);
    snprintf(key, sizeof(key), "%sfastest_ns", name);
    bench_json_decimal(row, key, fastest_ns(series), 1);
    snprintf(key, sizeof(key), "%sslowest_ns", name);
    bench_json_decimal(row, key, slowest_ns(series), 1);
}

static struct json_object *new_row(const struct run *run, const char *caches, uint64_t readers)
{
    struct json_object *row = json_object_new_object();

    bench_json_number(row, "entries", run->bed.entries);
    json_object_object_add(row, "kind", json_object_new_string(kind_of(run)));
    json_object_object_add(row, "caches", json_object_new_string(caches));
    bench_json_number(row, "readers", readers);
    json_object_array_add(run->results, row);
    return row;
}

static void tell(const struct run *run, bool cold)
{
    struct json_object *row;

    if (!run->results) {
        tell_text(run, cold);
        return;
    }
    row = new_row(run, cold ? "cold" : "warm", 1);
    add_series(row, &run->own, "");
    if (!has_peer(run))
        return;
    json_object_object_add(row, "peer",
                           json_object_new_string(run->bed.match      ? "walk"
                                                  : run->bed.key_only ? "LMDB"
                                                                      : "memcmp"));
    add_series(row, &run->peer, "peer_");
    bench_json_decimal(row, "ratio", ratio_of(run, cold), 3);
}

static int by_share(const void *a, const void *b)
{
    const struct bench_readers_round *x = a, *y = b;

    return (x->share_ppm > y->share_ppm) - (x->share_ppm < y->share_ppm);
}

static void tell_readers(struct run *run)
{
    struct bench_readers_round *middle = &run->readers[run->options->rounds / 2];
    struct json_object *row;

    qsort(run->readers, run->options->rounds, sizeof(*run->readers), by_share);
    if (!run->results) {
        printf("%10llu  %-7s two readers: %.1f and %.1f alone, %.1f and %.1f together: %.3f of the "
               "sum\n",
               (unsigned long long)run->bed.entries, kind_of(run),
               (double)middle->alone_ps[0] / 1000, (double)middle->alone_ps[1] / 1000,
               (double)middle->together_ps[0] / 1000, (double)middle->together_ps[1] / 1000,
               (double)middle->share_ppm / 1e6);
        fflush(stdout);
        return;
    }
    row = new_row(run, "warm", 2);
    bench_json_decimal(row, "first_alone_ns", (double)middle->alone_ps[0] / 1000, 1);
    bench_json_decimal(row, "second_alone_ns", (double)middle->alone_ps[1] / 1000, 1);
    bench_json_decimal(row, "first_together_ns", (double)middle->together_ps[0] / 1000, 1);
    bench_json_decimal(row, "second_together_ns", (double)middle->together_ps[1] / 1000, 1);
    bench_json_decimal(row, "share_of_sum", (double)middle->share_ppm / 1e6, 3);
}

/* The whole result, with an empty array of results. */
static struct json_object *result_json(const struct bench_lookup_options *options,
                                       struct json_object *results)
{
    struct json_object *object = json_object_new_object();

    bench_json_number(object, "version", 1);
    json_object_object_add(object, "benchmark",
                           json_object_new_string(options->match ? "match" : "lookup"));
    bench_json_number(object, "pages", options->pages);
    bench_json_number(object, "page_tokens", options->page_tokens);
    bench_json_number(object, "page_bytes", options->page_bytes);
    bench_json_number(object, "rounds", options->rounds);
    bench_json_number(object, "lookups_per_round", BATCHES * BENCH_BATCH);
    bench_json_number(object, "seed", options->seed);
    json_object_object_add(object, "peer",
                           BENCH_LMDB ? json_object_new_string(bench_lmdb_version()) : NULL);
    json_object_object_add(object, "results", results);
    return object;
}

/* ---- Runs ---------------------------------------------------------------------------------------------- */

/* With the bed open. */
static int measure_open(struct run *run)
{
    if (run->bed.key_only && BENCH_LMDB && !(run->lmdb = bench_lmdb_open(&run->bed)))
        return -1;
    for (int cold = 0; cold <= 1; cold++) {
        if (run_rounds(run, cold))
            return -1;
        if (run->bed.key_only)
            run->key_ns[cold] = median_ns(&run->own);
        tell(run, cold);
    }
    if (run->bed.match || bench_readers_too_few())
        return 0;
    if (bench_readers_run(&run->bed, run->readers))
        return -1;
    tell_readers(run);
    return 0;
}

/* One size and kind. */
static int measure(struct run *run, uint64_t entries, bool key_only)
{
    int status;

    run->bed.entries = entries;
    run->bed.key_only = key_only;
    run->bed.match = run->options->match;
    run->bed.kv = NULL;
    status = bench_bed_open(&run->bed);
    if (status == 0)
        status = measure_open(run);
    bench_lmdb_close(run->lmdb);
    run->lmdb = NULL;
    return bench_bed_close(&run->bed) || status ? -1 : 0;
}

static int measure_all(struct run *run)
{
    for (uint32_t i = 0; i < run->options->sizes; i++) {
        for (int key_only = !run->options->match; key_only >= 0; key_only--) {
            if (measure(run, run->options->entries[i], key_only))
                return -1;
        }
    }
    return 0;
}

static int alloc(struct run *run)
{
    const uint64_t rounds = run->options->rounds;

    run->own.ps = calloc(rounds, sizeof(*run->own.ps));
    run->peer.ps = calloc(rounds, sizeof(*run->peer.ps));
    run->readers = calloc(rounds, sizeof(*run->readers));
    if (run->options->json)
        run->results = json_object_new_array();
    if (run->own.ps && run->peer.ps && run->readers && (run->results || !run->options->json))
        return bench_bed_alloc(&run->bed);
    tool_error("no memory");
    return -1;
}

int bench_lookup(const struct bench_lookup_options *options)
{
    struct run run = {.options = options, .bed = {.options = options}};
    int status = alloc(&run);

    if (status == 0) {
        if (!options->json)
            print_head(options);
        status = measure_all(&run);
    }
    if (status == 0 && options->json)
        status = bench_json_print(result_json(options, run.results));
    else
        json_object_put(run.results);
    bench_bed_free(&run.bed);
    free(run.own.ps);
    free(run.peer.ps);
    free(run.readers);
    return status ? TOOL_FAILED : TOOL_DONE;
}
