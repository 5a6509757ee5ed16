/* SPDX-License-Identifier: Apache-2.0 */
/* bench_torture_check.c - what is lost: the arena emptied, with no server left */
#include <errno.h>
#include <unistd.h>

#include "bench_arena.h"
#include "bench_torture.h"
#include "client.h"
#include "handle.h"
#include "reap.h"

#define LANDING_NS UINT64_C(180000000000) /* until the transfers of the dead have landed */

static uint64_t frames_told(const struct kvshm_info *info)
{
    return info->frames_free + info->frames_reserved + info->pages + info->pages_limbo;
}

static bool empty(const struct kvshm_info *info)
{
    return frames_told(info) == info->frames && info->entries == 0 && info->pages == 0 &&
           info->pages_limbo == 0;
}

static bool all_slots_free(const struct kvshm_info *info)
{
    return info->slots_free == info->slots && info->pages_spilled == 0 &&
           info->entries_spilled == 0;
}

/* Evict all that is there, and, where there is a spill file, clear it. */
static int give_up_all(kvshm *kv, struct kvshm_info *info)
{
    for (uint64_t entries = info->entries; entries > 0; entries--)
        if (kvshm_evict_lru(kv) < 0)
            return -1;
    return info->slots > 0 && kvshm_clear(kv) < 0 ? -1 : kvshm_info(kv, info);
}

/* How many of the dead have transfers in flight: the kernel has not let go of their rings. */
static uint32_t not_landed(const kvshm *kv)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < kv->max_clients; i++) {
        uint64_t number = KVSHM__LOAD_ACQ(&kv->clients[i].number);

        n += number != 0 && number != kv->client && !kvshm__client_quiet(kv, number);
    }
    return n;
}

/* Transfers of the dead land, and what they have left is swept; doomed slots are erased. */
static int wait_until_landed(kvshm *kv, struct kvshm_info *info)
{
    uint64_t until = bench_now_ns() + LANDING_NS;
    struct kvshm_prefix nothing;
    uint32_t token = 0, late;
    int code = 0;

    kvshm_prefix_init(&nothing, 99, 99, &token, 1);
    while (code >= 0 && info->slots > 0 && bench_now_ns() < until &&
           !(empty(info) && all_slots_free(info))) {
        int64_t reaped = kvshm__reap(kv, 0, TORTURE_LABEL);

        code = reaped < 0 && reaped != -ENOENT ? (int)reaped : kvshm_remove(kv, &nothing);
        if (code >= 0 || code == KVSHM_E_STALLED)
            code = kvshm_info(kv, info);
        usleep(10000);
    }
    if ((late = not_landed(kv)) > 0)
        tool_error("the kernel still has transfers of %u dead clients in flight", late);
    return code < 0 ? -1 : 0;
}

/* Evict all; how many frames are accounted for then. -1: a call failed. */
static int64_t empty_arena(kvshm *kv, struct kvshm_info *info)
{
    int64_t reaped = kvshm__reap(kv, 0, TORTURE_LABEL);

    if ((reaped < 0 && reaped != -ENOENT) || kvshm_info(kv, info) < 0)
        return -1;
    if (frames_told(info) > info->frames || (info->slots == 0 && frames_told(info) < info->frames))
        tool_error("the arena counts %llu frames, free and in use, before it is emptied",
                   (unsigned long long)frames_told(info));
    if (give_up_all(kv, info) || wait_until_landed(kv, info))
        return -1;
    if (!empty(info)) {
        tool_error("emptied, the arena counts %llu frames, %llu entries, %llu pages, %llu of them "
                   "in limbo",
                   (unsigned long long)frames_told(info), (unsigned long long)info->entries,
                   (unsigned long long)(info->pages + info->pages_limbo),
                   (unsigned long long)info->pages_limbo);
        return 0;
    }
    return (int64_t)bench_arena_frames(kv, info);
}

/* Pages that could not be written or read: there is no reason for that. */
static void count_errors(kvshm *kv, struct torture_result *result)
{
    struct kvshm_stats stats;

    kvshm_stats_init(&stats);
    if (kvshm_stats(kv, &stats) < 0)
        return;
    result->spill_errors += stats.restore_failures + stats.spill_failures;
    if (result->spill_errors)
        tool_error("%llu pages could not be written to the spill file, %llu not be read from it, "
                   "or were not what was written",
                   (unsigned long long)stats.spill_failures,
                   (unsigned long long)stats.restore_failures);
}

static void count_lost(const struct kvshm_info *info, uint64_t accounted,
                       struct torture_result *result)
{
    result->frames = info->frames;
    result->slots = info->slots;
    result->frames_lost += info->frames - accounted;
    if (result->frames_lost)
        tool_error("%llu of %llu frames are lost", (unsigned long long)result->frames_lost,
                   (unsigned long long)info->frames);
    if (all_slots_free(info))
        return;
    result->slots_lost += info->slots - info->slots_free;
    tool_error(
        "%llu of %llu slots are lost; %llu pages and %llu entries in the spill file are counted",
        (unsigned long long)result->slots_lost, (unsigned long long)info->slots,
        (unsigned long long)info->pages_spilled, (unsigned long long)info->entries_spilled);
}

static kvshm *attach(const struct torture_run *run)
{
    kvshm *kv;

    if (kvshm_attach(run->arena_name, NULL, 0, &kv) == 0)
        return kv;
    tool_error("arena %s: %s", run->arena_name, kvshm_errmsg(NULL));
    return NULL;
}

int torture_check_arena(const struct torture_run *run, struct torture_result *result)
{
    kvshm *kv = attach(run);
    struct kvshm_info info;
    int64_t accounted;

    if (!kv)
        return -1;
    kvshm_info_init(&info);
    accounted = empty_arena(kv, &info);
    if (accounted < 0)
        tool_error("arena %s: %s", run->arena_name, kvshm_errmsg(kv));
    else
        count_lost(&info, (uint64_t)accounted, result);
    count_errors(kv, result);
    kvshm_detach(kv);
    result->checks++;
    return accounted < 0 || result->frames_lost || result->slots_lost || result->spill_errors ? -1
                                                                                              : 0;
}

/* ---- Entries ---------------------------------------------------------------------------------------------- */

int torture_flush(const struct torture_run *run)
{
    kvshm *kv = attach(run);
    int code;

    if (!kv)
        return -1;
    code = kvshm_flush(kv);
    if (code < 0 && code != -ENOSPC && code != KVSHM_E_STALLED)
        tool_error("arena %s: %s", run->arena_name, kvshm_errmsg(kv));
    kvshm_detach(kv);
    return code == 0 ? 1 : code == -ENOSPC || code == KVSHM_E_STALLED ? 0 : -1;
}

int torture_list_entries(const struct torture_run *run, struct torture_entries *entries)
{
    struct torture_prompt prompt;
    struct kvshm_info info;
    kvshm *kv = attach(run);

    if (!kv)
        return -1;
    kvshm_info_init(&info);
    for (uint32_t i = 0; i < TORTURE_PROMPTS + TORTURE_KEYS; i++) {
        if (i < TORTURE_PROMPTS)
            torture_prompt_tokens(&prompt, i);
        else
            torture_prompt_key(&prompt, i);
        entries->there[i] = kvshm_contains(kv, &prompt.prefix);
    }
    entries->epoch = kvshm_info(kv, &info) == 0 ? info.epoch : 0;
    kvshm_detach(kv);
    return 0;
}
