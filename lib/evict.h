/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict.h - how entries and pages leave: by eviction, removal and clear. All calls need the writer lock.
 *
 * An entry leaves by its stamp going to 0. Pages below which no entry is left are then taken away, leaf first: place
 * AWAY, and into limbo. What is in limbo is freed by one sweep: a scan of the lease words, then each page that no
 * counting word names and that has no children, leaf first (E1: no page is freed without a scan that began after it
 * was taken away; E2: nor before its children). Held pages wait there: record, parent link and frame stay, the index
 * word too, so that an insert that needs the page finds it and calls it back. A key-only page is never called back, and
 * gives its word up at once: held versions of one key, which all have one hash, would fill the buckets in its reach.
 *
 * E3: every published page has an entry or a published child, but for the one an insert is at (kvshm.pinned1).
 * E4: a page in limbo, and only one, has its record's link1 set; the list may also hold pages that were called back.
 */
#ifndef KVSHM_EVICT_H
#define KVSHM_EVICT_H

#include "lease.h"

/* Take the entry's name away, and the pages that are then for nothing. */
void kvshm__evict_drop_entry(kvshm *kv, uint32_t record);

/* Pages from record upwards that have neither an entry nor a published child left: taken away. */
void kvshm__evict_take_away(kvshm *kv, uint32_t record);

/* Free what is in limbo and not held. Frames that came back. */
uint64_t kvshm__evict_sweep_limbo(kvshm *kv);

/* Drop the oldest entry; false: there is none. Its pages are in limbo until the next sweep. */
bool kvshm__evict_oldest(kvshm *kv);

/*
 * Drop the oldest entries until no more than capacity are left, but at most n, and sweep. true: no more are left. Only
 * a capacity that was made smaller leaves more than a few: n is then a slice.
 */
#define KVSHM__CAPACITY_SLICE 4096
bool kvshm__evict_to_capacity(kvshm *kv, uint32_t n);

/*
 * At least n frames are free afterwards, or -ENOSPC: all others are leased or reserved. Pages that are in the file leave
 * first; if entries that are not may not be dropped, -EAGAIN.
 */
int kvshm__evict_make_room(kvshm *kv, uint64_t n, bool may_drop);

/* Is the entry worth being written (KVSHM_ADMIT_REUSED: it was used since it was inserted)? */
bool kvshm__evict_admitted(const kvshm *kv, uint32_t record);

/*
 * The oldest entry is dropped, or leaves memory for the file; frames that came back at once. -EAGAIN: it has to be written
 * first. pass_over: then the next that is in the file leaves.
 */
int64_t kvshm__evict_lru(kvshm *kv, bool pass_over);

/* The page leaves its frame for its slot, if nobody claims it. */
bool kvshm__evict_part_page(kvshm *kv, uint32_t record);

/* Pages that the dead were restoring are in the file alone again. Their frames come back by kvshm__frames_sweep(). */
void kvshm__evict_forsake(kvshm *kv);

/*
 * An empty index word for the hash: the oldest entry in reach whose page has no children leaves for it, else the
 * oldest ones of all. NULL: all in reach is held.
 */
kvshm_a64 *kvshm__evict_for_word(kvshm *kv, uint64_t hash);

/*
 * The epoch is this one; what was cached is dead to all with this one store. Nothing, if it is that already or later: then
 * another clear that began before this one ended has done it.
 */
void kvshm__evict_clear(kvshm *kv, uint64_t epoch);

/* Take away at most n records of earlier epochs and sweep. true: none are left. */
bool kvshm__evict_clear_slice(kvshm *kv, uint32_t n);

/* Put a page that is AWAY and in no list into limbo. */
void kvshm__evict_to_limbo(kvshm *kv, uint32_t record);

/* Give back what the page had: its index word, its frame if that is its own, its place. It stays in its list. */
void kvshm__evict_release_page(kvshm *kv, uint32_t record);

#endif /* KVSHM_EVICT_H */
