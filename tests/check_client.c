/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_client.c - numbers, liveness by locks, places taken and taken over, joining
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "support.h"
#include "sys.h"

static struct kvshm_config config;

static void setup(void)
{
    ts_setup();
    config = ts_config(256, 4, 20);
    config.max_clients = 4;
    config.max_leases = 8;
}

/* ---- Another process ---------------------------------------------------------------------------------- */

/* Attaches, tells its number, does what it is asked to before that, and stays until killed. */
struct other {
    struct ts_gate ready, stay;
    _Atomic(uint64_t) number;
    uint64_t join;
    const char *label;
    int (*work)(kvshm *kv);
    pid_t pid;
};

static int other_main(void *arg)
{
    struct other *other = arg;
    struct kvshm_config expect;
    struct kvshm_info info;
    kvshm *kv;

    kvshm_config_init(&expect);
    expect.label = other->label;
    ts_need(kvshm_attach("a", &expect, 0, &kv) == 0);
    if (other->join != 0)
        ts_need(kvshm_join(kv, other->join) == 0);
    if (other->work != NULL)
        ts_need(other->work(kv) == 0);
    kvshm_info_init(&info);
    ts_need(kvshm_info(kv, &info) == 0);
    other->number = info.client;
    ts_gate_open(&other->ready);
    ts_gate_wait(&other->stay);
    ts_need(kvshm_detach(kv) == 0);
    return 0;
}

static struct other *start(uint64_t join, int (*work)(kvshm *kv), const char *label)
{
    struct other *other = ts_shared(sizeof(*other));
    struct ts_gate ready;

    ts_gate_make(&other->ready);
    ts_gate_make(&other->stay);
    other->join = join;
    other->work = work;
    other->label = label;
    other->pid = ts_fork(other_main, other);
    ready = other->ready;
    ts_gate_only_wait(&ready);
    ck_assert(ts_gate_wait(&ready));
    return other;
}

static void finish(struct other *other)
{
    ts_gate_open(&other->stay);
    ck_assert_int_eq(ts_wait(other->pid), 0);
}

/* ---- Liveness ---------------------------------------------------------------------------------------- */

START_TEST(test_own_number_and_none)
{
    kvshm *kv = ts_create("a", &config), *reader = ts_attach("a", KVSHM_RDONLY);

    ck_assert_uint_eq(kv->client, 1);
    ck_assert(kvshm__client_alive(kv, 1) && kvshm__client_alive(reader, 1));
    ck_assert(!kvshm__client_quiet(kv, 1) && !kvshm__client_quiet(reader, 1));
    ck_assert(kvshm__client_counts(kv, 1) && kvshm__client_counts(reader, 1));
    ck_assert_uint_eq(reader->client, 0);
    for (uint64_t number = 0; number != 3; number = number == 0 ? 2 : 3) {
        ck_assert(!kvshm__client_alive(kv, number) && !kvshm__client_counts(kv, number));
        ck_assert(!kvshm__client_joined(kv, number) && kvshm__client_quiet(kv, number));
        ck_assert_int_eq(kvshm__client_find(kv, number), -1);
    }
    ck_assert(!kvshm__client_alive(kv, UINT64_MAX) && !kvshm__client_alive(kv, UINT64_C(1) << 44));
    ck_assert_int_eq(kvshm__client_find(reader, 1), (int)kv->place);
    ts_detach(reader);
    ts_detach(kv);
}
END_TEST

START_TEST(test_numbers_are_never_given_twice)
{
    kvshm *kv = ts_create("a", &config);

    for (uint64_t number = 2; number < 50; number++) {
        kvshm *next = ts_attach("a", 0);

        ck_assert_uint_eq(next->client, number);
        ck_assert(kvshm__client_alive(kv, number));
        ts_detach(next);
        ck_assert(!kvshm__client_alive(kv, number));
        ck_assert(kvshm__client_quiet(kv, number));
        ck_assert_int_eq(kvshm__client_find(kv, number), -1);
    }
    ts_detach(kv);
}
END_TEST

/* Stopped is alive; killed is not, at once, and detached neither. */
START_TEST(test_of_processes)
{
    kvshm *kv = ts_create("a", &config), *reader = ts_attach("a", KVSHM_RDONLY);
    struct other *one = start(0, NULL, NULL), *two = start(0, NULL, NULL);

    ck_assert(kvshm__client_alive(kv, one->number) && kvshm__client_alive(reader, one->number));
    ck_assert_uint_eq(kvshm__client_count_alive(reader), 3);
    ts_stop(one->pid);
    ck_assert(kvshm__client_alive(kv, one->number) && kvshm__client_alive(reader, one->number));
    ts_kill(one->pid);
    ck_assert(!kvshm__client_alive(kv, one->number) && !kvshm__client_alive(reader, one->number));
    ck_assert(kvshm__client_quiet(kv, one->number));
    ck_assert_int_ge(kvshm__client_find(kv, one->number), 0);
    finish(two);
    ck_assert(!kvshm__client_alive(kv, two->number));
    ck_assert_uint_eq(kvshm__client_count_alive(kv), 1);
    ts_detach(reader);
    ts_detach(kv);
}
END_TEST

/* The two bytes fall apart from each other. */
START_TEST(test_alive_and_quiet_are_two)
{
    kvshm *kv = ts_create("a", &config), *other = ts_attach("a", 0);
    int quiet_fd = dup(other->quiet_fd), fd;
    uint64_t number = other->client;

    ts_detach(other);
    ck_assert(!kvshm__client_alive(kv, number));
    ck_assert(!kvshm__client_quiet(kv, number));
    close(quiet_fd);
    ck_assert(kvshm__client_quiet(kv, number));
    other = ts_attach("a", 0);
    fd = dup(other->fd);
    number = other->client;
    ts_detach(other);
    ck_assert(kvshm__client_alive(kv, number) && kvshm__client_quiet(kv, number));
    close(fd);
    ck_assert(!kvshm__client_alive(kv, number));
    ts_detach(kv);
}
END_TEST

/* Who may only read can lock only for reading, and that fakes no life. */
START_TEST(test_observers_fake_no_life)
{
    kvshm *kv = ts_create("a", &config), *reader = ts_attach("a", KVSHM_RDONLY);

    ck_assert_int_eq(kvshm__sys.lock_set(reader->fd, F_WRLCK, KVSHM__LOCK_BASE + 2 * 77, 1),
                     -EBADF);
    ck_assert_int_eq(kvshm__sys.lock_set(reader->fd, F_RDLCK, KVSHM__LOCK_BASE, 0), -EAGAIN);
    ck_assert_int_eq(kvshm__sys.lock_set(reader->fd, F_RDLCK, KVSHM__LOCK_BASE + 2 * 77, 2), 0);
    ck_assert(!kvshm__client_alive(kv, 77) && kvshm__client_quiet(kv, 77));
    ts_detach(kv);
    ck_assert_int_eq(kvshm__client_any(reader->fd), 0);
    ts_is(kvshm_unlink("a", 0), 0);
    ts_detach(reader);
}
END_TEST

static int refused(int fd, int kind, uint64_t offset, uint64_t length)
{
    (void)fd;
    (void)kind;
    (void)offset;
    (void)length;
    return -ENOLCK;
}

START_TEST(test_a_refused_question_means_alive)
{
    kvshm *kv = ts_create("a", &config);

    kvshm__sys.lock_ask = refused;
    ck_assert(kvshm__client_alive(kv, 9) && !kvshm__client_quiet(kv, 9));
    ck_assert(kvshm__client_counts(kv, 9));
    ck_assert(!kvshm__client_alive(kv, 0));
    ts_fail_off();
    ts_detach(kv);
}
END_TEST

static struct ts_gate *raw_gate;

static int raw_child(void *arg)
{
    (void)arg;
    ts_gate_wait(raw_gate);
    return 0;
}

static int clone_raw(kvshm *kv)
{
    static char stack[65536] __attribute__((aligned(16)));

    (void)kv;
    return clone(raw_child, stack + sizeof(stack), 0, NULL) > 0 ? 0 : -1;
}

static bool is_not_quiet(const kvshm *kv, uint64_t client)
{
    return !kvshm__client_quiet(kv, client);
}

/* What ends is a process that is nobody's child here: there is nothing to wait for but its locks. Two minutes at most. */
static void wait_until_not(bool (*is)(const kvshm *kv, uint64_t client), const kvshm *kv,
                           uint64_t client)
{
    for (unsigned i = 0; i < 120000 && is(kv, client); i++)
        kvshm__sys.sleep_ns(1000000);
    ck_assert(!is(kv, client));
}

/* The documented limit: a raw clone's child runs no handler, and keeps its dead parent alive until it ends. */
START_TEST(test_copies_of_descriptors_keep_alive)
{
    kvshm *kv = ts_create("a", &config);
    struct other *other;

    raw_gate = ts_shared(sizeof(*raw_gate));
    ts_gate_make(raw_gate);
    other = start(0, clone_raw, NULL);
    ts_kill(other->pid);
    ck_assert(kvshm__client_alive(kv, other->number));
    ts_gate_open(raw_gate);
    wait_until_not(kvshm__client_alive, kv, other->number);
    ts_detach(kv);
}
END_TEST

/* A client that leaves, and what was closed of it. */
static struct {
    kvshm *kv, *other;
    uint64_t number;
    unsigned closed;
} leaving;

static int close_of_who_leaves(int fd)
{
    if (fd == leaving.kv->fd || fd == leaving.kv->quiet_fd) {
        ck_assert_int_lt(kvshm__client_find(leaving.other, leaving.number), 0);
        leaving.closed++;
    }
    return kvshm__sys_real.close(fd);
}

/* Its locks stand until no place has its number: else another may have taken the place that it then gives back. */
START_TEST(test_a_place_is_given_back_before_its_locks)
{
    leaving.other = ts_create("a", &config);
    leaving.kv = ts_attach("a", 0);
    leaving.number = leaving.kv->client;
    kvshm__sys.close = close_of_who_leaves;
    ts_detach(leaving.kv);
    kvshm__sys.close = kvshm__sys_real.close;
    ck_assert_uint_eq(leaving.closed, 2);
    ts_detach(leaving.other);
}
END_TEST

/* ---- Places ------------------------------------------------------------------------------------------ */

START_TEST(test_places_full)
{
    struct kvshm_config expect;
    struct other *others[3];
    char words[64];
    kvshm *kv = ts_create("a", &config), *more;

    kvshm_config_init(&expect);
    for (unsigned i = 0; i < 3; i++)
        others[i] = start(0, NULL, i == 0 ? "first\nserver" : "server");
    ts_is(kvshm_attach("a", NULL, 0, &more), KVSHM_E_CLIENTS);
    ck_assert_ptr_null(more);
    ts_says("all 4 client places are taken");
    snprintf(words, sizeof(words), "pid %d (first?server)", others[0]->pid);
    ts_says(words);
    snprintf(words, sizeof(words), "pid %d (server)", others[2]->pid);
    ts_says(words);
    more = ts_attach("a", KVSHM_RDONLY); /* needs no place */
    ts_detach(more);
    ts_kill(others[1]->pid);
    more = ts_attach("a", 0);
    ck_assert_int_eq(kvshm__client_find(kv, others[1]->number), -1);
    ts_detach(more);
    finish(others[0]);
    finish(others[2]);
    ts_detach(kv);
}
END_TEST

/* Leaves all kinds of traces behind. */
static int leave_traces(kvshm *kv)
{
    struct kvshm_client *client = &kv->clients[kv->place];
    struct kvshm_lease_word *lease = kvshm__own_leases(kv);

    KVSHM__STORE(&client->lease_high, 3);
    for (unsigned i = 0; i < 3; i++) {
        KVSHM__STORE(&lease[i].word, 0x100000001 + i);
        KVSHM__STORE(&lease[i].tag, 7);
        KVSHM__ADD(&lease[i].counters[KVSHM__LCNT_hit_pages], 10 + i);
    }
    KVSHM__STORE(&kv->reservations[(size_t)kv->place * kv->max_leases + 2],
                 KVSHM__RESERVATION_HELD);
    KVSHM__STORE(&client->joins[1], 1);
    kvshm__count(kv, KVSHM__CNT_lookup_misses, 5);
    kvshm__count(kv, KVSHM__CNT_stalls, 2);
    return 0;
}

START_TEST(test_place_taken_over)
{
    kvshm *kv, *next, *filler[2];
    struct other *other;
    struct kvshm_stats stats;
    int place;

    kv = ts_create("a", &config);
    other = start(0, leave_traces, "gone, and its label was a longer one");
    filler[0] = ts_attach("a", 0);
    filler[1] = ts_attach("a", 0);
    stats = ts_stats(kv);
    ck_assert_uint_eq(stats.hit_pages, 33);
    ts_kill(other->pid);
    place = kvshm__client_find(kv, other->number);
    for (unsigned i = 0; _i == 1 && i < config.max_leases; i++) /* it died taking the place */
        KVSHM__STORE(&kv->reservations[(size_t)place * 8 + i], 0);
    KVSHM__STORE(&kv->header->sweep_wanted, 0);
    next = ts_attach("a", 0);
    ck_assert_int_eq((int)next->place, place);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->header->sweep_wanted), 1);
    ck_assert_uint_eq(KVSHM__LOAD(&next->clients[place].lease_high), 0);
    ck_assert_uint_eq(KVSHM__LOAD(&next->clients[place].joins[1]), 0);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_uint_eq(KVSHM__LOAD(&kvshm__own_leases(next)[i].word), 0);
        ck_assert_uint_eq(KVSHM__LOAD(&kvshm__own_leases(next)[i].tag), 0);
        ck_assert_uint_eq(KVSHM__LOAD(&kvshm__own_leases(next)[i].counters[2]), 0);
    }
    for (unsigned i = 0; i < config.max_leases; i++)
        ck_assert_uint_eq(KVSHM__LOAD(&next->reservations[(size_t)place * 8 + i]), 0);
    ck_assert_str_eq(next->clients[place].label, program_invocation_short_name);
    ck_assert_uint_eq(next->clients[place].pid, (uint32_t)getpid());
    stats = ts_stats(kv);
    ck_assert_uint_eq(stats.hit_pages, 33);
    ck_assert_uint_eq(stats.lookup_misses, 5);
    ck_assert_uint_eq(stats.stalls, 2);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->header->totals[KVSHM__CNT_lookup_misses]), 5);
    ts_detach(next);
    for (unsigned i = 0; i < 2; i++)
        ts_detach(filler[i]);
    ts_detach(kv);
}
END_TEST

/* A place of the dead that is joined, not quiet, or has device frames stays. */
START_TEST(test_places_not_to_be_taken_over)
{
    kvshm *kv = ts_create("a", &config), *next, *last;
    struct other *dead = start(0, NULL, NULL), *joiner, *third;
    kvshm_a64 *device;
    int place = kvshm__client_find(kv, dead->number);

    device = &kv->clients[place].device_frames;
    joiner = start(dead->number, NULL, NULL);
    third = start(0, NULL, NULL);
    ts_kill(dead->pid);
    ck_assert(!kvshm__client_alive(kv, dead->number));
    ck_assert(kvshm__client_joined(kv, dead->number) && kvshm__client_counts(kv, dead->number));
    ts_is(kvshm_attach("a", NULL, 0, &next), KVSHM_E_CLIENTS);
    ts_stop(joiner->pid);
    ts_is(kvshm_attach("a", NULL, 0, &next), KVSHM_E_CLIENTS);
    KVSHM__STORE(device, 1);
    ts_kill(joiner->pid);
    ck_assert(!kvshm__client_counts(kv, dead->number));
    next = ts_attach("a", 0); /* the joiner's place */
    ck_assert_int_ge(kvshm__client_find(kv, dead->number), 0);
    ts_is(kvshm_attach("a", NULL, 0, &last), KVSHM_E_CLIENTS);
    KVSHM__STORE(device, 0);
    last = ts_attach("a", 0);
    ck_assert_int_eq(kvshm__client_find(kv, dead->number), -1);
    ck_assert_int_eq((int)last->place, place);
    finish(third);
    ts_detach(last);
    ts_detach(next);
    ts_detach(kv);
}
END_TEST

/* Takes the place that number leaves, as soon as anybody asks whether number is alive. */
static uint64_t asked_about;
static kvshm *faster;

static int ask_late(int fd, int kind, uint64_t offset, uint64_t length)
{
    if (offset == KVSHM__LOCK_BASE + 2 * asked_about && faster == NULL) {
        kvshm__sys.lock_ask = kvshm__sys_real.lock_ask;
        faster = ts_attach("a", 0);
    }
    return kvshm__sys_real.lock_ask(fd, kind, offset, length);
}

/* Two find the same place abandoned: it is of the one that is faster. */
START_TEST(test_an_abandoned_place_is_taken_once)
{
    kvshm *kv = ts_create("a", &config), *fill[2], *next;
    struct other *dead = start(0, NULL, NULL);
    int place = kvshm__client_find(kv, dead->number);

    for (unsigned i = 0; i < 2; i++)
        fill[i] = ts_attach("a", 0);
    ts_kill(dead->pid);
    asked_about = dead->number;
    faster = NULL;
    kvshm__sys.lock_ask = ask_late;
    ts_is(kvshm_attach("a", NULL, 0, &next), KVSHM_E_CLIENTS);
    ts_fail_off();
    ck_assert_ptr_nonnull(faster);
    ck_assert_int_eq((int)faster->place, place);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->clients[place].number), faster->client);
    ts_detach(faster);
    for (unsigned i = 0; i < 2; i++)
        ts_detach(fill[i]);
    ts_detach(kv);
}
END_TEST

static int quiet_only;

static int quiet_child(void *fd)
{
    close(*(int *)fd);
    ts_gate_wait(raw_gate);
    return 0;
}

/* Leaves a process that has its quiet descriptor, and no other of its own. */
static int clone_quiet(kvshm *kv)
{
    static char stack[65536] __attribute__((aligned(16)));
    int fd = kv->fd;

    quiet_only = fd;
    return clone(quiet_child, stack + sizeof(stack), 0, &quiet_only) > 0 ? 0 : -1;
}

/* A dead client's place stays while its transfers, which have its quiet descriptor, are in flight. */
START_TEST(test_a_place_is_kept_until_quiet)
{
    kvshm *kv = ts_create("a", &config), *fill[2], *next;
    struct other *dead;

    raw_gate = ts_shared(sizeof(*raw_gate));
    ts_gate_make(raw_gate);
    dead = start(0, clone_quiet, NULL);
    for (unsigned i = 0; i < 2; i++)
        fill[i] = ts_attach("a", 0);
    ts_kill(dead->pid);
    wait_until_not(kvshm__client_alive, kv, dead->number);
    ck_assert(!kvshm__client_quiet(kv, dead->number));
    ts_is(kvshm_attach("a", NULL, 0, &next), KVSHM_E_CLIENTS);
    ts_gate_open(raw_gate);
    wait_until_not(is_not_quiet, kv, dead->number);
    next = ts_attach("a", 0);
    ck_assert_int_eq(kvshm__client_find(kv, dead->number), -1);
    ts_detach(next);
    for (unsigned i = 0; i < 2; i++)
        ts_detach(fill[i]);
    ts_detach(kv);
}
END_TEST

/* Many at once: no two in one place, no number twice, all counters in the totals or in a place. */
struct crowd {
    struct ts_gate go;
    _Atomic(uint64_t) attached;
    _Atomic(uint64_t) counted;
};

static int crowd_main(void *arg)
{
    struct crowd *crowd = arg;
    uint64_t rounds = ts_amount(30, 150, 1000);

    ts_gate_wait(&crowd->go);
    for (uint64_t i = 0; i < rounds;) {
        kvshm *kv;
        int code = kvshm_attach("a", NULL, 0, &kv);

        if (code == KVSHM_E_CLIENTS) {
            sched_yield(); /* who has the place may need this processor */
            continue;
        }
        i++;
        ts_need(code == 0);
        ts_need(KVSHM__LOAD(&kv->clients[kv->place].number) == kv->client);
        kvshm__count(kv, KVSHM__CNT_gave_up, 1);
        crowd->counted++;
        crowd->attached++;
        sched_yield();
        ts_need(KVSHM__LOAD(&kv->clients[kv->place].number) == kv->client);
        ts_need(kvshm_detach(kv) == 0);
    }
    return 0;
}

START_TEST(test_a_crowd_attaches)
{
    struct crowd *crowd = ts_shared(sizeof(*crowd));
    kvshm *kv = ts_create("a", &config);
    struct kvshm_stats stats;
    pid_t pids[6];

    ts_gate_make(&crowd->go);
    for (unsigned i = 0; i < 6; i++)
        pids[i] = ts_fork(crowd_main, crowd);
    for (unsigned i = 0; i < 6; i++)
        ts_gate_open(&crowd->go);
    for (unsigned i = 0; i < 6; i++)
        ck_assert_int_eq(ts_wait(pids[i]), 0);
    stats = ts_stats(kv);
    ck_assert_uint_eq(crowd->attached, 6 * ts_amount(30, 150, 1000));
    ck_assert_uint_eq(stats.gave_up, crowd->counted);
    ck_assert_uint_ge(KVSHM__LOAD(&kv->header->next_client), 1 + crowd->attached);
    ck_assert_uint_eq(kvshm__client_count_alive(kv), 1);
    ts_detach(kv);
}
END_TEST

/* A byte that should be nobody's is locked: the next number is drawn. */
START_TEST(test_locked_byte)
{
    kvshm *kv = ts_create("a", &config), *next;

    ck_assert_int_eq(kvshm__sys.lock_set(kv->fd, F_WRLCK, KVSHM__LOCK_BASE + 4, 3), 0);
    next = ts_attach("a", 0);
    ck_assert_uint_eq(next->client, 4);
    ts_detach(next);
    ck_assert_int_eq(kvshm__sys.lock_set(kv->fd, F_WRLCK, KVSHM__LOCK_BASE + 10, 0), 0);
    ts_is(kvshm_attach("a", NULL, 0, &next), -EAGAIN);
    ts_detach(kv);
}
END_TEST

/* ---- Joining ----------------------------------------------------------------------------------------- */

START_TEST(test_join_and_leave)
{
    kvshm *kv = ts_create("a", &config), *reader = ts_attach("a", KVSHM_RDONLY);
    struct other *other = start(0, NULL, NULL);

    ts_is(kvshm_join(kv, 0), -EINVAL);
    ts_is(kvshm_join(kv, kv->client), -EINVAL);
    ts_is(kvshm_join(kv, UINT64_MAX), -EINVAL);
    ts_is(kvshm_join(kv, 99), -ESRCH);
    ck_assert(!kvshm__client_joined(kv, 99));
    ts_is(kvshm_join(reader, other->number), KVSHM_E_READ_ONLY);
    ts_is(kvshm_leave(kv, other->number), -ENOENT);
    ts_is(kvshm_join(kv, other->number), 0);
    ts_is(kvshm_join(kv, other->number), 0);
    ck_assert(kvshm__client_joined(reader, other->number));
    ts_kill(other->pid);
    ck_assert(kvshm__client_counts(kv, other->number));
    ck_assert(kvshm__client_counts(reader, other->number));
    ts_is(kvshm_join(kv, other->number), 0); /* still joined */
    ts_is(kvshm_leave(kv, other->number), 0);
    ck_assert(!kvshm__client_counts(kv, other->number));
    ts_is(kvshm_leave(kv, other->number), -ENOENT);
    ts_is(kvshm_leave(kv, 0), -ENOENT);
    ts_is(kvshm_join(kv, other->number), -ESRCH);
    ts_detach(reader);
    ts_detach(kv);
}
END_TEST

/* C2, at the moment when the kernel is asked. */
static kvshm *joiner_now;
static int held_fd;
static bool word_was_there;

/* The word is there when the joiner asks. */
static int ask_after_word(int fd, int kind, uint64_t offset, uint64_t length)
{
    if (offset == KVSHM__LOCK_BASE + 2 * asked_about)
        word_was_there =
            KVSHM__LOAD(&joiner_now->clients[joiner_now->place].joins[0]) == asked_about;
    return kvshm__sys_real.lock_ask(fd, kind, offset, length);
}

/* Before the answer somebody joins it, and then it dies. */
static int ask_and_die(int fd, int kind, uint64_t offset, uint64_t length)
{
    if (offset == KVSHM__LOCK_BASE + 2 * asked_about && held_fd >= 0) {
        kvshm__sys.lock_ask = kvshm__sys_real.lock_ask;
        ts_is(kvshm_join(joiner_now, asked_about), 0);
        close(held_fd);
        held_fd = -1;
    }
    return kvshm__sys_real.lock_ask(fd, kind, offset, length);
}

/* C2: of who joins and who finds it dead, one sees the other: the word is stored before the look, the join words are read
   after it. */
START_TEST(test_c2_word_before_the_look_death_before_the_words)
{
    kvshm *kv = ts_create("a", &config), *gone;

    joiner_now = ts_attach("a", 0);
    gone = ts_attach("a", 0);
    asked_about = gone->client;
    held_fd = dup(gone->fd); /* alive until this is closed, too */
    kvshm__sys.lock_ask = ask_after_word;
    ts_is(kvshm_join(joiner_now, asked_about), 0);
    ts_fail_off();
    ck_assert(word_was_there);
    ts_is(kvshm_leave(joiner_now, asked_about), 0);
    ts_detach(gone);
    ck_assert(kvshm__client_alive(kv, asked_about));
    kvshm__sys.lock_ask = ask_and_die;
    ck_assert(kvshm__client_counts(kv, asked_about));
    ts_fail_off();
    ck_assert_int_eq(held_fd, -1);
    ck_assert(!kvshm__client_alive(kv, asked_about));
    ck_assert(kvshm__client_joined(kv, asked_about));
    ts_detach(joiner_now);
    ts_detach(kv);
}
END_TEST

START_TEST(test_eight_are_joined)
{
    kvshm *kv, *others[KVSHM__JOINS + 1];

    config.max_clients = 16;
    kv = ts_create("a", &config);
    for (unsigned i = 0; i <= KVSHM__JOINS; i++) {
        others[i] = ts_attach("a", 0);
        ts_is(kvshm_join(kv, others[i]->client), i < KVSHM__JOINS ? 0 : -ENOSPC);
    }
    ts_says("8 are joined already");
    for (unsigned i = 0; i <= KVSHM__JOINS; i++)
        ck_assert_int_eq(kvshm__client_joined(kv, others[i]->client), i < KVSHM__JOINS);
    ts_is(kvshm_leave(kv, others[3]->client), 0);
    ts_is(kvshm_join(kv, others[KVSHM__JOINS]->client), 0);
    for (unsigned i = 0; i <= KVSHM__JOINS; i++)
        ts_detach(others[i]);
    ts_detach(kv);
}
END_TEST

static void *join_often(void *arg)
{
    kvshm *const *handles = arg;

    for (unsigned i = 0; i < 2000; i++) {
        int code = kvshm_join(handles[0], handles[1]->client);

        if (code != 0)
            return (void *)1;
        code = kvshm_leave(handles[0], handles[1]->client);
        if (code != 0 && code != -ENOENT)
            return (void *)2;
    }
    return NULL;
}

START_TEST(test_threads_join)
{
    kvshm *handles[2];
    pthread_t threads[2];
    void *wrong;

    handles[0] = ts_create("a", &config);
    handles[1] = ts_attach("a", 0);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, join_often, handles), 0);
    for (unsigned i = 0; i < 2; i++) {
        pthread_join(threads[i], &wrong);
        ck_assert_ptr_null(wrong);
    }
    ck_assert(!kvshm__client_joined(handles[1], handles[1]->client));
    ts_detach(handles[1]);
    ts_detach(handles[0]);
}
END_TEST

/* ---- For people -------------------------------------------------------------------------------------- */

START_TEST(test_described)
{
    kvshm *kv = ts_create("a", &config), *reader = ts_attach("a", KVSHM_RDONLY);
    struct kvshm_client *client = &kv->clients[kv->place];
    char words[KVSHM__CLIENT_WORDS], label[KVSHM_LABEL_MAX + 1], wanted[128];

    snprintf(wanted, sizeof(wanted), "pid %d (%s)", getpid(), program_invocation_short_name);
    ck_assert_str_eq(kvshm__client_describe(reader, 1, words, sizeof(words)), wanted);
    ck_assert_str_eq(kvshm__client_describe(kv, 55, words, sizeof(words)), "client 55");
    memset(client->label, 'x', sizeof(client->label)); /* damage: no end */
    client->label[0] = '\033';
    client->label[1] = (char)0x9b;
    kvshm__client_label(client, label);
    ck_assert_uint_eq(strlen(label), KVSHM_LABEL_MAX);
    ck_assert_mem_eq(label, "??xx", 4);
    ck_assert_str_eq(kvshm__client_describe(kv, 1, words, 8), words);
    ck_assert_uint_lt(strlen(words), 8);
    ck_assert_str_eq(kvshm__client_describe_alive(kv, words, sizeof(words)), "");
    kvshm__client_describe_alive(reader, words, sizeof(words));
    ck_assert_ptr_nonnull(strstr(words, "pid "));
    kvshm__client_describe_alive(reader, words, 40); /* too small for one */
    ck_assert_str_eq(words, "1 more");
    ck_assert_uint_ne(client->start_ticks, 0);
    ck_assert_uint_ne(client->pid_namespace, 0);
    ts_detach(reader);
    ts_detach(kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client");
    TCase *tcase = tcase_create("client");

    tcase_add_checked_fixture(tcase, setup, ts_teardown);
    tcase_add_test(tcase, test_own_number_and_none);
    tcase_add_test(tcase, test_numbers_are_never_given_twice);
    tcase_add_test(tcase, test_of_processes);
    tcase_add_test(tcase, test_alive_and_quiet_are_two);
    tcase_add_test(tcase, test_observers_fake_no_life);
    tcase_add_test(tcase, test_a_refused_question_means_alive);
    tcase_add_test(tcase, test_copies_of_descriptors_keep_alive);
    tcase_add_test(tcase, test_a_place_is_given_back_before_its_locks);
    tcase_add_test(tcase, test_places_full);
    tcase_add_loop_test(tcase, test_place_taken_over, 0, 2);
    tcase_add_test(tcase, test_places_not_to_be_taken_over);
    tcase_add_test(tcase, test_an_abandoned_place_is_taken_once);
    tcase_add_test(tcase, test_a_place_is_kept_until_quiet);
    tcase_add_test(tcase, test_a_crowd_attaches);
    tcase_add_test(tcase, test_locked_byte);
    tcase_add_test(tcase, test_join_and_leave);
    tcase_add_test(tcase, test_c2_word_before_the_look_death_before_the_words);
    tcase_add_test(tcase, test_eight_are_joined);
    tcase_add_test(tcase, test_threads_join);
    tcase_add_test(tcase, test_described);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
