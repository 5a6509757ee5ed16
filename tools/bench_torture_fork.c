/* SPDX-License-Identifier: Apache-2.0 */
/* bench_torture_fork.c - steps of the torture that fork, attach and detach */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_torture_act.h"

/* Give all back, detach, attach anew; also how a process begins. */
void torture_step_again(struct torture_server *server)
{
    struct kvshm_info info;

    if (server->kv) {
        torture_give_back(server);
        atomic_store(&server->place->client, 0);
        torture_detach(server, &server->kv);
        torture_detach(server, &server->reader);
    }
    server->notier = server->run->spill && torture_draw(server, 8) == 0;
    torture_attach(server, server->notier ? KVSHM_NOTIER : 0, &server->kv);
    torture_attach(server, KVSHM_RDONLY, &server->reader);
    kvshm_info_init(&info);
    if (kvshm_info(server->kv, &info) != 0)
        torture_fail(server, "info: %s", kvshm_errmsg(server->kv));
    atomic_store(&server->place->client, info.client);
}

/* Serve a few prompts on another handle, from attach to detach. */
static void visit(struct torture_server *server)
{
    struct torture_prompt prompt;
    struct kvshm_lease lease;
    kvshm *kv;

    torture_attach(server, server->run->spill && torture_draw(server, 4) == 0 ? KVSHM_NOTIER : 0,
                   &kv);
    for (uint32_t i = torture_draw(server, 4); i > 0; i--) {
        torture_prompt_tokens(&prompt, server->action.number + i);
        torture_serve(server, kv, &prompt, &lease);
        TORTURE_DO(server, release, kvshm_release(kv, &lease));
    }
    torture_prompt_key(&prompt, server->action.number);
    torture_serve_key(server, kv, &prompt, &lease);
    TORTURE_DO(server, release, kvshm_release(kv, &lease));
    torture_detach(server, &kv);
}

/* A second client of the same process. A lease of the one is no head for the other. */
void torture_step_second(struct torture_server *server)
{
    struct torture_held *held = &server->held[torture_draw(server, TORTURE_HELD)];
    kvshm *kv;

    visit(server);
    if (held->lease.tokens == 0)
        return;
    torture_attach(server, 0, &kv);
    if (kvshm_insert(kv, &held->prompt.prefix, &held->lease, NULL, 0) != -EINVAL)
        torture_fail(server, "insert takes a lease of another handle for its head");
    torture_detach(server, &kv);
    torture_check(server, &held->lease, &held->prompt);
}

/* ---- Fork ------------------------------------------------------------------------------------------------- */

static void forked(struct torture_server *server, const char *call, int64_t code)
{
    torture_count(server, TORTURE_CALL_forked);
    if (code != KVSHM_E_FORKED)
        torture_fail(server, "in a child, %s on its parent's handle answers %lld", call,
                     (long long)code);
}

static int no_entry(const struct kvshm_entry *entry, void *arg)
{
    (void)entry;
    (void)arg;
    return 1;
}

/* Calls that find and fill. */
static void use_cache_of_parent(struct torture_server *server)
{
    struct torture_prompt prompt;
    struct kvshm_lease lease;
    struct kvshm_reservation r;
    uint64_t offset;
    uint8_t byte;

    torture_prompt_tokens(&prompt, server->action.number);
    forked(server, "match", kvshm_match(server->kv, &prompt.prefix, 0, &lease));
    forked(server, "lookup", kvshm_lookup(server->kv, &prompt.prefix, KVSHM_PEEK, &lease));
    forked(server, "copy_out", kvshm_copy_out(server->reader, &prompt.prefix, 0, 1, &byte));
    forked(server, "reserve", kvshm_reserve(server->kv, 1, 0, &r));
    forked(server, "insert", kvshm_insert(server->kv, &prompt.prefix, NULL, NULL, 0));
    forked(server, "remove", kvshm_remove(server->kv, &prompt.prefix));
    forked(server, "evict_lru", kvshm_evict_lru(server->kv));
    forked(server, "clear", kvshm_clear(server->kv));
    for (uint32_t i = 0; i < TORTURE_HELD; i++) {
        struct kvshm_lease *held = &server->held[i].lease;

        if (held->tokens == 0)
            continue;
        forked(server, "lease_offsets", kvshm_lease_offsets(held, 0, 1, &offset));
        if (kvshm_lease_page(held, 0))
            torture_fail(server, "in a child, a lease of its parent has a page");
        kvshm_release(server->kv, held);
    }
    for (uint32_t i = 0; i < TORTURE_FILLING; i++)
        kvshm_cancel(server->kv, &server->filling[i].r);
    if (kvshm_contains(server->kv, &prompt.prefix))
        torture_fail(server, "in a child, contains on its parent's handle is true");
}

/* A child that wants to gives the handles back. */
static void use_arena_of_parent(struct torture_server *server)
{
    struct kvshm_info info;
    struct kvshm_stats stats;

    kvshm_info_init(&info);
    kvshm_stats_init(&stats);
    forked(server, "info", kvshm_info(server->kv, &info));
    forked(server, "stats", kvshm_stats(server->reader, &stats));
    forked(server, "foreach", kvshm_foreach(server->kv, no_entry, NULL));
    forked(server, "join", kvshm_join(server->kv, 1));
    forked(server, "leave", kvshm_leave(server->kv, 1));
    forked(server, "prefetch", kvshm_prefetch(server->kv, NULL, 0));
    forked(server, "wait", kvshm_wait(server->kv, NULL));
    forked(server, "flush", kvshm_flush(server->kv));
    if (torture_draw(server, 2) == 0)
        return;
    torture_detach(server, &server->reader);
    torture_detach(server, &server->kv);
}

static void child(struct torture_server *server, pid_t parent)
{
    server->child = true;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(TOOL_DONE);
    use_cache_of_parent(server);
    use_arena_of_parent(server);
    if (torture_draw(server, 2))
        visit(server);
    _exit(TOOL_DONE);
}

/* The child is refused, and ends, or attaches anew. What the parent holds stays whole. */
void torture_step_fork(struct torture_server *server)
{
    pid_t parent = getpid(), pid;
    int status;

    pid = TORTURE_DO(server, fork, fork());
    if (pid < 0)
        torture_fail(server, "fork: %s", strerror(errno));
    if (pid == 0)
        child(server, parent);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            torture_fail(server, "wait for a child: %s", strerror(errno));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != TOOL_DONE)
        torture_fail(server, "a child has ended with status %d", status);
    for (uint32_t i = 0; i < TORTURE_HELD; i++)
        torture_check(server, &server->held[i].lease, &server->held[i].prompt);
}
