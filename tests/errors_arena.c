/* SPDX-License-Identifier: Apache-2.0 */
/* errors_arena.c - the errors of create, open, attach, detach and unlink; a part of check_errors */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "errors.h"
#include "place.h"
#include "sys.h"

static void write_file(const char *name, const void *bytes, size_t n)
{
    char path[4096];
    int fd = -1;

    snprintf(path, sizeof(path), "%s/%s", getenv("KVSHM_DIR"), name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
    ck_assert_int_eq(write(fd, bytes, n), (ssize_t)n);
    close(fd);
}

/* ---- Create ------------------------------------------------------------------------------------------------- */

START_TEST(test_names)
{
    static const char *const bad[] = {
        "",
        "-a",
        ".a",
        "_a",
        "a/b",
        "a b",
        "../a",
        "\xc3\xa4",
        "a2345678901234567890123456789012345678901234567890123456789012345" /* 65 */};
    struct kvshm_config config = errors_config();
    kvshm *kv = NULL;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        FAILS(kvshm_create(bad[i], &config, 0, &kv), -EINVAL, bad[i]);
        ck_assert_ptr_null(kv);
        FAILS(kvshm_attach(bad[i], NULL, 0, &kv), -EINVAL, bad[i]);
        FAILS(kvshm_open(bad[i], &config, 0, &kv), -EINVAL, bad[i]);
        FAILS(kvshm_unlink(bad[i], 0), -EINVAL, bad[i]);
    }
    FAILS(kvshm_create(NULL, &config, 0, &kv), -EINVAL, "name");
    FAILS(kvshm_attach(NULL, NULL, 0, &kv), -EINVAL, "name");
    FAILS(kvshm_unlink(NULL, 0), -EINVAL, "name");
    ck_assert_uint_eq(ts_dir_names(), 0);
}
END_TEST

START_TEST(test_flags_of_life_cycle)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = NULL;

    FAILS(kvshm_create("a", &config, KVSHM_RDONLY, &kv), -EINVAL, "0x1");
    ck_assert_ptr_null(kv);
    FAILS(kvshm_create("a", &config, 0x80000000u, &kv), -EINVAL, "0x80000000");
    FAILS(kvshm_attach("a", NULL, KVSHM_FORCE, &kv), -EINVAL, "0x10");
    FAILS(kvshm_open("a", &config, KVSHM_HOLD, &kv), -EINVAL, "0x4000");
    FAILS(kvshm_unlink("a", KVSHM_PEEK), -EINVAL, "0x100");
    FAILS(kvshm_create("a", NULL, 0, &kv), -EINVAL, "config");
    ck_assert_uint_eq(ts_dir_names(), 0);
}
END_TEST

struct bad_field {
    size_t offset;
    size_t size;
    uint64_t value;
    const char *name;
};

#define BAD(type, field, value)                                                          \
    {                                                                                    \
        offsetof(struct type, field), sizeof(((struct type *)0)->field), (value), #field \
    }

static void set_field(void *in, const struct bad_field *bad)
{
    memcpy((char *)in + bad->offset, &bad->value,
           bad->size); /* little-endian, as all that runs this */
}

START_TEST(test_fields_of_config)
{
    static const struct bad_field bad[] = {
        BAD(kvshm_config, size, 0),
        BAD(kvshm_config, size, sizeof(struct kvshm_config) - 1),
        BAD(kvshm_config, size, UINT32_MAX),
        BAD(kvshm_config, frames, UINT64_C(1) << 28),
        BAD(kvshm_config, frames, UINT64_MAX),
        BAD(kvshm_config, memory_bytes, 1 << 20), /* and frames too */
        BAD(kvshm_config, max_clients, 0),
        BAD(kvshm_config, max_clients, 4097),
        BAD(kvshm_config, max_leases, 0),
        BAD(kvshm_config, max_leases, 65536),
        BAD(kvshm_config, backing, 77),
        BAD(kvshm_config, numa, 3),
        BAD(kvshm_config, numa, 1280),
        BAD(kvshm_config, reserved, 1),
    };
    kvshm *kv = NULL;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct kvshm_config config = errors_config();

        set_field(&config, &bad[i]);
        FAILS(kvshm_create("a", &config, 0, &kv), -EINVAL, bad[i].name);
        errors_say_value(bad[i].value);
        ck_assert_ptr_null(kv);
    }
    ck_assert_uint_eq(ts_dir_names(), 0);
}
END_TEST

START_TEST(test_fields_of_config_together)
{
    char label[KVSHM_LABEL_MAX + 2];
    struct kvshm_config config = errors_config();
    kvshm *kv = NULL;

    config.mode = 01600;
    FAILS(kvshm_create("a", &config, 0, &kv), -EINVAL, "01600");
    config = errors_config();
    config.frames = 0;
    FAILS(kvshm_create("a", &config, 0, &kv), -EINVAL, "memory_bytes");
    memset(label, 'l', sizeof(label));
    label[KVSHM_LABEL_MAX + 1] = '\0';
    config = errors_config();
    config.label = label;
    FAILS(kvshm_create("a", &config, 0, &kv), -EINVAL, "label");
    config = errors_config();
    config.frames = 0;
    config.memory_bytes = 4096; /* not even the tables */
    ck_assert_int_lt(kvshm_create("a", &config, 0, &kv), 0);
    ts_says("4096");
    ck_assert_uint_eq(ts_dir_names(), 0);
}
END_TEST

START_TEST(test_fields_of_geometry)
{
    static const struct bad_field bad[] = {
        BAD(kvshm_geometry, num_layers, 0),
        BAD(kvshm_geometry, num_layers, 65536),
        BAD(kvshm_geometry, num_kv_heads, 0),
        BAD(kvshm_geometry, num_kv_heads, 65536),
        BAD(kvshm_geometry, num_kv_heads, 9), /* two shards */
        BAD(kvshm_geometry, head_dim, 0),
        BAD(kvshm_geometry, head_dim, 65536),
        BAD(kvshm_geometry, dtype, 6),
        BAD(kvshm_geometry, page_bytes, 4096), /* and layers too */
        BAD(kvshm_geometry, page_tokens, 0),
        BAD(kvshm_geometry, page_tokens, (1 << 20) + 1),
        BAD(kvshm_geometry, shards, 0),
        BAD(kvshm_geometry, shards, 65536),
        BAD(kvshm_geometry, shards, 3),
        BAD(kvshm_geometry, token_scale, 0),
        BAD(kvshm_geometry, reserved, 1),
    };
    kvshm *kv = NULL;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct kvshm_config config = errors_config();

        config.geometry.page_bytes = 0;
        config.geometry.num_layers = 2;
        config.geometry.num_kv_heads = 8;
        config.geometry.head_dim = 64;
        config.geometry.shards = 2;
        ck_assert_uint_eq(kvshm_page_bytes(&config.geometry),
                          2 * 2 * ERRORS_PAGE_TOKENS * 8 * 64 * 4);
        set_field(&config.geometry, &bad[i]);
        FAILS(kvshm_create("a", &config, 0, &kv), KVSHM_E_GEOMETRY, bad[i].name);
        errors_say_value(bad[i].value);
        ck_assert_ptr_null(kv);
        ck_assert_uint_eq(kvshm_page_bytes(&config.geometry), 0);
    }
    ck_assert_uint_eq(ts_dir_names(), 0);
}
END_TEST

START_TEST(test_geometry_of_opaque_pages)
{
    static const struct bad_field bad[] = {
        BAD(kvshm_geometry, page_bytes, (UINT64_C(1) << 40) + 64),
        BAD(kvshm_geometry, page_bytes, UINT64_MAX),
        BAD(kvshm_geometry, num_layers, 2),
        BAD(kvshm_geometry, num_kv_heads, 2),
        BAD(kvshm_geometry, head_dim, 2),
        BAD(kvshm_geometry, shards, 3),   /* does not divide 256 */
        BAD(kvshm_geometry, shards, 128), /* parts of 2 bytes */
    };
    struct kvshm_config config = errors_config();
    kvshm *kv = NULL;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        config = errors_config();
        set_field(&config.geometry, &bad[i]);
        FAILS(kvshm_create("a", &config, 0, &kv), KVSHM_E_GEOMETRY, bad[i].name);
        errors_say_value(bad[i].value);
        ck_assert_uint_eq(kvshm_page_bytes(&config.geometry), 0);
    }
    config = errors_config();
    config.geometry.page_bytes = 0;
    config.geometry.num_layers = config.geometry.num_kv_heads = config.geometry.head_dim = 65535;
    config.geometry.page_tokens = 1 << 20;
    FAILS(kvshm_create("a", &config, 0, &kv), KVSHM_E_GEOMETRY, "65535");
    config.geometry.num_layers = config.geometry.num_kv_heads = config.geometry.head_dim = 1;
    config.geometry.page_tokens = 1;
    config.geometry.dtype = KVSHM_INT4;
    FAILS(kvshm_create("a", &config, 0, &kv), KVSHM_E_GEOMETRY, "head_dim");
    ck_assert_uint_eq(ts_dir_names(), 0);
}
END_TEST

START_TEST(test_create_without_space)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = NULL;

    config.geometry.page_bytes = UINT64_C(1) << 40;
    config.frames = 1 << 20;
    FAILS(kvshm_create("large", &config, 0, &kv), -EINVAL, "1048576"); /* beyond any segment */
    ck_assert_ptr_null(kv);
    config.geometry.page_bytes = 1 << 20;
    config.frames = 1 << 20;
    FAILS(kvshm_create("large", &config, 0, &kv), -ENOSPC, "bytes");
    ck_assert_uint_eq(ts_dir_names(), 0);
}
END_TEST

/* What the system would answer with a signal is asked before. */
START_TEST(test_create_beyond_the_file_limit)
{
    struct kvshm_config config = errors_config();
    struct rlimit before;
    struct rlimit small;
    kvshm *kv = NULL;
    int code = 0;

    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
    config.frames = 1 << 16;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    code = kvshm_create("limit", &config, 0, &kv);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    FAILS(code, -EFBIG, "1048576");
    ck_assert_ptr_null(kv);
    ck_assert_uint_eq(ts_dir_names(), 0);
}
END_TEST

START_TEST(test_create_without_memory)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = NULL;
    int code = 0;

    errors_no_memory = true;
    code = kvshm_create("memory", &config, 0, &kv);
    errors_no_memory = false;
    FAILS(code, -ENOMEM, "memory");
    ck_assert_ptr_null(kv);
    ck_assert_uint_eq(ts_dir_names(), 0);
}
END_TEST

START_TEST(test_create_twice)
{
    struct kvshm_config config = errors_config();
    kvshm *first = ts_create("twice", &config);
    struct errors_state before = errors_state(first);
    kvshm *kv = NULL;

    FAILS(kvshm_create("twice", &config, 0, &kv), -EEXIST, "twice");
    ck_assert_ptr_null(kv);
    ck_assert_uint_eq(ts_dir_names(), 1);
    errors_same_state(first, &before);
    ts_detach(first);
}
END_TEST

/* A clock of the test's own: waiting takes no time. */
static _Atomic(uint64_t) clock_ns;

static uint64_t own_clock(void)
{
    return atomic_fetch_add(&clock_ns, 1000000);
}

static int own_sleep(uint64_t ns)
{
    atomic_fetch_add(&clock_ns, ns);
    return 0;
}

START_TEST(test_creators_take_turns)
{
    struct kvshm_config config = errors_config();
    int fd = open(getenv("KVSHM_DIR"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    kvshm *kv = NULL;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(flock(fd, LOCK_EX), 0);
    kvshm__sys.monotonic_ns = own_clock;
    kvshm__sys.sleep_ns = own_sleep;
    FAILS(kvshm_create("turn", &config, 0, &kv), KVSHM_E_BUSY_CREATORS, getenv("KVSHM_DIR"));
    ck_assert_ptr_null(kv);
    FAILS(kvshm_unlink("turn", 0), KVSHM_E_BUSY_CREATORS, getenv("KVSHM_DIR"));
    kvshm__sys = kvshm__sys_real;
    close(fd);
    ck_assert_uint_eq(ts_dir_names(), 0);
    kv = ts_create("turn", &config);
    ts_detach(kv);
}
END_TEST

/* ---- Attach --------------------------------------------------------------------------------------------------- */

START_TEST(test_attach_what_is_not_there)
{
    kvshm *kv = NULL;

    FAILS(kvshm_attach("nothing", NULL, 0, &kv), -ENOENT, "nothing");
    ck_assert_ptr_null(kv);
    FAILS(kvshm_attach("nothing", NULL, KVSHM_RDONLY, &kv), -ENOENT, "nothing");
    FAILS(kvshm_open("nothing", NULL, KVSHM_RDONLY, &kv), -ENOENT, "nothing");
    FAILS(kvshm_unlink("nothing", 0), -ENOENT, "nothing");
    FAILS(kvshm_unlink("nothing", KVSHM_FORCE), -ENOENT, "nothing");
    FAILS(kvshm_open("nothing", NULL, 0, &kv), -EINVAL, "config");
    ck_assert_uint_eq(ts_dir_names(), 0);
}
END_TEST

static int stop_at_first(const char *name, const char *path, void *arg)
{
    (void)name;
    (void)path;
    (void)arg;
    return 7;
}

START_TEST(test_folder_that_is_not_there)
{
    struct kvshm_config config = errors_config();
    char path[4096];
    kvshm *kv = NULL;

    snprintf(path, sizeof(path), "%s/nowhere", getenv("KVSHM_DIR"));
    ck_assert_int_eq(setenv("KVSHM_DIR", path, 1), 0);
    FAILS(kvshm_list(stop_at_first, NULL), -ENOENT, path);
    FAILS(kvshm_create("a", &config, 0, &kv), -ENOENT, path);
    FAILS(kvshm_attach("a", NULL, 0, &kv), -ENOENT, path);
    ck_assert_int_eq(setenv("KVSHM_DIR", "relative", 1), 0);
    FAILS(kvshm_list(stop_at_first, NULL), -EINVAL, "relative");
    FAILS(kvshm_create("a", &config, 0, &kv), -EINVAL, "relative");
}
END_TEST

START_TEST(test_symbolic_link)
{
    struct kvshm_config config = errors_config();
    kvshm *real = ts_create("real", &config);
    char path[4096];
    kvshm *kv = NULL;

    snprintf(path, sizeof(path), "%s/link", getenv("KVSHM_DIR"));
    ck_assert_int_eq(symlink("real", path), 0);
    FAILS(kvshm_attach("link", NULL, 0, &kv), -ELOOP, "link");
    FAILS(kvshm_attach("link", NULL, KVSHM_RDONLY, &kv), -ELOOP, "link");
    FAILS(kvshm_open("link", &config, 0, &kv), -ELOOP, "link");
    ck_assert_ptr_null(kv);
    ck_assert_int_eq(unlink(path), 0);
    ts_detach(real);
}
END_TEST

static int attach_as_nobody(void *arg)
{
    kvshm *kv = NULL;
    (void)arg;

    if (geteuid() == 0)
        ts_need(seteuid(65534) == 0);
    ts_need(kvshm_attach("closed", NULL, 0, &kv) == -EACCES);
    ts_need(strstr(kvshm_errmsg(NULL), "closed") != NULL);
    ts_need(kvshm_attach("closed", NULL, KVSHM_RDONLY, &kv) == -EACCES);
    ts_need(kv == NULL);
    return 0;
}

START_TEST(test_attach_without_permission)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = NULL;

    config.mode = 0;
    kv = ts_create("closed", &config);
    ck_assert_int_eq(chmod(getenv("KVSHM_DIR"), 0755), 0);
    ck_assert_int_eq(ts_wait(ts_fork(attach_as_nobody, NULL)), 0);
    ts_detach(kv);
}
END_TEST

START_TEST(test_files_that_are_no_arenas)
{
    static const char text[8192] = "not an arena";
    kvshm *kv = NULL;

    write_file("text", text, sizeof(text));
    write_file("short", KVSHM__MAGIC, 8);
    write_file("empty", text, 0);
    for (unsigned i = 0; i < 3; i++) {
        static const char *const names[] = {"text", "short", "empty"};

        FAILS(kvshm_attach(names[i], NULL, 0, &kv), KVSHM_E_FORMAT, names[i]);
        FAILS(kvshm_attach(names[i], NULL, KVSHM_RDONLY, &kv), KVSHM_E_FORMAT, names[i]);
        FAILS(kvshm_unlink(names[i], 0), KVSHM_E_FORMAT, names[i]);
        FAILS(kvshm_unlink(names[i], KVSHM_FORCE), KVSHM_E_FORMAT, names[i]);
    }
    ck_assert_ptr_null(kv);
    ck_assert_uint_eq(ts_dir_names(), 3);
}
END_TEST

/* Arenas that another build, another machine or another boot made, and a torn header. */
START_TEST(test_arenas_of_others)
{
    static const struct {
        struct bad_field field;
        int code;
        bool sealed; /* the header is whole */
    } others[] = {
        {BAD(kvshm_static, layout_version, 99), KVSHM_E_VERSION, true},
        {BAD(kvshm_static, layout_version, 99), KVSHM_E_VERSION, false},
        {BAD(kvshm_static, byte_order, 0x04030201), KVSHM_E_BYTE_ORDER, true},
        {BAD(kvshm_static, word_bytes, 4), KVSHM_E_BYTE_ORDER, true},
        {BAD(kvshm_static, incompat, 1 << 9), KVSHM_E_FEATURE, true},
        {BAD(kvshm_static, ro_compat, 1 << 9), KVSHM_E_FEATURE, true},
        {BAD(kvshm_static, boot_id, 1), KVSHM_E_BOOT, true},
        {BAD(kvshm_static, frames, 17), KVSHM_E_DAMAGED, false},
        {BAD(kvshm_static, frames, UINT64_MAX), KVSHM_E_DAMAGED, true},
        {BAD(kvshm_static, segment_bytes, UINT64_C(1) << 40), KVSHM_E_FORMAT, true}, /* cut */
        {BAD(kvshm_static, segment_bytes, 4096), KVSHM_E_DAMAGED, true},
    };
    struct kvshm_config config = errors_config();
    kvshm *kv = NULL;

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        struct kvshm_header *header = NULL;
        struct bad_field field = others[i].field;

        ts_detach(ts_create("other", &config));
        header = errors_header("other");
        field.size = field.size > 8 ? 8 : field.size;
        set_field(&header->fixed, &field);
        if (others[i].sealed)
            errors_header_seal(header);
        FAILS(kvshm_attach("other", NULL, 0, &kv), others[i].code, "other");
        ck_assert_ptr_null(kv);
        errors_header_close(header);
        ts_is(kvshm_unlink("other", KVSHM_FORCE), 0);
    }
}
END_TEST

/* A feature that only writers must know keeps no reader out. */
START_TEST(test_feature_of_writers)
{
    struct kvshm_config config = errors_config();
    struct kvshm_header *header = NULL;
    kvshm *kv = NULL;

    ts_detach(ts_create("feature", &config));
    header = errors_header("feature");
    header->fixed.ro_compat = UINT64_C(1) << 40;
    header->fixed.compat = UINT64_MAX;
    errors_header_seal(header);
    FAILS(kvshm_attach("feature", NULL, 0, &kv), KVSHM_E_FEATURE, "0x10000000000");
    ts_detach(ts_attach("feature", KVSHM_RDONLY));
    errors_header_close(header);
}
END_TEST

START_TEST(test_geometry_of_attach)
{
    static const struct bad_field other[] = {
        BAD(kvshm_geometry, page_bytes, 512),
        BAD(kvshm_geometry, page_tokens, 8),
        BAD(kvshm_geometry, shards, 2),
    };
    struct kvshm_config config = errors_config();
    kvshm *creator = ts_create("geometry", &config);
    struct errors_state before = errors_state(creator);
    kvshm *kv = NULL;

    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
        struct kvshm_config expect = errors_config();

        set_field(&expect.geometry, &other[i]);
        FAILS(kvshm_attach("geometry", &expect, 0, &kv), KVSHM_E_GEOMETRY, other[i].name);
        errors_say_value(other[i].value);
        FAILS(kvshm_open("geometry", &expect, 0, &kv), KVSHM_E_GEOMETRY, other[i].name);
        FAILS(kvshm_attach("geometry", &expect, KVSHM_RDONLY, &kv), KVSHM_E_GEOMETRY,
              other[i].name);
        ck_assert_ptr_null(kv);
    }
    errors_same_state(creator, &before);
    ts_detach(creator);
}
END_TEST

START_TEST(test_fingerprints_that_differ)
{
    struct kvshm_config config = errors_config();
    struct kvshm_prefix prefix = errors_prefix(4);
    struct kvshm_reservation r;
    struct kvshm_lease lease;
    kvshm *kv = NULL;
    kvshm *creator = NULL;
    kvshm *nameless = NULL;

    config.fingerprint[0] = 0xab;
    creator = ts_create("fingerprint", &config);
    ck_assert_int_eq(ts_insert(creator, 0, 0, errors_tokens, 4), 0);
    config.fingerprint[31] = 0xcd;
    FAILS(kvshm_attach("fingerprint", &config, 0, &kv), KVSHM_E_FINGERPRINT, "fingerprint");
    ck_assert_ptr_null(kv);
    nameless = ts_attach("fingerprint", 0);
    FAILS(kvshm_lookup(nameless, &prefix, 0, &lease), KVSHM_E_FINGERPRINT, "fingerprint");
    FAILS(kvshm_match(nameless, &prefix, 0, &lease), KVSHM_E_FINGERPRINT, "fingerprint");
    ts_is(kvshm_reserve(nameless, 1, 0, &r), 0);
    FAILS(kvshm_insert(nameless, &prefix, NULL, &r, 0), KVSHM_E_FINGERPRINT, "fingerprint");
    ck_assert_uint_eq(r.pages, 1);
    kvshm_cancel(nameless, &r);
    ts_detach(nameless);
    ts_detach(creator);
}
END_TEST

/* One that none was named for takes the first, while nothing is cached. */
START_TEST(test_fingerprint_named_too_late)
{
    struct kvshm_config config = errors_config();
    struct kvshm_header *header = NULL;
    kvshm *creator = NULL;
    kvshm *kv = NULL;

    config.stall_ms = 20;
    creator = ts_create("late", &config);
    ck_assert_int_eq(ts_insert(creator, 0, 0, errors_tokens, 4), 0);
    config.fingerprint[5] = 1;
    FAILS(kvshm_attach("late", &config, 0, &kv), KVSHM_E_FINGERPRINT, "fingerprint");
    ck_assert_ptr_null(kv);
    ck_assert_int_eq(kvshm_evict_lru(creator), 1);
    FAILS(kvshm_attach("late", &config, KVSHM_RDONLY, &kv), KVSHM_E_FINGERPRINT, "fingerprint");
    header = errors_header("late");
    atomic_store(&header->lock.word, errors_state(creator).info.client); /* and does not move */
    FAILS(kvshm_attach("late", &config, 0, &kv), KVSHM_E_STALLED, "late");
    ck_assert_ptr_null(kv);
    atomic_store(&header->lock.word, 0);
    errors_header_close(header);
    ts_is(kvshm_attach("late", &config, 0, &kv), 0);
    ts_detach(kv);
    ts_detach(creator);
}
END_TEST

START_TEST(test_all_places_taken)
{
    struct kvshm_config config = errors_config();
    kvshm *creator = NULL;
    kvshm *kv = NULL;
    struct errors_state before;

    config.max_clients = 1;
    config.label = "the only one";
    creator = ts_create("clients", &config);
    before = errors_state(creator);
    FAILS(kvshm_attach("clients", NULL, 0, &kv), KVSHM_E_CLIENTS, "the only one");
    ck_assert_ptr_null(kv);
    errors_same_state(creator, &before);
    ts_detach(ts_attach("clients", KVSHM_RDONLY));
    ts_detach(creator);
    ts_detach(ts_attach("clients", 0));
}
END_TEST

/* A name in two places; there is one place yet, so its module is asked. */
START_TEST(test_name_in_two_places)
{
    struct kvshm__places places = {.count = 2};
    struct kvshm__place_found found;
    char *second = places.place[1].path;

    snprintf(places.place[0].path, sizeof(places.place[0].path), "%s", getenv("KVSHM_DIR"));
    snprintf(second, sizeof(places.place[1].path), "%s/second", getenv("KVSHM_DIR"));
    ck_assert_int_eq(mkdir(second, 0700), 0);
    write_file("both", "1", 1);
    ts_is(kvshm__place_find(&places, "both", &found), 0);
    write_file("second/both", "2", 1);
    FAILS(kvshm__place_find(&places, "both", &found), KVSHM_E_CONFLICT, second);
    ts_says(getenv("KVSHM_DIR"));
    FAILS(kvshm__place_find(&places, "nowhere", &found), -ENOENT, "nowhere");
    strcat(second, "/both");
    ck_assert_int_eq(unlink(second), 0);
}
END_TEST

/* ---- Detach, unlink ---------------------------------------------------------------------------------------------- */

START_TEST(test_detach_while_held)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = ts_create("detach", &config);
    struct kvshm_prefix prefix = errors_prefix(4);
    struct kvshm_reservation r;
    struct kvshm_lease lease;

    ck_assert_int_eq(ts_insert(kv, 0, 0, errors_tokens, 4), 0);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), 0);
    FAILS(kvshm_detach(kv), -EBUSY, "1");
    ck_assert_uint_eq(
        ts_filled(kvshm_lease_page(&lease, 0), ERRORS_PAGE_BYTES, 0, 0, errors_tokens, 4), 0);
    kvshm_release(kv, &lease);
    ts_is(kvshm_reserve(kv, 2, 0, &r), 0);
    FAILS(kvshm_detach(kv), -EBUSY, "1");
    ck_assert_ptr_nonnull(kvshm_reservation_page(&r, 1));
    kvshm_cancel(kv, &r);
    ts_is(kvshm_detach(kv), 0);
    ts_is(kvshm_detach(NULL), 0);
}
END_TEST

START_TEST(test_unlink_with_living_clients)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = NULL;

    config.label = "reading on";
    kv = ts_create("busy", &config);
    FAILS(kvshm_unlink("busy", 0), -EBUSY, "reading on");
    ck_assert_uint_eq(ts_dir_names(), 1);
    ts_detach(kv);
    ts_is(kvshm_unlink("busy", 0), 0);
    ck_assert_uint_eq(ts_dir_names(), 0);
}
END_TEST

/* What is named is not the arena's file, is none, or is not there; and a handle without it cannot forget what is in it. */
START_TEST(test_spill_file_that_is_not_to_be_had)
{
    struct kvshm_config config = errors_config(), expect;
    struct kvshm_prefix prefix = errors_prefix(8);
    char path[300], other[300];
    kvshm *kv, *without = NULL, *more = NULL;

    snprintf(path, sizeof(path), "%s/spill.1", getenv("KVSHM_DIR"));
    snprintf(other, sizeof(other), "%s/spill.2", getenv("KVSHM_DIR"));
    config.spill_path = other;
    config.spill_bytes = 1 << 20;
    ts_detach(ts_create("other", &config));
    config.spill_path = path;
    kv = ts_create("spilling", &config);
    kvshm_config_init(&expect);
    expect.spill_path = other;
    FAILS(kvshm_attach("spilling", &expect, 0, &more), KVSHM_E_NOSPILL, other);
    ck_assert_ptr_null(more);
    expect.spill_path = "/nowhere/spill";
    FAILS(kvshm_attach("spilling", &expect, 0, &more), KVSHM_E_NOSPILL, "/nowhere/spill");
    expect.spill_path = "/dev/null";
    FAILS(kvshm_attach("spilling", &expect, 0, &more), KVSHM_E_NOSPILL, "/dev/null");
    setenv("KVSHM_SPILL", other, 1);
    FAILS(kvshm_attach("spilling", NULL, 0, &more), KVSHM_E_NOSPILL, other);
    setenv("KVSHM_SPILL", path, 1);
    ts_detach(ts_attach("spilling", 0));
    unsetenv("KVSHM_SPILL");
    ts_detach(ts_attach("spilling", 0));
    without = ts_attach("spilling", KVSHM_NOTIER);
    ck_assert_int_eq(ts_insert(kv, 0, 0, errors_tokens, 8), 0);
    ts_is(kvshm_flush(kv), 0);
    FAILS(kvshm_flush(without), -ENOTSUP, "spilling");
    FAILS(kvshm_wait(without, NULL), -ENOTSUP, "spilling");
    FAILS(kvshm_eventfd(without), -ENOTSUP, "spilling");
    FAILS(kvshm_remove(without, &prefix), KVSHM_E_NOSPILL, "KVSHM_NOTIER");
    ts_detach(without);
    ts_is(rename(path, other), 0);
    FAILS(kvshm_attach("spilling", NULL, 0, &more), KVSHM_E_NOSPILL, path);
    ts_is(symlink(other, path), 0);
    FAILS(kvshm_attach("spilling", NULL, 0, &more), KVSHM_E_NOSPILL, path);
    ts_detach(kv);
    unlink(path);
    unlink(other);
}
END_TEST

static void unlinked(kvshm *kv)
{
    struct kvshm_prefix prefix = errors_prefix(8);
    struct kvshm_reservation r;
    struct kvshm_lease lease;

    FAILS(kvshm_reserve(kv, 1, 0, &r), KVSHM_E_UNLINKED, "unlinked");
    FAILS(kvshm_evict_lru(kv), KVSHM_E_UNLINKED, "unlinked");
    FAILS(kvshm_clear(kv), KVSHM_E_UNLINKED, "unlinked");
    FAILS(kvshm_remove(kv, &prefix), KVSHM_E_UNLINKED, "unlinked");
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), 0);
    ck_assert_uint_eq(
        ts_filled(kvshm_lease_page(&lease, 1), ERRORS_PAGE_BYTES, 0, 0, errors_tokens, 8), 0);
    kvshm_release(kv, &lease);
}

START_TEST(test_writing_to_an_unlinked_arena)
{
    struct kvshm_config config = errors_config();
    kvshm *kv = ts_create("unlinked", &config);
    struct kvshm_prefix longer = errors_prefix(12);
    struct kvshm_reservation r;
    struct errors_state before;

    ck_assert_int_eq(ts_insert(kv, 0, 0, errors_tokens, 8), 0);
    ts_is(kvshm_reserve(kv, 3, 0, &r), 0);
    ts_is(kvshm_unlink("unlinked", KVSHM_FORCE), 0);
    before = errors_state(kv);
    FAILS(kvshm_insert(kv, &longer, NULL, &r, 0), KVSHM_E_UNLINKED, "unlinked");
    ck_assert_uint_eq(r.pages, 3);
    errors_same_state(kv, &before);
    unlinked(kv);
    ts_detach(ts_create("unlinked", &config)); /* another one of the name */
    unlinked(kv);
    kvshm_cancel(kv, &r);
    ts_detach(kv);
}
END_TEST

void errors_add_arena_cases(TCase *tcase)
{
    tcase_add_test(tcase, test_names);
    tcase_add_test(tcase, test_flags_of_life_cycle);
    tcase_add_test(tcase, test_fields_of_config);
    tcase_add_test(tcase, test_fields_of_config_together);
    tcase_add_test(tcase, test_fields_of_geometry);
    tcase_add_test(tcase, test_geometry_of_opaque_pages);
    tcase_add_test(tcase, test_create_without_space);
    tcase_add_test(tcase, test_create_beyond_the_file_limit);
    tcase_add_test(tcase, test_create_without_memory);
    tcase_add_test(tcase, test_create_twice);
    tcase_add_test(tcase, test_creators_take_turns);
    tcase_add_test(tcase, test_attach_what_is_not_there);
    tcase_add_test(tcase, test_folder_that_is_not_there);
    tcase_add_test(tcase, test_symbolic_link);
    tcase_add_test(tcase, test_attach_without_permission);
    tcase_add_test(tcase, test_files_that_are_no_arenas);
    tcase_add_test(tcase, test_arenas_of_others);
    tcase_add_test(tcase, test_feature_of_writers);
    tcase_add_test(tcase, test_geometry_of_attach);
    tcase_add_test(tcase, test_fingerprints_that_differ);
    tcase_add_test(tcase, test_fingerprint_named_too_late);
    tcase_add_test(tcase, test_all_places_taken);
    tcase_add_test(tcase, test_name_in_two_places);
    tcase_add_test(tcase, test_detach_while_held);
    tcase_add_test(tcase, test_unlink_with_living_clients);
    tcase_add_test(tcase, test_writing_to_an_unlinked_arena);
    tcase_add_test(tcase, test_spill_file_that_is_not_to_be_had);
}
