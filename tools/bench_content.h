/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_content.h - what a prompt's tokens are and what a page must hold, from a trace's ids alone.
 *
 * A block's id stands for BENCH_BLOCK_TOKENS tokens that a function of the id makes. A page's bytes are a function
 * of all tokens of the prompt up to its end: the tokens are chained into a 64-bit digest, which seeds a generator.
 * Each step of the digest is a bijection of the digest before it, for any token, so pages of different prompts
 * differ in all their bytes' seed but for a chance of 2^-64.
 */
#ifndef BENCH_CONTENT_H
#define BENCH_CONTENT_H

#include <stdint.h>

#define BENCH_BLOCK_TOKENS 512u

/* The digest of no tokens. */
#define BENCH_DIGEST_ROOT UINT64_C(0x6b7673686d2d3031)

/* The tokens of block id; BENCH_BLOCK_TOKENS of them. */
void bench_block_tokens(uint64_t id, uint32_t *tokens);

/* The digest of the tokens that parent is the digest of, and n tokens more. */
uint64_t bench_digest(uint64_t parent, const uint32_t *tokens, uint32_t n);

/* Write the page whose tokens have this digest. */
void bench_page_fill(void *page, uint64_t page_bytes, uint64_t digest);

/* How many of its bytes are not those that bench_page_fill writes. */
uint64_t bench_page_wrong(const void *page, uint64_t page_bytes, uint64_t digest);

#endif /* BENCH_CONTENT_H */
