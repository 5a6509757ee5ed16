/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hot_path.c - hits between two marks that a tracer sees; for hot_path_strace.sh
 *
 * hot_path HITS [noise]: the marks are calls of getsid, which the library does not make; noise adds a system call between
 * them, to show that the tracer sees one.
 */
#include <stdlib.h>
#include <unistd.h>

#include "hits.h"

int main(int argc, char **argv)
{
    uint32_t n = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
    kvshm *kv = NULL;
    bool hit = false;

    if (n == 0 || !hits_make("hot-path", &kv) || !hits(kv, 1000))
        return 1;
    getsid(0);
    hit = hits(kv, n);
    if (argc > 2)
        (void)getuid();
    getsid(0);
    if (kvshm_detach(kv) != 0 || kvshm_unlink("hot-path", 0) != 0)
        return 1;
    return !hit;
}
