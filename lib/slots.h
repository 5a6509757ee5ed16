/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.h - whose each slot of the spill file is: free, being written or erased by a client, of a page, or doomed.
 *
 * All calls need the writer lock, unless said otherwise; an arena without a spill file has no slots.
 *
 * Invariants
 * G1  A slot is a page's if and only if its owner word names the record and the record's slot word names the slot as
 *     WRITTEN; only then are header and payload of that page on the device.
 *     While its header is written anew the owner word names who does it instead.
 * G2  What a client is writing or erasing stays its own until it says that it is done, or, after its death, until its
 *     quiet byte has fallen: the device may still be at it.
 * G3  A header that may stand in the file counts at the next start. So a slot whose page goes is doomed, and is free only
 *     when its header has been erased; at once if the page's epoch is over, since the file says so too.
 * G4  Who has to see pages gone from the file marks a moment under the lock in which they went. Each doomed slot is of a
 *     moment: that of its page's going, or, if it was being written then, of that batch's beginning; a batch is of the
 *     earliest moment of what it is at. When no batch and no doomed slot is of that moment or an earlier one, what went
 *     is gone (kvshm__slots_passed).
 *
 * Owner words change before the words of records that follow them, so that a death leaves no slot that is nobody's. Lists
 * and counts are derived.
 */
#ifndef KVSHM_SLOTS_H
#define KVSHM_SLOTS_H

#include "pages.h"
#include "spill_layout.h"

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

/* Is the record's page in the file? Any thread. */
static inline bool kvshm__slots_written(const kvshm *kv, uint32_t record)
{
    return kvshm__slot_state(KVSHM__LOAD_ACQ(&kv->records[record].slot)) == KVSHM__SLOT_WRITTEN;
}

/* Does the record still want what this client writes into the slot? If so, its page has not left its frame. */
static inline bool kvshm__slots_awaited(const kvshm *kv, uint32_t record, uint32_t slot)
{
    return KVSHM__LOAD_ACQ(&kv->records[record].slot) == kvshm__slot_word(slot, KVSHM__SLOT_WRITING);
}

/* How many are free; how many are doomed and in nobody's hands. */
static inline uint64_t kvshm__slots_free(const kvshm *kv)
{
    return KVSHM__LOAD(&kv->header->tier.slots_free);
}

static inline uint64_t kvshm__slots_doomed(const kvshm *kv)
{
    return KVSHM__LOAD(&kv->header->tier.doomed) - KVSHM__LOAD(&kv->header->tier.undoomed);
}

/* ---- Batches ---------------------------------------------------------------------------------------------- */

enum kvshm__slots_batch { KVSHM__BATCH_WRITING = 0, KVSHM__BATCH_ERASING = 1 };

/*
 * This client's batch of that kind begins, or is over. One of each kind at a time. One of erasing begins by
 * kvshm__slots_claim(), unless it writes a header anew.
 */
void kvshm__slots_begin(kvshm *kv, enum kvshm__slots_batch kind);
void kvshm__slots_end(kvshm *kv, enum kvshm__slots_batch kind);

/* ---- Pages ------------------------------------------------------------------------------------------------ */

/* A free slot that this client writes the record's page into from now on; KVSHM__NO_SLOT: none is free. */
uint32_t kvshm__slots_take(kvshm *kv, uint32_t record);

/*
 * This client has written header and payload of this checksum: the slot is the page's, if that still wants it; else it is
 * doomed. false: the latter.
 */
bool kvshm__slots_settle(kvshm *kv, uint32_t slot, uint64_t sum, uint32_t flags);

/* It could not, or not all of it. */
void kvshm__slots_fail(kvshm *kv, uint32_t slot);

/* The slot was the page's when the file was opened; or no page of the arena is in it, though its header is good. */
void kvshm__slots_load(kvshm *kv, uint32_t record, uint32_t slot, uint64_t sum, uint32_t flags);
void kvshm__slots_refuse(kvshm *kv, uint32_t slot);

/* Whoever wrote the header anew has died over it: it says that an entry ends there, or does not. */
#define KVSHM__SLOT_UNSURE 0x80000000u

/* The flags of the header in the page's slot. */
static inline uint32_t kvshm__slots_flags(const kvshm *kv, uint32_t record)
{
    uint32_t slot = kvshm__slot_number(KVSHM__LOAD(&kv->records[record].slot));

    return slot < kv->slot_count ? KVSHM__LOAD(&kv->slots[slot].flags) : 0;
}

/* Is the page in the file, which does not say that an entry ends there? */
static inline bool kvshm__slots_unnamed(const kvshm *kv, uint32_t record)
{
    return kvshm__slots_written(kv, record) && KVSHM__LOAD(&kv->records[record].stamp) != 0 &&
           (kvshm__slots_flags(kv, record) & (KVSHM__SLOT_ENTRY | KVSHM__SLOT_UNSURE)) != KVSHM__SLOT_ENTRY;
}

/*
 * The header in the page's slot is written anew by this client from now on, until it settles or fails; the slot is the page's
 * all the time. Not while somebody does that already.
 */
void kvshm__slots_rewrite(kvshm *kv, uint32_t record);
bool kvshm__slots_rewritten(const kvshm *kv, uint32_t record);

/* The record has no slot any more, since its page goes. Whoever writes it finds that out when it is done. */
void kvshm__slots_drop(kvshm *kv, uint32_t record);

/* Does the slot word of the record name a slot that is the page's? Only damage makes it lie. */
bool kvshm__slots_whole(const kvshm *kv, uint32_t record);

/* The number of the living client that writes the page, or 0. What the dead were writing is no longer about it. */
uint64_t kvshm__slots_writer(kvshm *kv, uint32_t record);

/* ---- Doomed ones ------------------------------------------------------------------------------------------ */

/* Take at most max of them, the first doomed first, for this client to erase. How many. */
unsigned kvshm__slots_claim(kvshm *kv, uint32_t *slots, unsigned max);

/* Those are erased, and free; or could not be, and are doomed still. */
void kvshm__slots_erased(kvshm *kv, const uint32_t *slots, unsigned n, bool erased);

/* A new moment, for who has just made pages go. */
uint64_t kvshm__slots_mark(kvshm *kv);

/*
 * Is all that went before the moment gone from the file (G4)? If not, *client is the number of one whose batch is not over,
 * or 0: some are doomed still. Sweeps what the dead have left.
 */
bool kvshm__slots_passed(kvshm *kv, uint64_t mark, uint64_t *client);

/* ---- After deaths ----------------------------------------------------------------------------------------- */

/* What dead clients were writing: their pages have no slot at once; the slots, and those they were erasing, are doomed when
   the clients are quiet. */
void kvshm__slots_sweep(kvshm *kv);

/* Has a client died over a batch of slots that were not swept yet? */
bool kvshm__slots_orphaned(const kvshm *kv);

/* Make lists and counts anew from the owner words and the records' slot words (after a death). */
void kvshm__slots_rebuild(kvshm *kv);

#endif /* KVSHM_SLOTS_H */
