/* SPDX-License-Identifier: Apache-2.0 */
#include "index.h"

#include "tokens.h"

/* Pages whose words, records and texts are fetched ahead of the walk. */
#define AHEAD 16

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

/* Part of a hit: the compiler is to fit it to each place from which it is called. */
#define HOT inline __attribute__((always_inline))

/* One look at the record that a word names. */
static HOT enum look look_at(const kvshm *kv, uint32_t record, const struct kvshm__page_spec *spec, uint64_t parent_seq,
                         bool also_limbo, struct kvshm__found *out, uint64_t *place_seen)
{
    const struct kvshm_record *r = &kv->records[record];
    bool root = spec->parent == KVSHM__NO_RECORD;
    uint64_t seq = kvshm__seq_read_begin(&r->seq);

    if (seq & 1)
        return CHANGED;
    uint32_t length = KVSHM__LOAD((kvshm_a32 *)&r->length);
    uint32_t depth = KVSHM__LOAD((kvshm_a32 *)&r->depth);
    uint64_t place = KVSHM__LOAD_ACQ((kvshm_a64 *)&r->place);
    *place_seen = place;
    bool equal = KVSHM__LOAD((kvshm_a32 *)&r->epoch) == (uint32_t)KVSHM__LOAD(&kv->header->epoch) &&
                 kvshm__text_equal(kv, record, spec);

    if (spec->key)
        equal = equal && (length & ~KVSHM__LENGTH) == (KVSHM__KEY_ONLY | KVSHM__KEY_END) &&
                (KVSHM__LOAD((kvshm_a32 *)&r->parent1) == 0) == (depth == 0);
    else
        equal = equal && length == spec->length && KVSHM__LOAD((kvshm_a32 *)&r->parent1) == (root ? 0 : spec->parent + 1) &&
                KVSHM__LOAD((kvshm_a64 *)&r->parent_seq) == (root ? 0 : parent_seq);
    if (kvshm__seq_read_retry(&r->seq, seq))
        return CHANGED;
    if (!equal || !(kvshm__place_published(place) ||
                    (also_limbo && kvshm__place_state(place) == KVSHM__PLACE_AWAY)))
        return NO;
    out->record = record;
    out->length = length;
    out->depth = depth;
    out->seq = seq;
    return YES;
}

static HOT enum look look_at_word(const kvshm *kv, kvshm_a64 *at, const struct kvshm__page_spec *spec,
                              uint64_t parent_seq, bool also_limbo, struct kvshm__found *out)
{
    for (int i = 0; i < KVSHM__LOOKS; i++) {
        uint64_t word = KVSHM__LOAD_ACQ(at);
        uint32_t record = kvshm__index_record(kv, word);
        if (word >> 32 != (uint32_t)spec->hash || record == KVSHM__NO_RECORD)
            return NO;
        uint64_t place = 0;
        if (spec->key)
            __builtin_prefetch(&kv->records[record].stamp, 1);
        enum look answer = look_at(kv, record, spec, parent_seq, also_limbo, out, &place);
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

/* Bit i: word i of the bucket has these bits of a hash. */
static inline uint32_t alike(const struct kvshm_bucket *bucket, uint64_t hash)
{
    uint32_t bits = 0;

#pragma GCC unroll 8
    for (uint32_t i = 0; i < KVSHM__BUCKET_WORDS; i++)
        bits |= (uint32_t)(KVSHM__LOAD((kvshm_a64 *)&bucket->word[i]) >> 32 == (uint32_t)hash) << i;
    return bits;
}

static HOT bool find_in(const kvshm *kv, struct kvshm_bucket *bucket, const struct kvshm__page_spec *spec,
                        uint64_t parent_seq, bool also_limbo, struct kvshm__found *out, bool *gave_up)
{
    for (uint32_t bits = alike(bucket, spec->hash); bits; bits &= bits - 1) {
        kvshm_a64 *at = &bucket->word[__builtin_ctz(bits)];
        enum look answer = look_at_word(kv, at, spec, parent_seq, also_limbo, out);
        if (answer == YES)
            return true;
        if (answer == CHANGED)
            *gave_up = true;
    }
    return false;
}

static HOT bool find(const kvshm *kv, const struct kvshm__page_spec *spec, uint64_t parent_seq, bool also_limbo,
                     struct kvshm__found *out, bool *gave_up)
{
    if (find_in(kv, first_bucket(kv, spec->hash), spec, parent_seq, also_limbo, out, gave_up) ||
        find_in(kv, second_bucket(kv, spec->hash), spec, parent_seq, also_limbo, out, gave_up))
        return true;
    out->record = KVSHM__NO_RECORD;
    return false;
}

bool kvshm__index_find(const kvshm *kv, const struct kvshm__page_spec *spec, uint64_t parent_seq, bool also_limbo,
                       struct kvshm__found *out, bool *gave_up)
{
    return find(kv, spec, parent_seq, also_limbo, out, gave_up);
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
    struct kvshm__found found;

    if (!find(w->kv, &spec, walk->deepest.seq, false, &found, &walk->gave_up))
        return false;
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
        uint64_t hash = w->hash;

        for (uint32_t i = 0; i < n; i++) {
            hash = kvshm__hash_page(w->kv->secret, hash, w->prefix->tokens + (size_t)(window + i) * m, m);
            fetch_buckets(w->kv, hash);
            w->ahead[i] = hash;
        }
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

void kvshm__index_match(const kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm__walk *walk)
{
    struct walker w;

    walk_begin(&w, kv, prefix, walk);
    walk_whole(&w, prefix->n / kv->page_tokens);

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

void kvshm__index_find_key(const kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm__walk *walk)
{
    struct kvshm__page_spec spec = {
        .parent = KVSHM__NO_RECORD,
        .adapter_id = prefix->adapter_id,
        .tenant = prefix->tenant,
        .key = prefix->key,
        .hash = kvshm__hash_key(kv->secret, prefix->adapter_id, prefix->tenant, prefix->key, KVSHM__KEY_DEEPEST),
    };

    fetch_buckets(kv, spec.hash);
    *walk = (struct kvshm__walk){.deepest = {.record = KVSHM__NO_RECORD}};
    if (!find(kv, &spec, 0, false, &walk->deepest, &walk->gave_up))
        return;
    if (!kvshm__pages_shaped(kv, walk->deepest.depth, walk->deepest.length)) { /* damage */
        walk->deepest.record = KVSHM__NO_RECORD;
        return;
    }
    walk->pages = walk->deepest.depth + 1;
    walk->tokens = walk->deepest.depth * kv->page_tokens + (walk->deepest.length & KVSHM__LENGTH);
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
