/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_server NAME LABEL ACTION... - a client of an arena, for the tests of the tools. It does what it is told:
 *
 *   insert:TENANT:TOKENS      a prefix of TOKENS tokens: TENANT * 1000, and one more each
 *   key:BYTE:TOKENS           a key-only entry, whose key is BYTE and 31 zeros
 *   lease:TENANT:TOKENS:TAG   look the prefix up and keep the lease; with a tag unless it is 0
 *   hit:TENANT:TOKENS         look it up and release
 *   miss:TENANT:TOKENS        look it up in vain
 *   reserve:PAGES             and keep it
 *   device:PAGES              the same with KVSHM_DEVICE
 *   flush                     write all to the spill file
 *   pause                     print "PID NUMBER", and stay until a signal
 *
 * What does not go as expected ends it with 1 and a message. Without pause it ends without detaching from what it
 * holds, as a killed server does.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "kvshm.h"

#define TOKENS_MAX 4096

struct numbers {
    unsigned n[3];
};

static kvshm *kv;
static struct kvshm_info info;

static void expect(const char *action, int got, int wanted)
{
    if (got == wanted)
        return;
    fprintf(stderr, "%s: %d (%s), not %d: %s\n", action, got, kvshm_strerror(got), wanted,
            kvshm_errmsg(kv));
    exit(1);
}

static void make_prefix(struct kvshm_prefix *prefix, struct numbers numbers)
{
    static uint32_t tokens[TOKENS_MAX];

    for (unsigned i = 0; i < numbers.n[1] && i < TOKENS_MAX; i++)
        tokens[i] = numbers.n[0] * 1000 + i;
    kvshm_prefix_init(prefix, 0, numbers.n[0], tokens, numbers.n[1]);
}

static void insert(const char *action, const struct kvshm_prefix *prefix)
{
    uint32_t pages = kvshm_pages_for_tokens(prefix->n, info.geometry.page_tokens);
    struct kvshm_reservation reservation;

    expect(action, kvshm_reserve(kv, pages, 0, &reservation), 0);
    for (uint32_t i = 0; i < pages; i++)
        memset(kvshm_reservation_page(&reservation, i), 0, info.page_bytes);
    expect(action, kvshm_insert(kv, prefix, NULL, &reservation, 0), 0);
}

static void do_insert(const char *action, struct numbers numbers)
{
    struct kvshm_prefix prefix;

    make_prefix(&prefix, numbers);
    insert(action, &prefix);
}

static void do_key(const char *action, struct numbers numbers)
{
    uint8_t key[KVSHM_KEY_BYTES] = {(uint8_t)numbers.n[0]};
    struct kvshm_prefix prefix;

    kvshm_prefix_init_key(&prefix, 0, 0, key, numbers.n[1]);
    insert(action, &prefix);
}

static void do_lease(const char *action, struct numbers numbers)
{
    struct kvshm_prefix prefix;
    struct kvshm_lease lease;

    make_prefix(&prefix, numbers);
    expect(action, kvshm_lookup(kv, &prefix, 0, &lease), 0);
    if (numbers.n[2])
        kvshm_lease_tag(&lease, numbers.n[2]);
}

static void do_hit(const char *action, struct numbers numbers)
{
    struct kvshm_prefix prefix;
    struct kvshm_lease lease;

    make_prefix(&prefix, numbers);
    expect(action, kvshm_lookup(kv, &prefix, 0, &lease), 0);
    kvshm_release(kv, &lease);
}

static void do_miss(const char *action, struct numbers numbers)
{
    struct kvshm_prefix prefix;
    struct kvshm_lease lease;

    make_prefix(&prefix, numbers);
    expect(action, kvshm_lookup(kv, &prefix, 0, &lease), KVSHM_MISS);
}

static void do_reserve(const char *action, struct numbers numbers)
{
    struct kvshm_reservation reservation;

    expect(action, kvshm_reserve(kv, numbers.n[0], 0, &reservation), 0);
}

static void do_device(const char *action, struct numbers numbers)
{
    struct kvshm_reservation reservation;

    expect(action, kvshm_reserve(kv, numbers.n[0], KVSHM_DEVICE, &reservation), 0);
}

static void do_flush(const char *action, struct numbers numbers)
{
    (void)numbers;
    expect(action, kvshm_flush(kv), 0);
}

static void do_pause(const char *action, struct numbers numbers)
{
    (void)action;
    (void)numbers;
    printf("%ld %llu\n", (long)getpid(), (unsigned long long)info.client);
    fflush(stdout);
    pause();
}

static const struct {
    const char *name;
    int numbers;
    void (*run)(const char *action, struct numbers numbers);
} actions[] = {
    {"insert", 2, do_insert}, {"key", 2, do_key},     {"lease", 3, do_lease},
    {"hit", 2, do_hit},       {"miss", 2, do_miss},   {"reserve", 1, do_reserve},
    {"device", 1, do_device}, {"flush", 0, do_flush}, {"pause", 0, do_pause},
};

static void run(const char *action)
{
    size_t length = strcspn(action, ":");
    struct numbers numbers = {{0}};
    int found = sscanf(action + length, ":%u:%u:%u", &numbers.n[0], &numbers.n[1], &numbers.n[2]);

    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (strlen(actions[i].name) == length && strncmp(actions[i].name, action, length) == 0 &&
            actions[i].numbers == (found < 0 ? 0 : found)) {
            actions[i].run(action, numbers);
            return;
        }
    }
    fprintf(stderr, "%s: no such action\n", action);
    exit(1);
}

int main(int argc, char **argv)
{
    struct kvshm_config config;

    if (argc < 3)
        return 1;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    kvshm_config_init(&config);
    config.label = argv[2];
    expect("attach", kvshm_attach(argv[1], &config, 0, &kv), 0);
    kvshm_info_init(&info);
    expect("info", kvshm_info(kv, &info), 0);
    for (int i = 3; i < argc; i++)
        run(argv[i]);
    _exit(0);
}
