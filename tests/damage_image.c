/* SPDX-License-Identifier: Apache-2.0 */
#include "damage.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "evict.h"
#include "mend.h"
#include "validate.h"

const struct dm_shape dm_shapes[DM_SHAPES] = {
    {"four tokens a page", 4, 44, 8, KVSHM_UNLIMITED, false, false},
    {"one token a page, a fingerprint", 1, 44, 5, KVSHM_UNLIMITED, true, false},
    {"70 tokens a page, a capacity", 70, 44, 8, 12, false, true},
};

/* ---- Prefixes ------------------------------------------------------------------------------------------- */

#define TOKENS_MAX 512u

/* Tokens first .. n - 1 of a line of its own. */
static void line(uint32_t *tokens, uint32_t number, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < n; i++)
        tokens[i] = number << 16 | (i + 1);
}

static struct kvshm_prefix key(uint32_t number, uint32_t n)
{
    struct kvshm_prefix prefix;
    uint8_t bytes[KVSHM_KEY_BYTES];

    memset(bytes, (int)number, sizeof(bytes));
    kvshm_prefix_init_key(&prefix, 3, 4, bytes, n);
    return prefix;
}

struct kvshm_prefix dm_name(const struct dm_shape *shape, unsigned name)
{
    static uint32_t all[DM_NAMES][TOKENS_MAX];
    const uint32_t m = shape->page_tokens;
    const struct {
        uint32_t line, n;
    } plain[DM_NAMES] = {
        [DM_A] = {1, 2 * m},  [DM_B] = {2, 2 * m},     [DM_C] = {3, m + (m + 1) / 2},
        [DM_D] = {4, m},      [DM_E] = {5, 5 * m + 1}, [DM_T] = {1, 2 * m},
        [DM_H] = {1, m},      [DM_Z] = {6, 2 * m},     [DM_R] = {7, 2 * m},
        [DM_X] = {8, 3 * m},  [DM_N] = {9, 2 * m},     [DM_G] = {1, 3 * m + 1},
        [DM_P] = {10, m + 1},
    };
    struct kvshm_prefix prefix;
    uint32_t *tokens = all[name], n = plain[name].n;

    if (n == 0)
        return key(name, name == DM_K ? 3 * m : name == DM_L ? 1 : 2 * m);
    ck_assert_uint_le(n, TOKENS_MAX);
    line(tokens, plain[name].line, 0, n);
    if (name == DM_B || name == DM_C)
        line(tokens, 1, 0, m);
    kvshm_prefix_init(&prefix, name == DM_T ? 7 : 0, name == DM_T ? 9 : 0, tokens, n);
    return prefix;
}

/* ---- Making --------------------------------------------------------------------------------------------- */

struct kvshm_config dm_expect(const struct dm_shape *shape)
{
    struct kvshm_config config = ts_config(IN_PAGE_BYTES, shape->page_tokens, shape->frames);

    config.max_clients = 5;
    config.max_leases = shape->max_leases;
    config.capacity = shape->capacity;
    config.stall_ms = 5;
    if (shape->fingerprint)
        memset(config.fingerprint, 0x5a, sizeof(config.fingerprint));
    return config;
}

static void put(kvshm *kv, const struct dm_shape *shape, unsigned name)
{
    struct kvshm_prefix prefix = dm_name(shape, name);

    ts_is(in_insert(kv, &prefix, NULL, 0), 0);
}

static void lease(kvshm *kv, const struct dm_shape *shape, unsigned name, struct kvshm_lease *out)
{
    struct kvshm_prefix prefix = dm_name(shape, name);

    ts_is(kvshm_lookup(kv, &prefix, 0, out), 0);
}

static void drop(kvshm *kv, const struct dm_shape *shape, unsigned name)
{
    struct kvshm_prefix prefix = dm_name(shape, name);

    ts_is(kvshm_remove(kv, &prefix), 0);
}

struct dying {
    const struct dm_shape *shape;
    uint64_t live;
    uint64_t *dead;
};

/* Leases, reserves, joins, and dies. */
static int die(void *argument)
{
    const struct dying *d = argument;
    struct kvshm_prefix prefix = dm_name(d->shape, DM_D);
    struct kvshm_config expect = dm_expect(d->shape);
    struct kvshm_reservation r[2];
    struct kvshm_lease held;
    kvshm *kv;

    ts_need(kvshm_attach("damaged", &expect, 0, &kv) == 0);
    *d->dead = kv->client;
    ts_need(kvshm_lookup(kv, &prefix, 0, &held) == 0);
    kvshm_lease_tag(&held, 77);
    ts_need(kvshm_reserve(kv, 2, 0, &r[0]) == 0);
    ts_need(kvshm_reserve(kv, 1, KVSHM_DEVICE, &r[1]) == 0);
    ts_need(kvshm_join(kv, d->live) == 0);
    return 0;
}

/* An epoch ends, and nothing of it has been swept. */
static void clear_unswept(kvshm *kv)
{
    ts_is(kvshm__mend_lock(kv), 0);
    kvshm__evict_clear(kv, KVSHM__LOAD(&kv->header->epoch) + 1);
    kvshm__mend_unlock(kv);
}

/* Everything there is to damage; what kv holds then. */
static void populate(kvshm *kv, const struct dm_shape *shape, struct kvshm_lease *leases,
                     struct kvshm_reservation *r)
{
    struct kvshm_prefix replaced = dm_name(shape, DM_K);

    put(kv, shape, DM_Z);
    put(kv, shape, DM_Y);
    clear_unswept(kv);
    for (unsigned name = DM_A; name <= DM_T; name++)
        put(kv, shape, name);
    put(kv, shape, DM_R);
    put(kv, shape, DM_X);
    drop(kv, shape, DM_X);
    replaced.n = 2 * shape->page_tokens;
    ts_is(in_insert(kv, &replaced, NULL, 0), 0);
    ts_is(kvshm_lookup(kv, &replaced, 0, &leases[0]), 0);
    replaced.n = 3 * shape->page_tokens;
    ts_is(in_insert(kv, &replaced, NULL, 0), KVSHM_REPLACED);
    put(kv, shape, DM_L);
    lease(kv, shape, DM_R, &leases[1]);
    drop(kv, shape, DM_R);
    lease(kv, shape, DM_A, &leases[2]);
    kvshm_lease_tag(&leases[2], 5);
    lease(kv, shape, DM_E, &leases[3]);
    ts_is(kvshm_reserve(kv, 2, 0, &r[0]), 0);
    ts_is(kvshm_reserve(kv, 1, 0, &r[1]), 0);
    kvshm_cancel(kv, &r[1]);
}

void dm_make(struct dm_image *image, const struct dm_shape *shape)
{
    struct kvshm_config config = dm_expect(shape);
    kvshm *kv = ts_create("damaged", &config), *other;
    struct kvshm_reservation r[2];
    struct kvshm_lease leases[4];
    uint64_t *dead = ts_shared(sizeof(*dead));

    *image = (struct dm_image){.shape = shape, .bytes = kv->segment_bytes, .live = kv->client};
    if (shape->shared_clock) {
        kv->header->fixed.clock = KVSHM__CLOCK_SHARED;
        kv->hardware_clock = false;
        kv->header->fixed.checksum = kvshm__validate_checksum(&kv->header->fixed);
    }
    populate(kv, shape, leases, r);
    ts_is(kvshm_attach("damaged", &config, 0, &other), 0);
    struct dying dying = {shape, kv->client, dead};
    ck_assert_int_eq(ts_wait(ts_fork(die, &dying)), 0);
    ts_is(kvshm_join(other, kv->client), 0);
    image->dead = *dead;
    image->data = ts_shared(image->bytes);
    memcpy(image->data, kv->read_base, image->bytes);
    for (unsigned i = 0; i < 4; i++)
        kvshm_release(kv, &leases[i]);
    kvshm_cancel(kv, &r[0]);
    ts_detach(other);
    ts_detach(kv);
    ts_is(kvshm_unlink("damaged", 0), 0);
    munmap(dead, sizeof(*dead));
}

void dm_free(struct dm_image *image)
{
    munmap(image->data, image->bytes);
}

static void put_file(const char *path, const uint8_t *data, uint64_t bytes)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    ts_need(fd >= 0);
    ts_need(write(fd, data, bytes) == (ssize_t)bytes);
    close(fd);
}

void dm_write(const struct dm_image *image)
{
    char path[300];

    snprintf(path, sizeof(path), "%s/damaged", getenv("KVSHM_DIR"));
    put_file(path, image->data, image->bytes);
}

/* ---- Items ---------------------------------------------------------------------------------------------- */

/* Does any byte of an item differ from 0? */
static bool in_use(const uint8_t *item, uint64_t length)
{
    while (length > 0 && *item == 0)
        item++, length--;
    return length > 0;
}

static const char *const kinds[KVSHM__SEC_KINDS] = {
    [KVSHM__SEC_CLIENTS] = "client",
    [KVSHM__SEC_LEASES] = "lease word",
    [KVSHM__SEC_RESERVATIONS] = "reservation",
    [KVSHM__SEC_BUCKETS] = "bucket",
    [KVSHM__SEC_RECORDS] = "record",
    [KVSHM__SEC_LINKS] = "links",
    [KVSHM__SEC_TEXTS] = "text",
    [KVSHM__SEC_HEAP] = "heap slot",
    [KVSHM__SEC_OWNERS] = "owner",
};

/* All items of a section that are in use, and the first that is not. */
static unsigned items_of(const struct dm_image *image, const struct kvshm_section *s,
                         struct dm_item *items)
{
    unsigned n = 0, unused = 0;

    for (uint32_t i = 0; i < s->length / s->stride; i++) {
        struct dm_item item = {kinds[s->kind], i, s->offset + i * s->stride, s->stride};

        if (in_use(image->data + item.offset, item.length) || unused++ == 0)
            items[n++] = item;
    }
    return n;
}

unsigned dm_items(const struct dm_image *image, struct dm_item *items)
{
    const struct kvshm_header *header = (const struct kvshm_header *)image->data;
    unsigned n = 0;

    items[n++] = (struct dm_item){"header, fixed part", 0, 0, sizeof(header->fixed)};
    items[n++] = (struct dm_item){"header", 0, sizeof(header->fixed),
                                  sizeof(*header) - sizeof(header->fixed)};
    for (unsigned i = 0; i < KVSHM__DIRECTORY_ROOM; i++) {
        const struct kvshm_section *s = &header->fixed.directory[i];

        if (s->kind == 0 || s->kind >= KVSHM__SEC_KINDS || kinds[s->kind] == NULL)
            continue;
        ck_assert_uint_le(n + s->length / s->stride, DM_ITEMS);
        n += items_of(image, s, items + n);
    }
    return n;
}

unsigned dm_values(uint8_t old, uint8_t values[12])
{
    unsigned n = 0;

    for (unsigned i = 0; i < 12; i++) {
        uint8_t value = i == 0   ? 0
                        : i == 1 ? 255
                        : i == 2 ? old + 1
                        : i == 3 ? old - 1
                                 : old ^ 1 << (i - 4);

        if (value != old && (n == 0 || memchr(values, value, n) == NULL))
            values[n++] = value;
    }
    return n;
}
