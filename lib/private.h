/* SPDX-License-Identifier: Apache-2.0 */
/*
 * private.h - the process's own memory: handles, bitmaps, what is allocated for a reservation.
 */
#ifndef KVSHM_PRIVATE_H
#define KVSHM_PRIVATE_H

#include <stddef.h>

/*
 * Zeroed memory, aligned to a cache line; NULL if there is none. size may be 0 (then it may not be read). Large
 * memory is not touched, so that it costs nothing before it is used. Any thread.
 */
void *kvshm__private_alloc(size_t size) __attribute__((malloc));

/* Give it back; memory may be NULL. Any thread, also in a forked child. */
void kvshm__private_free(void *memory);

#endif /* KVSHM_PRIVATE_H */
