/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_spill.c - how fast pages go to a spill file and come back, beside fio on a file at the same path
 *
 * In each round an arena is filled, flushed to a new file (spilled), removed, and made anew on the file (opened); then
 * all is prefetched (restored). fio writes a new file of as many bytes, and reads it: same path, same size of one
 * transfer, as many in flight, all of them sequential, by io_uring with registered buffers, without the page cache where
 * the file system lets, and with a sync at the end of writing, as a flush has. Who is first takes turns. Without fio
 * there is no peer, and the result says so.
 */
#include <errno.h>
#include <json-c/json.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "batch.h"
#include "bench.h"
#include "bench_arena.h"
#include "bench_report.h"
#include "kvshm.h"
#include "spill_file.h"

#define PAGE_TOKENS 16u
#define ENTRY_PAGES KVSHM__BATCH_MAX
#define GIB         (UINT64_C(1) << 30)

/* Of one direction, in one round. */
struct cost {
    uint64_t ns;
    uint64_t cpu_ns;
};

struct round {
    struct cost spill, restore, write, read; /* the latter two are fio's */
    uint64_t open_ns;
};

struct bed {
    const struct bench_spill_options *options;
    struct bench_arena arena;
    kvshm *kv;
    uint64_t entries, pages, bytes; /* bytes: of the payloads in the file */
    uint64_t stride;                /* of one of them */
    bool direct, has_fio;
    struct round *rounds;
    int signal;
};

/* ---- kvshm --------------------------------------------------------------------------------------------------- */

static int fail(const struct bed *bed, const char *what)
{
    tool_error("%s: %s", what, kvshm_errmsg(bed->kv));
    return -1;
}

static uint64_t cpu_ns(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000u +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000u;
}

static struct cost begin(void)
{
    return (struct cost){.ns = bench_now_ns(), .cpu_ns = cpu_ns()};
}

static void end(struct cost *cost)
{
    cost->cpu_ns = cpu_ns() - cost->cpu_ns;
    cost->ns = bench_now_ns() - cost->ns;
}

static void prefix_of(struct kvshm_prefix *prefix, uint32_t *tokens, uint64_t entry)
{
    uint64_t state = entry;

    for (uint32_t i = 0; i < ENTRY_PAGES * PAGE_TOKENS; i++)
        tokens[i] = (uint32_t)bench_random(&state);
    kvshm_prefix_init(prefix, 0, 0, tokens, ENTRY_PAGES * PAGE_TOKENS);
}

static void configure(const struct bed *bed, struct kvshm_config *config)
{
    kvshm_config_init(config);
    config->label = "kvshm-bench";
    config->geometry.page_tokens = PAGE_TOKENS;
    config->geometry.page_bytes = bed->options->page_bytes;
    config->frames = bed->pages + bed->pages / 4 + 1; /* so many free that nothing is written ahead of the flush */
    config->max_clients = 4;
    config->wait_ms = KVSHM_UNLIMITED;
    config->spill_path = bed->options->file;
    config->spill_bytes = bed->pages * (bed->options->page_bytes + 2 * KVSHM__SPILL_BLOCK_MAX) +
                          16 * KVSHM__SPILL_BLOCK_MAX;
}

static int fill(struct bed *bed)
{
    uint32_t tokens[ENTRY_PAGES * PAGE_TOKENS];
    struct kvshm_reservation frames;
    struct kvshm_prefix prefix;

    for (uint64_t entry = 0; entry < bed->entries; entry++) {
        prefix_of(&prefix, tokens, entry);
        if (kvshm_reserve(bed->kv, ENTRY_PAGES, 0, &frames) < 0)
            return fail(bed, "reserve");
        for (uint32_t i = 0; i < ENTRY_PAGES; i++)
            memset(kvshm_reservation_page(&frames, i), (int)(entry + i), bed->options->page_bytes);
        if (kvshm_insert(bed->kv, &prefix, NULL, &frames, 0) < 0)
            return fail(bed, "insert");
    }
    return 0;
}

static uint64_t spilled(const struct bed *bed)
{
    struct kvshm_stats stats;

    kvshm_stats_init(&stats);
    return kvshm_stats(bed->kv, &stats) < 0 ? UINT64_MAX : stats.spilled_pages;
}

/* All is written, and in this time: nothing was before. */
static int spill_all(struct bed *bed, struct cost *cost)
{
    uint64_t before = spilled(bed);

    *cost = begin();
    if (kvshm_flush(bed->kv) < 0)
        return fail(bed, "flush");
    end(cost);
    if (before == 0 && spilled(bed) == bed->pages)
        return 0;
    tool_error("%llu pages were written before the flush, and %llu of %llu after it",
               (unsigned long long)before, (unsigned long long)spilled(bed),
               (unsigned long long)bed->pages);
    return -1;
}

/* What the file is, by its header. */
static int look_at_file(struct bed *bed)
{
    struct kvshm__spill_file file;

    if (kvshm__spill_open(bed->options->file, NULL, &file) < 0)
        return fail(bed, "file");
    bed->stride = file.shape.payload_stride;
    bed->bytes = bed->pages * bed->stride;
    bed->direct = file.direct;
    kvshm__spill_close(&file);
    return 0;
}

/* Ask for all of it at once, and wait until nothing is pending. */
static int restore_all(struct bed *bed)
{
    uint32_t tokens[ENTRY_PAGES * PAGE_TOKENS];
    struct kvshm_prefix prefix;
    struct kvshm_stats stats;
    int got;

    for (uint64_t entry = 0; entry < bed->entries; entry++) {
        prefix_of(&prefix, tokens, entry);
        if (kvshm_prefetch(bed->kv, &prefix, 1) < 0)
            return fail(bed, "prefetch");
    }
    while ((got = kvshm_wait(bed->kv, NULL)) > 0)
        continue;
    kvshm_stats_init(&stats);
    if (got < 0 || kvshm_stats(bed->kv, &stats) < 0)
        return fail(bed, "wait");
    if (stats.restored_pages == bed->pages)
        return 0;
    tool_error("%llu of %llu pages were restored", (unsigned long long)stats.restored_pages,
               (unsigned long long)bed->pages);
    return -1;
}

static int spill_and_open(struct bed *bed, struct round *round)
{
    struct kvshm_config config;

    configure(bed, &config);
    if (fill(bed) || look_at_file(bed) || spill_all(bed, &round->spill))
        return -1;
    kvshm_detach(bed->kv);
    bed->kv = NULL;
    round->open_ns = bench_now_ns();
    if (bench_arena_renew(&bed->arena, &config, &bed->kv))
        return -1;
    round->open_ns = bench_now_ns() - round->open_ns;
    round->restore = begin();
    if (restore_all(bed))
        return -1;
    end(&round->restore);
    return 0;
}

static int run_kvshm(struct bed *bed, struct round *round)
{
    struct kvshm_config config;
    int status;

    configure(bed, &config);
    unlink(bed->options->file);
    if (bench_arena_create(&bed->arena, NULL, &config, &bed->kv))
        return -1;
    status = spill_and_open(bed, round);
    kvshm_detach(bed->kv);
    bed->kv = NULL;
    bed->signal = bench_signal_wait(0);
    if (bed->signal == SIGCHLD)
        bed->signal = 0;
    if (bench_arena_remove(&bed->arena))
        status = -1;
    unlink(bed->options->file);
    return bed->signal ? -1 : status;
}

/* ---- fio ----------------------------------------------------------------------------------------------------- */

static bool find_fio(void)
{
    return system("fio --version >/dev/null 2>&1") == 0;
}

static struct json_object *member(struct json_object *object, const char *name)
{
    struct json_object *found = NULL;

    json_object_object_get_ex(object, name, &found);
    return found;
}

/* What fio says of its one job, in whole milliseconds, at least one. -1: it is not as known. */
static int read_fio(const char *text, struct cost *cost)
{
    struct json_object *all = json_tokener_parse(text), *jobs = member(all, "jobs");
    struct json_object *job = jobs ? json_object_array_get_idx(jobs, 0) : NULL;
    double percent = json_object_get_double(member(job, "usr_cpu")) +
                     json_object_get_double(member(job, "sys_cpu"));
    struct json_object *runtime = member(job, "job_runtime");
    double ms = json_object_get_double(runtime);
    bool known = runtime && json_object_get_int(member(job, "error")) == 0;

    if (ms < 1)
        ms = 1;
    cost->ns = (uint64_t)(ms * 1e6);
    cost->cpu_ns = (uint64_t)(percent / 100 * ms * 1e6);
    json_object_put(all);
    return known ? 0 : -1;
}

static int run_fio(const struct bed *bed, const char *direction, struct cost *cost)
{
    char *command, text[65536];
    size_t length;
    FILE *pipe;

    if (asprintf(&command,
                 "fio --name=kvshm-bench --filename='%s' --rw=%s --bs=%llu --size=%llu --iodepth=%u "
                 "--ioengine=io_uring --registerfiles=1 --fixedbufs=1 --direct=%d --fallocate=posix "
                 "--end_fsync=1 --invalidate=1 --output-format=json 2>&1",
                 bed->options->file, direction, (unsigned long long)bed->stride,
                 (unsigned long long)bed->bytes, KVSHM__BATCH_MAX, bed->direct) < 0)
        tool_no_memory();
    pipe = popen(command, "r");
    free(command);
    length = pipe ? fread(text, 1, sizeof(text) - 1, pipe) : 0;
    text[length] = '\0';
    if (!pipe || pclose(pipe) != 0 || !strchr(text, '{') ||
        read_fio(strchr(text, '{'), cost)) {
        tool_error("fio --rw=%s: %.*s", direction, (int)strcspn(text, "\n"), text);
        return -1;
    }
    return 0;
}

static int run_peer(const struct bed *bed, struct round *round)
{
    int status;

    if (!bed->has_fio)
        return 0;
    unlink(bed->options->file);
    status = run_fio(bed, "write", &round->write);
    if (status == 0)
        status = run_fio(bed, "read", &round->read);
    unlink(bed->options->file);
    return status;
}

/* ---- Result -------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Of a field of the rounds, at offset. */
static uint64_t median(const struct bed *bed, size_t offset)
{
    uint64_t count = bed->options->rounds, result;
    uint64_t *all = tool_realloc(NULL, count, sizeof(*all));

    for (uint64_t i = 0; i < count; i++)
        all[i] = *(const uint64_t *)((const char *)&bed->rounds[i] + offset);
    qsort(all, count, sizeof(*all), by_value);
    result = (all[(count - 1) / 2] + all[count / 2]) / 2;
    free(all);
    return result;
}

static const struct {
    const char *name, *text;
    size_t offset; /* of a struct cost in struct round */
    bool is_peer;
} rows[] = {
    {"spill", "spilled", offsetof(struct round, spill), false},
    {"fio_write", "fio, written", offsetof(struct round, write), true},
    {"restore", "restored", offsetof(struct round, restore), false},
    {"fio_read", "fio, read", offsetof(struct round, read), true},
};

static void report_row(const struct bed *bed, size_t i, struct json_object *object)
{
    uint64_t ns = median(bed, rows[i].offset + offsetof(struct cost, ns));
    uint64_t cpu = median(bed, rows[i].offset + offsetof(struct cost, cpu_ns));
    double mib_per_s = ns ? (double)bed->bytes / (1 << 20) / ((double)ns / 1e9) : 0;
    double cpu_s = (double)cpu / 1e9 / ((double)bed->bytes / (double)GIB);
    char name[64];

    if (!object) {
        printf("  %-16s %10.1f MiB/s %10.3f s of CPU a GiB\n", rows[i].text, mib_per_s, cpu_s);
        return;
    }
    snprintf(name, sizeof(name), "%s_mib_per_s", rows[i].name);
    bench_json_decimal(object, name, mib_per_s, 1);
    snprintf(name, sizeof(name), "%s_cpu_s_per_gib", rows[i].name);
    bench_json_decimal(object, name, cpu_s, 4);
}

static int report(const struct bed *bed)
{
    uint64_t open_ns = median(bed, offsetof(struct round, open_ns));
    struct json_object *object = bed->options->json ? json_object_new_object() : NULL;

    if (object) {
        bench_json_number(object, "version", 1);
        json_object_object_add(object, "benchmark", json_object_new_string("spill"));
        bench_json_number(object, "bytes", bed->bytes);
        bench_json_number(object, "transfer_bytes", bed->stride);
        bench_json_number(object, "depth", KVSHM__BATCH_MAX);
        bench_json_number(object, "rounds", bed->options->rounds);
        json_object_object_add(object, "direct", json_object_new_boolean(bed->direct));
        json_object_object_add(object, "peer",
                               bed->has_fio ? json_object_new_string("fio") : NULL);
        bench_json_decimal(object, "open_s", (double)open_ns / 1e9, 4);
    } else {
        printf("%llu bytes in transfers of %llu, %u in flight, %s, median of %llu rounds\n",
               (unsigned long long)bed->bytes, (unsigned long long)bed->stride, KVSHM__BATCH_MAX,
               bed->direct ? "direct" : "through the page cache",
               (unsigned long long)bed->options->rounds);
        if (!bed->has_fio)
            puts("  fio is not installed: there is no peer");
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (bed->has_fio || !rows[i].is_peer)
            report_row(bed, i, object);
    }
    if (object)
        return bench_json_print(object);
    printf("  %-16s %10.4f s\n", "opened, full", (double)open_ns / 1e9);
    return tool_finish(TOOL_DONE) == TOOL_DONE ? 0 : -1;
}

int bench_spill(const struct bench_spill_options *options)
{
    struct bed bed = {.options = options, .has_fio = find_fio()};
    int status = 0;

    if (access(options->file, F_OK) == 0) {
        tool_error("%s exists; name a file that does not, it is made and removed", options->file);
        return TOOL_FAILED;
    }
    if (strchr(options->file, '\'')) {
        tool_error("%s has a quote in its name, which fio is not given; name another", options->file);
        return TOOL_FAILED;
    }
    bed.entries = (options->bytes / options->page_bytes + ENTRY_PAGES - 1) / ENTRY_PAGES;
    bed.entries = bed.entries ? bed.entries : 1;
    bed.pages = bed.entries * ENTRY_PAGES;
    bed.rounds = tool_realloc(NULL, options->rounds, sizeof(*bed.rounds));
    memset(bed.rounds, 0, options->rounds * sizeof(*bed.rounds));
    for (uint64_t i = 0; status == 0 && i < options->rounds; i++) {
        if (i % 2 == 1 && bed.stride)
            status = run_peer(&bed, &bed.rounds[i]);
        if (status == 0)
            status = run_kvshm(&bed, &bed.rounds[i]);
        if (status == 0 && i % 2 == 0)
            status = run_peer(&bed, &bed.rounds[i]);
    }
    if (status == 0)
        status = report(&bed);
    free(bed.rounds);
    bench_signal_obey(bed.signal);
    return status ? TOOL_FAILED : TOOL_DONE;
}
