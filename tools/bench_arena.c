/* SPDX-License-Identifier: Apache-2.0 */
/* bench_arena.c - see bench_arena.h */
#include "bench_arena.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

static void watched_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGCHLD);
}

int bench_arena_create(struct bench_arena *arena, const char *name,
                       const struct kvshm_config *config, kvshm **kv)
{
    sigset_t watched;
    int rc;

    memset(arena, 0, sizeof(*arena));
    if (name && strlen(name) > KVSHM_NAME_MAX) {
        tool_error("--name: at most %d bytes", KVSHM_NAME_MAX);
        return -1;
    }
    if (name)
        strcpy(arena->name, name);
    else
        snprintf(arena->name, sizeof(arena->name), "kvshm-bench-%ld", (long)getpid());
    watched_signals(&watched);
    sigprocmask(SIG_BLOCK, &watched, &arena->old_mask);
    rc = kvshm_create(arena->name, config, 0, kv);
    if (rc < 0) {
        tool_error("arena %s: %s", arena->name, kvshm_errmsg(NULL));
        sigprocmask(SIG_SETMASK, &arena->old_mask, NULL);
        return -1;
    }
    arena->exists = true;
    return 0;
}

int bench_arena_remove(struct bench_arena *arena)
{
    int rc = 0;

    if (!arena->exists)
        return 0;
    rc = kvshm_unlink(arena->name, KVSHM_FORCE);
    if (rc < 0)
        tool_error("arena %s is not removed: %s", arena->name, kvshm_errmsg(NULL));
    arena->exists = false;
    sigprocmask(SIG_SETMASK, &arena->old_mask, NULL);
    return rc < 0 ? -1 : 0;
}

int bench_arena_renew(struct bench_arena *arena, const struct kvshm_config *config, kvshm **kv)
{
    int rc = kvshm_unlink(arena->name, KVSHM_FORCE);

    arena->exists = rc < 0;
    for (int i = 0; rc == 0 && i < 1000; i++) {
        rc = kvshm_create(arena->name, config, 0, kv);
        if (rc != -EBUSY)
            break;
        usleep(10000);
        rc = 0;
    }
    if (rc < 0 || !*kv) {
        tool_error("arena %s: %s", arena->name, kvshm_errmsg(NULL));
        return -1;
    }
    arena->exists = true;
    return 0;
}

uint64_t bench_arena_frames(kvshm *kv, const struct kvshm_info *info)
{
    struct kvshm_reservation all;
    uint64_t counted = 0, *offsets = calloc(info->frames, sizeof(*offsets));
    bool *seen = calloc(info->frames, sizeof(*seen));
    int rc = kvshm_reserve(kv, (uint32_t)info->frames, 0, &all);

    /* What the dead had in transfer comes back when the kernel has ended their transfers. */
    for (int i = 0; i < 1000 && rc == -ENOSPC && info->slots > 0; i++) {
        usleep(10000);
        rc = kvshm_reserve(kv, (uint32_t)info->frames, 0, &all);
    }

    if (rc < 0)
        tool_error("a reservation of all %llu frames: %s", (unsigned long long)info->frames,
                   kvshm_errmsg(kv));
    if (offsets && seen && rc == 0) {
        kvshm_reservation_offsets(&all, 0, all.pages, offsets);
        for (uint32_t i = 0; i < all.pages; i++) {
            uint64_t frame = (offsets[i] - info->frames_offset) / info->frame_stride;

            if (offsets[i] >= info->frames_offset && frame < info->frames && !seen[frame]) {
                seen[frame] = true;
                counted++;
            }
        }
    }
    if (rc == 0)
        kvshm_cancel(kv, &all);
    free(offsets);
    free(seen);
    return counted;
}

int bench_signal_wait(uint64_t timeout_ns)
{
    struct timespec timeout = {
        .tv_sec = (time_t)(timeout_ns / 1000000000u),
        .tv_nsec = (long)(timeout_ns % 1000000000u),
    };
    sigset_t watched;
    int signal;

    watched_signals(&watched);
    signal = sigtimedwait(&watched, NULL, &timeout);
    return signal > 0 ? signal : 0;
}

void bench_signal_obey(int signal)
{
    struct sigaction by_default = {.sa_handler = SIG_DFL};
    sigset_t mask;

    if (signal == 0)
        return;
    sigaction(signal, &by_default, NULL);
    raise(signal);
    sigemptyset(&mask);
    sigaddset(&mask, signal);
    sigprocmask(SIG_UNBLOCK, &mask, NULL);
}
