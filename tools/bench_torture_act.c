/* SPDX-License-Identifier: Apache-2.0 */
/* bench_torture_act.c - what a step of the torture may do: look, fill, hold, give up */
#include <errno.h>
#include <string.h>

#include "bench_torture_act.h"
#include "handle.h"
#include "reap.h"

/* A prompt of the action's number; sometimes key-only, where both will do. */
static void any_prompt(struct torture_server *server, struct torture_prompt *prompt)
{
    if (torture_draw(server, 4) == 0)
        torture_prompt_key(prompt, server->action.number);
    else
        torture_prompt_tokens(prompt, server->action.number);
}

/* What a lookup or match answered. */
static bool hit(struct torture_server *server, const char *call, int64_t code,
                const struct kvshm_lease *lease, const struct torture_prompt *prompt,
                const struct torture_serving *serving)
{
    if (code == KVSHM_PENDING && server->run->spill && lease->pending_tokens > 0)
        atomic_fetch_add_explicit(&server->place->pending, 1, memory_order_relaxed);
    else if (code != 0 && code != KVSHM_MISS)
        torture_fail(server, "%s answered %lld, %u tokens pending: %s", call, (long long)code,
                     lease->pending_tokens, kvshm_errmsg(server->kv));
    if ((code == 0) != (lease->tokens > 0))
        torture_fail(server, "%s answered %lld with %u tokens", call, (long long)code,
                     lease->tokens);
    if (code == 0)
        atomic_fetch_add_explicit(&server->place->hits, 1, memory_order_relaxed);
    if (!torture_gone_served(server->run, prompt, lease->tokens, code == 0 && call[0] == 'l',
                             serving))
        torture_fail(server, "%s serves %u tokens that had been removed or cleared", call,
                     lease->tokens);
    torture_check(server, lease, prompt);
    return code == 0;
}

/* Keep a lease in place of another one, which must still be whole. */
static void keep(struct torture_server *server, struct kvshm_lease *lease,
                 const struct torture_prompt *prompt)
{
    struct torture_held *held = &server->held[torture_draw(server, TORTURE_HELD)];

    torture_check(server, &held->lease, &held->prompt);
    TORTURE_DO(server, release, kvshm_release(server->kv, &held->lease));
    held->lease = *lease;
    held->prompt = *prompt;
    held->prompt.prefix.tokens = prompt->prefix.tokens ? held->prompt.tokens : NULL;
}

/* ---- Filling ---------------------------------------------------------------------------------------------- */

/* Reserve frames for pages first and behind, and fill them. false: there are none to be had now. */
static bool fill(struct torture_server *server, kvshm *kv, const struct torture_prompt *prompt,
                 uint32_t first, unsigned flags, struct kvshm_reservation *r)
{
    uint32_t need = torture_pages(prompt) - first, version = torture_draw(server, 4);
    int64_t code = 0;

    flags |= torture_may_wait(server);
    if (flags & KVSHM_DEVICE)
        code = TORTURE_DO(server, reserve_device, kvshm_reserve(kv, need, flags, r));
    else
        code = TORTURE_DO(server, reserve, kvshm_reserve(kv, need, flags, r));
    if (torture_allowed(server, "reserve", code) < 0)
        return false;
    if (r->pages != need)
        torture_fail(server, "a reservation of %u pages has %u", need, r->pages);
    for (uint32_t i = 0; i < need; i++)
        torture_page_fill(kvshm_reservation_page(r, i), prompt, first + i, version);
    return true;
}

/* Insert; a stalled insert is tried again, since its reservation is kept. What is not inserted is cancelled. */
static int64_t insert(struct torture_server *server, kvshm *kv, const struct torture_prompt *prompt,
                      struct kvshm_lease *head, struct kvshm_reservation *r, unsigned flags)
{
    uint32_t pages = r->pages;
    int64_t code;

    torture_gone_insert(server->run->shared, server->place, prompt, server->child);
    for (int i = 0; i < 3; i++) {
        torture_count(server, !prompt->prefix.tokens ? TORTURE_CALL_insert_key
                              : flags & KVSHM_EXTEND ? TORTURE_CALL_insert_extend
                              : flags & KVSHM_HOLD   ? TORTURE_CALL_insert_hold
                                                     : TORTURE_CALL_insert);
        code = torture_allowed(server, "insert", kvshm_insert(kv, &prompt->prefix, head, r, flags));
        /* Replaced, but the old pages are still in the file: a stopped server is at them. */
        if (code == KVSHM_E_STALLED && r->pages == 0 && !prompt->prefix.tokens &&
            server->run->spill)
            break;
        if (r->pages != (code < 0 ? pages : 0))
            torture_fail(server, "insert answered %lld and left %u of %u reserved pages",
                         (long long)code, r->pages, pages);
        if (code != KVSHM_E_STALLED)
            break;
    }
    if (!server->child)
        torture_gone_inserted(server->place);
    if (code >= 0 && flags & KVSHM_HOLD && head->tokens != prompt->prefix.n)
        torture_fail(server, "insert holds %u of %u tokens", head->tokens, prompt->prefix.n);
    TORTURE_DO(server, cancel, kvshm_cancel(kv, r));
    return code;
}

/* Compute what is behind the head, and put it there. */
static void compute(struct torture_server *server, kvshm *kv, const struct torture_prompt *prompt,
                    struct kvshm_lease *lease)
{
    static const unsigned flags[] = {KVSHM_HOLD, KVSHM_HOLD, KVSHM_HOLD | KVSHM_EXTEND,
                                     KVSHM_EXTEND, 0};
    uint32_t first = lease->tokens / TORTURE_PAGE_TOKENS;
    struct kvshm_reservation r = {0};

    if (first < torture_pages(prompt) && !fill(server, kv, prompt, first, 0, &r))
        return;
    if (torture_draw(server, 16) == 0)
        TORTURE_DO(server, cancel, kvshm_cancel(kv, &r));
    else
        insert(server, kv, prompt, lease, &r, flags[torture_draw(server, 5)]);
}

void torture_serve(struct torture_server *server, kvshm *kv, const struct torture_prompt *prompt,
                   struct kvshm_lease *lease)
{
    unsigned flags = (torture_draw(server, 4) == 0 ? KVSHM_TOUCH : 0) | torture_may_wait(server);
    struct torture_serving serving;

    torture_gone_ask(server->run, prompt, &serving);
    hit(server, "match", TORTURE_DO(server, match, kvshm_match(kv, &prompt->prefix, flags, lease)),
        lease, prompt, &serving);
    if (lease->tokens < prompt->prefix.n || lease->last_used == 0)
        compute(server, kv, prompt, lease);
    torture_check(server, lease, prompt);
}

/* Pages of a key go behind no head, and replace those that were there. */
void torture_serve_key(struct torture_server *server, kvshm *kv,
                       const struct torture_prompt *prompt, struct kvshm_lease *lease)
{
    unsigned flags = torture_may_wait(server);
    struct kvshm_reservation r = {0};
    struct torture_serving serving;
    bool found;

    torture_gone_ask(server->run, prompt, &serving);
    found = hit(server, "lookup",
                TORTURE_DO(server, lookup, kvshm_lookup(kv, &prompt->prefix, flags, lease)), lease,
                prompt, &serving);
    if (found && torture_draw(server, 3) != 0)
        return;
    TORTURE_DO(server, release, kvshm_release(kv, lease));
    if (!fill(server, kv, prompt, 0, 0, &r))
        return;
    insert(server, kv, prompt, lease, &r, torture_draw(server, 2) ? KVSHM_HOLD : 0);
    torture_check(server, lease, prompt);
}

/* As a server that computes page by page: the entry grows. */
static void grow(struct torture_server *server, const struct torture_prompt *whole)
{
    struct torture_prompt prompt = *whole;
    struct kvshm_lease lease = {0};
    uint32_t pages = torture_pages(whole);

    prompt.prefix.tokens = prompt.tokens;
    for (uint32_t i = 0; i < pages && torture_draw(server, 12) != 0; i++) {
        struct kvshm_reservation r = {0};

        prompt.prefix.n = i + 1 < pages ? (i + 1) * TORTURE_PAGE_TOKENS : whole->prefix.n;
        if (!fill(server, server->kv, &prompt, i, 0, &r) ||
            insert(server, server->kv, &prompt, &lease, &r, KVSHM_HOLD | KVSHM_EXTEND) < 0)
            break;
        torture_check(server, &lease, &prompt);
    }
    keep(server, &lease, &prompt);
}

/* A reservation that stays for a while: filled now, inserted or cancelled at another step. */
static void fill_late(struct torture_server *server, unsigned flags)
{
    struct torture_filling *filling = &server->filling[torture_draw(server, TORTURE_FILLING)];

    if (filling->r.pages == 0) {
        torture_prompt_tokens(&filling->prompt, server->action.number);
        if (!fill(server, server->kv, &filling->prompt, 0, flags, &filling->r))
            memset(&filling->r, 0, sizeof(filling->r));
    } else if (torture_draw(server, 3) == 0) {
        TORTURE_DO(server, cancel, kvshm_cancel(server->kv, &filling->r));
    } else {
        insert(server, server->kv, &filling->prompt, NULL, &filling->r, 0);
    }
}

/* ---- Looking ---------------------------------------------------------------------------------------------- */

static void look_up(struct torture_server *server)
{
    struct torture_prompt prompt;
    struct kvshm_lease lease;
    unsigned flags = (torture_draw(server, 8) == 0 ? KVSHM_TOUCH : 0) | torture_may_wait(server);
    struct torture_serving serving;

    any_prompt(server, &prompt);
    torture_gone_ask(server->run, &prompt, &serving);
    if (hit(server, "lookup",
            TORTURE_DO(server, lookup, kvshm_lookup(server->kv, &prompt.prefix, flags, &lease)),
            &lease, &prompt, &serving) &&
        lease.tokens != prompt.prefix.n)
        torture_fail(server, "lookup of %u tokens leases %u", prompt.prefix.n, lease.tokens);
    if (torture_draw(server, 2))
        keep(server, &lease, &prompt);
    else
        TORTURE_DO(server, release, kvshm_release(server->kv, &lease));
}

/* Without a lease: how much is cached, now and on the read-only handle. */
static void peek(struct torture_server *server)
{
    struct torture_prompt prompt;
    struct kvshm_lease lease;
    kvshm *kv = torture_draw(server, 2) ? server->kv : server->reader;
    struct torture_serving serving;
    unsigned flags = KVSHM_PEEK | (kv == server->kv && torture_draw(server, 2) ? KVSHM_TOUCH : 0);
    int code;

    any_prompt(server, &prompt);
    code = prompt.prefix.tokens
               ? TORTURE_DO(server, peek, kvshm_match(kv, &prompt.prefix, flags, &lease))
               : TORTURE_DO(server, peek, kvshm_lookup(kv, &prompt.prefix, flags, &lease));
    if (code != 0 && code != KVSHM_MISS && (code != KVSHM_PENDING || !server->run->spill))
        torture_fail(server, "peek: %s", kvshm_errmsg(kv));
    if (lease.tokens + lease.pending_tokens > prompt.prefix.n || lease.kv)
        torture_fail(server, "peek tells %u and %u of %u tokens", lease.tokens,
                     lease.pending_tokens, prompt.prefix.n);
    torture_gone_ask(server->run, &prompt, &serving);
    if (TORTURE_DO(server, contains, kvshm_contains(kv, &prompt.prefix)) &&
        !torture_gone_served(server->run, &prompt, 0, true, &serving))
        torture_fail(server, "contains an entry that had been removed or cleared");
}

static void copy(struct torture_server *server)
{
    static uint8_t bytes[TORTURE_DEPTH][TORTURE_PAGE_BYTES];
    struct torture_prompt prompt;
    const void *pages[TORTURE_DEPTH];
    uint32_t first = torture_draw(server, 3) ? 0 : torture_draw(server, TORTURE_DEPTH);
    struct torture_serving serving;
    uint64_t wrong;
    int64_t code;

    any_prompt(server, &prompt);
    torture_gone_ask(server->run, &prompt, &serving);
    code = torture_draw(server, 2)
               ? TORTURE_DO(server, copy_out,
                            kvshm_copy_out(server->kv, &prompt.prefix, first, TORTURE_DEPTH, bytes))
               : TORTURE_DO(
                     server, copy_out_read_only,
                     kvshm_copy_out(server->reader, &prompt.prefix, first, TORTURE_DEPTH, bytes));
    if (code < 0 || code > TORTURE_DEPTH || (code > 0 && first + code != torture_pages(&prompt)))
        torture_fail(server, "copy_out of %u pages from page %u answered %lld",
                     torture_pages(&prompt), first, (long long)code);
    if (code > 0 && !torture_gone_served(server->run, &prompt, prompt.prefix.n, true, &serving))
        torture_fail(server, "copy_out serves what had been removed or cleared");
    for (uint32_t i = 0; i < code; i++)
        pages[i] = bytes[i];
    wrong = torture_pages_wrong(pages, &prompt, prompt.prefix.n, first, (uint32_t)code);
    atomic_fetch_add_explicit(&server->place->pages_checked, (uint64_t)code, memory_order_relaxed);
    atomic_fetch_add_explicit(&server->place->wrong_bytes, wrong, memory_order_relaxed);
    if (wrong)
        torture_fail(server, "%llu wrong bytes in %lld copied pages", (unsigned long long)wrong,
                     (long long)code);
}

static int see_entry(const struct kvshm_entry *entry, void *arg)
{
    uint64_t *odd = arg;

    *odd += entry->pages != kvshm_pages_for_tokens(entry->tokens, TORTURE_PAGE_TOKENS) ||
            entry->pages > TORTURE_DEPTH;
    return 0;
}

static void look(struct torture_server *server)
{
    kvshm *kv = torture_draw(server, 2) ? server->kv : server->reader;
    struct kvshm_info info;
    struct kvshm_stats stats;
    uint64_t odd = 0;
    int code;

    kvshm_info_init(&info);
    kvshm_stats_init(&stats);
    code = TORTURE_DO(server, look, kvshm_info(kv, &info));
    if (code == 0)
        code = TORTURE_DO(server, look, kvshm_stats(kv, &stats));
    if (code == 0)
        code = TORTURE_DO(server, look, kvshm_foreach(kv, see_entry, &odd));
    if (code != 0)
        torture_fail(server, "info, stats or foreach: %s", kvshm_errmsg(kv));
    if (odd)
        torture_fail(server, "foreach shows %llu entries that cannot be", (unsigned long long)odd);
}

/* ---- Giving up, other processes --------------------------------------------------------------------------- */

static void release(struct torture_server *server)
{
    struct torture_held *held = &server->held[torture_draw(server, TORTURE_HELD)];

    torture_check(server, &held->lease, &held->prompt);
    TORTURE_DO(server, release, kvshm_release(server->kv, &held->lease));
}

static void evict(struct torture_server *server)
{
    torture_allowed(server, "evict_lru",
                    TORTURE_DO(server, evict_lru, kvshm_evict_lru(server->kv)));
}

static bool page_is_there(struct torture_server *server, const struct torture_prompt *prompt)
{
    struct kvshm_lease lease = {0};

    if (prompt->prefix.tokens)
        TORTURE_DO(server, peek, kvshm_match(server->kv, &prompt->prefix, KVSHM_PEEK, &lease));
    return lease.tokens + lease.pending_tokens == prompt->prefix.n;
}

/* Remove or clear: what went is gone, also from the spill file. */
static void give_up(struct torture_server *server)
{
    static struct torture_gone gone;
    bool clear = server->action.step == TORTURE_STEP_clear;
    struct torture_prompt prompt;
    int64_t code;

    any_prompt(server, &prompt);
    torture_gone_before(server->run, &gone);
    if (clear)
        code = TORTURE_DO(server, clear, kvshm_clear(server->kv));
    else
        code = TORTURE_DO(server, remove, kvshm_remove(server->kv, &prompt.prefix));
    if (code >= 0 && clear)
        torture_gone_cleared(server->run, &gone);
    else if (code >= 0)
        torture_gone_removed(server->run, &prompt, !page_is_there(server, &prompt), &gone);
    torture_allowed(server, torture_step_name(server->action.step), code);
}

/* ---- The spill file --------------------------------------------------------------------------------------- */

/* With a handle that has no spill file, the code that says so. */
static void allow_no_file(struct torture_server *server, const char *call, int64_t code)
{
    if (code != -ENOTSUP || (server->run->spill && !server->notier))
        torture_allowed(server, call, code);
}

static void prefetch(struct torture_server *server)
{
    struct torture_prompt prompts[4];
    struct kvshm_prefix prefixes[4];
    uint32_t n = 1 + torture_draw(server, 4);

    for (uint32_t i = 0; i < n; i++) {
        torture_prompt_tokens(&prompts[i], server->action.number + i * 7);
        prefixes[i] = prompts[i].prefix;
    }
    allow_no_file(server, "prefetch",
                  TORTURE_DO(server, prefetch, kvshm_prefetch(server->kv, prefixes, n)));
}

static void wait_some(struct torture_server *server)
{
    struct timespec timeout = {.tv_nsec = torture_draw(server, 4) * 1000000};

    allow_no_file(server, "wait", TORTURE_DO(server, wait, kvshm_wait(server->kv, &timeout)));
}

static void flush(struct torture_server *server)
{
    allow_no_file(server, "flush", TORTURE_DO(server, flush, kvshm_flush(server->kv)));
}

/* Capacity, or the budget of the spill file: a third of it, two thirds, or all. */
static int64_t set(struct torture_server *server)
{
    static const uint64_t capacities[] = {6, 24, KVSHM_UNLIMITED, KVSHM_UNLIMITED};
    const kvshm *kv = server->kv;
    uint32_t pick = torture_draw(server, 4);
    uint64_t most = kv->spill_fixed_bytes + kv->slot_count * kv->slot_bytes;

    if (!server->run->spill || torture_draw(server, 2))
        return TORTURE_DO(server, set,
                          kvshm__setting_set(server->kv, "capacity", capacities[pick]));
    return TORTURE_DO(
        server, set,
        kvshm__setting_set(server->kv, "spill_bytes", pick < 2 ? most / 3 * (pick + 1) : most));
}

/* What only kvshmctl does: frames of a dead client's devices come back, settings change. */
static void administer(struct torture_server *server)
{
    int64_t code;

    if (server->action.step == TORTURE_STEP_reap)
        code = TORTURE_DO(server, reap, kvshm__reap(server->kv, 0, TORTURE_LABEL));
    else
        code = set(server);
    if (code != -ENOENT)
        torture_allowed(server, torture_step_name(server->action.step), code);
}

static void join(struct torture_server *server)
{
    uint64_t client = atomic_load(
        &server->run->shared->places[server->action.number % server->run->procs].client);
    uint64_t *joined = &server->joined[torture_draw(server, TORTURE_JOINED)];
    struct kvshm_info info;
    int code;

    kvshm_info_init(&info);
    if (*joined || kvshm_info(server->kv, &info) != 0 || client == 0 || client == info.client)
        return;
    for (uint32_t i = 0; i < TORTURE_JOINED; i++)
        if (server->joined[i] == client)
            return;
    code = TORTURE_DO(server, join, kvshm_join(server->kv, client));
    if (code != 0 && code != -ESRCH)
        torture_fail(server, "join: %s", kvshm_errmsg(server->kv));
    *joined = code == 0 ? client : 0;
}

static void leave(struct torture_server *server)
{
    uint64_t *joined = &server->joined[torture_draw(server, TORTURE_JOINED)];

    if (*joined && TORTURE_DO(server, leave, kvshm_leave(server->kv, *joined)) != 0)
        torture_fail(server, "leave: %s", kvshm_errmsg(server->kv));
    *joined = 0;
}

static void serve(struct torture_server *server)
{
    struct torture_prompt prompt;
    struct kvshm_lease lease;

    if (server->action.step == TORTURE_STEP_key) {
        torture_prompt_key(&prompt, server->action.number);
        torture_serve_key(server, server->kv, &prompt, &lease);
        keep(server, &lease, &prompt);
        return;
    }
    torture_prompt_tokens(&prompt, server->action.number);
    if (server->action.step == TORTURE_STEP_grow) {
        grow(server, &prompt);
        return;
    }
    torture_serve(server, server->kv, &prompt, &lease);
    keep(server, &lease, &prompt);
}

static void tag(struct torture_server *server)
{
    struct torture_held *held = &server->held[torture_draw(server, TORTURE_HELD)];

    TORTURE_DO(server, tag, kvshm_lease_tag(&held->lease, server->action.number));
}

static void fill_for_later(struct torture_server *server)
{
    fill_late(server, server->action.step == TORTURE_STEP_device ? KVSHM_DEVICE : 0);
}

void torture_act(struct torture_server *server)
{
    static void (*const acts[TORTURE_STEP_COUNT])(struct torture_server *) = {
        [TORTURE_STEP_serve] = serve,
        [TORTURE_STEP_lookup] = look_up,
        [TORTURE_STEP_key] = serve,
        [TORTURE_STEP_grow] = serve,
        [TORTURE_STEP_copy] = copy,
        [TORTURE_STEP_peek] = peek,
        [TORTURE_STEP_release] = release,
        [TORTURE_STEP_fill] = fill_for_later,
        [TORTURE_STEP_remove] = give_up,
        [TORTURE_STEP_evict] = evict,
        [TORTURE_STEP_look] = look,
        [TORTURE_STEP_tag] = tag,
        [TORTURE_STEP_leave] = leave,
        [TORTURE_STEP_join] = join,
        [TORTURE_STEP_device] = fill_for_later,
        [TORTURE_STEP_reap] = administer,
        [TORTURE_STEP_set] = administer,
        [TORTURE_STEP_clear] = give_up,
        [TORTURE_STEP_prefetch] = prefetch,
        [TORTURE_STEP_wait] = wait_some,
        [TORTURE_STEP_flush] = flush,
    };

    acts[server->action.step](server);
}
