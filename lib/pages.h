/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages.h - page records: a tree of pages, each in a place.
 *
 * A record is free (place NONE), or the page of (adapter, tenant, parent, tokens), or a page of a key-only entry.
 * Parents are named by number and sequence (P1: a link whose sequence differs leads nowhere). Depth grows by one
 * with each link (P2), so no chain is a circle. A record in use is in the list of its parent's children, also while
 * the page is in limbo (P3).
 *
 * All calls need the writer lock, unless said otherwise.
 */
#ifndef KVSHM_PAGES_H
#define KVSHM_PAGES_H

#include <string.h>

#include "handle.h"
#include "wide.h"

#define KVSHM__NO_RECORD UINT32_MAX

static inline enum kvshm_place_state kvshm__place_state(uint64_t place)
{
    return (enum kvshm_place_state)(place >> 28 & 0xf);
}

static inline uint32_t kvshm__place_frame(uint64_t place)
{
    return place & KVSHM__FRAMES_MAX;
}

/* Found by readers? */
static inline bool kvshm__place_published(uint64_t place)
{
    return kvshm__place_state(place) == KVSHM__PLACE_RESIDENT || kvshm__place_state(place) == KVSHM__PLACE_LEAVING;
}

/* What is needed to make a page. */
struct kvshm__page_spec {
    uint32_t parent;        /* record, or KVSHM__NO_RECORD */
    uint32_t length;        /* tokens in this page, and the flags KVSHM__KEY_... */
    uint64_t adapter_id, tenant;
    const uint32_t *tokens; /* of this page */
    const uint8_t *key;     /* or the key */
    uint64_t hash;
};

/* A free record; KVSHM__NO_RECORD: none. It is nobody's until it is written. */
uint32_t kvshm__pages_take(kvshm *kv);

/* Put a record that no word names and that has no place on the free list. */
void kvshm__pages_give(kvshm *kv, uint32_t record);

/* Write a free record. Its page has no place, no entry and no children yet, and is linked to its parent. */
void kvshm__pages_write(kvshm *kv, uint32_t record, const struct kvshm__page_spec *spec);

/* The sequence of a record that is about to be written: its own, or, the first time, one that no other record has. */
static inline uint64_t kvshm__pages_seq(const kvshm *kv, uint32_t record)
{
    uint64_t seq = KVSHM__LOAD(&kv->records[record].seq);
    return seq != 0 ? seq : (uint64_t)(record + 1) << 32;
}

/* The sequence that kvshm__pages_write() will leave. */
static inline uint64_t kvshm__pages_next_seq(const kvshm *kv, uint32_t record)
{
    return ((kvshm__pages_seq(kv, record) + 1) | 1) + 1;
}

/* The page stands in frame from now on; the next step publishes its index word. */
void kvshm__pages_settle(kvshm *kv, uint32_t record, uint32_t frame);

/* In the file, and not, or not for long, in memory? Found by readers as pending. */
static inline bool kvshm__place_pending(uint64_t place)
{
    return kvshm__place_state(place) == KVSHM__PLACE_SPILLED || kvshm__place_state(place) == KVSHM__PLACE_RESTORING ||
           kvshm__place_state(place) == KVSHM__PLACE_PARTING;
}

/* Has the page children that are not free yet? */
static inline bool kvshm__pages_has_children(const kvshm *kv, uint32_t record)
{
    return KVSHM__LOAD(&kv->links[record].child1) != 0 || (kv->ages && KVSHM__LOAD(&kv->ages[record].spilled1) != 0);
}

/* Published or pending -> AWAY, by compare-and-swap against hits. false: it was neither. */
bool kvshm__pages_take_away(kvshm *kv, uint32_t record);

/* RESIDENT or LEAVING -> PARTING, by compare-and-swap against hits. false: it was not published. */
bool kvshm__pages_part(kvshm *kv, uint32_t record);

/* PARTING or RESTORING -> SPILLED. The frame's owner word has been given back before. */
void kvshm__pages_spill(kvshm *kv, uint32_t record);

/* PARTING -> SPILLED, of a page whose frame was given back before a death; for a rebuild: no list and no count is right. */
void kvshm__pages_spilled(kvshm *kv, uint32_t record);

/* NONE -> SPILLED, of a page that was just written to its record, and whose slot word says where it is. */
void kvshm__pages_load(kvshm *kv, uint32_t record);

/* SPILLED or RESTORING -> RESTORING into this frame, whose owner word says by whom. */
void kvshm__pages_claim(kvshm *kv, uint32_t record, uint32_t frame);

/* SPILLED or RESTORING -> RESIDENT in this frame, which is the page's already. */
void kvshm__pages_restore(kvshm *kv, uint32_t record, uint32_t frame);

/* AWAY or PARTING -> RESIDENT: called back from limbo. */
void kvshm__pages_recall(kvshm *kv, uint32_t record);

/* AWAY -> NONE; out of its parent's list. The frame's owner word has been given back before. */
void kvshm__pages_vacate(kvshm *kv, uint32_t record);

/* Put a record in use into the list of its parent's children, and say which partial lengths are below it. */
void kvshm__pages_link(kvshm *kv, uint32_t record);

/* The parent; KVSHM__NO_RECORD: a root, or a link that leads nowhere (which only damage makes). Also without the
   lock, for a page that a lease holds. */
uint32_t kvshm__pages_parent(const kvshm *kv, uint32_t record);

/* The page at depth in the chain that ends at record; KVSHM__NO_RECORD: damage. O(log n). Also without the lock,
   for a page that a lease holds. */
uint32_t kvshm__pages_ancestor(const kvshm *kv, uint32_t record, uint32_t depth);

/* Tokens of the prefix that ends at a page, without the lock for a page that a lease holds. */
static inline uint64_t kvshm__pages_tokens(const kvshm *kv, uint32_t record)
{
    return (uint64_t)KVSHM__LOAD(&kv->records[record].depth) * kv->page_tokens +
           (KVSHM__LOAD(&kv->records[record].length) & KVSHM__LENGTH);
}

/* Is the record a root's in all that says so? Relaxed loads: the caller looks at the sequence, or holds a lease. */
static inline bool kvshm__pages_root(const struct kvshm_record *r)
{
    return KVSHM__LOAD((kvshm_a32 *)&r->depth) == 0 && KVSHM__LOAD((kvshm_a32 *)&r->parent1) == 0 &&
           KVSHM__LOAD((kvshm_a64 *)&r->parent_seq) == 0;
}

/* Can a page be so deep, and hold so many tokens? */
static inline bool kvshm__pages_shaped(const kvshm *kv, uint32_t depth, uint32_t length)
{
    return depth < kv->record_count && (length & KVSHM__LENGTH) - 1 < kv->page_tokens;
}

/* The bit of a partials mask for a page of m < page_tokens tokens. */
static inline uint64_t kvshm__partial_bit(const kvshm *kv, uint32_t m)
{
    return UINT64_C(1) << (((m - 1) >> kv->partial_shift) & 63);
}

/* The word of a text that holds these two tokens; this last one. */
static inline uint64_t kvshm__token_word(const uint32_t *tokens)
{
    uint64_t word;
    memcpy(&word, tokens, sizeof(word));
    return word;
}

static inline uint64_t kvshm__token_last(const uint32_t *token)
{
    uint32_t pair[2] = {*token, 0};
    return kvshm__token_word(pair);
}

/* Are these words the same, n of them? Relaxed loads, of the first n / 2 tokens of a text or the words of a key. */
typedef bool kvshm__equal_fn(const kvshm_a64 *words, const void *as, uint32_t n);

static inline bool kvshm__words_equal_each(const kvshm_a64 *words, const void *as, uint32_t n)
{
    uint64_t differ = 0, in;

    for (uint32_t i = 0; i < n; i++) {
        memcpy(&in, (const uint8_t *)as + 8 * i, sizeof(in));
        differ |= KVSHM__LOAD((kvshm_a64 *)&words[i]) ^ in;
    }
    return differ == 0;
}

/*
 * The same by wider loads, which are no atomic ones to C: what is read while it is written is thrown away by who looks
 * at the sequence, and each word is whole, since processors of x86 never tear one that is aligned. ThreadSanitizer's
 * build has only the form above.
 */
#if defined(__SSE2__) && !defined(KVSHM_TSAN)
static inline __attribute__((always_inline)) bool kvshm__words_equal(const kvshm_a64 *words, const void *as,
                                                                     uint32_t n)
{
    const uint8_t *a = (const uint8_t *)words, *b = as;
    __m128i same = _mm_set1_epi32(-1);
    uint32_t i = 0;

    for (; i + 4 <= n; i += 4, a += 32, b += 32) {
        same = _mm_and_si128(same, _mm_cmpeq_epi32(_mm_loadu_si128((const __m128i *)a),
                                                   _mm_loadu_si128((const __m128i *)b)));
        same = _mm_and_si128(same, _mm_cmpeq_epi32(_mm_loadu_si128((const __m128i *)(a + 16)),
                                                   _mm_loadu_si128((const __m128i *)(b + 16))));
    }
    return _mm_movemask_epi8(same) == 0xffff && kvshm__words_equal_each(words + i, b, n - i);
}
#else
#define kvshm__words_equal kvshm__words_equal_each
#endif

#ifdef KVSHM__WIDE
KVSHM__WIDE static inline bool kvshm__words_equal_wide(const kvshm_a64 *words, const void *as, uint32_t n)
{
    const uint8_t *a = (const uint8_t *)words, *b = as;
    __m256i same = _mm256_set1_epi32(-1);
    uint32_t i = 0;

    for (; i + 8 <= n; i += 8, a += 64, b += 64) {
        same = _mm256_and_si256(same, _mm256_cmpeq_epi32(_mm256_loadu_si256((const __m256i *)a),
                                                         _mm256_loadu_si256((const __m256i *)b)));
        same = _mm256_and_si256(same, _mm256_cmpeq_epi32(_mm256_loadu_si256((const __m256i *)(a + 32)),
                                                         _mm256_loadu_si256((const __m256i *)(b + 32))));
    }
    return _mm256_movemask_epi8(same) == -1 && kvshm__words_equal_each(words + i, b, n - i);
}
#endif

/* Does the text begin with these tokens? */
static inline __attribute__((always_inline)) bool kvshm__tokens_equal(const kvshm_a64 *text, const uint32_t *tokens,
                                                                      uint32_t m, kvshm__equal_fn *equal)
{
    return equal(text, tokens, m / 2) &&
           (m % 2 == 0 || KVSHM__LOAD((kvshm_a64 *)&text[m / 2]) == kvshm__token_last(tokens + m - 1));
}

/* Does the page hold these tokens, or this key, of this adapter and tenant? Relaxed loads: the caller looks at the
   sequence. */
static inline __attribute__((always_inline)) bool kvshm__text_equal(const kvshm *kv, uint32_t record,
                                                                    const struct kvshm__page_spec *spec)
{
    const struct kvshm_record *r = &kv->records[record];

    if (KVSHM__LOAD((kvshm_a64 *)&r->adapter_id) != spec->adapter_id ||
        KVSHM__LOAD((kvshm_a64 *)&r->tenant) != spec->tenant)
        return false;
    if (spec->key)
        return kvshm__words_equal(kvshm__text(kv, record), spec->key, KVSHM_KEY_BYTES / 8);
    return kvshm__tokens_equal(kvshm__text(kv, record), spec->tokens, spec->length, kvshm__words_equal);
}

#endif /* KVSHM_PAGES_H */
