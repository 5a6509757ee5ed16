/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entries.c - kvshm_foreach(): each entry, read as a reader reads, record by record; no lock, no lease.
 */
#include <errno.h>
#include <string.h>

#include "client.h"
#include "fork.h"
#include "lease.h"
#include "message.h"
#include "private.h"

/* How many counting lease words name each record. */
static void count_leases(const kvshm *kv, uint32_t *counts)
{
    for (uint32_t place = 0; place < kv->max_clients; place++) {
        uint64_t number = KVSHM__LOAD_ACQ(&kv->clients[place].number);
        uint32_t high = KVSHM__LOAD(&kv->clients[place].lease_high);
        if (number == 0 || high == 0 || !kvshm__client_counts(kv, number))
            continue;
        for (uint32_t i = 0; i < high && i < kv->max_leases; i++) {
            uint64_t value = KVSHM__LOAD(&kv->leases[(size_t)place * kv->max_leases + i].word);
            uint32_t record = kvshm__index_record(kv, value);
            if (record != KVSHM__NO_RECORD &&
                kvshm__lease_value(record, KVSHM__LOAD(&kv->records[record].seq)) == value)
                counts[record]++;
        }
    }
}

/* The entry that ends at a record, whole, as it was at one moment; false: none. */
static bool read_entry(const kvshm *kv, uint32_t record, struct kvshm_entry *e)
{
    const struct kvshm_record *r = &kv->records[record];
    uint64_t words[KVSHM_KEY_BYTES / 8];
    uint64_t seq = kvshm__seq_read_begin(&r->seq);

    memset(e, 0, sizeof(*e));
    e->size = sizeof(*e);
    e->last_used = KVSHM__LOAD((kvshm_a64 *)&r->stamp);
    uint32_t length = KVSHM__LOAD((kvshm_a32 *)&r->length);
    bool there = e->last_used != 0 && !(seq & 1) &&
                 (kvshm__place_published(KVSHM__LOAD_ACQ((kvshm_a64 *)&r->place)) ||
                  kvshm__place_pending(KVSHM__LOAD_ACQ((kvshm_a64 *)&r->place))) &&
                 KVSHM__LOAD((kvshm_a32 *)&r->epoch) == (uint32_t)KVSHM__LOAD(&kv->header->epoch);
    e->adapter_id = KVSHM__LOAD((kvshm_a64 *)&r->adapter_id);
    e->tenant = KVSHM__LOAD((kvshm_a64 *)&r->tenant);
    e->pages = KVSHM__LOAD((kvshm_a32 *)&r->depth) + 1;
    there = there && kvshm__pages_shaped(kv, e->pages - 1, length);
    e->tokens = (e->pages - 1) * kv->page_tokens + (length & KVSHM__LENGTH);
    e->key_only = length & KVSHM__KEY_ONLY;
    const kvshm_a64 *text = kvshm__text(kv, record);
    e->page_id[0] = KVSHM__LOAD((kvshm_a64 *)&r->page_id[0]);
    e->page_id[1] = KVSHM__LOAD((kvshm_a64 *)&r->page_id[1]);
    for (int i = 0; i < KVSHM_KEY_BYTES / 8; i++)
        words[i] = KVSHM__LOAD((kvshm_a64 *)&text[i]);
    if (e->key_only)
        memcpy(e->key, words, sizeof(words));
    return there && !kvshm__seq_read_retry(&r->seq, seq) && kvshm__index_word_of(kv, record);
}

KVSHM_API int kvshm_foreach(kvshm *kv, kvshm_entry_fn fn, void *arg)
{
    int answer = 0;

    if (!kv || !fn)
        return kvshm__fail(-EINVAL, "the %s is NULL", kv ? "function" : "handle");
    if ((answer = kvshm__fork_check(kv)) < 0)
        return answer;
    uint32_t *counts = kvshm__private_alloc(kv->record_count * sizeof(*counts));
    if (!counts)
        return kvshm__fail(-ENOMEM, "no memory to count the leases of %u pages", kv->record_count);
    count_leases(kv, counts);
    for (uint32_t record = 0; record < kv->record_count && answer == 0; record++) {
        struct kvshm_entry entry;
        if (!read_entry(kv, record, &entry))
            continue;
        entry.leases = counts[record];
        answer = fn(&entry, arg);
    }
    kvshm__private_free(counts);
    return answer;
}
