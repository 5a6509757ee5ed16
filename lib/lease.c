/* SPDX-License-Identifier: Apache-2.0 */
#include "lease.h"

#include <pthread.h>
#include <string.h>

#include "client.h"

/* Lease words between the first ones of two threads: lines they do not share, nor neighbours for the prefetcher. */
#define APART 8

/* A number that the living threads of a process have each for itself. */
static inline uint64_t thread_word(void)
{
#if defined(__x86_64__) && defined(__linux__)
    uint64_t self;
    __asm__("mov %%fs:0, %0" : "=r"(self));
    return self;
#else
    return (uint64_t)pthread_self();
#endif
}

static inline struct kvshm__hint *hint_of(kvshm *kv)
{
    uint64_t self = thread_word();

    return &kv->hints[(self * 0x9e3779b97f4a7c15u) >> 58];
}
static_assert(KVSHM__HINTS == 64, "hint_of takes six bits");

/* Where this thread looks first. */
static uint32_t first_look(kvshm *kv, struct kvshm__hint *hint)
{
    uint32_t next1 = KVSHM__LOAD(&hint->next1);

    if (next1 != 0)
        return (next1 - 1) % kv->max_leases;
    return (uint32_t)((uint64_t)KVSHM__ADD(&kv->hint_count, 1) * APART % kv->max_leases);
}

/* Scans look at words below the high mark only: it is raised before the word is stored (L3). */
static void raise_high(kvshm *kv, uint32_t word)
{
    kvshm_a32 *high = &kv->clients[kv->place].lease_high;
    uint32_t seen = KVSHM__LOAD_SEQ(high);

    while (seen <= word &&
           !atomic_compare_exchange_weak_explicit(high, &seen, word + 1, memory_order_seq_cst, memory_order_relaxed))
        ;
}

uint32_t kvshm__lease_claim(kvshm *kv, uint64_t value)
{
    struct kvshm_lease_word *own = kvshm__own_leases(kv);
    struct kvshm__hint *hint = hint_of(kv);
    uint32_t word = first_look(kv, hint);

    for (uint32_t i = 0; i < kv->max_leases; i++) {
        if (KVSHM__LOAD(&own[word].word) == 0) {
            raise_high(kv, word);
            if (kvshm__cas(&own[word].word, 0, value)) {
                KVSHM__STORE(&hint->next1, word + 2);
                return word;
            }
        }
        word = word + 1 < kv->max_leases ? word + 1 : 0;
    }
    return KVSHM__NO_WORD;
}

void kvshm__lease_drop(kvshm *kv, uint32_t word)
{
    struct kvshm_lease_word *own = &kvshm__own_leases(kv)[word];

    if (KVSHM__LOAD(&own->tag_ns) != 0) {
        KVSHM__STORE(&own->tag, 0);
        KVSHM__STORE(&own->tag_ns, 0);
    }
    KVSHM__STORE_REL(&own->word, 0);
    KVSHM__STORE(&hint_of(kv)->next1, word + 1);
}

/* Still published, where and as it was found? Calls its eviction off. */
static bool still_there(const kvshm *kv, const struct kvshm__found *found)
{
    struct kvshm_record *r = &kv->records[found->record];

    if (KVSHM__LOAD_SEQ(found->at) != found->word)
        return false;
    uint64_t place = KVSHM__LOAD_SEQ(&r->place);
    if (!kvshm__place_published(place))
        return false;
    if (kvshm__place_state(place) == KVSHM__PLACE_LEAVING) {
        uint64_t stays = (place & ~(UINT64_C(0xf) << 28)) | (uint64_t)KVSHM__PLACE_RESIDENT << 28;
        if (!kvshm__cas(&r->place, place, stays) && KVSHM__LOAD_SEQ(&r->place) != stays)
            return false;
    }
    return KVSHM__LOAD_ACQ(&r->seq) == found->seq;
}

enum kvshm__leased kvshm__lease_take(kvshm *kv, const struct kvshm__found *found, uint32_t *word)
{
    *word = kvshm__lease_claim(kv, kvshm__lease_value(found->record, found->seq));
    if (*word == KVSHM__NO_WORD)
        return KVSHM__LEASE_NONE_LEFT;
    if (still_there(kv, found))
        return KVSHM__LEASED;
    kvshm__lease_drop(kv, *word);
    return KVSHM__LEASE_CHANGED;
}

static void count(kvshm_a64 *counter, uint64_t n)
{
    KVSHM__STORE(counter, KVSHM__LOAD(counter) + n);
}

void kvshm__lease_count(kvshm *kv, uint32_t word, enum kvshm_lease_counter kind, uint32_t pages, uint32_t tokens)
{
    kvshm_a64 *counters = kvshm__own_leases(kv)[word].counters;

    count(&counters[kind], 1);
    count(&counters[KVSHM__LCNT_hit_pages], pages);
    count(&counters[KVSHM__LCNT_hit_tokens], tokens);
}

/* ---- The scan --------------------------------------------------------------------------------------------- */

/* The record that a lease word names, if the page is still the one that was leased. A record without a place is of an
   insert with KVSHM_HOLD that died while it wrote the record: it was never a page, and holds nothing above. */
static uint32_t named(const kvshm *kv, uint64_t value)
{
    uint32_t record = kvshm__index_record(kv, value);

    if (record == KVSHM__NO_RECORD ||
        kvshm__lease_value(record, KVSHM__LOAD(&kv->records[record].seq)) != value ||
        kvshm__place_state(KVSHM__LOAD(&kv->records[record].place)) == KVSHM__PLACE_NONE)
        return KVSHM__NO_RECORD;
    return record;
}

/* Liveness costs a system call, so it is asked only for clients that have a word in use. */
static void scan_client(kvshm *kv, uint32_t place, uint64_t *bitmap)
{
    struct kvshm_client *client = &kv->clients[place];
    uint64_t number = KVSHM__LOAD_SEQ(&client->number);
    uint32_t high = KVSHM__LOAD_SEQ(&client->lease_high);
    bool asked = false;

    if (number == 0)
        return;
    if (high > kv->max_leases)
        high = kv->max_leases;
    for (uint32_t i = 0; i < high; i++) {
        uint64_t value = KVSHM__LOAD_SEQ(&kv->leases[(size_t)place * kv->max_leases + i].word);
        uint32_t record = value ? named(kv, value) : KVSHM__NO_RECORD;
        if (record == KVSHM__NO_RECORD)
            continue;
        if (!asked && !kvshm__client_counts(kv, number))
            return;
        asked = true;
        kvshm__bit_set(bitmap, record);
    }
}

void kvshm__lease_scan(kvshm *kv, uint64_t *bitmap)
{
    memset(bitmap, 0, kv->bitmap_words * sizeof(*bitmap));
    KVSHM__FENCE(memory_order_seq_cst);
    for (uint32_t place = 0; place < kv->max_clients; place++)
        scan_client(kv, place, bitmap);
}

void kvshm__lease_scan_chains(kvshm *kv, uint64_t *bitmap)
{
    kvshm__lease_scan(kv, bitmap);
    for (uint64_t i = 0; i < kv->bitmap_words; i++) {
        for (uint64_t bits = bitmap[i]; bits; bits &= bits - 1) {
            uint32_t record = kvshm__pages_parent(kv, (uint32_t)(i * 64) + (uint32_t)__builtin_ctzll(bits));
            while (record != KVSHM__NO_RECORD && !kvshm__bit(bitmap, record)) {
                kvshm__bit_set(bitmap, record);
                record = kvshm__pages_parent(kv, record);
            }
        }
    }
}
