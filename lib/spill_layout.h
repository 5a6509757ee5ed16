/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spill_layout.h - every byte of the spill file. Structs, constants, static asserts; no code.
 *
 * The file is four tables, one behind the other. A block is the unit of writing: what one write stores is a whole
 * number of blocks, and no block belongs to two owners, so that two processes never write the same one.
 *
 *   offset                  what                                             stride
 *   0                       struct kvshm_spill_header                        block_bytes
 *   block_bytes             struct kvshm_spill_epoch[epochs]                 block_bytes
 *   headers_offset          struct kvshm_slot_header[slots], with their text header_stride, a multiple of block_bytes
 *   payload_offset          payloads[slots]                                  payload_stride, a multiple of block_bytes
 *
 * All integers are in the byte order of the host, which the header states. All zero is the empty state of epochs and
 * slot headers. A power cut may leave any mixture of old and new sectors of 512 bytes of a write that was not yet
 * synced: header and epoch blocks have all they say in their first sector, and slot headers and payloads have checksums.
 *
 * Who may write what:
 *   the header     who holds the exclusive lock on KVSHM__SPILL_LOCK of the file
 *   epoch n        the client at place n of the arena; its shared lock keeps others from adopting the file
 *   slot n         the client that owns slot n in the arena's memory, payload first, header after it
 */
#ifndef KVSHM_SPILL_LAYOUT_H
#define KVSHM_SPILL_LAYOUT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "kvshm.h"

#define KVSHM__SPILL_MAGIC "KVSPILL\032"
#define KVSHM__SPILL_VERSION 1u
#define KVSHM__SPILL_BYTE_ORDER 0x01020304u
#define KVSHM__SPILL_SECTOR 512u

/* Block sizes: a power of two between these. */
#define KVSHM__SPILL_BLOCK_MIN 4096u
#define KVSHM__SPILL_BLOCK_MAX 65536u

#define KVSHM__SLOTS_MAX ((UINT64_C(1) << 28) - 1)
#define KVSHM__EPOCHS_MAX 4096u

/* The byte that is locked (open file description locks): shared by each client, exclusive by who adopts the file. */
#define KVSHM__SPILL_LOCK (UINT64_C(1) << 62)

/* Valid if and only if checksum is XXH3_64bits of the bytes before it. */
struct kvshm_spill_header {
    char magic[8];
    uint32_t version;
    uint32_t byte_order;
    uint32_t block_bytes;
    uint32_t header_stride;
    uint64_t payload_stride;
    uint64_t slots;
    uint64_t headers_offset;
    uint64_t payload_offset;
    uint64_t file_bytes;     /* end of the last payload; of a block device: what is used of it */
    uint64_t page_bytes;
    struct kvshm_geometry geometry;
    uint32_t epochs;         /* epoch blocks: client places of the arena that made the file */
    uint32_t has_fingerprint;
    uint8_t fingerprint[KVSHM_FINGERPRINT_BYTES];
    uint64_t file_id[2];     /* random, of this file for ever: part of the checksum of its slot headers */
    uint64_t arena_id[2];    /* of the arena that has adopted it; 0, 0: none yet */
    uint64_t created_ns;     /* CLOCK_REALTIME */
    uint64_t adopted_ns;
    uint8_t room[304];       /* 0 */
    uint64_t checksum;
};
static_assert(sizeof(struct kvshm_spill_header) == KVSHM__SPILL_SECTOR, "layout of the spill file");

/* Valid if and only if checksum is XXH3_64bits of the bytes before it; all zero: none. The largest epoch counts. */
struct kvshm_spill_epoch {
    uint64_t epoch;
    uint64_t file_id[2];
    uint64_t checksum;
};
static_assert(sizeof(struct kvshm_spill_epoch) == 32, "layout of the spill file");

/* Flags of a slot header. */
#define KVSHM__SLOT_ENTRY 0x1u    /* an entry ends at this page */
#define KVSHM__SLOT_KEY_ONLY 0x2u /* a page of a key-only entry: its text is the key, its depth its position */
#define KVSHM__SLOT_REMOVED 0x4u  /* one did, and was removed by its name */
#define KVSHM__SLOT_FLAGS 0x7u

#define KVSHM__SLOT_MAGIC 0x4b56534cu

/*
 * Says which page the payload of the same number is. Valid if and only if magic is KVSHM__SLOT_MAGIC, slot is its own
 * number, flags and counts are within their limits, and checksum is XXH3_64bits, seeded with file_id[0] of the file, of
 * all that stands behind it, the text too. The payload is valid if and only if payload_sum is XXH3_64bits of its
 * page_bytes bytes, as they were when the page was inserted.
 */
struct kvshm_slot_header {
    uint64_t checksum;
    uint32_t magic;          /* all zero: erased */
    uint32_t flags;
    uint64_t slot;
    uint64_t epoch;
    uint64_t page_id[2];     /* never used twice; not 0, 0 */
    uint64_t parent_id[2];   /* 0, 0: a root */
    uint64_t adapter_id;
    uint64_t tenant;
    uint32_t length;         /* tokens in this page, at least 1 */
    uint32_t depth;          /* pages above this one */
    uint64_t stamp;          /* recency of the entry that ends here, when this was written */
    uint64_t caller[2];      /* room: 16 bytes of the caller's */
    uint64_t payload_sum;
    uint64_t room[2];        /* 0 */
    uint64_t words[];        /* token ids, two a word, the last padded with 0; or the 32-byte key */
};
static_assert(sizeof(struct kvshm_slot_header) == 136, "layout of the spill file");

#endif /* KVSHM_SPILL_LAYOUT_H */
