/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - see model.h */
#include "model.h"

#include <stdlib.h>
#include <string.h>

static void *allocate(size_t bytes)
{
    void *p = calloc(1, bytes);

    if (!p)
        abort();
    return p;
}

void model_init(struct model *m, uint32_t page_tokens, uint64_t capacity)
{
    memset(m, 0, sizeof(*m));
    m->page_tokens = page_tokens;
    m->capacity = capacity;
    m->epoch = 1;
}

void model_free(struct model *m)
{
    while (m->pages) {
        struct model_page *page = m->pages;

        m->pages = page->next;
        free(page);
    }
    for (size_t i = 0; i < m->entries; i++)
        free(m->entry[i]);
    free(m->entry);
}

uint32_t model_pages_for(const struct model *m, uint32_t tokens)
{
    return tokens / m->page_tokens + (tokens % m->page_tokens != 0);
}

/* Marks what entries name and leases hold, drops all other pages, and says how many those were. */
static uint64_t sweep(struct model *m)
{
    uint64_t dropped = 0;

    for (struct model_page *page = m->pages; page; page = page->next)
        page->cached = page->held = false;
    for (size_t i = 0; i < m->entries; i++)
        for (struct model_page *page = m->entry[i]->page; page && !page->cached;
             page = page->parent)
            page->cached = true;
    for (struct model_lease *lease = m->leases; lease; lease = lease->next)
        for (struct model_page *page = lease->page; page && !page->held; page = page->parent)
            page->held = true;
    m->pages_cached = m->pages_held = 0;
    for (struct model_page **link = &m->pages; *link;) {
        struct model_page *page = *link;

        if (page->cached || page->held) {
            m->pages_cached += page->cached;
            m->pages_held += !page->cached;
            link = &page->next;
            continue;
        }
        *link = page->next;
        free(page);
        dropped++;
    }
    return dropped;
}

static bool same_name(const struct model_entry *e, const struct kvshm_prefix *prefix)
{
    if (e->adapter_id != prefix->adapter_id || e->tenant != prefix->tenant ||
        e->key_only != !prefix->tokens)
        return false;
    if (e->key_only)
        return memcmp(e->key, prefix->key, sizeof(e->key)) == 0;
    return e->n == prefix->n && memcmp(e->tokens, prefix->tokens, 4 * (size_t)e->n) == 0;
}

struct model_entry *model_find(const struct model *m, const struct kvshm_prefix *prefix)
{
    for (size_t i = 0; i < m->entries; i++) {
        struct model_entry *e = m->entry[i];

        if (same_name(e, prefix))
            return !prefix->tokens && prefix->n && prefix->n != e->n ? NULL : e;
    }
    return NULL;
}

struct model_answer model_look(const struct model *m, const struct kvshm_prefix *prefix)
{
    struct model_answer a = {.outcome = KVSHM_MISS};

    a.entry = model_find(m, prefix);
    if (a.entry) {
        a.outcome = 0;
        a.tokens = a.entry->n;
        a.pages = model_pages_for(m, a.tokens);
        a.page = a.entry->page;
    }
    return a;
}

/* The page of exactly these n tokens behind parent, cached or held. */
static struct model_page *find_page(const struct model *m, const struct kvshm_prefix *prefix,
                                    const struct model_page *parent, const uint32_t *tokens,
                                    uint32_t n)
{
    for (struct model_page *page = m->pages; page; page = page->next) {
        if (!page->key_only && page->epoch == m->epoch && page->parent == parent && page->n == n &&
            page->adapter_id == prefix->adapter_id && page->tenant == prefix->tenant &&
            memcmp(page->tokens, tokens, 4 * (size_t)n) == 0)
            return page;
    }
    return NULL;
}

/* The longest cached page behind parent whose tokens are all the next ones of the request. */
static struct model_page *next_page(const struct model *m, const struct kvshm_prefix *prefix,
                                    const struct model_page *parent, uint32_t at)
{
    uint32_t n = prefix->n - at < m->page_tokens ? prefix->n - at : m->page_tokens;

    for (; n > 0; n--) {
        struct model_page *page = find_page(m, prefix, parent, prefix->tokens + at, n);

        if (page && page->cached)
            return page;
    }
    return NULL;
}

struct model_answer model_walk(const struct model *m, const struct kvshm_prefix *prefix)
{
    struct model_answer a = {.outcome = KVSHM_MISS};
    struct model_page *page = NULL;

    while (a.tokens < prefix->n) {
        page = next_page(m, prefix, a.page, a.tokens);
        if (!page)
            break;
        a.outcome = 0;
        a.page = page;
        a.pages++;
        a.tokens += page->n;
        if (page->n < m->page_tokens)
            break;
    }
    for (size_t i = 0; a.page && i < m->entries; i++)
        if (m->entry[i]->page == a.page)
            a.entry = m->entry[i];
    return a;
}

bool model_runs_through(const struct model_entry *e, const struct model_page *page)
{
    for (const struct model_page *p = e->page; p; p = p->parent)
        if (p == page)
            return true;
    return false;
}

static void unlist(struct model *m, struct model_entry *e)
{
    size_t i = 0;

    while (m->entry[i] != e)
        i++;
    memmove(m->entry + i, m->entry + i + 1, (m->entries - i - 1) * sizeof(*m->entry));
    m->entries--;
}

static void list_last(struct model *m, struct model_entry *e)
{
    if (m->entries == m->room) {
        m->room = m->room ? 2 * m->room : 64;
        m->entry = realloc(m->entry, m->room * sizeof(*m->entry));
        if (!m->entry)
            abort();
    }
    m->entry[m->entries++] = e;
}

void model_touch(struct model *m, struct model_entry *e)
{
    unlist(m, e);
    list_last(m, e);
}

void model_lease(struct model *m, const struct model_answer *a, struct model_lease *lease)
{
    lease->page = a->page;
    lease->tokens = a->tokens;
    lease->pages = a->pages;
    lease->next = m->leases;
    m->leases = lease;
    sweep(m);
}

static void unhold(struct model *m, struct model_lease *lease)
{
    struct model_lease **link = &m->leases;

    if (!lease->page)
        return;
    while (*link != lease)
        link = &(*link)->next;
    *link = lease->next;
    memset(lease, 0, sizeof(*lease));
}

void model_release(struct model *m, struct model_lease *lease)
{
    unhold(m, lease);
    sweep(m);
}

/* The pages of the prefix, those that are there already and new ones; the deepest. */
static struct model_page *make_pages(struct model *m, const struct kvshm_prefix *prefix,
                                     uint64_t content)
{
    struct model_page *page = NULL;

    for (uint32_t at = 0; at < prefix->n;) {
        uint32_t n = prefix->n - at < m->page_tokens ? prefix->n - at : m->page_tokens;
        struct model_page *parent = page;

        page = prefix->tokens ? find_page(m, prefix, parent, prefix->tokens + at, n) : NULL;
        if (!page) {
            page = allocate(sizeof(*page));
            page->next = m->pages;
            m->pages = page;
            page->parent = parent;
            page->adapter_id = prefix->adapter_id;
            page->tenant = prefix->tenant;
            page->epoch = m->epoch;
            page->content = content;
            page->key_only = !prefix->tokens;
            page->n = n;
            if (prefix->tokens)
                memcpy(page->tokens, prefix->tokens + at, 4 * (size_t)n);
        }
        at += n;
    }
    return page;
}

static struct model_entry *make_entry(struct model *m, const struct kvshm_prefix *prefix,
                                      uint64_t content)
{
    struct model_entry *e = allocate(sizeof(*e));

    e->adapter_id = prefix->adapter_id;
    e->tenant = prefix->tenant;
    e->key_only = !prefix->tokens;
    e->n = prefix->n;
    if (prefix->tokens)
        memcpy(e->tokens, prefix->tokens, 4 * (size_t)e->n);
    else
        memcpy(e->key, prefix->key, sizeof(e->key));
    e->page = make_pages(m, prefix, content);
    list_last(m, e);
    return e;
}

static void forget(struct model *m, struct model_entry *e)
{
    unlist(m, e);
    free(e);
}

/* The entry that ends where the lease ends, or NULL. */
static struct model_entry *entry_of_lease(const struct model *m, const struct model_lease *lease)
{
    for (size_t i = 0; lease && lease->page && i < m->entries; i++)
        if (m->entry[i]->page == lease->page)
            return m->entry[i];
    return NULL;
}

int model_insert(struct model *m, const struct kvshm_prefix *prefix, struct model_lease *head,
                 uint64_t content, unsigned flags)
{
    struct kvshm_prefix any_length = *prefix;
    struct model_entry *grown = flags & KVSHM_EXTEND ? entry_of_lease(m, head) : NULL;
    struct model_entry *old = NULL;
    struct model_entry *e = NULL;
    int outcome = 0;

    if (!prefix->tokens)
        any_length.n = 0;
    old = model_find(m, &any_length);
    if (old && prefix->tokens) {
        model_touch(m, old);
        e = old;
        outcome = KVSHM_EXISTS;
    } else {
        if (old)
            forget(m, old);
        e = make_entry(m, prefix, content);
        outcome = old ? KVSHM_REPLACED : 0;
    }
    if (grown && grown != e)
        forget(m, grown);
    if (flags & KVSHM_HOLD) {
        struct model_answer a = {
            .tokens = e->n, .pages = model_pages_for(m, e->n), .page = e->page};

        unhold(m, head);
        model_lease(m, &a, head);
    }
    while (m->entries > m->capacity)
        forget(m, m->entry[0]);
    sweep(m);
    return outcome;
}

uint64_t model_drop(struct model *m, struct model_entry *e)
{
    forget(m, e);
    return sweep(m);
}

int model_remove(struct model *m, const struct kvshm_prefix *prefix)
{
    struct model_entry *e = model_find(m, prefix);

    if (!e)
        return KVSHM_MISS;
    model_drop(m, e);
    return 0;
}

uint64_t model_evict_lru(struct model *m)
{
    return m->entries ? model_drop(m, m->entry[0]) : 0;
}

void model_clear(struct model *m)
{
    while (m->entries)
        forget(m, m->entry[0]);
    m->epoch++;
    sweep(m);
}

bool model_leased(const struct model *m, const struct model_page *page)
{
    for (const struct model_lease *lease = m->leases; lease; lease = lease->next)
        if (lease->page == page)
            return true;
    return false;
}

uint64_t model_pages_held(const struct model *m)
{
    uint64_t held = 0;

    for (const struct model_page *page = m->pages; page; page = page->next)
        held += page->held;
    return held;
}
