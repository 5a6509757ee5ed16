/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wide.h - does this processor work on 32 bytes at once?
 *
 * The library is built for any processor of its kind; what hashes and compares tokens has a second form for those of
 * x86 that have AVX2, chosen at run time. Both forms give the same. KVSHM__WIDE marks its functions.
 */
#ifndef KVSHM_WIDE_H
#define KVSHM_WIDE_H

#include <stdbool.h>

#if defined(__x86_64__) && !defined(KVSHM_TSAN)
#include <immintrin.h>
#define KVSHM__WIDE __attribute__((target("avx2")))

static inline bool kvshm__wide(void)
{
    return __builtin_cpu_supports("avx2");
}
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#endif /* KVSHM_WIDE_H */
