/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_lease.c - lease words, the look after them, and the scan (lease.h: L1 to L3)
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inside.h"

#include "evict.h"
#include "lease.h"
#include "mend.h"

static kvshm_a64 *word_at(kvshm *kv, uint32_t word)
{
    return &kvshm__own_leases(kv)[word].word;
}

static unsigned words_in_use(kvshm *kv)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < kv->max_leases; i++)
        n += KVSHM__LOAD(word_at(kv, i)) != 0;
    return n;
}

/* ---- Words ------------------------------------------------------------------------------------------------------- */

START_TEST(test_each_word_is_claimed_once)
{
    kvshm *kv = in_create(4, 8, 5);
    bool claimed[5] = {false};

    for (unsigned i = 0; i < 5; i++) {
        uint32_t word = kvshm__lease_claim(kv, 100 + i);

        ck_assert_uint_lt(word, 5);
        ck_assert(!claimed[word]);
        claimed[word] = true;
        ck_assert_uint_eq(KVSHM__LOAD(word_at(kv, word)), 100 + i);
        ck_assert_uint_gt(KVSHM__LOAD(&kv->clients[kv->place].lease_high), word); /* L3 */
    }
    ck_assert_uint_eq(kvshm__lease_claim(kv, 200), KVSHM__NO_WORD);
    kvshm__lease_drop(kv, 3);
    ck_assert_uint_eq(KVSHM__LOAD(word_at(kv, 3)), 0);
    ck_assert_uint_eq(kvshm__lease_claim(kv, 201), 3);
    kvshm__lease_drop(kv, 0);
    kvshm__lease_drop(kv, 3);
    ck_assert_uint_eq(kvshm__lease_claim(kv, 202), 3);
    ck_assert_uint_eq(kvshm__lease_claim(kv, 203), 0); /* it looks behind the last, and then from the first on */
    for (uint32_t i = 0; i < 5; i++)
        kvshm__lease_drop(kv, i);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->clients[kv->place].lease_high), 5);
    ts_detach(kv);
}
END_TEST

#define THREADS 4
#define WORDS   6
static uint64_t rounds;
static kvshm *shared;
static _Atomic(uint64_t) holder[WORDS], claims, refusals;

static void *claim_and_drop(void *arg)
{
    uint64_t self = (uint64_t)(uintptr_t)arg, chance = self;

    for (uint64_t i = 0; i < rounds; i++) {
        uint32_t held[3];
        unsigned n = 0;

        for (uint64_t want = 1 + ts_random(&chance, 3); n < want; n++) {
            held[n] = kvshm__lease_claim(shared, self << 8 | 1);
            if (held[n] == KVSHM__NO_WORD) {
                refusals++;
                break;
            }
            if (atomic_exchange(&holder[held[n]], self) != 0)
                abort(); /* somebody else has it */
            claims++;
        }
        while (n-- > 0) {
            if (atomic_exchange(&holder[held[n]], 0) != self ||
                KVSHM__LOAD(word_at(shared, held[n])) != (self << 8 | 1))
                abort();
            kvshm__lease_drop(shared, held[n]);
        }
    }
    return NULL;
}

/* Threads that want more words than there are: none is had by two, none is lost. */
START_TEST(test_threads_share_no_word)
{
    pthread_t thread[THREADS];

    shared = in_create(4, 8, WORDS);
    rounds = ts_amount(3000, 40000, 1000000);
    for (uintptr_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, claim_and_drop, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    ck_assert_uint_gt(claims, rounds);
    ck_assert_uint_eq(words_in_use(shared), 0);
    for (unsigned i = 0; i < WORDS; i++)
        ck_assert_uint_lt(kvshm__lease_claim(shared, 1), WORDS);
    for (uint32_t i = 0; i < WORDS; i++)
        kvshm__lease_drop(shared, i);
    ts_detach(shared);
}
END_TEST

static void *claim_one(void *arg)
{
    *(uint32_t *)arg = kvshm__lease_claim(shared, 1);
    return NULL;
}

/* Lease words of threads share no line, and stay apart; a thread that leases again takes the word it had. */
START_TEST(test_words_of_threads_are_apart)
{
    pthread_t thread[THREADS];
    uint32_t word[THREADS], again;

    ck_assert_uint_eq(sizeof(struct kvshm_lease_word), KVSHM__LINE);
    shared = in_create(4, 8, 64);
    ck_assert_uint_eq((uintptr_t)word_at(shared, 0) % KVSHM__LINE, 0);
    for (unsigned i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, claim_one, &word[i]), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    for (unsigned i = 0; i < THREADS; i++) {
        for (unsigned j = 0; j < i; j++)
            ck_assert_uint_ne(word[i], word[j]);
    }
    again = kvshm__lease_claim(shared, 1);
    kvshm__lease_drop(shared, again);
    ck_assert_uint_eq(kvshm__lease_claim(shared, 1), again);
    kvshm__lease_drop(shared, again);
    for (unsigned i = 0; i < THREADS; i++)
        kvshm__lease_drop(shared, word[i]);
    ts_detach(shared);
}
END_TEST

/* The tag goes with the lease, whatever it was. */
START_TEST(test_tag_and_its_time_go_with_the_lease)
{
    kvshm *kv = in_create(4, 8, 4);
    struct kvshm_prefix prefix = in_range(0, 4);
    struct kvshm_lease lease;
    struct kvshm_lease_word *own;

    in_put(kv, 0, 4);
    for (uint32_t tag = 0; tag < 2; tag++) {
        ts_is(kvshm_lookup(kv, &prefix, 0, &lease), 0);
        own = &kvshm__own_leases(kv)[lease.word];
        kvshm_lease_tag(&lease, tag);
        ck_assert_uint_eq(KVSHM__LOAD(&own->tag), tag);
        ck_assert_uint_ne(KVSHM__LOAD(&own->tag_ns), 0);
        kvshm_release(kv, &lease);
        ck_assert_uint_eq(KVSHM__LOAD(&own->tag), 0);
        ck_assert_uint_eq(KVSHM__LOAD(&own->tag_ns), 0);
    }
    ts_detach(kv);
}
END_TEST

/* ---- The look after the word ---------------------------------------------------------------------------------------- */

static struct kvshm__found find(kvshm *kv, const struct kvshm_prefix *prefix)
{
    struct kvshm__walk walk;

    kvshm__index_walk(kv, prefix, &walk);
    ck_assert_uint_eq(walk.tokens, prefix->n);
    return walk.deepest;
}

static void is_taken(kvshm *kv, const struct kvshm__found *found, enum kvshm__leased wanted)
{
    unsigned before = words_in_use(kv);
    uint32_t word;

    ck_assert_int_eq(kvshm__lease_take(kv, found, &word), wanted);
    ck_assert_uint_eq(words_in_use(kv), before + (wanted == KVSHM__LEASED));
    if (wanted == KVSHM__LEASED) {
        ck_assert_uint_eq(KVSHM__LOAD(word_at(kv, word)),
                          kvshm__lease_value(found->record, found->seq));
        kvshm__lease_drop(kv, word);
    }
}

/* L1, L2: what changed between the look and the word is not leased, and leaves no word behind. */
START_TEST(test_l2_what_changed_is_not_leased)
{
    kvshm *kv = in_create(4, 8, 4);
    struct kvshm_prefix prefix = in_range(0, 4);
    struct kvshm__found found;
    struct kvshm_record *r;
    uint64_t word, place;

    in_put(kv, 0, 4);
    found = find(kv, &prefix);
    r = &kv->records[found.record];
    word = KVSHM__LOAD(found.at);
    place = KVSHM__LOAD(&r->place);
    is_taken(kv, &found, KVSHM__LEASED);
    KVSHM__STORE(found.at, 0);
    is_taken(kv, &found, KVSHM__LEASE_CHANGED);
    KVSHM__STORE(found.at, word + 1);
    is_taken(kv, &found, KVSHM__LEASE_CHANGED);
    KVSHM__STORE(found.at, word);
    for (unsigned state = 0; state < 16; state++) {
        KVSHM__STORE(&r->place, (place & ~(UINT64_C(0xf) << 28)) | (uint64_t)state << 28);
        is_taken(kv, &found,
                 state == KVSHM__PLACE_RESIDENT || state == KVSHM__PLACE_LEAVING
                     ? KVSHM__LEASED
                     : KVSHM__LEASE_CHANGED);
    }
    KVSHM__STORE(&r->place, place);
    KVSHM__ADD(&r->seq, 1);
    is_taken(kv, &found, KVSHM__LEASE_CHANGED);
    KVSHM__ADD(&r->seq, 1);
    is_taken(kv, &found, KVSHM__LEASE_CHANGED);
    KVSHM__ADD(&r->seq, -2);
    is_taken(kv, &found, KVSHM__LEASED);
    ts_detach(kv);
}
END_TEST

/* A hit calls an eviction off: LEAVING becomes RESIDENT, the same move in the same frame. */
START_TEST(test_a_hit_calls_leaving_off)
{
    kvshm *kv = in_create(4, 8, 4);
    struct kvshm_prefix prefix = in_range(0, 4);
    struct kvshm__found found;
    kvshm_a64 *place;
    uint64_t resident;

    in_put(kv, 0, 4);
    found = find(kv, &prefix);
    place = &kv->records[found.record].place;
    resident = KVSHM__LOAD(place);
    KVSHM__ADD(place, UINT64_C(1) << 28);
    ck_assert_int_eq(kvshm__place_state(KVSHM__LOAD(place)), KVSHM__PLACE_LEAVING);
    in_hit(kv, &prefix);
    ck_assert_uint_eq(KVSHM__LOAD(place), resident);
    in_audit(kv);
    ts_detach(kv);
}
END_TEST

/* All words taken: told so, by name, and the arena is none the worse. */
START_TEST(test_no_word_left_is_an_error)
{
    kvshm *kv = in_create(4, 8, 3);
    struct kvshm_prefix prefix = in_range(0, 4);
    struct kvshm_lease lease[3], more;
    uint8_t page[IN_PAGE_BYTES];

    in_put(kv, 0, 4);
    for (unsigned i = 0; i < 3; i++)
        ts_is(kvshm_lookup(kv, &prefix, 0, &lease[i]), 0);
    ts_is(kvshm_lookup(kv, &prefix, 0, &more), KVSHM_E_LEASES);
    ts_says("all 3 lease words");
    ck_assert_ptr_null(more.kv);
    ts_is(kvshm_match(kv, &prefix, 0, &more), KVSHM_E_LEASES);
    ts_is(kvshm_copy_out(kv, &prefix, 0, 1, page), KVSHM_E_LEASES);
    ts_is(kvshm_lookup(kv, &prefix, KVSHM_PEEK, &more), 0);
    ck_assert(kvshm_contains(kv, &prefix));
    kvshm_release(kv, &lease[1]);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease[1]), 0);
    for (unsigned i = 0; i < 3; i++)
        kvshm_release(kv, &lease[i]);
    in_audit(kv);
    ts_detach(kv);
}
END_TEST

/* ---- The scan ------------------------------------------------------------------------------------------------------- */

static bool scanned(kvshm *kv, uint32_t record, bool chains)
{
    bool got;

    ts_is(kvshm__mend_lock(kv), 0);
    memset(kv->scratch, 0xff, kv->bitmap_words * sizeof(*kv->scratch)); /* it is cleared first */
    if (chains)
        kvshm__lease_scan_chains(kv, kv->scratch);
    else
        kvshm__lease_scan(kv, kv->scratch);
    got = kvshm__bit(kv->scratch, record);
    kvshm__mend_unlock(kv);
    return got;
}

START_TEST(test_scan_sees_each_word_of_the_living)
{
    kvshm *kv = in_create(4, 80, 64), *other = in_attach();
    struct kvshm_lease lease[64];
    uint32_t record[64];

    for (uint32_t i = 0; i < 64; i++) {
        struct kvshm_prefix prefix = in_range(100 * i, 4);

        in_put(kv, 100 * i, 4);
        ts_is(kvshm_lookup(i % 2 ? kv : other, &prefix, 0, &lease[i]), 0);
        record[i] = lease[i].page;
    }
    for (uint32_t i = 0; i < 64; i++) {
        ck_assert(scanned(kv, record[i], false));
        ck_assert(scanned(other, record[i], false));
    }
    for (uint32_t i = 0; i < 64; i++) {
        kvshm_release(i % 2 ? kv : other, &lease[i]);
        ck_assert(!scanned(kv, record[i], false));
        if (i < 63)
            ck_assert(scanned(kv, record[63], false));
    }
    ts_detach(other);
    ts_detach(kv);
}
END_TEST

START_TEST(test_scan_of_chains_sees_all_above)
{
    kvshm *kv = in_create(4, 16, 4);
    struct kvshm_prefix prefix = in_range(0, 16), branch = in_range(0, 12);
    struct kvshm_lease lease;
    uint32_t beside;

    in_put(kv, 0, 16);
    ((uint32_t *)branch.tokens)[11] = 7;
    ts_is(in_insert(kv, &branch, NULL, 0), 0);
    beside = in_record(kv, &branch);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), 0);
    for (uint32_t record = lease.page; record != KVSHM__NO_RECORD;
         record = kvshm__pages_parent(kv, record)) {
        ck_assert(scanned(kv, record, true));
        ck_assert_int_eq(scanned(kv, record, false), record == lease.page);
    }
    ck_assert(!scanned(kv, beside, true));
    kvshm_release(kv, &lease);
    ts_detach(kv);
}
END_TEST

/* A word with another sequence names a page that is no more; one beyond the table, nothing. */
START_TEST(test_scan_passes_over_stale_words)
{
    kvshm *kv = in_create(4, 8, 4);
    struct kvshm_prefix prefix = in_range(0, 4);
    uint32_t record, word;
    uint64_t seq;

    in_put(kv, 0, 4);
    record = in_record(kv, &prefix);
    seq = KVSHM__LOAD(&kv->records[record].seq);
    word = kvshm__lease_claim(kv, kvshm__lease_value(record, seq + 2));
    ck_assert(!scanned(kv, record, false));
    KVSHM__STORE(word_at(kv, word), UINT64_MAX);
    ck_assert(!scanned(kv, record, true));
    KVSHM__STORE(word_at(kv, word), kvshm__lease_value(kv->record_count, seq));
    ck_assert(!scanned(kv, record, true));
    KVSHM__STORE(word_at(kv, word), kvshm__lease_value(record, seq));
    ck_assert(scanned(kv, record, false));
    KVSHM__STORE(&kv->clients[kv->place].lease_high, UINT32_MAX); /* damage: it is bounded */
    ck_assert(scanned(kv, record, false));
    kvshm__lease_drop(kv, word);
    ts_detach(kv);
}
END_TEST

static struct ts_gate ready;
static uint64_t *child_number;

static int lease_and_wait(void *arg)
{
    struct kvshm_prefix prefix = in_range(0, 8);
    struct kvshm_lease lease;
    kvshm *kv;

    (void)arg;
    ts_need(kvshm_attach("inside", NULL, 0, &kv) == 0);
    ts_need(kvshm_lookup(kv, &prefix, 0, &lease) == 0);
    *child_number = kv->client;
    ts_gate_open(&ready);
    pause();
    return 0;
}

static pid_t leaser(void)
{
    pid_t pid;

    child_number = ts_shared(sizeof(*child_number));
    ts_gate_make(&ready);
    pid = ts_fork(lease_and_wait, NULL);
    ck_assert(ts_gate_wait(&ready));
    return pid;
}

/* L3: the dead hold nothing. */
START_TEST(test_l3_words_of_the_dead_count_for_nothing)
{
    kvshm *kv = in_create(4, 8, 4);
    struct kvshm_prefix prefix = in_range(0, 8);
    uint32_t record;
    pid_t pid;

    in_put(kv, 0, 8);
    record = in_record(kv, &prefix);
    pid = leaser();
    ck_assert(scanned(kv, record, false));
    ts_is(kvshm_remove(kv, &prefix), 0);
    ck_assert_uint_eq(in_limbo(kv), 2);
    in_audit_swept(kv);
    ts_kill(pid);
    ck_assert(!scanned(kv, record, false));
    ck_assert_int_eq(kvshm_evict_lru(kv), 0);
    ck_assert_uint_eq(in_limbo(kv), 0);
    ck_assert_uint_eq(in_free(kv), 8);
    in_audit_swept(kv);
    ts_detach(kv);
}
END_TEST

/* But for those whom a living client has joined, until it leaves. */
START_TEST(test_l3_words_of_the_joined_dead_count)
{
    kvshm *kv = in_create(4, 8, 4), *rank = in_attach();
    struct kvshm_prefix prefix = in_range(0, 8);
    uint32_t record;
    pid_t pid;

    in_put(kv, 0, 8);
    record = in_record(kv, &prefix);
    pid = leaser();
    ts_is(kvshm_join(rank, *child_number), 0);
    ts_kill(pid);
    ts_is(kvshm_remove(kv, &prefix), 0);
    ck_assert(scanned(kv, record, false));
    ck_assert_uint_eq(in_limbo(kv), 2);
    in_audit_swept(kv);
    ts_is(kvshm_leave(rank, *child_number), 0);
    ck_assert(!scanned(kv, record, false));
    ck_assert_int_eq(kvshm_evict_lru(kv), 0);
    ck_assert_uint_eq(in_free(kv), 8);
    in_audit_swept(kv);
    ts_detach(rank);
    ts_detach(kv);
}
END_TEST

/* ---- L1, in earnest --------------------------------------------------------------------------------------------------- */

#define PROMPTS 12
static _Atomic(bool) done;
static _Atomic(uint64_t) hits, wrong;

static void *read_all_the_time(void *arg)
{
    uint64_t chance = (uint64_t)(uintptr_t)arg;

    while (!done) {
        uint32_t tokens[9], first = 100 * (uint32_t)ts_random(&chance, PROMPTS);
        struct kvshm_prefix prefix;
        struct kvshm_lease lease;

        for (uint32_t i = 0; i < 9; i++)
            tokens[i] = first + i;
        kvshm_prefix_init(&prefix, 0, 0, tokens, 9);
        if (kvshm_match(shared, &prefix, 0, &lease) != 0)
            continue;
        wrong += in_wrong(&lease, &prefix);
        for (int i = 0; i < 20; i++)
            kvshm__pause();
        wrong += in_wrong(&lease, &prefix);
        kvshm_release(shared, &lease);
        hits++;
    }
    return NULL;
}

/* L1: a leased page keeps its frame and its bytes, while a writer that has fewer frames than it wants evicts and fills
   them again. */
START_TEST(test_l1_what_is_leased_is_not_filled_anew)
{
    pthread_t thread[2];
    uint64_t chance = ts_seed(), inserted = 0, tries = ts_amount(3000, 40000, 1000000);
    kvshm *kv;

    shared = in_create(4, 18, 8);
#ifdef KVSHM_TSAN
    kv = shared; /* it sees one mapping */
#else
    kv = in_attach();
#endif
    for (uintptr_t i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, read_all_the_time, (void *)(i + 1)), 0);
    for (uint64_t i = 0; i < tries || ((hits < 1000 || inserted <= PROMPTS) && i < 1000 * tries);
         i++) {
        struct kvshm_prefix prefix = in_range(100 * (uint32_t)ts_random(&chance, PROMPTS), 9);
        int answer = in_insert(kv, &prefix, NULL, 0);

        ck_assert(answer == 0 || answer == KVSHM_EXISTS || answer == -ENOSPC);
        inserted += answer == 0;
    }
    done = true;
    for (unsigned i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    printf("%llu hits, %llu inserts\n", (unsigned long long)hits, (unsigned long long)inserted);
    ck_assert_uint_eq(wrong, 0);
    ck_assert_uint_ge(hits, 1000);
    ck_assert_uint_gt(inserted, PROMPTS);
    kvshm_evict_lru(kv);
    in_audit_swept(kv);
    if (kv != shared)
        ts_detach(kv);
    ts_detach(shared);
}
END_TEST

static void *release_it(void *arg)
{
    kvshm_release(shared, arg);
    return NULL;
}

START_TEST(test_any_thread_releases)
{
    struct kvshm_prefix prefix = in_range(0, 4);
    struct kvshm_lease lease;
    pthread_t thread;

    shared = in_create(4, 8, 4);
    in_put(shared, 0, 4);
    ts_is(kvshm_lookup(shared, &prefix, 0, &lease), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, release_it, &lease), 0);
    pthread_join(thread, NULL);
    ck_assert_ptr_null(lease.kv);
    ck_assert_uint_eq(words_in_use(shared), 0);
    ts_detach(shared);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lease");
    TCase *tcase = tcase_create("lease");
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_each_word_is_claimed_once);
    tcase_add_test(tcase, test_threads_share_no_word);
    tcase_add_test(tcase, test_words_of_threads_are_apart);
    tcase_add_test(tcase, test_tag_and_its_time_go_with_the_lease);
    tcase_add_test(tcase, test_l2_what_changed_is_not_leased);
    tcase_add_test(tcase, test_a_hit_calls_leaving_off);
    tcase_add_test(tcase, test_no_word_left_is_an_error);
    tcase_add_test(tcase, test_scan_sees_each_word_of_the_living);
    tcase_add_test(tcase, test_scan_of_chains_sees_all_above);
    tcase_add_test(tcase, test_scan_passes_over_stale_words);
    tcase_add_test(tcase, test_l3_words_of_the_dead_count_for_nothing);
    tcase_add_test(tcase, test_l3_words_of_the_joined_dead_count);
    tcase_add_test(tcase, test_l1_what_is_leased_is_not_filled_anew);
    tcase_add_test(tcase, test_any_thread_releases);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
