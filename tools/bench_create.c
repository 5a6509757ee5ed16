/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_create.c - how fast an arena's memory is taken, beside two plain threads
 *
 * In each round an arena is created and removed; then two threads touch each page of a mapping as large, of a new file in
 * the same folder, each one half. Whatever is first has no advantage: rounds begin with the one and with the other in
 * turn. Memory that was not in use since boot is slow on some hosts: a round that is not counted comes first.
 */
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"
#include "bench_arena.h"
#include "bench_report.h"
#include "handle.h"

#define THREADS 2u

struct bed {
    const struct bench_create_options *options;
    char folder[256];
    uint64_t bytes; /* of the arena */
    uint32_t backing;
    uint64_t *create_ns, *plain_ns; /* of each round */
    int signal;
};

/* 0; -1 after a message. */
static int create_one(struct bed *bed, uint64_t *ns)
{
    struct bench_arena arena;
    struct kvshm_config config;
    struct kvshm_info info;
    uint64_t began_ns;
    kvshm *kv;

    kvshm_config_init(&config);
    config.label = "kvshm-bench";
    config.geometry.page_bytes = 65536;
    config.memory_bytes = bed->options->bytes;
    config.backing = bed->options->backing;
    began_ns = bench_now_ns();
    if (bench_arena_create(&arena, NULL, &config, &kv))
        return -1;
    *ns = bench_now_ns() - began_ns;
    kvshm_info_init(&info);
    kvshm_info(kv, &info);
    bed->bytes = info.segment_bytes;
    bed->backing = info.backing;
    snprintf(bed->folder, sizeof(bed->folder), "%s", info.path);
    *strrchr(bed->folder, '/') = '\0';
    kvshm_detach(kv);
    bed->signal = bench_signal_wait(0);
    if (bed->signal == SIGCHLD)
        bed->signal = 0;
    return bench_arena_remove(&arena) || bed->signal ? -1 : 0;
}

struct half {
    volatile char *from;
    uint64_t bytes, step;
};

static void *touch_half(void *arg)
{
    const struct half *half = arg;

    for (uint64_t at = 0; at < half->bytes; at += half->step)
        half->from[at] = 1;
    return NULL;
}

static void touch_all(char *memory, uint64_t bytes)
{
    pthread_t thread[THREADS];
    struct half half[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        half[i] = (struct half){memory + i * (bytes / THREADS), bytes / THREADS, 4096};
        if (pthread_create(&thread[i], NULL, touch_half, &half[i]) != 0)
            tool_no_memory();
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
}

static int plain_one(const struct bed *bed, uint64_t *ns)
{
    uint64_t began_ns = bench_now_ns();
    int fd = open(bed->folder, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    char *memory = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, (off_t)bed->bytes) == 0)
        memory = mmap(NULL, bed->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        tool_error("a file in %s: %s", bed->folder, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    if (bed->backing == KVSHM_BACKING_THP)
        madvise(memory, bed->bytes, MADV_HUGEPAGE);
    touch_all(memory, bed->bytes);
    *ns = bench_now_ns() - began_ns;
    munmap(memory, bed->bytes);
    close(fd);
    return 0;
}

static int run_rounds(struct bed *bed)
{
    uint64_t ns;
    int status = create_one(bed, &ns);

    for (uint64_t i = 0; status == 0 && i < bed->options->rounds; i++) {
        if (i % 2 == 0)
            status = create_one(bed, &bed->create_ns[i]);
        if (status == 0)
            status = plain_one(bed, &bed->plain_ns[i]);
        if (status == 0 && i % 2 == 1)
            status = create_one(bed, &bed->create_ns[i]);
    }
    return status;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static uint64_t median(uint64_t *ns, uint64_t count)
{
    qsort(ns, count, sizeof(*ns), by_value);
    return (ns[(count - 1) / 2] + ns[count / 2]) / 2;
}

static double gib_per_s(uint64_t bytes, uint64_t ns)
{
    return (double)bytes / (double)ns * 1e9 / (1 << 30);
}

static int report(const struct bed *bed)
{
    uint64_t create_ns = median(bed->create_ns, bed->options->rounds);
    uint64_t plain_ns = median(bed->plain_ns, bed->options->rounds);
    struct json_object *object;

    if (!bed->options->json) {
        printf("%llu bytes, backing %s, median of %llu rounds\n", (unsigned long long)bed->bytes,
               tool_backing(bed->backing), (unsigned long long)bed->options->rounds);
        printf("  %-28s %8.3f s %8.2f GiB/s\n", "kvshm_create", (double)create_ns / 1e9,
               gib_per_s(bed->bytes, create_ns));
        printf("  %-28s %8.3f s %8.2f GiB/s\n", "two threads that touch", (double)plain_ns / 1e9,
               gib_per_s(bed->bytes, plain_ns));
        printf("  %-28s %8.2f\n", "speed of the first by that", (double)plain_ns / (double)create_ns);
        return 0;
    }
    object = json_object_new_object();
    bench_json_number(object, "version", 1);
    json_object_object_add(object, "benchmark", json_object_new_string("create"));
    bench_json_number(object, "bytes", bed->bytes);
    json_object_object_add(object, "backing", json_object_new_string(tool_backing(bed->backing)));
    bench_json_number(object, "rounds", bed->options->rounds);
    bench_json_number(object, "create_ns", create_ns);
    bench_json_number(object, "plain_ns", plain_ns);
    bench_json_decimal(object, "ratio", (double)plain_ns / (double)create_ns, 3);
    return bench_json_print(object);
}

int bench_create(const struct bench_create_options *options)
{
    struct bed bed = {.options = options};
    int status = -1;

    bed.create_ns = tool_realloc(NULL, options->rounds, sizeof(*bed.create_ns));
    bed.plain_ns = tool_realloc(NULL, options->rounds, sizeof(*bed.plain_ns));
    status = run_rounds(&bed);
    if (status == 0)
        status = report(&bed);
    free(bed.create_ns);
    free(bed.plain_ns);
    bench_signal_obey(bed.signal);
    return status ? TOOL_FAILED : TOOL_DONE;
}
