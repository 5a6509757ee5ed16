/* SPDX-License-Identifier: Apache-2.0 */
#include "recency.h"

#include "ages.h"
#include "writer.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define CHILDREN 4

/* Records between two steps of the progress word. */
#define SLICE 4096

static struct kvshm_derived *derived(const kvshm *kv)
{
    return &kv->header->derived;
}

/* ---- Time ------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
bool kvshm__recency_hardware(void)
{
    unsigned a, b, c, d;

    /* Advanced power management, EDX bit 8: the time-stamp counter is invariant. It counts at 1 GHz and more. */
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 1u << 8);
}
#elif defined(__aarch64__)
bool kvshm__recency_hardware(void)
{
    uint64_t hz;

    __asm__("mrs %0, cntfrq_el0" : "=r"(hz));
    return hz >= 100000000u;
}
#else
bool kvshm__recency_hardware(void)
{
    return false;
}
#endif

/* When an entry was used last, or a page restored, which is kept for a while; 0: it is neither. */
static uint64_t key_of(const kvshm *kv, uint32_t record)
{
    uint64_t stamp = KVSHM__LOAD(&kv->records[record].stamp);
    uint64_t kept = kv->ages ? KVSHM__LOAD(&kv->ages[record].kept) : 0;

    return stamp > kept ? stamp : kept;
}

/* ---- The heap --------------------------------------------------------------------------------------------- */

static uint64_t stamp_at(const kvshm *kv, uint32_t i)
{
    return KVSHM__LOAD(&kv->heap[i].stamp);
}

static void put(kvshm *kv, uint32_t i, uint64_t stamp, uint32_t record)
{
    KVSHM__STORE(&kv->heap[i].stamp, stamp);
    KVSHM__STORE(&kv->heap[i].record, record);
    if (record < kv->record_count)
        KVSHM__STORE(&kv->heap[record].position1, i + 1);
}

static void swap(kvshm *kv, uint32_t i, uint32_t j)
{
    uint64_t stamp = stamp_at(kv, i);
    uint32_t record = KVSHM__LOAD(&kv->heap[i].record);

    put(kv, i, stamp_at(kv, j), KVSHM__LOAD(&kv->heap[j].record));
    put(kv, j, stamp, record);
}

static void rise(kvshm *kv, uint32_t i)
{
    while (i > 0 && stamp_at(kv, i) < stamp_at(kv, (i - 1) / CHILDREN)) {
        swap(kv, i, (i - 1) / CHILDREN);
        i = (i - 1) / CHILDREN;
    }
}

/* Entries in the heap and behind it. */
static uint32_t total(const kvshm *kv)
{
    uint64_t entries = KVSHM__LOAD(&derived(kv)->entries);
    return entries < kv->record_count ? (uint32_t)entries : kv->record_count;
}

static uint32_t heap_length(const kvshm *kv)
{
    uint32_t length = KVSHM__LOAD(&derived(kv)->heap_length), all = total(kv);
    return length < all ? length : all;
}

static void sink(kvshm *kv, uint32_t i)
{
    uint32_t length = heap_length(kv);

    for (;;) {
        uint32_t least = i;
        for (uint64_t c = (uint64_t)i * CHILDREN + 1; c <= (uint64_t)i * CHILDREN + CHILDREN && c < length; c++) {
            if (stamp_at(kv, (uint32_t)c) < stamp_at(kv, least))
                least = (uint32_t)c;
        }
        if (least == i)
            return;
        swap(kv, i, least);
        i = least;
    }
}

static void heap_add(kvshm *kv, uint32_t record, uint64_t stamp)
{
    uint32_t length = heap_length(kv), all = total(kv);

    if (all >= kv->record_count)
        return;
    if (length < all) /* the first one set aside makes room */
        put(kv, all, stamp_at(kv, length), KVSHM__LOAD(&kv->heap[length].record));
    put(kv, length, stamp, record);
    KVSHM__STORE(&derived(kv)->entries, all + 1);
    KVSHM__STORE(&derived(kv)->heap_length, length + 1);
    rise(kv, length);
}

static void heap_remove(kvshm *kv, uint32_t record)
{
    uint32_t length = heap_length(kv), all = total(kv);
    uint32_t i = KVSHM__LOAD(&kv->heap[record].position1) - 1;

    if (i >= all || KVSHM__LOAD(&kv->heap[i].record) != record)
        return;
    if (i < length) {
        length--;
        KVSHM__STORE(&derived(kv)->heap_length, length);
        swap(kv, i, length);
        if (i < length) {
            sink(kv, i);
            rise(kv, i);
        }
        i = length;
    }
    swap(kv, i, all - 1);
    KVSHM__STORE(&derived(kv)->entries, all - 1);
    KVSHM__STORE(&kv->heap[record].position1, 0);
}

/* ---- With a spill file ------------------------------------------------------------------------------------ */

static struct kvshm_tier_derived *tier(const kvshm *kv)
{
    return &kv->header->tier;
}

static bool in_heap(const kvshm *kv, uint32_t record)
{
    return KVSHM__LOAD(&kv->heap[record].position1) != 0;
}

/* In the heap though no entry ends there? */
static bool is_kept_alone(const kvshm *kv, uint32_t record)
{
    return KVSHM__LOAD(&kv->ages[record].kept) != 0 && KVSHM__LOAD(&kv->records[record].stamp) == 0;
}

static void leave_heap_and_list(kvshm *kv, uint32_t record)
{
    heap_remove(kv, record);
    if (!kv->ages)
        return;
    kvshm__ages_remove(kv, record);
    KVSHM__ADD(&tier(kv)->pages_kept, -(uint64_t)is_kept_alone(kv, record));
    KVSHM__STORE(&kv->ages[record].kept, 0);
}

void kvshm__recency_give_up(kvshm *kv, uint32_t record)
{
    leave_heap_and_list(kv, record);
    if (KVSHM__LOAD(&kv->records[record].stamp) != 0)
        kvshm__ages_append(kv, record, KVSHM__AGES_LEFT);
}

void kvshm__recency_claim(kvshm *kv, uint32_t record, bool keep)
{
    if (in_heap(kv, record) && !keep)
        return;
    leave_heap_and_list(kv, record);
    if (keep) {
        KVSHM__STORE(&kv->ages[record].kept, kvshm__recency_now(kv));
        KVSHM__ADD(&tier(kv)->pages_kept, KVSHM__LOAD(&kv->records[record].stamp) == 0);
    }
    if (key_of(kv, record) != 0)
        heap_add(kv, record, key_of(kv, record));
    if (KVSHM__LOAD(&kv->records[record].stamp) != 0)
        kvshm__ages_append(kv, record, KVSHM__AGES_UNWRITTEN);
}

bool kvshm__recency_claims(const kvshm *kv, uint32_t record)
{
    return in_heap(kv, record);
}

void kvshm__recency_add(kvshm *kv, uint32_t record)
{
    uint64_t now = kvshm__recency_now(kv);

    leave_heap_and_list(kv, record);
    heap_add(kv, record, now);
    KVSHM__STORE(&kv->records[record].policy, now);
    KVSHM__STORE_REL(&kv->records[record].stamp, now);
    if (kv->ages)
        kvshm__ages_append(kv, record, KVSHM__AGES_UNWRITTEN);
}

void kvshm__recency_remove(kvshm *kv, uint32_t record)
{
    leave_heap_and_list(kv, record);
    KVSHM__STORE_REL(&kv->records[record].stamp, 0);
}

bool kvshm__recency_remove_if(kvshm *kv, uint32_t record, uint64_t seen)
{
    uint64_t stamp = seen;

    if (kv->ages && KVSHM__LOAD(&kv->ages[record].kept) == seen)
        stamp = KVSHM__LOAD(&kv->records[record].stamp);
    if (stamp > seen || !kvshm__cas(&kv->records[record].stamp, stamp, 0))
        return false;
    if (kv->ages)
        KVSHM__STORE(&kv->ages[record].kept, 0);
    leave_heap_and_list(kv, record);
    return true;
}

/* A root that is no entry, or is one whose place is another (damage: R2), leaves the heap. */
static void drop_root(kvshm *kv)
{
    uint32_t length = heap_length(kv) - 1, last = total(kv) - 1;

    put(kv, 0, stamp_at(kv, length), KVSHM__LOAD(&kv->heap[length].record));
    put(kv, length, stamp_at(kv, last), KVSHM__LOAD(&kv->heap[last].record));
    KVSHM__STORE(&derived(kv)->heap_length, length);
    KVSHM__STORE(&derived(kv)->entries, last);
    sink(kv, 0);
}

uint32_t kvshm__recency_oldest(kvshm *kv, uint64_t *stamp)
{
    while (heap_length(kv) > 0) {
        uint32_t record = KVSHM__LOAD(&kv->heap[0].record);
        *stamp = record < kv->record_count ? key_of(kv, record) : 0;
        if (*stamp == 0 || KVSHM__LOAD(&kv->heap[record].position1) != 1) {
            drop_root(kv);
            continue;
        }
        if (*stamp == stamp_at(kv, 0))
            return record;
        KVSHM__STORE(&kv->heap[0].stamp, *stamp);
        sink(kv, 0);
    }
    return KVSHM__NO_RECORD;
}

void kvshm__recency_set_aside(kvshm *kv)
{
    uint32_t length = heap_length(kv);

    if (length == 0)
        return;
    KVSHM__STORE(&derived(kv)->heap_length, length - 1);
    swap(kv, 0, length - 1);
    sink(kv, 0);
}

void kvshm__recency_take_back(kvshm *kv)
{
    uint32_t all = total(kv);

    for (uint32_t i = heap_length(kv); i < all; i++) {
        KVSHM__STORE(&derived(kv)->heap_length, i + 1);
        rise(kv, i);
    }
}

void kvshm__recency_forget_all(kvshm *kv)
{
    KVSHM__STORE(&derived(kv)->entries, 0);
    KVSHM__STORE(&derived(kv)->heap_length, 0);
    kvshm__ages_forget_all(kv);
    KVSHM__STORE(&tier(kv)->pages_kept, 0);
}

static void forget_links(kvshm *kv, uint32_t record)
{
    KVSHM__STORE(&kv->heap[record].position1, 0);
    if (kv->ages)
        kvshm__ages_forget(kv, record);
}

void kvshm__recency_forget(kvshm *kv, uint32_t record)
{
    KVSHM__STORE(&kv->records[record].stamp, 0);
    if (kv->ages)
        KVSHM__STORE(&kv->ages[record].kept, 0);
    forget_links(kv, record);
}

/* Those in the file, sorted by the heap, which is empty before and after. */
static void rebuild_list(kvshm *kv)
{
    uint64_t stamp;
    uint32_t record;

    for (record = 0; record < kv->record_count && kv->ages; record++) {
        if (record % SLICE == 0)
            kvshm__writer_progress(kv);
        stamp = KVSHM__LOAD(&kv->records[record].stamp);
        if (stamp != 0 && kvshm__place_pending(KVSHM__LOAD(&kv->records[record].place)))
            heap_add(kv, record, stamp);
    }
    while ((record = kvshm__recency_oldest(kv, &stamp)) != KVSHM__NO_RECORD)
        kvshm__recency_give_up(kv, record);
}

void kvshm__recency_rebuild(kvshm *kv)
{
    kvshm__recency_forget_all(kv);
    for (uint32_t record = 0; record < kv->record_count; record++)
        forget_links(kv, record);
    rebuild_list(kv);
    for (uint32_t record = 0; record < kv->record_count; record++) {
        uint64_t place = KVSHM__LOAD(&kv->records[record].place);
        if (record % SLICE == 0)
            kvshm__writer_progress(kv);
        if (kvshm__place_published(place) && key_of(kv, record) != 0) {
            heap_add(kv, record, key_of(kv, record));
            if (KVSHM__LOAD(&kv->records[record].stamp) == 0)
                KVSHM__ADD(&tier(kv)->pages_kept, 1);
            else if (kv->ages)
                kvshm__ages_append(kv, record, KVSHM__AGES_UNWRITTEN);
        } else if (!kvshm__place_published(place) && !kvshm__place_pending(place))
            kvshm__recency_forget(kv, record);
    }
}
