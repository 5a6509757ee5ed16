/* SPDX-License-Identifier: Apache-2.0 */
/* torture_audit.c - torture_audit NAME: audit.h of an arena in which nobody is inside a call; for bench_torture.sh */
#include <stdio.h>
#include <stdlib.h>

#include "audit.h"

int main(int argc, char **argv)
{
    kvshm *kv;
    unsigned found;

    if (argc != 2 || kvshm_attach(argv[1], NULL, KVSHM_RDONLY, &kv) < 0) {
        fprintf(stderr, "torture_audit: %s\n",
                argc == 2 ? kvshm_errmsg(NULL) : "one name is wanted");
        return EXIT_FAILURE;
    }
    found = audit(kv, stderr);
    kvshm_detach(kv);
    return found ? EXIT_FAILURE : EXIT_SUCCESS;
}
