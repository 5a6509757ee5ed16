/* SPDX-License-Identifier: Apache-2.0 */
/*
 * litmus_cases.h - the pairs of HACKING.md as litmus tests, each with variants in which the forbidden outcome must appear.
 */
#ifndef KVSHM_TESTS_LITMUS_CASES_H
#define KVSHM_TESTS_LITMUS_CASES_H

#include "litmus.h"

#define LITMUS_CONTROLS 2

struct litmus_case {
    struct litmus test;
    struct litmus control[LITMUS_CONTROLS]; /* name NULL: none */
};

extern const struct litmus_case litmus_cases[];
extern const unsigned litmus_case_count;

#endif /* KVSHM_TESTS_LITMUS_CASES_H */
