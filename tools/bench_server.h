/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_server.h - one server process of a replay, and the memory that it shares with its parent.
 *
 * The shared memory is anonymous and mapped before the servers are forked, so it outlives each of them. A server is
 * a place, numbered from 0; when its process is killed the parent starts another one for the same place.
 *
 * Requests are taken in file order. A request is taken by the compare-and-swap of its taker word from 0 to place + 1;
 * then next is moved on, by whoever comes first. So a process may be killed anywhere and no request is lost: the
 * next process of the place finds the one that has its taker word and is not done. done is stored last, after the
 * request's results; a request that is done is never looked at by a server again, so it counts once.
 *
 * A process has a serial number, from 1, never used twice. computed_by[node] is that of the process that last
 * published the block's last page; its writer knows from the lease that insert gave it that the page is its own. It
 * is written after the page can be found: who reads another number than its own there, 0 too, reads a page that
 * another process computed.
 */
#ifndef BENCH_SERVER_H
#define BENCH_SERVER_H

#include <stdatomic.h>
#include <stdint.h>

#include "bench.h"
#include "bench_hist.h"
#include "bench_trace.h"

struct bench_request {
    _Atomic(uint32_t) taker; /* place + 1; 0: not taken */
    _Atomic(uint32_t) done;
    uint32_t blocks_served;    /* of its blocks, the leading ones that the arena held whole */
    uint32_t blocks_of_others; /* of these, computed by another process */
    uint32_t blocks_in_memory; /* of these, there when it was asked for; the others were restored */
};

/* Written by the process of the place alone. */
struct bench_place {
    _Atomic(uint32_t) is_ready;     /* attached */
    _Atomic(uint32_t) in_request;   /* between taking a request and its end */
    _Atomic(uint64_t) wrong_bytes;  /* of served pages, also of requests that were never done */
    _Atomic(uint64_t) not_inserted; /* times reserve had no frames */
    struct bench_hist match_ns;
};

struct bench_shared {
    _Atomic(uint32_t) next;         /* all requests before it are taken */
    _Atomic(uint32_t) go;           /* the parent: all are ready */
    _Atomic(uint32_t) gate;         /* the parent: requests from here on wait for a kill */
    _Atomic(uint32_t) kills_left;   /* the parent: no server ends before it is 0; restarts are kills too */
    struct bench_place *places;     /* procs of them */
    struct bench_request *requests; /* of the trace */
    _Atomic(uint32_t) *computed_by; /* of the nodes */
};

/* What a server needs to know. */
struct bench_run {
    const struct bench_replay_options *options;
    const struct bench_trace *trace;
    const char *arena_name;
    uint32_t frames;
    struct bench_shared *shared;
};

/* Serve until all requests are taken and this place's are done. The exit status. */
int bench_server(const struct bench_run *run, uint32_t place, uint32_t serial);

#endif /* BENCH_SERVER_H */
