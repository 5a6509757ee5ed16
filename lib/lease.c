/* SPDX-License-Identifier: Apache-2.0 */
#include "lease.h"

#include <string.h>

#include "client.h"

/* Lease words between the first ones of two threads: lines they do not share, nor neighbours for the prefetcher. */
#define APART 8

uint32_t kvshm__lease_first(kvshm *kv)
{
    return (uint32_t)((uint64_t)KVSHM__ADD(&kv->hint_count, 1) * APART % kv->max_leases);
}

uint32_t kvshm__lease_claim_from(kvshm *kv, uint32_t word, uint64_t value)
{
    for (uint32_t i = 0; i < kv->max_leases; i++) {
        if (kvshm__lease_claim_word(kv, word, value))
            return word;
        word = word + 1 < kv->max_leases ? word + 1 : 0;
    }
    return KVSHM__NO_WORD;
}

void kvshm__lease_raise_high(kvshm_a32 *high, uint32_t seen, uint32_t word)
{
    while (seen <= word &&
           !atomic_compare_exchange_weak_explicit(high, &seen, word + 1, memory_order_seq_cst, memory_order_relaxed))
        ;
}

bool kvshm__lease_stays(struct kvshm_record *r, uint64_t place)
{
    uint64_t stays = (place & ~(UINT64_C(0xf) << 28)) | (uint64_t)KVSHM__PLACE_RESIDENT << 28;

    return kvshm__place_state(place) == KVSHM__PLACE_LEAVING &&
           (kvshm__cas(&r->place, place, stays) || KVSHM__LOAD_SEQ(&r->place) == stays);
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
