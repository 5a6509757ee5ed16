/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_arena.h - an arena that lives as long as one run of the benchmark, and is removed however the run ends:
 * SIGINT, SIGTERM and SIGHUP are blocked from before it is made until after it is gone, and looked for in between.
 */
#ifndef BENCH_ARENA_H
#define BENCH_ARENA_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "kvshm.h"

struct bench_arena {
    char name[KVSHM_NAME_MAX + 1];
    bool exists;
    sigset_t old_mask; /* of the process before */
};

/*
 * Block the signals (and SIGCHLD), and create the arena. name NULL: kvshm-bench-PID. *kv is its first client. 0; -1
 * after a message: then nothing is left, and the signals are as they were.
 */
int bench_arena_create(struct bench_arena *arena, const char *name,
                       const struct kvshm_config *config, kvshm **kv);

/* Remove it, even with living clients; the signals are as they were. 0; -1 after a message. */
int bench_arena_remove(struct bench_arena *arena);

/*
 * Remove it, even with living clients, and create it anew. What a killed client had begun to write to the spill file ends
 * before the file can be had again, which is waited for. 0; -1 after a message.
 */
int bench_arena_renew(struct bench_arena *arena, const struct kvshm_config *config, kvshm **kv);

/* How many different frames one reservation of all of them has, when all can be given up; after a message, fewer. */
uint64_t bench_arena_frames(kvshm *kv, const struct kvshm_info *info);

/* Wait at most so long for one of the blocked signals: its number, or 0. */
int bench_signal_wait(uint64_t timeout_ns);

/* Die from the signal, as if it had not been blocked; the arena is gone. 0: nothing. */
void bench_signal_obey(int signal);

#endif /* BENCH_ARENA_H */
