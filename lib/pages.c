/* SPDX-License-Identifier: Apache-2.0 */
#include "pages.h"

#include <string.h>

static struct kvshm_derived *derived(const kvshm *kv)
{
    return &kv->header->derived;
}

/* Of an arena with a spill file. */
static struct kvshm_tier_derived *tier(const kvshm *kv)
{
    return &kv->header->tier;
}

/* ---- Texts ------------------------------------------------------------------------------------------------ */

static void text_write(kvshm *kv, uint32_t record, const struct kvshm__page_spec *spec)
{
    struct kvshm_record *r = &kv->records[record];
    kvshm_a64 *text = kvshm__text(kv, record);

    KVSHM__STORE(&r->adapter_id, spec->adapter_id);
    KVSHM__STORE(&r->tenant, spec->tenant);
    KVSHM__STORE(&r->page_id[0], kv->header->fixed.opening_id);
    KVSHM__STORE(&r->page_id[1], KVSHM__LOAD(&kv->header->next_page_id));
    KVSHM__STORE(&r->caller[0], 0);
    KVSHM__STORE(&r->caller[1], 0);
    if (spec->key) {
        uint64_t in[KVSHM_KEY_BYTES / 8];
        memcpy(in, spec->key, sizeof(in));
        for (uint32_t i = 0; i < KVSHM_KEY_BYTES / 8; i++)
            KVSHM__STORE(&text[i], in[i]);
        return;
    }
    for (uint32_t i = 0; i + 2 <= spec->length; i += 2)
        KVSHM__STORE(&text[i / 2], kvshm__token_word(spec->tokens + i));
    if (spec->length % 2)
        KVSHM__STORE(&text[spec->length / 2], kvshm__token_last(spec->tokens + spec->length - 1));
}

/* ---- Free records ----------------------------------------------------------------------------------------- */

uint32_t kvshm__pages_take(kvshm *kv)
{
    uint32_t record = KVSHM__LOAD(&derived(kv)->free_record1) - 1;

    if (record < kv->record_count &&
        kvshm__place_state(KVSHM__LOAD(&kv->records[record].place)) == KVSHM__PLACE_NONE) {
        KVSHM__STORE(&derived(kv)->free_record1, KVSHM__LOAD(&kv->links[record].link1));
        KVSHM__STORE(&kv->links[record].link1, 0);
        return record;
    }
    KVSHM__STORE(&derived(kv)->free_record1, 0);
    while ((record = KVSHM__LOAD(&derived(kv)->fresh_record)) < kv->record_count) {
        KVSHM__STORE(&derived(kv)->fresh_record, record + 1);
        if (kvshm__place_state(KVSHM__LOAD(&kv->records[record].place)) == KVSHM__PLACE_NONE)
            return record;
    }
    return KVSHM__NO_RECORD;
}

void kvshm__pages_give(kvshm *kv, uint32_t record)
{
    KVSHM__STORE(&kv->links[record].link1, KVSHM__LOAD(&derived(kv)->free_record1));
    KVSHM__STORE(&derived(kv)->free_record1, record + 1);
}

/* ---- The tree --------------------------------------------------------------------------------------------- */

uint32_t kvshm__pages_parent(const kvshm *kv, uint32_t record)
{
    const struct kvshm_record *r = &kv->records[record];
    uint32_t parent = KVSHM__LOAD(&r->parent1) - 1;

    if (parent >= kv->record_count || KVSHM__LOAD(&kv->records[parent].seq) != KVSHM__LOAD(&r->parent_seq) ||
        KVSHM__LOAD(&kv->records[parent].depth) + 1 != KVSHM__LOAD(&r->depth))
        return KVSHM__NO_RECORD;
    return parent;
}

/* A jump has no room for a whole sequence: half of its product with 2^64 / golden ratio, odd. */
static uint32_t jump_check(uint64_t seq)
{
    return (uint32_t)((seq * 0x9e3779b97f4a7c15u) >> 32);
}

/* Where a page jumps to, if that is still the page it was when this one was written; else KVSHM__NO_RECORD. */
static uint32_t jump_from(const kvshm *kv, uint32_t record)
{
    uint32_t jump = KVSHM__LOAD(&kv->links[record].jump1) - 1;

    if (jump >= kv->record_count ||
        jump_check(KVSHM__LOAD(&kv->records[jump].seq)) != KVSHM__LOAD(&kv->links[record].jump_check))
        return KVSHM__NO_RECORD;
    return jump;
}

uint32_t kvshm__pages_ancestor(const kvshm *kv, uint32_t record, uint32_t depth)
{
    uint32_t at = KVSHM__LOAD(&kv->records[record].depth);

    while (at > depth) {
        uint32_t up = jump_from(kv, record);
        uint32_t up_depth = up != KVSHM__NO_RECORD ? KVSHM__LOAD(&kv->records[up].depth) : UINT32_MAX;
        if (up_depth < depth || up_depth >= at) {
            up = kvshm__pages_parent(kv, record);
            if (up == KVSHM__NO_RECORD)
                return up;
            up_depth = at - 1;
        }
        record = up;
        at = up_depth;
    }
    return at == depth ? record : KVSHM__NO_RECORD;
}

/* Skew-binary jumps (E. W. Myers, "An applicative random-access stack", 1983): a page jumps to its parent, or,
   where the two jumps above it are equally long, over both. A root jumps to itself. */
static uint32_t jump_of(const kvshm *kv, uint32_t record, uint32_t parent)
{
    if (parent == KVSHM__NO_RECORD)
        return record;
    uint32_t jump = jump_from(kv, parent);
    uint32_t far = jump != KVSHM__NO_RECORD ? jump_from(kv, jump) : jump;
    if (far == KVSHM__NO_RECORD)
        return parent;
    uint32_t d0 = KVSHM__LOAD(&kv->records[parent].depth);
    uint32_t d1 = KVSHM__LOAD(&kv->records[jump].depth);
    uint32_t d2 = KVSHM__LOAD(&kv->records[far].depth);
    return d0 - d1 == d1 - d2 ? far : parent;
}

/* Children in frames and children in none stand in two lists of their parent. */
static kvshm_a32 *list_of(const kvshm *kv, uint32_t record, uint32_t parent)
{
    bool spilled = kvshm__place_state(KVSHM__LOAD(&kv->records[record].place)) == KVSHM__PLACE_SPILLED;

    return spilled && kv->ages ? &kv->ages[parent].spilled1 : &kv->links[parent].child1;
}

static void list_under(kvshm *kv, uint32_t record, uint32_t parent)
{
    KVSHM__STORE(&kv->links[record].prev1, 0);
    KVSHM__STORE(&kv->links[record].next1, 0);
    if (parent == KVSHM__NO_RECORD)
        return;
    kvshm_a32 *list = list_of(kv, record, parent);
    uint32_t first1 = KVSHM__LOAD(list);
    KVSHM__STORE(&kv->links[record].next1, first1);
    if (first1 - 1 < kv->record_count)
        KVSHM__STORE(&kv->links[first1 - 1].prev1, record + 1);
    KVSHM__STORE(list, record + 1);
}

static void unlist(kvshm *kv, uint32_t record, uint32_t parent)
{
    uint32_t next1 = KVSHM__LOAD(&kv->links[record].next1);
    uint32_t prev1 = KVSHM__LOAD(&kv->links[record].prev1);

    if (next1 - 1 < kv->record_count)
        KVSHM__STORE(&kv->links[next1 - 1].prev1, prev1);
    if (prev1 - 1 < kv->record_count)
        KVSHM__STORE(&kv->links[prev1 - 1].next1, next1);
    else
        KVSHM__STORE(list_of(kv, record, parent), next1);
}

void kvshm__pages_link(kvshm *kv, uint32_t record)
{
    uint32_t parent = kvshm__pages_parent(kv, record);
    uint32_t length = KVSHM__LOAD(&kv->records[record].length);
    bool root = parent == KVSHM__NO_RECORD;
    kvshm_a64 *partials = root ? &kv->header->root_partials : &kv->records[parent].partials;

    if (!(length & KVSHM__KEY_ONLY) && length - 1 < kv->page_tokens - 1)
        KVSHM__STORE_REL(partials, KVSHM__LOAD(partials) | kvshm__partial_bit(kv, length));
    list_under(kv, record, parent);
}

static void unlink_from_parent(kvshm *kv, uint32_t record)
{
    uint32_t parent = kvshm__pages_parent(kv, record);

    if (parent == KVSHM__NO_RECORD)
        return;
    unlist(kv, record, parent);
    if (!kvshm__pages_has_children(kv, parent))
        KVSHM__STORE(&kv->records[parent].partials, 0);
}

/* The page goes from one of its parent's lists to the other; change makes the difference. */
static void relist(kvshm *kv, uint32_t record, void (*change)(kvshm *, uint32_t, uint64_t), uint64_t to)
{
    uint32_t parent = kvshm__pages_parent(kv, record);

    if (parent != KVSHM__NO_RECORD)
        unlist(kv, record, parent);
    change(kv, record, to);
    list_under(kv, record, parent);
}

/* ---- Places ----------------------------------------------------------------------------------------------- */

/* The same place, one move on. */
static uint64_t moved(uint64_t place, uint32_t frame, enum kvshm_place_state state)
{
    return ((place >> 32) + 1) << 32 | (uint64_t)state << 28 | frame;
}

void kvshm__pages_write(kvshm *kv, uint32_t record, const struct kvshm__page_spec *spec)
{
    struct kvshm_record *r = &kv->records[record];
    struct kvshm_links *links = &kv->links[record];
    bool root = spec->parent == KVSHM__NO_RECORD;
    uint32_t jump = jump_of(kv, record, spec->parent);
    uint64_t seq = kvshm__pages_next_seq(kv, record);

    KVSHM__STORE(&r->stamp, 0);
    KVSHM__STORE(&r->policy, 0);
    KVSHM__STORE(&links->child1, 0);
    if (kv->ages) {
        KVSHM__STORE(&kv->ages[record].spilled1, 0);
        KVSHM__STORE(&kv->ages[record].kept, 0);
        KVSHM__STORE(&kv->ages[record].older1, 0);
        KVSHM__STORE(&kv->ages[record].newer1, 0);
        KVSHM__STORE(&kv->ages[record].list, 0);
    }
    KVSHM__STORE(&r->partials, 0);
    KVSHM__STORE(&kv->header->next_page_id, KVSHM__LOAD(&kv->header->next_page_id) + 1);
    KVSHM__STORE(&r->seq, kvshm__pages_seq(kv, record));
    kvshm__seq_write_begin(&r->seq);
    KVSHM__STORE(&r->parent1, root ? 0 : spec->parent + 1);
    KVSHM__STORE(&r->parent_seq, root ? 0 : KVSHM__LOAD(&kv->records[spec->parent].seq));
    KVSHM__STORE(&r->depth, root ? 0 : KVSHM__LOAD(&kv->records[spec->parent].depth) + 1);
    KVSHM__STORE(&links->jump1, jump + 1);
    KVSHM__STORE(&links->jump_check, jump_check(jump == record ? seq : KVSHM__LOAD(&kv->records[jump].seq)));
    KVSHM__STORE(&r->length, spec->length);
    KVSHM__STORE(&r->epoch, (uint32_t)KVSHM__LOAD(&kv->header->epoch));
    KVSHM__STORE(&r->hash, spec->hash);
    text_write(kv, record, spec);
    kvshm__seq_write_end(&r->seq);
    kvshm__pages_link(kv, record);
}

void kvshm__pages_settle(kvshm *kv, uint32_t record, uint32_t frame)
{
    kvshm_a64 *place = &kv->records[record].place;

    KVSHM__STORE_REL(place, moved(KVSHM__LOAD(place), frame, KVSHM__PLACE_RESIDENT));
    KVSHM__ADD(&derived(kv)->pages, 1);
}

/* What the counts are of a page in this state. */
static kvshm_a64 *count_of(const kvshm *kv, enum kvshm_place_state state)
{
    switch (state) {
    case KVSHM__PLACE_RESIDENT:
    case KVSHM__PLACE_LEAVING:
        return &derived(kv)->pages;
    case KVSHM__PLACE_AWAY:
        return &derived(kv)->limbo;
    default:
        return &tier(kv)->pages_spilled;
    }
}

static void recount(const kvshm *kv, enum kvshm_place_state from, enum kvshm_place_state to)
{
    KVSHM__ADD(count_of(kv, from), -1);
    KVSHM__ADD(count_of(kv, to), 1);
}

/* Readers of a published page may move it from LEAVING to RESIDENT meanwhile. */
static bool move_published(kvshm *kv, uint32_t record, enum kvshm_place_state to)
{
    kvshm_a64 *place = &kv->records[record].place;
    uint64_t seen;

    do {
        seen = KVSHM__LOAD(place);
        if (!kvshm__place_published(seen))
            return false;
    } while (!kvshm__cas(place, seen, moved(seen, kvshm__place_frame(seen), to)));
    recount(kv, KVSHM__PLACE_RESIDENT, to);
    return true;
}

static void store_place(kvshm *kv, uint32_t record, uint64_t to)
{
    KVSHM__STORE_REL(&kv->records[record].place, to);
}

/* Of a page that no reader moves. */
static void move(kvshm *kv, uint32_t record, uint32_t frame, enum kvshm_place_state to)
{
    uint64_t seen = KVSHM__LOAD(&kv->records[record].place);
    enum kvshm_place_state from = kvshm__place_state(seen);

    if ((from == KVSHM__PLACE_SPILLED) != (to == KVSHM__PLACE_SPILLED))
        relist(kv, record, store_place, moved(seen, frame, to));
    else
        store_place(kv, record, moved(seen, frame, to));
    recount(kv, from, to);
}

bool kvshm__pages_take_away(kvshm *kv, uint32_t record)
{
    uint64_t seen = KVSHM__LOAD(&kv->records[record].place);

    switch (kvshm__place_state(seen)) {
    case KVSHM__PLACE_RESIDENT:
    case KVSHM__PLACE_LEAVING:
        return move_published(kv, record, KVSHM__PLACE_AWAY);
    case KVSHM__PLACE_PARTING:
    case KVSHM__PLACE_RESTORING:
    case KVSHM__PLACE_SPILLED:
        move(kv, record, kvshm__place_frame(seen), KVSHM__PLACE_AWAY);
        return true;
    default:
        return false;
    }
}

bool kvshm__pages_part(kvshm *kv, uint32_t record)
{
    return move_published(kv, record, KVSHM__PLACE_PARTING);
}

void kvshm__pages_recall(kvshm *kv, uint32_t record)
{
    move(kv, record, kvshm__place_frame(KVSHM__LOAD(&kv->records[record].place)), KVSHM__PLACE_RESIDENT);
}

void kvshm__pages_spill(kvshm *kv, uint32_t record)
{
    move(kv, record, 0, KVSHM__PLACE_SPILLED);
}

void kvshm__pages_load(kvshm *kv, uint32_t record)
{
    relist(kv, record, store_place, moved(KVSHM__LOAD(&kv->records[record].place), 0, KVSHM__PLACE_SPILLED));
    KVSHM__ADD(&tier(kv)->pages_spilled, 1);
}

void kvshm__pages_spilled(kvshm *kv, uint32_t record)
{
    store_place(kv, record, moved(KVSHM__LOAD(&kv->records[record].place), 0, KVSHM__PLACE_SPILLED));
}

void kvshm__pages_claim(kvshm *kv, uint32_t record, uint32_t frame)
{
    move(kv, record, frame, KVSHM__PLACE_RESTORING);
}

void kvshm__pages_restore(kvshm *kv, uint32_t record, uint32_t frame)
{
    move(kv, record, frame, KVSHM__PLACE_RESIDENT);
}

void kvshm__pages_vacate(kvshm *kv, uint32_t record)
{
    kvshm_a64 *place = &kv->records[record].place;

    unlink_from_parent(kv, record);
    KVSHM__STORE_REL(place, moved(KVSHM__LOAD(place), 0, KVSHM__PLACE_NONE));
    KVSHM__ADD(&derived(kv)->limbo, -1);
}
