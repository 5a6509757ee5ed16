/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_faults.c - every system call of the library fails at every occurrence, in every public call
 *
 * For each scene (faults_scenes.c), each call of sys.h and each errno of its line in faults.def: the stage is built
 * anew, the n-th such call of the step fails, for n = 1, 2, ... until the step has made fewer. Afterwards
 *
 * - the step has answered as if nothing had failed, or the errno, or another error that the scene names, and a failure
 *   has left its own sentence, with the reason in it;
 * - no descriptor, mapping, name, lock, or byte of private memory is there that was not before;
 * - audit() finds nothing, the same step works now, and all frames can be had.
 *
 * With the first errno of a line, and in the long form with all, the calls after the n-th fail, too. Of scenes that make
 * the calls of an earlier one over again, only the long form tries more than that errno.
 */
#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "private.h"
#include "ring.h"
#include "sys.h"

/* ---- The calls and how they fail ----------------------------------------------------------------------------- */

enum call {
#define CALL(name, parameters, arguments) CALL_##name,
    KVSHM__SYS_CALLS(CALL)
#undef CALL
        CALLS
};

static const char *const call_names[CALLS] = {
#define CALL(name, parameters, arguments) #name,
    KVSHM__SYS_CALLS(CALL)
#undef CALL
};

#define SHORT 1000000

struct row {
    const char *name;
    const int *errors; /* ends with 0 */
};

static const struct row rows[] = {
#define FAULT(name, ...) {#name, (const int[]){__VA_ARGS__, 0}},
#include "faults.def"
#undef FAULT
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static const struct row *row_of(const char *name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

/* A step that makes more calls than this goes round in a circle. */
#define CALLS_MAX 100000

/* What fails: the nth (from 1) occurrence of call, and with on those after it. */
struct fault {
    enum call call;
    int error;
    unsigned nth;
    bool on;
};

static struct fault fault; /* as it was asked for */
static bool armed;

/* Of this run; shared with the child processes that take memory for an arena. */
static struct {
    _Atomic unsigned made[CALLS];
    bool failed;
} * run_of;

/* What became of each call in all scenes; shared with the processes of all cases. */
static struct {
    bool made[CALLS], failed[CALLS];
} * seen;
void (*faults_on_sleep)(void);

/* Bytes that the library has mapped and not given back. */
static int64_t mapped_bytes;

static bool fails(enum call call)
{
    unsigned nth = ++run_of->made[call];

    seen->made[call] = true;
    ck_assert_msg(nth < CALLS_MAX, "%u calls of %s when %s, call %u, fails by %d", nth,
                  call_names[call], fault.call < CALLS ? call_names[fault.call] : "none", fault.nth,
                  fault.error);
    if (!armed || call != fault.call || (fault.on ? nth < fault.nth : nth != fault.nth))
        return false;
    run_of->failed = true;
    seen->failed[call] = true;
    return true;
}

static int failure(void)
{
    return fault.error == SHORT ? 1 : -fault.error;
}

static int64_t whole_pages(uint64_t bytes)
{
    return (int64_t)((bytes + 4095) & ~UINT64_C(4095));
}

static int counted_map(uint64_t size, int protection, int flags, int fd, void **out)
{
    int code = kvshm__sys_real.map(size, protection, flags, fd, out);

    mapped_bytes += code == 0 ? whole_pages(size) : 0;
    return code;
}

static int counted_unmap(void *address, uint64_t size)
{
    int code = kvshm__sys_real.unmap(address, size);

    mapped_bytes -= code == 0 ? whole_pages(size) : 0;
    return code;
}

/* The real ones, mappings counted. */
static struct kvshm__sys real;

#define WRAP(name, parameters, arguments)                                    \
    static int wrapped_##name parameters                                     \
    {                                                                        \
        bool fail = fails(CALL_##name);                                      \
        int code = 0;                                                        \
        if (CALL_##name == CALL_sleep_ns && faults_on_sleep != NULL)         \
            faults_on_sleep();                                               \
        if (!fail || CALL_##name == CALL_close || CALL_##name == CALL_unmap) \
            code = real.name arguments;                                      \
        return fail ? failure() : code;                                      \
    }
KVSHM__SYS_CALLS(WRAP)

/* Transfers are made by pread and pwrite; check_engine fails the calls of liburing. */
static int no_ring(unsigned entries, struct io_uring *uring, struct io_uring_params *params)
{
    (void)entries, (void)uring, (void)params;
    return -ENOSYS;
}

static void wrap(void)
{
    if (kvshm__uring != NULL)
        kvshm__uring->queue_init_params = no_ring;
    real = kvshm__sys_real;
    real.map = counted_map;
    real.unmap = counted_unmap;
#define SET(name, parameters, arguments) kvshm__sys.name = wrapped_##name;
    KVSHM__SYS_CALLS(SET)
#undef SET
}

static void arm(const struct fault *which)
{
    fault = *which;
    memset(run_of, 0, sizeof(*run_of));
    armed = true;
}

/* ---- What must not leak ---------------------------------------------------------------------------------------- */

struct held {
    char fds[2048];       /* what the descriptors lead to */
    char names[256];      /* of the folder */
    unsigned file_maps;   /* mappings of files that the kernel shows */
    int64_t mapped_bytes; /* that the library has not given back */
    unsigned locks;       /* of the arenas' bytes */
    uint64_t private_bytes;
};

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A file without a name is called by its inode, and each has another. */
static void unnumber(char *target)
{
    char *number = strstr(target, "/#");

    if (number != NULL)
        memmove(number + 2, number + 2 + strspn(number + 2, "0123456789"),
                strlen(number + 1 + strspn(number + 2, "0123456789")));
}

static void see_fds(char *out, size_t size)
{
    char path[64], target[256], *lines[64];
    size_t n = 0, at = 0;

    for (int fd = 0; fd < 64; fd++) {
        ssize_t length;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        length = readlink(path, target, sizeof(target) - 1);
        if (length < 0)
            continue;
        target[length] = '\0';
        unnumber(target);
        lines[n++] = strdup(target);
    }
    qsort(lines, n, sizeof(lines[0]), by_text);
    out[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        at += (size_t)snprintf(out + at, at < size ? size - at : 0, "%s\n", lines[i]);
        free(lines[i]);
    }
    ck_assert_uint_lt(at, size);
}

static int open_in_folder(const char *name, int flags)
{
    char path[300];

    snprintf(path, sizeof(path), "%s/%s", getenv("KVSHM_DIR"), name);
    return open(path, flags | O_CLOEXEC);
}

/* Locks of others between two bytes of the file, each asked for where the last one was not. */
static unsigned locks_between(int fd, off_t start, off_t end)
{
    struct flock lock = {
        .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = end - start};

    if (start >= end)
        return 0;
    ck_assert_int_eq(fcntl(fd, F_OFD_GETLK, &lock), 0);
    if (lock.l_type == F_UNLCK)
        return 0;
    return 1 + locks_between(fd, start, lock.l_start) +
           locks_between(fd, lock.l_start + lock.l_len, end);
}

static unsigned locks_of(const char *name)
{
    off_t first = (off_t)KVSHM__LOCK_BASE;
    int fd = open_in_folder(name, O_RDONLY);
    unsigned n;

    if (fd < 0)
        return 0;
    n = locks_between(fd, 0, first + 4096);
    close(fd);
    return n;
}

static bool turn_is_free(void)
{
    int fd = open_in_folder(".", O_RDONLY);
    bool is_free = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;

    close(fd);
    return is_free;
}

static bool is_there(const char *name)
{
    char path[300];

    snprintf(path, sizeof(path), "%s/%s", getenv("KVSHM_DIR"), name);
    return access(path, F_OK) == 0;
}

static struct held see(void)
{
    struct held held = {.file_maps = ts_maps(),
                        .mapped_bytes = mapped_bytes,
                        .locks = locks_of("a") + locks_of("b")};

    see_fds(held.fds, sizeof(held.fds));
    snprintf(held.names, sizeof(held.names), "%u names, a is %sthere, b is %sthere", ts_dir_names(),
             !is_there("a") ? "not " : "", !is_there("b") ? "not " : "");
    held.private_bytes = kvshm__private_bytes();
    return held;
}

/* ---- One run ------------------------------------------------------------------------------------------------------ */

static const struct scene *scene;

#define HOLDS(condition, ...)                                                                    \
    do {                                                                                         \
        if (!(condition))                                                                        \
            ck_abort_msg("%s, %s call %u%s answers %s: %s", scene->name, call_names[fault.call], \
                         fault.nth, fault.on ? " and all after it" : "",                         \
                         fault.error == SHORT ? "1" : strerror(fault.error), text(__VA_ARGS__)); \
    } while (0)

static const char *text(const char *format, ...)
{
    static char words[4096];
    va_list args;

    va_start(args, format);
    vsnprintf(words, sizeof(words), format, args);
    va_end(args);
    return words;
}

static void same_held(const struct held *before)
{
    struct held after = see();

    HOLDS(strcmp(after.fds, before->fds) == 0, "descriptors were\n%sand are\n%s", before->fds,
          after.fds);
    HOLDS(strcmp(after.names, before->names) == 0, "there were %s; there are %s", before->names,
          after.names);
    HOLDS(after.file_maps == before->file_maps, "%u files mapped, were %u", after.file_maps,
          before->file_maps);
    HOLDS(after.mapped_bytes == before->mapped_bytes, "%" PRId64 " bytes mapped, were %" PRId64,
          after.mapped_bytes, before->mapped_bytes);
    HOLDS(after.locks == before->locks, "%u locks, were %u", after.locks, before->locks);
    HOLDS(turn_is_free(), "the folder is locked");
    HOLDS(after.private_bytes == before->private_bytes,
          "%" PRIu64 " bytes of private memory, were %" PRIu64, after.private_bytes,
          before->private_bytes);
}

/* May the step answer so? */
static bool expected(int64_t code)
{
    if (code == scene->answer || code == failure())
        return true;
    for (const int64_t *answer = scene->answers; answer != NULL && *answer != 0; answer++)
        if (code == *answer)
            return true;
    return false;
}

/* A sentence of its own, that says what the code says or what is to be done. */
static void told(int64_t code)
{
    const char *said = kvshm_errmsg(NULL);

    HOLDS(strcmp(said, kvshm_strerror((int)code)) != 0 && strstr(said, "(null)") == NULL &&
              strlen(said) > 10,
          "%" PRId64 ", told so: %s", code, said);
    HOLDS(strstr(said, "marker") == NULL, "%" PRId64 " has no sentence", code);
    if (code >= -4095 && code == failure())
        HOLDS(strstr(said, kvshm_strerror((int)code)) != NULL || strchr(said, ';') != NULL,
              "%" PRId64 " is told without reason and remedy: %s", code, said);
}

static void mark_sentence(void)
{
    kvshm *kv;

    ck_assert_int_eq(kvshm_attach("marker/of/no/name", NULL, 0, &kv), -EINVAL);
    ck_assert_ptr_nonnull(strstr(kvshm_errmsg(NULL), "marker"));
}

static void audited(const struct stage *s)
{
    char *findings = NULL;
    size_t size;
    FILE *out;
    const kvshm *kv = s->kv != NULL ? s->kv : s->other;
    unsigned n;

    if (kv == NULL || kv->header->lock.word != 0)
        return;
    out = open_memstream(&findings, &size);
    n = audit(kv, out);
    fclose(out);
    HOLDS(n == 0, "%s", findings);
    free(findings);
}

/* An arena b, the one that is there or a new one, does all that it should, and all its frames can be had. */
static void still_works(void)
{
    struct kvshm_config config = faults_config();
    struct kvshm_prefix prefix = in_range(400, 12);
    struct kvshm_reservation all;
    kvshm *kv = NULL;
    int code = kvshm_open("b", &config, 0, &kv);

    if (code == 0 && kv->header->has_fingerprint && !kv->named_fingerprint) {
        ts_detach(kv);
        config.fingerprint[0] = 9;
        code = kvshm_open("b", &config, 0, &kv);
    }
    HOLDS(code == 0, "then the arena cannot be opened: %s", kvshm_errmsg(NULL));
    in_put(kv, 400, 12);
    in_hit(kv, &prefix);
    ts_is(kvshm_clear(kv), 0);
    code = kvshm_reserve(kv, FAULTS_FRAMES, 0, &all);
    HOLDS(code == 0, "frames are lost: %s", kvshm_errmsg(NULL));
    kvshm_cancel(kv, &all);
    ts_detach(kv);
}

/* ---- Runs -------------------------------------------------------------------------------------------------------- */

/* What is held after the step when nothing fails, and its undo. */
static struct held after_success;

static unsigned runs;

/* How many of each call the step makes then. */
static unsigned makes[CALLS];

/* The step again, now that nothing fails. */
static void again(struct stage *s)
{
    int64_t code = scene->step(s);

    HOLDS(code == scene->answer, "then the same call is answered %" PRId64 ": %s", code,
          kvshm_errmsg(NULL));
    if (code >= 0)
        scene->undo(s);
    same_held(&after_success);
    audited(s);
}

static void build(struct stage *s)
{
    memset(s, 0, sizeof(*s));
    scene->before(s);
    mark_sentence();
}

static void leave(struct stage *s, const struct held *bare)
{
    faults_leave(s);
    still_works();
    ts_is(kvshm_unlink("b", 0), 0);
    faults_remove(FAULTS_SPILL);
    same_held(bare);
}

/* One run; false: the step has made fewer such calls. */
static bool run(const struct fault *with)
{
    struct held bare = see(), before;
    struct stage s;
    int64_t code;
    bool refused;

    runs++;
    build(&s);
    before = see();
    arm(with);
    code = scene->step(&s);
    armed = false;
    refused = code < 0 && code != scene->answer;
    HOLDS(expected(code), "%" PRId64 " (%s): %s", code, code < 0 ? kvshm_strerror((int)code) : "",
          kvshm_errmsg(NULL));
    HOLDS(code >= 0 || s.made == NULL, "%" PRId64 " leaves a handle", code);
    if (code < 0)
        told(code);
    audited(&s);
    if (code >= 0)
        scene->undo(&s);
    same_held(refused ? &before : &after_success);
    if (refused)
        again(&s);
    leave(&s, &bare);
    return run_of->failed;
}

static void learn(void)
{
    static const struct fault none = {.call = CALLS};
    struct held bare = see();
    struct stage s;
    int64_t code;

    build(&s);
    arm(&none);
    code = scene->step(&s);
    armed = false;
    for (enum call call = 0; call < CALLS; call++)
        makes[call] = run_of->made[call];
    if (scene->large && code < 0) {
        printf("%s: %s\n", scene->name, kvshm_errmsg(NULL));
        memset(makes, 0, sizeof(makes));
    } else {
        ts_is(code, scene->answer);
    }
    if (code >= 0)
        scene->undo(&s);
    after_success = see();
    leave(&s, &bare);
}

static void each_occurrence(enum call call, int error, bool on)
{
    struct fault with = {.call = call, .error = error, .on = on};

    do
        with.nth++;
    while (run(&with));
}

/* Whoever is told so again and again tries again for ever, or for as long as it may wait: the file never ends. */
static bool means_again(int error)
{
    return error == EINTR || error == EAGAIN || error == SHORT;
}

static void each_errno(enum call call, const int *errors, bool few)
{
    for (unsigned i = 0; errors[i] != 0; i++) {
        if (few && i > 0 && errors[i] != SHORT)
            continue;
        each_occurrence(call, errors[i], false);
        if ((i == 0 || ts_amount(0, 0, 1)) && !means_again(errors[i]))
            each_occurrence(call, errors[i], true);
    }
}

START_TEST(test_each_call_fails)
{
    scene = &faults_scenes[_i];
    wrap();
    learn();
    for (enum call call = 0; call < CALLS; call++) {
        const struct row *row = row_of(call_names[call]);

        if (makes[call] > 0 && row != NULL)
            each_errno(call, row->errors, ts_amount(1, scene->again, 0));
    }
    printf("%s: %u runs\n", scene->name, runs);
}
END_TEST

/* ---- The table is whole --------------------------------------------------------------------------------------------- */

/* A call that sys.h has gained needs its line in faults.def, and one that it has lost needs none. */
START_TEST(test_every_call_is_in_the_table)
{
    for (enum call call = 0; call < CALLS; call++)
        ck_assert_msg(row_of(call_names[call]) != NULL,
                      "sys.h has %s, and faults.def has no line of it", call_names[call]);
    for (size_t i = 0; i < ROWS; i++) {
        bool known = false;

        for (enum call call = 0; call < CALLS; call++)
            known = known || strcmp(rows[i].name, call_names[call]) == 0;
        ck_assert_msg(known, "faults.def has %s, and sys.h has not", rows[i].name);
    }
    ck_assert_uint_eq(ROWS, CALLS);
}
END_TEST

/* Besides them there are those five that cannot fail. */
START_TEST(test_no_call_is_outside_the_table)
{
    ck_assert_uint_eq(sizeof(struct kvshm__sys), (CALLS + 5) * sizeof(void (*)(void)));
}
END_TEST

/* Calls that sys.h has and no scene here makes. */
static bool made_by_nobody(const char *name)
{
    static const char *const names[] = {"device_bytes", "pages_where", "policy_set", "punch",
                                        "truncate"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* The scenes come to every call of the table, and it has failed in one of them. */
START_TEST(test_every_call_has_failed)
{
    for (enum call call = 0; call < CALLS; call++)
        ck_assert_msg(seen->failed[call] ||
                          call == CALL_child_kill || /* made after a failure only */
                          (!seen->made[call] && made_by_nobody(call_names[call])),
                      "%s has failed in no scene", call_names[call]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("faults");
    TCase *tcase = tcase_create("faults");
    int small_count = 0;

    seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    run_of = mmap(NULL, sizeof(*run_of), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED || run_of == MAP_FAILED)
        return 99;
    while (small_count < (int)faults_scene_count && !faults_scenes[small_count].large)
        small_count++;
    if (ts_amount(0, 0, 1) != 0) {
        TCase *large = tcase_create("large");
        tcase_add_checked_fixture(large, ts_setup, ts_teardown);
        tcase_add_loop_test(large, test_each_call_fails, small_count, (int)faults_scene_count);
        suite_add_tcase(suite, large);
    }
    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_every_call_is_in_the_table);
    tcase_add_test(tcase, test_no_call_is_outside_the_table);
    tcase_add_loop_test(tcase, test_each_call_fails, 0, small_count);
    tcase_add_test(tcase, test_every_call_has_failed); /* after all others */
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
