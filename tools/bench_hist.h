/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_hist.h - a histogram of times whose buckets grow with the time: 32 to each doubling, so that a time read
 * from it is at most 1/64 off. It may stand in shared memory: one process adds, others read, at any moment.
 */
#ifndef BENCH_HIST_H
#define BENCH_HIST_H

#include <stdatomic.h>
#include <stdint.h>

#define BENCH_HIST_SUB_BITS 5u
#define BENCH_HIST_BUCKETS  ((65u - BENCH_HIST_SUB_BITS) << BENCH_HIST_SUB_BITS)

/* counts[i]: times in bucket i; below 64 a bucket is one ns wide. All zero is empty. */
struct bench_hist {
    _Atomic(uint64_t) counts[BENCH_HIST_BUCKETS];
};

/* Add one time. Only one thread may add. */
void bench_hist_add(struct bench_hist *hist, uint64_t ns);

/* Add all times of another. */
void bench_hist_merge(struct bench_hist *into, const struct bench_hist *from);

/* How many times it holds. */
uint64_t bench_hist_total(const struct bench_hist *hist);

/* The middle of the bucket below whose end lie permille thousandths of the times, 1 to 1000; 0 if it is empty. */
uint64_t bench_hist_quantile(const struct bench_hist *hist, uint32_t permille);

#endif /* BENCH_HIST_H */
