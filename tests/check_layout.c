/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_layout.c - the layout is frozen: sizes, offsets and numbers that other builds rely on
 *
 * layout.def has the structs. A difference is told with both numbers. A field that the table does not know shows as a
 * gap: in the segment's structs there is none, in the public ones none that alignment does not explain.
 */
#include <stdlib.h>
#include <string.h>

#include "handle.h"
#include "layout.h"
#include "support.h"

struct row {
    const char *in;    /* the struct */
    const char *field; /* NULL: the struct itself */
    size_t offset;     /* as the table says; of a struct: its alignment */
    size_t size;
    size_t real_offset; /* as the compiler says */
    size_t real_size;
};

#define SIZE_OF(in, field) sizeof(((struct in *)NULL)->field)

static const struct row rows[] = {
#define STRUCT(in, size, alignment) \
    {#in, NULL, alignment, size, _Alignof(struct in), sizeof(struct in)},
#define FIELD(in, field, offset, size) \
    {#in, #field, offset, size, offsetof(struct in, field), SIZE_OF(in, field)},
#define ENDLESS(in, field, offset) {#in, #field, offset, 0, offsetof(struct in, field), 0},
#include "layout.def"
#undef STRUCT
#undef FIELD
#undef ENDLESS
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

START_TEST(test_sizes_and_offsets)
{
    for (size_t i = 0; i < ROWS; i++) {
        const struct row *row = &rows[i];

        ck_assert_msg(row->real_size == row->size && row->real_offset == row->offset,
                      "struct %s %s: %s %zu, size %zu; the table has %zu, %zu", row->in,
                      row->field ? row->field : "", row->field ? "offset" : "alignment",
                      row->real_offset, row->real_size, row->offset, row->size);
    }
}
END_TEST

static bool in_header_of_users(const char *name)
{
    static const char *const names[] = {"kvshm_geometry", "kvshm_config",     "kvshm_prefix",
                                        "kvshm_lease",    "kvshm_entry",      "kvshm_info",
                                        "kvshm_stats",    "kvshm_reservation"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Each field begins where the one before it ends, and the last ends where its struct does. */
START_TEST(test_no_field_is_missing)
{
    const struct row *of = NULL;
    size_t end = 0;

    for (size_t i = 0; i <= ROWS; i++) {
        const struct row *row = i < ROWS ? &rows[i] : NULL;
        bool last = !row || !row->field;
        size_t next = last ? (of ? of->size : 0) : row->offset;
        size_t gap = next - end;

        if (of)
            ck_assert_msg(next >= end && gap <= (in_header_of_users(of->in) ? 7 : 0),
                          "struct %s has %zu bytes at %zu that no field of the table explains",
                          of->in, gap, end);
        if (last) {
            of = row;
            end = 0;
        } else {
            ck_assert_str_eq(row->in, of->in);
            end = row->offset + row->size;
        }
    }
}
END_TEST

START_TEST(test_handles_of_128_bytes)
{
    ck_assert_uint_eq(sizeof(struct kvshm_lease), 128);
    ck_assert_uint_eq(sizeof(struct kvshm_reservation), 128);
}
END_TEST

struct number {
    const char *name;
    int64_t real;
    int64_t frozen;
};

static void same_numbers(const struct number *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(numbers[i].real == numbers[i].frozen, "%s is %lld, was %lld", numbers[i].name,
                      (long long)numbers[i].real, (long long)numbers[i].frozen);
}

#define NUMBER(name, frozen)                      \
    {                                             \
#name, (int64_t)(name), (int64_t)(frozen) \
    }

START_TEST(test_numbers_of_users)
{
    static const struct number numbers[] = {
        NUMBER(KVSHM_MISS, 1),
        NUMBER(KVSHM_EXISTS, 3),
        NUMBER(KVSHM_REPLACED, 4),
        NUMBER(KVSHM_E_FORMAT, -4101),
        NUMBER(KVSHM_E_VERSION, -4102),
        NUMBER(KVSHM_E_FEATURE, -4103),
        NUMBER(KVSHM_E_BYTE_ORDER, -4104),
        NUMBER(KVSHM_E_BOOT, -4105),
        NUMBER(KVSHM_E_DAMAGED, -4106),
        NUMBER(KVSHM_E_GEOMETRY, -4107),
        NUMBER(KVSHM_E_FINGERPRINT, -4108),
        NUMBER(KVSHM_E_UNLINKED, -4109),
        NUMBER(KVSHM_E_FORKED, -4110),
        NUMBER(KVSHM_E_STALLED, -4111),
        NUMBER(KVSHM_E_STALE, -4112),
        NUMBER(KVSHM_E_READ_ONLY, -4113),
        NUMBER(KVSHM_E_CLIENTS, -4114),
        NUMBER(KVSHM_E_LEASES, -4115),
        NUMBER(KVSHM_E_CONFLICT, -4116),
        NUMBER(KVSHM_E_BUSY_CREATORS, -4117),
        NUMBER(KVSHM_RDONLY, 0x0001),
        NUMBER(KVSHM_POPULATE, 0x0002),
        NUMBER(KVSHM_FORCE, 0x0010),
        NUMBER(KVSHM_PEEK, 0x0100),
        NUMBER(KVSHM_TOUCH, 0x0200),
        NUMBER(KVSHM_DEVICE, 0x1000),
        NUMBER(KVSHM_EXTEND, 0x2000),
        NUMBER(KVSHM_HOLD, 0x4000),
        NUMBER(KVSHM_F32, 0),
        NUMBER(KVSHM_F16, 1),
        NUMBER(KVSHM_BF16, 2),
        NUMBER(KVSHM_FP8, 3),
        NUMBER(KVSHM_INT8, 4),
        NUMBER(KVSHM_INT4, 5),
        NUMBER(KVSHM_BACKING_AUTO, 0),
        NUMBER(KVSHM_BACKING_SMALL, 1),
        NUMBER(KVSHM_UNLIMITED, -1),
        NUMBER(KVSHM_NAME_MAX, 64),
        NUMBER(KVSHM_LABEL_MAX, 63),
    };

    same_numbers(numbers, sizeof(numbers) / sizeof(numbers[0]));
}
END_TEST

START_TEST(test_numbers_of_the_segment)
{
    static const struct number numbers[] = {
        NUMBER(KVSHM__LAYOUT_VERSION, 1),
        NUMBER(KVSHM__BYTE_ORDER, 0x01020304),
        NUMBER(KVSHM__HEADER_BYTES, 4096),
        NUMBER(KVSHM__FRAMES_MAX, 268435455),
        NUMBER(KVSHM__CLIENT_NUMBER_MAX, 17592186044415),
        NUMBER(KVSHM__LOCK_BASE, 1125899906842624),
        NUMBER(KVSHM__JOINS, 8),
        NUMBER(KVSHM__COUNTERS_ROOM, 48),
        NUMBER(KVSHM__BUCKET_WORDS, 8),
        NUMBER(KVSHM__DIRECTORY_ROOM, 16),
        NUMBER(KVSHM__SEC_CLIENTS, 1),
        NUMBER(KVSHM__SEC_LEASES, 2),
        NUMBER(KVSHM__SEC_RESERVATIONS, 3),
        NUMBER(KVSHM__SEC_BUCKETS, 4),
        NUMBER(KVSHM__SEC_RECORDS, 5),
        NUMBER(KVSHM__SEC_LINKS, 6),
        NUMBER(KVSHM__SEC_TEXTS, 7),
        NUMBER(KVSHM__SEC_HEAP, 8),
        NUMBER(KVSHM__SEC_OWNERS, 9),
        NUMBER(KVSHM__SEC_FRAMES, 10),
        NUMBER(KVSHM__CLOCK_SHARED, 1),
        NUMBER(KVSHM__CLOCK_HARDWARE, 2),
        NUMBER(KVSHM__RESERVATION_EMPTY, 0),
        NUMBER(KVSHM__RESERVATION_HELD, 1),
        NUMBER(KVSHM__RESERVATION_CANCELLED, 2),
        NUMBER(KVSHM__RESERVATION_SWEPT, 3),
        NUMBER(KVSHM__PLACE_NONE, 0),
        NUMBER(KVSHM__PLACE_RESIDENT, 1),
        NUMBER(KVSHM__PLACE_LEAVING, 2),
        NUMBER(KVSHM__PLACE_AWAY, 3),
        NUMBER(KVSHM__PLACE_RESTORING, 4),
        NUMBER(KVSHM__KEY_ONLY, 2147483648),
        NUMBER(KVSHM__KEY_END, 1073741824),
        NUMBER(KVSHM__LENGTH, 1073741823),
        NUMBER(KVSHM__LIST_END, 4294967295),
        NUMBER(KVSHM__OWNER_FREE, 0),
        NUMBER(KVSHM__OWNER_RESERVED, 1),
        NUMBER(KVSHM__OWNER_DEVICE, 2),
        NUMBER(KVSHM__OWNER_PAGE, 3),
    };

    same_numbers(numbers, sizeof(numbers) / sizeof(numbers[0]));
    ck_assert_mem_eq(KVSHM__MAGIC, "\x4b\x56\x53\x48\x4d\x0d\x0a\x1a", 8);
}
END_TEST

/* Where each counter stands among the 48 words of a client, and the four of a lease line. */
START_TEST(test_places_of_counters)
{
    static const struct number numbers[] = {
        NUMBER(KVSHM__CNT_lookup_misses, 0),
        NUMBER(KVSHM__CNT_match_misses, 1),
        NUMBER(KVSHM__CNT_gave_up, 2),
        NUMBER(KVSHM__CNT_copied_pages, 3),
        NUMBER(KVSHM__CNT_inserted_entries, 4),
        NUMBER(KVSHM__CNT_existing_entries, 5),
        NUMBER(KVSHM__CNT_replaced_entries, 6),
        NUMBER(KVSHM__CNT_extended_entries, 7),
        NUMBER(KVSHM__CNT_published_pages, 8),
        NUMBER(KVSHM__CNT_shared_pages, 9),
        NUMBER(KVSHM__CNT_recalled_pages, 10),
        NUMBER(KVSHM__CNT_evicted_entries, 11),
        NUMBER(KVSHM__CNT_evicted_pages, 12),
        NUMBER(KVSHM__CNT_removed_entries, 13),
        NUMBER(KVSHM__CNT_cleared_entries, 14),
        NUMBER(KVSHM__CNT_reserved_pages, 15),
        NUMBER(KVSHM__CNT_cancelled_pages, 16),
        NUMBER(KVSHM__CNT_no_space, 17),
        NUMBER(KVSHM__CNT_takeovers, 18),
        NUMBER(KVSHM__CNT_stalls, 19),
        NUMBER(KVSHM__CNT_left_pages, 20),
        NUMBER(KVSHM__CNT_spilled_pages, 21),
        NUMBER(KVSHM__CNT_restored_pages, 22),
        NUMBER(KVSHM__CNT_pending_lookups, 23),
        NUMBER(KVSHM__CNT_restore_failures, 24),
        NUMBER(KVSHM__CNT_spill_failures, 25),
        NUMBER(KVSHM__CNT_spill_full, 26),
        NUMBER(KVSHM__CNT_spill_bytes_written, 27),
        NUMBER(KVSHM__CNT_spill_bytes_read, 28),
        NUMBER(KVSHM__COUNTERS, 29),
        NUMBER(KVSHM__LCNT_lookup_hits, 0),
        NUMBER(KVSHM__LCNT_match_hits, 1),
        NUMBER(KVSHM__LCNT_hit_pages, 2),
        NUMBER(KVSHM__LCNT_hit_tokens, 3),
        NUMBER(KVSHM__LEASE_COUNTERS, 4),
    };

    same_numbers(numbers, sizeof(numbers) / sizeof(numbers[0]));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("layout");
    TCase *tcase = tcase_create("layout");
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    tcase_add_test(tcase, test_sizes_and_offsets);
    tcase_add_test(tcase, test_no_field_is_missing);
    tcase_add_test(tcase, test_handles_of_128_bytes);
    tcase_add_test(tcase, test_numbers_of_users);
    tcase_add_test(tcase, test_numbers_of_the_segment);
    tcase_add_test(tcase, test_places_of_counters);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
