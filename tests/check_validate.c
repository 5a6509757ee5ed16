/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_validate.c - damaged, foreign and forged headers are answered by an error each, and nothing is touched
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support.h"
#include "validate.h"

static int fd;
static struct kvshm_header whole;
static uint64_t bytes;

static void set_up(bool spills)
{
    struct kvshm_config config = ts_config(4096, 64, 20);
    char path[300], spill_path[300];

    ts_setup();
    if (spills) {
        snprintf(spill_path, sizeof(spill_path), "%s/spilled", getenv("KVSHM_DIR"));
        config.spill_path = spill_path;
        config.spill_bytes = 1 << 20;
    }
    ts_detach(ts_create("a", &config));
    snprintf(path, sizeof(path), "%s/a", getenv("KVSHM_DIR"));
    fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pread(fd, &whole, sizeof(whole), 0), sizeof(whole));
    bytes = (uint64_t)lseek(fd, 0, SEEK_END);
}

static void setup(void)
{
    set_up(false);
}

/* With a spill file the directory has more sections. */
static void setup_spilling(void)
{
    set_up(true);
}

static void teardown(void)
{
    close(fd);
    ts_teardown();
}

static void put(const struct kvshm_header *header)
{
    ck_assert_int_eq(pwrite(fd, header, sizeof(*header), 0), sizeof(*header));
}

static int attach_as(const struct kvshm_header *header, unsigned flags)
{
    kvshm *kv;
    int code;

    put(header);
    code = kvshm_attach("a", NULL, flags, &kv);
    if (code == 0)
        ts_detach(kv);
    else
        ck_assert_ptr_null(kv);
    return code;
}

/* Each byte of the fixed part, changed in each of several ways. */
START_TEST(test_any_byte)
{
    static const unsigned char changes[] = {0x01, 0x80, 0xff};
    unsigned fds = ts_fds(), maps = ts_maps();
    kvshm *kv;

    for (size_t i = 0; i < sizeof(struct kvshm_static); i++) {
        for (size_t c = 0; c < sizeof(changes); c++) {
            struct kvshm_header header = whole;
            int code;

            ((unsigned char *)&header)[i] ^= changes[c];
            put(&header);
            code = kvshm_attach("a", NULL, c == 0 ? KVSHM_RDONLY : 0, &kv);
            if (code != KVSHM_E_FORMAT && code != KVSHM_E_VERSION && code != KVSHM_E_DAMAGED)
                ck_abort_msg("byte %zu changed by %#x: answer %d", i, changes[c], code);
        }
    }
    ck_assert_uint_eq(ts_fds(), fds);
    ck_assert_uint_eq(ts_maps(), maps);
    put(&whole);
    ts_is(kvshm_attach("a", NULL, 0, &kv), 0);
    ts_detach(kv);
}
END_TEST

/* A field changed by one who gets the checksum right. */
struct forged {
    size_t offset;
    size_t width;
    uint64_t value;
    int code;
    const char *says;
};
#define FIELD(field, value, code, says)                                                           \
    {                                                                                             \
        offsetof(struct kvshm_static, field), sizeof(((struct kvshm_static *)0)->field), (value), \
            (code), (says)                                                                        \
    }
#define SECTION(kind) directory[KVSHM__SEC_##kind - 1]

static const struct forged forgeries[] = {
    FIELD(magic, 0, KVSHM_E_FORMAT, "signature"),
    FIELD(byte_order, 0x04030201, KVSHM_E_BYTE_ORDER, "the other byte order"),
    FIELD(byte_order, 7, KVSHM_E_DAMAGED, "byte_order is 7"),
    FIELD(layout_version, 2, KVSHM_E_VERSION, "layout version 2"),
    FIELD(word_bytes, 4, KVSHM_E_BYTE_ORDER, "words of 4 bytes"),
    FIELD(incompat, 4, KVSHM_E_FEATURE, "features 0x4"),
    FIELD(ro_compat, 8, KVSHM_E_FEATURE, "KVSHM_RDONLY"),
    FIELD(header_bytes, 8192, KVSHM_E_DAMAGED, "header_bytes"),
    FIELD(client_bytes, 512, KVSHM_E_DAMAGED, "client_bytes"),
    FIELD(record_bytes, 64, KVSHM_E_DAMAGED, "record_bytes"),
    FIELD(links_bytes, 64, KVSHM_E_DAMAGED, "links_bytes"),
    FIELD(lease_word_bytes, 8, KVSHM_E_DAMAGED, "lease_word_bytes"),
    FIELD(boot_id, 1, KVSHM_E_BOOT, "before this boot"),
    FIELD(frames, 0, KVSHM_E_DAMAGED, "frames is 0"),
    FIELD(frames, UINT64_C(1) << 28, KVSHM_E_DAMAGED, "frames is 268435456"),
    FIELD(frames, 21, KVSHM_E_DAMAGED, "records"),
    FIELD(records, 19, KVSHM_E_DAMAGED, "records is 19"),
    FIELD(records, 21, KVSHM_E_DAMAGED, "section of kind is 5"),
    FIELD(records, UINT64_MAX, KVSHM_E_DAMAGED, "records"),
    FIELD(buckets, 1, KVSHM_E_DAMAGED, "buckets is 1"),
    FIELD(buckets, UINT32_MAX, KVSHM_E_DAMAGED, "section of kind is 4"),
    FIELD(max_clients, 0, KVSHM_E_DAMAGED, "max_clients"),
    FIELD(max_clients, 4096, KVSHM_E_DAMAGED, "section of kind is 1"),
    FIELD(max_clients, 4097, KVSHM_E_DAMAGED, "max_clients is 4097"),
    FIELD(max_leases, 0, KVSHM_E_DAMAGED, "max_leases"),
    FIELD(max_leases, 65535, KVSHM_E_DAMAGED, "section of kind is 2"),
    FIELD(max_leases, 65536, KVSHM_E_DAMAGED, "max_leases is 65536"),
    FIELD(page_size, 0, KVSHM_E_DAMAGED, "page_size is 0"),
    FIELD(page_size, 4097, KVSHM_E_DAMAGED, "page_size is 4097"),
    FIELD(clock, 3, KVSHM_E_DAMAGED, "clock is 3"),
    FIELD(backing, 9, KVSHM_E_DAMAGED, "backing is 9"),
    FIELD(numa_asked, 3, KVSHM_E_DAMAGED, "numa_asked is 3"),
    FIELD(numa, 0, KVSHM_E_DAMAGED, "numa is 0"),
    FIELD(numa, 1280, KVSHM_E_DAMAGED, "numa is 1280"),
    FIELD(geometry.page_tokens, 0, KVSHM_E_DAMAGED, "geometry"),
    FIELD(geometry.page_tokens, 1 << 20, KVSHM_E_DAMAGED, "text_stride"),
    FIELD(geometry.page_bytes, 4095, KVSHM_E_DAMAGED, "page_bytes is 4096"),
    FIELD(page_bytes, 8192, KVSHM_E_DAMAGED, "page_bytes is 8192"),
    FIELD(frame_stride, 64, KVSHM_E_DAMAGED, "frame_stride is 64"),
    FIELD(frame_stride, 4100, KVSHM_E_DAMAGED, "frame_stride is 4100"),
    FIELD(frame_stride, 8192, KVSHM_E_DAMAGED, "section of kind is 10"),
    FIELD(frame_stride, UINT64_MAX - 63, KVSHM_E_DAMAGED, "frame_stride"),
    FIELD(text_stride, 16, KVSHM_E_DAMAGED, "text_stride is 16"),
    FIELD(text_stride, 320, KVSHM_E_DAMAGED, "section of kind is 7"),
    FIELD(segment_bytes, UINT64_MAX, KVSHM_E_DAMAGED, "segment_bytes"),
    FIELD(segment_bytes, UINT64_C(1) << 40, KVSHM_E_FORMAT, "it was cut"),
    FIELD(segment_bytes, 8192, KVSHM_E_DAMAGED, "segment_bytes is 8192"),
    FIELD(SECTION(RECORDS).kind, 0, KVSHM_E_DAMAGED, "missing section of kind is 5"),
    FIELD(SECTION(RECORDS).kind, 4, KVSHM_E_DAMAGED, "section of kind is 4"),
    FIELD(SECTION(RECORDS).offset, 0, KVSHM_E_DAMAGED, "section of kind is 5"),
    FIELD(SECTION(RECORDS).offset, 4096 + 8, KVSHM_E_DAMAGED, "section of kind is 5"),
    FIELD(SECTION(RECORDS).offset, 4096, KVSHM_E_DAMAGED, "overlapping section of kind is 5"),
    FIELD(SECTION(RECORDS).offset, UINT64_MAX - 63, KVSHM_E_DAMAGED, "section of kind is 5"),
    FIELD(SECTION(RECORDS).length, 64, KVSHM_E_DAMAGED, "section of kind is 5"),
    FIELD(SECTION(RECORDS).length, UINT64_MAX, KVSHM_E_DAMAGED, "section of kind is 5"),
    FIELD(SECTION(RECORDS).stride, 192, KVSHM_E_DAMAGED, "section of kind is 5"),
    FIELD(SECTION(FRAMES).offset, 64 * 1001, KVSHM_E_DAMAGED, "section of kind is 10"),
    FIELD(directory[15].kind, 99, KVSHM_E_DAMAGED, "section of kind is 99"),
    FIELD(directory[15].kind, 5, KVSHM_E_DAMAGED, "section of kind is 5"),
    FIELD(name, 0, KVSHM_E_DAMAGED, "name"),
};

static void set(struct kvshm_static *fixed, size_t offset, size_t width, uint64_t value)
{
    memcpy((char *)fixed + offset, &value, width < 8 ? width : 8);
    fixed->checksum = kvshm__validate_checksum(fixed);
}

START_TEST(test_forged_field)
{
    const struct forged *forged = &forgeries[_i];
    struct kvshm_header header = whole, after;

    set(&header.fixed, forged->offset, forged->width, forged->value);
    ts_is(attach_as(&header, 0), forged->code);
    ts_says(forged->says);
    ck_assert_int_eq(pread(fd, &after, sizeof(after), 0), sizeof(after));
    ck_assert_mem_eq(&after, &header, sizeof(after));
    if (forged->code != KVSHM_E_FORMAT || strcmp(forged->says, "signature") != 0)
        ts_is(kvshm_unlink("a", 0), 0); /* it can be removed all the same */
    else
        ts_is(kvshm_unlink("a", 0), KVSHM_E_FORMAT);
}
END_TEST

/* What a newer library may add without being in the way. */
START_TEST(test_additions_are_let_be)
{
    struct kvshm_header header = whole;

    header.fixed.compat = 1;
    header.fixed.ro_compat = 1;
    header.fixed.checksum = kvshm__validate_checksum(&header.fixed);
    ts_is(attach_as(&header, KVSHM_RDONLY), 0);
    ts_is(attach_as(&header, 0), KVSHM_E_FEATURE);
}
END_TEST

/* ---- The directory ------------------------------------------------------------------------------------ */

/* What is written over section i (j is another one); it must then be refused. */
static void change_section(struct kvshm_section *s, const struct kvshm_section *other, unsigned way)
{
    switch (way) {
    case 0: /* where another one is, from its beginning, its end, its midst; around it */
        s->offset = other->offset;
        break;
    case 1:
        s->offset = other->offset + other->length - 4096;
        s->offset -= s->offset % 4096;
        break;
    case 2:
        s->offset = KVSHM__HEADER_BYTES;
        s->length = bytes - KVSHM__HEADER_BYTES;
        break;
    case 3: /* twice */
        s->kind = other->kind;
        break;
    case 4: /* of a kind that is missing then */
        s->kind = 0;
        break;
    case 5:
        s->kind = KVSHM__SEC_KINDS + 3;
        break;
    case 6: /* out of range */
        s->offset = bytes;
        break;
    case 7:
        s->offset = 0 - s->length;
        break;
    case 8:
        s->length = bytes - s->offset + 4096;
        break;
    case 9:
        s->length = UINT64_MAX - s->offset;
        break;
    case 10:
        s->offset = 0;
        break;
    case 11: /* not where a line begins */
        s->offset += 8;
        break;
    case 12: /* too short, wrong stride */
        s->length -= s->stride;
        s->length -= s->length % s->stride + 1;
        break;
    case 13:
        s->stride += 8;
        break;
    case 14:
        s->stride = 0;
        break;
    default:
        s->stride = 1;
    }
}
#define WAYS 16

START_TEST(test_directory)
{
    uint64_t cases = 0;

    for (unsigned i = 0; i < KVSHM__DIRECTORY_ROOM; i++) {
        for (unsigned j = 0; j < KVSHM__DIRECTORY_ROOM; j++) {
            for (unsigned way = 0; way < WAYS; way++) {
                struct kvshm_header header = whole, after;
                struct kvshm_section *s = &header.fixed.directory[i];
                const struct kvshm_section *other = &whole.fixed.directory[j];
                int code;

                if (i == j || s->kind == 0 || other->kind == 0)
                    continue;
                change_section(s, other, way);
                header.fixed.checksum = kvshm__validate_checksum(&header.fixed);
                code = attach_as(&header, cases++ % 2 ? KVSHM_RDONLY : 0);
                if (code != KVSHM_E_DAMAGED || strstr(kvshm_errmsg(NULL), "directory") == NULL)
                    ck_abort_msg("section %u changed in way %u, beside section %u: answer %d: %s",
                                 i, way, j, code, kvshm_errmsg(NULL));
                ck_assert_int_eq(pread(fd, &after, sizeof(after), 0), sizeof(after));
                ck_assert_mem_eq(&after, &header, sizeof(after));
            }
        }
    }
    printf("%" PRIu64 " directories\n", cases);
}
END_TEST

/* ---- Others' arenas -------------------------------------------------------------------------------------- */

/* An answer to each kind of attach, and not a byte of the file is another one. */
static void refused(const struct kvshm_header *header, const struct kvshm_config *expect, int code)
{
    uint8_t *before = malloc(bytes), *after = malloc(bytes);
    kvshm *kv;

    put(header);
    ck_assert_int_eq(pread(fd, before, bytes, 0), (ssize_t)bytes);
    for (unsigned i = 0; i < 3; i++) {
        ts_is(i < 2 ? kvshm_attach("a", expect, i ? KVSHM_RDONLY : 0, &kv)
                    : kvshm_open("a", expect, KVSHM_RDONLY, &kv),
              code);
        ck_assert_ptr_null(kv);
        ck_assert_int_eq(pread(fd, after, bytes, 0), (ssize_t)bytes);
        ck_assert_mem_eq(before, after, bytes);
    }
    free(before);
    free(after);
}

static struct kvshm_header forge(size_t offset, size_t width, uint64_t value)
{
    struct kvshm_header header = whole;

    set(&header.fixed, offset, width, value);
    return header;
}
#define FORGED(field, value) \
    forge(offsetof(struct kvshm_static, field), sizeof(((struct kvshm_static *)0)->field), (value))

START_TEST(test_arenas_of_others_are_not_touched)
{
    struct kvshm_config expect = ts_config(4096, 64, 20);
    struct kvshm_header header;

    for (unsigned bit = 0; bit < 64; bit++) {
        header = FORGED(incompat, UINT64_C(1) << bit);
        refused(&header, NULL, KVSHM_E_FEATURE);
    }
    header = FORGED(layout_version, KVSHM__LAYOUT_VERSION + 1);
    refused(&header, NULL, KVSHM_E_VERSION);
    header = FORGED(layout_version, KVSHM__LAYOUT_VERSION - 1);
    refused(&header, NULL, KVSHM_E_VERSION);
    header = FORGED(byte_order, __builtin_bswap32(KVSHM__BYTE_ORDER));
    refused(&header, NULL, KVSHM_E_BYTE_ORDER);
    header = FORGED(word_bytes, 4);
    refused(&header, NULL, KVSHM_E_BYTE_ORDER);
    header = FORGED(page_size, 2048);
    refused(&header, NULL, KVSHM_E_DAMAGED);
    header = FORGED(page_size, 1u << 31);
    refused(&header, NULL, KVSHM_E_DAMAGED);
    header = FORGED(boot_id, 5);
    refused(&header, NULL, KVSHM_E_BOOT);
    expect.geometry.page_tokens = 32;
    refused(&whole, &expect, KVSHM_E_GEOMETRY);
    expect.geometry.page_tokens = 64;
    expect.geometry.page_bytes = 8192;
    refused(&whole, &expect, KVSHM_E_GEOMETRY);
    expect = ts_config(4096, 64, 20);
    memset(expect.fingerprint, 7, sizeof(expect.fingerprint));
    header = whole;
    header.fingerprint[3] = 1;
    header.has_fingerprint = 1;
    refused(&header, &expect, KVSHM_E_FINGERPRINT);
}
END_TEST

START_TEST(test_live_part)
{
    struct kvshm_header header = whole;

    header.epoch = 0;
    ts_is(attach_as(&header, 0), KVSHM_E_DAMAGED);
    ts_says("epoch is 0");
    header = whole;
    header.has_fingerprint = 2;
    ts_is(attach_as(&header, KVSHM_RDONLY), KVSHM_E_DAMAGED);
    header = whole;
    header.next_client = UINT64_MAX;
    ts_is(attach_as(&header, 0), KVSHM_E_DAMAGED);
    ts_says("next_client");
}
END_TEST

/* Cut anywhere between two pages: an answer that names both sizes. */
START_TEST(test_cut_between_any_two_pages)
{
    unsigned fds = ts_fds(), maps = ts_maps();
    char says[64];
    kvshm *kv;

    for (uint64_t size = 4096; size < bytes; size += 4096) {
        ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
        for (unsigned i = 0; i < 2; i++) {
            ts_is(kvshm_attach("a", NULL, i ? KVSHM_RDONLY : 0, &kv), KVSHM_E_FORMAT);
            snprintf(says, sizeof(says), "has %" PRIu64 " bytes, and its header says %" PRIu64,
                     size, bytes);
            ts_says(says);
        }
        ck_assert_uint_eq((uint64_t)lseek(fd, 0, SEEK_END), size);
        ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
    }
    ck_assert_uint_eq(ts_fds(), fds);
    ck_assert_uint_eq(ts_maps(), maps);
}
END_TEST

static int look_at_what_is_cut(void *flags)
{
    struct kvshm_info info;
    kvshm *kv;

    signal(SIGBUS, SIG_DFL); /* a sanitizer's is not asked */
    kvshm_info_init(&info);
    ts_need(kvshm_attach("a", NULL, *(unsigned *)flags, &kv) == 0);
    ts_need(ftruncate(fd, KVSHM__HEADER_BYTES) == 0);
    kvshm_info(kv, &info); /* the places of clients stand behind the header */
    return 0;
}

/* Its two sections are there, and there is none without slots, and records for each slot. */
START_TEST(test_sections_of_a_spill_file)
{
    unsigned found = 0;

    for (unsigned i = 0; i < KVSHM__DIRECTORY_ROOM; i++)
        found += whole.fixed.directory[i].kind == KVSHM__SEC_SLOTS ||
                 whole.fixed.directory[i].kind == KVSHM__SEC_AGES;
    ck_assert_uint_eq(found, 2);
    for (unsigned i = 0; i < 2; i++) {
        struct kvshm_header header = FORGED(slots, i * (whole.fixed.slots + 1));

        ts_is(attach_as(&header, 0), KVSHM_E_DAMAGED);
        ts_is(attach_as(&header, KVSHM_RDONLY), KVSHM_E_DAMAGED);
        ts_says(i == 0 ? "directory: needless section" : "records");
    }
    ts_is(attach_as(&whole, 0), 0);
}
END_TEST

/* Who may write may cut what others have mapped: they get SIGBUS, as kvshm(7) says. */
START_TEST(test_cut_while_mapped)
{
    unsigned flags[] = {0, KVSHM_RDONLY};
    kvshm *kv;

    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(ts_wait(ts_fork(look_at_what_is_cut, &flags[i])), 128 + SIGBUS);
        ts_is(kvshm_attach("a", NULL, 0, &kv), KVSHM_E_FORMAT);
        ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
        put(&whole);
    }
}
END_TEST

START_TEST(test_size_of_the_file)
{
    static const uint64_t shorter[] = {0, 7, 2047, 4095, 4096, 8192};
    kvshm *kv;

    for (size_t i = 0; i < sizeof(shorter) / sizeof(shorter[0]); i++) {
        ck_assert_int_eq(ftruncate(fd, (off_t)shorter[i]), 0);
        ts_is(kvshm_attach("a", NULL, 0, &kv), KVSHM_E_FORMAT);
        ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
        put(&whole);
    }
    ck_assert_int_eq(ftruncate(fd, (off_t)bytes - 4096), 0);
    ts_is(kvshm_attach("a", NULL, 0, &kv), KVSHM_E_FORMAT);
    ts_says("it was cut");
    ck_assert_int_eq(ftruncate(fd, (off_t)bytes + 4096), 0);
    ts_is(kvshm_attach("a", NULL, 0, &kv), KVSHM_E_DAMAGED);
    ck_assert_int_eq(ftruncate(fd, 100), 0);
    ts_is(kvshm_unlink("a", 0), KVSHM_E_FORMAT);
    ck_assert_uint_eq(ts_dir_names(), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("validate");
    TCase *tcase = tcase_create("validate"), *spilling = tcase_create("spilling");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_any_byte);
    tcase_add_loop_test(tcase, test_forged_field, 0, sizeof(forgeries) / sizeof(forgeries[0]));
    tcase_add_test(tcase, test_additions_are_let_be);
    tcase_add_test(tcase, test_directory);
    tcase_add_test(tcase, test_arenas_of_others_are_not_touched);
    tcase_add_test(tcase, test_live_part);
    tcase_add_test(tcase, test_cut_between_any_two_pages);
    tcase_add_test(tcase, test_cut_while_mapped);
    tcase_add_test(tcase, test_size_of_the_file);
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(spilling, setup_spilling, teardown);
    tcase_add_test(spilling, test_sections_of_a_spill_file);
    tcase_add_test(spilling, test_any_byte);
    tcase_add_test(spilling, test_directory);
    tcase_add_test(spilling, test_cut_between_any_two_pages);
    suite_add_tcase(suite, spilling);
    return ts_run(suite);
}
