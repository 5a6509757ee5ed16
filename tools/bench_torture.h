/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_torture.h - the torture: server processes that do all that servers can, and are stopped and killed meanwhile.
 *
 *   bench_torture.c          the parent: it starts, stops and kills servers, and looks for what is lost
 *   bench_torture_server.c   one server process: its steps
 *   bench_torture_act.c      what a step may do
 *   bench_torture_fork.c     steps that fork, attach and detach
 *   bench_torture_content.c  prompts, and what their pages must hold
 *   bench_torture_gone.c     what was removed or cleared, and must not be served
 *   bench_torture_check.c    what is lost: the arena emptied, with no server left
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
#define TORTURE_NAMES       2048u /* room for those of entries and pages */

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
    X(prefetch, "prefetch")                   \
    X(wait, "wait")                           \
    X(flush, "flush")                         \
    X(join, "join")                           \
    X(leave, "leave")                         \
    X(attach, "attach")                       \
    X(detach, "detach")                       \
    X(look, "info, stats and foreach")        \
    X(reap, "reap")                           \
    X(set, "change of a setting")             \
    X(fork, "fork")                           \
    X(forked, "call in a child, on its parent's handle")

#define TORTURE_CALL(name, text) TORTURE_CALL_##name,
enum torture_call { TORTURE_CALLS(TORTURE_CALL) TORTURE_CALL_COUNT };
#undef TORTURE_CALL

/* Steps: name, weight of 1000. */
#define TORTURE_STEPS(X) \
    X(serve, 290)        \
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
    X(set, 10)           \
    X(clear, 4)          \
    X(prefetch, 12)      \
    X(wait, 8)           \
    X(flush, 4)

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
    _Atomic(uint64_t) pending;              /* lookups and matches that answered KVSHM_PENDING */
    _Atomic(uint32_t) inserting[TORTURE_DEPTH + 1]; /* names + 1 of an insert that is being made; 0: none */
    struct torture_last last[TORTURE_LAST]; /* step s in [s % TORTURE_LAST] */
};

/* An entry or a page; bench_torture_gone.c. */
struct torture_name {
    uint64_t digest;           /* 0: none */
    _Atomic(uint64_t) begun;   /* inserts */
    _Atomic(uint64_t) gone;    /* begun + 1, when all that it means had gone; 0: not seen */
    _Atomic(uint32_t) unknown; /* inserted by a child of a server, which may outlive it */
};

struct torture_shared {
    _Atomic(uint32_t) ended; /* the parent: give all back, and end */
    char line[60];
    struct torture_name names[TORTURE_NAMES];
    struct torture_place places[];
};

/* What a server needs to know. */
struct torture_run {
    uint64_t seed;
    uint32_t procs;
    const char *arena_name;
    const char *spill; /* NULL: none */
    struct torture_shared *shared;
};

struct torture_result {
    uint64_t calls[TORTURE_CALL_COUNT];
    uint64_t steps;
    uint64_t processes;
    uint64_t kills;
    uint64_t kills_in_lock;
    uint64_t menders_killed;
    uint64_t kills_in_transfer;
    uint64_t stops;
    uint64_t stops_in_lock;
    uint64_t takeovers;
    uint64_t stalls;
    uint64_t hits;
    uint64_t pending;
    uint64_t pages_checked;
    uint64_t wrong_bytes;
    uint64_t frames;
    uint64_t frames_lost;
    uint64_t slots;
    uint64_t slots_lost;
    uint64_t arenas;         /* begun, one after the other, on the spill file */
    uint64_t entries_flushed; /* that were to be there in a new arena, and were */
    uint64_t spilled_pages;
    uint64_t restored_pages;
    uint64_t spill_errors;   /* pages that could not be written or read */
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

/* ---- What went ------------------------------------------------------------------------------------------ */

#define TORTURE_PROMPTS 96u
#define TORTURE_KEYS    8u

/* Before the servers: give names to all that can be inserted. */
void torture_gone_begin(struct torture_shared *shared);

/* An insert begins; it is over. child: made by a child of a server. */
void torture_gone_insert(struct torture_shared *shared, struct torture_place *place, const struct torture_prompt *prompt,
                         bool child);
void torture_gone_inserted(struct torture_place *place);

/* What is known before a call that makes things go, or that serves some. */
struct torture_gone {
    uint64_t begun[TORTURE_NAMES]; /* UINT64_MAX: an insert is being made */
};

/* Before a remove or a clear; after it has answered that it is done. page: the entry's deepest page has gone too. */
void torture_gone_before(const struct torture_run *run, struct torture_gone *gone);
void torture_gone_removed(const struct torture_run *run, const struct torture_prompt *prompt, bool page,
                          const struct torture_gone *gone);
void torture_gone_cleared(const struct torture_run *run, const struct torture_gone *gone);

/* Before a call that may serve the prompt; after it has: its first tokens, and its entry or not. false: it had gone. */
struct torture_serving {
    uint64_t gone[TORTURE_DEPTH + 1];
};
void torture_gone_ask(const struct torture_run *run, const struct torture_prompt *prompt, struct torture_serving *serving);
bool torture_gone_served(const struct torture_run *run, const struct torture_prompt *prompt, uint32_t tokens, bool entry,
                         const struct torture_serving *serving);

/*
 * An arena begins anew on the spill file: a page that is there without those behind it is an entry then, so that one may be
 * back that was removed while longer ones ran through its page.
 */
void torture_gone_anew(const struct torture_run *run);

/* With no server left, nor a child of one. */
void torture_gone_settle(const struct torture_run *run);

/* ---- What is lost --------------------------------------------------------------------------------------- */

/* With no server left: empty the arena; frames and slots must all be there then. 0; -1 after a message. */
int torture_check_arena(const struct torture_run *run, struct torture_result *result);

/* Write all that is resident to the spill file. 1; 0: not all of it; -1 after a message. */
int torture_flush(const struct torture_run *run);

/* Which prompts have an entry. 0; -1 after a message. */
struct torture_entries {
    bool there[TORTURE_PROMPTS + TORTURE_KEYS];
    uint64_t epoch;
};
int torture_list_entries(const struct torture_run *run, struct torture_entries *entries);

#endif /* BENCH_TORTURE_H */
