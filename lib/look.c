/* SPDX-License-Identifier: Apache-2.0 */
/*
 * look.c - the public calls that look at an arena as a whole, or at a place in it: info, stats, addresses, joining.
 *
 * Looking takes no lock and writes nothing. Counts are read one by one while others work, so they may not add up to
 * the frame; each is bounded by what the arena can hold, since derived words may be wrong after a death.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "fork.h"
#include "config.h"
#include "message.h"
#include "private.h"
#include "sys.h"

static int check_handle(const kvshm *kv)
{
    if (kv == NULL)
        return kvshm__fail(-EINVAL, "the handle is NULL");
    return kvshm__fork_check(kv);
}

/* ---- Info -------------------------------------------------------------------------------------------- */

static uint64_t bounded(const kvshm_a64 *word, uint64_t most)
{
    uint64_t value = KVSHM__LOAD((kvshm_a64 *)word);

    return value < most ? value : most;
}

static uint64_t section_bytes(const kvshm *kv, uint32_t kind)
{
    for (unsigned i = 0; i < KVSHM__DIRECTORY_ROOM; i++) {
        if (kv->fixed->directory[i].kind == kind)
            return kv->fixed->directory[i].length;
    }
    return 0;
}

/* What was settled when the arena was made. */
static void fill_fixed(const kvshm *kv, struct kvshm_info *info)
{
    const struct kvshm_static *f = kv->fixed;

    info->arena_id[0] = f->arena_id[0];
    info->arena_id[1] = f->arena_id[1];
    info->geometry = f->geometry;
    info->hardware_clock = kv->hardware_clock;
    info->backing_asked = f->backing_asked;
    info->backing = f->backing;
    info->numa_asked = f->numa_asked;
    info->numa = f->numa;
    memcpy(info->backing_reason, f->backing_reason, sizeof(info->backing_reason));
    info->segment_bytes = kv->segment_bytes;
    info->page_bytes = kv->page_bytes;
    info->frame_stride = kv->frame_stride;
    info->frames_offset = kv->frames_offset;
    info->frames_length = kv->frame_count * kv->frame_stride;
    info->frames = kv->frame_count;
    info->max_clients = kv->max_clients;
    info->max_leases = kv->max_leases;
    info->creator_pid = f->creator_pid;
    info->creator_uid = f->creator_uid;
    info->created_ns = f->created_ns;
    info->index_bytes = section_bytes(kv, KVSHM__SEC_BUCKETS) +
                        section_bytes(kv, KVSHM__SEC_RECORDS) +
                        section_bytes(kv, KVSHM__SEC_LINKS) + section_bytes(kv, KVSHM__SEC_HEAP) +
                        section_bytes(kv, KVSHM__SEC_OWNERS);
    info->token_bytes = section_bytes(kv, KVSHM__SEC_TEXTS);
}

/* What this handle is. */
static void fill_handle(const kvshm *kv, struct kvshm_info *info)
{
    snprintf(info->name, sizeof(info->name), "%s", kv->name);
    snprintf(info->path, sizeof(info->path), "%s", kv->path);
    info->client = kv->client;
    info->read_only = kv->read_only;
    info->read_base = kv->read_base;
    info->write_base = kv->write_base;
    if (kv->read_only)
        return;
    static_assert(sizeof(info->engine_reason) == KVSHM__REASON_BYTES, "kvshm.h");
    info->engine = kvshm__client_engine(kv->own, info->engine_reason);
    if (info->engine > KVSHM_ENGINE_FIXED)
        info->engine = KVSHM_ENGINE_NONE;
}

/* What it holds now. */
static void fill_live(const kvshm *kv, struct kvshm_info *info)
{
    const struct kvshm_header *header = kv->header;
    const struct kvshm_derived *derived = &header->derived;
    uint64_t entries;

    info->epoch = KVSHM__LOAD((kvshm_a64 *)&header->epoch);
    info->has_fingerprint = KVSHM__LOAD_ACQ((kvshm_a32 *)&header->has_fingerprint) != 0;
    for (unsigned i = 0; info->has_fingerprint && i < 4; i++) {
        uint64_t word = KVSHM__LOAD((kvshm_a64 *)&header->fingerprint[i]);

        memcpy(info->fingerprint + 8 * i, &word, sizeof(word));
    }
    info->frames_free = bounded(&derived->frames_free, kv->frame_count);
    info->frames_reserved = bounded(&derived->frames_reserved, kv->frame_count);
    info->pages = bounded(&derived->pages, kv->record_count);
    info->pages_limbo = bounded(&derived->limbo, kv->record_count);
    entries = bounded(&derived->entries, kv->record_count) + bounded(&kv->header->tier.left.length, kv->record_count) -
              bounded(&kv->header->tier.pages_kept, bounded(&derived->entries, kv->record_count));
    info->entries = entries < kv->record_count ? entries : kv->record_count;
    info->slots = kv->slot_count;
    info->slots_free = bounded(&kv->header->tier.slots_free, kv->slot_count);
    info->pages_spilled = bounded(&kv->header->tier.pages_spilled, kv->record_count);
    info->entries_spilled = bounded(&kv->header->tier.left.length, kv->record_count);
    info->capacity = KVSHM__LOAD((kvshm_a64 *)&header->settings.capacity);
    info->stall_ms = (uint32_t)bounded(&header->settings.stall_ms, KVSHM__STALL_MS_MAX);
    info->wait_ms = KVSHM__LOAD((kvshm_a64 *)&header->settings.wait_ms);
    info->admission = (uint32_t)KVSHM__LOAD((kvshm_a64 *)&header->settings.admission);
    info->last_insert_ns = KVSHM__LOAD((kvshm_a64 *)&derived->last_insert_ns);
    info->last_evict_ns = KVSHM__LOAD((kvshm_a64 *)&derived->last_evict_ns);
    info->clients = kvshm__client_count_alive(kv);
}

static int fill_file(const kvshm *kv, struct kvshm_info *info)
{
    struct stat status;
    int code = kvshm__sys.fstat(kv->fd, &status);

    if (code < 0)
        return kvshm__fail(code, "arena %s: %s", kv->name, kvshm_strerror(code));
    info->mode = status.st_mode & 0777;
    info->uid = status.st_uid;
    info->gid = status.st_gid;
    return 0;
}

int kvshm_info(kvshm *kv, struct kvshm_info *info)
{
    struct kvshm_info all = {.size = sizeof(all)};
    int code = check_handle(kv);

    if (code == 0 && info == NULL)
        code = kvshm__fail(-EINVAL, "info is NULL");
    if (code == 0)
        code = kvshm__sized_check("kvshm_info", info->size);
    if (code == 0)
        code = fill_file(kv, &all);
    if (code < 0)
        return code;
    fill_fixed(kv, &all);
    fill_handle(kv, &all);
    fill_live(kv, &all);
    kvshm__sized_copy(info, &all, sizeof(all));
    return 0;
}

/* ---- Stats ------------------------------------------------------------------------------------------- */

/* One counter of a client's own: of those who were here and of those who are. */
static uint64_t sum(const kvshm *kv, enum kvshm_counter counter)
{
    uint64_t value = KVSHM__LOAD(&kv->header->totals[counter]);

    for (uint32_t place = 0; place < kv->max_clients; place++)
        value += KVSHM__LOAD(&kv->clients[place].counters[counter]);
    return value;
}

/* All counters that stand on the lines of lease words. */
static void sum_lines(const kvshm *kv, uint64_t sums[KVSHM__LEASE_COUNTERS])
{
    for (unsigned c = 0; c < KVSHM__LEASE_COUNTERS; c++)
        sums[c] = KVSHM__LOAD(&kv->header->totals[KVSHM__COUNTERS_ROOM - 4 + c]);
    for (uint32_t place = 0; place < kv->max_clients; place++) {
        struct kvshm_lease_word *line = kv->leases + (size_t)place * kv->max_leases;
        uint32_t high = KVSHM__LOAD_ACQ(&kv->clients[place].lease_high);

        for (uint32_t i = 0; i < high && i < kv->max_leases; i++) {
            for (unsigned c = 0; c < KVSHM__LEASE_COUNTERS; c++)
                sums[c] += KVSHM__LOAD(&line[i].counters[c]);
        }
    }
}

int kvshm_stats(kvshm *kv, struct kvshm_stats *stats)
{
    struct kvshm_stats all = {.size = sizeof(all)};
    uint64_t lines[KVSHM__LEASE_COUNTERS];
    int code = check_handle(kv);

    if (code == 0 && stats == NULL)
        code = kvshm__fail(-EINVAL, "stats is NULL");
    if (code == 0)
        code = kvshm__sized_check("kvshm_stats", stats->size);
    if (code < 0)
        return code;
    sum_lines(kv, lines);
#define KVSHM_COUNTER(name, unit, help)       all.name = sum(kv, KVSHM__CNT_##name);
#define KVSHM_LEASE_COUNTER(name, unit, help) all.name = lines[KVSHM__LCNT_##name];
#include "counters.def"
#undef KVSHM_COUNTER
#undef KVSHM_LEASE_COUNTER
    all.private_bytes = kvshm__private_bytes();
    all.private_arena = kvshm__private_arena();
    kvshm__sized_copy(stats, &all, sizeof(all));
    return 0;
}

/* ---- Addresses, joining ------------------------------------------------------------------------------ */

static bool in_a_frame(const kvshm *kv, uint64_t offset)
{
    uint64_t in_frames = offset - kv->frames_offset;

    return offset >= kv->frames_offset && in_frames < kv->frame_count * kv->frame_stride &&
           in_frames % kv->frame_stride < kv->page_bytes;
}

const void *kvshm_at(kvshm *kv, uint64_t offset)
{
    return check_handle(kv) == 0 && in_a_frame(kv, offset) ? kv->read_base + offset : NULL;
}

void *kvshm_at_writable(kvshm *kv, uint64_t offset)
{
    if (check_handle(kv) < 0 || kv->write_base == NULL || !in_a_frame(kv, offset))
        return NULL;
    return kv->write_base + offset;
}

static int check_joining(const kvshm *kv)
{
    int code = check_handle(kv);

    if (code == 0 && kv->read_only)
        code = kvshm__fail(KVSHM_E_READ_ONLY,
                           "arena %s was attached with KVSHM_RDONLY, and joins nobody; attach "
                           "without it",
                           kv->name);
    return code;
}

int kvshm_join(kvshm *kv, uint64_t client)
{
    int code = check_joining(kv);

    return code == 0 ? kvshm__client_join(kv, client) : code;
}

int kvshm_leave(kvshm *kv, uint64_t client)
{
    int code = check_joining(kv);

    return code == 0 ? kvshm__client_leave(kv, client) : code;
}
