/* SPDX-License-Identifier: Apache-2.0 */
#include "tokens.h"

#include "wide.h"

/* FxHash of rustc-hash 2.1 (DESIGN.md, Words): constants and steps as published there. */
static const uint64_t fx_k = 0xf1357aea2e62a9c5u;
static const uint64_t fx_s1 = 0x243f6a8885a308d3u;
static const uint64_t fx_s2 = 0x13198a2e03707344u;
static const uint64_t fx_p = 0xa4093822299f31d0u;

/* The 64-bit word at token i (two tokens; little-endian, whatever the host). */
static uint64_t fx_word(const uint32_t *tokens, size_t i)
{
    return tokens[i] | (uint64_t)tokens[i + 1] << 32;
}

KVSHM_API uint64_t kvshm_hash_tokens(const uint32_t *tokens, size_t n)
{
    uint64_t s0 = fx_s1, s1 = fx_s2;
    uint64_t bytes = (uint64_t)n * 4;

    if (n == 1) {
        s0 ^= tokens[0];
        s1 ^= tokens[0];
    } else if (n >= 2 && n <= 4) {
        s0 ^= fx_word(tokens, 0);
        s1 ^= fx_word(tokens, n - 2);
    } else if (n > 4) {
        for (size_t i = 0; i + 4 < n; i += 4) {
            uint64_t x = kvshm__mix(s0 ^ fx_word(tokens, i), fx_p ^ fx_word(tokens, i + 2));
            s0 = s1;
            s1 = x;
        }
        s0 ^= fx_word(tokens, n - 4);
        s1 ^= fx_word(tokens, n - 2);
    }
    uint64_t h = ((uint64_t)n * fx_k + (kvshm__mix(s0, s1) ^ bytes)) * fx_k;
    return h << 26 | h >> 38;
}

/* ---- Placement ---------------------------------------------------------------------------------------------- */

uint64_t kvshm__hash_root(const uint8_t *secret, uint64_t adapter_id, uint64_t tenant)
{
    return kvshm__mix_finish(kvshm__mix(adapter_id ^ kvshm__key_word(secret, 16), tenant ^ kvshm__key_word(secret, 17)) + kvshm__key_word(secret, 18));
}

/* Tokens of a block. */
#define BLOCK 32

/*
 * Two sums of products of each token and its neighbour, both with the block's key added to them, modulo 2^32 each: of
 * the first and second, and of the third and fourth of each four.
 */
typedef void sum_fn(const uint8_t *key, const uint32_t *tokens, uint64_t sum[2]);

#ifdef __SSE2__
static inline __attribute__((always_inline)) void sum_block(const uint8_t *key, const uint32_t *tokens,
                                                            uint64_t sum[2])
{
    __m128i sums = _mm_setzero_si128();

#pragma GCC unroll 8
    for (uint32_t i = 0; i < BLOCK; i += 4) {
        __m128i t = _mm_add_epi32(_mm_loadu_si128((const __m128i *)(tokens + i)),
                                  _mm_loadu_si128((const __m128i *)(key + 4 * i)));
        sums = _mm_add_epi64(sums, _mm_mul_epu32(t, _mm_srli_epi64(t, 32)));
    }
    _mm_storeu_si128((__m128i *)sum, sums);
}
#else
static inline void sum_block(const uint8_t *key, const uint32_t *tokens, uint64_t sum[2])
{
    sum[0] = sum[1] = 0;
    for (uint32_t i = 0; i < BLOCK; i += 2) {
        uint32_t k[2];
        memcpy(k, key + 4 * i, sizeof(k));
        sum[i / 2 % 2] += (uint64_t)(tokens[i] + k[0]) * (tokens[i + 1] + k[1]);
    }
}
#endif

static inline __attribute__((always_inline)) uint64_t hash_page(const uint8_t *secret, uint64_t parent,
                                                                const uint32_t *tokens, uint32_t m, sum_fn *sums)
{
    const uint64_t k0 = kvshm__key_word(secret, 19), k1 = kvshm__key_word(secret, 20);
    uint32_t padded[BLOCK], i = 0;
    uint64_t h = 0, sum[2];

    for (; m - i >= BLOCK; i += BLOCK) {
        sums(secret, tokens + i, sum);
        h = kvshm__mix(sum[0] + k0, sum[1] ^ k1 ^ h);
    }
    if (i < m) {
        memset(padded, 0, sizeof(padded));
        memcpy(padded, tokens + i, (m - i) * sizeof(*tokens));
        sums(secret, padded, sum);
        h = kvshm__mix(sum[0] + k0, sum[1] ^ k1 ^ h);
    }
    return kvshm__mix(parent ^ kvshm__key_word(secret, 21), h ^ m ^ kvshm__key_word(secret, 22)) ^ h;
}

uint64_t kvshm__hash_page(const uint8_t *secret, uint64_t parent, const uint32_t *tokens, uint32_t m)
{
    return hash_page(secret, parent, tokens, m, sum_block);
}

static inline __attribute__((always_inline)) void hash_pages(const uint8_t *secret, uint64_t parent,
                                                             const uint32_t *tokens, uint32_t m, uint32_t pages,
                                                             uint64_t *hashes, sum_fn *sums)
{
    for (uint32_t i = 0; i < pages; i++)
        hashes[i] = parent = hash_page(secret, parent, tokens + (size_t)i * m, m, sums);
}

#ifdef KVSHM__WIDE
/* The same sums, eight tokens at a time. */
KVSHM__WIDE static inline void sum_block_wide(const uint8_t *key, const uint32_t *tokens, uint64_t sum[2])
{
    __m256i sums = _mm256_setzero_si256();

#pragma GCC unroll 4
    for (uint32_t i = 0; i < BLOCK; i += 8) {
        __m256i t = _mm256_add_epi32(_mm256_loadu_si256((const __m256i *)(tokens + i)),
                                     _mm256_loadu_si256((const __m256i *)(key + 4 * i)));
        sums = _mm256_add_epi64(sums, _mm256_mul_epu32(t, _mm256_srli_epi64(t, 32)));
    }
    _mm_storeu_si128((__m128i *)sum,
                     _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1)));
}

KVSHM__WIDE static void hash_pages_wide(const uint8_t *secret, uint64_t parent, const uint32_t *tokens, uint32_t m,
                                        uint32_t pages, uint64_t *hashes)
{
    hash_pages(secret, parent, tokens, m, pages, hashes, sum_block_wide);
}
#endif

void kvshm__hash_pages(const uint8_t *secret, uint64_t parent, const uint32_t *tokens, uint32_t m, uint32_t pages,
                       uint64_t *hashes)
{
#ifdef KVSHM__WIDE
    if (kvshm__wide()) {
        hash_pages_wide(secret, parent, tokens, m, pages, hashes);
        return;
    }
#endif
    hash_pages(secret, parent, tokens, m, pages, hashes, sum_block);
}
