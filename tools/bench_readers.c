/* SPDX-License-Identifier: Apache-2.0 */
/* bench_readers.c - see bench_readers.h */
#include "bench_readers.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define READERS 2

/* A reader looks up for so long, and at most so many batches. */
#define SLICE_NS    40000000u
#define BATCHES_MAX 8192u

struct reader {
    pid_t pid;
    int ask;    /* a byte to here begins a slice */
    int answer; /* ps of one lookup from here; 0: failed */
};

/* The first two processors of this process. */
static int processors(int cpu[READERS])
{
    cpu_set_t set;
    int n = 0;

    if (sched_getaffinity(0, sizeof(set), &set))
        return 0;
    for (int i = 0; i < CPU_SETSIZE && n < READERS; i++) {
        if (CPU_ISSET(i, &set))
            cpu[n++] = i;
    }
    return n;
}

bool bench_readers_too_few(void)
{
    int cpu[READERS];
    return processors(cpu) < READERS;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* ps of one lookup, the median of the batches; 0 after a message. */
static uint64_t slice(struct bench_bed *bed, uint64_t *batch_ns)
{
    uint64_t began_ns = bench_now_ns();
    uint32_t n = 0;

    while (n < BATCHES_MAX && bench_now_ns() - began_ns < SLICE_NS) {
        bench_bed_batch(bed, BENCH_BATCH, false);
        batch_ns[n] = bench_bed_lookup(bed, BENCH_BATCH);
        if (batch_ns[n++] == 0)
            return 0;
    }
    qsort(batch_ns, n, sizeof(*batch_ns), by_value);
    return batch_ns[n / 2] * 1000 / BENCH_BATCH;
}

/* The child: slices, until nobody asks any more. */
static int read_slices(struct bench_bed *bed, int number, int ask, int answer)
{
    static uint64_t batch_ns[BATCHES_MAX];
    int cpu[READERS] = {0};
    cpu_set_t set;
    char byte;

    processors(cpu);
    CPU_ZERO(&set);
    CPU_SET(cpu[number], &set);
    sched_setaffinity(0, sizeof(set), &set);
    bed->random = bench_mix(bed->options->seed + (uint64_t)number + 1);
    if (kvshm_attach(bed->arena.name, NULL, KVSHM_POPULATE, &bed->kv) < 0) {
        tool_error("attach: %s", kvshm_errmsg(NULL));
        return 1;
    }
    while (read(ask, &byte, 1) == 1) {
        uint64_t ps = slice(bed, batch_ns);
        if (write(answer, &ps, sizeof(ps)) != sizeof(ps) || ps == 0)
            return 1;
    }
    return 0;
}

static int start(struct bench_bed *bed, int number, struct reader *readers)
{
    int ask[2], answer[2];

    if (pipe(ask) || pipe(answer)) {
        tool_error("pipe: %m");
        return -1;
    }
    readers[number].pid = fork();
    if (readers[number].pid == 0) {
        for (int i = 0; i < number; i++)
            close(readers[i].ask);
        close(ask[1]);
        close(answer[0]);
        _exit(read_slices(bed, number, ask[0], answer[1]));
    }
    close(ask[0]);
    close(answer[1]);
    readers[number].ask = ask[1];
    readers[number].answer = answer[0];
    if (readers[number].pid > 0)
        return 0;
    tool_error("fork: %m");
    return -1;
}

/* Readers first to last do a slice at the same time. */
static int ask(const struct reader *readers, int first, int last, uint64_t *ps)
{
    for (int i = first; i <= last; i++) {
        if (write(readers[i].ask, "", 1) != 1)
            return -1;
    }
    for (int i = first; i <= last; i++) {
        if (read(readers[i].answer, &ps[i], sizeof(ps[i])) != sizeof(ps[i]) || ps[i] == 0)
            return -1;
    }
    return 0;
}

static int run_round(const struct reader *readers, struct bench_readers_round *round)
{
    double alone = 0, together = 0;

    for (int i = 0; i < READERS; i++) {
        if (ask(readers, i, i, round->alone_ps))
            return -1;
        alone += 1e12 / (double)round->alone_ps[i];
    }
    if (ask(readers, 0, READERS - 1, round->together_ps))
        return -1;
    for (int i = 0; i < READERS; i++)
        together += 1e12 / (double)round->together_ps[i];
    round->share_ppm = (uint64_t)(together / alone * 1e6);
    return 0;
}

int bench_readers_run(struct bench_bed *bed, struct bench_readers_round *rounds)
{
    struct reader readers[READERS] = {{0}};
    int status = 0, child;

    for (int i = 0; status == 0 && i < READERS; i++)
        status = start(bed, i, readers);
    for (uint64_t i = 0; status == 0 && i < bed->options->rounds; i++) {
        status = run_round(readers, &rounds[i]);
        if (bench_bed_interrupted(bed))
            status = -1;
    }
    for (int i = 0; i < READERS; i++) {
        if (readers[i].pid <= 0)
            continue;
        close(readers[i].ask);
        close(readers[i].answer);
        waitpid(readers[i].pid, &child, 0);
    }
    return status;
}
