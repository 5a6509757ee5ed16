/* SPDX-License-Identifier: Apache-2.0 */
/*
 * errors.h - what the files of check_errors share
 *
 * FAILS demands the code, and that the sentence names the value; it notes the code for the last case of check_errors.c,
 * which knows all codes of errors.def.
 */
#ifndef KVSHM_TESTS_ERRORS_H
#define KVSHM_TESTS_ERRORS_H

#include "layout.h"
#include "support.h"

#define ERRORS_PAGE_BYTES  256
#define ERRORS_PAGE_TOKENS 4
#define ERRORS_FRAMES      16

/* Marks the code as provoked, in whichever process of the test. */
void errors_note(int64_t code);

#define FAILS(call, code, part) \
    do {                        \
        ts_is((call), (code));  \
        ts_says(part);          \
        errors_note(code);      \
    } while (0)

/* The sentence has the number. */
void errors_say_value(uint64_t value);

/* While set, the library gets no memory of the process's own (check_errors is linked with a wrapper of its call). */
extern bool errors_no_memory;

/* 1, 2, 3, ... */
extern const uint32_t errors_tokens[16];
struct kvshm_prefix errors_prefix(uint32_t n);

/* 16 pages of 256 bytes and 4 tokens. */
struct kvshm_config errors_config(void);

/* What an arena holds; errors_same_state() demands that it holds the same. */
struct errors_state {
    struct kvshm_info info;
    uint64_t stamps;
};
struct errors_state errors_state(kvshm *kv);
void errors_same_state(kvshm *kv, const struct errors_state *before);

/* The header of an arena's file, to be changed; then its checksum made anew. */
struct kvshm_header *errors_header(const char *name);
void errors_header_close(struct kvshm_header *header);
void errors_header_seal(struct kvshm_header *header);

/* The cases of errors_arena.c. */
void errors_add_arena_cases(TCase *tcase);

#endif /* KVSHM_TESTS_ERRORS_H */
