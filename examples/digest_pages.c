/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest_pages - a server that knows pages by a digest, not by token ids.
 *
 * An image is one placeholder token, again and again: equal ids do not mean equal content. So this server makes a
 * 32-byte digest of each block of a prompt, chained: of the digest before it, the ids in it, and the images in it.
 * A digest is eight 32-bit words, so with page_tokens 8 each block is one page, and its words are its "tokens".
 * kvshm finds and compares them as it does tokens: prefixes are shared block by block, and all 256 bits count.
 *
 * Here 16 tokens of the model are a block; token_scale 2 lets the viewer show 16 for a page of eight words.
 *
 * Exit status 0: all of this was seen to be so.
 */
#include <err.h>
#include <kvshm.h>
#include <stdio.h>
#include <string.h>

#define ARENA        "example-digest-pages"
#define BLOCK_TOKENS 16
#define WORDS        8 /* of a digest */
#define BLOCKS       6
#define PAGE_BYTES   1000 /* opaque: any number */
#define IMAGE_TOKEN  7    /* stands for a piece of an image, whatever it shows */

/* A block of a prompt: ids of tokens, and what the image shows where they are IMAGE_TOKEN. */
struct block {
    uint32_t ids[BLOCK_TOKENS];
    char image[16];
};

static void check(bool right, const char *claim)
{
    if (!right)
        errx(1, "not so: %s; the last error was: %s", claim, kvshm_errmsg(NULL));
}

static uint32_t rotate(uint32_t x, int by)
{
    return x >> by | x << (32 - by);
}

/* One block of 64 bytes into the state of SHA-256 (FIPS 180-4). */
static void sha256_block(uint32_t state[WORDS], const unsigned char in[64])
{
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2,
    };
    uint32_t w[64], s[WORDS];

    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)in[4 * i] << 24 | in[4 * i + 1] << 16 | in[4 * i + 2] << 8 | in[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] +
               (rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, state, sizeof(s));
    for (int i = 0; i < 64; i++) {
        uint32_t t1 = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) +
                      ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
        uint32_t t2 = (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) +
                      ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));

        memmove(s + 1, s, 7 * sizeof(s[0]));
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < WORDS; i++)
        state[i] += s[i];
}

/* SHA-256 of n bytes, at most 119: two blocks. A server has this from a library, for any length. */
static void sha256(const void *data, size_t n, uint32_t digest[WORDS])
{
    static const uint32_t start[WORDS] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    unsigned char padded[128] = {0};
    size_t length = n < 56 ? 64 : 128;

    memcpy(padded, data, n);
    padded[n] = 0x80;
    padded[length - 2] = (unsigned char)(n * 8 >> 8);
    padded[length - 1] = (unsigned char)(n * 8);
    memcpy(digest, start, sizeof(start));
    for (size_t i = 0; i < length; i += 64)
        sha256_block(digest, padded + i);
}

/* The words of all blocks, each digest chained to the one before it. */
static void chain_digests(const struct block *blocks, uint32_t n, uint32_t words[])
{
    struct {
        uint32_t before[WORDS];
        uint32_t ids[BLOCK_TOKENS];
        char image[16];
    } input;

    for (uint32_t i = 0; i < n; i++) {
        memset(&input, 0, sizeof(input));
        if (i > 0)
            memcpy(input.before, words + (i - 1) * WORDS, sizeof(input.before));
        memcpy(input.ids, blocks[i].ids, sizeof(input.ids));
        memcpy(input.image, blocks[i].image, sizeof(input.image));
        sha256(&input, sizeof(input), words + i * WORDS);
    }
}

/* The longest cached run of blocks from the first on, in blocks; each page is checked. */
static uint32_t cached_blocks(kvshm *kv, const struct block *blocks, uint32_t n)
{
    uint32_t words[BLOCKS * WORDS];
    struct kvshm_prefix prefix;
    struct kvshm_lease lease;

    chain_digests(blocks, n, words);
    kvshm_prefix_init(&prefix, 0, 0, words, n * WORDS);
    check(kvshm_match(kv, &prefix, 0, &lease) >= 0, "there is an answer");
    uint32_t found = lease.pages;
    for (uint32_t i = 0; i < found; i++)
        check(memcmp(kvshm_lease_page(&lease, i), words + i * WORDS, WORDS * sizeof(uint32_t)) == 0,
              "the page is that of the digest");
    kvshm_release(kv, &lease);
    return found;
}

/* Caches a prompt of n blocks. What is cached already is taken as the head; how many pages had to be filled. */
static uint32_t cache_prompt(kvshm *kv, const struct block *blocks, uint32_t n)
{
    uint32_t words[BLOCKS * WORDS];
    struct kvshm_reservation r = {0};
    struct kvshm_prefix prefix;
    struct kvshm_lease head;

    chain_digests(blocks, n, words);
    kvshm_prefix_init(&prefix, 0, 0, words, n * WORDS);
    check(kvshm_match(kv, &prefix, 0, &head) >= 0, "there is an answer");
    uint32_t missing = n - head.pages;
    if (missing > 0)
        check(kvshm_reserve(kv, missing, 0, &r) == 0, "there are frames");
    for (uint32_t i = 0; i < missing;
         i++) { /* here the server computes; the digest stands for what comes out */
        memset(kvshm_reservation_page(&r, i), 0, PAGE_BYTES);
        memcpy(kvshm_reservation_page(&r, i), words + (head.pages + i) * WORDS,
               WORDS * sizeof(words[0]));
    }
    check(kvshm_insert(kv, &prefix, &head, &r, 0) >= 0, "the prompt is cached");
    kvshm_release(kv, &head);
    return missing;
}

/* Text in blocks 0 and 1, an image in 2 and 3, a question about it in 4 and 5. The ids do not tell the image. */
static void make_prompt(struct block blocks[BLOCKS], const char *image)
{
    memset(blocks, 0, BLOCKS * sizeof(blocks[0]));
    for (uint32_t i = 0; i < BLOCKS; i++)
        for (uint32_t t = 0; t < BLOCK_TOKENS; t++)
            blocks[i].ids[t] = i == 2 || i == 3 ? IMAGE_TOKEN : 100 * i + t;
    snprintf(blocks[2].image, sizeof(blocks[2].image), "%s, top", image);
    snprintf(blocks[3].image, sizeof(blocks[3].image), "%s, bottom", image);
}

int main(void)
{
    static const uint32_t abc[WORDS] = {0xba7816bf, 0x8f01cfea, 0x414140de, 0x5dae2223,
                                        0xb00361a3, 0x96177a9c, 0xb410ff61, 0xf20015ad};
    struct block cat[BLOCKS], dog[BLOCKS];
    uint32_t digest[WORDS], cat_words[BLOCKS * WORDS], dog_words[BLOCKS * WORDS];
    struct kvshm_config config;
    kvshm *kv;

    sha256("abc", 3, digest);
    check(memcmp(digest, abc, sizeof(abc)) == 0, "the digest is SHA-256");

    kvshm_config_init(&config);
    config.geometry.page_tokens = WORDS;
    config.geometry.page_bytes = PAGE_BYTES;
    config.geometry.token_scale = BLOCK_TOKENS / WORDS;
    config.frames = 16;
    check(kvshm_create(ARENA, &config, 0, &kv) == 0, "the arena can be created");

    make_prompt(cat, "cat");
    make_prompt(dog, "dog");
    check(cache_prompt(kv, cat, BLOCKS) == BLOCKS, "nothing was cached");
    check(cached_blocks(kv, cat, BLOCKS) == BLOCKS, "the same prompt is cached");
    check(cached_blocks(kv, dog, BLOCKS) == 2,
          "equal ids with another image: only the text before it is");
    check(cached_blocks(kv, cat, 3) == 3, "a shorter prompt is cached");
    check(cache_prompt(kv, dog, BLOCKS) == BLOCKS - 2, "the text before the image is shared");
    check(cached_blocks(kv, dog, BLOCKS) == BLOCKS && cached_blocks(kv, cat, BLOCKS) == BLOCKS,
          "both are cached");

    /* The last blocks are equal. Their digests are not: each stands for all that is before it too. */
    chain_digests(cat, BLOCKS, cat_words);
    chain_digests(dog, BLOCKS, dog_words);
    check(memcmp(&cat[5], &dog[5], sizeof(cat[5])) == 0, "the last blocks are equal");
    check(memcmp(&cat_words[5 * WORDS], &dog_words[5 * WORDS], sizeof(digest)) != 0,
          "their digests are not");
    puts("two prompts with equal ids and different images share 2 of 6 pages, and no more");

    check(kvshm_detach(kv) == 0 && kvshm_unlink(ARENA, 0) == 0, "the arena is removed");
    return 0;
}
