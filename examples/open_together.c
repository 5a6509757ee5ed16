/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open_together - eight servers start at the same moment and open one arena by its name.
 *
 * None of them is told to be the first: kvshm_open attaches to the arena if it is there, and creates it if not.
 * One creates, seven attach, even where memory is too small for two arenas: creators take turns, and who waited for
 * its turn looks for the name again. Nobody sees a half-made arena.
 *
 * The arena takes 8 MiB; but where KVSHM_DIR has less than 64 MiB free, 60 of 100 bytes of that: there is then no
 * room for a second one, which is tried at the end.
 *
 * Exit status 0: all of this was seen to be so.
 */
#include <err.h>
#include <errno.h>
#include <kvshm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARENA       "example-open-together"
#define SERVERS     8
#define PAGE_TOKENS 4

static void check(bool right, const char *claim)
{
    if (!right)
        errx(1, "not so: %s; the last error was: %s", claim, kvshm_errmsg(NULL));
}

/* How large the arena shall be; *tight: there will be no room for a second one. */
static uint64_t choose_bytes(bool *tight)
{
    const char *dir = getenv("KVSHM_DIR");
    struct statvfs fs;

    *tight = dir != NULL && statvfs(dir, &fs) == 0 && fs.f_bavail * fs.f_frsize < 64 << 20;
    return *tight ? fs.f_bavail * fs.f_frsize / 100 * 60 : 8 << 20;
}

static void configure(struct kvshm_config *config, uint64_t bytes)
{
    kvshm_config_init(config);
    config->geometry.page_tokens = PAGE_TOKENS;
    config->geometry.page_bytes = 64;
    config->memory_bytes = bytes;
}

/* A prompt for each server. */
static void make_tokens(uint32_t server, uint32_t tokens[PAGE_TOKENS])
{
    for (uint32_t i = 0; i < PAGE_TOKENS; i++)
        tokens[i] = server * 100 + i;
}

static void cache_prompt(kvshm *kv, uint32_t server)
{
    uint32_t tokens[PAGE_TOKENS];
    struct kvshm_reservation r;
    struct kvshm_prefix prefix;

    make_tokens(server, tokens);
    kvshm_prefix_init(&prefix, 0, 0, tokens, PAGE_TOKENS);
    check(kvshm_reserve(kv, 1, 0, &r) == 0, "there is a frame");
    memset(kvshm_reservation_page(&r, 0), (int)server + 1, 64);
    check(kvshm_insert(kv, &prefix, NULL, &r, 0) == 0, "the prompt is cached");
}

/* What a server tells of its opening. */
struct result {
    uint64_t arena_id[2];
    bool created;
};

/* A server. The signal to start is the end of file on a pipe: it comes to all at once. */
static void server_main(uint32_t server, uint64_t bytes, int start, int results)
{
    struct kvshm_config config;
    struct kvshm_info info;
    char label[32], c;
    kvshm *kv;

    configure(&config, bytes);
    snprintf(label, sizeof(label), "server %u", server);
    config.label = label;
    check(read(start, &c, 1) == 0, "the start comes");
    check(kvshm_open(ARENA, &config, 0, &kv) == 0, "the arena can be opened");

    kvshm_info_init(&info);
    check(kvshm_info(kv, &info) == 0, "it says what it is");
    struct result result = {{info.arena_id[0], info.arena_id[1]},
                            info.creator_pid == (uint32_t)getpid()};
    check(write(results, &result, sizeof(result)) == sizeof(result), "the result is told");
    cache_prompt(kv, server);
    check(kvshm_detach(kv) == 0, "the server detaches");
    _exit(0);
}

/* Starts all servers, lets them go, and waits for them. */
static void run_servers(uint64_t bytes, struct result result[SERVERS])
{
    int start[2], results[2], status;
    pid_t pid[SERVERS];

    check(pipe(start) == 0 && pipe(results) == 0, "there are pipes");
    for (uint32_t i = 0; i < SERVERS; i++) {
        pid[i] = fork();
        check(pid[i] >= 0, "there is a process for the server");
        if (pid[i] == 0) {
            close(start[1]);
            server_main(i, bytes, start[0], results[1]);
        }
    }
    close(start[1]);
    close(results[1]);
    for (uint32_t i = 0; i < SERVERS; i++)
        check(waitpid(pid[i], &status, 0) == pid[i] && status == 0, "the server had no complaint");
    for (uint32_t i = 0; i < SERVERS; i++)
        check(read(results[0], &result[i], sizeof(result[i])) == sizeof(result[i]),
              "each has told");
}

/* Is the prompt of each server there? Looked at as an observer does: read-only, without a place or a lock. */
static void check_prompts(void)
{
    unsigned char page[64];
    uint32_t tokens[PAGE_TOKENS];
    struct kvshm_prefix prefix;
    kvshm *kv;

    check(kvshm_attach(ARENA, NULL, KVSHM_RDONLY, &kv) == 0, "an observer can attach");
    for (uint32_t i = 0; i < SERVERS; i++) {
        make_tokens(i, tokens);
        kvshm_prefix_init(&prefix, 0, 0, tokens, PAGE_TOKENS);
        check(kvshm_copy_out(kv, &prefix, 0, 1, page) == 1, "the server's prompt is cached");
        check(page[0] == i + 1 && page[63] == i + 1, "its page is as written");
    }
    check(kvshm_detach(kv) == 0, "the observer detaches");
}

int main(void)
{
    struct result result[SERVERS];
    struct kvshm_config config;
    uint32_t created = 0;
    bool tight;
    uint64_t bytes = choose_bytes(&tight);
    kvshm *kv;

    run_servers(bytes, result);
    for (uint32_t i = 0; i < SERVERS; i++) {
        created += result[i].created;
        check(memcmp(result[i].arena_id, result[0].arena_id, sizeof(result[0].arena_id)) == 0,
              "all servers have the same arena");
    }
    check(created == 1, "one server has created it");
    check_prompts();

    configure(&config, bytes);
    if (tight) {
        check(kvshm_create(ARENA "-2", &config, 0, &kv) == -ENOSPC,
              "there is no room for a second arena");
        printf("no room for a second arena: %s\n", kvshm_errmsg(NULL));
    }
    check(kvshm_unlink(ARENA, 0) == 0, "the arena is removed");
    printf("%d servers opened one name at the same moment: %u created, %u attached%s\n", SERVERS,
           created, SERVERS - created, tight ? ", in memory that fits one arena" : "");
    return 0;
}
