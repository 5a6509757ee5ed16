/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h - a segment's bytes, as a process sees them that is no client of it, and what they were at its last look.
 */
#ifndef KVSHM_TESTS_WATCH_H
#define KVSHM_TESTS_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct watch {
    const uint8_t *now;
    uint8_t *last;
    size_t bytes;
    size_t watched; /* of them, from the first: all, or all before the frames */
};

/* The arena of that name in KVSHM_DIR; false: there is none. */
bool watch_begin(struct watch *w, const char *name, bool frames);

/* Is anything watched other than at the last look? Then this is one. Also if w watches nothing: false. */
bool watch_changed(struct watch *w);

void watch_end(struct watch *w);

#endif /* KVSHM_TESTS_WATCH_H */
