/* SPDX-License-Identifier: Apache-2.0 */
/* bench_content.c - see bench_content.h */
#include "bench_content.h"

#include <string.h>

#include "bench.h"

void bench_block_tokens(uint64_t id, uint32_t *tokens)
{
    uint64_t state = bench_mix(id + 1);

    for (uint32_t i = 0; i < BENCH_BLOCK_TOKENS; i++)
        tokens[i] = (uint32_t)(bench_random(&state) >> 32);
}

uint64_t bench_digest(uint64_t parent, const uint32_t *tokens, uint32_t n)
{
    uint64_t digest = parent;

    for (uint32_t i = 0; i < n; i++) {
        digest = (digest ^ tokens[i]) * 0xd6e8feb86659fd93u;
        digest ^= digest >> 32;
    }
    return digest;
}

void bench_page_fill(void *page, uint64_t page_bytes, uint64_t digest)
{
    uint64_t state = digest;
    uint8_t *at = page;
    uint64_t word;

    for (; page_bytes >= sizeof(word); page_bytes -= sizeof(word), at += sizeof(word)) {
        word = bench_random(&state);
        memcpy(at, &word, sizeof(word));
    }
    word = bench_random(&state);
    memcpy(at, &word, page_bytes);
}

/* How many of the first n bytes of two words differ. */
static uint64_t differing_bytes(uint64_t a, uint64_t b, uint64_t n)
{
    uint8_t x[sizeof(a)], y[sizeof(b)];
    uint64_t differing = 0;

    memcpy(x, &a, sizeof(a));
    memcpy(y, &b, sizeof(b));
    for (uint64_t i = 0; i < n; i++)
        differing += x[i] != y[i];
    return differing;
}

uint64_t bench_page_wrong(const void *page, uint64_t page_bytes, uint64_t digest)
{
    uint64_t state = digest, wrong = 0, word, expected;
    const uint8_t *at = page;

    for (; page_bytes >= sizeof(word); page_bytes -= sizeof(word), at += sizeof(word)) {
        memcpy(&word, at, sizeof(word));
        expected = bench_random(&state);
        if (word != expected)
            wrong += differing_bytes(word, expected, sizeof(word));
    }
    word = 0;
    memcpy(&word, at, page_bytes);
    return wrong + differing_bytes(word, bench_random(&state), page_bytes);
}
