/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults_scenes.c - for check_faults: each public call on a stage that is built for it
 */
#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "client.h"

struct kvshm_config faults_config(void)
{
    struct kvshm_config config = ts_config(IN_PAGE_BYTES, 4, FAULTS_FRAMES);

    config.max_clients = FAULTS_CLIENTS;
    config.max_leases = FAULTS_LEASES;
    config.stall_ms = 1;
    return config;
}

/* ---- Stages ------------------------------------------------------------------------------------------------ */

/* Two entries that share their first page, one by key. */
static void fill(kvshm *kv)
{
    struct kvshm_prefix key = in_key(7, 8);

    in_put(kv, 100, 8);
    in_put(kv, 100, 6);
    ts_is(in_insert(kv, &key, NULL, 0), 0);
}

static void nobody(struct stage *s)
{
    struct kvshm_config config = faults_config();

    (void)s;
    ts_detach(ts_create("b", &config));
}

static void empty(struct stage *s)
{
    struct kvshm_config config = faults_config();

    s->kv = ts_create("b", &config);
}

static void filled(struct stage *s)
{
    empty(s);
    fill(s->kv);
}

static void none(struct stage *s)
{
    (void)s;
}

static void with_reader(struct stage *s)
{
    filled(s);
    s->reader = ts_attach("b", KVSHM_RDONLY);
}

static void with_other(struct stage *s)
{
    filled(s);
    s->other = ts_attach("b", 0);
}

static int reserve_and_die(void *arg)
{
    struct kvshm_reservation r;
    struct kvshm_prefix prefix = in_range(100, 8);
    struct kvshm_lease lease;
    kvshm *kv;

    (void)arg;
    ts_need(kvshm_attach("b", NULL, 0, &kv) == 0);
    ts_need(kvshm_reserve(kv, 3, 0, &r) == 0);
    ts_need(kvshm_lookup(kv, &prefix, 0, &lease) == 0);
    return 0;
}

/* All places are taken, one by a dead client, which has left frames and a lease. */
static void with_dead(struct stage *s)
{
    filled(s);
    s->dead = KVSHM__LOAD(&s->kv->header->next_client) + 1;
    ck_assert_int_eq(ts_wait(ts_fork(reserve_and_die, NULL)), 0);
    ck_assert_int_ge(kvshm__client_find(s->kv, s->dead), 0);
    s->other = ts_attach("b", 0);
}

static void reserved(struct stage *s)
{
    struct kvshm_prefix prefix = in_range(200, 8);

    filled(s);
    ts_is(in_fill(s->kv, &prefix, NULL, &s->r), 0);
}

static void reserved_behind_head(struct stage *s)
{
    struct kvshm_prefix prefix = in_range(100, 8);

    filled(s);
    ts_is(kvshm_lookup(s->kv, &prefix, 0, &s->lease), 0);
    prefix = in_range(100, 16);
    ts_is(in_fill(s->kv, &prefix, &s->lease, &s->r), 0);
}

static void reserved_for_key(struct stage *s)
{
    struct kvshm_prefix key = in_key(7, 8);

    filled(s);
    ts_is(in_fill(s->kv, &key, NULL, &s->r), 0);
}

static void leased(struct stage *s)
{
    struct kvshm_prefix prefix = in_range(100, 8);

    filled(s);
    ts_is(kvshm_lookup(s->kv, &prefix, 0, &s->lease), 0);
}

static void cancelled_device(struct stage *s)
{
    struct kvshm_reservation r;

    filled(s);
    ts_is(kvshm_reserve(s->kv, 2, KVSHM_DEVICE, &r), 0);
    kvshm_cancel(s->kv, &r);
}

static void stalled(struct stage *s)
{
    with_other(s);
    atomic_store(&s->kv->header->lock.word, s->other->client);
}

static void owner_died(struct stage *s)
{
    filled(s);
    atomic_store(&s->kv->header->lock.word, in_dead_number(s->kv));
}

static void someone_waits(struct stage *s)
{
    filled(s);
    atomic_store(&s->kv->header->lock.waiters, 1);
}

static int folder_fd = -1;
static unsigned sleeps;

static void let_turn(void)
{
    if (++sleeps < 3 || folder_fd < 0)
        return;
    close(folder_fd);
    folder_fd = -1;
}

void faults_leave(struct stage *s)
{
    if (s->kv != NULL) {
        atomic_store(&s->kv->header->lock.word, 0);
        atomic_store(&s->kv->header->lock.waiters, 0);
        kvshm_release(s->kv, &s->lease);
        kvshm_cancel(s->kv, &s->r);
    }
    ts_detach(s->kv);
    ts_detach(s->other);
    ts_detach(s->reader);
}

/* ---- With a spill file ----------------------------------------------------------------------------------------- */

static struct kvshm_config spilling_config(const char *file)
{
    static char path[300];
    struct kvshm_config config = faults_config();

    snprintf(path, sizeof(path), "%s/%s", getenv("KVSHM_DIR"), file);
    config.spill_path = path;
    config.spill_bytes = 40 * 8192 + 65536;
    config.wait_ms = KVSHM_UNLIMITED;
    return config;
}

/* All that is there is in the file, and the handle's thread runs. */
static void spilling(struct stage *s)
{
    struct kvshm_config config = spilling_config(FAULTS_SPILL);

    s->kv = ts_create("b", &config);
    fill(s->kv);
    ts_is(kvshm_flush(s->kv), 0);
}

static void spilling_more(struct stage *s)
{
    spilling(s);
    in_put(s->kv, 200, 8);
}

static void spilled(struct stage *s)
{
    spilling(s);
    for (unsigned i = 0; i < 1000 && in_free(s->kv) < FAULTS_FRAMES; i++)
        ck_assert_int_ge(kvshm_evict_lru(s->kv), 0);
}

static int64_t create_spilling(struct stage *s)
{
    struct kvshm_config config = spilling_config("spill-a");

    return kvshm_create("a", &config, 0, &s->made);
}

static int64_t flush(struct stage *s)
{
    return kvshm_flush(s->kv);
}

static int64_t lookup_spilled(struct stage *s)
{
    struct kvshm_prefix prefix = in_range(100, 8);

    int code = kvshm_lookup(s->kv, &prefix, KVSHM_WAIT, &s->lease);

    if (code == KVSHM_PENDING) /* it could not be read now, and is asked for again */
        kvshm_wait(s->kv, NULL);
    return code;
}

static int64_t clear_spilled(struct stage *s)
{
    return kvshm_clear(s->kv);
}

/* What a failed call has taken out of memory goes from the file by the next one, which finds nothing in memory. */
static int64_t remove_spilled(struct stage *s)
{
    struct kvshm_prefix prefix = in_range(100, 8);
    int code = kvshm_remove(s->kv, &prefix);

    return code == KVSHM_MISS ? 0 : code;
}

static int64_t event_of_prefetch(struct stage *s)
{
    struct kvshm_prefix prefix = in_range(100, 8);
    int fd = kvshm_eventfd(s->kv), code = fd < 0 ? fd : kvshm_prefetch(s->kv, &prefix, 1);

    return code <= 0 ? code : kvshm_wait(s->kv, NULL);
}

/* ---- Steps: the life of an arena --------------------------------------------------------------------------- */

static int64_t create(struct stage *s)
{
    struct kvshm_config config = faults_config();

    return kvshm_create("a", &config, 0, &s->made);
}

/* Another has the turn, and gives it up after some sleeps. */
static int64_t create_in_turn(struct stage *s)
{
    int64_t code;

    sleeps = 0;
    folder_fd = open(getenv("KVSHM_DIR"), O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(folder_fd, 0);
    ck_assert_int_eq(flock(folder_fd, LOCK_EX), 0);
    faults_on_sleep = let_turn;
    code = create(s);
    faults_on_sleep = NULL;
    if (folder_fd >= 0)
        close(folder_fd);
    folder_fd = -1;
    return code;
}

static int64_t create_for_group(struct stage *s)
{
    struct kvshm_config config = faults_config();

    config.group = getgid();
    config.mode = 0660;
    return kvshm_create("a", &config, KVSHM_POPULATE, &s->made);
}

/* On transparent hugepages, by name. */
static int64_t create_thp(struct stage *s)
{
    struct kvshm_config config = faults_config();

    config.geometry.page_bytes = UINT64_C(2) << 20;
    config.backing = KVSHM_BACKING_THP;
    return kvshm_create("a", &config, 0, &s->made);
}

static int64_t open_new(struct stage *s)
{
    struct kvshm_config config = faults_config();

    return kvshm_open("a", &config, 0, &s->made);
}

static int64_t open_existing(struct stage *s)
{
    struct kvshm_config config = faults_config();

    return kvshm_open("b", &config, 0, &s->made);
}

static int64_t attach(struct stage *s)
{
    return kvshm_attach("b", NULL, 0, &s->made);
}

static int64_t attach_naming(struct stage *s)
{
    struct kvshm_config expect;

    kvshm_config_init(&expect);
    expect.fingerprint[0] = 9;
    return kvshm_attach("b", &expect, KVSHM_POPULATE, &s->made);
}

static int64_t attach_reading(struct stage *s)
{
    return kvshm_attach("b", NULL, KVSHM_RDONLY, &s->made);
}

void faults_remove(const char *file)
{
    char path[300];

    snprintf(path, sizeof(path), "%s/%s", getenv("KVSHM_DIR"), file);
    unlink(path);
}

static void undo_make(struct stage *s)
{
    ts_detach(s->made);
    s->made = NULL;
    kvshm_unlink("a", 0);
    faults_remove("spill-a");
}

static int64_t detach(struct stage *s)
{
    int code = kvshm_detach(s->kv);

    s->kv = NULL;
    return code;
}

static int64_t detach_reader(struct stage *s)
{
    int code = kvshm_detach(s->reader);

    s->reader = NULL;
    return code;
}

static int64_t unlink_name(struct stage *s)
{
    (void)s;
    return kvshm_unlink("b", 0);
}

static int64_t unlink_forced(struct stage *s)
{
    (void)s;
    return kvshm_unlink("b", KVSHM_FORCE);
}

static int see_name(const char *name, const char *path, void *arg)
{
    ck_assert(name[0] != '\0' && path[0] == '/');
    ++*(unsigned *)arg;
    return 0;
}

static int64_t list(struct stage *s)
{
    return kvshm_list(see_name, &s->seen);
}

/* ---- Steps: finding and filling ---------------------------------------------------------------------------- */

static int64_t lookup(struct stage *s)
{
    struct kvshm_prefix prefix = in_range(100, 8);

    return kvshm_lookup(s->kv, &prefix, 0, &s->lease);
}

static int64_t match(struct stage *s)
{
    struct kvshm_prefix prefix = in_range(100, 20);

    return kvshm_match(s->kv, &prefix, KVSHM_TOUCH, &s->lease);
}

static int64_t miss(struct stage *s)
{
    struct kvshm_prefix prefix = in_range(300, 8);

    return kvshm_lookup(s->kv, &prefix, 0, &s->lease);
}

static int64_t contains(struct stage *s)
{
    struct kvshm_prefix prefix = in_range(100, 8);

    return kvshm_contains(s->kv, &prefix) ? 0 : -1;
}

static int64_t copy_of(kvshm *kv)
{
    struct kvshm_prefix prefix = in_range(100, 8);
    uint8_t bytes[2 * IN_PAGE_BYTES];
    int64_t copied = kvshm_copy_out(kv, &prefix, 0, 2, bytes);

    for (uint32_t i = 0; i < copied; i++)
        ck_assert_uint_eq(
            ts_filled(bytes + i * IN_PAGE_BYTES, IN_PAGE_BYTES, 0, 0, prefix.tokens, 4 * (i + 1)),
            0);
    return copied;
}

static int64_t copy_out(struct stage *s)
{
    return copy_of(s->kv);
}

static int64_t copy_out_reading(struct stage *s)
{
    return copy_of(s->reader);
}

static int64_t tag(struct stage *s)
{
    kvshm_lease_tag(&s->lease, 5);
    return kvshm_lease_page(&s->lease, 1) != NULL ? 0 : -1;
}

static int64_t release(struct stage *s)
{
    kvshm_release(s->kv, &s->lease);
    return 0;
}

static void undo_lease(struct stage *s)
{
    kvshm_release(s->kv, &s->lease);
}

static int64_t reserve(struct stage *s)
{
    return kvshm_reserve(s->kv, 2, 0, &s->r);
}

static int64_t reserve_all(struct stage *s)
{
    return kvshm_reserve(s->kv, FAULTS_FRAMES, 0, &s->r);
}

static int64_t cancel(struct stage *s)
{
    kvshm_cancel(s->kv, &s->r);
    return 0;
}

static void undo_reserve(struct stage *s)
{
    kvshm_cancel(s->kv, &s->r);
}

static int64_t insert(struct stage *s)
{
    struct kvshm_prefix prefix = in_range(200, 8);

    return kvshm_insert(s->kv, &prefix, NULL, &s->r, 0);
}

static int64_t insert_holding(struct stage *s)
{
    struct kvshm_prefix prefix = in_range(100, 16);

    return kvshm_insert(s->kv, &prefix, &s->lease, &s->r, KVSHM_HOLD | KVSHM_EXTEND);
}

static int64_t insert_key(struct stage *s)
{
    struct kvshm_prefix key = in_key(7, 8);

    return kvshm_insert(s->kv, &key, NULL, &s->r, 0);
}

/* ---- Steps: giving up, joining, looking ---------------------------------------------------------------------- */

static int64_t take_away(struct stage *s)
{
    struct kvshm_prefix prefix = in_range(100, 8);

    return kvshm_remove(s->kv, &prefix);
}

static int64_t evict(struct stage *s)
{
    return kvshm_evict_lru(s->kv);
}

static int64_t clear(struct stage *s)
{
    return kvshm_clear(s->kv);
}

static int64_t join(struct stage *s)
{
    return kvshm_join(s->kv, s->other->client);
}

static int64_t leave(struct stage *s)
{
    return kvshm_leave(s->kv, s->other->client);
}

static void joined(struct stage *s)
{
    with_other(s);
    ts_is(kvshm_join(s->kv, s->other->client), 0);
}

static void undo_join(struct stage *s)
{
    ts_is(kvshm_leave(s->kv, s->other->client), 0);
}

static int64_t info(struct stage *s)
{
    struct kvshm_info info;

    kvshm_info_init(&info);
    return kvshm_info(s->kv, &info);
}

static int64_t stats(struct stage *s)
{
    struct kvshm_stats stats;

    kvshm_stats_init(&stats);
    return kvshm_stats(s->kv, &stats);
}

static int see_entry(const struct kvshm_entry *entry, void *arg)
{
    ck_assert_uint_gt(entry->tokens, 0);
    ++*(unsigned *)arg;
    return 0;
}

static int64_t look(struct stage *s)
{
    return kvshm_foreach(s->kv, see_entry, &s->seen);
}

/* ---- The table ------------------------------------------------------------------------------------------------ */

#define ANSWERS(...) ((const int64_t[]){__VA_ARGS__, 0})

/* A file that ends early is no arena; one that cannot be looked at may be gone, full or of others. */
#define OF_MAKING                                                                              \
    ANSWERS(-EIO, -EEXIST, -ENOSPC, -ESTALE, KVSHM_E_FORMAT, KVSHM_E_DAMAGED, KVSHM_E_CLIENTS, \
            KVSHM_E_BUSY_CREATORS)
/* What cannot be looked at is not to be had. */
#define OF_HUGEPAGES                                                                            \
    ANSWERS(-ENODEV, -ENOMEM, -EIO, -EEXIST, -ENOSPC, -ESTALE, KVSHM_E_FORMAT, KVSHM_E_DAMAGED, \
            KVSHM_E_BUSY_CREATORS)
#define OF_CHANGING ANSWERS(KVSHM_E_STALLED)

/* One byte is no part that O_DIRECT goes on behind. */
#define OF_PARTS ANSWERS(-EIO, -EINVAL)
#define OF_MAKING_SPILLING                                                             \
    ANSWERS(-EIO, -EINVAL, -EEXIST, -ENOENT, -ENOSPC, -ESTALE, -EBUSY, KVSHM_E_FORMAT, \
            KVSHM_E_DAMAGED, KVSHM_E_CLIENTS, KVSHM_E_BUSY_CREATORS)
#define OF_SPILLING ANSWERS(KVSHM_E_NOSPILL, KVSHM_E_DAMAGED, KVSHM_E_FORMAT, -EIO, -ESTALE)

const struct scene faults_scenes[] = {
    {"create", 0, none, create, undo_make, OF_MAKING, false, false},
    {"create_for_group", 0, none, create_for_group, undo_make, OF_MAKING, true, false},
    {"create_in_turn", 0, none, create_in_turn, undo_make, OF_MAKING, true, false},
    {"open_new", 0, none, open_new, undo_make, OF_MAKING, true, false},
    {"open_existing", 0, filled, open_existing, undo_make, OF_MAKING, true, false},
    {"attach", 0, filled, attach, undo_make, OF_MAKING, false, false},
    {"attach_naming", 0, empty, attach_naming, undo_make, OF_MAKING, true, false},
    {"attach_reading", 0, filled, attach_reading, undo_make, OF_MAKING, false, false},
    {"attach_taking_over", 0, with_dead, attach, undo_make, OF_MAKING, true, false},
    {"detach", 0, filled, detach, none, NULL, false, false},
    {"detach_reading", 0, with_reader, detach_reader, none, NULL, false, false},
    {"detach_device", 0, cancelled_device, detach, none, NULL, true, false},
    {"unlink", 0, nobody, unlink_name, none, OF_MAKING, false, false},
    {"unlink_busy", -EBUSY, with_other, unlink_name, none, OF_MAKING, true, false},
    {"unlink_forced", 0, with_other, unlink_forced, none, OF_MAKING, true, false},
    {"list", 0, filled, list, none, NULL, false, false},
    {"info", 0, with_dead, info, none, NULL, false, false},
    {"stats", 0, filled, stats, none, NULL, false, false},
    {"foreach", 0, with_dead, look, none, NULL, false, false},
    {"lookup", 0, filled, lookup, undo_lease, NULL, false, false},
    {"lookup_miss", KVSHM_MISS, filled, miss, none, NULL, false, false},
    {"match", 0, filled, match, undo_lease, NULL, false, false},
    {"contains", 0, filled, contains, none, NULL, false, false},
    {"copy_out", 2, filled, copy_out, none, NULL, false, false},
    {"copy_out_reading", 2, with_reader, copy_out_reading, none, NULL, false, false},
    {"lease_tag", 0, leased, tag, none, NULL, false, false},
    {"release", 0, leased, release, none, NULL, false, false},
    {"reserve", 0, filled, reserve, undo_reserve, NULL, false, false},
    {"reserve_evicting", 0, filled, reserve_all, undo_reserve, NULL, false, false},
    {"reserve_sweeping", 0, with_dead, reserve_all, undo_reserve, ANSWERS(-ENOSPC), false, false},
    {"reserve_beside_stalled", KVSHM_E_STALLED, stalled, reserve, none, NULL, false, false},
    {"reserve_taking_over", 0, owner_died, reserve, undo_reserve, OF_CHANGING, false, false},
    {"reserve_waking", 0, someone_waits, reserve, undo_reserve, NULL, false, false},
    {"cancel", 0, reserved, cancel, none, NULL, false, false},
    {"insert", 0, reserved, insert, none, NULL, false, false},
    {"insert_holding", 0, reserved_behind_head, insert_holding, undo_lease, NULL, false, false},
    {"insert_replacing", KVSHM_REPLACED, reserved_for_key, insert_key, none, NULL, false, false},
    {"remove", 0, filled, take_away, none, NULL, false, false},
    {"evict", 1, filled, evict, none, NULL, false, false},
    {"evict_leased", 1, leased, evict, none, NULL, false, false},
    {"evict_beside_dead", 1, with_dead, evict, none, ANSWERS(0), false, false},
    {"clear", 0, filled, clear, none, NULL, false, false},
    {"clear_leased", 0, leased, clear, none, NULL, false, false},
    {"clear_beside_dead", 0, with_dead, clear, none, NULL, false, false},
    {"join", 0, with_other, join, undo_join, NULL, false, false},
    {"leave", 0, joined, leave, none, NULL, false, false},
    {"create_spilling", 0, none, create_spilling, undo_make, OF_MAKING_SPILLING, true, false},
    {"attach_spilling", 0, spilling, attach, undo_make, OF_SPILLING, true, false},
    {"flush", 0, spilling_more, flush, none, ANSWERS(-EIO), false, false},
    {"lookup_spilled", 0, spilled, lookup_spilled, undo_lease, ANSWERS(KVSHM_MISS, KVSHM_PENDING),
     false, false},
    {"clear_spilled", 0, spilling, clear_spilled, none, OF_PARTS, false, false},
    {"remove_spilled", 0, spilled, remove_spilled, none, OF_PARTS, false, false},
    {"event_of_prefetch", 1, spilled, event_of_prefetch, none, ANSWERS(-EIO), false, false},
    {"create_thp", 0, none, create_thp, undo_make, OF_HUGEPAGES, false, true},
};
const size_t faults_scene_count = sizeof(faults_scenes) / sizeof(faults_scenes[0]);
