/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_tier.c - what callers see of the second tier: pages leave memory and come back, over restarts, forks and failures
 *
 * A small arena on a real file. Failures are made by replaced system calls, with transfers by pread and pwrite.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ring.h"
#include "slots.h"
#include "spilling.h"
#include "sys.h"

/* ---- Leaving and coming back -------------------------------------------------------------------------------- */

START_TEST(test_pages_leave_and_come_back)
{
    kvshm *kv = spilling_start();
    struct kvshm_prefix longer = in_range(0, 22), key = in_key(7, 9), tenant = in_range(0, 22);
    struct kvshm_lease lease;
    int code;

    tenant.tenant = 5;
    tenant.adapter_id = 3;
    spilling_put(kv, &longer);
    spilling_put(kv, &key);
    spilling_put(kv, &tenant);
    spilling_leave_all(kv);
    ck_assert_uint_eq(ts_stats(kv).spilled_pages, 6 + 3 + 6);
    ts_is(spilling_peek(kv, &longer), KVSHM_PENDING);
    while ((code = kvshm_lookup(kv, &longer, 0, &lease)) == KVSHM_PENDING)
        usleep(1000);
    ts_is(code, 0);
    ck_assert_uint_eq(in_wrong(&lease, &longer), 0);
    kvshm_release(kv, &lease);
    spilling_served(kv, &key);
    spilling_served(kv, &tenant);
    ck_assert_uint_eq(ts_stats(kv).restored_pages, 6 + 3 + 6);
    spilling_leave_all(kv);
    ck_assert_uint_eq(ts_stats(kv).spilled_pages, 6 + 3 + 6); /* clean pages cost no write */
    in_audit(kv);
    spilling_end(kv);
}
END_TEST

START_TEST(test_match_tells_what_is_pending)
{
    kvshm *kv = spilling_start();
    struct kvshm_prefix head = in_range(0, 8), longer = in_range(0, 20), asked = in_range(0, 40);
    struct kvshm_lease lease;

    spilling_put(kv, &longer);
    spilling_put(kv, &head);
    spilling_leave_all(kv);
    ts_is(kvshm_match(kv, &asked, KVSHM_PEEK, &lease), KVSHM_PENDING);
    ck_assert_uint_eq(lease.pending_tokens, 20);
    spilling_served(kv, &head);
    ts_is(kvshm_match(kv, &asked, 0, &lease), 0);
    ck_assert_uint_eq(lease.tokens, 8);
    ck_assert_uint_eq(lease.pending_tokens, 12);
    ck_assert_uint_eq(in_wrong(&lease, &head), 0);
    kvshm_release(kv, &lease);
    ts_is(kvshm_match(kv, &asked, KVSHM_WAIT, &lease), 0);
    ck_assert_uint_eq(lease.tokens, 20);
    ck_assert_uint_eq(lease.pending_tokens, 0);
    ck_assert_uint_eq(in_wrong(&lease, &longer), 0);
    kvshm_release(kv, &lease);
    spilling_end(kv);
}
END_TEST

START_TEST(test_prefetch_and_wait)
{
    kvshm *kv = spilling_start();
    struct kvshm_prefix prefix[5];
    struct timespec none = {0};
    struct pollfd poll_on = {.events = POLLIN};
    int came = 0;

    for (uint32_t i = 0; i < 5; i++) {
        prefix[i] = in_range(100 * i, 10);
        if (i < 4)
            spilling_put(kv, &prefix[i]);
    }
    spilling_leave_all(kv);
    poll_on.fd = kvshm_eventfd(kv);
    ck_assert_int_gt(poll_on.fd, 2);
    ck_assert_int_eq(kvshm_eventfd(kv), poll_on.fd);
    ts_is(kvshm_wait(kv, NULL), 0);
    ts_is(kvshm_prefetch(kv, prefix, 5), 4);
    ck_assert_int_eq(poll(&poll_on, 1, 60000), 1);
    while (came < 4) {
        int n = kvshm_wait(kv, NULL);
        ck_assert_int_gt(n, 0);
        came += n;
    }
    ts_is(came, 4);
    ts_is(kvshm_wait(kv, &none), 0);
    ck_assert_int_eq(poll(&poll_on, 1, 0), 0);
    for (uint32_t i = 0; i < 4; i++)
        in_hit(kv, &prefix[i]);
    ts_is(kvshm_prefetch(kv, prefix, 5), 0);
    spilling_leave_all(kv);
    spilling_served(kv, &prefix[0]); /* what a call waits for itself is not told */
    ck_assert_int_eq(poll(&poll_on, 1, 0), 0);
    spilling_end(kv);
}
END_TEST

/* ---- Starting again ------------------------------------------------------------------------------------------ */

static int fill_and_die(void *arg)
{
    struct kvshm_config config = spilling_config();
    struct kvshm_prefix key = in_key(7, 9);
    kvshm *kv;

    (void)arg;
    ts_need(kvshm_create("inside", &config, 0, &kv) == 0);
    for (uint32_t i = 0; i < 6; i++)
        in_put(kv, 100 * i, 10);
    in_put(kv, 0, 22);
    ts_need(in_insert(kv, &key, NULL, 0) == 0);
    ts_need(kvshm_flush(kv) == 0);
    in_put(kv, 1000, 8); /* after the flush */
    kill(getpid(), SIGKILL);
    return 0;
}

START_TEST(test_restart)
{
    struct kvshm_prefix key = in_key(7, 9), longer = in_range(0, 22), late = in_range(1000, 8);
    kvshm *kv;

    ck_assert_int_eq(ts_wait(ts_fork(fill_and_die, NULL)), 128 + SIGKILL);
    ts_is(kvshm_unlink("inside", 0), 0);
    kv = spilling_start();
    for (unsigned round = 0; round < 2; round++) { /* after a kill, and after a clean stop */
        ck_assert_uint_eq(in_free(kv), SPILLING_FRAMES);
        for (uint32_t i = 0; i < 6; i++) {
            struct kvshm_prefix prefix = in_range(100 * i, 10);
            spilling_served(kv, &prefix);
        }
        spilling_served(kv, &key);
        spilling_served(kv, &longer);
        ts_is(spilling_peek(kv, &late), KVSHM_MISS);
        in_audit(kv);
        kv = spilling_restart(kv);
    }
    spilling_end(kv);
}
END_TEST

/* Removed, dropped and inserted anew before, replaced, cleared: none of it is back. */
START_TEST(test_what_went_stays_away)
{
    kvshm *kv = spilling_start();
    struct kvshm_prefix longer = in_range(0, 22), inner = in_range(0, 12), other = in_range(50, 8),
                        key = in_key(7, 9);
    struct kvshm_lease lease;
    uint8_t bytes[3 * IN_PAGE_BYTES], after[3 * IN_PAGE_BYTES];

    spilling_put(kv, &longer);
    spilling_put(kv, &inner);
    spilling_put(kv, &other);
    spilling_put(kv, &key);
    spilling_leave_all(kv);
    ts_is(kvshm_remove(kv, &other), 0);
    spilling_put(kv, &other);
    spilling_leave_all(kv);
    ts_is(kvshm_remove(kv, &other), 0);
    ts_is(kvshm_remove(kv, &inner), 0);
    ts_is(in_insert(kv, &key, NULL, 0), KVSHM_REPLACED);
    ts_is(kvshm_lookup(kv, &key, 0, &lease), 0);
    for (uint32_t i = 0; i < 3; i++)
        memcpy(bytes + i * IN_PAGE_BYTES, kvshm_lease_page(&lease, i), IN_PAGE_BYTES);
    kvshm_release(kv, &lease);
    ts_is(kvshm_flush(kv), 0);
    kv = spilling_restart(kv);
    ts_is(spilling_peek(kv, &other), KVSHM_MISS);
    ts_is(spilling_peek(kv, &inner), KVSHM_MISS);
    spilling_served(kv, &longer);
    spilling_served(kv, &key);
    ck_assert_int_eq(kvshm_copy_out(kv, &key, 0, 3, after), 3);
    ck_assert_mem_eq(bytes, after, sizeof(bytes));
    ts_is(kvshm_clear(kv), 0);
    ts_is(spilling_peek(kv, &longer), KVSHM_MISS);
    kv = spilling_restart(kv);
    ts_is(spilling_peek(kv, &longer), KVSHM_MISS);
    ts_is(spilling_peek(kv, &key), KVSHM_MISS);
    ck_assert_uint_eq(in_entries(kv), 0);
    in_audit(kv);
    spilling_end(kv);
}
END_TEST

/* Another geometry or fingerprint: its named error, and the file is as it was. */
START_TEST(test_file_of_others)
{
    struct kvshm_config config = spilling_config();
    struct kvshm_prefix prefix = in_range(0, 22);
    kvshm *kv, *none = NULL;

    config.fingerprint[3] = 1;
    kv = ts_create("inside", &config);
    spilling_put(kv, &prefix);
    ts_is(kvshm_flush(kv), 0);
    spilling_end(kv);
    config.fingerprint[3] = 2;
    ts_is(kvshm_create("inside", &config, 0, &none), KVSHM_E_FINGERPRINT);
    config.fingerprint[3] = 1;
    config.geometry.page_tokens = 8;
    ts_is(kvshm_create("inside", &config, 0, &none), KVSHM_E_GEOMETRY);
    config.geometry.page_tokens = 4;
    ck_assert_ptr_null(none);
    kv = ts_create("inside", &config);
    spilling_served(kv, &prefix);
    spilling_end(kv);
}
END_TEST

START_TEST(test_handle_without_the_file)
{
    kvshm *kv = spilling_start(), *without = ts_attach("inside", KVSHM_NOTIER);
    struct kvshm_prefix prefix = in_range(0, 22);
    struct kvshm_lease lease;

    spilling_put(kv, &prefix);
    spilling_leave_all(kv);
    ts_is(kvshm_lookup(without, &prefix, 0, &lease), KVSHM_MISS);
    ck_assert(!kvshm_contains(without, &prefix));
    ts_is(kvshm_match(without, &prefix, 0, &lease), KVSHM_MISS);
    spilling_served(kv, &prefix);
    in_hit(without, &prefix);
    ts_detach(without);
    spilling_end(kv);
}
END_TEST

/* ---- Many at once --------------------------------------------------------------------------------------------- */

#define MANY 1000u /* all together fit the memory */

static struct ts_gate gate;

static int ask_for_all(void *arg)
{
    kvshm *kv;

    (void)arg;
    ts_need(kvshm_attach("inside", NULL, 0, &kv) == 0);
    ts_need(ts_gate_wait(&gate));
    for (uint32_t i = 0; i < MANY; i++) {
        struct kvshm_prefix prefix = in_range(10 * i, 4);
        struct kvshm_lease lease;
        ts_need(kvshm_lookup(kv, &prefix, KVSHM_WAIT, &lease) == 0);
        ts_need(in_wrong(&lease, &prefix) == 0);
        kvshm_release(kv, &lease);
    }
    return kvshm_detach(kv) == 0 ? 0 : 1;
}

START_TEST(test_each_page_is_read_once)
{
    struct kvshm_config config = spilling_config();
    pid_t pid[4];
    kvshm *kv;

    config.frames = 2 * MANY;
    config.spill_bytes = 2 * MANY * 8192u;
    kv = ts_create("inside", &config);

    for (uint32_t i = 0; i < MANY; i++)
        in_put(kv, 10 * i, 4);
    ts_is(kvshm_flush(kv), 0);
    while (in_free(kv) < 2 * MANY)
        ck_assert_int_gt(kvshm_evict_lru(kv), 0);
    uint64_t before = ts_stats(kv).restored_pages;
    ts_gate_make(&gate);
    for (unsigned i = 0; i < 4; i++)
        pid[i] = ts_fork(ask_for_all, NULL);
    for (unsigned i = 0; i < 4; i++)
        ts_gate_open(&gate);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(ts_wait(pid[i]), 0);
    ts_gate_close(&gate);
    ck_assert_uint_eq(ts_stats(kv).restored_pages - before, MANY);
    ck_assert_uint_eq(ts_stats(kv).spill_bytes_read % MANY, 0);
    in_audit(kv);
    spilling_end(kv);
}
END_TEST

/* More than the memory holds, and then more than the file does: the oldest leaves go, nothing is wrong, nothing is lost. */
START_TEST(test_budget_full)
{
    kvshm *kv = spilling_start();
    unsigned there = 0;

    for (uint32_t i = 0; i < 2 * SPILLING_SLOTS; i++) {
        struct kvshm_reservation r;
        struct kvshm_prefix prefix = in_range(10 * i, 4);
        ts_is(kvshm_reserve(kv, 1, KVSHM_WAIT, &r), 0);
        ts_fill(kvshm_reservation_page(&r, 0), IN_PAGE_BYTES, 0, 0, prefix.tokens, 4);
        ts_is(kvshm_insert(kv, &prefix, NULL, &r, 0), 0);
    }
    ts_is(kvshm_flush(kv), 0);
    for (uint32_t i = 0; i < 2 * SPILLING_SLOTS; i++) {
        struct kvshm_prefix prefix = in_range(10 * i, 4);
        if (spilling_peek(kv, &prefix) == KVSHM_MISS)
            continue;
        there++;
        spilling_served(kv, &prefix);
    }
    ck_assert_uint_gt(there, SPILLING_FRAMES);
    ck_assert_uint_le(there, SPILLING_SLOTS + SPILLING_FRAMES);
    for (uint32_t i = 0; i < SPILLING_SLOTS / 2; i++) {
        struct kvshm_prefix prefix = in_range(10 * i, 4);
        ts_is(spilling_peek(kv, &prefix), KVSHM_MISS); /* the oldest */
    }
    in_audit(kv);
    spilling_end(kv);
}
END_TEST

/* The budget is made smaller while in use: the file has no more than that, and what is there is right. */
START_TEST(test_smaller_budget)
{
    kvshm *kv = spilling_start();
    unsigned there = 0;

    for (uint32_t i = 0; i < 40; i++)
        in_put(kv, 10 * i, 4);
    spilling_leave_all(kv);
    atomic_store(&kv->header->settings.spill_bytes, 20 * 8192u + 65536u);
    for (uint32_t i = 40; i < 60; i++)
        in_put(kv, 10 * i, 4);
    kvshm_flush(kv);
    for (unsigned i = 0; i < 60; i++)
        kvshm_evict_lru(kv);
    for (uint32_t i = 0; i < 60; i++) {
        struct kvshm_prefix prefix = in_range(10 * i, 4);
        if (spilling_peek(kv, &prefix) == KVSHM_MISS)
            continue;
        there++;
        spilling_served(kv, &prefix);
    }
    ck_assert_uint_gt(there, 0);
    ck_assert_uint_le(atomic_load(&kv->header->tier.slots_written), 28);
    in_audit(kv);
    spilling_end(kv);
}
END_TEST

/* Only what was asked for again is written; what was not is dropped when it has to leave. */
START_TEST(test_admission_of_what_is_reused)
{
    struct kvshm_config config = spilling_config();
    struct kvshm_prefix asked = in_range(0, 4), once = in_range(10, 4);
    kvshm *kv;

    config.admission = KVSHM_ADMIT_REUSED;
    kv = ts_create("inside", &config);
    spilling_put(kv, &asked);
    spilling_put(kv, &once);
    in_hit(kv, &asked);
    for (unsigned i = 0; i < 20000 && in_free(kv) < SPILLING_FRAMES; i++) {
        ck_assert_int_ge(kvshm_evict_lru(kv), 0);
        usleep(100);
    }
    ck_assert_uint_eq(in_free(kv), SPILLING_FRAMES);
    ts_is(spilling_peek(kv, &once), KVSHM_MISS);
    spilling_served(kv, &asked);
    ck_assert_uint_eq(ts_stats(kv).spilled_pages, 1);
    in_audit(kv);
    spilling_end(kv);
}
END_TEST

/* Pages that are in memory alone are written first, by the thread. */
START_TEST(test_evict_what_is_not_written)
{
    kvshm *kv = spilling_start();
    struct kvshm_prefix prefix = in_range(0, 22);

    spilling_put(kv, &prefix);
    ts_is(kvshm_evict_lru(kv), 0);
    for (unsigned i = 0; i < 60000 && in_free(kv) < SPILLING_FRAMES; i++)
        usleep(1000);
    ck_assert_uint_eq(in_free(kv), SPILLING_FRAMES);
    spilling_served(kv, &prefix);
    spilling_end(kv);
}
END_TEST

/* Another process clears, or removes, while pages go and come: nothing from before is served after that, nor at a start. */
static int go_and_come(void *arg)
{
    kvshm *kv;

    (void)arg;
    ts_need(kvshm_attach("inside", NULL, 0, &kv) == 0);
    for (uint32_t n = 0;; n++) {
        struct kvshm_prefix prefix = in_range(10 * (n % 40), 9);
        struct kvshm_lease lease;
        if (kvshm_lookup(kv, &prefix, KVSHM_WAIT, &lease) == 0) {
            ts_need(in_wrong(&lease, &prefix) == 0);
            kvshm_release(kv, &lease);
        }
        ts_need(kvshm_evict_lru(kv) >= 0);
        if (n % 16 == 0)
            kvshm_flush(kv);
    }
    return 0;
}

START_TEST(test_clear_and_remove_while_pages_move)
{
    kvshm *kv = spilling_start();
    pid_t pid = ts_fork(go_and_come, NULL);

    for (unsigned round = 0; round < ts_amount(5, 20, 500); round++) {
        for (uint32_t i = 0; i < 12; i++) {
            struct kvshm_prefix prefix = in_range(10 * i, 9);
            spilling_put(kv, &prefix);
        }
        usleep(2000);
        for (uint32_t i = 0; i < 12; i++) {
            struct kvshm_prefix prefix = in_range(10 * i, 9);
            if (round % 2 == 0) {
                ck_assert_int_ge(kvshm_remove(kv, &prefix), 0);
                ts_is(spilling_peek(kv, &prefix), KVSHM_MISS);
            }
        }
        if (round % 2)
            ts_is(kvshm_clear(kv), 0);
        for (uint32_t i = 0; i < 12; i++) {
            struct kvshm_prefix prefix = in_range(10 * i, 9);
            ts_is(spilling_peek(kv, &prefix), KVSHM_MISS);
        }
    }
    ts_kill(pid);
    kv = spilling_restart(kv);
    ck_assert_uint_eq(in_entries(kv), 0);
    for (uint32_t i = 0; i < 12; i++) {
        struct kvshm_prefix prefix = in_range(10 * i, 9);
        ts_is(spilling_peek(kv, &prefix), KVSHM_MISS);
    }
    spilling_end(kv);
}
END_TEST

/* ---- Forks ------------------------------------------------------------------------------------------------------ */

static kvshm *parents;

static int childs_calls(void *arg)
{
    struct kvshm_prefix prefix = in_range(0, 22);
    struct kvshm_lease lease;

    (void)arg;
    ts_need(kvshm_lookup(parents, &prefix, KVSHM_WAIT, &lease) == KVSHM_E_FORKED);
    ts_need(kvshm_prefetch(parents, &prefix, 1) == KVSHM_E_FORKED);
    ts_need(kvshm_wait(parents, NULL) == KVSHM_E_FORKED);
    ts_need(kvshm_eventfd(parents) == KVSHM_E_FORKED);
    ts_need(kvshm_flush(parents) == KVSHM_E_FORKED);
    ts_need(kvshm_detach(parents) == 0);
    kvshm *own;
    ts_need(kvshm_attach("inside", NULL, 0, &own) == 0);
    ts_need(kvshm_lookup(own, &prefix, KVSHM_WAIT, &lease) == 0);
    ts_need(in_wrong(&lease, &prefix) == 0);
    return 0;
}

START_TEST(test_forked_child)
{
    struct kvshm_prefix prefix = in_range(0, 22), other = in_range(50, 8);

    parents = spilling_start();
    spilling_put(parents, &prefix);
    spilling_put(parents, &other);
    spilling_leave_all(parents); /* its thread runs */
    ck_assert_int_eq(ts_wait(ts_fork(childs_calls, NULL)), 0);
    spilling_served(parents, &other);
    spilling_served(parents, &prefix);
    spilling_end(parents);
}
END_TEST

START_TEST(test_detach_while_pages_are_pending)
{
    struct kvshm_prefix prefix = in_range(0, 22);
    struct kvshm_lease lease;
    kvshm *kv = spilling_start();

    spilling_put(kv, &prefix);
    spilling_leave_all(kv);
    for (unsigned i = 0; i < 20; i++) {
        kvshm *other = ts_attach("inside", 0);
        int code = kvshm_lookup(other, &prefix, 0, &lease);
        if (code == 0)
            kvshm_release(other, &lease);
        else
            ts_is(code, KVSHM_PENDING);
        ts_detach(other);
        spilling_leave_all(kv);
    }
    spilling_served(kv, &prefix);
    in_audit(kv);
    spilling_end(kv);
}
END_TEST

/* ---- Threads ---------------------------------------------------------------------------------------------------- */

static _Atomic bool flushing;

static void *flush_on(void *kv)
{
    while (flushing)
        ts_need(kvshm_flush(kv) == 0);
    return NULL;
}

/* What was inserted before a flush began is in the file after it, also if another thread's was under way. */
START_TEST(test_flushes_of_two_threads)
{
    kvshm *kv = spilling_start();
    pthread_t other;
    unsigned missing = 0;

    flushing = true;
    ck_assert_int_eq(pthread_create(&other, NULL, flush_on, kv), 0);
    for (uint32_t i = 0; i < 2000; i++) {
        struct kvshm_prefix prefix = in_range(10 * i, 4);
        spilling_put(kv, &prefix);
        uint32_t record = in_record(kv, &prefix);
        ts_is(kvshm_flush(kv), 0);
        missing += !kvshm__slots_written(kv, record);
        ts_is(kvshm_remove(kv, &prefix), 0);
    }
    flushing = false;
    pthread_join(other, NULL);
    ck_assert_uint_eq(missing, 0);
    spilling_end(kv);
}
END_TEST

/* ---- Failures --------------------------------------------------------------------------------------------------- */

/* What fails: reads, writes, syncs; of the spill file alone. */
static struct {
    _Atomic int read_error, write_error, sync_error;
    _Atomic uint64_t at; /* only from this offset on */
    _Atomic bool in_parts, flip;
} bad;

static int bad_pread(int fd, void *to, size_t size, uint64_t offset)
{
    if (bad.read_error && offset >= bad.at)
        return -bad.read_error;
    int n = kvshm__sys_real.pread(fd, to, bad.in_parts && size > 4096 ? 4096 : size, offset);
    if (n > 0 && bad.flip && offset >= bad.at)
        ((uint8_t *)to)[0] ^= 1;
    return n;
}

static int bad_pwrite(int fd, const void *from, size_t size, uint64_t offset)
{
    if (bad.write_error && offset >= bad.at)
        return -bad.write_error;
    return kvshm__sys_real.pwrite(fd, from, bad.in_parts && size > 4096 ? 4096 : size, offset);
}

static int bad_sync(int fd)
{
    return bad.sync_error ? -bad.sync_error : kvshm__sys_real.sync_data(fd);
}

static int no_ring(unsigned entries, struct io_uring *uring, struct io_uring_params *params)
{
    (void)entries, (void)uring, (void)params;
    return -ENOSYS;
}

static kvshm *start_badly(void)
{
    if (kvshm__uring)
        kvshm__uring->queue_init_params = no_ring;
    kvshm__sys.pread = bad_pread;
    kvshm__sys.pwrite = bad_pwrite;
    kvshm__sys.sync_data = bad_sync;
    return spilling_start();
}

/* All goes on as if nothing had been. */
static void goes_on(kvshm *kv)
{
    struct kvshm_prefix prefix = in_range(700, 22);

    bad.read_error = bad.write_error = bad.sync_error = 0;
    bad.flip = false;
    spilling_put(kv, &prefix);
    spilling_leave_all(kv);
    spilling_served(kv, &prefix);
    in_audit(kv);
    ts_is(kvshm_clear(kv), 0);
    struct kvshm_reservation all;
    ts_is(kvshm_reserve(kv, SPILLING_FRAMES, 0, &all), 0);
    kvshm_cancel(kv, &all);
    spilling_end(kv);
}

START_TEST(test_writes_fail)
{
    static const int errors[] = {EIO, ENOSPC, EDQUOT};
    kvshm *kv = start_badly();
    struct kvshm_prefix prefix = in_range(0, 22);

    spilling_put(kv, &prefix);
    bad.write_error = errors[_i];
    ts_is(kvshm_flush(kv), -errors[_i]);
    ck_assert_uint_gt(ts_stats(kv).spill_failures, 0);
    in_hit(kv, &prefix);
    for (uint32_t i = 0; i < 2 * SPILLING_FRAMES; i++) /* what cannot be written is dropped */
        in_put(kv, 1000 + 10 * i, 4);
    ck_assert_int_lt(kvshm_flush(kv), 0);
    goes_on(kv);
}
END_TEST

START_TEST(test_sync_fails)
{
    kvshm *kv = start_badly();
    struct kvshm_prefix prefix = in_range(0, 22);

    spilling_put(kv, &prefix);
    bad.sync_error = EIO;
    ts_is(kvshm_flush(kv), -EIO);
    ts_is(kvshm_remove(kv, &prefix), -EIO);
    goes_on(kv);
}
END_TEST

/* A read fails, or gives other bytes than were written: a miss in the end, never wrong bytes. */
START_TEST(test_reads_fail)
{
    kvshm *kv = start_badly();
    struct kvshm_prefix prefix = in_range(0, 22);
    struct kvshm_lease lease;

    spilling_put(kv, &prefix);
    spilling_leave_all(kv);
    bad.read_error = _i ? 0 : EIO;
    bad.flip = _i;
    ts_is(kvshm_lookup(kv, &prefix, KVSHM_WAIT, &lease), KVSHM_MISS);
    ck_assert_uint_gt(ts_stats(kv).restore_failures, 0);
    ck_assert_uint_eq(in_pages(kv) > SPILLING_FRAMES, 0);
    goes_on(kv);
}
END_TEST

START_TEST(test_transfers_in_parts)
{
    kvshm *kv = start_badly();
    struct kvshm_prefix prefix = in_range(0, 22);

    bad.in_parts = true;
    spilling_put(kv, &prefix);
    spilling_leave_all(kv);
    spilling_served(kv, &prefix);
    goes_on(kv);
}
END_TEST

/* The file is cut, or its name is gone, or leads to another: misses at most. */
START_TEST(test_file_is_cut)
{
    kvshm *kv = spilling_start();
    struct kvshm_prefix prefix = in_range(0, 22);
    struct kvshm_lease lease;

    spilling_put(kv, &prefix);
    spilling_leave_all(kv);
    ck_assert_int_eq(truncate(spilling_path, 65536), 0);
    ts_is(kvshm_lookup(kv, &prefix, KVSHM_WAIT, &lease), KVSHM_MISS);
    ck_assert_uint_gt(ts_stats(kv).restore_failures, 0);
    in_put(kv, 500, 22);
    spilling_leave_all(kv);
    prefix = in_range(500, 22);
    spilling_served(kv, &prefix);
    in_audit(kv);
    spilling_end(kv);
}
END_TEST

START_TEST(test_file_vanishes)
{
    kvshm *kv = spilling_start();
    struct kvshm_prefix prefix = in_range(0, 22);

    spilling_put(kv, &prefix);
    spilling_leave_all(kv);
    ck_assert_int_eq(unlink(spilling_path), 0);
    spilling_served(kv, &prefix); /* it is open */
    spilling_leave_all(kv);
    spilling_served(kv, &prefix);
    kv = spilling_restart(kv); /* on a new one */
    ts_is(spilling_peek(kv, &prefix), KVSHM_MISS);
    spilling_end(kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tier");
    TCase *tcase = tcase_create("tier");

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_pages_leave_and_come_back);
    tcase_add_test(tcase, test_match_tells_what_is_pending);
    tcase_add_test(tcase, test_prefetch_and_wait);
    tcase_add_test(tcase, test_restart);
    tcase_add_test(tcase, test_what_went_stays_away);
    tcase_add_test(tcase, test_file_of_others);
    tcase_add_test(tcase, test_handle_without_the_file);
    tcase_add_test(tcase, test_each_page_is_read_once);
    tcase_add_test(tcase, test_budget_full);
    tcase_add_test(tcase, test_smaller_budget);
    tcase_add_test(tcase, test_admission_of_what_is_reused);
    tcase_add_test(tcase, test_evict_what_is_not_written);
    tcase_add_test(tcase, test_clear_and_remove_while_pages_move);
    tcase_add_test(tcase, test_forked_child);
    tcase_add_test(tcase, test_flushes_of_two_threads);
    tcase_add_test(tcase, test_detach_while_pages_are_pending);
    tcase_add_loop_test(tcase, test_writes_fail, 0, 3);
    tcase_add_test(tcase, test_sync_fails);
    tcase_add_loop_test(tcase, test_reads_fail, 0, 2);
    tcase_add_test(tcase, test_transfers_in_parts);
    tcase_add_test(tcase, test_file_is_cut);
    tcase_add_test(tcase, test_file_vanishes);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
