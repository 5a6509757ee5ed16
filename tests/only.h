/* SPDX-License-Identifier: Apache-2.0 */
/*
 * only.h - included before a test program by the mutation run: of its cases only those that KVSHM_TEST_ONLY names are run
 *
 * Names are separated by one space; name#3 is the loop test of that name for the number 3 alone. Without the variable all
 * are run.
 */
#ifndef KVSHM_TESTS_ONLY_H
#define KVSHM_TESTS_ONLY_H

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The numbers for which a case is to run, of from .. to - 1. */
static inline void ts_only(const char *name, int *from, int *to)
{
    const char *at = getenv("KVSHM_TEST_ONLY");
    size_t length = strlen(name);

    for (; at != NULL && *at != '\0'; at += strcspn(at, " "), at += strspn(at, " ")) {
        if (strncmp(at, name, length) != 0 || strchr(" #", at[length]) == NULL)
            continue;
        if (at[length] == '#') {
            *from = atoi(at + length + 1);
            *to = *from + 1;
        }
        return;
    }
    if (at != NULL)
        *to = *from;
}

#undef tcase_add_loop_test
#define tcase_add_loop_test(tcase, test, first, end)                        \
    do {                                                                    \
        int from_ = (first), to_ = (end);                                   \
        ts_only(#test, &from_, &to_);                                       \
        if (from_ < to_)                                                    \
            tcase_add_loop_test_raise_signal((tcase), test, 0, from_, to_); \
    } while (0)

#undef tcase_add_test
#define tcase_add_test(tcase, test) tcase_add_loop_test((tcase), test, 0, 1)

#endif /* KVSHM_TESTS_ONLY_H */
