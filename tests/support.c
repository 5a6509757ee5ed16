/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sys.h"

/* ---- Folder ------------------------------------------------------------------------------------------ */

static char dir_path[256];
static pid_t dir_owner;
static char *dir_before; /* KVSHM_DIR as it was */

/* Calls fn(path) for each name; the number of names. */
static unsigned each_name(const char *dir, void (*fn)(const char *path))
{
    char path[512];
    struct dirent *entry;
    unsigned n = 0;
    DIR *d = opendir(dir);

    if (d == NULL)
        return 0;
    while ((entry = readdir(d)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        n++;
        snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
        if (fn != NULL)
            fn(path);
    }
    closedir(d);
    return n;
}

static void remove_file(const char *path)
{
    if (remove(path) != 0)
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
}

const char *ts_dir(void)
{
    static bool registered;
    const char *base = getenv("TMPDIR");

    ts_dir_remove();
    if (base == NULL || base[0] != '/')
        base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(dir_path, sizeof(dir_path), "%s/kvshm-test.XXXXXX", base);
    ck_assert_ptr_nonnull(mkdtemp(dir_path));
    dir_owner = getpid();
    if (getenv("KVSHM_DIR") != NULL)
        dir_before = strdup(getenv("KVSHM_DIR"));
    ck_assert_int_eq(setenv("KVSHM_DIR", dir_path, 1), 0);
    if (!registered)
        atexit(ts_dir_remove);
    registered = true;
    return dir_path;
}

void ts_dir_remove(void)
{
    if (dir_path[0] == '\0' || dir_owner != getpid())
        return;
    each_name(dir_path, remove_file);
    remove_file(dir_path);
    dir_path[0] = '\0';
    if (dir_before != NULL)
        setenv("KVSHM_DIR", dir_before, 1);
    else
        unsetenv("KVSHM_DIR");
    free(dir_before);
    dir_before = NULL;
}

void ts_setup(void)
{
    ts_dir();
}

void ts_teardown(void)
{
    ts_fail_off();
    ts_dir_remove();
}

unsigned ts_dir_names(void)
{
    return each_name(dir_path, NULL);
}

int ts_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

/* ---- Arenas ------------------------------------------------------------------------------------------ */

void ts_is_at(const char *file, int line, int64_t code, int64_t wanted)
{
    if (code == wanted)
        return;
    ck_abort_msg("%s:%d: answer %lld (%s), wanted %lld (%s); message: %s", file, line,
                 (long long)code, code < 0 ? kvshm_strerror((int)code) : "", (long long)wanted,
                 wanted < 0 ? kvshm_strerror((int)wanted) : "", kvshm_errmsg(NULL));
}

void ts_says_at(const char *file, int line, const char *part)
{
    if (strstr(kvshm_errmsg(NULL), part) == NULL)
        ck_abort_msg("%s:%d: the message lacks \"%s\": %s", file, line, part, kvshm_errmsg(NULL));
}

struct kvshm_config ts_config(uint64_t page_bytes, uint32_t page_tokens, uint64_t frames)
{
    struct kvshm_config config;

    kvshm_config_init(&config);
    config.geometry.page_bytes = page_bytes;
    config.geometry.page_tokens = page_tokens;
    config.frames = frames;
    return config;
}

kvshm *ts_create(const char *name, const struct kvshm_config *config)
{
    kvshm *kv;

    ts_is(kvshm_create(name, config, 0, &kv), 0);
    return kv;
}

kvshm *ts_attach(const char *name, unsigned flags)
{
    kvshm *kv;

    ts_is(kvshm_attach(name, NULL, flags, &kv), 0);
    return kv;
}

void ts_detach(kvshm *kv)
{
    ts_is(kvshm_detach(kv), 0);
}

struct kvshm_stats ts_stats(kvshm *kv)
{
    struct kvshm_stats stats;

    kvshm_stats_init(&stats);
    ts_is(kvshm_stats(kv, &stats), 0);
    return stats;
}

int ts_insert(kvshm *kv, uint64_t adapter, uint64_t tenant, const uint32_t *tokens, uint32_t n)
{
    struct kvshm_reservation reservation;
    struct kvshm_prefix prefix;
    struct kvshm_info info;
    uint32_t page_tokens, pages;
    int outcome;

    kvshm_info_init(&info);
    ts_is(kvshm_info(kv, &info), 0);
    page_tokens = info.geometry.page_tokens;
    pages = kvshm_pages_for_tokens(n, page_tokens);
    ts_is(kvshm_reserve(kv, pages, 0, &reservation), 0);
    for (uint32_t i = 0; i < pages; i++) {
        uint32_t end = (i + 1) * page_tokens < n ? (i + 1) * page_tokens : n;

        ts_fill(kvshm_reservation_page(&reservation, i), info.page_bytes, adapter, tenant, tokens,
                end);
    }
    kvshm_prefix_init(&prefix, adapter, tenant, tokens, n);
    outcome = kvshm_insert(kv, &prefix, NULL, &reservation, 0);
    if (outcome < 0)
        ts_is(outcome, 0);
    return outcome;
}

/* ---- Content ----------------------------------------------------------------------------------------- */

static uint64_t stir(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t content_seed(uint64_t adapter, uint64_t tenant, const uint32_t *tokens, size_t n)
{
    uint64_t seed = stir(adapter + 1) ^ stir(tenant + UINT64_C(0x9e3779b97f4a7c15));

    for (size_t i = 0; i < n; i++)
        seed = stir(seed + tokens[i] + UINT64_C(0x9e3779b97f4a7c15));
    return seed;
}

/* Word i of the page's bytes. */
static uint64_t content_word(uint64_t seed, size_t i)
{
    return stir(seed + (i + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

void ts_fill(void *page, size_t page_bytes, uint64_t adapter, uint64_t tenant,
             const uint32_t *tokens, size_t n)
{
    uint64_t seed = content_seed(adapter, tenant, tokens, n);
    unsigned char *bytes = page;

    for (size_t at = 0; at < page_bytes; at += 8) {
        uint64_t word = content_word(seed, at / 8);

        memcpy(bytes + at, &word, page_bytes - at < 8 ? page_bytes - at : 8);
    }
}

size_t ts_filled(const void *page, size_t page_bytes, uint64_t adapter, uint64_t tenant,
                 const uint32_t *tokens, size_t n)
{
    uint64_t seed = content_seed(adapter, tenant, tokens, n);
    const unsigned char *bytes = page;
    size_t wrong = 0;

    for (size_t at = 0; at < page_bytes; at++) {
        uint64_t word = content_word(seed, at / 8);
        unsigned char wanted;

        memcpy(&wanted, (const unsigned char *)&word + at % 8, 1);
        wrong += bytes[at] != wanted;
    }
    return wrong;
}

/* ---- Processes --------------------------------------------------------------------------------------- */

pid_t ts_fork(int (*fn)(void *arg), void *arg)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        _exit(fn(arg));
    return pid;
}

int ts_wait(pid_t pid)
{
    int status;

    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void ts_kill(pid_t pid)
{
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ts_wait(pid);
}

void ts_stop(pid_t pid)
{
    int status;

    ck_assert_int_eq(kill(pid, SIGSTOP), 0);
    ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
    ck_assert(WIFSTOPPED(status));
}

void ts_continue(pid_t pid)
{
    ck_assert_int_eq(kill(pid, SIGCONT), 0);
}

void ts_need_at(const char *file, int line, const char *what, bool holds)
{
    if (holds)
        return;
    fprintf(stderr, "%s:%d: child %d: not %s; message: %s\n", file, line, getpid(), what,
            kvshm_errmsg(NULL));
    _exit(1);
}

void ts_gate_make(struct ts_gate *gate)
{
    ck_assert_int_eq(pipe(gate->fd), 0);
}

void ts_gate_open(struct ts_gate *gate)
{
    if (write(gate->fd[1], "", 1) != 1)
        abort();
}

bool ts_gate_wait(struct ts_gate *gate)
{
    char byte;
    ssize_t n;

    do
        n = read(gate->fd[0], &byte, 1);
    while (n < 0 && errno == EINTR);
    return n == 1;
}

void ts_gate_only_wait(struct ts_gate *gate)
{
    close(gate->fd[1]);
    gate->fd[1] = -1;
}

void ts_gate_close(struct ts_gate *gate)
{
    close(gate->fd[0]);
    if (gate->fd[1] >= 0)
        close(gate->fd[1]);
}

void *ts_shared(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ck_assert(memory != MAP_FAILED);
    return memory;
}

unsigned ts_fds(void)
{
    return each_name("/proc/self/fd", NULL);
}

/* Of files that are shared, and private pages of the library: what malloc does meanwhile is not counted. */
unsigned ts_maps(void)
{
    char line[1024];
    unsigned n = 0;
    FILE *maps = fopen("/proc/self/maps", "r");

    ck_assert_ptr_nonnull(maps);
    while (fgets(line, sizeof(line), maps) != NULL)
        n += strstr(line, "s 0") != NULL && strchr(line, '/') != NULL;
    fclose(maps);
    return n;
}

/* ---- Chance and amount ------------------------------------------------------------------------------- */

uint64_t ts_amount(uint64_t quick, uint64_t normal, uint64_t much)
{
    if (getenv("KVSHM_TEST_QUICK") != NULL)
        return quick;
    return getenv("KVSHM_TEST_LONG") != NULL ? much : normal;
}

uint64_t ts_seed(void)
{
    static uint64_t seed;
    const char *given = getenv("KVSHM_TEST_SEED");
    struct timespec now;

    if (seed != 0)
        return seed;
    clock_gettime(CLOCK_REALTIME, &now);
    seed = given != NULL ? strtoull(given, NULL, 0) : stir((uint64_t)now.tv_nsec + 1) >> 32;
    seed = seed != 0 ? seed : 1;
    printf("KVSHM_TEST_SEED=%llu\n", (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

uint64_t ts_random(uint64_t *state, uint64_t limit)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return stir(*state) % limit;
}

/* ---- Failing system calls ---------------------------------------------------------------------------- */

static unsigned fail_at, fail_made;
static int fail_error;
static const char *fail_name;

static bool fails(const char *name)
{
    if (++fail_made != fail_at)
        return false;
    fail_name = name;
    return true;
}

#define WRAP(name, parameters, arguments)                                \
    static int failing_##name parameters                                 \
    {                                                                    \
        bool fail = fails(#name);                                        \
        if (!fail || !strcmp(#name, "close") || !strcmp(#name, "unmap")) \
            return fail ? (kvshm__sys_real.name arguments, -fail_error)  \
                        : kvshm__sys_real.name arguments;                \
        return -fail_error;                                              \
    }
KVSHM__SYS_CALLS(WRAP)

void ts_fail_nth(unsigned n, int error)
{
    fail_at = n;
    fail_error = error;
    fail_made = 0;
    fail_name = NULL;
#define SET(name, parameters, arguments) kvshm__sys.name = failing_##name;
    KVSHM__SYS_CALLS(SET)
}

unsigned ts_fail_calls(void)
{
    return fail_made;
}

const char *ts_fail_name(void)
{
    return fail_name;
}

void ts_fail_off(void)
{
    kvshm__sys = kvshm__sys_real;
}
