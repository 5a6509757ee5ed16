/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_numa.c - nodes: several of them by replaced system calls, and the real calls on the nodes that this host has
 */
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "numa.h"
#include "support.h"
#include "sys.h"

#define MIB (UINT64_C(1) << 20)

/* What a host with several nodes answers, and what it was asked; children ask, too. */
static struct {
    uint64_t allowed[2]; /* nodes 0 to 127 */
    int allowed_code, set_code;
    unsigned sets; /* how often a policy was set */
    int mode;
    uint64_t nodes; /* of the policy, 0 to 63 */
    uint64_t bytes;
    int (*where)(uint64_t page); /* the node of a page, by its number in the mapping */
    _Atomic unsigned looked;
} * said;

static int say_allowed(uint64_t *nodes, unsigned words)
{
    if (said->allowed_code == 0) {
        memset(nodes, 0, words * sizeof(*nodes));
        memcpy(nodes, said->allowed, sizeof(said->allowed));
    }
    return said->allowed_code;
}

static int say_set(void *address, uint64_t size, int mode, const uint64_t *nodes, unsigned words)
{
    ck_assert(address != NULL && words == KVSHM__NODES_WORDS);
    said->sets++;
    said->mode = mode;
    said->nodes = nodes[0];
    said->bytes = size;
    return said->set_code;
}

static int say_where(void **pages, unsigned n, int *nodes)
{
    for (unsigned i = 0; i < n; i++)
        nodes[i] = said->where((uintptr_t)pages[i] / 4096);
    said->looked += n;
    return 0;
}

static int in_turn(uint64_t page)
{
    return (int)(page % 2);
}

static int all_on_0(uint64_t page)
{
    (void)page;
    return 0;
}

static int all_on_1(uint64_t page)
{
    (void)page;
    return 1;
}

static int some_on_0(uint64_t page)
{
    return page % 50 != 0;
}

static int not_there(uint64_t page)
{
    (void)page;
    return -ENOENT;
}

static void setup(void)
{
    ts_setup();
    said = ts_shared(sizeof(*said));
    said->allowed[0] = 3;
    said->where = in_turn;
    kvshm__sys.policy_allowed = say_allowed;
    kvshm__sys.policy_set = say_set;
    kvshm__sys.pages_where = say_where;
}

static int create(uint32_t numa, kvshm **kv)
{
    struct kvshm_config config = ts_config(65536, 64, 0);

    config.memory_bytes = 4 * MIB;
    config.backing = KVSHM_BACKING_SMALL;
    config.numa = numa;
    kvshm_unlink("a", 0);
    return kvshm_create("a", &config, 0, kv);
}

/* What was had, and that info says both. */
static uint32_t had(uint32_t numa)
{
    struct kvshm_info info;
    kvshm *kv;

    said->sets = 0;
    said->looked = 0;
    ts_is(create(numa, &kv), 0);
    kvshm_info_init(&info);
    ts_is(kvshm_info(kv, &info), 0);
    ck_assert_uint_eq(info.numa_asked, numa);
    ts_detach(kv);
    kv = ts_attach("a", KVSHM_RDONLY); /* others see the same */
    ts_is(kvshm_info(kv, &info), 0);
    ts_detach(kv);
    return info.numa;
}

static void refused(uint32_t numa, int code, const char *says)
{
    kvshm *kv;

    ts_is(create(numa, &kv), code);
    ts_says(says);
    ck_assert_uint_eq(ts_dir_names(), 0);
}

START_TEST(test_interleaved)
{
    static const uint32_t asked[] = {KVSHM_NUMA_AUTO, KVSHM_NUMA_INTERLEAVE};

    for (unsigned i = 0; i < 2; i++) {
        said->where = in_turn;
        ck_assert_uint_eq(had(asked[i]), KVSHM_NUMA_INTERLEAVE);
        ck_assert_uint_eq(said->sets, 1);
        ck_assert_int_eq(said->mode, MPOL_INTERLEAVE);
        ck_assert_uint_eq(said->nodes, 3);
        ck_assert_uint_ge(said->bytes, 4 * MIB - 65536);
        ck_assert_uint_ge(said->looked, 64);
        said->where = all_on_0;
        ck_assert_uint_eq(had(asked[i]), KVSHM_NUMA_MIXED);
        said->where = not_there; /* nothing could be looked at */
        ck_assert_uint_eq(had(asked[i]), KVSHM_NUMA_INTERLEAVE);
    }
}
END_TEST

START_TEST(test_preferred)
{
    said->where = all_on_1;
    ck_assert_uint_eq(had(KVSHM_NUMA_NODE(1)), KVSHM_NUMA_NODE(1));
    ck_assert_int_eq(said->mode, MPOL_PREFERRED);
    ck_assert_uint_eq(said->nodes, 2);
    said->where = some_on_0;
    ck_assert_uint_eq(had(KVSHM_NUMA_NODE(1)), KVSHM_NUMA_MIXED);
    ck_assert_uint_eq(had(KVSHM_NUMA_NODE(0)), KVSHM_NUMA_MIXED);
    said->where = all_on_0;
    ck_assert_uint_eq(had(KVSHM_NUMA_NODE(0)), KVSHM_NUMA_NODE(0));
}
END_TEST

START_TEST(test_left_alone)
{
    ck_assert_uint_eq(had(KVSHM_NUMA_LOCAL), KVSHM_NUMA_LOCAL);
    ck_assert_uint_eq(said->sets + said->looked, 0);
    said->allowed[0] = 4; /* one node: nothing to choose */
    ck_assert_uint_eq(had(KVSHM_NUMA_AUTO), KVSHM_NUMA_LOCAL);
    ck_assert_uint_eq(said->sets + said->looked, 0);
}
END_TEST

START_TEST(test_nodes_that_are_not_there)
{
    refused(KVSHM_NUMA_NODE(2), -EINVAL, "config.numa asks for node 2, and this process may have memory of 0-1;");
    said->allowed[0] = 0x8000000000000115;
    said->allowed[1] = 3;
    refused(KVSHM_NUMA_NODE(1023), -EINVAL, "node 1023, and this process may have memory of 0,2,4,8,63-65;");
}
END_TEST

/* A container that forbids the calls, a kernel that has none, a cpuset that changed. */
START_TEST(test_hosts_that_refuse)
{
    said->allowed_code = -EPERM;
    ck_assert_uint_eq(had(KVSHM_NUMA_AUTO), KVSHM_NUMA_LOCAL);
    kvshm_unlink("a", 0);
    refused(KVSHM_NUMA_INTERLEAVE, -EPERM, "the system forbids to set one (get_mempolicy); give the container CAP_SYS_NICE");
    said->allowed_code = -ENOSYS;
    refused(KVSHM_NUMA_NODE(0), -EOPNOTSUPP, "this kernel has none (get_mempolicy)");
    said->allowed_code = 0;
    said->set_code = -EPERM;
    ck_assert_uint_eq(had(KVSHM_NUMA_AUTO), KVSHM_NUMA_LOCAL);
    kvshm_unlink("a", 0);
    refused(KVSHM_NUMA_INTERLEAVE, -EPERM, "(mbind)");
    said->set_code = -EINVAL;
    refused(KVSHM_NUMA_NODE(1), -EINVAL, "NUMA policy (mbind): Invalid argument");
}
END_TEST

START_TEST(test_values)
{
    for (uint32_t value = 0; value < 2000; value++) {
        bool node = value >= KVSHM_NUMA_NODE(0) && value <= KVSHM_NUMA_NODE(1023);

        ck_assert_int_eq(kvshm__numa_valid(value, true), value <= 2 || node);
        ck_assert_int_eq(kvshm__numa_valid(value, false), (value >= 1 && value <= 3) || node);
    }
}
END_TEST

/* ---- This host --------------------------------------------------------------------------------------- */

/* The policy of the arena's file, as whoever maps it has it. */
static int policy_of(kvshm *kv, uint64_t *nodes)
{
    struct kvshm_info info;
    int mode = -1;

    kvshm_info_init(&info);
    ts_is(kvshm_info(kv, &info), 0);
    memset(nodes, 0, KVSHM__NODES_MAX / 8);
    ck_assert_int_eq(syscall(SYS_get_mempolicy, &mode, nodes, (unsigned long)KVSHM__NODES_MAX,
                             info.read_base, (unsigned long)MPOL_F_ADDR),
                     0);
    return mode;
}

START_TEST(test_real_calls)
{
    uint64_t allowed[KVSHM__NODES_WORDS], nodes[KVSHM__NODES_WORDS];
    uint32_t node = 0;
    int code;
    kvshm *kv;

    kvshm__sys = kvshm__sys_real;
    code = kvshm__sys.policy_allowed(allowed, KVSHM__NODES_WORDS);
    if (code < 0) {
        printf("SKIP test_real_calls: get_mempolicy: %s\n", kvshm_strerror(code));
        return;
    }
    while ((allowed[node / 64] >> node % 64 & 1) == 0)
        node++;
    ts_is(create(KVSHM_NUMA_INTERLEAVE, &kv), 0);
    ck_assert_int_eq(policy_of(kv, nodes), MPOL_INTERLEAVE);
    ck_assert_mem_eq(nodes, allowed, sizeof(nodes));
    ts_detach(kv);
    ck_assert_uint_eq(had(KVSHM_NUMA_INTERLEAVE), KVSHM_NUMA_INTERLEAVE);
    ts_is(create(KVSHM_NUMA_NODE(node), &kv), 0);
    ck_assert_int_eq(policy_of(kv, nodes), MPOL_PREFERRED);
    ck_assert_uint_eq(nodes[node / 64], UINT64_C(1) << node % 64);
    ts_detach(kv);
    ck_assert_uint_eq(had(KVSHM_NUMA_NODE(node)), KVSHM_NUMA_NODE(node));
    kvshm_unlink("a", 0);
    refused(KVSHM_NUMA_NODE(1023), -EINVAL, "config.numa asks for node 1023");
}
END_TEST

/* Each page of a mapping is where the system says. */
START_TEST(test_real_pages)
{
    kvshm_a64 *counts = ts_shared(KVSHM__NODES_MAX * sizeof(*counts));
    char *pages = ts_shared(10 * 4096);
    uint64_t all = 0;

    kvshm__sys = kvshm__sys_real;
    memset(pages, 1, 6 * 4096); /* four are touched by nobody */
    kvshm__numa_count(pages, UINT64_C(10) * 4096, 4096, counts);
    for (unsigned i = 0; i < KVSHM__NODES_MAX; i++)
        all += counts[i];
    if (all == 0)
        printf("SKIP test_real_pages: move_pages is refused\n");
    else
        ck_assert_uint_eq(all, 6);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("numa");
    TCase *tcase = tcase_create("numa");

    tcase_add_checked_fixture(tcase, setup, ts_teardown);
    tcase_add_test(tcase, test_interleaved);
    tcase_add_test(tcase, test_preferred);
    tcase_add_test(tcase, test_left_alone);
    tcase_add_test(tcase, test_nodes_that_are_not_there);
    tcase_add_test(tcase, test_hosts_that_refuse);
    tcase_add_test(tcase, test_values);
    tcase_add_test(tcase, test_real_calls);
    tcase_add_test(tcase, test_real_pages);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
