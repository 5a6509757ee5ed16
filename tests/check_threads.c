/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_threads.c - many threads of one handle: what one leases another releases; detach while others call is refused
 *
 * Each thread serves prompts from a small pool, looks at every byte, and puts its lease into a mailbox; whatever lease of
 * another thread lies there it looks at and releases. The seed is printed; who comes first is the machine's.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "inside.h"
#include "sys.h"

#define THREADS     64
#define MAILBOXES   16
#define FRAMES      160
#define PAGE_TOKENS 4
#define PROMPTS     48

static kvshm *kv;

struct letter {
    struct kvshm_lease lease;
    uint32_t prompt;
    unsigned from;
};

static _Atomic(struct letter *) mailbox[MAILBOXES];
static atomic_uint released_for_others, refused_detaches;
static uint64_t seed;

static void setup(void)
{
    struct kvshm_config config = ts_config(IN_PAGE_BYTES, PAGE_TOKENS, FRAMES);

    ts_setup();
    config.max_leases = 2 * THREADS;
    config.max_clients = 4;
    config.stall_ms = 60000;
    kv = ts_create("a", &config);
}

/* Prompts of one to four pages, whose heads are shared. */
static struct kvshm_prefix prompt(uint32_t tokens[16], uint32_t number)
{
    struct kvshm_prefix prefix;
    uint32_t n = (1 + number % 4) * PAGE_TOKENS;

    for (uint32_t i = 0; i < n; i++)
        tokens[i] = 1 + i + 1000 * (number / 4 >> i / PAGE_TOKENS & 1);
    kvshm_prefix_init(&prefix, number % 3, 0, tokens, n);
    return prefix;
}

/* A fault ends the thread with its line. */
#define NEED(condition)                                                                         \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "line %d: not %s: %s\n", __LINE__, #condition, kvshm_errmsg(NULL)); \
            return __LINE__;                                                                    \
        }                                                                                       \
    } while (0)

static int look(const struct letter *letter)
{
    uint32_t tokens[16];
    struct kvshm_prefix prefix = prompt(tokens, letter->prompt);

    for (uint32_t i = 0; i < letter->lease.pages; i++) {
        const void *page = kvshm_lease_page(&letter->lease, i);

        NEED(page != NULL);
        NEED(ts_filled(page, IN_PAGE_BYTES, prefix.adapter_id, 0, tokens, (i + 1) * PAGE_TOKENS) ==
             0);
    }
    return 0;
}

/* Behind what is leased; full memory is no fault. */
static int compute(const struct kvshm_prefix *prefix, struct kvshm_lease *lease)
{
    uint32_t first = lease->tokens / PAGE_TOKENS;
    struct kvshm_reservation r;
    int code = kvshm_reserve(kv, prefix->n / PAGE_TOKENS - first, 0, &r);

    NEED(code == 0 || code == -ENOSPC);
    if (code != 0)
        return 0;
    for (uint32_t i = 0; i < r.pages; i++)
        ts_fill(kvshm_reservation_page(&r, i), IN_PAGE_BYTES, prefix->adapter_id, 0, prefix->tokens,
                (first + i + 1) * PAGE_TOKENS);
    code = kvshm_insert(kv, prefix, lease, &r, KVSHM_HOLD);
    NEED(code >= 0 || code == KVSHM_E_STALE);
    kvshm_cancel(kv, &r);
    return 0;
}

static int give_back(struct letter *letter, unsigned by)
{
    if (letter == NULL)
        return 0;
    if (letter->from != by)
        atomic_fetch_add(&released_for_others, 1);
    NEED(look(letter) == 0);
    kvshm_release(kv, &letter->lease);
    free(letter);
    return 0;
}

static int serve(unsigned by, uint64_t *chance)
{
    struct letter *letter = calloc(1, sizeof(*letter));
    uint32_t tokens[16];
    struct kvshm_prefix prefix;
    int code;

    NEED(letter != NULL);
    letter->from = by;
    letter->prompt = (uint32_t)ts_random(chance, PROMPTS);
    prefix = prompt(tokens, letter->prompt);
    code = kvshm_match(kv, &prefix, 0, &letter->lease);
    NEED(code == 0 || code == KVSHM_MISS);
    if (letter->lease.tokens < prefix.n)
        NEED(compute(&prefix, &letter->lease) == 0);
    NEED(look(letter) == 0);
    return give_back(atomic_exchange(&mailbox[ts_random(chance, MAILBOXES)], letter), by);
}

/* Other calls, among them a detach: somebody holds a lease all the time. */
static int other_call(uint64_t *chance)
{
    uint8_t bytes[4 * IN_PAGE_BYTES];
    uint32_t tokens[16];
    struct kvshm_prefix prefix = prompt(tokens, (uint32_t)ts_random(chance, PROMPTS));
    struct kvshm_info info;

    kvshm_info_init(&info);
    switch (ts_random(chance, 6)) {
    case 0:
        NEED(kvshm_evict_lru(kv) >= 0);
        break;
    case 1:
        NEED(kvshm_remove(kv, &prefix) >= 0);
        break;
    case 2:
        NEED(kvshm_copy_out(kv, &prefix, 0, 4, bytes) >= 0);
        break;
    case 3:
        NEED(kvshm_info(kv, &info) == 0 && info.clients == 1);
        break;
    case 4:
        kvshm_contains(kv, &prefix);
        break;
    default:
        NEED(kvshm_detach(kv) == -EBUSY);
        atomic_fetch_add(&refused_detaches, 1);
    }
    return 0;
}

static void *thread_main(void *arg)
{
    unsigned by = (unsigned)(uintptr_t)arg;
    uint64_t chance = seed + by, rounds = ts_amount(30, 150, 5000);
    int wrong = 0;

    for (uint64_t i = 0; i < rounds && wrong == 0; i++)
        wrong = ts_random(&chance, 4) == 0 ? other_call(&chance) : serve(by, &chance);
    return (void *)(intptr_t)wrong;
}

START_TEST(test_threads_of_one_handle)
{
    static const uint32_t own[4] = {77, 78, 79, 80};
    struct kvshm_reservation all;
    struct kvshm_prefix prefix;
    struct kvshm_lease lease;
    pthread_t threads[THREADS];
    void *wrong;

    ts_insert(kv, 0, 0, own, 4);
    kvshm_prefix_init(&prefix, 0, 0, own, 4);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, thread_main, (void *)i), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &wrong);
        ck_assert_ptr_null(wrong);
    }
    for (unsigned i = 0; i < MAILBOXES; i++)
        ck_assert_int_eq(give_back(mailbox[i], THREADS), 0);
    ck_assert_uint_gt(released_for_others, 0);
    ck_assert_uint_gt(refused_detaches, 0);
    ts_is(kvshm_detach(kv), -EBUSY);
    ts_says("1 leases and 0 reservations");
    kvshm_release(kv, &lease);
    in_audit(kv);
    ts_is(kvshm_clear(kv), 0);
    ts_is(kvshm_reserve(kv, FRAMES, 0, &all), 0);
    kvshm_cancel(kv, &all);
    ts_detach(kv);
}
END_TEST

/* ---- Detach while others are inside ----------------------------------------------------------------------------- */

static struct ts_gate inside, go_on;

/* The lock of this writer is free when the gate has opened. */
static int wait_at_the_gate(void *word, uint32_t expected, uint64_t timeout_ns)
{
    (void)word;
    (void)expected;
    (void)timeout_ns;
    ts_gate_open(&inside);
    ts_gate_wait(&go_on);
    atomic_store(&kv->header->lock.word, 0);
    return 0;
}

static void *reserve_and_cancel(void *arg)
{
    struct kvshm_reservation r;
    int code = kvshm_reserve(kv, 1, 0, &r);

    (void)arg;
    kvshm_cancel(kv, &r);
    return (void *)(intptr_t)code;
}

/* The one waits for another process's writer, some wait for the one; nothing is held yet, and detach is refused. */
START_TEST(test_detach_while_others_wait)
{
    kvshm *other = ts_attach("a", 0);
    pthread_t threads[3];
    void *code;

    ts_gate_make(&inside);
    ts_gate_make(&go_on);
    kvshm__sys.futex_wait = wait_at_the_gate;
    atomic_store(&kv->header->lock.word, other->client);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, reserve_and_cancel, NULL), 0);
    ck_assert(ts_gate_wait(&inside));
    for (unsigned i = 0; i < 5; i++) {
        ts_is(kvshm_detach(kv), -EBUSY);
        ts_says("another thread is inside a call on the handle of arena a");
    }
    ck_assert(kvshm__client_alive(other, kv->client));
    ts_gate_open(&go_on);
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(threads[i], &code);
        ck_assert_ptr_null(code);
    }
    ts_fail_off();
    in_audit(other);
    ts_detach(kv);
    ts_detach(other);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("threads");
    TCase *tcase = tcase_create("threads");

    seed = ts_seed();
    tcase_add_checked_fixture(tcase, setup, ts_teardown);
    tcase_add_test(tcase, test_threads_of_one_handle);
    tcase_add_test(tcase, test_detach_while_others_wait);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
