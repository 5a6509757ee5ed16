/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_errors.c - every error that kvshm.h names is provoked, tells its value, and changes nothing
 *
 * errors_arena.c has the calls that make and remove handles; here are those on a handle, what all cases share, and the
 * last case: that every code of errors.def was seen.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "errors.h"
#include "handle.h"

/* Shared with the processes of the cases: codes seen, by their distance from the first. */
static atomic_uint *provoked;

#define CODE_FIRST (-4101)
#define CODES_MAX  100

void errors_note(int64_t code)
{
    if (code <= CODE_FIRST && code > CODE_FIRST - CODES_MAX)
        atomic_store(&provoked[CODE_FIRST - code], 1);
}

void errors_say_value(uint64_t value)
{
    char text[32];

    snprintf(text, sizeof(text), "%" PRIu64, value);
    ts_says(text);
}

bool errors_no_memory;
void *__real_kvshm__private_alloc(size_t size);
void *__wrap_kvshm__private_alloc(size_t size);

void *__wrap_kvshm__private_alloc(size_t size)
{
    return errors_no_memory ? NULL : __real_kvshm__private_alloc(size);
}

const uint32_t errors_tokens[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

struct kvshm_prefix errors_prefix(uint32_t n)
{
    struct kvshm_prefix prefix;

    kvshm_prefix_init(&prefix, 0, 0, errors_tokens, n);
    return prefix;
}

struct kvshm_config errors_config(void)
{
    return ts_config(ERRORS_PAGE_BYTES, ERRORS_PAGE_TOKENS, ERRORS_FRAMES);
}

/* ---- Nothing changed ------------------------------------------------------------------------------------- */

static int add_stamp(const struct kvshm_entry *entry, void *arg)
{
    *(uint64_t *)arg += entry->last_used ^ entry->tokens;
    return 0;
}

struct errors_state errors_state(kvshm *kv)
{
    struct errors_state state;

    memset(&state, 0, sizeof(state));
    kvshm_info_init(&state.info);
    ts_is(kvshm_info(kv, &state.info), 0);
    ts_is(kvshm_foreach(kv, add_stamp, &state.stamps), 0);
    return state;
}

void errors_same_state(kvshm *kv, const struct errors_state *before)
{
    struct errors_state now = errors_state(kv);

    ck_assert_uint_eq(now.info.entries, before->info.entries);
    ck_assert_uint_eq(now.info.pages, before->info.pages);
    ck_assert_uint_eq(now.info.pages_limbo, before->info.pages_limbo);
    ck_assert_uint_eq(now.info.frames_free, before->info.frames_free);
    ck_assert_uint_eq(now.info.frames_reserved, before->info.frames_reserved);
    ck_assert_uint_eq(now.info.epoch, before->info.epoch);
    ck_assert_uint_eq(now.info.clients, before->info.clients);
    ck_assert_uint_eq(now.stamps, before->stamps);
}

/* ---- The segment's file ------------------------------------------------------------------------------------ */

/* The header of an arena, to be damaged. */
struct kvshm_header *errors_header(const char *name)
{
    char path[4096];
    void *at = NULL;
    int fd = -1;

    snprintf(path, sizeof(path), "%s/%s", getenv("KVSHM_DIR"), name);
    fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
    at = mmap(NULL, KVSHM__HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert(at != MAP_FAILED);
    close(fd);
    return at;
}

void errors_header_close(struct kvshm_header *header)
{
    munmap(header, KVSHM__HEADER_BYTES);
}

void errors_header_seal(struct kvshm_header *header)
{
    header->fixed.checksum = XXH3_64bits(&header->fixed, offsetof(struct kvshm_static, checksum));
}

/* ---- Finding ------------------------------------------------------------------------------------------------ */

static const uint8_t key[KVSHM_KEY_BYTES] = {1, 2, 3};

/* An arena that holds the first eight tokens. */
static kvshm *make(const struct kvshm_config *config)
{
    kvshm *kv = ts_create("calls", config);

    ck_assert_int_eq(ts_insert(kv, 0, 0, errors_tokens, 8), 0);
    return kv;
}

/* The lease of a call that failed is empty. */
static void no_lease(const struct kvshm_lease *lease)
{
    static const struct kvshm_lease empty;

    ck_assert_mem_eq(lease, &empty, sizeof(empty));
}

START_TEST(test_arguments_of_lookup_and_match)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = make(&config);
    struct errors_state before = errors_state(kv);
    struct kvshm_prefix prefix = errors_prefix(8);
    struct kvshm_prefix none = errors_prefix(0);
    struct kvshm_prefix reserved = errors_prefix(8);
    struct kvshm_prefix key_only;
    struct kvshm_lease lease;

    reserved.reserved = 77;
    kvshm_prefix_init_key(&key_only, 0, 0, key, 4);
    FAILS(kvshm_lookup(kv, &prefix, KVSHM_HOLD, &lease), -EINVAL, "0x4000");
    no_lease(&lease);
    FAILS(kvshm_match(kv, &prefix, KVSHM_PEEK | 0x80000000u, &lease), -EINVAL, "0x80000000");
    FAILS(kvshm_lookup(kv, &none, 0, &lease), -EINVAL, "n is 0");
    FAILS(kvshm_match(kv, &none, 0, &lease), -EINVAL, "n is 0");
    FAILS(kvshm_match(kv, &key_only, 0, &lease), -EINVAL, "key-only");
    no_lease(&lease);
    FAILS(kvshm_lookup(kv, &reserved, 0, &lease), -EINVAL, "reserved");
    kvshm_prefix_init(&reserved, 0, 0, NULL, 8); /* a mistake, and no key-only prefix */
    FAILS(kvshm_lookup(kv, &reserved, 0, &lease), -EINVAL, "NULL");
    FAILS(kvshm_lookup(kv, NULL, 0, &lease), -EINVAL, "prefix");
    FAILS(kvshm_lookup(kv, &prefix, 0, NULL), -EINVAL, "lease");
    FAILS(kvshm_lookup(NULL, &prefix, 0, &lease), -EINVAL, "handle");
    FAILS(kvshm_remove(kv, &none), -EINVAL, "n is 0");
    FAILS(kvshm_remove(NULL, &prefix), -EINVAL, "handle");
    FAILS(kvshm_evict_lru(NULL), -EINVAL, "handle");
    FAILS(kvshm_clear(NULL), -EINVAL, "handle");
    ck_assert(!kvshm_contains(kv, &none));
    ck_assert(!kvshm_contains(NULL, &prefix));
    errors_same_state(kv, &before);
    ts_detach(kv);
}
END_TEST

START_TEST(test_all_lease_words_taken)
{
    struct kvshm_config config = errors_config();
    struct kvshm_prefix prefix = errors_prefix(8);
    struct kvshm_prefix longer = errors_prefix(12);
    struct kvshm_reservation r;
    struct kvshm_lease lease[3];
    struct kvshm_lease more;
    struct errors_state before;
    uint8_t bytes[ERRORS_PAGE_BYTES];
    kvshm *kv = NULL;

    config.max_leases = 3;
    kv = make(&config);
    for (unsigned i = 0; i < 3; i++)
        ts_is(kvshm_lookup(kv, &prefix, 0, &lease[i]), 0);
    before = errors_state(kv);
    FAILS(kvshm_lookup(kv, &prefix, 0, &more), KVSHM_E_LEASES, "3");
    no_lease(&more);
    FAILS(kvshm_match(kv, &prefix, 0, &more), KVSHM_E_LEASES, "3");
    FAILS(kvshm_copy_out(kv, &prefix, 0, 1, bytes), KVSHM_E_LEASES, "3");
    errors_same_state(kv, &before);
    ts_is(kvshm_reserve(kv, 3, 0, &r), 0);
    before = errors_state(kv);
    FAILS(kvshm_insert(kv, &longer, &more, &r, KVSHM_HOLD), KVSHM_E_LEASES, "3");
    ck_assert_uint_eq(r.pages, 3);
    ck_assert(!kvshm_contains(kv, &longer));
    errors_same_state(kv, &before);
    kvshm_release(kv, &lease[1]);
    ts_is(kvshm_insert(kv, &longer, &more, &r, KVSHM_HOLD), 0);
    kvshm_release(kv, &more);
    kvshm_release(kv, &lease[0]);
    kvshm_release(kv, &lease[2]);
    ts_detach(kv);
}
END_TEST

START_TEST(test_arguments_of_copy_out_and_looking)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = make(&config);
    struct errors_state before = errors_state(kv);
    struct kvshm_prefix prefix = errors_prefix(8);
    struct kvshm_prefix none = errors_prefix(0);
    struct kvshm_info info;
    struct kvshm_stats stats;
    uint8_t bytes[ERRORS_PAGE_BYTES];

    FAILS(kvshm_copy_out(kv, &none, 0, 1, bytes), -EINVAL, "n is 0");
    FAILS(kvshm_copy_out(kv, &prefix, 0, 1, NULL), -EINVAL, "dst");
    memset(&info, 0, sizeof(info));
    FAILS(kvshm_info(kv, &info), -EINVAL, "size");
    info.size = SIZE_MAX;
    FAILS(kvshm_info(kv, &info), -EINVAL, "18446744073709551615");
    memset(&stats, 0, sizeof(stats));
    stats.size = 5;
    FAILS(kvshm_stats(kv, &stats), -EINVAL, "5");
    errors_same_state(kv, &before);
    ts_detach(kv);
}
END_TEST

/* ---- Filling ------------------------------------------------------------------------------------------------ */

START_TEST(test_arguments_of_reserve)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = make(&config);
    struct errors_state before = errors_state(kv);
    struct kvshm_reservation r;

    FAILS(kvshm_reserve(kv, 0, 0, &r), -EINVAL, "npages");
    FAILS(kvshm_reserve(kv, ERRORS_FRAMES + 1, 0, &r), -ENOSPC, "17");
    ts_says("16");
    FAILS(kvshm_reserve(kv, UINT32_MAX, 0, &r), -ENOSPC, "4294967295");
    FAILS(kvshm_reserve(kv, 1, KVSHM_HOLD, &r), -EINVAL, "0x4000");
    ck_assert_uint_eq(r.pages, 0);
    ck_assert_ptr_null(kvshm_reservation_page(&r, 0));
    FAILS(kvshm_reserve(kv, 1, 0, NULL), -EINVAL, "reservation");
    errors_same_state(kv, &before);
    ts_detach(kv);
}
END_TEST

/* What is leased or reserved is not waited for, and no entry goes for what cannot be had. */
START_TEST(test_no_space)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = make(&config);
    struct kvshm_prefix prefix = errors_prefix(8);
    struct kvshm_reservation r;
    struct kvshm_reservation more;
    struct kvshm_lease lease;
    struct errors_state before;

    ck_assert_int_eq(ts_insert(kv, 5, 0, errors_tokens, 4), 0);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), 0);
    ts_is(kvshm_reserve(kv, 10, 0, &r), 0);
    before = errors_state(kv);
    FAILS(kvshm_reserve(kv, 5, 0, &more), -ENOSPC, "5");
    ts_says("16");
    ck_assert_uint_eq(more.pages, 0);
    errors_same_state(kv, &before);
    ts_is(kvshm_reserve(kv, 4, 0, &more), 0);
    kvshm_cancel(kv, &more);
    kvshm_cancel(kv, &r);
    kvshm_release(kv, &lease);
    ts_is(kvshm_reserve(kv, 16, 0, &r), 0);
    kvshm_cancel(kv, &r);
    ts_detach(kv);
}
END_TEST

START_TEST(test_all_reservation_words_taken)
{
    struct kvshm_config config = errors_config();
    struct kvshm_reservation r[2];
    struct kvshm_reservation more;
    struct errors_state before;
    kvshm *kv = NULL;

    config.max_leases = 2;
    kv = make(&config);
    ts_is(kvshm_reserve(kv, 1, 0, &r[0]), 0);
    ts_is(kvshm_reserve(kv, 1, KVSHM_DEVICE, &r[1]), 0);
    before = errors_state(kv);
    FAILS(kvshm_reserve(kv, 1, 0, &more), KVSHM_E_LEASES, "2");
    errors_same_state(kv, &before);
    kvshm_cancel(kv, &r[0]);
    ts_is(kvshm_reserve(kv, 1, 0, &r[0]), 0);
    kvshm_cancel(kv, &r[0]);
    kvshm_cancel(kv, &r[1]);
    ts_detach(kv);
}
END_TEST

/* An insert that must fail: reservation and head stay as they are. */
static void insert_fails(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *head,
                         struct kvshm_reservation *r, unsigned flags, int code, const char *part)
{
    struct errors_state before = errors_state(kv);
    struct kvshm_reservation r_before = {0};
    struct kvshm_lease head_before = {0};

    if (r)
        r_before = *r;
    if (head)
        head_before = *head;
    FAILS(kvshm_insert(kv, prefix, head, r, flags), code, part);
    if (r)
        ck_assert_mem_eq(r, &r_before, sizeof(r_before));
    if (head)
        ck_assert_mem_eq(head, &head_before, sizeof(head_before));
    errors_same_state(kv, &before);
}

START_TEST(test_arguments_of_insert)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = make(&config);
    kvshm *other = ts_attach("calls", 0);
    struct kvshm_prefix none = errors_prefix(0);
    struct kvshm_prefix three = errors_prefix(12);
    struct kvshm_prefix no_key;
    struct kvshm_reservation r;
    struct kvshm_reservation empty = {0};

    kvshm_prefix_init_key(&no_key, 0, 0, key, 0);
    ts_is(kvshm_reserve(kv, 2, 0, &r), 0);
    insert_fails(kv, &none, NULL, &r, 0, -EINVAL, "n is 0");
    insert_fails(kv, &no_key, NULL, &r, 0, -EINVAL, "n is 0");
    insert_fails(kv, NULL, NULL, &r, 0, -EINVAL, "prefix");
    insert_fails(kv, &three, NULL, &r, 0, -EINVAL, "3 are needed");
    insert_fails(kv, &three, NULL, &empty, 0, -EINVAL, "0 pages");
    insert_fails(kv, &three, NULL, NULL, 0, -EINVAL, "3 are needed");
    insert_fails(kv, &three, NULL, &r, KVSHM_HOLD, -EINVAL, "head");
    insert_fails(kv, &three, NULL, &r, KVSHM_PEEK, -EINVAL, "0x100");
    three.n = 8;
    insert_fails(other, &three, NULL, &r, 0, -EINVAL, "reservation");
    kvshm_cancel(kv, &r);
    ts_detach(other);
    ts_detach(kv);
}
END_TEST

START_TEST(test_heads_that_do_not_fit)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = make(&config);
    kvshm *other = ts_attach("calls", 0);
    uint32_t changed[16];
    struct kvshm_prefix prefix = errors_prefix(8);
    struct kvshm_reservation r;
    struct kvshm_lease head;

    memcpy(changed, errors_tokens, sizeof(changed));
    changed[7] = 1000;
    ts_is(kvshm_lookup(kv, &prefix, 0, &head), 0);
    ts_is(kvshm_reserve(kv, 1, 0, &r), 0);
    kvshm_prefix_init(&prefix, 0, 0, changed, 12);
    insert_fails(kv, &prefix, &head, &r, 0, -EINVAL, "tokens");
    kvshm_prefix_init(&prefix, 1, 0, errors_tokens, 12);
    insert_fails(kv, &prefix, &head, &r, 0, -EINVAL, "adapter");
    kvshm_prefix_init(&prefix, 0, 1, errors_tokens, 12);
    insert_fails(kv, &prefix, &head, &r, 0, -EINVAL, "tenant");
    prefix = errors_prefix(7);
    insert_fails(kv, &prefix, &head, &r, 0, -EINVAL, "8 tokens");
    prefix = errors_prefix(16);
    insert_fails(kv, &prefix, &head, &r, KVSHM_EXTEND, -EINVAL, "2 are needed");
    kvshm_prefix_init_key(&prefix, 0, 0, key, 4);
    insert_fails(kv, &prefix, &head, &r, 0, -EINVAL, "key-only");
    prefix = errors_prefix(12);
    insert_fails(other, &prefix, &head, NULL, 0, -EINVAL, "head");
    ts_is(kvshm_insert(kv, &prefix, &head, &r, 0), 0);
    kvshm_release(kv, &head);
    ts_detach(other);
    ts_detach(kv);
}
END_TEST

/* A token prefix goes behind no key-only head. */
START_TEST(test_key_only_head)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = make(&config);
    struct kvshm_prefix key_only;
    struct kvshm_prefix prefix = errors_prefix(8);
    struct kvshm_reservation r;
    struct kvshm_lease head;

    memset(&head, 0, sizeof(head));
    kvshm_prefix_init_key(&key_only, 0, 0, key, 4);
    ts_is(kvshm_reserve(kv, 1, 0, &r), 0);
    ts_is(kvshm_insert(kv, &key_only, &head, &r, KVSHM_HOLD), 0);
    ts_is(kvshm_reserve(kv, 1, 0, &r), 0);
    insert_fails(kv, &prefix, &head, &r, 0, -EINVAL, "key-only");
    kvshm_cancel(kv, &r);
    kvshm_release(kv, &head);
    ts_detach(kv);
}
END_TEST

START_TEST(test_made_before_a_clear)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = make(&config);
    struct kvshm_prefix prefix = errors_prefix(8);
    struct kvshm_prefix longer = errors_prefix(12);
    struct kvshm_prefix key_only;
    struct kvshm_reservation r;
    struct kvshm_reservation fresh;
    struct kvshm_lease head;

    kvshm_prefix_init_key(&key_only, 0, 0, key, 4);
    ts_is(kvshm_lookup(kv, &prefix, 0, &head), 0);
    ts_is(kvshm_reserve(kv, 1, 0, &r), 0);
    ts_is(kvshm_clear(kv), 0);
    ts_is(kvshm_reserve(kv, 1, 0, &fresh), 0);
    prefix.n = 4;
    insert_fails(kv, &prefix, NULL, &r, 0, KVSHM_E_STALE, "reservation");
    insert_fails(kv, &key_only, NULL, &r, 0, KVSHM_E_STALE, "reservation");
    insert_fails(kv, &longer, &head, &fresh, 0, KVSHM_E_STALE, "head");
    longer.n = 8;
    insert_fails(kv, &longer, &head, NULL, KVSHM_HOLD, KVSHM_E_STALE, "head");
    ck_assert_uint_eq(
        ts_filled(kvshm_lease_page(&head, 1), ERRORS_PAGE_BYTES, 0, 0, errors_tokens, 8), 0);
    kvshm_cancel(kv, &r);
    kvshm_cancel(kv, &fresh);
    kvshm_release(kv, &head);
    ts_detach(kv);
}
END_TEST

START_TEST(test_no_memory)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = make(&config);
    struct kvshm_prefix prefix = errors_prefix(12);
    struct errors_state before;
    struct kvshm_reservation r;
    struct kvshm_reservation more;

    ts_is(kvshm_reserve(kv, 3, 0, &r), 0);
    before = errors_state(kv);
    errors_no_memory = true;
    FAILS(kvshm_reserve(kv, 2, 0, &more), -ENOMEM, "2");
    ck_assert_uint_eq(more.pages, 0);
    FAILS(kvshm_insert(kv, &prefix, NULL, &r, 0), -ENOMEM, "3");
    ck_assert_uint_eq(r.pages, 3);
    FAILS(kvshm_foreach(kv, add_stamp, NULL), -ENOMEM, "memory");
    errors_no_memory = false;
    errors_same_state(kv, &before);
    ts_is(kvshm_insert(kv, &prefix, NULL, &r, 0), 0);
    ts_detach(kv);
}
END_TEST

/* Lists and owners of frames that someone has overwritten. */
START_TEST(test_damaged_frames)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = make(&config);
    struct kvshm_derived *derived = &kv->header->derived;
    struct kvshm_prefix prefix = errors_prefix(12);
    struct kvshm_reservation r;
    struct kvshm_reservation more;
    uint64_t owner = 0;

    ts_is(kvshm_reserve(kv, 3, 0, &r), 0);
    owner = atomic_load(&kv->owners[r.frames[1]].owner);
    atomic_store(&kv->owners[r.frames[1]].owner, 0);
    insert_fails(kv, &prefix, NULL, &r, 0, KVSHM_E_DAMAGED, "frame");
    atomic_store(&kv->owners[r.frames[1]].owner, owner);
    ts_is(kvshm_insert(kv, &prefix, NULL, &r, 0), 0);
    atomic_store(&derived->free_frame1, 0);
    atomic_store(&derived->fresh_frame, ERRORS_FRAMES);
    FAILS(kvshm_reserve(kv, 4, 0, &more), KVSHM_E_DAMAGED, "calls");
    ck_assert_uint_eq(more.pages, 0);
    ts_detach(kv);
}
END_TEST

/* ---- Handles that may not --------------------------------------------------------------------------------------- */

START_TEST(test_read_only_handle)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = make(&config);
    kvshm *reader = ts_attach("calls", KVSHM_RDONLY);
    struct errors_state before = errors_state(kv);
    struct kvshm_prefix prefix = errors_prefix(8);
    struct kvshm_reservation r;
    struct kvshm_lease lease;

    memset(&lease, 0, sizeof(lease));
    FAILS(kvshm_lookup(reader, &prefix, 0, &lease), KVSHM_E_READ_ONLY, "KVSHM_RDONLY");
    FAILS(kvshm_match(reader, &prefix, KVSHM_TOUCH, &lease), KVSHM_E_READ_ONLY, "KVSHM_RDONLY");
    FAILS(kvshm_lookup(reader, &prefix, KVSHM_PEEK | KVSHM_TOUCH, &lease), KVSHM_E_READ_ONLY,
          "KVSHM_RDONLY");
    FAILS(kvshm_reserve(reader, 1, 0, &r), KVSHM_E_READ_ONLY, "KVSHM_RDONLY");
    FAILS(kvshm_insert(reader, &prefix, NULL, &r, 0), KVSHM_E_READ_ONLY, "KVSHM_RDONLY");
    FAILS(kvshm_remove(reader, &prefix), KVSHM_E_READ_ONLY, "KVSHM_RDONLY");
    FAILS(kvshm_evict_lru(reader), KVSHM_E_READ_ONLY, "KVSHM_RDONLY");
    FAILS(kvshm_clear(reader), KVSHM_E_READ_ONLY, "KVSHM_RDONLY");
    FAILS(kvshm_join(reader, before.info.client), KVSHM_E_READ_ONLY, "KVSHM_RDONLY");
    FAILS(kvshm_leave(reader, before.info.client), KVSHM_E_READ_ONLY, "KVSHM_RDONLY");
    ck_assert_ptr_null(kvshm_at_writable(reader, before.info.frames_offset));
    ck_assert(kvshm_contains(reader, &prefix));
    errors_same_state(kv, &before);
    ts_detach(reader);
    ts_detach(kv);
}
END_TEST

struct held {
    kvshm *kv;
    struct kvshm_lease lease;
    struct kvshm_reservation r;
};

static bool refused(int64_t code)
{
    errors_note(code);
    return code == KVSHM_E_FORKED && strstr(kvshm_errmsg(NULL), "parent") != NULL;
}

static int foreach_nothing(const struct kvshm_entry *entry, void *arg)
{
    (void)entry;
    (void)arg;
    return 1;
}

/* In a forked child. */
static int calls_of_child(void *arg)
{
    struct held *held = arg;
    kvshm *kv = held->kv;
    struct kvshm_prefix prefix = errors_prefix(8);
    struct kvshm_reservation r;
    struct kvshm_lease lease;
    struct kvshm_info info;
    struct kvshm_stats stats;
    uint8_t bytes[ERRORS_PAGE_BYTES];
    uint64_t offsets[1];
    const void *pages[1];

    kvshm_info_init(&info);
    kvshm_stats_init(&stats);
    ts_need(refused(kvshm_lookup(kv, &prefix, 0, &lease)));
    ts_need(refused(kvshm_match(kv, &prefix, KVSHM_PEEK, &lease)));
    ts_need(!kvshm_contains(kv, &prefix));
    ts_need(refused(kvshm_copy_out(kv, &prefix, 0, 1, bytes)));
    ts_need(refused(kvshm_reserve(kv, 1, 0, &r)));
    ts_need(refused(kvshm_insert(kv, &prefix, NULL, &held->r, 0)));
    ts_need(refused(kvshm_remove(kv, &prefix)));
    ts_need(refused(kvshm_evict_lru(kv)));
    ts_need(refused(kvshm_clear(kv)));
    ts_need(refused(kvshm_join(kv, 99)));
    ts_need(refused(kvshm_leave(kv, 99)));
    ts_need(refused(kvshm_info(kv, &info)));
    ts_need(refused(kvshm_stats(kv, &stats)));
    ts_need(refused(kvshm_foreach(kv, foreach_nothing, NULL)));
    ts_need(refused(kvshm_lease_offsets(&held->lease, 0, 1, offsets)));
    ts_need(refused(kvshm_lease_pages(&held->lease, 0, 1, pages)));
    ts_need(refused(kvshm_reservation_offsets(&held->r, 0, 1, offsets)));
    ts_need(kvshm_lease_page(&held->lease, 0) == NULL);
    ts_need(kvshm_reservation_page(&held->r, 0) == NULL);
    ts_need(kvshm_at(kv, 1 << 20) == NULL);
    ts_need(kvshm_at_writable(kv, 1 << 20) == NULL);
    kvshm_lease_tag(&held->lease, 7);
    kvshm_release(kv, &held->lease);
    kvshm_cancel(kv, &held->r);
    ts_need(kvshm_detach(kv) == 0);
    ts_need(kvshm_attach("calls", NULL, 0, &kv) == 0);
    ts_need(kvshm_lookup(kv, &prefix, 0, &lease) == 0);
    kvshm_release(kv, &lease);
    ts_need(kvshm_detach(kv) == 0);
    return 0;
}

START_TEST(test_handle_of_the_parent)
{
    struct kvshm_config config = errors_config();
    struct held held = {.kv = make(&config)};
    struct kvshm_prefix prefix = errors_prefix(8);

    ts_is(kvshm_lookup(held.kv, &prefix, 0, &held.lease), 0);
    ts_is(kvshm_reserve(held.kv, 2, 0, &held.r), 0);
    ck_assert_int_eq(ts_wait(ts_fork(calls_of_child, &held)), 0);
    ck_assert_int_eq(kvshm_evict_lru(held.kv), 0); /* the lease holds */
    ck_assert_uint_eq(
        ts_filled(kvshm_lease_page(&held.lease, 1), ERRORS_PAGE_BYTES, 0, 0, errors_tokens, 8), 0);
    ts_is(kvshm_insert(held.kv, &prefix, NULL, &held.r, 0), 0);
    kvshm_release(held.kv, &held.lease);
    ts_detach(held.kv);
}
END_TEST

/* The writer lock is in the hands of a living client that does not move. */
START_TEST(test_writer_that_does_not_move)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = NULL;
    kvshm *other = NULL;
    struct kvshm_prefix prefix = errors_prefix(8);
    struct kvshm_prefix longer = errors_prefix(12);
    struct kvshm_header *header = NULL;
    struct kvshm_reservation r;
    struct kvshm_reservation more;
    struct kvshm_lease lease;
    char number[32];

    config.stall_ms = 20;
    kv = make(&config);
    other = ts_attach("calls", 0);
    snprintf(number, sizeof(number), "%d", (int)getpid());
    ts_is(kvshm_reserve(kv, 3, 0, &r), 0);
    header = errors_header("calls");
    atomic_store(&header->lock.word, errors_state(other).info.client);
    for (unsigned i = 0; i < 3; i++) {
        insert_fails(kv, &longer, NULL, &r, 0, KVSHM_E_STALLED, number);
        FAILS(kvshm_reserve(kv, 1, 0, &more), KVSHM_E_STALLED, number);
        FAILS(kvshm_remove(kv, &prefix), KVSHM_E_STALLED, number);
        FAILS(kvshm_evict_lru(kv), KVSHM_E_STALLED, number);
        FAILS(kvshm_clear(kv), KVSHM_E_STALLED, number);
        ts_is(kvshm_lookup(kv, &prefix, 0, &lease), 0);
        kvshm_release(kv, &lease);
    }
    atomic_store(&header->lock.word, 0);
    ts_is(kvshm_insert(kv, &longer, NULL, &r, 0), 0);
    errors_header_close(header);
    ts_detach(other);
    ts_detach(kv);
}
END_TEST

/* ---- Joining ------------------------------------------------------------------------------------------------ */

START_TEST(test_join_and_leave)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = NULL;
    kvshm *others[9];
    uint64_t numbers[9];
    uint64_t own = 0;

    kv = make(&config);
    own = errors_state(kv).info.client;
    for (unsigned i = 0; i < 9; i++) {
        others[i] = ts_attach("calls", 0);
        numbers[i] = errors_state(others[i]).info.client;
    }
    FAILS(kvshm_join(kv, 0), -EINVAL, "0");
    FAILS(kvshm_join(kv, own), -EINVAL, "client");
    errors_say_value(own);
    FAILS(kvshm_join(kv, 123456789), -ESRCH, "123456789");
    for (unsigned i = 0; i < 8; i++)
        ts_is(kvshm_join(kv, numbers[i]), 0);
    ts_is(kvshm_join(kv, numbers[3]), 0);
    FAILS(kvshm_join(kv, numbers[8]), -ENOSPC, "8");
    errors_say_value(numbers[8]);
    FAILS(kvshm_leave(kv, numbers[8]), -ENOENT, "client");
    errors_say_value(numbers[8]);
    ts_is(kvshm_leave(kv, numbers[3]), 0);
    FAILS(kvshm_leave(kv, numbers[3]), -ENOENT, "client");
    ts_detach(others[8]);
    FAILS(kvshm_join(kv, numbers[8]), -ESRCH, "client");
    errors_say_value(numbers[8]);
    for (unsigned i = 0; i < 8; i++)
        ts_detach(others[i]);
    ts_detach(kv);
}
END_TEST

START_TEST(test_offsets_that_are_in_no_frame)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = make(&config);
    struct kvshm_info info = errors_state(kv).info;
    uint64_t end = info.frames_offset + info.frames_length;

    ck_assert_ptr_eq(kvshm_at(kv, info.frames_offset),
                     (const char *)info.read_base + info.frames_offset);
    ck_assert_ptr_eq(kvshm_at_writable(kv, info.frames_offset + 1),
                     (char *)info.write_base + info.frames_offset + 1);
    ck_assert_ptr_null(kvshm_at(kv, 0));
    ck_assert_ptr_null(kvshm_at(kv, info.frames_offset - 1));
    ck_assert_ptr_null(kvshm_at(kv, end));
    ck_assert_ptr_null(kvshm_at(kv, UINT64_MAX));
    ck_assert_ptr_null(kvshm_at_writable(kv, info.frames_offset - 1));
    ck_assert_ptr_null(kvshm_at_writable(kv, end));
    ts_detach(kv);
}
END_TEST

/* ---- All of them -------------------------------------------------------------------------------------------- */

START_TEST(test_every_code_has_its_own_sentence)
{
    static const int codes[] = {
#define KVSHM_ERROR(code, name, sentence, meaning) code,
#include "errors.def"
#undef KVSHM_ERROR
        0, KVSHM_MISS, KVSHM_EXISTS, KVSHM_REPLACED, -EINVAL, -ENOSPC, -EEXIST, -ENOENT, -EBUSY,
    };
    size_t n = sizeof(codes) / sizeof(codes[0]);

    for (size_t i = 0; i < n; i++) {
        ck_assert_int_gt(strlen(kvshm_strerror(codes[i])), 3);
        for (size_t j = 0; j < i; j++)
            ck_assert_str_ne(kvshm_strerror(codes[i]), kvshm_strerror(codes[j]));
    }
    ck_assert_ptr_nonnull(strstr(kvshm_strerror(-5000), "5000"));
}
END_TEST

/* The cases before this one have seen all codes. */
START_TEST(test_every_code_was_provoked)
{
#define KVSHM_ERROR(code, name, sentence, meaning)    \
    ck_assert_int_ge(CODE_FIRST - (code), 0);         \
    ck_assert_int_lt(CODE_FIRST - (code), CODES_MAX); \
    ck_assert_msg(atomic_load(&provoked[CODE_FIRST - (code)]), #name " was not seen");
#include "errors.def"
#undef KVSHM_ERROR
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("errors");
    TCase *tcase = tcase_create("errors");
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    provoked = mmap(NULL, CODES_MAX * sizeof(*provoked), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (provoked == MAP_FAILED)
        return 1;
    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    errors_add_arena_cases(tcase);
    tcase_add_test(tcase, test_arguments_of_lookup_and_match);
    tcase_add_test(tcase, test_all_lease_words_taken);
    tcase_add_test(tcase, test_arguments_of_copy_out_and_looking);
    tcase_add_test(tcase, test_arguments_of_reserve);
    tcase_add_test(tcase, test_no_space);
    tcase_add_test(tcase, test_all_reservation_words_taken);
    tcase_add_test(tcase, test_arguments_of_insert);
    tcase_add_test(tcase, test_heads_that_do_not_fit);
    tcase_add_test(tcase, test_key_only_head);
    tcase_add_test(tcase, test_made_before_a_clear);
    tcase_add_test(tcase, test_no_memory);
    tcase_add_test(tcase, test_damaged_frames);
    tcase_add_test(tcase, test_read_only_handle);
    tcase_add_test(tcase, test_handle_of_the_parent);
    tcase_add_test(tcase, test_writer_that_does_not_move);
    tcase_add_test(tcase, test_join_and_leave);
    tcase_add_test(tcase, test_offsets_that_are_in_no_frame);
    tcase_add_test(tcase, test_every_code_has_its_own_sentence);
    tcase_add_test(tcase, test_every_code_was_provoked);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
