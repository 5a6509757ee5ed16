/* SPDX-License-Identifier: Apache-2.0 */
#include "reap.h"

#include <errno.h>
#include <string.h>

#include "client.h"
#include "config.h"
#include "evict.h"
#include "frames.h"
#include "mend.h"
#include "message.h"

int kvshm__setting_set(kvshm *kv, const char *name, uint64_t value)
{
    struct kvshm_settings *settings = &kv->header->settings;
    bool capacity = strcmp(name, "capacity") == 0, done = false;
    int err;

    if (!capacity && strcmp(name, "stall_ms") != 0)
        return kvshm__fail(-EINVAL, "there is no setting %s; there are capacity and stall_ms", name);
    if (!capacity && value > KVSHM__STALL_MS_MAX)
        return kvshm__fail(-EINVAL, "stall_ms %llu is more than %u, an hour", (unsigned long long)value, KVSHM__STALL_MS_MAX);
    err = kvshm__mend_lock(kv);
    if (err)
        return err;
    KVSHM__STORE(capacity ? &settings->capacity : &settings->stall_ms, value);
    kvshm__mend_unlock(kv);
    /* In slices; what is left if we die here is dropped by the inserts of others. */
    while (capacity && !done && (err = kvshm__mend_lock(kv)) == 0) {
        done = kvshm__evict_to_capacity(kv, KVSHM__CAPACITY_SLICE);
        kvshm__mend_unlock(kv);
    }
    return err;
}

static int64_t reap_client(kvshm *kv, uint64_t client)
{
    char who[KVSHM__CLIENT_WORDS];

    if (client != 0 && kvshm__client_counts(kv, client))
        return kvshm__fail(-EBUSY, "client %llu, %s, is alive, or joined by one that is; its frames are its own",
                           (unsigned long long)client, kvshm__client_describe(kv, client, who, sizeof(who)));
    return (int64_t)kvshm__frames_sweep(kv, client);
}

static int64_t reap_label(kvshm *kv, const char *label)
{
    char own[KVSHM_LABEL_MAX + 1];
    int64_t back = 0;
    bool any = false;

    for (uint32_t i = 0; i < kv->max_clients; i++) {
        uint64_t number = KVSHM__LOAD_ACQ(&kv->clients[i].number);
        kvshm__client_label(&kv->clients[i], own);
        if (number == 0 || strcmp(own, label) != 0 || kvshm__client_counts(kv, number))
            continue;
        any = true;
        back += reap_client(kv, number);
    }
    return any ? back : kvshm__fail(-ENOENT, "no dead client of arena %s has the label %s", kv->name, label);
}

int64_t kvshm__reap(kvshm *kv, uint64_t client, const char *label)
{
    int err = kvshm__mend_lock(kv);
    int64_t back;

    if (err)
        return err;
    back = label ? reap_label(kv, label) : reap_client(kv, client);
    if (back >= 0)
        back += (int64_t)kvshm__evict_sweep_limbo(kv);
    kvshm__mend_unlock(kv);
    return back;
}
