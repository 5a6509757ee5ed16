/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_torture.c - the parent of the torture: it starts, stops and kills servers, and looks for what is lost
 *
 * Whom it strikes. A random server; or the one that holds the writer lock, which it watches through a read-only handle;
 * or, when that one has died inside, the one that takes the lock over and rebuilds, and so on; or several at once. A
 * stopped server goes on after some further strikes, if it is not killed.
 *
 * What is lost. After each CHECK_KILLS kills, and at the end, all servers give back what they hold and end. Then a new
 * client evicts all entries, and one reservation of every frame must succeed, in which no frame appears twice; the
 * arena's own counts must add up before and after. Only a death by our own SIGKILL is none of the errors. Children of a
 * killed server are killed with it, and waited for here.
 *
 * A call that never ends is found out by HANG_NS without a step of any server.
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

#include "bench_arena.h"
#include "bench_progress.h"
#include "bench_torture.h"
#include "handle.h"

#define CHECK_KILLS 250u
#define DELAY_NS    2500000u  /* at most, between two strikes */
#define LOOK_NS     300000u   /* for someone inside the lock */
#define MENDER_NS   20000000u /* until someone takes the lock over from the dead */
#define HANG_NS     UINT64_C(60000000000)
#define STOP_NS     200000000u /* until a process is stopped, or as good as that */
#define STALL_MS    5
#define WAIT_MS     20
#define ANEW        100u /* one of so many strikes kills all, where there is a spill file */
#define MAX_LEASES  16u

struct torture {
    const struct bench_torture_options *options;
    struct bench_arena arena;
    struct torture_run run;
    struct torture_shared *shared;
    size_t shared_bytes;
    kvshm *watch;      /* read-only */
    pid_t *pids;       /* of the servers; 0: ended */
    uint32_t *process; /* number of the next process */
    uint32_t *stopped; /* strikes until it goes on; 0: it runs */
    uint64_t strikes;
    uint64_t random; /* of this strike */
    uint64_t began_ns;
    uint64_t stops_wanted;
    uint64_t next_check; /* kills */
    uint64_t steps_seen, steps_seen_ns;
    int signal; /* that ends the torture early */
    struct torture_result result;
};

static uint32_t draw(struct torture *t, uint32_t n)
{
    return (uint32_t)bench_below(&t->random, n);
}

/* ---- Who is inside the writer lock ------------------------------------------------------------------------ */

static uint64_t lock_word(const struct torture *t)
{
    return KVSHM__LOAD_ACQ(&t->watch->header->lock.word);
}

static uint64_t client_of(const struct torture *t, uint32_t server)
{
    return atomic_load(&t->shared->places[server].client);
}

/* procs: nobody, or nobody known. */
static uint32_t holder(const struct torture *t)
{
    uint64_t word = lock_word(t);
    uint32_t server = 0;

    while (server < t->run.procs && (word == 0 || client_of(t, server) != word))
        server++;
    return server;
}

static uint32_t find_holder(const struct torture *t)
{
    uint64_t until = bench_now_ns() + LOOK_NS;
    uint32_t server;

    do
        server = holder(t);
    while (server == t->run.procs && bench_now_ns() < until);
    return server;
}

/* Does the client write pages to the spill file, or erase some? */
static bool in_transfer(const struct torture *t, uint64_t client)
{
    for (uint32_t i = 0; client && i < t->watch->max_clients; i++) {
        const struct kvshm_client *c = &t->watch->clients[i];

        if (KVSHM__LOAD(&c->number) == client)
            return KVSHM__LOAD(&c->since[0]) || KVSHM__LOAD(&c->since[1]);
    }
    return false;
}

/* procs: none. */
static uint32_t find_in_transfer(const struct torture *t)
{
    uint64_t until = bench_now_ns() + LOOK_NS;
    uint32_t server;

    do {
        server = 0;
        while (server < t->run.procs && !in_transfer(t, client_of(t, server)))
            server++;
    } while (server == t->run.procs && bench_now_ns() < until);
    return server;
}

/* ---- Processes -------------------------------------------------------------------------------------------- */

static int start(struct torture *t, uint32_t server)
{
    pid_t parent = getpid(), pid;
    uint32_t process = t->process[server]++;

    atomic_store(&t->shared->places[server].client, 0);
    torture_gone_inserted(&t->shared->places[server]);
    fflush(NULL);
    pid = fork();
    if (pid < 0) {
        tool_error("server %u: fork: %s", server, strerror(errno));
        return -1;
    }
    if (pid == 0) {
        signal(SIGINT, SIG_IGN); /* a terminal sends it to all; the parent decides */
        signal(SIGHUP, SIG_IGN);
        sigprocmask(SIG_SETMASK, &t->arena.old_mask, NULL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(TOOL_FAILED);
        _exit(torture_server(&t->run, server, process));
    }
    t->pids[server] = pid;
    t->result.processes++;
    return 0;
}

static int start_missing(struct torture *t)
{
    for (uint32_t server = 0; server < t->run.procs; server++)
        if (t->pids[server] == 0 && start(t, server))
            return -1;
    return 0;
}

/* Has the process, one of ours or an orphan of one, ended well? */
static int judge(const struct torture *t, uint32_t server, int status)
{
    if (server < t->run.procs && WIFSIGNALED(status))
        tool_error("server %u was ended by signal %d", server, WTERMSIG(status));
    if (WIFSIGNALED(status))
        return server < t->run.procs || WTERMSIG(status) != SIGKILL ? -1 : 0;
    return WEXITSTATUS(status) == TOOL_DONE ? 0 : -1;
}

/* Take note of what has ended: a server, or what a killed server had forked. flags: WNOHANG or 0. */
static int reap(struct torture *t, int flags)
{
    int status, bad = 0;
    uint32_t server;
    pid_t pid;

    while ((pid = waitpid(-1, &status, flags)) > 0 || (pid < 0 && errno == EINTR)) {
        for (server = 0; server < t->run.procs && t->pids[server] != pid; server++)
            continue;
        if (server < t->run.procs)
            t->pids[server] = 0;
        if (pid > 0 && judge(t, server, status))
            bad = -1;
    }
    return bad;
}

static int wait_for(pid_t pid, int options, int *status)
{
    pid_t got;

    do
        got = waitpid(pid, status, options);
    while (got < 0 && errno == EINTR);
    return got == pid ? 0 : -1;
}

/*
 * A process is stopped when all its threads are. A thread that exits waits in the kernel for the workers of its ring; when
 * those have stopped before, it does so until they go on, and nobody is told of the stop: STOP_NS is enough then.
 */
static int wait_for_stop(pid_t pid, int *status)
{
    uint64_t until = bench_now_ns() + STOP_NS;
    pid_t got;

    *status = W_STOPCODE(SIGSTOP);
    do
        got = waitpid(pid, status, WUNTRACED | WNOHANG);
    while ((got == 0 || (got < 0 && errno == EINTR)) && bench_now_ns() < until && usleep(50) == 0);
    return got == pid || got == 0 ? 0 : -1;
}

/* -1: it had ended by itself, which it should not. */
static int kill_server(struct torture *t, uint32_t server)
{
    uint64_t client = client_of(t, server);
    int status = 0;

    kill(t->pids[server], SIGKILL);
    wait_for(t->pids[server], 0, &status);
    t->pids[server] = 0;
    t->stopped[server] = 0;
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
        tool_error("server %u ended by itself", server);
        return -1;
    }
    t->result.kills++;
    t->result.kills_in_lock += client && lock_word(t) == client;
    t->result.kills_in_transfer += in_transfer(t, client);
    return 0;
}

/* -1: some had ended by themselves, or orphans of them badly. */
static int kill_all(struct torture *t)
{
    int bad = 0;

    for (uint32_t server = 0; server < t->run.procs; server++)
        if (t->pids[server] && kill_server(t, server))
            bad = -1;
    return reap(t, 0) ? -1 : bad;
}

static void go_on(struct torture *t, uint32_t server)
{
    if (t->pids[server])
        kill(t->pids[server], SIGCONT);
    t->stopped[server] = 0;
}

/* ---- What is lost, and new arenas ------------------------------------------------------------------------- */

static void count_arena(struct torture *t)
{
    struct kvshm_stats stats;

    kvshm_stats_init(&stats);
    if (t->watch && kvshm_stats(t->watch, &stats) == 0) {
        t->result.takeovers += stats.takeovers;
        t->result.spilled_pages += stats.spilled_pages;
        t->result.restored_pages += stats.restored_pages;
    }
    kvshm_detach(t->watch);
    t->watch = NULL;
}

static int begin_watch(struct torture *t)
{
    if (kvshm_attach(t->arena.name, NULL, KVSHM_RDONLY, &t->watch) == 0)
        return 0;
    tool_error("arena %s: %s", t->arena.name, kvshm_errmsg(NULL));
    t->watch = NULL;
    return -1;
}

static void configure(const struct torture *t, struct kvshm_config *config)
{
    kvshm_config_init(config);
    config->label = "kvshm-bench";
    config->geometry.page_tokens = TORTURE_PAGE_TOKENS;
    config->geometry.page_bytes = TORTURE_PAGE_BYTES;
    config->frames = t->options->frames;
    config->max_leases = MAX_LEASES;
    config->max_clients = 8 * t->run.procs + 32;
    config->stall_ms = STALL_MS;
    config->wait_ms = WAIT_MS;
    config->spill_path = t->options->spill;
    config->spill_bytes = t->options->spill_bytes;
}

/* With no server left: the arena goes, and a new one begins on its spill file. */
static int begin_anew(struct torture *t)
{
    struct kvshm_config config;
    kvshm *kv;

    count_arena(t);
    configure(t, &config);
    if (kvshm_unlink(t->arena.name, KVSHM_FORCE) < 0 ||
        kvshm_create(t->arena.name, &config, 0, &kv) < 0) {
        tool_error("arena %s, anew: %s", t->arena.name, kvshm_errmsg(NULL));
        return -1;
    }
    kvshm_detach(kv);
    t->result.arenas++;
    torture_gone_anew(&t->run);
    return begin_watch(t);
}

/* The same, when everything was written before: all entries are there again. */
static int begin_anew_flushed(struct torture *t)
{
    static struct torture_entries before, after;
    int flushed = torture_flush(&t->run);

    if (flushed < 0 || torture_list_entries(&t->run, &before) || begin_anew(t) ||
        torture_list_entries(&t->run, &after))
        return -1;
    if (!flushed || before.epoch != after.epoch) /* a clear that died had told the file already */
        return 0;
    for (uint32_t i = 0; i < TORTURE_PROMPTS + TORTURE_KEYS; i++) {
        if (before.there[i] && !after.there[i]) {
            tool_error(
                "entry %u was written and flushed, and is not there in a new arena on the file", i);
            return -1;
        }
        t->result.entries_flushed += before.there[i];
    }
    return 0;
}

/* ---- Strikes ---------------------------------------------------------------------------------------------- */

/* A strike that kills all may kill more than are wanted. */
static uint64_t kills_left(const struct torture *t)
{
    uint64_t wanted = t->options->kills ? t->options->kills : UINT64_MAX;

    return wanted > t->result.kills ? wanted - t->result.kills : 0;
}

/* The one just killed died inside the lock: whoever takes it over dies too, and so on by chance. */
static int kill_menders(struct torture *t, uint32_t server)
{
    while (kills_left(t) > 0) {
        uint64_t dead = client_of(t, server), until = bench_now_ns() + MENDER_NS;

        while (lock_word(t) == dead && bench_now_ns() < until)
            continue;
        server = holder(t);
        if (dead == 0 || server == t->run.procs || t->pids[server] == 0)
            return 0;
        if (kill_server(t, server))
            return -1;
        if (lock_word(t) != client_of(t, server))
            return 0;
        t->result.menders_killed++;
        if (draw(t, 2))
            return 0;
    }
    return 0;
}

static int kill_several(struct torture *t)
{
    uint32_t n = 2 + draw(t, t->run.procs);

    for (uint32_t i = 0; i < n && kills_left(t) > 0; i++) {
        uint32_t server = draw(t, t->run.procs);

        if (t->pids[server] && kill_server(t, server))
            return -1;
    }
    return 0;
}

static int strike_kill(struct torture *t)
{
    uint32_t way = draw(t, 8), server = draw(t, t->run.procs);
    uint64_t before;

    if (way == 0)
        return kill_several(t);
    if (way >= 4) {
        uint32_t inside = t->options->spill && way <= 5 ? find_in_transfer(t) : find_holder(t);

        server = inside < t->run.procs ? inside : server;
    }
    before = t->result.kills_in_lock;
    if (kill_server(t, server))
        return -1;
    return way >= 6 && t->result.kills_in_lock > before ? kill_menders(t, server) : 0;
}

/* Stops one more, unless only one runs. */
static int strike_stop(struct torture *t)
{
    uint32_t server = draw(t, t->run.procs), time = 1 + draw(t, 5), running = 0;
    int status = 0;

    if (draw(t, 2)) {
        uint32_t inside = t->options->spill && draw(t, 2) ? find_in_transfer(t) : find_holder(t);

        server = inside < t->run.procs ? inside : server;
    }
    for (uint32_t i = 0; i < t->run.procs; i++)
        running += t->stopped[i] == 0;
    if (t->stopped[server] || (running == 1 && t->run.procs > 1))
        return 0;
    kill(t->pids[server], SIGSTOP);
    if (wait_for_stop(t->pids[server], &status) || !WIFSTOPPED(status)) {
        t->pids[server] = 0;
        tool_error("server %u ended by itself", server);
        return -1;
    }
    t->stopped[server] = time;
    t->result.stops++;
    t->result.stops_in_lock += client_of(t, server) && lock_word(t) == client_of(t, server);
    return 0;
}

static uint64_t stops_left(const struct torture *t)
{
    return t->stops_wanted == UINT64_MAX ? UINT64_MAX : t->stops_wanted - t->result.stops;
}

static bool stop_is_next(struct torture *t)
{
    uint64_t kills = kills_left(t), stops = stops_left(t);

    if (stops == 0 || kills == 0)
        return kills == 0;
    if (stops == UINT64_MAX || kills == UINT64_MAX)
        return draw(t, 3) == 0;
    return bench_below(&t->random, kills + stops) < stops;
}

static int strike(struct torture *t)
{
    for (uint32_t server = 0; server < t->run.procs; server++)
        if (t->stopped[server] && --t->stopped[server] == 0)
            go_on(t, server);
    if (t->options->spill && kills_left(t) > 0 && draw(t, ANEW) == 0) {
        if (kill_all(t) || begin_anew(t))
            return -1;
    } else if (stop_is_next(t) ? strike_stop(t) : strike_kill(t)) {
        return -1;
    }
    return start_missing(t);
}

/* ---- Waiting ---------------------------------------------------------------------------------------------- */

/* Do the servers go on? */
static int watch_steps(struct torture *t)
{
    uint64_t steps = 0, now_ns = bench_now_ns();

    for (uint32_t server = 0; server < t->run.procs; server++)
        steps += atomic_load_explicit(&t->shared->places[server].steps, memory_order_relaxed);
    if (steps != t->steps_seen || t->steps_seen_ns == 0) {
        t->steps_seen = steps;
        t->steps_seen_ns = now_ns;
    }
    if (now_ns - t->steps_seen_ns < HANG_NS)
        return 0;
    tool_error("no server has ended a step for %llu s",
               (unsigned long long)(HANG_NS / 1000000000u));
    return -1;
}

/* -1: a signal that ends us, a server that has failed, or a hang. */
static int pause_for(struct torture *t, uint64_t ns)
{
    uint64_t now_ns = bench_now_ns(), until = now_ns + ns;

    do {
        int signal = bench_signal_wait(now_ns < until ? until - now_ns : 0);

        if (signal && signal != SIGCHLD) {
            t->signal = signal;
            return -1;
        }
        if (reap(t, WNOHANG) || watch_steps(t))
            return -1;
        now_ns = bench_now_ns();
    } while (now_ns < until);
    return 0;
}

/* All servers give back what they hold, and end; so do what they had forked. */
static int end_servers(struct torture *t)
{
    for (uint32_t server = 0; server < t->run.procs; server++)
        go_on(t, server);
    atomic_store(&t->shared->ended, 1);
    t->steps_seen_ns = 0;
    for (uint32_t server = 0; server < t->run.procs;) {
        if (t->pids[server] == 0)
            server++;
        else if (pause_for(t, 1000000))
            return -1;
    }
    return reap(t, 0);
}

/* ---- All of it -------------------------------------------------------------------------------------------- */

/* The command says whether the arena is sound. */
static int run_check(struct torture *t)
{
    int status;
    pid_t pid;

    if (!t->options->check)
        return 0;
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &t->arena.old_mask, NULL);
        execlp(t->options->check, t->options->check, t->arena.name, (char *)NULL);
        tool_error("%s: %s", t->options->check, strerror(errno));
        _exit(TOOL_FAILED);
    }
    if (pid > 0 && wait_for(pid, 0, &status) == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    tool_error("%s finds the arena not sound", t->options->check);
    return -1;
}

static int check(struct torture *t)
{
    if (end_servers(t))
        return -1;
    torture_gone_settle(&t->run);
    if (run_check(t))
        return -1;
    if (t->options->spill && draw(t, 2) && (begin_anew_flushed(t) || run_check(t)))
        return -1;
    if (torture_check_arena(&t->run, &t->result))
        return -1;
    atomic_store(&t->shared->ended, 0);
    t->next_check += CHECK_KILLS;
    return 0;
}

static bool time_is_up(const struct torture *t)
{
    return t->options->seconds && bench_now_ns() - t->began_ns >= t->options->seconds * 1000000000u;
}

static void show_progress(const struct torture *t, struct bench_progress *progress)
{
    if (t->options->kills)
        bench_progress_update(progress, t->result.kills);
    else
        bench_progress_update(progress, (bench_now_ns() - t->began_ns) / 1000000000u);
}

/* One strike, after a pause; what is drawn for it comes from a generator of its own, as with steps. */
static int pause_and_strike(struct torture *t)
{
    t->random = bench_mix(bench_mix(t->options->seed) + t->strikes++);
    if (pause_for(t, draw(t, 4) ? bench_below(&t->random, DELAY_NS) : 0) || strike(t))
        return -1;
    if (t->result.kills < t->next_check)
        return 0;
    return check(t) || start_missing(t) ? -1 : 0;
}

/* After a fault. */
static void end_all(struct torture *t)
{
    for (uint32_t server = 0; server < t->run.procs; server++)
        if (t->pids[server])
            kill(t->pids[server], SIGKILL);
    while (wait(NULL) > 0 || errno == EINTR)
        continue;
}

static int run(struct torture *t)
{
    struct bench_progress progress;
    int status = start_missing(t);

    t->began_ns = bench_now_ns();
    bench_progress_begin(&progress, t->options->kills ? t->options->kills : t->options->seconds,
                         t->options->kills ? "kills" : "s");
    while (status == 0 && (kills_left(t) > 0 || stops_left(t) > 0) && !time_is_up(t)) {
        status = pause_and_strike(t);
        show_progress(t, &progress);
    }
    if (status == 0)
        status = check(t);
    bench_progress_end(&progress);
    t->result.elapsed_ns = bench_now_ns() - t->began_ns;
    if (status)
        end_all(t);
    return status;
}

static int make_arena(struct torture *t)
{
    struct kvshm_config config;
    kvshm *kv;

    configure(t, &config);
    if (bench_arena_create(&t->arena, NULL, &config, &kv))
        return -1;
    kvshm_detach(kv);
    t->run.arena_name = t->arena.name;
    t->run.spill = t->options->spill;
    return begin_watch(t);
}

static int allocate(struct torture *t)
{
    t->shared_bytes = sizeof(struct torture_shared) + t->run.procs * sizeof(struct torture_place);
    t->shared =
        mmap(NULL, t->shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    t->pids = calloc(t->run.procs, sizeof(*t->pids));
    t->process = calloc(t->run.procs, sizeof(*t->process));
    t->stopped = calloc(t->run.procs, sizeof(*t->stopped));
    if (t->shared == MAP_FAILED)
        t->shared = NULL;
    if (t->shared && t->pids && t->process && t->stopped)
        return 0;
    tool_error("no memory for %u servers", t->run.procs);
    return -1;
}

static void add_up(struct torture *t)
{
    struct torture_result *result = &t->result;

    for (uint32_t server = 0; server < t->run.procs; server++) {
        struct torture_place *place = &t->shared->places[server];

        for (int call = 0; call < TORTURE_CALL_COUNT; call++)
            result->calls[call] += atomic_load(&place->calls[call]);
        result->steps += atomic_load(&place->steps);
        result->hits += atomic_load(&place->hits);
        result->pages_checked += atomic_load(&place->pages_checked);
        result->wrong_bytes += atomic_load(&place->wrong_bytes);
        result->stalls += atomic_load(&place->stalls);
        result->pending += atomic_load(&place->pending);
    }
}

/* How to run it again. */
static void explain(const struct torture *t)
{
    const struct bench_torture_options *options = t->options;
    char ends[64] = "", spill[320] = "";

    if (options->kills)
        snprintf(ends, sizeof(ends), " --kills=%llu", (unsigned long long)options->kills);
    if (options->seconds)
        snprintf(ends + strlen(ends), sizeof(ends) - strlen(ends), " --seconds=%llu",
                 (unsigned long long)options->seconds);
    if (options->stops != UINT64_MAX)
        snprintf(ends + strlen(ends), sizeof(ends) - strlen(ends), " --stops=%llu",
                 (unsigned long long)options->stops);
    if (options->spill)
        snprintf(spill, sizeof(spill), " --spill=%s --spill-size=%llu", options->spill,
                 (unsigned long long)options->spill_bytes);
    tool_error(
        "the torture has failed after %llu kills and %llu stops; again, with the same schedules: "
        "kvshm-bench torture --procs=%u%s --frames=%llu%s --seed=%llu",
        (unsigned long long)t->result.kills, (unsigned long long)t->result.stops, t->run.procs,
        ends, (unsigned long long)options->frames, spill, (unsigned long long)options->seed);
}

static int torture(struct torture *t)
{
    int status = allocate(t);

    if (status)
        return status;
    t->run.shared = t->shared;
    torture_gone_begin(t->shared);
    status = make_arena(t);
    if (status) { /* which has said why; there is nothing to report */
        bench_arena_remove(&t->arena);
        bench_signal_obey(t->signal);
        return status;
    }
    status = run(t);
    count_arena(t);
    if (bench_arena_remove(&t->arena))
        status = -1;
    bench_signal_obey(t->signal);
    add_up(t);
    if (torture_report(t->options, t->shared, &t->result))
        return -1;
    if (status || t->result.wrong_bytes || t->result.frames_lost || t->result.slots_lost) {
        explain(t);
        return -1;
    }
    return 0;
}

static int show(const struct bench_torture_options *options)
{
    for (uint64_t step = 0; step < options->show_steps; step++) {
        struct torture_action action;

        torture_action(options->seed, (uint32_t)options->show_server,
                       (uint32_t)options->show_process, step, &action);
        printf("%llu %s %u\n", (unsigned long long)step, torture_step_name(action.step),
               action.number);
    }
    return tool_finish(TOOL_DONE);
}

int bench_torture(const struct bench_torture_options *options)
{
    struct torture t = {
        .options = options,
        .run = {.seed = options->seed, .procs = (uint32_t)options->procs},
        .stops_wanted =
            options->stops == UINT64_MAX && options->kills ? options->kills / 2 : options->stops,
        .next_check = CHECK_KILLS,
    };
    int status;

    if (options->shows)
        return show(options);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    status = torture(&t);
    if (t.shared)
        munmap(t.shared, t.shared_bytes);
    free(t.pids);
    free(t.process);
    free(t.stopped);
    return status ? TOOL_FAILED : TOOL_DONE;
}
