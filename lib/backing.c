/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backing.c - what an arena is made of: the ways there are here, the best first, and why not a better one.
 *
 * A way is a backing and the place where it is to be had: of the mounts of hugetlbfs with pages of one size, the one that
 * may be written and has most room; for all else the last place, which is KVSHM_DIR or the POSIX shared-memory
 * directory. The order is that of the sizes of pages: 1 GiB and 2 MiB of hugetlbfs, transparent hugepages of a tmpfs,
 * small pages. `auto` tries one after the other; a backing asked for by name is the only way.
 *
 * Invariants
 * B1  What is refused is told once, with numbers: as the error, if it was asked for by name or nothing else is left, and
 *     for `auto` in the reason, which the header keeps.
 * B2  Nothing is assumed. Pages of a file of hugetlbfs are what that mount has; transparent hugepages are counted where
 *     they are mapped, after all of them were taken. By name they are all there or refused; `auto` takes half of
 *     them, and says how many.
 * B3  `auto` makes no arena of hugepages that would have fewer than PAGES_MIN of them: rounding up to whole pages, for
 *     the tables and for the frames, would take too large a part of it.
 *
 * The numbers of a pool are looked at first, since taking pages takes long and may be in vain; they decide nothing that
 * the taking itself would not. Pages that a mount keeps for itself (min_size=) are in no number, so such a mount is
 * not refused beforehand.
 */
#include "backing.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "atomics.h"
#include "lines.h"
#include "message.h"
#include "mounts.h"
#include "sys.h"

#define POOL_DIR      "/sys/kernel/mm/hugepages"
#define THP_SIZE_PATH "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"
#define SMAPS_PATH    "/proc/self/smaps"
#define SIZE_2M       (UINT32_C(1) << 21)
#define SIZE_1G       (UINT32_C(1) << 30)
#define ALIGN_MIN     (UINT64_C(1) << 21)
#define PAGES_MIN     8
#define WHY_BYTES     256
#define REMEDY_BYTES  192
#define CUT           "..."

const char *kvshm__backing_word(uint32_t backing)
{
    static const char *const words[] = {
        [KVSHM_BACKING_AUTO] = "auto",
        [KVSHM_BACKING_SMALL] = "small",
        [KVSHM_BACKING_THP] = "thp",
        [KVSHM_BACKING_HUGETLB_2M] = "hugetlb-2m",
        [KVSHM_BACKING_HUGETLB_1G] = "hugetlb-1g",
    };

    return backing < sizeof(words) / sizeof(words[0]) ? words[backing] : "unknown";
}

static uint32_t system_page_size(void)
{
    long size = sysconf(_SC_PAGESIZE);

    return size > 4096 ? (uint32_t)size : 4096;
}

/* As the options of a mount have it: "2M". */
static const char *size_word(uint32_t page_size)
{
    return page_size == SIZE_1G ? "1G" : "2M";
}

/* ---- Reasons ----------------------------------------------------------------------------------------- */

/* B1: append "word: why" to the reason; what does not fit is cut off. */
static void note(struct kvshm__ways *ways, uint32_t backing, const char *why)
{
    size_t length = strlen(ways->reason), room = sizeof(ways->reason) - length;

    if (ways->asked != KVSHM_BACKING_AUTO)
        return;
    if ((size_t)snprintf(ways->reason + length, room, "%s%s: %s", length > 0 ? "; " : "",
                         kvshm__backing_word(backing), why) >= room)
        memcpy(ways->reason + sizeof(ways->reason) - sizeof(CUT), CUT, sizeof(CUT));
}

static int refuse(struct kvshm__ways *ways, uint32_t backing, int code, const char *remedy,
                  const char *why, ...) __attribute__((format(printf, 5, 6)));

/* Note it, say it, and answer code. */
static int refuse(struct kvshm__ways *ways, uint32_t backing, int code, const char *remedy,
                  const char *why, ...)
{
    char text[WHY_BYTES];
    va_list args;

    va_start(args, why);
    vsnprintf(text, sizeof(text), why, args);
    va_end(args);
    note(ways, backing, text);
    ways->noted = true;
    return kvshm__fail(code, "backing %s: %s; %s", kvshm__backing_word(backing), text, remedy);
}

bool kvshm__backing_next(struct kvshm__ways *ways, unsigned i, int code)
{
    bool noted = ways->noted;

    ways->noted = false;
    if (i + 1 == ways->count)
        return false;
    if (!noted)
        note(ways, ways->way[i].backing,
             code == -EINVAL ? "too little for such pages" : kvshm_strerror(code));
    return true;
}

/* ---- Pools and mounts -------------------------------------------------------------------------------- */

struct pool {
    uint64_t all;  /* pages, with those that the system may add when asked */
    uint64_t free; /* and promised to nobody */
    uint64_t configured;
};

static int pool_number(uint32_t page_size, const char *name, uint64_t *value)
{
    char path[128];

    snprintf(path, sizeof(path), POOL_DIR "/hugepages-%ukB/%s_hugepages", page_size / 1024, name);
    return kvshm__lines_number(path, value);
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static int look_at_pool(uint32_t page_size, struct pool *pool)
{
    uint64_t all, free_pages, promised, surplus, surplus_max;
    int code = pool_number(page_size, "nr", &all);

    if (code == 0)
        code = pool_number(page_size, "free", &free_pages);
    if (code == 0)
        code = pool_number(page_size, "resv", &promised);
    if (code == 0)
        code = pool_number(page_size, "surplus", &surplus);
    if (code == 0)
        code = pool_number(page_size, "nr_overcommit", &surplus_max);
    if (code < 0)
        return code;
    pool->configured = less(all, surplus);
    pool->all = pool->configured + surplus_max;
    pool->free = less(free_pages, promised) + less(surplus_max, surplus);
    return 0;
}

/* A place as a site of hugepages. */
struct site {
    bool hugetlbfs, tmpfs;
    uint64_t page_size;
    uint64_t pages, pages_free; /* of the file system: UINT64_MAX: it knows no limit */
};

static int look_at_site(int dir, struct site *site)
{
    struct statfs status;
    int code = kvshm__sys.fstatfs(dir, &status);

    memset(site, 0, sizeof(*site));
    if (code < 0)
        return code;
    site->hugetlbfs = status.f_type == HUGETLBFS_MAGIC;
    site->tmpfs = status.f_type == TMPFS_MAGIC;
    site->page_size = (uint64_t)status.f_bsize;
    site->pages = site->pages_free = UINT64_MAX;
    if (status.f_blocks != 0 && status.f_blocks < (UINT64_MAX >> 12)) {
        site->pages = status.f_blocks;
        site->pages_free = status.f_bavail;
    }
    return 0;
}

struct wanted_mount {
    dev_t device;
    bool keeps; /* has min_size= */
};

static int look_for_keeps(const struct kvshm__mount *mount, void *arg)
{
    struct wanted_mount *wanted = arg;
    char value[32];

    if (mount->device != wanted->device)
        return 0;
    wanted->keeps = kvshm__mounts_option(mount->options, "min_size", value, sizeof(value));
    return 1;
}

/* Does the mount keep pages of the pool for itself? */
static bool keeps_pages(int dir)
{
    struct wanted_mount wanted = {0};
    struct stat status;

    if (kvshm__sys.fstat(dir, &status) < 0)
        return false;
    wanted.device = status.st_dev;
    return kvshm__mounts_each(look_for_keeps, &wanted) == 1 && wanted.keeps;
}

uint32_t kvshm__backing_thp_size(void)
{
    uint64_t size;

    if (kvshm__lines_number(THP_SIZE_PATH, &size) < 0 || size < system_page_size() ||
        size > SIZE_1G || (size & (size - 1)) != 0)
        return 0;
    return (uint32_t)size;
}

/* ---- Ways -------------------------------------------------------------------------------------------- */

struct looking {
    const struct kvshm__places *places;
    const struct kvshm__turn *turn;
    struct kvshm__ways *ways;
};

static void add_way(struct kvshm__ways *ways, uint32_t backing, uint32_t page_size, unsigned place)
{
    ways->way[ways->count++] = (struct kvshm__way){
        .backing = backing,
        .page_size = page_size,
        .place = place,
        .transparent = backing == KVSHM_BACKING_THP,
    };
}

static int no_permission(const struct looking *l, uint32_t backing, unsigned place, int code)
{
    const char *path = l->places->place[place].path;
    char remedy[REMEDY_BYTES];
    struct stat status = {0};

    if (code == -EROFS) {
        snprintf(remedy, sizeof(remedy), "mount -o remount,rw %.100s", path);
        return refuse(l->ways, backing, code, remedy, "%.100s is mounted read-only", path);
    }
    kvshm__sys.fstatat(AT_FDCWD, path, &status, 0);
    snprintf(remedy, sizeof(remedy), "chmod 1777 %.100s, or mount it with mode= and uid=", path);
    return refuse(l->ways, backing, -EACCES, remedy,
                  "user %u may not write %.100s (mode 0%o of user %u)", kvshm__sys.uid(), path,
                  (unsigned)status.st_mode & 07777, (unsigned)status.st_uid);
}

static int no_mount(const struct looking *l, uint32_t backing, uint32_t page_size)
{
    char remedy[REMEDY_BYTES];

    if (l->places->named)
        return refuse(l->ways, backing, -ENODEV, "unset it, or set it to such a mount",
                      "KVSHM_DIR is no hugetlbfs of %s", size_word(page_size));
    snprintf(remedy, sizeof(remedy),
             "mkdir -p /dev/hugepages-%s; mount -t hugetlbfs -o pagesize=%s none /dev/hugepages-%s",
             size_word(page_size), size_word(page_size), size_word(page_size));
    return refuse(l->ways, backing, -ENODEV, remedy, "no hugetlbfs of %s mounted",
                  size_word(page_size));
}

/* Of the mounts with such pages, the one that may be written and has most room. */
static int add_hugetlb(const struct looking *l, uint32_t backing, uint32_t page_size)
{
    unsigned best = UINT32_MAX, denied = UINT32_MAX;
    uint64_t best_free = 0, configured;
    int denied_code = 0;

    if (pool_number(page_size, "nr", &configured) == -ENOENT)
        return refuse(l->ways, backing, -ENODEV,
                      "boot with hugepagesz= and hugepages=, if the processor has them",
                      "this kernel has no pages of %s", size_word(page_size));
    for (unsigned i = 0; i < l->places->count; i++) {
        struct site site = {.hugetlbfs = true, .page_size = l->places->place[i].page_size};
        int code = -EACCES;

        if (!l->places->place[i].closed) {
            if (look_at_site(l->turn->dir[i], &site) < 0)
                continue;
            code = kvshm__sys.may_write(l->turn->dir[i]);
        }
        if (!site.hugetlbfs || site.page_size != page_size)
            continue;
        if (code < 0) {
            denied = i;
            denied_code = code;
        } else if (best == UINT32_MAX || site.pages_free > best_free) {
            best = i;
            best_free = site.pages_free;
        }
    }
    if (best != UINT32_MAX)
        add_way(l->ways, backing, page_size, best);
    else if (denied != UINT32_MAX)
        return no_permission(l, backing, denied, denied_code);
    else
        return no_mount(l, backing, page_size);
    return 0;
}

static int add_thp(const struct looking *l, const struct site *last)
{
    uint32_t size = kvshm__backing_thp_size();

    if (size == 0)
        return refuse(l->ways, KVSHM_BACKING_THP, -ENODEV, "use another backing",
                      "this kernel tells of no transparent hugepages (%s)", THP_SIZE_PATH);
    if (!last->tmpfs)
        return refuse(l->ways, KVSHM_BACKING_THP, -ENODEV,
                      "set KVSHM_DIR to a tmpfs as /dev/shm is one, or ask for another backing",
                      "%.100s is no tmpfs", l->places->place[l->places->count - 1].path);
    add_way(l->ways, KVSHM_BACKING_THP, size, l->places->count - 1);
    return 0;
}

static int add_small(const struct looking *l)
{
    add_way(l->ways, KVSHM_BACKING_SMALL, system_page_size(), l->places->count - 1);
    return 0;
}

/* KVSHM_DIR is a mount of hugetlbfs, where nothing else is to be had. */
static int only_hugetlb(const struct looking *l, const struct site *only)
{
    uint32_t backing = KVSHM_BACKING_HUGETLB_2M, asked = l->ways->asked;
    const char *path = l->places->place[0].path;

    if (only->page_size == SIZE_1G)
        backing = KVSHM_BACKING_HUGETLB_1G;
    else if (only->page_size != SIZE_2M)
        return kvshm__fail(-ENODEV,
                           "KVSHM_DIR is %.100s, a hugetlbfs with pages of %" PRIu64 " bytes; set "
                           "it to one of 2M or 1G",
                           path, only->page_size);
    if (asked != KVSHM_BACKING_AUTO && asked != backing)
        return refuse(l->ways, asked, -ENODEV, "unset it, or ask for that",
                      "KVSHM_DIR is %.100s, where arenas are %s", path,
                      kvshm__backing_word(backing));
    return add_hugetlb(l, backing, (uint32_t)only->page_size);
}

static int add_one(const struct looking *l, uint32_t backing, const struct site *last)
{
    switch (backing) {
    case KVSHM_BACKING_HUGETLB_1G:
        return add_hugetlb(l, backing, SIZE_1G);
    case KVSHM_BACKING_HUGETLB_2M:
        return add_hugetlb(l, backing, SIZE_2M);
    case KVSHM_BACKING_THP:
        return add_thp(l, last);
    default:
        return add_small(l);
    }
}

int kvshm__backing_ways(const struct kvshm__places *places, const struct kvshm__turn *turn,
                        uint32_t asked, struct kvshm__ways *ways)
{
    const struct looking l = {places, turn, ways};
    const char *path = places->place[places->count - 1].path;
    struct site last;
    int code = look_at_site(turn->dir[places->count - 1], &last);

    memset(ways, 0, sizeof(*ways));
    ways->asked = asked;
    if (code < 0)
        return kvshm__fail(code, "directory %s: %s", path, kvshm_strerror(code));
    if (last.hugetlbfs)
        return only_hugetlb(&l, &last);
    if (asked != KVSHM_BACKING_AUTO)
        return add_one(&l, asked, &last);
    for (uint32_t backing = KVSHM_BACKING_HUGETLB_1G; backing >= KVSHM_BACKING_SMALL; backing--)
        add_one(&l, backing, &last);
    ways->noted = false;
    return 0;
}

/* ---- Room -------------------------------------------------------------------------------------------- */

static int pool_too_small(struct kvshm__ways *ways, const struct kvshm__way *way,
                          const struct pool *pool, uint64_t needed)
{
    char remedy[REMEDY_BYTES];

    snprintf(remedy, sizeof(remedy),
             "echo %" PRIu64 " > " POOL_DIR "/hugepages-%ukB/nr_hugepages, or ask for less",
             pool->configured + (needed - pool->free), way->page_size / 1024);
    if (pool->all == 0)
        return refuse(ways, way->backing, -ENOSPC, remedy,
                      "the pool is empty, %" PRIu64 " pages needed", needed);
    return refuse(ways, way->backing, -ENOSPC, remedy,
                  "%" PRIu64 " of %" PRIu64 " pages free, %" PRIu64 " needed", pool->free,
                  pool->all, needed);
}

static int mount_too_small(struct kvshm__ways *ways, const struct kvshm__way *way, const char *path,
                           const struct site *site, uint64_t needed)
{
    char remedy[REMEDY_BYTES];

    snprintf(remedy, sizeof(remedy),
             "mount -t hugetlbfs -o pagesize=%s,size=%" PRIu64 " none DIRECTORY, or ask for less",
             size_word(way->page_size), (site->pages - site->pages_free + needed) * way->page_size);
    return refuse(ways, way->backing, -ENOSPC, remedy,
                  "%.100s has %" PRIu64 " of %" PRIu64 " pages free, %" PRIu64 " needed", path,
                  site->pages_free, site->pages, needed);
}

int kvshm__backing_room(const struct kvshm__places *places, const struct kvshm__turn *turn,
                        struct kvshm__ways *ways, unsigned i, const struct kvshm__plan *plan)
{
    const struct kvshm__way *way = &ways->way[i];
    uint64_t needed = plan->segment_bytes / way->page_size;
    const char *path = places->place[way->place].path;
    int dir = turn->dir[way->place];
    struct site site;
    struct pool pool = {0};
    int code;

    if (i + 1 < ways->count && needed < PAGES_MIN)
        return refuse(ways, way->backing, -ENOSPC, "ask for more, or for this backing by name",
                      "fewer than %d pages", PAGES_MIN);
    if (way->backing != KVSHM_BACKING_HUGETLB_2M && way->backing != KVSHM_BACKING_HUGETLB_1G)
        return 0;
    code = look_at_site(dir, &site);
    if (code == 0 && site.pages_free < needed)
        return mount_too_small(ways, way, path, &site, needed);
    if (code == 0)
        code = look_at_pool(way->page_size, &pool);
    if (code < 0)
        return kvshm__fail(code, "room for hugepages in %s: %s", path, kvshm_strerror(code));
    if (pool.free < needed && !keeps_pages(dir))
        return pool_too_small(ways, way, &pool, needed);
    return 0;
}

/* ---- Measuring --------------------------------------------------------------------------------------- */

/*
 * Addresses are reserved first, more than needed, and what is too much given back: always some before and some behind,
 * so that the calls are always the same.
 */
int kvshm__backing_map(int fd, uint64_t bytes, uint32_t page_size, int protection, void **out)
{
    const uint64_t align = page_size > ALIGN_MIN ? page_size : ALIGN_MIN;
    const uint64_t reserved = bytes + 2 * align;
    uintptr_t whole, first;
    void *address;
    int code = kvshm__sys.map(reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                              &address);

    if (code < 0)
        return code;
    whole = (uintptr_t)address;
    first = (whole & ~(uintptr_t)(align - 1)) + align;
    code = kvshm__sys.map_at((void *)first, bytes, protection, MAP_SHARED, fd);
    if (code < 0) {
        kvshm__sys.unmap(address, reserved);
        return code;
    }
    kvshm__sys.unmap(address, first - whole);
    kvshm__sys.unmap((void *)(first + bytes), whole + reserved - (first + bytes));
    *out = (void *)first;
    return 0;
}

/* How much of the mapping that begins at address stands on large pages, as the kernel says. */
static int read_smaps(const void *address, uint64_t *bytes)
{
    struct kvshm__lines lines;
    char begin[32], *line;
    bool inside = false, found = false;
    int length = snprintf(begin, sizeof(begin), "%lx-", (unsigned long)(uintptr_t)address);
    int code = kvshm__lines_open(&lines, SMAPS_PATH);

    if (code < 0)
        return code;
    while (!found && (code = kvshm__lines_next(&lines, &line)) == 1) {
        if (!inside)
            inside = strncmp(line, begin, (size_t)length) == 0;
        else
            found = sscanf(line, "ShmemPmdMapped: %" SCNu64 " kB", bytes) == 1;
    }
    kvshm__lines_close(&lines);
    if (code < 0)
        return code;
    *bytes *= 1024;
    return found ? 0 : -ENODATA;
}

static int count_huge(int fd, const struct kvshm__plan *plan, uint64_t *pages)
{
    uint64_t bytes = 0;
    void *address;
    int code = kvshm__backing_map(fd, plan->segment_bytes, plan->page_size, PROT_READ, &address);

    if (code < 0)
        return code;
    for (uint64_t at = 0; at < plan->segment_bytes; at += plan->page_size)
        KVSHM__LOAD((kvshm_a64 *)((uintptr_t)address + at));
    code = read_smaps(address, &bytes);
    kvshm__sys.unmap(address, plan->segment_bytes);
    *pages = bytes / plan->page_size;
    return code;
}

int kvshm__backing_measure(struct kvshm__ways *ways, unsigned i, int fd,
                           const struct kvshm__plan *plan)
{
    const struct kvshm__way *way = &ways->way[i];
    uint64_t had, all = plan->segment_bytes / plan->page_size;
    char why[WHY_BYTES];
    int code;

    if (!way->transparent)
        return 0;
    code = count_huge(fd, plan, &had);
    if (code < 0)
        return kvshm__fail(code, "counting transparent hugepages in " SMAPS_PATH ": %s",
                           kvshm_strerror(code));
    if (had >= all)
        return 0;
    snprintf(why, sizeof(why), "%" PRIu64 " of %" PRIu64 " hugepages had", had, all);
    if (ways->asked == KVSHM_BACKING_AUTO && had >= all / 2) {
        note(ways, way->backing, why);
        return 0;
    }
    return refuse(ways, way->backing, -ENOMEM,
                  "mount the tmpfs with huge=advise, free memory and echo 1 > "
                  "/proc/sys/vm/compact_memory, or ask for auto",
                  "%s", why);
}
