/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_trace.h - a trace of requests in memory.
 *
 * A trace has one JSON object a line: timestamp (a number, ms), input_length and output_length (tokens), hash_ids
 * (one id from 0 to 2^63 - 1 for each block of the prompt, at least one). Other fields are let be.
 *
 * Blocks are told apart by their id and by all ids before it in the request: equal ones are one node of a tree, and
 * have one number, counted from 0 in the order in which they are met.
 */
#ifndef BENCH_TRACE_H
#define BENCH_TRACE_H

#include <stdint.h>
#include <stdio.h>

struct bench_trace {
    uint32_t request_count;
    uint32_t node_count;   /* distinct blocks */
    uint64_t block_count;  /* of all requests */
    uint32_t longest;      /* blocks of the longest request */
    uint64_t *first_block; /* request r has blocks first_block[r] to first_block[r + 1] - 1 */
    uint32_t *nodes;       /* block -> node */
    uint64_t *node_ids;    /* node -> id of the block */
};

/*
 * Read a trace to its end. name stands in messages. 0; -1 after a message with the line and the field on standard
 * error: then the trace is empty.
 */
int bench_trace_read(FILE *file, const char *name, struct bench_trace *trace);

/* Free what it holds; a zeroed one is let be. */
void bench_trace_free(struct bench_trace *trace);

#endif /* BENCH_TRACE_H */
