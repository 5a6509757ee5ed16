/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounts.c - the mount table, as this process sees it.
 *
 * A line of /proc/self/mountinfo has, between single spaces:
 *
 *   id parent major:minor root point options optional... - type source options
 *
 * with any number of optional fields. Space, tab, newline and backslash in a name are written as \ and three octal
 * digits.
 */
#include "mounts.h"

#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "lines.h"

#define TABLE_PATH "/proc/self/mountinfo"

/* Cut the next field, which may be empty, off *rest. NULL: there is none. */
static char *next_field(char **rest)
{
    return strsep(rest, " ");
}

static bool octal(char c)
{
    return c >= '0' && c <= '7';
}

static void unescape(char *text)
{
    char *to = text;

    for (const char *c = text; *c != '\0'; to++) {
        if (c[0] == '\\' && octal(c[1]) && octal(c[2]) && octal(c[3])) {
            *to = (char)((c[1] - '0') * 64 + (c[2] - '0') * 8 + (c[3] - '0'));
            c += 4;
        } else {
            *to = *c++;
        }
    }
    *to = '\0';
}

static bool parse(char *line, struct kvshm__mount *mount)
{
    unsigned device_major, device_minor;
    char *rest = line, *device, *root, *field;

    next_field(&rest);
    next_field(&rest);
    device = next_field(&rest);
    root = next_field(&rest);
    field = next_field(&rest);
    if (field == NULL || sscanf(device, "%u:%u", &device_major, &device_minor) != 2)
        return false;
    unescape(root);
    unescape(field);
    mount->device = makedev(device_major, device_minor);
    mount->root = root;
    mount->point = field;
    do {
        field = next_field(&rest);
    } while (field != NULL && strcmp(field, "-") != 0);
    mount->type = next_field(&rest);
    next_field(&rest);
    mount->options = next_field(&rest);
    return mount->options != NULL;
}

int kvshm__mounts_each(kvshm__mount_fn fn, void *arg)
{
    struct kvshm__lines lines;
    struct kvshm__mount mount;
    char *line;
    int code = kvshm__lines_open(&lines, TABLE_PATH);

    if (code < 0)
        return code;
    while ((code = kvshm__lines_next(&lines, &line)) == 1) {
        code = parse(line, &mount) ? fn(&mount, arg) : 0;
        if (code != 0)
            break;
    }
    kvshm__lines_close(&lines);
    return code;
}

bool kvshm__mounts_option(const char *options, const char *name, char *value, size_t size)
{
    size_t length = strlen(name);

    for (const char *at = options; *at != '\0';) {
        size_t item = strcspn(at, ",");

        if (item >= length && strncmp(at, name, length) == 0 &&
            (item == length || at[length] == '=')) {
            size_t skip = item == length ? length : length + 1;

            if (item - skip >= size)
                return false;
            memcpy(value, at + skip, item - skip);
            value[item - skip] = '\0';
            return true;
        }
        at += item + (at[item] == ',');
    }
    return false;
}
