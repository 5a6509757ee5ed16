/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spill_file.h - a file of slots: made, opened, adopted, swept.
 *
 * Owns what spill_layout.h describes: where things are, whose the file is, which slot headers are valid. It moves no
 * payload, and knows no frames and no records.
 *
 * Invariants
 * K1  Nobody ever sees a half-made spill file: a new one is built nameless, synced, and linked; in a device or an empty
 *     file the header, which makes it one, is written last, under the exclusive lock.
 * K2  A file is adopted only under the exclusive lock: no client of another arena uses it then. Who follows takes the
 *     shared lock first and reads the arena's id after it.
 * K3  What is in the file is input: a header counts only if its checksum is right for this file and this slot.
 */
#ifndef KVSHM_SPILL_FILE_H
#define KVSHM_SPILL_FILE_H

#include <stdbool.h>

#include "spill_layout.h"

/* Where things are, in bytes from the file's first. */
struct kvshm__spill_shape {
    uint32_t block_bytes;
    uint32_t header_stride;
    uint64_t payload_stride;
    uint64_t slots;
    uint32_t epochs;
    uint64_t headers_offset;
    uint64_t payload_offset;
    uint64_t file_bytes;
};

/* What a file is to hold. */
struct kvshm__spill_want {
    struct kvshm_geometry geometry;
    uint64_t page_bytes;
    uint64_t budget_bytes; /* of the file, at most; for a file to be made */
    uint32_t epochs;       /* client places; for a file to be made */
    bool named_fingerprint;
    uint8_t fingerprint[KVSHM_FINGERPRINT_BYTES];
};

struct kvshm__spill_file {
    int fd;                /* the lock is its; -1: none */
    bool direct;           /* opened with O_DIRECT */
    bool made;             /* the path was nobody's before */
    uint32_t memory_align; /* of what is read and written */
    struct kvshm_spill_header header;
    struct kvshm__spill_shape shape;
};

/* The shape of as many slots as the budget holds: 0, or -EINVAL with what one page takes. block_bytes: a block size. */
int kvshm__spill_shape_make(const struct kvshm__spill_want *want, uint32_t block_bytes,
                            struct kvshm__spill_shape *shape);

/*
 * Make the file at path, which does not exist, or is empty, or is a block device that begins with 4096 zeros. No arena
 * has adopted it yet; this descriptor has the shared lock. -EEXIST: there is something.
 */
int kvshm__spill_make(const char *path, const struct kvshm__spill_want *want, struct kvshm__spill_file *file);

/*
 * Open and check the file at path, and take the shared lock. want may be NULL; else its geometry, page_bytes and
 * fingerprint have to be the file's, or neither names one. No symbolic link is followed.
 */
int kvshm__spill_open(const char *path, const struct kvshm__spill_want *want, struct kvshm__spill_file *file);

/* The file is this arena's from now on, durably. -EBUSY: someone else has it open. */
int kvshm__spill_adopt(struct kvshm__spill_file *file, const char *path, const uint64_t arena_id[2]);

/* What the file will hold from now on is of this fingerprint, durably. 0, KVSHM_E_FINGERPRINT: it has another; or -errno. */
int kvshm__spill_name(struct kvshm__spill_file *file, const char *path, const uint8_t *fingerprint);

/* Is it this arena's, read again under the shared lock? 0, or -ESTALE. */
int kvshm__spill_follow(struct kvshm__spill_file *file, const char *path, const uint64_t arena_id[2]);

void kvshm__spill_close(struct kvshm__spill_file *file);

/* ---- Epochs ------------------------------------------------------------------------------------------------- */

/* The largest valid epoch; 0: none. */
int kvshm__spill_epoch_read(const struct kvshm__spill_file *file, uint64_t *largest);

/* Store the epoch at place (of a client), and return when it is durable. */
int kvshm__spill_epoch_write(const struct kvshm__spill_file *file, uint32_t place, uint64_t epoch);

/* ---- Slot headers ------------------------------------------------------------------------------------------- */

static inline uint64_t kvshm__spill_header_offset(const struct kvshm__spill_shape *shape, uint64_t slot)
{
    return shape->headers_offset + slot * shape->header_stride;
}

static inline uint64_t kvshm__spill_payload_offset(const struct kvshm__spill_shape *shape, uint64_t slot)
{
    return shape->payload_offset + slot * shape->payload_stride;
}

/* 64-bit words of text behind a header of these flags and this length. */
static inline uint32_t kvshm__slot_words(uint32_t flags, uint32_t length)
{
    return flags & KVSHM__SLOT_KEY_ONLY ? KVSHM_KEY_BYTES / 8 : length / 2 + length % 2;
}

/* Fill in magic and checksum of a header that is else complete. */
void kvshm__slot_seal(const struct kvshm__spill_file *file, struct kvshm_slot_header *header);

/* Is what stands at a slot valid there? */
bool kvshm__slot_valid(const struct kvshm__spill_file *file, uint64_t slot, const struct kvshm_slot_header *header);

uint64_t kvshm__payload_sum(const void *payload, uint64_t page_bytes);

/* Nothing stands at n slots from this one on any more; durable with the next sync. 0 or -errno. */
int kvshm__spill_erase(const struct kvshm__spill_file *file, uint64_t slot, unsigned n);

/* The payload of a slot that nobody has takes no space in the file any more; a file system that cannot do that keeps it. */
void kvshm__spill_punch(const struct kvshm__spill_file *file, uint64_t slot);

/* A header that is sealed goes to its slot, durable with the next sync. 0 or -errno. */
int kvshm__spill_header_write(const struct kvshm__spill_file *file, const struct kvshm_slot_header *header);

/* What a sweep saw. */
struct kvshm__spill_swept {
    uint64_t valid, erased;
    uint64_t damaged;    /* neither */
    uint64_t unreadable; /* the disk refused */
};

/* Called with each valid header, in the order of slots; the header is good for the call. Not 0 ends the sweep. */
typedef int kvshm__spill_visit_fn(void *arg, const struct kvshm_slot_header *header);

/* Read the whole table once, in large reads. A disk that refuses a read costs the headers that it refuses. */
int kvshm__spill_sweep(const struct kvshm__spill_file *file, kvshm__spill_visit_fn *visit, void *arg,
                       struct kvshm__spill_swept *swept);

#endif /* KVSHM_SPILL_FILE_H */
