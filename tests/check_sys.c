/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_sys.c - system calls answer -errno, keep errno, and can be replaced
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support.h"
#include "sys.h"

static int open_file(const char *name)
{
    char path[300];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", getenv("KVSHM_DIR"), name);
    fd = kvshm__sys.open(path, O_RDWR | O_CREAT, 0600);
    ck_assert_int_ge(fd, 0);
    return fd;
}

START_TEST(test_errors_are_answers)
{
    struct stat status;
    char byte;

    errno = EXDEV;
    ck_assert_int_eq(kvshm__sys.open("/nowhere/at/all", O_RDONLY, 0), -ENOENT);
    ck_assert_int_eq(kvshm__sys.fstat(-1, &status), -EBADF);
    ck_assert_int_eq(kvshm__sys.pread(-1, &byte, 1, 0), -EBADF);
    ck_assert_int_eq(kvshm__sys.close(-1), -EBADF);
    ck_assert_int_eq(errno, EXDEV);
}
END_TEST

START_TEST(test_locks_belong_to_descriptions)
{
    int one = open_file("locks"), two = open_file("locks"), copy;
    uint64_t far = UINT64_C(1) << 50;

    ck_assert_int_eq(kvshm__sys.lock_set(one, F_WRLCK, far + 7, 1), 0);
    ck_assert_int_eq(kvshm__sys.lock_set(two, F_WRLCK, far + 7, 1), -EAGAIN);
    ck_assert_int_eq(kvshm__sys.lock_set(two, F_WRLCK, far + 8, 1), 0);
    ck_assert_int_eq(kvshm__sys.lock_ask(two, F_RDLCK, far + 7, 1), 1);
    ck_assert_int_eq(kvshm__sys.lock_ask(one, F_RDLCK, far + 7, 1), 0);
    ck_assert_int_eq(kvshm__sys.lock_ask(one, F_RDLCK, far, 0), 1);
    copy = dup(one);
    ck_assert_int_eq(kvshm__sys.close(one), 0);
    ck_assert_int_eq(kvshm__sys.lock_ask(two, F_RDLCK, far + 7, 1), 1);
    ck_assert_int_eq(kvshm__sys.close(copy), 0);
    ck_assert_int_eq(kvshm__sys.lock_ask(two, F_RDLCK, far + 7, 1), 0);
    kvshm__sys.close(two);
}
END_TEST

START_TEST(test_space_and_map)
{
    int fd = open_file("space");
    struct stat status;
    void *memory;

    ck_assert_int_eq(kvshm__sys.space(fd, 0, 8192), 0);
    ck_assert_int_eq(kvshm__sys.fstat(fd, &status), 0);
    ck_assert_int_eq(status.st_size, 8192);
    ck_assert_int_eq(kvshm__sys.map(8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, &memory), 0);
    memcpy(memory, "kvshm", 5);
    ck_assert_int_eq(kvshm__sys.unmap(memory, 8192), 0);
    char text[5];
    ck_assert_int_eq(kvshm__sys.pread(fd, text, 5, 0), 5);
    ck_assert_mem_eq(text, "kvshm", 5);
    ck_assert_int_eq(kvshm__sys.map(0, PROT_READ, MAP_SHARED, fd, &memory), -EINVAL);
    kvshm__sys.close(fd);
}
END_TEST

START_TEST(test_futex_and_clocks)
{
    uint32_t word = 5;
    uint64_t before = kvshm__sys.monotonic_ns();
    unsigned char random[16] = {0}, zero[16] = {0};

    ck_assert_int_eq(kvshm__sys.futex_wait(&word, 4, 1000000), -EAGAIN);
    ck_assert_int_eq(kvshm__sys.futex_wait(&word, 5, 1000000), -ETIMEDOUT);
    ck_assert_int_eq(kvshm__sys.futex_wake(&word, 1), 0);
    ck_assert_int_eq(kvshm__sys.sleep_ns(1000), 0);
    ck_assert_uint_gt(kvshm__sys.monotonic_ns(), before);
    ck_assert_uint_gt(kvshm__sys.realtime_ns(), UINT64_C(1500000000) * 1000000000);
    ck_assert_int_eq(kvshm__sys.random(random, sizeof(random)), sizeof(random));
    ck_assert_mem_ne(random, zero, sizeof(random));
    ck_assert_uint_eq(kvshm__sys.pid(), (uint32_t)getpid());
    ck_assert_uint_eq(kvshm__sys.uid(), geteuid());
}
END_TEST

START_TEST(test_the_nth_call_fails)
{
    struct stat status;
    int fd = open_file("nth");
    unsigned before;

    ts_fail_nth(2, EIO);
    ck_assert_int_eq(kvshm__sys.fstat(fd, &status), 0);
    ck_assert_int_eq(kvshm__sys.fstat(fd, &status), -EIO);
    ck_assert_int_eq(kvshm__sys.fstat(fd, &status), 0);
    ck_assert_uint_eq(ts_fail_calls(), 3);
    ck_assert_str_eq(ts_fail_name(), "fstat");
    before = ts_fds();
    ts_fail_nth(1, EIO);
    ck_assert_int_eq(kvshm__sys.close(fd), -EIO);
    ts_fail_off();
    ck_assert_uint_eq(ts_fds(), before - 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sys");
    TCase *tcase = tcase_create("sys");

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_errors_are_answers);
    tcase_add_test(tcase, test_locks_belong_to_descriptions);
    tcase_add_test(tcase, test_space_and_map);
    tcase_add_test(tcase, test_futex_and_clocks);
    tcase_add_test(tcase, test_the_nth_call_fails);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
