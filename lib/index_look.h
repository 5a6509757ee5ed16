/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index_look.h - the looks of index.h, in line, so that a hit compiles as one function.
 *
 * For index.c, and for the call of cache.c that each server makes most. What they promise stands in index.h.
 */
#ifndef KVSHM_INDEX_LOOK_H
#define KVSHM_INDEX_LOOK_H

#include "index.h"
#include "frames.h"
#include "tokens.h"

/* Pages above one that are fetched as if they stood just before it. */
#define KVSHM__GUESSED 8

/* Bytes of a text that are fetched ahead: the processor sees the rest coming. */
#define KVSHM__AHEAD_TEXT 320

/* ---- Where words stand ------------------------------------------------------------------------------------ */

static inline uint32_t kvshm__scaled(uint64_t hash, uint32_t n)
{
    return (uint32_t)(((unsigned __int128)hash * n) >> 64);
}

static inline struct kvshm_bucket *kvshm__first_bucket(const kvshm *kv, uint64_t hash)
{
    return &kv->buckets[kvshm__scaled(hash, kv->bucket_count)];
}

/* Another one; the multiplier (2^64 / golden ratio, odd) lets the low bits decide. */
static inline struct kvshm_bucket *kvshm__second_bucket(const kvshm *kv, uint64_t hash)
{
    uint32_t first = kvshm__scaled(hash, kv->bucket_count);
    uint32_t step = 1 + kvshm__scaled(hash * 0x9e3779b97f4a7c15u, kv->bucket_count - 1);
    uint32_t second = first + step;

    return &kv->buckets[second < kv->bucket_count ? second : second - kv->bucket_count];
}

static inline uint64_t kvshm__word_for(uint64_t hash, uint32_t record)
{
    return hash << 32 | (uint64_t)(record + 1);
}

/* ---- Reading ---------------------------------------------------------------------------------------------- */

enum kvshm__look { KVSHM__NO, KVSHM__YES, KVSHM__CHANGED };

/* Taken away, but still in its frame? One that was in the file alone, or was being read from
   it, has none to come back to. */
static inline bool kvshm__in_limbo(const kvshm *kv, uint32_t record, uint64_t place)
{
    uint32_t frame = kvshm__place_frame(place);

    return kvshm__place_state(place) == KVSHM__PLACE_AWAY && frame < kv->frame_count &&
           KVSHM__LOAD(&kv->owners[frame].owner) == kvshm__owner_page(record);
}

/* What is looked for: a page behind a parent, or a whole prefix by its deepest page. */
struct kvshm__aim {
    uint64_t hash;
    const struct kvshm__page_spec *spec; /* or NULL, and then */
    const struct kvshm_prefix *prefix;
    kvshm__equal_fn *words_equal;
    uint64_t parent_seq;
    bool also_limbo;
};

static inline bool kvshm__of_this_epoch(const kvshm *kv, const struct kvshm_record *r)
{
    return KVSHM__LOAD((kvshm_a32 *)&r->epoch) == (uint32_t)KVSHM__LOAD(&kv->header->epoch);
}

/* One look at the page of a record: is it the one of the spec, behind its parent? */
static KVSHM__HOT enum kvshm__look kvshm__look_at_page(const kvshm *kv, const struct kvshm__aim *aim,
                                                       struct kvshm__found *out)
{
    const struct kvshm__page_spec *spec = aim->spec;
    const struct kvshm_record *r = &kv->records[out->record];
    bool root = spec->parent == KVSHM__NO_RECORD;
    uint32_t length = KVSHM__LOAD((kvshm_a32 *)&r->length);
    uint32_t depth = KVSHM__LOAD((kvshm_a32 *)&r->depth);
    bool equal = kvshm__of_this_epoch(kv, r) && kvshm__text_equal(kv, out->record, spec);

    if (spec->key)
        equal = equal && (length & ~KVSHM__LENGTH) == (KVSHM__KEY_ONLY | KVSHM__KEY_END) &&
                (depth == 0 ? kvshm__pages_root(r) : KVSHM__LOAD((kvshm_a32 *)&r->parent1) != 0);
    else
        equal = equal && length == spec->length &&
                KVSHM__LOAD((kvshm_a32 *)&r->parent1) == (root ? 0 : spec->parent + 1) &&
                KVSHM__LOAD((kvshm_a64 *)&r->parent_seq) == (root ? 0 : aim->parent_seq);
    out->length = length;
    out->depth = depth;
    if (kvshm__seq_read_retry(&r->seq, out->seq))
        return KVSHM__CHANGED;
    return equal ? KVSHM__YES : KVSHM__NO;
}

/* A page on the way up, and which stands above it. */
struct kvshm__rung {
    uint32_t record;
    uint32_t parent1;
    uint64_t seq;
    uint64_t parent_seq;
};

/* Does the record hold these m tokens of the prefix, with so many pages above it? */
static KVSHM__HOT enum kvshm__look kvshm__look_at_rung(const kvshm *kv, const struct kvshm__aim *aim, uint32_t depth,
                                                       uint32_t m, struct kvshm__rung *rung)
{
    const struct kvshm_record *r = &kv->records[rung->record];
    const uint32_t *tokens = aim->prefix->tokens + (size_t)depth * kv->page_tokens;

    rung->parent1 = KVSHM__LOAD((kvshm_a32 *)&r->parent1);
    rung->parent_seq = KVSHM__LOAD((kvshm_a64 *)&r->parent_seq);
    bool equal = KVSHM__LOAD((kvshm_a32 *)&r->length) == m && KVSHM__LOAD((kvshm_a32 *)&r->depth) == depth &&
                 kvshm__of_this_epoch(kv, r) && KVSHM__LOAD((kvshm_a64 *)&r->adapter_id) == aim->prefix->adapter_id &&
                 KVSHM__LOAD((kvshm_a64 *)&r->tenant) == aim->prefix->tenant &&
                 kvshm__tokens_equal(kvshm__text(kv, rung->record), tokens, m, aim->words_equal);
    if (kvshm__seq_read_retry(&r->seq, rung->seq))
        return KVSHM__CHANGED;
    return equal ? KVSHM__YES : KVSHM__NO;
}

/* Records are given out in order, so the pages above a page stand mostly just before it. */
static inline void kvshm__fetch_before(const kvshm *kv, uint32_t record, uint32_t above)
{
    for (uint32_t i = 1; i <= above && i <= KVSHM__GUESSED && i <= record; i++) {
        const char *text = (const char *)kvshm__text(kv, record - i);
        __builtin_prefetch(&kv->records[record - i]);
        for (uint64_t j = 0; j < KVSHM__AHEAD_TEXT && j < kv->text_stride; j += KVSHM__LINE)
            __builtin_prefetch(text + j);
    }
}

/*
 * One look at the page of a record, and at those above it: are they all of the prefix? An entry's pages are those above
 * its deepest one; they stay as they are while that is published. Each is the one that its child named, by number and
 * sequence, or the child is no more.
 */
static KVSHM__HOT enum kvshm__look kvshm__look_at_prefix(const kvshm *kv, const struct kvshm__aim *aim,
                                                         struct kvshm__found *out)
{
    uint32_t depth = (aim->prefix->n - 1) / kv->page_tokens, m = aim->prefix->n - depth * kv->page_tokens;
    struct kvshm__rung rung = {.record = out->record, .seq = out->seq};
    uint32_t guess = out->record, left = 0;

    out->length = m;
    out->depth = depth;
    for (;;) {
        if (rung.record != guess || left-- == 0) {
            kvshm__fetch_before(kv, rung.record, depth);
            left = KVSHM__GUESSED;
        }
        guess = rung.record - 1;
        enum kvshm__look answer = kvshm__look_at_rung(kv, aim, depth, m, &rung);
        if (answer != KVSHM__YES)
            return answer;
        if (depth == 0)
            return rung.parent1 == 0 ? KVSHM__YES : KVSHM__NO;
        rung.record = rung.parent1 - 1;
        rung.seq = rung.parent_seq;
        if (rung.record >= kv->record_count || (rung.seq & 1))
            return KVSHM__NO;
        depth--;
        m = kv->page_tokens;
    }
}

/* One look at the record that a word names. */
static KVSHM__HOT enum kvshm__look kvshm__look_at(const kvshm *kv, const struct kvshm__aim *aim,
                                                  struct kvshm__found *out, uint64_t *place_seen)
{
    const struct kvshm_record *r = &kv->records[out->record];
    uint64_t seq = kvshm__seq_read_begin(&r->seq);

    if (seq & 1)
        return KVSHM__CHANGED;
    uint64_t place = KVSHM__LOAD_ACQ((kvshm_a64 *)&r->place);
    *place_seen = place;
    out->seq = seq;
    enum kvshm__look answer = aim->spec ? kvshm__look_at_page(kv, aim, out) : kvshm__look_at_prefix(kv, aim, out);
    out->pending = false;
    if (answer == KVSHM__YES && !kvshm__place_published(place)) {
        out->pending = kvshm__place_pending(place);
        if (!out->pending && !(aim->also_limbo && kvshm__in_limbo(kv, out->record, place)))
            return KVSHM__NO;
    }
    return answer;
}

static KVSHM__HOT enum kvshm__look kvshm__look_at_word(const kvshm *kv, kvshm_a64 *at, const struct kvshm__aim *aim,
                                                       struct kvshm__found *out)
{
    for (int i = 0; i < KVSHM__LOOKS; i++) {
        uint64_t word = KVSHM__LOAD_ACQ(at);
        uint32_t record = kvshm__index_record(kv, word);
        if (word >> 32 != (uint32_t)aim->hash || record == KVSHM__NO_RECORD)
            return KVSHM__NO;
        uint64_t place = 0;
        if (!aim->spec || aim->spec->key) {
            __builtin_prefetch(kvshm__text(kv, record));
            __builtin_prefetch(&kv->records[record].stamp, 1);
        }
        out->record = record;
        enum kvshm__look answer = kvshm__look_at(kv, aim, out, &place);
        if (answer == KVSHM__YES) {
            out->word = word;
            out->at = at;
            return KVSHM__YES;
        }
        /* A replacement stores the word once: a no is one only if word and page are still those that were looked at. */
        if (answer == KVSHM__NO && KVSHM__LOAD_ACQ(at) == word && KVSHM__LOAD_ACQ(&kv->records[record].place) == place)
            return KVSHM__NO;
        kvshm__pause();
    }
    return KVSHM__CHANGED;
}

/* Bit i: word i of the bucket has these bits of a hash. A hint of which words to look at: who does loads them anew. */
#if defined(__SSE2__) && !defined(KVSHM_TSAN)
static inline uint32_t kvshm__alike(const struct kvshm_bucket *bucket, uint64_t hash)
{
    const __m128 *words = (const __m128 *)bucket;
    const __m128i wanted = _mm_set1_epi32((int)hash);
    enum { high_halves = _MM_SHUFFLE(3, 1, 3, 1) };
    __m128i first = _mm_castps_si128(_mm_shuffle_ps(words[0], words[1], high_halves));
    __m128i last = _mm_castps_si128(_mm_shuffle_ps(words[2], words[3], high_halves));
    __m128i same = _mm_packs_epi32(_mm_cmpeq_epi32(first, wanted), _mm_cmpeq_epi32(last, wanted));

    return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(same, _mm_setzero_si128()));
}
#else
static inline uint32_t kvshm__alike(const struct kvshm_bucket *bucket, uint64_t hash)
{
    uint32_t bits = 0;

#pragma GCC unroll 8
    for (uint32_t i = 0; i < KVSHM__BUCKET_WORDS; i++)
        bits |= (uint32_t)(KVSHM__LOAD((kvshm_a64 *)&bucket->word[i]) >> 32 == (uint32_t)hash) << i;
    return bits;
}
#endif

static KVSHM__HOT bool kvshm__look_in(const kvshm *kv, struct kvshm_bucket *bucket, const struct kvshm__aim *aim,
                                      struct kvshm__found *out, bool *gave_up)
{
    for (uint32_t bits = kvshm__alike(bucket, aim->hash); bits; bits &= bits - 1) {
        kvshm_a64 *at = &bucket->word[__builtin_ctz(bits)];
        enum kvshm__look answer = kvshm__look_at_word(kv, at, aim, out);
        if (answer == KVSHM__YES)
            return true;
        if (answer == KVSHM__CHANGED)
            *gave_up = true;
    }
    return false;
}

static KVSHM__HOT bool kvshm__look_for(const kvshm *kv, const struct kvshm__aim *aim, struct kvshm__found *out,
                                       bool *gave_up)
{
    if (kvshm__look_in(kv, kvshm__first_bucket(kv, aim->hash), aim, out, gave_up) ||
        kvshm__look_in(kv, kvshm__second_bucket(kv, aim->hash), aim, out, gave_up))
        return true;
    out->record = KVSHM__NO_RECORD;
    return false;
}

static inline void kvshm__fetch_buckets(const kvshm *kv, uint64_t hash)
{
    __builtin_prefetch(kvshm__first_bucket(kv, hash));
    __builtin_prefetch(kvshm__second_bucket(kv, hash));
}

/* kvshm__index_aim() of the one and of the other kind. */
static inline uint64_t kvshm__aim_at_key(const kvshm *kv, const struct kvshm_prefix *prefix)
{
    uint64_t hash = kvshm__hash_key(kv->secret, prefix->adapter_id, prefix->tenant, prefix->key, KVSHM__KEY_DEEPEST);

    kvshm__fetch_buckets(kv, hash);
    return hash;
}

uint64_t kvshm__aim_at_tokens(const kvshm *kv, const struct kvshm_prefix *prefix);

/* kvshm__index_find_key(). */
static KVSHM__HOT void kvshm__look_for_key(const kvshm *kv, const struct kvshm_prefix *prefix, uint64_t hash,
                                           struct kvshm__walk *walk)
{
    struct kvshm__page_spec spec = {
        .parent = KVSHM__NO_RECORD,
        .adapter_id = prefix->adapter_id,
        .tenant = prefix->tenant,
        .key = prefix->key,
        .hash = hash,
    };
    struct kvshm__aim aim = {.hash = hash, .spec = &spec};
    struct kvshm__found found;
    bool gave_up = false;

    kvshm__walk_nothing(walk);
    if (kvshm__look_for(kv, &aim, &found, &gave_up) &&
        kvshm__pages_shaped(kv, found.depth, found.length)) { /* else: damage */
        walk->deepest = found;
        walk->pages = found.depth + 1;
        walk->tokens = found.depth * kv->page_tokens + (found.length & KVSHM__LENGTH);
    } else {
        walk->gave_up = gave_up;
    }
}

#endif /* KVSHM_INDEX_LOOK_H */
