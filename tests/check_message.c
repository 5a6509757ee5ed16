/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_message.c - sentences of codes, and of the last failure of a thread
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "message.h"
#include "support.h"

struct line {
    int code;
    const char *name;
    const char *sentence;
    const char *meaning;
};

static const struct line table[] = {
#define KVSHM_ERROR(code, name, sentence, meaning) {code, #name, sentence, meaning},
#include "errors.def"
#undef KVSHM_ERROR
};
#define LINES (sizeof(table) / sizeof(table[0]))

START_TEST(test_each_code_has_its_sentence)
{
    for (size_t i = 0; i < LINES; i++) {
        ck_assert_int_lt(table[i].code, -4095);
        ck_assert_str_eq(kvshm_strerror(table[i].code), table[i].sentence);
        ck_assert_uint_gt(strlen(table[i].meaning), 20);
        for (size_t j = 0; j < i; j++) {
            ck_assert_int_ne(table[i].code, table[j].code);
            ck_assert_str_ne(table[i].sentence, table[j].sentence);
        }
    }
}
END_TEST

START_TEST(test_other_codes)
{
    ck_assert_str_eq(kvshm_strerror(0), "success");
    ck_assert_str_eq(kvshm_strerror(KVSHM_MISS), "not cached");
    ck_assert_str_ne(kvshm_strerror(KVSHM_EXISTS), kvshm_strerror(KVSHM_REPLACED));
    ck_assert_str_eq(kvshm_strerror(-ENOENT), strerror(ENOENT));
    ck_assert_str_eq(kvshm_strerror(-ENOSPC), strerror(ENOSPC));
    ck_assert_str_eq(kvshm_strerror(-4095), "unknown code -4095");
    ck_assert_str_eq(kvshm_strerror(-4999), "unknown code -4999");
    ck_assert_str_eq(kvshm_strerror(77), "unknown code 77");
}
END_TEST

START_TEST(test_fail_answers_its_code_and_keeps_errno)
{
    char longer[2 * KVSHM__MESSAGE_BYTES];

    ck_assert_ptr_nonnull(kvshm_errmsg(NULL));
    errno = EXDEV;
    ck_assert_int_eq(kvshm__fail(-EINVAL, "field %s is %d", "frames", 7), -EINVAL);
    ck_assert_int_eq(errno, EXDEV);
    ck_assert_str_eq(kvshm_errmsg(NULL), "field frames is 7");
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    kvshm__fail(KVSHM_E_DAMAGED, "%s", longer);
    ck_assert_uint_eq(strlen(kvshm_errmsg(NULL)), KVSHM__MESSAGE_BYTES - 1);
}
END_TEST

static void *other_thread(void *arg)
{
    (void)arg;
    ck_assert_str_eq(kvshm_errmsg(NULL), "no call of this thread has failed");
    kvshm__fail(-EPERM, "theirs");
    return NULL;
}

START_TEST(test_each_thread_has_its_own)
{
    pthread_t thread;

    kvshm__fail(-EINVAL, "ours");
    ck_assert_int_eq(pthread_create(&thread, NULL, other_thread, NULL), 0);
    pthread_join(thread, NULL);
    ck_assert_str_eq(kvshm_errmsg(NULL), "ours");
}
END_TEST

START_TEST(test_version)
{
    char version[32];

    snprintf(version, sizeof(version), "%d.%d.%d", KVSHM_VERSION_MAJOR, KVSHM_VERSION_MINOR,
             KVSHM_VERSION_PATCH);
    ck_assert_str_eq(kvshm_version(), version);
    ck_assert_str_eq(kvshm_version(), PACKAGE_VERSION);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("message");
    TCase *tcase = tcase_create("message");

    tcase_add_test(tcase, test_each_code_has_its_sentence);
    tcase_add_test(tcase, test_other_codes);
    tcase_add_test(tcase, test_fail_answers_its_code_and_keeps_errno);
    tcase_add_test(tcase, test_each_thread_has_its_own);
    tcase_add_test(tcase, test_version);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
