/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_memory.c - what an arena costs: bytes of shared memory for each thing in it, of private memory for each attach
 *
 * Shared memory is what the arena's directory says: the stride of each table, the length of the index over its records.
 * Private memory is measured: a process attaches ATTACHES times, and its memory of no file (smaps_rollup), its page tables
 * (VmPTE) and what the library says it holds are compared before and after. The arena is in use meanwhile: each handle
 * leases and releases an entry.
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "bench_arena.h"
#include "bench_report.h"
#include "handle.h"

#define ATTACHES 16u

struct shared_cost {
    uint64_t frame;       /* with its owner word */
    uint64_t page_record; /* with its links, and its place in the heap */
    uint64_t page_index;  /* words of the index */
    uint64_t page_text;   /* tokens, adapter and tenant */
    uint64_t lease, reservation;
    uint64_t client; /* with all its words of both kinds */
    uint64_t fixed;  /* whatever the arena holds */
};

struct private_cost {
    uint64_t library, process, tables;
};

static const struct kvshm_section *section(const kvshm *kv, uint32_t kind)
{
    static const struct kvshm_section none;

    for (unsigned i = 0; i < KVSHM__DIRECTORY_ROOM; i++) {
        if (kv->fixed->directory[i].kind == kind)
            return &kv->fixed->directory[i];
    }
    return &none;
}

static uint64_t stride(const kvshm *kv, uint32_t kind)
{
    return section(kv, kind)->stride;
}

static struct shared_cost shared_cost(const kvshm *kv)
{
    struct shared_cost cost = {
        .frame = stride(kv, KVSHM__SEC_FRAMES) + stride(kv, KVSHM__SEC_OWNERS),
        .page_record = stride(kv, KVSHM__SEC_RECORDS) + stride(kv, KVSHM__SEC_LINKS) +
                       stride(kv, KVSHM__SEC_HEAP),
        .page_index = (section(kv, KVSHM__SEC_BUCKETS)->length + kv->record_count - 1) /
                      kv->record_count,
        .page_text = stride(kv, KVSHM__SEC_TEXTS),
        .lease = stride(kv, KVSHM__SEC_LEASES),
        .reservation = stride(kv, KVSHM__SEC_RESERVATIONS),
        .fixed = sizeof(struct kvshm_header),
    };

    cost.client = stride(kv, KVSHM__SEC_CLIENTS) +
                  kv->max_leases * (cost.lease + cost.reservation);
    return cost;
}

/* The number behind a name in a file of /proc, in KiB there. 0: it is not there. */
static uint64_t bytes_in(const char *path, const char *name)
{
    char line[256];
    uint64_t sum = 0;
    FILE *in = fopen(path, "r");

    while (in && fgets(line, sizeof(line), in)) {
        if (strncmp(line, name, strlen(name)) == 0)
            sum += strtoull(line + strlen(name), NULL, 10) * 1024;
    }
    if (in)
        fclose(in);
    return sum;
}

static struct private_cost measured(kvshm *kv)
{
    struct kvshm_stats stats;

    kvshm_stats_init(&stats);
    kvshm_stats(kv, &stats);
    return (struct private_cost){
        .library = stats.private_bytes,
        .process = bytes_in("/proc/self/smaps_rollup", "Anonymous:"),
        .tables = bytes_in("/proc/self/status", "VmPTE:"),
    };
}

static int insert_entry(kvshm *kv, const struct kvshm_prefix *prefix)
{
    struct kvshm_reservation r;

    if (kvshm_reserve(kv, 1, 0, &r) < 0 || kvshm_insert(kv, prefix, NULL, &r, 0) < 0) {
        tool_error("insert: %s", kvshm_errmsg(kv));
        return -1;
    }
    return 0;
}

/* One more handle, that has been used. */
static kvshm *attach(const char *name, const struct kvshm_prefix *prefix)
{
    struct kvshm_lease lease;
    kvshm *kv;

    if (kvshm_attach(name, NULL, 0, &kv) < 0) {
        tool_error("attach: %s", kvshm_errmsg(NULL));
        return NULL;
    }
    kvshm_lookup(kv, prefix, 0, &lease);
    kvshm_release(kv, &lease);
    return kv;
}

/* Of one attach, the mean of ATTACHES; the first one of a process is not among them. 0; -1 after a message. */
static int attach_many(kvshm *kv, const char *name, const struct kvshm_prefix *prefix,
                       struct private_cost *cost)
{
    kvshm *handles[ATTACHES] = {NULL};
    struct private_cost before = measured(kv), after;
    int status = 0;

    for (unsigned i = 0; status == 0 && i < ATTACHES; i++)
        status = (handles[i] = attach(name, prefix)) ? 0 : -1;
    after = measured(kv);
    for (unsigned i = 0; i < ATTACHES; i++)
        kvshm_detach(handles[i]);
    cost->library = (after.library - before.library) / ATTACHES;
    cost->process =
        after.process > before.process ? (after.process - before.process) / ATTACHES : 0;
    cost->tables = after.tables > before.tables ? (after.tables - before.tables) / ATTACHES : 0;
    return status;
}

static void print_line(const char *what, uint64_t bytes)
{
    printf("  %-52s %12llu\n", what, (unsigned long long)bytes);
}

static void print_text(const kvshm *kv, const struct shared_cost *shared,
                       const struct private_cost *private)
{
    printf("shared memory, bytes\n");
    print_line("a frame, with its owner word", shared->frame);
    print_line("  of that, the page", kv->page_bytes);
    print_line("a page's record, its links and its place in the heap", shared->page_record);
    print_line("a page's words of the index", shared->page_index);
    print_line("a page's tokens", shared->page_text);
    print_line("an entry, besides its pages", 0);
    print_line("a client", shared->client);
    print_line("  a lease of it", shared->lease);
    print_line("  a reservation of it", shared->reservation);
    print_line("an arena, besides all these", shared->fixed);
    printf("private memory of one attach, bytes\n");
    print_line("that the library asked for", private->library);
    print_line("that the process has more, measured", private->process);
    print_line("page tables of the process, measured", private->tables);
}

static int print_json(const struct bench_memory_options *options, const kvshm *kv,
                      const struct shared_cost *shared, const struct private_cost *private)
{
    struct json_object *object = json_object_new_object();

    bench_json_number(object, "version", 1);
    json_object_object_add(object, "benchmark", json_object_new_string("memory"));
    bench_json_number(object, "frames", options->frames);
    bench_json_number(object, "page_tokens", options->page_tokens);
    bench_json_number(object, "page_bytes", kv->page_bytes);
    bench_json_number(object, "frame", shared->frame);
    bench_json_number(object, "page_record", shared->page_record);
    bench_json_number(object, "page_index", shared->page_index);
    bench_json_number(object, "page_tokens_text", shared->page_text);
    bench_json_number(object, "entry", 0);
    bench_json_number(object, "client", shared->client);
    bench_json_number(object, "lease", shared->lease);
    bench_json_number(object, "reservation", shared->reservation);
    bench_json_number(object, "arena", shared->fixed);
    bench_json_number(object, "private_library", private->library);
    bench_json_number(object, "private_process", private->process);
    bench_json_number(object, "private_page_tables", private->tables);
    return bench_json_print(object);
}

int bench_memory(const struct bench_memory_options *options)
{
    static const uint32_t tokens[1] = {1};
    struct bench_arena arena;
    struct kvshm_config config;
    struct kvshm_prefix prefix;
    struct private_cost private;
    struct shared_cost shared;
    kvshm *kv;
    int status;

    kvshm_config_init(&config);
    config.label = "kvshm-bench";
    config.geometry.page_tokens = (uint32_t)options->page_tokens;
    config.geometry.page_bytes = options->page_bytes;
    config.frames = options->frames;
    config.backing = options->backing;
    if (bench_arena_create(&arena, NULL, &config, &kv))
        return TOOL_FAILED;
    kvshm_prefix_init(&prefix, 0, 0, tokens, 1);
    status = insert_entry(kv, &prefix);
    shared = shared_cost(kv);
    if (status == 0)
        status = attach_many(kv, arena.name, &prefix, &private);
    if (status == 0 && options->json)
        status = print_json(options, kv, &shared, &private);
    else if (status == 0)
        print_text(kv, &shared, &private);
    kvshm_detach(kv);
    if (bench_arena_remove(&arena))
        status = -1;
    return status ? TOOL_FAILED : TOOL_DONE;
}
