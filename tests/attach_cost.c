/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach_cost.c - what one attach costs, for attach_cost.sh
 *
 *   attach_cost create BYTES   makes the arena "cost" of that size
 *   attach_cost attach FLAGS   attaches to it between two calls of getppid, and prints its page faults
 *   attach_cost remove
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kvshm.h"

static int failed(void)
{
    fprintf(stderr, "%s\n", kvshm_errmsg(NULL));
    return 1;
}

static long faults(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

static int create(const char *bytes)
{
    struct kvshm_config config;
    kvshm *kv;

    kvshm_config_init(&config);
    config.geometry.page_bytes = 4096;
    config.memory_bytes = strtoull(bytes, NULL, 10);
    config.max_clients = 4;
    config.max_leases = 64;
    config.backing = KVSHM_BACKING_SMALL;
    if (kvshm_create("cost", &config, 0, &kv) < 0)
        return failed();
    return kvshm_detach(kv) < 0 ? failed() : 0;
}

static int attach(const char *flags)
{
    kvshm *kv, *first;
    long before, after;

    /* The first attach of a process also resolves symbols, and grows its heap. */
    if (kvshm_attach("cost", NULL, (unsigned)atoi(flags), &first) < 0 || kvshm_detach(first) < 0)
        return failed();
    before = faults();
    syscall(SYS_getppid);
    if (kvshm_attach("cost", NULL, (unsigned)atoi(flags), &kv) < 0)
        return failed();
    syscall(SYS_getppid);
    after = faults();
    printf("%ld\n", after - before);
    return kvshm_detach(kv) < 0 ? failed() : 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "create") == 0)
        return create(argv[2]);
    if (argc == 3 && strcmp(argv[1], "attach") == 0)
        return attach(argv[2]);
    return kvshm_unlink("cost", 0) < 0 ? failed() : 0;
}
