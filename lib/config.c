/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c - what callers ask for, checked.
 *
 * Structs that begin with their caller's size: the part that both sides know is copied; what only the caller knows
 * must be zero when it asks (else it asks for what this library has not) and is zeroed when it is told; what only the
 * library knows is its default, or is not told.
 *
 * Each check names the field, its value, its limits and, where it is not plain, the remedy.
 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "layout.h"
#include "message.h"
#include "numa.h"

#define FIRST_CONFIG_BYTES sizeof(struct kvshm_config) /* of the first version of the library */
#define SIZED_BYTES_MIN    (2 * sizeof(uint64_t))
#define SIZED_BYTES_MAX    65536u
#define DIMENSION_MAX      65535u
#define PAGE_TOKENS_MAX    (1u << 20)
#define PAGE_BYTES_MAX     (UINT64_C(1) << 40)
#define LEASES_MAX         65535u
#define MODE_MAX           0777u

/* ---- Structs with a size ----------------------------------------------------------------------------- */

int kvshm__sized_check(const char *what, size_t size)
{
    if (size >= SIZED_BYTES_MIN && size <= SIZED_BYTES_MAX)
        return 0;
    return kvshm__fail(-EINVAL, "%s.size is %zu, not %zu to %u; set it with %s_init()", what, size,
                       SIZED_BYTES_MIN, SIZED_BYTES_MAX, what);
}

void kvshm__sized_copy(void *to, const void *from, size_t size)
{
    size_t theirs, skip = sizeof(size_t);

    memcpy(&theirs, to, sizeof(theirs));
    memset((char *)to + skip, 0, theirs - skip);
    memcpy((char *)to + skip, (const char *)from + skip, (theirs < size ? theirs : size) - skip);
}

/* Zero, but for the size. A size that is none leaves the struct as it is: the next call says so. */
static void init_sized(void *to, size_t size)
{
    if (to == NULL || size < sizeof(size_t) || size > SIZED_BYTES_MAX)
        return;
    memset(to, 0, size);
    memcpy(to, &size, sizeof(size));
}

void kvshm_info_init_sized(struct kvshm_info *info, size_t size)
{
    init_sized(info, size);
}

void kvshm_stats_init_sized(struct kvshm_stats *stats, size_t size)
{
    init_sized(stats, size);
}

static struct kvshm_config defaults(void)
{
    return (struct kvshm_config){
        .size = sizeof(struct kvshm_config),
        .geometry = {.dtype = KVSHM_F32, .page_tokens = 64, .shards = 1, .token_scale = 1},
        .capacity = KVSHM_UNLIMITED,
        .max_clients = 64,
        .max_leases = 512,
        .backing = KVSHM_BACKING_AUTO,
        .numa = KVSHM_NUMA_AUTO,
        .mode = 0600,
        .group = UINT32_MAX,
        .stall_ms = 1000,
        .wait_ms = 1000,
    };
}

void kvshm_config_init_sized(struct kvshm_config *config, size_t size)
{
    struct kvshm_config all = defaults();

    if (config == NULL || size < sizeof(size_t) || size > SIZED_BYTES_MAX)
        return;
    init_sized(config, size);
    kvshm__sized_copy(config, &all, sizeof(all));
}

/* The part that both know; what only the caller knows must be zero. */
static int copy_config(const struct kvshm_config *from, struct kvshm_config *to)
{
    size_t size = from->size;

    *to = defaults();
    if (size < FIRST_CONFIG_BYTES || size > SIZED_BYTES_MAX)
        return kvshm__fail(-EINVAL,
                           "config.size is %zu, not %zu to %u; set all fields with "
                           "kvshm_config_init() first",
                           size, FIRST_CONFIG_BYTES, SIZED_BYTES_MAX);
    memcpy(to, from, size < sizeof(*to) ? size : sizeof(*to));
    for (size_t i = sizeof(*to); i < size; i++) {
        if (((const unsigned char *)from)[i] != 0)
            return kvshm__fail(-EINVAL,
                               "config of %zu bytes asks, in byte %zu, for something that this "
                               "library (%s) does not know; use a newer one",
                               size, i, kvshm_version());
    }
    to->size = sizeof(*to);
    return 0;
}

/* ---- Geometry ---------------------------------------------------------------------------------------- */

static int bad_range(const char *field, uint64_t value, uint64_t min, uint64_t max)
{
    return kvshm__fail(KVSHM_E_GEOMETRY, "geometry.%s is %" PRIu64 ", not %" PRIu64 " to %" PRIu64,
                       field, value, min, max);
}

/* The fields that both kinds of pages have. */
static int check_common(const struct kvshm_geometry *g)
{
    if (g->page_tokens == 0 || g->page_tokens > PAGE_TOKENS_MAX)
        return bad_range("page_tokens", g->page_tokens, 1, PAGE_TOKENS_MAX);
    if (g->shards == 0 || g->shards > DIMENSION_MAX)
        return bad_range("shards", g->shards, 1, DIMENSION_MAX);
    if (g->token_scale == 0)
        return bad_range("token_scale", g->token_scale, 1, UINT32_MAX);
    if (g->dtype > KVSHM_INT4)
        return bad_range("dtype", g->dtype, KVSHM_F32, KVSHM_INT4);
    if (g->reserved != 0)
        return bad_range("reserved", g->reserved, 0, 0);
    return 0;
}

static unsigned dtype_bits(uint32_t dtype)
{
    switch ((enum kvshm_dtype)dtype) {
    case KVSHM_F32:
        return 32;
    case KVSHM_F16:
    case KVSHM_BF16:
        return 16;
    case KVSHM_FP8:
    case KVSHM_INT8:
        return 8;
    case KVSHM_INT4:
        return 4;
    }
    return 0;
}

static int bad_dimension(const char *field, uint32_t value)
{
    return kvshm__fail(KVSHM_E_GEOMETRY,
                       "geometry.%s is %u, not 1 to %u; set num_layers, num_kv_heads and head_dim, "
                       "or page_bytes alone",
                       field, value, DIMENSION_MAX);
}

static int check_dimensions(const struct kvshm_geometry *g)
{
    if (g->num_layers == 0 || g->num_layers > DIMENSION_MAX)
        return bad_dimension("num_layers", g->num_layers);
    if (g->num_kv_heads == 0 || g->num_kv_heads > DIMENSION_MAX)
        return bad_dimension("num_kv_heads", g->num_kv_heads);
    if (g->head_dim == 0 || g->head_dim > DIMENSION_MAX)
        return bad_dimension("head_dim", g->head_dim);
    if (g->num_kv_heads % g->shards != 0)
        return kvshm__fail(KVSHM_E_GEOMETRY,
                           "geometry.num_kv_heads, %u, does not divide by shards, %u",
                           g->num_kv_heads, g->shards);
    if (g->dtype == KVSHM_INT4 && g->num_kv_heads / g->shards % 2 != 0 && g->head_dim % 2 != 0)
        return kvshm__fail(KVSHM_E_GEOMETRY,
                           "geometry.head_dim, %u, times %u heads of a shard is odd, and two of "
                           "dtype KVSHM_INT4 make a byte; make one of them even",
                           g->head_dim, g->num_kv_heads / g->shards);
    return 0;
}

/* [num_layers, 2, page_tokens, num_kv_heads * head_dim] of dtype. */
static int size_of_dimensions(const struct kvshm_geometry *g, uint64_t *page_bytes)
{
    uint64_t row_bits = (uint64_t)g->num_kv_heads * g->head_dim * dtype_bits(g->dtype);
    uint64_t rows = (uint64_t)g->num_layers * 2 * g->page_tokens;
    uint64_t bits;

    if (__builtin_mul_overflow(row_bits, rows, &bits) || bits / 8 > PAGE_BYTES_MAX)
        return kvshm__fail(KVSHM_E_GEOMETRY,
                           "geometry of num_layers %u, num_kv_heads %u, head_dim %u, page_tokens "
                           "%u overflows: a page is at most %" PRIu64 " bytes; take fewer tokens "
                           "a page",
                           g->num_layers, g->num_kv_heads, g->head_dim, g->page_tokens,
                           PAGE_BYTES_MAX);
    *page_bytes = bits / 8;
    return 0;
}

static int check_opaque(const struct kvshm_geometry *g)
{
    if (g->num_layers != 0 || g->num_kv_heads != 0 || g->head_dim != 0)
        return kvshm__fail(KVSHM_E_GEOMETRY,
                           "geometry.page_bytes, %" PRIu64 ", together with num_layers %u, "
                           "num_kv_heads %u, head_dim %u; set page_bytes alone or leave it 0",
                           g->page_bytes, g->num_layers, g->num_kv_heads, g->head_dim);
    if (g->page_bytes > PAGE_BYTES_MAX)
        return bad_range("page_bytes", g->page_bytes, 1, PAGE_BYTES_MAX);
    if (g->page_bytes % g->shards != 0)
        return kvshm__fail(KVSHM_E_GEOMETRY,
                           "geometry.page_bytes, %" PRIu64 ", does not divide by shards, %u",
                           g->page_bytes, g->shards);
    return 0;
}

int kvshm__geometry_check(const struct kvshm_geometry *g, uint64_t *page_bytes)
{
    int code = check_common(g);

    if (code == 0 && g->page_bytes != 0) {
        code = check_opaque(g);
        *page_bytes = g->page_bytes;
    } else if (code == 0) {
        code = check_dimensions(g);
        if (code == 0)
            code = size_of_dimensions(g, page_bytes);
    }
    if (code == 0 && g->shards > 1 && *page_bytes / g->shards % KVSHM__LINE != 0)
        return kvshm__fail(KVSHM_E_GEOMETRY,
                           "geometry.shards, %u, cuts a page of %" PRIu64 " bytes into parts of "
                           "%" PRIu64 ", no multiple of %u",
                           g->shards, *page_bytes, *page_bytes / g->shards, KVSHM__LINE);
    return code;
}

uint64_t kvshm_page_bytes(const struct kvshm_geometry *geometry)
{
    uint64_t bytes = 0;

    if (geometry == NULL) {
        kvshm__fail(-EINVAL, "geometry is NULL");
        return 0;
    }
    return kvshm__geometry_check(geometry, &bytes) == 0 ? bytes : 0;
}

uint32_t kvshm_pages_for_tokens(uint32_t tokens, uint32_t page_tokens)
{
    return page_tokens == 0 ? 0 : tokens / page_tokens + (tokens % page_tokens != 0);
}

static int differ(const char *path, const char *field, uint64_t asked, uint64_t had)
{
    if (path)
        return kvshm__fail(KVSHM_E_GEOMETRY,
                           "geometry.%s is %" PRIu64 " and that of spill file %s is %" PRIu64 "; ask for the file's, or "
                           "name another file",
                           field, asked, path, had);
    return kvshm__fail(KVSHM_E_GEOMETRY,
                       "geometry.%s is %" PRIu64 " and the arena's is %" PRIu64 "; ask for the "
                       "arena's, or use another name",
                       field, asked, had);
}

int kvshm__geometry_compare(const struct kvshm_geometry *asked, const struct kvshm_geometry *had, const char *path)
{
    if (asked->page_bytes != had->page_bytes)
        return differ(path, "page_bytes", asked->page_bytes, had->page_bytes);
    if (asked->num_layers != had->num_layers)
        return differ(path, "num_layers", asked->num_layers, had->num_layers);
    if (asked->num_kv_heads != had->num_kv_heads)
        return differ(path, "num_kv_heads", asked->num_kv_heads, had->num_kv_heads);
    if (asked->head_dim != had->head_dim)
        return differ(path, "head_dim", asked->head_dim, had->head_dim);
    if (asked->page_bytes == 0 && asked->dtype != had->dtype)
        return differ(path, "dtype", asked->dtype, had->dtype);
    if (asked->page_tokens != had->page_tokens)
        return differ(path, "page_tokens", asked->page_tokens, had->page_tokens);
    if (asked->shards != had->shards)
        return differ(path, "shards", asked->shards, had->shards);
    return 0;
}

/* ---- Configurations ---------------------------------------------------------------------------------- */

static int take_label(const char *label, char *to)
{
    size_t length;

    if (label == NULL) {
        label = program_invocation_short_name;
        length = strnlen(label, KVSHM_LABEL_MAX);
    } else {
        length = strnlen(label, KVSHM_LABEL_MAX + 1);
    }
    if (length > KVSHM_LABEL_MAX)
        return kvshm__fail(-EINVAL, "config.label is longer than %d bytes", KVSHM_LABEL_MAX);
    memcpy(to, label, length);
    to[length] = '\0';
    return 0;
}

static int take_spill_path(const char *path, char *to)
{
    to[0] = '\0';
    if (path == NULL)
        return 0;
    if (path[0] == '\0' || strlen(path) >= KVSHM__SPILL_PATH_BYTES)
        return kvshm__fail(-EINVAL, "config.spill_path is empty, or longer than %d bytes", KVSHM__SPILL_PATH_BYTES - 1);
    strcpy(to, path);
    return 0;
}

static bool any_set(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != 0)
            return true;
    }
    return false;
}

/* What both calls take. */
static int take(const struct kvshm_config *from, struct kvshm__config *to)
{
    int code = copy_config(from, &to->asked);

    if (code == 0)
        code = take_label(to->asked.label, to->label);
    to->asked.label = NULL;
    if (code == 0)
        code = take_spill_path(to->asked.spill_path, to->spill_path);
    to->asked.spill_path = NULL;
    to->slots = 0;
    to->block_bytes = 0;
    to->named_fingerprint = any_set(to->asked.fingerprint, KVSHM_FINGERPRINT_BYTES);
    to->page_bytes = 0;
    return code;
}

static int check_range(const char *field, uint64_t value, uint64_t min, uint64_t max)
{
    if (value >= min && value <= max)
        return 0;
    return kvshm__fail(-EINVAL, "config.%s is %" PRIu64 ", not %" PRIu64 " to %" PRIu64, field,
                       value, min, max);
}

static int check_amount(const struct kvshm_config *c)
{
    if (c->frames != 0 && c->memory_bytes != 0)
        return kvshm__fail(-EINVAL,
                           "config.frames is %" PRIu64 " and config.memory_bytes %" PRIu64
                           "; set one and leave the other 0",
                           c->frames, c->memory_bytes);
    if (c->frames == 0 && c->memory_bytes == 0)
        return kvshm__fail(-EINVAL, "config.frames and config.memory_bytes are 0; set one: frames "
                                    "is pages to hold, memory_bytes the whole segment");
    return c->frames == 0 ? 0 : check_range("frames", c->frames, 1, KVSHM__FRAMES_MAX);
}

int kvshm__config_create(const struct kvshm_config *from, struct kvshm__config *to)
{
    const struct kvshm_config *c = &to->asked;
    int code;

    if (from == NULL)
        return kvshm__fail(-EINVAL, "config is NULL; set one with kvshm_config_init()");
    code = take(from, to);
    if (code == 0)
        code = kvshm__geometry_check(&c->geometry, &to->page_bytes);
    if (code == 0)
        code = check_amount(c);
    if (code == 0)
        code = check_range("max_clients", c->max_clients, 1, KVSHM__CLIENTS_MAX);
    if (code == 0)
        code = check_range("max_leases", c->max_leases, 1, LEASES_MAX);
    if (code == 0)
        code = check_range("backing", c->backing, KVSHM_BACKING_AUTO,
                           KVSHM_BACKING_HUGETLB_1G);
    if (code == 0 && !kvshm__numa_valid(c->numa, true))
        code = kvshm__fail(-EINVAL,
                           "config.numa is %u, not KVSHM_NUMA_AUTO, _LOCAL, _INTERLEAVE, or "
                           "KVSHM_NUMA_NODE(0) to (%u)",
                           c->numa, KVSHM__NODES_MAX - 1);
    if (code == 0)
        code = check_range("stall_ms", c->stall_ms, 0, KVSHM__STALL_MS_MAX);
    if (code == 0)
        code = check_range("reserved", c->reserved, 0, 0);
    if (code == 0)
        code = check_range("admission", c->admission, KVSHM_ADMIT_ALL, KVSHM_ADMIT_REUSED);
    if (code == 0 && c->mode > MODE_MAX)
        code = kvshm__fail(-EINVAL, "config.mode is %#o, not 0 to %#o", c->mode, MODE_MAX);
    return code;
}

int kvshm__config_expect(const struct kvshm_config *from, struct kvshm__config *to)
{
    const struct kvshm_config none = defaults();
    int code = take(from == NULL ? &none : from, to);

    if (code == 0 && (to->asked.geometry.num_layers != 0 || to->asked.geometry.page_bytes != 0))
        code = kvshm__geometry_check(&to->asked.geometry, &to->page_bytes);
    return code;
}

/* ---- Names, flags, prefixes -------------------------------------------------------------------------- */

static bool plain(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool kvshm__name_valid(const char *name)
{
    size_t i;

    if (name == NULL || !plain(name[0]))
        return false;
    for (i = 1; name[i] != '\0' && i <= KVSHM_NAME_MAX; i++) {
        if (!plain(name[i]) && name[i] != '.' && name[i] != '_' && name[i] != '-')
            return false;
    }
    return i <= KVSHM_NAME_MAX;
}

int kvshm__name_check(const char *name)
{
    if (kvshm__name_valid(name))
        return 0;
    if (name == NULL)
        return kvshm__fail(-EINVAL, "name is NULL");
    return kvshm__fail(-EINVAL,
                       "\"%.80s\" is no name of an arena: 1 to %d of A-Z a-z 0-9 . _ -, the "
                       "first a letter or digit",
                       name, KVSHM_NAME_MAX);
}

int kvshm__flags_check(const char *call, unsigned flags, unsigned known)
{
    if ((flags & ~known) == 0)
        return 0;
    return kvshm__fail(-EINVAL, "%s: flags %#x has bits that it does not take: %#x", call, flags,
                       flags & ~known);
}

void kvshm_prefix_init(struct kvshm_prefix *prefix, uint64_t adapter_id, uint64_t tenant,
                       const uint32_t *tokens, uint32_t n)
{
    memset(prefix, 0, sizeof(*prefix));
    prefix->adapter_id = adapter_id;
    prefix->tenant = tenant;
    prefix->tokens = tokens;
    prefix->n = n;
    prefix->reserved = tokens == NULL; /* not a key-only prefix by mistake: calls answer -EINVAL */
}

static void prefix_init_keyed(struct kvshm_prefix *prefix, uint64_t adapter_id, uint64_t tenant, uint32_t n)
{
    kvshm_prefix_init(prefix, adapter_id, tenant, NULL, n);
    prefix->reserved = 0;
}

void kvshm_prefix_init_key(struct kvshm_prefix *prefix, uint64_t adapter_id, uint64_t tenant,
                           const uint8_t key[KVSHM_KEY_BYTES], uint32_t n)
{
    prefix_init_keyed(prefix, adapter_id, tenant, n);
    memcpy(prefix->key, key, KVSHM_KEY_BYTES);
}

void kvshm_prefix_init_hash(struct kvshm_prefix *prefix, uint64_t adapter_id, uint64_t tenant,
                            uint64_t token_hash, uint32_t n)
{
    prefix_init_keyed(prefix, adapter_id, tenant, n);
    for (unsigned i = 0; i < sizeof(token_hash); i++)
        prefix->key[i] = (uint8_t)(token_hash >> (8 * i));
}
