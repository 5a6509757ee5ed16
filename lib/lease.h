/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease.h - hazard words: the right to read a chain of pages in place.
 *
 * A pin is a word in the owner's own table that names the chain's deepest page; a page cannot leave before its
 * children, so it holds the pages above too.
 *
 * The argument (L1). To lease, a client stores its word (sequentially consistent compare-and-swap), then reads the
 * page's place (sequentially consistent load). Who takes pages away changes the place (sequentially consistent
 * compare-and-swap, kvshm__pages_take_away), then reads all words (sequentially consistent loads, kvshm__lease_scan).
 * In the one total order of these four, either the place's change comes before the client's look, and the lease is
 * given up, or the word comes before the scan, and the page is not freed.
 *
 * (L2) The sequence is read last: a place read as RESIDENT is of the page looked for only if the record is still the
 * same after that. (L3) The words that count are those of the living, and of the dead whom a living client has
 * joined; number and high mark of a place are read after the take-away, as the words are, and the high mark is
 * raised before the first word beyond it is stored.
 */
#ifndef KVSHM_LEASE_H
#define KVSHM_LEASE_H

#include "index.h"

#define KVSHM__NO_WORD UINT32_MAX

/* The value of a lease word. */
static inline uint64_t kvshm__lease_value(uint32_t record, uint64_t seq)
{
    return (seq >> 1) << 40 | (uint64_t)(record + 1);
}

/* An own lease word that holds value from now on; KVSHM__NO_WORD: all are taken. Any thread, no lock. */
uint32_t kvshm__lease_claim(kvshm *kv, uint64_t value);

/* Give the word back: one store. */
void kvshm__lease_drop(kvshm *kv, uint32_t word);

enum kvshm__leased { KVSHM__LEASED, KVSHM__LEASE_CHANGED, KVSHM__LEASE_NONE_LEFT };

/*
 * Lease the page that was found; *word is the own word that holds it. CHANGED: it moved meanwhile, find it again.
 * Any thread, no lock, no system call.
 */
enum kvshm__leased kvshm__lease_take(kvshm *kv, const struct kvshm__found *found, uint32_t *word);

/* Count a hit on the line of the lease word that it took. */
void kvshm__lease_count(kvshm *kv, uint32_t word, enum kvshm_lease_counter kind, uint32_t pages, uint32_t tokens);

/* With the writer lock: set the bit of each record that a word names which counts. bitmap is cleared first. */
void kvshm__lease_scan(kvshm *kv, uint64_t *bitmap);

/* The same, and all that stands above. */
void kvshm__lease_scan_chains(kvshm *kv, uint64_t *bitmap);

static inline bool kvshm__bit(const uint64_t *bitmap, uint32_t i)
{
    return bitmap[i / 64] >> (i % 64) & 1;
}

static inline void kvshm__bit_set(uint64_t *bitmap, uint32_t i)
{
    bitmap[i / 64] |= UINT64_C(1) << (i % 64);
}

#endif /* KVSHM_LEASE_H */
