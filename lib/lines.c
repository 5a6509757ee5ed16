/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lines.c - files of /proc and /sys, line by line.
 *
 * They are read in pieces, since one answer of the kernel is at most a page, and a table of mounts is longer.
 * What they say is input: a number is digits and nothing behind them but blanks.
 */
#include "lines.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "sys.h"

int kvshm__lines_open(struct kvshm__lines *lines, const char *path)
{
    int fd = kvshm__sys.open(path, O_RDONLY, 0);

    if (fd < 0)
        return fd;
    lines->fd = fd;
    lines->offset = 0;
    lines->at = lines->have = 0;
    return 0;
}

void kvshm__lines_close(struct kvshm__lines *lines)
{
    kvshm__sys.close(lines->fd);
}

/* Read on, behind what is there. Bytes read; 0: the end. */
static int more(struct kvshm__lines *lines)
{
    int code;

    memmove(lines->bytes, lines->bytes + lines->at, lines->have - lines->at);
    lines->have -= lines->at;
    lines->at = 0;
    code = kvshm__sys.pread(lines->fd, lines->bytes + lines->have,
                            sizeof(lines->bytes) - 1 - lines->have, lines->offset);
    if (code > 0) {
        lines->offset += (uint64_t)code;
        lines->have += (size_t)code;
    }
    return code;
}

/* The line is longer than there is room for: go to its end. */
static int skip(struct kvshm__lines *lines)
{
    char *end;
    int code;

    do {
        lines->at = lines->have = KVSHM__LINE_BYTES; /* what was answered stays where it is */
        code = kvshm__sys.pread(lines->fd, lines->bytes + lines->have, KVSHM__LINE_BYTES - 1,
                                lines->offset);
        if (code <= 0)
            return code;
        lines->offset += (uint64_t)code;
        lines->have += (size_t)code;
        end = memchr(lines->bytes + lines->at, '\n', (size_t)code);
    } while (end == NULL);
    lines->at = (size_t)(end + 1 - lines->bytes);
    return 0;
}

int kvshm__lines_next(struct kvshm__lines *lines, char **line)
{
    for (;;) {
        char *from = lines->bytes + lines->at;
        size_t length = lines->have - lines->at;
        char *end = memchr(from, '\n', length);
        int code;

        if (end != NULL && end - from < KVSHM__LINE_BYTES) {
            *end = '\0';
            *line = from;
            lines->at += (size_t)(end - from) + 1;
            return 1;
        }
        if (length >= KVSHM__LINE_BYTES) {
            memmove(lines->bytes, from, KVSHM__LINE_BYTES - 1);
            lines->bytes[KVSHM__LINE_BYTES - 1] = '\0';
            *line = lines->bytes;
            if (end != NULL)
                lines->at += (size_t)(end - from) + 1;
            code = end != NULL ? 0 : skip(lines);
            return code < 0 ? code : 1;
        }
        code = more(lines);
        if (code < 0)
            return code;
        if (code == 0 && length == 0)
            return 0;
        if (code == 0)
            lines->bytes[lines->have++] = '\n';
    }
}

char *kvshm__lines_word(char **rest)
{
    char *word = *rest + strspn(*rest, " \t");
    size_t length = strcspn(word, " \t");

    *rest = word + length;
    if (**rest != '\0')
        *(*rest)++ = '\0';
    return word;
}

static int number(const char *text, uint64_t *value)
{
    uint64_t sum = 0;
    const char *c = text;

    if (strcmp(text, "max") == 0) {
        *value = UINT64_MAX;
        return 0;
    }
    for (; *c >= '0' && *c <= '9'; c++) {
        if (__builtin_mul_overflow(sum, UINT64_C(10), &sum) ||
            __builtin_add_overflow(sum, (uint64_t)(*c - '0'), &sum))
            sum = UINT64_MAX;
    }
    if (c == text || *c != '\0')
        return -EINVAL;
    *value = sum;
    return 0;
}

int kvshm__lines_number(const char *path, uint64_t *value)
{
    struct kvshm__lines lines;
    char *line;
    int code = kvshm__lines_open(&lines, path);

    if (code < 0)
        return code;
    code = kvshm__lines_next(&lines, &line);
    if (code == 1)
        code = number(kvshm__lines_word(&line), value);
    else if (code == 0)
        code = -EINVAL;
    kvshm__lines_close(&lines);
    return code;
}

int kvshm__lines_value(const char *path, const char *name, uint64_t *value)
{
    struct kvshm__lines lines;
    char *line;
    bool found = false;
    int code = kvshm__lines_open(&lines, path);

    if (code < 0)
        return code;
    while (!found && (code = kvshm__lines_next(&lines, &line)) == 1) {
        found = strcmp(kvshm__lines_word(&line), name) == 0;
        if (found)
            code = number(kvshm__lines_word(&line), value);
    }
    kvshm__lines_close(&lines);
    return code == 0 && !found ? -ENOENT : code;
}
