/* SPDX-License-Identifier: Apache-2.0 */
#include "spilling.h"

#include <stdio.h>
#include <stdlib.h>

char spilling_path[300];

struct kvshm_config spilling_config(void)
{
    struct kvshm_config config = ts_config(IN_PAGE_BYTES, 4, SPILLING_FRAMES);

    snprintf(spilling_path, sizeof(spilling_path), "%s/spilled", getenv("KVSHM_DIR"));
    config.max_clients = 8;
    config.spill_path = spilling_path;
    config.spill_bytes = SPILLING_SLOTS * 8192u + 65536u;
    config.wait_ms = KVSHM_UNLIMITED;
    config.stall_ms = 200;
    return config;
}

kvshm *spilling_start(void)
{
    struct kvshm_config config = spilling_config();

    return ts_create("inside", &config);
}

void spilling_end(kvshm *kv)
{
    ts_detach(kv);
    ts_is(kvshm_unlink("inside", 0), 0);
}

kvshm *spilling_restart(kvshm *kv)
{
    spilling_end(kv);
    return spilling_start();
}

void spilling_leave_all(kvshm *kv)
{
    ts_is(kvshm_flush(kv), 0);
    for (unsigned i = 0; i < 10000 && in_free(kv) < SPILLING_FRAMES; i++)
        ck_assert_int_ge(kvshm_evict_lru(kv), 0);
    ck_assert_uint_eq(in_free(kv), SPILLING_FRAMES);
}

int spilling_peek(kvshm *kv, const struct kvshm_prefix *prefix)
{
    struct kvshm_lease lease;

    return kvshm_lookup(kv, prefix, KVSHM_PEEK, &lease);
}

void spilling_served(kvshm *kv, const struct kvshm_prefix *prefix)
{
    struct kvshm_lease lease;

    ts_is(kvshm_lookup(kv, prefix, KVSHM_WAIT, &lease), 0);
    ck_assert_uint_eq(lease.tokens, prefix->n);
    ck_assert_uint_eq(in_wrong(&lease, prefix), 0);
    kvshm_release(kv, &lease);
}

void spilling_put(kvshm *kv, const struct kvshm_prefix *prefix)
{
    ck_assert_int_ge(in_insert(kv, prefix, NULL, 0), 0);
}
