/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.h - what a spill file holds becomes the pages of a new arena, all of them in the file alone.
 */
#ifndef KVSHM_LOAD_H
#define KVSHM_LOAD_H

#include "handle.h"
#include "spill_file.h"

/*
 * The arena is new and nobody else's. Reads the table of slot headers once, and no payload. Kept is what can be reached
 * from a root, of the file's largest epoch; token pages of equal identity become one. 0, or -errno with a message.
 */
int kvshm__load(kvshm *kv, const struct kvshm__spill_file *file);

#endif /* KVSHM_LOAD_H */
