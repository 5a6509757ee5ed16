/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "ages.h"
#include "audit_look.h"
#include "client.h"
#include "frames.h"
#include "slots.h"

static uint64_t owner_of(const kvshm *kv, uint32_t slot)
{
    return KVSHM__LOAD(&kv->slots[slot].owner);
}

static uint64_t slot_word_of(const kvshm *kv, uint32_t record)
{
    return KVSHM__LOAD(&kv->records[record].slot);
}

/* ---- Slots ------------------------------------------------------------------------------------------------ */

/* G1, from the record's side. */
static void check_slot_of(struct look *l, uint32_t record)
{
    const kvshm *kv = l->kv;
    uint64_t word = slot_word_of(kv, record);
    uint32_t slot = kvshm__slot_number(word);

    if (word == 0) {
        if (pending(kv, record))
            audit_found(l, "record %u is pending and has no slot", record);
        return;
    }
    if (!in_use(kv, record) || state_of(kv, record) == KVSHM__PLACE_AWAY)
        audit_found(l, "record %u, free or away, has slot word %#" PRIx64, record, word);
    if (slot >= kv->slot_count)
        audit_found(l, "record %u has slot %u of %u", record, slot, kv->slot_count);
    else if (kvshm__slot_state(word) == KVSHM__SLOT_WRITTEN && !kvshm__slots_whole(kv, record))
        audit_found(l, "record %u is in slot %u, whose owner word is %#" PRIx64, record, slot,
                    owner_of(kv, slot));
    else if (kvshm__slot_state(word) == KVSHM__SLOT_WRITING &&
             (kvshm__owner_kind(owner_of(kv, slot)) != KVSHM__OWNER_WRITING ||
              KVSHM__LOAD(&kv->slots[slot].record) != record))
        audit_found(l, "record %u is written into slot %u, whose owner word is %#" PRIx64, record,
                    slot, owner_of(kv, slot));
    if (pending(kv, record) && kvshm__slot_state(word) != KVSHM__SLOT_WRITTEN)
        audit_found(l, "record %u is pending and not written", record);
}

static void check_slot_owner(struct look *l, uint32_t slot)
{
    const kvshm *kv = l->kv;
    uint64_t owner = owner_of(kv, slot);
    uint32_t record = (uint32_t)owner;

    switch ((int)kvshm__owner_kind(owner)) {
    case KVSHM__OWNER_FREE:
    case KVSHM__OWNER_WRITING:
    case KVSHM__OWNER_ERASING:
    case KVSHM__OWNER_DOOMED:
        break;
    case KVSHM__OWNER_PAGE:
        if (record >= kv->record_count ||
            slot_word_of(kv, record) != kvshm__slot_word(slot, KVSHM__SLOT_WRITTEN))
            audit_found(l, "slot %u is of record %u, which does not know: it is lost", slot, record);
        break;
    default:
        audit_found(l, "slot %u has owner word %#" PRIx64, slot, owner);
    }
}

/* How many slots a list leads to, all of them of this kind. */
static uint64_t walk_slots(struct look *l, const char *what, uint32_t next1, enum kvshm_owner_kind kind)
{
    const kvshm *kv = l->kv;
    uint64_t n = 0;

    for (; next1 != 0; next1 = KVSHM__LOAD(&kv->slots[next1 - 1].next1)) {
        if (next1 - 1 >= kv->slot_count || kvshm__owner_kind(owner_of(kv, next1 - 1)) != kind ||
            n > kv->slot_count) {
            audit_found(l, "the list of %s slots leads to slot %u", what, next1 - 1);
            break;
        }
        n++;
    }
    return n;
}

static void check_slots(struct look *l)
{
    const kvshm *kv = l->kv;
    const struct kvshm_tier_derived *d = &kv->header->tier;
    uint64_t kinds[16] = {0}, rewritten = 0, fresh = KVSHM__LOAD((kvshm_a32 *)&d->fresh_slot);

    for (uint32_t slot = 0; slot < kv->slot_count; slot++) {
        check_slot_owner(l, slot);
        kinds[kvshm__owner_kind(owner_of(kv, slot))]++;
    }
    for (uint32_t record = 0; record < kv->record_count; record++) {
        check_slot_of(l, record);
        rewritten += kvshm__slots_rewritten(kv, record);
    }
    audit_count_is(l, "slots_free", KVSHM__LOAD((kvshm_a64 *)&d->slots_free), kinds[KVSHM__OWNER_FREE]);
    audit_count_is(l, "slots_written", KVSHM__LOAD((kvshm_a64 *)&d->slots_written),
                   kinds[KVSHM__OWNER_PAGE] + rewritten);
    audit_count_is(l, "the list of free slots, with those never used,",
                   walk_slots(l, "free", KVSHM__LOAD((kvshm_a32 *)&d->free_slot1), KVSHM__OWNER_FREE) +
                       (fresh < kv->slot_count ? kv->slot_count - fresh : 0),
                   kinds[KVSHM__OWNER_FREE]);
    audit_count_is(l, "the list of doomed slots",
                   walk_slots(l, "doomed", KVSHM__LOAD((kvshm_a32 *)&d->doomed_first1), KVSHM__OWNER_DOOMED),
                   kinds[KVSHM__OWNER_DOOMED]);
    audit_count_is(l, "doomed - undoomed", kvshm__slots_doomed(kv), kinds[KVSHM__OWNER_DOOMED]);
}

/* ---- Lists of entries ------------------------------------------------------------------------------------- */

static void walk_entries(struct look *l, const char *what, const struct kvshm_age_list *list,
                         enum kvshm__ages_list number, uint32_t bit)
{
    const kvshm *kv = l->kv;
    uint32_t next1 = KVSHM__LOAD((kvshm_a32 *)&list->first1), before1 = 0;
    uint64_t n = 0;

    for (; next1 != 0; before1 = next1, next1 = KVSHM__LOAD(&kv->ages[next1 - 1].newer1), n++) {
        if (next1 - 1 >= kv->record_count || l->lists[next1 - 1] & (IN_LEFT | IN_UNWRITTEN) ||
            KVSHM__LOAD(&kv->ages[next1 - 1].list) != number) {
            audit_found(l, "the list of %s entries leads to record %u", what, next1 - 1);
            return;
        }
        l->lists[next1 - 1] |= bit;
        if (KVSHM__LOAD(&kv->ages[next1 - 1].older1) != before1)
            audit_found(l, "record %u is not linked back in the list of %s entries", next1 - 1, what);
        if (stamp_of(kv, next1 - 1) == 0)
            audit_found(l, "record %u is no entry, and in the list of %s ones", next1 - 1, what);
    }
    if (before1 != KVSHM__LOAD((kvshm_a32 *)&list->last1))
        audit_found(l, "the list of %s entries ends with record %u, not %u", what, before1 - 1,
                    KVSHM__LOAD((kvshm_a32 *)&list->last1) - 1);
    audit_count_is(l, what, KVSHM__LOAD((kvshm_a64 *)&list->length), n);
}

/* R3: an entry claims memory, and then is waiting to be written or is written, or it has left. */
static void check_claim(struct look *l, uint32_t record)
{
    const kvshm *kv = l->kv;
    bool in_heap = l->positions[record] == 1;

    if (in_heap && l->lists[record] & IN_LEFT)
        audit_found(l, "record %u is in the heap and has left memory (R3)", record);
    if (!in_heap && l->lists[record] & IN_UNWRITTEN)
        audit_found(l, "record %u is to be written and not in the heap (R3)", record);
    if (stamp_of(kv, record) == 0 || !of_this_epoch(kv, record))
        return;
    if (!in_heap && !(l->lists[record] & IN_LEFT))
        audit_found(l, "record %u is an entry, in no heap and in no list (R3)", record);
    if (!in_heap && !kvshm__slots_whole(kv, record))
        audit_found(l, "record %u has left memory, and is not in the file", record);
    if (in_heap && !kvshm__slots_whole(kv, record) && !(l->lists[record] & IN_UNWRITTEN))
        audit_found(l, "record %u is in memory alone, and nobody is to write it", record);
}

void audit_tier(struct look *l)
{
    const kvshm *kv = l->kv;
    const struct kvshm_tier_derived *d = &kv->header->tier;
    uint64_t spilled = 0, restoring = 0, kept = 0;

    check_slots(l);
    walk_entries(l, "entries that left", &d->left, KVSHM__AGES_LEFT, IN_LEFT);
    walk_entries(l, "entries to be written", &d->unwritten, KVSHM__AGES_UNWRITTEN, IN_UNWRITTEN);
    for (uint32_t record = 0; record < kv->record_count; record++) {
        check_claim(l, record);
        spilled += pending(kv, record);
        kept += l->positions[record] == 1 && stamp_of(kv, record) == 0;
    }
    for (uint32_t frame = 0; frame < kv->frame_count; frame++)
        restoring += kvshm__owner_kind(KVSHM__LOAD(&kv->owners[frame].owner)) == KVSHM__OWNER_RESTORING;
    audit_count_is(l, "pages_spilled", KVSHM__LOAD((kvshm_a64 *)&d->pages_spilled), spilled);
    audit_count_is(l, "pages_kept", KVSHM__LOAD((kvshm_a64 *)&d->pages_kept), kept);
    audit_count_is(l, "frames_restoring", KVSHM__LOAD((kvshm_a64 *)&d->frames_restoring), restoring);
}
