/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls.h - what the public calls about pages share: checks of handle and arguments (cache.c, fill.c).
 */
#ifndef KVSHM_CALLS_H
#define KVSHM_CALLS_H

#include <errno.h>

#include "client.h"
#include "fork.h"
#include "message.h"
#include "tier.h"

static inline int kvshm__check_handle(kvshm *kv)
{
    if (!kv)
        return kvshm__fail(-EINVAL, "the handle is NULL");
    return kvshm__forked(kv) ? kvshm__fork_check(kv) : 0;
}

/* A handle that may take leases. */
static KVSHM__HOT int kvshm__check_leasing(kvshm *kv)
{
    if (kv->read_only)
        return kvshm__fail(KVSHM_E_READ_ONLY, "arena %s was attached with KVSHM_RDONLY: peek or copy out, or attach "
                           "without it", kv->name);
    int err = kvshm__client_in_place(kv);
    if (err)
        return err;
    if (!kv->named_fingerprint && KVSHM__LOAD_ACQ(&kv->header->has_fingerprint))
        return kvshm__fail(KVSHM_E_FINGERPRINT, "arena %s has a fingerprint and this handle named none; attach with it",
                           kv->name);
    return 0;
}

static inline int kvshm__check_flags(unsigned flags, unsigned known)
{
    if (flags & ~known)
        return kvshm__fail(-EINVAL, "flags 0x%x: bits 0x%x are not known to this call", flags, flags & ~known);
    return 0;
}

static inline int kvshm__check_prefix(const struct kvshm_prefix *prefix)
{
    if (!prefix)
        return kvshm__fail(-EINVAL, "the prefix is NULL");
    if (prefix->reserved != 0)
        return kvshm__fail(-EINVAL, prefix->tokens ? "prefix.reserved is not 0; make prefixes with kvshm_prefix_init()"
                                                   : "prefix.tokens is NULL; pass the tokens, or make a key-only prefix "
                                                     "with kvshm_prefix_init_key()");
    if (prefix->tokens && prefix->n == 0)
        return kvshm__fail(-EINVAL, "prefix.n is 0; a prefix has at least one token");
    return 0;
}

/* What goes from memory has to go from the spill file too. */
static inline int kvshm__check_file(kvshm *kv)
{
    return !kv->slots || kvshm__tier_has(kv) || kv->read_only ? 0 : kvshm__tier_without(kv);
}

static inline uint64_t kvshm__wait_limit_ns(const kvshm *kv)
{
    uint64_t ms = KVSHM__LOAD(&kv->header->settings.wait_ms);

    return ms > UINT64_MAX / 1000000 ? UINT64_MAX : ms * 1000000;
}

#endif /* KVSHM_CALLS_H */
