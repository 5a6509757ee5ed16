/* SPDX-License-Identifier: Apache-2.0 */
/*
 * common.h - what the tools share: exit statuses, values as people write and read them, the terminal.
 *
 * It knows nothing of arenas.
 */
#ifndef KVSHM_TOOLS_COMMON_H
#define KVSHM_TOOLS_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit statuses of every tool; their manuals list them. */
enum tool_status {
    TOOL_DONE = 0,
    TOOL_FAILED = 1,  /* something could not be done, or an arena not be read; a message said why */
    TOOL_USAGE = 2,   /* options or arguments that make no sense; nothing was done */
    TOOL_REFUSED = 3, /* it was not confirmed; nothing was done */
};

/*
 * Call first: what --version says, statuses of usage errors, locale of characters (numbers stay as in C).
 */
void tool_start(void);

/* Flush stdout; status, or TOOL_FAILED with a message if not all of it could be written. */
int tool_finish(int status);

/* "PROGRAM: sentence" to stderr; stdout is flushed first, so that the two stand in their order. */
void tool_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The end of the program, for want of memory. */
void tool_no_memory(void) __attribute__((noreturn));

/* Memory for count items, or tool_no_memory(). */
void *tool_realloc(void *old, size_t count, size_t size);

/*
 * What people write. Each takes the whole text and answers NULL, or what is wrong with it: the value, the limit,
 * the remedy, in storage that lasts until the next call.
 */

/* Decimal digits, at most max. */
const char *tool_parse_number(const char *text, uint64_t max, uint64_t *value);
/* The same, or "unlimited", which is UINT64_MAX. */
const char *tool_parse_limit(const char *text, uint64_t *value);
/* Bytes: digits, then nothing, or K, M, G, T (1024, its square, ...), which "iB" may follow. */
const char *tool_parse_size(const char *text, uint64_t *bytes);
/* Octal permission bits, at most 0777. */
const char *tool_parse_mode(const char *text, uint32_t *mode);
/* The name of a group, or its number. */
const char *tool_parse_group(const char *text, uint32_t *gid);
/* Exactly 2 * count hexadecimal digits. */
const char *tool_parse_hex(const char *text, uint8_t *bytes, size_t count);
/* The words of enum kvshm_backing, in its order, and NULL. */
extern const char *const tool_backings[];
/* One of them, or "unknown". */
const char *tool_backing(uint32_t backing);

/* The words of enum kvshm_admission, in its order, and NULL. */
extern const char *const tool_admissions[];
/* One of them, or "unknown". */
const char *tool_admission(uint64_t admission);

/* "auto", "local", "interleave", or the number of a node: an enum kvshm_numa, or KVSHM_NUMA_NODE(n). */
const char *tool_parse_numa(const char *text, uint32_t *numa);
/* The path of a file that may not exist yet, in a folder that does; *path is absolute, and lasts. */
const char *tool_parse_path(const char *text, const char **path);
/* One of the words of a list that ends in NULL; its place in it. */
const char *tool_parse_word(const char *text, const char *const *words, uint32_t *place);

/* What people read; buf is large enough for anything at TOOL_TEXT bytes. Each returns buf. */
#define TOOL_TEXT 32
/* Three digits at least, and a unit: 512B, 4.0K, 1.5G, 136G. */
const char *tool_format_bytes(char *buf, uint64_t bytes);
/* A time that has gone by: 0s, 59s, 4m05s, 3h10m, 12d03h; of one to come: 0s. */
const char *tool_format_age(char *buf, uint64_t then_ns, uint64_t now_ns);
/* 87.1%; of nothing: "-". */
const char *tool_format_ratio(char *buf, uint64_t part, uint64_t whole);

/* Of an enum kvshm_numa: "local", "node 3", ... */
const char *tool_format_numa(char *buf, uint32_t numa);

/* CLOCK_REALTIME in nanoseconds. */
uint64_t tool_now_ns(void);

/*
 * Text from an arena, made fit for a terminal and for JSON: at most count bytes up to a NUL, control characters
 * and what is not UTF-8 replaced by '?'. to has room for count + 1.
 */
void tool_clean_text(char *to, const char *from, size_t count);

/*
 * Ask on a terminal whether to go on; yes: it was said beforehand. Without a terminal and without yes the answer
 * is no, with a message that names --yes.
 */
bool tool_confirm(bool yes, const char *question);

#endif /* KVSHM_TOOLS_COMMON_H */
