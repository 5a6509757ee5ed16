/* SPDX-License-Identifier: Apache-2.0 */
#include "ages.h"

#include "pages.h"

static struct kvshm_age_list *list_at(const kvshm *kv, enum kvshm__ages_list list)
{
    return list == KVSHM__AGES_LEFT ? &kv->header->tier.left : &kv->header->tier.unwritten;
}

enum kvshm__ages_list kvshm__ages_list_of(const kvshm *kv, uint32_t record)
{
    uint32_t list = KVSHM__LOAD(&kv->ages[record].list);

    return list <= KVSHM__AGES_UNWRITTEN ? (enum kvshm__ages_list)list : KVSHM__AGES_NONE;
}

bool kvshm__ages_used(const kvshm *kv, uint32_t record)
{
    return KVSHM__LOAD(&kv->records[record].stamp) != KVSHM__LOAD(&kv->ages[record].queued);
}

void kvshm__ages_append(kvshm *kv, uint32_t record, enum kvshm__ages_list list)
{
    struct kvshm_age *age = &kv->ages[record];
    struct kvshm_age_list *l = list_at(kv, list);

    kvshm__ages_remove(kv, record);
    uint32_t last = KVSHM__LOAD(&l->last1) - 1;
    KVSHM__STORE(&age->queued, KVSHM__LOAD(&kv->records[record].stamp));
    KVSHM__STORE(&age->list, list);
    KVSHM__STORE(&age->newer1, 0);
    KVSHM__STORE(&age->older1, last < kv->record_count ? last + 1 : 0);
    if (last < kv->record_count)
        KVSHM__STORE(&kv->ages[last].newer1, record + 1);
    else
        KVSHM__STORE(&l->first1, record + 1);
    KVSHM__STORE(&l->last1, record + 1);
    KVSHM__ADD(&l->length, 1);
}

void kvshm__ages_remove(kvshm *kv, uint32_t record)
{
    struct kvshm_age_list *l = list_at(kv, kvshm__ages_list_of(kv, record));
    uint32_t older1 = KVSHM__LOAD(&kv->ages[record].older1), newer1 = KVSHM__LOAD(&kv->ages[record].newer1);

    if (kvshm__ages_list_of(kv, record) == KVSHM__AGES_NONE)
        return;
    if (older1 - 1 < kv->record_count)
        KVSHM__STORE(&kv->ages[older1 - 1].newer1, newer1);
    else
        KVSHM__STORE(&l->first1, newer1);
    if (newer1 - 1 < kv->record_count)
        KVSHM__STORE(&kv->ages[newer1 - 1].older1, older1);
    else
        KVSHM__STORE(&l->last1, older1);
    KVSHM__ADD(&l->length, -1);
    kvshm__ages_forget(kv, record);
}

/* A link to what is not in the list, which only damage makes, is none. */
static uint32_t end_of(const kvshm *kv, kvshm_a32 *end1, enum kvshm__ages_list list)
{
    uint32_t record = KVSHM__LOAD(end1) - 1;

    return record < kv->record_count && kvshm__ages_list_of(kv, record) == list ? record : KVSHM__NO_RECORD;
}

uint32_t kvshm__ages_first(const kvshm *kv, enum kvshm__ages_list list)
{
    return end_of(kv, &list_at(kv, list)->first1, list);
}

uint32_t kvshm__ages_last(const kvshm *kv, enum kvshm__ages_list list)
{
    return end_of(kv, &list_at(kv, list)->last1, list);
}

void kvshm__ages_forget(kvshm *kv, uint32_t record)
{
    KVSHM__STORE(&kv->ages[record].list, KVSHM__AGES_NONE);
    KVSHM__STORE(&kv->ages[record].older1, 0);
    KVSHM__STORE(&kv->ages[record].newer1, 0);
}

static void forget_list(struct kvshm_age_list *l)
{
    KVSHM__STORE(&l->first1, 0);
    KVSHM__STORE(&l->last1, 0);
    KVSHM__STORE(&l->length, 0);
}

void kvshm__ages_forget_all(kvshm *kv)
{
    forget_list(&kv->header->tier.left);
    forget_list(&kv->header->tier.unwritten);
}
