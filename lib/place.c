/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.c - the directories where arenas live, and the names in them.
 *
 * A place is a directory in which arenas have their names. KVSHM_DIR, if set, is the only one; else each mount of
 * hugetlbfs is one, larger pages first, then by device and inode, and last comes the POSIX shared-memory directory. The
 * order is the same in all mount namespaces. A directory that is mounted twice is one place; a mount that another one
 * hides, or that may not be searched, is none. What an arena in them is made of is the business of backing.c.
 *
 * Invariants
 * P1  A name appears and goes only in a turn: while its process holds flock on the directories of all places, taken in
 *     the order of the array. So what was looked for in a turn stays absent, and what was compared stays the same
 *     (against those who keep to it; linkat itself answers EEXIST to the others).
 * P2  What a name leads to is input: no link is followed, nothing but a regular file is opened, and a FIFO or a device
 *     in its place blocks nobody.
 *
 * flock belongs to the open description, which a child made meanwhile shares; so a turn ends by unlocking, not by
 * closing alone. Waiting is by trying again with growing sleeps, so that it is bounded.
 */
#include "place.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "config.h"
#include "fork.h"
#include "layout.h"
#include "message.h"
#include "mounts.h"
#include "sys.h"

#define SHARED_MEMORY_DIR "/dev/shm"
#define TURN_NS           UINT64_C(10000000000)
#define TRY_NS_MIN        UINT64_C(500000)
#define TRY_NS_MAX        UINT64_C(20000000)

/* ---- Places ------------------------------------------------------------------------------------------ */

static int add_named(struct kvshm__places *places, const char *dir)
{
    struct kvshm__place *place = &places->place[places->count];
    size_t length = strlen(dir);

    if (dir[0] != '/')
        return kvshm__fail(-EINVAL, "KVSHM_DIR is \"%.200s\"; set it to an absolute path", dir);
    if (length >= sizeof(place->path))
        return kvshm__fail(-ENAMETOOLONG, "KVSHM_DIR has %zu bytes, at most %zu", length,
                           sizeof(place->path) - 1);
    memset(place, 0, sizeof(*place));
    memcpy(place->path, dir, length + 1);
    places->count++;
    return 0;
}

/* Of the mount at dir, into place: its pages and identity. false: it is hidden, or not there any more. */
static bool look_at_mount(int dir, dev_t device, struct kvshm__place *place)
{
    struct statfs system;
    struct stat status;

    if (kvshm__sys.fstat(dir, &status) < 0 || status.st_dev != device ||
        kvshm__sys.fstatfs(dir, &system) < 0)
        return false;
    place->page_size = (uint64_t)system.f_bsize;
    place->device = status.st_dev;
    place->inode = status.st_ino;
    return true;
}

/* The same of one that may not be opened, and only said of whom it is: the pages are those that its options name. */
static bool look_at_closed(const struct kvshm__mount *mount, struct kvshm__place *place)
{
    struct stat status;
    char size[16], *unit;

    if (kvshm__sys.fstatat(AT_FDCWD, mount->point, &status, 0) < 0 ||
        status.st_dev != mount->device ||
        !kvshm__mounts_option(mount->options, "pagesize", size, sizeof(size)))
        return false;
    place->page_size = strtoull(size, &unit, 10);
    place->page_size <<= *unit == 'K' ? 10 : *unit == 'M' ? 20 : 30;
    place->device = status.st_dev;
    place->inode = status.st_ino;
    place->closed = true;
    return true;
}

/* Is a to stand before b? */
static bool before(const struct kvshm__place *a, const struct kvshm__place *b)
{
    if (a->page_size != b->page_size)
        return a->page_size > b->page_size;
    return a->device != b->device ? a->device < b->device : a->inode < b->inode;
}

static int insert_mount(struct kvshm__places *places, const struct kvshm__place *new)
{
    unsigned at = 0;

    while (at < places->count && before(&places->place[at], new))
        at++;
    if (at < places->count && !before(new, &places->place[at]))
        return 0; /* the same directory */
    if (places->count == KVSHM__PLACES_MAX - 1)
        return kvshm__fail(-E2BIG,
                           "more than %d mounts of hugetlbfs are in the mount table; set KVSHM_DIR "
                           "to the one that is meant, or to /dev/shm",
                           KVSHM__PLACES_MAX - 1);
    memmove(&places->place[at + 1], &places->place[at],
            (places->count - at) * sizeof(places->place[0]));
    places->place[at] = *new;
    places->count++;
    return 0;
}

static int add_mount(const struct kvshm__mount *mount, void *arg)
{
    struct kvshm__place new = {0};
    size_t length = strlen(mount->point);
    bool seen;
    int dir;

    if (strcmp(mount->type, "hugetlbfs") != 0 || length >= sizeof(new.path))
        return 0;
    memcpy(new.path, mount->point, length + 1);
    dir = kvshm__sys.open(mount->point, O_RDONLY | O_DIRECTORY, 0);
    if (dir >= 0) {
        seen = look_at_mount(dir, mount->device, &new);
        kvshm__sys.close(dir);
    } else {
        seen = dir == -EACCES && look_at_closed(mount, &new);
    }
    return seen ? insert_mount(arg, &new) : 0;
}

int kvshm__places_get(struct kvshm__places *places)
{
    const char *dir = secure_getenv("KVSHM_DIR");
    int code;

    places->count = 0;
    places->named = dir != NULL && dir[0] != '\0';
    if (places->named)
        return add_named(places, dir);
    code = kvshm__mounts_each(add_mount, places);
    if (code == -E2BIG)
        return code;
    return add_named(places, SHARED_MEMORY_DIR); /* also where there is no mount table */
}

/* ---- Turns ------------------------------------------------------------------------------------------- */

static int open_dir(const char *path, int *dir)
{
    int fd = kvshm__sys.open(path, O_RDONLY | O_DIRECTORY, 0);

    if (fd == -ENOENT)
        return kvshm__fail(fd, "directory %s does not exist; create it, or set KVSHM_DIR", path);
    if (fd < 0)
        return kvshm__fail(fd, "directory %s: %s", path, kvshm_strerror(fd));
    *dir = fd;
    return 0;
}

/* Lock one directory, until deadline. */
static int lock_dir(int dir, const char *path, uint64_t deadline)
{
    uint64_t pause = TRY_NS_MIN;
    int code;

    for (;;) {
        code = kvshm__sys.flock(dir, LOCK_EX | LOCK_NB);
        if (code != -EWOULDBLOCK && code != -EINTR)
            break;
        if (kvshm__sys.monotonic_ns() >= deadline)
            return kvshm__fail(KVSHM_E_BUSY_CREATORS,
                               "another process has held the lock of %s for %" PRIu64 " s, as who "
                               "creates or removes an arena does; try again",
                               path, TURN_NS / 1000000000);
        code = kvshm__sys.sleep_ns(pause);
        if (code < 0 && code != -EINTR)
            break;
        pause = pause * 2 < TRY_NS_MAX ? pause * 2 : TRY_NS_MAX;
    }
    return code == 0 ? 0 : kvshm__fail(code, "flock of %s: %s", path, kvshm_strerror(code));
}

int kvshm__turn_take(const struct kvshm__places *places, struct kvshm__turn *turn)
{
    uint64_t deadline = kvshm__sys.monotonic_ns() + TURN_NS;
    int code = 0;

    turn->count = 0;
    while (code == 0 && turn->count < places->count) {
        const struct kvshm__place *place = &places->place[turn->count];

        if (place->closed) {
            turn->dir[turn->count++] = -1;
            continue;
        }
        code = open_dir(place->path, &turn->dir[turn->count]);
        if (code == 0)
            code = lock_dir(turn->dir[turn->count++], place->path, deadline);
    }
    if (code < 0)
        kvshm__turn_end(turn);
    return code;
}

void kvshm__turn_end(struct kvshm__turn *turn)
{
    while (turn->count > 0) {
        int dir = turn->dir[--turn->count];

        if (dir < 0)
            continue;
        kvshm__sys.flock(dir, LOCK_UN);
        kvshm__sys.close(dir);
    }
}

/* ---- Names ------------------------------------------------------------------------------------------- */

/* 1: there, and its path is in path; 0: not; -errno. */
static int look(const struct kvshm__place *place, const char *name, char *path)
{
    struct stat status;
    int code;

    snprintf(path, KVSHM__PATH_BYTES, "%s/%s", place->path, name);
    code = kvshm__sys.fstatat(AT_FDCWD, path, &status, AT_SYMLINK_NOFOLLOW);
    if (code == -ENOENT)
        return 0;
    return code < 0 ? kvshm__fail(code, "%s: %s", path, kvshm_strerror(code)) : 1;
}

static int not_found(const struct kvshm__places *places, const char *name)
{
    const struct kvshm__place *last = &places->place[places->count - 1];
    struct stat status;
    char others[200] = "";
    size_t at = 0;

    if (kvshm__sys.fstatat(AT_FDCWD, last->path, &status, 0) == -ENOENT)
        return kvshm__fail(-ENOENT, "directory %s does not exist; create it, or set KVSHM_DIR",
                           last->path);
    for (unsigned i = 0; i + 1 < places->count && at < sizeof(others); i++) {
        if (!places->place[i].closed)
            at += (size_t)snprintf(others + at, sizeof(others) - at, "%s, ", places->place[i].path);
    }
    return kvshm__fail(-ENOENT, "no arena \"%s\" in %s%s; is KVSHM_DIR what its creator has?", name,
                       others, last->path);
}

int kvshm__place_find(const struct kvshm__places *places, const char *name,
                      struct kvshm__place_found *found)
{
    char path[KVSHM__PATH_BYTES];
    unsigned seen = 0;

    for (unsigned i = 0; i < places->count; i++) {
        int code = places->place[i].closed ? 0 : look(&places->place[i], name, path);

        if (code < 0)
            return code;
        if (code == 0)
            continue;
        if (seen++ > 0)
            return kvshm__fail(KVSHM_E_CONFLICT,
                               "%s and %s both exist; set KVSHM_DIR to the directory of the one "
                               "that is meant, or remove the other so",
                               found->path, path);
        found->place = i;
        memcpy(found->path, path, sizeof(path));
    }
    return seen > 0 ? 0 : not_found(places, name);
}

static int open_failed(const char *path, int code)
{
    return kvshm__fail(code, "%s: %s", path, kvshm_strerror(code));
}

static int open_denied(const char *path, const struct stat *status, bool writing)
{
    return kvshm__fail(-EACCES, "%s: %s; it is of user %u and group %u, mode 0%03o%s", path,
                       kvshm_strerror(-EACCES), (unsigned)status->st_uid, (unsigned)status->st_gid,
                       (unsigned)status->st_mode & 07777,
                       writing ? "; to read and write is asked for, KVSHM_RDONLY asks for less"
                               : "");
}

static int check_kind(const char *path, const struct stat *status)
{
    if (S_ISREG(status->st_mode))
        return 0;
    if (S_ISLNK(status->st_mode))
        return kvshm__fail(-ELOOP, "%s is a symbolic link, and none is followed", path);
    return kvshm__fail(KVSHM_E_FORMAT, "%s is no regular file", path);
}

int kvshm__place_open(const struct kvshm__place_found *found, bool writing, int *fd)
{
    struct stat status;
    int code = kvshm__sys.fstatat(AT_FDCWD, found->path, &status, AT_SYMLINK_NOFOLLOW);

    *fd = -1;
    if (code < 0)
        return open_failed(found->path, code);
    code = check_kind(found->path, &status);
    if (code < 0)
        return code;
    kvshm__fork_hold();
    code = kvshm__sys.open(found->path,
                           (writing ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0);
    if (code >= 0)
        *fd = code;
    kvshm__fork_let();
    if (code == -EACCES)
        return open_denied(found->path, &status, writing);
    if (code < 0)
        return open_failed(found->path, code);
    code = kvshm__sys.fstat(*fd, &status);
    if (code < 0)
        return open_failed(found->path, code);
    return check_kind(found->path, &status);
}

int kvshm__place_remove(int dir, const char *name, int fd)
{
    struct stat named, opened;
    int code = kvshm__sys.fstat(fd, &opened);

    if (code == 0)
        code = kvshm__sys.fstatat(dir, name, &named, AT_SYMLINK_NOFOLLOW);
    if (code == 0 && (named.st_dev != opened.st_dev || named.st_ino != opened.st_ino))
        return kvshm__fail(KVSHM_E_UNLINKED, "\"%s\" names another file now; nothing was removed",
                           name);
    if (code == 0)
        code = kvshm__sys.unlinkat(dir, name);
    return code == 0 ? 0 : kvshm__fail(code, "\"%s\": %s", name, kvshm_strerror(code));
}

/* ---- List -------------------------------------------------------------------------------------------- */

/* Does a file of this name in dir begin as an arena does? What cannot be opened does not. */
static bool is_arena(int dir, const char *name)
{
    char magic[sizeof(((struct kvshm_static *)0)->magic)];
    struct stat status;
    bool is = false;
    int fd;

    if (kvshm__sys.fstatat(dir, name, &status, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(status.st_mode))
        return false;
    fd = kvshm__sys.openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return false;
    if (kvshm__sys.pread(fd, magic, sizeof(magic), 0) == (int)sizeof(magic))
        is = memcmp(magic, KVSHM__MAGIC, sizeof(magic)) == 0;
    kvshm__sys.close(fd);
    return is;
}

static int show(int dir, const char *place, const char *name, kvshm_name_fn fn, void *arg)
{
    char path[KVSHM__PATH_BYTES];

    if (!kvshm__name_valid(name) || !is_arena(dir, name))
        return 0;
    snprintf(path, sizeof(path), "%s/%s", place, name);
    return fn(name, path, arg);
}

static int list_dir(int dir, const char *place, kvshm_name_fn fn, void *arg)
{
    char buffer[4096] __attribute__((aligned(8)));
    int code = 0;

    while (code == 0) {
        int bytes = kvshm__sys.dir_read(dir, buffer, sizeof(buffer));

        if (bytes == 0)
            return 0;
        if (bytes < 0)
            return kvshm__fail(bytes, "directory %s: %s", place, kvshm_strerror(bytes));
        for (int at = 0; code == 0 && at < bytes;) {
            const struct dirent64 *entry = (const struct dirent64 *)(buffer + at);

            at += entry->d_reclen;
            code = show(dir, place, entry->d_name, fn, arg);
        }
    }
    return code;
}

int kvshm__place_list(const struct kvshm__places *places, kvshm_name_fn fn, void *arg)
{
    int code = 0;

    for (unsigned i = 0; code == 0 && i < places->count; i++) {
        int dir;

        if (places->place[i].closed)
            continue;
        code = open_dir(places->place[i].path, &dir);
        if (code == 0) {
            code = list_dir(dir, places->place[i].path, fn, arg);
            kvshm__sys.close(dir);
        }
    }
    return code;
}
