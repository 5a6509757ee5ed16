/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_rebuild.c - the rebuild of what is damaged: nothing wrong is found afterwards, and nothing whole is lost
 */
#include "inside.h"

#include "index.h"
#include "mend.h"

static void rebuild(kvshm *kv)
{
    ts_is(kvshm__mend_lock(kv), 0);
    kvshm__mend_rebuild(kv);
    kvshm__mend_unlock(kv);
}

static void set_place(kvshm *kv, uint32_t record, enum kvshm_place_state state, uint32_t frame)
{
    kvshm_a64 *place = &kv->records[record].place;

    KVSHM__STORE(place, KVSHM__LOAD(place) >> 32 << 32 | (uint64_t)state << 28 | frame);
}

/* What is damaged goes, with all below it, also if the parent's record is the later one; what is whole stays. */
START_TEST(test_rebuild_takes_away_what_is_damaged)
{
    kvshm *kv = in_create(4, 16, 8);
    struct kvshm_prefix chain, kept, one;
    uint32_t end, middle, root;

    in_put(kv, 100, 8);
    in_put(kv, 200, 4);
    in_put(kv, 300, 4);
    in_put(kv, 400, 4);
    for (uint32_t first = 200; first <= 400; first += 100) { /* the later a record, the earlier it is used again */
        one = in_range(first, 4);
        ts_is(kvshm_remove(kv, &one), 0);
    }
    chain = in_range(0, 12);
    kept = in_range(100, 8);
    ts_is(in_insert(kv, &chain, NULL, 0), 0);
    end = in_record(kv, &chain);
    middle = kvshm__pages_parent(kv, end);
    root = kvshm__pages_parent(kv, middle);
    ck_assert_uint_gt(root, middle);
    ck_assert_uint_gt(middle, end);
    switch (_i) {
    case 0: /* its frame is not its own */
        KVSHM__STORE(&kv->owners[kvshm__place_frame(KVSHM__LOAD(&kv->records[root].place))].owner,
                     KVSHM__OWNER_FREE);
        break;
    case 1: /* no state of a place */
        set_place(kv, root, 9, kvshm__place_frame(KVSHM__LOAD(&kv->records[root].place)));
        break;
    case 2: /* a root that says it is none */
        KVSHM__STORE(&kv->records[root].depth, 5);
        break;
    case 3: /* away, with published pages below */
        set_place(kv, root, KVSHM__PLACE_AWAY,
                  kvshm__place_frame(KVSHM__LOAD(&kv->records[root].place)));
        break;
    default: /* not found by the index */
        KVSHM__STORE(kvshm__index_word_of(kv, root), 0);
    }
    rebuild(kv);
    in_audit_swept(kv);
    in_miss(kv, &chain);
    in_hit(kv, &kept);
    ck_assert_uint_eq(in_free(kv), 14);
    ts_detach(kv);
}
END_TEST

/* A held page that is away, whose place names the frame of another, is not held on to; least of all does it get it. */
START_TEST(test_rebuild_gives_no_frame_of_the_living_away)
{
    kvshm *kv = in_create(4, 8, 8);
    struct kvshm_prefix prefix = in_range(0, 4);
    struct kvshm_reservation r;
    struct kvshm_lease lease;

    in_put(kv, 0, 4);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), 0);
    ts_is(kvshm_remove(kv, &prefix), 0);
    ts_is(kvshm_reserve(kv, 2, 0, &r), 0);
    set_place(kv, lease.page, KVSHM__PLACE_AWAY, r.frames[1]);
    rebuild(kv);
    ck_assert_uint_eq(in_limbo(kv), 0);
    ck_assert_ptr_null(kvshm_lease_page(&lease, 0));
    prefix = in_range(50, 8);
    ts_is(kvshm_insert(kv, &prefix, NULL, &r, 0), 0); /* all its frames are still its own */
    kvshm_release(kv, &lease); /* of a page that is no more: its word is free all the same */
    in_audit_swept(kv);
    ts_detach(kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rebuild");
    TCase *tcase = tcase_create("rebuild");

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_loop_test(tcase, test_rebuild_takes_away_what_is_damaged, 0, 5);
    tcase_add_test(tcase, test_rebuild_gives_no_frame_of_the_living_away);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
