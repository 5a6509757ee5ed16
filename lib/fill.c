/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fill.c - the public calls that fill pages, and those that make room for them: reservations, insert, eviction, clear.
 */
#include <errno.h>
#include <string.h>

#include "calls.h"
#include "evict.h"
#include "frames.h"
#include "insert.h"
#include "mend.h"
#include "private.h"
#include "sys.h"

/* Slices of a clear, in records; the lock is given back between them. */
#define CLEAR_SLICE 4096

/* ---- Filling ------------------------------------------------------------------------------------------------ */

static int no_space(kvshm *kv, uint32_t npages)
{
    const struct kvshm_derived *d = &kv->header->derived;

    kvshm__count(kv, KVSHM__CNT_no_space, 1);
    if (npages > kv->frame_count)
        return kvshm__fail(-ENOSPC, "%u frames were asked for; arena %s has %u in all; ask for fewer or make a larger "
                           "arena", npages, kv->name, kv->frame_count);
    if (kv->slots && !kvshm__tier_has(kv))
        return kvshm__fail(-ENOSPC, "%u frames were asked for; those of arena %s are leased, reserved, or of pages that are "
                           "not in the spill file yet, which a handle without it (KVSHM_NOTIER) leaves alone; attach with the "
                           "file, or wait until others have written them", npages, kv->name);
    return kvshm__fail(-ENOSPC, "%u frames were asked for; arena %s has %u, of which %llu are free, %llu reserved, and "
                       "too many of the others leased; release leases or make a larger arena", npages, kv->name,
                       kv->frame_count, (unsigned long long)KVSHM__LOAD((kvshm_a64 *)&d->frames_free),
                       (unsigned long long)KVSHM__LOAD((kvshm_a64 *)&d->frames_reserved));
}

/* A word of our reservation table for r; with the writer lock, like what follows. */
static int take_word(kvshm *kv, struct kvshm_reservation *r)
{
    r->word = kvshm__frames_reservation_new(kv);
    if (r->word == UINT32_MAX) {
        kvshm__frames_sweep(kv, 0);
        r->word = kvshm__frames_reservation_new(kv);
    }
    if (r->word != UINT32_MAX)
        return 0;
    return kvshm__fail(KVSHM_E_LEASES, "all %u reservation words of this client are taken; insert or cancel some, or "
                       "create the arena with a larger max_leases", kv->max_leases);
}

static void give_word(kvshm *kv, struct kvshm_reservation *r)
{
    while (r->pages > 0)
        kvshm__frames_give(kv, r->frames[--r->pages]);
    KVSHM__STORE_REL(&kvshm__own_reservations(kv)[r->word], KVSHM__RESERVATION_EMPTY);
}

static int take_frames(kvshm *kv, uint32_t npages, struct kvshm_reservation *r)
{
    enum kvshm_owner_kind kind = r->flags & KVSHM_DEVICE ? KVSHM__OWNER_DEVICE : KVSHM__OWNER_RESERVED;
    uint64_t owner = kvshm__owner_reserved(kind, kv->client, r->word);

    while (r->pages < npages) {
        r->frames[r->pages] = kvshm__frames_take(kv, owner);
        if (r->frames[r->pages] == KVSHM__NO_FRAME)
            return kvshm__fail(KVSHM_E_DAMAGED, "arena %s counts more free frames than it has; remove it and create it "
                               "anew", kv->name);
        r->pages++;
    }
    return 0;
}

/* -EAGAIN: only what is not in the file yet could give room, and may not be dropped. */
static int reserve_locked(kvshm *kv, uint32_t npages, struct kvshm_reservation *r, bool may_drop)
{
    int err = take_word(kv, r);

    if (err)
        return err;
    err = kvshm__evict_make_room(kv, npages, may_drop);
    if (err != -EAGAIN)
        err = err ? no_space(kv, npages) : take_frames(kv, npages, r);
    if (err) {
        give_word(kv, r);
        return err;
    }
    r->epoch = KVSHM__LOAD(&kv->header->epoch);
    r->kv = kv;
    return 0;
}

/* KVSHM_WAIT: until the disk has taken what would be dropped else, or time is up. */
static int reserve_waiting(kvshm *kv, uint32_t npages, struct kvshm_reservation *r, bool wait)
{
    bool may_wait = wait && kvshm__tier_has(kv);
    uint64_t limit = kvshm__wait_limit_ns(kv), now = kvshm__sys.monotonic_ns();
    uint64_t deadline = limit > UINT64_MAX - now ? UINT64_MAX : now + limit;
    int err;

    for (;;) {
        err = kvshm__mend_lock(kv);
        if (err)
            return err;
        err = reserve_locked(kv, npages, r, !may_wait && (!kv->slots || kvshm__tier_has(kv)));
        kvshm__mend_unlock(kv);
        if (err != -EAGAIN)
            break;
        if (!kvshm__tier_has(kv))
            return no_space(kv, npages); /* it evicts only what is in the file already */
        may_wait = kvshm__tier_wait_room(kv, deadline) == 0;
    }
    kvshm__tier_kick(kv);
    return err;
}

KVSHM_API int kvshm_reserve(kvshm *kv, uint32_t npages, unsigned flags, struct kvshm_reservation *r)
{
    struct kvshm_reservation made = {.flags = flags & KVSHM_DEVICE};
    int err;

    if (!r)
        return kvshm__fail(-EINVAL, "the reservation is NULL");
    memset(r, 0, sizeof(*r));
    if ((err = kvshm__check_handle(kv)) || (err = kvshm__check_flags(flags, KVSHM_DEVICE | KVSHM_WAIT)))
        return err;
    if (npages == 0)
        return kvshm__fail(-EINVAL, "npages is 0; at least one frame is reserved");
    if (npages > kv->frame_count)
        return kv->read_only ? kvshm__mend_lock(kv) : no_space(kv, npages);
    made.frames = kvshm__private_alloc(npages * sizeof(*made.frames));
    if (!made.frames)
        return kvshm__fail(-ENOMEM, "no memory for a list of %u frames", npages);
    err = reserve_waiting(kv, npages, &made, (flags & KVSHM_WAIT) != 0);
    if (err) {
        kvshm__private_free(made.frames);
        return err;
    }
    kvshm__count(kv, KVSHM__CNT_reserved_pages, npages);
    /* What is written into the frames now comes after the places of their last pages changed, for who copies from
       there without a lease (copy_unleased). */
    KVSHM__FENCE(memory_order_seq_cst);
    *r = made;
    return 0;
}

KVSHM_API int kvshm_reservation_offsets(const struct kvshm_reservation *r, uint32_t first, uint32_t n, uint64_t *out)
{
    if (r && r->kv && kvshm__forked(r->kv))
        return kvshm__check_handle(r->kv);
    if (!r || !r->kv || first >= r->pages || !out)
        return 0;
    if (n > r->pages - first)
        n = r->pages - first;
    for (uint32_t i = 0; i < n; i++)
        out[i] = kvshm__frame_offset(r->kv, r->frames[first + i]);
    return (int)n;
}

KVSHM_API void *kvshm_reservation_page(const struct kvshm_reservation *r, uint32_t i)
{
    uint64_t offset;

    return kvshm_reservation_offsets(r, i, 1, &offset) == 1 ? r->kv->write_base + offset : NULL;
}

KVSHM_API void kvshm_cancel(kvshm *kv, struct kvshm_reservation *r)
{
    if (!r || r->kv != kv)
        return;
    if (kv && !kvshm__forked(kv) && r->word < kv->max_leases) {
        KVSHM__STORE_REL(&kvshm__own_reservations(kv)[r->word], KVSHM__RESERVATION_CANCELLED);
        KVSHM__STORE_REL(&kv->header->sweep_wanted, 1);
        kvshm__count(kv, KVSHM__CNT_cancelled_pages, r->pages);
    }
    if (kv && r->word < kv->max_leases)
        kvshm__private_free(r->frames); /* a child's copy too */
    memset(r, 0, sizeof(*r));
}

KVSHM_API int kvshm_insert(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *head,
                           struct kvshm_reservation *r, unsigned flags)
{
    int err;

    if ((err = kvshm__check_handle(kv)) || (err = kvshm__check_flags(flags, KVSHM_EXTEND | KVSHM_HOLD)) ||
        (err = kvshm__check_prefix(prefix)) || (err = kvshm__check_leasing(kv)))
        return err;
    if ((flags & KVSHM_HOLD) && !head)
        return kvshm__fail(-EINVAL, "KVSHM_HOLD needs a head to put the lease into; an empty one will do");
    return kvshm__insert(kv, prefix, head, r, flags);
}

/* ---- Giving room --------------------------------------------------------------------------------------------- */

KVSHM_API int64_t kvshm_evict_lru(kvshm *kv)
{
    int64_t back;
    int err;

    if ((err = kvshm__check_handle(kv)) || (err = kvshm__mend_lock(kv)))
        return err;
    back = kvshm__evict_lru(kv, !kvshm__tier_has(kv));
    kvshm__mend_unlock(kv);
    if (back == -EAGAIN) {
        err = kvshm__tier_send(kv);
        return err < 0 ? err : 0;
    }
    return back;
}

KVSHM_API int kvshm_clear(kvshm *kv)
{
    bool done = false;
    int err;

    if ((err = kvshm__check_handle(kv)) || (err = kvshm__check_file(kv)))
        return err;
    uint64_t epoch = KVSHM__LOAD(&kv->header->epoch) + 1;
    if (kvshm__tier_has(kv) && (err = kvshm__tier_epoch(kv, epoch - 1, &epoch)))
        return err;
    if ((err = kvshm__mend_lock(kv)))
        return err;
    kvshm__evict_clear(kv, epoch);
    kvshm__mend_unlock(kv);
    /* The rest costs nobody but time: whoever needs frames goes on with it if this process dies or is told to stop. */
    while (!done && kvshm__mend_lock(kv) == 0) {
        done = kvshm__evict_clear_slice(kv, CLEAR_SLICE);
        kvshm__mend_unlock(kv);
    }
    return 0;
}
