/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handle.h - one attached arena, as this process knows it: private memory, filled at attach.
 *
 * Pointers and sizes below were checked against the header once (validate.c) and are never read from shared
 * memory again; what is read from shared memory later (a record number, a frame number) is checked against them.
 */
#ifndef KVSHM_HANDLE_H
#define KVSHM_HANDLE_H

#include <pthread.h>
#include <string.h>
#include <sys/types.h>

#include "atomics.h"
#include "layout.h"

/* Where the next lease word is looked for, for threads that hash to it; a line each. */
struct kvshm__hint {
    _Atomic(uint32_t) next1; /* 0: not set yet */
    char line[60];
};
#define KVSHM__HINTS 64

struct kvshm {
    /* constant while attached */
    uint8_t *base;                /* of tables: the writable mapping, or the read-only one of a read-only handle */
    const uint8_t *read_base;     /* of leases: PROT_READ */
    uint8_t *write_base;          /* of reservations; NULL: read-only */
    uint64_t segment_bytes;
    struct kvshm_header *header;
    struct kvshm_client *clients;
    struct kvshm_lease_word *leases;   /* of all clients */
    kvshm_a64 *reservations;           /* of all clients */
    struct kvshm_bucket *buckets;
    struct kvshm_record *records;
    struct kvshm_links *links;
    uint8_t *texts;
    struct kvshm_heap_slot *heap;
    struct kvshm_owner *owners;
    struct kvshm_slot *slots;          /* NULL: the arena has no spill file */
    struct kvshm_age *ages;            /* the same */
    uint64_t frames_offset;
    uint64_t page_bytes;
    uint64_t frame_stride;
    uint64_t text_stride;
    uint32_t frame_count;
    uint32_t record_count;
    uint32_t slot_count;
    uint64_t slot_bytes;          /* of the spill file, header and payload; 0: this process has no tier */
    uint64_t spill_fixed_bytes;   /* of the spill file, before its slots */
    uint32_t bucket_count;
    uint32_t page_tokens;
    uint32_t partial_shift;       /* bit of kvshm_record.partials for m tokens: (m - 1) >> partial_shift */
    uint32_t max_clients;
    uint32_t max_leases;
    uint32_t place;               /* own place among the clients */
    uint64_t client;              /* own number; 0: read-only */
    struct kvshm_client *own;     /* what stands in that place, and its lease words; NULL: read-only */
    struct kvshm_lease_word *own_leases;
    bool read_only;
    bool named_fingerprint;
    bool hardware_clock;
    int fd;                       /* of the segment; holds the alive byte */
    int quiet_fd;                 /* another description; holds the quiet byte; -1: read-only */
    int spill_fd;                 /* of the spill file; -1: none */
    int ring_fd;                  /* of the ring that moves pages; -1: none */
    int event_fd;                 /* kvshm_eventfd; -1: none */
    char name[KVSHM_NAME_MAX + 1];
    char path[256];
    uint8_t secret[KVSHM__SECRET_BYTES];
    const kvshm_a64 *fork_page;   /* MADV_WIPEONFORK: 1 in the process that attached, 0 in its children */
    struct kvshm_static *fixed;   /* private copy of the header's fixed part, as it was validated */
    struct kvshm *next;           /* list of this process's handles, for the fork handler */

    /* changed by calls */
    pthread_mutex_t join_mutex;   /* join words of this handle; nothing is taken under it */
    pthread_mutex_t mutex;        /* threads of this handle queue here before the writer lock */
    int cancel_state;             /* under mutex: of the thread that is inside */
    uint64_t stalled_owner;       /* under mutex: who was found stopped, */
    uint64_t stalled_turn;        /* and at which turn, */
    uint64_t stalled_progress;    /* and progress */
    uint32_t pinned1;             /* under the writer lock: a page that an insert is at, not to be taken away; 0: none */
    _Atomic(uint64_t *) scratch;  /* made at the first change; its content under the writer lock: two bitmaps of records,
                                     bitmap_words each */
    uint64_t bitmap_words;
    bool forsaken;                /* under the writer lock: frames of the dead came back that pages were to be read into */
    struct kvshm__tier *tier;     /* this process's I/O on the spill file; NULL: none */
    uint64_t limbo_left;          /* under the writer lock: pages that the last sweep of a clear left in limbo */
    _Atomic(uint32_t) hint_count;
    struct kvshm__hint hints[KVSHM__HINTS];
};

/* Was this handle made by another process (a parent before fork)? Then nothing may be touched. */
static inline bool kvshm__forked(const struct kvshm *kv)
{
    return KVSHM__LOAD((kvshm_a64 *)kv->fork_page) == 0;
}

/* Make a lease empty. (In two parts, which compilers write out as stores; a whole one may become a slow string
   instruction.) */
static inline void kvshm__lease_empty(struct kvshm_lease *lease)
{
    struct half {
        uint64_t word[8];
    } *halves = (struct half *)lease;
    static_assert(sizeof(struct kvshm_lease) == 2 * sizeof(struct half), "two halves");
    memset(&halves[0], 0, sizeof(halves[0]));
    memset(&halves[1], 0, sizeof(halves[1]));
}

static inline kvshm_a64 *kvshm__text(const struct kvshm *kv, uint32_t record)
{
    return (kvshm_a64 *)(kv->texts + record * kv->text_stride);
}

/* Own lease words. */
static inline struct kvshm_lease_word *kvshm__own_leases(const struct kvshm *kv)
{
    return kv->own_leases;
}

/* Own reservation words. */
static inline kvshm_a64 *kvshm__own_reservations(const struct kvshm *kv)
{
    return kv->reservations + (size_t)kv->place * kv->max_leases;
}

#define KVSHM_COUNTER(name, unit, help) KVSHM__CNT_##name,
#define KVSHM_LEASE_COUNTER(name, unit, help)
enum kvshm_counter {
#include "counters.def"
    KVSHM__COUNTERS
};
#undef KVSHM_COUNTER
#undef KVSHM_LEASE_COUNTER
#define KVSHM_COUNTER(name, unit, help)
#define KVSHM_LEASE_COUNTER(name, unit, help) KVSHM__LCNT_##name,
enum kvshm_lease_counter {
#include "counters.def"
    KVSHM__LEASE_COUNTERS
};
#undef KVSHM_COUNTER
#undef KVSHM_LEASE_COUNTER
static_assert(KVSHM__COUNTERS + KVSHM__LEASE_COUNTERS <= KVSHM__COUNTERS_ROOM, "counters");
static_assert(KVSHM__LEASE_COUNTERS <= 4, "a lease line has room for four");

/* Count for this client; nothing in a read-only handle. */
static inline void kvshm__count(const struct kvshm *kv, enum kvshm_counter counter, uint64_t n)
{
    if (!kv->read_only)
        KVSHM__ADD(&kv->clients[kv->place].counters[counter], n);
}

#endif /* KVSHM_HANDLE_H */
