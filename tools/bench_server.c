/* SPDX-License-Identifier: Apache-2.0 */
/* bench_server.c - see bench_server.h */
#include "bench_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench_content.h"
#include "kvshm.h"

#define WAIT_NS 50000 /* between two looks at what the parent decides */

struct server {
    const struct bench_run *run;
    struct bench_shared *shared;
    struct bench_place *place;
    uint32_t number;
    uint32_t serial;
    kvshm *kv;
    uint32_t page_tokens;
    uint64_t page_bytes;
    uint32_t pages_per_block;
    /* the request being served */
    uint32_t request;
    uint32_t blocks;
    uint32_t pages;
    uint32_t peeked; /* pages that memory held when it was taken */
    const uint32_t *nodes;
    uint32_t *tokens;  /* of the prompt */
    uint64_t *digests; /* of its pages */
    const void **served;
    uint64_t *offsets; /* of reserved frames */
    uint64_t *leased;  /* of the pages that stand in their place */
};

static void pause_a_little(void)
{
    struct timespec t = {.tv_nsec = WAIT_NS};

    nanosleep(&t, NULL);
}

static int fail(const struct server *server, const char *call)
{
    tool_error("server %u, request %u: %s: %s", server->number, server->request, call,
               kvshm_errmsg(server->kv));
    return -1;
}

/* Tokens of the whole prompt, digests of its pages. */
static void make_prompt(struct server *server)
{
    const struct bench_trace *trace = server->run->trace;
    uint64_t digest = BENCH_DIGEST_ROOT, first = trace->first_block[server->request];

    server->blocks = (uint32_t)(trace->first_block[server->request + 1] - first);
    server->pages = server->blocks * server->pages_per_block;
    server->nodes = trace->nodes + first;
    for (uint32_t i = 0; i < server->blocks; i++)
        bench_block_tokens(trace->node_ids[server->nodes[i]],
                           server->tokens + (size_t)i * BENCH_BLOCK_TOKENS);
    for (uint32_t i = 0; i < server->pages; i++) {
        digest = bench_digest(digest, server->tokens + (size_t)i * server->page_tokens,
                              server->page_tokens);
        server->digests[i] = digest;
    }
}

/* Compare every byte of the leased pages with what the tokens say. */
static int check_pages(struct server *server, const struct kvshm_lease *lease)
{
    uint64_t wrong = 0;
    int given;

    if (lease->pages == 0)
        return 0;
    if (lease->pages > server->pages) {
        tool_error("server %u, request %u: a lease of %u pages for a prompt of %u", server->number,
                   server->request, lease->pages, server->pages);
        return -1;
    }
    given = kvshm_lease_pages(lease, 0, lease->pages, server->served);
    if (given != (int)lease->pages || lease->tokens != lease->pages * server->page_tokens) {
        tool_error("server %u, request %u: a lease of %u pages holds %u tokens and gives %d pages",
                   server->number, server->request, lease->pages, lease->tokens, given);
        return -1;
    }
    for (uint32_t i = 0; i < lease->pages; i++)
        wrong += bench_page_wrong(server->served[i], server->page_bytes, server->digests[i]);
    if (wrong)
        atomic_fetch_add(&server->place->wrong_bytes, wrong);
    return 0;
}

/* The pages behind head_pages are leased now: remember which of them stand in the frames that we filled. */
static void note_computed(struct server *server, const struct kvshm_lease *lease,
                          uint32_t head_pages)
{
    uint32_t wanted = server->pages - head_pages;
    int given = kvshm_lease_offsets(lease, head_pages, wanted, server->leased);

    for (uint32_t i = 0; i < wanted && (int)i < given; i++) {
        uint32_t page = head_pages + i;

        if ((page + 1) % server->pages_per_block == 0 && server->leased[i] == server->offsets[i])
            atomic_store(
                &server->shared->computed_by[server->nodes[page / server->pages_per_block]],
                server->serial);
    }
}

/* The arena's wait_ms is unlimited: what is in the spill file is served, and nothing is dropped for want of time. */
static unsigned waiting(const struct server *server)
{
    return server->run->options->spill ? KVSHM_WAIT : 0;
}

/* Compute what is missing behind the lease, and insert it; the lease is of the whole prompt then. */
static int compute(struct server *server, const struct kvshm_prefix *prefix,
                   struct kvshm_lease *lease)
{
    uint32_t head_pages = lease->pages, missing = server->pages - head_pages;
    struct kvshm_reservation frames;
    int rc = missing > server->run->frames
                 ? -ENOSPC
                 : kvshm_reserve(server->kv, missing, waiting(server), &frames);

    if (rc == -ENOSPC) {
        atomic_fetch_add(&server->place->not_inserted, 1);
        return 0;
    }
    if (rc < 0)
        return fail(server, "reserve");
    if (kvshm_reservation_offsets(&frames, 0, missing, server->offsets) != (int)missing) {
        kvshm_cancel(server->kv, &frames);
        return fail(server, "reservation_offsets");
    }
    for (uint32_t i = 0; i < missing; i++)
        bench_page_fill(kvshm_reservation_page(&frames, i), server->page_bytes,
                        server->digests[head_pages + i]);
    rc = kvshm_insert(server->kv, prefix, lease, &frames, KVSHM_HOLD);
    if (rc < 0) {
        fail(server, "insert");
        kvshm_cancel(server->kv, &frames);
        return -1;
    }
    note_computed(server, lease, head_pages);
    return 0;
}

/* All pages are there. If no entry ends here, name one, so that they are as young as their last use. */
static int keep(struct server *server, const struct kvshm_prefix *prefix, struct kvshm_lease *lease)
{
    if (lease->last_used == 0 && kvshm_insert(server->kv, prefix, lease, NULL, 0) < 0)
        return fail(server, "insert");
    return 0;
}

static void count_served(struct server *server, const struct kvshm_lease *lease,
                         struct bench_request *result)
{
    result->blocks_served = lease->pages / server->pages_per_block;
    result->blocks_of_others = 0;
    result->blocks_in_memory = server->peeked / server->pages_per_block;
    if (result->blocks_in_memory > result->blocks_served)
        result->blocks_in_memory = result->blocks_served;
    for (uint32_t i = 0; i < result->blocks_served; i++)
        result->blocks_of_others +=
            atomic_load(&server->shared->computed_by[server->nodes[i]]) != server->serial;
}

/* How much is in memory, and how much would have to be read: with a spill file alone. */
static int peek(struct server *server, const struct kvshm_prefix *prefix)
{
    struct kvshm_lease told;
    int rc;

    server->peeked = UINT32_MAX;
    if (!server->run->options->spill)
        return 0;
    rc = kvshm_match(server->kv, prefix, KVSHM_PEEK, &told);
    if (rc < 0)
        return fail(server, "peek");
    server->peeked = told.pages;
    return 0;
}

static int serve(struct server *server)
{
    struct bench_request *result = &server->shared->requests[server->request];
    struct kvshm_prefix prefix;
    struct kvshm_lease lease;
    uint64_t began_ns;
    int rc;

    make_prompt(server);
    kvshm_prefix_init(&prefix, 0, 0, server->tokens, server->blocks * BENCH_BLOCK_TOKENS);
    rc = peek(server, &prefix);
    if (rc < 0)
        return rc;
    began_ns = bench_now_ns();
    rc = kvshm_match(server->kv, &prefix, waiting(server), &lease);
    bench_hist_add(&server->place->match_ns, bench_now_ns() - began_ns);
    if (rc < 0)
        return fail(server, "match");
    rc = check_pages(server, &lease);
    count_served(server, &lease, result);
    if (rc == 0)
        rc = lease.pages < server->pages ? compute(server, &prefix, &lease)
                                         : keep(server, &prefix, &lease);
    kvshm_release(server->kv, &lease);
    if (rc == 0)
        atomic_store(&result->done, 1);
    return rc;
}

/* Take the next request. False: there is none. */
static bool take(struct server *server)
{
    struct bench_shared *shared = server->shared;
    uint32_t number, nobody, expected;

    while ((number = atomic_load(&shared->next)) < server->run->trace->request_count) {
        if (number >= atomic_load(&shared->gate)) {
            pause_a_little();
            continue;
        }
        nobody = 0;
        expected = number;
        if (atomic_compare_exchange_strong(&shared->requests[number].taker, &nobody,
                                           server->number + 1)) {
            atomic_compare_exchange_strong(&shared->next, &expected, number + 1);
            server->request = number;
            return true;
        }
        atomic_compare_exchange_strong(&shared->next, &expected, number + 1);
    }
    return false;
}

static int serve_taken(struct server *server)
{
    int rc;

    atomic_store(&server->place->in_request, 1);
    rc = serve(server);
    atomic_store(&server->place->in_request, 0);
    return rc;
}

/* First what a killed process of this place left undone (next itself may be taken already); then all others. */
static int serve_all(struct server *server)
{
    struct bench_shared *shared = server->shared;
    uint32_t count = server->run->trace->request_count;
    uint32_t next = atomic_load(&shared->next);

    for (uint32_t i = 0; i <= next && i < count; i++) {
        server->request = i;
        if (atomic_load(&shared->requests[i].taker) == server->number + 1 &&
            !atomic_load(&shared->requests[i].done) && serve_taken(server))
            return -1;
    }
    while (take(server))
        if (serve_taken(server))
            return -1;
    while (atomic_load(&shared->kills_left))
        pause_a_little();
    return 0;
}

static int attach(struct server *server)
{
    struct kvshm_config expect;
    char label[32];
    int rc;

    snprintf(label, sizeof(label), "bench server %u", server->number);
    kvshm_config_init(&expect);
    expect.label = label;
    rc = kvshm_attach(server->run->arena_name, &expect, 0, &server->kv);
    if (rc < 0)
        tool_error("server %u: attach: %s", server->number, kvshm_errmsg(NULL));
    return rc;
}

static bool allocate(struct server *server)
{
    size_t blocks = server->run->trace->longest, pages = blocks * server->pages_per_block;

    server->tokens = calloc(blocks * BENCH_BLOCK_TOKENS, sizeof(*server->tokens));
    server->digests = calloc(pages, sizeof(*server->digests));
    server->served = calloc(pages, sizeof(*server->served));
    server->offsets = calloc(pages, sizeof(*server->offsets));
    server->leased = calloc(pages, sizeof(*server->leased));
    if (server->tokens && server->digests && server->served && server->offsets && server->leased)
        return true;
    tool_error("server %u: no memory", server->number);
    return false;
}

static void give_back(struct server *server)
{
    free(server->tokens);
    free(server->digests);
    free(server->served);
    free(server->offsets);
    free(server->leased);
}

int bench_server(const struct bench_run *run, uint32_t place, uint32_t serial)
{
    struct server server = {
        .run = run,
        .shared = run->shared,
        .place = &run->shared->places[place],
        .number = place,
        .serial = serial,
        .page_tokens = (uint32_t)run->options->page_tokens,
        .page_bytes = run->options->page_bytes,
        .pages_per_block = BENCH_BLOCK_TOKENS / (uint32_t)run->options->page_tokens,
    };
    int status = TOOL_FAILED;

    if (allocate(&server) && attach(&server) == 0) {
        atomic_store(&server.place->is_ready, 1);
        while (!atomic_load(&run->shared->go))
            pause_a_little();
        if (serve_all(&server) == 0)
            status = TOOL_DONE;
        if (kvshm_detach(server.kv) < 0) {
            tool_error("server %u: detach: %s", place, kvshm_errmsg(server.kv));
            status = TOOL_FAILED;
        }
    }
    give_back(&server);
    return status;
}
