/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_torture.h - the torture: server processes that do all that servers can, and are stopped and killed meanwhile.
 *
 *   bench_torture.c          the parent: it starts, stops and kills servers, and looks for what is lost
 *   bench_torture_server.c   one server process: its steps
 *   bench_torture_act.c      what a step may do
 *   bench_torture_fork.c     steps that fork, attach and detach
 *   bench_torture_content.c  prompts, and what their pages must hold
 *   bench_torture_report.c   the result as text and JSON
 *
 * A server is a place, numbered from 0; its processes, one after the other, are numbered from 0 too. What step s of
 * process p of server n does, with which prompt and flags, is a function of (seed, n, p, s) alone: all that is drawn for a
 * step comes from a generator of its own. What the calls answer, and how far a process comes, is the machine's.
 *
 * The memory that they share is anonymous and mapped before the servers are forked, so it outlives each of them.
 */
#ifndef BENCH_TORTURE_H
#define BENCH_TORTURE_H

#include <stdatomic.h>
#include <stdint.h>

#include "bench.h"
#include "kvshm.h"

#define TORTURE_LABEL       "torture" /* of all servers, which reap wants */
#define TORTURE_PAGE_TOKENS 4u
#define TORTURE_PAGE_BYTES  256u
#define TORTURE_DEPTH       8u /* pages of the longest prompt */
#define TORTURE_TOKENS      (TORTURE_DEPTH * TORTURE_PAGE_TOKENS)
#define TORTURE_LAST        16u /* steps of a server that are remembered */

/* Calls, as they are counted: name, text. */
#define TORTURE_CALLS(X)                      \
    X(match, "match")                         \
    X(lookup, "lookup")                       \
    X(peek, "match or lookup that peeks")     \
    X(contains, "contains")                   \
    X(copy_out, "copy_out with a lease")      \
    X(copy_out_read_only, "copy_out without") \
    X(reserve, "reserve")                     \
    X(reserve_device, "reserve for a device") \
    X(insert, "insert")                       \
    X(insert_hold, "insert that holds")       \
    X(insert_extend, "insert that extends")   \
    X(insert_key, "insert by key")            \
    X(cancel, "cancel")                       \
    X(release, "release")                     \
    X(tag, "lease_tag")                       \
    X(remove, "remove")                       \
    X(evict_lru, "evict_lru")                 \
    X(clear, "clear")                         \
    X(join, "join")                           \
    X(leave, "leave")                         \
    X(attach, "attach")                       \
    X(detach, "detach")                       \
    X(look, "info, stats and foreach")        \
    X(reap, "reap")                           \
    X(set, "change of capacity")              \
    X(fork, "fork")                           \
    X(forked, "call in a child, on its parent's handle")

#define TORTURE_CALL(name, text) TORTURE_CALL_##name,
enum torture_call { TORTURE_CALLS(TORTURE_CALL) TORTURE_CALL_COUNT };
#undef TORTURE_CALL

/* Steps: name, weight of 1000. */
#define TORTURE_STEPS(X) \
    X(serve, 320)        \
    X(lookup, 110)       \
    X(key, 90)           \
    X(grow, 40)          \
    X(copy, 60)          \
    X(peek, 40)          \
    X(release, 120)      \
    X(fill, 60)          \
    X(remove, 30)        \
    X(evict, 30)         \
    X(look, 20)          \
    X(tag, 12)           \
    X(leave, 12)         \
    X(join, 8)           \
    X(again, 10)         \
    X(second, 10)        \
    X(fork, 6)           \
    X(device, 8)         \
    X(reap, 6)           \
    X(set, 4)            \
    X(clear, 4)

#define TORTURE_STEP(name, weight) TORTURE_STEP_##name,
enum torture_step { TORTURE_STEPS(TORTURE_STEP) TORTURE_STEP_COUNT };
#undef TORTURE_STEP

/* What a step does. */
struct torture_action {
    enum torture_step step;
    uint32_t number; /* of the prompt or key, if it has one */
    uint64_t random; /* state of bench_random(), for what else is drawn */
};

struct torture_last {
    _Atomic(uint64_t) process_and_step; /* process << 32 | step + 1; 0: the others mean nothing */
    _Atomic(uint32_t) step;
    _Atomic(uint32_t) number;
};

/* Written by the processes of the place; counts grow for ever. */
struct torture_place {
    _Atomic(uint64_t)
        client; /* number of the process's first handle; the parent: 0 before it starts one */
    _Atomic(uint64_t) steps;
    _Atomic(uint64_t) calls[TORTURE_CALL_COUNT];
    _Atomic(uint64_t) hits;
    _Atomic(uint64_t) pages_checked;
    _Atomic(uint64_t) wrong_bytes;
    _Atomic(uint64_t) stalls;               /* calls that answered KVSHM_E_STALLED */
    struct torture_last last[TORTURE_LAST]; /* step s in [s % TORTURE_LAST] */
};

struct torture_shared {
    _Atomic(uint32_t) ended; /* the parent: give all back, and end */
    char line[60];
    struct torture_place places[];
};

/* What a server needs to know. */
struct torture_run {
    uint64_t seed;
    uint32_t procs;
    const char *arena_name;
    struct torture_shared *shared;
};

struct torture_result {
    uint64_t calls[TORTURE_CALL_COUNT];
    uint64_t steps;
    uint64_t processes;
    uint64_t kills;
    uint64_t kills_in_lock;
    uint64_t menders_killed;
    uint64_t stops;
    uint64_t stops_in_lock;
    uint64_t takeovers;
    uint64_t stalls;
    uint64_t hits;
    uint64_t pages_checked;
    uint64_t wrong_bytes;
    uint64_t frames;
    uint64_t frames_lost;
    uint64_t checks;
    uint64_t elapsed_ns;
};

/* The action of one step. */
void torture_action(uint64_t seed, uint32_t server, uint32_t process, uint64_t step,
                    struct torture_action *action);
const char *torture_step_name(enum torture_step step);

/* Take steps until the parent says to end, and give all back. The exit status. */
int torture_server(const struct torture_run *run, uint32_t number, uint32_t process);

/* Print the result to standard output. 0; -1 after a message: not all was written. */
int torture_report(const struct bench_torture_options *options, const struct torture_shared *shared,
                   const struct torture_result *result);

/* ---- Content ------------------------------------------------------------------------------------------- */

/* A prompt, with or without tokens. */
struct torture_prompt {
    struct kvshm_prefix prefix;
    uint64_t root; /* digest of no tokens, for this adapter and tenant, or of the key */
    uint32_t tokens[TORTURE_TOKENS];
};

/* The prompt of a number; numbers share heads, adapters and tenants. The prefix points into it. */
void torture_prompt_tokens(struct torture_prompt *prompt, uint32_t number);
/* The key-only one. */
void torture_prompt_key(struct torture_prompt *prompt, uint32_t number);
uint32_t torture_pages(const struct torture_prompt *prompt);

/* Write page i of the prompt. A key's content comes in versions; all its pages are of one. */
void torture_page_fill(void *page, const struct torture_prompt *prompt, uint32_t i,
                       uint32_t version);

/* How many bytes of pages first to first + n - 1, of a prefix of so many tokens, are wrong. */
uint64_t torture_pages_wrong(const void *const *pages, const struct torture_prompt *prompt,
                             uint32_t tokens, uint32_t first, uint32_t n);

#endif /* BENCH_TORTURE_H */
