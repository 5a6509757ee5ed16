/* SPDX-License-Identifier: Apache-2.0 */
/*
 * looker.h - a function of the test's own that is called before each store of the library to the segment
 *
 * For programs that are linked to the stepped build of the library (local.mk). Stores that the looker makes itself are not
 * looked at.
 */
#ifndef KVSHM_TESTS_LOOKER_H
#define KVSHM_TESTS_LOOKER_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "atomics.h"

static void (*looker)(void); /* NULL: none */
static uint64_t looks;       /* how often it was called; 1 in the first call */

void kvshm__step(void)
{
    static bool inside;

    if (looker == NULL || inside)
        return;
    inside = true;
    looks++;
    looker();
    inside = false;
}

/* Run the call with the looker on; it must come to see something. */
#define WATCHED(fn, call)            \
    do {                             \
        looks = 0;                   \
        looker = (fn);               \
        call;                        \
        looker = NULL;               \
        ck_assert_uint_gt(looks, 3); \
    } while (0)

#endif /* KVSHM_TESTS_LOOKER_H */
