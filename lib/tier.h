/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier.h - the thread of a client that moves pages between memory and the spill file, and those who wait for it.
 *
 * It starts when it is first needed. What moves, spill.h decides under the writer lock; here are batches, transfers,
 * checksums, waiting. No transfer is made under the lock.
 */
#ifndef KVSHM_TIER_H
#define KVSHM_TIER_H

#include "handle.h"
#include "slots.h"
#include "spill_file.h"

/* The handle moves pages by this file from now on, which is its own (also after an error: closed). 0 or -ENOMEM. */
int kvshm__tier_open(kvshm *kv, const struct kvshm__spill_file *file, const char *path);

/* With the writer lock, while nothing is cached: the file is of this fingerprint. 0, KVSHM_E_FINGERPRINT, KVSHM_E_NOSPILL or
   -errno. */
int kvshm__tier_name(kvshm *kv, const uint8_t *fingerprint);

/* Before a detach: end the thread, which begins anew when it is needed. -EBUSY: another thread waits for it. */
int kvshm__tier_rest(kvshm *kv);

/* Wait for what is in flight, and end the thread. */
void kvshm__tier_close(kvshm *kv);

/* Does this handle bring pages back from the file? */
static inline bool kvshm__tier_has(const kvshm *kv)
{
    return kv->tier != NULL;
}

/* Read the chain that ends at this page back; waits for nobody. 0 or -ENOMEM, -errno of the thread's start. */
int kvshm__tier_want(kvshm *kv, uint32_t record, uint64_t seq);

/* The same, and wait until it came or failed, timeout_ns at most (UINT64_MAX: no bound). 0: look again; -ETIMEDOUT; -errno. */
int kvshm__tier_wait_for(kvshm *kv, uint32_t record, uint64_t seq, uint64_t timeout_ns);

/* KVSHM_E_NOSPILL, with a message: pages are in the file that this handle does without. */
int kvshm__tier_without(kvshm *kv);

/* The oldest entry is written, and leaves memory; waits for nobody. 0 or -errno. */
int kvshm__tier_send(kvshm *kv);

/* Pages are to be written ahead of need, if there are too few that can leave at once. Waits for nobody. */
void kvshm__tier_kick(kvshm *kv);

/* Wait until more pages are in the file than before; 0, or -ETIMEDOUT at deadline_ns (of the monotonic clock), or -errno. */
int kvshm__tier_wait_room(kvshm *kv, uint64_t deadline_ns);

/* Everything that is resident is written, and on the device. 0 or -errno. */
int kvshm__tier_flush(kvshm *kv);

/* With nothing locked: the file says of a page whether an entry ends at it, as memory does. 0, KVSHM_E_STALLED, or -errno. */
int kvshm__tier_rename(kvshm *kv, uint32_t record, uint64_t seq);

/*
 * With nothing locked: wait until what went from memory before the mark is gone from the file, durably; helps. 0,
 * KVSHM_E_STALLED: another client did not go on for stall_ms; KVSHM_E_NOSPILL: this handle has no file; or -errno.
 */
int kvshm__tier_pass(kvshm *kv, uint64_t mark);

/* A new epoch that is on the device, larger than any in the file and than seen. 0 or -errno. */
int kvshm__tier_epoch(kvshm *kv, uint64_t seen, uint64_t *epoch);

/* How many of those wanted came or failed since the last call; waits for one, timeout_ns at most. */
int kvshm__tier_wait(kvshm *kv, uint64_t timeout_ns);

/* The descriptor of kvshm_eventfd(); or -errno. */
int kvshm__tier_eventfd(kvshm *kv);

#endif /* KVSHM_TIER_H */
