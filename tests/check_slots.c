/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_slots.c - whose each slot of a spill file is (G1 to G4), and what of the dead and of the stopped
 *
 * No thread moves pages here: slots are taken, settled and erased by the test; nothing is written to them.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inside.h"

#include "client.h"
#include "evict.h"
#include "frames.h"
#include "mend.h"
#include "slots.h"
#include "spill.h"

#define SLOTS 16u

static kvshm *kv;
static uint32_t slots_at_first;

static void setup(void)
{
    static char path[300];

    ts_setup();
    struct kvshm_config config = ts_config(IN_PAGE_BYTES, 4, 32);
    snprintf(path, sizeof(path), "%s/spilled", getenv("KVSHM_DIR"));
    config.max_clients = 4;
    config.stall_ms = 100;
    config.wait_ms = KVSHM_UNLIMITED;
    config.spill_path = path;
    config.spill_bytes = SLOTS * 8192u + 65536u;
    kv = ts_create("inside", &config);
    slots_at_first = (uint32_t)kvshm__slots_free(kv);
    ck_assert_uint_gt(slots_at_first, 8);
}

static void teardown(void)
{
    ts_detach(kv);
    kvshm_unlink("inside", 0);
    ts_teardown();
}

static uint32_t record_of(uint32_t first)
{
    struct kvshm_prefix prefix = in_range(first, 4);

    in_put(kv, first, 4);
    return in_record(kv, &prefix);
}

static void lock(void)
{
    ts_is(kvshm__mend_lock(kv), 0);
}

static void unlock(void)
{
    kvshm__mend_unlock(kv);
}

static uint64_t owner(uint32_t slot)
{
    return KVSHM__LOAD(&kv->slots[slot].owner);
}

START_TEST(test_g1_settled_or_failed)
{
    uint32_t record = record_of(0), other = record_of(10);

    lock();
    uint32_t slot = kvshm__slots_take(kv, record), failing = kvshm__slots_take(kv, other);
    ck_assert_uint_ne(slot, failing);
    ck_assert_uint_eq(kvshm__slots_free(kv), slots_at_first - 2);
    ck_assert(!kvshm__slots_whole(kv, record));
    ck_assert(!kvshm__slots_written(kv, record));
    ck_assert_uint_eq(kvshm__slots_writer(kv, record), kv->client);
    ck_assert(kvshm__slots_settle(kv, slot, 5, KVSHM__SLOT_ENTRY));
    ck_assert(kvshm__slots_whole(kv, record));
    ck_assert_uint_eq(owner(slot), kvshm__owner_page(record));
    ck_assert_uint_eq(kvshm__slots_writer(kv, record), 0);
    kvshm__slots_fail(kv, failing);
    ck_assert(!kvshm__slots_whole(kv, other));
    ck_assert_uint_eq(kvshm__slots_doomed(kv), 1); /* a header may stand there */
    ck_assert_uint_eq(kvshm__slots_free(kv), slots_at_first - 2);
    unlock();
}
END_TEST

/* G3. The page went while it was written, and after. */
START_TEST(test_g3_dropped_slots_are_erased_first)
{
    uint32_t record[3] = {record_of(0), record_of(10), record_of(20)}, slot[3], claimed[4];

    lock();
    for (unsigned i = 0; i < 3; i++)
        slot[i] = kvshm__slots_take(kv, record[i]);
    kvshm__slots_drop(kv, record[0]);
    ck_assert(!kvshm__slots_settle(kv, slot[0], 5, 0));
    ck_assert(kvshm__slots_settle(kv, slot[1], 5, 0));
    ck_assert(kvshm__slots_settle(kv, slot[2], 5, 0));
    kvshm__slots_drop(kv, record[2]);
    kvshm__slots_drop(kv, record[1]);
    ck_assert_uint_eq(kvshm__slots_doomed(kv), 3);
    ck_assert_uint_eq(kvshm__slots_free(kv), slots_at_first - 3);
    ck_assert_uint_eq(kvshm__slots_claim(kv, claimed, 2), 2); /* first doomed first */
    ck_assert_uint_eq(claimed[0], slot[0]);
    ck_assert_uint_eq(claimed[1], slot[2]);
    kvshm__slots_erased(kv, claimed, 1, true);
    kvshm__slots_erased(kv, claimed + 1, 1, false);
    ck_assert_uint_eq(kvshm__slots_free(kv), slots_at_first - 2);
    ck_assert_uint_eq(kvshm__slots_claim(kv, claimed, 4), 2);
    kvshm__slots_erased(kv, claimed, 2, true);
    ck_assert_uint_eq(kvshm__slots_free(kv), slots_at_first);
    ck_assert_uint_eq(kvshm__slots_doomed(kv), 0);
    unlock();
    in_audit(kv);
}
END_TEST

START_TEST(test_g3_free_at_once_when_the_epoch_is_over)
{
    uint32_t record = record_of(0);

    lock();
    ck_assert(kvshm__slots_settle(kv, kvshm__slots_take(kv, record), 5, 0));
    unlock();
    ts_is(kvshm_clear(kv), 0);
    ck_assert_uint_eq(kvshm__slots_doomed(kv), 0);
    ck_assert_uint_eq(kvshm__slots_free(kv), slots_at_first);
    in_audit(kv);
}
END_TEST

/* G4: batches from before the mark and what was doomed before it; not those after. */
START_TEST(test_g4_marks)
{
    uint32_t record[2] = {record_of(0), record_of(10)}, claimed[2];
    uint64_t client;

    lock();
    uint64_t none = kvshm__slots_mark(kv);
    ck_assert(kvshm__slots_passed(kv, none, &client));
    kvshm__slots_begin(kv, KVSHM__BATCH_WRITING);
    ck_assert(kvshm__slots_passed(kv, none, &client));
    uint32_t slot = kvshm__slots_take(kv, record[0]);
    kvshm__slots_drop(kv, record[0]);
    uint64_t mark = kvshm__slots_mark(kv);
    ck_assert(!kvshm__slots_passed(kv, mark, &client));
    ck_assert_uint_eq(client, kv->client);
    ck_assert(!kvshm__slots_settle(kv, slot, 5, 0));
    kvshm__slots_end(kv, KVSHM__BATCH_WRITING);
    ck_assert(!kvshm__slots_passed(kv, mark, &client)); /* what was removed while it was written is doomed since */
    uint64_t second = kvshm__slots_mark(kv);
    ck_assert(!kvshm__slots_passed(kv, second, &client));
    ck_assert_uint_eq(client, 0); /* doomed still */
    ck_assert_uint_eq(kvshm__slots_claim(kv, claimed, 2), 1);
    ck_assert(!kvshm__slots_passed(kv, second, &client)); /* claimed is not erased */
    kvshm__slots_erased(kv, claimed, 1, true);
    kvshm__slots_end(kv, KVSHM__BATCH_ERASING);
    ck_assert(kvshm__slots_passed(kv, second, &client));
    ck_assert(kvshm__slots_passed(kv, mark, &client));
    unlock();
}
END_TEST

/* ---- Others ------------------------------------------------------------------------------------------------- */

static uint32_t childs_record;

/* Takes a slot for the record in a batch, and stops. */
static int write_and_stop(void *arg)
{
    kvshm *own;

    (void)arg;
    ts_need(kvshm_attach("inside", NULL, 0, &own) == 0);
    ts_need(kvshm__mend_lock(own) == 0);
    kvshm__slots_begin(own, KVSHM__BATCH_WRITING);
    ts_need(kvshm__slots_take(own, childs_record) != KVSHM__NO_SLOT);
    kvshm__mend_unlock(own);
    for (;;)
        raise(SIGSTOP);
    return 0;
}

static pid_t stopped(int (*fn)(void *))
{
    pid_t pid = ts_fork(fn, NULL);

    for (;;) { /* until it has stopped itself */
        siginfo_t info = {0};
        ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOWAIT), 0);
        ck_assert_int_eq(info.si_code, CLD_STOPPED);
        return pid;
    }
}

/* G2. A stopped writer's slots stay its own: remove says so, all else goes on; after its death they are erased. */
START_TEST(test_g2_a_stopped_writer)
{
    struct kvshm_prefix prefix = in_range(0, 4), other = in_range(10, 4);

    childs_record = record_of(0);
    pid_t pid = stopped(write_and_stop);
    uint64_t writer = kvshm__slots_writer(kv, childs_record);
    ck_assert_uint_ne(writer, 0);
    ck_assert_uint_ne(writer, kv->client);
    in_put(kv, 10, 4);
    in_hit(kv, &other);
    in_hit(kv, &prefix);
    ts_is(kvshm_remove(kv, &prefix), KVSHM_E_STALLED);
    ts_says("SIGCONT");
    in_miss(kv, &prefix);
    ts_is(kvshm_flush(kv), 0);
    ck_assert_uint_eq(kvshm__slots_free(kv), slots_at_first - 2);
    ts_kill(pid);
    ck_assert_int_ge(kvshm_remove(kv, &prefix), 0);
    ts_is(kvshm_remove(kv, &other), 0);
    ck_assert_uint_eq(kvshm__slots_free(kv), slots_at_first);
    in_audit(kv);
}
END_TEST

/* The slot of a writer that died comes back to who needs slots, if nobody removes anything. */
START_TEST(test_slots_of_the_dead_are_found)
{
    childs_record = record_of(0);
    ts_kill(stopped(write_and_stop));
    for (uint32_t i = 1; i < slots_at_first; i++)
        in_put(kv, i * 10, 4);
    ts_is(kvshm_flush(kv), 0);
    ck_assert_uint_eq(kvshm__slots_free(kv), 0);
    in_audit(kv);
}
END_TEST

/* A writer that dies: its page is in memory alone at once, and can be written again. */
START_TEST(test_g2_a_dead_writer)
{
    struct kvshm_prefix prefix = in_range(0, 4);

    childs_record = record_of(0);
    ts_kill(stopped(write_and_stop));
    ck_assert_uint_eq(kvshm__slots_writer(kv, childs_record), 0);
    ts_is(kvshm_flush(kv), 0);
    ck_assert(kvshm__slots_whole(kv, childs_record));
    ts_is(kvshm_remove(kv, &prefix), 0);
    lock();
    kvshm__slots_sweep(kv);
    kvshm__slots_rebuild(kv);
    unlock();
    ck_assert_uint_eq(kvshm__slots_free(kv) + kvshm__slots_doomed(kv), slots_at_first);
    in_audit(kv);
}
END_TEST

/* Claims frames to read the page into, and stops. */
static int read_and_stop(void *arg)
{
    struct kvshm__move moves[4];
    kvshm *own;

    (void)arg;
    ts_need(kvshm_attach("inside", NULL, 0, &own) == 0);
    ts_need(kvshm__mend_lock(own) == 0);
    int n = kvshm__restore_claim(own, childs_record, KVSHM__LOAD(&own->records[childs_record].seq),
                                 moves, 4, false);
    ts_need(n == 1);
    kvshm__mend_unlock(own);
    for (;;)
        raise(SIGSTOP);
    return 0;
}

/* Another reads into a frame of its own; the frame is back when the first is dead. */
START_TEST(test_a_stopped_reader)
{
    struct kvshm_prefix prefix = in_range(0, 4);
    struct kvshm_lease lease;

    childs_record = record_of(0);
    ts_is(kvshm_flush(kv), 0);
    ts_is(kvshm_evict_lru(kv), 1);
    pid_t pid = stopped(read_and_stop);
    ts_is(kvshm_lookup(kv, &prefix, KVSHM_WAIT, &lease), 0);
    ck_assert_uint_eq(in_wrong(&lease, &prefix), 0);
    kvshm_release(kv, &lease);
    ts_kill(pid);
    struct kvshm_reservation all;
    ts_is(kvshm_reserve(kv, 32, 0, &all), 0);
    kvshm_cancel(kv, &all);
    in_audit(kv);
}
END_TEST

/* Clear in memory alone; it is not swept yet. */
static void clear_unswept(void)
{
    kvshm__evict_clear(kv, KVSHM__LOAD(&kv->header->epoch) + 1);
}

static void sweep_and_go_on(void)
{
    while (!kvshm__evict_clear_slice(kv, 1))
        continue;
    unlock();
    in_audit(kv);
    ck_assert_uint_eq(in_entries(kv), 0);
    uint32_t record = record_of(50);
    ts_is(kvshm_flush(kv), 0);
    ck_assert(kvshm__slots_written(kv, record));
    in_audit(kv);
}

/*
 * A page that is cleared while it is read, by who comes to settle it before the clear has swept it: it is in no list, and
 * entries made after it are written.
 */
static const int reads[] = {0, -EIO};

START_TEST(test_cleared_while_it_is_read)
{
    uint32_t record = record_of(0);
    struct kvshm__move move;

    record_of(10);
    ts_is(kvshm_flush(kv), 0);
    ts_is(kvshm_evict_lru(kv), 1);
    lock();
    ts_is(kvshm__restore_claim(kv, record, KVSHM__LOAD(&kv->records[record].seq), &move, 1, false), 1);
    clear_unswept();
    move.result = reads[_i];
    ts_is(kvshm__restore_settle(kv, &move, 1), 0);
    sweep_and_go_on();
}
END_TEST

/* The same, while its header is written anew, which fails; the page is in memory, or in the file alone. */
START_TEST(test_cleared_while_it_is_renamed)
{
    uint32_t record = record_of(0);

    record_of(10);
    ts_is(kvshm_flush(kv), 0);
    if (_i == 1)
        ts_is(kvshm_evict_lru(kv), 1);
    lock();
    kvshm__slots_begin(kv, KVSHM__BATCH_ERASING);
    kvshm__slots_rewrite(kv, record);
    clear_unswept();
    kvshm__spill_lost(kv, kvshm__slot_number(KVSHM__LOAD(&kv->records[record].slot)));
    kvshm__slots_end(kv, KVSHM__BATCH_ERASING);
    sweep_and_go_on();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("slots");
    TCase *tcase = tcase_create("slots");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_g1_settled_or_failed);
    tcase_add_test(tcase, test_g3_dropped_slots_are_erased_first);
    tcase_add_test(tcase, test_g3_free_at_once_when_the_epoch_is_over);
    tcase_add_test(tcase, test_g4_marks);
    tcase_add_test(tcase, test_g2_a_stopped_writer);
    tcase_add_test(tcase, test_g2_a_dead_writer);
    tcase_add_test(tcase, test_slots_of_the_dead_are_found);
    tcase_add_test(tcase, test_a_stopped_reader);
    tcase_add_loop_test(tcase, test_cleared_while_it_is_read, 0, sizeof(reads) / sizeof(reads[0]));
    tcase_add_loop_test(tcase, test_cleared_while_it_is_renamed, 0, 2);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
