/* SPDX-License-Identifier: Apache-2.0 */
#include "index_look.h"

/* Pages whose words, records and texts are fetched ahead of the walk. */
#define AHEAD 16

/* Pages whose words are asked for at once to find how many there are. */
#define SUGGESTED 128

bool kvshm__index_find(const kvshm *kv, const struct kvshm__page_spec *spec, uint64_t parent_seq, bool also_limbo,
                       struct kvshm__found *out, bool *gave_up)
{
    struct kvshm__aim aim = {.hash = spec->hash, .spec = spec, .parent_seq = parent_seq, .also_limbo = also_limbo};

    return kvshm__look_for(kv, &aim, out, gave_up);
}

/* Fetch what a look at the page of this hash will read: its record and the beginning of its text. */
static inline void fetch_page(const kvshm *kv, uint64_t hash, bool last)
{
    struct kvshm_bucket *bucket = kvshm__first_bucket(kv, hash);
    uint32_t bits = kvshm__alike(bucket, hash);

    if (!bits) {
        bucket = kvshm__second_bucket(kv, hash);
        bits = kvshm__alike(bucket, hash);
    }
    for (; bits; bits &= bits - 1) {
        uint32_t record = kvshm__index_record(kv, KVSHM__LOAD(&bucket->word[__builtin_ctz(bits)]));
        if (record == KVSHM__NO_RECORD)
            continue;
        const char *text = (const char *)kvshm__text(kv, record);
        __builtin_prefetch(&kv->records[record]);
        for (uint64_t i = 0; i < KVSHM__AHEAD_TEXT && i < kv->text_stride; i += KVSHM__LINE)
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
    kvshm__walk_nothing(walk);
}

/* Is the next page, of m tokens, cached behind the deepest? Then it is the deepest. */
static bool walk_step(struct walker *w, uint32_t m, uint64_t hash)
{
    struct kvshm__walk *walk = w->walk;
    struct kvshm__page_spec spec = spec_of(w, walk->tokens, m, hash);
    struct kvshm__aim aim = {.hash = hash, .spec = &spec, .parent_seq = walk->deepest.seq};
    struct kvshm__found found;

    if (!kvshm__look_for(w->kv, &aim, &found, &walk->gave_up))
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
            kvshm__fetch_buckets(w->kv, w->ahead[i]);
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
    struct kvshm__aim aim = {.hash = hash, .prefix = prefix, .words_equal = words_equal};

    if (!kvshm__look_for(kv, &aim, &walk->deepest, &walk->gave_up))
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
    kvshm__walk_nothing(walk);
#ifdef KVSHM__WIDE
    if (kvshm__wide()) {
        find_prefix_wide(kv, hash, prefix, walk);
        return;
    }
#endif
    find_prefix(kv, hash, prefix, walk, kvshm__words_equal);
}

uint64_t kvshm__aim_at_tokens(const kvshm *kv, const struct kvshm_prefix *prefix)
{
    uint64_t hash = hash_prefix(kv, prefix);

    kvshm__fetch_buckets(kv, hash);
    return hash;
}

uint64_t kvshm__index_aim(const kvshm *kv, const struct kvshm_prefix *prefix)
{
    return prefix->tokens ? kvshm__aim_at_tokens(kv, prefix) : kvshm__aim_at_key(kv, prefix);
}

static bool is_named(const kvshm *kv, uint64_t hash)
{
    return kvshm__alike(kvshm__first_bucket(kv, hash), hash) || kvshm__alike(kvshm__second_bucket(kv, hash), hash);
}

/*
 * So many whole pages of the prefix as index words suggest: a page has a word only if its parent has one, so halving
 * finds the last. *hash is that of the last one. Words of pages that are no longer cached, and chance, make it too
 * many.
 */
static uint32_t whole_suggested(const kvshm *kv, const struct kvshm_prefix *prefix, uint64_t *hash)
{
    const uint32_t m = kv->page_tokens, whole = prefix->n / m;
    uint64_t hashes[SUGGESTED];
    uint32_t done = 0;

    while (done < whole) {
        uint32_t n = whole - done < SUGGESTED ? whole - done : SUGGESTED, low = 0, high = n;
        kvshm__hash_pages(kv->secret, *hash, prefix->tokens + (size_t)done * m, m, n, hashes);
        for (uint32_t i = n; i > 0; i -= i < KVSHM__GUESSED ? i : KVSHM__GUESSED)
            kvshm__fetch_buckets(kv, hashes[i - 1]);
        /* low have a word, more than high have none; the last one is asked first. */
        for (uint32_t i = n; low < high; i = low + (high - low + 1) / 2) {
            if (is_named(kv, hashes[i - 1]))
                low = i;
            else
                high = i - 1;
        }
        if (low > 0)
            *hash = hashes[low - 1];
        for (uint32_t i = low; i > 0; i -= i < KVSHM__GUESSED ? i : KVSHM__GUESSED)
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
    kvshm__look_for_key(kv, prefix, hash, walk);
}

/* ---- With the writer lock --------------------------------------------------------------------------------- */

kvshm_a64 *kvshm__index_reach(const kvshm *kv, uint64_t hash, uint32_t i)
{
    struct kvshm_bucket *bucket =
        i < KVSHM__BUCKET_WORDS ? kvshm__first_bucket(kv, hash) : kvshm__second_bucket(kv, hash);
    return &bucket->word[i % KVSHM__BUCKET_WORDS];
}

kvshm_a64 *kvshm__index_word_of(const kvshm *kv, uint32_t record)
{
    uint64_t hash = KVSHM__LOAD(&kv->records[record].hash);

    for (uint32_t i = 0; i < 2 * KVSHM__BUCKET_WORDS; i++) {
        kvshm_a64 *at = kvshm__index_reach(kv, hash, i);
        if (KVSHM__LOAD(at) == kvshm__word_for(hash, record))
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
    kvshm_a64 *in1 = empty_in(kvshm__first_bucket(kv, hash), &used1);

    if (in1 && used1 < RATHER_FULL)
        return in1;
    kvshm_a64 *in2 = empty_in(kvshm__second_bucket(kv, hash), &used2);
    return in2 && used2 < used1 ? in2 : in1;
}

void kvshm__index_set(kvshm_a64 *word, uint64_t hash, uint32_t record)
{
    KVSHM__STORE_REL(word, kvshm__word_for(hash, record));
}

void kvshm__index_clear(const kvshm *kv, uint32_t record)
{
    kvshm_a64 *at = kvshm__index_word_of(kv, record);

    if (at)
        KVSHM__STORE_REL(at, 0);
}
