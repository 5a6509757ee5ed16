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

static uint64_t owned_by_us(const kvshm *kv, enum kvshm_owner_kind kind)
{
    return kvshm__owner_reserved(kind, kv->client, 0);
}

static uint64_t slot_word_of(const kvshm *kv, uint32_t record)
{
    return KVSHM__LOAD(&kv->records[record].slot);
}

static void set_slot_word(const kvshm *kv, uint32_t record, uint64_t word)
{
    KVSHM__STORE_REL(&kv->records[record].slot, word);
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

/* Slots in order are taken in order, so that pages of one batch lie side by side. */
uint32_t kvshm__slots_take(kvshm *kv, uint32_t record)
{
    uint32_t slot = find_free(kv);

    if (slot == KVSHM__NO_SLOT)
        return slot;
    KVSHM__STORE(&kv->slots[slot].record, record);
    KVSHM__STORE_REL(&kv->slots[slot].owner, owned_by_us(kv, KVSHM__OWNER_WRITING));
    KVSHM__ADD(&derived(kv)->slots_free, -1);
    set_slot_word(kv, record, kvshm__slot_word(slot, KVSHM__SLOT_WRITING));
    return slot;
}

bool kvshm__slots_mine(const kvshm *kv, uint32_t record)
{
    uint64_t word = slot_word_of(kv, record);
    uint32_t slot = kvshm__slot_number(word);

    if (slot >= kv->slot_count)
        return false;
    return (kvshm__slot_state(word) == KVSHM__SLOT_WRITING &&
            owner_of(kv, slot) == owned_by_us(kv, KVSHM__OWNER_WRITING)) ||
           (kvshm__slot_state(word) == KVSHM__SLOT_ERASING &&
            owner_of(kv, slot) == owned_by_us(kv, KVSHM__OWNER_ERASING));
}

void kvshm__slots_settle(kvshm *kv, uint32_t record, uint64_t sum)
{
    uint32_t slot = kvshm__slot_number(slot_word_of(kv, record));

    KVSHM__STORE(&kv->slots[slot].sum, sum);
    KVSHM__STORE_REL(&kv->slots[slot].owner, kvshm__owner_page(record));
    set_slot_word(kv, record, kvshm__slot_word(slot, KVSHM__SLOT_WRITTEN));
}

void kvshm__slots_load(kvshm *kv, uint32_t record, uint32_t slot, uint64_t sum)
{
    KVSHM__STORE(&kv->slots[slot].sum, sum);
    KVSHM__STORE(&kv->slots[slot].record, record);
    KVSHM__STORE_REL(&kv->slots[slot].owner, kvshm__owner_page(record));
    set_slot_word(kv, record, kvshm__slot_word(slot, KVSHM__SLOT_WRITTEN));
}

void kvshm__slots_erase(kvshm *kv, uint32_t record)
{
    uint32_t slot = kvshm__slot_number(slot_word_of(kv, record));

    if (slot >= kv->slot_count)
        return;
    set_slot_word(kv, record, kvshm__slot_word(slot, KVSHM__SLOT_ERASING));
    KVSHM__STORE(&kv->slots[slot].record, record);
    KVSHM__STORE_REL(&kv->slots[slot].owner, owned_by_us(kv, KVSHM__OWNER_ERASING));
}

static void give(kvshm *kv, uint32_t slot)
{
    KVSHM__STORE_REL(&kv->slots[slot].owner, KVSHM__OWNER_FREE);
    KVSHM__STORE(&kv->slots[slot].next1, KVSHM__LOAD(&derived(kv)->free_slot1));
    KVSHM__STORE(&derived(kv)->free_slot1, slot + 1);
    KVSHM__ADD(&derived(kv)->slots_free, 1);
}

void kvshm__slots_give(kvshm *kv, uint32_t record)
{
    uint64_t word = slot_word_of(kv, record);
    uint32_t slot = kvshm__slot_number(word);
    bool whole = kvshm__slots_whole(kv, record);

    if (word == 0)
        return;
    set_slot_word(kv, record, 0);
    if (whole)
        give(kv, slot);
}

/* Is the slot about this record, by a client's word? */
static bool is_about(const kvshm *kv, uint32_t slot, enum kvshm_owner_kind kind, uint32_t record)
{
    return kvshm__owner_kind(owner_of(kv, slot)) == kind && KVSHM__LOAD(&kv->slots[slot].record) == record;
}

bool kvshm__slots_whole(const kvshm *kv, uint32_t record)
{
    uint64_t word = slot_word_of(kv, record);
    uint32_t slot = kvshm__slot_number(word);

    if (slot >= kv->slot_count)
        return false;
    switch (kvshm__slot_state(word)) {
    case KVSHM__SLOT_WRITING:
        return is_about(kv, slot, KVSHM__OWNER_WRITING, record);
    case KVSHM__SLOT_WRITTEN:
        return owner_of(kv, slot) == kvshm__owner_page(record);
    case KVSHM__SLOT_ERASING:
        return is_about(kv, slot, KVSHM__OWNER_ERASING, record);
    default:
        return false;
    }
}

bool kvshm__slots_let_go(kvshm *kv, uint32_t record)
{
    uint64_t word = slot_word_of(kv, record);
    uint32_t slot = kvshm__slot_number(word);

    switch (kvshm__slot_state(word)) {
    case KVSHM__SLOT_WRITING:
        if (slot < kv->slot_count && kvshm__client_alive(kv, kvshm__owner_client(owner_of(kv, slot))))
            return false;
        set_slot_word(kv, record, 0);
        return true;
    case KVSHM__SLOT_ERASING:
        return false;
    default:
        kvshm__slots_give(kv, record);
        return true;
    }
}

/* ---- After deaths ----------------------------------------------------------------------------------------- */

/* What is known of the client asked about last. */
struct verdict {
    uint64_t client;
    bool dead, quiet;
};

static bool is_dead(const kvshm *kv, struct verdict *v, uint64_t client)
{
    if (v->client != client) {
        v->client = client;
        v->dead = !kvshm__client_alive(kv, client);
        v->quiet = v->dead && kvshm__client_quiet(kv, client);
    }
    return v->dead;
}

/* Is it being written or erased by someone who is dead? */
static bool is_orphan(const kvshm *kv, struct verdict *v, uint32_t slot)
{
    uint64_t owner = owner_of(kv, slot);
    enum kvshm_owner_kind kind = kvshm__owner_kind(owner);

    return (kind == KVSHM__OWNER_WRITING || kind == KVSHM__OWNER_ERASING) && is_dead(kv, v, kvshm__owner_client(owner));
}

static uint32_t slots_used(const kvshm *kv)
{
    uint32_t fresh = KVSHM__LOAD(&derived(kv)->fresh_slot);

    return fresh < kv->slot_count ? fresh : kv->slot_count;
}

bool kvshm__slots_sweep_worth(const kvshm *kv)
{
    struct verdict v = {0};

    for (uint32_t slot = 0; slot < slots_used(kv); slot++) {
        if (is_orphan(kv, &v, slot))
            return true;
    }
    return false;
}

uint64_t kvshm__slots_sweep(kvshm *kv, bool *again)
{
    struct verdict v = {0};
    uint64_t back = 0;

    *again = false;
    for (uint32_t slot = 0; slot < slots_used(kv); slot++) {
        if (!is_orphan(kv, &v, slot))
            continue;
        bool writing = kvshm__owner_kind(owner_of(kv, slot)) == KVSHM__OWNER_WRITING;
        uint32_t record = KVSHM__LOAD(&kv->slots[slot].record);
        if (writing && record < kv->record_count &&
            slot_word_of(kv, record) == kvshm__slot_word(slot, KVSHM__SLOT_WRITING))
            set_slot_word(kv, record, 0);
        if (!v.quiet)
            continue;
        if (writing) {
            give(kv, slot);
            back++;
        } else {
            KVSHM__STORE_REL(&kv->slots[slot].owner, owned_by_us(kv, KVSHM__OWNER_ERASING));
            *again = true;
        }
    }
    return back;
}

/* A slot word is finished if its owner word had changed already, and is taken back if it is about something else. */
static void rebuild_word(kvshm *kv, uint32_t record)
{
    uint64_t word = slot_word_of(kv, record);
    uint32_t slot = kvshm__slot_number(word);

    if (word == 0 || kvshm__slots_whole(kv, record))
        return;
    if (slot >= kv->slot_count || owner_of(kv, slot) != kvshm__owner_page(record)) {
        set_slot_word(kv, record, 0);
    } else if (kvshm__slot_state(word) == KVSHM__SLOT_ERASING) {
        KVSHM__STORE(&kv->slots[slot].record, record);
        KVSHM__STORE_REL(&kv->slots[slot].owner, owned_by_us(kv, KVSHM__OWNER_ERASING));
    } else {
        set_slot_word(kv, record, kvshm__slot_word(slot, KVSHM__SLOT_WRITTEN));
    }
}

void kvshm__slots_rebuild(kvshm *kv)
{
    uint64_t free_count = 0;
    uint32_t list = 0;

    for (uint32_t record = 0; record < kv->record_count && kv->slot_count > 0; record++)
        rebuild_word(kv, record);
    for (uint32_t slot = kv->slot_count; slot-- > 0;) {
        uint64_t owner = owner_of(kv, slot);
        uint32_t record = (uint32_t)owner;
        bool known = kvshm__owner_kind(owner) == KVSHM__OWNER_WRITING || kvshm__owner_kind(owner) == KVSHM__OWNER_ERASING ||
                     (kvshm__owner_kind(owner) == KVSHM__OWNER_PAGE && record < kv->record_count &&
                      slot_word_of(kv, record) == kvshm__slot_word(slot, KVSHM__SLOT_WRITTEN));
        if (known)
            continue;
        KVSHM__STORE_REL(&kv->slots[slot].owner, KVSHM__OWNER_FREE);
        KVSHM__STORE(&kv->slots[slot].next1, list);
        list = slot + 1;
        free_count++;
    }
    KVSHM__STORE(&derived(kv)->free_slot1, list);
    KVSHM__STORE(&derived(kv)->fresh_slot, kv->slot_count);
    KVSHM__STORE(&derived(kv)->slots_free, free_count);
}
