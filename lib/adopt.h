/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adopt.h - whose a spill file is: opened for an arena that is being made, adopted by it, found by those who attach to it.
 */
#ifndef KVSHM_ADOPT_H
#define KVSHM_ADOPT_H

#include "config.h"
#include "handle.h"
#include "spill_file.h"

/* How long the kernel may take to end the transfers of a process that was killed (a second was seen), and some more. */
#define KVSHM__LANDING_NS UINT64_C(5000000000)

/*
 * In the creators' turn, before the arena is made: the file that it will have, made, or with pages of an earlier one; its
 * slots are in the config then. No file is named: nothing. 0, or an error with a message.
 */
int kvshm__adopt_open(struct kvshm__config *config, struct kvshm__spill_file *file);

/* The arena is up, and has no name yet: the file is its own from now on, and what it holds is there. */
int kvshm__adopt(kvshm *kv, const struct kvshm__config *config, struct kvshm__spill_file *file);

/* The arena will not be: the file is given back, and one that was made for it is gone. */
void kvshm__adopt_undo(kvshm *kv, const struct kvshm__config *config, struct kvshm__spill_file *file);

/* Who attaches opens the file that the caller, the environment or the creator names, if it is this arena's. */
int kvshm__adopt_follow(kvshm *kv, const struct kvshm__config *expect, unsigned flags);

#endif /* KVSHM_ADOPT_H */
