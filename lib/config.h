/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - what callers ask for, checked: configurations, geometry, names. Looks at no system and no segment.
 */
#ifndef KVSHM_CONFIG_H
#define KVSHM_CONFIG_H

#include <stdbool.h>

#include "kvshm.h"

/* Longest stall_ms: an hour. */
#define KVSHM__SPILL_PATH_BYTES 4096
#define KVSHM__STALL_MS_MAX 3600000u

/* A caller's configuration, copied and checked. */
struct kvshm__config {
    struct kvshm_config asked;       /* all fields within their ranges; .label is not to be used */
    char spill_path[KVSHM__SPILL_PATH_BYTES];           /* "": none named */
    char label[KVSHM_LABEL_MAX + 1]; /* the caller's, or the program's name */
    uint64_t page_bytes;             /* 0: no geometry was named (attach) */
    bool named_fingerprint;
    uint64_t slots;                  /* of the spill file, once it is open; 0: none */
    uint32_t block_bytes;            /* in which it is read and written: a power of two; 0: none */
};

/*
 * Copy and check from, for an arena to be made: 0, -EINVAL or KVSHM_E_GEOMETRY. from is read once and may be of an
 * older or newer caller's size.
 */
int kvshm__config_create(const struct kvshm_config *from, struct kvshm__config *to);

/* The same for an arena that exists: label, fingerprint, and geometry if one is named, are looked at. May be NULL. */
int kvshm__config_expect(const struct kvshm_config *from, struct kvshm__config *to);

/* 0 and the bytes of a page, or KVSHM_E_GEOMETRY with the field, its value and what would be valid. */
int kvshm__geometry_check(const struct kvshm_geometry *geometry, uint64_t *page_bytes);

/*
 * 0, or KVSHM_E_GEOMETRY naming the first field in which they differ. dtype counts unless pages are opaque.
 *
 * path   of the spill file that had is of; NULL: it is an arena's
 */
int kvshm__geometry_compare(const struct kvshm_geometry *asked, const struct kvshm_geometry *had, const char *path);

/* Is it [A-Za-z0-9][A-Za-z0-9._-]{0,63}? */
bool kvshm__name_valid(const char *name);

/* 0, or -EINVAL with a message. */
int kvshm__name_check(const char *name);

/* 0, or -EINVAL with a message that names the call, if flags has bits that are not in known. */
int kvshm__flags_check(const char *call, unsigned flags, unsigned known);

/*
 * A struct that begins with the caller's size and is filled by the library: 0, or -EINVAL if the size is none. Then
 * write from (of size bytes) to it, as much as fits, zero what is beyond, and keep its size.
 */
int kvshm__sized_check(const char *what, size_t size);
void kvshm__sized_copy(void *to, const void *from, size_t size);

#endif /* KVSHM_CONFIG_H */
