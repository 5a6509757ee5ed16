/* SPDX-License-Identifier: Apache-2.0 */
#include "damage.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client.h"
#include "frames.h"
#include "pages.h"
#include "reap.h"
#include "sys.h"
#include "validate.h"

struct dm_score *dm_score;

const char *const dm_companies[DM_COMPANIES] = {"reading", "writing", "mending", "held"};

/* ---- Answers -------------------------------------------------------------------------------------------- */

#define COUNT INT32_MAX /* among the answers of a call: any number from 0 on */
#define LOOK  0, KVSHM_MISS, KVSHM_E_LEASES, KVSHM_E_FINGERPRINT, KVSHM_E_DAMAGED, KVSHM_E_READ_ONLY
#define WRITE KVSHM_E_STALLED, KVSHM_E_DAMAGED, KVSHM_E_READ_ONLY
#define INSERT                                                                                    \
    0, KVSHM_EXISTS, KVSHM_REPLACED, KVSHM_E_STALE, KVSHM_E_FINGERPRINT, KVSHM_E_LEASES, -ENOSPC, \
        -EINVAL, WRITE
#define ATTACH                                                                             \
    0, KVSHM_E_FORMAT, KVSHM_E_VERSION, KVSHM_E_FEATURE, KVSHM_E_BYTE_ORDER, KVSHM_E_BOOT, \
        KVSHM_E_DAMAGED, KVSHM_E_GEOMETRY, KVSHM_E_FINGERPRINT, KVSHM_E_CLIENTS, KVSHM_E_STALLED

/* What kvshm.h says that a call may answer here. */
static const struct {
    const char *name;
    int answers[DM_CODES];
    unsigned n;
} calls[DM_CALLS] = {
#define CALL(call, name, ...) \
    [call] = {name, {__VA_ARGS__}, sizeof((int[]){__VA_ARGS__}) / sizeof(int)}
    CALL(DM_ATTACH, "attach", ATTACH),
    CALL(DM_ATTACH_RDONLY, "attach KVSHM_RDONLY", ATTACH),
    CALL(DM_CONTAINS, "contains", 0, 1),
    CALL(DM_LOOKUP, "lookup", LOOK),
    CALL(DM_MATCH, "match", LOOK),
    CALL(DM_PEEK, "peek", 0, KVSHM_MISS),
    CALL(DM_PAGES, "lease_pages", COUNT),
    CALL(DM_COPY, "copy_out", COUNT, KVSHM_E_LEASES, KVSHM_E_FINGERPRINT, KVSHM_E_DAMAGED),
    CALL(DM_FOREACH, "foreach", 0),
    CALL(DM_INFO, "info", 0),
    CALL(DM_STATS, "stats", 0),
    CALL(DM_RESERVE, "reserve", 0, -ENOSPC, KVSHM_E_LEASES, WRITE),
    CALL(DM_INSERT, "insert", INSERT),
    CALL(DM_INSERT_HEAD, "insert behind a head", INSERT),
    CALL(DM_EXTEND, "insert KVSHM_EXTEND", INSERT),
    CALL(DM_HOLD, "insert KVSHM_HOLD", INSERT),
    CALL(DM_INSERT_KEY, "insert of a key", INSERT),
    CALL(DM_REMOVE, "remove", 0, KVSHM_MISS, WRITE),
    CALL(DM_EVICT, "evict_lru", COUNT, WRITE),
    CALL(DM_CLEAR, "clear", 0, WRITE),
    CALL(DM_SET, "set", 0, WRITE),
    CALL(DM_REAP, "reap", COUNT, -EBUSY, WRITE),
    CALL(DM_JOIN, "join", 0, -ESRCH, -ENOSPC, KVSHM_E_READ_ONLY),
    CALL(DM_LEAVE, "leave", 0, -ENOENT, KVSHM_E_READ_ONLY),
    CALL(DM_DETACH, "detach", 0, -EBUSY),
    CALL(DM_UNLINK, "unlink", 0, KVSHM_E_FORMAT, -EBUSY),
};

static void wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void wrong(const char *fmt, ...)
{
    char text[256];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (dm_score->wrong++ < 20)
        fprintf(stderr, "%s; %s: %s\n", dm_score->doing, dm_score->call, text);
}

/* Note the call before it is made, in case it never comes back. */
static enum dm_call calling(enum dm_call call)
{
    dm_score->call = calls[call].name;
    return call;
}

static int64_t answered(enum dm_call call, int64_t code)
{
    for (unsigned i = 0; i < calls[call].n; i++) {
        if (code == calls[call].answers[i] || (calls[call].answers[i] == COUNT && code >= 0)) {
            dm_score->answers[call][i]++;
            return code;
        }
    }
    wrong("it answered %" PRId64 " (%s): %s", code, kvshm_strerror((int)code), kvshm_errmsg(NULL));
    return code;
}
#define DO(call, expression) answered(calling(call), (expression))

void dm_print(void)
{
    printf("%" PRIu64 " cases; %" PRIu64 " hits with %" PRIu64 " pages compared and %" PRIu64
           " refused\n",
           dm_score->cases, dm_score->hits, dm_score->pages, dm_score->refused);
    for (unsigned call = 0; call < DM_CALLS; call++) {
        printf("%s:", calls[call].name);
        for (unsigned i = 0; i < calls[call].n; i++) {
            int code = calls[call].answers[i];

            if (dm_score->answers[call][i] == 0)
                continue;
            if (code == COUNT || code >= 0)
                printf(" %" PRIu64 " x %s;", dm_score->answers[call][i],
                       code == COUNT ? "a count"
                       : code == 0   ? "0"
                                     : kvshm_strerror(code));
            else
                printf(" %" PRIu64 " x %d (%s);", dm_score->answers[call][i], code,
                       kvshm_strerror(code));
        }
        printf("\n");
    }
}

/* ---- Guarded mappings ------------------------------------------------------------------------------------ */

/*
 * The library reserves addresses without access, maps the segment in the midst of them, and gives back what lies around it:
 * that is kept here until the segment is unmapped.
 */
static struct around {
    uint8_t *begin, *segment;
    uint64_t bytes, segment_bytes;
} kept[16];

static struct around *around(const void *address)
{
    for (unsigned i = 0; i < 16; i++) {
        if ((const uint8_t *)address - kept[i].begin < (ptrdiff_t)kept[i].bytes &&
            (const uint8_t *)address >= kept[i].begin)
            return &kept[i];
    }
    return NULL;
}

static int guarded_map(uint64_t size, int protection, int flags, int fd, void **out)
{
    int code = kvshm__sys_real.map(size, protection, flags, fd, out);
    unsigned i = 0;

    if (code < 0 || protection != PROT_NONE)
        return code;
    while (kept[i].begin != NULL)
        i++;
    ts_need(i < 16);
    kept[i] = (struct around){.begin = *out, .bytes = size};
    return 0;
}

static int guarded_map_at(void *address, uint64_t size, int protection, int flags, int fd)
{
    struct around *a = around(address);

    ts_need(a != NULL && a->segment == NULL);
    a->segment = address;
    a->segment_bytes = size;
    ts_need((uint8_t *)address > a->begin && (uint8_t *)address + size < a->begin + a->bytes);
    return kvshm__sys_real.map_at(address, size, protection, flags, fd);
}

static int guarded_unmap(void *address, uint64_t size)
{
    struct around *a = around(address), whole;

    if (a == NULL)
        return kvshm__sys_real.unmap(address, size);
    if (address != a->segment)
        return 0;
    ts_need(size == a->segment_bytes);
    whole = *a;
    *a = (struct around){0};
    return kvshm__sys_real.unmap(whole.begin, whole.bytes);
}

void dm_guard(void)
{
    kvshm__sys.map = guarded_map;
    kvshm__sys.map_at = guarded_map_at;
    kvshm__sys.unmap = guarded_unmap;
}

/* ---- Looking -------------------------------------------------------------------------------------------- */

struct scene {
    const struct dm_image *image;
    kvshm *kv, *other;
};

static void compare(const struct scene *s, const struct kvshm_prefix *prefix, const uint8_t *page,
                    uint32_t i, const uint8_t *first)
{
    uint64_t filling = 0;

    if (first)
        memcpy(&filling, first, sizeof(filling));
    dm_score->pages++;
    if (s->kv->page_bytes == IN_PAGE_BYTES && in_wrong_page(s->kv, prefix, page, i, filling) != 0)
        wrong("page %u of a hit of %u tokens holds wrong bytes", i, prefix->n);
}

#define PAGES_MAX 1024u

/* All pages of a lease, one by one and together. */
static void read_lease(const struct scene *s, const struct kvshm_prefix *prefix,
                       const struct kvshm_lease *lease)
{
    const void *pages[PAGES_MAX];
    struct kvshm_prefix held = *prefix;
    uint32_t n = lease->pages < PAGES_MAX ? lease->pages : PAGES_MAX;
    const uint8_t *first = kvshm_lease_page(lease, 0);
    int64_t got;

    held.n = lease->tokens;
    dm_score->hits++;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *page = kvshm_lease_page(lease, i);

        if (page == NULL)
            dm_score->refused++;
        else if (prefix->tokens || first)
            compare(s, &held, page, i, first);
    }
    got = DO(DM_PAGES, kvshm_lease_pages(lease, 0, n, pages));
    if (got != 0 && got != n)
        wrong("%" PRId64 " pages of %u were given", got, n);
    for (uint32_t i = 0; i < got; i++)
        compare(s, &held, pages[i], i, pages[0]);
    if (kvshm_lease_page(lease, lease->pages) != NULL)
        wrong("a page past the end was given");
}

static void take(const struct scene *s, const struct kvshm_prefix *prefix, bool match,
                 unsigned flags)
{
    struct kvshm_lease lease;
    int64_t code = match ? DO(DM_MATCH, kvshm_match(s->kv, prefix, flags, &lease))
                         : DO(DM_LOOKUP, kvshm_lookup(s->kv, prefix, flags, &lease));

    if (code != 0) {
        if (lease.kv != NULL)
            wrong("a lease came with answer %" PRId64, code);
        return;
    }
    if (lease.tokens > prefix->n && prefix->n != 0)
        wrong("%u tokens of %u are leased", lease.tokens, prefix->n);
    read_lease(s, prefix, &lease);
    kvshm_lease_tag(&lease, 9);
    kvshm_release(s->kv, &lease);
}

static void copy(const struct scene *s, const struct kvshm_prefix *prefix, uint32_t first)
{
    static uint8_t to[(PAGES_MAX + 1) * IN_PAGE_BYTES];
    const uint32_t n = 16;
    int64_t got;

    if (s->kv->page_bytes != IN_PAGE_BYTES)
        return;
    memset(to + n * IN_PAGE_BYTES, 0x77, IN_PAGE_BYTES);
    got = DO(DM_COPY, kvshm_copy_out(s->kv, prefix, first, n, to));
    if (got > n || to[n * IN_PAGE_BYTES] != 0x77)
        wrong("%" PRId64 " pages were copied", got);
    for (uint32_t i = 0; i < got && got <= n; i++) {
        uint64_t filling;

        memcpy(&filling, to + i * IN_PAGE_BYTES, sizeof(filling));
        compare(s, prefix, to + i * IN_PAGE_BYTES, first + i, prefix->tokens ? NULL : to);
    }
}

static int see(const struct kvshm_entry *e, void *arg)
{
    const struct scene *s = arg;
    uint64_t most = (uint64_t)e->pages * s->kv->page_tokens;

    if (e->size != sizeof(*e) || e->pages == 0 || e->pages > s->kv->record_count ||
        e->tokens > most || e->tokens <= most - s->kv->page_tokens)
        wrong("an entry of %u pages and %u tokens is shown", e->pages, e->tokens);
    return 0;
}

static void look_around(struct scene *s)
{
    struct kvshm_info info;
    struct kvshm_stats stats;
    uint64_t chance = 1;

    kvshm_info_init(&info);
    kvshm_stats_init(&stats);
    DO(DM_INFO, kvshm_info(s->kv, &info));
    if (info.stall_ms > 3600000 || info.frames_free > info.frames ||
        info.pages > s->kv->record_count || info.entries > s->kv->record_count ||
        memchr(info.backing_reason, '\0', sizeof(info.backing_reason)) == NULL)
        wrong("info is not bounded");
    DO(DM_STATS, kvshm_stats(s->kv, &stats));
    DO(DM_FOREACH, kvshm_foreach(s->kv, see, s));
    for (unsigned i = 0; i < 8; i++) {
        const volatile uint8_t *at = kvshm_at(s->kv, ts_random(&chance, info.segment_bytes + 4096));

        if (at != NULL)
            (void)*at;
    }
}

/* Whatever a reader may ask. */
static void look(struct scene *s)
{
    struct kvshm_lease lease;

    for (unsigned name = 0; name < DM_NAMES; name++) {
        struct kvshm_prefix prefix = dm_name(s->image->shape, name);

        DO(DM_CONTAINS, kvshm_contains(s->kv, &prefix));
        if (DO(DM_PEEK, kvshm_lookup(s->kv, &prefix, KVSHM_PEEK, &lease)) == 0 &&
            lease.tokens != prefix.n)
            wrong("%u tokens of %u were found", lease.tokens, prefix.n);
        if (prefix.tokens)
            DO(DM_PEEK, kvshm_match(s->kv, &prefix, KVSHM_PEEK, &lease));
        copy(s, &prefix, 0);
        if (!prefix.tokens) {
            prefix.n = 0;
            copy(s, &prefix, 0);
            copy(s, &prefix, 1);
            DO(DM_PEEK, kvshm_lookup(s->kv, &prefix, KVSHM_PEEK, &lease));
        } else {
            copy(s, &prefix, 1);
        }
        take(s, &prefix, false, 0);
        if (prefix.tokens)
            take(s, &prefix, true, KVSHM_TOUCH);
    }
    look_around(s);
}

/* ---- Writing -------------------------------------------------------------------------------------------- */

/* Reserve, fill, insert; what the reservation holds is given back after an error. */
static int64_t insert(const struct scene *s, enum dm_call call, const struct kvshm_prefix *prefix,
                      struct kvshm_lease *head, unsigned flags)
{
    struct kvshm_reservation r;
    int64_t code = DO(DM_RESERVE, in_fill(s->kv, prefix, head && head->kv ? head : NULL, &r));

    if (code == 0)
        code = DO(call, kvshm_insert(s->kv, prefix, head, &r, flags));
    if (code < 0)
        kvshm_cancel(s->kv, &r);
    return code;
}

static int64_t insert_name(const struct scene *s, enum dm_call call, unsigned name, unsigned flags)
{
    struct kvshm_prefix prefix = dm_name(s->image->shape, name);

    return insert(s, call, &prefix, NULL, flags);
}

/* Behind the longest head, extending; then a chunk at a time, holding. */
static void insert_behind(const struct scene *s)
{
    struct kvshm_prefix prefix = dm_name(s->image->shape, DM_G);
    struct kvshm_lease head;

    if (DO(DM_MATCH, kvshm_match(s->kv, &prefix, 0, &head)) == 0) {
        insert(s, DM_EXTEND, &prefix, &head, KVSHM_EXTEND);
        kvshm_release(s->kv, &head);
    }
    memset(&head, 0, sizeof(head));
    prefix = dm_name(s->image->shape, DM_P);
    prefix.n = s->kv->page_tokens < prefix.n ? s->kv->page_tokens : prefix.n;
    insert(s, DM_HOLD, &prefix, &head, KVSHM_HOLD);
    prefix = dm_name(s->image->shape, DM_P);
    insert(s, DM_INSERT_HEAD, &prefix, &head, KVSHM_HOLD);
    if (head.kv != NULL)
        read_lease(s, &prefix, &head);
    kvshm_release(s->kv, &head);
}

static void reserve_all(const struct scene *s)
{
    struct kvshm_reservation r;
    uint32_t most = s->kv->frame_count;

    for (uint32_t n = most; n > 0; n /= 4) {
        if (DO(DM_RESERVE, kvshm_reserve(s->kv, n, 0, &r)) == 0) {
            for (uint32_t i = 0; i < n; i++)
                memset(kvshm_reservation_page(&r, i), 0xee, s->kv->page_bytes);
            kvshm_cancel(s->kv, &r);
            return;
        }
    }
}

/* Whatever a writer may do, with looks between. */
static void change(struct scene *s)
{
    const struct dm_shape *shape = s->image->shape;
    struct kvshm_prefix gone = dm_name(shape, DM_D);

    DO(DM_JOIN, kvshm_join(s->kv, s->other->client));
    DO(DM_JOIN, kvshm_join(s->kv, s->image->dead));
    insert_name(s, DM_INSERT, DM_N, 0);
    insert_name(s, DM_INSERT, DM_B, 0);
    insert_name(s, DM_INSERT, DM_R, 0);
    insert_behind(s);
    insert_name(s, DM_INSERT_KEY, DM_K, 0);
    insert_name(s, DM_INSERT_KEY, DM_M, 0);
    look(s);
    DO(DM_REMOVE, kvshm_remove(s->kv, &gone));
    DO(DM_EVICT, kvshm_evict_lru(s->kv));
    DO(DM_SET, kvshm__setting_set(s->kv, "capacity", 4));
    DO(DM_SET, kvshm__setting_set(s->kv, "capacity", KVSHM_UNLIMITED));
    DO(DM_REAP, kvshm__reap(s->kv, s->image->dead, NULL));
    insert_name(s, DM_INSERT, DM_E, 0);
    reserve_all(s);
    for (unsigned name = 0; name < DM_NAMES; name++)
        insert_name(s, dm_name(shape, name).tokens ? DM_INSERT : DM_INSERT_KEY, name, 0);
    look(s);
    DO(DM_CLEAR, kvshm_clear(s->kv));
    for (unsigned name = 0; name < DM_IN_IMAGE; name++)
        insert_name(s, dm_name(shape, name).tokens ? DM_INSERT : DM_INSERT_KEY, name, 0);
    look(s);
    DO(DM_LEAVE, kvshm_leave(s->kv, s->other->client));
}

/* ---- Cases ---------------------------------------------------------------------------------------------- */

static int64_t attach(const struct scene *s, unsigned flags, kvshm **out)
{
    struct kvshm_config expect = dm_expect(s->image->shape);

    expect.geometry.page_bytes = 0;
    return flags & KVSHM_RDONLY ? DO(DM_ATTACH_RDONLY, kvshm_attach("damaged", &expect, flags, out))
                                : DO(DM_ATTACH, kvshm_attach("damaged", &expect, flags, out));
}

/* A damaged word of one's own table may say for ever that something is held: then it is cleared by hand. */
static void detach(kvshm *kv)
{
    if (kv == NULL || DO(DM_DETACH, kvshm_detach(kv)) == 0)
        return;
    for (uint32_t i = 0; i < kv->max_leases; i++) {
        KVSHM__STORE(&kvshm__own_leases(kv)[i].word, 0);
        KVSHM__STORE(&kvshm__own_reservations(kv)[i], 0);
    }
    if (DO(DM_DETACH, kvshm_detach(kv)) != 0)
        wrong("nothing is held, and it is busy");
}

static void unlink_it(void)
{
    if (DO(DM_UNLINK, kvshm_unlink("damaged", 0)) == 0)
        return;
    if (kvshm_unlink("damaged", KVSHM_FORCE) != 0) {
        char path[300];

        snprintf(path, sizeof(path), "%s/damaged", getenv("KVSHM_DIR"));
        ts_need(unlink(path) == 0);
    }
}

static void apply(uint8_t *bytes, const struct dm_change *changes, unsigned n, bool forge)
{
    struct kvshm_static *fixed = (struct kvshm_static *)bytes;

    for (unsigned i = 0; i < n; i++)
        bytes[changes[i].offset] = changes[i].value;
    if (forge)
        fixed->checksum = kvshm__validate_checksum(fixed);
}

static void be_written(const struct dm_image *image, enum dm_company company,
                       const struct dm_change *changes, unsigned n, bool forge)
{
    static uint8_t copy_of[1 << 20];
    struct dm_image copied = *image;

    ts_need(image->bytes <= sizeof(copy_of));
    memcpy(copy_of, image->data, image->bytes);
    if (company == DM_MENDING)
        ((struct kvshm_header *)copy_of)->lock.word = image->dead;
    apply(copy_of, changes, n, forge);
    copied.data = copy_of;
    dm_write(&copied);
}

static void meet_changed(struct scene *s, enum dm_company company)
{
    if (attach(s, company == DM_READING ? KVSHM_RDONLY : 0, &s->kv) != 0)
        return;
    look(s);
    if (company != DM_READING && attach(s, 0, &s->other) == 0) {
        change(s);
        detach(s->other);
    }
    detach(s->kv);
}

/* Attached, leasing and reserving while it is changed. */
static void meet_held(struct scene *s, const struct dm_change *changes, unsigned n, bool forge)
{
    static const unsigned names[] = {DM_A, DM_E, DM_K};
    struct kvshm_prefix prefix[4];
    struct kvshm_lease held[3];
    struct kvshm_reservation r;

    ts_need(attach(s, 0, &s->kv) == 0 && attach(s, 0, &s->other) == 0);
    for (unsigned i = 0; i < 3; i++) {
        prefix[i] = dm_name(s->image->shape, names[i]);
        ts_need(kvshm_lookup(s->kv, &prefix[i], 0, &held[i]) == 0);
    }
    prefix[3] = dm_name(s->image->shape, DM_N);
    ts_need(in_fill(s->kv, &prefix[3], NULL, &r) == 0);
    apply(s->kv->write_base, changes, n, forge);
    for (unsigned i = 0; i < 3; i++)
        read_lease(s, &prefix[i], &held[i]);
    look(s);
    if (DO(DM_INSERT, kvshm_insert(s->kv, &prefix[3], NULL, &r, 0)) < 0)
        kvshm_cancel(s->kv, &r);
    change(s);
    for (unsigned i = 0; i < 3; i++) {
        read_lease(s, &prefix[i], &held[i]);
        kvshm_release(s->kv, &held[i]);
    }
    detach(s->other);
    detach(s->kv);
}

void dm_meet(const struct dm_image *image, enum dm_company company, const struct dm_change *changes,
             unsigned n, bool forge)
{
    struct scene s = {.image = image};

    dm_score->cases++;
    if (company == DM_HELD) {
        dm_write(image);
        meet_held(&s, changes, n, forge);
    } else {
        be_written(image, company, changes, n, forge);
        meet_changed(&s, company);
    }
    unlink_it();
}
