/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hot_path.c - hits between two marks that a tracer sees; for hot_path_strace.sh
 *
 * hot_path HITS [noise]: the marks are calls of getsid, which the library does not make; noise adds a system call between
 * them, to show that the tracer sees one.
 *
 * hot_path HITS tier FILE: the arena has a spill file, and another thread asks for more than memory holds, so that the
 * handle's own thread writes pages to the file and reads them back; hits go on until it has done both. They are of entries
 * that are leased, which cannot leave.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hits.h"

#define FRAMES  320u /* about 230 of them leased */
#define PROMPTS 40u  /* of eight pages each */
#define ROUNDS  1000u

static struct {
    kvshm *kv;
    atomic_bool stop, failed;
} other;

static void *serve_others(void *arg)
{
    for (uint32_t i = 0; !other.stop; i++) {
        uint32_t fresh = PROMPTS + i / 2; /* and one that has left memory meanwhile */

        if (!hits_serve(other.kv, i % 2 ? fresh : fresh - PROMPTS / 2))
            other.failed = true;
        usleep(100);
    }
    return arg;
}

/* Hits until the tier has written and read, by the arena's counters. */
static bool hits_beside_transfers(kvshm *kv, uint32_t n)
{
    struct kvshm_stats before, now;

    kvshm_stats_init(&before);
    kvshm_stats_init(&now);
    if (kvshm_stats(kv, &before) != 0)
        return false;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        if (!hits(kv, n) || kvshm_stats(kv, &now) != 0)
            return false;
        if (now.spilled_pages > before.spilled_pages + 10 && now.restored_pages > before.restored_pages + 10)
            return true;
    }
    return false;
}

static bool tier(kvshm **kv, uint32_t n, const char *file)
{
    struct kvshm_lease leases[2 * HITS_PROMPTS];
    struct kvshm_config config;
    pthread_t thread;
    bool hit;

    hits_configure(&config);
    config.frames = FRAMES;
    config.spill_path = file;
    config.spill_bytes = 8u << 20;
    if (kvshm_create("hot-path", &config, 0, kv) != 0 || !hits_fill(*kv) ||
        !hits_lease(*kv, leases) || !hits(*kv, 1000))
        return false;
    for (uint32_t i = 0; i < PROMPTS; i++)
        if (!hits_serve(*kv, i))
            return false;
    other.kv = *kv;
    if (pthread_create(&thread, NULL, serve_others, NULL) != 0)
        return false;
    getsid(0);
    hit = hits_beside_transfers(*kv, n);
    getsid(0);
    other.stop = true;
    pthread_join(thread, NULL);
    for (uint32_t i = 0; i < 2 * HITS_PROMPTS; i++)
        kvshm_release(*kv, &leases[i]);
    return hit && !other.failed;
}

static bool plain(kvshm **kv, uint32_t n, bool noise)
{
    bool hit;

    if (!hits_make("hot-path", kv) || !hits(*kv, 1000))
        return false;
    getsid(0);
    hit = hits(*kv, n);
    if (noise)
        (void)getuid();
    getsid(0);
    return hit;
}

int main(int argc, char **argv)
{
    uint32_t n = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
    kvshm *kv = NULL;
    bool hit = false;

    if (n > 0)
        hit = argc > 3 ? tier(&kv, n, argv[3]) : plain(&kv, n, argc > 2);
    if (!hit)
        fprintf(stderr, "hot_path: %s\n", kvshm_errmsg(kv));
    if (kvshm_detach(kv) != 0 || kvshm_unlink("hot-path", 0) != 0)
        return 1;
    return !hit;
}
