/* SPDX-License-Identifier: Apache-2.0 */
/*
 * validate.c - is this file a valid arena? Trusts nothing, changes nothing.
 *
 * The fixed part of the header is read into private memory once, checked there, and used from there; what others write
 * to the segment afterwards cannot undo a check. It is valid if and only if all of this holds, looked at in this order,
 * since each makes sense only after the one before:
 *
 *   the signature; the byte order; the layout version; the checksum, whose place the version fixes; the features; the
 *   sizes of structs; the boot; the counts within their limits; the geometry and the strides that follow from it; the
 *   directory: each kind this library needs, once, with its stride and room for its count, sections aligned, inside the
 *   segment, apart from each other; the segment's size, which is the file's.
 *
 * Sections of kinds that this library does not know are let be if they lie within the segment and apart.
 */
#include "validate.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "config.h"
#include "message.h"
#include "numa.h"
#include "plan.h"
#include "sys.h"

#define BOOT_ID_PATH "/proc/sys/kernel/random/boot_id"

/* ---- Reading ----------------------------------------------------------------------------------------- */

int kvshm__validate_read(int fd, const char *path, struct kvshm_static *fixed, uint64_t *file_bytes)
{
    struct stat status;
    int code = kvshm__sys.fstat(fd, &status);

    if (code == 0)
        code = kvshm__sys.pread(fd, fixed, sizeof(*fixed), 0);
    if (code < 0)
        return kvshm__fail(code, "%s: %s", path, kvshm_strerror(code));
    if (code < (int)sizeof(*fixed) || status.st_size < (off_t)KVSHM__HEADER_BYTES)
        return kvshm__fail(KVSHM_E_FORMAT, "%s has %" PRIu64 " bytes, an arena at least %u", path,
                           (uint64_t)status.st_size, KVSHM__HEADER_BYTES);
    if (memcmp(fixed->magic, KVSHM__MAGIC, sizeof(fixed->magic)) != 0)
        return kvshm__fail(KVSHM_E_FORMAT, "%s does not begin with the signature of an arena",
                           path);
    *file_bytes = (uint64_t)status.st_size;
    return 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int kvshm__boot_id(uint8_t id[16])
{
    char text[64] = {0};
    unsigned digits = 0;
    int code, fd = kvshm__sys.open(BOOT_ID_PATH, O_RDONLY, 0);

    if (fd < 0)
        return kvshm__fail(fd, BOOT_ID_PATH ": %s; is /proc mounted?", kvshm_strerror(fd));
    code = kvshm__sys.pread(fd, text, sizeof(text) - 1, 0);
    kvshm__sys.close(fd);
    if (code < 0)
        return kvshm__fail(code, BOOT_ID_PATH ": %s", kvshm_strerror(code));
    memset(id, 0, 16);
    for (const char *c = text; *c != '\0' && digits < 32; c++) {
        if (hex_digit(*c) >= 0) {
            id[digits / 2] |= (uint8_t)(hex_digit(*c) << (digits % 2 == 0 ? 4 : 0));
            digits++;
        }
    }
    return digits == 32 ? 0 : kvshm__fail(-EIO, BOOT_ID_PATH " holds no boot id");
}

uint64_t kvshm__validate_checksum(const struct kvshm_static *fixed)
{
    return XXH3_64bits(fixed, offsetof(struct kvshm_static, checksum));
}

/* ---- Is it for this library? ------------------------------------------------------------------------- */

static int damaged(const char *path, const char *field, uint64_t value)
{
    return kvshm__fail(KVSHM_E_DAMAGED,
                       "%s: header field %s is %" PRIu64 ", out of its range; remove the arena and "
                       "create it anew",
                       path, field, value);
}

static int check_version(const struct kvshm_static *f, const char *path)
{
    if (f->byte_order == __builtin_bswap32(KVSHM__BYTE_ORDER))
        return kvshm__fail(KVSHM_E_BYTE_ORDER, "%s was made with the other byte order", path);
    if (f->byte_order == KVSHM__BYTE_ORDER && f->layout_version != KVSHM__LAYOUT_VERSION)
        return kvshm__fail(KVSHM_E_VERSION,
                           "%s has layout version %u, this library (%s) version %u; use the "
                           "library that made it, or remove the arena",
                           path, f->layout_version, kvshm_version(), KVSHM__LAYOUT_VERSION);
    if (f->checksum != kvshm__validate_checksum(f))
        return kvshm__fail(KVSHM_E_DAMAGED,
                           "%s: the header's checksum is %016" PRIx64 ", its bytes give %016" PRIx64
                           "; remove the arena and create it anew",
                           path, f->checksum, kvshm__validate_checksum(f));
    if (f->byte_order != KVSHM__BYTE_ORDER)
        return damaged(path, "byte_order", f->byte_order);
    if (f->word_bytes != sizeof(void *))
        return kvshm__fail(KVSHM_E_BYTE_ORDER, "%s was made with words of %u bytes, not %zu", path,
                           f->word_bytes, sizeof(void *));
    return 0;
}

static int check_features(const struct kvshm_static *f, bool writing, const char *path)
{
    uint64_t unknown = f->incompat & ~(uint64_t)KVSHM__INCOMPAT_KNOWN;
    uint64_t unknown_writing = f->ro_compat & ~(uint64_t)KVSHM__RO_COMPAT_KNOWN;

    if (unknown != 0)
        return kvshm__fail(KVSHM_E_FEATURE,
                           "%s uses features %#" PRIx64 " that this library (%s) lacks; use a "
                           "newer one",
                           path, unknown, kvshm_version());
    if (writing && unknown_writing != 0)
        return kvshm__fail(KVSHM_E_FEATURE,
                           "%s uses features %#" PRIx64 " that a writer must know and this "
                           "library (%s) lacks; use a newer one, or KVSHM_RDONLY",
                           path, unknown_writing, kvshm_version());
    return 0;
}

static int check_structs(const struct kvshm_static *f, const char *path)
{
    if (f->header_bytes != KVSHM__HEADER_BYTES)
        return damaged(path, "header_bytes", f->header_bytes);
    if (f->client_bytes != sizeof(struct kvshm_client))
        return damaged(path, "client_bytes", f->client_bytes);
    if (f->record_bytes != sizeof(struct kvshm_record))
        return damaged(path, "record_bytes", f->record_bytes);
    if (f->links_bytes != sizeof(struct kvshm_links))
        return damaged(path, "links_bytes", f->links_bytes);
    if (f->lease_word_bytes != sizeof(struct kvshm_lease_word))
        return damaged(path, "lease_word_bytes", f->lease_word_bytes);
    return 0;
}

static int check_boot(const struct kvshm_static *f, const char *path)
{
    uint8_t id[16];
    int code = kvshm__boot_id(id);

    if (code == 0 && memcmp(id, f->boot_id, sizeof(id)) != 0)
        code = kvshm__fail(KVSHM_E_BOOT,
                           "%s was made before this boot, its clients and leases are gone; remove "
                           "it with kvshmctl rm",
                           path);
    return code;
}

/* ---- Is it whole? ------------------------------------------------------------------------------------ */

static int check_counts(const struct kvshm_static *f, const char *path)
{
    if (f->frames == 0 || f->frames > KVSHM__FRAMES_MAX)
        return damaged(path, "frames", f->frames);
    if (f->slots > KVSHM__FRAMES_MAX)
        return damaged(path, "slots", f->slots);
    if (f->records < f->frames + f->slots || f->records > UINT32_MAX - 1)
        return damaged(path, "records", f->records);
    if (f->buckets < 2 || f->buckets > UINT32_MAX)
        return damaged(path, "buckets", f->buckets);
    if (f->max_clients == 0 || f->max_clients > 4096)
        return damaged(path, "max_clients", f->max_clients);
    if (f->max_leases == 0 || f->max_leases > 65535)
        return damaged(path, "max_leases", f->max_leases);
    if (f->clock != KVSHM__CLOCK_SHARED && f->clock != KVSHM__CLOCK_HARDWARE)
        return damaged(path, "clock", f->clock);
    if (f->backing < KVSHM_BACKING_SMALL || f->backing > KVSHM_BACKING_HUGETLB_1G)
        return damaged(path, "backing", f->backing);
    if (!kvshm__numa_valid(f->numa_asked, true))
        return damaged(path, "numa_asked", f->numa_asked);
    if (!kvshm__numa_valid(f->numa, false))
        return damaged(path, "numa", f->numa);
    if (f->page_size < 4096 || (f->page_size & (f->page_size - 1)) != 0 ||
        f->page_size % (uint32_t)sysconf(_SC_PAGESIZE) != 0)
        return damaged(path, "page_size", f->page_size);
    if (memchr(f->name, '\0', sizeof(f->name)) == NULL || !kvshm__name_valid(f->name))
        return damaged(path, "name", (uint8_t)f->name[0]);
    if (memchr(f->backing_reason, '\0', sizeof(f->backing_reason)) == NULL)
        return damaged(path, "backing_reason", (uint8_t)f->backing_reason[0]);
    return 0;
}

static int check_strides(const struct kvshm_static *f, const char *path)
{
    uint64_t page_bytes;

    if (kvshm__geometry_check(&f->geometry, &page_bytes) < 0)
        return damaged(path, "geometry", f->geometry.page_tokens);
    if (f->page_bytes != page_bytes)
        return damaged(path, "page_bytes", f->page_bytes);
    if (f->frame_stride < page_bytes || f->frame_stride % KVSHM__LINE != 0 ||
        f->frame_stride > KVSHM__LOCK_BASE)
        return damaged(path, "frame_stride", f->frame_stride);
    if (f->text_stride < kvshm__plan_text_stride(f->geometry.page_tokens) ||
        f->text_stride % 32 != 0 || f->text_stride > KVSHM__LOCK_BASE)
        return damaged(path, "text_stride", f->text_stride);
    return 0;
}

/* Count and stride that the section of a kind must have; stride 0: none of ours. */
static void needs(const struct kvshm_static *f, uint32_t kind, uint64_t *count, uint64_t *stride)
{
    uint64_t words = (uint64_t)f->max_clients * f->max_leases;
    const struct {
        uint64_t count, stride;
    } table[KVSHM__SEC_KINDS] = {
        [KVSHM__SEC_CLIENTS] = {f->max_clients, sizeof(struct kvshm_client)},
        [KVSHM__SEC_LEASES] = {words, sizeof(struct kvshm_lease_word)},
        [KVSHM__SEC_RESERVATIONS] = {words, sizeof(kvshm_a64)},
        [KVSHM__SEC_BUCKETS] = {f->buckets, sizeof(struct kvshm_bucket)},
        [KVSHM__SEC_RECORDS] = {f->records, sizeof(struct kvshm_record)},
        [KVSHM__SEC_LINKS] = {f->records, sizeof(struct kvshm_links)},
        [KVSHM__SEC_TEXTS] = {f->records, f->text_stride},
        [KVSHM__SEC_HEAP] = {f->records, sizeof(struct kvshm_heap_slot)},
        [KVSHM__SEC_OWNERS] = {f->frames, sizeof(struct kvshm_owner)},
        [KVSHM__SEC_FRAMES] = {f->frames, f->frame_stride},
        [KVSHM__SEC_SLOTS] = {f->slots, sizeof(struct kvshm_slot)},
        [KVSHM__SEC_AGES] = {f->records, sizeof(struct kvshm_age)},
    };

    *count = kind < KVSHM__SEC_KINDS ? table[kind].count : 0;
    *stride = kind < KVSHM__SEC_KINDS ? table[kind].stride : 0;
}

static bool section_valid(const struct kvshm_static *f, const struct kvshm_section *s)
{
    uint64_t count, stride, end, bytes;
    uint64_t align = s->kind == KVSHM__SEC_FRAMES ? f->page_size : KVSHM__LINE;

    needs(f, s->kind, &count, &stride);
    if (s->offset < KVSHM__HEADER_BYTES || s->offset % align != 0)
        return false;
    if (__builtin_add_overflow(s->offset, s->length, &end) || end > f->segment_bytes)
        return false;
    if (stride == 0)
        return true;
    return s->stride == stride && !__builtin_mul_overflow(count, stride, &bytes) &&
           bytes <= s->length;
}

static bool sections_overlap(const struct kvshm_section *a, const struct kvshm_section *b)
{
    return a->offset < b->offset + b->length && b->offset < a->offset + a->length;
}

static int check_directory(const struct kvshm_static *f, const char *path)
{
    uint32_t seen = 0;

    for (unsigned i = 0; i < KVSHM__DIRECTORY_ROOM; i++) {
        const struct kvshm_section *s = &f->directory[i];

        if (s->kind == 0)
            continue;
        if (!section_valid(f, s))
            return damaged(path, "directory: section of kind", s->kind);
        if (s->kind < KVSHM__SEC_KINDS && (seen & 1u << s->kind) != 0)
            return damaged(path, "directory: second section of kind", s->kind);
        if (s->kind < KVSHM__SEC_KINDS)
            seen |= 1u << s->kind;
        for (unsigned j = 0; j < i; j++) {
            if (f->directory[j].kind != 0 && sections_overlap(s, &f->directory[j]))
                return damaged(path, "directory: overlapping section of kind", s->kind);
        }
    }
    for (uint32_t kind = 1; kind < KVSHM__SEC_KINDS; kind++) {
        bool needed = f->slots > 0 || (kind != KVSHM__SEC_SLOTS && kind != KVSHM__SEC_AGES);
        if (needed != ((seen & 1u << kind) != 0))
            return damaged(path, needed ? "directory: missing section of kind" : "directory: needless section of kind", kind);
    }
    return 0;
}

static int check_size(const struct kvshm_static *f, uint64_t file_bytes, const char *path)
{
    if (f->segment_bytes > KVSHM__LOCK_BASE || f->segment_bytes % f->page_size != 0)
        return damaged(path, "segment_bytes", f->segment_bytes);
    if (file_bytes < f->segment_bytes)
        return kvshm__fail(KVSHM_E_FORMAT,
                           "%s has %" PRIu64 " bytes, and its header says %" PRIu64
                           ": it was cut; remove it and create it anew",
                           path, file_bytes, f->segment_bytes);
    if (file_bytes > f->segment_bytes)
        return damaged(path, "segment_bytes", f->segment_bytes);
    return 0;
}

int kvshm__validate_fixed(const struct kvshm_static *fixed, uint64_t file_bytes, bool writing,
                          const char *path)
{
    int code = check_version(fixed, path);

    if (code == 0)
        code = check_features(fixed, writing, path);
    if (code == 0)
        code = check_structs(fixed, path);
    if (code == 0)
        code = check_boot(fixed, path);
    if (code == 0)
        code = check_counts(fixed, path);
    if (code == 0)
        code = check_strides(fixed, path);
    if (code == 0)
        code = check_size(fixed, file_bytes, path);
    if (code == 0)
        code = check_directory(fixed, path);
    return code;
}

/* ---- The handle -------------------------------------------------------------------------------------- */

static void *section(kvshm *kv, const struct kvshm_static *fixed, uint32_t kind)
{
    for (unsigned i = 0; i < KVSHM__DIRECTORY_ROOM; i++) {
        if (fixed->directory[i].kind == kind)
            return kv->base + fixed->directory[i].offset;
    }
    return NULL; /* validated: not reached */
}

void kvshm__validate_fill(kvshm *kv, const struct kvshm_static *fixed)
{
    kv->segment_bytes = fixed->segment_bytes;
    kv->header = (struct kvshm_header *)kv->base;
    kv->clients = section(kv, fixed, KVSHM__SEC_CLIENTS);
    kv->leases = section(kv, fixed, KVSHM__SEC_LEASES);
    kv->reservations = section(kv, fixed, KVSHM__SEC_RESERVATIONS);
    kv->buckets = section(kv, fixed, KVSHM__SEC_BUCKETS);
    kv->records = section(kv, fixed, KVSHM__SEC_RECORDS);
    kv->links = section(kv, fixed, KVSHM__SEC_LINKS);
    kv->texts = section(kv, fixed, KVSHM__SEC_TEXTS);
    kv->heap = section(kv, fixed, KVSHM__SEC_HEAP);
    kv->owners = section(kv, fixed, KVSHM__SEC_OWNERS);
    kv->frames_offset = (uint64_t)((uint8_t *)section(kv, fixed, KVSHM__SEC_FRAMES) - kv->base);
    kv->slots = fixed->slots > 0 ? section(kv, fixed, KVSHM__SEC_SLOTS) : NULL;
    kv->ages = fixed->slots > 0 ? section(kv, fixed, KVSHM__SEC_AGES) : NULL;
    kv->slot_count = (uint32_t)fixed->slots;
    kv->page_bytes = fixed->page_bytes;
    kv->frame_stride = fixed->frame_stride;
    kv->text_stride = fixed->text_stride;
    kv->frame_count = (uint32_t)fixed->frames;
    kv->record_count = (uint32_t)fixed->records;
    kv->bucket_count = (uint32_t)fixed->buckets;
    kv->page_tokens = fixed->geometry.page_tokens;
    kv->partial_shift = kvshm__plan_partial_shift(kv->page_tokens);
    kv->max_clients = fixed->max_clients;
    kv->max_leases = fixed->max_leases;
    kv->bitmap_words = ((uint64_t)kv->record_count + 63) / 64;
    kv->hardware_clock = fixed->clock == KVSHM__CLOCK_HARDWARE;
    memcpy(kv->secret, fixed->secret, sizeof(kv->secret));
}

int kvshm__validate_live(const kvshm *kv)
{
    struct kvshm_header *header = kv->header;

    if (KVSHM__LOAD(&header->epoch) == 0)
        return damaged(kv->path, "epoch", 0);
    if (KVSHM__LOAD(&header->has_fingerprint) > 1)
        return damaged(kv->path, "has_fingerprint", KVSHM__LOAD(&header->has_fingerprint));
    if (KVSHM__LOAD(&header->next_client) >= KVSHM__CLIENT_NUMBER_MAX)
        return damaged(kv->path, "next_client", KVSHM__LOAD(&header->next_client));
    return 0;
}
