/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_trace.c - see bench_trace.h
 *
 * While a trace is read, its nodes stand in a hash table with open addresses, at most half full: a place holds a
 * node's number + 1, or 0. A node is found by (parent + 1, id), both compared.
 */
#include "bench_trace.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define MAX_REQUESTS (UINT32_MAX - 1)
#define MAX_NODES    (UINT32_MAX / 4)

struct reader {
    struct bench_trace *trace;
    const char *name;
    uint64_t line;       /* from 1 */
    size_t request_room; /* allocated, of each array */
    size_t block_room;
    size_t node_room;
    uint32_t *parents; /* node -> parent's number + 1; 0: the first block of a prompt */
    uint32_t *table;
    size_t table_size; /* a power of two, or 0 */
    struct json_tokener *tokener;
};

/* "NAME:LINE: FIELD: " and the message; field NULL: none. */
static int refuse(const struct reader *reader, const char *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse(const struct reader *reader, const char *field, const char *format, ...)
{
    char message[256];
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    tool_error("%s:%llu: %s%s%s", reader->name, (unsigned long long)reader->line,
               field ? field : "", field ? ": " : "", message);
    return -1;
}

/* Room for need elements: *room and the array grow. */
static int grow(void **array, size_t *room, size_t need, size_t element_bytes)
{
    size_t wanted = *room ? *room : 1024;
    void *grown;

    if (need <= *room)
        return 0;
    while (wanted < need)
        wanted *= 2;
    grown = reallocarray(*array, wanted, element_bytes);
    if (!grown) {
        tool_error("no memory for the trace");
        return -1;
    }
    *array = grown;
    *room = wanted;
    return 0;
}

static size_t place_of(const struct reader *reader, uint32_t parent, uint64_t id)
{
    return bench_mix(bench_mix(id) + parent) & (reader->table_size - 1);
}

/* Double the table, and put all nodes into it. */
static int table_grow(struct reader *reader)
{
    size_t size = reader->table_size ? reader->table_size * 2 : 4096;
    uint32_t *table = calloc(size, sizeof(*table));

    if (!table) {
        tool_error("no memory for the trace");
        return -1;
    }
    free(reader->table);
    reader->table = table;
    reader->table_size = size;
    for (uint32_t node = 0; node < reader->trace->node_count; node++) {
        size_t place = place_of(reader, reader->parents[node], reader->trace->node_ids[node]);

        while (table[place])
            place = (place + 1) & (size - 1);
        table[place] = node + 1;
    }
    return 0;
}

/* A node more; *node is its number. */
static int node_make(struct reader *reader, uint32_t parent, uint64_t id, uint32_t *node)
{
    struct bench_trace *trace = reader->trace;
    size_t room = reader->node_room;

    if (trace->node_count >= MAX_NODES)
        return refuse(reader, "hash_ids", "more than %u distinct blocks", MAX_NODES);
    if (grow((void **)&reader->parents, &room, trace->node_count + 1u, sizeof(uint32_t)) ||
        grow((void **)&trace->node_ids, &reader->node_room, trace->node_count + 1u,
             sizeof(uint64_t)))
        return -1;
    *node = trace->node_count++;
    reader->parents[*node] = parent;
    trace->node_ids[*node] = id;
    return 0;
}

/* The node of block id behind parent (a number + 1, or 0), made if it is new. */
static int node_find(struct reader *reader, uint32_t parent, uint64_t id, uint32_t *node)
{
    const struct bench_trace *trace = reader->trace;
    size_t place;

    if (reader->table_size < 2 * ((size_t)trace->node_count + 1) && table_grow(reader))
        return -1;
    for (place = place_of(reader, parent, id); reader->table[place];
         place = (place + 1) & (reader->table_size - 1)) {
        *node = reader->table[place] - 1;
        if (reader->parents[*node] == parent && trace->node_ids[*node] == id)
            return 0;
    }
    if (node_make(reader, parent, id, node))
        return -1;
    reader->table[place] = *node + 1;
    return 0;
}

/* A number that is whole, and not negative or beyond 2^63 - 1? json-c cuts what does not fit to the largest. */
static bool is_whole(struct json_object *value)
{
    return json_object_is_type(value, json_type_int) && json_object_get_int64(value) >= 0 &&
           json_object_get_uint64(value) <= INT64_MAX;
}

static int take_ids(struct reader *reader, struct json_object *ids)
{
    struct bench_trace *trace = reader->trace;
    size_t count = json_object_array_length(ids);
    uint32_t parent = 0, node = 0;

    if (count == 0)
        return refuse(reader, "hash_ids", "is empty; at least one id is needed");
    if (count > UINT32_MAX)
        return refuse(reader, "hash_ids", "too many ids");
    if (grow((void **)&trace->nodes, &reader->block_room, trace->block_count + count,
             sizeof(uint32_t)))
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct json_object *id = json_object_array_get_idx(ids, i);

        if (!is_whole(id))
            return refuse(reader, "hash_ids", "id %zu is no whole number from 0 to 2^63 - 1: %s",
                          i + 1, json_object_to_json_string(id));
        if (node_find(reader, parent, json_object_get_uint64(id), &node))
            return -1;
        trace->nodes[trace->block_count++] = node;
        parent = node + 1;
    }
    if (count > trace->longest)
        trace->longest = (uint32_t)count;
    return 0;
}

/* The three fields that a replay does not use must be there all the same: else this is another kind of file. */
static int check_fields(const struct reader *reader, struct json_object *request)
{
    static const char *const lengths[] = {"input_length", "output_length"};
    struct json_object *value;

    if (!json_object_object_get_ex(request, "timestamp", &value))
        return refuse(reader, "timestamp", "is missing");
    if (!(json_object_is_type(value, json_type_int) ||
          json_object_is_type(value, json_type_double)) ||
        !(json_object_get_double(value) >= 0))
        return refuse(reader, "timestamp", "is no number from 0");
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        if (!json_object_object_get_ex(request, lengths[i], &value))
            return refuse(reader, lengths[i], "is missing");
        if (!is_whole(value))
            return refuse(reader, lengths[i], "is no whole number from 0");
    }
    return 0;
}

static int take_request(struct reader *reader, struct json_object *request)
{
    struct bench_trace *trace = reader->trace;
    struct json_object *ids;

    if (!json_object_is_type(request, json_type_object))
        return refuse(reader, NULL, "is no JSON object");
    if (check_fields(reader, request))
        return -1;
    if (!json_object_object_get_ex(request, "hash_ids", &ids))
        return refuse(reader, "hash_ids", "is missing");
    if (!json_object_is_type(ids, json_type_array))
        return refuse(reader, "hash_ids", "is no array");
    if (trace->request_count >= MAX_REQUESTS)
        return refuse(reader, NULL, "more than %u requests", MAX_REQUESTS);
    if (grow((void **)&trace->first_block, &reader->request_room, trace->request_count + 2u,
             sizeof(uint64_t)))
        return -1;
    trace->first_block[trace->request_count] = trace->block_count;
    if (take_ids(reader, ids))
        return -1;
    trace->first_block[++trace->request_count] = trace->block_count;
    return 0;
}

/* line has a NUL behind its length bytes. */
static int take_line(struct reader *reader, char *line, size_t length)
{
    struct json_object *request;
    enum json_tokener_error error;
    int status;

    while (length > 0 && line[length - 1] != 0 && strchr(" \t\r\n", line[length - 1]))
        line[--length] = 0;
    if (length == 0)
        return refuse(reader, NULL, "is empty");
    if (length >= INT32_MAX)
        return refuse(reader, NULL, "is too long");
    json_tokener_reset(reader->tokener);
    request = json_tokener_parse_ex(reader->tokener, line, (int)length + 1);
    error = json_tokener_get_error(reader->tokener);
    if (error == json_tokener_continue)
        return refuse(reader, NULL, "ends in the middle of a JSON value");
    if (error != json_tokener_success)
        return refuse(reader, NULL, "is no JSON at column %zu: %s",
                      json_tokener_get_parse_end(reader->tokener) + 1,
                      json_tokener_error_desc(error));
    if (json_tokener_get_parse_end(reader->tokener) != length)
        status = refuse(reader, NULL, "goes on behind its JSON value, at column %zu",
                        json_tokener_get_parse_end(reader->tokener) + 1);
    else
        status = take_request(reader, request);
    json_object_put(request);
    return status;
}

static int take_lines(struct reader *reader, FILE *file)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    int status = 0;

    while (status == 0 && (length = getline(&line, &room, file)) >= 0) {
        reader->line++;
        status = take_line(reader, line, (size_t)length);
    }
    free(line);
    if (status == 0 && !feof(file)) {
        tool_error("%s: %s", reader->name, strerror(errno));
        return -1;
    }
    if (status == 0 && reader->trace->request_count == 0) {
        tool_error("%s: no request in it", reader->name);
        return -1;
    }
    return status;
}

int bench_trace_read(FILE *file, const char *name, struct bench_trace *trace)
{
    struct reader reader = {.trace = trace, .name = name};
    int status = -1;

    memset(trace, 0, sizeof(*trace));
    reader.tokener = json_tokener_new();
    if (reader.tokener) {
        json_tokener_set_flags(reader.tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
        status = take_lines(&reader, file);
        json_tokener_free(reader.tokener);
    } else {
        tool_error("no memory for the trace");
    }
    free(reader.parents);
    free(reader.table);
    if (status)
        bench_trace_free(trace);
    return status;
}

void bench_trace_free(struct bench_trace *trace)
{
    free(trace->first_block);
    free(trace->nodes);
    free(trace->node_ids);
    memset(trace, 0, sizeof(*trace));
}
