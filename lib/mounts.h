/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounts.h - the mount table, as this process sees it.
 */
#ifndef KVSHM_MOUNTS_H
#define KVSHM_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct kvshm__mount {
    dev_t device;        /* st_dev of the files in it */
    const char *root;    /* which directory of the file system that is */
    const char *point;   /* the directory */
    const char *type;    /* of file system */
    const char *options; /* of the file system, between commas */
};

/* Good until it returns. 0: go on; all else ends the walk. */
typedef int (*kvshm__mount_fn)(const struct kvshm__mount *mount, void *arg);

/*
 * Show all mounts, in the table's order; one may be hidden by a later one. 0, what fn answered, or -errno without a
 * message. Lines that are too long for lines.h are passed over.
 */
int kvshm__mounts_each(kvshm__mount_fn fn, void *arg);

/* The value of name among options, "" if it has none. false: not there, or it does not fit. */
bool kvshm__mounts_option(const char *options, const char *name, char *value, size_t size);

#endif /* KVSHM_MOUNTS_H */
