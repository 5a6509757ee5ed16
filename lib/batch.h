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
#include "spill.h"
#include "spill_file.h"

#define KVSHM__BATCH_MAX 64u

struct kvshm__batch {
    kvshm *kv;
    struct kvshm__spill_file file;
    unsigned max;            /* pages moved at once, at most: no large part of memory */
    struct kvshm__ring *ring; /* made at the first transfer */
    void *headers;
    uint64_t headers_bytes;
    int failed;
    pthread_mutex_t erasing; /* one batch of that at a time; before the writer lock */
};

/* The file is the batch's from now on. */
void kvshm__batch_open(struct kvshm__batch *b, kvshm *kv, const struct kvshm__spill_file *file);

/* The ring goes, in the thread that used it; it is made anew when it is needed. */
void kvshm__batch_rest(struct kvshm__batch *b);

/* All goes but the descriptor of the file. */
void kvshm__batch_close(struct kvshm__batch *b);

/*
 * Write pages that are in memory alone (kvshm__spill_pick). How many were written; -EAGAIN: others are at those that could
 * be, or slots are to be erased first; or -errno. failed is what kept some of them from being written, or 0.
 */
int kvshm__batch_spill(struct kvshm__batch *b, enum kvshm__spill_zeal zeal);

/*
 * Read pages of the chain that ends at record back, from the root on. 0: it is all there; 1: there is more; -EAGAIN:
 * another client is at it; -ENOBUFS: there is no room without dropping what is not in the file yet, which may_drop allows;
 * or -errno.
 */
int kvshm__batch_restore(struct kvshm__batch *b, uint32_t record, uint64_t seq, bool may_drop);

/* Erase some of the doomed slots. How many; or, if none could be, -errno. Any thread. */
int kvshm__batch_erase(struct kvshm__batch *b);

/*
 * The header of a page that is in the file says that an entry ends there, or does not, as it is in memory; 0 also if the
 * page is not there any more. -EAGAIN: another client is at it; or -errno. Any thread.
 */
int kvshm__batch_rename(struct kvshm__batch *b, uint32_t record, uint64_t seq);

#endif /* KVSHM_BATCH_H */
