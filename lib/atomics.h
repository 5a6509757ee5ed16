/* SPDX-License-Identifier: Apache-2.0 */
/*
 * atomics.h - the sequence lock of records and the few atomic shapes that kvshm uses, each with its partner.
 *
 * A record is guarded by a 64-bit sequence. Writers (one at a time: the writer lock) publish:
 *
 *     begin   the next odd one, relaxed; release fence      W1
 *             relaxed stores of the data
 *     end     seq + 1, release                               W2
 *
 * Readers:
 *
 *     begin   s = seq, acquire          (pairs with W2)      R1
 *             relaxed loads of the data
 *     retry   acquire fence (pairs with W1); seq, relaxed    R2
 *
 * If a load of the data saw a store that followed W1, then R2's fence makes the odd sequence (or a later one)
 * visible to the second look, and the data are not used (C11 7.17.4: fence-fence synchronisation). The sequence
 * is never reset and wraps after 2^63 writes.
 *
 * Neither gcc's ThreadSanitizer nor clang 14's understands fences. Data are relaxed atomics in every build, so no
 * access is a race to it; in its build KVSHM__FENCE_ACQUIRE and _RELEASE are read-modify-writes of a private word
 * with the same order, which it does understand as far as it goes.
 */
#ifndef KVSHM_ATOMICS_H
#define KVSHM_ATOMICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "layout.h"

/* Part of a hit: the compiler is to fit it to each place from which it is called. */
#define KVSHM__HOT inline __attribute__((always_inline))

#ifdef KVSHM_TSAN
#define KVSHM__FENCE(order) \
    do { \
        static _Atomic(unsigned) kvshm__fence_word; \
        atomic_fetch_add_explicit(&kvshm__fence_word, 0, (order)); \
    } while (0)
#else
#define KVSHM__FENCE(order) atomic_thread_fence(order)
#endif

/* Comes before each store to shared memory. In the build of the tests that kill between two stores it is theirs. */
#ifdef KVSHM_STEP
void kvshm__step(void);
#else
static inline void kvshm__step(void)
{
}
#endif

#define KVSHM__LOAD(p) atomic_load_explicit((p), memory_order_relaxed)
#define KVSHM__LOAD_ACQ(p) atomic_load_explicit((p), memory_order_acquire)
#define KVSHM__LOAD_SEQ(p) atomic_load_explicit((p), memory_order_seq_cst)
#define KVSHM__STORE(p, v) (kvshm__step(), atomic_store_explicit((p), (v), memory_order_relaxed))
#define KVSHM__STORE_REL(p, v) (kvshm__step(), atomic_store_explicit((p), (v), memory_order_release))
#define KVSHM__ADD(p, v) (kvshm__step(), atomic_fetch_add_explicit((p), (v), memory_order_relaxed))

/* Compare-and-swap, sequentially consistent: it is a step of a Dekker pair or it takes a lock. */
static inline bool kvshm__cas(kvshm_a64 *p, uint64_t from, uint64_t to)
{
    kvshm__step();
    return atomic_compare_exchange_strong_explicit(p, &from, to, memory_order_seq_cst, memory_order_seq_cst);
}

/* Between two looks at a word that another processor is about to change. */
static inline void kvshm__pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline void kvshm__seq_write_begin(kvshm_a64 *seq)
{
    KVSHM__STORE(seq, (KVSHM__LOAD(seq) + 1) | 1);
    KVSHM__FENCE(memory_order_release);
}

static inline void kvshm__seq_write_end(kvshm_a64 *seq)
{
    KVSHM__STORE_REL(seq, KVSHM__LOAD(seq) + 1);
}

/* Odd: being written. */
static inline uint64_t kvshm__seq_read_begin(const kvshm_a64 *seq)
{
    return KVSHM__LOAD_ACQ((kvshm_a64 *)seq);
}

/* Has the record changed since seq was s? */
static inline bool kvshm__seq_read_retry(const kvshm_a64 *seq, uint64_t s)
{
    KVSHM__FENCE(memory_order_acquire);
    return KVSHM__LOAD((kvshm_a64 *)seq) != s;
}

#endif /* KVSHM_ATOMICS_H */
