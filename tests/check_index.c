/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_index.c - index words, and walks that wait for nobody (index.h)
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

#include "frames.h"
#include "index.h"
#include "mend.h"
#include "tokens.h"

static uint32_t tokens_a[] = {1, 2, 3, 4}, tokens_b[] = {1, 2, 3, 5};

static struct kvshm__page_spec spec_of(uint32_t parent, const uint32_t *tokens, uint32_t m,
                                       uint64_t hash)
{
    return (struct kvshm__page_spec){.parent = parent, .length = m, .tokens = tokens, .hash = hash};
}

/* Publish a page of that hash, whatever it holds; with the writer lock. */
static uint32_t publish(kvshm *kv, uint32_t parent, const uint32_t *tokens, uint32_t m,
                        uint64_t hash)
{
    struct kvshm__page_spec spec = spec_of(parent, tokens, m, hash);
    uint32_t record = kvshm__pages_take(kv), frame;

    ck_assert_uint_ne(record, KVSHM__NO_RECORD);
    frame = kvshm__frames_take(kv, kvshm__owner_page(record));
    kvshm__pages_write(kv, record, &spec);
    kvshm__pages_settle(kv, record, frame);
    kvshm__index_set(kvshm__index_empty(kv, hash), hash, record);
    return record;
}

static bool finds(const kvshm *kv, const struct kvshm__page_spec *spec, bool also_limbo,
                  uint32_t record)
{
    struct kvshm__found found;
    uint64_t parent_seq =
        spec->parent == KVSHM__NO_RECORD ? 0 : KVSHM__LOAD(&kv->records[spec->parent].seq);
    bool gave_up = false;

    if (!kvshm__index_find(kv, spec, parent_seq, also_limbo, &found, &gave_up)) {
        ck_assert_uint_eq(found.record, KVSHM__NO_RECORD);
        ck_assert(!gave_up);
        return false;
    }
    ck_assert_uint_eq(found.record, record);
    ck_assert_uint_eq(found.seq, KVSHM__LOAD(&kv->records[record].seq));
    ck_assert_uint_eq(KVSHM__LOAD(found.at), found.word);
    ck_assert_ptr_eq(found.at, kvshm__index_word_of(kv, record));
    return true;
}

/* ---- Words -------------------------------------------------------------------------------------------------------- */

/* A hash reaches two different lines, always the same ones; over many hashes, every line. */
START_TEST(test_reach_is_two_lines)
{
    kvshm *kv = in_create(4, 64, 4);
    uint64_t chance = ts_seed();
    bool first[64] = {false}, second[64] = {false};

    ck_assert_uint_gt(kv->bucket_count, 2);
    ck_assert_uint_le(kv->bucket_count, 64);
    ck_assert_uint_ge(kv->bucket_count * KVSHM__BUCKET_WORDS, 2 * kv->record_count);
    for (unsigned n = 0; n < 4000; n++) {
        uint64_t hash = ts_random(&chance, UINT64_MAX);
        kvshm_a64 *at[2] = {kvshm__index_reach(kv, hash, 0),
                            kvshm__index_reach(kv, hash, KVSHM__BUCKET_WORDS)};

        ck_assert_ptr_ne(at[0], at[1]);
        for (uint32_t i = 0; i < 2 * KVSHM__BUCKET_WORDS; i++)
            ck_assert_ptr_eq(kvshm__index_reach(kv, hash, i),
                             at[i / KVSHM__BUCKET_WORDS] + i % KVSHM__BUCKET_WORDS);
        first[(struct kvshm_bucket *)at[0] - kv->buckets] = true;
        second[(struct kvshm_bucket *)at[1] - kv->buckets] = true;
    }
    for (uint32_t b = 0; b < kv->bucket_count; b++)
        ck_assert(first[b] && second[b]);
    ts_detach(kv);
}
END_TEST

/* The smallest arena: its lines are reached by every hash, and are enough for all its pages. */
START_TEST(test_smallest_arena_has_words_enough)
{
    kvshm *kv = in_create(4, 1, 4);

    for (uint32_t i = 0; i < 50; i++) {
        struct kvshm_prefix prefix = in_range(i, 4);

        in_put(kv, i, 4);
        in_hit(kv, &prefix);
        in_audit(kv);
    }
    ts_detach(kv);
}
END_TEST

/* An empty word while one of the 16 is, in the emptier line; then none. Words of others are let be. */
START_TEST(test_empty_is_found_while_there_is_one)
{
    kvshm *kv = in_create(4, 64, 4);
    uint64_t hash = UINT64_C(0x123456789abcdef0);
    kvshm_a64 *line1 = kvshm__index_reach(kv, hash, 0);
    unsigned in1 = 0;

    for (unsigned i = 0; i < 16; i++) {
        kvshm_a64 *word = kvshm__index_empty(kv, hash);

        ck_assert_ptr_nonnull(word);
        ck_assert_uint_eq(KVSHM__LOAD(word), 0);
        if (word >= line1 && word < line1 + KVSHM__BUCKET_WORDS)
            in1++;
        if (i < 6)
            ck_assert_uint_eq(in1, i + 1); /* readers find most pages in the first line */
        KVSHM__STORE(word, 1000 + i);
    }
    ck_assert_uint_eq(in1, 8);
    ck_assert_ptr_null(kvshm__index_empty(kv, hash));
    for (unsigned i = 0; i < 16; i++) {
        kvshm_a64 *word = kvshm__index_reach(kv, hash, i);

        ck_assert_uint_ge(KVSHM__LOAD(word), 1000);
        KVSHM__STORE(word, 0);
        ck_assert_ptr_eq(kvshm__index_empty(kv, hash), word);
        KVSHM__STORE(word, 1000 + i);
    }
    for (unsigned i = 0; i < 16; i++)
        KVSHM__STORE(kvshm__index_reach(kv, hash, i), 0);
    ts_detach(kv);
}
END_TEST

/* The emptier of two lines is taken once the first is rather full. */
START_TEST(test_fuller_line_is_left_alone)
{
    kvshm *kv = in_create(4, 64, 4);
    uint64_t hash = UINT64_C(0x123456789abcdef0);
    kvshm_a64 *line1 = kvshm__index_reach(kv, hash, 0),
              *line2 = kvshm__index_reach(kv, hash, KVSHM__BUCKET_WORDS);

    for (unsigned i = 0; i < 7; i++) {
        KVSHM__STORE(&line1[i], 1000);
        KVSHM__STORE(&line2[i], 1000);
    }
    ck_assert_ptr_eq(kvshm__index_empty(kv, hash), &line1[7]); /* equally full */
    KVSHM__STORE(&line2[6], 0);
    ck_assert_ptr_eq(kvshm__index_empty(kv, hash), &line2[6]);
    memset(line1, 0, sizeof(struct kvshm_bucket));
    memset(line2, 0, sizeof(struct kvshm_bucket));
    ts_detach(kv);
}
END_TEST

START_TEST(test_set_and_clear_one_word)
{
    kvshm *kv = in_create(4, 16, 4);
    uint32_t record;
    kvshm_a64 *at;

    ts_is(kvshm__mend_lock(kv), 0);
    record = publish(kv, KVSHM__NO_RECORD, tokens_a, 4, 77);
    at = kvshm__index_word_of(kv, record);
    ck_assert_ptr_nonnull(at);
    ck_assert_uint_eq(kvshm__index_record(kv, KVSHM__LOAD(at)), record);
    kvshm__index_clear(kv, record);
    ck_assert_uint_eq(KVSHM__LOAD(at), 0);
    ck_assert_ptr_null(kvshm__index_word_of(kv, record));
    kvshm__index_clear(kv, record); /* nothing more to do */
    ck_assert_uint_eq(kvshm__index_record(kv, 0), KVSHM__NO_RECORD);
    ck_assert_uint_eq(kvshm__index_record(kv, 17), KVSHM__NO_RECORD);
    ck_assert_uint_eq(kvshm__index_record(kv, UINT64_MAX), KVSHM__NO_RECORD);
    kvshm__mend_unlock(kv);
    ts_detach(kv);
}
END_TEST

/* ---- Finding ---------------------------------------------------------------------------------------------------- */

/* All of the identity is compared: parent with its sequence, length, tokens, adapter, tenant, kind, epoch. */
START_TEST(test_found_by_the_whole_identity)
{
    kvshm *kv = in_create(4, 16, 4);
    struct kvshm__page_spec spec, other;
    struct kvshm__found found;
    uint32_t a, child;
    bool gave_up = false;
    uint8_t key[KVSHM_KEY_BYTES] = {1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4};

    ts_is(kvshm__mend_lock(kv), 0);
    a = publish(kv, KVSHM__NO_RECORD, tokens_a, 4, 77);
    child = publish(kv, a, tokens_a, 4, 77);
    spec = spec_of(KVSHM__NO_RECORD, tokens_a, 4, 77);
    ck_assert(finds(kv, &spec, false, a));
    other = spec_of(a, tokens_a, 4, 77); /* the same tokens, the same hash, another parent */
    ck_assert(finds(kv, &other, false, child));
    ck_assert(!kvshm__index_find(kv, &other, KVSHM__LOAD(&kv->records[a].seq) + 2, false, &found,
                                 &gave_up));
    KVSHM__STORE(&kv->records[child].parent1,
                 child + 1); /* the sequence of one, the number of another */
    ck_assert(!finds(kv, &other, true, 0));
    KVSHM__STORE(&kv->records[child].parent1, a + 1);
    other = spec_of(child, tokens_a, 4, 77);
    ck_assert(!finds(kv, &other, true, 0));
    other = spec_of(KVSHM__NO_RECORD, tokens_b, 4, 77);
    ck_assert(!finds(kv, &other, true, 0));
    for (uint32_t m = 1; m < 4; m++) { /* a part of its tokens */
        other = spec_of(KVSHM__NO_RECORD, tokens_a, m, 77);
        ck_assert(!finds(kv, &other, true, 0));
    }
    other = spec;
    other.adapter_id = 1;
    ck_assert(!finds(kv, &other, true, 0));
    other = spec;
    other.tenant = 1;
    ck_assert(!finds(kv, &other, true, 0));
    other = spec;
    other.hash = 78;
    ck_assert(!finds(kv, &other, true, 0));
    other = spec;
    other.tokens = NULL;
    other.key = key; /* the bytes of the tokens are those of a key */
    ck_assert(!finds(kv, &other, true, 0));
    KVSHM__ADD(&kv->header->epoch, 1);
    ck_assert(!finds(kv, &spec, true, 0));
    KVSHM__ADD(&kv->header->epoch, -1);
    ck_assert(finds(kv, &spec, false, a));
    kvshm__mend_unlock(kv);
    ts_detach(kv);
}
END_TEST

/* Of a key-only entry the deepest page alone is found, whatever the hash; and none whose depth is no page's. */
START_TEST(test_of_a_key_the_end_is_found)
{
    kvshm *kv = in_create(4, 16, 4);
    struct kvshm_prefix key = in_key(3, 10);
    struct kvshm__page_spec spec = {.parent = KVSHM__NO_RECORD, .key = key.key};
    struct kvshm__walk walk;
    uint32_t end, above;

    ts_is(in_insert(kv, &key, NULL, 0), 0);
    end = in_record(kv, &key);
    above = kvshm__pages_parent(kv, end);
    spec.hash = KVSHM__LOAD(&kv->records[end].hash);
    ck_assert(finds(kv, &spec, false, end));
    spec.hash = KVSHM__LOAD(&kv->records[above].hash);
    ck_assert(!finds(kv, &spec, false, 0));
    kvshm__index_find_key(kv, &key, kvshm__index_aim(kv, &key), &walk);
    ck_assert_uint_eq(walk.pages, 3);
    KVSHM__STORE(&kv->records[end].depth, kv->record_count);
    kvshm__index_find_key(kv, &key, kvshm__index_aim(kv, &key), &walk);
    ck_assert_uint_eq(walk.deepest.record, KVSHM__NO_RECORD);
    ck_assert(!kvshm_contains(kv, &key));
    ts_detach(kv);
}
END_TEST

/* Equal hashes cost a look more, never a wrong answer. */
START_TEST(test_equal_hashes_are_kept_apart)
{
    kvshm *kv = in_create(4, 64, 4);
    uint32_t record[16], tokens[16][4] = {{0}};

    ts_is(kvshm__mend_lock(kv), 0);
    for (uint32_t i = 0; i < 16; i++) {
        tokens[i][3] = i;
        record[i] = publish(kv, KVSHM__NO_RECORD, tokens[i], 4, 99);
    }
    for (uint32_t i = 0; i < 16; i++) {
        struct kvshm__page_spec spec = spec_of(KVSHM__NO_RECORD, tokens[i], 4, 99);

        ck_assert(finds(kv, &spec, false, record[i]));
        kvshm__index_clear(kv, record[i]);
        ck_assert(!finds(kv, &spec, true, 0));
    }
    kvshm__mend_unlock(kv);
    ts_detach(kv);
}
END_TEST

/* The hash of the whole prefix, in pages of 4 tokens. */
static uint64_t hash_of(const kvshm *kv, const struct kvshm_prefix *prefix)
{
    uint64_t hash = kvshm__hash_root(kv->secret, prefix->adapter_id, prefix->tenant);

    for (uint32_t i = 0; i < prefix->n; i += 4)
        hash = kvshm__hash_page(kv->secret, hash, prefix->tokens + i,
                                prefix->n - i < 4 ? prefix->n - i : 4);
    return hash;
}

/* Is the other prefix a miss even though a word with its hash names this record? */
static bool is_told_apart(kvshm *kv, const struct kvshm_prefix *other, uint32_t record)
{
    kvshm_a64 *word = kvshm__index_empty(kv, hash_of(kv, other));
    struct kvshm_lease lease;

    ck_assert_ptr_nonnull(word);
    kvshm__index_set(word, hash_of(kv, other), record);
    int answer = kvshm_lookup(kv, other, 0, &lease);
    bool contains = kvshm_contains(kv, other);
    kvshm_release(kv, &lease);
    KVSHM__STORE(word, 0);
    return answer == KVSHM_MISS && !contains;
}

/* An entry is found by its last page's hash, and then all pages above are compared. */
START_TEST(test_a_prefix_is_compared_up_to_its_root)
{
    kvshm *kv = in_create(4, 32, 8);
    uint32_t tokens[13];

    in_put(kv, 100, 13);
    struct kvshm_prefix right = in_range(100, 13), other;
    uint32_t record = in_record(kv, &right);
    memcpy(tokens, right.tokens, sizeof(tokens));
    right.tokens = tokens;
    ck_assert(kvshm_contains(kv, &right));
    for (uint32_t i = 0; i < 13; i++) {
        uint32_t changed[13];

        memcpy(changed, tokens, sizeof(changed));
        changed[i]++;
        kvshm_prefix_init(&other, 0, 0, changed, 13);
        ck_assert_msg(is_told_apart(kv, &other, record), "token %u differs", i);
    }
    kvshm_prefix_init(&other, 1, 0, tokens, 13);
    ck_assert(is_told_apart(kv, &other, record));
    kvshm_prefix_init(&other, 0, 1, tokens, 13);
    ck_assert(is_told_apart(kv, &other, record));
    for (uint32_t n = 1; n < 13; n++) {
        kvshm_prefix_init(&other, 0, 0, tokens + 13 - n, n);
        ck_assert_msg(is_told_apart(kv, &other, record), "the last %u tokens", n);
    }
    ck_assert(kvshm_contains(kv, &right));
    ts_detach(kv);
}
END_TEST

/* A page above that is not the one its child named makes a miss, and a look at it that changes each time a counted one. */
START_TEST(test_a_prefix_with_a_wrong_link_is_a_miss)
{
    kvshm *kv = in_create(4, 32, 8);

    in_put(kv, 100, 13);
    struct kvshm_prefix prefix = in_range(100, 13);
    uint32_t record = in_record(kv, &prefix);
    for (; record != KVSHM__NO_RECORD; record = kvshm__pages_parent(kv, record)) {
        struct kvshm_record *r = &kv->records[record];
        uint32_t parent1 = KVSHM__LOAD(&r->parent1);
        uint64_t parent_seq = KVSHM__LOAD(&r->parent_seq), seq = KVSHM__LOAD(&r->seq);

        for (uint32_t wrong = 0; wrong < 40; wrong++) {
            KVSHM__STORE(&r->parent1, wrong < 39 ? wrong : UINT32_MAX);
            ck_assert_int_eq(kvshm_contains(kv, &prefix), KVSHM__LOAD(&r->parent1) == parent1);
        }
        KVSHM__STORE(&r->parent1, parent1);
        KVSHM__STORE(&r->parent_seq, parent_seq + 2);
        ck_assert_int_eq(kvshm_contains(kv, &prefix), parent1 == 0);
        KVSHM__STORE(&r->parent_seq, parent_seq + 1);
        ck_assert_int_eq(kvshm_contains(kv, &prefix), parent1 == 0);
        KVSHM__STORE(&r->parent_seq, parent_seq);
        KVSHM__STORE(&r->seq, seq + 1);
        ck_assert(!kvshm_contains(kv, &prefix));
        KVSHM__STORE(&r->seq, seq);
        ck_assert(kvshm_contains(kv, &prefix));
    }
    in_audit(kv);
    ts_detach(kv);
}
END_TEST

/* A page that is leaving is found by all, one in limbo by who holds the lock and asks. */
START_TEST(test_limbo_is_found_only_when_asked_for)
{
    kvshm *kv = in_create(4, 16, 4);
    struct kvshm__page_spec spec = spec_of(KVSHM__NO_RECORD, tokens_a, 4, 77);
    uint32_t a;

    ts_is(kvshm__mend_lock(kv), 0);
    a = publish(kv, KVSHM__NO_RECORD, tokens_a, 4, 77);
    KVSHM__ADD(&kv->records[a].place, UINT64_C(1) << 28);
    ck_assert(finds(kv, &spec, false, a));
    ck_assert(kvshm__pages_take_away(kv, a));
    ck_assert(!finds(kv, &spec, false, 0));
    ck_assert(finds(kv, &spec, true, a));
    kvshm__pages_vacate(kv, a);
    ck_assert(!finds(kv, &spec, true, 0));
    kvshm__mend_unlock(kv);
    ts_detach(kv);
}
END_TEST

/* ---- Sixty-four looks --------------------------------------------------------------------------------------------- */

static uint64_t gave_up_of(const kvshm *kv)
{
    return in_counter(kv, KVSHM__CNT_gave_up);
}

/* A record that a stopped writer left half-written: after so many looks the answer is a miss, and it is counted. */
START_TEST(test_a_record_that_stays_odd_is_a_counted_miss)
{
    kvshm *kv = in_create(4, 16, 4), *observer = NULL;
    struct kvshm_prefix whole = in_range(0, 12), head = in_range(0, 4), other = in_range(50, 4);
    struct kvshm_lease lease;
    struct kvshm_record *r;
    uint32_t middle;
    uint8_t page[IN_PAGE_BYTES];

    in_put(kv, 0, 12);
    in_put(kv, 50, 4);
    ts_is(kvshm_attach("inside", NULL, KVSHM_RDONLY, &observer), 0);
    middle = kvshm__pages_parent(kv, in_record(kv, &whole));
    r = &kv->records[middle];
    KVSHM__STORE(&r->seq, KVSHM__LOAD(&r->seq) + 1);
    ts_is(kvshm_lookup(kv, &whole, 0, &lease), KVSHM_MISS);
    ck_assert_uint_eq(gave_up_of(kv), 1);
    ck_assert_uint_eq(in_counter(kv, KVSHM__CNT_lookup_misses), 1);
    ts_is(kvshm_lookup(kv, &whole, KVSHM_PEEK, &lease), KVSHM_MISS);
    ck_assert_uint_eq(gave_up_of(kv), 2);
    ck_assert(!kvshm_contains(kv, &whole));
    ck_assert_int_eq(kvshm_copy_out(observer, &whole, 0, 1, page), 0);
    ts_is(kvshm_match(kv, &whole, 0, &lease), 0); /* as far as it can be told */
    ck_assert_uint_eq(lease.tokens, 4);
    kvshm_release(kv, &lease);
    in_miss(kv, &head); /* no entry ends there */
    in_hit(kv, &other);
    ck_assert_uint_eq(gave_up_of(kv), 2);
    KVSHM__STORE(&r->seq, KVSHM__LOAD(&r->seq) - 1);
    in_hit(kv, &whole);
    in_audit(kv);
    ts_detach(observer);
    ts_detach(kv);
}
END_TEST

/* The same for a first page, and for a key. */
START_TEST(test_an_odd_root_is_a_counted_miss)
{
    kvshm *kv = in_create(4, 16, 4);
    struct kvshm_prefix prefix = _i ? in_key(5, 6) : in_range(0, 3);
    struct kvshm_record *r;
    struct kvshm_lease lease;

    ts_is(in_insert(kv, &prefix, NULL, 0), 0);
    r = &kv->records[in_record(kv, &prefix)];
    KVSHM__STORE(&r->seq, KVSHM__LOAD(&r->seq) + 1);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), KVSHM_MISS);
    ck_assert_uint_eq(gave_up_of(kv), 1);
    if (!_i) {
        ts_is(kvshm_match(kv, &prefix, 0, &lease), KVSHM_MISS);
        ck_assert_uint_eq(gave_up_of(kv), 2);
        ck_assert_uint_eq(in_counter(kv, KVSHM__CNT_match_misses), 1);
    }
    KVSHM__STORE(&r->seq, KVSHM__LOAD(&r->seq) - 1);
    in_hit(kv, &prefix);
    ts_detach(kv);
}
END_TEST

/* ---- Partial pages ------------------------------------------------------------------------------------------------ */

/* The longest partial page whose tokens all follow, whichever lengths share a bit; below a page and at the root. */
START_TEST(test_longest_partial_page_is_matched)
{
    const uint32_t m = 150;
    kvshm *kv = in_create(m, 64, 4);
    uint64_t chance = ts_seed() + (uint64_t)_i;
    bool there[2][151] = {{false}};
    uint32_t head = _i % 2 ? m : 0;

    for (unsigned i = 0; i < 20; i++) {
        uint32_t n = 1 + (uint32_t)ts_random(&chance, m - 1),
                 kind = (uint32_t)ts_random(&chance, 2);
        struct kvshm_prefix prefix = in_range(0, head + n);

        if (kind) /* differs in its last token */
            ((uint32_t *)prefix.tokens)[head + n - 1]++;
        if (there[kind][n])
            continue;
        ts_is(in_insert(kv, &prefix, NULL, 0), 0);
        there[kind][n] = true;
    }
    for (uint32_t asked = 1; asked <= m + 3; asked++) {
        struct kvshm_prefix prefix = in_range(0, head + asked);
        struct kvshm_lease lease;
        uint32_t best = 0;

        for (uint32_t n = 1; n <= asked && n < m; n++)
            best = there[0][n] ? n : best;
        if (kvshm_match(kv, &prefix, 0, &lease) == 0) {
            ck_assert_uint_eq(in_wrong(&lease, &prefix), 0);
            ck_assert_uint_eq(lease.tokens, head + best);
            kvshm_release(kv, &lease);
        } else {
            ck_assert_uint_eq(head + best, 0);
        }
    }
    in_audit(kv);
    ts_detach(kv);
}
END_TEST

/* A length that is not named is not looked for: a word that would be met there is not read (it would be given up on). */
START_TEST(test_no_looks_for_lengths_that_are_not_there)
{
    kvshm *kv = in_create(4, 16, 4);
    struct kvshm_prefix prefix = in_range(0, 7), part = in_range(0, 6), other = in_range(0, 7);
    struct kvshm_lease lease;
    struct kvshm_record *r;
    kvshm_a64 *partials;

    ((uint32_t *)other.tokens)[6] = 77;
    ts_is(in_insert(kv, &part, NULL, 0), 0);
    ts_is(in_insert(kv, &other, NULL, 0), 0);
    r = &kv->records[in_record(kv, &part)];
    partials = &kv->records[kvshm__pages_parent(kv, in_record(kv, &part))].partials;
    ck_assert_uint_eq(KVSHM__LOAD(partials), kvshm__partial_bit(kv, 2) | kvshm__partial_bit(kv, 3));
    for (unsigned i = 0; i < 2; i++) {
        KVSHM__STORE(partials, i ? 0 : kvshm__partial_bit(kv, 3));
        KVSHM__ADD(&r->seq, i);
        ts_is(kvshm_match(kv, i ? &prefix : &part, 0, &lease), 0);
        ck_assert_uint_eq(lease.tokens, 4); /* though the page is there */
        kvshm_release(kv, &lease);
    }
    ck_assert_uint_eq(gave_up_of(kv), 0);
    KVSHM__ADD(&r->seq, -1);
    ts_detach(kv);
}
END_TEST

/* ---- Torn reads --------------------------------------------------------------------------------------------------- */

#define LONG_PAGE 1024
static struct {
    kvshm *kv;
    uint32_t record;
    uint32_t tokens[2][LONG_PAGE];
    _Atomic(bool) done;
    uint64_t writes;
} torn;

/* Write the record over and over, as pages.c does, now with one text and now with the other. */
static void *write_without_pause(void *arg)
{
    kvshm_a64 *text = kvshm__text(torn.kv, torn.record);
    kvshm_a64 *seq = &torn.kv->records[torn.record].seq;

    for (; !torn.done; torn.writes++) {
        kvshm__seq_write_begin(seq);
        /* The last word first, and then for a while none: what a reader meets that began before it. */
        for (uint32_t i = LONG_PAGE; i > 0; i -= 2) {
            uint64_t word;

            memcpy(&word, &torn.tokens[torn.writes % 2][i - 2], sizeof(word));
            KVSHM__STORE(&text[i / 2 - 1], word);
            for (int j = 0; i == LONG_PAGE && j < 50; j++)
                kvshm__pause();
        }
        kvshm__seq_write_end(seq);
        for (int i = 0; i < 100; i++)
            kvshm__pause();
    }
    return arg;
}

/* A part of one text and a part of the other is no page that ever was: it is never found, either is, and the reader ends. */
START_TEST(test_a_torn_read_is_no_answer)
{
    uint64_t looks = ts_amount(15000, 60000, 1000000), looked = 0, whole = 0, gave_up_count = 0;
    uint32_t mixed[2][LONG_PAGE];
    pthread_t thread;

    torn.kv = in_create(LONG_PAGE, 4, 4);
    for (uint32_t i = 0; i < LONG_PAGE; i++) {
        torn.tokens[0][i] = 1;
        torn.tokens[1][i] = 2;
        mixed[0][i] = i < LONG_PAGE - 2 ? 1 : 2;
        mixed[1][i] = i < LONG_PAGE - 2 ? 2 : 1;
    }
    ts_is(kvshm__mend_lock(torn.kv), 0);
    torn.record = publish(torn.kv, KVSHM__NO_RECORD, torn.tokens[0], LONG_PAGE, 77);
    kvshm__mend_unlock(torn.kv);
    ck_assert_int_eq(pthread_create(&thread, NULL, write_without_pause, NULL), 0);
    while (looked < looks || (whole == 0 && looked < 1000 * looks)) {
        const uint32_t *tokens = looked % 4 < 2 ? mixed[looked % 2] : torn.tokens[looked % 2];
        struct kvshm__page_spec spec = spec_of(KVSHM__NO_RECORD, tokens, LONG_PAGE, 77);
        struct kvshm__found found;
        bool gave_up = false, got = kvshm__index_find(torn.kv, &spec, 0, false, &found, &gave_up);

        ck_assert(!got || looked % 4 >= 2);
        whole += got;
        gave_up_count += gave_up;
        looked++;
    }
    torn.done = true;
    pthread_join(thread, NULL);
    printf("%llu writes, %llu looks, %llu whole, %llu given up\n", (unsigned long long)torn.writes,
           (unsigned long long)looked, (unsigned long long)whole,
           (unsigned long long)gave_up_count);
    ck_assert_uint_gt(whole, 0);
    ck_assert_uint_gt(torn.writes, 0);
    ts_detach(torn.kv);
}
END_TEST

/* ---- Damage ------------------------------------------------------------------------------------------------------- */

/* Any word in the index, any link: a hit with right bytes, or a miss. */
START_TEST(test_damaged_words_are_misses)
{
    kvshm *kv = in_create(4, 32, 8);
    uint64_t chance = ts_seed();
    uint64_t words = (uint64_t)kv->bucket_count * KVSHM__BUCKET_WORDS, hits = 0;

    for (uint32_t i = 0; i < 8; i++)
        in_put(kv, 100 * i, 9);
    for (unsigned n = 0; n < 4000; n++) {
        kvshm_a64 *word = &kv->buckets[0].word[0] + ts_random(&chance, words);
        uint64_t right = KVSHM__LOAD(word);
        struct kvshm_prefix prefix = in_range(100 * (uint32_t)ts_random(&chance, 8), 9);
        struct kvshm_lease lease;

        switch (ts_random(&chance, 3)) {
        case 0:
            KVSHM__STORE(word, (right & ~UINT64_C(0xff)) | ts_random(&chance, 256));
            break;
        case 1: /* the right hash, and a record that there is not */
            KVSHM__STORE(word, (right & ~UINT64_C(0xffffffff)) |
                                   (kv->record_count + 1 + ts_random(&chance, 0xf0000000)));
            break;
        default:
            KVSHM__STORE(word, ts_random(&chance, UINT64_MAX));
        }
        if (kvshm_lookup(kv, &prefix, 0, &lease) == 0) {
            ck_assert_uint_eq(in_wrong(&lease, &prefix), 0);
            hits++;
        }
        kvshm_release(kv, &lease);
        KVSHM__STORE(word, right);
    }
    ck_assert_uint_gt(hits, 1000);
    in_audit(kv);
    ts_detach(kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("index");
    TCase *tcase = tcase_create("index");
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_reach_is_two_lines);
    tcase_add_test(tcase, test_smallest_arena_has_words_enough);
    tcase_add_test(tcase, test_empty_is_found_while_there_is_one);
    tcase_add_test(tcase, test_fuller_line_is_left_alone);
    tcase_add_test(tcase, test_set_and_clear_one_word);
    tcase_add_test(tcase, test_found_by_the_whole_identity);
    tcase_add_test(tcase, test_of_a_key_the_end_is_found);
    tcase_add_test(tcase, test_equal_hashes_are_kept_apart);
    tcase_add_test(tcase, test_a_prefix_is_compared_up_to_its_root);
    tcase_add_test(tcase, test_a_prefix_with_a_wrong_link_is_a_miss);
    tcase_add_test(tcase, test_limbo_is_found_only_when_asked_for);
    tcase_add_test(tcase, test_a_record_that_stays_odd_is_a_counted_miss);
    tcase_add_loop_test(tcase, test_an_odd_root_is_a_counted_miss, 0, 2);
    tcase_add_loop_test(tcase, test_longest_partial_page_is_matched, 0, 6);
    tcase_add_test(tcase, test_no_looks_for_lengths_that_are_not_there);
    tcase_add_test(tcase, test_a_torn_read_is_no_answer);
    tcase_add_test(tcase, test_damaged_words_are_misses);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
