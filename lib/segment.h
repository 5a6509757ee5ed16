/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment.h - build a segment without a name, and publish it whole.
 */
#ifndef KVSHM_SEGMENT_H
#define KVSHM_SEGMENT_H

#include "backing.h"
#include "config.h"
#include "place.h"

/* A segment being made. */
struct kvshm__making {
    const char *name;
    uint32_t mode;
    unsigned place;
    char path[KVSHM__PATH_BYTES]; /* where it will be */
    struct kvshm__places places;
    struct kvshm__turn turn;
    struct kvshm__ways ways;
};

/*
 * Wait for the turn, and look for the name. The caller ends the turn with kvshm__segment_end(), published or not; after an
 * error it has ended. 0; -EEXIST; KVSHM_E_CONFLICT, KVSHM_E_BUSY_CREATORS; -errno.
 */
int kvshm__segment_begin(struct kvshm__making *making, const char *name);

/*
 * Build the segment: *fd is open for reading and writing on a file without a name that holds a valid arena, nobody
 * attached. *fd may stand in a handle of the fork list; it is -1 after an error.
 *
 * 0; -ENOSPC, -EFBIG with numbers and remedy; -EINVAL (does not fit); what backing.h says of a backing that is not to be
 * had; -errno.
 */
int kvshm__segment_build(struct kvshm__making *making, const struct kvshm__config *config, bool hardware_clock, int *fd);

/* Give it its mode and its name. 0; -EEXIST: someone who takes no turns was faster; -errno. */
int kvshm__segment_publish(struct kvshm__making *making, int fd);

/* End the turn. */
void kvshm__segment_end(struct kvshm__making *making);

/* A second open description of fd's file, into *out, by path if that names the same file, else through /proc. */
int kvshm__segment_reopen(int fd, const char *path, int *out);

#endif /* KVSHM_SEGMENT_H */
