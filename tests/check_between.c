/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_between.c - what holds between any two stores of a call, and what others do there
 *
 * The library is linked in the build that calls kvshm__step() before each store; there all of it is looked at, or another
 * client clears, sweeps, names a fingerprint, goes or comes.
 */
#include <string.h>

#include "inside.h"
#include "looker.h"

#include "client.h"
#include "frames.h"
#include "mend.h"
#include "pages.h"

static kvshm *at_work; /* whose call it is */
static kvshm *other;   /* who looks, or works, between its stores */

static kvshm *beside(uint64_t frames)
{
    kvshm *kv = in_create(4, frames, 8);

    other = in_attach();
    return kv;
}

static void part(kvshm *kv)
{
    in_audit(kv);
    ts_detach(other);
    ts_detach(kv);
}

/* ---- What holds --------------------------------------------------------------------------------------------------- */

/* Pages are called back root first, and a reservation's word is empty when no frame names it (F2). */
static void look_at_tree(void)
{
    for (uint32_t i = 0; i < at_work->record_count; i++) {
        uint32_t parent = kvshm__pages_parent(at_work, i);

        if (parent != KVSHM__NO_RECORD &&
            kvshm__place_published(KVSHM__LOAD(&at_work->records[i].place)))
            ck_assert(kvshm__place_published(KVSHM__LOAD(&at_work->records[parent].place)));
    }
    for (uint32_t i = 0; i < at_work->frame_count; i++) {
        uint64_t owner = KVSHM__LOAD(&at_work->owners[i].owner);

        if (kvshm__owner_kind(owner) == KVSHM__OWNER_RESERVED)
            ck_assert_uint_ne(
                KVSHM__LOAD(&kvshm__own_reservations(at_work)[kvshm__owner_word(owner)]),
                KVSHM__RESERVATION_EMPTY);
    }
}

START_TEST(test_what_is_called_back_comes_root_first)
{
    kvshm *kv = at_work = in_create(4, 16, 8);
    struct kvshm_prefix old = in_range(0, 14), prefix = in_range(0, 22);
    struct kvshm_lease lease;
    struct kvshm_reservation r;

    ts_is(in_insert(kv, &old, NULL, 0), 0);
    ts_is(kvshm_lookup(kv, &old, 0, &lease), 0);
    ts_is(kvshm_remove(kv, &old), 0);
    ts_is(in_fill(kv, &prefix, NULL, &r), 0); /* three of its pages are in limbo: their frames go back */
    WATCHED(look_at_tree, ts_is(kvshm_insert(kv, &prefix, NULL, &r, 0), 0));
    ck_assert_uint_eq(in_counter(kv, KVSHM__CNT_recalled_pages), 3);
    kvshm_release(kv, &lease);
    in_audit(kv);
    ts_detach(kv);
}
END_TEST

/* A device frame is counted with its client before it is its own: the place is kept for it whenever the client dies. */
static void look_at_device_frames(void)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < at_work->frame_count; i++)
        n += kvshm__owner_kind(KVSHM__LOAD(&at_work->owners[i].owner)) == KVSHM__OWNER_DEVICE;
    ck_assert_uint_le(n, KVSHM__LOAD(&at_work->clients[at_work->place].device_frames));
}

START_TEST(test_device_frames_are_counted_first)
{
    kvshm *kv = at_work = in_create(4, 8, 8);
    struct kvshm_reservation r;

    WATCHED(look_at_device_frames, ts_is(kvshm_reserve(kv, 3, KVSHM_DEVICE, &r), 0));
    kvshm_cancel(kv, &r);
    ts_detach(kv);
}
END_TEST

/* A word that is free has no tag: whoever claims it may set its own at once. */
static void look_at_tags(void)
{
    for (uint32_t i = 0; i < at_work->max_leases; i++) {
        const struct kvshm_lease_word *own = &kvshm__own_leases(at_work)[i];

        ck_assert(KVSHM__LOAD((kvshm_a64 *)&own->word) != 0 ||
                  (KVSHM__LOAD((kvshm_a32 *)&own->tag) == 0 &&
                   KVSHM__LOAD((kvshm_a64 *)&own->tag_ns) == 0));
    }
}

START_TEST(test_a_tag_goes_before_its_word)
{
    kvshm *kv = at_work = in_create(4, 8, 8);
    struct kvshm_prefix prefix = in_range(0, 4);
    struct kvshm_lease lease;

    in_put(kv, 0, 4);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), 0);
    kvshm_lease_tag(&lease, 5);
    WATCHED(look_at_tags, kvshm_release(kv, &lease));
    ts_detach(kv);
}
END_TEST

/* Nothing of the lock is stored after it was given back. */
static uint64_t turn_before;

static void look_at_turn(void)
{
    ck_assert(KVSHM__LOAD(&at_work->header->lock.word) != 0 ||
              KVSHM__LOAD(&at_work->header->lock.turn) != turn_before);
}

START_TEST(test_w1_the_turn_ends_before_the_lock_is_free)
{
    kvshm *kv = at_work = in_create(4, 8, 8);

    ts_is(kvshm__mend_lock(kv), 0);
    turn_before = KVSHM__LOAD(&kv->header->lock.turn);
    looker = look_at_turn;
    kvshm__mend_unlock(kv);
    looker = NULL;
    ck_assert_uint_eq(KVSHM__LOAD(&kv->header->lock.turn), turn_before + 1);
    ts_detach(kv);
}
END_TEST

/* ---- Before the lock is had ------------------------------------------------------------------------------------- */

static void (*meanwhile)(void);

static void once(void)
{
    if (looks == 1)
        meanwhile();
}

#define BEFORE_THE_LOCK(fn, call) \
    do {                          \
        meanwhile = (fn);         \
        looks = 0;                \
        looker = once;            \
        call;                     \
        looker = NULL;            \
        ck_assert_uint_ge(looks, 1); \
    } while (0)

static struct kvshm_config naming(uint8_t fingerprint)
{
    struct kvshm_config config;

    kvshm_config_init(&config);
    memset(config.fingerprint, fingerprint, sizeof(config.fingerprint));
    return config;
}

static void name_a_fingerprint(void)
{
    struct kvshm_config config = naming(7);
    kvshm *kv;

    ts_is(kvshm_attach("inside", &config, 0, &kv), 0);
    ts_detach(kv);
}

static void clear_it(void)
{
    ts_is(kvshm_clear(other), 0);
}

/* What was asked before the lock is asked again under it. */
START_TEST(test_what_changes_before_the_lock_is_had)
{
    kvshm *kv = beside(16), *third;
    struct kvshm_prefix prefix = in_range(0, 7);
    struct kvshm_config config = naming(8);
    struct kvshm_reservation r;
    int code;

    BEFORE_THE_LOCK(clear_it, ts_is(in_fill(kv, &prefix, NULL, &r), 0));
    ts_is(kvshm_insert(kv, &prefix, NULL, &r, 0), 0); /* it was reserved after the clear */
    ts_is(kvshm_clear(kv), 0);
    if (_i == 0) {
        BEFORE_THE_LOCK(name_a_fingerprint, code = kvshm_attach("inside", &config, 0, &third));
        ts_is(code, KVSHM_E_FINGERPRINT);
    } else {
        ts_is(in_fill(kv, &prefix, NULL, &r), 0);
        BEFORE_THE_LOCK(name_a_fingerprint, code = kvshm_insert(kv, &prefix, NULL, &r, 0));
        ts_is(code, KVSHM_E_FINGERPRINT);
        kvshm_cancel(kv, &r);
    }
    part(kv);
}
END_TEST

/* ---- Clients that go while a sweep runs ------------------------------------------------------------------------- */

static kvshm *leaving, *coming;
static unsigned goes_at; /* the store of the sweep before which they go */

/* The client whose frames are swept gives its place back, and another takes it, and clears its words. */
static void go_and_come(void)
{
    if (looks != goes_at)
        return;
    ts_detach(leaving);
    leaving = NULL;
    coming = in_attach();
}

/* F2: all frames of the cancelled reservation are had, by that sweep or by the next; so they are after a rebuild. */
START_TEST(test_f2_a_client_goes_during_the_sweep_of_its_frames)
{
    unsigned flags = _i % 2 ? KVSHM_DEVICE : 0;

    for (goes_at = 1;; goes_at++) {
        kvshm *kv = in_create(4, 4, 8);
        struct kvshm_reservation r;

        leaving = in_attach();
        coming = NULL;
        ts_is(kvshm_reserve(leaving, 3, flags, &r), 0);
        kvshm_cancel(leaving, &r);
        KVSHM__STORE(&kv->header->settings.stall_ms, 0); /* one thread plays both: leaving does not wait */
        ts_is(kvshm__mend_lock(kv), 0);
        if (_i < 2)
            WATCHED(go_and_come, kvshm__frames_sweep(kv, 0));
        else
            WATCHED(go_and_come, kvshm__frames_rebuild(kv));
        kvshm__mend_unlock(kv);
        ts_is(kvshm_reserve(kv, 4, 0, &r), 0);
        kvshm_cancel(kv, &r);
        in_audit(kv);
        ts_detach(coming ? coming : leaving);
        ts_detach(kv);
        ts_is(kvshm_unlink("inside", 0), 0);
        if (looks < goes_at)
            break;
    }
}
END_TEST

static void sweep_now(void)
{
    if (looks != goes_at)
        return;
    ts_is(kvshm__mend_lock(other), 0);
    kvshm__frames_sweep(other, 0);
    kvshm__mend_unlock(other);
}

/* F2: what is cancelled while another sweeps is had by that sweep or by the next. */
START_TEST(test_f2_a_sweep_at_any_store_of_a_cancel)
{
    for (goes_at = 1;; goes_at++) {
        kvshm *kv = beside(4);
        struct kvshm_reservation r;

        ts_is(kvshm_reserve(kv, 3, 0, &r), 0);
        looks = 0;
        looker = sweep_now;
        kvshm_cancel(kv, &r);
        looker = NULL;
        ts_is(kvshm_reserve(other, 4, 0, &r), 0);
        kvshm_cancel(other, &r);
        part(kv);
        ts_is(kvshm_unlink("inside", 0), 0);
        if (looks < goes_at)
            break;
    }
}
END_TEST

static uint64_t the_dead;

static int reserve_and_die(void *arg)
{
    uint64_t *number = arg;
    struct kvshm_reservation r;
    kvshm *kv;

    ts_need(kvshm_attach("inside", NULL, 0, &kv) == 0);
    ts_need(kvshm_reserve(kv, 3, 0, &r) == 0);
    *number = kv->client;
    return 0;
}

/* Of one who joins the dead and has not looked yet whether it lives: its word is there for a moment. */
static void join_for_a_moment(void)
{
    if (looks == 1)
        KVSHM__STORE(&other->clients[other->place].joins[0], the_dead);
}

/* A sweep that found the dead alone, and then joined, leaves its frames to the next, which is worth while. */
START_TEST(test_a_join_that_will_be_refused_delays_the_sweep)
{
    kvshm *kv = beside(4);
    uint64_t *number = ts_shared(sizeof(*number));
    struct kvshm_reservation r;

    ck_assert_int_eq(ts_wait(ts_fork(reserve_and_die, number)), 0);
    the_dead = *number;
    KVSHM__STORE(&kv->header->sweep_wanted, 0);
    ts_is(kvshm__mend_lock(kv), 0);
    looks = 0;
    looker = join_for_a_moment;
    ck_assert_uint_eq(kvshm__frames_sweep(kv, 0), 0);
    looker = NULL;
    KVSHM__STORE(&other->clients[other->place].joins[0], 0);
    ck_assert(kvshm__frames_sweep_worth(kv));
    kvshm__mend_unlock(kv);
    ts_is(kvshm_reserve(kv, 4, 0, &r), 0);
    kvshm_cancel(kv, &r);
    part(kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("between");
    TCase *tcase = tcase_create("between");

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_what_is_called_back_comes_root_first);
    tcase_add_test(tcase, test_device_frames_are_counted_first);
    tcase_add_test(tcase, test_a_tag_goes_before_its_word);
    tcase_add_test(tcase, test_w1_the_turn_ends_before_the_lock_is_free);
    tcase_add_loop_test(tcase, test_what_changes_before_the_lock_is_had, 0, 2);
    tcase_add_test(tcase, test_f2_a_sweep_at_any_store_of_a_cancel);
    tcase_add_test(tcase, test_a_join_that_will_be_refused_delays_the_sweep);
    tcase_add_loop_test(tcase, test_f2_a_client_goes_during_the_sweep_of_its_frames, 0, 4);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
