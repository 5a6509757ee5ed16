/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunked_prefill - a server that computes a long prompt in chunks, and caches each chunk as it is done.
 *
 * The lease that match gives is the head: the pages that need no computing. Each chunk reserves frames, fills them
 * and inserts them behind the head; KVSHM_HOLD turns the head into a lease of all that is there by then, so that
 * the next chunk goes behind it and nothing of it can leave meanwhile. KVSHM_EXTEND lets the entry grow: one prompt
 * is one entry, not one for each chunk. When tokens are generated, the entry grows on, page by page.
 *
 * Two servers take three requests here. The second one finds what the first has computed, and each checks every
 * byte of every page that it is served.
 *
 * Exit status 0: all of this was seen to be so.
 */
#include <err.h>
#include <kvshm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARENA            "example-chunked-prefill"
#define PAGE_TOKENS      64
#define TOKEN_BYTES      64
#define PAGE_BYTES       (PAGE_TOKENS * TOKEN_BYTES)
#define CHUNK_TOKENS     256 /* whole pages, so that no page has to be made twice */
#define PROMPT_TOKENS    1000
#define SHARED_TOKENS    600 /* what the two prompts have in common */
#define GENERATED_TOKENS 100

static void check(bool right, const char *claim)
{
    if (!right)
        errx(1, "not so: %s; the last error was: %s", claim, kvshm_errmsg(NULL));
}

static kvshm *open_arena(const char *label)
{
    struct kvshm_config config;
    kvshm *kv;

    kvshm_config_init(&config);
    config.label = label;
    config.geometry.page_tokens = PAGE_TOKENS;
    config.geometry.page_bytes = PAGE_BYTES;
    config.frames = 100;
    check(kvshm_open(ARENA, &config, 0, &kv) == 0, "the arena can be opened");
    return kv;
}

/* Prompt 0, 1, ...: all begin alike. */
static void make_tokens(uint32_t prompt, uint32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = i < SHARED_TOKENS ? i : 1000000 * prompt + i;
}

/*
 * What a model would compute: the vectors of a token depend on it and on all tokens before it. Here they are
 * TOKEN_BYTES made of a hash of all of these. Computes tokens first to n - 1, as far as they are in the page.
 */
static void compute_page(const uint32_t *tokens, uint32_t first, uint32_t n, uint32_t page,
                         unsigned char *out)
{
    for (uint32_t i = 0; i < PAGE_TOKENS && page * PAGE_TOKENS + i < n; i++) {
        uint32_t t = page * PAGE_TOKENS + i;
        uint64_t hash = kvshm_hash_tokens(tokens, t + 1);

        for (uint32_t b = 0; t >= first && b < TOKEN_BYTES; b += sizeof(hash))
            memcpy(out + i * TOKEN_BYTES + b, &hash, sizeof(hash));
    }
}

/* Is every byte that the lease serves what this prompt's computation gives? */
static void check_pages(const struct kvshm_lease *lease, const uint32_t *tokens)
{
    unsigned char expected[PAGE_BYTES];

    for (uint32_t i = 0; i < lease->pages; i++) {
        uint32_t valid = lease->tokens - i * PAGE_TOKENS;

        if (valid > PAGE_TOKENS)
            valid = PAGE_TOKENS;
        compute_page(tokens, 0, lease->tokens, i, expected);
        check(memcmp(kvshm_lease_page(lease, i), expected, valid * TOKEN_BYTES) == 0,
              "the page holds what its tokens give");
    }
}

/*
 * Caches the first n tokens behind the whole pages of the head, which is then a lease of all n. Pages never change:
 * if the head's last page is not full, a new one takes its place, and what it holds is copied, not computed.
 */
static void cache_up_to(kvshm *kv, const uint32_t *tokens, uint32_t n, struct kvshm_lease *head,
                        unsigned flags)
{
    uint32_t whole = head->tokens / PAGE_TOKENS;
    uint32_t pages = kvshm_pages_for_tokens(n, PAGE_TOKENS) - whole;
    struct kvshm_reservation r;
    struct kvshm_prefix prefix;

    check(kvshm_reserve(kv, pages, 0, &r) == 0, "there are frames");
    if (whole < head->pages)
        memcpy(kvshm_reservation_page(&r, 0), kvshm_lease_page(head, whole), PAGE_BYTES);
    for (uint32_t i = 0; i < pages; i++)
        compute_page(tokens, head->tokens, n, whole + i, kvshm_reservation_page(&r, i));
    kvshm_prefix_init(&prefix, 0, 0, tokens, n);
    /* 0, or KVSHM_EXISTS: another server was faster, its pages are used and our frames go back. */
    check(kvshm_insert(kv, &prefix, head, &r, flags | KVSHM_HOLD) >= 0, "the chunk is cached");
    check(head->tokens == n, "the head is a lease of all that is cached");
}

/* Takes a request: the prompt, then tokens that are generated. How many had to be computed. */
static uint32_t serve(kvshm *kv, const uint32_t *tokens, uint32_t prompt_tokens, uint32_t generated)
{
    uint32_t end = prompt_tokens + generated;
    unsigned flags = 0; /* what is first inserted names an entry of our own, which then grows */
    struct kvshm_prefix prefix;
    struct kvshm_lease head;

    kvshm_prefix_init(&prefix, 0, 0, tokens, prompt_tokens);
    check(kvshm_match(kv, &prefix, 0, &head) >= 0,
          "there is an answer"); /* KVSHM_MISS: the head is empty */
    check_pages(&head, tokens);
    uint32_t computed = end - head.tokens;

    while (head.tokens < end) {
        bool prefill = head.tokens < prompt_tokens;
        uint32_t limit = prefill ? prompt_tokens : end;
        uint32_t n =
            head.tokens - head.tokens % PAGE_TOKENS + (prefill ? CHUNK_TOKENS : PAGE_TOKENS);

        cache_up_to(kv, tokens, n < limit ? n : limit, &head, flags);
        flags = KVSHM_EXTEND;
    }
    check_pages(&head, tokens);
    kvshm_release(kv, &head);
    return computed;
}

/* A server process that takes one request, of which it should have to compute so many tokens. */
static void run_server(const char *label, uint32_t prompt, uint32_t generated, uint32_t expected)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        uint32_t tokens[PROMPT_TOKENS + GENERATED_TOKENS];
        kvshm *kv = open_arena(label);

        make_tokens(prompt, tokens, PROMPT_TOKENS + GENERATED_TOKENS);
        uint32_t computed = serve(kv, tokens, PROMPT_TOKENS, generated);
        printf("%s: prompt %u, %d + %u tokens, %u of them computed\n", label, prompt, PROMPT_TOKENS,
               generated, computed);
        check(computed == expected, "only what no server has computed yet is computed");
        check(kvshm_detach(kv) == 0, "the server detaches");
        exit(0);
    }
    check(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "the server had no complaint");
}

static void check_arena(kvshm *kv, uint64_t entries, uint64_t pages)
{
    struct kvshm_info info;

    kvshm_info_init(&info);
    check(kvshm_info(kv, &info) == 0, "the arena says what it holds");
    check(info.entries == entries, "a prompt is one entry, however many chunks it came in");
    check(info.pages == pages, "what prompts have in common is there once");
}

int main(void)
{
    kvshm *kv = open_arena("watcher");

    run_server(
        "server 1", 0, 0,
        PROMPT_TOKENS); /* nothing is cached: 4 chunks, 15 whole pages and one of 40 tokens */
    check_arena(kv, 1, 16);
    run_server("server 2", 1, 0,
               PROMPT_TOKENS - 576); /* of the 600 tokens in common 9 pages are whole */
    check_arena(kv, 2, 16 + 7);
    run_server("server 2", 0, GENERATED_TOKENS,
               GENERATED_TOKENS); /* server 1 has computed all of the prompt */
    check_arena(kv, 3, 16 + 7 + 3);

    check(kvshm_detach(kv) == 0 && kvshm_unlink(ARENA, 0) == 0, "the arena is removed");
    return 0;
}
