/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relaxed.h - comes before a copy of a file of the library that ThreadSanitizer must find out: its release stores are none
 */
#ifndef KVSHM_TESTS_RELAXED_H
#define KVSHM_TESTS_RELAXED_H

#include "atomics.h"

static inline void relaxed_seq_write_end(kvshm_a64 *seq)
{
    KVSHM__STORE(seq, KVSHM__LOAD(seq) + 1);
}

#define kvshm__seq_write_end relaxed_seq_write_end
#undef KVSHM__STORE_REL
#define KVSHM__STORE_REL(p, v) KVSHM__STORE(p, v)

#endif /* KVSHM_TESTS_RELAXED_H */
