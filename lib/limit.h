/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit.h - how much memory may be taken here.
 */
#ifndef KVSHM_LIMIT_H
#define KVSHM_LIMIT_H

#include <stddef.h>

#include "plan.h"

/* What memory of a file is, and so which limits hold for it. */
enum kvshm__memory {
    KVSHM__MEMORY_DISK,  /* page cache: it is written out when memory is short */
    KVSHM__MEMORY_PAGES, /* tmpfs: the host's memory, of the memory cgroup of whoever touches it first */
    KVSHM__MEMORY_POOL,  /* hugetlbfs: of the pool of its page size */
};

/* Of the file system that fd is open in. 0 or -errno. */
int kvshm__limit_memory(int fd, enum kvshm__memory *memory);

/*
 * May the plan's bytes be taken for the file fd, which is empty? Read are RLIMIT_FSIZE, the room of the file system, and
 * for what its memory is: the limits of the memory cgroup or of the hugetlb cgroup of this process, and of each one
 * above, as far as they are mounted here; and what memory the system has left. path is for messages.
 *
 * 0; -EFBIG; -ENOSPC: the message names the limit, its value, what is in use of it, what is needed, and a remedy;
 * -errno. What cannot be read (nothing mounted, no permission) is taken for no limit.
 */
int kvshm__limit_check(int fd, const struct kvshm__plan *plan, const char *path);

/* The file system had no room after all: -ENOSPC with its numbers. */
int kvshm__limit_no_room(int fd, const struct kvshm__plan *plan, const char *path);

/* May so many bytes of page tables be made? 0, or -ENOMEM with a message of the same kind; name is for that. */
int kvshm__limit_tables(uint64_t bytes, const char *name);

/* Page tables of one mapping of so many bytes, all of it touched. */
uint64_t kvshm__limit_table_bytes(uint64_t bytes, uint32_t page_size);

/* Is a memory cgroup of this process over the use from which on it is slowed down (memory.high)? Then a sentence in note. */
bool kvshm__limit_note(char *note, size_t size);

#endif /* KVSHM_LIMIT_H */
