/* SPDX-License-Identifier: Apache-2.0 */
#include "tokens.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "layout.h"

/* FxHash of rustc-hash 2.1 (DESIGN.md, Words): constants and steps as published there. */
static const uint64_t fx_k = 0xf1357aea2e62a9c5u;
static const uint64_t fx_s1 = 0x243f6a8885a308d3u;
static const uint64_t fx_s2 = 0x13198a2e03707344u;
static const uint64_t fx_p = 0xa4093822299f31d0u;

static uint64_t fx_mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

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
            uint64_t x = fx_mix(s0 ^ fx_word(tokens, i), fx_p ^ fx_word(tokens, i + 2));
            s0 = s1;
            s1 = x;
        }
        s0 ^= fx_word(tokens, n - 4);
        s1 ^= fx_word(tokens, n - 2);
    }
    uint64_t h = ((uint64_t)n * fx_k + (fx_mix(s0, s1) ^ bytes)) * fx_k;
    return h << 26 | h >> 38;
}

static uint64_t placed(const uint8_t *secret, const void *data, size_t bytes)
{
    return XXH3_64bits_withSecret(data, bytes, secret, KVSHM__SECRET_BYTES);
}

uint64_t kvshm__hash_root(const uint8_t *secret, uint64_t adapter_id, uint64_t tenant)
{
    uint64_t in[2] = {adapter_id, tenant};
    return placed(secret, in, sizeof(in));
}

uint64_t kvshm__hash_page(const uint8_t *secret, uint64_t parent, const uint32_t *tokens, uint32_t m)
{
    uint64_t in[3] = {parent, placed(secret, tokens, (size_t)m * sizeof(*tokens)), m};
    return placed(secret, in, sizeof(in));
}

uint64_t kvshm__hash_key(const uint8_t *secret, uint64_t adapter_id, uint64_t tenant, const uint8_t *key,
                         uint32_t position)
{
    uint64_t in[7] = {adapter_id, tenant, 0, 0, 0, 0, position};
    memcpy(&in[2], key, KVSHM_KEY_BYTES);
    return placed(secret, in, sizeof(in));
}
