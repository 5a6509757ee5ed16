/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokens.h - hashes of token ids.
 *
 * Two, with two purposes. kvshm_hash_tokens() (kvshm.h) is the seed's FxHash, kept so that callers who name
 * prefixes by it find them; kvshm trusts it nowhere. The placement hash below says where a page's index word
 * stands, under the arena's secret, so that who chooses prompts cannot choose buckets: sums of products of keyed
 * tokens (NH of UMAC, RFC 4418: two blocks that differ have equal sums with a chance of 2^-32 over all keys), and
 * keyed products of 64 bits folded to mix them. It is chained, each page's from its parent's, so the request alone
 * gives the places of all its pages. Equal hashes cost a look more, never a wrong answer: tokens are always compared.
 */
#ifndef KVSHM_TOKENS_H
#define KVSHM_TOKENS_H

#include <stdint.h>
#include <string.h>

#include "layout.h"

/* Both halves of the product, folded. */
static inline uint64_t kvshm__mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Words of a key, or of the secret: there the first 16 are the key of blocks, the rest of mixing. */
static inline uint64_t kvshm__key_word(const uint8_t *key, uint32_t i)
{
    uint64_t word;

    memcpy(&word, key + 8 * i, sizeof(word));
    return word;
}
static_assert(KVSHM__SECRET_BYTES == 24 * sizeof(uint64_t), "16 words of blocks, 8 of mixing");

/* So that each bit of h changes half of the bits. */
static inline uint64_t kvshm__mix_finish(uint64_t h)
{
    h = (h ^ h >> 37) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

/* Of all prefixes of an adapter and a tenant: what the first page's hash is chained to. */
uint64_t kvshm__hash_root(const uint8_t *secret, uint64_t adapter_id, uint64_t tenant);

/* Of the prefix that ends with these m >= 1 tokens behind the one whose hash is parent. */
uint64_t kvshm__hash_page(const uint8_t *secret, uint64_t parent, const uint32_t *tokens, uint32_t m);

/* Of each of so many whole pages of m tokens, one behind the other. */
void kvshm__hash_pages(const uint8_t *secret, uint64_t parent, const uint32_t *tokens, uint32_t m, uint32_t pages,
                       uint64_t *hashes);

/* Of a page of a key-only entry: position counts pages above it, or is KVSHM__KEY_DEEPEST. */
#define KVSHM__KEY_DEEPEST UINT32_MAX
static inline uint64_t kvshm__hash_key(const uint8_t *secret, uint64_t adapter_id, uint64_t tenant, const uint8_t *key,
                                       uint32_t position)
{
    return kvshm__mix_finish(
        kvshm__mix(kvshm__key_word(key, 0) ^ kvshm__key_word(secret, 0),
                   kvshm__key_word(key, 1) ^ kvshm__key_word(secret, 1)) +
        kvshm__mix(kvshm__key_word(key, 2) ^ kvshm__key_word(secret, 2),
                   kvshm__key_word(key, 3) ^ kvshm__key_word(secret, 3)) +
        kvshm__mix(adapter_id ^ kvshm__key_word(secret, 4), tenant ^ kvshm__key_word(secret, 5)) +
        kvshm__mix(position ^ kvshm__key_word(secret, 6), kvshm__key_word(secret, 7)));
}

#endif /* KVSHM_TOKENS_H */
