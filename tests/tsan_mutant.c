/* SPDX-License-Identifier: Apache-2.0 */
/* tsan_mutant.c - the stress of check_tsan.c, on a library in which one thing is wrong; ThreadSanitizer ends it */
#include <stdio.h>

#include "stress.h"

START_TEST(test_until_found_out)
{
    struct stress stress;

    stress_run(2000000, &stress);
    printf("not found out: %llu entries, %llu pages read\n", (unsigned long long)stress.inserted,
           (unsigned long long)stress.pages_read);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tsan_mutant");
    TCase *tcase = tcase_create("tsan_mutant");

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_until_found_out);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
