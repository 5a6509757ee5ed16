/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.c - the public calls about an arena as a whole: making, attaching, detaching, removing, listing, looking.
 *
 * A handle comes up in one order, bring_up(), whether its segment was just built and has no name yet or was found under
 * one: header validated in a private copy, geometry and clock compared, mapped, fingerprint compared, client taken. Only
 * then has anything been written to the segment, so a refused attach leaves no trace in it. Creating publishes after
 * that: an arena under a name has had a living client, and its creator needs no second chance. Every error takes down
 * what there is, take_down(), in reverse.
 *
 * Two mappings of the whole file: leases point into the read-only one, tables and reservations are in the writable one.
 * A read-only handle has the first only. In the ThreadSanitizer build one serves both, since it sees races only
 * inside one mapping.
 *
 * Calls switch cancellation off while they have descriptors half-made. No call here waits for another process, but for
 * its turn (place.c), for the writer lock when a fingerprint is named, and for the memory of a new segment.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backing.h"
#include "adopt.h"
#include "client.h"
#include "config.h"
#include "fork.h"
#include "frames.h"
#include "limit.h"
#include "mend.h"
#include "message.h"
#include "place.h"
#include "private.h"
#include "recency.h"
#include "segment.h"
#include "sys.h"
#include "tier.h"
#include "validate.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

/* How often kvshm_open() tries again when others create or unlink the name between its steps. */
#define OPEN_TRIES 16

/* ---- Up and down ------------------------------------------------------------------------------------- */

static int new_handle(const char *name, kvshm **out)
{
    kvshm *kv = kvshm__private_alloc(sizeof(*kv));
    int code;

    if (kv == NULL)
        return kvshm__fail(-ENOMEM, "no memory for a handle of %zu bytes", sizeof(*kv));
    code = kvshm__fork_add(kv);
    if (code < 0) {
        kvshm__private_free(kv);
        return kvshm__fail(code, "handle's page that is wiped in a child: %s",
                           kvshm_strerror(code));
    }
    snprintf(kv->name, sizeof(kv->name), "%s", name);
    pthread_mutex_init(&kv->mutex, NULL);
    pthread_mutex_init(&kv->join_mutex, NULL);
    *out = kv;
    return 0;
}

static void free_private(kvshm *kv)
{
    kvshm__private_free(kv->scratch);
    kvshm__private_free(kv->fixed);
    if (kvshm__fork_remove(kv))
        kvshm__private_free(kv);
}

/* Undo whatever there is of a handle of this process. The place goes before the locks: else another might have taken it
   over by then. Of the locks either may fall first, since no place has the number any more. */
static void take_down(kvshm *kv)
{
    kvshm__tier_close(kv);
    if (kv->client != 0)
        kvshm__client_give(kv);
    kvshm__fork_close(&kv->quiet_fd);
    kvshm__fork_close(&kv->fd);
    if (kv->read_base != NULL && kv->read_base != kv->write_base)
        kvshm__sys.unmap((void *)kv->read_base, kv->segment_bytes);
    if (kv->write_base != NULL)
        kvshm__sys.unmap(kv->write_base, kv->segment_bytes);
    pthread_mutex_destroy(&kv->join_mutex);
    pthread_mutex_destroy(&kv->mutex);
    free_private(kv);
}

/* ---- Mapping ----------------------------------------------------------------------------------------- */

static int map_one(kvshm *kv, int protection, uint8_t **base)
{
    void *address;
    int code =
        kvshm__backing_map(kv->fd, kv->segment_bytes, kv->fixed->page_size, protection, &address);

    if (code == 0) {
        *base = address;
        code = kvshm__fork_hide(address, kv->segment_bytes);
    }
    if (code < 0)
        return kvshm__fail(code, "mapping the %" PRIu64 " bytes of arena %s: %s", kv->segment_bytes,
                           kv->name, kvshm_strerror(code));
    return 0;
}

static int map_segment(kvshm *kv)
{
    uint8_t *reading = NULL;
    int code = 0;

    if (!kv->read_only)
        code = map_one(kv, PROT_READ | PROT_WRITE, &kv->write_base);
#ifdef KVSHM_TSAN
    reading = kv->write_base;
#endif
    if (code == 0 && reading == NULL)
        code = map_one(kv, PROT_READ, &reading);
    kv->read_base = reading;
    kv->base = kv->read_only ? reading : kv->write_base;
    return code;
}

/* Where the system cannot fault in a range at once, a look at each page does it. */
static int populate_one(const kvshm *kv, const void *base, int advice)
{
    uint64_t step = (uint64_t)sysconf(_SC_PAGESIZE);
    int code = kvshm__sys.advise((void *)base, kv->segment_bytes, advice);

    if (code == -EINVAL) {
        for (uint64_t at = 0; at < kv->segment_bytes; at += step)
            KVSHM__LOAD((kvshm_a64 *)((uintptr_t)base + at));
        code = 0;
    }
    return code == 0 ? 0
                     : kvshm__fail(code, "faulting in arena %s (KVSHM_POPULATE): %s", kv->name,
                                   kvshm_strerror(code));
}

static int populate(const kvshm *kv)
{
    uint64_t tables = kvshm__limit_table_bytes(kv->segment_bytes, kv->fixed->page_size);
    int code = kvshm__limit_tables(kv->read_only ? tables : 2 * tables, kv->name);

    if (code == 0)
        code = populate_one(kv, kv->read_base, MADV_POPULATE_READ);
    if (code == 0 && kv->write_base != NULL)
        code = populate_one(kv, kv->write_base, MADV_POPULATE_WRITE);
    return code;
}

/* ---- Fingerprint ------------------------------------------------------------------------------------- */

static int compare_fingerprint(const kvshm *kv, const struct kvshm__config *expect)
{
    for (unsigned i = 0; i < 4; i++) {
        uint64_t word;

        memcpy(&word, expect->asked.fingerprint + 8 * i, sizeof(word));
        if (word != KVSHM__LOAD(&kv->header->fingerprint[i]))
            return kvshm__fail(KVSHM_E_FINGERPRINT,
                               "config.fingerprint is not that of arena %s: it holds the cache of "
                               "another model or configuration; use another name",
                               kv->name);
    }
    return 0;
}

/* Of a handle that named one, before anything is written. */
static int check_fingerprint(const kvshm *kv, const struct kvshm__config *expect)
{
    if (!kv->named_fingerprint)
        return 0;
    if (KVSHM__LOAD_ACQ(&kv->header->has_fingerprint))
        return compare_fingerprint(kv, expect);
    if (!kv->read_only)
        return 0;
    return kvshm__fail(
        KVSHM_E_FINGERPRINT,
        "arena %s has no fingerprint, and a read-only handle cannot name one; attach "
        "without config.fingerprint",
        kv->name);
}

/* With the writer lock: could a page be found, now or when it is called back from limbo? */
static bool anything_cached(const kvshm *kv)
{
    const struct kvshm_derived *derived = &kv->header->derived;
    uint32_t epoch = (uint32_t)KVSHM__LOAD(&kv->header->epoch);
    uint32_t at1 = KVSHM__LOAD((kvshm_a32 *)&derived->limbo_first1);

    if (KVSHM__LOAD((kvshm_a64 *)&derived->entries) != 0 || KVSHM__LOAD(&kv->header->tier.left.length) != 0)
        return true;
    for (uint32_t i = 0; i < kv->record_count && at1 - 1 < kv->record_count; i++) {
        if (KVSHM__LOAD(&kv->records[at1 - 1].epoch) == epoch)
            return true;
        at1 = KVSHM__LOAD(&kv->links[at1 - 1].link1);
    }
    return false;
}

static int name_locked(kvshm *kv, const struct kvshm__config *expect)
{
    if (KVSHM__LOAD_ACQ(&kv->header->has_fingerprint))
        return compare_fingerprint(kv, expect);
    if (anything_cached(kv))
        return kvshm__fail(
            KVSHM_E_FINGERPRINT,
            "arena %s has no fingerprint and holds pages already; clear it first, or "
            "attach without config.fingerprint",
            kv->name);
    int code = kv->slots ? kvshm__tier_name(kv, expect->asked.fingerprint) : 0; /* first: the file outlives the arena */
    if (code < 0)
        return code;
    for (unsigned i = 0; i < 4; i++) {
        uint64_t word;

        memcpy(&word, expect->asked.fingerprint + 8 * i, sizeof(word));
        KVSHM__STORE(&kv->header->fingerprint[i], word);
    }
    KVSHM__STORE_REL(&kv->header->has_fingerprint, 1);
    return 0;
}

/* The first who names a fingerprint while nothing is cached gives it to the arena. */
static int name_fingerprint(kvshm *kv, const struct kvshm__config *expect)
{
    int code;

    if (!kv->named_fingerprint || KVSHM__LOAD_ACQ(&kv->header->has_fingerprint))
        return check_fingerprint(kv, expect);
    code = kvshm__mend_lock(kv);
    if (code < 0)
        return code;
    code = name_locked(kv, expect);
    kvshm__mend_unlock(kv);
    return code;
}

/* ---- Coming up --------------------------------------------------------------------------------------- */

static int validate(kvshm *kv, const char *path)
{
    uint64_t file_bytes;
    int code;

    kv->fixed = kvshm__private_alloc(sizeof(*kv->fixed));
    if (kv->fixed == NULL)
        return kvshm__fail(-ENOMEM, "no memory for a header");
    code = kvshm__validate_read(kv->fd, path, kv->fixed, &file_bytes);
    if (code == 0)
        code = kvshm__validate_fixed(kv->fixed, file_bytes, !kv->read_only, path);
    return code;
}

static int compare(const kvshm *kv, const struct kvshm__config *expect)
{
    if (kv->fixed->clock == KVSHM__CLOCK_HARDWARE && !kvshm__recency_hardware())
        return kvshm__fail(KVSHM_E_FEATURE,
                           "arena %s takes its stamps from an invariant hardware counter, which "
                           "this processor has not",
                           kv->name);
    if (expect->page_bytes == 0)
        return 0;
    return kvshm__geometry_compare(&expect->asked.geometry, &kv->fixed->geometry, NULL);
}

static int become_client(kvshm *kv, const struct kvshm__config *expect)
{
    int code = kvshm__segment_reopen(kv->fd, kv->path, &kv->quiet_fd);

    return code == 0 ? kvshm__client_take(kv, expect->label) : code;
}

/*
 * kv->fd is open. Leaves what it has done to take_down(). path is for messages; kv->path is "" while the segment has no
 * name.
 */
static int bring_up(kvshm *kv, const struct kvshm__config *expect, unsigned flags, const char *path)
{
    int code;

    kv->read_only = (flags & KVSHM_RDONLY) != 0;
    kv->named_fingerprint = expect->named_fingerprint;
    code = validate(kv, path);
    if (code == 0)
        code = compare(kv, expect);
    if (code < 0)
        return code;
    kv->segment_bytes = kv->fixed->segment_bytes;
    code = map_segment(kv);
    if (code < 0)
        return code;
    kvshm__validate_fill(kv, kv->fixed);
    code = kvshm__validate_live(kv);
    if (code == 0)
        code = check_fingerprint(kv, expect);
    if (code == 0 && (flags & KVSHM_POPULATE) != 0)
        code = populate(kv);
    if (code == 0 && !kv->read_only)
        code = become_client(kv, expect);
    return code;
}

/* A path that does not fit is not kept: the segment is then reached through its descriptor. */
static void keep_path(kvshm *kv, const char *path)
{
    if (strlen(path) < sizeof(kv->path))
        memcpy(kv->path, path, strlen(path) + 1);
}

/* ---- Create, attach, open ---------------------------------------------------------------------------- */

static int create_in_turn(kvshm *kv, struct kvshm__making *making, struct kvshm__config *config, unsigned flags)
{
    struct kvshm__spill_file file;
    int code = kvshm__adopt_open(config, &file);

    if (code == 0)
        code = kvshm__segment_build(making, config, kvshm__recency_hardware(), &kv->fd);
    if (code == 0)
        code = bring_up(kv, config, flags, making->path);
    if (code == 0)
        code = kvshm__adopt(kv, config, &file);
    if (code == 0)
        code = kvshm__segment_publish(making, kv->fd);
    if (code < 0)
        kvshm__adopt_undo(kv, config, &file);
    return code;
}

static int create(const char *name, struct kvshm__config *config, unsigned flags, kvshm **out)
{
    struct kvshm__making making;
    kvshm *kv;
    int code = new_handle(name, &kv);

    if (code < 0)
        return code;
    code = kvshm__segment_begin(&making, name);
    if (code == 0) {
        code = create_in_turn(kv, &making, config, flags);
        kvshm__segment_end(&making);
    }
    if (code < 0) {
        take_down(kv);
        return code;
    }
    keep_path(kv, making.path);
    *out = kv;
    return 0;
}

/* Was the segment unlinked between its opening and our becoming a client, which an unlinker looks for? */
static int still_linked(const kvshm *kv)
{
    struct stat status;
    int code = kvshm__sys.fstat(kv->fd, &status);

    if (code < 0)
        return kvshm__fail(code, "arena %s: %s", kv->name, kvshm_strerror(code));
    if (status.st_nlink == 0)
        return kvshm__fail(KVSHM_E_UNLINKED,
                           "arena %s was unlinked while it was being attached; try again",
                           kv->name);
    return 0;
}

static int find_and_open(kvshm *kv, bool writing, struct kvshm__places *places)
{
    struct kvshm__place_found found;
    int code = kvshm__places_get(places);

    if (code == 0)
        code = kvshm__place_find(places, kv->name, &found);
    if (code == 0)
        code = kvshm__place_open(&found, writing, &kv->fd);
    if (code == 0)
        keep_path(kv, found.path);
    return code;
}

static int attach(const char *name, const struct kvshm__config *expect, unsigned flags, kvshm **out)
{
    struct kvshm__places places;
    kvshm *kv;
    int code = new_handle(name, &kv);

    if (code < 0)
        return code;
    code = find_and_open(kv, (flags & KVSHM_RDONLY) == 0, &places);
    if (code == 0)
        code = bring_up(kv, expect, flags, kv->path[0] != '\0' ? kv->path : kv->name);
    if (code == 0)
        code = still_linked(kv);
    if (code == 0)
        code = check_fingerprint(kv, expect);
    if (code == 0)
        code = kvshm__adopt_follow(kv, expect, flags);
    if (code == 0)
        code = name_fingerprint(kv, expect);
    if (code < 0) {
        take_down(kv);
        return code;
    }
    *out = kv;
    return 0;
}

static int check_call(const char *call, const char *name, unsigned flags, unsigned known,
                      kvshm **out)
{
    int code;

    if (out == NULL)
        return kvshm__fail(-EINVAL, "%s: out is NULL", call);
    *out = NULL;
    code = kvshm__flags_check(call, flags, known);
    return code == 0 ? kvshm__name_check(name) : code;
}

int kvshm_create(const char *name, const struct kvshm_config *config, unsigned flags, kvshm **out)
{
    struct kvshm__config checked;
    int before, code = check_call("kvshm_create", name, flags, KVSHM_POPULATE, out);

    if (code == 0)
        code = kvshm__config_create(config, &checked);
    if (code < 0)
        return code;
    before = kvshm__cancel_off();
    code = create(name, &checked, flags, out);
    kvshm__cancel_restore(before);
    return code;
}

int kvshm_attach(const char *name, const struct kvshm_config *expect, unsigned flags, kvshm **out)
{
    struct kvshm__config checked;
    int before;
    int code = check_call("kvshm_attach", name, flags, KVSHM_RDONLY | KVSHM_POPULATE | KVSHM_NOTIER, out);

    if (code == 0)
        code = kvshm__config_expect(expect, &checked);
    if (code < 0)
        return code;
    before = kvshm__cancel_off();
    code = attach(name, &checked, flags, out);
    kvshm__cancel_restore(before);
    return code;
}

/* Attach, else create, else attach again, since another may have been faster at either. */
static int attach_or_create(const char *name, const struct kvshm_config *config, unsigned flags,
                            kvshm **out)
{
    struct kvshm__config expect, making;
    int code = kvshm__config_expect(config, &expect);

    for (unsigned i = 0; code == 0 && i < OPEN_TRIES; i++) {
        code = attach(name, &expect, flags, out);
        if (code == -ENOENT && (flags & KVSHM_RDONLY) == 0) {
            code = kvshm__config_create(config, &making);
            if (code == 0)
                code = create(name, &making, flags, out);
            if (code != -EEXIST)
                return code;
        } else if (code != KVSHM_E_UNLINKED) {
            return code;
        }
        if (i + 1 < OPEN_TRIES)
            code = 0;
    }
    return code;
}

int kvshm_open(const char *name, const struct kvshm_config *config, unsigned flags, kvshm **out)
{
    int before, code = check_call("kvshm_open", name, flags, KVSHM_RDONLY | KVSHM_POPULATE | KVSHM_NOTIER, out);

    if (code == 0 && config == NULL && (flags & KVSHM_RDONLY) == 0)
        code = kvshm__fail(-EINVAL, "kvshm_open: config is NULL; set one with kvshm_config_init()");
    if (code < 0)
        return code;
    before = kvshm__cancel_off();
    code = attach_or_create(name, config, flags, out);
    kvshm__cancel_restore(before);
    return code;
}

/* ---- Detach ------------------------------------------------------------------------------------------ */

/* 0, or -EBUSY: what is still held would count for nothing the moment it is given up. */
static int holds_nothing(const kvshm *kv)
{
    const struct kvshm_lease_word *leases = kvshm__own_leases(kv);
    kvshm_a64 *reservations = kvshm__own_reservations(kv);
    uint32_t high = KVSHM__LOAD_ACQ(&kv->clients[kv->place].lease_high);
    unsigned held = 0, filling = 0;

    for (uint32_t i = 0; i < high && i < kv->max_leases; i++)
        held += KVSHM__LOAD((kvshm_a64 *)&leases[i].word) != 0;
    for (uint32_t i = 0; i < kv->max_leases; i++)
        filling += KVSHM__LOAD(&reservations[i]) == KVSHM__RESERVATION_HELD;
    if (held == 0 && filling == 0)
        return 0;
    return kvshm__fail(
        -EBUSY,
        "the handle of arena %s holds %u leases and %u reservations; release, cancel "
        "or insert them first",
        kv->name, held, filling);
}

/* 0, or -EBUSY: another thread changes the arena through this handle, or waits to. Readers leave no trace to be seen. */
static int nobody_changes(kvshm *kv)
{
    pthread_mutex_t *const mutexes[] = {&kv->mutex, &kv->join_mutex};

    for (unsigned i = 0; i < 2; i++) {
        if (pthread_mutex_trylock(mutexes[i]) != 0)
            return kvshm__fail(
                -EBUSY,
                "another thread is inside a call on the handle of arena %s; wait until "
                "it has returned",
                kv->name);
        pthread_mutex_unlock(mutexes[i]);
    }
    return 0;
}

/* Cancelled KVSHM_DEVICE reservations go back now: under a number that has gone they would wait for kvshmctl reap. */
static void sweep_device_frames(kvshm *kv)
{
    if (KVSHM__LOAD(&kv->clients[kv->place].device_frames) == 0 || kvshm__mend_lock(kv) < 0)
        return;
    kvshm__frames_sweep(kv, 0);
    kvshm__mend_unlock(kv);
}

int kvshm_detach(kvshm *kv)
{
    int before, code;

    if (kv == NULL)
        return 0;
    if (kvshm__forked(kv)) {
        free_private(kv);
        return 0;
    }
    code = kvshm__tier_rest(kv);
    if (code == 0)
        code = nobody_changes(kv); /* first: what such a call takes is seen, or the call is */
    if (code == 0 && !kv->read_only)
        code = holds_nothing(kv);
    if (code < 0)
        return code;
    if (!kv->read_only)
        sweep_device_frames(kv);
    before = kvshm__cancel_off();
    take_down(kv);
    kvshm__cancel_restore(before);
    return 0;
}

/* ---- Unlink, list ------------------------------------------------------------------------------------ */

/*
 * -EBUSY, with the names of the living if the arena can be read so far. If none lives, transfers of the dead are in flight:
 * 0, when they have landed soon.
 */
static int busy(kvshm *kv)
{
    struct kvshm__config none;
    char alive[3 * KVSHM__CLIENT_WORDS] = "";
    uint64_t end = kvshm__sys.monotonic_ns() + KVSHM__LANDING_NS;

    if (kvshm__config_expect(NULL, &none) == 0 && bring_up(kv, &none, KVSHM_RDONLY, kv->name) == 0) {
        while (kvshm__client_count_alive(kv) == 0 && kvshm__sys.monotonic_ns() < end) {
            if (kvshm__client_any(kv->fd) == 0)
                return 0;
            kvshm__sys.sleep_ns(KVSHM__LANDING_NS / 500);
        }
        kvshm__client_describe_alive(kv, alive, sizeof(alive));
    }
    return kvshm__fail(-EBUSY,
                       "arena %s has living clients: %s; stop them, or force it with KVSHM_FORCE "
                       "(kvshmctl rm --force)",
                       kv->name, alive[0] != '\0' ? alive : "its header does not say which");
}

/*
 * Remove what kv->fd is open on, in the turn. Any lock in the range of the lock bytes is a living client, whatever the
 * header says, so arenas of other versions and boots, and damaged ones, can be removed and are looked after alike.
 */
static int remove_opened(kvshm *kv, int dir, unsigned flags)
{
    struct kvshm_static fixed;
    uint64_t file_bytes;
    int code = kvshm__validate_read(kv->fd, kv->name, &fixed, &file_bytes);

    if (code == 0 && (flags & KVSHM_FORCE) == 0) {
        code = kvshm__client_any(kv->fd);
        if (code > 0)
            code = busy(kv);
        else if (code < 0)
            return kvshm__fail(code, "locks of arena %s: %s", kv->name, kvshm_strerror(code));
    }
    return code == 0 ? kvshm__place_remove(dir, kv->name, kv->fd) : code;
}

static int unlink_in_turn(kvshm *kv, const struct kvshm__places *places,
                          const struct kvshm__turn *turn, unsigned flags)
{
    struct kvshm__place_found found;
    int code = kvshm__place_find(places, kv->name, &found);

    if (code == 0)
        code = kvshm__place_open(&found, false, &kv->fd);
    return code == 0 ? remove_opened(kv, turn->dir[found.place], flags) : code;
}

static int unlink_name(const char *name, unsigned flags)
{
    struct kvshm__places places;
    struct kvshm__turn turn;
    kvshm *kv;
    int code = kvshm__places_get(&places);

    if (code == 0)
        code = new_handle(name, &kv);
    if (code < 0)
        return code;
    code = kvshm__turn_take(&places, &turn);
    if (code == 0) {
        code = unlink_in_turn(kv, &places, &turn, flags);
        kvshm__turn_end(&turn);
    }
    take_down(kv);
    return code;
}

int kvshm_unlink(const char *name, unsigned flags)
{
    int before, code = kvshm__flags_check("kvshm_unlink", flags, KVSHM_FORCE);

    if (code == 0)
        code = kvshm__name_check(name);
    if (code < 0)
        return code;
    before = kvshm__cancel_off();
    code = unlink_name(name, flags);
    kvshm__cancel_restore(before);
    return code;
}

int kvshm_list(kvshm_name_fn fn, void *arg)
{
    struct kvshm__places places;
    int before, code;

    if (fn == NULL)
        return kvshm__fail(-EINVAL, "kvshm_list: fn is NULL");
    before = kvshm__cancel_off();
    code = kvshm__places_get(&places);
    if (code == 0)
        code = kvshm__place_list(&places, fn, arg);
    kvshm__cancel_restore(before);
    return code;
}
