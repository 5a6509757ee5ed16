/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring_file.c - the memory and the files of tests of rings
 */
#include "ring_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support.h"
#include "sys.h"

const enum kvshm__engine tr_engines[] = {KVSHM__ENGINE_SYNC, KVSHM__ENGINE_RING,
                                         KVSHM__ENGINE_FIXED};

unsigned char *tr_memory, *tr_private;
int tr_file, tr_locks, tr_descriptor;

/* The test's folder is in memory; a disk that knows O_DIRECT is more likely elsewhere. */
void tr_setup(void)
{
    char folder[] = "/var/tmp/kvshm-check_ring.XXXXXX", path[300];

    ts_setup();
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/file", folder);
    tr_file = kvshm__sys.open(path, O_RDWR | O_CREAT | O_EXCL | O_DIRECT, 0600);
    if (tr_file == -EINVAL) {
        printf("no O_DIRECT in %s\n", folder);
        tr_file = kvshm__sys.open(path, O_RDWR | O_CREAT, 0600);
    }
    ck_assert_int_ge(tr_file, 0);
    unlink(path);
    rmdir(folder);
    ck_assert_int_eq(kvshm__sys.space(tr_file, 0, TR_FRAMES * TR_FRAME), 0);
    snprintf(path, sizeof(path), "%s/locks", getenv("KVSHM_DIR"));
    tr_locks = kvshm__sys.open(path, O_RDWR | O_CREAT, 0600);
    ck_assert_int_ge(tr_locks, 0);
    tr_memory = ts_shared(TR_FRAMES * TR_FRAME);
    tr_private = aligned_alloc(TR_BLOCK, TR_FRAME);
    ck_assert_ptr_nonnull(tr_private);
}

void tr_teardown(void)
{
    free(tr_private);
    munmap(tr_memory, TR_FRAMES * TR_FRAME);
    close(tr_locks);
    close(tr_file);
    ts_teardown();
}

struct kvshm__ring_setup tr_ring_setup(enum kvshm__engine best)
{
    return (struct kvshm__ring_setup){
        .file = tr_file,
        .quiet = tr_locks,
        .best = best,
        .depth = TR_DEPTH,
        .align = TR_BLOCK,
        .memory = tr_memory,
        .bytes = TR_FRAMES * TR_FRAME,
        .stride = TR_FRAME,
        .descriptor = &tr_descriptor,
    };
}

struct kvshm__ring *tr_open(enum kvshm__engine engine)
{
    struct kvshm__ring_setup wanted = tr_ring_setup(engine);
    struct kvshm__ring *ring;

    ts_is(kvshm__ring_open(&wanted, &ring), 0);
    ck_assert_msg(kvshm__ring_engine(ring) == engine, "%s", kvshm__ring_reason(ring));
    return ring;
}

/* The byte of a frame's content of that version. */
static unsigned char byte_of(uint32_t frame, uint32_t version, uint32_t at)
{
    return (unsigned char)((frame + 1) * 31 + version * 17 + at + at / TR_BLOCK * 5);
}

void tr_fill(unsigned char *to, uint32_t frame, uint32_t version)
{
    for (uint32_t at = 0; at < TR_FRAME; at++)
        to[at] = byte_of(frame, version, at);
}

uint32_t tr_wrong_bytes(const unsigned char *from, uint32_t frame, uint32_t version)
{
    uint32_t wrong = 0;

    for (uint32_t at = 0; at < TR_FRAME; at++)
        wrong += from[at] != byte_of(frame, version, at);
    return wrong;
}

int tr_take_one(struct kvshm__ring *ring, uint64_t cookie)
{
    struct kvshm__ring_done done = {0};

    ts_is(kvshm__ring_wait(ring, 1, &done, 1, -1), 1);
    ck_assert_uint_eq(done.cookie, cookie);
    return done.result;
}

void tr_round_trip(struct kvshm__ring *ring, uint32_t version)
{
    tr_fill(tr_memory, 3, version);
    ts_is(kvshm__ring_write(ring, tr_memory, TR_FRAME, 3 * TR_FRAME, 1), 0);
    ts_is(tr_take_one(ring, 1), 0);
    ts_is(kvshm__ring_sync(ring, 2), 0);
    ts_is(tr_take_one(ring, 2), 0);
    memset(tr_private, 0, TR_FRAME);
    ts_is(kvshm__ring_read(ring, tr_private, TR_FRAME, 3 * TR_FRAME, 3), 0);
    ts_is(tr_take_one(ring, 3), 0);
    ck_assert_uint_eq(tr_wrong_bytes(tr_private, 3, version), 0);
    ck_assert_uint_eq(kvshm__ring_in_flight(ring), 0);
}

void tr_close(struct kvshm__ring *ring)
{
    ts_is(kvshm__ring_close(ring), 0);
    ck_assert_int_eq(tr_descriptor, -1);
}
