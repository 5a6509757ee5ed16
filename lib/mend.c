/* SPDX-License-Identifier: Apache-2.0 */
#include "mend.h"

#include <errno.h>
#include <string.h>

#include "client.h"
#include "evict.h"
#include "fork.h"
#include "frames.h"
#include "message.h"
#include "private.h"
#include "recency.h"
#include "slots.h"
#include "sys.h"
#include "writer.h"

/* Made at a handle's first change, so that an attach costs the same whatever the arena's size. */
int kvshm__mend_prepare(kvshm *kv)
{
    uint64_t *none = NULL, *made;

    if (kv->scratch != NULL)
        return 0;
    made = kvshm__private_alloc(2 * kv->bitmap_words * sizeof(*made));
    if (made == NULL)
        return kvshm__fail(-ENOMEM, "no memory for two bitmaps of %u records", kv->record_count);
    if (!atomic_compare_exchange_strong(&kv->scratch, &none, made))
        kvshm__private_free(made); /* another thread was faster */
    return 0;
}

int kvshm__mend_lock_again(kvshm *kv)
{
    int got = kvshm__writer_acquire(kv);

    if (got <= 0)
        return got;
    kvshm__mend_rebuild(kv);
    kvshm__evict_to_capacity(kv, KVSHM__CAPACITY_SLICE); /* whoever died may have left entries too many */
    kvshm__count(kv, KVSHM__CNT_takeovers, 1);
    return 0;
}

int kvshm__mend_lock(kvshm *kv)
{
    struct stat st;

    int err = kvshm__fork_check(kv);
    if (err < 0)
        return err;
    if (kv->read_only)
        return kvshm__fail(KVSHM_E_READ_ONLY, "arena %s was attached with KVSHM_RDONLY; attach without it to write",
                           kv->name);
    err = kvshm__client_in_place(kv);
    if (err < 0)
        return err;
    err = kvshm__sys.fstat(kv->fd, &st);
    if (err < 0)
        return kvshm__fail(err, "arena %s: fstat: %s", kv->name, kvshm_strerror(err));
    if (st.st_nlink == 0)
        return kvshm__fail(KVSHM_E_UNLINKED, "arena %s was unlinked: leases stay good, writing has ended; detach and "
                           "open the name again", kv->name);
    err = kvshm__mend_prepare(kv);
    return err < 0 ? err : kvshm__mend_lock_again(kv);
}

void kvshm__mend_unlock(kvshm *kv)
{
    kvshm__writer_release(kv);
}

/* ---- The rebuild ------------------------------------------------------------------------------------------ */

/* Records between two steps of the progress word, which others watch to see that the mender lives. */
#define SLICE 4096

static void progress(kvshm *kv, uint32_t record)
{
    if (record % SLICE == 0)
        kvshm__writer_progress(kv);
}

static enum kvshm_place_state state_of(const kvshm *kv, uint32_t record)
{
    return kvshm__place_state(KVSHM__LOAD(&kv->records[record].place));
}

static bool of_this_epoch(const kvshm *kv, uint32_t record)
{
    return KVSHM__LOAD(&kv->records[record].epoch) == (uint32_t)KVSHM__LOAD(&kv->header->epoch);
}

/* Does the page's frame say that it is this page's? */
static bool has_frame(const kvshm *kv, uint32_t record)
{
    uint32_t frame = kvshm__place_frame(KVSHM__LOAD(&kv->records[record].place));

    return frame < kv->frame_count && KVSHM__LOAD(&kv->owners[frame].owner) == kvshm__owner_page(record);
}

/* 1. A sequence left odd is finished: such a record has no place and no word. States that are none (damage) end. */
static void finish_sequences(kvshm *kv)
{
    for (uint32_t record = 0; record < kv->record_count; record++) {
        struct kvshm_record *r = &kv->records[record];
        if (KVSHM__LOAD(&r->seq) & 1)
            KVSHM__STORE_REL(&r->seq, KVSHM__LOAD(&r->seq) + 1);
        if (state_of(kv, record) > (kv->slots ? KVSHM__PLACE_PARTING : KVSHM__PLACE_AWAY))
            KVSHM__STORE_REL(&r->place, KVSHM__LOAD(&r->place) >> 32 << 32);
        if (state_of(kv, record) == KVSHM__PLACE_PARTING && !has_frame(kv, record))
            kvshm__pages_spilled(kv, record);
        progress(kv, record);
    }
}

/*
 * 2. Words that name no page of theirs are cleared, one by one. named gets the bit of each record that a word names
 * rightly: where its hash says, once, with a place, in this epoch.
 */
static void mend_words(kvshm *kv, uint64_t *named)
{
    memset(named, 0, kv->bitmap_words * sizeof(*named));
    for (uint32_t b = 0; b < kv->bucket_count; b++) {
        for (uint32_t i = 0; i < KVSHM__BUCKET_WORDS; i++) {
            kvshm_a64 *at = &kv->buckets[b].word[i];
            uint64_t word = KVSHM__LOAD(at);
            uint32_t record = kvshm__index_record(kv, word);
            if (word == 0)
                continue;
            if (record != KVSHM__NO_RECORD && state_of(kv, record) != KVSHM__PLACE_NONE && of_this_epoch(kv, record) &&
                !kvshm__bit(named, record) && kvshm__index_word_of(kv, record) == at)
                kvshm__bit_set(named, record);
            else
                KVSHM__STORE_REL(at, 0);
        }
        progress(kv, b);
    }
}

/* A page that is found stands in its frame, under a parent that does; one in the file in its slot, under one in the file. */
static bool whole(const kvshm *kv, uint32_t record, const uint64_t *named)
{
    uint32_t parent1 = KVSHM__LOAD(&kv->records[record].parent1);
    uint64_t place = KVSHM__LOAD(&kv->records[record].place);
    bool pending = kvshm__place_pending(place);

    if (!kvshm__bit(named, record) || (kvshm__place_state(place) != KVSHM__PLACE_SPILLED &&
                                       kvshm__place_state(place) != KVSHM__PLACE_RESTORING && !has_frame(kv, record)))
        return false;
    if (pending && !kvshm__slots_written(kv, record))
        return false;
    if (parent1 == 0)
        return kvshm__pages_root(&kv->records[record]);
    uint32_t parent = kvshm__pages_parent(kv, record);
    if (parent == KVSHM__NO_RECORD)
        return false;
    uint64_t above = KVSHM__LOAD(&kv->records[parent].place);
    return kvshm__place_published(above) ||
           (pending && kvshm__place_pending(above) &&
            (kvshm__place_state(place) == KVSHM__PLACE_SPILLED || kvshm__place_state(above) != KVSHM__PLACE_SPILLED));
}

/* 3. What is resident and not found by the index, or not whole, is taken away. Damage may take several rounds. */
static void take_away_unpublished(kvshm *kv, const uint64_t *named)
{
    bool again;

    do {
        again = false;
        for (uint32_t record = 0; record < kv->record_count; record++) {
            uint64_t place = KVSHM__LOAD(&kv->records[record].place);
            if ((kvshm__place_published(place) || kvshm__place_pending(place)) && !whole(kv, record, named))
                again |= kvshm__pages_take_away(kv, record);
            if (kv->slots && state_of(kv, record) != KVSHM__PLACE_NONE && !kvshm__place_published(place) &&
                !kvshm__place_pending(place))
                kvshm__slots_drop(kv, record);
            progress(kv, record);
        }
    } while (again);
}

/* 4. The lists of children, of all pages that have a place. */
static void link_children(kvshm *kv)
{
    for (uint32_t record = 0; record < kv->record_count; record++) {
        KVSHM__STORE(&kv->links[record].child1, 0);
        if (kv->ages)
            KVSHM__STORE(&kv->ages[record].spilled1, 0);
    }
    for (uint32_t record = 0; record < kv->record_count; record++) {
        KVSHM__STORE(&kv->links[record].link1, 0);
        if (state_of(kv, record) != KVSHM__PLACE_NONE)
            kvshm__pages_link(kv, record);
        progress(kv, record);
    }
}

/* 5. Runs of pages that end in no entry: of an insert that was not finished, or of a removal. */
static void trim(kvshm *kv)
{
    for (uint32_t record = 0; record < kv->record_count; record++) {
        uint64_t place = KVSHM__LOAD(&kv->records[record].place);
        if (kvshm__place_published(place) || kvshm__place_pending(place))
            kvshm__evict_take_away(kv, record);
        progress(kv, record);
    }
}

/*
 * A page whose insert had not come to its frame's owner word: the place names the frame first, so a dead client's
 * reservation there was for this page. It is done now, so that all pages of a chain that is held have their frames.
 */
static void finish_owner(kvshm *kv, uint32_t record)
{
    uint32_t frame = kvshm__place_frame(KVSHM__LOAD(&kv->records[record].place));
    uint64_t owner = frame < kv->frame_count ? KVSHM__LOAD(&kv->owners[frame].owner) : KVSHM__OWNER_FREE;

    if ((kvshm__owner_kind(owner) == KVSHM__OWNER_RESERVED || kvshm__owner_kind(owner) == KVSHM__OWNER_DEVICE) &&
        !kvshm__client_alive(kv, kvshm__owner_client(owner)))
        KVSHM__STORE_REL(&kv->owners[frame].owner, kvshm__owner_page(record));
}

/* Of an insert that died before the page's index word, held by who joined it: inserts must find it in limbo (I2). */
static void name_again(kvshm *kv, uint32_t record)
{
    uint64_t hash = KVSHM__LOAD(&kv->records[record].hash);
    kvshm_a64 *word;

    if (!of_this_epoch(kv, record) || (KVSHM__LOAD(&kv->records[record].length) & KVSHM__KEY_ONLY) ||
        kvshm__index_word_of(kv, record))
        return;
    word = kvshm__index_empty(kv, hash);
    if (word)
        kvshm__index_set(word, hash, record);
}

/* 6. What is away stays in limbo if a lease that counts holds it or something below it, and is freed if not. */
static void settle_limbo(kvshm *kv, uint64_t *held)
{
    kvshm__lease_scan_chains(kv, held);
    KVSHM__STORE(&kv->header->derived.limbo_first1, 0);
    KVSHM__STORE(&kv->header->derived.limbo_last1, 0);
    for (uint32_t record = 0; record < kv->record_count; record++) {
        KVSHM__STORE(&kv->links[record].link1, 0);
        if (state_of(kv, record) == KVSHM__PLACE_AWAY && kvshm__bit(held, record))
            finish_owner(kv, record);
        if (state_of(kv, record) == KVSHM__PLACE_AWAY && !(kvshm__bit(held, record) && has_frame(kv, record)))
            kvshm__evict_release_page(kv, record);
        else if (state_of(kv, record) == KVSHM__PLACE_AWAY)
            name_again(kv, record);
        progress(kv, record);
    }
    for (uint32_t record = 0; record < kv->record_count; record++) {
        if (state_of(kv, record) != KVSHM__PLACE_AWAY && state_of(kv, record) != KVSHM__PLACE_PARTING)
            continue;
        if (state_of(kv, record) == KVSHM__PLACE_AWAY && (KVSHM__LOAD(&kv->records[record].length) & KVSHM__KEY_ONLY))
            kvshm__index_clear(kv, record); /* as kvshm__evict_take_away() does */
        kvshm__evict_to_limbo(kv, record);
    }
}

/* 7. Frames of pages that do not stand in them, and all lists and counts. */
static void count_all(kvshm *kv)
{
    struct kvshm_derived *d = &kv->header->derived;
    uint64_t pages = 0, limbo = 0, spilled = 0;

    for (uint32_t frame = 0; frame < kv->frame_count; frame++) {
        uint64_t owner = KVSHM__LOAD(&kv->owners[frame].owner);
        uint32_t record = (uint32_t)owner;
        if (kvshm__owner_kind(owner) > (kv->slots ? KVSHM__OWNER_RESTORING : KVSHM__OWNER_PAGE) ||
            (kvshm__owner_kind(owner) == KVSHM__OWNER_FREE && owner != KVSHM__OWNER_FREE) ||
            (kvshm__owner_kind(owner) == KVSHM__OWNER_PAGE &&
             (record >= kv->record_count || state_of(kv, record) == KVSHM__PLACE_NONE ||
              state_of(kv, record) == KVSHM__PLACE_SPILLED ||
              kvshm__place_frame(KVSHM__LOAD(&kv->records[record].place)) != frame)))
            KVSHM__STORE_REL(&kv->owners[frame].owner, KVSHM__OWNER_FREE);
        progress(kv, frame);
    }
    KVSHM__STORE(&d->free_record1, 0);
    KVSHM__STORE(&d->fresh_record, kv->record_count);
    for (uint32_t record = kv->record_count; record-- > 0;) {
        if (state_of(kv, record) == KVSHM__PLACE_NONE)
            kvshm__pages_give(kv, record);
        else if (state_of(kv, record) == KVSHM__PLACE_AWAY)
            limbo++;
        else if (kvshm__place_pending(KVSHM__LOAD(&kv->records[record].place)))
            spilled++;
        else
            pages++;
    }
    KVSHM__STORE(&d->pages, pages);
    KVSHM__STORE(&d->limbo, limbo);
    KVSHM__STORE(&kv->header->tier.pages_spilled, spilled);
    KVSHM__STORE(&d->sweep_record, kv->record_count);
    kvshm__frames_rebuild(kv);
    kvshm__recency_rebuild(kv);
}

void kvshm__mend_rebuild(kvshm *kv)
{
    uint64_t *named = kv->scratch + kv->bitmap_words;

    kv->pinned1 = 0;
    finish_sequences(kv);
    kvshm__slots_rebuild(kv);
    mend_words(kv, named);
    take_away_unpublished(kv, named);
    link_children(kv);
    if (kv->slots)
        kvshm__evict_forsake(kv);
    trim(kv);
    settle_limbo(kv, kv->scratch);
    count_all(kv);
}
