/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_frames.c - whose each frame is, reservations, and their sweep (frames.h: F1, F2)
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "inside.h"

#include "client.h"
#include "frames.h"
#include "mend.h"
#include "reap.h"

#define FRAMES 12

static kvshm *locked(void)
{
    kvshm *kv = in_create(4, FRAMES, 4);

    ts_is(kvshm__mend_lock(kv), 0);
    return kv;
}

static void unlock_and_detach(kvshm *kv)
{
    for (uint32_t i = 0; i < kv->max_leases; i++)
        KVSHM__STORE(&kvshm__own_reservations(kv)[i], KVSHM__RESERVATION_EMPTY);
    kvshm__mend_unlock(kv);
    in_audit(kv);
    ts_detach(kv);
}

static uint64_t owner_of(const kvshm *kv, uint32_t frame)
{
    return KVSHM__LOAD(&kv->owners[frame].owner);
}

static uint64_t reserved(const kvshm *kv)
{
    return KVSHM__LOAD(&kv->header->derived.frames_reserved);
}

/* ---- Taking and giving back --------------------------------------------------------------------------------- */

START_TEST(test_owner_words_hold_what_is_put_in)
{
    uint64_t owner = kvshm__owner_reserved(KVSHM__OWNER_DEVICE, KVSHM__CLIENT_NUMBER_MAX, 0xffff);

    ck_assert_int_eq(kvshm__owner_kind(owner), KVSHM__OWNER_DEVICE);
    ck_assert_uint_eq(kvshm__owner_client(owner), KVSHM__CLIENT_NUMBER_MAX);
    ck_assert_uint_eq(kvshm__owner_word(owner), 0xffff);
    owner = kvshm__owner_page(UINT32_MAX);
    ck_assert_int_eq(kvshm__owner_kind(owner), KVSHM__OWNER_PAGE);
    ck_assert_uint_eq((uint32_t)owner, UINT32_MAX);
}
END_TEST

/* Each frame once, until none is left; after any giving back again. */
START_TEST(test_each_frame_is_taken_once)
{
    kvshm *kv = locked();
    uint64_t chance = ts_seed(), owner;
    bool taken[FRAMES] = {false};
    uint32_t n = 0, word = kvshm__frames_reservation_new(kv);

    owner = kvshm__owner_reserved(KVSHM__OWNER_RESERVED, kv->client, word);
    for (unsigned i = 0; i < 2000; i++) {
        uint32_t frame = (uint32_t)ts_random(&chance, FRAMES);

        if (ts_random(&chance, 2)) {
            frame = kvshm__frames_take(kv, owner);
            ck_assert_int_eq(frame == KVSHM__NO_FRAME, n == FRAMES);
            if (frame == KVSHM__NO_FRAME)
                continue;
            ck_assert_uint_lt(frame, FRAMES);
            ck_assert(!taken[frame]);
            ck_assert_uint_eq(owner_of(kv, frame), owner);
            taken[frame] = true;
            n++;
        } else {
            n -= taken[frame];
            taken[frame] = false;
            kvshm__frames_give(kv, frame); /* one that is free stays so */
        }
        ck_assert_uint_eq(in_free(kv), FRAMES - n);
        ck_assert_uint_eq(reserved(kv), n);
    }
    for (uint32_t frame = 0; frame < FRAMES; frame++)
        kvshm__frames_give(kv, frame);
    unlock_and_detach(kv);
}
END_TEST

/* A list of free frames that leads astray gives nothing that is somebody's. */
START_TEST(test_damaged_list_gives_no_frame_twice)
{
    static const uint32_t wrong[] = {FRAMES + 1, UINT32_MAX, 1};
    kvshm *kv = locked();
    uint32_t word = kvshm__frames_reservation_new(kv);
    uint64_t owner = kvshm__owner_reserved(KVSHM__OWNER_RESERVED, kv->client, word);
    uint32_t first = kvshm__frames_take(kv, owner), second = kvshm__frames_take(kv, owner);

    ck_assert_uint_eq(first, 0);
    kvshm__frames_give(kv, second);
    KVSHM__STORE(&kv->header->derived.free_frame1, wrong[_i]);
    for (uint32_t i = 0; i < FRAMES; i++) {
        uint32_t frame = kvshm__frames_take(kv, owner);

        ck_assert(frame == KVSHM__NO_FRAME || frame < FRAMES);
        ck_assert_uint_ne(frame, first);
    }
    for (uint32_t frame = 0; frame < FRAMES; frame++)
        kvshm__frames_give(kv, frame);
    kvshm__frames_rebuild(kv);
    unlock_and_detach(kv);
}
END_TEST

START_TEST(test_device_frames_are_counted_with_their_client)
{
    kvshm *kv = in_create(4, FRAMES, 4), *other = in_attach();
    struct kvshm_reservation mine, its;

    ts_is(kvshm_reserve(kv, 3, KVSHM_DEVICE, &mine), 0);
    ts_is(kvshm_reserve(other, 2, KVSHM_DEVICE, &its), 0);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->clients[kv->place].device_frames), 3);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->clients[other->place].device_frames), 2);
    in_audit(kv);
    kvshm_cancel(kv, &mine);
    kvshm_cancel(other, &its);
    ck_assert_int_eq(kvshm__reap(kv, 0, NULL), 5);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->clients[kv->place].device_frames), 0);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->clients[other->place].device_frames), 0);
    in_audit(kv);
    ts_detach(other);
    ts_detach(kv);
}
END_TEST

/* ---- Reservations ---------------------------------------------------------------------------------------------- */

START_TEST(test_reservation_words_are_given_once)
{
    kvshm *kv = locked();
    bool seen[4] = {false};

    for (unsigned i = 0; i < 4; i++) {
        uint32_t word = kvshm__frames_reservation_new(kv);

        ck_assert_uint_lt(word, 4);
        ck_assert(!seen[word]);
        seen[word] = true;
    }
    ck_assert_uint_eq(kvshm__frames_reservation_new(kv), UINT32_MAX);
    KVSHM__STORE(&kvshm__own_reservations(kv)[2], KVSHM__RESERVATION_CANCELLED);
    ck_assert_uint_eq(kvshm__frames_reservation_new(kv), UINT32_MAX);
    KVSHM__STORE(&kvshm__own_reservations(kv)[2], KVSHM__RESERVATION_EMPTY);
    ck_assert_uint_eq(kvshm__frames_reservation_new(kv), 2);
    unlock_and_detach(kv);
}
END_TEST

/* F2: a cancelled word is empty only when its frames have been swept, and then its frames are free. */
START_TEST(test_f2_no_frame_names_an_empty_word)
{
    kvshm *kv = in_create(4, FRAMES, 4);
    struct kvshm_reservation r, kept;
    uint32_t word;

    ts_is(kvshm_reserve(kv, 3, 0, &r), 0);
    ts_is(kvshm_reserve(kv, 4, 0, &kept), 0);
    word = r.word;
    ck_assert(!kvshm__frames_sweep_worth(kv));
    kvshm_cancel(kv, &r);
    ck_assert_uint_eq(KVSHM__LOAD(&kvshm__own_reservations(kv)[word]),
                      KVSHM__RESERVATION_CANCELLED);
    ck_assert_uint_eq(in_free(kv), FRAMES - 7);
    ck_assert(kvshm__frames_sweep_worth(kv));
    ts_is(kvshm__mend_lock(kv), 0);
    ck_assert_uint_eq(kvshm__frames_sweep(kv, 0), 3);
    kvshm__mend_unlock(kv);
    ck_assert_uint_eq(KVSHM__LOAD(&kvshm__own_reservations(kv)[word]), KVSHM__RESERVATION_EMPTY);
    ck_assert_uint_eq(in_free(kv), FRAMES - 4);
    ck_assert(!kvshm__frames_sweep_worth(kv));
    in_audit(kv);
    kvshm_cancel(kv, &kept);
    ts_detach(kv);
}
END_TEST

/* A sweep that ended half-way is finished by the next. */
START_TEST(test_f2_swept_words_are_emptied_by_the_next_sweep)
{
    kvshm *kv = in_create(4, FRAMES, 4);
    struct kvshm_reservation r;
    kvshm_a64 *word;

    ts_is(kvshm_reserve(kv, 3, 0, &r), 0);
    word = &kvshm__own_reservations(kv)[r.word];
    kvshm_cancel(kv, &r);
    KVSHM__STORE(word, KVSHM__RESERVATION_SWEPT);
    ts_is(kvshm__mend_lock(kv), 0);
    ck_assert_uint_eq(kvshm__frames_sweep(kv, 0), 3);
    kvshm__mend_unlock(kv);
    ck_assert_uint_eq(KVSHM__LOAD(word), KVSHM__RESERVATION_EMPTY);
    in_audit(kv);
    ts_detach(kv);
}
END_TEST

/* Frames of what was cancelled are had by whoever needs them, words too. */
START_TEST(test_cancelled_is_had_when_needed)
{
    kvshm *kv = in_create(4, FRAMES, 4);
    struct kvshm_reservation r[4], all;

    for (unsigned i = 0; i < 4; i++)
        ts_is(kvshm_reserve(kv, 3, 0, &r[i]), 0);
    ts_is(kvshm_reserve(kv, 1, 0, &all), KVSHM_E_LEASES);
    kvshm_cancel(kv, &r[1]);
    ts_is(kvshm_reserve(kv, 4, 0, &all), -ENOSPC);
    ts_is(kvshm_reserve(kv, 3, 0, &r[1]), 0);
    for (unsigned i = 0; i < 4; i++)
        kvshm_cancel(kv, &r[i]);
    ts_is(kvshm_reserve(kv, FRAMES, 0, &all), 0);
    in_audit(kv);
    kvshm_cancel(kv, &all);
    ts_detach(kv);
}
END_TEST

/* ---- The dead --------------------------------------------------------------------------------------------------- */

static struct ts_gate ready;
static uint64_t *child_number;

/* Reserve two frames, two more for a device, and wait to be killed. */
static int reserve_and_wait(void *arg)
{
    struct kvshm_reservation r[2];
    kvshm *kv;

    (void)arg;
    ts_need(kvshm_attach("inside", NULL, 0, &kv) == 0);
    ts_need(kvshm_reserve(kv, 2, 0, &r[0]) == 0);
    ts_need(kvshm_reserve(kv, 2, KVSHM_DEVICE, &r[1]) == 0);
    *child_number = kv->client;
    ts_gate_open(&ready);
    pause();
    return 0;
}

static pid_t reserver(void)
{
    pid_t pid;

    child_number = ts_shared(sizeof(*child_number));
    ts_gate_make(&ready);
    pid = ts_fork(reserve_and_wait, NULL);
    ck_assert(ts_gate_wait(&ready));
    return pid;
}

static uint64_t sweep(kvshm *kv, uint64_t device)
{
    uint64_t back;

    ts_is(kvshm__mend_lock(kv), 0);
    back = kvshm__frames_sweep(kv, device);
    kvshm__mend_unlock(kv);
    in_audit(kv);
    return back;
}

START_TEST(test_sweep_takes_from_the_dead_alone)
{
    kvshm *kv = in_create(4, FRAMES, 4);
    struct kvshm_reservation mine;
    pid_t pid = reserver();

    ts_is(kvshm_reserve(kv, 3, 0, &mine), 0);
    ck_assert(!kvshm__frames_sweep_worth(kv));
    ck_assert_uint_eq(sweep(kv, *child_number), 0);
    ts_kill(pid);
    ck_assert(kvshm__frames_sweep_worth(kv));
    ck_assert_uint_eq(sweep(kv, 0), 2);
    ck_assert(!kvshm__frames_sweep_worth(kv)); /* it is not asked about again */
    ck_assert_uint_eq(sweep(kv, 0), 0);
    ck_assert_uint_eq(sweep(kv, *child_number + 1), 0);
    ck_assert_uint_eq(sweep(kv, *child_number), 2);
    ck_assert_uint_eq(reserved(kv), 3);
    kvshm_cancel(kv, &mine);
    ts_detach(kv);
}
END_TEST

START_TEST(test_sweep_lets_be_whom_a_living_one_joined)
{
    kvshm *kv = in_create(4, FRAMES, 4), *rank = in_attach();
    pid_t pid = reserver();

    ts_is(kvshm_join(rank, *child_number), 0);
    ts_kill(pid);
    ck_assert(!kvshm__frames_sweep_worth(kv));
    ck_assert_uint_eq(sweep(kv, *child_number), 0);
    ts_is(kvshm_leave(rank, *child_number), 0);
    ck_assert(kvshm__frames_sweep_worth(kv));
    ck_assert_uint_eq(sweep(kv, 0), 2);
    ts_detach(rank);
    ts_detach(kv);
}
END_TEST

/* The place of a dead client may be another's by now; its frames are told by their number all the same. */
START_TEST(test_sweep_needs_no_place_of_the_dead)
{
    kvshm *kv = locked();
    uint64_t dead = in_dead_number(kv);

    kvshm__frames_take(kv, kvshm__owner_reserved(KVSHM__OWNER_RESERVED, dead, 2));
    kvshm__frames_take(kv, kvshm__owner_reserved(KVSHM__OWNER_RESERVED, dead, 0xffff));
    KVSHM__STORE(&kv->header->sweep_wanted, 1);
    ck_assert(kvshm__frames_sweep_worth(kv));
    ck_assert_uint_eq(kvshm__frames_sweep(kv, 0), 2);
    ck_assert_uint_eq(in_free(kv), FRAMES);
    unlock_and_detach(kv);
}
END_TEST

START_TEST(test_reap_gives_a_killed_ones_frames_to_who_needs_them)
{
    kvshm *kv = in_create(4, FRAMES, 4);
    struct kvshm_reservation r;
    pid_t pid = reserver();

    ts_is(kvshm_reserve(kv, FRAMES - 3, 0, &r), -ENOSPC);
    ts_kill(pid);
    ts_is(kvshm_reserve(kv, FRAMES - 2, 0, &r), 0); /* but not the device's */
    in_audit(kv);
    kvshm_cancel(kv, &r);
    ts_detach(kv);
}
END_TEST

/* ---- The rebuild ------------------------------------------------------------------------------------------------ */

START_TEST(test_rebuild_counts_what_owner_words_say)
{
    kvshm *kv = in_create(4, FRAMES, 4);
    struct kvshm_derived *d = &kv->header->derived;
    struct kvshm_reservation r[2];

    in_put(kv, 0, 10);
    ts_is(kvshm_reserve(kv, 2, 0, &r[0]), 0);
    ts_is(kvshm_reserve(kv, 1, KVSHM_DEVICE, &r[1]), 0);
    ts_is(kvshm__mend_lock(kv), 0);
    KVSHM__STORE(&d->free_frame1, 1);
    KVSHM__STORE(&d->fresh_frame, 1);
    KVSHM__STORE(&d->frames_free, 0);
    KVSHM__STORE(&d->frames_reserved, 0);
    KVSHM__STORE(&kv->clients[kv->place].device_frames, 0);
    KVSHM__STORE(&kv->header->sweep_wanted, 0);
    kvshm__frames_rebuild(kv);
    kvshm__mend_unlock(kv);
    ck_assert_uint_eq(in_free(kv), FRAMES - 6);
    ck_assert_uint_eq(reserved(kv), 3);
    ck_assert(kvshm__frames_sweep_worth(kv)); /* what the dead one had to sweep is swept */
    in_audit(kv);
    kvshm_cancel(kv, &r[0]);
    kvshm_cancel(kv, &r[1]);
    ts_detach(kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("frames");
    TCase *tcase = tcase_create("frames");
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_owner_words_hold_what_is_put_in);
    tcase_add_test(tcase, test_each_frame_is_taken_once);
    tcase_add_loop_test(tcase, test_damaged_list_gives_no_frame_twice, 0, 3);
    tcase_add_test(tcase, test_device_frames_are_counted_with_their_client);
    tcase_add_test(tcase, test_reservation_words_are_given_once);
    tcase_add_test(tcase, test_f2_no_frame_names_an_empty_word);
    tcase_add_test(tcase, test_f2_swept_words_are_emptied_by_the_next_sweep);
    tcase_add_test(tcase, test_cancelled_is_had_when_needed);
    tcase_add_test(tcase, test_sweep_takes_from_the_dead_alone);
    tcase_add_test(tcase, test_sweep_lets_be_whom_a_living_one_joined);
    tcase_add_test(tcase, test_sweep_needs_no_place_of_the_dead);
    tcase_add_test(tcase, test_reap_gives_a_killed_ones_frames_to_who_needs_them);
    tcase_add_test(tcase, test_rebuild_counts_what_owner_words_say);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
