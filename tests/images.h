/* SPDX-License-Identifier: Apache-2.0 */
/*
 * images.h - what a client leaves in the segment when it dies at an instruction, and what others make of it.
 *
 * A scene is an arena of some shape and one call on it, the deed. A child makes it and is stepped through the deed; an
 * image is the segment's bytes between two of its instructions. A copy of an image is another file, in which nobody
 * holds a lock: all its clients are dead, but for one, "the other", whose locks can be taken on the copy.
 */
#ifndef KVSHM_TESTS_IMAGES_H
#define KVSHM_TESTS_IMAGES_H

#include "inside.h"

/* ---- Scenes -------------------------------------------------------------------------------------------- */

enum im_shape {
    IM_EMPTY,
    IM_FULL,     /* every frame reserved or published */
    IM_LEASED,   /* the same, and every entry leased */
    IM_HEADS,    /* entries with common heads */
    IM_LIMBO,    /* the same; some removed while leased, one of these released since */
    IM_CAPACITY, /* as many entries as capacity allows */
    IM_CLEARED,  /* pages of an earlier epoch are leased, others have come since */
    IM_ORPHANS,  /* a client died with leases and reservations, one of them KVSHM_DEVICE */
    IM_CROWDED,  /* no index word is left in two buckets */
    IM_SHAPES
};

#define IM_TOKENS_MAX 32u
#define IM_NAMES      48u

/* Prefixes of which a scene knows whether they are cached. */
enum {
    IM_A,      /* two pages */
    IM_B,      /* the same first page, another second one */
    IM_C,      /* the same first page, half a second one */
    IM_D,      /* one page */
    IM_E,      /* two pages and one token */
    IM_G,      /* IM_A, a page and a token more */
    IM_H,      /* the first page of IM_A */
    IM_N,      /* two pages and a half */
    IM_K,      /* a key, two pages */
    IM_K_NEW,  /* the same key, three pages */
    IM_L,      /* another key, one token */
    IM_FILLER, /* and on: one page each; behind them those that are made to crowd */
};

struct im_scene {
    unsigned deed;
    enum im_shape shape;
    uint32_t page_tokens; /* 2, 4 or 8 */
    uint32_t frames;
    uint32_t max_clients;
    uint64_t seed;
};

/* What the call may do to the entries that are served, as bits of im_names(). */
enum im_rule {
    IM_SAME,    /* nothing */
    IM_BETWEEN, /* each changes once, from before to after */
    IM_ATOMIC,  /* all change in one step */
    IM_REPLACES, /* exactly one of .old and .new, always, if .old was there; the rest as IM_BETWEEN */
    IM_EXTENDS, /* at least one of them */
};

struct im_deed {
    const char *name;
    enum im_rule rule;
    unsigned old_name, new_name; /* IM_REPLACES, IM_EXTENDS */
    int names;                   /* 1: it gives the arena its name, -1: it takes it away */
    bool frames;                 /* it writes into frames */
    bool fingerprint;            /* it names one */
    bool
        capacity; /* it makes capacity smaller: without the lock, entries may be more for a while */
};

const struct im_deed *im_deed(unsigned deed); /* NULL: past the last */
const char *im_shape(enum im_shape shape);

/* Is there such a scene? Deeds that bring their own shape are done in IM_EMPTY or IM_CROWDED alone. */
bool im_possible(const struct im_scene *scene);

/* What the child tells: shared memory, made before it. */
struct im_told {
    uint64_t client,
        other;      /* numbers of who does the deed, or has done all before it, and of the other */
    int64_t answer; /* of the call */
    uint32_t crowd[IN_CROWD][4]; /* tokens of im_names() that are made to crowd */
};

/* The prefixes of which a scene knows whether they are cached; n = 0: none of this number. Tokens stay good. */
struct kvshm_prefix im_name(const struct im_scene *scene, const struct im_told *told,
                            unsigned name);

/* The child: makes the scene, does the deed between two marks of step.h, exits 0. */
struct im_play {
    struct im_scene scene;
    struct im_told *told;
};
int im_perform(void *play);

/* A client that attaches to the arena of that name and takes the lock, between two marks. */
int im_mender(void *name);

/* The fingerprint of the scenes that have one; taken: the other one. */
struct kvshm_config im_expect(bool other);

/* ---- Recovery ------------------------------------------------------------------------------------------- */

enum im_company {
    IM_ALONE,   /* all clients of the image are dead */
    IM_READING, /* the same; who recovers it holds a lease of an entry meanwhile */
    IM_OTHER,   /* the other lives */
    IM_JOINED,  /* the other lives, and has joined who did the deed */
    IM_COMPANIES
};

/* What is being looked at, for whoever reads of a fault. */
struct im_case {
    const struct im_play *play;
    uint64_t instruction, image,
        rebuild[2];        /* the change of a rebuild, and of the rebuild after it */
    const uint8_t *origin; /* of a rebuild's image: the image that it mends; else NULL */
};

/* Faults found so far. Each is told with its case; too many end the test. */
extern uint64_t im_wrong;
void im_found(const struct im_case *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * Copies the image, attaches, reads, writes, and checks that nothing is torn, wrong or lost, and that the arena is good
 * for as many new entries as it has frames. Answers which of the scene's names were cached in it, as bits.
 */
uint64_t im_recover(const struct im_case *c, const uint8_t *image, size_t bytes,
                    enum im_company company);

/* Were there more entries served than the image's capacity, and are the others left now, or, if not all, some of them? */
bool im_may_leave(const uint8_t *image, uint64_t served, uint64_t now, bool all);

/* The client number in the image's lock word. */
uint64_t im_lock(const uint8_t *image);

/*
 * Write an image to the arena file of that name, for such a company (changed to IM_ALONE if the image knows no other).
 * The descriptor that holds the other's locks, to be closed; -1: none.
 */
int im_write(const char *name, uint8_t *image, size_t bytes, const struct im_told *told,
             enum im_company *company);

#endif /* KVSHM_TESTS_IMAGES_H */
