/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.h - attached processes: numbers, liveness by kernel locks, places, joining.
 *
 * All queries work for read-only handles too, wait for nobody and change nothing. Any number may be asked about: 0
 * and what was never given is not alive. A query that the system refuses answers as if the client were alive, so
 * that nothing is ever taken from one who may be.
 */
#ifndef KVSHM_CLIENT_H
#define KVSHM_CLIENT_H

#include "handle.h"

/* Room for what kvshm__client_describe() writes. */
#define KVSHM__CLIENT_WORDS 128

/* Does the kernel say that the client lives? One's own number is alive. One system call. */
bool kvshm__client_alive(const kvshm *kv, uint64_t number);

/* Has its quiet byte fallen: is no transfer of it in flight? One's own number is not quiet. */
bool kvshm__client_quiet(const kvshm *kv, uint64_t number);

/* Does a join word of a living client (this one too) name it? */
bool kvshm__client_joined(const kvshm *kv, uint64_t number);

/* Do its leases and reservations count: is it alive, or joined by a living client? Death is found first. */
bool kvshm__client_counts(const kvshm *kv, uint64_t number);

/* The place in which the number stands, or -1. Another client may take the place over if the number is dead. */
int kvshm__client_find(const kvshm *kv, uint64_t number);

/* Say that another number stands in its place: KVSHM_E_DAMAGED. */
int kvshm__client_displaced(const kvshm *kv) __attribute__((cold));

/*
 * Does this writing client's number stand in its place? KVSHM_E_DAMAGED: somebody wrote over it, so its lease words and
 * reservations count for nothing, and it must take no more. Its line is that of the high mark, which a lease needs anyway.
 */
static inline int kvshm__client_in_place(const kvshm *kv)
{
    return KVSHM__LOAD(&kv->own->number) == kv->client ? 0 : kvshm__client_displaced(kv);
}

/* How many places are in use by the living. */
uint32_t kvshm__client_count_alive(const kvshm *kv);

/* "pid 123 (label)", or "client 7" if it stands in no place. Cut to size; what is shown is printable. Answers buf. */
const char *kvshm__client_describe(const kvshm *kv, uint64_t number, char *buf, size_t size);

/* The living but for own, as "pid 1 (a), pid 2 (b) and 3 more". Cut to size. Answers buf. */
const char *kvshm__client_describe_alive(const kvshm *kv, char *buf, size_t size);

/* The label of a place, into buf of KVSHM_LABEL_MAX + 1 bytes; what is not printable ASCII shows as '?'. */
void kvshm__client_label(const struct kvshm_client *client, char *buf);

/* Say how this client moves pages, and why no better: its own thread says so while others may look. Cut to size. */
void kvshm__client_set_engine(kvshm *kv, uint32_t engine, const char *reason);

/* The engine of a place, and its reason, into buf of KVSHM__REASON_BYTES, with a 0 at its end. */
#define KVSHM__REASON_BYTES 64
uint32_t kvshm__client_engine(const struct kvshm_client *client, char *buf);

/* Is anybody attached to the file for writing, whatever its header says? 1, 0 or -errno. */
int kvshm__client_any(int fd);

/*
 * Become a client: draw a number, take its two locks, then a place. kv->fd is open, kv->quiet_fd a second description
 * of the same file. Fills kv->client and kv->place. 0, KVSHM_E_CLIENTS, KVSHM_E_DAMAGED or -errno of the locks; after
 * an error close both descriptors.
 */
int kvshm__client_take(kvshm *kv, const char *label);

/* Give the place back: one store. The locks fall when the caller closes the descriptors. */
void kvshm__client_give(kvshm *kv);

/* As kvshm_join() and kvshm_leave(), for a writing handle that is this process's. */
int kvshm__client_join(kvshm *kv, uint64_t number);
int kvshm__client_leave(kvshm *kv, uint64_t number);

#endif /* KVSHM_CLIENT_H */
