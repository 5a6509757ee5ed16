/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_processes.c - several processes on one arena: that they overlap, die, stop, and lose nothing
 *
 * Workers serve prompts from a small pool as servers do: match, compute what is missing, insert it behind the head, look
 * at every byte of every page they are given. Their parent kills and stops them at random moments. At the end all
 * entries are evicted, and all frames must be free.
 *
 * That two were inside calls at once is counted: each worker has a counter that is odd while it is inside; another that
 * reads the same odd value before and after a call of its own has been inside all that time with it.
 *
 * The seed is printed; the moments are those of the machine.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "handle.h"
#include "support.h"
#include "sys.h"

#define WORKERS     4
#define FRAMES      96
#define PAGE_TOKENS 4
#define PAGE_BYTES  192
#define PROMPTS     48
#define DEPTH       8
#define HELD        3

struct worker {
    _Atomic(uint64_t) calls; /* odd: inside one */
    char line[56];
};

static struct shared {
    struct worker worker[WORKERS];
    atomic_bool ended;
    atomic_bool disturbed; /* someone may be dead or stopped: calls of others are no proof */
    _Atomic(uint64_t) overlaps;
    _Atomic(uint64_t) pages_served;
    _Atomic(uint64_t) inserted;
    _Atomic(uint64_t) stalled;
    _Atomic(uint64_t) in_vain; /* copies one after another that were misses */
} * shared;

/* ---- Workers --------------------------------------------------------------------------------------------- */

struct job {
    unsigned number;
    uint64_t random;
    kvshm *kv;
    kvshm *reader;            /* the same, read-only: it copies without a lease */
    uint64_t others[WORKERS]; /* their counters before this call */
    struct {
        struct kvshm_lease lease;
        struct kvshm_prefix prefix;
        uint32_t tokens[DEPTH * PAGE_TOKENS];
    } held[HELD];
};

static void enter(struct job *job)
{
    atomic_fetch_add(&shared->worker[job->number].calls, 1);
    for (unsigned i = 0; i < WORKERS; i++)
        job->others[i] = atomic_load(&shared->worker[i].calls);
}

static void leave(struct job *job)
{
    for (unsigned i = 0; i < WORKERS; i++)
        if (i != job->number && job->others[i] % 2 == 1 && !atomic_load(&shared->disturbed) &&
            atomic_load(&shared->worker[i].calls) == job->others[i])
            atomic_fetch_add(&shared->overlaps, 1);
    atomic_fetch_add(&shared->worker[job->number].calls, 1);
}

/* code = call, counted. */
#define INSIDE(job, call) (enter(job), code = (call), leave(job))

/* Prompts share heads: each page is one of two, as the bits of the number say. */
static struct kvshm_prefix prompt(uint32_t *tokens, uint32_t number)
{
    struct kvshm_prefix prefix;
    uint32_t n = (1 + number % DEPTH) * PAGE_TOKENS - number / DEPTH % 3;

    for (uint32_t i = 0; i < n; i++)
        tokens[i] = i + 1000 * (number / DEPTH >> i / PAGE_TOKENS & 1);
    kvshm_prefix_init(&prefix, number % 5 == 0, 0, tokens, n);
    return prefix;
}

/* Keys name their content for ever. */
static struct kvshm_prefix key_prompt(uint32_t *tokens, uint32_t number)
{
    struct kvshm_prefix prefix;

    for (uint32_t i = 0; i < DEPTH * PAGE_TOKENS; i++)
        tokens[i] = 500000 + number + i;
    kvshm_prefix_init_hash(&prefix, 0, 3, number, (1 + number % 3) * PAGE_TOKENS);
    return prefix;
}

/* Where page i of n tokens ends. */
static uint32_t end_of_page(uint32_t n, uint32_t i)
{
    uint32_t end = (i + 1) * PAGE_TOKENS;

    return end < n ? end : n;
}

/* Every byte of every page of the lease is that of the tokens. */
static void look(const struct kvshm_lease *lease, const struct kvshm_prefix *prefix,
                 const uint32_t *tokens)
{
    const void *pages[DEPTH];

    ts_need(lease->pages <= DEPTH);
    ts_need(kvshm_lease_pages(lease, 0, DEPTH, pages) == (int)lease->pages);
    for (uint32_t i = 0; i < lease->pages; i++)
        ts_need(ts_filled(pages[i], PAGE_BYTES, prefix->adapter_id, prefix->tenant, tokens,
                          end_of_page(lease->tokens, i)) == 0);
    atomic_fetch_add(&shared->pages_served, lease->pages);
}

/* Keeps the lease for a while; what was kept in that place must still be whole. */
static void keep(struct job *job, struct kvshm_lease *lease, const struct kvshm_prefix *prefix,
                 const uint32_t *tokens)
{
    unsigned i = (unsigned)ts_random(&job->random, HELD);
    int code = 0;

    look(&job->held[i].lease, &job->held[i].prefix, job->held[i].tokens);
    INSIDE(job, (kvshm_release(job->kv, &job->held[i].lease), 0));
    (void)code;
    job->held[i].lease = *lease;
    job->held[i].prefix = *prefix;
    memcpy(job->held[i].tokens, tokens, sizeof(job->held[i].tokens));
}

static void give_back(struct job *job)
{
    for (unsigned i = 0; i < HELD; i++) {
        look(&job->held[i].lease, &job->held[i].prefix, job->held[i].tokens);
        kvshm_release(job->kv, &job->held[i].lease);
    }
}

/* May a call answer this, with others that clear, fill all frames, stop and die? */
static bool expected(int64_t code)
{
    if (code == KVSHM_E_STALLED)
        atomic_fetch_add(&shared->stalled, 1);
    return code >= 0 || code == -ENOSPC || code == KVSHM_E_STALE || code == KVSHM_E_STALLED;
}

static void fill(const struct kvshm_reservation *r, const struct kvshm_prefix *prefix,
                 const uint32_t *tokens, uint32_t first)
{
    for (uint32_t i = 0; i < r->pages; i++)
        ts_fill(kvshm_reservation_page(r, i), PAGE_BYTES, prefix->adapter_id, prefix->tenant,
                tokens, end_of_page(prefix->n, first + i));
}

/* Computes what is behind the head, and puts it there. The lease is of all of it then, or of the head still. */
static void compute(struct job *job, const struct kvshm_prefix *prefix, const uint32_t *tokens,
                    struct kvshm_lease *lease)
{
    static const unsigned flags[] = {KVSHM_HOLD, KVSHM_HOLD, KVSHM_HOLD | KVSHM_EXTEND, 0};
    uint32_t first = lease->tokens / PAGE_TOKENS;
    uint32_t need = kvshm_pages_for_tokens(prefix->n, PAGE_TOKENS) - first;
    struct kvshm_reservation r = {0};
    int64_t code = 0;

    if (need) {
        INSIDE(job, kvshm_reserve(job->kv, need, 0, &r));
        ts_need(expected(code));
        if (code != 0)
            return;
    }
    fill(&r, prefix, tokens, first);
    if (ts_random(&job->random, 16) != 0) {
        INSIDE(job, kvshm_insert(job->kv, prefix, lease, &r, flags[ts_random(&job->random, 4)]));
        ts_need(expected(code));
        ts_need(code < 0 || r.pages == 0);
        atomic_fetch_add(&shared->inserted, code == 0);
    }
    kvshm_cancel(job->kv, &r);
}

static void serve(struct job *job)
{
    uint32_t tokens[DEPTH * PAGE_TOKENS] = {0};
    struct kvshm_prefix prefix = prompt(tokens, (uint32_t)ts_random(&job->random, PROMPTS));
    struct kvshm_lease lease;
    int64_t code = 0;

    INSIDE(job, kvshm_match(job->kv, &prefix, 0, &lease));
    ts_need(code == 0 || code == KVSHM_MISS);
    look(&lease, &prefix, tokens);
    if (lease.tokens < prefix.n)
        compute(job, &prefix, tokens, &lease);
    look(&lease, &prefix, tokens);
    keep(job, &lease, &prefix, tokens);
}

static void serve_key(struct job *job)
{
    uint32_t tokens[DEPTH * PAGE_TOKENS] = {0};
    struct kvshm_prefix prefix = key_prompt(tokens, (uint32_t)ts_random(&job->random, 6));
    struct kvshm_lease lease;
    int64_t code = 0;

    INSIDE(job, kvshm_lookup(job->kv, &prefix, 0, &lease));
    ts_need(code == 0 || code == KVSHM_MISS);
    look(&lease, &prefix, tokens);
    if (code == KVSHM_MISS || ts_random(&job->random, 4) == 0) {
        kvshm_release(job->kv, &lease); /* pages of a key go behind no head */
        compute(job, &prefix, tokens, &lease);
    }
    look(&lease, &prefix, tokens);
    keep(job, &lease, &prefix, tokens);
}

static void copy(struct job *job)
{
    uint32_t tokens[DEPTH * PAGE_TOKENS] = {0};
    struct kvshm_prefix prefix = prompt(tokens, (uint32_t)ts_random(&job->random, PROMPTS));
    uint8_t bytes[DEPTH][PAGE_BYTES];
    int64_t code = 0;

    INSIDE(job, kvshm_copy_out(ts_random(&job->random, 2) ? job->kv : job->reader, &prefix, 0,
                               DEPTH, bytes));
    ts_need(code >= 0);
    for (uint32_t i = 0; i < code; i++)
        ts_need(ts_filled(bytes[i], PAGE_BYTES, prefix.adapter_id, 0, tokens,
                          end_of_page(prefix.n, i)) == 0);
}

static void give_up(struct job *job)
{
    uint32_t tokens[DEPTH * PAGE_TOKENS];
    struct kvshm_prefix prefix = prompt(tokens, (uint32_t)ts_random(&job->random, PROMPTS));
    uint64_t pick = ts_random(&job->random, 100);
    int64_t code = 0;

    if (pick < 2)
        INSIDE(job, kvshm_clear(job->kv));
    else if (pick < 50)
        INSIDE(job, kvshm_remove(job->kv, &prefix));
    else
        INSIDE(job, kvshm_evict_lru(job->kv));
    ts_need(expected(code));
}

static void work(struct job *job)
{
    uint64_t pick = ts_random(&job->random, 100);

    if (pick < 70)
        serve(job);
    else if (pick < 85)
        serve_key(job);
    else if (pick < 92)
        copy(job);
    else
        give_up(job);
}

static int worker(void *arg)
{
    struct job *job = arg;
    int code = 0;

    INSIDE(job, kvshm_attach("processes", NULL, 0, &job->kv));
    if (code != 0)
        fprintf(stderr, "attach: %s\n", kvshm_errmsg(NULL));
    ts_need(code == 0);
    ts_need(kvshm_attach("processes", NULL, KVSHM_RDONLY, &job->reader) == 0);
    while (!atomic_load(&shared->ended))
        work(job);
    give_back(job);
    ts_need(kvshm_detach(job->reader) == 0);
    ts_need(kvshm_detach(job->kv) == 0);
    return 0;
}

/* ---- Their parent ------------------------------------------------------------------------------------------ */

static uint64_t first_seed;

struct crew {
    kvshm *kv;
    uint64_t random;
    uint64_t hired;
    pid_t pid[WORKERS];
};

static void hire(struct crew *crew, unsigned number)
{
    struct job job = {.number = number, .random = crew->random + 7919 * ++crew->hired};

    if (atomic_load(&shared->worker[number].calls) % 2 == 1) /* the last one died inside */
        atomic_fetch_add(&shared->worker[number].calls, 1);
    crew->pid[number] = ts_fork(worker, &job);
}

static void start(struct crew *crew, uint32_t stall_ms)
{
    struct kvshm_config config = ts_config(PAGE_BYTES, PAGE_TOKENS, FRAMES);

    memset(crew, 0, sizeof(*crew));
    crew->random = first_seed;
    config.max_clients = WORKERS + 1; /* newcomers need the places of the dead */
    config.max_leases = 8;
    config.stall_ms = stall_ms;
    shared = ts_shared(sizeof(*shared));
    crew->kv = ts_create("processes", &config);
    for (unsigned i = 0; i < WORKERS; i++)
        hire(crew, i);
}

static uint64_t calls(int but)
{
    uint64_t sum = 0;

    for (int i = 0; i < WORKERS; i++)
        if (i != but)
            sum += atomic_load(&shared->worker[i].calls);
    return sum;
}

/* Waits until the workers (all but one) have made n calls more. A minute without is a fault, of the test or not. */
static void wait_for_calls(struct crew *crew, uint64_t n, int but)
{
    uint64_t until = calls(but) + 2 * n;
    uint64_t last = 0;
    unsigned quiet = 0;

    while (calls(but) < until) {
        usleep(100);
        quiet = calls(but) == last ? quiet + 1 : 0;
        last = calls(but);
        if (quiet % 256 == 255)
            for (int i = 0; i < WORKERS; i++) /* who has ended has said why */
                ck_assert_msg(i == but || waitpid(crew->pid[i], NULL, WNOHANG) == 0,
                              "worker %d ended", i);
        ck_assert_msg(quiet < 600000, "the workers make no calls");
    }
}

/* Rounds of calls until something was seen that is the scheduler's to bring about. */
#define PATIENCE 10000u

static void wait_until_served(struct crew *crew)
{
    for (unsigned i = 0; i < PATIENCE && (shared->pages_served == 0 || shared->inserted == 0); i++)
        wait_for_calls(crew, 1000, -1);
}

/* Lets the workers end; then nothing is held, and nothing may be lost. */
static void end(struct crew *crew)
{
    struct kvshm_reservation all;
    struct kvshm_info info;
    struct kvshm_stats stats;

    wait_until_served(crew);
    atomic_store(&shared->ended, true);
    for (unsigned i = 0; i < WORKERS; i++)
        ck_assert_int_eq(ts_wait(crew->pid[i]), 0);
    kvshm_info_init(&info);
    do {
        ck_assert_int_ge(kvshm_evict_lru(crew->kv), 0);
        ts_is(kvshm_info(crew->kv, &info), 0);
    } while (info.entries > 0);
    ts_is(kvshm_reserve(crew->kv, FRAMES, 0, &all), 0);
    ts_is(kvshm_info(crew->kv, &info), 0);
    ck_assert_uint_eq(info.pages, 0);
    ck_assert_uint_eq(info.pages_limbo, 0);
    ck_assert_uint_eq(info.frames_reserved, FRAMES);
    ck_assert_uint_eq(info.frames_free, 0);
    ck_assert_uint_eq(info.clients, 1);
    kvshm_cancel(crew->kv, &all);
    stats = ts_stats(crew->kv);
    printf("%llu calls, %llu pages served, %llu overlaps, %llu takeovers, %llu stalled\n",
           (unsigned long long)calls(-1) / 2, (unsigned long long)shared->pages_served,
           (unsigned long long)shared->overlaps, (unsigned long long)stats.takeovers,
           (unsigned long long)shared->stalled);
    ck_assert_uint_gt(shared->pages_served, 0);
    ck_assert_uint_gt(shared->inserted, 0);
    ts_detach(crew->kv);
}

START_TEST(test_processes_share)
{
    struct crew crew;

    start(&crew, 60000);
    wait_for_calls(&crew, ts_amount(4000, 100000, 2000000), -1);
    for (unsigned i = 0; i < PATIENCE && atomic_load(&shared->overlaps) == 0; i++)
        wait_for_calls(&crew, 1000, -1);
    end(&crew);
    ck_assert_uint_gt(shared->overlaps, 0);
    ck_assert_uint_eq(shared->stalled, 0);
}
END_TEST

START_TEST(test_killed_at_random)
{
    uint64_t kills = ts_amount(20, 300, 5000);
    struct crew crew;

    start(&crew, 60000);
    atomic_store(&shared->disturbed, true);
    for (uint64_t i = 0; i < kills; i++) {
        unsigned victim = (unsigned)ts_random(&crew.random, WORKERS);

        if (ts_random(&crew.random, 4))
            wait_for_calls(&crew, ts_random(&crew.random, 300), -1);
        usleep((useconds_t)ts_random(&crew.random, 300));
        ts_kill(crew.pid[victim]);
        hire(&crew, victim);
    }
    wait_for_calls(&crew, 1000, -1);
    end(&crew);
}
END_TEST

/* The others go on while one is stopped, whatever it holds; some of those stopped are then killed. */
START_TEST(test_stopped_at_random)
{
    uint64_t stops = ts_amount(20, 200, 3000);
    struct crew crew;

    start(&crew, 2);
    atomic_store(&shared->disturbed, true);
    for (uint64_t i = 0; i < stops; i++) {
        unsigned victim = (unsigned)ts_random(&crew.random, WORKERS);

        usleep((useconds_t)ts_random(&crew.random, 300));
        ts_stop(crew.pid[victim]);
        wait_for_calls(&crew, 1 + ts_random(&crew.random, 100), (int)victim);
        if (ts_random(&crew.random, 4) == 0) {
            ts_kill(crew.pid[victim]);
            hire(&crew, victim);
        } else {
            ts_continue(crew.pid[victim]);
        }
    }
    wait_for_calls(&crew, 1000, -1);
    end(&crew);
}
END_TEST

/* ---- A writer that has stopped ------------------------------------------------------------------------------- */

static const uint32_t known[] = {1, 2, 3, 4, 5, 6, 7, 8};
static const uint32_t novel[] = {9, 8, 7, 6, 5, 4, 3, 2};

static struct ts_gate gate;

/* Takes the lock as a writer does, if it is to hold it; stops; gives it back when it goes on. */
static int stopping_writer(void *arg)
{
    bool holds = *(bool *)arg;
    struct kvshm_config config = ts_config(PAGE_BYTES, PAGE_TOKENS, FRAMES);
    kvshm *kv = NULL;

    config.label = "stopping";
    ts_need(kvshm_attach("processes", &config, 0, &kv) == 0);
    if (holds)
        atomic_store(&kv->header->lock.word, kv->client);
    raise(SIGSTOP);
    if (holds) {
        atomic_fetch_add(&kv->header->lock.turn, 1);
        atomic_store(&kv->header->lock.word, 0);
    }
    ts_gate_open(&gate);
    while (true)
        pause();
    return 0;
}

static pid_t start_stopped(bool holds)
{
    pid_t pid = ts_fork(stopping_writer, &holds);
    int status = 0;

    ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
    ck_assert_msg(WIFSTOPPED(status), "the writer has ended with %#x", status);
    return pid;
}

static void readers_go_on(kvshm *kv)
{
    struct kvshm_prefix prefix;
    struct kvshm_lease lease;
    uint8_t bytes[2 * PAGE_BYTES];

    kvshm_prefix_init(&prefix, 0, 0, known, 8);
    for (unsigned i = 0; i < 100; i++) {
        ts_is(i % 2 ? kvshm_lookup(kv, &prefix, 0, &lease) : kvshm_match(kv, &prefix, 0, &lease),
              0);
        look(&lease, &prefix, known);
        kvshm_release(kv, &lease);
        ck_assert(kvshm_contains(kv, &prefix));
        ck_assert_int_eq(kvshm_copy_out(kv, &prefix, 0, 2, bytes), 2);
    }
}

/* Sleeps of this process in the library. */
static atomic_uint sleeps;

static int count_sleep(void *word, uint32_t expected_value, uint64_t timeout_ns)
{
    atomic_fetch_add(&sleeps, 1);
    return kvshm__sys_real.futex_wait(word, expected_value, timeout_ns);
}

static void made(kvshm **kv, struct kvshm_reservation *r, uint32_t stall_ms)
{
    struct kvshm_config config = ts_config(PAGE_BYTES, PAGE_TOKENS, FRAMES);
    struct kvshm_prefix prefix;

    config.stall_ms = stall_ms;
    config.max_clients = 4;
    shared = ts_shared(sizeof(*shared));
    ts_gate_make(&gate);
    *kv = ts_create("processes", &config);
    ck_assert_int_eq(ts_insert(*kv, 0, 0, known, 8), 0);
    ts_is(kvshm_reserve(*kv, 2, 0, r), 0);
    kvshm_prefix_init(&prefix, 0, 0, novel, 8);
    fill(r, &prefix, novel, 0);
    kvshm__sys.futex_wait = count_sleep;
}

/* The kept reservation is published, with its bytes. */
static void insert_kept(kvshm *kv, struct kvshm_reservation *r)
{
    struct kvshm_prefix prefix;
    struct kvshm_lease lease;

    kvshm_prefix_init(&prefix, 0, 0, novel, 8);
    ts_is(kvshm_insert(kv, &prefix, NULL, r, 0), 0);
    ck_assert_uint_eq(r->pages, 0);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), 0);
    ck_assert_uint_eq(lease.pages, 2);
    look(&lease, &prefix, novel);
    kvshm_release(kv, &lease);
}

START_TEST(test_stopped_outside_the_lock)
{
    struct kvshm_reservation r;
    kvshm *kv = NULL;
    pid_t pid = 0;

    made(&kv, &r, 30);
    pid = start_stopped(false);
    readers_go_on(kv);
    insert_kept(kv, &r);
    ck_assert_int_eq(kvshm_evict_lru(kv), 2);
    ck_assert_uint_eq(sleeps, 0);
    ts_kill(pid);
    ts_gate_close(&gate);
    ts_detach(kv);
}
END_TEST

/* Told KVSHM_E_STALLED with the holder, after sleeps at first, then at once; the reservation is kept. */
static void refused(kvshm *kv, struct kvshm_reservation *r, pid_t pid)
{
    struct kvshm_prefix prefix;
    char number[32];

    snprintf(number, sizeof(number), "%d", (int)pid);
    kvshm_prefix_init(&prefix, 0, 0, novel, 8);
    for (unsigned i = 0; i < 20; i++) {
        ts_is(kvshm_insert(kv, &prefix, NULL, r, 0), KVSHM_E_STALLED);
        ts_says(number);
        ts_says("stopping");
        ck_assert_uint_eq(r->pages, 2);
        if (i == 0)
            ck_assert_uint_gt(atomic_exchange(&sleeps, 0), 0);
        ck_assert_int_eq(kvshm_evict_lru(kv), KVSHM_E_STALLED);
        readers_go_on(kv);
    }
    ck_assert_uint_eq(sleeps, 0);
}

START_TEST(test_stopped_inside_the_lock)
{
    bool kill_it = _i;
    struct kvshm_reservation r;
    struct kvshm_stats stats;
    kvshm *kv = NULL;
    pid_t pid = 0;

    made(&kv, &r, 30);
    pid = start_stopped(true);
    readers_go_on(kv);
    refused(kv, &r, pid);
    if (kill_it) {
        ts_kill(pid);
    } else {
        ts_continue(pid);
        ck_assert(ts_gate_wait(&gate));
    }
    insert_kept(kv, &r);
    stats = ts_stats(kv);
    ck_assert_uint_eq(stats.takeovers, kill_it);
    ck_assert_uint_eq(stats.stalls, 40);
    readers_go_on(kv);
    if (!kill_it)
        ts_kill(pid);
    ts_gate_close(&gate);
    ts_detach(kv);
}
END_TEST

static int busy_writer(void *arg)
{
    kvshm *kv = NULL;
    uint32_t tokens[8] = {0};
    struct kvshm_prefix prefix;
    (void)arg;

    ts_need(kvshm_attach("processes", NULL, 0, &kv) == 0);
    kvshm_prefix_init(&prefix, 9, 0, tokens, 8);
    ts_gate_open(&gate);
    while (true) {
        struct kvshm_reservation r;
        int64_t code = kvshm_reserve(kv, 2, 0, &r);

        ts_need(expected(code));
        tokens[7]++;
        if (code == 0 && kvshm_insert(kv, &prefix, NULL, &r, 0) < 0)
            kvshm_cancel(kv, &r);
    }
    return 0;
}

/* Stopped wherever it is: readers go on; the writer here is served, or told, and served when the other goes on. */
START_TEST(test_stopped_at_any_moment)
{
    uint64_t stops = ts_amount(20, 300, 5000);
    uint64_t random = first_seed;
    unsigned inside = 0;
    struct kvshm_reservation r;
    struct kvshm_prefix prefix;
    struct kvshm_lease lease;
    kvshm *kv = NULL;
    pid_t pid = 0;

    made(&kv, &r, 5);
    kvshm_prefix_init(&prefix, 0, 0, known, 8);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), 0); /* what is leased is not evicted for frames */
    kvshm_prefix_init(&prefix, 0, 0, novel, 8);
    pid = ts_fork(busy_writer, NULL);
    ck_assert(ts_gate_wait(&gate));
    for (uint64_t i = 0; i < stops || (inside == 0 && i < PATIENCE); i++) {
        int code = 0;

        usleep((useconds_t)ts_random(&random, 200));
        ts_stop(pid);
        readers_go_on(kv);
        code = kvshm_insert(kv, &prefix, NULL, &r, 0);
        if (code == KVSHM_E_STALLED) {
            inside++;
            atomic_store(&sleeps, 0);
            ts_is(kvshm_insert(kv, &prefix, NULL, &r, 0), KVSHM_E_STALLED);
            ck_assert_uint_eq(sleeps, 0);
            ts_continue(pid);
            do
                code = kvshm_insert(kv, &prefix, NULL, &r, 0);
            while (code == KVSHM_E_STALLED);
        } else {
            ts_continue(pid);
        }
        ck_assert_int_ge(code, 0);
        do /* the other may be without a processor for longer than stall_ms */
            code = kvshm_reserve(kv, 2, 0, &r);
        while (code == KVSHM_E_STALLED);
        ts_is(code, 0);
        fill(&r, &prefix, novel, 0);
    }
    printf("stopped inside the lock: %u times\n", inside);
    ck_assert_uint_gt(inside, 0);
    kvshm_release(kv, &lease);
    kvshm_cancel(kv, &r);
    ts_kill(pid);
    ts_gate_close(&gate);
    ts_detach(kv);
}
END_TEST

/* ---- Copies without a lease ----------------------------------------------------------------------------------- */

#define LARGE_BYTES   32768
#define LARGE_FRAMES  6
#define LARGE_PROMPTS (2 * LARGE_FRAMES)

/* Prompt number of one page. */
static struct kvshm_prefix large_prompt(uint32_t *tokens, uint32_t number)
{
    struct kvshm_prefix prefix;

    for (uint32_t i = 0; i < PAGE_TOKENS; i++)
        tokens[i] = number + i;
    kvshm_prefix_init(&prefix, 0, 0, tokens, PAGE_TOKENS);
    return prefix;
}

/*
 * Fills the few frames again and again, each time for another prompt. Slower while the reader cannot keep up: with
 * ThreadSanitizer a copy takes longer than it takes to fill all of them.
 */
static int refill(void *arg)
{
    kvshm *kv = NULL;
    uint32_t tokens[PAGE_TOKENS];
    (void)arg;

    ts_need(kvshm_attach("processes", NULL, 0, &kv) == 0);
    for (uint32_t i = 0; !atomic_load(&shared->ended); i++) {
        struct kvshm_prefix prefix = large_prompt(tokens, i % LARGE_PROMPTS);
        struct kvshm_reservation r;

        if (atomic_load(&shared->in_vain) > LARGE_PROMPTS)
            usleep(1000);
        ts_need(kvshm_reserve(kv, 1, 0, &r) == 0);
        ts_fill(kvshm_reservation_page(&r, 0), LARGE_BYTES, 0, 0, tokens, PAGE_TOKENS);
        ts_need(kvshm_insert(kv, &prefix, NULL, &r, 0) >= 0);
    }
    ts_need(kvshm_detach(kv) == 0);
    return 0;
}

START_TEST(test_copies_while_frames_are_refilled)
{
    uint64_t wanted = ts_amount(300, 4000, 40000);
    struct kvshm_config config = ts_config(LARGE_BYTES, PAGE_TOKENS, LARGE_FRAMES);
    uint8_t *bytes = malloc(LARGE_BYTES);
    uint32_t tokens[PAGE_TOKENS];
    kvshm *reader = NULL;
    uint64_t tries = 0;
    pid_t pid = 0;

    ck_assert_ptr_nonnull(bytes);
    shared = ts_shared(sizeof(*shared));
    ts_detach(ts_create("processes", &config));
    pid = ts_fork(refill, NULL);
    reader = ts_attach("processes", KVSHM_RDONLY);
    for (uint64_t copied = 0; copied < wanted; tries++) {
        struct kvshm_prefix prefix = large_prompt(tokens, (uint32_t)tries % LARGE_PROMPTS);
        int64_t code = kvshm_copy_out(reader, &prefix, 0, 1, bytes);

        ck_assert_int_ge(code, 0);
        if (code == 1)
            ck_assert_uint_eq(ts_filled(bytes, LARGE_BYTES, 0, 0, tokens, PAGE_TOKENS), 0);
        copied += (uint64_t)code;
        atomic_store(&shared->in_vain, code == 1 ? 0 : atomic_load(&shared->in_vain) + 1);
    }
    printf("copied %llu of %llu pages\n", (unsigned long long)wanted, (unsigned long long)tries);
    atomic_store(&shared->ended, true);
    ck_assert_int_eq(ts_wait(pid), 0);
    ts_detach(reader);
    free(bytes);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("processes");
    TCase *tcase = tcase_create("processes");
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    first_seed = ts_seed();
    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_processes_share);
    tcase_add_test(tcase, test_killed_at_random);
    tcase_add_test(tcase, test_stopped_at_random);
    tcase_add_test(tcase, test_copies_while_frames_are_refilled);
    tcase_add_test(tcase, test_stopped_outside_the_lock);
    tcase_add_loop_test(tcase, test_stopped_inside_the_lock, 0, 2);
    tcase_add_test(tcase, test_stopped_at_any_moment);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
