/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spilling.h - a small arena "inside" on a spill file in the test's own folder, for the tests of the second tier
 */
#ifndef KVSHM_TESTS_SPILLING_H
#define KVSHM_TESTS_SPILLING_H

#include "inside.h"

#define SPILLING_FRAMES 64u
#define SPILLING_SLOTS  200u

/* The file; set by spilling_config(). */
extern char spilling_path[300];

/* Lookups wait without a bound; a stopped client is told of after 200 ms. */
struct kvshm_config spilling_config(void);

/* The arena of that config, new on the file. */
kvshm *spilling_start(void);

/* Detach, and remove the arena; the file stays. */
void spilling_end(kvshm *kv);

/* The arena is removed, and made anew on the file. */
kvshm *spilling_restart(kvshm *kv);

/* All entries go to the file, and leave memory. */
void spilling_leave_all(kvshm *kv);

/* What a lookup that neither leases nor waits answers. */
int spilling_peek(kvshm *kv, const struct kvshm_prefix *prefix);

/* It comes with all its bytes. */
void spilling_served(kvshm *kv, const struct kvshm_prefix *prefix);

void spilling_put(kvshm *kv, const struct kvshm_prefix *prefix);

#endif /* KVSHM_TESTS_SPILLING_H */
