/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvshm - shows arenas, their clients and their entries.
 *
 * It maps read-only, takes no lock and no place, waits for nobody and writes nothing, so it works while every server
 * is stopped, and on an arena that is not well. A client's status comes from its lock, as servers see it.
 *
 * A view is a line of views[]; what it can show are the lines of columns[] that name it.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "columns.h"
#include "common.h"
#include "handle.h"
#include "limit.h"
#include "ring.h"

#define MAPPINGS 2 /* of the segment, in each client */

#define ARENAS  1u
#define SUMMARY 2u
#define CLIENTS 4u
#define ENTRIES 8u
#define SPILL   16u

enum column_number {
    NAME,
    BACKING,
    BACKING_ASKED,
    BACKING_REASON,
    NUMA,
    NUMA_ASKED,
    PATH,
    PAGE,
    PAGE_TOKENS,
    TOKEN_SCALE,
    SHARDS,
    MEMORY,
    TABLES,
    INDEX,
    TOKEN_TABLE,
    USED,
    FRAMES,
    RESERVED,
    LIMBO,
    FREE,
    USED_RATIO,
    CACHED_PAGES,
    CACHED_ENTRIES,
    CAPACITY,
    SPILL_PATH,
    SPILL_SIZE,
    SLOTS,
    SLOTS_FREE,
    SPILLED,
    SPILLED_ENTRIES,
    RESTORING,
    WRITTEN,
    READ,
    WRITE_RATIO,
    ADMISSION,
    WAIT_MS,
    LIVING,
    MAX_CLIENTS,
    MAX_LEASES,
    STALL_MS,
    EPOCH,
    CREATED,
    LAST_INSERT,
    LAST_EVICT,
    HITS,
    PENDING,
    MISSES,
    HIT_RATIO,
    CLIENT,
    PID,
    STATUS,
    ENGINE,
    ENGINE_REASON,
    TRANSFERS,
    LABEL,
    UID,
    LEASES,
    RESERVATIONS,
    RESERVED_FRAMES,
    DEVICE_FRAMES,
    WRITER,
    PAGE_TABLES,
    ATTACHED,
    TAGS,
    ADAPTER,
    TENANT,
    TOKENS,
    PAGES,
    ENTRY_LEASES,
    ORDER,
    LAST_USED,
    KIND,
    ID,
#define KVSHM_COUNTER(name, unit, help)       COUNTER_##name,
#define KVSHM_LEASE_COUNTER(name, unit, help) COUNTER_##name,
#include "counters.def"
#undef KVSHM_COUNTER
#undef KVSHM_LEASE_COUNTER
    COLUMNS
};

#define OF_ARENAS (ARENAS | SUMMARY | SPILL)

static const struct column columns[COLUMNS] = {
    [NAME] = {"name", COLUMN_TEXT, OF_ARENAS | CLIENTS | ENTRIES, OF_ARENAS | CLIENTS | ENTRIES,
              "name of the arena"},
    [BACKING] = {"backing", COLUMN_TEXT, OF_ARENAS, ARENAS, "what its memory is made of"},
    [BACKING_ASKED] = {"backing_asked", COLUMN_TEXT, OF_ARENAS, 0, "what it was to be made of"},
    [BACKING_REASON] = {"backing_reason", COLUMN_WIDE, OF_ARENAS, 0, "why it is not a better one"},
    [NUMA] = {"numa", COLUMN_TEXT, OF_ARENAS, 0, "nodes that its memory is on"},
    [NUMA_ASKED] = {"numa_asked", COLUMN_TEXT, OF_ARENAS, 0, "nodes that it was to be on"},
    [PATH] = {"path", COLUMN_WIDE, OF_ARENAS, 0, "file of the segment"},
    [PAGE] = {"page", COLUMN_BYTES, OF_ARENAS, ARENAS, "size of a page"},
    [PAGE_TOKENS] = {"page_tokens", COLUMN_NUMBER, OF_ARENAS, 0, "tokens a page holds"},
    [TOKEN_SCALE] = {"token_scale", COLUMN_NUMBER, OF_ARENAS, 0, "what one token stands for"},
    [SHARDS] = {"shards", COLUMN_NUMBER, OF_ARENAS, 0, "equal parts of a page"},
    [MEMORY] = {"memory", COLUMN_BYTES, OF_ARENAS, SUMMARY, "size of the segment"},
    [TABLES] = {"tables", COLUMN_BYTES, OF_ARENAS, SUMMARY, "of that, all that is no frame"},
    [INDEX] = {"index", COLUMN_BYTES, OF_ARENAS, 0, "of that, index and records of pages"},
    [TOKEN_TABLE] = {"token", COLUMN_BYTES, OF_ARENAS, 0, "of that, tokens and keys"},
    [USED] = {"used", COLUMN_NUMBER, OF_ARENAS, ARENAS | SUMMARY, "frames that are not free"},
    [FRAMES] = {"frames", COLUMN_NUMBER, OF_ARENAS, ARENAS | SUMMARY, "frames in all"},
    [RESERVED] = {"reserved", COLUMN_NUMBER, OF_ARENAS, SUMMARY, "frames being filled"},
    [LIMBO] = {"limbo", COLUMN_NUMBER, OF_ARENAS, SUMMARY, "frames taken away, and still leased"},
    [FREE] = {"free", COLUMN_NUMBER, OF_ARENAS, SUMMARY, "frames that are free"},
    [USED_RATIO] = {"used_ratio", COLUMN_RATIO, OF_ARENAS, SUMMARY, "used frames of all"},
    [CACHED_PAGES] = {"pages", COLUMN_NUMBER, OF_ARENAS, 0, "pages in memory"},
    [CACHED_ENTRIES] = {"entries", COLUMN_NUMBER, OF_ARENAS, ARENAS | SUMMARY,
                        "entries cached, in memory or in the spill file"},
    [CAPACITY] = {"capacity", COLUMN_NUMBER, OF_ARENAS, 0, "entries it may hold"},
    [SPILL_PATH] = {"spill_path", COLUMN_WIDE, OF_ARENAS, 0,
                    "spill file, as the creator calls it"},
    [SPILL_SIZE] = {"spill", COLUMN_BYTES, OF_ARENAS, SPILL, "the most that the spill file may hold"},
    [SLOTS] = {"slots", COLUMN_NUMBER, OF_ARENAS, SPILL, "slots of the spill file"},
    [SLOTS_FREE] = {"slots_free", COLUMN_NUMBER, OF_ARENAS, SPILL, "slots that are free"},
    [SPILLED] = {"spilled", COLUMN_NUMBER, OF_ARENAS, ARENAS | SPILL, "pages in the spill file alone"},
    [SPILLED_ENTRIES] = {"spilled_entries", COLUMN_NUMBER, OF_ARENAS, 0,
                         "entries that gave up their memory for the spill file"},
    [RESTORING] = {"restoring", COLUMN_NUMBER, OF_ARENAS, SPILL, "frames that pages are read into"},
    [WRITTEN] = {"written", COLUMN_BYTES, OF_ARENAS, SPILL, "written to the spill file"},
    [READ] = {"read", COLUMN_BYTES, OF_ARENAS, SPILL, "read from the spill file"},
    [WRITE_RATIO] = {"write_ratio", COLUMN_RATIO, OF_ARENAS, SPILL,
                     "written of the bytes of pages that left memory or were dropped"},
    [ADMISSION] = {"admission", COLUMN_TEXT, OF_ARENAS, 0, "which pages are written: all, or reused ones"},
    [WAIT_MS] = {"wait_ms", COLUMN_NUMBER, OF_ARENAS, 0,
                 "milliseconds that lookups wait for the spill file if they are to"},
    [LIVING] = {"clients", COLUMN_NUMBER, OF_ARENAS, ARENAS, "clients that are alive"},
    [MAX_CLIENTS] = {"max_clients", COLUMN_NUMBER, OF_ARENAS, 0, "clients it has places for"},
    [MAX_LEASES] = {"max_leases", COLUMN_NUMBER, OF_ARENAS, 0, "leases one client may hold"},
    [STALL_MS] = {"stall_ms", COLUMN_NUMBER, OF_ARENAS, 0,
                  "milliseconds that writers wait for one that stopped"},
    [EPOCH] = {"epoch", COLUMN_NUMBER, OF_ARENAS, 0, "1, or the spill file's, and one more for each clear"},
    [CREATED] = {"created", COLUMN_TIME, OF_ARENAS, 0, "time since it was created"},
    [LAST_INSERT] = {"last_insert", COLUMN_TIME, OF_ARENAS, 0, "time since the last insert"},
    [LAST_EVICT] = {"last_evict", COLUMN_TIME, OF_ARENAS, 0, "time since the last eviction"},
    [HITS] = {"hits", COLUMN_NUMBER, OF_ARENAS, ARENAS | SPILL,
              "lookups and matches that found something in memory"},
    [PENDING] = {"pending", COLUMN_NUMBER, OF_ARENAS, SPILL,
                 "lookups and matches that did not wait for what is in the spill file alone"},
    [MISSES] = {"misses", COLUMN_NUMBER, OF_ARENAS, SPILL, "lookups and matches that found nothing"},
    [HIT_RATIO] = {"hit_ratio", COLUMN_RATIO, OF_ARENAS, SUMMARY, "hits of hits and misses"},
    [CLIENT] = {"client", COLUMN_NUMBER, CLIENTS, CLIENTS,
                "number of the client, never given twice"},
    [PID] = {"pid", COLUMN_NUMBER, CLIENTS, CLIENTS, "process, as it saw itself"},
    [STATUS] = {"status", COLUMN_TEXT, CLIENTS, CLIENTS, "alive or dead, by its lock"},
    [ENGINE] = {"engine", COLUMN_TEXT, CLIENTS, CLIENTS,
                "how it reads and writes the spill file; none: not yet"},
    [ENGINE_REASON] = {"engine_reason", COLUMN_WIDE, CLIENTS, 0, "why it has no better one"},
    [TRANSFERS] = {"transfers", COLUMN_NUMBER, CLIENTS, 0,
                   "pages that it writes to the spill file and reads from it now"},
    [LABEL] = {"label", COLUMN_WIDE, CLIENTS, CLIENTS, "what it calls itself"},
    [UID] = {"uid", COLUMN_NUMBER, CLIENTS, 0, "user that it ran as"},
    [LEASES] = {"leases", COLUMN_NUMBER, CLIENTS, CLIENTS, "leases it holds, or held when it died"},
    [RESERVATIONS] = {"reservations", COLUMN_NUMBER, CLIENTS, CLIENTS, "reservations, likewise"},
    [RESERVED_FRAMES] = {"frames", COLUMN_NUMBER, CLIENTS, CLIENTS,
                         "frames that are reserved for it now"},
    [DEVICE_FRAMES] = {"device_frames", COLUMN_NUMBER, CLIENTS, 0, "of these, with KVSHM_DEVICE"},
    [WRITER] = {"writer", COLUMN_TEXT, CLIENTS, 0, "yes: it holds the writer lock"},
    [PAGE_TABLES] = {"page_tables", COLUMN_BYTES, CLIENTS, CLIENTS,
                     "page tables when it has touched all"},
    [ATTACHED] = {"attached", COLUMN_TIME, CLIENTS, CLIENTS, "time since it attached"},
    [TAGS] = {"tags", COLUMN_TAGS, CLIENTS, CLIENTS,
              "tags of its leases, each with the time since"},
    [ADAPTER] = {"adapter", COLUMN_NUMBER, ENTRIES, ENTRIES, "adapter; 0: the base model"},
    [TENANT] = {"tenant", COLUMN_NUMBER, ENTRIES, ENTRIES, "tenant"},
    [TOKENS] = {"tokens", COLUMN_NUMBER, ENTRIES, ENTRIES, "tokens of the prefix"},
    [PAGES] = {"pages", COLUMN_NUMBER, ENTRIES, ENTRIES, "pages that hold them"},
    [ENTRY_LEASES] = {"leases", COLUMN_NUMBER, ENTRIES, ENTRIES, "leases that end where it ends"},
    [ORDER] = {"order", COLUMN_NUMBER, ENTRIES, ENTRIES,
               "1: used last; the largest is evicted next"},
    [LAST_USED] = {"last_used", COLUMN_NUMBER, ENTRIES, 0, "recency stamp; larger is later"},
    [KIND] = {"kind", COLUMN_TEXT, ENTRIES, ENTRIES, "tokens, or key: without tokens"},
    [ID] = {"id", COLUMN_WIDE, ENTRIES, ENTRIES,
            "its key without the zeros behind, or its last page's id"},
#define KVSHM_COUNTER(name, unit, help) \
    [COUNTER_##name] = {#name, COLUMN_NUMBER, OF_ARENAS, 0, help},
#define KVSHM_LEASE_COUNTER(name, unit, help) KVSHM_COUNTER(name, unit, help)
#include "counters.def"
#undef KVSHM_COUNTER
#undef KVSHM_LEASE_COUNTER
};

struct view {
    unsigned bit;
    int option;      /* 0: the view when no other is asked for */
    const char *key; /* of its rows in JSON */
    /* Add the rows of an arena. 0, or an error whose sentence kvshm_errmsg has. */
    int (*show)(struct table *table, const char *name, kvshm *kv);
};

struct request {
    const struct view *view;
    const char *output;
    bool json;
    char **names; /* of arenas, asked for or found */
    size_t name_count;
    bool found; /* they were found, not asked for */
};

/* ---- Arenas -------------------------------------------------------------------------------------- */

/* A number, or unlimited: null for programs. */
static void show_limit(struct table *table, size_t column, uint64_t limit)
{
    if (limit == KVSHM_UNLIMITED)
        table_word(table, column, "unlimited");
    else
        table_number(table, column, limit);
}

static void show_frames(struct table *table, const struct kvshm_info *info)
{
    uint64_t used = info->frames > info->frames_free ? info->frames - info->frames_free : 0;

    table_number(table, USED, used);
    table_number(table, FRAMES, info->frames);
    table_number(table, RESERVED, info->frames_reserved);
    table_number(table, LIMBO, info->pages_limbo);
    table_number(table, FREE, info->frames_free);
    table_ratio(table, USED_RATIO, used, info->frames);
    table_number(table, CACHED_PAGES, info->pages);
    table_number(table, CACHED_ENTRIES, info->entries);
    show_limit(table, CAPACITY, info->capacity);
}

static void show_spill(struct table *table, const kvshm *kv, const struct kvshm_info *info)
{
    const struct kvshm_header *header = kv->header;
    uint64_t admission = KVSHM__LOAD((kvshm_a64 *)&header->settings.admission);
    uint64_t restoring = KVSHM__LOAD((kvshm_a64 *)&header->tier.frames_restoring);

    if (info->slots == 0)
        return;
    table_text(table, SPILL_PATH, kv->fixed->spill_path);
    table_number(table, SPILL_SIZE, KVSHM__LOAD((kvshm_a64 *)&header->settings.spill_bytes));
    table_number(table, SLOTS, info->slots);
    table_number(table, SLOTS_FREE, info->slots_free);
    table_number(table, SPILLED, info->pages_spilled);
    table_number(table, SPILLED_ENTRIES, info->entries_spilled);
    table_number(table, RESTORING, restoring < info->frames ? restoring : info->frames);
    table_text(table, ADMISSION, tool_admission(admission));
    show_limit(table, WAIT_MS, KVSHM__LOAD((kvshm_a64 *)&header->settings.wait_ms));
}

static void show_making(struct table *table, const struct kvshm_info *info)
{
    char numa[TOOL_TEXT];

    table_text(table, BACKING, tool_backing(info->backing));
    table_text(table, BACKING_ASKED, tool_backing(info->backing_asked));
    table_text(table, BACKING_REASON, info->backing_reason);
    table_text(table, NUMA, tool_format_numa(numa, info->numa));
    table_text(table, NUMA_ASKED, tool_format_numa(numa, info->numa_asked));
    table_text(table, PATH, info->path);
    table_number(table, PAGE, info->page_bytes);
    table_number(table, PAGE_TOKENS, info->geometry.page_tokens);
    table_number(table, TOKEN_SCALE, info->geometry.token_scale);
    table_number(table, SHARDS, info->geometry.shards);
    table_number(table, MEMORY, info->segment_bytes);
    table_number(table, TABLES, info->segment_bytes - info->frames_length);
    table_number(table, INDEX, info->index_bytes);
    table_number(table, TOKEN_TABLE, info->token_bytes);
    table_number(table, LIVING, info->clients);
    table_number(table, MAX_CLIENTS, info->max_clients);
    table_number(table, MAX_LEASES, info->max_leases);
    table_number(table, STALL_MS, info->stall_ms);
    table_number(table, EPOCH, info->epoch);
    table_number(table, CREATED, info->created_ns);
    if (info->last_insert_ns)
        table_number(table, LAST_INSERT, info->last_insert_ns);
    if (info->last_evict_ns)
        table_number(table, LAST_EVICT, info->last_evict_ns);
}

static void show_traffic(struct table *table, const struct kvshm_info *info,
                         const struct kvshm_stats *stats)
{
    if (info->slots == 0)
        return;
    table_number(table, PENDING, stats->pending_lookups);
    table_number(table, WRITTEN, stats->spill_bytes_written);
    table_number(table, READ, stats->spill_bytes_read);
    table_ratio(table, WRITE_RATIO, stats->spill_bytes_written,
                (stats->left_pages + stats->evicted_pages) * info->page_bytes);
}

static void show_counters(struct table *table, const struct kvshm_stats *stats)
{
    uint64_t hits = stats->lookup_hits + stats->match_hits;
    uint64_t misses = stats->lookup_misses + stats->match_misses;

    table_number(table, HITS, hits);
    table_number(table, MISSES, misses);
    table_ratio(table, HIT_RATIO, hits, hits + misses);
#define KVSHM_COUNTER(name, unit, help)       table_number(table, COUNTER_##name, stats->name);
#define KVSHM_LEASE_COUNTER(name, unit, help) table_number(table, COUNTER_##name, stats->name);
#include "counters.def"
#undef KVSHM_COUNTER
#undef KVSHM_LEASE_COUNTER
}

static int show_arena(struct table *table, const char *name, kvshm *kv)
{
    struct kvshm_info info;
    struct kvshm_stats stats;
    int error;

    kvshm_info_init(&info);
    kvshm_stats_init(&stats);
    if ((error = kvshm_info(kv, &info)) < 0 || (error = kvshm_stats(kv, &stats)) < 0)
        return error;
    table_row(table);
    table_text(table, NAME, name);
    show_making(table, &info);
    show_frames(table, &info);
    show_spill(table, kv, &info);
    show_traffic(table, &info, &stats);
    show_counters(table, &stats);
    return 0;
}

/* ---- Clients ------------------------------------------------------------------------------------- */

static int older_tag(const void *a, const void *b)
{
    const struct column_tag *x = a, *y = b;

    return x->since_ns < y->since_ns ? -1 : x->since_ns > y->since_ns;
}

/* Leases in the table of a place, and their tags, the oldest first. tags has room for max_leases. */
static uint32_t count_leases(const kvshm *kv, uint32_t place, struct column_tag *tags,
                             size_t *tag_count)
{
    struct kvshm_lease_word *word = kv->leases + (size_t)place * kv->max_leases;
    uint32_t high = KVSHM__LOAD_ACQ(&kv->clients[place].lease_high);
    uint32_t count = 0;

    *tag_count = 0;
    for (uint32_t i = 0; i < high && i < kv->max_leases; i++) {
        uint64_t since_ns = KVSHM__LOAD(&word[i].tag_ns);

        if (KVSHM__LOAD_ACQ(&word[i].word) == 0)
            continue;
        count++;
        if (since_ns != 0)
            tags[(*tag_count)++] = (struct column_tag){KVSHM__LOAD(&word[i].tag), since_ns};
    }
    qsort(tags, *tag_count, sizeof *tags, older_tag);
    return count;
}

static uint32_t count_reservations(const kvshm *kv, uint32_t place)
{
    kvshm_a64 *word = kv->reservations + (size_t)place * kv->max_leases;
    uint32_t count = 0;

    for (uint32_t i = 0; i < kv->max_leases; i++)
        count += KVSHM__LOAD(&word[i]) == KVSHM__RESERVATION_HELD;
    return count;
}

/* Frames and slots that are a client's. */
struct owned {
    uint64_t client;
    uint64_t frames; /* reserved */
    uint64_t device_frames;
    uint64_t transfers; /* frames that it reads into, and slots that it writes */
};

/* What an owner word says is added to its client's. place: where to look first, and where it was found. */
static void count_owner(const kvshm *kv, uint64_t owner, struct owned *owned, uint32_t *place)
{
    uint64_t kind = owner >> 60;
    uint64_t client = owner >> 16 & KVSHM__CLIENT_NUMBER_MAX;

    if (kind != KVSHM__OWNER_RESERVED && kind != KVSHM__OWNER_DEVICE &&
        kind != KVSHM__OWNER_RESTORING && kind != KVSHM__OWNER_WRITING)
        return;
    for (uint32_t i = 0; i < kv->max_clients && owned[*place].client != client; i++)
        *place = *place + 1 < kv->max_clients ? *place + 1 : 0;
    if (owned[*place].client != client)
        return;
    if (kind == KVSHM__OWNER_RESTORING || kind == KVSHM__OWNER_WRITING) {
        owned[*place].transfers++;
        return;
    }
    owned[*place].frames++;
    owned[*place].device_frames += kind == KVSHM__OWNER_DEVICE;
}

/* By the owner words, into one item a place; what the dead had counts until it is given back. */
static void count_owned(const kvshm *kv, struct owned *owned)
{
    uint32_t place = 0; /* what is of one client stands together, mostly */

    for (uint32_t i = 0; i < kv->max_clients; i++)
        owned[i] = (struct owned){.client = KVSHM__LOAD_ACQ(&kv->clients[i].number)};
    for (uint32_t frame = 0; frame < kv->frame_count; frame++)
        count_owner(kv, KVSHM__LOAD(&kv->owners[frame].owner), owned, &place);
    for (uint32_t slot = 0; kv->slots && slot < kv->slot_count; slot++)
        count_owner(kv, KVSHM__LOAD(&kv->slots[slot].owner), owned, &place);
}

/* How it moves pages, of an arena with a spill file. */
static void show_engine(struct table *table, const kvshm *kv, const struct kvshm_client *copy,
                        const struct owned *owned)
{
    char reason[KVSHM__REASON_BYTES];

    if (kv->slot_count == 0)
        return;
    table_text(table, ENGINE, kvshm__ring_engine_name(kvshm__client_engine(copy, reason)));
    table_text(table, ENGINE_REASON, reason);
    table_number(table, TRANSFERS, owned->transfers);
}

/* The place changes hands when its number does; then what was read is of two clients, and is not shown. */
static void show_client(struct table *table, const char *name, const kvshm *kv, uint32_t place,
                        const struct owned *owned, struct column_tag *tags)
{
    struct kvshm_client *client = &kv->clients[place];
    struct kvshm_client copy;
    char label[KVSHM_LABEL_MAX + 1];
    uint32_t leases, reservations;
    size_t tag_count;
    bool alive;

    if (owned->client == 0)
        return;
    memcpy(&copy, client, sizeof copy);
    kvshm__client_label(client, label);
    leases = count_leases(kv, place, tags, &tag_count);
    reservations = count_reservations(kv, place);
    alive = kvshm__client_alive(kv, owned->client);
    if (KVSHM__LOAD_ACQ(&client->number) != owned->client)
        return;

    table_row(table);
    table_text(table, NAME, name);
    table_number(table, CLIENT, owned->client);
    table_number(table, PID, copy.pid);
    table_text(table, STATUS, alive ? "alive" : "dead");
    show_engine(table, kv, &copy, owned);
    table_text(table, LABEL, label);
    table_number(table, UID, copy.uid);
    table_number(table, LEASES, leases);
    table_number(table, RESERVATIONS, reservations);
    table_number(table, RESERVED_FRAMES, owned->frames);
    table_number(table, DEVICE_FRAMES, owned->device_frames);
    table_text(table, WRITER,
               KVSHM__LOAD(&kv->header->lock.word) == owned->client ? "yes" : "no");
    table_number(table, PAGE_TABLES,
                 MAPPINGS * kvshm__limit_table_bytes(kv->segment_bytes, kv->fixed->page_size));
    table_number(table, ATTACHED, copy.attached_ns);
    table_tags(table, TAGS, tags, tag_count);
}

static int show_clients(struct table *table, const char *name, kvshm *kv)
{
    struct column_tag *tags = tool_realloc(NULL, kv->max_leases, sizeof *tags);
    struct owned *owned = tool_realloc(NULL, kv->max_clients, sizeof *owned);

    count_owned(kv, owned);
    for (uint32_t place = 0; place < kv->max_clients; place++)
        show_client(table, name, kv, place, &owned[place], tags);
    free(owned);
    free(tags);
    return 0;
}

/* ---- Entries ------------------------------------------------------------------------------------- */

struct entries {
    struct kvshm_entry *entry;
    size_t count;
    size_t room;
};

static int add_entry(const struct kvshm_entry *entry, void *arg)
{
    struct entries *entries = arg;

    if (entries->count == entries->room) {
        entries->room = entries->room ? 2 * entries->room : 64;
        entries->entry = tool_realloc(entries->entry, entries->room, sizeof *entries->entry);
    }
    entries->entry[entries->count++] = *entry;
    return 0;
}

static int used_later(const void *a, const void *b)
{
    const struct kvshm_entry *x = a, *y = b;

    return x->last_used > y->last_used ? -1 : x->last_used < y->last_used;
}

/* The key without the zero bytes at its end, of which one byte stays; or the deepest page's id. */
static void format_id(const struct kvshm_entry *entry, char *buf, size_t size)
{
    size_t length = KVSHM_KEY_BYTES;

    if (!entry->key_only) {
        snprintf(buf, size, "%016" PRIx64 "%016" PRIx64, entry->page_id[0], entry->page_id[1]);
        return;
    }
    while (length > 1 && entry->key[length - 1] == 0)
        length--;
    for (size_t i = 0; i < length; i++)
        snprintf(buf + 2 * i, size - 2 * i, "%02x", entry->key[i]);
}

static void show_entry(struct table *table, const char *name, const struct kvshm_entry *entry,
                       size_t order)
{
    char id[2 * KVSHM_KEY_BYTES + 1];

    format_id(entry, id, sizeof id);
    table_row(table);
    table_text(table, NAME, name);
    table_number(table, ADAPTER, entry->adapter_id);
    table_number(table, TENANT, entry->tenant);
    table_number(table, TOKENS, entry->tokens);
    table_number(table, PAGES, entry->pages);
    table_number(table, ENTRY_LEASES, entry->leases);
    table_number(table, ORDER, order);
    table_number(table, LAST_USED, entry->last_used);
    table_text(table, KIND, entry->key_only ? "key" : "tokens");
    table_text(table, ID, id);
}

static int show_entries(struct table *table, const char *name, kvshm *kv)
{
    struct entries entries = {0};
    int error = kvshm_foreach(kv, add_entry, &entries);

    if (error == 0 && entries.count) {
        qsort(entries.entry, entries.count, sizeof *entries.entry, used_later);
        for (size_t i = 0; i < entries.count; i++)
            show_entry(table, name, &entries.entry[i], i + 1);
    }
    free(entries.entry);
    return error;
}

/* ---- All of it ----------------------------------------------------------------------------------- */

static const struct view views[] = {
    {ARENAS, 0, "arenas", show_arena},
    {SUMMARY, 'u', "summary", show_arena},
    {CLIENTS, 'p', "clients", show_clients},
    {ENTRIES, 'e', "entries", show_entries},
    {SPILL, 's', "spill", show_arena},
};

static void add_name(struct request *request, const char *name)
{
    char *copy = strdup(name);

    if (!copy)
        tool_no_memory();
    request->names = tool_realloc(request->names, request->name_count + 1, sizeof *request->names);
    request->names[request->name_count++] = copy;
}

static int found_name(const char *name, const char *path, void *arg)
{
    (void)path;
    add_name(arg, name);
    return 0;
}

static int order_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All arenas by name, each once, if none was named. */
static int find_names(struct request *request)
{
    size_t kept = 0;
    int error;

    if (request->name_count)
        return 0;
    request->found = true;
    if ((error = kvshm_list(found_name, request)) < 0)
        return error;
    if (request->name_count)
        qsort(request->names, request->name_count, sizeof *request->names, order_names);
    for (size_t i = 0; i < request->name_count; i++) {
        if (kept && strcmp(request->names[kept - 1], request->names[i]) == 0)
            free(request->names[i]);
        else
            request->names[kept++] = request->names[i];
    }
    request->name_count = kept;
    return 0;
}

/* Show one arena, or say why not. An arena that was found may have gone since. */
static bool show_one(const struct request *request, struct table *table, const char *name)
{
    kvshm *kv = NULL;
    int error = kvshm_attach(name, NULL, KVSHM_RDONLY, &kv);

    if (error == -ENOENT && request->found)
        return true;
    if (error == 0)
        error = request->view->show(table, name, kv);
    if (error < 0) {
        tool_error("%s: %s", name, kvshm_errmsg(kv));
        table_error(table, name, error, kvshm_errmsg(kv));
    }
    kvshm_detach(kv);
    return error == 0;
}

static int show_all(struct request *request)
{
    const char *wrong;
    struct table *table =
        table_new(columns, COLUMNS, request->view->bit, request->output, request->json, &wrong);
    int status = TOOL_DONE;

    if (!table) {
        tool_error("--output: %s", wrong);
        return TOOL_USAGE;
    }
    if (find_names(request) < 0) {
        tool_error("%s", kvshm_errmsg(NULL));
        status = TOOL_FAILED;
    }
    if (!request->json && !request->found && request->name_count == 1 &&
        !(request->view->bit & OF_ARENAS))
        table_hide(table, NAME);
    for (size_t i = 0; i < request->name_count; i++) {
        if (!show_one(request, table, request->names[i]))
            status = TOOL_FAILED;
        free(request->names[i]);
    }
    free(request->names);
    table_print(table, request->view->key);
    return status;
}

static const struct argp_option options[] = {
    {"clients", 'p', NULL, 0, "Show clients: who is attached, alive or dead, and what it holds", 1},
    {"entries", 'e', NULL, 0, "Show entries, the one used last first", 1},
    {"spill", 's', NULL, 0,
     "Show the second tier: the spill file, what is in it, and what was found where", 1},
    {"summary", 'u', NULL, 0, "Show usage: memory, frames and hits", 1},
    {"json", 'J', NULL, 0, "Write JSON, with all columns unless -o says which", 2},
    {"output", 'o', "COLUMNS", 0, "Show these columns, separated by commas", 2},
    {0},
};

static const char doc[] = "Show the arenas of this host: how full they are, who is attached, what "
                          "they hold. With names, only those."
                          "\vNothing is changed and nobody is waited for. Exit status: 0, all was "
                          "shown; 1, an arena could not be read; "
                          "2, wrong usage.";

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct request *request = state->input;

    for (size_t i = 1; i < sizeof views / sizeof views[0]; i++) {
        if (views[i].option != key)
            continue;
        if (request->view != &views[0] && request->view != &views[i])
            argp_error(state, "-%c and -%c are two views; ask for one", request->view->option, key);
        request->view = &views[i];
        return 0;
    }
    switch (key) {
    case 'J':
        request->json = true;
        return 0;
    case 'o':
        request->output = arg;
        return 0;
    case ARGP_KEY_ARG:
        add_name(request, arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The columns of all views, behind the options. */
static char *add_columns(int key, const char *text, void *input)
{
    static const struct column_mark of_arenas[COLUMN_MARKS] = {{SUMMARY, 'u'}, {SPILL, 's'}};
    char *arenas, *clients, *entries, *all;

    (void)input;
    if (key != ARGP_KEY_HELP_EXTRA)
        return (char *)text;
    arenas = table_help(columns, COLUMNS, ARENAS, of_arenas);
    clients = table_help(columns, COLUMNS, CLIENTS, NULL);
    entries = table_help(columns, COLUMNS, ENTRIES, NULL);
    if (!arenas || !clients || !entries ||
        asprintf(&all,
                 "Columns (*: shown when -o names none; u, s: shown by -u, -s then):\n%s\n"
                 "Columns of -p:\n%s\n"
                 "Columns of -e:\n%s",
                 arenas, clients, entries) < 0)
        tool_no_memory();
    free(arenas);
    free(clients);
    free(entries);
    return all;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {options, parse_option, "[NAME...]", doc,
                                     NULL,    add_columns,  NULL};
    struct request request = {.view = &views[0]};

    tool_start();
    argp_parse(&argp, argc, argv, 0, NULL, &request);
    return tool_finish(show_all(&request));
}
