/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_progress.h - a bar with rate and remaining time on standard error if that is a terminal; else nothing.
 */
#ifndef BENCH_PROGRESS_H
#define BENCH_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct bench_progress {
    bool shown; /* standard error is a terminal */
    const char *unit;
    uint64_t total;
    uint64_t began_ns;
    uint64_t drawn_ns;
};

/* total >= 1 of unit ("requests") are to be done. */
void bench_progress_begin(struct bench_progress *progress, uint64_t total, const char *unit);

/* So many are done; draws at most ten times a second. */
void bench_progress_update(struct bench_progress *progress, uint64_t done);

/* Wipe the line. */
void bench_progress_end(struct bench_progress *progress);

#endif /* BENCH_PROGRESS_H */
