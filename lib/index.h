/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.h - pages found without waiting.
 *
 * A page's word stands in one of the two buckets (cache lines of 8 words) that its placement hash gives: in the
 * first, unless that is rather full and the other emptier. Words never move. With half as many records as words,
 * two full buckets are as good as impossible; an insert that meets them evicts there (evict.c).
 *
 * A whole prefix is looked for by the hash of its end: the page found there is compared, and then its parents, each the
 * one that its child named, up to the root. The longest cached prefix is looked for page by page from the root.
 *
 * A reader looks at a word at most LOOKS times: it names a record, the record is read under its sequence, and a
 * sequence that is odd or changed means to look at the word again. All is bounded by the request: at most 16 words
 * a page, and, for a match, at most page_tokens - 1 lengths of a partial page behind the last whole one.
 */
#ifndef KVSHM_INDEX_H
#define KVSHM_INDEX_H

#include "pages.h"

/* Looks at one word before the answer is a miss. */
#define KVSHM__LOOKS 64

/* A page as a reader found it; record KVSHM__NO_RECORD: none. */
struct kvshm__found {
    uint32_t record;
    uint32_t length;   /* tokens in this page, and the flags KVSHM__KEY_... */
    uint32_t depth;    /* pages above this one, as the record says */
    uint64_t seq;
    bool pending;      /* in the file, and not in memory */
    uint64_t word;     /* value of its index word, */
    kvshm_a64 *at;     /* which stands here */
};

/* What a walk from the root found. */
struct kvshm__walk {
    struct kvshm__found deepest;
    uint32_t pages;    /* found, from the root */
    uint32_t tokens;   /* in them */
    struct kvshm__found resident; /* if the deepest is pending: the deepest that is not, */
    uint32_t resident_pages;      /* and how many are not, */
    uint32_t resident_tokens;     /* with how many tokens */
    struct kvshm__found wanted;   /* cache.c: the deepest, if it is pending */
    uint32_t pending_tokens;      /* cache.c: in it and in those above it that are pending */
    bool gave_up;      /* a word changed at each of LOOKS looks */
};

/* Nothing is found. Field by field: of a hit the compiler keeps in registers what it can. */
static inline void kvshm__walk_nothing(struct kvshm__walk *walk)
{
    walk->deepest.record = KVSHM__NO_RECORD;
    walk->deepest.pending = false;
    walk->deepest.seq = 0;
    walk->pages = walk->tokens = 0;
    walk->resident.record = KVSHM__NO_RECORD;
    walk->resident.seq = 0;
    walk->resident_pages = walk->resident_tokens = 0;
    walk->wanted.record = KVSHM__NO_RECORD;
    walk->wanted.seq = 0;
    walk->pending_tokens = 0;
    walk->gave_up = false;
}

/*
 * The page of spec behind parent, published in the epoch. parent_seq is the parent's sequence as found. With the
 * writer lock also_limbo finds those in limbo too. false: none; *gave_up is set if that is not known.
 */
bool kvshm__index_find(const kvshm *kv, const struct kvshm__page_spec *spec, uint64_t parent_seq, bool also_limbo,
                       struct kvshm__found *out, bool *gave_up);

/* All pages of exactly this token prefix (the last one holds what is left over), from the root as far as found. */
void kvshm__index_walk(const kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm__walk *walk);

/* The placement hash of a whole prefix, of tokens or by key. Its index words are being fetched from now on. */
uint64_t kvshm__index_aim(const kvshm *kv, const struct kvshm_prefix *prefix);

/* The pages of exactly this token prefix, whose hash this is, all of them or none. */
void kvshm__index_find_prefix(const kvshm *kv, const struct kvshm_prefix *prefix, uint64_t hash,
                              struct kvshm__walk *walk);

/* Whole pages of this token prefix as far as found, then the longest partial page whose tokens are the next ones. */
void kvshm__index_match(const kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm__walk *walk);

/* The deepest page of the key-only entry, whose hash this is, whatever its length. */
void kvshm__index_find_key(const kvshm *kv, const struct kvshm_prefix *prefix, uint64_t hash, struct kvshm__walk *walk);

/* ---- With the writer lock --------------------------------------------------------------------------------- */

/* Is the page published, or would it be were it not away: does a word name it? The word, or NULL. */
kvshm_a64 *kvshm__index_word_of(const kvshm *kv, uint32_t record);

/* An empty word for the hash; NULL: both buckets are full. */
kvshm_a64 *kvshm__index_empty(const kvshm *kv, uint64_t hash);

/* The 16 words of a hash: the i-th, i < 2 * KVSHM__BUCKET_WORDS. */
kvshm_a64 *kvshm__index_reach(const kvshm *kv, uint64_t hash, uint32_t i);

/* Publish: the word names the record from now on (an empty word, or one that takes a new record: a replacement). */
void kvshm__index_set(kvshm_a64 *word, uint64_t hash, uint32_t record);

/* No word names the record any more. */
void kvshm__index_clear(const kvshm *kv, uint32_t record);

/* The record a word names; KVSHM__NO_RECORD: none, or beyond the table. */
static inline uint32_t kvshm__index_record(const kvshm *kv, uint64_t word)
{
    uint32_t record = (uint32_t)word - 1;
    return record < kv->record_count ? record : KVSHM__NO_RECORD;
}

#endif /* KVSHM_INDEX_H */
