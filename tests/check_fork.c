/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_fork.c - handles in forked children, and the library's coming and going
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client.h"
#include "fork.h"
#include "inside.h"
#include "private.h"
#include "support.h"
#include "sys.h"

static kvshm *parent_handle, *parent_reader;
static const uint32_t tokens[4] = {1, 2, 3, 4};

static void setup(void)
{
    struct kvshm_config config = ts_config(256, 4, 20);

    ts_setup();
    config.stall_ms = 20;
    parent_handle = ts_create("a", &config);
    parent_reader = ts_attach("a", KVSHM_RDONLY);
    ts_insert(parent_handle, 0, 0, tokens, 4);
}

static void teardown(void)
{
    ts_detach(parent_reader);
    ts_detach(parent_handle);
    ts_teardown();
}

static bool mapped(const void *address)
{
    unsigned char resident;

    return mincore((void *)((uintptr_t)address & ~(uintptr_t)4095), 4096, &resident) == 0;
}

/* Every call on the parent's handle answers, and touches nothing. */
static int use_parents(void *arg)
{
    kvshm *kv = parent_handle;
    struct kvshm_info info;
    struct kvshm_stats stats;
    struct kvshm_prefix prefix;
    struct kvshm_lease lease;

    (void)arg;
    kvshm_info_init(&info);
    kvshm_stats_init(&stats);
    kvshm_prefix_init(&prefix, 0, 0, tokens, 4);
    ts_need(!mapped(kv->base) && !mapped(kv->read_base));
    ts_need(kv->fd == -1 && kv->quiet_fd == -1);
    ts_need(kvshm_info(kv, &info) == KVSHM_E_FORKED);
    ts_need(strstr(kvshm_errmsg(kv), "attach anew") != NULL);
    ts_need(kvshm_stats(kv, &stats) == KVSHM_E_FORKED);
    ts_need(kvshm_lookup(kv, &prefix, 0, &lease) == KVSHM_E_FORKED);
    ts_need(kvshm_join(kv, 7) == KVSHM_E_FORKED);
    ts_need(kvshm_leave(kv, 7) == KVSHM_E_FORKED);
    ts_need(kvshm_at(kv, kv->frames_offset) == NULL);
    ts_need(kvshm_at_writable(kv, kv->frames_offset) == NULL);
    ts_need(!kvshm_contains(kv, &prefix));
    ts_need(kvshm_info(parent_reader, &info) == KVSHM_E_FORKED);
    ts_need(kvshm_detach(kv) == 0);
    ts_need(kvshm_detach(parent_reader) == 0);
    /* and the child may attach anew */
    ts_need(kvshm_attach("a", NULL, 0, &kv) == 0);
    ts_need(kvshm_lookup(kv, &prefix, 0, &lease) == 0);
    kvshm_release(kv, &lease);
    ts_need(kvshm_detach(kv) == 0);
    return 0;
}

START_TEST(test_child)
{
    struct kvshm_info info;

    ck_assert_int_eq(ts_wait(ts_fork(use_parents, NULL)), 0);
    kvshm_info_init(&info);
    ts_is(kvshm_info(parent_handle, &info), 0);
    ck_assert_uint_eq(info.client, 1);
    ck_assert(kvshm__client_alive(parent_reader, 1));
}
END_TEST

/* A child of the server lives on after the server was killed: the server counts as dead. */
struct server {
    struct ts_gate ready, stay;
    _Atomic(uint64_t) number;
    _Atomic(int) child;
};

static int server_child(void *arg)
{
    struct server *server = arg;

    ts_gate_open(&server->ready);
    ts_gate_wait(&server->stay);
    return 0;
}

static int server_main(void *arg)
{
    struct server *server = arg;
    kvshm *kv;

    ts_need(kvshm_attach("a", NULL, 0, &kv) == 0);
    server->number = kv->client;
    server->child = ts_fork(server_child, server);
    ts_wait(server->child);
    return 0;
}

START_TEST(test_child_keeps_nobody_alive)
{
    struct server *server = ts_shared(sizeof(*server));
    pid_t pid;

    ts_gate_make(&server->ready);
    ts_gate_make(&server->stay);
    pid = ts_fork(server_main, server);
    ts_gate_wait(&server->ready);
    ck_assert(kvshm__client_alive(parent_handle, server->number));
    ts_kill(pid);
    ck_assert(!kvshm__client_alive(parent_handle, server->number));
    ck_assert(kvshm__client_quiet(parent_handle, server->number));
    ts_gate_open(&server->stay);
}
END_TEST

/* F1: children are made all the time while others attach and detach; none has a descriptor of a segment. */
static atomic_bool attaching_ends;
static _Atomic(uint64_t) attached;

static void *attach_and_detach(void *arg)
{
    while (!attaching_ends) {
        kvshm *kv;

        if (kvshm_attach("a", NULL, 0, &kv) != 0 || kvshm_detach(kv) != 0)
            return (void *)1;
        attached++;
    }
    return arg;
}

static int has_no_segment(void *arg)
{
    char path[64], target[512];

    (void)arg;
    for (int fd = 3; fd < 64; fd++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, target, sizeof(target) - 1);
        if (n < 0)
            continue;
        target[n] = '\0';
        ts_need(strstr(target, "/a") != target + n - 2);
    }
    return 0;
}

START_TEST(test_children_made_while_attaching)
{
    uint64_t rounds = ts_amount(20, 100, 1000), least = ts_amount(5, 20, 200);
    pthread_t thread;
    void *wrong;

    ck_assert_int_eq(pthread_create(&thread, NULL, attach_and_detach, NULL), 0);
    for (uint64_t i = 0; i < rounds || (attached < least && i < 1000 * rounds); i++)
        ck_assert_int_eq(ts_wait(ts_fork(has_no_segment, NULL)), 0);
    attaching_ends = true;
    pthread_join(thread, &wrong);
    ck_assert_ptr_null(wrong);
    ck_assert_uint_ge(attached, least);
}
END_TEST

static int raw_child(void *arg)
{
    struct kvshm_info info;

    (void)arg;
    kvshm_info_init(&info);
    ts_need(kvshm__forked(parent_handle) && !mapped(parent_handle->base));
    ts_need(kvshm_info(parent_handle, &info) == KVSHM_E_FORKED);
    ts_need(kvshm_detach(parent_handle) == 0);
    return 0;
}

/* No handler runs, the page tells all the same. */
START_TEST(test_raw_clone)
{
    static char stack[262144] __attribute__((aligned(16)));
    pid_t pid;

    pid = clone(raw_child, stack + sizeof(stack), SIGCHLD, NULL);
    ck_assert_int_gt(pid, 0);
    ck_assert_int_eq(ts_wait(pid), 0);
}
END_TEST

/* ---- Forked in any state --------------------------------------------------------------------------------------- */

/* What the parent holds while it makes a child, and the child in its copy. */
static struct {
    struct kvshm_lease lease;
    struct kvshm_reservation r;
} held;

static int never_called(const struct kvshm_entry *entry, void *arg)
{
    (void)entry;
    (void)arg;
    return 1;
}

/* All calls that take a handle, a lease or a reservation of the parent's, those that return no code too. */
static int every_call_is_refused(void)
{
    kvshm *kv = parent_handle;
    struct kvshm_prefix prefix;
    struct kvshm_reservation r;
    struct kvshm_lease lease;
    struct kvshm_info info;
    struct kvshm_stats stats;
    uint8_t bytes[512];
    uint64_t offset;
    const void *page;

    kvshm_info_init(&info);
    kvshm_stats_init(&stats);
    kvshm_prefix_init(&prefix, 0, 0, tokens, 4);
    ts_need(kvshm_lookup(kv, &prefix, 0, &lease) == KVSHM_E_FORKED);
    ts_need(kvshm_match(kv, &prefix, KVSHM_PEEK, &lease) == KVSHM_E_FORKED);
    ts_need(kvshm_copy_out(kv, &prefix, 0, 1, bytes) == KVSHM_E_FORKED);
    ts_need(kvshm_copy_out(parent_reader, &prefix, 0, 1, bytes) == KVSHM_E_FORKED);
    ts_need(kvshm_reserve(kv, 1, 0, &r) == KVSHM_E_FORKED);
    ts_need(kvshm_insert(kv, &prefix, &held.lease, &held.r, KVSHM_HOLD) == KVSHM_E_FORKED);
    ts_need(kvshm_remove(kv, &prefix) == KVSHM_E_FORKED);
    ts_need(kvshm_evict_lru(kv) == KVSHM_E_FORKED);
    ts_need(kvshm_clear(kv) == KVSHM_E_FORKED);
    ts_need(kvshm_join(kv, 99) == KVSHM_E_FORKED && kvshm_leave(kv, 99) == KVSHM_E_FORKED);
    ts_need(kvshm_info(kv, &info) == KVSHM_E_FORKED && kvshm_stats(kv, &stats) == KVSHM_E_FORKED);
    ts_need(kvshm_foreach(kv, never_called, NULL) == KVSHM_E_FORKED);
    ts_need(kvshm_lease_offsets(&held.lease, 0, 1, &offset) == KVSHM_E_FORKED);
    ts_need(kvshm_lease_pages(&held.lease, 0, 1, &page) == KVSHM_E_FORKED);
    ts_need(kvshm_reservation_offsets(&held.r, 0, 1, &offset) == KVSHM_E_FORKED);
    ts_need(kvshm_lease_page(&held.lease, 0) == NULL && kvshm_reservation_page(&held.r, 0) == NULL);
    ts_need(kvshm_at(kv, kv->frames_offset) == NULL);
    ts_need(kvshm_at_writable(kv, kv->frames_offset) == NULL && !kvshm_contains(kv, &prefix));
    kvshm_lease_tag(&held.lease, 7);
    kvshm_release(kv, &held.lease);
    kvshm_cancel(kv, &held.r);
    ts_need(kvshm_detach(parent_reader) == 0 && kvshm_detach(kv) == 0);
    ts_need(kvshm__private_bytes() == 0); /* of the child's own copy */
    return 0;
}

static int refused_and_gone(void *arg)
{
    (void)arg;
    return every_call_is_refused();
}

/* Ends as a program does, with all that is done at exit. */
static int refused_and_exits(void *arg)
{
    (void)arg;
    exit(every_call_is_refused());
}

static pid_t clone_raw(int (*fn)(void *))
{
    static char stack[524288] __attribute__((aligned(16)));
    pid_t pid = clone(fn, stack + sizeof(stack), SIGCHLD, NULL);

    ck_assert_int_gt(pid, 0);
    return pid;
}

/* The bytes of the segment, read from its file. */
static uint8_t *bytes_now(void)
{
    uint8_t *bytes = malloc(parent_handle->segment_bytes);

    ck_assert_ptr_nonnull(bytes);
    ck_assert_int_eq(pread(parent_handle->fd, bytes, parent_handle->segment_bytes, 0),
                     (ssize_t)parent_handle->segment_bytes);
    return bytes;
}

static void hold_some(void)
{
    struct kvshm_prefix prefix;

    kvshm_prefix_init(&prefix, 0, 0, tokens, 4);
    ts_is(kvshm_lookup(parent_handle, &prefix, 0, &held.lease), 0);
    kvshm_lease_tag(&held.lease, 3);
    ts_is(kvshm_reserve(parent_handle, 2, 0, &held.r), 0);
    memset(kvshm_reservation_page(&held.r, 0), 'a', 256);
    memset(kvshm_reservation_page(&held.r, 1), 'b', 256);
}

/* The parent has what it had: its lease holds, its reservation becomes an entry. */
static void use_held(void)
{
    static const uint32_t more[8] = {9, 8, 7, 6, 5, 4, 3, 2};
    struct kvshm_prefix prefix;

    ck_assert_int_eq(kvshm_evict_lru(parent_handle), 0);
    ck_assert_uint_eq(ts_filled(kvshm_lease_page(&held.lease, 0), 256, 0, 0, tokens, 4), 0);
    kvshm_prefix_init(&prefix, 0, 0, more, 8);
    ts_is(kvshm_insert(parent_handle, &prefix, NULL, &held.r, 0), 0);
    kvshm_release(parent_handle, &held.lease);
    in_audit(parent_handle);
}

/* By fork and by raw clone, ended by _exit and by exit: not one byte of the segment differs. */
START_TEST(test_children_touch_nothing)
{
    static int (*const ends[])(void *) = {refused_and_gone, refused_and_exits};
    uint8_t *before, *after;

    hold_some();
    before = bytes_now();
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(ts_wait(ts_fork(ends[i], NULL)), 0);
        ck_assert_int_eq(ts_wait(clone_raw(ends[i])), 0);
    }
    after = bytes_now();
    for (uint64_t at = 0; at < parent_handle->segment_bytes; at++)
        ck_assert_msg(before[at] == after[at], "byte %llu differs", (unsigned long long)at);
    ck_assert_ptr_nonnull(held.lease.kv);
    use_held();
    free(before);
    free(after);
}
END_TEST

static int attaches_anew(void *arg)
{
    struct kvshm_prefix prefix;
    struct kvshm_lease lease;
    struct kvshm_info info;
    kvshm *kv;

    (void)arg;
    kvshm_info_init(&info);
    ts_need(kvshm_attach("a", NULL, 0, &kv) == 0);
    kvshm_prefix_init(&prefix, 0, 0, tokens, 4);
    ts_need(kvshm_lookup(kv, &prefix, 0, &lease) == 0);
    ts_need(ts_filled(kvshm_lease_page(&lease, 0), 256, 0, 0, tokens, 4) == 0);
    ts_need(kvshm_info(kv, &info) == 0 && info.client != 1 && info.clients == 2);
    kvshm_release(kv, &lease);
    ts_insert(kv, 0, 0, in_range(700, 8).tokens, 8);
    ts_need(kvshm_detach(kv) == 0);
    return 0;
}

/* Also before it has given the parent's handles back. */
START_TEST(test_children_attach_anew)
{
    struct kvshm_prefix prefix = in_range(700, 8);

    hold_some();
    ck_assert_int_eq(ts_wait(ts_fork(attaches_anew, NULL)), 0);
    ck_assert(kvshm_contains(parent_handle, &prefix));
    ts_is(kvshm_remove(parent_handle, &prefix), 0);
    ck_assert_int_eq(ts_wait(clone_raw(attaches_anew)), 0);
    ck_assert(kvshm_contains(parent_handle, &prefix));
    ts_is(kvshm_remove(parent_handle, &prefix), 0);
    use_held();
}
END_TEST

/* Another thread of the parent is inside a call, with the writer lock and the handle's mutex, until the gate opens. */
static struct ts_gate inside, go_on;
static _Thread_local bool to_be_stopped;

static uint64_t stop_inside(void)
{
    if (to_be_stopped) {
        to_be_stopped = false;
        ts_gate_open(&inside);
        ts_gate_wait(&go_on);
    }
    return kvshm__sys_real.realtime_ns();
}

static void *evict_slowly(void *arg)
{
    to_be_stopped = true;
    return (void *)(intptr_t)kvshm_evict_lru(arg);
}

/* Reads, and is told who holds the lock. */
static int beside_the_inside(void *arg)
{
    struct kvshm_prefix prefix;
    struct kvshm_reservation r;
    char words[32];
    kvshm *kv;

    (void)arg;
    ts_need(every_call_is_refused() == 0);
    ts_need(kvshm_attach("a", NULL, 0, &kv) == 0);
    kvshm_prefix_init(&prefix, 0, 0, tokens, 4);
    ts_need(kvshm_contains(kv, &prefix));
    ts_need(kvshm_reserve(kv, 1, 0, &r) == KVSHM_E_STALLED);
    snprintf(words, sizeof(words), "pid %d", getppid());
    ts_need(strstr(kvshm_errmsg(kv), words) != NULL);
    ts_need(kvshm_detach(kv) == 0);
    return 0;
}

START_TEST(test_forked_inside_a_call_of_another_thread)
{
    struct kvshm_prefix prefix;
    pthread_t thread;
    void *evicted;

    hold_some();
    ts_insert(parent_handle, 0, 0, in_range(500, 4).tokens, 4);
    kvshm_prefix_init(&prefix, 0, 0, tokens, 4);
    ts_gate_make(&inside);
    ts_gate_make(&go_on);
    kvshm__sys.realtime_ns = stop_inside;
    kvshm_release(parent_handle, &held.lease);
    ts_is(kvshm_lookup(parent_handle, &prefix, 0, &held.lease), 0); /* later than the other entry */
    ck_assert_int_eq(pthread_create(&thread, NULL, evict_slowly, parent_handle), 0);
    ck_assert(ts_gate_wait(&inside));
    ck_assert_uint_eq(parent_handle->header->lock.word, parent_handle->client);
    ck_assert_int_eq(ts_wait(ts_fork(beside_the_inside, NULL)), 0);
    ck_assert_int_eq(ts_wait(clone_raw(beside_the_inside)), 0);
    ts_is(kvshm_detach(parent_handle), -EBUSY);
    ts_says("another thread is inside a call");
    ts_gate_open(&go_on);
    pthread_join(thread, &evicted);
    ck_assert_int_eq((intptr_t)evicted, 1);
    ts_fail_off();
    use_held();
}
END_TEST

/* A thread that the raw clone's child does not have holds the list of handles. */
static int detaches_at_once(void *arg)
{
    struct kvshm_info info;

    (void)arg;
    kvshm_info_init(&info);
    ts_need(kvshm_info(parent_handle, &info) == KVSHM_E_FORKED);
    ts_need(kvshm_detach(parent_handle) == 0 && kvshm_detach(parent_reader) == 0);
    return 0;
}

START_TEST(test_raw_clone_while_the_list_is_held)
{
    pid_t pid;

    kvshm__fork_hold();
    pid = clone_raw(detaches_at_once);
    kvshm__fork_let();
    ck_assert_int_eq(ts_wait(pid), 0);
}
END_TEST

START_TEST(test_list)
{
    kvshm *one = calloc(1, sizeof(*one)), *two = calloc(1, sizeof(*two));

    ts_is(kvshm__fork_add(one), 0);
    ts_is(kvshm__fork_add(two), 0);
    ck_assert(!kvshm__forked(one) && one->fd == -1 && one->quiet_fd == -1);
    ck_assert(kvshm__fork_remove(one));
    ck_assert(kvshm__fork_remove(two));
    free(one);
    free(two);
}
END_TEST

/* Loaded, used, unloaded; then fork runs no handler of code that has gone. */
static int load_and_unload(void *arg)
{
    char path[512];
    void *library;
    int (*attach)(const char *, const struct kvshm_config *, unsigned, kvshm **);
    int (*detach)(kvshm *);
    kvshm *kv;

    (void)arg;
    snprintf(path, sizeof(path), "%s/lib/.libs/libkvshm.so", getenv("abs_top_builddir"));
    for (unsigned i = 0; i < 3; i++) {
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL)
            return 77;
        *(void **)&attach = dlsym(library, "kvshm_attach");
        *(void **)&detach = dlsym(library, "kvshm_detach");
        ts_need(attach != NULL && attach != kvshm_attach);
        ts_need(attach("a", NULL, 0, &kv) == 0);
        ts_need(detach(kv) == 0);
        ts_need(dlclose(library) == 0);
        ts_need(dlopen(path, RTLD_NOW | RTLD_NOLOAD) == NULL);
        ts_need(ts_wait(ts_fork(has_no_segment, NULL)) == 0);
    }
    return 0;
}

START_TEST(test_unloaded)
{
    int status;

    if (getenv("abs_top_builddir") == NULL) {
        printf("SKIP test_unloaded: abs_top_builddir is not set\n");
        return;
    }
    status = ts_wait(ts_fork(load_and_unload, NULL));
    if (status == 77)
        printf("SKIP test_unloaded: there is no shared library\n");
    else
        ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fork");
    TCase *tcase = tcase_create("fork");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_child);
    tcase_add_test(tcase, test_child_keeps_nobody_alive);
    tcase_add_test(tcase, test_children_made_while_attaching);
    tcase_add_test(tcase, test_raw_clone);
    tcase_add_test(tcase, test_children_touch_nothing);
    tcase_add_test(tcase, test_children_attach_anew);
    tcase_add_test(tcase, test_forked_inside_a_call_of_another_thread);
    tcase_add_test(tcase, test_raw_clone_while_the_list_is_held);
    tcase_add_test(tcase, test_list);
    tcase_add_test(tcase, test_unloaded);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
