/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_host.c - a C program that uses the library as its users do; for load.sh and musl.sh, which compile it for each host
 *
 *   load_host plain       a life of an arena, a forked child; the library's memory is on the C library
 *   load_host jemalloc    the same; its memory is in an arena of jemalloc's, whose statistics show it
 *   load_host fill        makes the arena "host", and leaves 100 prompts in it
 *   load_host read        reads them all as another process, perhaps of another C library, and adds as many
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvshm.h>

#define PROMPTS 100
#define MORE    1000

extern int mallctl(const char *name, void *old, size_t *old_size, void *fresh, size_t fresh_size)
    __attribute__((weak));

#define NEED(condition)                                                                                  \
    do {                                                                                                 \
        if (!(condition))                                                                                \
            return fprintf(stderr, "line %d: not %s: %s\n", __LINE__, #condition, kvshm_errmsg(NULL)), 1; \
    } while (0)

static struct kvshm_config config_of_host(void)
{
    struct kvshm_config config;

    kvshm_config_init(&config);
    config.geometry.page_bytes = 64;
    config.geometry.page_tokens = 4;
    config.frames = 4 * MORE;
    return config;
}

static struct kvshm_prefix prompt(uint32_t tokens[8], uint32_t number)
{
    struct kvshm_prefix prefix;

    for (uint32_t i = 0; i < 8; i++)
        tokens[i] = number + i;
    kvshm_prefix_init(&prefix, 0, 0, tokens, 8);
    return prefix;
}

static int put(kvshm *kv, uint32_t number)
{
    uint32_t tokens[8];
    struct kvshm_prefix prefix = prompt(tokens, number);
    struct kvshm_reservation r;

    NEED(kvshm_reserve(kv, 2, 0, &r) == 0);
    memset(kvshm_reservation_page(&r, 0), (int)number, 64);
    memset(kvshm_reservation_page(&r, 1), (int)number + 1, 64);
    NEED(kvshm_insert(kv, &prefix, NULL, &r, 0) == 0);
    return 0;
}

static int see(kvshm *kv, uint32_t number)
{
    uint32_t tokens[8];
    struct kvshm_prefix prefix = prompt(tokens, number);
    struct kvshm_lease lease;
    const unsigned char *page;

    NEED(kvshm_match(kv, &prefix, 0, &lease) == 0);
    NEED(lease.tokens == 8);
    for (uint32_t i = 0; i < 2; i++) {
        page = kvshm_lease_page(&lease, i);
        NEED(page[0] == (unsigned char)(number + i) && page[63] == page[0]);
    }
    kvshm_release(kv, &lease);
    return 0;
}

static int forked(kvshm *kv)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        NEED(kvshm_clear(kv) == KVSHM_E_FORKED);
        NEED(kvshm_detach(kv) == 0);
        NEED(kvshm_attach("host", NULL, 0, &kv) == 0);
        NEED(see(kv, 1) == 0);
        NEED(kvshm_detach(kv) == 0);
        _exit(0);
    }
    NEED(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    return see(kv, 1);
}

/* Bytes that jemalloc counts in its arena. */
static uint64_t allocated(int64_t arena)
{
    static const char *const kinds[] = {"small", "large"};
    uint64_t epoch = 1, sum = 0;
    size_t size = sizeof(epoch);

    mallctl("epoch", &epoch, &size, &epoch, sizeof(epoch));
    for (int i = 0; i < 2; i++) {
        char name[64];
        size_t bytes = 0;

        size = sizeof(bytes);
        snprintf(name, sizeof(name), "stats.arenas.%d.%s.allocated", (int)arena, kinds[i]);
        if (mallctl(name, &bytes, &size, NULL, 0) != 0)
            return 0;
        sum += bytes;
    }
    return sum;
}

static int memory(kvshm *kv, int jemalloc)
{
    struct kvshm_stats stats;

    kvshm_stats_init(&stats);
    NEED(kvshm_stats(kv, &stats) == 0);
    NEED(stats.private_bytes > 0);
    NEED((mallctl != NULL) == jemalloc);
    if (!jemalloc) {
        NEED(stats.private_arena == -1);
        return 0;
    }
    NEED(stats.private_arena > 0);
    NEED(allocated(stats.private_arena) >= stats.private_bytes);
    NEED(allocated(stats.private_arena) <= 2 * stats.private_bytes + 4096);
    return 0;
}

static int life(int jemalloc)
{
    struct kvshm_config config = config_of_host();
    kvshm *kv, *none;

    NEED(kvshm_attach("host", NULL, 0, &none) < 0);
    NEED(strstr(kvshm_errmsg(NULL), "no arena \"host\"") != NULL);
    NEED(strcmp(kvshm_strerror(-2), "No such file or directory") == 0);
    NEED(kvshm_create("host", &config, 0, &kv) == 0);
    NEED(put(kv, 1) == 0 && see(kv, 1) == 0);
    NEED(forked(kv) == 0);
    NEED(memory(kv, jemalloc) == 0);
    NEED(kvshm_evict_lru(kv) == 2);
    NEED(kvshm_detach(kv) == 0);
    NEED(kvshm_unlink("host", 0) == 0);
    return 0;
}

static int fill(void)
{
    struct kvshm_config config = config_of_host();
    kvshm *kv;

    NEED(kvshm_create("host", &config, 0, &kv) == 0);
    for (uint32_t i = 0; i < PROMPTS; i++)
        NEED(put(kv, 100 * i) == 0);
    NEED(kvshm_detach(kv) == 0);
    return 0;
}

static int read_all(void)
{
    kvshm *kv;

    NEED(kvshm_attach("host", NULL, 0, &kv) == 0);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        NEED(see(kv, 100 * i) == 0);
        NEED(put(kv, 100000 + 100 * i) == 0 && see(kv, 100000 + 100 * i) == 0);
    }
    NEED(kvshm_detach(kv) == 0);
    NEED(kvshm_unlink("host", 0) == 0);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";

    if (strcmp(what, "fill") == 0)
        return fill();
    if (strcmp(what, "read") == 0)
        return read_all();
    return strcmp(what, "plain") == 0 ? life(0) : strcmp(what, "jemalloc") == 0 ? life(1) : 2;
}
