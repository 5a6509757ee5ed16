/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numa.h - on which nodes the memory of a segment is.
 */
#ifndef KVSHM_NUMA_H
#define KVSHM_NUMA_H

#include <stdbool.h>

#include "atomics.h"
#include "kvshm.h"

#define KVSHM__NODES_MAX   1024
#define KVSHM__NODES_WORDS (KVSHM__NODES_MAX / 64)

/* A policy that was set for a file. */
struct kvshm__numa {
    uint32_t asked; /* enum kvshm_numa, or KVSHM_NUMA_NODE(n) */
    uint32_t set;   /* the same, never KVSHM_NUMA_AUTO */
    uint64_t nodes[KVSHM__NODES_WORDS]; /* of which this process may have memory */
};

/*
 * Set the policy for all memory that the file fd will have, of so many bytes; shared memory keeps it with the file. path
 * is for messages. 0; -EINVAL: that node is none to have memory of; -EOPNOTSUPP: the file is on a disk, or the system
 * has no policies; -EPERM: it refuses them; -errno. KVSHM_NUMA_AUTO asks for nothing that could fail.
 */
int kvshm__numa_set(int fd, uint64_t bytes, bool in_memory, uint32_t asked, const char *path,
                    struct kvshm__numa *numa);

/* Count some of the pages from base on, which this process has touched, in counts[node]. No message, no lock. */
void kvshm__numa_count(const void *base, uint64_t bytes, uint64_t page_size,
                       kvshm_a64 counts[KVSHM__NODES_MAX]);

/* What was had: the policy set, or KVSHM_NUMA_MIXED if the counted pages are elsewhere. */
uint32_t kvshm__numa_had(const struct kvshm__numa *numa, const kvshm_a64 counts[KVSHM__NODES_MAX]);

/* Is it a value of config.numa (asked) or of info.numa? */
bool kvshm__numa_valid(uint32_t value, bool asked);

#endif /* KVSHM_NUMA_H */
