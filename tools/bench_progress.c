/* SPDX-License-Identifier: Apache-2.0 */
/* bench_progress.c - see bench_progress.h */
#include "bench_progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define BAR_WIDTH 30
#define DRAW_NS   100000000u

void bench_progress_begin(struct bench_progress *progress, uint64_t total, const char *unit)
{
    progress->shown = isatty(STDERR_FILENO);
    progress->unit = unit;
    progress->total = total;
    progress->began_ns = bench_now_ns();
    progress->drawn_ns = 0;
}

void bench_progress_update(struct bench_progress *progress, uint64_t done)
{
    uint64_t now_ns = bench_now_ns();
    double elapsed_s = (double)(now_ns - progress->began_ns) / 1e9;
    double rate = elapsed_s > 0 ? (double)done / elapsed_s : 0;
    char bar[BAR_WIDTH + 1];
    unsigned long left_s;

    if (!progress->shown || now_ns - progress->drawn_ns < DRAW_NS)
        return;
    if (done > progress->total)
        done = progress->total;
    progress->drawn_ns = now_ns;
    left_s = rate > 0 ? (unsigned long)((double)(progress->total - done) / rate + 0.5) : 0;
    memset(bar, ' ', BAR_WIDTH);
    memset(bar, '#', (size_t)(BAR_WIDTH * done / progress->total));
    bar[BAR_WIDTH] = 0;
    fprintf(stderr, "\r[%s] %3u%%  %llu of %llu %s, %.0f/s, %lu:%02lu left\033[K", bar,
            (unsigned)(100 * done / progress->total), (unsigned long long)done,
            (unsigned long long)progress->total, progress->unit, rate, left_s / 60, left_s % 60);
}

void bench_progress_end(struct bench_progress *progress)
{
    if (progress->shown && progress->drawn_ns)
        fprintf(stderr, "\r\033[K");
    progress->shown = false;
}
