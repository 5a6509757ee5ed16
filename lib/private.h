/* SPDX-License-Identifier: Apache-2.0 */
/*
 * private.h - the process's own memory: handles, bitmaps, what is allocated for a reservation.
 */
#ifndef KVSHM_PRIVATE_H
#define KVSHM_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Zeroed memory, aligned to a cache line; NULL if there is none. size may be 0 (then it may not be read). Large
 * memory is not touched, so that it costs nothing before it is used. Any thread.
 */
void *kvshm__private_alloc(size_t size) __attribute__((malloc));

/* Give it back; memory may be NULL. Any thread, also in a forked child. */
void kvshm__private_free(void *memory);

/* Bytes asked for and not given back, of all handles together. */
uint64_t kvshm__private_bytes(void);

/* The number of jemalloc's arena that they are in; -1: of the C library, or of whichever arena jemalloc chose. */
int64_t kvshm__private_arena(void);

#endif /* KVSHM_PRIVATE_H */
