/* SPDX-License-Identifier: Apache-2.0 */
/* differ.c - see differ.h */
#include "differ.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Reports ------------------------------------------------------------------------------------------- */

void differ_same(const struct run *r, const char *what, int64_t answer, int64_t expected)
{
    char tokens[256] = "";
    size_t used = 0;

    if (answer == expected)
        return;
    for (uint32_t i = 0; r->prefix.tokens && i < r->prefix.n && used < sizeof(tokens) - 12; i++)
        used += (size_t)snprintf(tokens + used, sizeof(tokens) - used, " %u", r->tokens[i]);
    ck_abort_msg(
        "seed %" PRIu64 " (page_tokens %u, capacity %" PRId64 ", frames %" PRIu64 "), step %" PRIu64
        ", %s of handle %u, flags %#x, adapter %" PRIu64 ", tenant %" PRIu64
        ", n %u, tokens%s: %s is %" PRId64 ", the model says %" PRId64 " (last message: %s)",
        r->seed, r->setting->page_tokens, (int64_t)r->setting->capacity, r->setting->frames,
        r->calls, r->verb, r->handle, r->flags, r->prefix.adapter_id, r->prefix.tenant, r->prefix.n,
        r->prefix.tokens ? tokens : " none (key-only)", what, answer, expected, kvshm_errmsg(NULL));
}

void differ_all_zero(const struct run *r, const char *what, const void *bytes, size_t n)
{
    const uint8_t *b = bytes;
    unsigned set = 0;

    for (size_t i = 0; i < n; i++)
        set += b[i] != 0;
    differ_same(r, what, set, 0);
}

uint64_t differ_chance(struct run *r, uint64_t limit)
{
    return ts_random(&r->random, limit);
}

/* ---- Prompts ------------------------------------------------------------------------------------------- */

/* Tokens from `at` on: blocks of a page, each one of three, that may end in a token of their own. */
void differ_random_tokens(struct run *r, uint32_t at, uint32_t n)
{
    uint32_t page_tokens = r->setting->page_tokens;
    uint32_t block = 0;

    for (uint32_t i = at; i < n; i++) {
        if (i == at || i % page_tokens == 0)
            block = (uint32_t)differ_chance(r, i < page_tokens ? 2 : 3);
        r->tokens[i] = block * 1000 + i % page_tokens;
    }
    if (differ_chance(r, 16) == 0)
        r->tokens[n - 1] = 7777;
}

static uint32_t random_length(struct run *r, uint32_t pages)
{
    uint32_t page_tokens = r->setting->page_tokens;

    return (1 + (uint32_t)differ_chance(r, pages)) * page_tokens -
           (differ_chance(r, 2) ? 0 : (uint32_t)differ_chance(r, page_tokens));
}

static void random_key(struct run *r)
{
    uint64_t number = differ_chance(r, 3);
    uint32_t n = random_length(r, DEPTH - 1);
    uint64_t adapter = r->prefix.adapter_id;
    uint64_t tenant = r->prefix.tenant;
    uint8_t key[KVSHM_KEY_BYTES];

    if (differ_chance(r, 2)) {
        kvshm_prefix_init_hash(&r->prefix, adapter, tenant, 0x0123456789abcdefu + number, n);
    } else {
        memset(key, 0xab, sizeof(key));
        key[31] = (uint8_t)number; /* what differs stands behind the hash */
        kvshm_prefix_init_key(&r->prefix, adapter, tenant, key, n);
    }
}

void differ_prefix_of_entry(struct kvshm_prefix *prefix, const struct model_entry *e)
{
    if (e->key_only)
        kvshm_prefix_init_key(prefix, e->adapter_id, e->tenant, e->key, e->n);
    else
        kvshm_prefix_init(prefix, e->adapter_id, e->tenant, e->tokens, e->n);
}

/* The prefix of an entry, or a longer or a shorter one. */
static void prefix_near_entry(struct run *r, const struct model_entry *e)
{
    uint32_t n = e->n;

    differ_prefix_of_entry(&r->prefix, e);
    if (e->key_only)
        return;
    memcpy(r->tokens, e->tokens, 4 * (size_t)n);
    switch (differ_chance(r, 4)) {
    case 0:
        n = 1 + (uint32_t)differ_chance(r, n);
        break;
    case 1:
        n = random_length(r, DEPTH - 1);
        if (n > e->n)
            differ_random_tokens(r, e->n, n);
        break;
    default:
        break;
    }
    kvshm_prefix_init(&r->prefix, e->adapter_id, e->tenant, r->tokens, n);
}

void differ_random_prefix(struct run *r, bool near)
{
    static const uint64_t adapters[] = {0, 0, 0, 42};
    static const uint64_t tenants[] = {0, 0, 0, 0, 7, UINT64_MAX};
    uint32_t n = random_length(r, DEPTH - 1);

    if (near && r->model.entries && differ_chance(r, 3)) {
        prefix_near_entry(r, r->model.entry[differ_chance(r, r->model.entries)]);
        return;
    }
    differ_random_tokens(r, 0, n);
    kvshm_prefix_init(&r->prefix, adapters[differ_chance(r, 4)], tenants[differ_chance(r, 6)],
                      r->tokens, n);
    if (differ_chance(r, 5) == 0)
        random_key(r);
}

/* ---- Bytes --------------------------------------------------------------------------------------------- */

/* What the bytes of page i of a prefix are made from. */
static uint32_t key_words(uint32_t *words, uint64_t content, uint32_t i)
{
    words[0] = (uint32_t)content;
    words[1] = (uint32_t)(content >> 32);
    words[2] = i;
    return 3;
}

uint32_t differ_page_words(uint32_t *words, const struct model_page *page)
{
    uint32_t before = page->parent ? differ_page_words(words, page->parent) : 0;
    uint32_t depth = 0;

    if (page->key_only) {
        for (const struct model_page *p = page->parent; p; p = p->parent)
            depth++;
        return key_words(words, page->content, depth);
    }
    memcpy(words + before, page->tokens, 4 * (size_t)page->n);
    return before + page->n;
}

void differ_same_bytes(const struct run *r, const void *bytes, const struct model_page *page)
{
    uint32_t words[MODEL_TOKENS_MAX];
    uint32_t n = differ_page_words(words, page);

    differ_same(r, "the number of wrong bytes",
                (int64_t)ts_filled(bytes, PAGE_BYTES, page->adapter_id, page->tenant, words, n), 0);
}

/* Each page of a lease has the bytes of its tokens. */
void differ_same_pages(const struct run *r, const struct kvshm_lease *lease,
                       const struct model_lease *m)
{
    const void *at[DEPTH + 1];
    uint32_t i = m->pages;

    differ_same(r, ".pages of the lease", lease->pages, m->pages);
    differ_same(r, ".tokens of the lease", lease->tokens, m->tokens);
    differ_same(r, "pages given by kvshm_lease_pages", kvshm_lease_pages(lease, 0, DEPTH + 1, at),
                m->pages);
    for (const struct model_page *page = m->page; page; page = page->parent) {
        i--;
        differ_same(r, "kvshm_lease_page is that of kvshm_lease_pages",
                    kvshm_lease_page(lease, i) == at[i] && at[i], 1);
        differ_same_bytes(r, at[i], page);
    }
    differ_same(r, "kvshm_lease_page past the end", kvshm_lease_page(lease, m->pages) == NULL, 1);
}

void differ_fill(struct run *r, const struct kvshm_reservation *reservation, uint32_t first)
{
    uint32_t words[3];

    for (uint32_t i = 0; i < reservation->pages; i++) {
        void *page = kvshm_reservation_page(reservation, i);
        uint32_t end = (first + i + 1) * r->setting->page_tokens;

        differ_same(r, "kvshm_reservation_page is an address", page != NULL, 1);
        if (r->prefix.tokens)
            ts_fill(page, PAGE_BYTES, r->prefix.adapter_id, r->prefix.tenant, r->tokens,
                    end < r->prefix.n ? end : r->prefix.n);
        else
            ts_fill(page, PAGE_BYTES, r->prefix.adapter_id, r->prefix.tenant, words,
                    key_words(words, r->contents, first + i));
    }
    differ_same(r, "kvshm_reservation_page past the end",
                kvshm_reservation_page(reservation, reservation->pages) == NULL, 1);
}

/* ---- Counts and order ---------------------------------------------------------------------------------- */

uint64_t differ_frames_free(const struct run *r)
{
    return r->setting->frames - r->model.pages_cached - r->model.pages_held - r->reserved;
}

void differ_same_counts(struct run *r)
{
    struct kvshm_info info;

    kvshm_info_init(&info);
    differ_same(r, "kvshm_info", kvshm_info(differ_chance(r, 2) ? r->observer : r->kv[0], &info),
                0);
    differ_same(r, ".entries", (int64_t)info.entries, (int64_t)r->model.entries);
    differ_same(r, ".pages", (int64_t)info.pages, (int64_t)r->model.pages_cached);
    differ_same(r, ".epoch", (int64_t)info.epoch, (int64_t)r->model.epoch);
    differ_same(r, ".capacity", (int64_t)info.capacity, (int64_t)r->setting->capacity);
    differ_same(r, "frames in all",
                (int64_t)(info.frames_free + info.frames_reserved + info.pages + info.pages_limbo),
                (int64_t)r->setting->frames);
    /* what was released or cancelled comes back when frames are needed */
    differ_same(r, ".frames_reserved has all that are", info.frames_reserved >= r->reserved, 1);
    differ_same(r, ".pages_limbo has all that are held", info.pages_limbo >= r->model.pages_held,
                1);
}

struct walk {
    const struct run *run;
    size_t entries;
    size_t room;
    struct kvshm_entry *entry;
};

static int collect(const struct kvshm_entry *entry, void *arg)
{
    struct walk *walk = arg;

    differ_same(walk->run, "entries shown stay below twice those there are",
                walk->entries < walk->room, 1);
    walk->entry[walk->entries++] = *entry;
    return 0;
}

static int by_last_used(const void *a, const void *b)
{
    const struct kvshm_entry *x = a;
    const struct kvshm_entry *y = b;

    return (x->last_used > y->last_used) - (x->last_used < y->last_used);
}

static void same_entry(const struct run *r, const struct kvshm_entry *shown,
                       const struct model_entry *e)
{
    static const uint8_t none[KVSHM_KEY_BYTES];
    unsigned leases = 0;

    for (const struct model_lease *l = r->model.leases; l; l = l->next)
        leases += l->page == e->page;
    differ_same(r, "last_used of an entry, oldest first", (int64_t)shown->last_used,
                (int64_t)e->last_used);
    differ_same(r, "its adapter", (int64_t)shown->adapter_id, (int64_t)e->adapter_id);
    differ_same(r, "its tenant", (int64_t)shown->tenant, (int64_t)e->tenant);
    differ_same(r, "its tokens", shown->tokens, e->n);
    differ_same(r, "its pages", shown->pages, model_pages_for(&r->model, e->n));
    differ_same(r, "its leases", shown->leases, leases);
    differ_same(r, "its kind", shown->key_only, e->key_only);
    differ_same(r, "its key", memcmp(shown->key, e->key_only ? e->key : none, sizeof(none)), 0);
}

/* All entries, in the order of their last use. */
void differ_same_order(const struct run *r)
{
    struct walk walk = {.run = r, .room = 2 * r->model.entries + 8};

    walk.entry = calloc(walk.room, sizeof(*walk.entry));
    ck_assert_ptr_nonnull(walk.entry);
    differ_same(r, "kvshm_foreach", kvshm_foreach(r->observer, collect, &walk), 0);
    differ_same(r, "entries shown", (int64_t)walk.entries, (int64_t)r->model.entries);
    qsort(walk.entry, walk.entries, sizeof(*walk.entry), by_last_used);
    for (size_t i = 0; i < walk.entries; i++)
        same_entry(r, &walk.entry[i], r->model.entry[i]);
    free(walk.entry);
}
