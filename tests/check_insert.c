/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_insert.c - reserved frames become the pages of an entry (insert.h: I1 to I4)
 * What readers see meanwhile is looked at in check_readers.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

#include "evict.h"
#include "frames.h"
#include "lease.h"
#include "mend.h"
#include "reap.h"
#include "tokens.h"

/* ---- I2: nothing twice --------------------------------------------------------------------------------------------- */

static bool seen_by(kvshm *kv, const struct kvshm_prefix *prefix)
{
    return kvshm_contains(kv, prefix);
}

/* The head was evicted, and stands in limbo: the insert behind it calls it back, root first, the same records. */
START_TEST(test_i2_an_evicted_head_is_called_back)
{
    kvshm *kv = in_create(4, 16, 8);
    struct kvshm_prefix head_prefix = in_range(0, 10), prefix = in_range(0, 15),
                        middle = in_range(0, 8);
    struct kvshm_lease head;
    uint32_t above;

    ts_is(in_insert(kv, &head_prefix, NULL, 0), 0);
    ts_is(kvshm_lookup(kv, &head_prefix, 0, &head), 0);
    above = kvshm__pages_parent(kv, head.page);
    ck_assert_int_eq(kvshm_evict_lru(kv), 0);
    ck_assert_uint_eq(in_limbo(kv), 3);
    ts_is(in_insert(kv, &prefix, &head, 0), 0);
    in_audit(kv);
    ck_assert_uint_eq(in_counter(kv, KVSHM__CNT_recalled_pages),
                      2); /* the partial page stays where it is */
    ck_assert_uint_eq(in_limbo(kv), 1);
    ck_assert_uint_eq(kvshm__pages_ancestor(kv, in_record(kv, &prefix), 1), above);
    ck_assert(!seen_by(kv, &middle));
    ck_assert(!seen_by(kv, &head_prefix));
    in_hit(kv, &prefix);
    ck_assert_uint_eq(in_wrong(&head, &head_prefix), 0);
    kvshm_release(kv, &head);
    kvshm_evict_lru(kv);
    ck_assert_uint_eq(in_free(kv), 16);
    in_audit_swept(kv);
    ts_detach(kv);
}
END_TEST

/* So is a page that is needed without a head, and the own frame goes back. */
START_TEST(test_i2_an_equal_page_in_limbo_is_called_back)
{
    kvshm *kv = in_create(4, 16, 8), *other = in_attach();
    struct kvshm_prefix prefix = in_range(0, 10), longer = in_range(0, 13);
    struct kvshm_lease lease;
    uint32_t record;

    ts_is(in_insert(kv, &prefix, NULL, 0), 0);
    ts_is(kvshm_lookup(other, &prefix, 0, &lease), 0);
    record = lease.page;
    ts_is(kvshm_remove(kv, &prefix), 0);
    ts_is(in_insert(kv, _i ? &longer : &prefix, NULL, 0), 0);
    in_audit(kv);
    if (!_i)
        ck_assert_uint_eq(in_record(kv, &prefix), record);
    ck_assert_uint_eq(in_counter(kv, KVSHM__CNT_recalled_pages), _i ? 2 : 3);
    ck_assert_uint_eq(in_counter(kv, KVSHM__CNT_shared_pages), _i ? 2 : 3);
    ck_assert_uint_eq(in_free(kv), _i ? 11 : 13);
    kvshm_release(other, &lease);
    kvshm_evict_lru(kv);
    ck_assert_uint_eq(in_free(kv), 16);
    in_audit_swept(kv);
    ts_detach(other);
    ts_detach(kv);
}
END_TEST

/* Two clients fill the same pages: the second one's frames go back, and its entry is there. */
START_TEST(test_second_filling_of_a_page_goes_back)
{
    kvshm *kv = in_create(4, 16, 8), *other = in_attach();
    struct kvshm_prefix a = in_range(0, 10), b = in_range(0, 14);
    struct kvshm_reservation of_a, of_b, of_c;

    ts_is(in_fill(kv, &a, NULL, &of_a), 0);
    ts_is(in_fill(other, &a, NULL, &of_b), 0);
    ts_is(in_fill(other, &b, NULL, &of_c), 0);
    ts_is(kvshm_insert(kv, &a, NULL, &of_a, 0), 0);
    ts_is(kvshm_insert(other, &a, NULL, &of_b, 0), KVSHM_EXISTS);
    ck_assert_ptr_null(of_b.kv);
    ts_is(kvshm_insert(other, &b, NULL, &of_c, 0), 0);
    ck_assert_uint_eq(in_pages(kv), 5);
    ck_assert_uint_eq(in_free(kv), 11);
    ck_assert_uint_eq(in_counter(other, KVSHM__CNT_existing_entries), 1);
    in_hit(kv, &a);
    in_hit(kv, &b);
    in_audit_swept(kv);
    ts_detach(other);
    ts_detach(kv);
}
END_TEST

/* ---- Outcomes --------------------------------------------------------------------------------------------------------- */

/* An existing entry is touched; an entry is named where only its pages were. */
START_TEST(test_exists_touches_and_pages_are_named)
{
    kvshm *kv = in_create(4, 16, 8);
    struct kvshm_prefix a = in_range(0, 8), b = in_range(50, 4), head = in_range(0, 4);

    ts_is(in_insert(kv, &a, NULL, 0), 0);
    ts_is(in_insert(kv, &b, NULL, 0), 0);
    ts_is(in_insert(kv, &a, NULL, 0), KVSHM_EXISTS);
    ck_assert_uint_eq(in_free(kv), 13);
    ts_is(in_insert(kv, &head, NULL, 0), 0);
    ck_assert_uint_eq(in_entries(kv), 3);
    ck_assert_uint_eq(in_free(kv), 13);
    in_audit_swept(kv);
    ck_assert_int_eq(kvshm_evict_lru(kv), 1);
    ck_assert(!seen_by(kv, &b));
    ck_assert(seen_by(kv, &a));
    ts_detach(kv);
}
END_TEST

/* The old pages of a replaced key stay with who leased them; all lengths are one entry. */
START_TEST(test_replaced_key_serves_the_new_pages)
{
    kvshm *kv = in_create(4, 16, 8);
    struct kvshm_prefix old_key = in_key(1, 10), new_key = in_key(1, 5), other = in_key(2, 4);
    struct kvshm_lease old_lease;

    ts_is(in_insert(kv, &old_key, NULL, 0), 0);
    ts_is(in_insert(kv, &other, NULL, 0), 0);
    ts_is(kvshm_lookup(kv, &old_key, 0, &old_lease), 0);
    ts_is(in_insert(kv, &new_key, NULL, 0), KVSHM_REPLACED);
    in_audit_swept(kv);
    ck_assert_uint_eq(in_entries(kv), 2);
    ck_assert(!seen_by(kv, &old_key));
    in_hit(kv, &new_key);
    in_hit(kv, &other);
    ck_assert_uint_eq(in_wrong(&old_lease, &old_key), 0);
    ck_assert_uint_eq(in_limbo(kv), 3);
    kvshm_release(kv, &old_lease);
    ts_is(in_insert(kv, &new_key, NULL, 0), KVSHM_REPLACED);
    ck_assert_uint_eq(in_free(kv), 16 - 3);
    ck_assert_uint_eq(in_counter(kv, KVSHM__CNT_replaced_entries), 2);
    in_audit_swept(kv);
    ts_detach(kv);
}
END_TEST

/* HOLD: a lease of the whole prefix, whatever the outcome; what the head held before is let go. */
START_TEST(test_hold_leases_the_whole_prefix)
{
    kvshm *kv = in_create(4, 24, 8);
    struct kvshm_prefix a = in_range(0, 6), b = in_range(0, 10), key = in_key(1, 6);
    struct kvshm_lease head = {0}, again = {0}, of_key = {0};

    ts_is(in_insert(kv, &a, &head, KVSHM_HOLD), 0);
    ck_assert_uint_eq(head.tokens, 6);
    ck_assert_uint_eq(head.pages, 2);
    ck_assert_uint_gt(head.last_used, 0);
    ck_assert_uint_eq(in_wrong(&head, &a), 0);
    ts_is(in_insert(kv, &b, &head, KVSHM_HOLD), 0);
    ck_assert_uint_eq(head.tokens, 10);
    ck_assert_uint_eq(in_wrong(&head, &b), 0);
    ts_is(in_insert(kv, &b, &head, KVSHM_HOLD), KVSHM_EXISTS); /* behind itself */
    ck_assert_uint_eq(in_wrong(&head, &b), 0);
    ts_is(in_insert(kv, &b, &again, KVSHM_HOLD), KVSHM_EXISTS);
    ck_assert_uint_eq(in_wrong(&again, &b), 0);
    ts_is(in_insert(kv, &key, &of_key, KVSHM_HOLD), 0);
    ck_assert_uint_eq(in_wrong(&of_key, &key), 0);
    kvshm_release(kv, &of_key);
    ts_is(in_insert(kv, &key, &of_key, KVSHM_HOLD), KVSHM_REPLACED);
    ck_assert_uint_eq(in_wrong(&of_key, &key), 0);
    in_audit_swept(kv);
    ts_is(kvshm_clear(kv), 0);
    ck_assert_uint_eq(in_limbo(kv),
                      5); /* held: three of b, two of key; the partial page of a is not */
    kvshm_release(kv, &head);
    ck_assert_int_eq(kvshm_evict_lru(kv), 0);
    ck_assert_uint_eq(in_wrong(&again, &b), 0);
    kvshm_release(kv, &again);
    kvshm_release(kv, &of_key);
    kvshm_evict_lru(kv);
    ck_assert_uint_eq(in_free(kv), 24);
    in_audit_swept(kv);
    ts_detach(kv);
}
END_TEST

/* HOLD with no lease word left: an error that keeps all. */
START_TEST(test_hold_without_a_word_changes_nothing)
{
    kvshm *kv = in_create(4, 16, 2);
    struct kvshm_prefix a = in_range(0, 6), limbo = in_range(0, 10), key = in_key(1, 5);
    struct kvshm_lease lease[2], none = {0};
    struct kvshm_reservation r;

    ts_is(in_insert(kv, &a, NULL, 0), 0);
    ts_is(in_insert(kv, &key, NULL, 0), 0);
    ts_is(kvshm_lookup(kv, &a, 0, &lease[0]), 0);
    ts_is(kvshm_lookup(kv, &a, 0, &lease[1]), 0);
    ts_is(kvshm_remove(kv, &a), 0);
    for (int i = 0; i < 3; i++) {
        const struct kvshm_prefix *prefix = i == 0 ? &a : i == 1 ? &limbo : &key;

        ts_is(in_fill(kv, prefix, NULL, &r), 0);
        ts_is(kvshm_insert(kv, prefix, &none, &r, KVSHM_HOLD), KVSHM_E_LEASES);
        ck_assert_ptr_nonnull(r.kv);
        ck_assert_ptr_null(none.kv);
        kvshm_cancel(kv, &r);
        ck_assert_int_ge(kvshm__reap(kv, 0, NULL), 0);
        in_audit_swept(kv);
        ck_assert_uint_eq(in_limbo(kv), 2);
    }
    ck_assert(seen_by(kv, &key));
    kvshm_release(kv, &lease[0]);
    kvshm_release(kv, &lease[1]);
    ts_detach(kv);
}
END_TEST

/* EXTEND: the name moves on; what only it needed goes. */
START_TEST(test_extend_moves_the_name)
{
    kvshm *kv = in_create(4, 24, 8);
    struct kvshm_lease head = {0};

    for (uint32_t n = 1; n <= 40; n += 3) {
        struct kvshm_prefix prefix = in_range(0, n), before = in_range(0, n > 3 ? n - 3 : 1);

        ts_is(in_insert(kv, &prefix, &head, KVSHM_EXTEND | KVSHM_HOLD), 0);
        in_audit_swept(kv);
        ck_assert_uint_eq(in_entries(kv), 1);
        ck_assert_uint_eq(in_pages(kv), (n + 3) / 4);
        ck_assert_uint_eq(in_limbo(kv), 0);
        if (n > 1)
            ck_assert(!seen_by(kv, &before));
        in_hit(kv, &prefix);
    }
    ck_assert_uint_eq(in_counter(kv, KVSHM__CNT_extended_entries), 13);
    kvshm_release(kv, &head);
    ts_detach(kv);
}
END_TEST

/* EXTEND of a head that ends at no entry is a plain insert; of a prefix that exists, the head's entry goes all the same. */
START_TEST(test_extend_without_an_entry_is_plain)
{
    kvshm *kv = in_create(4, 24, 8);
    struct kvshm_prefix a = in_range(0, 8), b = in_range(0, 4), c = in_range(0, 12),
                        d = in_range(0, 5);
    struct kvshm_lease head;

    ts_is(in_insert(kv, &a, NULL, 0), 0);
    ts_is(kvshm_match(kv, &d, 0, &head), 0);
    ck_assert_uint_eq(head.tokens, 4);
    ck_assert_uint_eq(head.last_used, 0);
    ts_is(in_insert(kv, &c, &head, KVSHM_EXTEND), 0);
    ck_assert_uint_eq(in_entries(kv), 2);
    ts_is(in_insert(kv, &b, &head, KVSHM_EXTEND), 0); /* the same prefix: named, not moved away */
    ck_assert_uint_eq(in_entries(kv), 3);
    kvshm_release(kv, &head);
    ts_is(kvshm_lookup(kv, &b, 0, &head), 0);
    ts_is(in_insert(kv, &c, &head, KVSHM_EXTEND), KVSHM_EXISTS);
    ck_assert(!seen_by(kv, &b));
    ck_assert(seen_by(kv, &a));
    in_audit_swept(kv);
    kvshm_release(kv, &head);
    ts_detach(kv);
}
END_TEST

/* Capacity 0: it is answered, held if asked, and not kept. */
START_TEST(test_capacity_0_keeps_nothing)
{
    kvshm *kv = in_create(4, 8, 4);
    struct kvshm_prefix prefix = in_range(0, 10);
    struct kvshm_lease lease = {0};

    ts_is(kvshm__setting_set(kv, "capacity", 0), 0);
    ts_is(in_insert(kv, &prefix, &lease, KVSHM_HOLD), 0);
    in_miss(kv, &prefix);
    ck_assert_uint_eq(in_wrong(&lease, &prefix), 0);
    in_audit_swept(kv);
    kvshm_release(kv, &lease);
    ts_is(in_insert(kv, &prefix, NULL, 0), 0);
    ck_assert_uint_eq(in_free(kv), 8);
    in_audit_swept(kv);
    ts_detach(kv);
}
END_TEST

/* ---- Errors -------------------------------------------------------------------------------------------------------------- */

/* What was made before a clear is stale: kept, and of no use but to give back. */
START_TEST(test_stale_after_clear)
{
    kvshm *kv = in_create(4, 16, 4);
    struct kvshm_prefix a = in_range(0, 8), b = in_range(0, 12);
    struct kvshm_reservation of_a, of_b, fresh;
    struct kvshm_lease head, whole;

    ts_is(in_insert(kv, &a, NULL, 0), 0);
    ts_is(kvshm_lookup(kv, &a, 0, &head), 0);
    ts_is(kvshm_lookup(kv, &a, 0, &whole), 0);
    ts_is(in_fill(kv, &a, NULL, &of_a), 0);
    ts_is(in_fill(kv, &b, &head, &of_b), 0);
    ts_is(kvshm_clear(kv), 0);
    ts_is(kvshm_insert(kv, &a, NULL, &of_a, 0), KVSHM_E_STALE);
    ts_says("reservation");
    ts_is(kvshm_insert(kv, &b, &head, &of_b, 0), KVSHM_E_STALE);
    ts_is(in_fill(kv, &b, &head, &fresh), 0);
    ts_is(kvshm_insert(kv, &b, &head, &fresh, 0), KVSHM_E_STALE);
    ts_says("head");
    ts_is(kvshm_insert(kv, &a, &whole, NULL, 0), KVSHM_E_STALE);
    ck_assert_ptr_nonnull(of_a.kv);
    ck_assert_ptr_nonnull(head.kv);
    ck_assert_uint_eq(in_wrong(&head, &a), 0);
    in_audit(kv);
    kvshm_cancel(kv, &of_a);
    kvshm_cancel(kv, &of_b);
    kvshm_cancel(kv, &fresh);
    kvshm_release(kv, &head);
    kvshm_release(kv, &whole);
    ts_is(in_insert(kv, &b, NULL, 0), 0);
    in_audit(kv);
    ts_detach(kv);
}
END_TEST

/* One wrong insert: the answer, and nothing has changed. */
static void refuses(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *head,
                    struct kvshm_reservation *r, const char *says)
{
    struct kvshm_reservation r_before = {0};
    struct kvshm_lease head_before = {0};

    if (r)
        r_before = *r;
    if (head)
        head_before = *head;
    ts_is(kvshm_insert(kv, prefix, head, r, 0), -EINVAL);
    ts_says(says);
    if (r)
        ck_assert_mem_eq(r, &r_before, sizeof(*r));
    if (head)
        ck_assert_mem_eq(head, &head_before, sizeof(*head));
    in_audit(kv);
}

START_TEST(test_what_does_not_fit_is_refused)
{
    kvshm *kv = in_create(4, 24, 8), *other = in_attach();
    struct kvshm_prefix a = in_range(0, 6), b = in_range(0, 10), wrong, key = in_key(1, 6);
    struct kvshm_reservation two, one, foreign;
    struct kvshm_lease head, of_key, of_other;
    uint32_t *tokens;

    ts_is(in_insert(kv, &a, NULL, 0), 0);
    ts_is(in_insert(kv, &key, NULL, 0), 0);
    ts_is(kvshm_lookup(kv, &a, 0, &head), 0);
    ts_is(kvshm_lookup(kv, &key, 0, &of_key), 0);
    ts_is(kvshm_lookup(other, &a, 0, &of_other), 0);
    ts_is(kvshm_reserve(kv, 2, 0, &two), 0);
    ts_is(kvshm_reserve(kv, 1, 0, &one), 0);
    ts_is(kvshm_reserve(other, 2, 0, &foreign), 0);

    refuses(kv, &b, NULL, &two, "2 pages; 3 are needed");
    refuses(kv, &b, &head, &one, "1 pages; 2 are needed");
    refuses(kv, &b, &head, NULL, "0 pages; 2 are needed");
    refuses(kv, &a, &head, &two, "2 pages; 1 are needed");
    refuses(kv, &b, &head, &foreign, "not of this handle");
    refuses(kv, &b, &of_other, &two, "not a lease of this handle");
    refuses(kv, &key, &head, &two, "key-only prefix takes no head");
    refuses(kv, &b, &of_key, &two, "key-only entry");
    wrong = in_range(0, 5);
    refuses(kv, &wrong, &head, &one, "head holds 6 tokens, the prefix has 5");
    for (uint32_t i = 0; i < 6; i++) {
        wrong = in_range(0, 10);
        tokens = (uint32_t *)wrong.tokens;
        tokens[i]++;
        refuses(kv, &wrong, &head, &two, "differ in page");
    }
    wrong = b;
    wrong.adapter_id = 1;
    refuses(kv, &wrong, &head, &two, "differ in page");
    wrong = b;
    wrong.tenant = 1;
    refuses(kv, &wrong, &head, &two, "differ in page");
    wrong = key;
    wrong.n = 0;
    refuses(kv, &wrong, NULL, NULL, "n is 0");
    ck_assert_uint_eq(in_entries(kv), 2);

    kvshm_cancel(kv, &one);
    kvshm_cancel(other, &foreign);
    kvshm_release(kv, &of_key);
    kvshm_release(other, &of_other);
    kvshm_cancel(kv, &two);
    ts_is(in_insert(kv, &b, &head, 0), 0);
    kvshm_release(kv, &head);
    in_audit(kv);
    ts_detach(other);
    ts_detach(kv);
}
END_TEST

/* A frame of the reservation that is not its own any more: an error, no wrong page. */
START_TEST(test_damaged_owner_word_is_told)
{
    kvshm *kv = in_create(4, 8, 4);
    struct kvshm_prefix prefix = in_range(0, 8);
    struct kvshm_reservation r;
    uint64_t right;

    ts_is(in_fill(kv, &prefix, NULL, &r), 0);
    right = KVSHM__LOAD(&kv->owners[r.frames[1]].owner);
    KVSHM__STORE(&kv->owners[r.frames[1]].owner, right + 1);
    ts_is(kvshm_insert(kv, &prefix, NULL, &r, 0), KVSHM_E_DAMAGED);
    KVSHM__STORE(&kv->owners[r.frames[1]].owner, right);
    ts_is(kvshm_insert(kv, &prefix, NULL, &r, 0), 0);
    in_audit(kv);
    ts_detach(kv);
}
END_TEST

/* ---- Index words ------------------------------------------------------------------------------------------------------- */

/* Fill both lines with entries from .. to - 1, all leased. */
static void crowd(kvshm *kv, uint32_t from, uint32_t to, struct kvshm_lease *lease)
{
    for (uint32_t i = from; i < to; i++) {
        struct kvshm_prefix prefix = in_crowd(kv, i);

        ts_is(in_insert(kv, &prefix, NULL, 0), 0);
        ts_is(kvshm_lookup(kv, &prefix, 0, &lease[i]), 0);
    }
}

/* All in reach is held: an error that keeps the reservation; once let go, it succeeds. */
START_TEST(test_no_index_word_keeps_the_reservation)
{
    kvshm *kv = in_create(4, 64, 32);
    struct kvshm_prefix prefix;
    struct kvshm_reservation r;
    struct kvshm_lease lease[16];

    crowd(kv, 0, 16, lease);
    prefix = in_crowd(kv, 16);
    ts_is(in_fill(kv, &prefix, NULL, &r), 0);
    ts_is(kvshm_insert(kv, &prefix, NULL, &r, 0), -ENOSPC);
    ts_says("no index word");
    ck_assert_ptr_nonnull(r.kv);
    in_audit(kv);
    ck_assert_uint_eq(in_limbo(kv), 16);
    kvshm_release(kv, &lease[3]);
    ts_is(kvshm_insert(kv, &prefix, NULL, &r, 0), 0);
    in_hit(kv, &prefix);
    in_audit_swept(kv);
    ck_assert_uint_eq(in_limbo(kv), 15);
    for (uint32_t i = 0; i < 16; i++)
        kvshm_release(kv, &lease[i]);
    ts_detach(kv);
}
END_TEST

/* The range of eight tokens behind the crowd's i-th whose second page stands in the crowd's lines. */
static struct kvshm_prefix below_crowd(kvshm *kv, uint32_t i)
{
    static uint32_t tokens[8];
    struct kvshm_prefix prefix = in_crowd(kv, i);
    uint64_t parent =
        kvshm__hash_page(kv->secret, kvshm__hash_root(kv->secret, 0, 0), prefix.tokens, 4);

    memcpy(tokens, prefix.tokens, 16);
    do
        tokens[4]++;
    while (!in_crowded(kv, kvshm__hash_page(kv->secret, parent, tokens + 4, 4)));
    kvshm_prefix_init(&prefix, 0, 0, tokens, 8);
    return prefix;
}

/* I4: the page that an insert is at is the oldest in reach: it loses its name, and stays. */
START_TEST(test_i4_the_page_an_insert_is_at_stays)
{
    kvshm *kv = in_create(4, 64, 32);
    struct kvshm_lease lease[16], head;
    struct kvshm_prefix first, prefix;

    crowd(kv, 0, 16, lease);
    for (uint32_t i = 0; i < 16; i++)
        kvshm_release(kv, &lease[i]);
    first = in_crowd(kv, 0);
    prefix = below_crowd(kv, 0);
    if (_i) {
        ts_is(kvshm_match(kv, &first, KVSHM_PEEK, &head), 0);
        ts_is(in_insert(kv, &prefix, NULL, 0), 0);
    } else {
        ts_is(kvshm_lookup(kv, &first, 0, &head), 0);
        for (uint32_t i = 1; i < 16; i++) {
            struct kvshm_prefix other = in_crowd(kv, i);
            in_hit(kv, &other);
        }
        ts_is(in_insert(kv, &prefix, &head, 0), 0);
    }
    in_audit(kv);
    in_hit(kv, &prefix);
    ck_assert(!seen_by(kv, &first));
    kvshm_release(kv, &head);
    ck_assert_uint_eq(in_entries(kv), 15);
    in_audit(kv);
    ts_detach(kv);
}
END_TEST

/* I4, and no word is to be had: what was pinned goes as an evicted entry does. */
START_TEST(test_i4_a_failed_insert_leaves_no_page_without_an_entry)
{
    kvshm *kv = in_create(4, 64, 32);
    struct kvshm_lease lease[16];
    struct kvshm_prefix first, prefix;
    struct kvshm_reservation r;

    crowd(kv, 0, 16, lease);
    first = in_crowd(kv, 0);
    prefix = below_crowd(kv, 0);
    kvshm_release(kv, &lease[0]);
    ts_is(in_fill(kv, &prefix, NULL, &r), 0);
    ts_is(kvshm_insert(kv, &prefix, NULL, &r, 0), -ENOSPC);
    ck_assert(!seen_by(kv, &first));
    in_audit(kv);
    for (uint32_t i = 1; i < 16; i++)
        kvshm_release(kv, &lease[i]);
    ts_is(kvshm_insert(kv, &prefix, NULL, &r, 0), 0);
    in_hit(kv, &prefix);
    in_audit_swept(kv);
    ck_assert_uint_eq(in_free(kv), 62);
    ts_detach(kv);
}
END_TEST

/* The next four tokens behind the page of that hash that stand in the crowd's lines, or elsewhere. The hash of their page. */
static uint64_t four_more(const kvshm *kv, uint64_t parent, uint32_t *tokens, bool crowded)
{
    uint64_t hash;

    do {
        tokens[0]++;
        hash = kvshm__hash_page(kv->secret, parent, tokens, 4);
    } while (crowded ? !in_crowded(kv, hash) : !in_elsewhere(kv, hash));
    return hash;
}

/*
 * With a spill file: the entry that goes for an index word was what kept the first page of the insert's chain in memory,
 * whose second is in the file. The first is leased; it stays in its frame.
 */
START_TEST(test_i4_what_a_word_costs_is_not_above_the_insert)
{
    struct kvshm_config config = ts_config(IN_PAGE_BYTES, 4, 64);
    struct kvshm_prefix whole, above, other;
    struct kvshm_lease lease[16], held;
    uint32_t tokens[12] = {0}, beside[8];
    char path[300];

    snprintf(path, sizeof(path), "%s/spilled", getenv("KVSHM_DIR"));
    config.max_clients = 4;
    config.spill_path = path;
    config.spill_bytes = 1 << 20;
    kvshm *kv = ts_create("inside", &config), *without = ts_attach("inside", KVSHM_NOTIER);
    uint64_t first = four_more(kv, kvshm__hash_root(kv->secret, 0, 0), tokens, false);
    memcpy(beside, tokens, sizeof(beside));
    beside[7] = 1;
    four_more(kv, four_more(kv, first, tokens + 4, false), tokens + 8, true);
    four_more(kv, first, beside + 4, true);
    kvshm_prefix_init(&whole, 0, 0, tokens, 12);
    kvshm_prefix_init(&above, 0, 0, tokens, 8);
    kvshm_prefix_init(&other, 0, 0, beside, 8);
    ts_is(in_insert(kv, &above, NULL, 0), 0);
    ts_is(in_insert(kv, &other, NULL, 0), 0);
    ts_is(kvshm_flush(kv), 0);
    ts_is(kvshm_evict_lru(kv), 1);
    ts_is(kvshm_match(without, &above, 0, &held), 0);
    ck_assert_uint_eq(held.pages, 1);
    const void *page = kvshm_lease_page(&held, 0);
    crowd(kv, 0, 15, lease);
    ts_is(in_insert(kv, &whole, NULL, 0), 0);
    ck_assert(!seen_by(kv, &other));
    ck_assert_ptr_eq(kvshm_lease_page(&held, 0), page);
    in_audit(kv);
    in_hit(kv, &whole);
    kvshm_release(without, &held);
    for (uint32_t i = 0; i < 15; i++)
        kvshm_release(kv, &lease[i]);
    in_audit_swept(kv);
    ts_detach(without);
    ts_detach(kv);
}
END_TEST

/* The same for a key that was to be replaced. */
START_TEST(test_i4_a_failed_replacement_leaves_no_page_without_an_entry)
{
    kvshm *kv = in_create(4, 64, 32);
    struct kvshm_lease lease[16];
    struct kvshm_prefix key = in_key(0, 6);
    struct kvshm_reservation r;

    for (uint32_t i = 1;
         !in_crowded(kv, kvshm__hash_key(kv->secret, 0, 0, key.key, 0)) ||
         !in_elsewhere(kv, kvshm__hash_key(kv->secret, 0, 0, key.key, KVSHM__KEY_DEEPEST));
         i++)
        key = in_key(i, 6);
    ts_is(in_insert(kv, &key, NULL, 0), 0);
    crowd(kv, 0, 15, lease);
    ts_is(in_fill(kv, &key, NULL, &r), 0);
    ts_is(kvshm_insert(kv, &key, NULL, &r, 0), -ENOSPC);
    in_audit(kv);
    ck_assert_uint_eq(
        in_pages(kv),
        0); /* the crowd is in limbo, and the key is not published without its entry */
    in_miss(kv, &key);
    for (uint32_t i = 0; i < 15; i++)
        kvshm_release(kv, &lease[i]);
    ts_is(kvshm_insert(kv, &key, NULL, &r, 0), 0);
    in_hit(kv, &key);
    in_audit(kv);
    kvshm_evict_lru(kv);
    ck_assert_uint_eq(in_free(kv), 64);
    in_audit_swept(kv);
    ts_detach(kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("insert");
    TCase *tcase = tcase_create("insert");
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_i2_an_evicted_head_is_called_back);
    tcase_add_loop_test(tcase, test_i2_an_equal_page_in_limbo_is_called_back, 0, 2);
    tcase_add_test(tcase, test_second_filling_of_a_page_goes_back);
    tcase_add_test(tcase, test_exists_touches_and_pages_are_named);
    tcase_add_test(tcase, test_replaced_key_serves_the_new_pages);
    tcase_add_test(tcase, test_hold_leases_the_whole_prefix);
    tcase_add_test(tcase, test_hold_without_a_word_changes_nothing);
    tcase_add_test(tcase, test_extend_moves_the_name);
    tcase_add_test(tcase, test_extend_without_an_entry_is_plain);
    tcase_add_test(tcase, test_capacity_0_keeps_nothing);
    tcase_add_test(tcase, test_stale_after_clear);
    tcase_add_test(tcase, test_what_does_not_fit_is_refused);
    tcase_add_test(tcase, test_damaged_owner_word_is_told);
    tcase_add_test(tcase, test_no_index_word_keeps_the_reservation);
    tcase_add_loop_test(tcase, test_i4_the_page_an_insert_is_at_stays, 0, 2);
    tcase_add_test(tcase, test_i4_a_failed_insert_leaves_no_page_without_an_entry);
    tcase_add_test(tcase, test_i4_what_a_word_costs_is_not_above_the_insert);
    tcase_add_test(tcase, test_i4_a_failed_replacement_leaves_no_page_without_an_entry);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
