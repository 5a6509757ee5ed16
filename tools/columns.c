/* SPDX-License-Identifier: Apache-2.0 */
#include "columns.h"

#include <ctype.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <libsmartcols/libsmartcols.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

/* Of the JSON: one more when a key changes its meaning or goes. */
#define FORMAT_VERSION 1

/* Columns of --help: where the text begins, and where it ends. */
#define HELP_INDENT 26
#define HELP_WIDTH  78

/* Tags of a row that people see; the rest is a number. */
#define TAGS_SHOWN 2

struct table {
    const struct column *columns;
    size_t *selected; /* numbers of columns, in the order of the output */
    size_t selected_count;
    bool asked; /* by -o */
    bool begun; /* there is a row, so the selection is final */
    uint64_t now_ns;
    struct libscols_table *people; /* or: */
    struct json_object *rows;
    struct json_object *errors;
    struct libscols_line *line;
    struct json_object *object;
};

/* ---- Names --------------------------------------------------------------------------------------- */

static void heading_of(const struct column *column, char *buf, size_t size)
{
    size_t i;

    for (i = 0; column->name[i] && i < size - 1; i++)
        buf[i] = column->name[i] == '_' ? '-' : (char)toupper((unsigned char)column->name[i]);
    buf[i] = '\0';
}

static void key_of(const struct column *column, char *buf, size_t size)
{
    const char *unit = "";

    if (column->kind == COLUMN_BYTES)
        unit = "_bytes";
    else if (column->kind == COLUMN_TIME)
        unit = "_ns";
    snprintf(buf, size, "%s%s", column->name, unit);
}

static bool is_named(const struct column *column, const char *text, size_t length)
{
    if (strlen(column->name) != length)
        return false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i] == '-' ? '_' : (char)tolower((unsigned char)text[i]);

        if (c != column->name[i])
            return false;
    }
    return true;
}

/* Words of a help text, broken at HELP_WIDTH, with HELP_INDENT before what follows a break. */
static void wrap_help(FILE *stream, const char *help)
{
    size_t at = HELP_INDENT;

    while (*help) {
        size_t length = strcspn(help, " ");

        if (at > HELP_INDENT && at + 1 + length > HELP_WIDTH) {
            fprintf(stream, "\n%*s", HELP_INDENT, "");
            at = HELP_INDENT;
        } else if (at > HELP_INDENT) {
            fputc(' ', stream);
            at++;
        }
        fprintf(stream, "%.*s", (int)length, help);
        at += length;
        help += length + strspn(help + length, " ");
    }
    fputc('\n', stream);
}

char *table_help(const struct column *columns, size_t count, unsigned view,
                 const struct column_mark *also)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    char heading[64];

    for (size_t i = 0; stream && i < count; i++) {
        if (!(columns[i].views & view))
            continue;
        heading_of(&columns[i], heading, sizeof heading);
        fprintf(stream, "  %c", columns[i].shown & view ? '*' : ' ');
        for (size_t mark = 0; mark < COLUMN_MARKS; mark++)
            fputc(also && columns[i].shown & also[mark].view ? also[mark].letter : ' ', stream);
        fprintf(stream, " %-*s ", HELP_INDENT - 5 - COLUMN_MARKS, heading);
        wrap_help(stream, columns[i].help);
    }
    if (!stream || fclose(stream) != 0)
        return NULL;
    return text;
}

/* ---- Selection ----------------------------------------------------------------------------------- */

static void select_column(struct table *table, size_t column)
{
    table->selected =
        tool_realloc(table->selected, table->selected_count + 1, sizeof *table->selected);
    table->selected[table->selected_count++] = column;
}

/* The columns of a list such as "NAME,hits". NULL, or what is wrong. */
static const char *select_named(struct table *table, size_t count, unsigned view,
                                const char *output)
{
    static char sentence[192];

    for (const char *at = output;; at++) {
        size_t length = strcspn(at, ",");
        size_t i;

        for (i = 0; i < count; i++) {
            if ((table->columns[i].views & view) && is_named(&table->columns[i], at, length))
                break;
        }
        if (i == count) {
            snprintf(sentence, sizeof sentence,
                     "there is no column '%.*s' in this view; --help lists those there are",
                     (int)(length < 64 ? length : 64), at);
            return sentence;
        }
        select_column(table, i);
        at += length;
        if (*at == '\0')
            return NULL;
    }
}

static bool is_selected(const struct table *table, size_t column, size_t *place)
{
    for (size_t i = *place; i < table->selected_count; i++) {
        if (table->selected[i] == column) {
            *place = i;
            return true;
        }
    }
    return false;
}

void table_hide(struct table *table, size_t column)
{
    size_t place = 0;

    if (table->asked || table->begun || !is_selected(table, column, &place))
        return;
    table->selected_count--;
    memmove(&table->selected[place], &table->selected[place + 1],
            (table->selected_count - place) * sizeof *table->selected);
}

struct table *table_new(const struct column *columns, size_t count, unsigned view,
                        const char *output, bool json, const char **error)
{
    struct table *table = tool_realloc(NULL, 1, sizeof *table);

    *table = (struct table){.columns = columns, .asked = output != NULL, .now_ns = tool_now_ns()};
    *error = NULL;
    if (output)
        *error = select_named(table, count, view, output);
    for (size_t i = 0; i < count && !output; i++) {
        if ((json ? columns[i].views : columns[i].shown) & view)
            select_column(table, i);
    }
    if (*error) {
        free(table->selected);
        free(table);
        return NULL;
    }
    if (json) {
        table->rows = json_object_new_array();
        table->errors = json_object_new_array();
    }
    return table;
}

/* ---- Rows ---------------------------------------------------------------------------------------- */

/* Headings, once it is known which. */
static void begin_people(struct table *table)
{
    char heading[64];

    table->people = scols_new_table();
    for (size_t i = 0; table->people && i < table->selected_count; i++) {
        const struct column *column = &table->columns[table->selected[i]];
        int flags = column->kind == COLUMN_WIDE ? SCOLS_FL_TRUNC : 0;

        if (column->kind != COLUMN_TEXT && column->kind != COLUMN_TAGS && flags == 0)
            flags = SCOLS_FL_RIGHT;
        heading_of(column, heading, sizeof heading);
        if (!scols_table_new_column(table->people, heading, 0, flags))
            tool_no_memory();
    }
    if (!table->people)
        tool_no_memory();
}

static void set_cell(struct table *table, size_t place, const char *text)
{
    if (scols_line_set_data(table->line, place, text) != 0)
        tool_no_memory();
}

void table_row(struct table *table)
{
    char key[64];

    table->begun = true;
    if (!table->rows) {
        if (!table->people)
            begin_people(table);
        table->line = scols_table_new_line(table->people, NULL);
        if (!table->line)
            tool_no_memory();
        for (size_t i = 0; i < table->selected_count; i++)
            set_cell(table, i, "-");
        return;
    }
    table->object = json_object_new_object();
    for (size_t i = 0; i < table->selected_count; i++) {
        key_of(&table->columns[table->selected[i]], key, sizeof key);
        json_object_object_add(table->object, key, NULL);
    }
    json_object_array_add(table->rows, table->object);
}

/* One cell in both forms: text for people, a value (which it takes over) for programs. */
static void fill(struct table *table, size_t column, const char *text, struct json_object *value)
{
    char key[64];

    if (table->object) {
        key_of(&table->columns[column], key, sizeof key);
        json_object_object_add(table->object, key, value);
        return;
    }
    for (size_t place = 0; table->line && is_selected(table, column, &place); place++)
        set_cell(table, place, text);
}

static bool is_wanted(const struct table *table, size_t column)
{
    size_t place = 0;

    return is_selected(table, column, &place);
}

void table_text(struct table *table, size_t column, const char *text)
{
    size_t length = strlen(text);
    char *clean;

    if (length == 0 || !is_wanted(table, column))
        return;
    clean = tool_realloc(NULL, length + 1, 1);
    tool_clean_text(clean, text, length);
    fill(table, column, clean, table->object ? json_object_new_string(clean) : NULL);
    free(clean);
}

void table_word(struct table *table, size_t column, const char *word)
{
    if (is_wanted(table, column))
        fill(table, column, word, NULL);
}

void table_number(struct table *table, size_t column, uint64_t number)
{
    char text[TOOL_TEXT];

    if (!is_wanted(table, column))
        return;
    if (table->columns[column].kind == COLUMN_BYTES)
        tool_format_bytes(text, number);
    else if (table->columns[column].kind == COLUMN_TIME)
        tool_format_age(text, number, table->now_ns);
    else
        snprintf(text, sizeof text, "%" PRIu64, number);
    fill(table, column, text, table->object ? json_object_new_uint64(number) : NULL);
}

void table_ratio(struct table *table, size_t column, uint64_t part, uint64_t whole)
{
    struct json_object *value = NULL;
    char text[TOOL_TEXT];

    if (!is_wanted(table, column))
        return;
    if (table->object && whole != 0) {
        snprintf(text, sizeof text, "%.4f", (double)part / (double)whole);
        value = json_object_new_double_s((double)part / (double)whole, text);
    }
    fill(table, column, tool_format_ratio(text, part, whole), value);
}

void table_tags(struct table *table, size_t column, const struct column_tag *tags, size_t count)
{
    struct json_object *array;
    char text[TAGS_SHOWN * 2 * TOOL_TEXT] = "-";
    char age[TOOL_TEXT];
    int used = 0;

    if (!is_wanted(table, column))
        return;
    for (size_t i = 0; i < count && i < TAGS_SHOWN; i++)
        used +=
            snprintf(text + used, sizeof text - (size_t)used, "%s%" PRIu32 " (%s)", i ? ", " : "",
                     tags[i].tag, tool_format_age(age, tags[i].since_ns, table->now_ns));
    if (count > TAGS_SHOWN)
        snprintf(text + used, sizeof text - (size_t)used, ", %zu more", count - TAGS_SHOWN);
    array = table->object ? json_object_new_array() : NULL;
    for (size_t i = 0; array && i < count; i++) {
        struct json_object *tag = json_object_new_object();

        json_object_object_add(tag, "tag", json_object_new_uint64(tags[i].tag));
        json_object_object_add(tag, "since_ns", json_object_new_uint64(tags[i].since_ns));
        json_object_array_add(array, tag);
    }
    fill(table, column, text, array);
}

void table_error(struct table *table, const char *name, int code, const char *sentence)
{
    size_t length = strlen(sentence);
    struct json_object *error;
    char *clean;

    if (!table->errors)
        return;
    clean = tool_realloc(NULL, length + 1, 1);
    tool_clean_text(clean, sentence, length);
    error = json_object_new_object();
    json_object_object_add(error, "name", json_object_new_string(name));
    json_object_object_add(error, "code", json_object_new_int(code));
    json_object_object_add(error, "error", json_object_new_string(clean));
    free(clean);
    json_object_array_add(table->errors, error);
}

void table_print(struct table *table, const char *key)
{
    if (table->rows) {
        struct json_object *all = json_object_new_object();

        json_object_object_add(all, "version", json_object_new_int(FORMAT_VERSION));
        json_object_object_add(all, key, table->rows);
        json_object_object_add(all, "errors", table->errors);
        puts(json_object_to_json_string_ext(all, JSON_C_TO_STRING_PRETTY |
                                                     JSON_C_TO_STRING_NOSLASHESCAPE));
        json_object_put(all);
    } else if (table->people) {
        scols_print_table(table->people);
        scols_unref_table(table->people);
    }
    free(table->selected);
    free(table);
}
