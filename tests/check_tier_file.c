/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_tier_file.c - arenas on spill files of another fingerprint, of larger blocks, and forged ones, or half erased: nothing wrong is served
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "evict.h"
#include "mend.h"
#include "slots.h"
#include "spill_file.h"
#include "spilling.h"
#include "sys.h"

/* Pages that were cached without a fingerprint are nobody's who names one, and the other way round, also over a start. */
START_TEST(test_with_and_without_fingerprint)
{
    struct kvshm_config none = spilling_config(), one = spilling_config();
    struct kvshm_prefix prefix = in_range(0, 22);
    kvshm *kv = ts_create("inside", &none), *other = NULL;

    one.fingerprint[3] = 1;
    spilling_put(kv, &prefix);
    spilling_leave_all(kv);
    ts_is(kvshm_attach("inside", &one, 0, &other), KVSHM_E_FINGERPRINT);
    ts_says("holds pages already");
    spilling_end(kv);
    ts_is(kvshm_create("inside", &one, 0, &other), KVSHM_E_FINGERPRINT);
    ts_says("was made without a fingerprint");
    kv = ts_create("inside", &none);
    spilling_served(kv, &prefix);
    spilling_end(kv);
    ck_assert_int_eq(unlink(spilling_path), 0);
    kv = ts_create("inside", &one);
    spilling_put(kv, &prefix);
    ts_is(kvshm_flush(kv), 0);
    spilling_end(kv);
    ts_is(kvshm_create("inside", &none, 0, &other), KVSHM_E_FINGERPRINT);
    ts_says("names none");
    ck_assert_ptr_null(other);
    kv = ts_create("inside", &one);
    spilling_served(kv, &prefix);
    spilling_end(kv);
}
END_TEST

/* Who names the arena's fingerprint later names that of its file; a handle without the file cannot. */
START_TEST(test_fingerprint_named_later)
{
    struct kvshm_config none = spilling_config(), one = spilling_config(), two = spilling_config();
    struct kvshm_prefix prefix = in_range(0, 22);
    kvshm *kv = ts_create("inside", &none), *named, *other = NULL;

    one.fingerprint[3] = 1;
    two.fingerprint[3] = 2;
    ts_is(kvshm_attach("inside", &one, KVSHM_NOTIER, &other), KVSHM_E_NOSPILL);
    ts_is(kvshm_attach("inside", &one, 0, &named), 0);
    spilling_put(named, &prefix);
    ts_is(kvshm_flush(named), 0);
    ts_detach(named);
    spilling_end(kv);
    ts_is(kvshm_create("inside", &none, 0, &other), KVSHM_E_FINGERPRINT);
    ts_is(kvshm_create("inside", &two, 0, &other), KVSHM_E_FINGERPRINT);
    ck_assert_ptr_null(other);
    kv = ts_create("inside", &one);
    spilling_served(kv, &prefix);
    spilling_end(kv);
}
END_TEST

/* ---- Removed ----------------------------------------------------------------------------------------------------- */

/* An entry is removed, and its pages stay under another; that goes, and death comes before all of it is erased. */
static int half_erased(void *arg)
{
    struct kvshm_config config = spilling_config();
    struct kvshm_prefix removed = in_range(0, 8), other = in_range(0, 12);
    struct kvshm__spill_file file;
    uint32_t slot;
    kvshm *kv;

    (void)arg;
    ts_need(kvshm_create("inside", &config, 0, &kv) == 0);
    ts_need(in_insert(kv, &removed, NULL, 0) == 0);
    ts_need(in_insert(kv, &other, NULL, 0) == 0);
    ts_need(kvshm_flush(kv) == 0);
    ts_need(kvshm_remove(kv, &removed) == 0);
    uint32_t record = in_record(kv, &other);
    ts_need(kvshm__spill_open(spilling_path, NULL, &file) == 0);
    ts_need(kvshm__mend_lock(kv) == 0);
    kvshm__evict_drop_entry(kv, record);
    kvshm__evict_sweep_limbo(kv);
    ts_need(kvshm__slots_claim(kv, &slot, 1) == 1);
    kvshm__mend_unlock(kv);
    ts_need(kvshm__spill_erase(&file, slot, 1) == 0);
    kill(getpid(), SIGKILL);
    return 0;
}

START_TEST(test_what_was_removed_is_no_beginning)
{
    struct kvshm_prefix removed = in_range(0, 8), other = in_range(0, 12);

    ck_assert_int_eq(ts_wait(ts_fork(half_erased, NULL)), 128 + SIGKILL);
    ts_is(kvshm_unlink("inside", 0), 0);
    struct kvshm_config config = spilling_config();
    kvshm *kv = ts_create("inside", &config);
    in_miss(kv, &other);
    in_miss(kv, &removed);
    in_audit(kv);
    spilling_end(kv);
}
END_TEST

/* ---- Forged files ----------------------------------------------------------------------------------------------- */

/* Read the first slot header of the file, or its own header, forge it, write it back. */
static void forge(void (*how)(struct kvshm__spill_file *, void *), bool slot)
{
    static _Alignas(4096) char block[4096];
    struct kvshm__spill_file file;

    ts_is(kvshm__spill_open(spilling_path, NULL, &file), 0);
    ck_assert_int_eq(kvshm__sys.pread(file.fd, block, sizeof(block), slot ? file.shape.headers_offset : 0), sizeof(block));
    how(&file, block);
    ck_assert_int_eq(kvshm__sys.pwrite(file.fd, block, sizeof(block), slot ? file.shape.headers_offset : 0), sizeof(block));
    kvshm__spill_close(&file);
}

/* The page of a key is its own parent, and deep. */
static void forge_circle(struct kvshm__spill_file *file, void *block)
{
    struct kvshm_slot_header *header = block;

    ck_assert(kvshm__slot_valid(file, 0, header) && header->flags == (KVSHM__SLOT_ENTRY | KVSHM__SLOT_KEY_ONLY));
    memcpy(header->parent_id, header->page_id, sizeof(header->parent_id));
    header->depth = UINT32_MAX;
    kvshm__slot_seal(file, header);
}

START_TEST(test_a_key_that_is_its_own_parent)
{
    struct kvshm_prefix key = in_key(7, 3), prefix = in_range(0, 22);
    kvshm *kv = spilling_start();

    spilling_put(kv, &key);
    ts_is(kvshm_flush(kv), 0);
    spilling_put(kv, &prefix);
    ts_is(kvshm_flush(kv), 0);
    spilling_end(kv);
    forge(forge_circle, true);
    kv = spilling_start();
    ts_is(spilling_peek(kv, &key), KVSHM_MISS);
    spilling_served(kv, &prefix);
    in_audit(kv);
    spilling_end(kv);
}
END_TEST

/* The second page, at which an entry ends, is in two slots: a writer who died had it before there was that entry. */
static void forge_twice(struct kvshm__spill_file *file, void *unused)
{
    static _Alignas(4096) char block[8192];
    struct kvshm_slot_header *header = (void *)block;
    const struct kvshm__spill_shape *s = &file->shape;

    (void)unused;
    ck_assert_uint_le(s->payload_stride, sizeof(block));
    ck_assert_int_gt(kvshm__sys.pread(file->fd, block, s->payload_stride, kvshm__spill_payload_offset(s, 1)), 0);
    ck_assert_int_gt(kvshm__sys.pwrite(file->fd, block, s->payload_stride, kvshm__spill_payload_offset(s, 7)), 0);
    ck_assert_int_gt(kvshm__sys.pread(file->fd, block, s->header_stride, kvshm__spill_header_offset(s, 1)), 0);
    ck_assert(kvshm__slot_valid(file, 1, header) && header->depth == 1 && header->flags == KVSHM__SLOT_ENTRY);
    header->flags = 0;
    kvshm__slot_seal(file, header);
    ts_is(kvshm__spill_header_write(file, header), 0);
    header->flags = KVSHM__SLOT_ENTRY;
    header->slot = 7;
    kvshm__slot_seal(file, header);
    ts_is(kvshm__spill_header_write(file, header), 0);
}

START_TEST(test_a_page_in_two_slots)
{
    struct kvshm_prefix inner = in_range(0, 8), outer = in_range(0, 12);
    kvshm *kv = spilling_start();

    spilling_put(kv, &outer);
    ts_is(kvshm_flush(kv), 0);
    spilling_put(kv, &inner);
    ts_is(kvshm_flush(kv), 0);
    spilling_end(kv);
    forge(forge_twice, true);
    kv = spilling_start();
    for (unsigned round = 0; round < 2; round++) { /* the file says so at once */
        spilling_served(kv, &inner);
        spilling_served(kv, &outer);
        in_audit(kv);
        kv = spilling_restart(kv);
    }
    spilling_end(kv);
}
END_TEST

/* Header of a file of the same arena whose pages are larger, or whose slots are others. */
static void forge_page(struct kvshm__spill_file *file, void *block)
{
    struct kvshm_spill_header *header = block;

    (void)file;
    header->page_bytes = header->geometry.page_bytes = 4097;
    header->payload_stride = 8192;
    header->slots /= 2; /* it has no more bytes */
    header->payload_offset = header->headers_offset + header->slots * header->header_stride;
    header->file_bytes = header->payload_offset + header->slots * header->payload_stride;
    header->checksum = XXH3_64bits(header, offsetof(struct kvshm_spill_header, checksum));
}

START_TEST(test_who_attaches_is_given_another_shape)
{
    struct kvshm_prefix prefix = in_range(0, 22);
    kvshm *kv = spilling_start(), *other = NULL;

    spilling_put(kv, &prefix);
    spilling_leave_all(kv);
    forge(forge_page, false);
    ts_is(kvshm_attach("inside", NULL, 0, &other), KVSHM_E_NOSPILL);
    ts_says("page");
    ck_assert_ptr_null(other);
    spilling_served(kv, &prefix);
    spilling_end(kv);
}
END_TEST

static int align_16k(int fd, uint32_t *memory, uint32_t *offset)
{
    (void)fd;
    *memory = 512;
    *offset = 16384;
    return 0;
}

/* A file system that moves whole blocks larger than a page: what is read into one frame stays in it. */
START_TEST(test_blocks_larger_than_a_page)
{
    struct kvshm_config config = spilling_config();
    kvshm *kv;

    kvshm__sys.direct_align = align_16k;
    config.spill_bytes = SPILLING_SLOTS * 32768u + 1048576u;
    kv = ts_create("inside", &config);
    for (uint32_t i = 0; i < 10; i++)
        in_put(kv, 100 * i, 12);
    spilling_leave_all(kv);
    for (uint32_t i = 0; i < 10; i++)
        in_put(kv, 10000 + 100 * i, 4);
    for (uint32_t i = 0; i < 10; i++) {
        struct kvshm_prefix prefix = in_range(100 * i, 12);
        spilling_served(kv, &prefix);
    }
    for (uint32_t i = 0; i < 10; i++) {
        struct kvshm_prefix prefix = in_range(10000 + 100 * i, 4);
        spilling_served(kv, &prefix); /* a neighbour, which never left */
    }
    in_audit(kv);
    spilling_end(kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tier_file");
    TCase *tcase = tcase_create("tier_file");

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_with_and_without_fingerprint);
    tcase_add_test(tcase, test_fingerprint_named_later);
    tcase_add_test(tcase, test_what_was_removed_is_no_beginning);
    tcase_add_test(tcase, test_a_key_that_is_its_own_parent);
    tcase_add_test(tcase, test_a_page_in_two_slots);
    tcase_add_test(tcase, test_who_attaches_is_given_another_shape);
    tcase_add_test(tcase, test_blocks_larger_than_a_page);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
