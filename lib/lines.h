/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lines.h - files of /proc and /sys, line by line.
 */
#ifndef KVSHM_LINES_H
#define KVSHM_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVSHM__LINE_BYTES 4096

/* One open file. A line longer than KVSHM__LINE_BYTES - 1 is cut. */
struct kvshm__lines {
    int fd;
    uint64_t offset;
    size_t at, have; /* in bytes[]: the next line, the end of what was read */
    char bytes[2 * KVSHM__LINE_BYTES];
};

/* 0 or -errno; no message. */
int kvshm__lines_open(struct kvshm__lines *lines, const char *path);

/* 1: *line is the next one, without its end, until the next call; 0: there is none; -errno. */
int kvshm__lines_next(struct kvshm__lines *lines, char **line);

void kvshm__lines_close(struct kvshm__lines *lines);

/*
 * The number that the file consists of; "max" is UINT64_MAX. 0; -EINVAL: it is no number; -errno.
 */
int kvshm__lines_number(const char *path, uint64_t *value);

/* The number behind a name and a space, of the first line that begins so ("MemAvailable:"). 0; -ENOENT: none; -errno. */
int kvshm__lines_value(const char *path, const char *name, uint64_t *value);

/* Cut the next word off *rest, which moves behind it; "" at the end. */
char *kvshm__lines_word(char **rest);

#endif /* KVSHM_LINES_H */
