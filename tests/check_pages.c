/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_pages.c - page records: the tree, its jumps, texts and places (pages.h: P1 to P3)
 */
#include <stdlib.h>
#include <string.h>

#include "inside.h"

#include "mend.h"
#include "pages.h"

static kvshm *locked(uint32_t page_tokens, uint64_t frames)
{
    kvshm *kv = in_create(page_tokens, frames, 4);

    ts_is(kvshm__mend_lock(kv), 0);
    return kv;
}

/* The records are made by hand, without frames: nothing is audited. */
static void unlock_and_detach(kvshm *kv)
{
    kvshm__mend_unlock(kv);
    ts_detach(kv);
}

static const uint32_t some_tokens[256] = {1, 2, 3, 4};

/* A page of so many tokens below parent, written and not settled. */
static uint32_t page_below(kvshm *kv, uint32_t parent, uint32_t m)
{
    struct kvshm__page_spec spec = {.parent = parent, .length = m, .tokens = some_tokens};
    uint32_t record = kvshm__pages_take(kv);

    ck_assert_uint_ne(record, KVSHM__NO_RECORD);
    kvshm__pages_write(kv, record, &spec);
    return record;
}

static uint32_t chain(kvshm *kv, uint32_t n)
{
    uint32_t record = KVSHM__NO_RECORD;

    while (n-- > 0)
        record = page_below(kv, record, kv->page_tokens);
    return record;
}

static enum kvshm_place_state state_of(const kvshm *kv, uint32_t record)
{
    return kvshm__place_state(KVSHM__LOAD(&kv->records[record].place));
}

static uint32_t moves_of(const kvshm *kv, uint32_t record)
{
    return (uint32_t)(KVSHM__LOAD(&kv->records[record].place) >> 32);
}

/* ---- The tree --------------------------------------------------------------------------------------------------- */

static uint32_t plain_ancestor(const kvshm *kv, uint32_t record, uint32_t depth)
{
    while (record != KVSHM__NO_RECORD && KVSHM__LOAD(&kv->records[record].depth) > depth)
        record = kvshm__pages_parent(kv, record);
    return record;
}

/* Jumps lead where a plain walk leads, in any forest, to every depth. */
START_TEST(test_ancestor_is_that_of_a_plain_walk)
{
    const uint32_t n = 400;
    kvshm *kv = locked(4, n);
    uint64_t chance = ts_seed() + (uint64_t)_i;

    for (uint32_t i = 0; i < n; i++) {
        /* long chains with branches: most pages go below a young one */
        uint32_t parent = i == 0 || ts_random(&chance, 60) == 0 ? KVSHM__NO_RECORD
                          : ts_random(&chance, 10) == 0         ? (uint32_t)ts_random(&chance, i)
                                                                : i - 1;
        ck_assert_uint_eq(page_below(kv, parent, 4), i);
    }
    for (uint32_t record = 0; record < n; record++) {
        uint32_t depth = KVSHM__LOAD(&kv->records[record].depth);

        for (uint32_t d = 0; d <= depth; d++)
            ck_assert_uint_eq(kvshm__pages_ancestor(kv, record, d), plain_ancestor(kv, record, d));
        ck_assert_uint_eq(kvshm__pages_ancestor(kv, record, depth + 1), KVSHM__NO_RECORD);
    }
    unlock_and_detach(kv);
}
END_TEST

/* Steps of the walk that kvshm__pages_ancestor() makes. */
static uint32_t steps_to(const kvshm *kv, uint32_t record, uint32_t depth)
{
    uint32_t steps = 0;

    while (KVSHM__LOAD(&kv->records[record].depth) > depth) {
        uint32_t jump = KVSHM__LOAD(&kv->links[record].jump1) - 1;

        record =
            KVSHM__LOAD(&kv->records[jump].depth) >= depth ? jump : kvshm__pages_parent(kv, record);
        steps++;
    }
    return steps;
}

/* A walk up 4,000 pages takes no more than three times log2 of that: that bound is Myers'. */
START_TEST(test_walk_up_is_logarithmic)
{
    kvshm *kv = locked(4, 4096);
    uint32_t deepest = chain(kv, 4096), most = 0;

    for (uint32_t depth = 0; depth < 4096; depth++) {
        uint32_t steps = steps_to(kv, deepest, depth);

        most = steps > most ? steps : most;
        ck_assert_uint_eq(kvshm__pages_ancestor(kv, deepest, depth), depth);
    }
    ck_assert_uint_le(most, 3 * 12);
    unlock_and_detach(kv);
}
END_TEST

/* P1: a link whose sequence differs leads nowhere. P2: nor does one whose depth does not grow by one. */
START_TEST(test_p1_p2_wrong_links_lead_nowhere)
{
    kvshm *kv = locked(4, 8);
    uint32_t deepest = chain(kv, 3), parent = kvshm__pages_parent(kv, deepest);
    struct kvshm_record *r = &kv->records[parent];

    ck_assert_uint_eq(parent, 1);
    KVSHM__STORE(&r->seq, KVSHM__LOAD(&r->seq) + 2);
    ck_assert_uint_eq(kvshm__pages_parent(kv, deepest), KVSHM__NO_RECORD);
    KVSHM__STORE(&r->seq, KVSHM__LOAD(&r->seq) - 2);
    KVSHM__STORE(&r->depth, 2);
    ck_assert_uint_eq(kvshm__pages_parent(kv, deepest), KVSHM__NO_RECORD);
    KVSHM__STORE(&r->depth, 1);
    ck_assert_uint_eq(kvshm__pages_parent(kv, deepest), parent);
    KVSHM__STORE(&kv->records[deepest].parent1, 9); /* beyond the table */
    ck_assert_uint_eq(kvshm__pages_parent(kv, deepest), KVSHM__NO_RECORD);
    unlock_and_detach(kv);
}
END_TEST

/* Damage in links and jumps, whatever it is: a page of the depth asked for, or none, in bounded time. */
START_TEST(test_damaged_links_are_no_circle)
{
    kvshm *kv = locked(4, 64);
    uint64_t chance = ts_seed();
    uint32_t deepest = chain(kv, 64);

    for (unsigned i = 0; i < 3000; i++) {
        uint32_t victim = (uint32_t)ts_random(&chance, 64);
        struct kvshm_record *r = &kv->records[victim];
        uint32_t depth = (uint32_t)ts_random(&chance, 64), got;
        uint32_t wrong = ts_random(&chance, 4) ? (uint32_t)ts_random(&chance, 70)
                                               : (uint32_t)ts_random(&chance, UINT32_MAX);

        switch (ts_random(&chance, 4)) {
        case 0:
            KVSHM__STORE(&kv->links[victim].jump1, wrong);
            break;
        case 1:
            KVSHM__STORE(&r->parent1, wrong);
            break;
        case 2:
            KVSHM__STORE(&r->depth, wrong);
            break;
        default:
            KVSHM__STORE(&r->parent_seq, 2);
        }
        got = kvshm__pages_ancestor(kv, deepest, depth);
        if (got != KVSHM__NO_RECORD) {
            ck_assert_uint_lt(got, 64);
            ck_assert_uint_eq(KVSHM__LOAD(&kv->records[got].depth), depth);
        }
    }
    unlock_and_detach(kv);
}
END_TEST

static bool is_child(const kvshm *kv, uint32_t parent, uint32_t record)
{
    uint32_t child1 = KVSHM__LOAD(&kv->links[parent].child1), n = 0;

    for (; child1 != 0; child1 = KVSHM__LOAD(&kv->links[child1 - 1].next1)) {
        ck_assert_uint_lt(n++, kv->record_count);
        if (child1 - 1 == record)
            return true;
    }
    return false;
}

/* P3: a page is its parent's child from when it is written until its place is given up, in limbo too. */
START_TEST(test_p3_child_until_vacated)
{
    kvshm *kv = locked(4, 16);
    uint32_t root = chain(kv, 1), child[8];
    uint64_t chance = ts_seed();

    for (unsigned i = 0; i < 8; i++) {
        child[i] = page_below(kv, root, 4);
        ck_assert(is_child(kv, root, child[i]));
        kvshm__pages_settle(kv, child[i], child[i]);
        ck_assert(kvshm__pages_take_away(kv, child[i]));
    }
    for (unsigned i = 8; i > 0; i--) {
        uint32_t gone = (uint32_t)ts_random(&chance, i);

        for (unsigned j = 0; j < i; j++)
            ck_assert(is_child(kv, root, child[j]));
        kvshm__pages_vacate(kv, child[gone]);
        ck_assert(!is_child(kv, root, child[gone]));
        child[gone] = child[i - 1];
    }
    ck_assert_uint_eq(KVSHM__LOAD(&kv->links[root].child1), 0);
    unlock_and_detach(kv);
}
END_TEST

/* Which lengths are below is said before the child can be found, and forgotten with the last child. */
START_TEST(test_partial_lengths_are_named)
{
    kvshm *kv = locked(200, 16);
    uint32_t root = chain(kv, 1), part, other;

    page_below(kv, root, 200);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->records[root].partials),
                      0); /* a whole page is no partial one */
    part = page_below(kv, root, 199);
    page_below(kv, KVSHM__NO_RECORD, 1);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->records[root].partials), kvshm__partial_bit(kv, 199));
    ck_assert_uint_eq(KVSHM__LOAD(&kv->header->root_partials), kvshm__partial_bit(kv, 1));
    other = page_below(kv, root, 198);
    kvshm__pages_vacate(kv, part - 1); /* the whole page, last of the list */
    ck_assert_uint_eq(KVSHM__LOAD(&kv->records[root].partials),
                      kvshm__partial_bit(kv, 199) | kvshm__partial_bit(kv, 198));
    kvshm__pages_vacate(kv, other); /* the first */
    ck_assert(KVSHM__LOAD(&kv->records[root].partials) & kvshm__partial_bit(kv, 199));
    kvshm__pages_vacate(kv, part);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->records[root].partials), 0);
    unlock_and_detach(kv);
}
END_TEST

/* Every length has a bit, 64 of them are spread over all. */
START_TEST(test_every_partial_length_has_a_bit)
{
    static const uint32_t page_tokens[] = {2, 64, 65, 66, 129, 200};
    kvshm *kv = in_create(page_tokens[_i], 4, 4);
    uint64_t all = 0, before = 1;

    for (uint32_t m = 1; m < page_tokens[_i]; m++) {
        uint64_t bit = kvshm__partial_bit(kv, m);

        ck_assert_int_eq(__builtin_popcountll(bit), 1);
        ck_assert(bit == before || bit == before
                                              << 1); /* in order: none is used again further up */
        all |= before = bit;
    }
    ck_assert_int_ge(__builtin_popcountll(all),
                     page_tokens[_i] <= 64 ? (int)page_tokens[_i] - 1 : 33);
    ts_detach(kv);
}
END_TEST

/* ---- Texts ------------------------------------------------------------------------------------------------------ */

/* Each of 1 to 23 tokens counts, adapter and tenant too, and no more than the length says. */
START_TEST(test_texts_are_compared_whole)
{
    kvshm *kv = locked(24, 4);
    uint32_t tokens[24], record = kvshm__pages_take(kv);

    for (uint32_t i = 0; i < 24; i++)
        tokens[i] = 100 + i;
    for (uint32_t m = 1; m <= 24; m++) {
        struct kvshm__page_spec spec = {.parent = KVSHM__NO_RECORD,
                                        .length = m,
                                        .adapter_id = 3,
                                        .tenant = 4,
                                        .tokens = tokens};

        kvshm__pages_write(kv, record, &spec);
        ck_assert(kvshm__text_equal(kv, record, &spec));
        for (uint32_t i = 0; i < 24; i++) {
            for (uint32_t bit = 0; bit < 32; bit += 31) {
                tokens[i] ^= 1u << bit;
                ck_assert_int_eq(kvshm__text_equal(kv, record, &spec), i >= m);
                tokens[i] ^= 1u << bit;
            }
        }
        spec.adapter_id = 4;
        ck_assert(!kvshm__text_equal(kv, record, &spec));
        spec.adapter_id = 3;
        spec.tenant = 3;
        ck_assert(!kvshm__text_equal(kv, record, &spec));
    }
    unlock_and_detach(kv);
}
END_TEST

START_TEST(test_keys_are_compared_whole)
{
    kvshm *kv = locked(1, 4); /* the smallest text has room for a key */
    uint8_t key[KVSHM_KEY_BYTES];
    uint32_t record = kvshm__pages_take(kv);
    struct kvshm__page_spec spec = {
        .parent = KVSHM__NO_RECORD, .length = 1 | KVSHM__KEY_ONLY | KVSHM__KEY_END, .key = key};

    memset(key, 0x5a, sizeof(key));
    kvshm__pages_write(kv, record, &spec);
    ck_assert(kvshm__text_equal(kv, record, &spec));
    for (uint32_t bit = 0; bit < 8 * KVSHM_KEY_BYTES; bit++) {
        key[bit / 8] ^= (uint8_t)(1u << bit % 8);
        ck_assert(!kvshm__text_equal(kv, record, &spec));
        key[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    unlock_and_detach(kv);
}
END_TEST

/* ---- Records and places ----------------------------------------------------------------------------------------- */

/* Each record once; a list that leads astray gives none that is in use. */
START_TEST(test_each_record_is_taken_once)
{
    kvshm *kv = locked(4, 8);
    bool taken[8] = {false};

    for (unsigned i = 0; i < 8; i++) {
        uint32_t record = page_below(kv, KVSHM__NO_RECORD, 4);

        ck_assert(!taken[record]);
        taken[record] = true;
        kvshm__pages_settle(kv, record, record);
    }
    ck_assert_uint_eq(kvshm__pages_take(kv), KVSHM__NO_RECORD);
    KVSHM__STORE(&kv->header->derived.free_record1, 3);
    ck_assert_uint_eq(kvshm__pages_take(kv), KVSHM__NO_RECORD);
    KVSHM__STORE(&kv->header->derived.free_record1, 900);
    ck_assert_uint_eq(kvshm__pages_take(kv), KVSHM__NO_RECORD);
    KVSHM__STORE(&kv->header->derived.fresh_record, 2);
    ck_assert_uint_eq(kvshm__pages_take(kv), KVSHM__NO_RECORD);
    kvshm__pages_take_away(kv, 5);
    kvshm__pages_vacate(kv, 5);
    kvshm__pages_give(kv, 5);
    ck_assert_uint_eq(kvshm__pages_take(kv), 5);
    unlock_and_detach(kv);
}
END_TEST

/* A sequence that was left odd is odd while its record is written, and even after. */
START_TEST(test_damaged_sequence_is_mended_by_writing)
{
    kvshm *kv = locked(4, 8);
    uint32_t record = page_below(kv, KVSHM__NO_RECORD, 4);

    kvshm__pages_settle(kv, record, record);
    kvshm__pages_take_away(kv, record);
    kvshm__pages_vacate(kv, record);
    KVSHM__STORE(&kv->records[record].seq, KVSHM__LOAD(&kv->records[record].seq) + 1);
    kvshm__pages_give(kv, record);
    uint64_t next = kvshm__pages_next_seq(kv, record);
    ck_assert_uint_eq(page_below(kv, KVSHM__NO_RECORD, 4), record);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->records[record].seq), next);
    ck_assert_uint_eq(next & 1, 0);
    unlock_and_detach(kv);
}
END_TEST

/* A record that is written again has another sequence, another page id, and nothing of the page before. */
START_TEST(test_record_written_again_is_another_page)
{
    kvshm *kv = locked(4, 8);
    uint32_t record = page_below(kv, KVSHM__NO_RECORD, 4), child = page_below(kv, record, 2);
    struct kvshm_record *r = &kv->records[record];
    uint64_t seq = KVSHM__LOAD(&r->seq), id = KVSHM__LOAD(&r->page_id[1]);

    ck_assert_uint_eq(seq % 2, 0);
    ck_assert_uint_eq(kvshm__pages_next_seq(kv, record), seq + 2);
    KVSHM__STORE(&kv->records[record].stamp, 77);
    {
        struct kvshm__page_spec spec = {
            .parent = KVSHM__NO_RECORD, .length = 3, .tokens = some_tokens, .hash = 9};
        kvshm__pages_write(kv, record, &spec);
    }
    ck_assert_uint_eq(KVSHM__LOAD(&r->seq), seq + 2);
    ck_assert_uint_gt(KVSHM__LOAD(&r->page_id[1]), id);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->records[record].stamp), 0);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->records[record].hash), 9);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->links[record].child1), 0);
    ck_assert_uint_eq(KVSHM__LOAD(&r->partials), 0);
    ck_assert_uint_eq(KVSHM__LOAD(&r->length), 3);
    ck_assert_uint_eq(kvshm__pages_parent(kv, child), KVSHM__NO_RECORD); /* P1 */
    unlock_and_detach(kv);
}
END_TEST

/* Each move counts one on, and is only made from where it may be; counts of the arena follow. */
START_TEST(test_places_move_as_they_may)
{
    kvshm *kv = locked(4, 8);
    uint32_t record = page_below(kv, KVSHM__NO_RECORD, 4);
    kvshm_a64 *place = &kv->records[record].place;

    ck_assert_int_eq(state_of(kv, record), KVSHM__PLACE_NONE);
    ck_assert(!kvshm__pages_take_away(kv, record));
    kvshm__pages_settle(kv, record, 6);
    ck_assert_int_eq(state_of(kv, record), KVSHM__PLACE_RESIDENT);
    ck_assert_uint_eq(kvshm__place_frame(KVSHM__LOAD(place)), 6);
    ck_assert_uint_eq(moves_of(kv, record), 1);
    ck_assert_uint_eq(in_pages(kv), 1);
    ck_assert(kvshm__pages_take_away(kv, record));
    ck_assert(!kvshm__pages_take_away(kv, record));
    ck_assert_int_eq(state_of(kv, record), KVSHM__PLACE_AWAY);
    ck_assert_uint_eq(moves_of(kv, record), 2);
    ck_assert_uint_eq(in_limbo(kv), 1);
    kvshm__pages_recall(kv, record);
    ck_assert_int_eq(state_of(kv, record), KVSHM__PLACE_RESIDENT);
    ck_assert_uint_eq(kvshm__place_frame(KVSHM__LOAD(place)), 6);
    ck_assert_uint_eq(moves_of(kv, record), 3);
    ck_assert_uint_eq(in_pages(kv), 1);
    KVSHM__STORE(place, KVSHM__LOAD(place) + (UINT64_C(1) << 28)); /* LEAVING */
    ck_assert_int_eq(state_of(kv, record), KVSHM__PLACE_LEAVING);
    ck_assert(kvshm__place_published(KVSHM__LOAD(place)));
    ck_assert(kvshm__pages_take_away(kv, record));
    ck_assert_uint_eq(moves_of(kv, record), 4);
    kvshm__pages_vacate(kv, record);
    ck_assert_int_eq(state_of(kv, record), KVSHM__PLACE_NONE);
    ck_assert_uint_eq(moves_of(kv, record), 5);
    ck_assert_uint_eq(in_pages(kv) + in_limbo(kv), 0);
    unlock_and_detach(kv);
}
END_TEST

/* The count of moves is not reset when the record is written again, nor does it spill when it wraps. */
START_TEST(test_count_of_moves_is_never_reset)
{
    kvshm *kv = locked(4, 8);
    uint32_t record = page_below(kv, KVSHM__NO_RECORD, 4);

    KVSHM__STORE(&kv->records[record].place, UINT64_C(0xffffffff) << 32);
    kvshm__pages_settle(kv, record, 7);
    ck_assert_uint_eq(moves_of(kv, record), 0);
    ck_assert_int_eq(state_of(kv, record), KVSHM__PLACE_RESIDENT);
    ck_assert_uint_eq(kvshm__place_frame(KVSHM__LOAD(&kv->records[record].place)), 7);
    kvshm__pages_take_away(kv, record);
    kvshm__pages_vacate(kv, record);
    kvshm__pages_give(kv, record);
    ck_assert_uint_eq(page_below(kv, KVSHM__NO_RECORD, 4), record);
    ck_assert_uint_eq(moves_of(kv, record), 2);
    unlock_and_detach(kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pages");
    TCase *tcase = tcase_create("pages");
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_loop_test(tcase, test_ancestor_is_that_of_a_plain_walk, 0, 4);
    tcase_add_test(tcase, test_walk_up_is_logarithmic);
    tcase_add_test(tcase, test_p1_p2_wrong_links_lead_nowhere);
    tcase_add_test(tcase, test_damaged_links_are_no_circle);
    tcase_add_test(tcase, test_p3_child_until_vacated);
    tcase_add_test(tcase, test_partial_lengths_are_named);
    tcase_add_loop_test(tcase, test_every_partial_length_has_a_bit, 0, 6);
    tcase_add_test(tcase, test_texts_are_compared_whole);
    tcase_add_test(tcase, test_keys_are_compared_whole);
    tcase_add_test(tcase, test_each_record_is_taken_once);
    tcase_add_test(tcase, test_damaged_sequence_is_mended_by_writing);
    tcase_add_test(tcase, test_record_written_again_is_another_page);
    tcase_add_test(tcase, test_places_move_as_they_may);
    tcase_add_test(tcase, test_count_of_moves_is_never_reset);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
