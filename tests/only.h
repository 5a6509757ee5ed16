/* SPDX-License-Identifier: Apache-2.0 */
/*
 * only.h - included before a test program by the mutation run: of its cases only those that KVSHM_TEST_ONLY names are run
 *
 * Names are separated by one space. Without the variable all are run.
 */
#ifndef KVSHM_TESTS_ONLY_H
#define KVSHM_TESTS_ONLY_H

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool ts_only(const char *name)
{
    const char *at = getenv("KVSHM_TEST_ONLY");
    size_t length = strlen(name);

    if (at == NULL)
        return true;
    for (; *at != '\0'; at += strspn(at, " ")) {
        size_t word = strcspn(at, " ");
        if (word == length && memcmp(at, name, length) == 0)
            return true;
        at += word;
    }
    return false;
}

#undef tcase_add_test
#define tcase_add_test(tcase, test)                           \
    do {                                                      \
        if (ts_only(#test))                                   \
            tcase_add_test_raise_signal((tcase), test, 0);    \
    } while (0)

#undef tcase_add_loop_test
#define tcase_add_loop_test(tcase, test, from, to)                              \
    do {                                                                        \
        if (ts_only(#test))                                                     \
            tcase_add_loop_test_raise_signal((tcase), test, 0, (from), (to));   \
    } while (0)

#endif /* KVSHM_TESTS_ONLY_H */
