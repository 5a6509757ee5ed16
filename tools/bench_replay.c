/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_replay.c - the parent of the servers of a replay
 *
 * It makes the arena and leaves it (so that no server inherits a handle), starts the servers, kills and replaces
 * those it is to kill, and when all requests are done attaches once more to count.
 *
 * Kills. Kill k of n comes at a random moment after some request of the k-th n-th part of the trace was taken. So
 * that it comes before the replay is over, servers wait for it when they are a window of requests ahead of it (the
 * gate), and none ends while a kill is due. Only a death by our own SIGKILL is none of the errors.
 *
 * Restarts. Restart k of n comes when k of n + 1 parts of the trace were taken: all servers are killed, the arena is
 * removed, made anew on its spill file, and new servers go on. With a flush the servers are held back until all that
 * was taken is done, and what is in memory is written before they are killed: then nothing is lost.
 *
 * Frames. At the end, with all servers gone, one reservation of every frame must succeed, in which no frame appears
 * twice, and before that the arena's own counts must add up: then none is lost. What a killed server had reserved
 * counts too: it comes back when frames are needed.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "bench_arena.h"
#include "bench_content.h"
#include "bench_progress.h"
#include "bench_report.h"
#include "bench_server.h"
#include "kvshm.h"
#include "reap.h"
#include "spill_layout.h"

#define IDLE_NS       50000000u /* between two looks, without kills */
#define KILL_IDLE_NS  50000u    /* with kills */
#define KILL_DELAY_NS 100000u   /* at most, from the request to the kill */
#define STALL_MS      10000     /* a busy machine does not make an error */
#define MAX_FRAMES    ((1u << 28) - 1)

struct replay {
    const struct bench_replay_options *options;
    struct bench_trace trace;
    struct bench_arena arena;
    struct bench_run run;
    struct bench_shared *shared;
    size_t shared_bytes;
    pid_t *pids; /* of the places; 0: ended */
    uint32_t running;
    uint32_t serial; /* of the last process started */
    uint64_t random;
    uint32_t kills; /* done */
    uint32_t kills_in_request;
    uint32_t kill_at;    /* request that must be taken before the next one */
    uint32_t restart_at; /* likewise of the next restart; with a flush: the first that waits for it */
    uint32_t settled;    /* requests before it are done */
    uint64_t served;     /* blocks, up to the last restart */
    int signal;       /* that ends the replay early */
    struct bench_result result;
};

static int read_trace(struct replay *replay)
{
    const char *path = replay->options->trace;
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(path, "r");
    int status;

    if (!file) {
        tool_error("%s: %s", path, strerror(errno));
        return -1;
    }
    status = bench_trace_read(file, is_stdin ? "standard input" : path, &replay->trace);
    if (!is_stdin)
        fclose(file);
    return status;
}

/* Frames of the arena: those asked for; or all pages of the trace, and what the servers hold while they fill. */
static int choose_frames(struct replay *replay)
{
    const struct bench_replay_options *options = replay->options;
    uint64_t pages_per_block = BENCH_BLOCK_TOKENS / options->page_tokens;
    uint64_t fillers = options->procs + options->kills;
    uint64_t frames = options->frames;

    if (frames == 0)
        frames = (replay->trace.node_count + fillers * replay->trace.longest) * pages_per_block;
    if (frames > MAX_FRAMES) {
        tool_error("%llu frames are needed; an arena has at most %u", (unsigned long long)frames,
                   MAX_FRAMES);
        return -1;
    }
    replay->run.frames = (uint32_t)frames;
    return 0;
}

/* The memory that servers share, in one mapping: the struct, then its three arrays. */
static int share_memory(struct replay *replay)
{
    size_t places = replay->options->procs * sizeof(struct bench_place);
    size_t requests = replay->trace.request_count * sizeof(struct bench_request);
    size_t nodes = replay->trace.node_count * sizeof(uint32_t);
    size_t head = (sizeof(struct bench_shared) + 63) & ~(size_t)63;
    char *memory;

    replay->shared_bytes = head + places + requests + nodes;
    memory =
        mmap(NULL, replay->shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        tool_error("%zu bytes of memory for the servers: %s", replay->shared_bytes,
                   strerror(errno));
        return -1;
    }
    replay->shared = (struct bench_shared *)memory;
    replay->shared->places = (struct bench_place *)(memory + head);
    replay->shared->requests = (struct bench_request *)(memory + head + places);
    replay->shared->computed_by = (_Atomic(uint32_t) *)(memory + head + places + requests);
    return 0;
}

static uint64_t up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Bytes of a spill file for all pages of the trace, whatever its blocks. */
static uint64_t spill_bytes(const struct replay *replay, uint32_t max_clients)
{
    const struct bench_replay_options *options = replay->options;
    const uint64_t block = KVSHM__SPILL_BLOCK_MIN, large = KVSHM__SPILL_BLOCK_MAX;
    uint64_t pages = replay->trace.node_count * (BENCH_BLOCK_TOKENS / options->page_tokens);
    uint64_t header = sizeof(struct kvshm_slot_header) + up(4 * options->page_tokens, 8);

    return pages * (up(options->page_bytes, block) + up(header, block)) + (max_clients + 16) * large;
}

static void configure(const struct replay *replay, struct kvshm_config *config)
{
    const struct bench_replay_options *options = replay->options;

    kvshm_config_init(config);
    config->label = "kvshm-bench";
    config->geometry.page_tokens = (uint32_t)options->page_tokens;
    config->geometry.page_bytes = options->page_bytes;
    config->frames = replay->run.frames;
    config->capacity = options->capacity;
    config->backing = options->backing;
    config->stall_ms = STALL_MS;
    if (options->procs + 2 > config->max_clients)
        config->max_clients = (uint32_t)options->procs + 2;
    if (!options->spill)
        return;
    config->spill_path = options->spill;
    config->wait_ms = KVSHM_UNLIMITED;
    config->spill_bytes =
        options->spill_bytes ? options->spill_bytes : spill_bytes(replay, config->max_clients);
}

/* Leave the arena that was just made. found: pages that its file held. */
static int leave_arena(struct replay *replay, kvshm *kv, uint64_t *found)
{
    struct kvshm_info info;
    int rc;

    kvshm_info_init(&info);
    rc = kvshm_info(kv, &info);
    if (rc == 0)
        *found = info.pages_spilled;
    else
        tool_error("arena %s: %s", replay->arena.name, kvshm_errmsg(kv));
    kvshm_detach(kv);
    return rc;
}

static int make_arena(struct replay *replay)
{
    struct kvshm_config config;
    kvshm *kv;

    configure(replay, &config);
    if (bench_arena_create(&replay->arena, replay->options->name, &config, &kv))
        return -1;
    return leave_arena(replay, kv, &replay->result.pages_found);
}

/* Start a process for a place. */
static int start_server(struct replay *replay, uint32_t place)
{
    pid_t parent = getpid(), pid;
    uint32_t serial = ++replay->serial;

    fflush(NULL);
    pid = fork();
    if (pid < 0) {
        tool_error("server %u: fork: %s", place, strerror(errno));
        return -1;
    }
    if (pid == 0) {
        signal(SIGINT, SIG_IGN); /* a terminal sends it to all; the parent decides */
        signal(SIGHUP, SIG_IGN);
        sigprocmask(SIG_SETMASK, &replay->arena.old_mask, NULL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(TOOL_FAILED);
        _exit(bench_server(&replay->run, place, serial));
    }
    replay->pids[place] = pid;
    replay->running++;
    return 0;
}

static uint32_t place_of(const struct replay *replay, pid_t pid)
{
    uint32_t place = 0;

    while (place < replay->options->procs && replay->pids[place] != pid)
        place++;
    return place;
}

/* Take note of the servers that have ended. One that has not ended well is an error. */
static int reap(struct replay *replay)
{
    int status, bad = 0;
    uint32_t place;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        place = place_of(replay, pid);
        if (place == replay->options->procs)
            continue;
        replay->pids[place] = 0;
        replay->running--;
        if (WIFSIGNALED(status))
            tool_error("server %u was ended by signal %d", place, WTERMSIG(status));
        if (!WIFEXITED(status) || WEXITSTATUS(status) != TOOL_DONE)
            bad = -1;
    }
    return bad;
}

/* When the next kill and the next restart are due, and how far the servers may go before them. */
static void plan_kill(struct replay *replay)
{
    const struct bench_replay_options *options = replay->options;
    uint64_t requests = replay->trace.request_count, gate = UINT32_MAX, restart_gate;
    uint64_t kills = options->kills, window = 16 * options->procs + 64;
    uint64_t restarts = replay->result.restart_count;

    if (replay->kills < kills) {
        replay->kill_at =
            (uint32_t)((replay->kills * requests + bench_below(&replay->random, requests)) / kills);
        gate = replay->kill_at + window;
    }
    if (restarts < options->restarts) {
        replay->restart_at = (uint32_t)((restarts + 1) * requests / (options->restarts + 1));
        restart_gate = replay->restart_at + (options->flush ? 0 : window);
        gate = restart_gate < gate ? restart_gate : gate;
    }
    atomic_store(&replay->shared->kills_left,
                 (uint32_t)(kills - replay->kills + options->restarts - restarts));
    atomic_store(&replay->shared->gate, gate < UINT32_MAX ? (uint32_t)gate : UINT32_MAX);
}

/* Kill one server, after a random while, and start another in its place. */
static int kill_one(struct replay *replay)
{
    struct timespec delay = {.tv_nsec = (long)bench_below(&replay->random, KILL_DELAY_NS)};
    uint32_t place = (uint32_t)bench_below(&replay->random, replay->options->procs);
    int status;

    nanosleep(&delay, NULL);
    if (replay->pids[place] == 0)
        return 0; /* it has failed; reap will tell */
    kill(replay->pids[place], SIGKILL);
    while (waitpid(replay->pids[place], &status, 0) < 0 && errno == EINTR)
        continue;
    replay->pids[place] = 0;
    replay->running--;
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
        tool_error("server %u ended by itself", place);
        return -1;
    }
    replay->kills++;
    replay->kills_in_request += atomic_exchange(&replay->shared->places[place].in_request, 0);
    plan_kill(replay);
    return start_server(replay, place);
}

/* Let them all start at the same moment. */
static int wait_until_ready(struct replay *replay)
{
    for (uint32_t place = 0; place < replay->options->procs;) {
        if (atomic_load(&replay->shared->places[place].is_ready)) {
            place++;
            continue;
        }
        replay->signal = bench_signal_wait(KILL_IDLE_NS);
        if (replay->signal == SIGCHLD)
            replay->signal = 0;
        if (replay->signal || reap(replay))
            return -1;
    }
    atomic_store(&replay->shared->go, 1);
    return 0;
}

static void kill_all(struct replay *replay)
{
    for (uint32_t place = 0; place < replay->options->procs; place++) {
        if (replay->pids[place] == 0)
            continue;
        kill(replay->pids[place], SIGKILL);
        while (waitpid(replay->pids[place], NULL, 0) < 0 && errno == EINTR)
            continue;
        replay->pids[place] = 0;
        replay->running--;
    }
}

/* What the counters of the arena say is added up; those of an arena made anew begin at 0. */
static void add_stats(struct bench_result *result, const struct kvshm_stats *stats)
{
    result->evicted_entries += stats->evicted_entries;
    result->evicted_pages += stats->evicted_pages;
    result->spilled_pages += stats->spilled_pages;
    result->left_pages += stats->left_pages;
    result->restored_pages += stats->restored_pages;
    result->spill_failures += stats->spill_failures + stats->restore_failures;
    result->spill_bytes_written += stats->spill_bytes_written;
    result->spill_bytes_read += stats->spill_bytes_read;
}

/* Blocks of the requests that are done. */
static uint64_t blocks_served(const struct replay *replay)
{
    uint64_t blocks = 0;

    for (uint32_t i = 0; i < replay->trace.request_count; i++) {
        const struct bench_request *request = &replay->shared->requests[i];

        blocks += atomic_load(&request->done) ? request->blocks_served : 0;
    }
    return blocks;
}

/* What was served and restored since the last restart, if there was one; restored: up to now. */
static void end_restart(struct replay *replay, uint64_t restored)
{
    struct bench_result *result = &replay->result;
    uint64_t served = blocks_served(replay);

    if (result->restart_count > 0) {
        result->restarts[result->restart_count - 1].blocks_served = served - replay->served;
        result->restarts[result->restart_count - 1].pages_restored = restored;
    }
    replay->served = served;
}

static int attach_failed(const struct replay *replay, kvshm *kv)
{
    tool_error("arena %s: %s", replay->arena.name, kvshm_errmsg(kv));
    kvshm_detach(kv);
    return -1;
}

static int flush_arena(const struct replay *replay)
{
    kvshm *kv = NULL;

    if (kvshm_attach(replay->arena.name, NULL, 0, &kv) < 0 || kvshm_flush(kv) < 0)
        return attach_failed(replay, kv);
    return kvshm_detach(kv) < 0 ? attach_failed(replay, NULL) : 0;
}

/* All servers are dead: what the arena holds. The writer lock may be a dead one's; then counts are made anew. */
static int ask_before(struct replay *replay, struct bench_restart *restart)
{
    struct kvshm_stats stats;
    struct kvshm_info info;
    kvshm *kv = NULL;

    kvshm_info_init(&info);
    kvshm_stats_init(&stats);
    if (kvshm_attach(replay->arena.name, NULL, KVSHM_NOTIER, &kv) < 0 ||
        kvshm__setting_set(kv, "stall_ms", STALL_MS) < 0 || kvshm_info(kv, &info) < 0 ||
        kvshm_stats(kv, &stats) < 0)
        return attach_failed(replay, kv);
    restart->pages_before = info.pages + info.pages_spilled;
    add_stats(&replay->result, &stats);
    end_restart(replay, stats.restored_pages);
    kvshm_detach(kv);
    return 0;
}

/* Is it time for the next restart? With a flush all that was taken must be done. */
static bool restart_is_due(struct replay *replay, uint32_t next)
{
    if (replay->result.restart_count >= replay->options->restarts)
        return false;
    if (!replay->options->flush)
        return next > replay->restart_at;
    while (replay->settled < replay->restart_at &&
           atomic_load(&replay->shared->requests[replay->settled].done))
        replay->settled++;
    return replay->settled >= replay->restart_at;
}

static int restart_all(struct replay *replay)
{
    struct bench_restart restart = {.request = atomic_load(&replay->shared->next)};
    struct kvshm_config config;
    kvshm *kv = NULL;
    int status = replay->options->flush ? flush_arena(replay) : 0;

    kill_all(replay);
    if (status == 0)
        status = ask_before(replay, &restart);
    configure(replay, &config);
    if (status == 0)
        status = bench_arena_renew(&replay->arena, &config, &kv);
    if (status == 0)
        status = leave_arena(replay, kv, &restart.pages_found);
    if (status)
        return status;
    if (restart.pages_before > restart.pages_found)
        restart.pages_lost = restart.pages_before - restart.pages_found;
    replay->result.restarts[replay->result.restart_count++] = restart;
    plan_kill(replay);
    for (uint32_t place = 0; status == 0 && place < replay->options->procs; place++)
        status = start_server(replay, place);
    return status;
}

/* Until all servers have ended; -1: one has failed, or a signal came. */
static int watch(struct replay *replay, struct bench_progress *progress)
{
    while (replay->running > 0) {
        bool is_killing = replay->kills < replay->options->kills;
        bool is_restarting = replay->result.restart_count < replay->options->restarts;
        int signal = bench_signal_wait(is_killing || is_restarting ? KILL_IDLE_NS : IDLE_NS);
        uint32_t next = atomic_load(&replay->shared->next);

        if (signal && signal != SIGCHLD) {
            replay->signal = signal;
            return -1;
        }
        if (reap(replay))
            return -1;
        if (restart_is_due(replay, next)) {
            if (restart_all(replay))
                return -1;
        } else if (is_killing && next > replay->kill_at && kill_one(replay)) {
            return -1;
        }
        bench_progress_update(progress, next);
    }
    return 0;
}

static int run_servers(struct replay *replay)
{
    struct bench_progress progress;
    uint64_t began_ns;
    int status = 0;

    plan_kill(replay);
    for (uint32_t place = 0; status == 0 && place < replay->options->procs; place++)
        status = start_server(replay, place);
    if (status == 0)
        status = wait_until_ready(replay);
    began_ns = bench_now_ns();
    if (status == 0) {
        bench_progress_begin(&progress, replay->trace.request_count, "requests");
        status = watch(replay, &progress);
        bench_progress_end(&progress);
    }
    replay->result.elapsed_ns = bench_now_ns() - began_ns;
    kill_all(replay);
    return status;
}

/* What the arena says, when no server is left. */
static int ask_arena(struct replay *replay)
{
    struct bench_result *result = &replay->result;
    struct kvshm_stats stats;
    struct kvshm_info info;
    uint64_t told;
    kvshm *kv;

    kvshm_stats_init(&stats);
    kvshm_info_init(&info);
    if (kvshm_attach(replay->arena.name, NULL, 0, &kv) < 0) {
        tool_error("arena %s: %s", replay->arena.name, kvshm_errmsg(NULL));
        return -1;
    }
    if (kvshm_info(kv, &info) < 0 || kvshm_stats(kv, &stats) < 0) {
        tool_error("arena %s: %s", replay->arena.name, kvshm_errmsg(kv));
        kvshm_detach(kv);
        return -1;
    }
    result->entries = info.entries;
    result->pages = info.pages;
    add_stats(result, &stats);
    end_restart(replay, stats.restored_pages);
    result->pages_in_file = info.pages_spilled;
    result->slots = info.slots;
    result->frames = info.frames;
    result->segment_bytes = info.segment_bytes;
    told = info.frames_free + info.pages + info.pages_limbo + info.frames_reserved;
    result->frames_accounted = bench_arena_frames(kv, &info);
    if (info.slots == 0 && told != info.frames) {
        tool_error("the arena counts %llu frames, free and in use", (unsigned long long)told);
        result->frames_accounted = told;
    }
    kvshm_detach(kv);
    return 0;
}

/* What the servers have left in the memory they share. */
static int add_up(struct replay *replay)
{
    struct bench_result *result = &replay->result;
    struct bench_hist *all = calloc(1, sizeof(*all));

    if (!all) {
        tool_error("no memory for the result");
        return -1;
    }
    for (uint32_t i = 0; i < replay->trace.request_count; i++) {
        const struct bench_request *request = &replay->shared->requests[i];

        result->requests += atomic_load(&request->done);
        result->blocks_served += request->blocks_served;
        result->blocks_of_others += request->blocks_of_others;
        result->blocks_in_memory += request->blocks_in_memory;
    }
    for (uint32_t i = 0; i < replay->options->procs; i++) {
        struct bench_place *place = &replay->shared->places[i];

        result->wrong_bytes += atomic_load(&place->wrong_bytes);
        result->not_inserted += atomic_load(&place->not_inserted);
        bench_hist_merge(all, &place->match_ns);
    }
    result->blocks = replay->trace.block_count;
    result->blocks_restored = result->blocks_served - result->blocks_in_memory;
    result->blocks_missed = result->blocks - result->blocks_served;
    result->kills = replay->kills;
    result->kills_in_request = replay->kills_in_request;
    result->matches = bench_hist_total(all);
    result->match_median_ns = bench_hist_quantile(all, 500);
    result->match_p99_ns = bench_hist_quantile(all, 990);
    free(all);
    return 0;
}

/* Is the result as it must be? What is not has its sentence. */
static int judge(const struct replay *replay)
{
    const struct bench_result *result = &replay->result;
    int status = 0;

    if (result->requests != replay->trace.request_count) {
        tool_error("%llu of %u requests were done", (unsigned long long)result->requests,
                   replay->trace.request_count);
        status = -1;
    }
    if (result->wrong_bytes) {
        tool_error("%llu wrong bytes were served", (unsigned long long)result->wrong_bytes);
        status = -1;
    }
    if (result->frames_accounted != result->frames) {
        tool_error("%llu of %llu frames are accounted for",
                   (unsigned long long)result->frames_accounted,
                   (unsigned long long)result->frames);
        status = -1;
    }
    return status;
}

/* All of it between making the arena and removing it. */
static int replay_trace(struct replay *replay)
{
    int status = make_arena(replay);

    if (status)
        return status;
    replay->run.arena_name = replay->arena.name;
    replay->run.shared = replay->shared;
    status = run_servers(replay);
    if (status == 0)
        status = ask_arena(replay);
    if (bench_arena_remove(&replay->arena))
        status = -1;
    bench_signal_obey(replay->signal);
    if (status == 0)
        status = add_up(replay);
    if (status == 0)
        status = bench_report(replay->options, &replay->result);
    if (status == 0)
        status = judge(replay);
    return status;
}

int bench_replay(const struct bench_replay_options *options)
{
    struct replay replay = {.options = options, .random = options->seed};
    int status = read_trace(&replay);

    replay.run.options = options;
    replay.run.trace = &replay.trace;
    replay.pids = calloc(options->procs, sizeof(*replay.pids));
    if (status == 0 && !replay.pids) {
        tool_error("no memory for %llu servers", (unsigned long long)options->procs);
        status = -1;
    }
    if (status == 0)
        status = choose_frames(&replay);
    if (status == 0)
        status = share_memory(&replay);
    if (status == 0)
        status = replay_trace(&replay);
    if (replay.shared)
        munmap(replay.shared, replay.shared_bytes);
    free(replay.pids);
    bench_trace_free(&replay.trace);
    return status ? TOOL_FAILED : TOOL_DONE;
}
