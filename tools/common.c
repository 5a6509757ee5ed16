/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"

#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kvshm.h"

/* What the last parser said. */
static char wrong[256];

static const char *wrong_value(const char *format, ...) __attribute__((format(printf, 1, 2)));

static const char *wrong_value(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(wrong, sizeof wrong, format, args);
    va_end(args);
    return wrong;
}

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "%s %s\n", program_invocation_short_name, kvshm_version());
}

void tool_start(void)
{
    setlocale(LC_CTYPE, "");
    setenv("ARGP_HELP_FMT", "no-dup-args-note", 0);
    argp_program_version_hook = print_version;
    argp_err_exit_status = TOOL_USAGE;
}

int tool_finish(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    tool_error("standard output: %s", strerror(errno));
    return TOOL_FAILED;
}

void tool_error(const char *format, ...)
{
    va_list args;
    int error = errno;

    fflush(stdout);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    errno = error;
}

void tool_no_memory(void)
{
    tool_error("out of memory");
    exit(TOOL_FAILED);
}

void *tool_realloc(void *old, size_t count, size_t size)
{
    void *memory = reallocarray(old, count ? count : 1, size);

    if (!memory)
        tool_no_memory();
    return memory;
}

/* ---- What people write --------------------------------------------------------------------------- */

/* Digits of a base from text on; where they end. NULL: none, or more than 64 bits hold (then *value is UINT64_MAX). */
static const char *digits(const char *text, int base, uint64_t *value)
{
    char *end;

    *value = 0;
    if (!isdigit((unsigned char)text[0]))
        return NULL;
    errno = 0;
    *value = strtoull(text, &end, base);
    return errno ? NULL : end;
}

const char *tool_parse_number(const char *text, uint64_t max, uint64_t *value)
{
    const char *end = digits(text, 10, value);

    if (end ? *end != '\0' : *value == 0)
        return wrong_value("'%s' is not a number; write decimal digits", text);
    if (!end || *value > max)
        return wrong_value("%s is too large; at most %" PRIu64, text, max);
    return NULL;
}

const char *tool_parse_limit(const char *text, uint64_t *value)
{
    if (strcmp(text, "unlimited") == 0) {
        *value = UINT64_MAX;
        return NULL;
    }
    if (!isdigit((unsigned char)text[0]))
        return wrong_value("'%s' is not a number; write decimal digits, or 'unlimited'", text);
    return tool_parse_number(text, UINT64_MAX - 1, value);
}

const char *tool_parse_size(const char *text, uint64_t *bytes)
{
    static const char units[] = "KMGT";
    const char *end = digits(text, 10, bytes);
    const char *unit;
    unsigned shift = 0;

    if (!end && *bytes == 0)
        return wrong_value("'%s' is not a size; write bytes, or a number with K, M, G or T", text);
    if (!end)
        return wrong_value("%s is too large; at most %" PRIu64 " bytes", text, UINT64_MAX);
    if (*end != '\0' && (unit = strchr(units, toupper((unsigned char)*end))) != NULL) {
        shift = 10 * (unsigned)(unit - units + 1);
        end += strcmp(end + 1, "iB") == 0 ? 3 : 1;
    }
    if (*end != '\0')
        return wrong_value("'%s' is not a size; write bytes, or a number with K, M, G or T", text);
    if (*bytes > UINT64_MAX >> shift)
        return wrong_value("%s is too large; at most %" PRIu64 " bytes", text, UINT64_MAX);
    *bytes <<= shift;
    return NULL;
}

const char *tool_parse_mode(const char *text, uint32_t *mode)
{
    uint64_t value;
    const char *end = digits(text, 8, &value);

    if (!end || *end != '\0' || value > 0777)
        return wrong_value("'%s' is no mode; write octal permission bits, 0 to 0777, as in 0640",
                           text);
    *mode = (uint32_t)value;
    return NULL;
}

const char *tool_parse_group(const char *text, uint32_t *gid)
{
    const struct group *group = getgrnam(text);
    uint64_t value;

    if (group) {
        *gid = group->gr_gid;
        return NULL;
    }
    if (!isdigit((unsigned char)text[0]))
        return wrong_value("there is no group '%s'; name one of this system, or its number", text);
    if (tool_parse_number(text, UINT32_MAX - 1, &value))
        return wrong;
    *gid = (uint32_t)value;
    return NULL;
}

static int hex_digit(char c)
{
    const char *all = "0123456789abcdef";
    const char *at = c ? strchr(all, tolower((unsigned char)c)) : NULL;

    return at ? (int)(at - all) : -1;
}

const char *tool_parse_hex(const char *text, uint8_t *bytes, size_t count)
{
    size_t length = strlen(text);

    for (size_t i = 0; i < length; i++) {
        if (hex_digit(text[i]) < 0)
            return wrong_value("'%c' is no hexadecimal digit; write %zu of them", text[i],
                               2 * count);
    }
    if (length != 2 * count)
        return wrong_value("%zu hexadecimal digits; write %zu of them", length, 2 * count);
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(hex_digit(text[2 * i]) << 4 | hex_digit(text[2 * i + 1]));
    return NULL;
}

const char *const tool_backings[] = {"auto", "small", "thp", "hugetlb-2m", "hugetlb-1g", NULL};

const char *tool_backing(uint32_t backing)
{
    return backing <= KVSHM_BACKING_HUGETLB_1G ? tool_backings[backing] : "unknown";
}

const char *const tool_admissions[] = {"all", "reused", NULL};

const char *tool_admission(uint64_t admission)
{
    return admission <= KVSHM_ADMIT_REUSED ? tool_admissions[admission] : "unknown";
}

static const char *const numa_words[] = {[KVSHM_NUMA_AUTO] = "auto",
                                         [KVSHM_NUMA_LOCAL] = "local",
                                         [KVSHM_NUMA_INTERLEAVE] = "interleave",
                                         [KVSHM_NUMA_MIXED] = "mixed"};

const char *tool_parse_numa(const char *text, uint32_t *numa)
{
    uint64_t node;

    for (*numa = KVSHM_NUMA_AUTO; *numa <= KVSHM_NUMA_INTERLEAVE; ++*numa) {
        if (strcmp(text, numa_words[*numa]) == 0)
            return NULL;
    }
    if (!isdigit((unsigned char)text[0]))
        return wrong_value("'%.64s' is unknown; write auto, local, interleave, or the number of a node",
                           text);
    if (tool_parse_number(text, 1023, &node))
        return wrong;
    *numa = KVSHM_NUMA_NODE((uint32_t)node);
    return NULL;
}

const char *tool_parse_path(const char *text, const char **path)
{
    const char *slash = strrchr(text, '/');
    const char *name = slash ? slash + 1 : text;
    char *folder, *whole, *all;

    if (!(folder = slash ? strndup(text, (size_t)(name - text)) : strdup(".")))
        tool_no_memory();
    whole = realpath(folder, NULL);
    free(folder);
    if (!whole || *name == '\0') {
        free(whole);
        return wrong_value("'%.128s' is no file, or in no folder that there is; make the folder first", text);
    }
    if (asprintf(&all, "%s/%s", strcmp(whole, "/") == 0 ? "" : whole, name) < 0)
        tool_no_memory();
    free(whole);
    *path = all;
    return NULL;
}

const char *tool_parse_word(const char *text, const char *const *words, uint32_t *place)
{
    int used;

    for (uint32_t i = 0; words[i]; i++) {
        if (strcmp(text, words[i]) == 0) {
            *place = i;
            return NULL;
        }
    }
    used = snprintf(wrong, sizeof wrong, "'%.64s' is unknown; write ", text);
    for (size_t i = 0; words[i] && used < (int)sizeof wrong; i++)
        used += snprintf(wrong + used, sizeof wrong - (size_t)used, "%s%s",
                         i == 0 ? "" : (words[i + 1] ? ", " : " or "), words[i]);
    return wrong;
}

/* ---- What people read ---------------------------------------------------------------------------- */

const char *tool_format_bytes(char *buf, uint64_t bytes)
{
    static const char units[] = "BKMGTPE";
    unsigned unit = 0;
    uint64_t tenths;

    while (unit < sizeof units - 2 && bytes >> 10 * unit >= 1024)
        unit++;
    if (unit == 0) {
        snprintf(buf, TOOL_TEXT, "%" PRIu64 "B", bytes);
        return buf;
    }
    /* Of the unit below it, there are at most 2^20: no overflow. */
    tenths = ((bytes >> 10 * (unit - 1)) * 10 + 512) >> 10;
    if (tenths < 100)
        snprintf(buf, TOOL_TEXT, "%" PRIu64 ".%" PRIu64 "%c", tenths / 10, tenths % 10,
                 units[unit]);
    else
        snprintf(buf, TOOL_TEXT, "%" PRIu64 "%c", (tenths + 5) / 10, units[unit]);
    return buf;
}

const char *tool_format_numa(char *buf, uint32_t numa)
{
    if (numa < sizeof numa_words / sizeof numa_words[0])
        snprintf(buf, TOOL_TEXT, "%s", numa_words[numa]);
    else
        snprintf(buf, TOOL_TEXT, "node %" PRIu32, numa - KVSHM_NUMA_NODE(0));
    return buf;
}

const char *tool_format_age(char *buf, uint64_t then_ns, uint64_t now_ns)
{
    uint64_t s = now_ns > then_ns ? (now_ns - then_ns) / 1000000000 : 0;

    if (s < 60)
        snprintf(buf, TOOL_TEXT, "%" PRIu64 "s", s);
    else if (s < 3600)
        snprintf(buf, TOOL_TEXT, "%" PRIu64 "m%02" PRIu64 "s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(buf, TOOL_TEXT, "%" PRIu64 "h%02" PRIu64 "m", s / 3600, s / 60 % 60);
    else
        snprintf(buf, TOOL_TEXT, "%" PRIu64 "d%02" PRIu64 "h", s / 86400, s / 3600 % 24);
    return buf;
}

const char *tool_format_ratio(char *buf, uint64_t part, uint64_t whole)
{
    if (whole == 0)
        snprintf(buf, TOOL_TEXT, "-");
    else
        snprintf(buf, TOOL_TEXT, "%.1f%%", 100.0 * (double)part / (double)whole);
    return buf;
}

uint64_t tool_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Bytes of the well-formed UTF-8 character that begins at from and ends before end; 0: there is none. */
static size_t utf8_length(const unsigned char *from, const unsigned char *end)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = *from < 0x80       ? 1
                    : *from >> 5 == 6  ? 2
                    : *from >> 4 == 14 ? 3
                    : *from >> 3 == 30 ? 4
                                       : 0;
    uint32_t point = *from & (0xffu >> (length + 1));

    if (length <= 1)
        return length;
    if ((size_t)(end - from) < length)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if (from[i] >> 6 != 2)
            return 0;
        point = point << 6 | (from[i] & 0x3f);
    }
    return point < smallest[length] || point > 0x10ffff || point >> 11 == 27 ? 0 : length;
}

void tool_clean_text(char *to, const char *from, size_t count)
{
    const unsigned char *at = (const unsigned char *)from;
    const unsigned char *end = at + strnlen(from, count);

    while (at < end) {
        size_t length = utf8_length(at, end);

        if (length == 0 || *at < 0x20 || *at == 0x7f ||
            (length == 2 && at[0] == 0xc2 && at[1] < 0xa0)) {
            *to++ = '?';
            at += length ? length : 1;
            continue;
        }
        memcpy(to, at, length);
        to += length;
        at += length;
    }
    *to = '\0';
}

bool tool_confirm(bool yes, const char *question)
{
    char *line = NULL;
    size_t size = 0;
    bool agreed;

    if (yes)
        return true;
    if (!isatty(STDIN_FILENO)) {
        tool_error(
            "%s\nThere is no terminal to answer on; say --yes if it is meant. Nothing was changed.",
            question);
        return false;
    }
    fflush(stdout);
    fprintf(stderr, "%s [y/N] ", question);
    agreed = getline(&line, &size, stdin) > 0 && (line[0] == 'y' || line[0] == 'Y');
    free(line);
    if (!agreed)
        fputs("Nothing was changed.\n", stderr);
    return agreed;
}
