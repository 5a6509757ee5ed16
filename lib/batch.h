/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch.h - some pages at once between frames and slots: chosen and settled under the writer lock (spill.h, slots.h),
 * transferred without it. No threads; one call of writing or reading at a time, erasing beside it from any thread.
 */
#ifndef KVSHM_BATCH_H
#define KVSHM_BATCH_H

#include <pthread.h>

#include "handle.h"
#include "ring.h"
#include "spill_file.h"

#define KVSHM__BATCH_MAX 64u

struct kvshm__batch {
    kvshm *kv;
    struct kvshm__spill_file file;
    unsigned max;            /* pages moved at once, at most: no large part of memory */
    struct kvshm__ring *ring; /* made at the first transfer */
    void *headers;
    uint64_t headers_bytes;
    pthread_mutex_t erasing; /* one batch of that at a time; before the writer lock */
};

/* The file is the batch's from now on. */
void kvshm__batch_open(struct kvshm__batch *b, kvshm *kv, const struct kvshm__spill_file *file);

/* The ring goes; the descriptor of the file stays. */
void kvshm__batch_close(struct kvshm__batch *b);

/*
 * Write pages that are in memory alone, those of the oldest first, or any (all). How many were written; -EAGAIN: others
 * are at those that could be, or slots are to be erased first; or -errno.
 */
int kvshm__batch_spill(struct kvshm__batch *b, bool all);

/*
 * Read pages of the chain that ends at record back, from the root on. 0: it is all there; 1: there is more; -EAGAIN:
 * another client is at it; -ENOBUFS: there is no room without dropping what is not in the file yet, which may_drop allows;
 * or -errno.
 */
int kvshm__batch_restore(struct kvshm__batch *b, uint32_t record, uint64_t seq, bool may_drop);

/* Erase some of the doomed slots. How many, or -errno. Any thread. */
int kvshm__batch_erase(struct kvshm__batch *b);

#endif /* KVSHM_BATCH_H */
