/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit_look.h - what the files of the audit share: one look at an arena, and what is true of a record.
 */
#ifndef KVSHM_TESTS_AUDIT_LOOK_H
#define KVSHM_TESTS_AUDIT_LOOK_H

#include <stdio.h>

#include "pages.h"

/* One audit: where findings go, and what is known of each record. */
struct look {
    const kvshm *kv;
    FILE *out;
    unsigned findings;
    uint32_t *words;     /* index words that name the record */
    uint32_t *lists;     /* bit per list in which it was met: IN_... */
    uint32_t *positions; /* heap slots that hold it */
    uint32_t *order;     /* record numbers, for sorting */
    bool living;         /* in each_lease(): is it the lease of a living one? */
};
enum { IN_FREE = 1, IN_LIMBO = 2, IN_CHILDREN = 4, IN_LEFT = 8, IN_UNWRITTEN = 16 };

/* Tell what is wrong. */
void audit_found(struct look *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- What is true of a record -------------------------------------------------------------------------- */

static inline enum kvshm_place_state state_of(const kvshm *kv, uint32_t record)
{
    return kvshm__place_state(KVSHM__LOAD(&kv->records[record].place));
}

static inline bool published(const kvshm *kv, uint32_t record)
{
    return kvshm__place_published(KVSHM__LOAD(&kv->records[record].place));
}

static inline bool in_use(const kvshm *kv, uint32_t record)
{
    return state_of(kv, record) != KVSHM__PLACE_NONE;
}

static inline bool of_this_epoch(const kvshm *kv, uint32_t record)
{
    return KVSHM__LOAD(&kv->records[record].epoch) == (uint32_t)KVSHM__LOAD(&kv->header->epoch);
}

static inline uint32_t length_of(const kvshm *kv, uint32_t record)
{
    return KVSHM__LOAD(&kv->records[record].length);
}

static inline bool key_only(const kvshm *kv, uint32_t record)
{
    return length_of(kv, record) & KVSHM__KEY_ONLY;
}

static inline uint64_t stamp_of(const kvshm *kv, uint32_t record)
{
    return KVSHM__LOAD(&kv->records[record].stamp);
}

/* In the file, and perhaps not in memory? */
static inline bool pending(const kvshm *kv, uint32_t record)
{
    return kvshm__place_pending(KVSHM__LOAD(&kv->records[record].place));
}

/* Have all records of earlier epochs been swept? */
bool audit_epochs_swept(const kvshm *kv);

/* A derived count against the true one. */
void audit_count_is(struct look *l, const char *what, uint64_t is, uint64_t true_count);

/* audit_tier.c: slots, lists of entries, and the counts of an arena with a spill file. After the lists and the heap. */
void audit_tier(struct look *l);

#endif /* KVSHM_TESTS_AUDIT_LOOK_H */
