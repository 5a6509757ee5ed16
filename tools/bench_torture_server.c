/* SPDX-License-Identifier: Apache-2.0 */
/* bench_torture_server.c - one server process of the torture: its steps, one by one, and its end */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench_torture_act.h"

/* ---- The schedule --------------------------------------------------------------------------------------- */

#define TORTURE_STEP(name, weight) {#name, weight},
static const struct {
    const char *name;
    uint32_t weight;
} steps[] = {TORTURE_STEPS(TORTURE_STEP)};
#undef TORTURE_STEP

#define TORTURE_STEP(name, weight) weight +
static_assert(TORTURE_STEPS(TORTURE_STEP) 0 == 1000, "weights are of 1000");
#undef TORTURE_STEP

const char *torture_step_name(enum torture_step step)
{
    return steps[step].name;
}

void torture_action(uint64_t seed, uint32_t server, uint32_t process, uint64_t step,
                    struct torture_action *action)
{
    uint64_t state = bench_mix(bench_mix(bench_mix(bench_mix(seed + 1) + server) + process) + step);
    uint32_t pick = (uint32_t)bench_below(&state, 1000);

    action->step = 0;
    while (pick >= steps[action->step].weight)
        pick -= steps[action->step++].weight;
    action->number = (uint32_t)bench_below(&state, 1000000);
    action->random = state;
}

/* What a failure shows: the steps that this process and the one before it took last. It may be killed in here. */
static void remember(struct torture_server *server)
{
    struct torture_last *last = &server->place->last[server->step % TORTURE_LAST];

    atomic_store_explicit(&last->process_and_step, 0, memory_order_relaxed);
    atomic_store_explicit(&last->step, server->action.step, memory_order_release);
    atomic_store_explicit(&last->number, server->action.number, memory_order_release);
    atomic_store_explicit(&last->process_and_step,
                          (uint64_t)server->process << 32 | (uint32_t)(server->step + 1),
                          memory_order_release);
}

/* ---- What all steps use ----------------------------------------------------------------------------------- */

void torture_count(struct torture_server *server, enum torture_call call)
{
    atomic_fetch_add_explicit(&server->place->calls[call], 1, memory_order_relaxed);
}

void torture_fail(const struct torture_server *server, const char *format, ...)
{
    char text[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    tool_error("server %u, process %u, step %llu (%s %u): %s", server->number, server->process,
               (unsigned long long)server->step, torture_step_name(server->action.step),
               server->action.number, text);
    _exit(TOOL_FAILED);
}

int64_t torture_allowed(struct torture_server *server, const char *call, int64_t code)
{
    if (code == KVSHM_E_STALLED)
        atomic_fetch_add_explicit(&server->place->stalls, 1, memory_order_relaxed);
    if (code == KVSHM_E_NOSPILL && server->run->spill)
        return code; /* of a handle without the file */
    if (code < 0 && code != -ENOSPC && code != KVSHM_E_STALE && code != KVSHM_E_STALLED)
        torture_fail(server, "%s: %s", call, kvshm_errmsg(server->kv));
    return code;
}

unsigned torture_may_wait(struct torture_server *server)
{
    return server->run->spill && torture_draw(server, 4) == 0 ? KVSHM_WAIT : 0;
}

void torture_attach(struct torture_server *server, unsigned flags, kvshm **kv)
{
    struct kvshm_config expect;

    kvshm_config_init(&expect);
    expect.label = TORTURE_LABEL;
    if (server->run->spill && torture_draw(server, 2))
        expect.spill_path = server->run->spill; /* else the creator's */
    if (TORTURE_DO(server, attach, kvshm_attach(server->run->arena_name, &expect, flags, kv)) < 0)
        torture_fail(server, "attach: %s", kvshm_errmsg(NULL));
}

void torture_detach(struct torture_server *server, kvshm **kv)
{
    if (TORTURE_DO(server, detach, kvshm_detach(*kv)) < 0)
        torture_fail(server, "detach: %s", kvshm_errmsg(*kv));
    *kv = NULL;
}

void torture_check(struct torture_server *server, const struct kvshm_lease *lease,
                   const struct torture_prompt *prompt)
{
    const void *pages[TORTURE_DEPTH];
    uint64_t wrong;
    int given;

    if (lease->pages == 0 && lease->tokens == 0)
        return;
    if (lease->tokens > prompt->prefix.n ||
        lease->pages != kvshm_pages_for_tokens(lease->tokens, TORTURE_PAGE_TOKENS))
        torture_fail(server, "a lease of %u tokens in %u pages, for a prompt of %u", lease->tokens,
                     lease->pages, prompt->prefix.n);
    given = kvshm_lease_pages(lease, 0, TORTURE_DEPTH, pages);
    if (given != (int)lease->pages)
        torture_fail(server, "a lease of %u pages gives %d", lease->pages, given);
    wrong = torture_pages_wrong(pages, prompt, lease->tokens, 0, lease->pages);
    atomic_fetch_add_explicit(&server->place->pages_checked, lease->pages, memory_order_relaxed);
    atomic_fetch_add_explicit(&server->place->wrong_bytes, wrong, memory_order_relaxed);
    if (wrong)
        torture_fail(server, "%llu wrong bytes in a lease of %u pages", (unsigned long long)wrong,
                     lease->pages);
}

/* Cancelled frames of a device go back in a sweep under our number; after detach they would wait for reap. */
static void sweep(struct torture_server *server)
{
    while (torture_allowed(server, "evict_lru",
                           TORTURE_DO(server, evict_lru, kvshm_evict_lru(server->kv))) < 0)
        continue;
}

void torture_give_back(struct torture_server *server)
{
    for (uint32_t i = 0; i < TORTURE_HELD; i++) {
        torture_check(server, &server->held[i].lease, &server->held[i].prompt);
        TORTURE_DO(server, release, kvshm_release(server->kv, &server->held[i].lease));
    }
    for (uint32_t i = 0; i < TORTURE_FILLING; i++)
        TORTURE_DO(server, cancel, kvshm_cancel(server->kv, &server->filling[i].r));
    for (uint32_t i = 0; i < TORTURE_JOINED; i++) {
        if (server->joined[i] &&
            TORTURE_DO(server, leave, kvshm_leave(server->kv, server->joined[i])) < 0)
            torture_fail(server, "leave: %s", kvshm_errmsg(server->kv));
        server->joined[i] = 0;
    }
}

/* ---- The process ------------------------------------------------------------------------------------------ */

static void take_step(struct torture_server *server)
{
    torture_action(server->run->seed, server->number, server->process, server->step,
                   &server->action);
    remember(server);
    switch (server->action.step) {
    case TORTURE_STEP_fork:
        torture_step_fork(server);
        break;
    case TORTURE_STEP_again:
        torture_step_again(server);
        break;
    case TORTURE_STEP_second:
        torture_step_second(server);
        break;
    default:
        torture_act(server);
    }
    server->step++;
    atomic_fetch_add_explicit(&server->place->steps, 1, memory_order_relaxed);
}

int torture_server(const struct torture_run *run, uint32_t number, uint32_t process)
{
    struct torture_server server = {
        .run = run,
        .place = &run->shared->places[number],
        .number = number,
        .process = process,
    };

    torture_step_again(&server);
    while (!atomic_load(&run->shared->ended))
        take_step(&server);
    torture_give_back(&server);
    sweep(&server);
    torture_detach(&server, &server.reader);
    torture_detach(&server, &server.kv);
    return TOOL_DONE;
}
