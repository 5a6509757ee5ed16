/* SPDX-License-Identifier: Apache-2.0 */
/* bench_hist.c - see bench_hist.h */
#include "bench_hist.h"

#define SUB (1u << BENCH_HIST_SUB_BITS)

static uint32_t bucket_of(uint64_t ns)
{
    uint32_t shift;

    if (ns < SUB)
        return (uint32_t)ns;
    shift = 63u - (uint32_t)__builtin_clzll(ns) - BENCH_HIST_SUB_BITS;
    return (shift + 1) * SUB + (uint32_t)(ns >> shift) - SUB;
}

static uint64_t middle_of(uint32_t bucket)
{
    uint32_t shift;

    if (bucket < 2 * SUB)
        return bucket;
    shift = bucket / SUB - 1;
    return ((uint64_t)(SUB + bucket % SUB) << shift) + (UINT64_C(1) << shift) / 2;
}

static uint64_t count_of(const struct bench_hist *hist, uint32_t bucket)
{
    return atomic_load_explicit(&hist->counts[bucket], memory_order_relaxed);
}

static void add_to(struct bench_hist *hist, uint32_t bucket, uint64_t n)
{
    uint64_t count = count_of(hist, bucket);

    atomic_store_explicit(&hist->counts[bucket], count + n, memory_order_relaxed);
}

void bench_hist_add(struct bench_hist *hist, uint64_t ns)
{
    add_to(hist, bucket_of(ns), 1);
}

void bench_hist_merge(struct bench_hist *into, const struct bench_hist *from)
{
    for (uint32_t i = 0; i < BENCH_HIST_BUCKETS; i++)
        add_to(into, i, count_of(from, i));
}

uint64_t bench_hist_total(const struct bench_hist *hist)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < BENCH_HIST_BUCKETS; i++)
        total += count_of(hist, i);
    return total;
}

uint64_t bench_hist_quantile(const struct bench_hist *hist, uint32_t permille)
{
    uint64_t total = bench_hist_total(hist), below = 0;
    uint64_t rank = (uint64_t)(((unsigned __int128)total * permille + 999) / 1000);

    for (uint32_t i = 0; i < BENCH_HIST_BUCKETS; i++) {
        below += count_of(hist, i);
        if (below > 0 && below >= rank)
            return middle_of(i);
    }
    return 0;
}
