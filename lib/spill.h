/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spill.h - which pages move between frames and slots, decided under the writer lock; it moves no data.
 *
 * A page goes to the file in three steps: a slot is taken for it (pick), header and payload are written by the caller
 * without the lock, and the slot becomes the page's (settle). It comes back likewise: a frame is claimed for it, read
 * into, checked, and the page is published there. Between two steps anything may happen to the page: settling looks
 * whether it is still what was picked or claimed (M1), and gives slot or frame back if not.
 *
 * M2: a page is picked only behind a parent that is in the file or was picked before it; claimed only below one that is
 * in memory or was claimed before it.
 */
#ifndef KVSHM_SPILL_H
#define KVSHM_SPILL_H

#include "slots.h"
#include "spill_file.h"

/* A page on its way. */
struct kvshm__move {
    uint32_t record;
    uint32_t frame;
    uint32_t slot;
    uint64_t seq;         /* of the record */
    uint64_t place;       /* as it was claimed */
    uint64_t sum;         /* of the payload */
    uint32_t flags;       /* of the header */
    int result;           /* of the transfer: 0 or -errno; -ECANCELED: the page went meanwhile */
};

/* ---- To the file ------------------------------------------------------------------------------------------ */

/* Are fewer frames free, or free as soon as they are wanted, than there should be? high: than there should be at best. */
bool kvshm__spill_wanted(const kvshm *kv, bool high);

/* How many slots the budget allows, which may be smaller than the file. Any thread. */
uint64_t kvshm__spill_allowed(const kvshm *kv);

/*
 * Drop entries that gave up memory, the longest gone first, until n slots are free or doomed, or there is none. 0: so many
 * that the budget is kept, and then copies of pages that are in memory too.
 */
void kvshm__spill_make_room(kvshm *kv, unsigned n);

/* What is written: of those that were not used since they were looked at last, of any, or all that is in memory. */
enum kvshm__spill_zeal { KVSHM__SPILL_AHEAD, KVSHM__SPILL_URGENT, KVSHM__SPILL_ALL };

/* What could not be picked. */
struct kvshm__spill_rest {
    int hindered;         /* -EAGAIN: other clients are at some; -ENOSPC: there was no slot for some; 0 */
    uint32_t unnamed;     /* a page whose header has to be written anew, and its sequence; KVSHM__NO_RECORD: none */
    uint64_t unnamed_seq;
};

/*
 * Take slots for at most max pages that are in memory alone, those of entries that wait longest first. headers has a
 * header_stride for each, which is filled but for magic and checksum. How many.
 */
unsigned kvshm__spill_pick(kvshm *kv, struct kvshm__move *moves, unsigned max, void *headers, uint32_t header_stride,
                           enum kvshm__spill_zeal zeal, struct kvshm__spill_rest *rest);

/* What the header of the page in this slot is to say, but for magic and checksum. All else of it is 0 before. */
void kvshm__spill_header(const kvshm *kv, uint32_t record, uint32_t slot, struct kvshm_slot_header *header);

/* In the order in which they were picked. */
void kvshm__spill_settle(kvshm *kv, const struct kvshm__move *move);

/* The header of a page's slot could not be written anew, so that nothing is known to be there: it is in memory alone, or gone. */
void kvshm__spill_lost(kvshm *kv, uint32_t slot);

/* ---- From the file ---------------------------------------------------------------------------------------- */

/*
 * Claim frames for at most max pages of the chain that ends at record, from the root on. How many; or, if none,
 * 0: nothing is pending there; -EAGAIN: another client is at it; -ENOSPC: no frame is to be had; -ENOBUFS: none without
 * dropping what is not in the file yet; -ESTALE: the page is another now.
 */
int kvshm__restore_claim(kvshm *kv, uint32_t record, uint64_t seq, struct kvshm__move *moves, unsigned max, bool may_drop);

/* Publish what was read and found right; in the order in which it was claimed. How many were published. */
unsigned kvshm__restore_settle(kvshm *kv, const struct kvshm__move *moves, unsigned n);

#endif /* KVSHM_SPILL_H */
