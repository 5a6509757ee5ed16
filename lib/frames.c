/* SPDX-License-Identifier: Apache-2.0 */
#include "frames.h"

#include "client.h"
#include "writer.h"

static struct kvshm_derived *derived(const kvshm *kv)
{
    return &kv->header->derived;
}

uint32_t kvshm__frames_reservation_new(kvshm *kv)
{
    kvshm_a64 *words = kvshm__own_reservations(kv);

    for (uint32_t i = 0; i < kv->max_leases; i++) {
        if (KVSHM__LOAD(&words[i]) == KVSHM__RESERVATION_EMPTY) {
            KVSHM__STORE_REL(&words[i], KVSHM__RESERVATION_HELD);
            return i;
        }
    }
    return UINT32_MAX;
}

/* First of the free list, else one that was never used. A list that leads astray (damage) is given up. */
static uint32_t find_free(kvshm *kv)
{
    uint32_t frame = KVSHM__LOAD(&derived(kv)->free_frame1) - 1;

    if (frame < kv->frame_count && KVSHM__LOAD(&kv->owners[frame].owner) == KVSHM__OWNER_FREE) {
        KVSHM__STORE(&derived(kv)->free_frame1, KVSHM__LOAD(&kv->owners[frame].next1));
        return frame;
    }
    KVSHM__STORE(&derived(kv)->free_frame1, 0);
    while ((frame = KVSHM__LOAD(&derived(kv)->fresh_frame)) < kv->frame_count) {
        KVSHM__STORE(&derived(kv)->fresh_frame, frame + 1);
        if (KVSHM__LOAD(&kv->owners[frame].owner) == KVSHM__OWNER_FREE)
            return frame;
    }
    return KVSHM__NO_FRAME;
}

/* Frames that are read into are counted apart from those that clients fill. */
static kvshm_a64 *reserved_count(const kvshm *kv, uint64_t owner)
{
    return kvshm__owner_kind(owner) == KVSHM__OWNER_RESTORING ? &kv->header->tier.frames_restoring
                                                              : &derived(kv)->frames_reserved;
}

uint32_t kvshm__frames_take(kvshm *kv, uint64_t owner)
{
    uint32_t frame = find_free(kv);

    if (frame == KVSHM__NO_FRAME)
        return frame;
    /* Counted first: while a dead client has such frames its place is not taken over, and it is found by its label. */
    if (kvshm__owner_kind(owner) == KVSHM__OWNER_DEVICE)
        KVSHM__ADD(&kv->clients[kv->place].device_frames, 1);
    KVSHM__STORE_REL(&kv->owners[frame].owner, owner);
    KVSHM__ADD(&derived(kv)->frames_free, -1);
    KVSHM__ADD(reserved_count(kv, owner), 1);
    return frame;
}

/* By compare-and-swap: its client may give the place back now, and who takes it over begins with 0. */
static void one_device_frame_less(kvshm_a64 *count)
{
    uint64_t n;

    do {
        n = KVSHM__LOAD(count);
    } while (n > 0 && !kvshm__cas(count, n, n - 1));
}

/* The derived side of a reserved frame's change of owner. */
static void no_longer_reserved(kvshm *kv, uint64_t owner)
{
    enum kvshm_owner_kind kind = kvshm__owner_kind(owner);

    if (kind == KVSHM__OWNER_FREE || kind == KVSHM__OWNER_PAGE)
        return;
    KVSHM__ADD(reserved_count(kv, owner), -1);
    if (kind == KVSHM__OWNER_DEVICE) {
        int place = kvshm__client_find(kv, kvshm__owner_client(owner));
        if (place >= 0)
            one_device_frame_less(&kv->clients[place].device_frames);
    }
}

void kvshm__frames_give(kvshm *kv, uint32_t frame)
{
    uint64_t owner = KVSHM__LOAD(&kv->owners[frame].owner);

    if (owner == KVSHM__OWNER_FREE)
        return;
    KVSHM__STORE_REL(&kv->owners[frame].owner, KVSHM__OWNER_FREE);
    no_longer_reserved(kv, owner);
    KVSHM__STORE(&kv->owners[frame].next1, KVSHM__LOAD(&derived(kv)->free_frame1));
    KVSHM__STORE(&derived(kv)->free_frame1, frame + 1);
    KVSHM__ADD(&derived(kv)->frames_free, 1);
}

void kvshm__frames_to_page(kvshm *kv, uint32_t frame, uint32_t record)
{
    uint64_t owner = KVSHM__LOAD(&kv->owners[frame].owner);

    KVSHM__STORE_REL(&kv->owners[frame].owner, kvshm__owner_page(record));
    no_longer_reserved(kv, owner);
}

/* ---- The sweep -------------------------------------------------------------------------------------------- */

bool kvshm__frames_sweep_worth(kvshm *kv)
{
    if (KVSHM__LOAD(&derived(kv)->frames_reserved) == 0 && KVSHM__LOAD(&kv->header->tier.frames_restoring) == 0)
        return false;
    if (KVSHM__LOAD_ACQ(&kv->header->sweep_wanted))
        return true;
    for (uint32_t i = 0; i < kv->max_clients; i++) {
        uint64_t number = KVSHM__LOAD_ACQ(&kv->clients[i].number);
        if (number != 0 && number != KVSHM__LOAD(&kv->clients[i].swept) && !kvshm__client_counts(kv, number))
            return true;
    }
    return false;
}

/* Cancelled words are marked before the frames are looked at: one cancelled later is the next sweep's (F2). */
static void mark_cancelled(kvshm *kv)
{
    for (size_t i = 0; i < (size_t)kv->max_clients * kv->max_leases; i++) {
        if (KVSHM__LOAD_ACQ(&kv->reservations[i]) == KVSHM__RESERVATION_CANCELLED)
            KVSHM__STORE(&kv->reservations[i], KVSHM__RESERVATION_SWEPT);
    }
}

static void empty_marked(kvshm *kv)
{
    for (size_t i = 0; i < (size_t)kv->max_clients * kv->max_leases; i++) {
        if (KVSHM__LOAD(&kv->reservations[i]) == KVSHM__RESERVATION_SWEPT)
            KVSHM__STORE_REL(&kv->reservations[i], KVSHM__RESERVATION_EMPTY);
    }
}

/* What is known of the client asked about last: frames of one reservation tend to lie together. */
struct verdict {
    uint64_t client;
    int place;    /* -1: it has none any more */
    bool counts;  /* alive, or joined by someone living */
};

static void judge(kvshm *kv, struct verdict *v, uint64_t client)
{
    if (v->client == client)
        return;
    v->client = client;
    v->counts = kvshm__client_counts(kv, client);
    v->place = kvshm__client_find(kv, client);
    /* It was taken for dead and alone a moment ago (a join that will be refused): to be asked about again. */
    if (v->counts && v->place >= 0 && KVSHM__LOAD(&kv->clients[v->place].swept) == client)
        KVSHM__STORE(&kv->clients[v->place].swept, 0);
}

static bool to_be_swept(kvshm *kv, struct verdict *v, uint64_t owner, uint64_t device)
{
    enum kvshm_owner_kind kind = kvshm__owner_kind(owner);
    uint64_t client = kvshm__owner_client(owner);
    uint32_t word = kvshm__owner_word(owner);

    if (kind == KVSHM__OWNER_RESTORING) { /* the device may go on after its death */
        bool landed = client != kv->client && kvshm__client_quiet(kv, client);
        kv->forsaken |= landed;
        return landed;
    }
    if (kind != KVSHM__OWNER_RESERVED && kind != KVSHM__OWNER_DEVICE)
        return false;
    judge(kv, v, client);
    if (v->place < 0)
        return true; /* it gave its place back, and all that it had was cancelled; or it died and held no more */
    if (word < kv->max_leases) {
        size_t at = (size_t)v->place * kv->max_leases + word;
        if (KVSHM__LOAD(&kv->reservations[at]) == KVSHM__RESERVATION_SWEPT)
            return true;
    }
    return !v->counts && (kind == KVSHM__OWNER_RESERVED || client == device);
}

/* Dead clients are not looked at again for their frames, unless someone living holds those by having joined. */
static void note_dead_swept(kvshm *kv)
{
    for (uint32_t i = 0; i < kv->max_clients; i++) {
        uint64_t number = KVSHM__LOAD_ACQ(&kv->clients[i].number);
        if (number != 0 && !kvshm__client_counts(kv, number) && (!kv->slots || kvshm__client_quiet(kv, number)))
            KVSHM__STORE(&kv->clients[i].swept, number);
    }
}

uint64_t kvshm__frames_sweep(kvshm *kv, uint64_t device)
{
    struct verdict verdict = {0, -1, false};
    uint64_t back = 0;

    /* Read and written in one step: who set it has cancelled before, and that is seen below. */
    atomic_exchange_explicit(&kv->header->sweep_wanted, 0, memory_order_seq_cst);
    note_dead_swept(kv);
    mark_cancelled(kv);
    for (uint32_t frame = 0; frame < KVSHM__LOAD(&derived(kv)->fresh_frame) && frame < kv->frame_count; frame++) {
        uint64_t owner = KVSHM__LOAD(&kv->owners[frame].owner);
        if (!to_be_swept(kv, &verdict, owner, device))
            continue;
        kvshm__frames_give(kv, frame);
        back++;
    }
    empty_marked(kv);
    return back;
}

/* Frames that devices write into, of one client. */
static uint64_t device_frames_of(const kvshm *kv, uint64_t client)
{
    uint64_t count = 0;

    for (uint32_t frame = 0; frame < kv->frame_count; frame++) {
        uint64_t owner = KVSHM__LOAD(&kv->owners[frame].owner);
        count += kvshm__owner_kind(owner) == KVSHM__OWNER_DEVICE && kvshm__owner_client(owner) == client;
    }
    return count;
}

/*
 * A count is stored once, whole: while it is not 0 nobody takes the place over. If its client gives the place back
 * meanwhile, whoever takes it has none, and says so, but perhaps before our store: then its number is seen here.
 */
static void rebuild_device_frames(kvshm *kv, bool any)
{
    for (uint32_t i = 0; i < kv->max_clients; i++) {
        struct kvshm_client *client = &kv->clients[i];
        uint64_t number = KVSHM__LOAD_ACQ(&client->number);
        if (any || KVSHM__LOAD(&client->device_frames) != 0)
            KVSHM__STORE(&client->device_frames, number ? device_frames_of(kv, number) : 0);
        KVSHM__FENCE(memory_order_seq_cst);
        if (KVSHM__LOAD_SEQ(&client->number) != number)
            KVSHM__STORE(&client->device_frames, 0);
        kvshm__writer_progress(kv);
        KVSHM__STORE(&client->swept, 0);
    }
}

void kvshm__frames_rebuild(kvshm *kv)
{
    struct kvshm_derived *d = derived(kv);
    uint64_t free_count = 0, reserved = 0, restoring = 0;
    uint32_t list = 0;
    bool device = false;

    for (uint32_t frame = kv->frame_count; frame-- > 0;) {
        uint64_t owner = KVSHM__LOAD(&kv->owners[frame].owner);
        if (kvshm__owner_kind(owner) == KVSHM__OWNER_FREE) {
            KVSHM__STORE(&kv->owners[frame].next1, list);
            list = frame + 1;
            free_count++;
        } else if (kvshm__owner_kind(owner) == KVSHM__OWNER_RESTORING) {
            restoring++;
        } else if (kvshm__owner_kind(owner) != KVSHM__OWNER_PAGE) {
            reserved++;
            device |= kvshm__owner_kind(owner) == KVSHM__OWNER_DEVICE;
        }
    }
    rebuild_device_frames(kv, device);
    KVSHM__STORE(&d->free_frame1, list);
    KVSHM__STORE(&d->fresh_frame, kv->frame_count);
    KVSHM__STORE(&d->frames_free, free_count);
    KVSHM__STORE(&d->frames_reserved, reserved);
    KVSHM__STORE(&kv->header->tier.frames_restoring, restoring);
    KVSHM__STORE_REL(&kv->header->sweep_wanted, 1);
}
