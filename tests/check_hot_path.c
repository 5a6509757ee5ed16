/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_hot_path.c - a hit allocates nothing, also while pages go to a spill file and come back
 *
 * The allocation functions of the C library are replaced in this program by ones that count; the library's own memory
 * comes from them too. Where a sanitizer has replaced them already, it tells of them. hot_path_strace.sh looks at system
 * calls.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "hits.h"
#include "support.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

static atomic_ulong allocations;
static _Thread_local unsigned long own; /* those of this thread */

static void count(bool counts)
{
    atomic_fetch_add(&allocations, counts);
    own += counts;
}

#ifdef SANITIZED
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                              void (*on_free)(const volatile void *));

static void on_malloc(const volatile void *at, size_t size)
{
    (void)at;
    (void)size;
    count(true);
}

static void on_free(const volatile void *at)
{
    count(at != NULL);
}

static void count_allocations(void)
{
    ck_assert_int_gt(__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free), 0);
}
#else
static void count_allocations(void)
{
}

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *at, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *at);

void *malloc(size_t size)
{
    count(true);
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    count(true);
    return __libc_calloc(n, size);
}

void *realloc(void *at, size_t size)
{
    count(true);
    return __libc_realloc(at, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    count(true);
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    count(true);
    *out = __libc_memalign(alignment, size);
    return *out ? 0 : 12; /* ENOMEM */
}

void free(void *at)
{
    count(at != NULL);
    __libc_free(at);
}
#endif

START_TEST(test_a_hit_allocates_nothing)
{
    kvshm *kv = NULL;
    unsigned long before = 0;
    unsigned long making = 0;
    unsigned long during = 0;
    bool made = false;
    uint32_t n = (uint32_t)ts_amount(100000, 100000, 1000000);
    bool hit = false;

    count_allocations();
    before = atomic_load(&allocations);
    made = hits_make("hot-path", &kv);
    making = atomic_load(&allocations) - before; /* before Check allocates */
    ck_assert(made);
    ck_assert_uint_gt(making, 0); /* the counting works: reservations have lists of frames */
    before = atomic_load(&allocations);
    hit = hits(kv, n);
    during = atomic_load(&allocations) - before;
    ck_assert(hit);
    ck_assert_uint_eq(during, 0);
    ts_detach(kv);
}
END_TEST

/* ---- Beside the tier ---------------------------------------------------------------------------------------- */

#define FRAMES 320u /* about 230 of them leased */
#define ROUNDS 1000u

static struct {
    kvshm *kv;
    atomic_bool stop, failed;
} other;

/* Fresh prompts, and such as have left memory meanwhile. */
static void *serve_others(void *arg)
{
    for (uint32_t i = 0; !other.stop; i++) {
        if (!hits_serve(other.kv, i % 2 || i < 80 ? i / 2 : i / 2 - 30))
            other.failed = true;
        usleep(100);
    }
    return arg;
}

/* Hits until pages have been written and read, by the arena's counters. */
static bool hits_beside_transfers(kvshm *kv, uint32_t n)
{
    struct kvshm_stats before, now;

    kvshm_stats_init(&before);
    kvshm_stats_init(&now);
    if (kvshm_stats(kv, &before) != 0)
        return false;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        if (!hits(kv, n) || kvshm_stats(kv, &now) != 0)
            return false;
        if (now.spilled_pages > before.spilled_pages + 100 &&
            now.restored_pages > before.restored_pages + 100)
            return true;
    }
    return false;
}

START_TEST(test_a_hit_beside_the_tier_allocates_nothing)
{
    struct kvshm_lease leases[2 * HITS_PROMPTS];
    struct kvshm_config config;
    unsigned long before, mine, before_all, all;
    char path[300];
    pthread_t thread;
    kvshm *kv;
    bool hit;

    snprintf(path, sizeof(path), "%s/spilled", getenv("KVSHM_DIR"));
    hits_configure(&config);
    config.frames = FRAMES;
    config.spill_path = path;
    config.spill_bytes = 8u << 20;
    count_allocations();
    kv = ts_create("hot-path", &config);
    ck_assert(hits_fill(kv) && hits_lease(kv, leases));
    other.kv = kv;
    ck_assert_int_eq(pthread_create(&thread, NULL, serve_others, NULL), 0);
    before = own;
    before_all = atomic_load(&allocations);
    hit = hits_beside_transfers(kv, (uint32_t)ts_amount(1000, 1000, 10000));
    mine = own - before;
    all = atomic_load(&allocations) - before_all;
    other.stop = true;
    pthread_join(thread, NULL);
    ck_assert(hit);
    ck_assert(!other.failed);
    ck_assert_uint_eq(mine, 0);
    ck_assert_uint_gt(all, 0); /* those who reserve do, and are counted */
    for (uint32_t i = 0; i < 2 * HITS_PROMPTS; i++)
        kvshm_release(kv, &leases[i]);
    ts_detach(kv);
}
END_TEST

START_TEST(test_leases_of_all_hits_were_released)
{
    kvshm *kv = NULL;
    struct kvshm_stats stats;

    ck_assert(hits_make("hot-path", &kv));
    ck_assert(hits(kv, 3000)); /* more than there are lease words */
    stats = ts_stats(kv);
    ck_assert_uint_eq(stats.match_hits, 1000);
    ck_assert_uint_eq(stats.lookup_hits, 2000);
    ck_assert_uint_eq(stats.hit_pages, 24000);
    ck_assert_uint_eq(stats.hit_tokens, 96000);
    ts_is(kvshm_clear(kv), 0);
    ts_detach(kv); /* busy if one were held */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hot_path");
    TCase *tcase = tcase_create("hot_path");
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_a_hit_allocates_nothing);
    tcase_add_test(tcase, test_a_hit_beside_the_tier_allocates_nothing);
    tcase_add_test(tcase, test_leases_of_all_hits_were_released);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
