/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvshmctl - creates, changes and removes arenas.
 *
 * A command is a line of commands[]: its options, how many arguments it takes, and what it does. The library judges
 * the values of create's options; what is missing or does not go together is refused here.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"
#include "create_options.h"
#include "handle.h"
#include "limit.h"
#include "mend.h"
#include "message.h"
#include "populate.h"
#include "reap.h"
#include "spill_file.h"

#define ARGS_MAX      16
#define SHOW_AFTER_NS UINT64_C(500000000)
#define SHOW_EACH_NS  UINT64_C(100000000)
#define EVICT_WAIT_NS UINT64_C(10000000000)

struct request {
    const struct command *command;
    const char *args[ARGS_MAX + 1];
    size_t arg_count;
    struct kvshm_config config;
    const char *label;
    bool yes;
    bool force;
    bool clients_said; /* --max-clients was given */
};

struct command {
    const char *name;
    const char *args; /* as --help shows them */
    size_t min_args, max_args;
    const struct argp_option *options;
    const char *doc;
    enum tool_status (*run)(struct request *request);
};

/* Keys of options without a letter; those of create follow. */
enum { OPTION_YES = 256, OPTION_FORCE, OPTION_LABEL, OPTION_CREATE };

/* ---- What they share ----------------------------------------------------------------------------- */

static const char *arena_name(const struct request *request)
{
    return request->args[0];
}

static enum tool_status failed(const struct request *request, kvshm *kv)
{
    tool_error("%s: %s", arena_name(request), kvshm_errmsg(kv));
    kvshm_detach(kv);
    return TOOL_FAILED;
}

/* Detach and say how it went. */
static enum tool_status done(const struct request *request, kvshm *kv)
{
    return kvshm_detach(kv) < 0 ? failed(request, NULL) : TOOL_DONE;
}

/* Attach to change the arena, and see what it holds now; where the file is spared, also without one that is not to be had. */
static bool attach(const struct request *request, bool spares_file, kvshm **kv, struct kvshm_info *info)
{
    int code = kvshm_attach(arena_name(request), NULL, 0, kv);

    kvshm_info_init(info);
    if (code == KVSHM_E_NOSPILL && spares_file)
        code = kvshm_attach(arena_name(request), NULL, KVSHM_NOTIER, kv);
    if (code < 0) {
        failed(request, NULL);
        return false;
    }
    if (kvshm_info(*kv, info) < 0) {
        failed(request, *kv);
        return false;
    }
    return true;
}

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

static const char *entries(uint64_t n)
{
    return n == 1 ? "entry" : "entries";
}

static bool confirm(const struct request *request, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool confirm(const struct request *request, const char *format, ...)
{
    char question[512];
    va_list args;

    va_start(args, format);
    vsnprintf(question, sizeof question, format, args);
    va_end(args);
    return tool_confirm(request->yes, question);
}

/* ---- create -------------------------------------------------------------------------------------- */

/* When memory began to be taken, and when that was last shown; 0: not yet. */
static uint64_t taking_ns, shown_ns;

/* On a terminal, from half a second on, ten times a second. */
static void show_taking(uint64_t done_bytes, uint64_t all_bytes)
{
    uint64_t now_ns = tool_now_ns();
    char done[TOOL_TEXT], all[TOOL_TEXT];

    if (taking_ns == 0)
        taking_ns = now_ns;
    if (now_ns - taking_ns < SHOW_AFTER_NS || now_ns - shown_ns < SHOW_EACH_NS)
        return;
    shown_ns = now_ns;
    fprintf(stderr, "\rtaking memory: %s of %s, %u%%\033[K", tool_format_bytes(done, done_bytes),
            tool_format_bytes(all, all_bytes), (unsigned)(done_bytes * 100 / all_bytes));
}

static int create_shown(const struct request *request, kvshm **kv)
{
    int code;

    if (isatty(STDERR_FILENO))
        kvshm__populate_watch = show_taking;
    code = kvshm_create(arena_name(request), &request->config, 0, kv);
    if (shown_ns != 0)
        fputs("\r\033[K", stderr);
    return code;
}

/* What somebody who looks at a new arena would not guess. */
static void print_notes(const struct kvshm_info *info)
{
    char note[512], numa[TOOL_TEXT];

    if (info->backing_reason[0])
        printf("no better backing: %s\n", info->backing_reason);
    if (info->numa != KVSHM_NUMA_LOCAL)
        printf("NUMA: %s\n", tool_format_numa(numa, info->numa));
    if (kvshm__limit_note(note, sizeof note))
        printf("slow: %s\n", note);
}

/* What the new arena has on disk, and what it found there. */
static void print_spill(const struct request *request, const kvshm *kv, const struct kvshm_info *info)
{
    char size[TOOL_TEXT];

    if (info->slots == 0)
        return;
    printf("spill file %s: room for %" PRIu64 " page%s in %s", request->config.spill_path, info->slots,
           plural(info->slots), tool_format_bytes(size, KVSHM__LOAD(&kv->header->settings.spill_bytes)));
    if (info->pages_spilled > 0)
        printf(", %" PRIu64 " %s of %" PRIu64 " page%s found in it", info->entries,
               entries(info->entries), info->pages_spilled, plural(info->pages_spilled));
    putchar('\n');
}

/* NULL, or what is wrong with the options of create and load together. */
static const char *wrong_memory(const struct kvshm_config *config)
{
    if (config->frames == 0 && config->memory_bytes == 0)
        return "--frames or --memory is needed: pages that memory holds, or the size of the whole segment";
    if (config->frames != 0 && config->memory_bytes != 0)
        return "--frames and --memory are two ways to say how large it is; give one";
    return NULL;
}

/* The same of create alone. */
static const char *wrong_create(const struct kvshm_config *config)
{
    const struct kvshm_geometry *g = &config->geometry;

    if (g->page_bytes == 0 && g->num_layers == 0 && g->num_kv_heads == 0 && g->head_dim == 0)
        return "a geometry is needed: --layers, --kv-heads and --head-dim, or --page-bytes";
    if (config->spill_path && config->spill_bytes == 0)
        return "--spill needs --spill-size: the most that the file may hold";
    if (!config->spill_path && config->spill_bytes != 0)
        return "--spill-size is of a spill file; name one with --spill";
    return wrong_memory(config);
}

static enum tool_status make(struct request *request)
{
    struct kvshm_info info;
    char page[TOOL_TEXT], segment[TOOL_TEXT];
    kvshm *kv = NULL;

    kvshm_info_init(&info);
    if (create_shown(request, &kv) < 0 || kvshm_info(kv, &info) < 0)
        return failed(request, kv);
    printf("%s: %" PRIu64 " frame%s of %s, %s in all, backing %s, %s\n", info.name, info.frames,
           plural(info.frames), tool_format_bytes(page, info.page_bytes),
           tool_format_bytes(segment, info.segment_bytes), tool_backing(info.backing), info.path);
    print_notes(&info);
    print_spill(request, kv, &info);
    return done(request, kv);
}

static enum tool_status run_create(struct request *request)
{
    const char *wrong = wrong_create(&request->config);

    if (wrong) {
        tool_error("%s", wrong);
        return TOOL_USAGE;
    }
    return make(request);
}

/* ---- load, flush --------------------------------------------------------------------------------- */

/* Geometry, fingerprint and size are the file's; all else is as for create. */
static enum tool_status run_load(struct request *request)
{
    struct kvshm_config *config = &request->config;
    struct kvshm__spill_file file;
    const char *wrong = wrong_memory(config);

    if (!wrong)
        wrong = tool_parse_path(request->args[1], &config->spill_path);
    if (wrong) {
        tool_error("%s", wrong);
        return TOOL_USAGE;
    }
    if (kvshm__spill_open(config->spill_path, NULL, &file) < 0)
        return failed(request, NULL);
    config->geometry = file.header.geometry;
    if (file.header.has_fingerprint)
        memcpy(config->fingerprint, file.header.fingerprint, sizeof config->fingerprint);
    config->spill_bytes = file.shape.file_bytes;
    if (!request->clients_said && config->max_clients > file.shape.epochs)
        config->max_clients = file.shape.epochs;
    kvshm__spill_close(&file);
    return make(request);
}

static enum tool_status run_flush(struct request *request)
{
    struct kvshm_info info;
    kvshm *kv;

    if (!attach(request, false, &kv, &info))
        return TOOL_FAILED;
    if (kvshm_flush(kv) < 0)
        return failed(request, kv);
    return done(request, kv);
}

/* ---- rm ------------------------------------------------------------------------------------------ */

static enum tool_status run_rm(struct request *request)
{
    struct kvshm_info info;
    kvshm *kv = NULL;
    int error;

    kvshm_info_init(&info);
    error = kvshm_attach(arena_name(request), NULL, KVSHM_RDONLY, &kv);
    if (error == 0)
        error = kvshm_info(kv, &info);
    if (error == -ENOENT || error == -EINVAL)
        return failed(request, kv);
    if (error < 0) {
        if (!confirm(request, "Remove arena \"%s\", which cannot be read (%s)?",
                     arena_name(request), kvshm_errmsg(kv)))
            return TOOL_REFUSED;
    } else if (!confirm(request,
                        "Remove arena \"%s\" (%" PRIu64 " %s, %" PRIu32 " client%s alive)?",
                        info.name, info.entries, entries(info.entries), info.clients,
                        plural(info.clients))) {
        kvshm_detach(kv);
        return TOOL_REFUSED;
    }
    kvshm_detach(kv);
    return kvshm_unlink(arena_name(request), request->force ? KVSHM_FORCE : 0) < 0
               ? failed(request, NULL)
               : TOOL_DONE;
}

/* ---- set ----------------------------------------------------------------------------------------- */

static const char *const settings[] = {"capacity", "stall_ms", "wait_ms", "admission",
                                       "spill_bytes", NULL};

/* The value of one of them. NULL, or what is wrong with it. */
static const char *parse_value(const char *setting, const char *text, uint64_t *value)
{
    const char *wrong;
    uint32_t place;

    if (strcmp(setting, "capacity") == 0 || strcmp(setting, "wait_ms") == 0)
        return tool_parse_limit(text, value);
    if (strcmp(setting, "spill_bytes") == 0)
        return tool_parse_size(text, value);
    if (strcmp(setting, "admission") != 0)
        return tool_parse_number(text, UINT32_MAX, value);
    wrong = tool_parse_word(text, tool_admissions, &place);
    *value = place;
    return wrong;
}

/* SETTING=VALUE. NULL, or what is wrong with it. */
static const char *parse_setting(const char *text, const char **name, uint64_t *value)
{
    static char sentence[320];
    const char *equals = strchr(text, '=');
    const char *wrong;
    char word[64];
    uint32_t place;

    if (!equals || (size_t)(equals - text) >= sizeof word) {
        snprintf(sentence, sizeof sentence,
                 "'%.64s' is no setting; write SETTING=VALUE, as in capacity=128", text);
        return sentence;
    }
    memcpy(word, text, (size_t)(equals - text));
    word[equals - text] = '\0';
    if ((wrong = tool_parse_word(word, settings, &place)) != NULL)
        return wrong;
    *name = settings[place];
    wrong = parse_value(*name, equals + 1, value);
    if (!wrong)
        return NULL;
    snprintf(sentence, sizeof sentence, "%s: %s", *name, wrong);
    return sentence;
}

static enum tool_status run_set(struct request *request)
{
    const char *name[ARGS_MAX];
    uint64_t value[ARGS_MAX];
    struct kvshm_info info;
    bool of_file = false; /* a setting that changes the file */
    kvshm *kv;

    for (size_t i = 1; i < request->arg_count; i++) {
        const char *wrong = parse_setting(request->args[i], &name[i - 1], &value[i - 1]);

        if (wrong) {
            tool_error("%s", wrong);
            return TOOL_USAGE;
        }
        of_file = of_file || strcmp(name[i - 1], "spill_bytes") == 0;
    }
    if (!attach(request, !of_file, &kv, &info))
        return TOOL_FAILED;
    for (size_t i = 0; i < request->arg_count - 1; i++) {
        if (strcmp(name[i], "capacity") == 0 && value[i] < info.entries &&
            !confirm(request, "Evict all but %" PRIu64 " of the %" PRIu64 " entries of %s?",
                     value[i], info.entries, info.name)) {
            kvshm_detach(kv);
            return TOOL_REFUSED;
        }
    }
    for (size_t i = 0; i < request->arg_count - 1; i++) {
        if (kvshm__setting_set(kv, name[i], value[i]) < 0)
            return failed(request, kv);
    }
    return done(request, kv);
}

/* ---- clear, evict -------------------------------------------------------------------------------- */

static enum tool_status run_clear(struct request *request)
{
    struct kvshm_info info;
    kvshm *kv;

    if (!attach(request, false, &kv, &info))
        return TOOL_FAILED;
    if (!confirm(request, "Forget all %" PRIu64 " %s of %s?", info.entries, entries(info.entries),
                 info.name)) {
        kvshm_detach(kv);
        return TOOL_REFUSED;
    }
    if (kvshm_clear(kv) < 0)
        return failed(request, kv);
    return done(request, kv);
}

/* What this client has counted. */
static uint64_t counted(const kvshm *kv, unsigned counter)
{
    return KVSHM__LOAD(&kv->clients[kv->place].counters[counter]);
}

/* Evict an entry. If it has to be written to the spill file first, wait until it has left memory, or nothing goes on. 1, 0:
 * there is none, or an error. */
static int evict_one(kvshm *kv, uint64_t *frames)
{
    uint64_t evicted = counted(kv, KVSHM__CNT_evicted_entries);
    uint64_t left = counted(kv, KVSHM__CNT_left_pages);
    uint64_t until_ns = tool_now_ns() + EVICT_WAIT_NS, spilled;
    struct kvshm_info info;
    int64_t back;
    int code;

    kvshm_info_init(&info);
    if ((code = kvshm_info(kv, &info)) < 0 || info.entries <= info.entries_spilled)
        return code;
    spilled = info.entries_spilled;
    back = kvshm_evict_lru(kv);
    if (back < 0)
        return (int)back;
    while (back == 0 && counted(kv, KVSHM__CNT_evicted_entries) == evicted &&
           counted(kv, KVSHM__CNT_left_pages) == left && info.entries_spilled <= spilled) {
        if (tool_now_ns() > until_ns)
            return kvshm__fail(-ETIMEDOUT, "the oldest entry is not in the spill file after %u s; "
                               "kvshm -s -o spill-failures,spill-full shows whether it can be written",
                               (unsigned)(EVICT_WAIT_NS / 1000000000));
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        if ((code = kvshm_info(kv, &info)) < 0)
            return code;
    }
    /* What is counted under the lock is then counted whole. */
    if (back == 0 && kvshm__mend_lock(kv) == 0)
        kvshm__mend_unlock(kv);
    *frames += back > 0 ? (uint64_t)back : counted(kv, KVSHM__CNT_left_pages) - left;
    return 1;
}

static enum tool_status run_evict(struct request *request)
{
    struct kvshm_info info;
    uint64_t wanted = 1, count = 0, frames = 0;
    int code = 0;
    kvshm *kv;

    if (request->arg_count > 1) {
        const char *wrong = tool_parse_number(request->args[1], UINT64_MAX, &wanted);

        if (wrong) {
            tool_error("number of entries: %s", wrong);
            return TOOL_USAGE;
        }
    }
    if (!attach(request, false, &kv, &info))
        return TOOL_FAILED;
    if (!confirm(request, "Evict %" PRIu64 " of the %" PRIu64 " %s of %s?",
                 wanted < info.entries ? wanted : info.entries, info.entries, entries(info.entries),
                 info.name)) {
        kvshm_detach(kv);
        return TOOL_REFUSED;
    }
    while (count < wanted && (code = evict_one(kv, &frames)) > 0)
        count++;
    if (code < 0)
        return failed(request, kv);
    printf("%s: %" PRIu64 " %s evicted, %" PRIu64 " frame%s given back\n", info.name, count,
           entries(count), frames, plural(frames));
    return done(request, kv);
}

/* ---- reap ---------------------------------------------------------------------------------------- */

static enum tool_status run_reap(struct request *request)
{
    struct kvshm_info info;
    uint64_t client = 0;
    const char *wrong = NULL;
    int64_t frames;
    kvshm *kv;

    if (request->arg_count > 1 && request->label)
        wrong = "a client and --label are two ways to name the dead; use one";
    else if (request->arg_count > 1 &&
             !(wrong = tool_parse_number(request->args[1], KVSHM__CLIENT_NUMBER_MAX, &client)))
        wrong = client == 0 ? "0 is no client; kvshm -p shows their numbers" : NULL;
    if (wrong) {
        tool_error("client: %s", wrong);
        return TOOL_USAGE;
    }
    if (!attach(request, true, &kv, &info))
        return TOOL_FAILED;
    if ((client || request->label) &&
        !confirm(request,
                 "Devices may still write into frames that the dead reserved for them. Are those "
                 "of %s%s idle?",
                 client ? "client " : "label ", client ? request->args[1] : request->label)) {
        kvshm_detach(kv);
        return TOOL_REFUSED;
    }
    frames = kvshm__reap(kv, client, request->label);
    if (frames < 0)
        return failed(request, kv);
    printf("%s: %" PRId64 " frame%s given back\n", info.name, frames, plural((uint64_t)frames));
    return done(request, kv);
}

/* ---- Commands ------------------------------------------------------------------------------------ */

#define OPTION_OF_YES                               \
    {                                               \
        "yes", OPTION_YES, NULL, 0, "Do not ask", 1 \
    }

static const struct argp_option yes_options[] = {OPTION_OF_YES, {0}};
static const struct argp_option rm_options[] = {
    {"force", OPTION_FORCE, NULL, 0,
     "Even while clients are alive; they go on reading, and can write no more", 1},
    OPTION_OF_YES,
    {0},
};
static const struct argp_option reap_options[] = {
    {"label", OPTION_LABEL, "LABEL", 0,
     "Also the KVSHM_DEVICE frames of all dead clients of this label", 1},
    OPTION_OF_YES,
    {0},
};

static const struct command commands[] = {
    {"create", "NAME", 1, 1, create_argp_options,
     "Create an arena. --frames or --memory is needed, and either --layers, --kv-heads and "
     "--head-dim, or --page-bytes. "
     "A SIZE is in bytes, or has a unit K, M, G or T (1K is 1024).",
     run_create},
    {"rm", "NAME", 1, 1, rm_options, "Remove an arena.", run_rm},
    {"set", "NAME SETTING=VALUE...", 2, ARGS_MAX, yes_options,
     "Change settings while the arena is in use: capacity (entries, or 'unlimited'), stall_ms "
     "(milliseconds); of the spill file wait_ms (milliseconds, or 'unlimited'), admission (all or "
     "reused), spill_bytes (a size, at most that of the file).",
     run_set},
    {"clear", "NAME", 1, 1, yes_options, "Forget every entry. Leases stay good.", run_clear},
    {"flush", "NAME", 1, 1, NULL,
     "Write what is in memory to the spill file. It is on the device when this returns.",
     run_flush},
    {"load", "NAME FILE", 2, 2, load_argp_options,
     "Create an arena of what a spill file holds. Page geometry, fingerprint and size are the "
     "file's. --frames or --memory is needed.",
     run_load},
    {"evict", "NAME [N]", 1, 2, yes_options,
     "Evict the entries used longest ago. N is how many, 1 unless said.", run_evict},
    {"reap", "NAME [CLIENT]", 1, 2, reap_options,
     "Give back what dead clients held. Frames that they reserved with KVSHM_DEVICE only come back "
     "if the client or its "
     "label is named, by someone who knows that the device is idle.",
     run_reap},
};
#define COMMANDS (sizeof commands / sizeof commands[0])

static error_t parse_command_option(int key, char *arg, struct argp_state *state)
{
    struct request *request = state->input;

    switch (key) {
    case OPTION_YES:
        request->yes = true;
        return 0;
    case OPTION_FORCE:
        request->force = true;
        return 0;
    case OPTION_LABEL:
        request->label = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (request->arg_count == request->command->max_args)
            argp_error(state, "'%s' is one argument too many", arg);
        request->args[request->arg_count++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (request->arg_count < request->command->min_args)
            argp_error(state, "an argument is missing of: %s", request->command->args);
        return 0;
    default:
        break;
    }
    const struct create_option *option = create_option_at(key - OPTION_CREATE);
    if (!option)
        return ARGP_ERR_UNKNOWN;
    const char *wrong = create_option_set(&request->config, option, arg);
    if (wrong)
        argp_error(state, "--%s: %s", option->name, wrong);
    request->clients_said |= option->offset == offsetof(struct kvshm_config, max_clients);
    return 0;
}

/* The command's own arguments stand in argv behind its name. */
static void parse_command(struct argp_state *state)
{
    struct request *request = state->input;
    const struct command *command = request->command;
    const struct argp argp = {
        command->options, parse_command_option, command->args, command->doc, NULL, NULL, NULL};
    char **argv = &state->argv[state->next - 1];
    char *title;

    if (asprintf(&title, "%s %s", state->name, command->name) < 0)
        tool_no_memory();
    argv[0] = title;
    argp_parse(&argp, state->argc - state->next + 1, argv, 0, NULL, request);
    state->next = state->argc;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct request *request = state->input;

    if (key == ARGP_KEY_NO_ARGS)
        argp_error(state, "a command is missing");
    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].name, arg) == 0)
            request->command = &commands[i];
    }
    if (!request->command)
        argp_error(state, "there is no command '%s'", arg);
    parse_command(state);
    return 0;
}

/* The commands, behind the options. */
static char *add_commands(int key, const char *text, void *input)
{
    char *all = NULL;
    size_t size = 0;
    FILE *stream;

    (void)input;
    if (key != ARGP_KEY_HELP_EXTRA)
        return (char *)text;
    if (!(stream = open_memstream(&all, &size)))
        tool_no_memory();
    fputs("Commands:\n", stream);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(stream, "  %-7s %-22s %.*s\n", commands[i].name, commands[i].args,
                (int)strcspn(commands[i].doc, ".:"), commands[i].doc);
    if (fclose(stream) != 0)
        tool_no_memory();
    return all;
}

static const char doc[] =
    "Create, change and remove the arenas of this host. COMMAND --help says more of each."
    "\vWhat destroys asks on a terminal; elsewhere it wants --yes. Exit status: 0, it was done; 1, "
    "it failed; 2, wrong "
    "usage; 3, it was not confirmed.";

int main(int argc, char **argv)
{
    static const struct argp argp = {
        NULL, parse_option, "COMMAND NAME [ARGUMENT...]", doc, NULL, add_commands, NULL};
    static struct request request; /* what is parsed into it is its, to the end */

    tool_start();
    create_options_fill(OPTION_CREATE);
    kvshm_config_init(&request.config);
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &request);
    return tool_finish(request.command->run(&request));
}
