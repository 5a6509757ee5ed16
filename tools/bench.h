/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - what the files of kvshm-bench share: the commands, their options, small helpers.
 *
 *   kvshm-bench.c     reads the command line, calls a command
 *   bench_generate.c  the command generate: a trace from a model
 *   bench_replay.c    the command replay: the parent of the servers
 *   bench_server.c      one server process of replay
 *   bench_report.c      the result of replay as text and JSON
 *   bench_lookup.c    the command lookup: ns of one hit, beside peers
 *   bench_lmdb.c        LMDB, a peer
 *   bench_readers.c     two processes that look up at the same time
 *   bench_bed.c         an arena of equal entries, and batches of them
 *   bench_create.c    the command create: how fast memory is taken
 *   bench_memory.c    the command memory: what an arena costs
 *   bench_spill.c     the command spill: how fast pages go to a file and come back, beside fio
 *   bench_torture.c   the command torture: the parent of the servers (bench_torture.h has its other files)
 *   bench_trace.c     reads a trace, finds its distinct blocks
 *   bench_content.c   tokens of an id, bytes of a page
 *   bench_hist.c      times, in buckets
 *   bench_arena.c     an arena of our own, removed however we end
 *   bench_progress.c  the bar
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "common.h"

#define BENCH_RESTARTS_MAX 1000

struct bench_replay_options {
    const char *trace;    /* path; "-": standard input */
    const char *name;     /* of the arena; NULL: one of our own */
    uint64_t procs;       /* server processes */
    uint64_t frames;      /* 0: enough for all pages of the trace */
    uint64_t capacity;    /* entries */
    uint64_t page_tokens; /* divides BENCH_BLOCK_TOKENS */
    const char *spill;    /* file; NULL: none */
    uint64_t spill_bytes; /* 0: room for all pages of the trace */
    uint64_t restarts;    /* all servers are killed, and the arena made anew on the file, so often */
    bool flush;           /* first all that is in memory is written */
    uint64_t page_bytes;
    uint64_t kills;
    uint64_t seed; /* of the kills */
    uint32_t backing;
    bool json;
};

struct bench_generate_options {
    uint64_t requests;
    uint64_t seed;
};

#define BENCH_LOOKUP_SIZES 16

struct bench_lookup_options {
    uint64_t entries[BENCH_LOOKUP_SIZES];
    uint32_t sizes; /* how many of them */
    uint64_t pages; /* of each entry */
    bool match;     /* match, and not look up */
    uint64_t page_tokens;
    uint64_t page_bytes;
    uint64_t rounds;
    uint64_t seed;
    uint32_t backing;
    bool json;
};

struct bench_create_options {
    uint64_t bytes; /* of the arena */
    uint64_t rounds;
    uint32_t backing;
    bool json;
};

struct bench_memory_options {
    uint64_t frames;
    uint64_t page_tokens;
    uint64_t page_bytes;
    uint32_t backing;
    bool json;
};

struct bench_spill_options {
    const char *file; /* is made, and removed */
    uint64_t bytes;   /* of pages */
    uint64_t page_bytes;
    uint64_t rounds;
    bool json;
};

struct bench_torture_options {
    uint64_t procs;   /* server processes */
    uint64_t kills;   /* 0: as many as come in the time */
    uint64_t stops;   /* UINT64_MAX: half as many as kills */
    uint64_t seconds; /* 0: until all kills and stops were made */
    uint64_t seed;
    uint64_t frames;
    const char *spill;    /* file that pages leave memory for; NULL: none */
    uint64_t spill_bytes; /* that it may have */
    const char *check;    /* command to run when no server is left; NULL: none */
    bool json;
    bool shows;       /* show the schedule of one process, and do nothing */
    uint64_t show_server, show_process, show_steps;
};

/* Each returns an enum tool_status, having said on standard error what went wrong. */
int bench_replay(const struct bench_replay_options *options);
int bench_generate(const struct bench_generate_options *options);
int bench_lookup(const struct bench_lookup_options *options);
int bench_create(const struct bench_create_options *options);
int bench_memory(const struct bench_memory_options *options);
int bench_spill(const struct bench_spill_options *options);
int bench_torture(const struct bench_torture_options *options);

/* CLOCK_MONOTONIC of this process. */
static inline uint64_t bench_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Spread the bits of x: a bijection (the finaliser of SplitMix64). */
static inline uint64_t bench_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The next number of a sequence that the first *state decides (SplitMix64). */
static inline uint64_t bench_random(uint64_t *state)
{
    return bench_mix(*state += 0x9e3779b97f4a7c15u);
}

/* A number from 0 to n - 1; n >= 1. */
static inline uint64_t bench_below(uint64_t *state, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)bench_random(state) * n) >> 64);
}

#endif /* BENCH_H */
