/* SPDX-License-Identifier: Apache-2.0 */
#include "index.h"

#include "frames.h"
#include "tokens.h"

/* Pages whose words, records and texts are fetched ahead of the walk. */
#define AHEAD 16

/* Pages whose words are asked for at once to find how many there are. */
#define SUGGESTED 128

/* Pages above one that are fetched as if they stood just before it. */
#define GUESSED 8

/* Bytes of a text that are fetched ahead: the processor sees the rest coming. */
#define AHEAD_TEXT 320

/* ---- Where words stand ------------------------------------------------------------------------------------ */

static uint32_t scaled(uint64_t hash, uint32_t n)
{
    return (uint32_t)(((unsigned __int128)hash * n) >> 64);
}

static struct kvshm_bucket *first_bucket(const kvshm *kv, uint64_t hash)
{
    return &kv->buckets[scaled(hash, kv->bucket_count)];
}

/* Another one; the multiplier (2^64 / golden ratio, odd) lets the low bits decide. */
static struct kvshm_bucket *second_bucket(const kvshm *kv, uint64_t hash)
{
    uint32_t first = scaled(hash, kv->bucket_count);
    uint32_t step = 1 + scaled(hash * 0x9e3779b97f4a7c15u, kv->bucket_count - 1);
    uint32_t second = first + step;

    return &kv->buckets[second < kv->bucket_count ? second : second - kv->bucket_count];
}

static uint64_t word_for(uint64_t hash, uint32_t record)
{
    return hash << 32 | (uint64_t)(record + 1);
}

/* ---- Reading ---------------------------------------------------------------------------------------------- */

enum look { NO, YES, CHANGED };

/* Taken away, but still in its frame? One that was in the file alone, or was being read from it, has none to come back to. */
static bool in_limbo(const kvshm *kv, uint32_t record, uint64_t place)
{
    uint32_t frame = kvshm__place_frame(place);

    return kvshm__place_state(place) == KVSHM__PLACE_AWAY && frame < kv->frame_count &&
           KVSHM__LOAD(&kv->owners[frame].owner) == kvshm__owner_page(record);
}

/* What is looked for: a page behind a parent, or a whole prefix by its deepest page. */
struct aim {
    uint64_t hash;
    const struct kvshm__page_spec *spec; /* or NULL, and then */
    const struct kvshm_prefix *prefix;
    kvshm__equal_fn *words_equal;
    uint64_t parent_seq;
    bool also_limbo;
};

static inline bool of_this_epoch(const kvshm *kv, const struct kvshm_record *r)
{
    return KVSHM__LOAD((kvshm_a32 *)&r->epoch) == (uint32_t)KVSHM__LOAD(&kv->header->epoch);
}

/* One look at the page of a record: is it the one of the spec, behind its parent? */
static KVSHM__HOT enum look look_at_page(const kvshm *kv, const struct aim *aim, struct kvshm__found *out)
{
    const struct kvshm__page_spec *spec = aim->spec;
    const struct kvshm_record *r = &kv->records[out->record];
    bool root = spec->parent == KVSHM__NO_RECORD;
    uint32_t length = KVSHM__LOAD((kvshm_a32 *)&r->length);
    uint32_t depth = KVSHM__LOAD((kvshm_a32 *)&r->depth);
    bool equal = of_this_epoch(kv, r) && kvshm__text_equal(kv, out->record, spec);

    if (spec->key)
        equal = equal && (length & ~KVSHM__LENGTH) == (KVSHM__KEY_ONLY | KVSHM__KEY_END) &&
                (depth == 0 ? kvshm__pages_root(r) : KVSHM__LOAD((kvshm_a32 *)&r->parent1) != 0);
    else
        equal = equal && length == spec->length && KVSHM__LOAD((kvshm_a32 *)&r->parent1) == (root ? 0 : spec->parent + 1) &&
                KVSHM__LOAD((kvshm_a64 *)&r->parent_seq) == (root ? 0 : aim->parent_seq);
    out->length = length;
    out->depth = depth;
    if (kvshm__seq_read_retry(&r->seq, out->seq))
        return CHANGED;
    return equal ? YES : NO;
}

/* A page on the way up, and which stands above it. */
struct rung {
    uint32_t record;
    uint32_t parent1;
    uint64_t seq;
    uint64_t parent_seq;
};

/* Does the record hold these m tokens of the prefix, with so many pages above it? */
static KVSHM__HOT enum look look_at_rung(const kvshm *kv, const struct aim *aim, uint32_t depth, uint32_t m,
                                         struct rung *rung)
{
    const struct kvshm_record *r = &kv->records[rung->record];
    const uint32_t *tokens = aim->prefix->tokens + (size_t)depth * kv->page_tokens;

    rung->parent1 = KVSHM__LOAD((kvshm_a32 *)&r->parent1);
    rung->parent_seq = KVSHM__LOAD((kvshm_a64 *)&r->parent_seq);
    bool equal = KVSHM__LOAD((kvshm_a32 *)&r->length) == m && KVSHM__LOAD((kvshm_a32 *)&r->depth) == depth &&
                 of_this_epoch(kv, r) && KVSHM__LOAD((kvshm_a64 *)&r->adapter_id) == aim->prefix->adapter_id &&
                 KVSHM__LOAD((kvshm_a64 *)&r->tenant) == aim->prefix->tenant &&
                 kvshm__tokens_equal(kvshm__text(kv, rung->record), tokens, m, aim->words_equal);
    if (kvshm__seq_read_retry(&r->seq, rung->seq))
        return CHANGED;
    return equal ? YES : NO;
}

/* Records are given out in order, so the pages above a page stand mostly just before it. */
static inline void fetch_before(const kvshm *kv, uint32_t record, uint32_t above)
{
    for (uint32_t i = 1; i <= above && i <= GUESSED && i <= record; i++) {
        const char *text = (const char *)kvshm__text(kv, record - i);
        __builtin_prefetch(&kv->records[record - i]);
        for (uint64_t j = 0; j < AHEAD_TEXT && j < kv->text_stride; j += KVSHM__LINE)
            __builtin_prefetch(text + j);
    }
}

/*
 * One look at the page of a record, and at those above it: are they all of the prefix? An entry's pages are those above
 * its deepest one; they stay as they are while that is published. Each is the one that its child named, by number and
 * sequence, or the child is no more.
 */
static KVSHM__HOT enum look look_at_prefix(const kvshm *kv, const struct aim *aim, struct kvshm__found *out)
{
    uint32_t depth = (aim->prefix->n - 1) / kv->page_tokens, m = aim->prefix->n - depth * kv->page_tokens;
    struct rung rung = {.record = out->record, .seq = out->seq};
    uint32_t guess = out->record, left = 0;

    out->length = m;
    out->depth = depth;
    for (;;) {
        if (rung.record != guess || left-- == 0) {
            fetch_before(kv, rung.record, depth);
            left = GUESSED;
        }
        guess = rung.record - 1;
        enum look answer = look_at_rung(kv, aim, depth, m, &rung);
        if (answer != YES)
            return answer;
        if (depth == 0)
            return rung.parent1 == 0 ? YES : NO;
        rung.record = rung.parent1 - 1;
        rung.seq = rung.parent_seq;
        if (rung.record >= kv->record_count || (rung.seq & 1))
            return NO;
        depth--;
        m = kv->page_tokens;
    }
}

/* One look at the record that a word names. */
static KVSHM__HOT enum look look_at(const kvshm *kv, const struct aim *aim, struct kvshm__found *out,
                                    uint64_t *place_seen)
{
    const struct kvshm_record *r = &kv->records[out->record];
    uint64_t seq = kvshm__seq_read_begin(&r->seq);

    if (seq & 1)
        return CHANGED;
    uint64_t place = KVSHM__LOAD_ACQ((kvshm_a64 *)&r->place);
    *place_seen = place;
    out->seq = seq;
    enum look answer = aim->spec ? look_at_page(kv, aim, out) : look_at_prefix(kv, aim, out);
    out->pending = false;
    if (answer == YES && !kvshm__place_published(place)) {
        out->pending = kvshm__place_pending(place);
        if (!out->pending && !(aim->also_limbo && in_limbo(kv, out->record, place)))
            return NO;
    }
    return answer;
}

static KVSHM__HOT enum look look_at_word(const kvshm *kv, kvshm_a64 *at, const struct aim *aim,
                                         struct kvshm__found *out)
{
    for (int i = 0; i < KVSHM__LOOKS; i++) {
        uint64_t word = KVSHM__LOAD_ACQ(at);
        uint32_t record = kvshm__index_record(kv, word);
        if (word >> 32 != (uint32_t)aim->hash || record == KVSHM__NO_RECORD)
            return NO;
        uint64_t place = 0;
        if (!aim->spec || aim->spec->key) {
            __builtin_prefetch(kvshm__text(kv, record));
            __builtin_prefetch(&kv->records[record].stamp, 1);
        }
        out->record = record;
        enum look answer = look_at(kv, aim, out, &place);
        if (answer == YES) {
            out->word = word;
            out->at = at;
            return YES;
        }
        /* A replacement stores the word once: a no is one only if word and page are still those that were looked at. */
        if (answer == NO && KVSHM__LOAD_ACQ(at) == word && KVSHM__LOAD_ACQ(&kv->records[record].place) == place)
            return NO;
        kvshm__pause();
    }
    return CHANGED;
}

/* Bit i: word i of the bucket has these bits of a hash. A hint of which words to look at: who does loads them anew. */
#if defined(__SSE2__) && !defined(KVSHM_TSAN)
static inline uint32_t alike(const struct kvshm_bucket *bucket, uint64_t hash)
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
static inline uint32_t alike(const struct kvshm_bucket *bucket, uint64_t hash)
{
    uint32_t bits = 0;

#pragma GCC unroll 8
    for (uint32_t i = 0; i < KVSHM__BUCKET_WORDS; i++)
        bits |= (uint32_t)(KVSHM__LOAD((kvshm_a64 *)&bucket->word[i]) >> 32 == (uint32_t)hash) << i;
    return bits;
}
#endif

static KVSHM__HOT bool find_in(const kvshm *kv, struct kvshm_bucket *bucket, const struct aim *aim,
                               struct kvshm__found *out, bool *gave_up)
{
    for (uint32_t bits = alike(bucket, aim->hash); bits; bits &= bits - 1) {
        kvshm_a64 *at = &bucket->word[__builtin_ctz(bits)];
        enum look answer = look_at_word(kv, at, aim, out);
        if (answer == YES)
            return true;
        if (answer == CHANGED)
            *gave_up = true;
    }
    return false;
}

static KVSHM__HOT bool find(const kvshm *kv, const struct aim *aim, struct kvshm__found *out, bool *gave_up)
{
    if (find_in(kv, first_bucket(kv, aim->hash), aim, out, gave_up) ||
        find_in(kv, second_bucket(kv, aim->hash), aim, out, gave_up))
        return true;
    out->record = KVSHM__NO_RECORD;
    return false;
}

bool kvshm__index_find(const kvshm *kv, const struct kvshm__page_spec *spec, uint64_t parent_seq, bool also_limbo,
                       struct kvshm__found *out, bool *gave_up)
{
    struct aim aim = {.hash = spec->hash, .spec = spec, .parent_seq = parent_seq, .also_limbo = also_limbo};

    return find(kv, &aim, out, gave_up);
}

static void fetch_buckets(const kvshm *kv, uint64_t hash)
{
    __builtin_prefetch(first_bucket(kv, hash));
    __builtin_prefetch(second_bucket(kv, hash));
}

/* Fetch what a look at the page of this hash will read: its record and the beginning of its text. */
static inline void fetch_page(const kvshm *kv, uint64_t hash, bool last)
{
    struct kvshm_bucket *bucket = first_bucket(kv, hash);
    uint32_t bits = alike(bucket, hash);

    if (!bits) {
        bucket = second_bucket(kv, hash);
        bits = alike(bucket, hash);
    }
    for (; bits; bits &= bits - 1) {
        uint32_t record = kvshm__index_record(kv, KVSHM__LOAD(&bucket->word[__builtin_ctz(bits)]));
        if (record == KVSHM__NO_RECORD)
            continue;
        const char *text = (const char *)kvshm__text(kv, record);
        __builtin_prefetch(&kv->records[record]);
        for (uint64_t i = 0; i < AHEAD_TEXT && i < kv->text_stride; i += KVSHM__LINE)
            __builtin_prefetch(text + i);
        if (last)
            __builtin_prefetch(&kv->records[record].stamp, 1);
    }
}

/* Walks the pages of a prefix, a window of AHEAD pages at a time. */
struct walker {
    const kvshm *kv;
    const struct kvshm_prefix *prefix;
    struct kvshm__walk *walk;
    uint64_t hash;            /* of the deepest page found, or of the root */
    uint64_t ahead[AHEAD];    /* hashes of the window's pages */
};

static struct kvshm__page_spec spec_of(const struct walker *w, uint32_t first_token, uint32_t m, uint64_t hash)
{
    return (struct kvshm__page_spec){
        .parent = w->walk->deepest.record,
        .length = m,
        .adapter_id = w->prefix->adapter_id,
        .tenant = w->prefix->tenant,
        .tokens = w->prefix->tokens + first_token,
        .hash = hash,
    };
}

static void walk_begin(struct walker *w, const kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm__walk *walk)
{
    w->kv = kv;
    w->prefix = prefix;
    w->walk = walk;
    w->hash = kvshm__hash_root(kv->secret, prefix->adapter_id, prefix->tenant);
    *walk = (struct kvshm__walk){.deepest = {.record = KVSHM__NO_RECORD}};
}

/* Is the next page, of m tokens, cached behind the deepest? Then it is the deepest. */
static bool walk_step(struct walker *w, uint32_t m, uint64_t hash)
{
    struct kvshm__walk *walk = w->walk;
    struct kvshm__page_spec spec = spec_of(w, walk->tokens, m, hash);
    struct aim aim = {.hash = hash, .spec = &spec, .parent_seq = walk->deepest.seq};
    struct kvshm__found found;

    if (!find(w->kv, &aim, &found, &walk->gave_up))
        return false;
    if (found.pending && !walk->deepest.pending) {
        walk->resident = walk->deepest;
        walk->resident_pages = walk->pages;
        walk->resident_tokens = walk->tokens;
    }
    walk->deepest = found;
    walk->pages++;
    walk->tokens += m;
    w->hash = hash;
    return true;
}

/* Whole pages, as far as they are cached. true: all of them were. */
static bool walk_whole(struct walker *w, uint32_t pages)
{
    const uint32_t m = w->kv->page_tokens;

    for (uint32_t window = 0; window < pages; window += AHEAD) {
        uint32_t n = pages - window < AHEAD ? pages - window : AHEAD;

        kvshm__hash_pages(w->kv->secret, w->hash, w->prefix->tokens + (size_t)window * m, m, n, w->ahead);
        for (uint32_t i = 0; i < n; i++)
            fetch_buckets(w->kv, w->ahead[i]);
        for (uint32_t i = 0; i < n; i++)
            fetch_page(w->kv, w->ahead[i], window + i + 1 == pages);
        for (uint32_t i = 0; i < n; i++) {
            if (!walk_step(w, m, w->ahead[i]))
                return false;
        }
    }
    return true;
}

void kvshm__index_walk(const kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm__walk *walk)
{
    uint32_t whole = prefix->n / kv->page_tokens, rest = prefix->n % kv->page_tokens;
    struct walker w;

    walk_begin(&w, kv, prefix, walk);
    if (walk_whole(&w, whole) && rest > 0)
        walk_step(&w, rest, kvshm__hash_page(kv->secret, w.hash, prefix->tokens + walk->tokens, rest));
}

static KVSHM__HOT void find_prefix(const kvshm *kv, uint64_t hash, const struct kvshm_prefix *prefix,
                            struct kvshm__walk *walk, kvshm__equal_fn *words_equal)
{
    struct aim aim = {.hash = hash, .prefix = prefix, .words_equal = words_equal};

    if (!find(kv, &aim, &walk->deepest, &walk->gave_up))
        return;
    walk->pages = walk->deepest.depth + 1;
    walk->tokens = prefix->n;
}

#ifdef KVSHM__WIDE
KVSHM__WIDE static void find_prefix_wide(const kvshm *kv, uint64_t hash, const struct kvshm_prefix *prefix,
                                         struct kvshm__walk *walk)
{
    find_prefix(kv, hash, prefix, walk, kvshm__words_equal_wide);
}
#endif

/* Of the prefix that ends with its last token. */
static uint64_t hash_prefix(const kvshm *kv, const struct kvshm_prefix *prefix)
{
    const uint32_t m = kv->page_tokens, whole = prefix->n / m, rest = prefix->n % m;
    uint64_t hashes[AHEAD], hash = kvshm__hash_root(kv->secret, prefix->adapter_id, prefix->tenant);

    for (uint32_t done = 0, n; done < whole; done += n) {
        n = whole - done < AHEAD ? whole - done : AHEAD;
        kvshm__hash_pages(kv->secret, hash, prefix->tokens + (size_t)done * m, m, n, hashes);
        hash = hashes[n - 1];
    }
    return rest > 0 ? kvshm__hash_page(kv->secret, hash, prefix->tokens + (size_t)whole * m, rest) : hash;
}

void kvshm__index_find_prefix(const kvshm *kv, const struct kvshm_prefix *prefix, uint64_t hash,
                              struct kvshm__walk *walk)
{
    *walk = (struct kvshm__walk){.deepest = {.record = KVSHM__NO_RECORD}};
#ifdef KVSHM__WIDE
    if (kvshm__wide()) {
        find_prefix_wide(kv, hash, prefix, walk);
        return;
    }
#endif
    find_prefix(kv, hash, prefix, walk, kvshm__words_equal);
}

uint64_t kvshm__index_aim(const kvshm *kv, const struct kvshm_prefix *prefix)
{
    uint64_t hash = prefix->tokens ? hash_prefix(kv, prefix)
                                   : kvshm__hash_key(kv->secret, prefix->adapter_id, prefix->tenant, prefix->key,
                                                     KVSHM__KEY_DEEPEST);

    fetch_buckets(kv, hash);
    return hash;
}

static bool is_named(const kvshm *kv, uint64_t hash)
{
    return alike(first_bucket(kv, hash), hash) || alike(second_bucket(kv, hash), hash);
}

/*
 * So many whole pages of the prefix as index words suggest: a page has a word only if its parent has one, so halving
 * finds the last. *hash is that of the last one. Words of pages that are no longer cached, and chance, make it too many.
 */
static uint32_t whole_suggested(const kvshm *kv, const struct kvshm_prefix *prefix, uint64_t *hash)
{
    const uint32_t m = kv->page_tokens, whole = prefix->n / m;
    uint64_t hashes[SUGGESTED];
    uint32_t done = 0;

    while (done < whole) {
        uint32_t n = whole - done < SUGGESTED ? whole - done : SUGGESTED, low = 0, high = n;
        kvshm__hash_pages(kv->secret, *hash, prefix->tokens + (size_t)done * m, m, n, hashes);
        for (uint32_t i = n; i > 0; i -= i < GUESSED ? i : GUESSED)
            fetch_buckets(kv, hashes[i - 1]);
        /* low have a word, more than high have none; the last one is asked first. */
        for (uint32_t i = n; low < high; i = low + (high - low + 1) / 2) {
            if (is_named(kv, hashes[i - 1]))
                low = i;
            else
                high = i - 1;
        }
        if (low > 0)
            *hash = hashes[low - 1];
        for (uint32_t i = low; i > 0; i -= i < GUESSED ? i : GUESSED)
            fetch_page(kv, hashes[i - 1], i == low);
        done += low;
        if (low < n)
            break;
    }
    return done;
}

/* The whole pages that words suggest, if all of them are cached; else as far as they are, from the root. */
static void match_whole(struct walker *w)
{
    const kvshm *kv = w->kv;
    uint64_t hash = w->hash;
    struct kvshm_prefix part = *w->prefix;
    uint32_t pages = whole_suggested(kv, w->prefix, &hash);

    if (pages == 0)
        return;
    part.n = pages * kv->page_tokens;
    kvshm__index_find_prefix(kv, &part, hash, w->walk);
    if (w->walk->deepest.record != KVSHM__NO_RECORD && !w->walk->deepest.pending) {
        w->hash = hash;
        return;
    }
    walk_begin(w, kv, w->prefix, w->walk); /* which says what is in memory, if not all is */
    walk_whole(w, w->prefix->n / kv->page_tokens);
}

void kvshm__index_match(const kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm__walk *walk)
{
    struct walker w;

    walk_begin(&w, kv, prefix, walk);
    match_whole(&w);

    uint32_t deepest = walk->deepest.record;
    uint64_t lengths = KVSHM__LOAD_ACQ(deepest == KVSHM__NO_RECORD ? &kv->header->root_partials
                                                                   : &kv->records[deepest].partials);
    uint32_t rest = prefix->n - walk->tokens;
    if (lengths == 0)
        return;
    for (uint32_t m = rest < kv->page_tokens ? rest : kv->page_tokens - 1; m > 0; m--) {
        if (!(lengths & kvshm__partial_bit(kv, m)))
            continue;
        if (walk_step(&w, m, kvshm__hash_page(kv->secret, w.hash, prefix->tokens + walk->tokens, m)))
            return;
    }
}

void kvshm__index_find_key(const kvshm *kv, const struct kvshm_prefix *prefix, uint64_t hash, struct kvshm__walk *walk)
{
    struct kvshm__page_spec spec = {
        .parent = KVSHM__NO_RECORD,
        .adapter_id = prefix->adapter_id,
        .tenant = prefix->tenant,
        .key = prefix->key,
        .hash = hash,
    };
    struct aim aim = {.hash = hash, .spec = &spec};

    struct kvshm__found found;
    bool gave_up = false;

    if (find(kv, &aim, &found, &gave_up) && kvshm__pages_shaped(kv, found.depth, found.length)) /* else: damage */
        *walk = (struct kvshm__walk){
            .deepest = found,
            .pages = found.depth + 1,
            .tokens = found.depth * kv->page_tokens + (found.length & KVSHM__LENGTH),
        };
    else
        *walk = (struct kvshm__walk){.deepest = {.record = KVSHM__NO_RECORD}, .gave_up = gave_up};
}

/* ---- With the writer lock --------------------------------------------------------------------------------- */

kvshm_a64 *kvshm__index_reach(const kvshm *kv, uint64_t hash, uint32_t i)
{
    struct kvshm_bucket *bucket = i < KVSHM__BUCKET_WORDS ? first_bucket(kv, hash) : second_bucket(kv, hash);
    return &bucket->word[i % KVSHM__BUCKET_WORDS];
}

kvshm_a64 *kvshm__index_word_of(const kvshm *kv, uint32_t record)
{
    uint64_t hash = KVSHM__LOAD(&kv->records[record].hash);

    for (uint32_t i = 0; i < 2 * KVSHM__BUCKET_WORDS; i++) {
        kvshm_a64 *at = kvshm__index_reach(kv, hash, i);
        if (KVSHM__LOAD(at) == word_for(hash, record))
            return at;
    }
    return NULL;
}

/* A full first line costs every reader of its pages a second one: it is filled up only where the other is fuller. */
#define RATHER_FULL 6

static kvshm_a64 *empty_in(struct kvshm_bucket *bucket, uint32_t *used)
{
    kvshm_a64 *empty = NULL;

    *used = 0;
    for (uint32_t i = KVSHM__BUCKET_WORDS; i-- > 0;) {
        if (KVSHM__LOAD(&bucket->word[i]) == 0)
            empty = &bucket->word[i];
        else
            ++*used;
    }
    return empty;
}

kvshm_a64 *kvshm__index_empty(const kvshm *kv, uint64_t hash)
{
    uint32_t used1, used2;
    kvshm_a64 *in1 = empty_in(first_bucket(kv, hash), &used1);

    if (in1 && used1 < RATHER_FULL)
        return in1;
    kvshm_a64 *in2 = empty_in(second_bucket(kv, hash), &used2);
    return in2 && used2 < used1 ? in2 : in1;
}

void kvshm__index_set(kvshm_a64 *word, uint64_t hash, uint32_t record)
{
    KVSHM__STORE_REL(word, word_for(hash, record));
}

void kvshm__index_clear(const kvshm *kv, uint32_t record)
{
    kvshm_a64 *at = kvshm__index_word_of(kv, record);

    if (at)
        KVSHM__STORE_REL(at, 0);
}
