/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_report.c - see bench_report.h
 *
 * One table names each value for people and for JSON; tools read the JSON, whose names stay.
 */
#include "bench_report.h"

#include <json-c/json.h>
#include <stdio.h>

#include "kvshm.h"

#define JSON_VERSION 1

struct row {
    const char *name; /* in JSON */
    const char *text;
    size_t offset; /* of a uint64_t in struct bench_result */
};

#define ROW(name, text)                                  \
    {                                                    \
#name, text, offsetof(struct bench_result, name) \
    }

static const struct row rows[] = {
    ROW(requests, "requests"),
    ROW(blocks, "blocks of 512 tokens"),
    ROW(blocks_served, "blocks served"),
    ROW(blocks_of_others, "  computed by another process"),
    ROW(wrong_bytes, "wrong bytes"),
    ROW(not_inserted, "requests not inserted (no frames)"),
    ROW(kills, "servers killed"),
    ROW(kills_in_request, "  in the middle of a request"),
    ROW(entries, "entries at the end"),
    ROW(pages, "pages at the end"),
    ROW(evicted_entries, "entries evicted"),
    ROW(evicted_pages, "pages evicted"),
    ROW(matches, "matches"),
    ROW(match_median_ns, "  median, ns"),
    ROW(match_p99_ns, "  99th percentile, ns"),
    ROW(frames, "frames"),
    ROW(frames_accounted, "  accounted for at the end"),
    ROW(segment_bytes, "bytes of the arena"),
    ROW(elapsed_ns, "ns in all"),
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* With a spill file. */
static const struct row spill_rows[] = {
    ROW(blocks_in_memory, "blocks served from memory"),
    ROW(blocks_restored, "blocks restored from the file"),
    ROW(blocks_missed, "blocks missed"),
    ROW(pages_found, "pages found in the file at first"),
    ROW(spilled_pages, "pages written to the file"),
    ROW(left_pages, "pages that left memory for it"),
    ROW(restored_pages, "pages restored"),
    ROW(spill_failures, "pages not written or not read"),
    ROW(spill_bytes_written, "bytes written"),
    ROW(spill_bytes_read, "bytes read"),
    ROW(pages_in_file, "pages in the file alone at the end"),
    ROW(slots, "slots of the file"),
};

#define SPILL_ROWS (sizeof(spill_rows) / sizeof(spill_rows[0]))

static uint64_t value_of(const struct bench_result *result, const struct row *row)
{
    return *(const uint64_t *)((const char *)result + row->offset);
}

static double ratio_of(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

void bench_json_number(struct json_object *object, const char *name, uint64_t value)
{
    json_object_object_add(object, name, json_object_new_uint64(value));
}

void bench_json_decimal(struct json_object *object, const char *name, double value, int decimals)
{
    char text[64];

    snprintf(text, sizeof(text), "%.*f", decimals, value);
    json_object_object_add(object, name, json_object_new_double_s(value, text));
}

int bench_json_print(struct json_object *object)
{
    if (!object) {
        tool_error("no memory for the result");
        return -1;
    }
    puts(json_object_to_json_string_ext(object, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
                                                    JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(object);
    return tool_finish(TOOL_DONE) == TOOL_DONE ? 0 : -1;
}

/* Of the bytes of pages that left memory or were dropped. */
static double written_ratio(const struct bench_replay_options *options,
                            const struct bench_result *result)
{
    return ratio_of(result->spill_bytes_written,
                    (result->left_pages + result->evicted_pages) * options->page_bytes);
}

static void print_spill(const struct bench_replay_options *options,
                        const struct bench_result *result)
{
    for (size_t i = 0; i < SPILL_ROWS; i++) {
        printf("%-36s %14llu", spill_rows[i].text,
               (unsigned long long)value_of(result, &spill_rows[i]));
        if (spill_rows[i].offset == offsetof(struct bench_result, spill_bytes_written))
            printf("   %.2f a byte evicted", written_ratio(options, result));
        putchar('\n');
    }
    for (uint32_t i = 0; i < result->restart_count; i++) {
        const struct bench_restart *r = &result->restarts[i];

        printf("restart %u at request %llu: %llu of %llu pages found in the file, %llu lost; since "
               "then %llu blocks served, %llu pages restored\n",
               i + 1, (unsigned long long)r->request, (unsigned long long)r->pages_found,
               (unsigned long long)r->pages_before, (unsigned long long)r->pages_lost,
               (unsigned long long)r->blocks_served, (unsigned long long)r->pages_restored);
    }
}

static void print_text(const struct bench_replay_options *options,
                       const struct bench_result *result)
{
    for (size_t i = 0; i < ROWS; i++) {
        printf("%-36s %14llu", rows[i].text, (unsigned long long)value_of(result, &rows[i]));
        if (rows[i].offset == offsetof(struct bench_result, blocks_served))
            printf("   %.4f of all blocks", ratio_of(result->blocks_served, result->blocks));
        if (rows[i].offset == offsetof(struct bench_result, blocks_of_others))
            printf("   %.4f of those served",
                   ratio_of(result->blocks_of_others, result->blocks_served));
        putchar('\n');
    }
    if (options->spill)
        print_spill(options, result);
}

static struct json_object *options_json(const struct bench_replay_options *options)
{
    struct json_object *object = json_object_new_object();

    json_object_object_add(object, "trace", json_object_new_string(options->trace));
    bench_json_number(object, "procs", options->procs);
    json_object_object_add(object, "unlimited", json_object_new_boolean(options->frames == 0));
    json_object_object_add(
        object, "capacity",
        options->capacity == KVSHM_UNLIMITED ? NULL : json_object_new_uint64(options->capacity));
    bench_json_number(object, "page_tokens", options->page_tokens);
    bench_json_number(object, "page_bytes", options->page_bytes);
    bench_json_number(object, "kill", options->kills);
    bench_json_number(object, "seed", options->seed);
    if (!options->spill)
        return object;
    json_object_object_add(object, "spill", json_object_new_string(options->spill));
    bench_json_number(object, "restart", options->restarts);
    json_object_object_add(object, "flush", json_object_new_boolean(options->flush));
    return object;
}

static struct json_object *restarts_json(const struct bench_result *result)
{
    struct json_object *array = json_object_new_array();

    for (uint32_t i = 0; i < result->restart_count; i++) {
        const struct bench_restart *r = &result->restarts[i];
        struct json_object *object = json_object_new_object();

        bench_json_number(object, "request", r->request);
        bench_json_number(object, "pages_before", r->pages_before);
        bench_json_number(object, "pages_found", r->pages_found);
        bench_json_number(object, "pages_lost", r->pages_lost);
        bench_json_number(object, "blocks_served", r->blocks_served);
        bench_json_number(object, "pages_restored", r->pages_restored);
        json_object_array_add(array, object);
    }
    return array;
}

static struct json_object *result_json(const struct bench_replay_options *options,
                                       const struct bench_result *result)
{
    struct json_object *object = json_object_new_object();

    if (!object)
        return NULL;
    bench_json_number(object, "version", JSON_VERSION);
    json_object_object_add(object, "benchmark", json_object_new_string("replay"));
    json_object_object_add(object, "options", options_json(options));
    for (size_t i = 0; i < ROWS; i++)
        bench_json_number(object, rows[i].name, value_of(result, &rows[i]));
    bench_json_decimal(object, "served_ratio", ratio_of(result->blocks_served, result->blocks), 6);
    if (!options->spill)
        return object;
    for (size_t i = 0; i < SPILL_ROWS; i++)
        bench_json_number(object, spill_rows[i].name, value_of(result, &spill_rows[i]));
    bench_json_decimal(object, "written_ratio", written_ratio(options, result), 6);
    json_object_object_add(object, "restarts", restarts_json(result));
    return object;
}

int bench_report(const struct bench_replay_options *options, const struct bench_result *result)
{
    if (options->json)
        return bench_json_print(result_json(options, result));
    print_text(options, result);
    return tool_finish(TOOL_DONE) == TOOL_DONE ? 0 : -1;
}
