/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_report.h - the result of a replay, as text and as JSON.
 */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "bench.h"

/* From one restart to the next, or to the end. */
struct bench_restart {
    uint64_t request;        /* the first that was not taken before */
    uint64_t pages_before;   /* in memory and in the file */
    uint64_t pages_found;    /* in the file, by the arena that was made anew */
    uint64_t pages_lost;     /* the others */
    uint64_t blocks_served;  /* since */
    uint64_t pages_restored; /* since */
};

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
    uint64_t blocks_in_memory; /* of those served; what follows is of the spill file */
    uint64_t blocks_restored;
    uint64_t blocks_missed;
    uint64_t pages_found; /* at the start */
    uint64_t spilled_pages;
    uint64_t left_pages;
    uint64_t restored_pages;
    uint64_t spill_failures; /* of reading and writing */
    uint64_t spill_bytes_written;
    uint64_t spill_bytes_read;
    uint64_t pages_in_file; /* alone, at the end */
    uint64_t slots;
    uint32_t restart_count;
    struct bench_restart restarts[BENCH_RESTARTS_MAX];
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
