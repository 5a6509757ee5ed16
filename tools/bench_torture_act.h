/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_torture_act.h - one server process of the torture, as its steps see it.
 *
 * What is wrong ends the process with TOOL_FAILED, after a message that names server, process and step.
 */
#ifndef BENCH_TORTURE_ACT_H
#define BENCH_TORTURE_ACT_H

#include "bench_torture.h"

#define TORTURE_HELD    6u /* leases that are kept for a while */
#define TORTURE_FILLING 2u /* reservations likewise */
#define TORTURE_JOINED  3u

struct torture_held {
    struct kvshm_lease lease;
    struct torture_prompt prompt;
};

struct torture_filling {
    struct kvshm_reservation r;
    struct torture_prompt prompt;
};

struct torture_server {
    const struct torture_run *run;
    struct torture_place *place;
    uint32_t number, process;
    uint64_t step;
    struct torture_action action;
    bool child;      /* forked by a server */
    bool notier;     /* kv is without the spill file */
    kvshm *kv;
    kvshm *reader; /* the same arena, read-only */
    struct torture_held held[TORTURE_HELD];
    struct torture_filling filling[TORTURE_FILLING];
    uint64_t joined[TORTURE_JOINED]; /* client numbers; 0: none */
};

/* A number from 0 to n - 1, drawn for this step. */
static inline uint32_t torture_draw(struct torture_server *server, uint32_t n)
{
    return (uint32_t)bench_below(&server->action.random, n);
}

void torture_count(struct torture_server *server, enum torture_call call);

/* The call, counted. */
#define TORTURE_DO(server, name, expression) \
    (torture_count((server), TORTURE_CALL_##name), (expression))

/* End the process. */
void torture_fail(const struct torture_server *server, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));

/*
 * The code, if a call may answer it while others clear, fill all frames, stop and die; else the process ends. Counts
 * KVSHM_E_STALLED.
 */
int64_t torture_allowed(struct torture_server *server, const char *call, int64_t code);

/* KVSHM_WAIT, now and then where there is a spill file; else 0. */
unsigned torture_may_wait(struct torture_server *server);

/* Attach, with our label. */
void torture_attach(struct torture_server *server, unsigned flags, kvshm **kv);
void torture_detach(struct torture_server *server, kvshm **kv);

/* Compare every byte of every page of a lease with what the prompt says; the lease may be empty. */
void torture_check(struct torture_server *server, const struct kvshm_lease *lease,
                   const struct torture_prompt *prompt);

/* Give back what is held, filled and joined. */
void torture_give_back(struct torture_server *server);

/* As a server does: look, compute what is missing, insert it. Through any handle; the lease is of what is there then. */
void torture_serve(struct torture_server *server, kvshm *kv, const struct torture_prompt *prompt,
                   struct kvshm_lease *lease);
void torture_serve_key(struct torture_server *server, kvshm *kv,
                       const struct torture_prompt *prompt, struct kvshm_lease *lease);

/* Steps that look and fill. */
void torture_act(struct torture_server *server);

/* Steps that fork, attach and detach. */
void torture_step_fork(struct torture_server *server);
void torture_step_again(struct torture_server *server);
void torture_step_second(struct torture_server *server);

#endif /* BENCH_TORTURE_ACT_H */
