/* SPDX-License-Identifier: Apache-2.0 */
#include "inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "index.h"
#include "tier.h"
#include "tokens.h"

#define KEY_TOKENS 8 /* a key as the tokens that its content is made from */

/* ---- Arenas ------------------------------------------------------------------------------------------ */

kvshm *in_create(uint32_t page_tokens, uint64_t frames, uint32_t max_leases)
{
    struct kvshm_config config = ts_config(IN_PAGE_BYTES, page_tokens, frames);

    config.max_clients = 4;
    config.max_leases = max_leases;
    return ts_create("inside", &config);
}

kvshm *in_attach(void)
{
    return ts_attach("inside", 0);
}

static void end_if_found(const char *file, int line, unsigned findings)
{
    if (findings > 0)
        ck_abort_msg("%s:%d: the audit found %u faults", file, line, findings);
}

/* The handle's own thread begins anew when it is needed; meanwhile it could hold the lock. */
static void end_own_thread(const kvshm *kv)
{
    ts_is(kvshm__tier_rest((kvshm *)kv), 0);
}

void in_audit_at(const char *file, int line, const kvshm *kv)
{
    end_own_thread(kv);
    end_if_found(file, line, audit(kv, stderr));
}

void in_audit_swept_at(const char *file, int line, const kvshm *kv)
{
    end_own_thread(kv);
    end_if_found(file, line, audit(kv, stderr) + audit_limbo_held(kv, stderr));
}

/* ---- Prefixes ---------------------------------------------------------------------------------------- */

struct kvshm_prefix in_range(uint32_t first, uint32_t n)
{
    static uint32_t tokens[8][4096];
    static unsigned next;
    uint32_t *own = tokens[next++ % 8];
    struct kvshm_prefix prefix;

    ck_assert_uint_le(n, 4096);
    for (uint32_t i = 0; i < n; i++)
        own[i] = first + i;
    kvshm_prefix_init(&prefix, 0, 0, own, n);
    return prefix;
}

struct kvshm_prefix in_key(uint32_t key, uint32_t n)
{
    struct kvshm_prefix prefix;
    uint8_t bytes[KVSHM_KEY_BYTES] = {0};

    memcpy(bytes, &key, sizeof(key));
    bytes[KVSHM_KEY_BYTES - 1] = (uint8_t)key;
    kvshm_prefix_init_key(&prefix, 0, 0, bytes, n);
    return prefix;
}

static bool same_reach(const kvshm *kv, uint64_t a, uint64_t b)
{
    kvshm_a64 *a1 = kvshm__index_reach(kv, a, 0),
              *a2 = kvshm__index_reach(kv, a, KVSHM__BUCKET_WORDS);
    kvshm_a64 *b1 = kvshm__index_reach(kv, b, 0),
              *b2 = kvshm__index_reach(kv, b, KVSHM__BUCKET_WORDS);

    return (a1 == b1 && a2 == b2) || (a1 == b2 && a2 == b1);
}

struct kvshm_prefix in_crowd(const kvshm *kv, uint32_t i)
{
    static uint32_t tokens[IN_CROWD][4];
    static const kvshm *of;
    struct kvshm_prefix prefix;
    uint64_t root = kvshm__hash_root(kv->secret, 0, 0), first = 0;

    for (uint32_t n = 0, try = 1u << 30; of != kv && n < IN_CROWD; try++) {
        uint32_t page[4] = {try, 1, 2, 3};
        uint64_t hash = kvshm__hash_page(kv->secret, root, page, 4);

        if (n == 0)
            first = hash;
        if (same_reach(kv, first, hash))
            memcpy(tokens[n++], page, sizeof(page));
    }
    of = kv;
    kvshm_prefix_init(&prefix, 0, 0, tokens[i], 4);
    return prefix;
}

bool in_crowded(const kvshm *kv, uint64_t hash)
{
    struct kvshm_prefix prefix = in_crowd(kv, 0);

    return same_reach(
        kv, hash,
        kvshm__hash_page(kv->secret, kvshm__hash_root(kv->secret, 0, 0), prefix.tokens, 4));
}

bool in_elsewhere(const kvshm *kv, uint64_t hash)
{
    struct kvshm_prefix prefix = in_crowd(kv, 0);
    uint64_t crowd =
        kvshm__hash_page(kv->secret, kvshm__hash_root(kv->secret, 0, 0), prefix.tokens, 4);

    for (uint32_t i = 0; i < 4; i++) {
        if (kvshm__index_reach(kv, crowd, i / 2 * KVSHM__BUCKET_WORDS) ==
            kvshm__index_reach(kv, hash, i % 2 * KVSHM__BUCKET_WORDS))
            return false;
    }
    return true;
}

struct kvshm_prefix in_outsider(const kvshm *kv)
{
    static uint32_t tokens[3];
    struct kvshm_prefix prefix;

    do
        tokens[0]++;
    while (!in_elsewhere(
        kv, kvshm__hash_page(kv->secret, kvshm__hash_root(kv->secret, 0, 0), tokens, 3)));
    kvshm_prefix_init(&prefix, 0, 0, tokens, 3);
    return prefix;
}

/* ---- Content ----------------------------------------------------------------------------------------- */

/* A key-only page: the number of its filling, then bytes made from key, position and that number. */
static void fill_key_page(uint8_t *page, const uint8_t *key, uint64_t filling, uint32_t position)
{
    uint32_t made[KEY_TOKENS + 3];

    memcpy(made, key, KVSHM_KEY_BYTES);
    made[KEY_TOKENS] = position;
    memcpy(&made[KEY_TOKENS + 1], &filling, sizeof(filling));
    memcpy(page, &filling, sizeof(filling));
    ts_fill(page + sizeof(filling), IN_PAGE_BYTES - sizeof(filling), 1, 1, made, KEY_TOKENS + 3);
}

static uint64_t wrong_key_page(const uint8_t *page, const uint8_t *key, uint64_t filling,
                               uint32_t position)
{
    uint8_t right[IN_PAGE_BYTES];
    uint64_t wrong = 0;

    fill_key_page(right, key, filling, position);
    for (unsigned i = 0; i < IN_PAGE_BYTES; i++)
        wrong += page[i] != right[i];
    return wrong;
}

int in_fill(kvshm *kv, const struct kvshm_prefix *prefix, const struct kvshm_lease *head,
            struct kvshm_reservation *r)
{
    static uint64_t fillings;
    uint32_t first = head ? head->tokens / kv->page_tokens : 0;
    uint32_t pages = kvshm_pages_for_tokens(prefix->n, kv->page_tokens);
    int answer;

    memset(r, 0, sizeof(*r));
    if (first == pages)
        return 0;
    answer = kvshm_reserve(kv, pages - first, 0, r);
    fillings++;
    for (uint32_t i = first; answer == 0 && i < pages; i++) {
        uint32_t end =
            (i + 1) * kv->page_tokens < prefix->n ? (i + 1) * kv->page_tokens : prefix->n;
        uint8_t *page = kvshm_reservation_page(r, i - first);

        if (prefix->tokens)
            ts_fill(page, IN_PAGE_BYTES, prefix->adapter_id, prefix->tenant, prefix->tokens, end);
        else
            fill_key_page(page, prefix->key, fillings, i);
    }
    return answer;
}

int in_insert(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *head,
              unsigned flags)
{
    struct kvshm_reservation r;
    int answer = in_fill(kv, prefix, head, &r);

    if (answer == 0)
        answer = kvshm_insert(kv, prefix, head, &r, flags);
    if (answer < 0)
        kvshm_cancel(kv, &r);
    return answer;
}

void in_put(kvshm *kv, uint32_t first, uint32_t n)
{
    struct kvshm_prefix prefix = in_range(first, n);

    ts_is(in_insert(kv, &prefix, NULL, 0), 0);
}

uint64_t in_wrong_page(const kvshm *kv, const struct kvshm_prefix *prefix, const uint8_t *page,
                       uint32_t i, uint64_t filling)
{
    uint32_t end = (i + 1) * kv->page_tokens < prefix->n ? (i + 1) * kv->page_tokens : prefix->n;

    return prefix->tokens ? ts_filled(page, IN_PAGE_BYTES, prefix->adapter_id, prefix->tenant,
                                      prefix->tokens, end)
                          : wrong_key_page(page, prefix->key, filling, i);
}

uint64_t in_wrong(const struct kvshm_lease *lease, const struct kvshm_prefix *prefix)
{
    struct kvshm_prefix held = *prefix;
    uint64_t wrong = 0, filling = 0;

    held.n = lease->tokens;
    for (uint32_t i = 0; i < lease->pages; i++) {
        const uint8_t *page = kvshm_lease_page(lease, i);

        if (page == NULL) {
            wrong += IN_PAGE_BYTES;
            continue;
        }
        if (i == 0)
            memcpy(&filling, page, sizeof(filling));
        wrong += in_wrong_page(lease->kv, &held, page, i, filling);
    }
    return wrong;
}

void in_hit(kvshm *kv, const struct kvshm_prefix *prefix)
{
    struct kvshm_lease lease;

    ts_is(kvshm_lookup(kv, prefix, 0, &lease), 0);
    if (prefix->n != 0)
        ck_assert_uint_eq(lease.tokens, prefix->n);
    ck_assert_uint_eq(in_wrong(&lease, prefix), 0);
    kvshm_release(kv, &lease);
}

/* ---- Counts ------------------------------------------------------------------------------------------ */

uint64_t in_free(const kvshm *kv)
{
    return KVSHM__LOAD(&kv->header->derived.frames_free);
}

uint64_t in_pages(const kvshm *kv)
{
    return KVSHM__LOAD(&kv->header->derived.pages);
}

uint64_t in_limbo(const kvshm *kv)
{
    return KVSHM__LOAD(&kv->header->derived.limbo);
}

uint64_t in_entries(const kvshm *kv)
{
    return KVSHM__LOAD(&kv->header->derived.entries);
}

uint64_t in_counter(const kvshm *kv, enum kvshm_counter counter)
{
    return KVSHM__LOAD(&kv->clients[kv->place].counters[counter]);
}

uint32_t in_record(kvshm *kv, const struct kvshm_prefix *prefix)
{
    struct kvshm__walk walk;

    if (prefix->tokens)
        kvshm__index_walk(kv, prefix, &walk);
    else
        kvshm__index_find_key(kv, prefix, kvshm__index_aim(kv, prefix), &walk);
    ck_assert_uint_ne(walk.deepest.record, KVSHM__NO_RECORD);
    return walk.deepest.record;
}

uint64_t in_dead_number(const kvshm *kv)
{
    (void)kv;
    return KVSHM__CLIENT_NUMBER_MAX - 1;
}

/* ---- All entries ------------------------------------------------------------------------------------- */

/* The prefix of the entry that ends at record, from the texts of its pages. */
static struct kvshm_prefix prefix_of(const kvshm *kv, uint32_t record, uint32_t *tokens)
{
    const struct kvshm_record *r = &kv->records[record];
    struct kvshm_prefix prefix = {
        .adapter_id = KVSHM__LOAD((kvshm_a64 *)&r->adapter_id),
        .tenant = KVSHM__LOAD((kvshm_a64 *)&r->tenant),
        .n = (uint32_t)kvshm__pages_tokens(kv, record),
    };

    if (KVSHM__LOAD(&kv->records[record].length) & KVSHM__KEY_ONLY) {
        memcpy(prefix.key, kvshm__text(kv, record), sizeof(prefix.key));
        return prefix;
    }
    prefix.tokens = tokens;
    for (; record != KVSHM__NO_RECORD; record = kvshm__pages_parent(kv, record)) {
        uint32_t first = KVSHM__LOAD(&kv->records[record].depth) * kv->page_tokens;

        ck_assert_uint_le(first + kv->page_tokens, 4096);
        memcpy(tokens + first, kvshm__text(kv, record),
               KVSHM__LOAD(&kv->records[record].length) * sizeof(*tokens));
    }
    return prefix;
}

/* Bytes of the entry's pages that are not what they should be. */
static uint64_t wrong_bytes(const kvshm *kv, uint32_t record)
{
    uint32_t tokens[4096], page = record;
    struct kvshm_prefix prefix = prefix_of(kv, record, tokens);
    const uint8_t *at[4096];
    uint64_t wrong = 0, filling;
    uint32_t pages = KVSHM__LOAD(&kv->records[record].depth) + 1;

    for (uint32_t i = pages; i-- > 0; page = kvshm__pages_parent(kv, page)) {
        uint32_t frame = kvshm__place_frame(KVSHM__LOAD(&kv->records[page].place));

        ck_assert_uint_lt(frame, kv->frame_count);
        at[i] = kv->read_base + kv->frames_offset + frame * kv->frame_stride;
    }
    memcpy(&filling, at[0], sizeof(filling));
    for (uint32_t i = 0; i < pages; i++)
        wrong += in_wrong_page(kv, &prefix, at[i], i, filling);
    return wrong;
}

static int by_stamp(const void *a, const void *b)
{
    uint64_t x = ((const struct in_entry *)a)->stamp, y = ((const struct in_entry *)b)->stamp;

    return x < y ? -1 : x > y;
}

void in_look(const kvshm *kv, struct in_view *view)
{
    view->n = 0;
    for (uint32_t record = 0; record < kv->record_count; record++) {
        const struct kvshm_record *r = &kv->records[record];
        uint64_t stamp = KVSHM__LOAD(&kv->records[record].stamp);

        if (stamp == 0 || !kvshm__place_published(KVSHM__LOAD((kvshm_a64 *)&r->place)) ||
            KVSHM__LOAD((kvshm_a32 *)&r->epoch) != (uint32_t)KVSHM__LOAD(&kv->header->epoch) ||
            !kvshm__index_word_of(kv, record))
            continue;
        ck_assert_uint_lt(view->n, sizeof(view->entry) / sizeof(*view->entry));
        ck_assert_uint_eq(wrong_bytes(kv, record), 0);
        view->entry[view->n++] = (struct in_entry){
            .page_id = KVSHM__LOAD((kvshm_a64 *)&r->page_id[1]),
            .stamp = stamp,
            .seq = KVSHM__LOAD((kvshm_a64 *)&r->seq),
            .record = record,
            .tokens = (uint32_t)kvshm__pages_tokens(kv, record),
        };
    }
    qsort(view->entry, view->n, sizeof(*view->entry), by_stamp);
}

bool in_has(const struct in_view *view, uint64_t page_id)
{
    for (uint32_t i = 0; i < view->n; i++) {
        if (view->entry[i].page_id == page_id)
            return true;
    }
    return false;
}

uint32_t in_lacks(const struct in_view *a, const struct in_view *b)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < a->n; i++)
        n += !in_has(b, a->entry[i].page_id);
    return n;
}

bool in_same(const struct in_view *a, const struct in_view *b)
{
    return a->n == b->n && memcmp(a->entry, b->entry, a->n * sizeof(*a->entry)) == 0;
}

/* ---- Random histories ---------------------------------------------------------------------------------- */

struct kvshm_prefix in_any_prefix(uint64_t *chance, uint32_t *tokens)
{
    uint32_t n = 1 + (uint32_t)ts_random(chance, 14);
    struct kvshm_prefix prefix;

    if (ts_random(chance, 5) == 0) {
        prefix = in_key((uint32_t)ts_random(chance, 4), n);
        memcpy(tokens, prefix.key, sizeof(prefix.key));
        return prefix;
    }
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = ts_random(chance, 4) == 0;
    kvshm_prefix_init(&prefix, ts_random(chance, 4) == 0, 0, tokens, n);
    return prefix;
}

static void give_back_one(struct in_history *h, uint32_t i)
{
    if (h->lease[i].kv)
        ck_assert_uint_eq(in_wrong(&h->lease[i], &h->leased[i]), 0);
    kvshm_release(h->kv, &h->lease[i]);
}

/* Lookup or match into slot i. */
static void step_find(struct in_history *h, uint32_t i, bool match)
{
    int answer;

    give_back_one(h, i);
    h->leased[i] = in_any_prefix(&h->chance, h->tokens[i]);
    if (match && h->leased[i].tokens)
        answer = kvshm_match(h->kv, &h->leased[i], ts_random(&h->chance, 2) ? KVSHM_TOUCH : 0,
                             &h->lease[i]);
    else
        answer = kvshm_lookup(h->kv, &h->leased[i], 0, &h->lease[i]);
    if (answer != KVSHM_MISS)
        ts_is(answer, 0);
}

/* Insert behind the lease in slot i, if it is one of tokens, else without a head. */
static void step_insert(struct in_history *h, uint32_t i, unsigned flags)
{
    uint32_t tokens[IN_TOKENS_MAX], n;
    struct kvshm_prefix prefix = in_any_prefix(&h->chance, tokens);
    struct kvshm_lease *head = NULL;
    int answer;

    if (ts_random(&h->chance, 2) && h->lease[i].kv && h->leased[i].tokens && prefix.tokens) {
        head = &h->lease[i];
        n = head->tokens + (uint32_t)ts_random(&h->chance, 5);
        memcpy(tokens, h->tokens[i], head->tokens * sizeof(*tokens));
        kvshm_prefix_init(&prefix, h->leased[i].adapter_id, 0, tokens, n < 24 ? n : head->tokens);
    } else if (flags & KVSHM_HOLD) {
        give_back_one(h, i);
        head = &h->lease[i];
    }
    answer = in_insert(h->kv, &prefix, head, flags);
    if (answer == -ENOSPC || answer == KVSHM_E_LEASES || answer == KVSHM_E_STALE)
        return;
    ck_assert_msg(answer == 0 || answer == KVSHM_EXISTS || answer == KVSHM_REPLACED,
                  "insert: %d, %s", answer, kvshm_errmsg(h->kv));
    if (flags & KVSHM_HOLD) {
        h->leased[i] = prefix;
        memcpy(h->tokens[i], tokens, sizeof(tokens));
        if (prefix.tokens)
            h->leased[i].tokens = h->tokens[i];
    }
}

static void step_reserve(struct in_history *h)
{
    struct kvshm_reservation *r = &h->reservation[ts_random(&h->chance, 2)];
    int answer;

    if (r->kv) {
        kvshm_cancel(h->kv, r);
        return;
    }
    answer = kvshm_reserve(h->kv, 1 + (uint32_t)ts_random(&h->chance, 3), 0, r);
    if (answer != -ENOSPC && answer != KVSHM_E_LEASES)
        ts_is(answer, 0);
}

static void step_remove(struct in_history *h)
{
    uint32_t tokens[IN_TOKENS_MAX];
    struct kvshm_prefix prefix = in_any_prefix(&h->chance, tokens);
    int answer = kvshm_remove(h->kv, &prefix);

    if (answer != KVSHM_MISS)
        ts_is(answer, 0);
}

void in_step(struct in_history *h, bool all)
{
    static const unsigned insert_flags[] = {0, KVSHM_HOLD, KVSHM_EXTEND, KVSHM_EXTEND | KVSHM_HOLD};
    uint32_t i = (uint32_t)ts_random(&h->chance, IN_HELD);
    uint64_t what = ts_random(&h->chance, 100);

    if (what < 40)
        step_insert(h, i, insert_flags[ts_random(&h->chance, 4)]);
    else if (what < 70)
        step_find(h, i, what % 2);
    else if (what < 82)
        give_back_one(h, i);
    else if (what < 88)
        step_reserve(h);
    else if (what < 94)
        step_remove(h);
    else if (what < 99 || !all)
        ck_assert_int_ge(kvshm_evict_lru(h->kv), 0);
    else
        ts_is(kvshm_clear(h->kv), 0);
}

void in_check_held(const struct in_history *h)
{
    for (uint32_t i = 0; i < IN_HELD; i++) {
        if (h->lease[i].kv)
            ck_assert_uint_eq(in_wrong(&h->lease[i], &h->leased[i]), 0);
    }
}

void in_give_back(struct in_history *h)
{
    for (uint32_t i = 0; i < IN_HELD; i++)
        give_back_one(h, i);
    for (int i = 0; i < 2; i++)
        kvshm_cancel(h->kv, &h->reservation[i]);
}
