/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.c - the directories where arenas live, and the names in them.
 *
 * A place is a directory and what an arena made in it is backed by. KVSHM_DIR, if set, is the only one; else the POSIX
 * shared-memory directory is. Further kinds of places are further members of struct kvshm__places, best first.
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
#include "sys.h"

#define SHARED_MEMORY_DIR "/dev/shm"
#define TURN_NS           UINT64_C(10000000000)
#define TRY_NS_MIN        UINT64_C(500000)
#define TRY_NS_MAX        UINT64_C(20000000)

static uint32_t system_page_size(void)
{
    long size = sysconf(_SC_PAGESIZE);

    return size > 4096 ? (uint32_t)size : 4096;
}

int kvshm__places_get(struct kvshm__places *places)
{
    const char *dir = secure_getenv("KVSHM_DIR");
    struct kvshm__place *place = &places->place[0];
    size_t length;

    if (dir == NULL || dir[0] == '\0')
        dir = SHARED_MEMORY_DIR;
    length = strlen(dir);
    if (dir[0] != '/')
        return kvshm__fail(-EINVAL, "KVSHM_DIR is \"%.200s\"; set it to an absolute path", dir);
    if (length >= sizeof(place->path))
        return kvshm__fail(-ENAMETOOLONG, "KVSHM_DIR has %zu bytes, at most %zu", length,
                           sizeof(place->path) - 1);
    memcpy(place->path, dir, length + 1);
    place->backing = KVSHM_BACKING_SMALL;
    place->page_size = system_page_size();
    places->count = 1;
    return 0;
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
        const char *path = places->place[turn->count].path;

        code = open_dir(path, &turn->dir[turn->count]);
        if (code == 0)
            code = lock_dir(turn->dir[turn->count++], path, deadline);
    }
    if (code < 0)
        kvshm__turn_end(turn);
    return code;
}

void kvshm__turn_end(struct kvshm__turn *turn)
{
    while (turn->count > 0) {
        int dir = turn->dir[--turn->count];

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
    struct stat status;
    const char *path = places->place[0].path;

    if (kvshm__sys.fstatat(AT_FDCWD, path, &status, 0) == -ENOENT)
        return kvshm__fail(-ENOENT, "directory %s does not exist; create it, or set KVSHM_DIR",
                           path);
    return kvshm__fail(-ENOENT, "no arena \"%s\" in %s; is KVSHM_DIR what its creator has?", name,
                       path);
}

int kvshm__place_find(const struct kvshm__places *places, const char *name,
                      struct kvshm__place_found *found)
{
    char path[KVSHM__PATH_BYTES];
    unsigned seen = 0;

    for (unsigned i = 0; i < places->count; i++) {
        int code = look(&places->place[i], name, path);

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
    if (code == 0)
        code = check_kind(found->path, &status);
    if (code < 0)
        return code < -4095 || code == -ELOOP ? code : open_failed(found->path, code);
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

        code = open_dir(places->place[i].path, &dir);
        if (code == 0) {
            code = list_dir(dir, places->place[i].path, fn, arg);
            kvshm__sys.close(dir);
        }
    }
    return code;
}
