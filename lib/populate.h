/* SPDX-License-Identifier: Apache-2.0 */
/*
 * populate.h - takes the memory of a segment.
 */
#ifndef KVSHM_POPULATE_H
#define KVSHM_POPULATE_H

#include "plan.h"

struct kvshm__populate {
    int fd;                        /* of an empty file, open for reading and writing */
    const struct kvshm__plan *plan;
    const char *path;              /* for messages */
    uint32_t numa_asked;
    bool transparent;              /* ask for hugepages of plan->page_size; how many there are is not looked at */
    uint32_t numa;                 /* had: enum kvshm_numa, or KVSHM_NUMA_NODE(n) */
};

/*
 * Give the file its size and all its memory, by child processes; those of a file in memory touch it too. Blocks. 0;
 * -ENOSPC, -ENOMEM (a child was killed, or could not be made), -EINVAL, -EOPNOTSUPP, -EPERM (config.numa), -errno,
 * with a message; what the file has got by then goes with it. No signal, handler or child of the host is touched.
 */
int kvshm__populate(struct kvshm__populate *request);

/* While memory is taken: what was done so far, of all, at least each 20 ms. For the tools; NULL: nobody looks. */
extern void (*kvshm__populate_watch)(uint64_t done_bytes, uint64_t all_bytes);

#endif /* KVSHM_POPULATE_H */
