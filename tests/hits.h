/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hits.h - lookups and matches that hit, for the tests of what a hit costs
 *
 * Uses kvshm.h alone. All functions answer false when a call did not do what it was to do.
 */
#ifndef KVSHM_TESTS_HITS_H
#define KVSHM_TESTS_HITS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kvshm.h"

#define HITS_TOKENS  32 /* eight pages of four */
#define HITS_PROMPTS 16

static inline struct kvshm_prefix hits_prompt(uint32_t *tokens, uint32_t number)
{
    struct kvshm_prefix prefix;

    for (uint32_t i = 0; i < HITS_TOKENS; i++)
        tokens[i] = number * (i >= 8) + i;
    kvshm_prefix_init(&prefix, 0, 0, tokens, HITS_TOKENS);
    return prefix;
}

/* Prompts that share their first two pages, and as many key-only entries. */
static inline bool hits_fill(kvshm *kv)
{
    uint32_t tokens[HITS_TOKENS];

    for (uint32_t i = 0; i < 2 * HITS_PROMPTS; i++) {
        struct kvshm_prefix prefix = hits_prompt(tokens, i / 2);
        struct kvshm_reservation r;

        if (i % 2)
            kvshm_prefix_init_hash(&prefix, 0, 0, i / 2, HITS_TOKENS);
        if (kvshm_reserve(kv, 8, 0, &r) != 0)
            return false;
        for (uint32_t page = 0; page < 8; page++)
            memset(kvshm_reservation_page(&r, page), (int)page, 64);
        if (kvshm_insert(kv, &prefix, NULL, &r, 0) != 0)
            return false;
    }
    return true;
}

static inline void hits_configure(struct kvshm_config *config)
{
    kvshm_config_init(config);
    config->geometry.page_tokens = 4;
    config->geometry.page_bytes = 64;
    config->frames = 1024;
}

/* An arena of these. */
static inline bool hits_make(const char *name, kvshm **kv)
{
    struct kvshm_config config;

    hits_configure(&config);
    return kvshm_create(name, &config, 0, kv) == 0 && hits_fill(*kv);
}

/* Lookups of tokens, lookups of keys, and matches of longer prompts in turn; reads a byte of each page. */
static inline bool hits(kvshm *kv, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t tokens[HITS_TOKENS + 1];
        struct kvshm_prefix prefix = hits_prompt(tokens, i % HITS_PROMPTS);
        struct kvshm_lease lease;
        const void *pages[8];
        int code = 0;

        tokens[HITS_TOKENS] = 77;
        if (i % 3 == 0) {
            prefix.n = HITS_TOKENS + 1;
            code = kvshm_match(kv, &prefix, 0, &lease);
        } else {
            if (i % 3 == 1)
                kvshm_prefix_init_hash(&prefix, 0, 0, i % HITS_PROMPTS, HITS_TOKENS);
            code = kvshm_lookup(kv, &prefix, 0, &lease);
        }
        if (code != 0 || lease.pages != 8 || lease.tokens != HITS_TOKENS ||
            kvshm_lease_pages(&lease, 0, 8, pages) != 8)
            return false;
        for (uint32_t page = 0; page < 8; page++)
            if (*(const uint8_t *)pages[page] != page ||
                kvshm_lease_page(&lease, page) != pages[page])
                return false;
        kvshm_release(kv, &lease);
    }
    return true;
}

/* Lease what hits_fill() has made, so that it stays in memory. */
static inline bool hits_lease(kvshm *kv, struct kvshm_lease leases[2 * HITS_PROMPTS])
{
    uint32_t tokens[HITS_TOKENS];

    for (uint32_t i = 0; i < 2 * HITS_PROMPTS; i++) {
        struct kvshm_prefix prefix = hits_prompt(tokens, i / 2);

        if (i % 2)
            kvshm_prefix_init_hash(&prefix, 0, 0, i / 2, HITS_TOKENS);
        if (kvshm_lookup(kv, &prefix, 0, &leases[i]) != 0)
            return false;
    }
    return true;
}

/* Serve another prompt from memory or a spill file, or compute it. */
static inline bool hits_serve(kvshm *kv, uint32_t number)
{
    uint32_t tokens[HITS_TOKENS];
    struct kvshm_prefix prefix = hits_prompt(tokens, number);
    struct kvshm_lease lease;
    struct kvshm_reservation r;
    int code;

    prefix.adapter_id = 1 + number;
    code = kvshm_lookup(kv, &prefix, KVSHM_WAIT, &lease);
    if (code == 0)
        kvshm_release(kv, &lease);
    if (code != KVSHM_MISS)
        return code >= 0;
    if (kvshm_reserve(kv, 8, KVSHM_WAIT, &r) != 0)
        return false;
    for (uint32_t page = 0; page < 8; page++)
        memset(kvshm_reservation_page(&r, page), (int)number, 64);
    return kvshm_insert(kv, &prefix, NULL, &r, 0) >= 0;
}

#endif /* KVSHM_TESTS_HITS_H */
