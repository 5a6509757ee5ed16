/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_hot_path.c - a hit allocates nothing
 *
 * The allocation functions of the C library are replaced in this program by ones that count; the library's own memory
 * comes from them too. Where a sanitizer has replaced them already, it tells of them. hot_path_strace.sh looks at system
 * calls.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

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

#ifdef SANITIZED
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                              void (*on_free)(const volatile void *));

static void on_malloc(const volatile void *at, size_t size)
{
    (void)at;
    (void)size;
    atomic_fetch_add(&allocations, 1);
}

static void on_free(const volatile void *at)
{
    atomic_fetch_add(&allocations, at != NULL);
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
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(n, size);
}

void *realloc(void *at, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(at, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    *out = __libc_memalign(alignment, size);
    return *out ? 0 : 12; /* ENOMEM */
}

void free(void *at)
{
    atomic_fetch_add(&allocations, at != NULL);
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

START_TEST(test_leases_of_all_hits_were_released)
{
    kvshm *kv = NULL;
    struct kvshm_stats stats;

    ck_assert(hits_make("hot-path", &kv));
    ck_assert(hits(kv, 3000)); /* more than there are lease words */
    kvshm_stats_init(&stats);
    ts_is(kvshm_stats(kv, &stats), 0);
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
    tcase_add_test(tcase, test_leases_of_all_hits_were_released);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
