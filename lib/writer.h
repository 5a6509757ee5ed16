/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer.h - the writer lock: one 64-bit word that holds its owner's client number.
 *
 * Lock order: kvshm.mutex (private: threads of one handle), then header.lock.word (shared). Nothing blocks under
 * them but the system calls that ask for liveness.
 *
 * Invariants
 * W1  word is 0 or the number of the one client that may write fields marked "lock" (layout.h).
 * W2  word leaves a number only by that client's release, or by a compare-and-swap from it after the kernel said
 *     that the client is not alive. Numbers are never given twice, so the compare cannot hit a successor.
 * W3  Who takes over rebuilds everything derived before anything else (mend.c).
 *
 * The dead wake nobody, so nobody sleeps longer than 10 ms. The futex sees the low half of the word only: two
 * numbers that agree in it cost a sleep of 10 ms, nothing else.
 */
#ifndef KVSHM_WRITER_H
#define KVSHM_WRITER_H

#include "handle.h"

/*
 * Take the lock. 0: own; 1: taken over from the dead, the derived state must be rebuilt; KVSHM_E_STALLED: the
 * owner is alive and has not moved for stall_ms, or had not when we waited last.
 */
int kvshm__writer_acquire(kvshm *kv);

/* Long work shows that its owner moves: call it at each slice, so that waiters do not take it for stopped. */
static inline void kvshm__writer_progress(kvshm *kv)
{
    KVSHM__STORE(&kv->header->lock.progress, KVSHM__LOAD(&kv->header->lock.progress) + 1);
}

/* Give it back and wake one waiter. */
void kvshm__writer_release(kvshm *kv);

#endif /* KVSHM_WRITER_H */
