/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recency.h - which entry was used last, and which is the oldest.
 *
 * A use is one compare-and-swap of the entry's stamp, by readers, from the value seen to the time now. The time is
 * the processor's invariant counter, which all cores of a host share, so no line is shared for it; where there is
 * none, or it is coarser than 10 ns, a counter in the header.
 *
 * (R3) A use is stamped with a time that is read inside its call, behind a fence: what came before the call was over
 * by then. So where calls follow one another their stamps do too, wherever in the call the time is read. A hit reads
 * it before it looks at the index: there the fence waits for nothing that takes long. Of uses of one entry at the same
 * time one stands: a touch that finds a later stamp, or another one than it saw, leaves it.
 *
 * The order is kept in a min-heap of recorded stamps that only writers touch (R1: a recorded stamp is never later
 * than the entry's own, since stamps only grow). The root is the oldest if its recorded stamp is its own; if not, it
 * is recorded anew and sinks. So what is found is the true oldest, and each use costs at most one such step, at an
 * eviction: amortised O(log n). R2: a record is in the heap if and only if it has a stamp and is of this epoch.
 *
 * With a spill file the heap holds those that claim memory: entries, and pages that were restored though no entry ends
 * at them. An entry that gave its claim up stands in the list of those instead, one that has it in the list of
 * those to be written, until it is (R3, ages.h).
 */
#ifndef KVSHM_RECENCY_H
#define KVSHM_RECENCY_H

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "pages.h"

/* Has this processor an invariant counter of at least 100 MHz that all its cores share? */
bool kvshm__recency_hardware(void);

/* The hardware's counter. The fence keeps it from being read before what the caller did earlier (R3). */
static inline uint64_t kvshm__recency_counter(void)
{
#if defined(__x86_64__)
    _mm_lfence();
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t t;

    __asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(t) : : "memory");
    return t;
#else
    return 0;
#endif
}

/* A stamp: later than all given before it on this host. */
static inline uint64_t kvshm__recency_now(const kvshm *kv)
{
    return kv->hardware_clock ? kvshm__recency_counter() : KVSHM__ADD(&kv->header->clock, 1) + 1;
}

/* A use, at the time now, of the entry whose stamp was seen; nothing if that is 0, not earlier, or has changed since.
   The stamp it has then (0: removed meanwhile). Any thread, no lock. */
static inline uint64_t kvshm__recency_touch(const kvshm *kv, uint32_t record, uint64_t seen, uint64_t now)
{
    if (seen == 0 || now <= seen ||
        !atomic_compare_exchange_strong_explicit(&kv->records[record].stamp, &seen, now, memory_order_relaxed,
                                                 memory_order_relaxed))
        return seen;
    return now;
}

/* ---- With the writer lock --------------------------------------------------------------------------------- */

/* An entry ends at this page from now on (R2: in the heap before it has a stamp, so that a death leaves neither). */
void kvshm__recency_add(kvshm *kv, uint32_t record);

/* No entry ends there any more. */
void kvshm__recency_remove(kvshm *kv, uint32_t record);

/* The same, if its stamp is still the one seen; false: it was used meanwhile. */
bool kvshm__recency_remove_if(kvshm *kv, uint32_t record, uint64_t seen);

/* The entry gives up its claim to memory, or a page that is kept is so no more; from the heap to the list. */
void kvshm__recency_give_up(kvshm *kv, uint32_t record);

/* The other way; a page at which no entry ends claims memory only if it is to be kept. */
void kvshm__recency_claim(kvshm *kv, uint32_t record, bool keep);

/* Does it claim memory? */
bool kvshm__recency_claims(const kvshm *kv, uint32_t record);

/* The oldest entry that is not set aside, and its stamp; KVSHM__NO_RECORD: none. */
uint32_t kvshm__recency_oldest(kvshm *kv, uint64_t *stamp);

/* Pass over the oldest one for now; take all those back. */
void kvshm__recency_set_aside(kvshm *kv);
void kvshm__recency_take_back(kvshm *kv);

/* The heap is empty. Stamps stay: of another epoch, they are nobody's. */
void kvshm__recency_forget_all(kvshm *kv);

/* A record of an earlier epoch: no stamp, in no heap. */
void kvshm__recency_forget(kvshm *kv, uint32_t record);

/* Put all published entries into an empty heap (after a death). */
void kvshm__recency_rebuild(kvshm *kv);

#endif /* KVSHM_RECENCY_H */
