/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_private.c - the process's own memory, on the C library and on jemalloc
 *
 * Called as "check_private on-jemalloc" the program is what one case starts with jemalloc loaded before it.
 */
#include <dlfcn.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "private.h"
#include "support.h"

#define BYTES 100003

static bool all_zero(const unsigned char *memory, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (memory[i] != 0)
            return false;
    }
    return true;
}

START_TEST(test_zeroed_and_aligned)
{
    for (unsigned round = 0; round < 20; round++) {
        for (size_t size = 1; size <= BYTES; size = size * 3 + 1) {
            unsigned char *memory = kvshm__private_alloc(size);

            ck_assert_ptr_nonnull(memory);
            ck_assert_uint_eq((uintptr_t)memory % 64, 0);
            ck_assert(all_zero(memory, size));
            memset(memory, 0xa5, size);
            kvshm__private_free(memory);
        }
    }
}
END_TEST

START_TEST(test_nothing_and_too_much)
{
    void *nothing = kvshm__private_alloc(0);
    volatile size_t too_much = SIZE_MAX;

    ck_assert_ptr_nonnull(nothing);
    kvshm__private_free(nothing);
    kvshm__private_free(NULL);
    ck_assert_ptr_null(kvshm__private_alloc(too_much));
    ck_assert_ptr_null(kvshm__private_alloc(too_much - 70));
}
END_TEST

typedef int (*mallctl_fn)(const char *, void *, size_t *, void *, size_t);

/* 0: the memory is in an arena that was made for it. */
static int on_jemalloc(void)
{
    mallctl_fn mallctl = (mallctl_fn)(uintptr_t)dlsym(RTLD_DEFAULT, "mallctl");
    unsigned before, of;
    size_t size = sizeof(before);
    unsigned char *memory;

    if (mallctl == NULL)
        return 77;
    ts_need(mallctl("arenas.narenas", &before, &size, NULL, 0) == 0);
    memory = kvshm__private_alloc(BYTES);
    ts_need(memory != NULL && (uintptr_t)memory % 64 == 0 && all_zero(memory, BYTES));
    ts_need(mallctl("arenas.lookup", &of, &size, &memory, sizeof(memory)) == 0);
    ts_need(of == before);
    kvshm__private_free(memory);
    return 0;
}

/* A sanitizer has a malloc of its own, and no process can run on two. */
static bool sanitized(void)
{
    const char *sanitizers = getenv("KVSHM_SANITIZERS");

    return sanitizers != NULL && sanitizers[0] != '\0';
}

START_TEST(test_an_arena_of_its_own_on_jemalloc)
{
    char *const arguments[] = {"check_private", "on-jemalloc", NULL};
    char *const environment[] = {"LD_PRELOAD=libjemalloc.so.2", NULL};
    pid_t pid;
    int status;

    ck_assert_int_eq(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environment), 0);
    status = ts_wait(pid);
    if (status == 77)
        printf("SKIP test_an_arena_of_its_own_on_jemalloc: libjemalloc.so.2 is not there\n");
    else
        ck_assert_int_eq(status, 0);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("private");
    TCase *tcase = tcase_create("private");

    if (argc == 2 && strcmp(argv[1], "on-jemalloc") == 0)
        return on_jemalloc();
    tcase_add_test(tcase, test_zeroed_and_aligned);
    tcase_add_test(tcase, test_nothing_and_too_much);
    if (!sanitized())
        tcase_add_test(tcase, test_an_arena_of_its_own_on_jemalloc);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
