/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_torture_content.c - the prompts of the torture, and what their pages must hold
 *
 * Prompts are few and share heads, so that servers meet. The bytes of a page are a function of adapter, tenant and all
 * tokens up to its end, as bench_content.h says; those of a key's page, of adapter, tenant, key, place and version.
 */
#include <string.h>

#include "bench_content.h"
#include "bench_torture.h"

#define VERSIONS 4u

static uint64_t root(uint64_t adapter, uint64_t tenant, uint64_t kind)
{
    return bench_mix(bench_mix(bench_mix(BENCH_DIGEST_ROOT + adapter) + tenant) + kind);
}

/* One to eight pages, the last one whole or not; each page is one of two, as the bits of the number say. */
void torture_prompt_tokens(struct torture_prompt *prompt, uint32_t number)
{
    uint32_t which = number % TORTURE_PROMPTS, head = which / TORTURE_DEPTH;
    uint32_t n = (1 + which % TORTURE_DEPTH) * TORTURE_PAGE_TOKENS - head % 3;
    uint64_t adapter = which % 5 == 0, tenant = which % 7 == 0 ? 42 : 0;

    for (uint32_t i = 0; i < TORTURE_TOKENS; i++)
        prompt->tokens[i] = i + 1000 * (head >> i / TORTURE_PAGE_TOKENS & 1);
    kvshm_prefix_init(&prompt->prefix, adapter, tenant, prompt->tokens, n);
    prompt->root = root(adapter, tenant, 0);
}

void torture_prompt_key(struct torture_prompt *prompt, uint32_t number)
{
    uint32_t which = number % TORTURE_KEYS;
    uint8_t key[KVSHM_KEY_BYTES] = {0};

    memset(prompt->tokens, 0, sizeof(prompt->tokens));
    key[0] = (uint8_t)which;
    key[KVSHM_KEY_BYTES - 1] = 1;
    kvshm_prefix_init_key(&prompt->prefix, which % 2, which % 3, key,
                          (1 + which % 4) * TORTURE_PAGE_TOKENS - which % 2);
    prompt->root = root(which % 2, which % 3, 1 + which);
}

uint32_t torture_pages(const struct torture_prompt *prompt)
{
    return kvshm_pages_for_tokens(prompt->prefix.n, TORTURE_PAGE_TOKENS);
}

static uint64_t key_digest(const struct torture_prompt *prompt, uint32_t i, uint32_t version)
{
    uint32_t words[2] = {version, i};

    return bench_digest(prompt->root, words, 2);
}

/* Of page i of a prefix of so many tokens. */
static uint64_t token_digest(const struct torture_prompt *prompt, uint32_t tokens, uint32_t i)
{
    uint32_t end = (i + 1) * TORTURE_PAGE_TOKENS;

    return bench_digest(prompt->root, prompt->tokens, end < tokens ? end : tokens);
}

void torture_page_fill(void *page, const struct torture_prompt *prompt, uint32_t i,
                       uint32_t version)
{
    bench_page_fill(page, TORTURE_PAGE_BYTES,
                    prompt->prefix.tokens ? token_digest(prompt, prompt->prefix.n, i)
                                          : key_digest(prompt, i, version % VERSIONS));
}

/* All pages of one version: of the one that fits best. */
static uint64_t key_pages_wrong(const void *const *pages, const struct torture_prompt *prompt,
                                uint32_t first, uint32_t n)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t version = 0; version < VERSIONS && least > 0; version++) {
        uint64_t wrong = 0;

        for (uint32_t i = 0; i < n; i++)
            wrong += bench_page_wrong(pages[i], TORTURE_PAGE_BYTES,
                                      key_digest(prompt, first + i, version));
        if (wrong < least)
            least = wrong;
    }
    return least;
}

uint64_t torture_pages_wrong(const void *const *pages, const struct torture_prompt *prompt,
                             uint32_t tokens, uint32_t first, uint32_t n)
{
    uint64_t wrong = 0;

    if (!prompt->prefix.tokens)
        return key_pages_wrong(pages, prompt, first, n);
    for (uint32_t i = 0; i < n; i++)
        wrong +=
            bench_page_wrong(pages[i], TORTURE_PAGE_BYTES, token_digest(prompt, tokens, first + i));
    return wrong;
}
