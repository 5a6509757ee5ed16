/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside.h - what the tests of the library's rooms share: small arenas, entries told by what they hold, random histories.
 */
#ifndef KVSHM_TESTS_INSIDE_H
#define KVSHM_TESTS_INSIDE_H

#include "audit.h"
#include "support.h"

#define IN_PAGE_BYTES 64u
#define IN_TOKENS_MAX 64u

/* An arena of small opaque pages, named "inside"; four client places, so many leases and reservations each. */
kvshm *in_create(uint32_t page_tokens, uint64_t frames, uint32_t max_leases);
kvshm *in_attach(void);

/* Fail the test, with the findings, unless audit() has none. */
#define in_audit(kv) in_audit_at(__FILE__, __LINE__, (kv))
void in_audit_at(const char *file, int line, const kvshm *kv);
#define in_audit_swept(kv) in_audit_swept_at(__FILE__, __LINE__, (kv))
void in_audit_swept_at(const char *file, int line, const kvshm *kv);

/* The prefix of n tokens first, first + 1, ... of adapter 0; the tokens stay good until the eighth next call. */
struct kvshm_prefix in_range(uint32_t first, uint32_t n);
/* The key-only prefix whose key is made of key. */
struct kvshm_prefix in_key(uint32_t key, uint32_t n);

/* Prefixes of one whole page of four tokens, all of whose index words stand in the same two buckets; i < IN_CROWD. For an
   arena of four tokens a page. The tokens stay good. */
#define IN_CROWD 20
struct kvshm_prefix in_crowd(const kvshm *kv, uint32_t i);
/* Do the words of that hash stand there, too; do they stand in other lines? */
bool in_crowded(const kvshm *kv, uint64_t hash);
bool in_elsewhere(const kvshm *kv, uint64_t hash);
/* A prefix of three tokens whose words stand elsewhere; until the next call. */
struct kvshm_prefix in_outsider(const kvshm *kv);

/* Reserve what prefix needs behind head, and fill it. kvshm_reserve()'s answer; no page is needed: 0, empty. */
int in_fill(kvshm *kv, const struct kvshm_prefix *prefix, const struct kvshm_lease *head,
            struct kvshm_reservation *r);
/* in_fill() and kvshm_insert(); an error cancels. */
int in_insert(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *head,
              unsigned flags);
/* The same for a range; the outcome must be 0. */
void in_put(kvshm *kv, uint32_t first, uint32_t n);

/* Bytes of the lease's pages that are not those of prefix. Of key-only pages: that are not of one filling. */
uint64_t in_wrong(const struct kvshm_lease *lease, const struct kvshm_prefix *prefix);
/* The same of page i. filling: of a key's, the first eight bytes of the first page. */
uint64_t in_wrong_page(const kvshm *kv, const struct kvshm_prefix *prefix, const uint8_t *page,
                       uint32_t i, uint64_t filling);

/* Look up, compare all bytes, release; fail the test unless it is a hit. */
void in_hit(kvshm *kv, const struct kvshm_prefix *prefix);
#define in_miss(kv, prefix) ck_assert(!kvshm_contains((kv), (prefix)))

/* Counts of the arena, read from the header. */
uint64_t in_free(const kvshm *kv);
uint64_t in_pages(const kvshm *kv);
uint64_t in_limbo(const kvshm *kv);
uint64_t in_entries(const kvshm *kv);
uint64_t in_counter(const kvshm *kv, enum kvshm_counter counter);

/* The record of the page that a lease names, and that of a cached prefix. */
uint32_t in_record(kvshm *kv, const struct kvshm_prefix *prefix);

/* A number that no client has and none will have. */
uint64_t in_dead_number(const kvshm *kv);

/* ---- All entries ---------------------------------------------------------------------------------------- */

struct in_entry {
    uint64_t page_id; /* of its deepest page: its identity */
    uint64_t stamp;
    uint64_t seq;
    uint32_t record;
    uint32_t tokens;
};
struct in_view {
    uint32_t n;
    struct in_entry entry[1024]; /* oldest first */
};

/* All published entries, read as foreach() does, oldest first; the bytes of all their pages are compared with what
   their records say they hold. */
void in_look(const kvshm *kv, struct in_view *view);
bool in_has(const struct in_view *view, uint64_t page_id);
/* How many entries of a are not in b. */
uint32_t in_lacks(const struct in_view *a, const struct in_view *b);
/* The same entries, records and stamps, in the same order? */
bool in_same(const struct in_view *a, const struct in_view *b);

/* ---- Random histories ------------------------------------------------------------------------------------- */

/* What a history holds. */
#define IN_HELD 6
struct in_history {
    kvshm *kv;
    uint64_t chance; /* state of ts_random() */
    struct kvshm_lease lease[IN_HELD];
    struct kvshm_prefix leased[IN_HELD]; /* tokens stand in tokens[] */
    uint32_t tokens[IN_HELD][IN_TOKENS_MAX];
    struct kvshm_reservation reservation[2];
};

/* A prefix by chance: few tokens, so that heads are shared; now and then key-only. tokens is room for it. */
struct kvshm_prefix in_any_prefix(uint64_t *chance, uint32_t *tokens);

/* One call by chance: insert (plain, behind a lease, holding, extending), lookup, match, release, reserve, cancel,
   remove, evict, and, if all is set, clear. Fails the test on an answer that cannot be, or wrong bytes of a hit. */
void in_step(struct in_history *h, bool all);
/* Compare the bytes of what is leased; give all back. */
void in_check_held(const struct in_history *h);
void in_give_back(struct in_history *h);

#endif /* KVSHM_TESTS_INSIDE_H */
