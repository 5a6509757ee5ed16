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

#include <pthread.h>

#include "index.h"

#define KVSHM__NO_WORD UINT32_MAX

/* The value of a lease word. */
static inline uint64_t kvshm__lease_value(uint32_t record, uint64_t seq)
{
    return (seq >> 1) << 40 | (uint64_t)(record + 1);
}

/* ---- Claiming words: any thread, no lock, no system call; in line, since each hit does it ----------------------- */

/* A number that the living threads of a process have each for itself. */
static inline uint64_t kvshm__lease_thread(void)
{
#if defined(__x86_64__) && defined(__linux__)
    uint64_t self;
    __asm__("mov %%fs:0, %0" : "=r"(self));
    return self;
#else
    return (uint64_t)pthread_self();
#endif
}

/* Where this thread looks first. */
static inline struct kvshm__hint *kvshm__lease_hint(kvshm *kv)
{
    return &kv->hints[(kvshm__lease_thread() * 0x9e3779b97f4a7c15u) >> 58];
}
static_assert(KVSHM__HINTS == 64, "a hint takes six bits");

/* The same, for a thread that has looked nowhere yet. */
uint32_t kvshm__lease_first(kvshm *kv) __attribute__((cold));

/* Scans look at words below the high mark only: it is raised before the word is stored (L3). */
void kvshm__lease_raise_high(kvshm_a32 *high, uint32_t seen, uint32_t word) __attribute__((cold));

/* Does this own word, which was free, hold value from now on? */
static inline bool kvshm__lease_claim_word(kvshm *kv, uint32_t word, uint64_t value)
{
    kvshm_a64 *at = &kvshm__own_leases(kv)[word].word;
    kvshm_a32 *high = &kv->own->lease_high;

    if (KVSHM__LOAD(at) != 0)
        return false;
    uint32_t seen = KVSHM__LOAD_SEQ(high);
    if (seen <= word)
        kvshm__lease_raise_high(high, seen, word);
    return kvshm__cas(at, 0, value);
}

/* The first free word from this one on. */
uint32_t kvshm__lease_claim_from(kvshm *kv, uint32_t word, uint64_t value);

/* An own lease word that holds value from now on; KVSHM__NO_WORD: all are taken. */
static inline uint32_t kvshm__lease_claim(kvshm *kv, uint64_t value)
{
    struct kvshm__hint *hint = kvshm__lease_hint(kv);
    uint32_t next1 = KVSHM__LOAD(&hint->next1);
    uint32_t word = next1 == 0 ? kvshm__lease_first(kv) : next1 <= kv->max_leases ? next1 - 1 : 0;

    if (!kvshm__lease_claim_word(kv, word, value))
        word = kvshm__lease_claim_from(kv, word, value);
    if (word != KVSHM__NO_WORD)
        KVSHM__STORE(&hint->next1, word + 2);
    return word;
}

/* Give the word back: one store. */
static inline void kvshm__lease_drop(kvshm *kv, uint32_t word)
{
    struct kvshm_lease_word *own = &kvshm__own_leases(kv)[word];

    if (KVSHM__LOAD(&own->tag_ns) != 0) {
        KVSHM__STORE(&own->tag, 0);
        KVSHM__STORE(&own->tag_ns, 0);
    }
    KVSHM__STORE_REL(&own->word, 0);
    KVSHM__STORE(&kvshm__lease_hint(kv)->next1, word + 1);
}

/* Call the eviction of a page off whose place is LEAVING. false: it has moved. */
bool kvshm__lease_stays(struct kvshm_record *r, uint64_t place) __attribute__((cold));

/* Still published, where and as it was found? */
static inline bool kvshm__lease_still_there(const kvshm *kv, const struct kvshm__found *found)
{
    struct kvshm_record *r = &kv->records[found->record];

    if (KVSHM__LOAD_SEQ(found->at) != found->word)
        return false;
    uint64_t place = KVSHM__LOAD_SEQ(&r->place);
    if (kvshm__place_state(place) != KVSHM__PLACE_RESIDENT && !kvshm__lease_stays(r, place))
        return false;
    return KVSHM__LOAD_ACQ(&r->seq) == found->seq;
}

enum kvshm__leased { KVSHM__LEASED, KVSHM__LEASE_CHANGED, KVSHM__LEASE_NONE_LEFT };

/* Lease the page that was found; *word is the own word that holds it. CHANGED: it moved meanwhile, find it again. */
static inline __attribute__((always_inline)) enum kvshm__leased
kvshm__lease_take(kvshm *kv, const struct kvshm__found *found, uint32_t *word)
{
    *word = kvshm__lease_claim(kv, kvshm__lease_value(found->record, found->seq));
    if (*word == KVSHM__NO_WORD)
        return KVSHM__LEASE_NONE_LEFT;
    if (kvshm__lease_still_there(kv, found))
        return KVSHM__LEASED;
    kvshm__lease_drop(kv, *word);
    return KVSHM__LEASE_CHANGED;
}

static inline void kvshm__lease_counted(kvshm_a64 *counter, uint64_t n)
{
    KVSHM__STORE(counter, KVSHM__LOAD(counter) + n);
}

/* Count a hit on the line of the lease word that it took. */
static inline void kvshm__lease_count(kvshm *kv, uint32_t word, enum kvshm_lease_counter kind, uint32_t pages,
                                      uint32_t tokens)
{
    kvshm_a64 *counters = kvshm__own_leases(kv)[word].counters;

    kvshm__lease_counted(&counters[kind], 1);
    kvshm__lease_counted(&counters[KVSHM__LCNT_hit_pages], pages);
    kvshm__lease_counted(&counters[KVSHM__LCNT_hit_tokens], tokens);
}

/* ---- The scan --------------------------------------------------------------------------------------------------- */

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
