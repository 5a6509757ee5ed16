/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.h - whose each slot of the spill file is: free, being written or erased by a client, or of a page.
 *
 * All calls need the writer lock, unless said otherwise; an arena without a spill file has no slots. A slot is a page's
 * if and only if its owner word names the record and the record's slot word names the slot as WRITTEN (G1): only then
 * is its header on the device. Owner words change first, as those of frames do, so that a death leaves no slot that is
 * nobody's: what a dead client was writing or erasing is its own until its quiet byte has fallen, since the device may
 * still be at it (G2). The free list and the counts are derived.
 */
#ifndef KVSHM_SLOTS_H
#define KVSHM_SLOTS_H

#include "pages.h"

#define KVSHM__NO_SLOT UINT32_MAX

/* Slot words of records. */
static inline enum kvshm_slot_state kvshm__slot_state(uint64_t word)
{
    return (enum kvshm_slot_state)(word >> 28 & 0xf);
}

static inline uint32_t kvshm__slot_number(uint64_t word)
{
    return word & KVSHM__FRAMES_MAX;
}

static inline uint64_t kvshm__slot_word(uint32_t slot, enum kvshm_slot_state state)
{
    return (uint64_t)state << 28 | slot;
}

/* The state of a record's slot; NONE: it has none. Any thread. */
static inline enum kvshm_slot_state kvshm__slots_state_of(const struct kvshm_record *r)
{
    return kvshm__slot_state(KVSHM__LOAD_ACQ((kvshm_a64 *)&r->slot));
}

/* How many are free. */
static inline uint64_t kvshm__slots_free(const kvshm *kv)
{
    return KVSHM__LOAD(&kv->header->tier.slots_free);
}

/* A free slot that this client writes the record's page into from now on; KVSHM__NO_SLOT: none is free. */
uint32_t kvshm__slots_take(kvshm *kv, uint32_t record);

/* What this client wrote, header and payload of this checksum, is on the device: the slot is the page's. */
void kvshm__slots_settle(kvshm *kv, uint32_t record, uint64_t sum);

/* The slot was the page's when the file was opened. */
void kvshm__slots_load(kvshm *kv, uint32_t record, uint32_t slot, uint64_t sum);

/* The page's slot is to be erased, or written over, by this client. */
void kvshm__slots_erase(kvshm *kv, uint32_t record);

/* The record has no slot any more, and whatever it had is free. */
void kvshm__slots_give(kvshm *kv, uint32_t record);

/*
 * The record needs its slot no more. Written ones are free; what a dead client was writing is no longer about the
 * record. false: a living client is still at it, or it has to be erased.
 */
bool kvshm__slots_let_go(kvshm *kv, uint32_t record);

/* Does the slot word of the record name a slot that names the record? Only damage makes it lie. */
bool kvshm__slots_whole(const kvshm *kv, uint32_t record);

/* Is the record's slot being written, or erased, by this client? */
bool kvshm__slots_mine(const kvshm *kv, uint32_t record);

/*
 * What dead clients were writing: their pages have no slot at once, and the slots are free when the clients are quiet.
 * What quiet ones were erasing is this client's to erase then (*again: there was such a slot). How many came back.
 */
uint64_t kvshm__slots_sweep(kvshm *kv, bool *again);

/* Is there, perhaps, something to sweep? */
bool kvshm__slots_sweep_worth(const kvshm *kv);

/* Make the free list and the counts anew from the owner words and the records' slot words (after a death). */
void kvshm__slots_rebuild(kvshm *kv);

#endif /* KVSHM_SLOTS_H */
