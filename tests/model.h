/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h - what the calls of kvshm.h mean, for one process, as plainly as it can be said
 *
 * Written from the words of the cache that kvshm does for many processes: entries by name, the least recently used
 * leaves first, pages that are shared live until nobody uses them; and, where those words say nothing (pages as a
 * tree, match, heads, leases of what was evicted), from kvshm's own. It is the other side of check_differential.c.
 *
 * Lists and comparisons, nothing else: no hash, no sharing of code with the library. Every change is followed by a
 * sweep that marks what entries name and what leases hold, and drops the rest, so that "which pages exist" is said in
 * one place: a page is cached while an entry ends at it or below it, and takes its frame while it is cached or a lease
 * holds it or a page below it.
 */
#ifndef KVSHM_TESTS_MODEL_H
#define KVSHM_TESTS_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvshm.h"

#define MODEL_PAGE_TOKENS_MAX 64
#define MODEL_DEPTH_MAX       16
#define MODEL_TOKENS_MAX      (MODEL_PAGE_TOKENS_MAX * MODEL_DEPTH_MAX)

struct model_page {
    struct model_page *next;   /* all pages of the model */
    struct model_page *parent; /* NULL: a root */
    uint64_t adapter_id;
    uint64_t tenant;
    uint64_t epoch;
    uint64_t content; /* the caller's, of the insert that made it */
    bool key_only;    /* its entry's own, equal to no other page */
    bool cached;      /* an entry ends at it or below it */
    bool held;        /* a lease holds it or a page below it */
    uint32_t n;
    uint32_t tokens[MODEL_PAGE_TOKENS_MAX];
};

struct model_entry {
    uint64_t adapter_id;
    uint64_t tenant;
    uint64_t last_used; /* the caller's, never looked at here: order is that of the list */
    struct model_page *page;
    bool key_only;
    uint8_t key[KVSHM_KEY_BYTES];
    uint32_t n;
    uint32_t tokens[MODEL_TOKENS_MAX];
};

/* The caller's place for a lease; empty while page is NULL. */
struct model_lease {
    struct model_lease *next; /* all leases that hold */
    struct model_page *page;
    uint32_t tokens;
    uint32_t pages;
};

struct model {
    uint32_t page_tokens;
    uint64_t capacity;
    uint64_t epoch;
    size_t entries;
    size_t room;
    struct model_entry **entry; /* the least recently used first */
    struct model_page *pages;
    struct model_lease *leases;
    uint64_t pages_cached;
    uint64_t pages_held; /* held and not cached */
};

/* What a question found. */
struct model_answer {
    int outcome; /* 0 or KVSHM_MISS */
    uint32_t tokens;
    uint32_t pages;
    struct model_entry *entry; /* that ends where the answer ends, or NULL */
    struct model_page *page;
};

void model_init(struct model *m, uint32_t page_tokens, uint64_t capacity);
void model_free(struct model *m);

uint32_t model_pages_for(const struct model *m, uint32_t tokens);
struct model_entry *model_find(const struct model *m, const struct kvshm_prefix *prefix);

/* What would lookup and match find? Neither leases nor touches. */
struct model_answer model_look(const struct model *m, const struct kvshm_prefix *prefix);
struct model_answer model_walk(const struct model *m, const struct kvshm_prefix *prefix);

/* Does the entry run through the page? */
bool model_runs_through(const struct model_entry *e, const struct model_page *page);

void model_touch(struct model *m, struct model_entry *e);
void model_lease(struct model *m, const struct model_answer *a, struct model_lease *lease);
void model_release(struct model *m, struct model_lease *lease);

/*
 * head may be NULL or empty. KVSHM_HOLD makes head a lease of the whole prefix. 0, KVSHM_EXISTS or KVSHM_REPLACED.
 */
int model_insert(struct model *m, const struct kvshm_prefix *prefix, struct model_lease *head,
                 uint64_t content, unsigned flags);
int model_remove(struct model *m, const struct kvshm_prefix *prefix);

/* Drops the entry; pages that go with it at once. */
uint64_t model_drop(struct model *m, struct model_entry *e);
uint64_t model_evict_lru(struct model *m);
void model_clear(struct model *m);

/* Is the page the deepest of a lease? */
bool model_leased(const struct model *m, const struct model_page *page);

/* Pages that would take their frames if only what leases hold stayed. */
uint64_t model_pages_held(const struct model *m);

#endif /* KVSHM_TESTS_MODEL_H */
