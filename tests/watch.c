/* SPDX-License-Identifier: Apache-2.0 */
#include "watch.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layout.h"

bool watch_begin(struct watch *w, const char *name, bool frames)
{
    const struct kvshm_header *header;
    struct stat status;
    char path[320];
    int fd;

    memset(w, 0, sizeof(*w));
    snprintf(path, sizeof(path), "%s/%s", getenv("KVSHM_DIR"), name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    if (fstat(fd, &status) != 0)
        ck_abort_msg("%s: %s", path, strerror(errno));
    w->bytes = (size_t)status.st_size;
    w->now = mmap(NULL, w->bytes, PROT_READ, MAP_SHARED, fd, 0);
    w->last = malloc(w->bytes);
    if (w->now == MAP_FAILED || w->last == NULL)
        ck_abort_msg("%s: no memory", path);
    close(fd);
    memcpy(w->last, w->now, w->bytes);
    header = (const struct kvshm_header *)w->now;
    w->watched = frames ? w->bytes : header->fixed.directory[KVSHM__SEC_FRAMES - 1].offset;
    return true;
}

bool watch_changed(struct watch *w)
{
    if (w->now == NULL || memcmp(w->now, w->last, w->watched) == 0)
        return false;
    memcpy(w->last, w->now, w->bytes);
    return true;
}

void watch_end(struct watch *w)
{
    if (w->now != NULL)
        munmap((void *)w->now, w->bytes);
    free(w->last);
    memset(w, 0, sizeof(*w));
}
