/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frames.h - whose each frame is: free, reserved by a client, or of a page.
 *
 * All calls need the writer lock, unless said otherwise. A frame is a page's if and only if its owner word names the
 * record and the record's place names the frame (F1): the owner word says whose it is, and changes before the page is
 * found, or the frame given to another. So after a death anywhere the owner words tell what the dead had; the free
 * list and the counts are derived from them.
 *
 * A reservation is a word in its client's table and the frames whose owner words name client and word. Cancelling
 * is one store to the word by its owner, without the lock; the frames are swept later by who needs frames, and only
 * then is the word empty again (F2: no frame names an empty word).
 */
#ifndef KVSHM_FRAMES_H
#define KVSHM_FRAMES_H

#include "handle.h"

#define KVSHM__NO_FRAME UINT32_MAX

/* Owner words. */
static inline uint64_t kvshm__owner_reserved(enum kvshm_owner_kind kind, uint64_t client, uint32_t word)
{
    return (uint64_t)kind << 60 | client << 16 | word;
}

static inline uint64_t kvshm__owner_page(uint32_t record)
{
    return (uint64_t)KVSHM__OWNER_PAGE << 60 | record;
}

static inline enum kvshm_owner_kind kvshm__owner_kind(uint64_t owner)
{
    return (enum kvshm_owner_kind)(owner >> 60);
}

static inline uint64_t kvshm__owner_client(uint64_t owner)
{
    return owner >> 16 & KVSHM__CLIENT_NUMBER_MAX;
}

static inline uint32_t kvshm__owner_word(uint64_t owner)
{
    return owner & 0xffff;
}

static inline uint64_t kvshm__frame_offset(const kvshm *kv, uint32_t frame)
{
    return kv->frames_offset + frame * kv->frame_stride;
}

/* The word of a new reservation in our table, set to HELD; UINT32_MAX: all are taken. */
uint32_t kvshm__frames_reservation_new(kvshm *kv);

/* A free frame, owned by owner from now on; KVSHM__NO_FRAME: none is free. */
uint32_t kvshm__frames_take(kvshm *kv, uint64_t owner);

/* Give a frame back, whoever had it. */
void kvshm__frames_give(kvshm *kv, uint32_t frame);

/* A reserved frame becomes the page's. */
void kvshm__frames_to_page(kvshm *kv, uint32_t frame, uint32_t record);

/* Is there, perhaps, something to sweep? While anyone holds a reservation it asks for each client whether it lives. */
bool kvshm__frames_sweep_worth(kvshm *kv);

/*
 * Give back the frames of cancelled reservations and of dead clients that no living one has joined; KVSHM_DEVICE
 * frames of the dead only of client device (0: of none). How many came back.
 */
uint64_t kvshm__frames_sweep(kvshm *kv, uint64_t device);

/* Make free list and counts anew from the owner words (after a death; frames of the dead are still theirs). */
void kvshm__frames_rebuild(kvshm *kv);

#endif /* KVSHM_FRAMES_H */
