/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_torture_report.c - the result of the torture as text and JSON
 *
 * One table names each value for people and for JSON; tools read the JSON, whose names stay.
 */
#include <json-c/json.h>
#include <stdio.h>

#include "bench_report.h"
#include "bench_torture.h"

#define JSON_VERSION 1

#define ROW(name, text)                                    \
    {                                                      \
#name, text, offsetof(struct torture_result, name) \
    }

static const struct row {
    const char *name; /* in JSON */
    const char *text;
    size_t offset; /* of a uint64_t in struct torture_result */
} rows[] = {
    ROW(steps, "steps of servers"),
    ROW(processes, "processes"),
    ROW(kills, "servers killed"),
    ROW(kills_in_lock, "  inside the writer lock"),
    ROW(menders_killed, "  that had taken it from a dead one"),
    ROW(kills_in_transfer, "  while they wrote pages to the spill file"),
    ROW(stops, "servers stopped"),
    ROW(stops_in_lock, "  inside the writer lock"),
    ROW(takeovers, "locks taken over from the dead"),
    ROW(stalls, "calls told that the lock stalls"),
    ROW(hits, "hits"),
    ROW(pending, "answers that pages are pending"),
    ROW(pages_checked, "pages checked"),
    ROW(wrong_bytes, "wrong bytes"),
    ROW(checks, "checks of the empty arena"),
    ROW(frames, "frames"),
    ROW(frames_lost, "  lost"),
    ROW(slots, "slots"),
    ROW(slots_lost, "  lost"),
    ROW(spilled_pages, "pages written to the spill file"),
    ROW(restored_pages, "pages read back from it"),
    ROW(spill_errors, "pages that were not to be written or read"),
    ROW(arenas, "new arenas on the spill file"),
    ROW(entries_flushed, "entries that were to be in them, and were"),
    ROW(elapsed_ns, "ns in all"),
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

#define TORTURE_CALL(name, text) {#name, text},
static const struct {
    const char *name; /* in JSON */
    const char *text;
} calls[] = {TORTURE_CALLS(TORTURE_CALL)};
#undef TORTURE_CALL

static uint64_t value_of(const struct torture_result *result, const struct row *row)
{
    return *(const uint64_t *)((const char *)result + row->offset);
}

static void print_text(const struct bench_torture_options *options,
                       const struct torture_result *result)
{
    printf("%-40s %14llu\n", "seed", (unsigned long long)options->seed);
    for (size_t i = 0; i < ROWS; i++)
        printf("%-40s %14llu\n", rows[i].text, (unsigned long long)value_of(result, &rows[i]));
    printf("calls\n");
    for (size_t i = 0; i < TORTURE_CALL_COUNT; i++)
        printf("  %-38s %14llu\n", calls[i].text, (unsigned long long)result->calls[i]);
}

static struct json_object *options_json(const struct bench_torture_options *options)
{
    struct json_object *object = json_object_new_object();

    bench_json_number(object, "procs", options->procs);
    json_object_object_add(object, "kills",
                           options->kills ? json_object_new_uint64(options->kills) : NULL);
    json_object_object_add(object, "stops",
                           options->stops != UINT64_MAX ? json_object_new_uint64(options->stops)
                                                        : NULL);
    json_object_object_add(object, "seconds",
                           options->seconds ? json_object_new_uint64(options->seconds) : NULL);
    bench_json_number(object, "frames", options->frames);
    json_object_object_add(object, "spill",
                           options->spill ? json_object_new_string(options->spill) : NULL);
    bench_json_number(object, "spill_size", options->spill_bytes);
    bench_json_number(object, "seed", options->seed);
    return object;
}

/* The last steps of each server, as many as it took, oldest first as far as one process made them. */
static struct json_object *last_json(const struct bench_torture_options *options,
                                     const struct torture_shared *shared)
{
    struct json_object *array = json_object_new_array();

    for (uint32_t server = 0; server < options->procs; server++) {
        uint64_t newest = atomic_load(&shared->places[server].steps);

        for (uint64_t i = 0; i < TORTURE_LAST; i++) {
            const struct torture_last *last =
                &shared->places[server].last[(newest + i) % TORTURE_LAST];
            uint64_t which = atomic_load(&last->process_and_step);
            struct json_object *object;

            if (which == 0)
                continue;
            object = json_object_new_object();
            bench_json_number(object, "server", server);
            bench_json_number(object, "process", which >> 32);
            bench_json_number(object, "step", (uint32_t)which - 1);
            json_object_object_add(
                object, "does",
                json_object_new_string(torture_step_name(atomic_load(&last->step))));
            bench_json_number(object, "number", atomic_load(&last->number));
            json_object_array_add(array, object);
        }
    }
    return array;
}

static struct json_object *result_json(const struct bench_torture_options *options,
                                       const struct torture_shared *shared,
                                       const struct torture_result *result)
{
    struct json_object *object = json_object_new_object(), *counts = json_object_new_object();

    bench_json_number(object, "version", JSON_VERSION);
    json_object_object_add(object, "benchmark", json_object_new_string("torture"));
    json_object_object_add(object, "options", options_json(options));
    for (size_t i = 0; i < ROWS; i++)
        bench_json_number(object, rows[i].name, value_of(result, &rows[i]));
    for (size_t i = 0; i < TORTURE_CALL_COUNT; i++)
        bench_json_number(counts, calls[i].name, result->calls[i]);
    json_object_object_add(object, "calls", counts);
    json_object_object_add(object, "last_steps", last_json(options, shared));
    return object;
}

int torture_report(const struct bench_torture_options *options, const struct torture_shared *shared,
                   const struct torture_result *result)
{
    if (options->json)
        return bench_json_print(result_json(options, shared, result));
    print_text(options, result);
    return tool_finish(TOOL_DONE) == TOOL_DONE ? 0 : -1;
}
