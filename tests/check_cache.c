/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_cache.c - the public calls that find, fill and give up pages (cache.c, fill.c): what they answer, touch and write
 *
 * Their errors are provoked in check_errors.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

#include "frames.h"
#include "index.h"

static uint64_t stamp_of(kvshm *kv, const struct kvshm_prefix *prefix)
{
    return KVSHM__LOAD(&kv->records[in_record(kv, prefix)].stamp);
}

/* Is it as zeroed? */
static bool empty(const void *of_128_bytes)
{
    static const uint8_t zero[128];

    return memcmp(of_128_bytes, zero, sizeof(zero)) == 0;
}

static void spoil(void *of_128_bytes)
{
    memset(of_128_bytes, 0xee, 128);
}

/* The range 0 .. n - 1 whose last token is another: it shares all but its last page. */
static struct kvshm_prefix branch(uint32_t n, uint32_t last)
{
    struct kvshm_prefix prefix = in_range(0, n);

    ((uint32_t *)prefix.tokens)[n - 1] = 1000 + last;
    return prefix;
}

/* ---- What a query answers -------------------------------------------------------------------------------------- */

/* lookup: exactly these tokens. match: as far as they are cached. */
START_TEST(test_lookup_is_exact_and_match_is_longest)
{
    kvshm *kv = in_create(4, 32, 8);

    in_put(kv, 0, 4);
    in_put(kv, 0, 10);
    for (uint32_t n = 1; n <= 14; n++) {
        struct kvshm_prefix prefix = in_range(0, n);
        struct kvshm_lease lease;
        uint32_t matched = n >= 10 ? 10 : n >= 8 ? 8 : n >= 4 ? 4 : 0;
        bool entry = n == 4 || n == 10;

        ts_is(kvshm_lookup(kv, &prefix, 0, &lease), entry ? 0 : KVSHM_MISS);
        ck_assert_int_eq(kvshm_contains(kv, &prefix), entry);
        kvshm_release(kv, &lease);
        ts_is(kvshm_match(kv, &prefix, 0, &lease), matched ? 0 : KVSHM_MISS);
        ck_assert_uint_eq(lease.tokens, matched);
        ck_assert_uint_eq(lease.pages, (matched + 3) / 4);
        ck_assert_int_eq(lease.last_used != 0, matched == 4 || matched == 10);
        ck_assert_uint_eq(lease.pending_tokens, 0);
        ck_assert_uint_eq(in_wrong(&lease, &prefix), 0);
        kvshm_release(kv, &lease);
    }
    ts_detach(kv);
}
END_TEST

/* A key-only entry: by its key and its length, or by its key alone. */
START_TEST(test_keys_are_found_with_their_length_or_none)
{
    kvshm *kv = in_create(4, 32, 8), *observer;
    struct kvshm_prefix right = in_key(1, 6), any = in_key(1, 0), wrong = in_key(1, 7),
                        other = in_key(2, 6);
    struct kvshm_lease lease;
    uint8_t page[IN_PAGE_BYTES];

    ts_is(in_insert(kv, &right, NULL, 0), 0);
    observer = ts_attach("inside", KVSHM_RDONLY);
    in_hit(kv, &right);
    ts_is(kvshm_lookup(kv, &any, 0, &lease), 0);
    ck_assert_uint_eq(lease.tokens, 6);
    kvshm_release(kv, &lease);
    ck_assert(kvshm_contains(observer, &any));
    ck_assert(!kvshm_contains(observer, &wrong));
    ck_assert(!kvshm_contains(kv, &other));
    ts_is(kvshm_lookup(kv, &wrong, 0, &lease), KVSHM_MISS);
    ck_assert_int_eq(kvshm_copy_out(kv, &wrong, 0, 1, page), 0);
    ck_assert_int_eq(kvshm_copy_out(observer, &any, 1, 1, page), 1);
    ts_is(kvshm_remove(kv, &wrong), KVSHM_MISS);
    ts_is(kvshm_remove(kv, &any), 0);
    ck_assert(!kvshm_contains(kv, &right));
    ts_detach(observer);
    ts_detach(kv);
}
END_TEST

/* Adapters and tenants are worlds of their own, for every call. */
START_TEST(test_adapters_and_tenants_are_apart)
{
    kvshm *kv = in_create(4, 64, 8);

    for (unsigned i = 0; i < 8; i++) {
        struct kvshm_prefix mine = i & 4 ? in_key(1, 6) : in_range(0, 6), other;
        struct kvshm_lease lease;

        mine.adapter_id = i & 1;
        mine.tenant = i >> 1 & 1;
        ck_assert(!kvshm_contains(kv, &mine));
        ts_is(kvshm_lookup(kv, &mine, 0, &lease), KVSHM_MISS);
        if (mine.tokens)
            ts_is(kvshm_match(kv, &mine, 0, &lease), KVSHM_MISS);
        ts_is(kvshm_remove(kv, &mine), KVSHM_MISS);
        ts_is(in_insert(kv, &mine, NULL, 0), 0);
        in_hit(kv, &mine);
        other = mine;
        other.tenant += 2;
        ck_assert(!kvshm_contains(kv, &other));
    }
    ck_assert_uint_eq(in_entries(kv), 8);
    ck_assert_uint_eq(in_pages(kv), 16);
    in_audit(kv);
    ts_detach(kv);
}
END_TEST

/* The whole struct is written, whatever the answer, without being read. */
START_TEST(test_structs_are_written_whole)
{
    kvshm *kv = in_create(4, 8, 8), *observer;
    struct kvshm_prefix prefix = in_range(0, 6), none = in_range(9, 6);
    struct kvshm_reservation r;
    struct kvshm_lease lease;

    in_put(kv, 0, 6);
    spoil(&lease);
    ts_is(kvshm_lookup(kv, &none, 0, &lease), KVSHM_MISS);
    ck_assert(empty(&lease));
    spoil(&lease);
    ts_is(kvshm_match(kv, &none, KVSHM_PEEK, &lease), KVSHM_MISS);
    ck_assert(empty(&lease));
    spoil(&lease);
    ts_is(kvshm_lookup(kv, NULL, 0, &lease), -EINVAL);
    ck_assert(empty(&lease));
    observer = ts_attach("inside", KVSHM_RDONLY);
    spoil(&lease);
    ts_is(kvshm_lookup(observer, &prefix, 0, &lease), KVSHM_E_READ_ONLY);
    ck_assert(empty(&lease));
    spoil(&lease);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), 0);
    for (unsigned i = 0; i < sizeof(lease.spare) / sizeof(*lease.spare); i++)
        ck_assert_uint_eq(lease.spare[i], 0);
    ck_assert_uint_eq(lease.reserved, 0);
    kvshm_release(kv, &lease);
    ck_assert(empty(&lease));
    spoil(&r);
    ts_is(kvshm_reserve(kv, 9, 0, &r), -ENOSPC);
    ck_assert(empty(&r));
    spoil(&r);
    ts_is(kvshm_reserve(kv, 0, 0, &r), -EINVAL);
    ck_assert(empty(&r));
    spoil(&r);
    ts_is(kvshm_reserve(kv, 2, 0, &r), 0);
    for (unsigned i = 0; i < sizeof(r.spare) / sizeof(*r.spare); i++)
        ck_assert_uint_eq(r.spare[i], 0);
    kvshm_cancel(kv, &r);
    ck_assert(empty(&r));
    ts_detach(observer);
    ts_detach(kv);
}
END_TEST

/* ---- PEEK, TOUCH ---------------------------------------------------------------------------------------------------- */

/* PEEK tells the same, and leaves no trace: no lease word, no use, no count. */
START_TEST(test_peek_leaves_no_trace)
{
    kvshm *kv = in_create(4, 16, 4), *observer;
    struct kvshm_prefix prefix = in_range(0, 6), longer = in_range(0, 9), none = in_range(50, 3);
    struct kvshm_lease lease;
    uint8_t *before;
    size_t bytes = kv->segment_bytes;

    in_put(kv, 0, 6);
    observer = ts_attach("inside", KVSHM_RDONLY);
    before = malloc(bytes);
    memcpy(before, kv->base, bytes);
    for (unsigned i = 0; i < 2; i++) {
        kvshm *by = i ? observer : kv;

        ts_is(kvshm_lookup(by, &prefix, KVSHM_PEEK, &lease), 0);
        ck_assert_uint_eq(lease.tokens, 6);
        ck_assert_uint_eq(lease.pages, 2);
        ck_assert_uint_eq(lease.last_used, stamp_of(kv, &prefix));
        ck_assert_ptr_null(lease.kv);
        ck_assert_ptr_null(kvshm_lease_page(&lease, 0));
        kvshm_release(by, &lease);
        ts_is(kvshm_match(by, &longer, KVSHM_PEEK, &lease), 0);
        ck_assert_uint_eq(lease.tokens, 6);
        ck_assert_uint_eq(lease.last_used, stamp_of(kv, &prefix));
        ts_is(kvshm_match(by, &none, KVSHM_PEEK, &lease), KVSHM_MISS);
        ts_is(kvshm_lookup(by, &none, KVSHM_PEEK, &lease), KVSHM_MISS);
        ck_assert(kvshm_contains(by, &prefix));
    }
    ck_assert_mem_eq(kv->base, before, bytes);
    ts_is(kvshm_lookup(observer, &prefix, KVSHM_PEEK | KVSHM_TOUCH, &lease), KVSHM_E_READ_ONLY);
    ck_assert_mem_eq(kv->base, before, bytes);
    free(before);
    ts_detach(observer);
    ts_detach(kv);
}
END_TEST

/* Which of four entries on one path a call touches: 0, 1, 2, 3, or none (-1); more than one fails. */
static struct kvshm_prefix entry[4];
static int touched_by(kvshm *kv, const struct kvshm_prefix *prefix, bool match, unsigned flags)
{
    uint64_t before[4], last_used;
    struct kvshm_lease lease;
    int which = -1;

    for (int i = 0; i < 4; i++)
        before[i] = stamp_of(kv, &entry[i]);
    ts_is(match ? kvshm_match(kv, prefix, flags, &lease) : kvshm_lookup(kv, prefix, flags, &lease),
          0);
    last_used = lease.last_used;
    kvshm_release(kv, &lease);
    for (int i = 0; i < 4; i++) {
        uint64_t now = stamp_of(kv, &entry[i]);

        ck_assert_uint_ge(now, before[i]);
        if (now == before[i])
            continue;
        ck_assert_int_eq(which, -1);
        which = i;
        if (entry[i].n == prefix->n)
            ck_assert_uint_eq(last_used, now); /* this use included */
    }
    return which;
}

START_TEST(test_what_each_call_touches)
{
    kvshm *kv = in_create(4, 32, 8);
    struct kvshm_prefix head = in_range(0, 4), past = in_range(0, 14), part = in_range(0, 11);

    entry[0] = in_range(0, 8);
    entry[1] = in_range(0, 10);
    entry[2] = in_range(0, 16);
    entry[3] = branch(8, 1);
    for (int i = 0; i < 4; i++)
        ts_is(in_insert(kv, &entry[i], NULL, 0), 0);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(touched_by(kv, &entry[i], false, 0), i);
        ck_assert_int_eq(touched_by(kv, &entry[i], true, 0), i);
        ck_assert_int_eq(touched_by(kv, &entry[i], false, KVSHM_PEEK), -1);
        ck_assert_int_eq(touched_by(kv, &entry[i], true, KVSHM_PEEK), -1);
        ck_assert_int_eq(touched_by(kv, &entry[i], false, KVSHM_PEEK | KVSHM_TOUCH), i);
        ck_assert_int_eq(touched_by(kv, &entry[i], true, KVSHM_PEEK | KVSHM_TOUCH), i);
        ck_assert_int_eq(touched_by(kv, &entry[i], true, KVSHM_TOUCH), i);
    }
    ck_assert_int_eq(touched_by(kv, &part, true, 0), 1); /* it ends where its answer ends */
    /* Nothing ends after 12 tokens, nor after 4. */
    ck_assert_int_eq(touched_by(kv, &past, true, 0), -1);
    ck_assert_int_eq(touched_by(kv, &past, true, KVSHM_TOUCH), 2);
    ck_assert_int_eq(touched_by(kv, &past, true, KVSHM_TOUCH | KVSHM_PEEK), 2);
    ck_assert_int_eq(touched_by(kv, &head, true, 0), -1);
    ck_assert_int_ge(touched_by(kv, &head, true, KVSHM_TOUCH), 0);
    in_audit(kv);
    ts_detach(kv);
}
END_TEST

/* TOUCH passes over children in limbo, and goes down as far as it must. */
START_TEST(test_touch_finds_an_entry_far_below)
{
    kvshm *kv = in_create(4, 64, 8);
    struct kvshm_prefix deep = in_range(0, 60), head = in_range(0, 4), side[6];
    struct kvshm_lease lease[6], served;
    uint64_t before;

    ts_is(in_insert(kv, &deep, NULL, 0), 0);
    for (uint32_t i = 0; i < 6; i++) {
        side[i] = branch(8, i);
        ts_is(in_insert(kv, &side[i], NULL, 0), 0);
        ts_is(kvshm_lookup(kv, &side[i], 0, &lease[i]), 0);
        ts_is(kvshm_remove(kv, &side[i]), 0);
    }
    ck_assert_uint_eq(in_limbo(kv), 6);
    before = stamp_of(kv, &deep);
    ts_is(kvshm_match(kv, &head, KVSHM_TOUCH, &served), 0);
    ck_assert_uint_gt(stamp_of(kv, &deep), before);
    ck_assert_uint_eq(served.last_used, 0); /* none ends here */
    kvshm_release(kv, &served);
    for (uint32_t i = 0; i < 6; i++)
        kvshm_release(kv, &lease[i]);
    ts_detach(kv);
}
END_TEST

/* ---- What is leased and reserved -------------------------------------------------------------------------------------- */

/* Pages, addresses and offsets of a lease agree, at every part of a long one. */
START_TEST(test_pages_of_a_lease)
{
    const uint32_t pages = 300;
    kvshm *kv = in_create(4, 320, 8);
    struct kvshm_prefix prefix = in_range(0, 4 * 300 - 1);
    struct kvshm_lease lease;
    const void *page[310];
    uint64_t offset[310];

    ts_is(in_insert(kv, &prefix, NULL, 0), 0);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), 0);
    ck_assert_uint_eq(in_wrong(&lease, &prefix), 0);
    for (uint32_t first = 0; first < pages + 5; first += 7) {
        for (uint32_t n = 0; n < 310; n += 23) {
            int got = kvshm_lease_pages(&lease, first, n, page);

            ck_assert_int_eq(got, first >= pages      ? 0
                                  : n < pages - first ? (int)n
                                                      : (int)(pages - first));
            ck_assert_int_eq(kvshm_lease_offsets(&lease, first, n, offset), got);
            for (int i = 0; i < got; i++) {
                ck_assert_ptr_eq(page[i], kvshm_lease_page(&lease, first + (uint32_t)i));
                ck_assert_ptr_eq(page[i], kvshm_at(kv, offset[i]));
                ck_assert_ptr_eq(page[i], kv->read_base + offset[i]);
            }
        }
    }
    ck_assert_ptr_null(kvshm_lease_page(&lease, pages));
    ck_assert_ptr_null(kvshm_lease_page(&lease, UINT32_MAX));
    ck_assert_int_eq(kvshm_lease_pages(&lease, UINT32_MAX, UINT32_MAX, page), 0);
    ck_assert_int_eq(kvshm_lease_pages(&lease, 298, UINT32_MAX, page), 2);
    kvshm_release(kv, &lease);
    ck_assert_ptr_null(kvshm_lease_page(&lease, 0));
    ck_assert_int_eq(kvshm_lease_pages(&lease, 0, 1, page), 0);
    ts_detach(kv);
}
END_TEST

/* Frames of a reservation are apart, writable here, and the same through another handle. */
START_TEST(test_pages_of_a_reservation)
{
    kvshm *kv = in_create(4, 16, 8), *other = in_attach();
    struct kvshm_reservation r;
    uint64_t offset[20];

    ts_is(kvshm_reserve(kv, 9, 0, &r), 0);
    ck_assert_uint_eq(r.pages, 9);
    ck_assert_int_eq(kvshm_reservation_offsets(&r, 0, 20, offset), 9);
    for (uint32_t i = 0; i < 9; i++) {
        uint8_t *page = kvshm_reservation_page(&r, i);

        ck_assert_ptr_eq(page, kvshm_at_writable(kv, offset[i]));
        ck_assert_uint_eq(offset[i] % 64, 0);
        ck_assert_uint_ge(offset[i], kv->frames_offset);
        for (uint32_t j = 0; j < i; j++)
            ck_assert(offset[i] >= offset[j] + IN_PAGE_BYTES ||
                      offset[j] >= offset[i] + IN_PAGE_BYTES);
        memset(page, (int)i + 1, IN_PAGE_BYTES);
    }
    for (uint32_t i = 0; i < 9; i++) {
        const uint8_t *seen = kvshm_at(other, offset[i]);

        ck_assert_uint_eq(seen[0], i + 1);
        ck_assert_uint_eq(seen[IN_PAGE_BYTES - 1], i + 1);
    }
    ck_assert_int_eq(kvshm_reservation_offsets(&r, 7, 20, offset), 2);
    ck_assert_int_eq(kvshm_reservation_offsets(&r, 9, 1, offset), 0);
    ck_assert_ptr_null(kvshm_reservation_page(&r, 9));
    ck_assert_ptr_null(kvshm_reservation_page(&r, UINT32_MAX));
    kvshm_cancel(kv, &r);
    ck_assert_ptr_null(kvshm_reservation_page(&r, 0));
    ts_detach(other);
    ts_detach(kv);
}
END_TEST

/* Releasing or cancelling what is empty, or of another handle, does nothing. */
START_TEST(test_giving_back_what_is_not_ones_own)
{
    kvshm *kv = in_create(4, 16, 8), *other = in_attach();
    struct kvshm_prefix prefix = in_range(0, 6), another = in_range(100, 4);
    struct kvshm_lease lease, copy, second, none = {0};
    struct kvshm_reservation r, of_r;

    in_put(kv, 0, 6);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), 0);
    ts_is(kvshm_reserve(kv, 2, 0, &r), 0);
    copy = lease;
    of_r = r;
    kvshm_release(other, &lease);
    kvshm_cancel(other, &r);
    ck_assert_mem_eq(&lease, &copy, sizeof(lease));
    ck_assert_mem_eq(&r, &of_r, sizeof(r));
    kvshm_release(kv, &none);
    kvshm_release(kv, NULL);
    kvshm_cancel(kv, NULL);
    ts_is(kvshm_detach(kv), -EBUSY);
    kvshm_release(kv, &lease);
    kvshm_release(kv, &lease);
    in_put(kv, 100, 4);
    ts_is(kvshm_lookup(kv, &another, 0, &second), 0);
    ck_assert_uint_eq(second.word, copy.word);
    kvshm_release(kv, &copy); /* a copy: it was given back, and its word is another lease's */
    kvshm_cancel(kv, &r);
    kvshm_cancel(kv, &r);
    ts_is(kvshm_detach(kv), -EBUSY);
    kvshm_release(kv, &second);
    in_audit(kv);
    ts_detach(other);
    ts_detach(kv);
}
END_TEST

/* ---- Copying out ------------------------------------------------------------------------------------------------------- */

/* Any part of an entry, by a client and by an observer: the right pages, no byte beyond, and how many. */
START_TEST(test_copy_out_of_any_part)
{
    const uint32_t pages = 150;
    kvshm *kv = in_create(4, 160, 8), *observer;
    struct kvshm_prefix prefix = in_range(0, 600), none = in_range(5, 600);
    uint8_t *to = malloc(160 * IN_PAGE_BYTES);
    uint64_t used;

    ts_is(in_insert(kv, &prefix, NULL, 0), 0);
    observer = ts_attach("inside", KVSHM_RDONLY);
    used = stamp_of(kv, &prefix);
    for (uint32_t first = 0; first < pages + 3; first += 29) {
        for (uint32_t n = 0; n < 160; n += 39) {
            uint32_t wanted = first >= pages ? 0 : n < pages - first ? n : pages - first;
            kvshm *by = (first + n) % 2 ? observer : kv;

            memset(to, 0xee, 160 * IN_PAGE_BYTES);
            ts_is(kvshm_copy_out(by, &prefix, first, n, to), wanted);
            for (uint32_t i = 0; i < wanted; i++)
                ck_assert_uint_eq(ts_filled(to + i * IN_PAGE_BYTES, IN_PAGE_BYTES, 0, 0,
                                            prefix.tokens, 4 * (first + i + 1)),
                                  0);
            if (wanted < 160)
                ck_assert_uint_eq(to[wanted * IN_PAGE_BYTES], 0xee);
            if (by == observer)
                ck_assert_uint_eq(stamp_of(kv, &prefix), used);
            else
                ck_assert_uint_gt(stamp_of(kv, &prefix), used);
            used = stamp_of(kv, &prefix);
        }
    }
    ts_is(kvshm_copy_out(kv, &none, 0, 1, to), 0);
    ts_is(kvshm_copy_out(observer, &none, 0, 1, to), 0);
    ts_is(kvshm_copy_out(observer, &prefix, 0, 0, NULL), 0);
    ck_assert_uint_gt(in_counter(kv, KVSHM__CNT_copied_pages), 0);
    free(to);
    ts_detach(observer);
    ts_detach(kv);
}
END_TEST

/* ---- Giving up ---------------------------------------------------------------------------------------------------------- */

START_TEST(test_remove_forgets_one_entry)
{
    kvshm *kv = in_create(4, 16, 8);
    struct kvshm_prefix a = in_range(0, 8), b = in_range(0, 12), head = in_range(0, 4);
    struct kvshm_lease lease;

    ts_is(in_insert(kv, &a, NULL, 0), 0);
    ts_is(in_insert(kv, &b, NULL, 0), 0);
    ts_is(kvshm_lookup(kv, &b, 0, &lease), 0);
    ts_is(kvshm_remove(kv, &head), KVSHM_MISS); /* pages, no entry */
    ts_is(kvshm_remove(kv, &b), 0);
    ts_is(kvshm_remove(kv, &b), KVSHM_MISS);
    in_hit(kv, &a);
    ck_assert_uint_eq(in_wrong(&lease, &b), 0);
    ck_assert_uint_eq(in_counter(kv, KVSHM__CNT_removed_entries), 1);
    kvshm_release(kv, &lease);
    ts_is(kvshm_remove(kv, &a), 0);
    ck_assert_uint_eq(in_free(kv), 16);
    in_audit_swept(kv);
    ts_detach(kv);
}
END_TEST

START_TEST(test_clear_forgets_all_and_leases_stay)
{
    kvshm *kv = in_create(4, 16, 8);
    struct kvshm_prefix a = in_range(0, 8), key = in_key(1, 6);
    struct kvshm_lease lease, again;

    ts_is(in_insert(kv, &a, NULL, 0), 0);
    ts_is(in_insert(kv, &key, NULL, 0), 0);
    ts_is(kvshm_lookup(kv, &a, 0, &lease), 0);
    ts_is(kvshm_clear(kv), 0);
    ck_assert(!kvshm_contains(kv, &a));
    ck_assert(!kvshm_contains(kv, &key));
    ts_is(kvshm_match(kv, &a, 0, &again), KVSHM_MISS);
    ck_assert_uint_eq(in_wrong(&lease, &a), 0);
    ts_is(in_insert(kv, &a, NULL, 0), 0); /* another page, of another epoch */
    ts_is(kvshm_lookup(kv, &a, 0, &again), 0);
    ck_assert_ptr_ne(kvshm_lease_page(&lease, 0), kvshm_lease_page(&again, 0));
    kvshm_release(kv, &lease);
    kvshm_release(kv, &again);
    ts_is(kvshm_clear(kv), 0);
    ts_is(kvshm_clear(kv), 0); /* of nothing */
    ck_assert_uint_eq(in_free(kv), 16);
    in_audit_swept(kv);
    ts_detach(kv);
}
END_TEST

/* ---- Counters ---------------------------------------------------------------------------------------------------------- */

START_TEST(test_hits_and_misses_are_counted)
{
    kvshm *kv = in_create(4, 16, 8);
    struct kvshm_prefix a = in_range(0, 8), longer = in_range(0, 11), none = in_range(50, 4);
    struct kvshm_lease lease;
    struct kvshm_stats stats;

    ts_is(in_insert(kv, &a, NULL, 0), 0);
    for (int i = 0; i < 3; i++)
        in_hit(kv, &a);
    ts_is(kvshm_match(kv, &longer, 0, &lease), 0);
    kvshm_release(kv, &lease);
    ts_is(kvshm_lookup(kv, &longer, 0, &lease), KVSHM_MISS);
    ts_is(kvshm_match(kv, &none, 0, &lease), KVSHM_MISS);
    ts_is(kvshm_match(kv, &none, 0, &lease), KVSHM_MISS);
    stats = ts_stats(kv);
    ck_assert_uint_eq(stats.lookup_hits, 3);
    ck_assert_uint_eq(stats.match_hits, 1);
    ck_assert_uint_eq(stats.hit_pages, 8);
    ck_assert_uint_eq(stats.hit_tokens, 32);
    ck_assert_uint_eq(stats.lookup_misses, 1);
    ck_assert_uint_eq(stats.match_misses, 2);
    ck_assert_uint_eq(stats.gave_up, 0);
    ck_assert_uint_eq(stats.inserted_entries, 1);
    ck_assert_uint_eq(stats.published_pages, 2);
    ck_assert_uint_eq(stats.reserved_pages, 2);
    ts_detach(kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache");
    TCase *tcase = tcase_create("cache");
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_lookup_is_exact_and_match_is_longest);
    tcase_add_test(tcase, test_keys_are_found_with_their_length_or_none);
    tcase_add_test(tcase, test_adapters_and_tenants_are_apart);
    tcase_add_test(tcase, test_structs_are_written_whole);
    tcase_add_test(tcase, test_peek_leaves_no_trace);
    tcase_add_test(tcase, test_what_each_call_touches);
    tcase_add_test(tcase, test_touch_finds_an_entry_far_below);
    tcase_add_test(tcase, test_pages_of_a_lease);
    tcase_add_test(tcase, test_pages_of_a_reservation);
    tcase_add_test(tcase, test_giving_back_what_is_not_ones_own);
    tcase_add_test(tcase, test_copy_out_of_any_part);
    tcase_add_test(tcase, test_remove_forgets_one_entry);
    tcase_add_test(tcase, test_clear_forgets_all_and_leases_stay);
    tcase_add_test(tcase, test_hits_and_misses_are_counted);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
