/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backing.h - what an arena is made of: the ways there are here, the best first, and why not a better one.
 */
#ifndef KVSHM_BACKING_H
#define KVSHM_BACKING_H

#include "place.h"
#include "plan.h"

#define KVSHM__WAYS_MAX 4

/* A way to make a segment. */
struct kvshm__way {
    uint32_t backing;   /* enum kvshm_backing */
    uint32_t page_size; /* of the plan */
    unsigned place;     /* where */
    bool transparent;   /* its hugepages have to be asked for, and then counted */
};

/* The ways that may serve, best first, and what has been said of those that do not. */
struct kvshm__ways {
    unsigned count;
    struct kvshm__way way[KVSHM__WAYS_MAX];
    uint32_t asked; /* enum kvshm_backing */
    bool noted;     /* why the last one failed stands in the reason already */
    char reason[sizeof(((struct kvshm_static *)0)->backing_reason)];
};

/* "auto", "small", "thp", "hugetlb-2m", "hugetlb-1g"; "unknown". */
const char *kvshm__backing_word(uint32_t backing);

/* The size of transparent hugepages; 0: this kernel has none. */
uint32_t kvshm__backing_thp_size(void);

/*
 * The ways to make what is asked for, in the turn. 0, and at least one; if a backing was asked for by name that cannot be
 * had here: -ENODEV (no such pages, or no mount of them), -EACCES, -errno.
 */
int kvshm__backing_ways(const struct kvshm__places *places, const struct kvshm__turn *turn,
                        uint32_t asked, struct kvshm__ways *ways);

/*
 * Before anything is taken: is there room for the plan in the i-th way's pool of hugepages and its mount? 0; -ENOSPC with
 * the numbers and the command that would help. Of what is to be had otherwise, the taking tells.
 */
int kvshm__backing_room(const struct kvshm__places *places, const struct kvshm__turn *turn,
                        struct kvshm__ways *ways, unsigned i, const struct kvshm__plan *plan);

/*
 * After everything was taken: how many of the transparent hugepages are there? 0: enough, and what is missing stands in
 * the reason; -ENOMEM: too few; -errno.
 */
int kvshm__backing_measure(struct kvshm__ways *ways, unsigned i, int fd,
                           const struct kvshm__plan *plan);

/* The i-th way failed with code: note it in the reason, unless that was done. May the next one be tried? */
bool kvshm__backing_next(struct kvshm__ways *ways, unsigned i, int code);

/*
 * Map bytes of fd, a multiple of page_size, at an address that lets the hugepages of the file be mapped as such. 0 or
 * -errno, without a message; unmapped by kvshm__sys.unmap().
 */
int kvshm__backing_map(int fd, uint64_t bytes, uint32_t page_size, int protection, void **out);

#endif /* KVSHM_BACKING_H */
