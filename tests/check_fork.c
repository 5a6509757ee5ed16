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
#include "support.h"
#include "sys.h"

static kvshm *parent_handle, *parent_reader;
static const uint32_t tokens[4] = {1, 2, 3, 4};

static void setup(void)
{
    struct kvshm_config config = ts_config(256, 4, 20);

    ts_setup();
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
    tcase_add_test(tcase, test_list);
    tcase_add_test(tcase, test_unloaded);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
