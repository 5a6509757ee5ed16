/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvshm-bench.c - the command line of the benchmark: a command, and its options
 */
#include <argp.h>
#include <inttypes.h>
#include <string.h>

#include "bench.h"
#include "bench_content.h"
#include "kvshm.h"

#define BACKING_HELP "of the arena: auto (default), small, thp, hugetlb-2m or hugetlb-1g"

enum {
    OPT_PROCS = 256,
    OPT_FRAMES,
    OPT_SPILL,
    OPT_SPILL_SIZE,
    OPT_RESTART,
    OPT_FLUSH,
    OPT_UNLIMITED,
    OPT_CAPACITY,
    OPT_PAGE_TOKENS,
    OPT_PAGE_BYTES,
    OPT_BACKING,
    OPT_KILL,
    OPT_SEED,
    OPT_JSON,
    OPT_NAME,
    OPT_REQUESTS,
    OPT_ENTRIES,
    OPT_MATCH,
    OPT_PAGES,
    OPT_ROUNDS,
    OPT_KILLS,
    OPT_STOPS,
    OPT_SECONDS,
    OPT_SHOW,
    OPT_CHECK,
    OPT_BYTES,
};

/* A whole number from least to most; anything else is a usage error that names the option. */
static uint64_t number(const struct argp_state *state, const char *option, const char *arg,
                       uint64_t least, uint64_t most)
{
    uint64_t value = 0;
    const char *wrong = tool_parse_number(arg, most, &value);

    if (wrong)
        argp_error(state, "%s: %s", option, wrong);
    if (value < least)
        argp_error(state, "%s: %s is too small; at least %" PRIu64, option, arg, least);
    return value;
}

static uint64_t limit(const struct argp_state *state, const char *option, const char *arg)
{
    uint64_t value = 0;
    const char *wrong = tool_parse_limit(arg, &value);

    if (wrong)
        argp_error(state, "%s: %s", option, wrong);
    return value;
}

/* An enum kvshm_backing. */
static uint32_t backing(const struct argp_state *state, const char *arg)
{
    uint32_t place = 0;
    const char *wrong = tool_parse_word(arg, tool_backings, &place);

    if (wrong)
        argp_error(state, "--backing: %s", wrong);
    return place;
}

/* ---- replay ------------------------------------------------------------------------------------------ */

static const struct argp_option replay_argp_options[] = {
    {"procs", OPT_PROCS, "N", 0, "server processes (default 4)", 0},
    {"frames", OPT_FRAMES, "N", 0, "pages that the arena's memory holds", 0},
    {"spill", OPT_SPILL, "FILE", 0, "pages leave memory for this file, and come back", 0},
    {"spill-size", OPT_SPILL_SIZE, "SIZE", 0, "the most that it may hold (default: all pages)", 0},
    {"restart", OPT_RESTART, "N", 0, "kill all and begin anew on the file, N times", 0},
    {"flush", OPT_FLUSH, NULL, 0, "write all to the file before each restart", 0},
    {"unlimited", OPT_UNLIMITED, NULL, 0, "frames for all pages of the trace (default)", 0},
    {"capacity", OPT_CAPACITY, "N", 0, "entries that are kept, or unlimited (default)", 0},
    {"page-tokens", OPT_PAGE_TOKENS, "N", 0, "tokens of a page, a divisor of 512 (default 512)", 0},
    {"page-bytes", OPT_PAGE_BYTES, "N", 0, "bytes of a page (default 4096)", 0},
    {"backing", OPT_BACKING, "KIND", 0, BACKING_HELP, 0},
    {"kill", OPT_KILL, "N", 0, "servers to kill and replace (default 0)", 0},
    {"seed", OPT_SEED, "N", 0, "decides which servers are killed when (default 1)", 0},
    {"name", OPT_NAME, "NAME", 0, "of the arena (default kvshm-bench-PID)", 0},
    {"json", OPT_JSON, NULL, 0, "print the result as JSON", 0},
    {0},
};

static void replay_default(struct bench_replay_options *options)
{
    *options = (struct bench_replay_options){
        .procs = 4,
        .capacity = KVSHM_UNLIMITED,
        .page_tokens = BENCH_BLOCK_TOKENS,
        .page_bytes = 4096,
        .seed = 1,
        .backing = KVSHM_BACKING_AUTO,
    };
}

static void set_frames(struct argp_state *state, struct bench_replay_options *options,
                       const char *arg)
{
    static bool is_set;

    if (is_set)
        argp_error(state, "--frames or --unlimited, once");
    is_set = true;
    options->frames = arg ? number(state, "--frames", arg, 1, (1u << 28) - 1) : 0;
}

static void set_page_tokens(struct argp_state *state, struct bench_replay_options *options,
                            const char *arg)
{
    options->page_tokens = number(state, "--page-tokens", arg, 1, BENCH_BLOCK_TOKENS);
    if (BENCH_BLOCK_TOKENS % options->page_tokens)
        argp_error(state, "--page-tokens is a divisor of %u, not %s", BENCH_BLOCK_TOKENS, arg);
}

static uint64_t size(const struct argp_state *state, const char *option, const char *arg)
{
    uint64_t bytes = 0;
    const char *wrong = tool_parse_size(arg, &bytes);

    if (wrong)
        argp_error(state, "%s: %s", option, wrong);
    return bytes;
}

/* What is of a spill file, and makes no sense without one. */
static void check_spill(const struct argp_state *state, const struct bench_replay_options *options)
{
    if (!options->spill && (options->spill_bytes || options->restarts))
        argp_error(state, "--spill-size and --restart are of a spill file; name one with --spill");
    if (options->flush && !options->restarts)
        argp_error(state, "--flush is done before restarts; ask for some with --restart");
}

static error_t replay_spill(int key, char *arg, struct argp_state *state)
{
    struct bench_replay_options *options = state->input;

    switch (key) {
    case OPT_SPILL:
        options->spill = arg;
        return 0;
    case OPT_SPILL_SIZE:
        options->spill_bytes = size(state, "--spill-size", arg);
        return 0;
    case OPT_RESTART:
        options->restarts = number(state, "--restart", arg, 0, BENCH_RESTARTS_MAX);
        return 0;
    case OPT_FLUSH:
        options->flush = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The options that do not look at another one. */
static error_t replay_simple(int key, char *arg, struct argp_state *state)
{
    struct bench_replay_options *options = state->input;

    switch (key) {
    case OPT_PROCS:
        options->procs = number(state, "--procs", arg, 1, 4000);
        return 0;
    case OPT_CAPACITY:
        options->capacity = limit(state, "--capacity", arg);
        return 0;
    case OPT_PAGE_BYTES:
        options->page_bytes = number(state, "--page-bytes", arg, 1, UINT64_C(1) << 40);
        return 0;
    case OPT_BACKING:
        options->backing = backing(state, arg);
        return 0;
    case OPT_KILL:
        options->kills = number(state, "--kill", arg, 0, 1000000);
        return 0;
    case OPT_SEED:
        options->seed = number(state, "--seed", arg, 0, UINT64_MAX);
        return 0;
    case OPT_NAME:
        options->name = arg;
        return 0;
    case OPT_JSON:
        options->json = true;
        return 0;
    default:
        return replay_spill(key, arg, state);
    }
}

static error_t replay_parse(int key, char *arg, struct argp_state *state)
{
    struct bench_replay_options *options = state->input;

    switch (key) {
    case OPT_FRAMES:
    case OPT_UNLIMITED:
        set_frames(state, options, arg);
        return 0;
    case OPT_PAGE_TOKENS:
        set_page_tokens(state, options, arg);
        return 0;
    case ARGP_KEY_ARG:
        if (options->trace)
            argp_error(state, "one trace, not two: '%s'", arg);
        options->trace = arg;
        return 0;
    case ARGP_KEY_END:
        if (!options->trace)
            argp_error(state, "which trace? (- is standard input)");
        check_spill(state, options);
        return 0;
    default:
        return replay_simple(key, arg, state);
    }
}

static int replay_main(int argc, char **argv)
{
    static const struct argp argp = {
        .options = replay_argp_options,
        .parser = replay_parse,
        .args_doc = "TRACE",
        .doc = "Replay a trace of requests with several server processes over one arena, and check "
               "every byte of every page that is served.",
    };
    struct bench_replay_options options;

    replay_default(&options);
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    return bench_replay(&options);
}

/* ---- generate ---------------------------------------------------------------------------------------- */

static const struct argp_option generate_argp_options[] = {
    {"requests", OPT_REQUESTS, "N", 0, "requests of the trace (default 2000)", 0},
    {"seed", OPT_SEED, "N", 0, "another seed makes another trace (default 1)", 0},
    {0},
};

static error_t generate_parse(int key, char *arg, struct argp_state *state)
{
    struct bench_generate_options *options = state->input;

    switch (key) {
    case OPT_REQUESTS:
        options->requests = number(state, "--requests", arg, 1, 1000000000);
        return 0;
    case OPT_SEED:
        options->seed = number(state, "--seed", arg, 0, UINT64_MAX);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "no arguments are taken: '%s'", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int generate_main(int argc, char **argv)
{
    static const struct argp argp = {
        .options = generate_argp_options,
        .parser = generate_parse,
        .doc = "Write a trace of requests from a model to standard output.",
    };
    struct bench_generate_options options = {.requests = 2000, .seed = 1};

    argp_parse(&argp, argc, argv, 0, NULL, &options);
    return bench_generate(&options);
}

/* ---- lookup ------------------------------------------------------------------------------------------ */

static const struct argp_option lookup_argp_options[] = {
    {"entries", OPT_ENTRIES, "N,...", 0, "entries in the arena (default 128,10000,1000000)", 0},
    {"pages", OPT_PAGES, "N", 0, "pages of an entry (default 8)", 0},
    {"match", OPT_MATCH, "N", 0, "match entries of N pages (default entries: 8000000 pages)", 0},
    {"page-tokens", OPT_PAGE_TOKENS, "N", 0, "tokens of a page (default 64)", 0},
    {"page-bytes", OPT_PAGE_BYTES, "N", 0, "bytes of a page (default 64)", 0},
    {"rounds", OPT_ROUNDS, "N", 0, "of which the median is taken (default 7)", 0},
    {"seed", OPT_SEED, "N", 0, "of tokens and order (default 1)", 0},
    {"backing", OPT_BACKING, "KIND", 0, BACKING_HELP, 0},
    {"json", OPT_JSON, NULL, 0, "print the result as JSON", 0},
    {0},
};

/* Numbers with commas between them. */
static void set_entries(struct argp_state *state, struct bench_lookup_options *options, char *arg)
{
    char *rest = arg, *part;

    options->sizes = 0;
    while ((part = strsep(&rest, ","))) {
        if (options->sizes == BENCH_LOOKUP_SIZES)
            argp_error(state, "--entries takes at most %d numbers", BENCH_LOOKUP_SIZES);
        options->entries[options->sizes++] = number(state, "--entries", part, 1, 100000000);
    }
}

static error_t lookup_parse(int key, char *arg, struct argp_state *state)
{
    struct bench_lookup_options *options = state->input;

    switch (key) {
    case OPT_ENTRIES:
        set_entries(state, options, arg);
        return 0;
    case OPT_PAGES:
        options->pages = number(state, "--pages", arg, 1, 1024);
        return 0;
    case OPT_MATCH:
        options->pages = number(state, "--match", arg, 1, 1024);
        options->match = true;
        return 0;
    case OPT_PAGE_TOKENS:
        options->page_tokens = number(state, "--page-tokens", arg, 1, 4096);
        return 0;
    case OPT_PAGE_BYTES:
        options->page_bytes = number(state, "--page-bytes", arg, 1, UINT64_C(1) << 40);
        return 0;
    case OPT_ROUNDS:
        options->rounds = number(state, "--rounds", arg, 1, 10000);
        return 0;
    case OPT_SEED:
        options->seed = number(state, "--seed", arg, 0, UINT64_MAX);
        return 0;
    case OPT_BACKING:
        options->backing = backing(state, arg);
        return 0;
    case OPT_JSON:
        options->json = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "no arguments are taken: '%s'", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Those that were not asked for. */
static void lookup_sizes(struct bench_lookup_options *options)
{
    static const uint64_t sizes[] = {128, 10000, 1000000};

    if (options->sizes > 0)
        return;
    if (options->match) {
        options->sizes = 1;
        options->entries[0] = (8000000 + options->pages - 1) / options->pages;
        return;
    }
    options->sizes = sizeof(sizes) / sizeof(sizes[0]);
    memcpy(options->entries, sizes, sizeof(sizes));
}

static int lookup_main(int argc, char **argv)
{
    static const struct argp argp = {
        .options = lookup_argp_options,
        .parser = lookup_parse,
        .doc = "Time lookup and release of an entry, by key and by tokens.",
    };
    struct bench_lookup_options options = {
        .pages = 8,
        .page_tokens = 64,
        .page_bytes = 64,
        .rounds = 7,
        .seed = 1,
        .backing = KVSHM_BACKING_AUTO,
    };

    argp_parse(&argp, argc, argv, 0, NULL, &options);
    lookup_sizes(&options);
    return bench_lookup(&options);
}

/* ---- create, memory ---------------------------------------------------------------------------------- */

static const struct argp_option create_argp_options[] = {
    {"bytes", OPT_BYTES, "SIZE", 0, "of the arena (default 1G)", 0},
    {"rounds", OPT_ROUNDS, "N", 0, "of which the median is taken (default 5)", 0},
    {"backing", OPT_BACKING, "KIND", 0, BACKING_HELP, 0},
    {"json", OPT_JSON, NULL, 0, "print the result as JSON", 0},
    {0},
};

static error_t create_parse(int key, char *arg, struct argp_state *state)
{
    struct bench_create_options *options = state->input;
    const char *wrong;

    switch (key) {
    case OPT_BYTES:
        wrong = tool_parse_size(arg, &options->bytes);
        if (wrong)
            argp_error(state, "--bytes: %s", wrong);
        return 0;
    case OPT_ROUNDS:
        options->rounds = number(state, "--rounds", arg, 1, 10000);
        return 0;
    case OPT_BACKING:
        options->backing = backing(state, arg);
        return 0;
    case OPT_JSON:
        options->json = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "no arguments are taken: '%s'", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int create_main(int argc, char **argv)
{
    static const struct argp argp = {
        .options = create_argp_options,
        .parser = create_parse,
        .doc = "Time the creation of an arena, beside two plain threads that touch as much memory.",
    };
    struct bench_create_options options = {
        .bytes = UINT64_C(1) << 30, .rounds = 5, .backing = KVSHM_BACKING_AUTO};

    argp_parse(&argp, argc, argv, 0, NULL, &options);
    return bench_create(&options);
}

static const struct argp_option memory_argp_options[] = {
    {"frames", OPT_FRAMES, "N", 0, "pages that the arena's memory holds (default 1000)", 0},
    {"page-tokens", OPT_PAGE_TOKENS, "N", 0, "tokens of a page (default 64)", 0},
    {"page-bytes", OPT_PAGE_BYTES, "N", 0, "bytes of a page (default 4096)", 0},
    {"backing", OPT_BACKING, "KIND", 0, BACKING_HELP, 0},
    {"json", OPT_JSON, NULL, 0, "print the result as JSON", 0},
    {0},
};

static error_t memory_parse(int key, char *arg, struct argp_state *state)
{
    struct bench_memory_options *options = state->input;

    switch (key) {
    case OPT_FRAMES:
        options->frames = number(state, "--frames", arg, 1, (1u << 28) - 1);
        return 0;
    case OPT_PAGE_TOKENS:
        options->page_tokens = number(state, "--page-tokens", arg, 1, 1u << 20);
        return 0;
    case OPT_PAGE_BYTES:
        options->page_bytes = number(state, "--page-bytes", arg, 1, UINT64_C(1) << 40);
        return 0;
    case OPT_BACKING:
        options->backing = backing(state, arg);
        return 0;
    case OPT_JSON:
        options->json = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "no arguments are taken: '%s'", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int memory_main(int argc, char **argv)
{
    static const struct argp argp = {
        .options = memory_argp_options,
        .parser = memory_parse,
        .doc = "Show what each thing in an arena takes of its memory, and what an attach takes of a process's own.",
    };
    struct bench_memory_options options = {
        .frames = 1000, .page_tokens = 64, .page_bytes = 4096, .backing = KVSHM_BACKING_AUTO};

    argp_parse(&argp, argc, argv, 0, NULL, &options);
    return bench_memory(&options);
}

/* ---- torture ----------------------------------------------------------------------------------------- */

static const struct argp_option torture_argp_options[] = {
    {"procs", OPT_PROCS, "N", 0, "server processes (default 4)", 0},
    {"kills", OPT_KILLS, "N", 0, "end after so many kills (default 1000, without --seconds)", 0},
    {"seconds", OPT_SECONDS, "S", 0, "end after so long", 0},
    {"stops", OPT_STOPS, "N", 0, "servers to stop and continue (default half as many as kills)", 0},
    {"frames", OPT_FRAMES, "N", 0, "pages that the arena's memory holds (default 96)", 0},
    {"spill", OPT_SPILL, "FILE", 0, "pages leave memory for this file, on which new arenas begin now and then", 0},
    {"spill-size", OPT_SPILL_SIZE, "SIZE", 0, "the most that it may hold (default 2M)", 0},
    {"seed", OPT_SEED, "N", 0, "of all that is drawn by chance (default: of the clock)", 0},
    {"json", OPT_JSON, NULL, 0, "print the result as JSON", 0},
    {"check", OPT_CHECK, "COMMAND", 0, "run it with the arena's name whenever no server is left; it must answer 0", 0},
    {"show", OPT_SHOW, "SERVER,PROCESS,STEPS", 0, "show the first steps of a process, and do nothing", 0},
    {0},
};

/* Three numbers with commas between them. */
static void set_show(struct argp_state *state, struct bench_torture_options *options, char *arg)
{
    uint64_t *const numbers[] = {&options->show_server, &options->show_process, &options->show_steps};
    char *rest = arg;

    options->shows = true;
    for (size_t i = 0; i < 3; i++) {
        char *part = strsep(&rest, ",");

        if (!part)
            argp_error(state, "--show=SERVER,PROCESS,STEPS takes three numbers");
        *numbers[i] = number(state, "--show", part, 0, UINT32_MAX);
    }
    if (rest)
        argp_error(state, "--show=SERVER,PROCESS,STEPS takes three numbers");
}

static error_t torture_parse(int key, char *arg, struct argp_state *state)
{
    struct bench_torture_options *options = state->input;

    switch (key) {
    case OPT_PROCS:
        options->procs = number(state, "--procs", arg, 1, 500);
        return 0;
    case OPT_KILLS:
        options->kills = number(state, "--kills", arg, 1, 1000000000);
        return 0;
    case OPT_SECONDS:
        options->seconds = number(state, "--seconds", arg, 1, 100000000);
        return 0;
    case OPT_STOPS:
        options->stops = number(state, "--stops", arg, 0, 1000000000);
        return 0;
    case OPT_FRAMES:
        options->frames = number(state, "--frames", arg, 1, (1u << 28) - 1);
        return 0;
    case OPT_SPILL:
        options->spill = arg;
        return 0;
    case OPT_SPILL_SIZE:
        options->spill_bytes = size(state, "--spill-size", arg);
        return 0;
    case OPT_SEED:
        options->seed = number(state, "--seed", arg, 0, UINT64_MAX);
        return 0;
    case OPT_JSON:
        options->json = true;
        return 0;
    case OPT_CHECK:
        options->check = arg;
        return 0;
    case OPT_SHOW:
        set_show(state, options, arg);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "no arguments are taken: '%s'", arg);
        return 0;
    case ARGP_KEY_END:
        if (options->kills == 0 && options->seconds == 0)
            options->kills = 1000;
        if (options->spill_bytes && !options->spill)
            argp_error(state, "--spill-size needs --spill");
        if (options->spill && options->spill_bytes == 0)
            options->spill_bytes = 2u << 20;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int torture_main(int argc, char **argv)
{
    static const struct argp argp = {
        .options = torture_argp_options,
        .parser = torture_parse,
        .doc = "Stop and kill server processes that do all that servers can, and look for wrong bytes "
               "and lost frames.",
    };
    struct bench_torture_options options = {
        .procs = 4,
        .stops = UINT64_MAX,
        .seed = bench_mix(tool_now_ns()) >> 32,
        .frames = 96,
    };

    argp_parse(&argp, argc, argv, 0, NULL, &options);
    return bench_torture(&options);
}

/* ---- spill ------------------------------------------------------------------------------------------- */

static const struct argp_option spill_argp_options[] = {
    {"bytes", OPT_BYTES, "SIZE", 0, "of all pages (default 256M)", 0},
    {"page-bytes", OPT_PAGE_BYTES, "SIZE", 0, "of one page (default 256K)", 0},
    {"rounds", OPT_ROUNDS, "N", 0, "of which the median is taken (default 3)", 0},
    {"json", OPT_JSON, NULL, 0, "print the result as JSON", 0},
    {0},
};

static error_t spill_parse(int key, char *arg, struct argp_state *state)
{
    struct bench_spill_options *options = state->input;

    switch (key) {
    case OPT_BYTES:
        options->bytes = size(state, "--bytes", arg);
        if (options->bytes == 0)
            argp_error(state, "--bytes: 0 is too small; at least 1");
        return 0;
    case OPT_PAGE_BYTES:
        options->page_bytes = size(state, "--page-bytes", arg);
        if (options->page_bytes == 0)
            argp_error(state, "--page-bytes: 0 is too small; at least 1");
        return 0;
    case OPT_ROUNDS:
        options->rounds = number(state, "--rounds", arg, 1, 10000);
        return 0;
    case OPT_JSON:
        options->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (options->file)
            argp_error(state, "one file, not two: '%s'", arg);
        options->file = arg;
        return 0;
    case ARGP_KEY_END:
        if (!options->file)
            argp_error(state, "which file? (it is made, and removed)");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int spill_main(int argc, char **argv)
{
    static const struct argp argp = {
        .options = spill_argp_options,
        .parser = spill_parse,
        .args_doc = "FILE",
        .doc = "Time how pages go to a spill file and come back, beside fio.",
    };
    struct bench_spill_options options = {
        .bytes = UINT64_C(256) << 20, .page_bytes = UINT64_C(256) << 10, .rounds = 3};

    argp_parse(&argp, argc, argv, 0, NULL, &options);
    return bench_spill(&options);
}

/* ---- the command ------------------------------------------------------------------------------------- */

static const struct command {
    const char *name;
    char *full_name;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"replay", "kvshm-bench replay", replay_main},
    {"generate", "kvshm-bench generate", generate_main},
    {"lookup", "kvshm-bench lookup", lookup_main},
    {"create", "kvshm-bench create", create_main},
    {"memory", "kvshm-bench memory", memory_main},
    {"spill", "kvshm-bench spill", spill_main},
    {"torture", "kvshm-bench torture", torture_main},
};

/* Which command, and where in argv its name stands. */
struct choice {
    const struct command *command;
    int index;
};

/* What stands behind the command is the command's. */
static error_t main_parse(int key, char *arg, struct argp_state *state)
{
    struct choice *choice = state->input;

    switch (key) {
    case ARGP_KEY_ARG:
        for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
            if (strcmp(arg, commands[i].name) == 0)
                choice->command = &commands[i];
        if (!choice->command)
            argp_error(state, "no such command: '%s'", arg);
        choice->index = state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which command?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = main_parse,
        .args_doc = "COMMAND [OPTION...]",
        .doc = "Replay requests over a kvshm arena, measure, and torture.\v"
               "Commands:\n"
               "  replay TRACE   several server processes serve the requests of a trace\n"
               "  generate       write a trace from a model\n"
               "  lookup         time one hit\n"
               "  create         time how an arena's memory is taken\n"
               "  memory         show what things in an arena, and an attach, take of memory\n"
               "  spill FILE     time how pages go to a file and come back\n"
               "  torture        stop and kill servers, and look for what is lost\n"
               "\n"
               "kvshm-bench COMMAND --help has the command's options; kvshm-bench(1) has the rest.",
    };
    struct choice choice = {0};

    tool_start();
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &choice);
    argv[choice.index] = choice.command->full_name;
    return choice.command->run(argc - choice.index, argv + choice.index);
}
