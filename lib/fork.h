/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork.h - what happens to handles in a forked child.
 */
#ifndef KVSHM_FORK_H
#define KVSHM_FORK_H

#include "handle.h"

/*
 * Make the handle's fork page and put it in the list of this process, with no descriptors (-1). 0 or -errno. From now
 * on kvshm__forked() can be asked, and a forked child closes what stands in .fd and .quiet_fd.
 */
int kvshm__fork_add(kvshm *kv);

/* Undo it. In a child too. false: the list may still name the handle, so its memory must stay. */
bool kvshm__fork_remove(kvshm *kv);

/*
 * Between these no fork happens in this process: open a descriptor and store it in its handle between them, so that
 * none slips into a child unseen. Nothing that blocks stands between them. They do not nest.
 */
void kvshm__fork_hold(void);
void kvshm__fork_let(void);

/* Close *fd, if it is one, and make it -1, with no fork between. */
void kvshm__fork_close(int *fd);

/* A mapping of the segment: no child has it, no core dump either. 0 or -errno. */
int kvshm__fork_hide(void *address, uint64_t size);

/* 0, or KVSHM_E_FORKED with a message: the handle was made by this process's parent. */
int kvshm__fork_check(const kvshm *kv);

#endif /* KVSHM_FORK_H */
