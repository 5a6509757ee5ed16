/* SPDX-License-Identifier: Apache-2.0 */
/*
 * differ.h - a run of random calls to the library and to the model, and what is compared between them
 *
 * check_differential.c makes the calls. Here are the prompts they are about and the comparisons; a difference ends the
 * test with the seed, the step, the call and both answers.
 */
#ifndef KVSHM_TESTS_DIFFER_H
#define KVSHM_TESTS_DIFFER_H

#include "model.h"
#include "support.h"

#define HANDLES    2
#define SLOTS      6
#define PENDING    2
#define DEPTH      5
#define PAGE_BYTES 64
#define MANY       300 /* entries, from where on more are evicted than inserted */

struct setting {
    uint32_t page_tokens;
    uint64_t capacity;
    uint64_t frames;
};

struct slot {
    struct kvshm_lease lease;
    struct model_lease model;
    unsigned handle;
};

struct pending {
    struct kvshm_reservation reservation;
    uint64_t epoch;
    unsigned handle;
};

struct run {
    const struct setting *setting;
    uint64_t seed;
    uint64_t random;
    uint64_t calls;
    struct model model;
    kvshm *kv[HANDLES];
    kvshm *observer;
    struct slot slot[SLOTS];
    struct pending pending[PENDING];
    uint64_t reserved;   /* frames */
    uint64_t last_stamp; /* the latest of all entries that were ever touched */
    uint64_t contents;   /* inserts so far */
    /* the call, for the report */
    const char *verb;
    unsigned flags;
    unsigned handle; /* HANDLES: the observer */
    struct kvshm_prefix prefix;
    uint32_t tokens[MODEL_TOKENS_MAX];
};

/* Ends the test unless answer is what was expected. */
void differ_same(const struct run *r, const char *what, int64_t answer, int64_t expected);
void differ_all_zero(const struct run *r, const char *what, const void *bytes, size_t n);

/* A random number below limit. */
uint64_t differ_chance(struct run *r, uint64_t limit);

/* ---- Prompts: into r->prefix and r->tokens -------------------------------------------------------------- */

/* Tokens at .. n - 1. */
void differ_random_tokens(struct run *r, uint32_t at, uint32_t n);
/* near: often that of an entry, or a longer or a shorter one. */
void differ_random_prefix(struct run *r, bool near);
void differ_prefix_of_entry(struct kvshm_prefix *prefix, const struct model_entry *e);

/* ---- Bytes ---------------------------------------------------------------------------------------------- */

/* The tokens from the first to the last of the page; how many. Of a key-only page: what its bytes are made from. */
uint32_t differ_page_words(uint32_t *words, const struct model_page *page);
void differ_same_bytes(const struct run *r, const void *bytes, const struct model_page *page);
/* Each page of a lease has the bytes of its tokens. */
void differ_same_pages(const struct run *r, const struct kvshm_lease *lease,
                       const struct model_lease *m);
/* Fills the frames of a reservation as pages first .. of r->prefix. */
void differ_fill(struct run *r, const struct kvshm_reservation *reservation, uint32_t first);

/* ---- Counts and order ------------------------------------------------------------------------------------ */

uint64_t differ_frames_free(const struct run *r);
void differ_same_counts(struct run *r);
/* All entries, in the order of their last use. */
void differ_same_order(const struct run *r);

#endif /* KVSHM_TESTS_DIFFER_H */
