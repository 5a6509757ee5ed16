/* SPDX-License-Identifier: Apache-2.0 */
/*
 * insert.h - reserved frames become the pages of an entry.
 *
 * Under the writer lock, without a pause: pages of the head that were taken away meanwhile are called back, root
 * first; pages of equal identity are used where they are (or called back); the rest is published root to leaf, each
 * by its index word; the entry comes last, by its stamp. A death anywhere leaves a run of pages without an entry,
 * which the rebuild takes away.
 *
 * I1: first all records and places are written, root to leaf, then the owner words of the frames, leaf to root, then
 *     the index words, root to leaf: a page is found when all of it is there.
 * I2: no second page is made of one that is in limbo.
 * I3: with KVSHM_HOLD the lease word of the deepest page is stored before the first owner word changes. With I1's
 *     order it holds every frame whose owner word has changed, at every step: whoever joined us and reads or fills
 *     them by offset keeps them if we die here.
 * I4: until its entry has a stamp, the deepest page so far is pinned (kvshm.pinned1): evictions that make room in
 *     the index do not take it away.
 */
#ifndef KVSHM_INSERT_H
#define KVSHM_INSERT_H

#include "handle.h"

/* kvshm_insert() on a handle that is this process's and writes. */
int kvshm__insert(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *head,
                  struct kvshm_reservation *r, unsigned flags);

#endif /* KVSHM_INSERT_H */
