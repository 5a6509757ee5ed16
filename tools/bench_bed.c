/* SPDX-License-Identifier: Apache-2.0 */
/* bench_bed.c - see bench_bed.h */
#include "bench_bed.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "bench_progress.h"
#include "pages.h"

/* At least twice the last cache of most hosts. */
#define SWEEP_BYTES (UINT64_C(96) << 20)
#define LINE        64

int bench_bed_alloc(struct bench_bed *bed)
{
    bed->prompt_tokens = (uint32_t)(bed->options->pages * bed->options->page_tokens);
    bed->tokens = calloc((size_t)BENCH_BATCH * bed->prompt_tokens, sizeof(*bed->tokens));
    bed->sweep = calloc(1, SWEEP_BYTES);
    bed->random = bed->options->seed;
    if (bed->tokens && bed->sweep)
        return 0;
    tool_error("no memory");
    bench_bed_free(bed);
    return -1;
}

void bench_bed_free(struct bench_bed *bed)
{
    free(bed->tokens);
    free(bed->sweep);
    bed->tokens = NULL;
    bed->sweep = NULL;
}

void bench_bed_prefix(struct bench_bed *bed, uint64_t number, uint32_t part)
{
    struct kvshm_prefix *prefix = &bed->prefixes[part];
    uint32_t *tokens = bed->tokens + (size_t)part * bed->prompt_tokens;
    uint64_t state = bench_mix(bed->options->seed) ^ number;
    uint64_t key[KVSHM_KEY_BYTES / sizeof(uint64_t)];

    bed->numbers[part] = number;
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

bool bench_bed_interrupted(struct bench_bed *bed)
{
    bed->signal = bench_signal_wait(0);
    if (bed->signal == SIGCHLD)
        bed->signal = 0;
    return bed->signal != 0;
}

/* Note where the tokens of the leased entry's pages lie. */
static void note_runs(struct bench_bed *bed, uint64_t number, const struct kvshm_lease *lease)
{
    uint32_t record = lease->page;

    for (uint64_t i = bed->options->pages; i-- > 0 && record != KVSHM__NO_RECORD;) {
        bed->runs[number * bed->options->pages + i] = kvshm__text(bed->kv, record);
        record = kvshm__pages_parent(bed->kv, record);
    }
}

/* Insert the entry's pages from first on, behind those that are there. */
static int insert_pages(struct bench_bed *bed, uint64_t number, uint32_t first, uint32_t end)
{
    struct kvshm_reservation frames;
    struct kvshm_lease lease = {0};
    struct kvshm_prefix *prefix = &bed->prefixes[0];

    bench_bed_prefix(bed, number, 0);
    prefix->n = first * (uint32_t)bed->options->page_tokens;
    if (first > 0 && kvshm_lookup(bed->kv, prefix, 0, &lease) != 0) {
        tool_error("entry %llu has lost its first %u pages", (unsigned long long)number, first);
        return -1;
    }
    if (kvshm_reserve(bed->kv, end - first, 0, &frames) < 0) {
        tool_error("reserve: %s", kvshm_errmsg(bed->kv));
        kvshm_release(bed->kv, &lease);
        return -1;
    }
    for (uint32_t i = 0; i < end - first; i++)
        memset(kvshm_reservation_page(&frames, i), (int)number, bed->options->page_bytes);
    prefix->n = end * (uint32_t)bed->options->page_tokens;
    if (kvshm_insert(bed->kv, prefix, &lease, &frames, KVSHM_EXTEND | KVSHM_HOLD) != 0) {
        tool_error("insert: %s", kvshm_errmsg(bed->kv));
        kvshm_cancel(bed->kv, &frames);
        kvshm_release(bed->kv, &lease);
        return -1;
    }
    if (bed->runs)
        note_runs(bed, number, &lease);
    if (bed->ends)
        bed->ends[number] = lease.page;
    kvshm_release(bed->kv, &lease);
    return 0;
}

/* Pages that an entry to be matched grows by. */
#define GROWTH 8

/* A number from 0 to n - 1 for each i from 0 to n - 1, each once; random enough. */
static uint64_t shuffled(uint64_t i, uint64_t n, uint64_t seed)
{
    const uint64_t step = 2654435761u;

    /* The step is a prime above all numbers of entries, so it has no divisor in common with n. */
    return (uint64_t)(((unsigned __int128)i * step + seed) % n);
}

static int fill_step(struct bench_bed *bed, uint64_t i)
{
    const uint32_t pages = (uint32_t)bed->options->pages;
    const uint32_t first = bed->match ? (uint32_t)(i / bed->entries) * GROWTH : 0;
    const uint32_t end = !bed->match || pages - first < GROWTH ? pages : first + GROWTH;

    if (!bed->match)
        return insert_pages(bed, i, 0, pages);
    return insert_pages(bed, shuffled(i % bed->entries, bed->entries, bench_mix(first)), first,
                        end);
}

static int fill(struct bench_bed *bed)
{
    const uint64_t turns = bed->match ? (bed->options->pages + GROWTH - 1) / GROWTH : 1;
    struct bench_progress progress;
    int status = 0;

    bench_progress_begin(&progress, bed->entries * turns, "inserts");
    for (uint64_t i = 0; status == 0 && i < bed->entries * turns; i++) {
        status = fill_step(bed, i);
        if (i % 1024 == 0) {
            bench_progress_update(&progress, i);
            if (bench_bed_interrupted(bed))
                status = -1;
        }
    }
    bench_progress_end(&progress);
    return status;
}

/* What the peer of lookups by tokens, or of matches, has to know. */
static int alloc_peer(struct bench_bed *bed)
{
    if (bed->match)
        bed->ends = calloc(bed->entries, sizeof(*bed->ends));
    else if (!bed->key_only)
        bed->runs = calloc(bed->entries * bed->options->pages, sizeof(*bed->runs));
    if (bed->key_only || bed->ends || bed->runs)
        return 0;
    tool_error("no memory");
    return -1;
}

int bench_bed_open(struct bench_bed *bed)
{
    const struct bench_lookup_options *options = bed->options;
    struct kvshm_config config;
    int status;

    kvshm_config_init(&config);
    config.label = "kvshm-bench";
    config.geometry.page_tokens = (uint32_t)options->page_tokens;
    config.geometry.page_bytes = options->page_bytes;
    config.frames = bed->entries * options->pages;
    config.max_clients = 4;
    config.backing = options->backing;
    status = bench_arena_create(&bed->arena, NULL, &config, &bed->kv);
    if (status)
        return status;
    return alloc_peer(bed) ? -1 : fill(bed);
}

int bench_bed_close(struct bench_bed *bed)
{
    int status = 0;

    if (bed->kv && kvshm_detach(bed->kv) < 0) {
        tool_error("detach: %s", kvshm_errmsg(bed->kv));
        status = -1;
    }
    bed->kv = NULL;
    if (bench_arena_remove(&bed->arena))
        status = -1;
    free(bed->runs);
    bed->runs = NULL;
    free(bed->ends);
    bed->ends = NULL;
    bench_signal_obey(bed->signal);
    return status;
}

void bench_bed_batch(struct bench_bed *bed, uint32_t n, bool cold)
{
    if (cold) {
        for (uint64_t i = 0; i < SWEEP_BYTES; i += LINE)
            bed->sweep[i]++;
    }
    for (uint32_t i = 0; i < n; i++)
        bench_bed_prefix(bed, bench_below(&bed->random, bed->entries), i);
}

typedef int find_fn(kvshm *, const struct kvshm_prefix *, unsigned, struct kvshm_lease *);

/* The time of n finds and releases; 0, and told, if one did not find all pages. */
static uint64_t time_hits(struct bench_bed *bed, uint32_t n, find_fn *find, const char *wanted)
{
    struct kvshm_lease lease;
    uint64_t hits = 0, began_ns = bench_now_ns(), ns;

    for (uint32_t i = 0; i < n; i++) {
        hits += find(bed->kv, &bed->prefixes[i], 0, &lease) == 0 &&
                lease.pages == bed->options->pages;
        kvshm_release(bed->kv, &lease);
    }
    ns = bench_now_ns() - began_ns;
    if (hits == n)
        return ns ? ns : 1;
    tool_error("%llu of %u %s", (unsigned long long)hits, n, wanted);
    return 0;
}

uint64_t bench_bed_lookup(struct bench_bed *bed, uint32_t n)
{
    return time_hits(bed, n, kvshm_lookup, "lookups were hits");
}

uint64_t bench_bed_match(struct bench_bed *bed, uint32_t n)
{
    return time_hits(bed, n, kvshm_match, "matches were whole");
}

uint64_t bench_bed_walk(struct bench_bed *bed, uint32_t n)
{
    const size_t pages = bed->options->pages, m = bed->options->page_tokens;
    const struct kvshm_record *records = bed->kv->records;
    uint64_t equal = 0, began_ns = bench_now_ns(), ns;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t record = bed->ends[bed->numbers[i]];
        for (size_t page = pages; page-- > 0;) {
            equal += memcmp(kvshm__text(bed->kv, record), bed->prefixes[i].tokens + page * m,
                            m * sizeof(uint32_t)) == 0;
            record = KVSHM__LOAD((kvshm_a32 *)&records[record].parent1) - 1;
        }
    }
    ns = bench_now_ns() - began_ns;
    if (equal == n * pages)
        return ns ? ns : 1;
    tool_error("%llu of %llu runs of tokens are equal", (unsigned long long)equal,
               (unsigned long long)(n * pages));
    return 0;
}

uint64_t bench_bed_compare(struct bench_bed *bed, uint32_t n)
{
    const size_t pages = bed->options->pages, m = bed->options->page_tokens;
    uint64_t equal = 0, began_ns = bench_now_ns(), ns;

    for (uint32_t i = 0; i < n; i++) {
        const void **runs = bed->runs + bed->numbers[i] * pages;
        for (size_t page = 0; page < pages; page++)
            equal +=
                memcmp(runs[page], bed->prefixes[i].tokens + page * m, m * sizeof(uint32_t)) == 0;
    }
    ns = bench_now_ns() - began_ns;
    if (equal == n * pages)
        return ns ? ns : 1;
    tool_error("%llu of %llu runs of tokens are equal", (unsigned long long)equal,
               (unsigned long long)(n * pages));
    return 0;
}
