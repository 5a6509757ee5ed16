/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit.c - how much memory may be taken here.
 *
 * What is taken beyond the limit of a memory cgroup is answered by SIGKILL, beyond that of a hugetlb cgroup by SIGBUS,
 * and a file longer than RLIMIT_FSIZE by SIGXFSZ; so all of them are read before anything is taken. Others take memory
 * at the same time: what is read here is no promise, and what goes wrong afterwards goes wrong in a child (populate.c).
 *
 * Cgroups
 *
 * /proc/self/cgroup names the group of this process, by controller for version 1 (its line lists the controller), else
 * in the one tree of version 2. /proc/self/mountinfo says where that tree is mounted, and from which of its groups on:
 * a container often sees its own only. The group's limit counts, and the limit of each above it up to that point.
 * Of several mounts the one that shows most is taken.
 *
 * What a memory cgroup has in use counts without the page cache, which is given up before anybody is killed.
 */
#include "limit.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lines.h"
#include "message.h"
#include "mounts.h"
#include "sys.h"

#define CGROUP_PATH   "/proc/self/cgroup"
#define MEMORY_PATH   "/proc/meminfo"
#define DIR_BYTES     1024
#define FILE_BYTES    (DIR_BYTES + 64)
#define NO_LIMIT      (UINT64_C(1) << 62) /* and above: version 1 writes a large number for none */
#define TABLE_BYTES   4096                /* of a page table of 512 entries */
#define TABLE_ENTRIES 512
#define TREE_PART     400 /* a part of this many of a file in memory goes into the tree that finds its pages */
#define SLACK_BYTES   (UINT64_C(1) << 20) /* what the process itself may take meanwhile, and its children */
#define KIB           UINT64_C(1024)

#ifndef HUGETLBFS_MAGIC
#define HUGETLBFS_MAGIC 0x958458f6
#endif

/* The group of this process for a controller, as a directory. */
struct group {
    unsigned version;    /* 1 or 2 */
    char dir[DIR_BYTES]; /* "": not known */
    size_t top;          /* length of the mount point, where dir begins */
};

/* What one group allows. */
struct room {
    char limit_path[FILE_BYTES];
    char usage_path[FILE_BYTES];
    uint64_t limit;
    uint64_t usage;
    uint64_t cache; /* of usage, what is given up when it is needed */
};

/* ---- Which cgroup ------------------------------------------------------------------------------------ */

/* Is word one of those in list, with commas between them? */
static bool listed(const char *list, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = list; *at != '\0'; at += strcspn(at, ","), at += *at == ',') {
        if (strcspn(at, ",") == length && memcmp(at, word, length) == 0)
            return true;
    }
    return false;
}

/* The name of this process's group in its tree; a line is NUMBER:CONTROLLERS:NAME. */
static int name_of(const char *controller, unsigned *version, char name[DIR_BYTES])
{
    struct kvshm__lines lines;
    char *line;
    int code = kvshm__lines_open(&lines, CGROUP_PATH);

    if (code < 0)
        return code;
    *version = 0;
    while (*version != 1 && (code = kvshm__lines_next(&lines, &line)) == 1) {
        char *list = strchr(line, ':');
        char *path = list != NULL ? strchr(list + 1, ':') : NULL;

        if (path == NULL || strlen(path + 1) >= DIR_BYTES)
            continue;
        *path = '\0';
        if (listed(list + 1, controller))
            *version = 1;
        else if (list[1] == '\0' && strncmp(line, "0:", 2) == 0)
            *version = 2;
        else
            continue;
        snprintf(name, DIR_BYTES, "%s", path + 1);
    }
    kvshm__lines_close(&lines);
    return *version == 0 ? -ENOENT : 0;
}

/* What is left of name below root: "" or "/...". NULL: it is not below. */
static const char *below(const char *name, const char *root)
{
    size_t length = strcmp(root, "/") == 0 ? 0 : strlen(root);

    if (strncmp(name, root, length) != 0 || strncmp(name, "/..", 3) == 0)
        return NULL;
    name += length;
    if (*name != '\0' && *name != '/')
        return NULL;
    return strcmp(name, "/") == 0 ? "" : name;
}

/* The mount that shows most of the tree that is looked for. */
struct search {
    const char *controller;
    const char *name;
    size_t root_length; /* of what group->dir is from */
    struct group *group;
};

static int look_at_mount(const struct kvshm__mount *mount, void *arg)
{
    struct search *search = arg;
    struct group *group = search->group;
    const char *rest = below(search->name, mount->root);
    size_t length = strlen(mount->root);

    if (strcmp(mount->type, group->version == 2 ? "cgroup2" : "cgroup") != 0 || rest == NULL)
        return 0;
    if (group->version == 1 && !listed(mount->options, search->controller))
        return 0;
    if (length >= search->root_length || strlen(mount->point) + strlen(rest) >= DIR_BYTES)
        return 0;
    search->root_length = length;
    group->top = strlen(mount->point);
    snprintf(group->dir, sizeof(group->dir), "%s%s", mount->point, rest);
    return 0;
}

static bool find_group(const char *controller, struct group *group)
{
    char name[DIR_BYTES];
    struct search search = {controller, name, SIZE_MAX, group};

    group->dir[0] = '\0';
    if (name_of(controller, &group->version, name) < 0 ||
        kvshm__mounts_each(look_at_mount, &search) < 0)
        return false;
    return group->dir[0] != '\0';
}

/* The group above, if it is to be seen. */
static bool go_up(struct group *group)
{
    char *last = strrchr(group->dir, '/');

    if (strlen(group->dir) <= group->top || last == NULL)
        return false;
    *last = '\0';
    return true;
}

/* ---- What a cgroup allows ---------------------------------------------------------------------------- */

/* A limit and its use, of a group. false: no limit. */
static bool read_room(const struct group *group, const char *limit, const char *usage,
                      struct room *room)
{
    snprintf(room->limit_path, sizeof(room->limit_path), "%s/%s", group->dir, limit);
    snprintf(room->usage_path, sizeof(room->usage_path), "%s/%s", group->dir, usage);
    room->cache = 0;
    return kvshm__lines_number(room->limit_path, &room->limit) == 0 && room->limit < NO_LIMIT &&
           kvshm__lines_number(room->usage_path, &room->usage) == 0;
}

static void read_cache(const struct group *group, struct room *room)
{
    static const char *const names[3][2] = {[1] = {"total_inactive_file", "total_active_file"},
                                            [2] = {"inactive_file", "active_file"}};
    char path[FILE_BYTES];

    snprintf(path, sizeof(path), "%s/memory.stat", group->dir);
    for (unsigned i = 0; i < 2; i++) {
        uint64_t bytes;

        if (kvshm__lines_value(path, names[group->version][i], &bytes) == 0)
            room->cache += bytes;
    }
    if (room->cache > room->usage)
        room->cache = room->usage;
}

static bool memory_room(const struct group *group, struct room *room)
{
    bool limited = group->version == 1 ? read_room(group, "memory.limit_in_bytes",
                                                   "memory.usage_in_bytes", room)
                                       : read_room(group, "memory.max", "memory.current", room);

    if (limited)
        read_cache(group, room);
    return limited;
}

/* kind: "" for what is used, ".rsvd" for what is reserved. */
static bool pool_room(const struct group *group, uint32_t page_size, const char *kind,
                      struct room *room)
{
    const char *const unit = page_size < KIB * KIB ? "KB" : page_size < KIB * KIB * KIB ? "MB" : "GB";
    uint64_t size = page_size < KIB * KIB         ? page_size / KIB
                    : page_size < KIB * KIB * KIB ? page_size / KIB / KIB
                                                  : page_size / KIB / KIB / KIB;
    char limit[64], usage[64];

    snprintf(limit, sizeof(limit), "hugetlb.%" PRIu64 "%s%s.%s", size, unit, kind,
             group->version == 1 ? "limit_in_bytes" : "max");
    snprintf(usage, sizeof(usage), "hugetlb.%" PRIu64 "%s%s.%s", size, unit, kind,
             group->version == 1 ? "usage_in_bytes" : "current");
    return read_room(group, limit, usage, room);
}

static bool fits(const struct room *room, uint64_t needed)
{
    uint64_t used = room->usage - room->cache;

    return used <= room->limit && needed <= room->limit - used;
}

/* The memory cgroups of this process, from its own upwards: the first that has not so much left, in *room. */
static bool memory_group_full(uint64_t needed, struct room *room)
{
    struct group group;

    if (!find_group("memory", &group))
        return false;
    do {
        if (memory_room(&group, room) && !fits(room, needed))
            return true;
    } while (go_up(&group));
    return false;
}

static bool pool_group_full(uint64_t needed, uint32_t page_size, struct room *room)
{
    struct group group;

    if (!find_group("hugetlb", &group))
        return false;
    do {
        if (pool_room(&group, page_size, "", room) && !fits(room, needed))
            return true;
        if (pool_room(&group, page_size, ".rsvd", room) && !fits(room, needed))
            return true;
    } while (go_up(&group));
    return false;
}

/* ---- The file ---------------------------------------------------------------------------------------- */

int kvshm__limit_memory(int fd, enum kvshm__memory *memory)
{
    struct statfs status;
    int code = kvshm__sys.fstatfs(fd, &status);

    if (code < 0)
        return code;
    *memory = status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC ? KVSHM__MEMORY_PAGES
              : (uint64_t)status.f_type == HUGETLBFS_MAGIC                 ? KVSHM__MEMORY_POOL
                                                                           : KVSHM__MEMORY_DISK;
    return 0;
}

/* UINT64_MAX: it knows no limit. */
static int free_bytes_of(int fd, uint64_t *bytes)
{
    struct statvfs status;
    int code = kvshm__sys.fstatvfs(fd, &status);

    if (code == 0)
        *bytes = status.f_blocks == 0 ? UINT64_MAX : (uint64_t)status.f_bavail * status.f_frsize;
    return code;
}

static int no_space(const char *path, const struct kvshm__plan *plan, uint64_t free_bytes)
{
    return kvshm__fail(-ENOSPC,
                       "%s needs %" PRIu64 " bytes for %" PRIu64 " frames, and its file system has "
                       "%" PRIu64
                       " free; ask for less (config.frames, config.memory_bytes), remove "
                       "what is there, or enlarge it",
                       path, plan->segment_bytes, plan->frames, free_bytes);
}

int kvshm__limit_no_room(int fd, const struct kvshm__plan *plan, const char *path)
{
    uint64_t free_bytes = 0;

    free_bytes_of(fd, &free_bytes);
    return no_space(path, plan, free_bytes);
}

static int check_file(int fd, const struct kvshm__plan *plan, const char *path)
{
    uint64_t free_bytes = 0, limit;
    int code = kvshm__sys.file_limit(&limit);

    if (code == 0 && plan->segment_bytes > limit)
        return kvshm__fail(-EFBIG,
                           "%s needs %" PRIu64 " bytes, and RLIMIT_FSIZE is %" PRIu64 "; raise it "
                           "(ulimit -f) or ask for less",
                           path, plan->segment_bytes, limit);
    if (code == 0)
        code = free_bytes_of(fd, &free_bytes);
    if (code < 0)
        return kvshm__fail(code, "%s: %s", path, kvshm_strerror(code));
    return plan->segment_bytes > free_bytes ? no_space(path, plan, free_bytes) : 0;
}

/* ---- Memory ------------------------------------------------------------------------------------------ */

uint64_t kvshm__limit_table_bytes(uint64_t bytes, uint32_t page_size)
{
    uint64_t span = (uint64_t)TABLE_ENTRIES * page_size;

    return (bytes + span - 1) / span * TABLE_BYTES;
}

/* What the creation of a file of so many bytes in memory takes of a memory cgroup, on small pages. */
static uint64_t memory_needed(const struct kvshm__plan *plan)
{
    return plan->segment_bytes +
           kvshm__limit_table_bytes(plan->segment_bytes, (uint32_t)sysconf(_SC_PAGESIZE)) +
           plan->segment_bytes / TREE_PART + SLACK_BYTES;
}

static int group_too_small(int code, const char *path, const char *what, uint64_t needed,
                           const struct room *room)
{
    return kvshm__fail(code,
                       "%s needs %" PRIu64 " bytes %s, and the cgroup's limit is %" PRIu64
                       " (%s), of which %" PRIu64 " are in use and %" PRIu64
                       " of those could be given up; raise that limit (of a container: its memory "
                       "limit), or ask for less (config.frames, config.memory_bytes)",
                       path, needed, what, room->limit, room->limit_path, room->usage, room->cache);
}

static int check_pages(const struct kvshm__plan *plan, const char *path)
{
    uint64_t needed = memory_needed(plan), available, swap = 0;
    struct room room;

    if (memory_group_full(needed, &room))
        return group_too_small(-ENOSPC, path, "with page tables", needed, &room);
    if (kvshm__lines_value(MEMORY_PATH, "MemAvailable:", &available) < 0)
        return 0;
    kvshm__lines_value(MEMORY_PATH, "SwapFree:", &swap);
    available = (available + swap) * KIB;
    if (needed <= available)
        return 0;
    return kvshm__fail(-ENOSPC,
                       "%s needs %" PRIu64 " bytes with page tables, and the system has %" PRIu64
                       " left (MemAvailable and SwapFree of " MEMORY_PATH
                       "); ask for less (config.frames, config.memory_bytes), or stop what uses "
                       "the memory",
                       path, needed, available);
}

static int check_pool(const struct kvshm__plan *plan, const char *path)
{
    struct room room;

    if (!pool_group_full(plan->segment_bytes, plan->page_size, &room))
        return 0;
    return group_too_small(-ENOSPC, path, "of hugepages", plan->segment_bytes, &room);
}

int kvshm__limit_check(int fd, const struct kvshm__plan *plan, const char *path)
{
    enum kvshm__memory memory;
    int code = check_file(fd, plan, path);

    if (code < 0)
        return code;
    code = kvshm__limit_memory(fd, &memory);
    if (code < 0)
        return kvshm__fail(code, "file system of %s: %s", path, kvshm_strerror(code));
    if (memory == KVSHM__MEMORY_PAGES)
        return check_pages(plan, path);
    return memory == KVSHM__MEMORY_POOL ? check_pool(plan, path) : 0;
}

int kvshm__limit_tables(uint64_t bytes, const char *name)
{
    struct room room;

    if (!memory_group_full(bytes + SLACK_BYTES, &room))
        return 0;
    return kvshm__fail(-ENOMEM,
                       "faulting in arena %s (KVSHM_POPULATE) takes %" PRIu64
                       " bytes of page tables, and the cgroup's limit is %" PRIu64
                       " (%s), of which %" PRIu64 " are in use and %" PRIu64
                       " of those could be given up; attach without KVSHM_POPULATE, or raise that "
                       "limit",
                       name, bytes, room.limit, room.limit_path, room.usage, room.cache);
}

bool kvshm__limit_note(char *note, size_t size)
{
    struct group group;
    struct room room;

    if (!find_group("memory", &group) || group.version != 2)
        return false;
    do {
        if (!read_room(&group, "memory.high", "memory.current", &room))
            continue;
        read_cache(&group, &room);
        if (fits(&room, 0))
            continue;
        snprintf(note, size,
                 "%s is %" PRIu64 ", and %" PRIu64 " are in use, %" PRIu64 " of which could be given "
                 "up: the processes of this cgroup are slowed down; raise it",
                 room.limit_path, room.limit, room.usage, room.cache);
        return true;
    } while (go_up(&group));
    return false;
}
