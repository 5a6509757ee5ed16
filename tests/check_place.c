/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_place.c - directories where arenas live: finding, opening, turns, removing, listing
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "layout.h"
#include "place.h"
#include "support.h"
#include "sys.h"

static struct kvshm__places places;
static char second_dir[KVSHM__PLACE_BYTES + 8];

static void setup(void)
{
    ts_setup();
    ts_is(kvshm__places_get(&places), 0);
    ck_assert_uint_eq(places.count, 1);
    ck_assert_str_eq(places.place[0].path, getenv("KVSHM_DIR"));
}

/* A second place, inside the first. */
static void add_place(void)
{
    places.count = 2;
    places.place[1] = places.place[0];
    snprintf(second_dir, sizeof(second_dir), "%s/second", places.place[0].path);
    ck_assert_uint_lt(strlen(second_dir), sizeof(places.place[1].path));
    memcpy(places.place[1].path, second_dir, strlen(second_dir) + 1);
    ck_assert_int_eq(mkdir(second_dir, 0700), 0);
}

static const char *path_in(unsigned place, const char *name)
{
    static char path[KVSHM__PATH_BYTES];

    snprintf(path, sizeof(path), "%s/%s", places.place[place].path, name);
    return path;
}

static void make_file(unsigned place, const char *name, const char *begins)
{
    FILE *file = fopen(path_in(place, name), "w");

    ck_assert_ptr_nonnull(file);
    fputs(begins, file);
    fclose(file);
}

START_TEST(test_places)
{
    char longest[KVSHM__PLACE_BYTES + 1];

    setenv("KVSHM_DIR", "relative/dir", 1);
    ts_is(kvshm__places_get(&places), -EINVAL);
    ts_says("KVSHM_DIR is \"relative/dir\"");
    memset(longest, 'd', sizeof(longest));
    longest[0] = '/';
    longest[KVSHM__PLACE_BYTES] = '\0';
    setenv("KVSHM_DIR", longest, 1);
    ts_is(kvshm__places_get(&places), -ENAMETOOLONG);
    setenv("KVSHM_DIR", "", 1);
    ts_is(kvshm__places_get(&places), 0);
    ck_assert_str_eq(places.place[places.count - 1].path, "/dev/shm");
    unsetenv("KVSHM_DIR");
    ts_is(kvshm__places_get(&places), 0);
    ck_assert_str_eq(places.place[places.count - 1].path, "/dev/shm");
}
END_TEST

START_TEST(test_find)
{
    struct kvshm__place_found found;

    ts_is(kvshm__place_find(&places, "a", &found), -ENOENT);
    ts_says("no arena \"a\"");
    make_file(0, "a", "");
    ts_is(kvshm__place_find(&places, "a", &found), 0);
    ck_assert_str_eq(found.path, path_in(0, "a"));
    add_place();
    ts_is(kvshm__place_find(&places, "a", &found), 0);
    make_file(1, "b", "");
    ts_is(kvshm__place_find(&places, "b", &found), 0);
    ck_assert_uint_eq(found.place, 1);
    make_file(1, "a", "");
    ts_is(kvshm__place_find(&places, "a", &found), KVSHM_E_CONFLICT);
    ts_says(path_in(0, "a"));
    ts_says(path_in(1, "a"));
    unlink(path_in(1, "a"));
    unlink(path_in(1, "b"));
    rmdir(second_dir);
    snprintf(places.place[0].path, sizeof(places.place[0].path), "/nowhere/at/all");
    places.count = 1;
    ts_is(kvshm__place_find(&places, "a", &found), -ENOENT);
    ts_says("directory /nowhere/at/all does not exist");
}
END_TEST

/* P2: no link is followed, nothing but a regular file opened; a FIFO blocks nobody. */
START_TEST(test_open)
{
    struct kvshm__place_found found;
    int fd;

    make_file(0, "file", "x");
    ck_assert_int_eq(symlink("file", path_in(0, "link")), 0);
    ck_assert_int_eq(mkfifo(path_in(0, "fifo"), 0600), 0);
    ck_assert_int_eq(mkdir(path_in(0, "dir"), 0700), 0);
    ts_is(kvshm__place_find(&places, "link", &found), 0);
    ts_is(kvshm__place_open(&found, true, &fd), -ELOOP);
    ck_assert_int_eq(fd, -1);
    ts_is(kvshm__place_find(&places, "fifo", &found), 0);
    ts_is(kvshm__place_open(&found, true, &fd), KVSHM_E_FORMAT);
    ts_is(kvshm__place_open(&found, false, &fd), KVSHM_E_FORMAT);
    ts_is(kvshm__place_find(&places, "dir", &found), 0);
    ts_is(kvshm__place_open(&found, false, &fd), KVSHM_E_FORMAT);
    ts_is(kvshm__place_find(&places, "file", &found), 0);
    ts_is(kvshm__place_open(&found, false, &fd), 0);
    ck_assert_int_eq(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);
    unlink(found.path);
    ts_is(kvshm__place_open(&found, true, &fd), -ENOENT);
}
END_TEST

static int open_as_nobody(void *arg)
{
    int fd;

    ts_need(setgid(65534) == 0 && setuid(65534) == 0);
    ts_need(kvshm__place_open(arg, true, &fd) == -EACCES);
    ts_need(strstr(kvshm_errmsg(NULL), "KVSHM_RDONLY") != NULL);
    ts_need(kvshm__place_open(arg, false, &fd) == 0);
    return 0;
}

START_TEST(test_open_without_permission)
{
    static struct kvshm__place_found found;

    if (geteuid() != 0) {
        printf("SKIP test_open_without_permission: not root\n");
        return;
    }
    make_file(0, "file", "x");
    chmod(path_in(0, "file"), 0644);
    chmod(places.place[0].path, 0755);
    /* The folders above may be closed to others. */
    ck_assert_int_eq(chdir(places.place[0].path), 0);
    snprintf(found.path, sizeof(found.path), "file");
    ck_assert_int_eq(ts_wait(ts_fork(open_as_nobody, &found)), 0);
    ck_assert_int_eq(chdir("/"), 0);
}
END_TEST

/* ---- Turns ------------------------------------------------------------------------------------------- */

static uint64_t fake_ns;
static unsigned sleeps;

static uint64_t fake_monotonic_ns(void)
{
    return fake_ns;
}

static int fake_sleep_ns(uint64_t ns)
{
    fake_ns += ns;
    sleeps++;
    return 0;
}

START_TEST(test_turns)
{
    struct kvshm__turn one, other;
    unsigned before = ts_fds();

    add_place();
    ts_is(kvshm__turn_take(&places, &one), 0);
    ck_assert_uint_eq(one.count, 2);
    kvshm__sys.monotonic_ns = fake_monotonic_ns;
    kvshm__sys.sleep_ns = fake_sleep_ns;
    fake_ns = 5;
    ts_is(kvshm__turn_take(&places, &other), KVSHM_E_BUSY_CREATORS);
    ts_says(places.place[0].path);
    ck_assert_uint_ge(fake_ns, UINT64_C(10000000000));
    ck_assert_uint_lt(fake_ns, UINT64_C(10100000000));
    ck_assert_uint_gt(sleeps, 10);
    ck_assert_uint_eq(other.count, 0);
    kvshm__turn_end(&one);
    ts_is(kvshm__turn_take(&places, &other), 0);
    kvshm__turn_end(&other);
    kvshm__turn_end(&other);
    ck_assert_uint_eq(ts_fds(), before);
    rmdir(second_dir);
}
END_TEST

static int hold_turn(void *arg)
{
    struct ts_gate *gates = arg;
    struct kvshm__turn turn;

    ts_need(kvshm__turn_take(&places, &turn) == 0);
    ts_gate_open(&gates[0]);
    ts_gate_wait(&gates[1]);
    return 0;
}

/* The turn of one who is killed is the next one's; so is that of one whose child lives on. */
START_TEST(test_turns_end_with_their_process)
{
    struct ts_gate gates[2];
    struct kvshm__turn turn;
    pid_t pid;

    ts_gate_make(&gates[0]);
    ts_gate_make(&gates[1]);
    pid = ts_fork(hold_turn, gates);
    ts_gate_wait(&gates[0]);
    ck_assert_int_eq(flock(open(places.place[0].path, O_RDONLY | O_CLOEXEC), LOCK_EX | LOCK_NB),
                     -1);
    ts_kill(pid);
    ts_is(kvshm__turn_take(&places, &turn), 0);
    pid = ts_fork((int (*)(void *))(uintptr_t)ts_gate_wait, &gates[1]);
    kvshm__turn_end(&turn);
    ts_is(kvshm__turn_take(&places, &turn), 0); /* the child has the first one's descriptor */
    kvshm__turn_end(&turn);
    ts_gate_open(&gates[1]);
    ts_wait(pid);
}
END_TEST

START_TEST(test_turn_without_directory)
{
    struct kvshm__turn turn;

    add_place();
    rmdir(second_dir);
    ts_is(kvshm__turn_take(&places, &turn), -ENOENT);
    ts_says(second_dir);
    ck_assert_uint_eq(turn.count, 0);
}
END_TEST

START_TEST(test_remove)
{
    struct kvshm__turn turn;
    int fd;

    make_file(0, "a", "x");
    ts_is(kvshm__turn_take(&places, &turn), 0);
    fd = open(path_in(0, "a"), O_RDONLY);
    unlink(path_in(0, "a"));
    ts_is(kvshm__place_remove(turn.dir[0], "a", fd), -ENOENT);
    make_file(0, "a", "y"); /* another file of the same name */
    ts_is(kvshm__place_remove(turn.dir[0], "a", fd), KVSHM_E_UNLINKED);
    ck_assert_int_eq(access(path_in(0, "a"), F_OK), 0);
    close(fd);
    fd = open(path_in(0, "a"), O_RDONLY);
    ts_is(kvshm__place_remove(turn.dir[0], "a", fd), 0);
    ck_assert_int_ne(access(path_in(0, "a"), F_OK), 0);
    close(fd);
    kvshm__turn_end(&turn);
}
END_TEST

/* ---- List -------------------------------------------------------------------------------------------- */

static int count_names(const char *name, const char *path, void *arg)
{
    unsigned *count = arg;

    ck_assert_ptr_nonnull(strstr(path, name));
    ck_assert_str_eq(strrchr(path, '/') + 1, name);
    return ++*count == 1000 ? 77 : 0;
}

START_TEST(test_list)
{
    unsigned count = 0, before = ts_fds();
    char name[32];

    make_file(0, "empty", "");
    make_file(0, "other", "something else");
    make_file(0, ".hidden", KVSHM__MAGIC);
    ck_assert_int_eq(mkfifo(path_in(0, "fifo"), 0600), 0);
    ck_assert_int_eq(symlink("arena0", path_in(0, "link")), 0);
    ts_is(kvshm__place_list(&places, count_names, &count), 0);
    ck_assert_uint_eq(count, 0);
    for (unsigned i = 0; i < 300; i++) {
        snprintf(name, sizeof(name), "arena%u", i);
        make_file(0, name, KVSHM__MAGIC);
    }
    ts_is(kvshm__place_list(&places, count_names, &count), 0);
    ck_assert_uint_eq(count, 300);
    count = 990;
    ts_is(kvshm__place_list(&places, count_names, &count), 77);
    ck_assert_uint_eq(count, 1000);
    ck_assert_uint_eq(ts_fds(), before);
    snprintf(places.place[0].path, sizeof(places.place[0].path), "/nowhere/at/all");
    ts_is(kvshm__place_list(&places, count_names, &count), -ENOENT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("place");
    TCase *tcase = tcase_create("place");

    tcase_add_checked_fixture(tcase, setup, ts_teardown);
    tcase_add_test(tcase, test_places);
    tcase_add_test(tcase, test_find);
    tcase_add_test(tcase, test_open);
    tcase_add_test(tcase, test_open_without_permission);
    tcase_add_test(tcase, test_turns);
    tcase_add_test(tcase, test_turns_end_with_their_process);
    tcase_add_test(tcase, test_turn_without_directory);
    tcase_add_test(tcase, test_remove);
    tcase_add_test(tcase, test_list);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
