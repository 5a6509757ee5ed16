/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring_file.h - what tests of rings work on: frames in memory, a file on a disk, a file of locks
 */
#ifndef KVSHM_TESTS_RING_FILE_H
#define KVSHM_TESTS_RING_FILE_H

#include <stdint.h>

#include "ring.h"

#define TR_BLOCK  4096u
#define TR_FRAME  (16 * TR_BLOCK)
#define TR_FRAMES 64u
#define TR_DEPTH  16u

/* The engines that this build has, from the plainest on. */
#ifdef KVSHM_LIBURING
enum { TR_ENGINES = 3 };
#else
enum { TR_ENGINES = 1 };
#endif
extern const enum kvshm__engine tr_engines[];

extern unsigned char *tr_memory;  /* shared, TR_FRAMES of TR_FRAME bytes; the ring's .memory */
extern unsigned char *tr_private; /* TR_FRAME bytes of other memory */
extern int tr_file; /* TR_FRAMES of TR_FRAME bytes, O_DIRECT where the disk knows it */
extern int tr_locks;
extern int tr_descriptor;

/* Fixtures of a checked test: all of the above. */
void tr_setup(void);
void tr_teardown(void);

/* A setup of a ring on the above; the ring that it gives, which has to be of this engine; its end, with nothing lost. */
struct kvshm__ring_setup tr_ring_setup(enum kvshm__engine best);
struct kvshm__ring *tr_open(enum kvshm__engine engine);
void tr_close(struct kvshm__ring *ring);

/* A frame's content of some version: write it, or count the bytes that differ. */
void tr_fill(unsigned char *to, uint32_t frame, uint32_t version);
uint32_t tr_wrong_bytes(const unsigned char *from, uint32_t frame, uint32_t version);

/* Wait for one result, whose cookie has to be this. */
int tr_take_one(struct kvshm__ring *ring, uint64_t cookie);

/* Write a frame from the ring's memory, sync, read it into other memory, and compare. */
void tr_round_trip(struct kvshm__ring *ring, uint32_t version);

#endif /* KVSHM_TESTS_RING_FILE_H */
