/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_tsan.c - threads that read, fill, evict and release for one another on one mapping, under ThreadSanitizer
 *
 * In its build (--enable-tsan) the read and the write base of a handle are one mapping, in which it sees every access; a
 * race ends the program. In other builds the same threads run as a plain stress, whose bytes must be right.
 *
 * In its build, too, the same threads run on libraries in each of which one thing is wrong, and it must tell:
 * - publication: what a filler has written is published by relaxed stores. All of them are: of sequence, place, recency
 *   stamp, lengths of partial pages and index word. Any one that is a release store orders the content for those who
 *   load it, with acquire, on their way to a page.
 * - release: a lease is dropped by a relaxed store, so reads of a page and its frame's next fill are not ordered.
 * That needs a library compiled for it, which the build makes with ThreadSanitizer only; elsewhere a wrong order
 * of this kind changes nothing on x86-64, so there is nothing to be found out, and no such test.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stress.h"

START_TEST(test_threads_on_one_mapping)
{
    struct stress stress;
    uint64_t entries = ts_amount(300, 3000, 100000);

    stress_run(entries, &stress);
    printf("%llu hits, %llu pages read, %llu copied, %llu inserted, %llu extended, %llu given up, "
           "%llu handed over\n",
           (unsigned long long)stress.hits, (unsigned long long)stress.pages_read,
           (unsigned long long)stress.pages_copied, (unsigned long long)stress.inserted,
           (unsigned long long)stress.extended, (unsigned long long)stress.given_up,
           (unsigned long long)stress.handed_over);
    ck_assert_uint_eq(stress.wrong, 0);
    ck_assert_uint_ge(stress.inserted, entries);
    ck_assert_uint_gt(stress.hits, 0);
    ck_assert_uint_gt(stress.pages_copied, 0);
    ck_assert_uint_gt(stress.extended, 0);
    ck_assert_uint_gt(stress.given_up, 0);
    ck_assert_uint_gt(stress.handed_over, 0);
}
END_TEST

#ifdef KVSHM_TSAN

#define FOUND_OUT 66 /* exit status */

static const char *const mutants[] = {"publication", "release"};

static int become_mutant(void *arg)
{
    const char *top = getenv("abs_top_builddir");
    char path[4096];
    int out = *(int *)arg;

    snprintf(path, sizeof(path), "%s/tests/tsan_mutant_%s", top ? top : ".",
             mutants[((int *)arg)[1]]);
    setenv("TSAN_OPTIONS", "halt_on_error=1 exitcode=66", 1);
    setenv("CK_FORK", "no", 1);
    unsetenv("CK_TAP_LOG_FILE_NAME");
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    execl(path, path, (char *)NULL);
    perror(path);
    return 1;
}

/* It ends with a report of a race between a thread that fills and one that reads. */
START_TEST(test_mutant_is_found_out)
{
    char path[4096], said[32768] = "";
    int arg[2] = {-1, _i}, status;

    snprintf(path, sizeof(path), "%s/said", ts_dir());
    arg[0] = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_ge(arg[0], 0);
    status = ts_wait(ts_fork(become_mutant, arg));
    ck_assert_int_ge(pread(arg[0], said, sizeof(said) - 1, 0), 0);
    close(arg[0]);
    printf("%s: status %d\n%.1500s\n", mutants[_i], status, said);
    ck_assert_int_eq(status, FOUND_OUT);
    ck_assert_ptr_nonnull(strstr(said, "ThreadSanitizer: data race"));
    ck_assert_ptr_nonnull(strstr(said, "ts_fill "));
}
END_TEST

#endif

int main(void)
{
    Suite *suite = suite_create("tsan");
    TCase *tcase = tcase_create("tsan");

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_threads_on_one_mapping);
#ifdef KVSHM_TSAN
    tcase_add_loop_test(tcase, test_mutant_is_found_out, 0, sizeof(mutants) / sizeof(*mutants));
#endif
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
