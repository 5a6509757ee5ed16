/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stress.c - see stress.h
 *
 * Threads must not use Check: each of its assertions takes a mutex, which would order all of them. Counts are relaxed.
 */
#include "stress.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define PAGE_TOKENS 4u
#define PAGE_BYTES  128u
#define DEPTH       6u
#define FRAMES      40u
#define PROMPTS     36u
#define BOX         16u

struct prompt {
    struct kvshm_prefix prefix;
    uint32_t tokens[DEPTH * PAGE_TOKENS];
};

/* Leases on their way to the thread that releases them. */
static struct box {
    pthread_mutex_t mutex;
    struct kvshm_lease lease[BOX];
    unsigned n;
} box = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static kvshm *handle;
static uint64_t wanted, seed;
static _Atomic(uint64_t) hits, pages_read, pages_copied, inserted, extended, given_up, handed_over,
    wrong;
static atomic_bool ended;

static void add(_Atomic(uint64_t) *count, uint64_t n)
{
    atomic_fetch_add_explicit(count, n, memory_order_relaxed);
}

static bool go_on(void)
{
    return !atomic_load_explicit(&ended, memory_order_relaxed);
}

static uint64_t count_of(_Atomic(uint64_t) *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

/* Enough was inserted, and all else happened too, which depends on when each thread runs; or it will not happen. */
static bool enough(void)
{
    uint64_t entries = count_of(&inserted);

    if (entries < wanted)
        return false;
    return entries / STRESS_PATIENCE >= wanted ||
           (count_of(&hits) && count_of(&pages_copied) && count_of(&extended) &&
            count_of(&given_up) && count_of(&handed_over));
}

/* Each page is one of two, as the bits of the number say; some prompts end in a partial page. */
static void make_prompt(struct prompt *prompt, uint32_t number)
{
    uint32_t head = number / DEPTH, n = (1 + number % DEPTH) * PAGE_TOKENS - head % 2;

    for (uint32_t i = 0; i < DEPTH * PAGE_TOKENS; i++)
        prompt->tokens[i] = i + 100 * (head >> i / PAGE_TOKENS & 1);
    kvshm_prefix_init(&prompt->prefix, number % 2, 0, prompt->tokens, n);
}

static uint32_t end_of_page(uint32_t n, uint32_t i)
{
    return (i + 1) * PAGE_TOKENS < n ? (i + 1) * PAGE_TOKENS : n;
}

static void read_pages(const struct kvshm_lease *lease, const struct prompt *prompt)
{
    const void *pages[DEPTH];
    int given = kvshm_lease_pages(lease, 0, DEPTH, pages);

    ts_need(given == (int)lease->pages);
    for (int i = 0; i < given; i++)
        add(&wrong, ts_filled(pages[i], PAGE_BYTES, prompt->prefix.adapter_id, 0, prompt->tokens,
                              end_of_page(lease->tokens, (uint32_t)i)));
    add(&pages_read, (uint64_t)given);
}

/* ---- Readers, and who releases for them --------------------------------------------------------------------- */

/* false: the box is full. */
static bool hand_over(struct kvshm_lease *lease)
{
    bool fits = false;

    pthread_mutex_lock(&box.mutex);
    if (box.n < BOX) {
        box.lease[box.n++] = *lease;
        memset(lease, 0, sizeof(*lease));
        fits = true;
    }
    pthread_mutex_unlock(&box.mutex);
    return fits;
}

static void empty_box(void)
{
    pthread_mutex_lock(&box.mutex);
    while (box.n > 0) {
        kvshm_release(handle, &box.lease[--box.n]);
        add(&handed_over, 1);
    }
    pthread_mutex_unlock(&box.mutex);
}

static void *release_often(void *arg)
{
    (void)arg;
    while (go_on()) {
        empty_box();
        usleep(20);
    }
    return NULL;
}

static void copy(const struct prompt *prompt)
{
    uint8_t bytes[DEPTH][PAGE_BYTES];
    int64_t code = kvshm_copy_out(handle, &prompt->prefix, 0, DEPTH, bytes);

    ts_need(code >= 0);
    for (uint32_t i = 0; i < code; i++)
        add(&wrong, ts_filled(bytes[i], PAGE_BYTES, prompt->prefix.adapter_id, 0, prompt->tokens,
                              end_of_page(prompt->prefix.n, i)));
    add(&pages_copied, (uint64_t)code);
}

static void *read_often(void *arg)
{
    uint64_t random = seed + (uintptr_t)arg;

    while (go_on()) {
        struct prompt prompt;
        struct kvshm_lease lease;
        int code;

        make_prompt(&prompt, (uint32_t)ts_random(&random, PROMPTS));
        if (ts_random(&random, 8) == 0)
            copy(&prompt);
        code = ts_random(&random, 2) ? kvshm_match(handle, &prompt.prefix, 0, &lease)
                                     : kvshm_lookup(handle, &prompt.prefix, 0, &lease);
        ts_need(code >= 0);
        read_pages(&lease, &prompt);
        if (code == 0)
            add(&hits, 1);
        if (code == 0 && ts_random(&random, 2) && hand_over(&lease))
            usleep(50); /* its next lease would order all that it read before */
        kvshm_release(handle, &lease);
        if (ts_random(&random, 4) == 0)
            usleep(50);
    }
    return NULL;
}

/* ---- Writers, and who gives up ------------------------------------------------------------------------------ */

/* Full arenas, and heads that were cleared. */
static bool expected(int64_t code)
{
    return code >= 0 || code == -ENOSPC || code == KVSHM_E_STALE;
}

static void *fill_often(void *arg)
{
    static const unsigned flags[] = {KVSHM_HOLD, KVSHM_HOLD | KVSHM_EXTEND, 0};
    uint64_t random = seed + 100 + (uintptr_t)arg;

    while (go_on()) {
        struct kvshm_reservation r = {0};
        struct kvshm_lease lease;
        struct prompt prompt;
        uint32_t first, need;
        unsigned flag = flags[ts_random(&random, 3)];
        int code;

        make_prompt(&prompt, (uint32_t)ts_random(&random, PROMPTS));
        ts_need(kvshm_match(handle, &prompt.prefix, 0, &lease) >= 0);
        read_pages(&lease, &prompt);
        first = lease.tokens / PAGE_TOKENS;
        need = kvshm_pages_for_tokens(prompt.prefix.n, PAGE_TOKENS) - first;
        code = need ? kvshm_reserve(handle, need, 0, &r) : 0;
        ts_need(expected(code));
        for (uint32_t i = 0; i < r.pages; i++)
            ts_fill(kvshm_reservation_page(&r, i), PAGE_BYTES, prompt.prefix.adapter_id, 0,
                    prompt.tokens, end_of_page(prompt.prefix.n, first + i));
        if (code == 0 && ts_random(&random, 10) != 0) {
            code = kvshm_insert(handle, &prompt.prefix, &lease, &r, flag);
            ts_need(expected(code));
            add(flag & KVSHM_EXTEND ? &extended : &inserted, code == 0);
        }
        kvshm_cancel(handle, &r);
        read_pages(&lease, &prompt);
        kvshm_release(handle, &lease);
        if (enough())
            atomic_store_explicit(&ended, true, memory_order_relaxed);
    }
    return NULL;
}

static void *give_up_often(void *arg)
{
    uint64_t random = seed + 200 + (uintptr_t)arg;

    while (go_on()) {
        uint64_t pick = ts_random(&random, 50);
        struct prompt prompt;
        int64_t code;

        make_prompt(&prompt, (uint32_t)ts_random(&random, PROMPTS));
        code = pick == 0   ? kvshm_clear(handle)
               : pick < 20 ? kvshm_remove(handle, &prompt.prefix)
                           : kvshm_evict_lru(handle);
        ts_need(expected(code));
        add(&given_up, code != KVSHM_MISS);
        usleep(100);
    }
    return NULL;
}

/* ---- All of them ------------------------------------------------------------------------------------------- */

static void run_threads(void)
{
    void *(*const work[])(void *) = {read_often, read_often,    fill_often,
                                     fill_often, release_often, give_up_often};
    pthread_t threads[sizeof(work) / sizeof(*work)];

    for (uintptr_t i = 0; i < sizeof(work) / sizeof(*work); i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work[i], (void *)(i + 1)), 0);
    for (uintptr_t i = 0; i < sizeof(work) / sizeof(*work); i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    empty_box();
}

void stress_run(uint64_t entries, struct stress *stress)
{
    struct kvshm_config config = ts_config(PAGE_BYTES, PAGE_TOKENS, FRAMES);

    config.stall_ms = 3600000;
    wanted = entries;
    seed = ts_seed();
    handle = ts_create("stress", &config);
    run_threads();
    *stress = (struct stress){hits,     pages_read, pages_copied, inserted,
                              extended, given_up,   handed_over,  wrong};
    ts_detach(handle);
}
