/* SPDX-License-Identifier: Apache-2.0 */
#include "spill_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "config.h"
#include "fork.h"
#include "message.h"
#include "sys.h"

/* Headers read at once in a sweep. */
#define SWEEP_BYTES (UINT64_C(1) << 20)

#define FD_PATH_BYTES 32
#define PATH_BYTES 4096

/* ---- Shape -------------------------------------------------------------------------------------------------- */

/* to is a power of two; value is far from the limits. */
static uint64_t round_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) & ~(to - 1);
}

static uint64_t text_bytes(uint32_t page_tokens)
{
    uint64_t tokens = 8 * ((uint64_t)page_tokens / 2 + page_tokens % 2);

    return tokens > KVSHM_KEY_BYTES ? tokens : KVSHM_KEY_BYTES;
}

/* Everything that follows from the sizes of a page, a block, and the counts. */
static void lay_out(uint64_t page_bytes, uint32_t page_tokens, struct kvshm__spill_shape *s)
{
    s->header_stride =
        (uint32_t)round_up(sizeof(struct kvshm_slot_header) + text_bytes(page_tokens), s->block_bytes);
    s->payload_stride = round_up(page_bytes, s->block_bytes);
    s->headers_offset = (uint64_t)s->block_bytes * (1 + (uint64_t)s->epochs);
    s->payload_offset = s->headers_offset + s->slots * s->header_stride;
    s->file_bytes = s->payload_offset + s->slots * s->payload_stride;
}

int kvshm__spill_shape_make(const struct kvshm__spill_want *want, uint32_t block_bytes,
                            struct kvshm__spill_shape *shape)
{
    memset(shape, 0, sizeof(*shape));
    shape->block_bytes = block_bytes;
    shape->epochs = want->epochs;
    lay_out(want->page_bytes, want->geometry.page_tokens, shape);

    uint64_t one = shape->header_stride + shape->payload_stride;
    if (want->budget_bytes < shape->headers_offset + one)
        return kvshm__fail(-EINVAL,
                           "spill_bytes is %" PRIu64 "; a file for %u clients and one page of %" PRIu64
                           " bytes takes %" PRIu64 "; give at least that",
                           want->budget_bytes, want->epochs, want->page_bytes, shape->headers_offset + one);
    shape->slots = (want->budget_bytes - shape->headers_offset) / one;
    if (shape->slots > KVSHM__SLOTS_MAX)
        shape->slots = KVSHM__SLOTS_MAX;
    lay_out(want->page_bytes, want->geometry.page_tokens, shape);
    return 0;
}

/* ---- Blocks ------------------------------------------------------------------------------------------------- */

/* Memory that any descriptor takes, whatever its alignment. */
static int blocks_get(uint64_t bytes, void **out)
{
    return kvshm__sys.map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, out);
}

static int read_all(int fd, void *to, uint64_t bytes, uint64_t offset)
{
    uint64_t done = 0;

    while (done < bytes) {
        int code = kvshm__sys.pread(fd, (char *)to + done, bytes - done, offset + done);
        if (code == -EINTR)
            continue;
        if (code <= 0)
            return code < 0 ? code : -ENODATA;
        done += (uint64_t)code;
    }
    return 0;
}

static int write_all(int fd, const void *from, uint64_t bytes, uint64_t offset)
{
    uint64_t done = 0;

    while (done < bytes) {
        int code = kvshm__sys.pwrite(fd, (const char *)from + done, bytes - done, offset + done);
        if (code == -EINTR)
            continue;
        if (code <= 0)
            return code < 0 ? code : -EIO;
        done += (uint64_t)code;
    }
    return 0;
}

/* Write a struct as a whole block, the rest zero, durably. */
static int write_block(const struct kvshm__spill_file *file, const void *what, size_t size, uint64_t offset)
{
    void *block;
    int code = blocks_get(file->shape.block_bytes, &block);

    if (code < 0)
        return code;
    memcpy(block, what, size);
    code = write_all(file->fd, block, file->shape.block_bytes, offset);
    if (code == 0)
        code = kvshm__sys.sync_data(file->fd);
    kvshm__sys.unmap(block, file->shape.block_bytes);
    return code;
}

/* ---- The descriptor ----------------------------------------------------------------------------------------- */

/* With O_DIRECT where the file system knows it. */
static int open_direct(const char *path, int flags, unsigned mode, struct kvshm__spill_file *file)
{
    int code;

    file->direct = true;
    kvshm__fork_hold();
    code = kvshm__sys.open(path, O_RDWR | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | O_DIRECT | flags, mode);
    if (code == -EINVAL) {
        file->direct = false;
        code = kvshm__sys.open(path, O_RDWR | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | flags, mode);
    }
    file->fd = code >= 0 ? code : -1;
    kvshm__fork_let();
    return code >= 0 ? 0 : code;
}

/* It could not be opened. */
static int unopened(int code, const char *path)
{
    if (code == -ELOOP)
        return kvshm__fail(code, "%s is a symbolic link, which is not followed; give the path that it leads to", path);
    if (code == -EISDIR)
        return kvshm__fail(code, "%s is a folder; name a file in it, or a block device", path);
    if (code == -EACCES || code == -EPERM)
        return kvshm__fail(code, "%s: %s; this process has to be able to read and write it", path, kvshm_strerror(code));
    return kvshm__fail(code, "%s: %s", path, kvshm_strerror(code));
}

/* The block that this file system wants at least. */
static int find_block(struct kvshm__spill_file *file, const char *path, uint32_t *block_bytes)
{
    uint32_t offset_align = 0;
    int code = file->direct ? kvshm__sys.direct_align(file->fd, &file->memory_align, &offset_align) : 0;

    if (code < 0)
        return kvshm__fail(code, "%s: %s", path, kvshm_strerror(code));
    *block_bytes = KVSHM__SPILL_BLOCK_MIN;
    while (*block_bytes < offset_align || *block_bytes < file->memory_align)
        *block_bytes *= 2;
    if (*block_bytes > KVSHM__SPILL_BLOCK_MAX)
        return kvshm__fail(-EINVAL,
                           "%s: its file system reads and writes at multiples of %u bytes, and %u is the "
                           "most that kvshm knows; use another",
                           path, offset_align > file->memory_align ? offset_align : file->memory_align,
                           KVSHM__SPILL_BLOCK_MAX);
    if (file->memory_align == 0)
        file->memory_align = KVSHM__SPILL_BLOCK_MIN;
    return 0;
}

/* Room that the file has: a device's size, or the file's. */
static int find_bytes(const struct kvshm__spill_file *file, const char *path, uint64_t *bytes, bool *device)
{
    struct stat status;
    int code = kvshm__sys.fstat(file->fd, &status);

    *device = code == 0 && S_ISBLK(status.st_mode);
    if (code == 0 && !*device && !S_ISREG(status.st_mode))
        return kvshm__fail(-EINVAL, "%s is neither a file nor a block device; name one of these", path);
    if (*device)
        code = kvshm__sys.device_bytes(file->fd, bytes);
    else if (code == 0)
        *bytes = (uint64_t)status.st_size;
    return code < 0 ? kvshm__fail(code, "%s: %s", path, kvshm_strerror(code)) : 0;
}

static int lock(const struct kvshm__spill_file *file, int kind, const char *path)
{
    int code = kvshm__sys.lock_set(file->fd, kind, KVSHM__SPILL_LOCK, 1);

    if (code == -EAGAIN || code == -EACCES)
        return kvshm__fail(-EBUSY, "%s is in use by another arena or tool; end that, or name another file", path);
    return code < 0 ? kvshm__fail(code, "lock of %s: %s", path, kvshm_strerror(code)) : 0;
}

void kvshm__spill_close(struct kvshm__spill_file *file)
{
    kvshm__fork_close(&file->fd);
}

/* ---- The header --------------------------------------------------------------------------------------------- */

static uint64_t header_sum(const struct kvshm_spill_header *header)
{
    return XXH3_64bits(header, offsetof(struct kvshm_spill_header, checksum));
}

static int write_header(struct kvshm__spill_file *file, const char *path)
{
    int code;

    file->header.checksum = header_sum(&file->header);
    code = write_block(file, &file->header, sizeof(file->header), 0);
    return code < 0 ? kvshm__fail(code, "header of %s: %s", path, kvshm_strerror(code)) : 0;
}

static int read_header(struct kvshm__spill_file *file, const char *path, uint32_t block_bytes)
{
    void *block;
    int code = blocks_get(block_bytes, &block);

    if (code == 0) {
        code = read_all(file->fd, block, block_bytes, 0);
        memcpy(&file->header, block, sizeof(file->header));
        kvshm__sys.unmap(block, block_bytes);
    }
    if (code == -ENODATA)
        return kvshm__fail(KVSHM_E_FORMAT, "%s is shorter than the header of a spill file; name another file", path);
    return code < 0 ? kvshm__fail(code, "%s: %s", path, kvshm_strerror(code)) : 0;
}

static int damaged(const char *path, const char *field, uint64_t value)
{
    return kvshm__fail(KVSHM_E_DAMAGED,
                       "%s: field %s of its header is %" PRIu64 ", out of its range; remove the file and let it be "
                       "made anew",
                       path, field, value);
}

static int check_signature(const struct kvshm_spill_header *h, const char *path)
{
    if (memcmp(h->magic, KVSHM__SPILL_MAGIC, sizeof(h->magic)) != 0)
        return kvshm__fail(KVSHM_E_FORMAT,
                           "%s does not begin with the signature of a spill file; name another, or, if what it holds is "
                           "not needed, remove the file, or wipe the first %u bytes of the device",
                           path, KVSHM__SPILL_BLOCK_MIN);
    if (h->byte_order == __builtin_bswap32(KVSHM__SPILL_BYTE_ORDER))
        return kvshm__fail(KVSHM_E_BYTE_ORDER, "%s was made with the other byte order; name another file, or remove this one", path);
    if (h->byte_order == KVSHM__SPILL_BYTE_ORDER && h->version > KVSHM__SPILL_VERSION)
        return kvshm__fail(KVSHM_E_VERSION,
                           "%s has version %u of the format, this library (%s) knows %u; use the library that made "
                           "it, or remove the file",
                           path, h->version, kvshm_version(), KVSHM__SPILL_VERSION);
    if (h->checksum != header_sum(h))
        return kvshm__fail(KVSHM_E_DAMAGED,
                           "%s: the header's checksum is %016" PRIx64 ", its bytes give %016" PRIx64
                           "; remove the file and let it be made anew",
                           path, h->checksum, header_sum(h));
    if (h->byte_order != KVSHM__SPILL_BYTE_ORDER)
        return damaged(path, "byte_order", h->byte_order);
    return h->version == 0 ? damaged(path, "version", h->version) : 0;
}

/* Counts within their limits, and all offsets those that follow from them. */
static int check_shape(const struct kvshm_spill_header *h, const char *path, struct kvshm__spill_shape *shape)
{
    uint64_t page_bytes;

    if (kvshm__geometry_check(&h->geometry, &page_bytes) < 0 || page_bytes != h->page_bytes)
        return damaged(path, "page_bytes", h->page_bytes);
    if (h->block_bytes < KVSHM__SPILL_BLOCK_MIN || h->block_bytes > KVSHM__SPILL_BLOCK_MAX ||
        (h->block_bytes & (h->block_bytes - 1)) != 0)
        return damaged(path, "block_bytes", h->block_bytes);
    if (h->slots == 0 || h->slots > KVSHM__SLOTS_MAX)
        return damaged(path, "slots", h->slots);
    if (h->epochs == 0 || h->epochs > KVSHM__EPOCHS_MAX)
        return damaged(path, "epochs", h->epochs);
    *shape = (struct kvshm__spill_shape){.block_bytes = h->block_bytes, .slots = h->slots, .epochs = h->epochs};
    lay_out(page_bytes, h->geometry.page_tokens, shape);
    if (h->header_stride != shape->header_stride)
        return damaged(path, "header_stride", h->header_stride);
    if (h->payload_stride != shape->payload_stride)
        return damaged(path, "payload_stride", h->payload_stride);
    if (h->headers_offset != shape->headers_offset)
        return damaged(path, "headers_offset", h->headers_offset);
    if (h->payload_offset != shape->payload_offset)
        return damaged(path, "payload_offset", h->payload_offset);
    return h->file_bytes == shape->file_bytes ? 0 : damaged(path, "file_bytes", h->file_bytes);
}

static int check_want(const struct kvshm_spill_header *h, const struct kvshm__spill_want *want, const char *path)
{
    int code = kvshm__geometry_compare(&want->geometry, &h->geometry, path);

    if (code < 0)
        return code;
    if (!h->has_fingerprint && want->named_fingerprint)
        return kvshm__fail(KVSHM_E_FINGERPRINT,
                           "%s was made without a fingerprint, so what it holds may be of any; name another file, or remove "
                           "this one", path);
    if (h->has_fingerprint && !want->named_fingerprint)
        return kvshm__fail(KVSHM_E_FINGERPRINT,
                           "%s holds pages of a fingerprint, and config.fingerprint names none; name it, or another file", path);
    if (h->has_fingerprint && memcmp(h->fingerprint, want->fingerprint, sizeof(h->fingerprint)) != 0)
        return kvshm__fail(KVSHM_E_FINGERPRINT,
                           "%s holds pages of another fingerprint; name another file, or remove this one", path);
    return 0;
}

/* The block that the file was made with has to be one that its file system takes. */
static int check_place(const struct kvshm__spill_file *file, const char *path, uint32_t block_bytes)
{
    uint64_t bytes;
    bool device;
    int code = find_bytes(file, path, &bytes, &device);

    if (code < 0)
        return code;
    if (bytes < file->header.file_bytes)
        return kvshm__fail(KVSHM_E_DAMAGED,
                           "%s has %" PRIu64 " bytes, and its header says %" PRIu64 ": it was truncated; remove it "
                           "and let it be made anew",
                           path, bytes, file->header.file_bytes);
    if (file->header.block_bytes < block_bytes)
        return kvshm__fail(-EINVAL,
                           "%s was made with blocks of %u bytes, and its file system wants %u; let it be made anew",
                           path, file->header.block_bytes, block_bytes);
    return 0;
}

/* ---- Making ------------------------------------------------------------------------------------------------- */

static int fill_header(struct kvshm__spill_file *file, const struct kvshm__spill_want *want)
{
    struct kvshm_spill_header *h = &file->header;
    const struct kvshm__spill_shape *s = &file->shape;
    int code;

    memset(h, 0, sizeof(*h));
    memcpy(h->magic, KVSHM__SPILL_MAGIC, sizeof(h->magic));
    h->version = KVSHM__SPILL_VERSION;
    h->byte_order = KVSHM__SPILL_BYTE_ORDER;
    h->block_bytes = s->block_bytes;
    h->header_stride = s->header_stride;
    h->payload_stride = s->payload_stride;
    h->slots = s->slots;
    h->headers_offset = s->headers_offset;
    h->payload_offset = s->payload_offset;
    h->file_bytes = s->file_bytes;
    h->page_bytes = want->page_bytes;
    h->geometry = want->geometry;
    h->epochs = s->epochs;
    h->has_fingerprint = want->named_fingerprint;
    if (want->named_fingerprint)
        memcpy(h->fingerprint, want->fingerprint, sizeof(h->fingerprint));
    h->created_ns = kvshm__sys.realtime_ns();
    code = kvshm__sys.random(h->file_id, sizeof(h->file_id));
    if (code == (int)sizeof(h->file_id))
        return 0;
    code = code < 0 ? code : -EIO;
    return kvshm__fail(code, "random bytes: %s", kvshm_strerror(code));
}

static int make_shape(struct kvshm__spill_file *file, const char *path, const struct kvshm__spill_want *want)
{
    uint32_t block_bytes;
    int code = find_block(file, path, &block_bytes);

    return code < 0 ? code : kvshm__spill_shape_make(want, block_bytes, &file->shape);
}

static int take_space(const struct kvshm__spill_file *file, const char *path)
{
    int code = kvshm__sys.truncate(file->fd, file->shape.file_bytes);

    while (code == 0 && (code = kvshm__sys.space(file->fd, 0, file->shape.file_bytes)) == -EINTR)
        code = 0;
    if (code < 0)
        return kvshm__fail(code, "%s needs %" PRIu64 " bytes: %s; give a smaller spill_bytes, or make room",
                           path, file->shape.file_bytes, kvshm_strerror(code));
    return 0;
}

/* The folder of a path, and its last part. */
static int split(const char *path, char dir[PATH_BYTES], const char **name)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;

    *name = slash ? slash + 1 : path;
    if (**name == '\0' || length >= PATH_BYTES - 1)
        return kvshm__fail(-EINVAL, "\"%.64s\" names no file", path);
    if (slash)
        snprintf(dir, PATH_BYTES, "%.*s", length > 0 ? (int)length : 1, path);
    else
        snprintf(dir, PATH_BYTES, ".");
    return 0;
}

/* The name is durable too. */
static int link_file(const struct kvshm__spill_file *file, const char *path, const char *dir, const char *name)
{
    char by_fd[FD_PATH_BYTES];
    int fd = kvshm__sys.open(dir, O_RDONLY | O_DIRECTORY, 0), code = fd;

    snprintf(by_fd, sizeof(by_fd), "/proc/self/fd/%d", file->fd);
    if (fd >= 0) {
        code = kvshm__sys.linkat(by_fd, fd, name);
        if (code == 0 && (code = kvshm__sys.sync(fd)) < 0)
            kvshm__sys.unlinkat(fd, name);
        kvshm__sys.close(fd);
    }
    return code < 0 ? kvshm__fail(code, "naming %s: %s", path, kvshm_strerror(code)) : 0;
}

/* A file that is not there yet: nameless, whole, then named. */
static int make_new(const char *path, const struct kvshm__spill_want *want, struct kvshm__spill_file *file)
{
    char dir[PATH_BYTES];
    const char *name;
    int code = split(path, dir, &name);

    if (code < 0)
        return code;
    code = open_direct(dir, O_TMPFILE, 0600, file);
    if (code < 0)
        return kvshm__fail(code, "folder %s: %s; name a file in a folder that this process may write", dir,
                           kvshm_strerror(code));
    code = make_shape(file, path, want);
    if (code == 0)
        code = take_space(file, path);
    if (code == 0)
        code = fill_header(file, want);
    if (code == 0)
        code = lock(file, F_RDLCK, path);
    if (code == 0)
        code = write_header(file, path);
    if (code == 0)
        code = link_file(file, path, dir, name);
    file->made = code == 0;
    return code;
}

/* Is there nothing that somebody could miss? */
static int check_empty(const struct kvshm__spill_file *file, const char *path)
{
    static const char nothing[KVSHM__SPILL_BLOCK_MIN];
    void *block;
    int code = blocks_get(file->shape.block_bytes, &block);

    if (code == 0) {
        code = read_all(file->fd, block, file->shape.block_bytes, 0);
        if (code == 0 && memcmp(block, nothing, sizeof(nothing)) != 0)
            code = -EEXIST;
        kvshm__sys.unmap(block, file->shape.block_bytes);
    }
    if (code == -EEXIST)
        return kvshm__fail(code, "%s holds something else; name another, or wipe its first %u bytes", path,
                           KVSHM__SPILL_BLOCK_MIN);
    return code < 0 ? kvshm__fail(code, "%s: %s", path, kvshm_strerror(code)) : 0;
}

/* -EEXIST: there is something that somebody could miss. Else its bytes, if it is a device. */
static int check_unused(struct kvshm__spill_file *file, const char *path, uint64_t *bytes, bool *device)
{
    int code = find_bytes(file, path, bytes, device);

    if (code == 0 && !*device && *bytes != 0)
        return kvshm__fail(-EEXIST, "%s exists, and is not empty", path);
    if (code == 0 && *device)
        code = find_block(file, path, &file->shape.block_bytes);
    return code == 0 && *device ? check_empty(file, path) : code;
}

/* What a device holds behind its first block is not erased: slot headers and epochs of another file have its id. */
static int make_in(const char *path, const struct kvshm__spill_want *want, struct kvshm__spill_file *file)
{
    struct kvshm__spill_want fits = *want;
    uint64_t bytes;
    bool device;
    /* Looked at before the lock too: who finds something there has to wait for those who use it, or died just now. */
    int code = check_unused(file, path, &bytes, &device);

    if (code == 0)
        code = lock(file, F_WRLCK, path);
    if (code == 0)
        code = check_unused(file, path, &bytes, &device);
    if (code == 0 && device && bytes < fits.budget_bytes)
        fits.budget_bytes = bytes;
    if (code == 0)
        code = make_shape(file, path, &fits);
    if (code == 0)
        code = device ? 0 : take_space(file, path);
    if (code == 0)
        code = fill_header(file, want);
    if (code == 0)
        code = write_header(file, path);
    return code == 0 ? lock(file, F_RDLCK, path) : code;
}

int kvshm__spill_make(const char *path, const struct kvshm__spill_want *want, struct kvshm__spill_file *file)
{
    int code;

    memset(file, 0, sizeof(*file));
    code = open_direct(path, 0, 0, file);
    if (code == 0)
        code = make_in(path, want, file);
    else if (code == -ENOENT)
        code = make_new(path, want, file);
    else
        unopened(code, path);
    if (code < 0)
        kvshm__spill_close(file);
    return code;
}

/* ---- Opening ------------------------------------------------------------------------------------------------ */

int kvshm__spill_open(const char *path, const struct kvshm__spill_want *want, struct kvshm__spill_file *file)
{
    uint32_t block_bytes = 0;
    int code;

    memset(file, 0, sizeof(*file));
    code = open_direct(path, 0, 0, file);
    if (code < 0)
        return unopened(code, path);
    code = find_block(file, path, &block_bytes);
    if (code == 0)
        code = lock(file, F_RDLCK, path);
    if (code == 0)
        code = read_header(file, path, block_bytes);
    if (code == 0)
        code = check_signature(&file->header, path);
    if (code == 0)
        code = check_shape(&file->header, path, &file->shape);
    if (code == 0)
        code = check_place(file, path, block_bytes);
    if (code == 0 && want)
        code = check_want(&file->header, want, path);
    if (code < 0)
        kvshm__spill_close(file);
    return code;
}

int kvshm__spill_adopt(struct kvshm__spill_file *file, const char *path, const uint64_t arena_id[2])
{
    struct kvshm_spill_header before = file->header;
    int code = lock(file, F_WRLCK, path);

    if (code < 0)
        return code;
    memcpy(file->header.arena_id, arena_id, sizeof(file->header.arena_id));
    file->header.adopted_ns = kvshm__sys.realtime_ns();
    code = write_header(file, path);
    if (code < 0)
        file->header = before;
    int unlocked = lock(file, F_RDLCK, path);
    return code < 0 ? code : unlocked;
}

int kvshm__spill_name(struct kvshm__spill_file *file, const char *path, const uint8_t *fingerprint)
{
    struct kvshm_spill_header before = file->header;
    int code = read_header(file, path, file->shape.block_bytes);

    if (code == 0)
        code = check_signature(&file->header, path);
    if (code == 0 && file->header.has_fingerprint &&
        memcmp(file->header.fingerprint, fingerprint, sizeof(file->header.fingerprint)) != 0)
        code = kvshm__fail(KVSHM_E_FINGERPRINT, "%s holds pages of another fingerprint; name another file, or remove this one",
                           path);
    if (code == 0) {
        file->header.has_fingerprint = 1;
        memcpy(file->header.fingerprint, fingerprint, sizeof(file->header.fingerprint));
        code = write_header(file, path);
    }
    if (code < 0)
        file->header = before;
    return code;
}

int kvshm__spill_follow(struct kvshm__spill_file *file, const char *path, const uint64_t arena_id[2])
{
    int code = read_header(file, path, file->shape.block_bytes);

    if (code == 0)
        code = check_signature(&file->header, path);
    if (code == 0 && memcmp(file->header.arena_id, arena_id, sizeof(file->header.arena_id)) != 0)
        code = kvshm__fail(-ESTALE, "%s belongs to another arena, which was created on it or has taken it over", path);
    return code;
}

/* ---- Epochs ------------------------------------------------------------------------------------------------- */

static uint64_t epoch_sum(const struct kvshm_spill_epoch *epoch)
{
    return XXH3_64bits(epoch, offsetof(struct kvshm_spill_epoch, checksum));
}

int kvshm__spill_epoch_read(const struct kvshm__spill_file *file, uint64_t *largest)
{
    const struct kvshm__spill_shape *s = &file->shape;
    uint64_t bytes = (uint64_t)s->block_bytes * s->epochs;
    void *blocks;
    int code = blocks_get(bytes, &blocks);

    *largest = 0;
    if (code < 0)
        return code;
    code = read_all(file->fd, blocks, bytes, s->block_bytes);
    for (uint32_t i = 0; i < s->epochs && code == 0; i++) {
        struct kvshm_spill_epoch one;
        memcpy(&one, (char *)blocks + (uint64_t)i * s->block_bytes, sizeof(one));
        if (memcmp(one.file_id, file->header.file_id, sizeof(one.file_id)) == 0 && one.checksum == epoch_sum(&one) &&
            one.epoch > *largest)
            *largest = one.epoch;
    }
    kvshm__sys.unmap(blocks, bytes);
    return code;
}

int kvshm__spill_epoch_write(const struct kvshm__spill_file *file, uint32_t place, uint64_t epoch)
{
    struct kvshm_spill_epoch one = {.epoch = epoch};

    if (place >= file->shape.epochs)
        return -EINVAL;
    memcpy(one.file_id, file->header.file_id, sizeof(one.file_id));
    one.checksum = epoch_sum(&one);
    return write_block(file, &one, sizeof(one), (uint64_t)file->shape.block_bytes * (1 + (uint64_t)place));
}

/* ---- Slot headers ------------------------------------------------------------------------------------------- */

static uint64_t slot_sum(const struct kvshm__spill_file *file, const struct kvshm_slot_header *header)
{
    size_t begin = offsetof(struct kvshm_slot_header, magic);
    size_t end = sizeof(*header) + 8 * (size_t)kvshm__slot_words(header->flags, header->length);

    return XXH3_64bits_withSeed((const char *)header + begin, end - begin, file->header.file_id[0]);
}

void kvshm__slot_seal(const struct kvshm__spill_file *file, struct kvshm_slot_header *header)
{
    header->magic = KVSHM__SLOT_MAGIC;
    header->checksum = slot_sum(file, header);
}

bool kvshm__slot_valid(const struct kvshm__spill_file *file, uint64_t slot, const struct kvshm_slot_header *header)
{
    return header->magic == KVSHM__SLOT_MAGIC && header->slot == slot && !(header->flags & ~KVSHM__SLOT_FLAGS) &&
           header->length >= 1 && header->length <= file->header.geometry.page_tokens &&
           (header->page_id[0] != 0 || header->page_id[1] != 0) &&
           header->checksum == slot_sum(file, header);
}

uint64_t kvshm__payload_sum(const void *payload, uint64_t page_bytes)
{
    return XXH3_64bits(payload, page_bytes);
}

int kvshm__spill_erase(const struct kvshm__spill_file *file, uint64_t slot, unsigned n)
{
    uint64_t bytes = (uint64_t)n * file->shape.header_stride;
    void *nothing;
    int code = blocks_get(bytes, &nothing);

    if (code < 0)
        return code;
    code = write_all(file->fd, nothing, bytes, kvshm__spill_header_offset(&file->shape, slot));
    kvshm__sys.unmap(nothing, bytes);
    return code;
}

void kvshm__spill_punch(const struct kvshm__spill_file *file, uint64_t slot)
{
    kvshm__sys.punch(file->fd, kvshm__spill_payload_offset(&file->shape, slot), file->shape.payload_stride);
}

int kvshm__spill_header_write(const struct kvshm__spill_file *file, const struct kvshm_slot_header *header)
{
    return write_all(file->fd, header, file->shape.header_stride, kvshm__spill_header_offset(&file->shape, header->slot));
}

/* ---- The sweep ---------------------------------------------------------------------------------------------- */

static bool is_erased(const struct kvshm_slot_header *header)
{
    static const struct kvshm_slot_header nothing;

    return memcmp(header, &nothing, sizeof(nothing)) == 0;
}

static int visit_slots(const struct kvshm__spill_file *file, const char *headers, uint64_t first, uint64_t n,
                       kvshm__spill_visit_fn *visit, void *arg, struct kvshm__spill_swept *swept)
{
    int code = 0;

    for (uint64_t i = 0; i < n && code == 0; i++) {
        const void *at = headers + i * file->shape.header_stride;
        const struct kvshm_slot_header *header = at;
        if (kvshm__slot_valid(file, first + i, header)) {
            swept->valid++;
            code = visit(arg, header);
        } else if (is_erased(header)) {
            swept->erased++;
        } else {
            swept->damaged++;
        }
    }
    return code;
}

/* What an unreadable block holds is lost alone: its neighbours are read one by one. */
static int sweep_some(const struct kvshm__spill_file *file, void *headers, uint64_t first, uint64_t n,
                      kvshm__spill_visit_fn *visit, void *arg, struct kvshm__spill_swept *swept)
{
    const struct kvshm__spill_shape *s = &file->shape;
    int code = read_all(file->fd, headers, n * s->header_stride, kvshm__spill_header_offset(s, first));

    if (code == 0)
        return visit_slots(file, headers, first, n, visit, arg, swept);
    code = 0;
    if (n == 1)
        swept->unreadable++;
    for (uint64_t i = 0; i < n && n > 1 && code == 0; i++)
        code = sweep_some(file, headers, first + i, 1, visit, arg, swept);
    return code;
}

int kvshm__spill_sweep(const struct kvshm__spill_file *file, kvshm__spill_visit_fn *visit, void *arg,
                       struct kvshm__spill_swept *swept)
{
    const struct kvshm__spill_shape *s = &file->shape;
    const uint64_t at_once = s->header_stride < SWEEP_BYTES ? SWEEP_BYTES / s->header_stride : 1;
    void *headers;
    int code = blocks_get(at_once * s->header_stride, &headers);

    memset(swept, 0, sizeof(*swept));
    if (code < 0)
        return code;
    for (uint64_t slot = 0; slot < s->slots && code == 0; slot += at_once)
        code = sweep_some(file, headers, slot, s->slots - slot < at_once ? s->slots - slot : at_once, visit, arg, swept);
    kvshm__sys.unmap(headers, at_once * s->header_stride);
    return code;
}
