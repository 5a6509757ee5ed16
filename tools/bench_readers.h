/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_readers.h - two processes that look up in one arena, each on a processor of its own.
 *
 * Both attach to the bed's arena. In a round each does lookups for a while alone, then both at the same time. Their
 * speed together, over the sum of their speeds alone, says whether readers disturb each other.
 */
#ifndef BENCH_READERS_H
#define BENCH_READERS_H

#include "bench_bed.h"

struct bench_readers_round {
    uint64_t alone_ps[2]; /* of one lookup, of each process */
    uint64_t together_ps[2];
    uint64_t share_ppm; /* speed together, in millionths of the sum of those alone */
};

/* Does this process run on fewer than two processors? */
bool bench_readers_too_few(void);

/* Run the rounds of the options. 0; -1 after a message, or as a signal asked. */
int bench_readers_run(struct bench_bed *bed, struct bench_readers_round *rounds);

#endif /* BENCH_READERS_H */
