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
#include "slots.h"
#include "spill.h"
#include "tier.h"

/* A setting, and the most that it may be. */
struct setting {
    const char *name;
    size_t at; /* in struct kvshm_settings */
    uint64_t most;
    const char *limit; /* in words */
};

#define AT(field) offsetof(struct kvshm_settings, field)

static const struct setting settings[] = {
    {"capacity", AT(capacity), UINT64_MAX, ""},
    {"stall_ms", AT(stall_ms), KVSHM__STALL_MS_MAX, "3600000, an hour"},
    {"wait_ms", AT(wait_ms), UINT64_MAX, ""},
    {"admission", AT(admission), KVSHM_ADMIT_REUSED, "1; all is 0, reused is 1"},
    {"spill_bytes", AT(spill_bytes), UINT64_MAX, ""},
};

static const struct setting *find_setting(const char *name)
{
    for (unsigned i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        if (strcmp(settings[i].name, name) == 0)
            return &settings[i];
    }
    kvshm__fail(-EINVAL,
                "there is no setting %s; there are capacity, stall_ms, wait_ms, admission and spill_bytes", name);
    return NULL;
}

static int check_spill_bytes(kvshm *kv, uint64_t value)
{
    uint64_t file_bytes = kv->spill_fixed_bytes + kv->slot_count * kv->slot_bytes;

    if (kv->slot_count == 0)
        return kvshm__fail(-EINVAL, "arena %s has no spill file that spill_bytes could be of", kv->name);
    if (!kvshm__tier_has(kv))
        return kvshm__tier_without(kv);
    if (value <= file_bytes)
        return 0;
    return kvshm__fail(-EINVAL,
                       "spill_bytes %llu is more than the %llu that the spill file of arena %s was made with; "
                       "ask for no more, or create an arena with a larger file",
                       (unsigned long long)value, (unsigned long long)file_bytes, kv->name);
}

/* What is more than the smaller budget allows leaves the file. */
static int shrink(kvshm *kv)
{
    int err = kvshm__mend_lock(kv);

    if (err)
        return err;
    kvshm__spill_make_room(kv, 0);
    uint64_t mark = kvshm__slots_mark(kv);
    kvshm__mend_unlock(kv);
    return kvshm__tier_pass(kv, mark);
}

/* In slices; what is left if we die here is dropped by the inserts of others. */
static int evict_to_capacity(kvshm *kv)
{
    bool done = false;
    int err = 0;

    while (!done && (err = kvshm__mend_lock(kv)) == 0) {
        done = kvshm__evict_to_capacity(kv, KVSHM__CAPACITY_SLICE);
        kvshm__mend_unlock(kv);
    }
    return err;
}

int kvshm__setting_set(kvshm *kv, const char *name, uint64_t value)
{
    const struct setting *setting = find_setting(name);
    int err;

    if (!setting)
        return -EINVAL;
    if (value > setting->most)
        return kvshm__fail(-EINVAL, "%s %llu is more than %s", name, (unsigned long long)value, setting->limit);
    if (setting->at == AT(spill_bytes) && (err = check_spill_bytes(kv, value)))
        return err;
    err = kvshm__mend_lock(kv);
    if (err)
        return err;
    KVSHM__STORE((kvshm_a64 *)((char *)&kv->header->settings + setting->at), value);
    kvshm__mend_unlock(kv);
    if (setting->at == AT(spill_bytes))
        return shrink(kv);
    return setting->at == AT(capacity) ? evict_to_capacity(kv) : 0;
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
