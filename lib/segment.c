/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment.c - build a segment without a name, and publish it whole.
 *
 * In the turn (see place.c): the name is looked for in all places; the ways to back it are listed (see backing.c), and the
 * first that works is taken: a nameless file is opened (O_TMPFILE); its space is looked at, then taken; the header is
 * written. Whoever called attaches to the nameless file, and then it gets its mode and, by linkat, its name.
 *
 * Invariants
 * S1  Nobody ever sees a half-made segment under a name.
 * S2  A file without a name goes with its last descriptor: an error, or death at any moment, leaves nothing.
 * S3  All space is the file's own before it has a name: no store to the segment is ever a SIGBUS for want of memory.
 *
 * Space is proven in two steps, kvshm__limit_check() and kvshm__populate(), in that order, since what is taken beyond a
 * limit may be answered by a signal instead of an error. The header is written through a mapping: files of hugetlbfs know
 * no write().
 *
 * The nameless file has mode 0600 until it is published, whatever the umask, so that it can be opened anew.
 */
#include "segment.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "atomics.h"
#include "fork.h"
#include "limit.h"
#include "message.h"
#include "plan.h"
#include "populate.h"
#include "sys.h"
#include "validate.h"

#define FD_PATH_BYTES 32

static void fd_path(int fd, char path[FD_PATH_BYTES])
{
    snprintf(path, FD_PATH_BYTES, "/proc/self/fd/%d", fd);
}

/* ---- The file ---------------------------------------------------------------------------------------- */

static int open_nameless(const char *dir, int *fd)
{
    int code;

    kvshm__fork_hold();
    code = kvshm__sys.open(dir, O_RDWR | O_TMPFILE, 0600);
    *fd = code >= 0 ? code : -1;
    kvshm__fork_let();
    if (code == -EOPNOTSUPP || code == -EISDIR)
        return kvshm__fail(
            code,
            "the file system of %s makes no nameless files (O_TMPFILE); use one that "
            "does: tmpfs, ext4, xfs",
            dir);
    if (code == -ENOSPC)
        return kvshm__fail(code,
                           "%s takes no more files; remove some, or mount it with a larger "
                           "nr_inodes=",
                           dir);
    if (code == -EACCES)
        return kvshm__fail(code, "directory %s: %s; make it writable, or set KVSHM_DIR", dir,
                           kvshm_strerror(code));
    return code >= 0 ? 0 : kvshm__fail(code, "directory %s: %s", dir, kvshm_strerror(code));
}

static int set_owner(int fd, const struct kvshm_config *c, const char *path)
{
    int code = kvshm__sys.fchmod(fd, 0600);

    if (code < 0)
        return kvshm__fail(code, "%s: mode: %s", path, kvshm_strerror(code));
    if (c->group == UINT32_MAX)
        return 0;
    code = kvshm__sys.fchown(fd, UINT32_MAX, c->group);
    if (code < 0)
        return kvshm__fail(code, "%s: config.group %u: %s; give a group that you are in", path,
                           c->group, kvshm_strerror(code));
    return 0;
}

/* ---- The header -------------------------------------------------------------------------------------- */

static int fill_random(struct kvshm_static *f)
{
    struct {
        uint64_t arena_id[2];
        uint64_t opening_id;
        uint8_t secret[KVSHM__SECRET_BYTES];
    } fresh;
    int code = kvshm__sys.random(&fresh, sizeof(fresh));

    if (code != (int)sizeof(fresh))
        return kvshm__fail(code < 0 ? code : -EIO, "random bytes: %s",
                           kvshm_strerror(code < 0 ? code : -EIO));
    memcpy(f->arena_id, fresh.arena_id, sizeof(f->arena_id));
    f->opening_id = fresh.opening_id;
    memcpy(f->secret, fresh.secret, sizeof(f->secret));
    return 0;
}

static void fill_sizes(struct kvshm_static *f, const struct kvshm__plan *plan)
{
    memcpy(f->magic, KVSHM__MAGIC, sizeof(f->magic));
    f->layout_version = KVSHM__LAYOUT_VERSION;
    f->byte_order = KVSHM__BYTE_ORDER;
    f->header_bytes = KVSHM__HEADER_BYTES;
    f->word_bytes = sizeof(void *);
    f->client_bytes = sizeof(struct kvshm_client);
    f->record_bytes = sizeof(struct kvshm_record);
    f->links_bytes = sizeof(struct kvshm_links);
    f->lease_word_bytes = sizeof(struct kvshm_lease_word);
    f->segment_bytes = plan->segment_bytes;
    f->page_bytes = plan->page_bytes;
    f->frame_stride = plan->frame_stride;
    f->frames = plan->frames;
    f->slots = plan->slots;
    f->records = plan->records;
    f->buckets = plan->buckets;
    f->text_stride = plan->text_stride;
    f->page_size = plan->page_size;
    memcpy(f->directory, plan->section, sizeof(f->directory));
}

static void fill_asked(struct kvshm_static *f, const struct kvshm__config *config,
                       const struct kvshm__making *making, const struct kvshm__way *way,
                       uint32_t numa, bool hardware_clock)
{
    f->created_ns = kvshm__sys.realtime_ns();
    f->creator_pid = kvshm__sys.pid();
    f->creator_uid = kvshm__sys.uid();
    f->max_clients = config->asked.max_clients;
    f->max_leases = config->asked.max_leases;
    f->clock = hardware_clock ? KVSHM__CLOCK_HARDWARE : KVSHM__CLOCK_SHARED;
    f->backing_asked = config->asked.backing;
    f->backing = way->backing;
    f->numa_asked = config->asked.numa;
    f->numa = numa;
    f->geometry = config->asked.geometry;
    if (strlen(config->spill_path) < sizeof(f->spill_path))
        memcpy(f->spill_path, config->spill_path, strlen(config->spill_path));
    snprintf(f->name, sizeof(f->name), "%s", making->name);
    memcpy(f->backing_reason, making->ways.reason, sizeof(f->backing_reason));
}

/* What changes later, as it is in the beginning; all else is 0. */
static void fill_live(struct kvshm_header *header, const struct kvshm__config *config,
                      const struct kvshm__plan *plan)
{
    const struct kvshm_config *c = &config->asked;

    KVSHM__STORE(&header->epoch, 1);
    KVSHM__STORE(&header->settings.capacity, c->capacity);
    KVSHM__STORE(&header->settings.stall_ms, c->stall_ms);
    KVSHM__STORE(&header->settings.wait_ms, c->wait_ms);
    KVSHM__STORE(&header->settings.admission, c->admission);
    KVSHM__STORE(&header->settings.spill_bytes, c->spill_bytes);
    KVSHM__STORE(&header->derived.frames_free, plan->frames);
    KVSHM__STORE(&header->tier.slots_free, plan->slots);
    if (config->named_fingerprint) {
        for (unsigned i = 0; i < 4; i++) {
            uint64_t word;

            memcpy(&word, c->fingerprint + 8 * i, sizeof(word));
            KVSHM__STORE(&header->fingerprint[i], word);
        }
        KVSHM__STORE(&header->has_fingerprint, 1);
    }
}

static int store_header(const struct kvshm_header *header, int fd, uint32_t page_size)
{
    void *address;
    int code = kvshm__sys.map(page_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, &address);

    if (code < 0)
        return code;
    memcpy(address, header, sizeof(*header));
    return kvshm__sys.unmap(address, page_size);
}

static int write_header(const struct kvshm__making *making, const struct kvshm__config *config,
                        const struct kvshm__way *way, const struct kvshm__populate *taken,
                        bool hardware_clock)
{
    struct kvshm_header header;
    int code;

    memset(&header, 0, sizeof(header));
    fill_sizes(&header.fixed, taken->plan);
    fill_asked(&header.fixed, config, making, way, taken->numa, hardware_clock);
    code = fill_random(&header.fixed);
    if (code == 0)
        code = kvshm__boot_id(header.fixed.boot_id);
    if (code < 0)
        return code;
    header.fixed.checksum = kvshm__validate_checksum(&header.fixed);
    fill_live(&header, config, taken->plan);
    code = store_header(&header, taken->fd, taken->plan->page_size);
    return code == 0 ? 0
                     : kvshm__fail(code, "header of %s: %s", making->path, kvshm_strerror(code));
}

/* ---- The turn ---------------------------------------------------------------------------------------- */

static int name_is_free(const struct kvshm__making *making)
{
    struct kvshm__place_found found;
    int code = kvshm__place_find(&making->places, making->name, &found);

    if (code == -ENOENT)
        return 0;
    if (code < 0)
        return code;
    return kvshm__fail(-EEXIST, "%s exists; attach to it, or remove it first", found.path);
}

/* All of its memory, proven. */
static int take(struct kvshm__making *making, unsigned i, struct kvshm__populate *request)
{
    const struct kvshm__plan *plan = request->plan;
    int code = kvshm__limit_check(request->fd, plan, making->path);

    request->path = making->path;
    request->transparent = making->ways.way[i].transparent;
    if (code == 0)
        code = kvshm__populate(request);
    if (code == -ENOSPC) /* the pool says it better, if it was that */
        kvshm__backing_room(&making->places, &making->turn, &making->ways, i, plan);
    if (code == 0)
        code = kvshm__backing_measure(&making->ways, i, request->fd, plan);
    return code;
}

/* In the i-th way. */
static int build_so(struct kvshm__making *making, unsigned i, const struct kvshm__config *config,
                    bool hardware_clock, int *fd)
{
    const struct kvshm__way *way = &making->ways.way[i];
    const char *dir = making->places.place[way->place].path;
    struct kvshm__plan plan;
    struct kvshm__populate request = {.plan = &plan, .numa_asked = config->asked.numa};
    int code = kvshm__plan_make(config, way->page_size, &plan);

    making->place = way->place;
    snprintf(making->path, sizeof(making->path), "%s/%s", dir, making->name);
    if (code == 0)
        code = kvshm__backing_room(&making->places, &making->turn, &making->ways, i, &plan);
    if (code == 0)
        code = open_nameless(dir, fd);
    if (code == 0)
        code = set_owner(*fd, &config->asked, making->path);
    request.fd = *fd;
    if (code == 0)
        code = take(making, i, &request);
    if (code == 0)
        code = write_header(making, config, way, &request, hardware_clock);
    return code;
}

static int build(struct kvshm__making *making, const struct kvshm__config *config,
                 bool hardware_clock, int *fd)
{
    unsigned i = 0;
    int code =
        kvshm__backing_ways(&making->places, &making->turn, config->asked.backing, &making->ways);

    if (code < 0)
        return code;
    while ((code = build_so(making, i, config, hardware_clock, fd)) < 0) {
        kvshm__fork_close(fd);
        if (!kvshm__backing_next(&making->ways, i++, code))
            return code;
    }
    return 0;
}

int kvshm__segment_begin(struct kvshm__making *making, const char *name)
{
    int code;

    making->name = name;
    making->turn.count = 0;
    code = kvshm__places_get(&making->places);
    if (code < 0)
        return code;
    code = kvshm__turn_take(&making->places, &making->turn);
    if (code == 0)
        code = name_is_free(making);
    if (code < 0)
        kvshm__segment_end(making);
    return code;
}

int kvshm__segment_build(struct kvshm__making *making, const struct kvshm__config *config, bool hardware_clock, int *fd)
{
    *fd = -1;
    making->mode = config->asked.mode;
    return build(making, config, hardware_clock, fd);
}

int kvshm__segment_publish(struct kvshm__making *making, int fd)
{
    char path[FD_PATH_BYTES];
    int code = kvshm__sys.fchmod(fd, making->mode);

    fd_path(fd, path);
    if (code == 0)
        code = kvshm__sys.linkat(path, making->turn.dir[making->place], making->name);
    if (code == -EEXIST)
        return kvshm__fail(code, "%s exists; another process was faster", making->path);
    return code == 0 ? 0 : kvshm__fail(code, "naming %s: %s", making->path, kvshm_strerror(code));
}

void kvshm__segment_end(struct kvshm__making *making)
{
    kvshm__turn_end(&making->turn);
}

/* ---- A second description ---------------------------------------------------------------------------- */

static bool same_file(int a, int b)
{
    struct stat one, other;

    return kvshm__sys.fstat(a, &one) == 0 && kvshm__sys.fstat(b, &other) == 0 &&
           one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

static int open_into(const char *path, int flags, int *out)
{
    int code;

    kvshm__fork_hold();
    code = kvshm__sys.open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | flags, 0);
    *out = code >= 0 ? code : -1;
    kvshm__fork_let();
    return code >= 0 ? 0 : code;
}

int kvshm__segment_reopen(int fd, const char *path, int *out)
{
    char by_fd[FD_PATH_BYTES];
    int code;

    *out = -1;
    if (path[0] != '\0' && open_into(path, O_NOFOLLOW, out) == 0) {
        if (same_file(fd, *out))
            return 0;
        kvshm__fork_close(out);
    }
    fd_path(fd, by_fd);
    code = open_into(by_fd, 0, out);
    if (code == 0 && !same_file(fd, *out)) {
        kvshm__fork_close(out);
        code = -ESTALE;
    }
    return code == 0 ? 0
                     : kvshm__fail(code,
                                   "a second descriptor of the segment (%s): %s; is /proc "
                                   "mounted?",
                                   by_fd, kvshm_strerror(code));
}
