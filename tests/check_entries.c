/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_entries.c - kvshm_foreach() (entries.c)
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

#include "index.h"

#define MAX 64

struct shown {
    uint32_t n;
    struct kvshm_entry entry[MAX];
};

static int show(const struct kvshm_entry *entry, void *arg)
{
    struct shown *shown = arg;

    ck_assert_uint_lt(shown->n, MAX);
    ck_assert_uint_eq(entry->size, sizeof(*entry));
    shown->entry[shown->n++] = *entry;
    return 0;
}

static const struct shown *all(kvshm *kv)
{
    static struct shown shown;

    memset(&shown, 0, sizeof(shown));
    ts_is(kvshm_foreach(kv, show, &shown), 0);
    return &shown;
}

/* The one entry of that adapter. */
static const struct kvshm_entry *of_adapter(const struct shown *shown, uint64_t adapter)
{
    const struct kvshm_entry *found = NULL;

    for (uint32_t i = 0; i < shown->n; i++) {
        if (shown->entry[i].adapter_id != adapter)
            continue;
        ck_assert_ptr_null(found);
        found = &shown->entry[i];
    }
    ck_assert_ptr_nonnull(found);
    return found;
}

START_TEST(test_each_entry_is_shown_whole)
{
    static const uint8_t none[KVSHM_KEY_BYTES];
    kvshm *kv = in_create(4, 32, 8);
    struct kvshm_prefix tokens = in_range(0, 10), key = in_key(9, 7), short_one = in_range(0, 3);
    const struct kvshm_entry *e;
    const struct shown *shown;
    struct kvshm_lease lease;

    ck_assert_uint_eq(all(kv)->n, 0);
    tokens.adapter_id = 5;
    tokens.tenant = UINT64_MAX;
    key.adapter_id = 6;
    short_one.adapter_id = UINT64_MAX;
    short_one.tenant = 3;
    ts_is(in_insert(kv, &tokens, NULL, 0), 0);
    ts_is(in_insert(kv, &key, NULL, 0), 0);
    ts_is(in_insert(kv, &short_one, NULL, 0), 0);
    ts_is(kvshm_lookup(kv, &tokens, KVSHM_PEEK, &lease), 0);
    shown = all(kv);
    ck_assert_uint_eq(shown->n, 3);
    e = of_adapter(shown, 5);
    ck_assert_uint_eq(e->tenant, UINT64_MAX);
    ck_assert_uint_eq(e->tokens, 10);
    ck_assert_uint_eq(e->pages, 3);
    ck_assert_uint_eq(e->leases, 0);
    ck_assert_uint_eq(e->last_used, lease.last_used);
    ck_assert(!e->key_only);
    ck_assert_mem_eq(e->key, none, sizeof(none));
    e = of_adapter(shown, 6);
    ck_assert(e->key_only);
    ck_assert_mem_eq(e->key, key.key, sizeof(key.key));
    ck_assert_uint_eq(e->tokens, 7);
    ck_assert_uint_eq(e->pages, 2);
    ck_assert_uint_eq(e->tenant, 0);
    e = of_adapter(shown, UINT64_MAX);
    ck_assert_uint_eq(e->tenant, 3);
    ck_assert_uint_eq(e->tokens, 3);
    ck_assert_uint_eq(e->pages, 1);
    for (uint32_t i = 1; i < shown->n; i++)
        ck_assert(memcmp(shown->entry[i].page_id, shown->entry[0].page_id, 16) != 0);
    ts_detach(kv);
}
END_TEST

/* Pages without an entry, what is in limbo, what was cleared: none of it is shown. */
START_TEST(test_only_what_is_published_is_shown)
{
    kvshm *kv = in_create(4, 32, 8);
    struct kvshm_prefix a = in_range(0, 12), b = in_range(50, 8);
    struct kvshm_lease lease;
    kvshm_a64 *word, *seq;
    uint64_t right;

    ts_is(in_insert(kv, &a, NULL, 0), 0);
    ts_is(in_insert(kv, &b, NULL, 0), 0);
    ck_assert_uint_eq(all(kv)->n, 2);
    ts_is(kvshm_lookup(kv, &b, 0, &lease), 0);
    ts_is(kvshm_remove(kv, &b), 0);
    ck_assert_uint_eq(all(kv)->n, 1);
    word = kvshm__index_word_of(kv, in_record(kv, &a));
    right = KVSHM__LOAD(word);
    KVSHM__STORE(word, 0); /* as before its publication */
    ck_assert_uint_eq(all(kv)->n, 0);
    KVSHM__STORE(word, right);
    seq = &kv->records[in_record(kv, &a)].seq;
    KVSHM__ADD(seq, 1); /* being written */
    ck_assert_uint_eq(all(kv)->n, 0);
    KVSHM__ADD(seq, -1);
    ck_assert_uint_eq(all(kv)->n, 1);
    ts_is(kvshm_clear(kv), 0);
    ck_assert_uint_eq(all(kv)->n, 0);
    kvshm_release(kv, &lease);
    ts_detach(kv);
}
END_TEST

static int lease_and_die(void *arg)
{
    struct kvshm_prefix prefix = in_range(0, 12);
    struct kvshm_lease lease;
    kvshm *kv;

    (void)arg;
    ts_need(kvshm_attach("inside", NULL, 0, &kv) == 0);
    ts_need(kvshm_lookup(kv, &prefix, 0, &lease) == 0);
    return 0;
}

/* Leases of the deepest page, of all the living, of nobody else. */
START_TEST(test_leases_of_the_living_are_counted)
{
    kvshm *kv = in_create(4, 32, 8), *other = in_attach(), *observer;
    struct kvshm_prefix deep = in_range(0, 12), head = in_range(0, 8);
    struct kvshm_lease lease[4];

    ts_is(in_insert(kv, &deep, NULL, 0), 0);
    ts_is(kvshm_lookup(kv, &deep, 0, &lease[0]), 0);
    ts_is(kvshm_lookup(kv, &deep, 0, &lease[1]), 0);
    ts_is(kvshm_lookup(other, &deep, 0, &lease[2]), 0);
    ts_is(kvshm_match(other, &head, 0, &lease[3]), 0);
    ck_assert_int_eq(ts_wait(ts_fork(lease_and_die, NULL)), 0);
    observer = ts_attach("inside", KVSHM_RDONLY);
    ck_assert_uint_eq(all(kv)->entry[0].leases, 3);
    ck_assert_uint_eq(all(observer)->entry[0].leases, 3);
    for (unsigned i = 0; i < 4; i++)
        kvshm_release(i < 2 ? kv : other, &lease[i]);
    ck_assert_uint_eq(all(observer)->entry[0].leases, 0);
    ts_detach(observer);
    ts_detach(other);
    ts_detach(kv);
}
END_TEST

static int stop_at(const struct kvshm_entry *entry, void *arg)
{
    unsigned *left = arg;

    (void)entry;
    return --*left == 0 ? 77 : 0;
}

START_TEST(test_an_answer_stops_it)
{
    kvshm *kv = in_create(4, 32, 8);
    unsigned left = 3;

    for (uint32_t i = 0; i < 8; i++)
        in_put(kv, 100 * i, 4);
    ts_is(kvshm_foreach(kv, stop_at, &left), 77);
    ck_assert_uint_eq(left, 0);
    left = 9;
    ts_is(kvshm_foreach(kv, stop_at, &left), 0);
    ck_assert_uint_eq(left, 1);
    ts_is(kvshm_foreach(NULL, stop_at, &left), -EINVAL);
    ts_is(kvshm_foreach(kv, NULL, &left), -EINVAL);
    ts_detach(kv);
}
END_TEST

/* The function may call what it likes: remove what it is shown, insert others, lease, look. */
static int change(const struct kvshm_entry *entry, void *arg)
{
    kvshm *kv = arg;
    static uint32_t next = 5000;
    struct kvshm_prefix shown = in_key(0, entry->tokens), fresh = in_key(next++, 4);
    struct kvshm_lease lease;

    ck_assert(entry->key_only);
    memcpy(shown.key, entry->key, sizeof(shown.key));
    ts_is(kvshm_lookup(kv, &shown, 0, &lease), 0);
    ts_is(kvshm_remove(kv, &shown), 0);
    kvshm_release(kv, &lease);
    if (next < 5020)
        ts_is(in_insert(kv, &fresh, NULL, 0), 0);
    ck_assert_uint_le(all(kv)->n, 8);
    return 0;
}

START_TEST(test_calls_from_within)
{
    kvshm *kv = in_create(4, 64, 8);

    for (uint32_t i = 0; i < 8; i++) {
        struct kvshm_prefix key = in_key(i, 4);

        ts_is(in_insert(kv, &key, NULL, 0), 0);
    }
    ts_is(kvshm_foreach(kv, change, kv), 0);
    in_audit(kv);
    ts_detach(kv);
}
END_TEST

/* While a writer changes others without pause, those that stay are shown each time, once, as they are. */
static kvshm *writing;
static _Atomic(bool) done;
static _Atomic(uint64_t) rounds; /* of the writer */

static void *write_all_the_time(void *arg)
{
    for (uint32_t i = 0; !done; i++, rounds++) {
        uint32_t tokens[6] = {9000 + i % 50, 1, 2, 3, 4, 5};
        struct kvshm_prefix prefix;

        kvshm_prefix_init(&prefix, 1, 0, tokens, 4 + i % 3);
        in_insert(writing, &prefix, NULL, 0);
        kvshm_remove(writing, &prefix);
    }
    return arg;
}

START_TEST(test_what_stays_is_shown_once)
{
    kvshm *kv = in_create(4, 64, 8);
    uint64_t looks = ts_amount(500, 10000, 200000), passing = 0;
    pthread_t thread;

#ifdef KVSHM_TSAN
    writing = kv;
#else
    writing = in_attach();
#endif
    for (uint32_t i = 0; i < 8; i++)
        in_put(kv, 100 * i, 5 + i);
    ck_assert_int_eq(pthread_create(&thread, NULL, write_all_the_time, NULL), 0);
    /* Until the two have met, for which both need a processor. */
    for (uint64_t i = 0; i < looks || ((rounds == 0 || passing == 0) && i < 1000 * looks); i++) {
        const struct shown *shown = all(kv);
        uint32_t seen = 0;

        for (uint32_t j = 0; j < shown->n; j++) {
            const struct kvshm_entry *e = &shown->entry[j];

            ck_assert_uint_eq(e->pages, (e->tokens + 3) / 4);
            if (e->adapter_id == 0) {
                ck_assert_uint_ge(e->tokens, 5);
                ck_assert(!(seen & 1u << (e->tokens - 5)));
                seen |= 1u << (e->tokens - 5);
            } else {
                ck_assert_uint_ge(e->tokens, 4);
                ck_assert_uint_le(e->tokens, 6);
                passing++;
            }
        }
        ck_assert_uint_eq(seen, 0xff);
    }
    done = true;
    pthread_join(thread, NULL);
    printf("%llu rounds of the writer, %llu passing entries met\n", (unsigned long long)rounds,
           (unsigned long long)passing);
    ck_assert_uint_gt(rounds, 0);
    ck_assert_uint_gt(passing, 0);
    in_audit(kv);
    if (writing != kv)
        ts_detach(writing);
    ts_detach(kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("entries");
    TCase *tcase = tcase_create("entries");
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_each_entry_is_shown_whole);
    tcase_add_test(tcase, test_only_what_is_published_is_shown);
    tcase_add_test(tcase, test_leases_of_the_living_are_counted);
    tcase_add_test(tcase, test_an_answer_stops_it);
    tcase_add_test(tcase, test_calls_from_within);
    tcase_add_test(tcase, test_what_stays_is_shown_once);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
