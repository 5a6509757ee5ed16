/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_lmdb.h - the peer of lookups by key: a database of LMDB in shared memory.
 *
 * Its keys are the entries' 32 bytes, its values what a lookup gives: the offset of each page, 8 bytes each, and 16
 * bytes for tokens, pages and last use. A get is what LMDB's users do: the read transaction of this process is
 * renewed, mdb_get, the value is copied (it is good only until the transaction ends), and the transaction is reset.
 */
#ifndef BENCH_LMDB_H
#define BENCH_LMDB_H

#include "bench_bed.h"

/* Was the peer there when this was built? */
#ifdef KVSHM_LMDB
#define BENCH_LMDB true
#else
#define BENCH_LMDB false
#endif

struct bench_lmdb;

/* "LMDB 0.9.24"; NULL if this was built without it. */
const char *bench_lmdb_version(void);

/* A database with the keys of the bed's entries, in TMPDIR or else /dev/shm. NULL after a message. */
struct bench_lmdb *bench_lmdb_open(struct bench_bed *bed);

/* Remove it. NULL: nothing. */
void bench_lmdb_close(struct bench_lmdb *lmdb);

/* Get the keys of the bed's batch. ns in all; 0 after a message. */
uint64_t bench_lmdb_get(struct bench_lmdb *lmdb, const struct bench_bed *bed, uint32_t n);

#endif /* BENCH_LMDB_H */
