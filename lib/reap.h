/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reap.h - what kvshmctl changes and the public interface has no call for.
 */
#ifndef KVSHM_REAP_H
#define KVSHM_REAP_H

#include "handle.h"

/*
 * Change a setting of the arena: "capacity" (entries, KVSHM_UNLIMITED), "stall_ms" (at most 3,600,000), "wait_ms"
 * (KVSHM_UNLIMITED), "admission" (enum kvshm_admission), "spill_bytes" (at most what the file was made with). Read at use
 * by all; a smaller capacity evicts at once, and of a smaller spill_bytes the oldest have left the file when it returns.
 * 0; -EINVAL (name, value; spill_bytes without a spill file); KVSHM_E_NOSPILL; errors of a writer.
 */
int kvshm__setting_set(kvshm *kv, const char *name, uint64_t value);

/*
 * Give back what dead clients left: reservations of those that no living one has joined, and leases. With client or
 * label (not both) also the KVSHM_DEVICE frames of that dead client, or of all dead ones of that label: the caller
 * knows that the device is idle. Frames given back; -EBUSY: the client named is alive, or joined by one that is;
 * -ENOENT: nobody dead has that label; errors of a writer.
 */
int64_t kvshm__reap(kvshm *kv, uint64_t client, const char *label);

#endif /* KVSHM_REAP_H */
