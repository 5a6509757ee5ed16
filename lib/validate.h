/* SPDX-License-Identifier: Apache-2.0 */
/*
 * validate.h - is this file a valid arena? Trusts nothing, changes nothing.
 */
#ifndef KVSHM_VALIDATE_H
#define KVSHM_VALIDATE_H

#include "handle.h"

/*
 * Read the fixed part of the header of fd into private memory, in which nothing changes between check and use, and the
 * file's size. 0; KVSHM_E_FORMAT: too short, or another signature; -errno. path is for messages.
 */
int kvshm__validate_read(int fd, const char *path, struct kvshm_static *fixed,
                         uint64_t *file_bytes);

/*
 * Check all of it. 0; KVSHM_E_FORMAT (shorter than it says), _BYTE_ORDER, _VERSION, _DAMAGED, _FEATURE, _BOOT; -errno
 * if the boot cannot be told. writing: may it be attached for writing?
 */
int kvshm__validate_fixed(const struct kvshm_static *fixed, uint64_t file_bytes, bool writing,
                          const char *path);

/* The pointers, counts and sizes of the handle from what was validated; kv->base is the mapping. */
void kvshm__validate_fill(kvshm *kv, const struct kvshm_static *fixed);

/* The part of the mapped header that changes: 0 or KVSHM_E_DAMAGED. Checked at attach; users check what they use. */
int kvshm__validate_live(const kvshm *kv);

/* The id of the running kernel's boot: 0 or -errno. */
int kvshm__boot_id(uint8_t id[16]);

/* The checksum that the fixed part must end with. */
uint64_t kvshm__validate_checksum(const struct kvshm_static *fixed);

#endif /* KVSHM_VALIDATE_H */
