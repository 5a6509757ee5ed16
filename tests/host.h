/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.h - settings of the whole host that a test changes: one test at a time, and put back however it ends.
 */
#ifndef KVSHM_TESTS_HOST_H
#define KVSHM_TESTS_HOST_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Wait until no other test has changed settings, and keep the others out until host_give(), or the end of this process,
 * however it comes: a child of it then puts the settings back as they are now. false: this process may not change them.
 */
bool host_take(void);
void host_give(void);

/* In the pool of hugepages of so many KiB, how many are free and promised to nobody; UINT64_MAX: no such pool. */
uint64_t host_pool_free(unsigned page_kib);

/* How many pages it has, with those that the system may add when asked. */
uint64_t host_pool_all(unsigned page_kib);

/* Make the free ones so many, in the time of host_take(). How many it became: the system may give less. */
uint64_t host_pool_set(unsigned page_kib, uint64_t pages);

/* How many more the system may add when asked, also in that time. */
void host_pool_overcommit(unsigned page_kib, uint64_t pages);

/*
 * For a child of ts_fork(): a mount namespace of its own in which /dev/shm is a new tmpfs with these options, no
 * hugetlbfs is mounted, and KVSHM_DIR is not set.
 */
void host_alone(const char *options);

#endif /* KVSHM_TESTS_HOST_H */
