/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_report.h - the result of a replay, as text and as JSON.
 */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "bench.h"

struct bench_result {
    uint64_t requests;
    uint64_t blocks;
    uint64_t blocks_served;
    uint64_t blocks_of_others; /* of these, computed by another process */
    uint64_t wrong_bytes;
    uint64_t not_inserted;
    uint64_t kills;
    uint64_t kills_in_request;
    uint64_t entries; /* at the end */
    uint64_t pages;
    uint64_t evicted_entries;
    uint64_t evicted_pages;
    uint64_t matches;
    uint64_t match_median_ns;
    uint64_t match_p99_ns;
    uint64_t frames;
    uint64_t frames_accounted;
    uint64_t segment_bytes;
    uint64_t elapsed_ns;
};

/* Print it to standard output. 0; -1 after a message: not all was written. */
int bench_report(const struct bench_replay_options *options, const struct bench_result *result);

/* What other results share. */
struct json_object;
void bench_json_number(struct json_object *object, const char *name, uint64_t value);
/* With so many decimals, at most 9. */
void bench_json_decimal(struct json_object *object, const char *name, double value, int decimals);
/* Print it and give it back; the same outcomes. NULL is "no memory". */
int bench_json_print(struct json_object *object);

#endif /* BENCH_REPORT_H */
