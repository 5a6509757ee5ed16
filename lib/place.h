/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.h - the directories where arenas live, and the names in them.
 */
#ifndef KVSHM_PLACE_H
#define KVSHM_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "kvshm.h"

#define KVSHM__PLACES_MAX  24
#define KVSHM__PLACE_BYTES 1024
#define KVSHM__PATH_BYTES  (KVSHM__PLACE_BYTES + KVSHM_NAME_MAX + 2)

struct kvshm__place {
    char path[KVSHM__PLACE_BYTES];
    uint64_t page_size; /* a mount of hugetlbfs: of its pages; else 0 */
    uint64_t device;    /* of a mount of hugetlbfs, and its inode */
    uint64_t inode;
    bool closed; /* it may not be read: no name is looked for in it, no turn taken */
};

/* Their order is the order in which turns are taken, and the same in every process that sees the same places. */
struct kvshm__places {
    unsigned count;
    bool named; /* by KVSHM_DIR: the only one there is */
    struct kvshm__place place[KVSHM__PLACES_MAX];
};

/*
 * KVSHM_DIR if that is set, else all there are. 0; -EINVAL: KVSHM_DIR is no absolute path; -ENAMETOOLONG; -E2BIG: more
 * mounts of hugetlbfs than there is room for.
 */
int kvshm__places_get(struct kvshm__places *places);

/* The turn of a creator or remover: the directories of all places, each locked; -1 for one that is closed. */
struct kvshm__turn {
    unsigned count;
    int dir[KVSHM__PLACES_MAX];
};

/* Wait for the turn, 10 s at most. 0; KVSHM_E_BUSY_CREATORS; -errno, with the directory in the message. */
int kvshm__turn_take(const struct kvshm__places *places, struct kvshm__turn *turn);

/* End it; also of a turn that was not got. */
void kvshm__turn_end(struct kvshm__turn *turn);

/* Where a name was found. */
struct kvshm__place_found {
    unsigned place;
    char path[KVSHM__PATH_BYTES];
};

/* 0; -ENOENT: in no place; KVSHM_E_CONFLICT: in two; -errno. The name is valid. */
int kvshm__place_find(const struct kvshm__places *places, const char *name,
                      struct kvshm__place_found *found);

/*
 * Open what was found into *fd, which a handle of the fork list may own, or *fd becomes -1. Never makes, follows no
 * link, and opens nothing but a regular file. 0; KVSHM_E_FORMAT: no regular file; -ELOOP: a link; -errno.
 */
int kvshm__place_open(const struct kvshm__place_found *found, bool writing, int *fd);

/*
 * Remove a name from the directory dir of a turn, if it still names the file that fd is open on: device and inode are
 * compared. 0; KVSHM_E_UNLINKED: it does not; -errno.
 */
int kvshm__place_remove(int dir, const char *name, int fd);

/* All valid names of arenas; for fn and the answer see kvshm_list(). */
int kvshm__place_list(const struct kvshm__places *places, kvshm_name_fn fn, void *arg);

#endif /* KVSHM_PLACE_H */
