/* SPDX-License-Identifier: Apache-2.0 */
#include "slots.h"

#include "client.h"
#include "frames.h"

static struct kvshm_tier_derived *derived(const kvshm *kv)
{
    return &kv->header->tier;
}

static uint64_t owner_of(const kvshm *kv, uint32_t slot)
{
    return KVSHM__LOAD(&kv->slots[slot].owner);
}

static void set_owner(const kvshm *kv, uint32_t slot, uint64_t owner)
{
    KVSHM__STORE_REL(&kv->slots[slot].owner, owner);
}

static uint64_t owned_by_us(const kvshm *kv, enum kvshm_owner_kind kind)
{
    return kvshm__owner_reserved(kind, kv->client, 0);
}

static uint64_t doomed_word(void)
{
    return kvshm__owner_reserved(KVSHM__OWNER_DOOMED, 0, 0);
}

static uint64_t slot_word_of(const kvshm *kv, uint32_t record)
{
    return KVSHM__LOAD(&kv->records[record].slot);
}

static void set_slot_word(const kvshm *kv, uint32_t record, uint64_t word)
{
    KVSHM__STORE_REL(&kv->records[record].slot, word);
}

/* The record whose page or header is being written into the slot, by that record's word; KVSHM__NO_RECORD: it is gone. */
static uint32_t written_by(const kvshm *kv, uint32_t slot)
{
    uint32_t record = KVSHM__LOAD(&kv->slots[slot].record);

    return record < kv->record_count && slot_word_of(kv, record) != 0 &&
                   kvshm__slot_number(slot_word_of(kv, record)) == slot
               ? record
               : KVSHM__NO_RECORD;
}

/* Is the slot one of a page whose header is written anew? */
static bool is_rewritten(const kvshm *kv, uint32_t slot, uint32_t record)
{
    return kvshm__owner_kind(owner_of(kv, slot)) == KVSHM__OWNER_WRITING && KVSHM__LOAD(&kv->slots[slot].record) == record &&
           slot_word_of(kv, record) == kvshm__slot_word(slot, KVSHM__SLOT_WRITTEN);
}

/* ---- Lists ------------------------------------------------------------------------------------------------ */

static void give(kvshm *kv, uint32_t slot)
{
    set_owner(kv, slot, KVSHM__OWNER_FREE);
    KVSHM__STORE(&kv->slots[slot].next1, KVSHM__LOAD(&derived(kv)->free_slot1));
    KVSHM__STORE(&derived(kv)->free_slot1, slot + 1);
    KVSHM__ADD(&derived(kv)->slots_free, 1);
}

/* The moment of which a doomed slot is (G4); its checksum is nobody's any more. */
static uint64_t stamp_of(const kvshm *kv, uint32_t slot)
{
    return KVSHM__LOAD(&kv->slots[slot].sum);
}

/* Of no moment that can be told: before any that is waited for. */
#define LONG_AGO 1

static void doom(kvshm *kv, uint32_t slot, uint64_t stamp)
{
    uint32_t last = KVSHM__LOAD(&derived(kv)->doomed_last1) - 1;

    KVSHM__STORE(&kv->slots[slot].sum, stamp);
    set_owner(kv, slot, doomed_word());
    KVSHM__STORE(&kv->slots[slot].next1, 0);
    if (last < kv->slot_count && stamp < stamp_of(kv, last))
        KVSHM__STORE(&derived(kv)->disordered, 1);
    if (last < kv->slot_count)
        KVSHM__STORE(&kv->slots[last].next1, slot + 1);
    else
        KVSHM__STORE(&derived(kv)->doomed_first1, slot + 1);
    KVSHM__STORE(&derived(kv)->doomed_last1, slot + 1);
    KVSHM__ADD(&derived(kv)->doomed, 1);
}

/* First of the free list, else one that was never used. A list that leads astray (damage) is given up. */
static uint32_t find_free(kvshm *kv)
{
    uint32_t slot = KVSHM__LOAD(&derived(kv)->free_slot1) - 1;

    if (slot < kv->slot_count && owner_of(kv, slot) == KVSHM__OWNER_FREE) {
        KVSHM__STORE(&derived(kv)->free_slot1, KVSHM__LOAD(&kv->slots[slot].next1));
        return slot;
    }
    KVSHM__STORE(&derived(kv)->free_slot1, 0);
    while ((slot = KVSHM__LOAD(&derived(kv)->fresh_slot)) < kv->slot_count) {
        KVSHM__STORE(&derived(kv)->fresh_slot, slot + 1);
        if (owner_of(kv, slot) == KVSHM__OWNER_FREE)
            return slot;
    }
    return KVSHM__NO_SLOT;
}

/* ---- Batches ---------------------------------------------------------------------------------------------- */

static uint64_t moment_now(const kvshm *kv)
{
    return KVSHM__LOAD(&derived(kv)->moment) + 1;
}

static kvshm_a64 *since_of(kvshm *kv, enum kvshm__slots_batch kind)
{
    kvshm_a64 *since = &kv->clients[kv->place].since[kind];

    if (KVSHM__LOAD(since) != 0) /* of the dead client whose place this was */
        kvshm__slots_sweep(kv);
    return since;
}

void kvshm__slots_begin(kvshm *kv, enum kvshm__slots_batch kind)
{
    kvshm_a64 *since = since_of(kv, kind);

    KVSHM__STORE(since, moment_now(kv));
}

void kvshm__slots_end(kvshm *kv, enum kvshm__slots_batch kind)
{
    KVSHM__STORE(&kv->clients[kv->place].since[kind], 0);
}

/* ---- Pages ------------------------------------------------------------------------------------------------ */

/* Slots in order are taken in order, so that pages of one batch lie side by side. */
uint32_t kvshm__slots_take(kvshm *kv, uint32_t record)
{
    uint32_t slot = find_free(kv);

    if (slot == KVSHM__NO_SLOT)
        return slot;
    KVSHM__STORE(&kv->slots[slot].record, record);
    set_owner(kv, slot, owned_by_us(kv, KVSHM__OWNER_WRITING));
    KVSHM__ADD(&derived(kv)->slots_free, -1);
    set_slot_word(kv, record, kvshm__slot_word(slot, KVSHM__SLOT_WRITING));
    return slot;
}

bool kvshm__slots_settle(kvshm *kv, uint32_t slot, uint64_t sum, uint32_t flags)
{
    uint32_t record = written_by(kv, slot);

    if (record == KVSHM__NO_RECORD || owner_of(kv, slot) != owned_by_us(kv, KVSHM__OWNER_WRITING)) {
        kvshm__slots_fail(kv, slot);
        return false;
    }
    bool anew = is_rewritten(kv, slot, record);
    kvshm__slots_load(kv, record, slot, sum, flags);
    KVSHM__ADD(&derived(kv)->slots_written, -(uint64_t)anew);
    return true;
}

/* What this client wrote may have been removed at any moment since its batch began. */
static uint64_t written_since(const kvshm *kv)
{
    const kvshm_a64 *since = kv->clients[kv->place].since;
    uint64_t writing = KVSHM__LOAD((kvshm_a64 *)&since[KVSHM__BATCH_WRITING]);
    uint64_t erasing = KVSHM__LOAD((kvshm_a64 *)&since[KVSHM__BATCH_ERASING]);

    return writing != 0 && (erasing == 0 || writing < erasing) ? writing : erasing != 0 ? erasing : LONG_AGO;
}

void kvshm__slots_fail(kvshm *kv, uint32_t slot)
{
    uint32_t record = written_by(kv, slot);

    if (owner_of(kv, slot) != owned_by_us(kv, KVSHM__OWNER_WRITING))
        return; /* damage */
    if (record != KVSHM__NO_RECORD) {
        KVSHM__ADD(&derived(kv)->slots_written, -(uint64_t)is_rewritten(kv, slot, record));
        set_slot_word(kv, record, 0);
    }
    doom(kv, slot, written_since(kv));
}

void kvshm__slots_rewrite(kvshm *kv, uint32_t record)
{
    uint32_t slot = kvshm__slot_number(slot_word_of(kv, record));

    KVSHM__STORE(&kv->slots[slot].record, record);
    KVSHM__STORE(&kv->slots[slot].flags, KVSHM__LOAD(&kv->slots[slot].flags) | KVSHM__SLOT_UNSURE);
    set_owner(kv, slot, owned_by_us(kv, KVSHM__OWNER_WRITING));
}

bool kvshm__slots_rewritten(const kvshm *kv, uint32_t record)
{
    return kvshm__slots_whole(kv, record) &&
           owner_of(kv, kvshm__slot_number(slot_word_of(kv, record))) != kvshm__owner_page(record);
}

void kvshm__slots_load(kvshm *kv, uint32_t record, uint32_t slot, uint64_t sum, uint32_t flags)
{
    KVSHM__STORE(&kv->slots[slot].sum, sum);
    KVSHM__STORE(&kv->slots[slot].flags, flags);
    set_owner(kv, slot, kvshm__owner_page(record));
    set_slot_word(kv, record, kvshm__slot_word(slot, KVSHM__SLOT_WRITTEN));
    KVSHM__ADD(&derived(kv)->slots_written, 1);
}

void kvshm__slots_refuse(kvshm *kv, uint32_t slot)
{
    set_owner(kv, slot, doomed_word());
}

bool kvshm__slots_whole(const kvshm *kv, uint32_t record)
{
    uint64_t word = slot_word_of(kv, record);
    uint32_t slot = kvshm__slot_number(word);

    return kvshm__slot_state(word) == KVSHM__SLOT_WRITTEN && slot < kv->slot_count &&
           (owner_of(kv, slot) == kvshm__owner_page(record) || is_rewritten(kv, slot, record));
}

void kvshm__slots_drop(kvshm *kv, uint32_t record)
{
    uint32_t slot = kvshm__slot_number(slot_word_of(kv, record));
    bool whole = kvshm__slots_whole(kv, record), rewritten = whole && is_rewritten(kv, slot, record);

    if (slot_word_of(kv, record) == 0)
        return;
    set_slot_word(kv, record, 0);
    if (!whole)
        return;
    KVSHM__ADD(&derived(kv)->slots_written, -1);
    if (rewritten) /* whoever does it finds that out */
        return;
    if (KVSHM__LOAD(&kv->records[record].epoch) == (uint32_t)KVSHM__LOAD(&kv->header->epoch))
        doom(kv, slot, moment_now(kv));
    else
        give(kv, slot);
}

uint64_t kvshm__slots_writer(kvshm *kv, uint32_t record)
{
    uint64_t word = slot_word_of(kv, record), owner = KVSHM__OWNER_FREE;
    uint32_t slot = kvshm__slot_number(word);

    if (kvshm__slot_state(word) != KVSHM__SLOT_WRITING)
        return 0;
    if (slot < kv->slot_count && written_by(kv, slot) == record)
        owner = owner_of(kv, slot);
    if (kvshm__owner_kind(owner) == KVSHM__OWNER_WRITING && kvshm__client_alive(kv, kvshm__owner_client(owner)))
        return kvshm__owner_client(owner);
    set_slot_word(kv, record, 0);
    return 0;
}

/* ---- Doomed ones ------------------------------------------------------------------------------------------ */

unsigned kvshm__slots_claim(kvshm *kv, uint32_t *slots, unsigned max)
{
    struct kvshm_tier_derived *d = derived(kv);
    kvshm_a64 *since = since_of(kv, KVSHM__BATCH_ERASING);
    uint32_t slot = KVSHM__LOAD(&d->doomed_first1) - 1;
    unsigned n = 0;

    if (slot < kv->slot_count)
        KVSHM__STORE(since, KVSHM__LOAD(&d->disordered) ? LONG_AGO : stamp_of(kv, slot));
    while (n < max && (slot = KVSHM__LOAD(&d->doomed_first1) - 1) < kv->slot_count && owner_of(kv, slot) == doomed_word()) {
        uint32_t next1 = KVSHM__LOAD(&kv->slots[slot].next1);
        set_owner(kv, slot, owned_by_us(kv, KVSHM__OWNER_ERASING));
        KVSHM__STORE(&d->doomed_first1, next1);
        KVSHM__ADD(&d->undoomed, 1);
        slots[n++] = slot;
    }
    if (KVSHM__LOAD(&d->doomed_first1) == 0) {
        KVSHM__STORE(&d->doomed_last1, 0);
        KVSHM__STORE(&d->disordered, 0);
        KVSHM__STORE(&d->undoomed, KVSHM__LOAD(&d->doomed));
    }
    return n;
}

/* Backwards, so that they are taken again in their order. */
void kvshm__slots_erased(kvshm *kv, const uint32_t *slots, unsigned n, bool erased)
{
    for (unsigned i = n; i-- > 0;) {
        if (owner_of(kv, slots[i]) != owned_by_us(kv, KVSHM__OWNER_ERASING))
            continue; /* damage */
        if (erased) {
            give(kv, slots[i]);
        } else {
            doom(kv, slots[i], stamp_of(kv, slots[i]));
        }
    }
}

uint64_t kvshm__slots_mark(kvshm *kv)
{
    uint64_t moment = KVSHM__LOAD(&derived(kv)->moment) + 1;

    KVSHM__STORE(&derived(kv)->moment, moment);
    return moment;
}

/* The number of a client with a batch that began before the moment; 0: there is none. */
static uint64_t batch_before(const kvshm *kv, uint64_t moment)
{
    for (uint32_t i = 0; i < kv->max_clients; i++) {
        for (int kind = 0; kind < 2; kind++) {
            uint64_t since = KVSHM__LOAD(&kv->clients[i].since[kind]);
            if (since != 0 && since <= moment)
                return KVSHM__LOAD(&kv->clients[i].number);
        }
    }
    return 0;
}

bool kvshm__slots_passed(kvshm *kv, uint64_t mark, uint64_t *client)
{
    *client = batch_before(kv, mark);
    if (*client != 0) {
        kvshm__slots_sweep(kv);
        *client = batch_before(kv, mark);
    }
    uint32_t first = KVSHM__LOAD(&derived(kv)->doomed_first1) - 1;
    return *client == 0 &&
           (first >= kv->slot_count || (!KVSHM__LOAD(&derived(kv)->disordered) && stamp_of(kv, first) > mark));
}

/* ---- After deaths ----------------------------------------------------------------------------------------- */

static uint32_t slots_used(const kvshm *kv)
{
    uint32_t fresh = KVSHM__LOAD(&derived(kv)->fresh_slot);

    return fresh < kv->slot_count ? fresh : kv->slot_count;
}

/* What is known of the client asked about last. */
struct verdict {
    uint64_t client;
    int place; /* -1: it has none any more */
    bool dead, quiet;
};

/* The slot is being written or erased by a client. */
static void sweep_slot(kvshm *kv, uint32_t slot, struct verdict *v)
{
    uint64_t owner = owner_of(kv, slot), client = kvshm__owner_client(owner);
    uint32_t record = written_by(kv, slot);

    if (v->client != client) {
        v->client = client;
        v->place = kvshm__client_find(kv, client);
        v->dead = !kvshm__client_alive(kv, client);
        v->quiet = v->dead && kvshm__client_quiet(kv, client);
    }
    bool rewritten = record != KVSHM__NO_RECORD && is_rewritten(kv, slot, record);
    if (v->dead && record != KVSHM__NO_RECORD && !rewritten)
        set_slot_word(kv, record, 0);
    if (v->quiet && rewritten) /* one header or the other stands there */
        set_owner(kv, slot, kvshm__owner_page(record));
    else if (v->quiet)
        doom(kv, slot, LONG_AGO);
}

void kvshm__slots_sweep(kvshm *kv)
{
    struct verdict v = {.client = 0};
    bool busy[KVSHM__CLIENTS_MAX] = {false};

    for (uint32_t slot = 0; slot < slots_used(kv); slot++) {
        enum kvshm_owner_kind kind = kvshm__owner_kind(owner_of(kv, slot));
        if (kind != KVSHM__OWNER_WRITING && kind != KVSHM__OWNER_ERASING)
            continue;
        sweep_slot(kv, slot, &v);
        if (!v.quiet && v.place >= 0)
            busy[v.place] = true;
    }
    for (uint32_t i = 0; i < kv->max_clients; i++) {
        for (int kind = 0; kind < 2 && !busy[i]; kind++)
            KVSHM__STORE(&kv->clients[i].since[kind], 0);
    }
}

bool kvshm__slots_orphaned(const kvshm *kv)
{
    for (uint32_t i = 0; i < kv->max_clients; i++) {
        const struct kvshm_client *client = &kv->clients[i];
        bool busy = KVSHM__LOAD((kvshm_a64 *)&client->since[0]) != 0 || KVSHM__LOAD((kvshm_a64 *)&client->since[1]) != 0;
        if (busy && !kvshm__client_alive(kv, KVSHM__LOAD((kvshm_a64 *)&client->number)))
            return true;
    }
    return false;
}

/* A slot word that is about something else is taken back. What was written when its writer died is written again. */
static void rebuild_word(kvshm *kv, uint32_t record)
{
    uint64_t word = slot_word_of(kv, record);
    uint32_t slot = kvshm__slot_number(word);

    if (word == 0 || kvshm__slots_whole(kv, record))
        return;
    if (kvshm__slot_state(word) != KVSHM__SLOT_WRITING || slot >= kv->slot_count || written_by(kv, slot) != record ||
             kvshm__owner_kind(owner_of(kv, slot)) != KVSHM__OWNER_WRITING)
        set_slot_word(kv, record, 0);
}

void kvshm__slots_rebuild(kvshm *kv)
{
    struct kvshm_tier_derived *d = derived(kv);
    uint64_t doomed = KVSHM__LOAD(&d->doomed), free_count = 0, written = 0;
    uint32_t list = 0;

    for (uint32_t record = 0; record < kv->record_count && kv->slot_count > 0; record++)
        rebuild_word(kv, record);
    KVSHM__STORE(&d->doomed_first1, 0);
    KVSHM__STORE(&d->doomed_last1, 0);
    KVSHM__STORE(&d->undoomed, doomed);
    KVSHM__STORE(&d->disordered, 0);
    for (uint32_t slot = kv->slot_count; slot-- > 0;) {
        uint64_t owner = owner_of(kv, slot);
        uint32_t record = (uint32_t)owner;
        switch ((int)kvshm__owner_kind(owner)) {
        case KVSHM__OWNER_WRITING:
            record = KVSHM__LOAD(&kv->slots[slot].record);
            written += record < kv->record_count && is_rewritten(kv, slot, record);
            continue;
        case KVSHM__OWNER_ERASING:
            continue;
        case KVSHM__OWNER_PAGE:
            if (record < kv->record_count && slot_word_of(kv, record) == kvshm__slot_word(slot, KVSHM__SLOT_WRITTEN)) {
                written++;
                continue;
            }
            break;
        case KVSHM__OWNER_FREE:
            if (owner != KVSHM__OWNER_FREE)
                break; /* damage */
            KVSHM__STORE(&kv->slots[slot].next1, list);
            list = slot + 1;
            free_count++;
            continue;
        }
        doom(kv, slot, LONG_AGO);
    }
    KVSHM__STORE(&d->free_slot1, list);
    KVSHM__STORE(&d->fresh_slot, kv->slot_count);
    KVSHM__STORE(&d->slots_free, free_count);
    KVSHM__STORE(&d->slots_written, written);
}
