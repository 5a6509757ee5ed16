/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_spill_file.c - spill files are made whole, checked at opening, adopted under a lock, and swept
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "message.h"
#include "spill_file.h"
#include "support.h"
#include "sys.h"

#define PAGE_BYTES 10000
#define PAGE_TOKENS 9

static char folder[] = "/var/tmp/kvshm-check-spill.XXXXXX";
static char path[64];
static struct kvshm__spill_file file;

/* On a disk: shared memory knows no O_DIRECT. */
static void setup(void)
{
    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/spill", folder);
    memset(&file, 0, sizeof(file));
    file.fd = -1;
}

static void teardown(void)
{
    kvshm__sys = kvshm__sys_real;
    kvshm__spill_close(&file);
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
}

static struct kvshm__spill_want wanted(uint64_t slots)
{
    struct kvshm__spill_want want = {
        .geometry = {.page_bytes = PAGE_BYTES, .page_tokens = PAGE_TOKENS, .shards = 1, .token_scale = 1},
        .page_bytes = PAGE_BYTES,
        .epochs = 3,
        .named_fingerprint = true,
        .fingerprint = {1, 2, 3},
    };

    want.budget_bytes = 4096 * (1 + 3) + slots * (4096 + 12288);
    return want;
}

static void make(uint64_t slots)
{
    struct kvshm__spill_want want = wanted(slots);

    ts_is(kvshm__spill_make(path, &want, &file), 0);
}

static void make_and_close(uint64_t slots)
{
    make(slots);
    kvshm__spill_close(&file);
}

static uint64_t bytes_of(const char *name)
{
    struct stat status;

    ck_assert_int_eq(stat(name, &status), 0);
    return (uint64_t)status.st_size;
}

/* Write into the file as nobody should. */
static void scribble(uint64_t offset, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY);

    ck_assert_int_eq(pwrite(fd, bytes, n, (off_t)offset), (ssize_t)n);
    close(fd);
}

static struct kvshm_spill_header read_header(void)
{
    struct kvshm_spill_header header;
    int fd = open(path, O_RDONLY);

    ck_assert_int_eq(pread(fd, &header, sizeof(header), 0), sizeof(header));
    close(fd);
    return header;
}

/* As whoever forges it would, with the right checksum. */
static void write_forged(struct kvshm_spill_header header)
{
    header.checksum = XXH3_64bits(&header, offsetof(struct kvshm_spill_header, checksum));
    scribble(0, &header, sizeof(header));
}

/* ---- Shape -------------------------------------------------------------------------------------------------- */

START_TEST(test_shape_is_frozen)
{
    ck_assert_uint_eq(sizeof(struct kvshm_spill_header), 512);
    ck_assert_uint_eq(offsetof(struct kvshm_spill_header, geometry), 72);
    ck_assert_uint_eq(offsetof(struct kvshm_spill_header, fingerprint), 120);
    ck_assert_uint_eq(offsetof(struct kvshm_spill_header, arena_id), 168);
    ck_assert_uint_eq(offsetof(struct kvshm_spill_header, checksum), 504);
    ck_assert_uint_eq(sizeof(struct kvshm_slot_header), 136);
    ck_assert_uint_eq(offsetof(struct kvshm_slot_header, page_id), 32);
    ck_assert_uint_eq(offsetof(struct kvshm_slot_header, length), 80);
    ck_assert_uint_eq(offsetof(struct kvshm_slot_header, payload_sum), 112);
    ck_assert_uint_eq(offsetof(struct kvshm_slot_header, words), 136);
    ck_assert_uint_eq(sizeof(struct kvshm_spill_epoch), 32);
}
END_TEST

/* Tables apart, each at a multiple of the block, and no more bytes than the budget. */
START_TEST(test_shape_fits_the_budget)
{
    for (uint32_t block = KVSHM__SPILL_BLOCK_MIN; block <= KVSHM__SPILL_BLOCK_MAX; block *= 2) {
        for (uint64_t budget = 1 << 20; budget < UINT64_C(1) << 45; budget = budget * 3 + 12345) {
            struct kvshm__spill_want want = wanted(1);
            struct kvshm__spill_shape s;

            want.budget_bytes = budget;
            ts_is(kvshm__spill_shape_make(&want, block, &s), 0);
            ck_assert_uint_eq(s.headers_offset, 4 * (uint64_t)block);
            ck_assert_uint_eq(s.header_stride % block, 0);
            ck_assert_uint_ge(s.header_stride, sizeof(struct kvshm_slot_header) + 8 * 5);
            ck_assert_uint_eq(s.payload_stride % block, 0);
            ck_assert_uint_ge(s.payload_stride, PAGE_BYTES);
            ck_assert_uint_eq(s.payload_offset, kvshm__spill_header_offset(&s, s.slots));
            ck_assert_uint_eq(s.file_bytes, kvshm__spill_payload_offset(&s, s.slots));
            ck_assert_uint_le(s.file_bytes, budget);
            if (s.slots < KVSHM__SLOTS_MAX)
                ck_assert_uint_gt(s.file_bytes + s.header_stride + s.payload_stride, budget);
        }
    }
}
END_TEST

START_TEST(test_too_small_a_budget_says_what_a_page_takes)
{
    struct kvshm__spill_want want = wanted(1);

    want.budget_bytes--;
    ts_is(kvshm__spill_make(path, &want, &file), -EINVAL);
    ts_says("spill_bytes is 32767; a file for 3 clients and one page of 10000 bytes takes 32768");
    ck_assert_int_eq(access(path, F_OK), -1);
}
END_TEST

/* ---- Making ------------------------------------------------------------------------------------------------- */

START_TEST(test_made_whole)
{
    struct stat status;

    make(5);
    ck_assert(file.direct);
    ck_assert_uint_eq(file.shape.slots, 5);
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_uint_eq((uint64_t)status.st_size, file.shape.file_bytes);
    ck_assert_uint_ge((uint64_t)status.st_blocks * 512, file.shape.file_bytes);
    ck_assert_uint_eq(status.st_mode & 0777, 0600);
    kvshm__spill_close(&file);

    struct kvshm__spill_want want = wanted(5);
    ts_is(kvshm__spill_open(path, &want, &file), 0);
    ck_assert_uint_eq(file.header.slots, 5);
    ck_assert_uint_eq(file.header.arena_id[0] | file.header.arena_id[1], 0);
}
END_TEST

START_TEST(test_what_is_there_is_kept)
{
    struct kvshm__spill_want want = wanted(2);

    make_and_close(2);
    ts_is(kvshm__spill_make(path, &want, &file), -EEXIST);
    ts_is(kvshm__spill_open(path, NULL, &file), 0);
}
END_TEST

START_TEST(test_an_empty_file_becomes_one)
{
    close(open(path, O_CREAT | O_WRONLY, 0640));
    make(2);
    ck_assert_uint_eq(bytes_of(path), file.shape.file_bytes);
    kvshm__spill_close(&file);
    ts_is(kvshm__spill_open(path, NULL, &file), 0);
}
END_TEST

START_TEST(test_links_are_not_followed)
{
    char elsewhere[80];
    struct kvshm__spill_want want = wanted(2);

    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", folder);
    ck_assert_int_eq(symlink(elsewhere, path), 0);
    ts_is(kvshm__spill_make(path, &want, &file), -ELOOP);
    ts_is(kvshm__spill_open(path, NULL, &file), -ELOOP);
    ck_assert_int_eq(access(elsewhere, F_OK), -1);
}
END_TEST

/* Whatever fails, no file stands there that is not whole, and no descriptor and no mapping is left. */
START_TEST(test_any_call_fails_while_it_is_made)
{
    static const int errors[] = {EIO, ENOSPC, EINTR};
    struct kvshm__spill_want want = wanted(2);

    for (size_t e = 0; e < sizeof(errors) / sizeof(*errors); e++) {
        int code = -1;

        for (unsigned n = 1; code != 0; n++) {
            unsigned fds = ts_fds(), maps = ts_maps();

            ts_fail_nth(n, errors[e]);
            code = kvshm__spill_make(path, &want, &file);
            bool failed = ts_fail_name() != NULL;
            ts_fail_off();
            if (code == 0) {
                kvshm__spill_close(&file);
                ts_is(kvshm__spill_open(path, &want, &file), 0);
                kvshm__spill_close(&file);
                unlink(path);
                if (failed)
                    code = -1; /* it was made all the same; go on with the next call */
            } else if (access(path, F_OK) == 0) {
                /* Named, but the folder was not synced: whole. */
                ts_is(kvshm__spill_open(path, &want, &file), 0);
                kvshm__spill_close(&file);
                unlink(path);
            }
            ck_assert_uint_eq(ts_fds(), fds);
            ck_assert_uint_eq(ts_maps(), maps);
            ck_assert_uint_lt(n, 200);
        }
    }
}
END_TEST

static int no_direct(const char *name, int flags, unsigned mode)
{
    return flags & O_DIRECT ? -EINVAL : kvshm__sys_real.open(name, flags, mode);
}

START_TEST(test_without_direct_io)
{
    kvshm__sys.open = no_direct;
    make(2);
    ck_assert(!file.direct);
    ck_assert_uint_eq(file.shape.block_bytes, KVSHM__SPILL_BLOCK_MIN);
}
END_TEST

static int align_16k(int fd, uint32_t *memory, uint32_t *offset)
{
    (void)fd;
    *memory = 512;
    *offset = 16384;
    return 0;
}

static int align_too_large(int fd, uint32_t *memory, uint32_t *offset)
{
    (void)fd;
    *memory = 512;
    *offset = 131072;
    return 0;
}

START_TEST(test_blocks_are_those_of_the_file_system)
{
    struct kvshm__spill_want want = wanted(40);

    make_and_close(2);
    kvshm__sys.direct_align = align_16k;
    ts_is(kvshm__spill_open(path, NULL, &file), -EINVAL);
    ts_says("was made with blocks of 4096 bytes, and its file system wants 16384");
    unlink(path);
    ts_is(kvshm__spill_make(path, &want, &file), 0);
    ck_assert_uint_eq(file.shape.block_bytes, 16384);
    ck_assert_uint_eq(file.memory_align, 512);
    kvshm__spill_close(&file);
    unlink(path);
    kvshm__sys.direct_align = align_too_large;
    ts_is(kvshm__spill_make(path, &want, &file), -EINVAL);
    ts_says("131072");
}
END_TEST

/* ---- Opening ------------------------------------------------------------------------------------------------ */

START_TEST(test_other_files_are_refused)
{
    struct kvshm__spill_want want = wanted(2);

    ts_is(kvshm__spill_open(path, NULL, &file), -ENOENT);
    make_and_close(2);
    want.geometry.page_tokens = 8;
    ts_is(kvshm__spill_open(path, &want, &file), KVSHM_E_GEOMETRY);
    want = wanted(2);
    want.fingerprint[31] = 1;
    ts_is(kvshm__spill_open(path, &want, &file), KVSHM_E_FINGERPRINT);
    ck_assert_int_eq(file.fd, -1);
    want.named_fingerprint = false;
    ts_is(kvshm__spill_open(path, &want, &file), KVSHM_E_FINGERPRINT);
    ts_says("names none");

    struct kvshm_spill_header good = read_header(), other = good;
    scribble(0, "KVSHM\r\n", 7);
    ts_is(kvshm__spill_open(path, NULL, &file), KVSHM_E_FORMAT);
    other.version = 2;
    write_forged(other);
    ts_is(kvshm__spill_open(path, NULL, &file), KVSHM_E_VERSION);
    other = good;
    other.byte_order = 0x04030201;
    write_forged(other);
    ts_is(kvshm__spill_open(path, NULL, &file), KVSHM_E_BYTE_ORDER);
    write_forged(good);
    ck_assert_int_eq(truncate(path, (off_t)good.file_bytes - 1), 0);
    ts_is(kvshm__spill_open(path, NULL, &file), KVSHM_E_DAMAGED);
    ts_says("was truncated");
    ck_assert_int_eq(truncate(path, 100), 0);
    ts_is(kvshm__spill_open(path, NULL, &file), KVSHM_E_FORMAT);
}
END_TEST

/* Each byte of the header changed, in each way, is an error; forged with the right checksum, an error or a header that
   says nothing that its size does not allow. */
START_TEST(test_every_byte_of_the_header)
{
    make_and_close(3);
    struct kvshm_spill_header good = read_header();

    for (size_t at = 0; at < sizeof(good); at++) {
        for (unsigned change = 1; change < 256; change = change * 2 + 1) {
            struct kvshm_spill_header bad = good;

            ((uint8_t *)&bad)[at] ^= (uint8_t)change;
            scribble(0, &bad, sizeof(bad));
            ck_assert_int_lt(kvshm__spill_open(path, NULL, &file), 0);
            ck_assert_int_eq(file.fd, -1);
            write_forged(bad);
            if (kvshm__spill_open(path, NULL, &file) == 0) {
                ck_assert_uint_eq(file.shape.file_bytes, good.file_bytes);
                ck_assert_uint_eq(file.shape.payload_offset, good.payload_offset);
                ck_assert_uint_eq(file.shape.header_stride, good.header_stride);
                kvshm__spill_close(&file);
            }
        }
    }
}
END_TEST

/* ---- Whose it is -------------------------------------------------------------------------------------------- */

START_TEST(test_k2_adopted_only_alone)
{
    static const uint64_t mine[2] = {1, 2}, other[2] = {3, 4};
    struct kvshm__spill_file second, third;

    make(2);
    ts_is(kvshm__spill_adopt(&file, path, mine), 0);
    ts_is(kvshm__spill_follow(&file, path, mine), 0);

    ts_is(kvshm__spill_open(path, NULL, &second), 0);
    ts_is(kvshm__spill_follow(&second, path, mine), 0);
    ts_is(kvshm__spill_adopt(&second, path, other), -EBUSY);
    ts_says("in use");
    ts_is(kvshm__spill_adopt(&file, path, other), -EBUSY);
    /* Who would make it finds that it is there, and waits for its users at adoption. */
    struct kvshm__spill_want want = wanted(2);
    ts_is(kvshm__spill_make(path, &want, &third), -EEXIST);
    ts_is(kvshm__spill_follow(&second, path, other), -ESTALE);
    kvshm__spill_close(&file);

    ts_is(kvshm__spill_adopt(&second, path, other), 0);
    ts_is(kvshm__spill_follow(&second, path, mine), -ESTALE);
    ts_is(kvshm__spill_follow(&second, path, other), 0);
    ck_assert_uint_eq(second.header.arena_id[1], 4);
    kvshm__spill_close(&second);
}
END_TEST

START_TEST(test_k2_nobody_opens_what_is_being_made)
{
    struct kvshm__spill_want want = wanted(2);
    int fd;

    close(open(path, O_CREAT | O_WRONLY, 0600));
    fd = open(path, O_RDWR);
    ck_assert_int_eq(kvshm__sys.lock_set(fd, F_WRLCK, KVSHM__SPILL_LOCK, 1), 0);
    ts_is(kvshm__spill_make(path, &want, &file), -EBUSY);
    ts_is(kvshm__spill_open(path, NULL, &file), -EBUSY);
    close(fd);
    make(2);
}
END_TEST

START_TEST(test_the_largest_epoch_counts)
{
    uint64_t largest, garbage[4] = {99, file.header.file_id[0], 0, 5};

    make(2);
    ts_is(kvshm__spill_epoch_read(&file, &largest), 0);
    ck_assert_uint_eq(largest, 0);
    ts_is(kvshm__spill_epoch_write(&file, 0, 7), 0);
    ts_is(kvshm__spill_epoch_write(&file, 2, 12), 0);
    ts_is(kvshm__spill_epoch_write(&file, 1, 3), 0);
    ts_is(kvshm__spill_epoch_write(&file, 3, 100), -EINVAL);
    scribble(4096 * 2, garbage, sizeof(garbage));
    ts_is(kvshm__spill_epoch_read(&file, &largest), 0);
    ck_assert_uint_eq(largest, 12);
    ts_is(kvshm__spill_epoch_write(&file, 2, 1), 0);
    ts_is(kvshm__spill_epoch_read(&file, &largest), 0);
    ck_assert_uint_eq(largest, 7);
}
END_TEST

/* ---- Slot headers ------------------------------------------------------------------------------------------- */

union one_header {
    struct kvshm_slot_header header;
    uint8_t bytes[4096];
};

static union one_header slot_header(uint64_t slot, uint32_t flags, uint32_t length)
{
    union one_header one;

    memset(&one, 0, sizeof(one));
    one.header.flags = flags;
    one.header.slot = slot;
    one.header.epoch = 1;
    one.header.page_id[0] = 77;
    one.header.page_id[1] = slot + 1;
    one.header.length = length;
    for (uint32_t i = 0; i < kvshm__slot_words(flags, length); i++)
        one.header.words[i] = 1000 * slot + i;
    kvshm__slot_seal(&file, &one.header);
    return one;
}

static void put(uint64_t slot, const union one_header *one)
{
    scribble(kvshm__spill_header_offset(&file.shape, slot), one, sizeof(*one));
}

START_TEST(test_k3_valid_at_its_slot_alone)
{
    make(4);
    union one_header one = slot_header(2, KVSHM__SLOT_ENTRY, PAGE_TOKENS);

    ck_assert(kvshm__slot_valid(&file, 2, &one.header));
    ck_assert(!kvshm__slot_valid(&file, 1, &one.header));
    for (size_t at = 0; at < sizeof(one.header) + 8 * 5; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            one.bytes[at] ^= (uint8_t)(1 << bit);
            ck_assert(!kvshm__slot_valid(&file, 2, &one.header));
            one.bytes[at] ^= (uint8_t)(1 << bit);
        }
    }
    ck_assert(kvshm__slot_valid(&file, 2, &one.header));
    file.header.file_id[0]++; /* the header of another file */
    ck_assert(!kvshm__slot_valid(&file, 2, &one.header));
}
END_TEST

/* Counts out of their limits are not valid, even with the right checksum. */
START_TEST(test_k3_limits_hold_for_the_forged)
{
    make(4);
    union one_header one = slot_header(0, 0, PAGE_TOKENS + 1);

    ck_assert(!kvshm__slot_valid(&file, 0, &one.header));
    one = slot_header(0, 0, 0);
    ck_assert(!kvshm__slot_valid(&file, 0, &one.header));
    one = slot_header(0, KVSHM__SLOT_FLAGS + 1, 1);
    ck_assert(!kvshm__slot_valid(&file, 0, &one.header));
    one = slot_header(0, KVSHM__SLOT_KEY_ONLY, 1);
    ck_assert(kvshm__slot_valid(&file, 0, &one.header));
    one.header.page_id[0] = one.header.page_id[1] = 0;
    kvshm__slot_seal(&file, &one.header);
    ck_assert(!kvshm__slot_valid(&file, 0, &one.header));
}
END_TEST

START_TEST(test_payload_of_another_page)
{
    uint8_t payload[PAGE_BYTES] = {5};

    uint64_t sum = kvshm__payload_sum(payload, sizeof(payload));
    ck_assert_uint_eq(sum, kvshm__payload_sum(payload, sizeof(payload)));
    payload[PAGE_BYTES - 1] ^= 1;
    ck_assert_uint_ne(sum, kvshm__payload_sum(payload, sizeof(payload)));
}
END_TEST

/* ---- The sweep ---------------------------------------------------------------------------------------------- */

static uint64_t visited[1000], visits;

static int visit(void *arg, const struct kvshm_slot_header *header)
{
    ck_assert_ptr_eq(arg, &visits);
    ck_assert_uint_lt(visits, 1000);
    visited[visits++] = header->slot;
    return 0;
}

static int stop_at_3(void *arg, const struct kvshm_slot_header *header)
{
    (void)arg;
    return header->slot >= 3 ? 42 : 0;
}

START_TEST(test_sweep_sees_the_valid)
{
    struct kvshm__spill_swept swept;
    uint64_t valid = 0;

    make(700); /* more than one read */
    for (uint64_t slot = 0; slot < 700; slot += 1 + slot % 5) {
        union one_header one = slot_header(slot, 0, (uint32_t)(1 + slot % PAGE_TOKENS));
        if (slot % 7 == 3)
            one.bytes[100] ^= 1;
        else
            valid++;
        put(slot, &one);
    }
    visits = 0;
    ts_is(kvshm__spill_sweep(&file, visit, &visits, &swept), 0);
    ck_assert_uint_eq(visits, valid);
    ck_assert_uint_eq(swept.valid, valid);
    ck_assert_uint_gt(swept.damaged, 0);
    ck_assert_uint_eq(swept.unreadable, 0);
    ck_assert_uint_eq(swept.valid + swept.damaged + swept.erased, 700);
    for (uint64_t i = 1; i < visits; i++)
        ck_assert_uint_lt(visited[i - 1], visited[i]);
    ts_is(kvshm__spill_sweep(&file, stop_at_3, NULL, &swept), 42);
}
END_TEST

/* The disk refuses slot 300, whatever read covers it. */
static int refusing(int fd, void *to, size_t size, uint64_t offset)
{
    uint64_t bad = kvshm__spill_header_offset(&file.shape, 300);

    return offset <= bad && bad < offset + size ? -EIO : kvshm__sys_real.pread(fd, to, size, offset);
}

START_TEST(test_an_unreadable_block_costs_its_own)
{
    struct kvshm__spill_swept swept;

    make(700);
    for (uint64_t slot = 0; slot < 700; slot++) {
        union one_header one = slot_header(slot, 0, 1);
        put(slot, &one);
    }
    kvshm__sys.pread = refusing;
    visits = 0;
    ts_is(kvshm__spill_sweep(&file, visit, &visits, &swept), 0);
    ck_assert_uint_eq(swept.valid, 699);
    ck_assert_uint_eq(swept.unreadable, 1);
    ck_assert_uint_eq(visited[300], 301);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("spill_file");
    TCase *tcase = tcase_create("spill_file");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_shape_is_frozen);
    tcase_add_test(tcase, test_shape_fits_the_budget);
    tcase_add_test(tcase, test_too_small_a_budget_says_what_a_page_takes);
    tcase_add_test(tcase, test_made_whole);
    tcase_add_test(tcase, test_what_is_there_is_kept);
    tcase_add_test(tcase, test_an_empty_file_becomes_one);
    tcase_add_test(tcase, test_links_are_not_followed);
    tcase_add_test(tcase, test_any_call_fails_while_it_is_made);
    tcase_add_test(tcase, test_without_direct_io);
    tcase_add_test(tcase, test_blocks_are_those_of_the_file_system);
    tcase_add_test(tcase, test_other_files_are_refused);
    tcase_add_test(tcase, test_every_byte_of_the_header);
    tcase_add_test(tcase, test_k2_adopted_only_alone);
    tcase_add_test(tcase, test_k2_nobody_opens_what_is_being_made);
    tcase_add_test(tcase, test_the_largest_epoch_counts);
    tcase_add_test(tcase, test_k3_valid_at_its_slot_alone);
    tcase_add_test(tcase, test_k3_limits_hold_for_the_forged);
    tcase_add_test(tcase, test_payload_of_another_page);
    tcase_add_test(tcase, test_sweep_sees_the_valid);
    tcase_add_test(tcase, test_an_unreadable_block_costs_its_own);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
