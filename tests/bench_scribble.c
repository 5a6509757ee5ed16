/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_scribble NAME - write wrong bytes over all frames of an arena, again and again, until it is removed.
 *
 * It waits for the arena to appear; the exit status is 0 if it has written any. Who may write may damage: here it is
 * meant, to see that kvshm-bench tells.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "kvshm.h"

static void rest(void)
{
    struct timespec t = {.tv_nsec = 100000};

    nanosleep(&t, NULL);
}

static kvshm *attach(const char *name)
{
    kvshm *kv;
    int rc;

    for (int tries = 0; tries < 300000; tries++) {
        rc = kvshm_attach(name, NULL, 0, &kv);
        if (rc == 0)
            return kv;
        if (rc != -ENOENT)
            break;
        rest();
    }
    fprintf(stderr, "bench_scribble: %s\n", kvshm_errmsg(NULL));
    return NULL;
}

int main(int argc, char **argv)
{
    struct kvshm_info info;
    unsigned char *frames;
    uint64_t rounds = 0;
    kvshm *kv = argc == 2 ? attach(argv[1]) : NULL;

    if (!kv)
        return EXIT_FAILURE;
    kvshm_info_init(&info);
    if (kvshm_info(kv, &info) < 0)
        return EXIT_FAILURE;
    frames = (unsigned char *)info.write_base + info.frames_offset;
    for (; access(info.path, F_OK) == 0; rounds++)
        for (uint64_t i = 0; i < info.frames; i++)
            frames[i * info.frame_stride + rounds % info.page_bytes] ^= 0xff;
    kvshm_detach(kv);
    return rounds ? EXIT_SUCCESS : EXIT_FAILURE;
}
