/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slow_file.h - a file whose reads and writes take as long as a test likes, move in parts, or fail
 *
 * It is served by a child of the test, over FUSE, and seen in a mount namespace that the test's process gets for it.
 * With O_DIRECT its transfers are like a disk's: they go on when the process that asked for them is gone.
 */
#ifndef KVSHM_TESTS_SLOW_FILE_H
#define KVSHM_TESTS_SLOW_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define TS_SLOW_BYTES (1 << 20)

/* Shared with the child that serves. A transfer is a request to read or to write; requests are of any kind. */
struct ts_slow_words {
    /* The test's: */
    _Atomic bool hold_before;    /* take no request */
    _Atomic bool hold_after;     /* take transfers, neither carry them out nor answer */
    _Atomic uint32_t part_bytes; /* a transfer moves so much at most; 0: all */
    _Atomic int error;           /* answer transfers and syncs with this errno, 0: not */
    _Atomic int error_times;     /* so often; -1: always */
    /* The server's: */
    _Atomic bool is_asked;              /* under hold_before a request waits */
    _Atomic unsigned taken;             /* transfers taken */
    _Atomic unsigned synced;            /* fsync and fdatasync */
    _Atomic unsigned released;          /* times that it was closed by the last who had it open */
    unsigned char bytes[TS_SLOW_BYTES]; /* what the file holds */
};

struct ts_slow {
    struct ts_slow_words *words;
    char path[300];
    pid_t server;
};

/*
 * Serve one in the test's folder, all zeros; in a checked test, whose process ends with it. false: it cannot be had
 * here, and why was printed as the skip of that case.
 */
bool ts_slow_make(struct ts_slow *slow, const char *case_name);
void ts_slow_end(struct ts_slow *slow);

/* Wait for what the server does. */
void ts_slow_until_asked(struct ts_slow *slow);
void ts_slow_until_taken(struct ts_slow *slow, unsigned n);

#endif /* KVSHM_TESTS_SLOW_FILE_H */
