/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stress.h - threads of one process on one handle: they read, fill, evict, and release what others have leased.
 *
 * Frames are filled and read by plain stores and loads, every byte. Between a thread that reads and one that fills there is
 * nothing but the arena: those that read take no lock but that of the box in which they hand over leases, which
 * no filling thread opens. So ThreadSanitizer sees every order that the library forgets.
 */
#ifndef KVSHM_TESTS_STRESS_H
#define KVSHM_TESTS_STRESS_H

#include "support.h"

/* What all threads did together. */
struct stress {
    uint64_t hits;
    uint64_t pages_read;
    uint64_t pages_copied;
    uint64_t inserted;     /* entries */
    uint64_t extended;     /* and grown */
    uint64_t given_up;     /* by evict_lru, remove, clear */
    uint64_t handed_over;  /* leases released by another thread than the one that took them */
    uint64_t wrong;        /* bytes */
};

#define STRESS_PATIENCE 1000u

/*
 * A small arena, and threads on one handle until so many entries were inserted and all else happened at least once; or
 * STRESS_PATIENCE times as many were inserted and it did not.
 */
void stress_run(uint64_t entries, struct stress *stress);

#endif /* KVSHM_TESTS_STRESS_H */
