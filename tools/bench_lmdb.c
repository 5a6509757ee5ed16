/* SPDX-License-Identifier: Apache-2.0 */
/* bench_lmdb.c - see bench_lmdb.h */
#include "bench_lmdb.h"

#ifdef KVSHM_LMDB

#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Puts of a write transaction. */
#define SLICE 65536u

struct bench_lmdb {
    char folder[512];
    MDB_env *env;
    MDB_dbi dbi;
    MDB_txn *reader; /* reset between gets */
    size_t value_bytes;
    uint8_t *value; /* what was got last */
};

const char *bench_lmdb_version(void)
{
    static char text[32];

    snprintf(text, sizeof(text), "LMDB %d.%d.%d", MDB_VERSION_MAJOR, MDB_VERSION_MINOR,
             MDB_VERSION_PATCH);
    return text;
}

static int failed(const char *what, int rc)
{
    if (rc)
        tool_error("LMDB, %s: %s", what, mdb_strerror(rc));
    return rc;
}

/* So many bytes hold the entries, whatever the order they come in. */
static size_t map_bytes(const struct bench_bed *bed, size_t value_bytes)
{
    return (size_t)bed->entries * (value_bytes + 64) * 3 + (16 << 20);
}

static int make_env(struct bench_lmdb *lmdb, const struct bench_bed *bed)
{
    const char *parent = getenv("TMPDIR");
    int rc;

    snprintf(lmdb->folder, sizeof(lmdb->folder), "%s/kvshm-bench-lmdb-XXXXXX",
             parent && *parent ? parent : "/dev/shm");
    if (!mkdtemp(lmdb->folder)) {
        tool_error("a folder for LMDB, %s: %m", lmdb->folder);
        lmdb->folder[0] = 0;
        return -1;
    }
    if (failed("create", rc = mdb_env_create(&lmdb->env)) ||
        failed("map size", rc = mdb_env_set_mapsize(lmdb->env, map_bytes(bed, lmdb->value_bytes))))
        return rc;
    return failed("open", mdb_env_open(lmdb->env, lmdb->folder, MDB_NOSYNC | MDB_NOMETASYNC, 0600));
}

static int put_some(struct bench_lmdb *lmdb, struct bench_bed *bed, uint64_t first, uint64_t end)
{
    MDB_txn *txn;
    int rc = failed("begin", mdb_txn_begin(lmdb->env, NULL, 0, &txn));

    if (rc)
        return rc;
    rc = failed("database", mdb_dbi_open(txn, NULL, 0, &lmdb->dbi));
    for (uint64_t i = first; rc == 0 && i < end; i++) {
        bench_bed_prefix(bed, i, 0);
        MDB_val key = {KVSHM_KEY_BYTES, bed->prefixes[0].key};
        MDB_val value = {lmdb->value_bytes, lmdb->value};
        rc = failed("put", mdb_put(txn, lmdb->dbi, &key, &value, 0));
    }
    if (rc) {
        mdb_txn_abort(txn);
        return rc;
    }
    return failed("commit", mdb_txn_commit(txn));
}

static int put_all(struct bench_lmdb *lmdb, struct bench_bed *bed)
{
    int rc = 0;

    for (uint64_t i = 0; rc == 0 && i < bed->entries && !bench_bed_interrupted(bed); i += SLICE)
        rc = put_some(lmdb, bed, i, i + SLICE < bed->entries ? i + SLICE : bed->entries);
    if (rc == 0)
        rc = bed->signal;
    if (rc == 0)
        rc = failed("begin", mdb_txn_begin(lmdb->env, NULL, MDB_RDONLY, &lmdb->reader));
    if (rc == 0)
        mdb_txn_reset(lmdb->reader);
    return rc;
}

struct bench_lmdb *bench_lmdb_open(struct bench_bed *bed)
{
    struct bench_lmdb *lmdb = calloc(1, sizeof(*lmdb));

    if (!lmdb)
        return NULL;
    lmdb->value_bytes = bed->options->pages * sizeof(uint64_t) + 16;
    lmdb->value = calloc(1, lmdb->value_bytes);
    if (lmdb->value && make_env(lmdb, bed) == 0 && put_all(lmdb, bed) == 0)
        return lmdb;
    bench_lmdb_close(lmdb);
    return NULL;
}

void bench_lmdb_close(struct bench_lmdb *lmdb)
{
    char path[sizeof(lmdb->folder) + 16];

    if (!lmdb)
        return;
    mdb_txn_abort(lmdb->reader);
    if (lmdb->env)
        mdb_env_close(lmdb->env);
    if (lmdb->folder[0]) {
        snprintf(path, sizeof(path), "%s/data.mdb", lmdb->folder);
        unlink(path);
        snprintf(path, sizeof(path), "%s/lock.mdb", lmdb->folder);
        unlink(path);
        rmdir(lmdb->folder);
    }
    free(lmdb->value);
    free(lmdb);
}

uint64_t bench_lmdb_get(struct bench_lmdb *lmdb, const struct bench_bed *bed, uint32_t n)
{
    uint64_t hits = 0, began_ns = bench_now_ns(), ns;

    for (uint32_t i = 0; i < n; i++) {
        MDB_val key = {KVSHM_KEY_BYTES, (void *)bed->prefixes[i].key}, value;
        if (mdb_txn_renew(lmdb->reader) == 0 &&
            mdb_get(lmdb->reader, lmdb->dbi, &key, &value) == 0 &&
            value.mv_size == lmdb->value_bytes) {
            memcpy(lmdb->value, value.mv_data, lmdb->value_bytes);
            hits++;
        }
        mdb_txn_reset(lmdb->reader);
    }
    ns = bench_now_ns() - began_ns;
    if (hits == n)
        return ns ? ns : 1;
    tool_error("LMDB: %llu of %u gets found their key", (unsigned long long)hits, n);
    return 0;
}

#else /* built without it */

const char *bench_lmdb_version(void)
{
    return NULL;
}

struct bench_lmdb *bench_lmdb_open(struct bench_bed *bed)
{
    (void)bed;
    return NULL;
}

void bench_lmdb_close(struct bench_lmdb *lmdb)
{
    (void)lmdb;
}

uint64_t bench_lmdb_get(struct bench_lmdb *lmdb, const struct bench_bed *bed, uint32_t n)
{
    (void)lmdb, (void)bed, (void)n;
    return 0;
}

#endif
