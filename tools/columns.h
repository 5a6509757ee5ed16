/* SPDX-License-Identifier: Apache-2.0 */
/*
 * columns.h - tables for people and for programs, from one table of columns.
 *
 * A struct column makes the heading, what -o takes, the line of --help and the key in JSON. A column "page_tokens"
 * has the heading PAGE-TOKENS; -o takes either, in any case. Its key in JSON is its name with the unit that its
 * kind adds: a time "attached" is "attached_ns".
 *
 * Rows are written straight into the output's own form (libsmartcols or json-c); cells of columns that were not
 * asked for are dropped, so whoever fills a row fills all it knows.
 */
#ifndef KVSHM_TOOLS_COLUMNS_H
#define KVSHM_TOOLS_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum column_kind {
    COLUMN_TEXT,
    COLUMN_WIDE, /* text that is cut where the terminal ends */
    COLUMN_NUMBER,
    COLUMN_BYTES, /* people: 4.0K; JSON: KEY_bytes */
    COLUMN_TIME,  /* ns since 1970; people: how long ago; JSON: KEY_ns */
    COLUMN_RATIO, /* people: 87.1%; JSON: 0.871 */
    COLUMN_TAGS,  /* people: 7 (3s), ...; JSON: an array of {"tag", "since_ns"} */
};

struct column {
    const char *name;
    enum column_kind kind;
    unsigned views; /* bits: the views that have it */
    unsigned shown; /* bits: the views that show it when no -o says otherwise */
    const char *help;
};

struct column_tag {
    uint32_t tag;
    uint64_t since_ns;
};

struct table;

/*
 * A table of the view (one bit), to be filled and printed. columns stays the caller's. output is the argument of
 * -o, or NULL: people see what is shown by default, programs all of the view. NULL: output names no column of the
 * view; *error is then a sentence that says which.
 */
struct table *table_new(const struct column *columns, size_t count, unsigned view,
                        const char *output, bool json, const char **error);

/* Leave a column out, unless -o asked for it. */
void table_hide(struct table *table, size_t column);

/* Begin a row. Cells not filled are "-", and null. */
void table_row(struct table *table);

/* Fill a cell of the row begun last, of the kind that the column is. An empty text leaves it as it is. */
void table_text(struct table *table, size_t column, const char *text);
void table_number(struct table *table, size_t column, uint64_t number); /* also bytes, times */
void table_ratio(struct table *table, size_t column, uint64_t part, uint64_t whole);
void table_tags(struct table *table, size_t column, const struct column_tag *tags, size_t count);
/* A text for people; null for programs. */
void table_word(struct table *table, size_t column, const char *word);

/* Something has no row; programs find it in "errors". */
void table_error(struct table *table, const char *name, int code, const char *sentence);

/* Print: headings and rows, or {"version": 1, KEY: [rows], "errors": [...]}. Then the table is gone. */
void table_print(struct table *table, const char *key);

/* Another view of the same columns, and the letter of those that it shows by default. */
#define COLUMN_MARKS 2
struct column_mark {
    unsigned view;
    char letter;
};

/*
 * Lines for --help: the columns of a view; those shown by default have a star. also is NULL, or COLUMN_MARKS more
 * views; what they show has their letters. The caller's to free.
 */
char *table_help(const struct column *columns, size_t count, unsigned view,
                 const struct column_mark *also);

#endif /* KVSHM_TOOLS_COLUMNS_H */
