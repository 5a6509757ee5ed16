/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_bed.h - an arena filled with entries of equal size, and batches of them to look up.
 *
 * No entry shares a page with another. Those to be matched grow by 8 pages at a time in random order, as conversations do,
 * so that their pages lie scattered. For each batch the prompts are written first (a server has its prompt at
 * hand), then all of the batch is timed. Numbers of entries decide their tokens and keys, so that a batch can be
 * made without looking into the arena.
 */
#ifndef BENCH_BED_H
#define BENCH_BED_H

#include "bench.h"
#include "bench_arena.h"
#include "kvshm.h"

/* Lookups of a batch; of one with cold caches, so few that they hardly warm them for each other. */
#define BENCH_BATCH      64u
#define BENCH_BATCH_COLD 8u

struct bench_bed {
    const struct bench_lookup_options *options;
    uint64_t entries;
    bool key_only;
    bool match;
    uint32_t prompt_tokens;
    struct bench_arena arena;
    kvshm *kv;
    uint32_t *tokens; /* of BENCH_BATCH prompts */
    uint64_t numbers[BENCH_BATCH];
    struct kvshm_prefix prefixes[BENCH_BATCH];
    uint64_t random;   /* of the order */
    const void **runs; /* where the tokens of each page lie, by entry and depth */
    uint32_t *ends;    /* the deepest record of each entry; both NULL: not needed */
    uint8_t *sweep;    /* more than the caches hold */
    int signal;        /* that asked us to end, or 0 */
};

/* Make the arena and fill it. 0; -1 after a message, or as a signal asked: then close it all the same. */
int bench_bed_open(struct bench_bed *bed);

/* Remove the arena; a signal that came takes effect now. 0; -1 after a message. */
int bench_bed_close(struct bench_bed *bed);

/* Memory for a bed that is not open, also of a process that attaches to another's. 0; -1 after a message. */
int bench_bed_alloc(struct bench_bed *bed);
void bench_bed_free(struct bench_bed *bed);

/* The prefix of entry number, whose tokens stand in part of the batch. */
void bench_bed_prefix(struct bench_bed *bed, uint64_t number, uint32_t part);

/* The prompts of a batch of n, drawn anew; cold: the caches hold nothing of the arena. */
void bench_bed_batch(struct bench_bed *bed, uint32_t n, bool cold);

/* Look all prompts of the batch up, and release. ns in all; 0 after a message: not each was a hit. */
uint64_t bench_bed_lookup(struct bench_bed *bed, uint32_t n);

/* The same, and match instead of looking up. */
uint64_t bench_bed_match(struct bench_bed *bed, uint32_t n);

/* Go from each entry's deepest record to its root, and compare each page's tokens by memcmp on the way. */
uint64_t bench_bed_walk(struct bench_bed *bed, uint32_t n);

/* Compare all their tokens by memcmp where they lie. */
uint64_t bench_bed_compare(struct bench_bed *bed, uint32_t n);

/* A signal that asks us to end? */
bool bench_bed_interrupted(struct bench_bed *bed);

#endif /* BENCH_BED_H */
