/* SPDX-License-Identifier: Apache-2.0 */
/*
 * damage.h - arenas with something in each section, what is changed in them, and the calls that then meet it.
 *
 * An image is the bytes of a segment at a moment when two clients are attached and a third has died. Written to a file, it
 * is an arena all of whose clients are dead; in the company DM_HELD two clients attach, lease and reserve before the change.
 *
 * What must hold, whatever is changed: each call ends, with an answer that kvshm.h names; nothing outside the mapping is
 * touched (it lies between pages without access); and the bytes of a hit are right. Right means:
 *
 *   A hit of tokens: page i holds what was filled in for (adapter, tenant, tokens up to the end of page i). There is no
 *   other way to be right, since equal identity is equal content: a changed token, length, parent or hash makes the page
 *   another page, or none, and then the prefix that was asked for is a miss.
 *   A hit of a key: all pages are of one filling of (adapter, tenant, key), each in its position. Which filling is what the
 *   tables say: an earlier one may come back when a changed word makes it the published one.
 *   A page may be refused instead, also under a lease: kvshm_lease_page() NULL, kvshm_lease_pages() 0.
 *
 * Nothing is claimed for the bytes of frames that were reserved before the change and are written after it, nor for addresses
 * that a lease gave before it: who holds those does not ask the tables again.
 */
#ifndef KVSHM_TESTS_DAMAGE_H
#define KVSHM_TESTS_DAMAGE_H

#include "inside.h"
#include "layout.h"

/* ---- Images --------------------------------------------------------------------------------------------- */

struct dm_shape {
    const char *name;
    uint32_t page_tokens, frames, max_leases;
    uint64_t capacity;
    bool fingerprint, shared_clock;
};
extern const struct dm_shape dm_shapes[];
#define DM_SHAPES 3u

struct dm_image {
    const struct dm_shape *shape;
    uint64_t bytes;
    uint8_t *data;
    uint64_t live, dead; /* numbers of a client that was alive, and of one that had died */
};

/* Make the arena, take its bytes, and remove it. The image is in memory that children share. */
void dm_make(struct dm_image *image, const struct dm_shape *shape);
void dm_free(struct dm_image *image);

/* The arena "damaged" with these bytes. */
void dm_write(const struct dm_image *image);

/* Names of prefixes; tokens stay good. */
enum {
    DM_A, /* two pages */
    DM_B, /* the same first page, another second one */
    DM_C, /* the same first page, a shorter second one */
    DM_D, /* one page; leased by the dead */
    DM_E, /* five pages and a token */
    DM_T, /* the tokens of DM_A, of another adapter and tenant */
    DM_H, /* the first page of DM_A: no entry */
    DM_Z, /* of the epoch before */
    DM_R, /* removed, and leased */
    DM_X, /* removed */
    DM_K, /* a key, three pages; its replaced ones are leased */
    DM_L, /* a key, one token */
    DM_Y, /* a key of the epoch before */
    DM_IN_IMAGE,
    DM_N = DM_IN_IMAGE, /* not in the image, like what follows */
    DM_G,               /* DM_A, a page and a token */
    DM_M,               /* a key */
    DM_P,               /* two pages */
    DM_NAMES
};
struct kvshm_prefix dm_name(const struct dm_shape *shape, unsigned name);

/* What a handle of the shape's arena expects. */
struct kvshm_config dm_expect(const struct dm_shape *shape);

/* ---- Changes -------------------------------------------------------------------------------------------- */

/* A run of bytes that is an item of a section, or a part of the header. */
struct dm_item {
    const char *kind; /* "record" ... */
    uint32_t number;
    uint64_t offset, length;
};

/* The items of an image that are changed byte by byte; how many. */
#define DM_ITEMS 1024u
unsigned dm_items(const struct dm_image *image, struct dm_item *items);

/* The values a byte is changed to: 0, 255, one more, one less, each bit; how many, without its own and without doubles. */
unsigned dm_values(uint8_t old, uint8_t values[12]);

/* ---- Calls ---------------------------------------------------------------------------------------------- */

enum dm_company {
    DM_READING, /* a read-only handle attaches to what was changed */
    DM_WRITING, /* two writing ones do */
    DM_MENDING, /* the same, and the dead client holds the writer lock: the first of them rebuilds */
    DM_HELD,    /* two are attached, and lease and reserve, while it is changed */
    DM_COMPANIES
};
extern const char *const dm_companies[];

enum dm_call {
    DM_ATTACH,
    DM_ATTACH_RDONLY,
    DM_CONTAINS,
    DM_LOOKUP,
    DM_MATCH,
    DM_PEEK,
    DM_PAGES,
    DM_COPY,
    DM_FOREACH,
    DM_INFO,
    DM_STATS,
    DM_RESERVE,
    DM_INSERT,
    DM_INSERT_HEAD,
    DM_EXTEND,
    DM_HOLD,
    DM_INSERT_KEY,
    DM_REMOVE,
    DM_EVICT,
    DM_CLEAR,
    DM_SET,
    DM_REAP,
    DM_JOIN,
    DM_LEAVE,
    DM_DETACH,
    DM_UNLINK,
    DM_CALLS
};

/* Shared by the workers and who starts them. */
#define DM_CODES 16u
struct dm_score {
    char doing[512]; /* the case of a worker that dies: what is changed, and which call is inside */
    const char *call;
    uint64_t cases, hits, pages, refused, wrong;
    uint64_t answers[DM_CALLS][DM_CODES];
};
extern struct dm_score *dm_score;

/*
 * One case, in this process: the image with n bytes changed meets all calls of the company. Faults are told on standard
 * error with .doing, and counted in .wrong. forge: the header's checksum is made right again.
 */
struct dm_change {
    uint64_t offset;
    uint8_t value;
};
void dm_meet(const struct dm_image *image, enum dm_company company, const struct dm_change *changes,
             unsigned n, bool forge);

/* Mappings of this process lie between pages without access from now on. */
void dm_guard(void);

/* Print what answered what. */
void dm_print(void);

#endif /* KVSHM_TESTS_DAMAGE_H */
