/* SPDX-License-Identifier: Apache-2.0 */
#include "adopt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "load.h"
#include "mend.h"
#include "message.h"
#include "sys.h"
#include "tier.h"

static struct kvshm__spill_want spill_want(const struct kvshm__config *config)
{
    struct kvshm__spill_want want = {
        .geometry = config->asked.geometry,
        .page_bytes = config->page_bytes,
        .budget_bytes = config->asked.spill_bytes,
        .epochs = config->asked.max_clients,
        .named_fingerprint = config->named_fingerprint,
    };

    memcpy(want.fingerprint, config->asked.fingerprint, sizeof(want.fingerprint));
    return want;
}

int kvshm__adopt_open(struct kvshm__config *config, struct kvshm__spill_file *file)
{
    struct kvshm__spill_want want = spill_want(config);
    int code;

    *file = (struct kvshm__spill_file){.fd = -1};
    if (config->spill_path[0] == '\0')
        return 0;
    code = kvshm__spill_make(config->spill_path, &want, file);
    if (code == -EEXIST)
        code = kvshm__spill_open(config->spill_path, &want, file);
    if (code == 0) {
        config->slots = file->shape.slots;
        config->block_bytes = file->shape.block_bytes;
    }
    return code;
}

/* Whoever used the file may have died a moment ago, with transfers in flight. */
static int adopt_when_landed(struct kvshm__spill_file *file, const struct kvshm__config *config, const kvshm *kv)
{
    uint64_t end = kvshm__sys.monotonic_ns() + KVSHM__LANDING_NS;
    int code;

    while ((code = kvshm__spill_adopt(file, config->spill_path, kv->fixed->arena_id)) == -EBUSY &&
           kvshm__sys.monotonic_ns() < end)
        kvshm__sys.sleep_ns(KVSHM__LANDING_NS / 500);
    return code;
}

int kvshm__adopt(kvshm *kv, const struct kvshm__config *config, struct kvshm__spill_file *file)
{
    uint64_t epoch;
    int code = 0;

    if (file->fd < 0)
        return 0;
    if (file->shape.epochs < kv->max_clients)
        code = kvshm__fail(-EINVAL, "config.max_clients is %u, and %s was made for %u; ask for no more", kv->max_clients,
                           config->spill_path, file->shape.epochs);
    if (code == 0)
        code = adopt_when_landed(file, config, kv);
    if (code == 0)
        code = kvshm__spill_epoch_read(file, &epoch);
    if (code == 0) {
        KVSHM__STORE_REL(&kv->header->epoch, epoch > 0 ? epoch : 1);
        code = kvshm__mend_prepare(kv);
    }
    if (code == 0)
        code = kvshm__load(kv, file);
    if (code == 0 && KVSHM__LOAD(&kv->header->settings.spill_bytes) > file->shape.file_bytes) /* it has no room for more */
        KVSHM__STORE(&kv->header->settings.spill_bytes, file->shape.file_bytes);
    if (code == 0)
        code = kvshm__tier_open(kv, file, config->spill_path);
    if (code < 0)
        kvshm__spill_close(file);
    return code;
}

/* What the creator says is followed only if it belongs to whom the segment belongs to. */
static int check_owner(const kvshm *kv, const struct kvshm__spill_file *file, const char *path)
{
    struct stat segment, spill;
    int code = kvshm__sys.fstat(kv->fd, &segment);

    if (code == 0)
        code = kvshm__sys.fstat(file->fd, &spill);
    if (code < 0)
        return kvshm__fail(code, "%s: fstat: %s", path, kvshm_strerror(code));
    if (spill.st_uid != segment.st_uid)
        return kvshm__fail(-EPERM, "%s, which the creator of arena %s names, belongs to user %u and the arena to user %u", path,
                           kv->name, spill.st_uid, segment.st_uid);
    return 0;
}

/* Behind the message that says why. */
static int no_spill(const kvshm *kv)
{
    char why[KVSHM__MESSAGE_BYTES];

    snprintf(why, sizeof(why), "%s", kvshm_errmsg(NULL));
    return kvshm__fail(KVSHM_E_NOSPILL,
                       "%s; arena %s needs its spill file: say where that is (config.spill_path, KVSHM_SPILL), or attach "
                       "with KVSHM_NOTIER",
                       why, kv->name);
}

/* Pages are moved between frames and slots as the arena has them: a file that says otherwise is damaged. */
static int check_shape(const kvshm *kv, const struct kvshm__spill_file *file, const char *path)
{
    const struct kvshm__spill_shape *s = &file->shape;

    if (file->header.page_bytes == kv->page_bytes && s->slots == kv->slot_count && s->payload_stride <= kv->frame_stride &&
        s->epochs >= kv->max_clients && file->header.geometry.page_tokens == kv->page_tokens)
        return 0;
    return kvshm__fail(KVSHM_E_DAMAGED, "%s has %llu slots of %llu bytes a page for %u clients, and arena %s, whose it is, %u of "
                       "%llu for %u; remove both and create the arena anew", path, (unsigned long long)s->slots,
                       (unsigned long long)file->header.page_bytes, s->epochs, kv->name, kv->slot_count,
                       (unsigned long long)kv->page_bytes, kv->max_clients);
}

int kvshm__adopt_follow(kvshm *kv, const struct kvshm__config *expect, unsigned flags)
{
    const char *path = expect->spill_path[0] != '\0' ? expect->spill_path : secure_getenv("KVSHM_SPILL");
    struct kvshm__spill_file file;
    int code;

    bool hint = path == NULL;

    if (kv->slot_count == 0 || kv->read_only || (flags & KVSHM_NOTIER))
        return 0;
    if (hint)
        path = kv->fixed->spill_path;
    code = kvshm__spill_open(path, NULL, &file);
    if (code == 0) {
        code = hint ? check_owner(kv, &file, path) : 0;
        if (code == 0)
            code = kvshm__spill_follow(&file, path, kv->fixed->arena_id);
        if (code == 0)
            code = check_shape(kv, &file, path);
        if (code < 0)
            kvshm__spill_close(&file);
    }
    return code < 0 ? no_spill(kv) : kvshm__tier_open(kv, &file, path);
}

void kvshm__adopt_undo(kvshm *kv, const struct kvshm__config *config, struct kvshm__spill_file *file)
{
    if (kv->tier == NULL)
        kvshm__spill_close(file);
    if (file->made)
        kvshm__sys.unlinkat(AT_FDCWD, config->spill_path);
}
