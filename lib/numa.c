/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numa.c - on which nodes the memory of a segment is.
 *
 * The policy is set by mbind on a mapping of the file, before anything of it is touched: the kernel keeps it with a file
 * of shared memory, for whoever touches a page first, and when a page comes back from swap. Files on a disk take no
 * policy.
 *
 * Preferring a node is a wish: where it has no room the kernel takes another. So pages are looked at afterwards, by those
 * who have touched them (populate.c), and what was had is said: a page of a preferred node on another makes it
 * KVSHM_NUMA_MIXED, and so does a node that holds less than half of its share of interleaved ones.
 *
 * Containers often forbid these calls (EPERM), and kernels without NUMA lack them (ENOSYS): who asked for nothing gets
 * what the system does by itself, who asked by name is told.
 */
#include "numa.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "message.h"
#include "sys.h"

#define SAMPLE    64 /* pages looked at, of each range */
#define SHARE_MIN 32 /* pages that a node would have of those counted, before less than half of it means anything */

bool kvshm__numa_valid(uint32_t value, bool asked)
{
    if (value <= KVSHM_NUMA_INTERLEAVE)
        return asked || value != KVSHM_NUMA_AUTO;
    if (value == KVSHM_NUMA_MIXED)
        return !asked;
    return value >= KVSHM_NUMA_NODE(0) && value < KVSHM_NUMA_NODE(KVSHM__NODES_MAX);
}

static bool has(const uint64_t *nodes, uint32_t node)
{
    return (nodes[node / 64] >> node % 64 & 1) != 0;
}

static unsigned count_of(const uint64_t *nodes)
{
    unsigned count = 0;

    for (unsigned i = 0; i < KVSHM__NODES_WORDS; i++)
        count += (unsigned)__builtin_popcountll(nodes[i]);
    return count;
}

/* The nodes as people write them: "0-3,8". */
static void write_list(const uint64_t *nodes, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t first = 0; first < KVSHM__NODES_MAX && used < size; first++) {
        uint32_t last = first;

        if (!has(nodes, first))
            continue;
        while (last + 1 < KVSHM__NODES_MAX && has(nodes, last + 1))
            last++;
        used += (size_t)snprintf(text + used, size - used, first == last ? "%s%u" : "%s%u-%u",
                                 used > 0 ? "," : "", first, last);
        first = last;
    }
}

/* ---- Set --------------------------------------------------------------------------------------------- */

static int refused(int code, const char *path, const char *what)
{
    if (code == -EPERM)
        return kvshm__fail(code,
                           "%s: config.numa asks for a policy, and the system forbids to set one (%s); "
                           "give the container CAP_SYS_NICE, or leave config.numa",
                           path, what);
    if (code == -ENOSYS)
        return kvshm__fail(-EOPNOTSUPP,
                           "%s: config.numa asks for a policy, and this kernel has none (%s); "
                           "leave config.numa",
                           path, what);
    return kvshm__fail(code, "%s: NUMA policy (%s): %s", path, what, kvshm_strerror(code));
}

/* Which policy asked means here. The nodes are known. */
static int choose(struct kvshm__numa *numa, const char *path)
{
    char list[128];
    uint32_t node = numa->asked - KVSHM_NUMA_NODE(0);

    if (numa->asked == KVSHM_NUMA_AUTO)
        numa->set = count_of(numa->nodes) > 1 ? KVSHM_NUMA_INTERLEAVE : KVSHM_NUMA_LOCAL;
    if (numa->asked < KVSHM_NUMA_NODE(0) || has(numa->nodes, node))
        return 0;
    write_list(numa->nodes, list, sizeof(list));
    return kvshm__fail(-EINVAL,
                       "%s: config.numa asks for node %u, and this process may have memory of "
                       "%s; name one of these",
                       path, node, list);
}

/* By a mapping that is not touched, and takes nothing of a pool. */
static int bind_file(int fd, uint64_t bytes, const struct kvshm__numa *numa)
{
    uint64_t node[KVSHM__NODES_WORDS] = {0};
    const uint64_t *nodes = numa->nodes;
    int mode = MPOL_INTERLEAVE, code;
    void *address;

    if (numa->set >= KVSHM_NUMA_NODE(0)) {
        uint32_t n = numa->set - KVSHM_NUMA_NODE(0);

        node[n / 64] = UINT64_C(1) << n % 64;
        nodes = node;
        mode = MPOL_PREFERRED;
    }
    code = kvshm__sys.map(bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, &address);
    if (code < 0)
        return code;
    code = kvshm__sys.policy_set(address, bytes, mode, nodes, KVSHM__NODES_WORDS);
    kvshm__sys.unmap(address, bytes);
    return code;
}

int kvshm__numa_set(int fd, uint64_t bytes, bool in_memory, uint32_t asked, const char *path,
                    struct kvshm__numa *numa)
{
    int code;

    *numa = (struct kvshm__numa){.asked = asked, .set = asked};
    if (asked == KVSHM_NUMA_AUTO || asked == KVSHM_NUMA_LOCAL)
        numa->set = KVSHM_NUMA_LOCAL;
    if (asked == KVSHM_NUMA_LOCAL || (asked == KVSHM_NUMA_AUTO && !in_memory))
        return 0;
    if (!in_memory)
        return kvshm__fail(-EOPNOTSUPP,
                           "%s is on a disk, whose pages take no NUMA policy; leave config.numa, "
                           "or set KVSHM_DIR to a folder in memory",
                           path);
    code = kvshm__sys.policy_allowed(numa->nodes, KVSHM__NODES_WORDS);
    if (code < 0)
        return asked == KVSHM_NUMA_AUTO ? 0 : refused(code, path, "get_mempolicy");
    code = choose(numa, path);
    if (code < 0 || numa->set == KVSHM_NUMA_LOCAL)
        return code;
    code = bind_file(fd, bytes, numa);
    if (code < 0 && asked == KVSHM_NUMA_AUTO) {
        numa->set = KVSHM_NUMA_LOCAL;
        return 0;
    }
    return code < 0 ? refused(code, path, "mbind") : 0;
}

/* ---- Look -------------------------------------------------------------------------------------------- */

void kvshm__numa_count(const void *base, uint64_t bytes, uint64_t page_size,
                       kvshm_a64 counts[KVSHM__NODES_MAX])
{
    void *pages[SAMPLE];
    int nodes[SAMPLE];
    unsigned n = 0;

    for (uint64_t at = 0; n < SAMPLE && at < bytes; at += page_size)
        pages[n++] = (void *)((uintptr_t)base + at);
    if (kvshm__sys.pages_where(pages, n, nodes) < 0)
        return;
    for (unsigned i = 0; i < n; i++) {
        if (nodes[i] >= 0 && nodes[i] < KVSHM__NODES_MAX)
            KVSHM__ADD(&counts[nodes[i]], 1);
    }
}

uint32_t kvshm__numa_had(const struct kvshm__numa *numa, const kvshm_a64 counts[KVSHM__NODES_MAX])
{
    uint32_t preferred = numa->set - KVSHM_NUMA_NODE(0);
    uint64_t all = 0, share;

    if (numa->set == KVSHM_NUMA_LOCAL)
        return numa->set;
    for (uint32_t node = 0; node < KVSHM__NODES_MAX; node++)
        all += KVSHM__LOAD((kvshm_a64 *)&counts[node]);
    if (numa->set != KVSHM_NUMA_INTERLEAVE)
        return KVSHM__LOAD((kvshm_a64 *)&counts[preferred]) == all ? numa->set : KVSHM_NUMA_MIXED;
    share = all / count_of(numa->nodes);
    for (uint32_t node = 0; share >= SHARE_MIN && node < KVSHM__NODES_MAX; node++) {
        if (has(numa->nodes, node) && KVSHM__LOAD((kvshm_a64 *)&counts[node]) < share / 2)
            return KVSHM_NUMA_MIXED;
    }
    return numa->set;
}
