/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_mounts.c - the mount table: each line of it is seen, and no line can do harm
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "mounts.h"
#include "support.h"
#include "sys.h"

static char table_path[300];

static int open_table(const char *path, int flags, unsigned mode)
{
    ck_assert_str_eq(path, "/proc/self/mountinfo");
    return kvshm__sys_real.open(table_path, flags, mode);
}

/* From now on this is the table. */
static void use_table(const char *text)
{
    FILE *file;

    snprintf(table_path, sizeof(table_path), "%s/table", getenv("KVSHM_DIR"));
    file = fopen(table_path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    kvshm__sys.open = open_table;
}

struct seen {
    unsigned count, stop_at;
    dev_t device;
    char point[5000], type[100], options[5000];
};

static int see(const struct kvshm__mount *mount, void *arg)
{
    struct seen *seen = arg;

    seen->device = mount->device;
    snprintf(seen->point, sizeof(seen->point), "%s", mount->point);
    snprintf(seen->type, sizeof(seen->type), "%s", mount->type);
    snprintf(seen->options, sizeof(seen->options), "%s", mount->options);
    return ++seen->count == seen->stop_at ? 77 : 0;
}

#define LINE "63 43 0:39 / /mnt/a rw,relatime - hugetlbfs none rw,pagesize=2M\n"

START_TEST(test_fields)
{
    struct seen seen = {0};

    use_table(LINE);
    ck_assert_int_eq(kvshm__mounts_each(see, &seen), 0);
    ck_assert_uint_eq(seen.count, 1);
    ck_assert_uint_eq(seen.device, makedev(0, 39));
    ck_assert_str_eq(seen.point, "/mnt/a");
    ck_assert_str_eq(seen.type, "hugetlbfs");
    ck_assert_str_eq(seen.options, "rw,pagesize=2M");
    /* Optional fields, escapes, an empty source, no end of the line. */
    use_table("1 2 259:300 /x /a\\040b\\134\\011c rw shared:1 master:2 - tmpfs  rw,huge=advise");
    ck_assert_int_eq(kvshm__mounts_each(see, &seen), 0);
    ck_assert_uint_eq(seen.count, 2);
    ck_assert_uint_eq(seen.device, makedev(259, 300));
    ck_assert_str_eq(seen.point, "/a b\\\tc");
    ck_assert_str_eq(seen.type, "tmpfs");
    ck_assert_str_eq(seen.options, "rw,huge=advise");
}
END_TEST

START_TEST(test_lines_that_are_none)
{
    static const char *const lines[] = {
        "",
        "\n",
        "1\n",
        "1 2 3:4 / /a rw\n",
        "1 2 x / /a rw - tmpfs none rw\n",
        " ",
        "- -\n",
        "1 2 3:4 / /a rw - tmpfs\n",
        "1 2 3:4 / /a rw - tmpfs none\n",
        "\\\\\\ \\0 \\04 \\ - - -\n",
    };
    struct seen seen = {0};

    for (unsigned i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        use_table(lines[i]);
        ck_assert_int_eq(kvshm__mounts_each(see, &seen), 0);
        ck_assert_uint_eq(seen.count, 0);
    }
}
END_TEST

/* One line is longer than any that can be read; those around it are seen, however the pieces fall. */
START_TEST(test_long_tables)
{
    char *text = calloc(1, 400000);

    ck_assert_ptr_nonnull(text);
    for (unsigned longest = 0; longest < 20000; longest += 1999) {
        struct seen seen = {0};
        size_t length = 0;

        for (unsigned i = 0; i < 150; i++)
            length += (size_t)sprintf(text + length, LINE);
        if (longest > 0) {
            length += (size_t)sprintf(text + length, "1 2 3:4 / /long rw - overlay none ");
            memset(text + length, 'o', longest);
            strcpy(text + length + longest, "\n");
            length += longest + 1;
        }
        for (unsigned i = 0; i < 150; i++)
            length += (size_t)sprintf(text + length, LINE);
        use_table(text);
        ck_assert_int_eq(kvshm__mounts_each(see, &seen), 0);
        ck_assert_uint_ge(seen.count, 300);
        ck_assert_uint_le(seen.count, 301);
        ck_assert_str_eq(seen.point, "/mnt/a");
    }
    free(text);
}
END_TEST

START_TEST(test_ends_and_errors)
{
    struct seen seen = {.stop_at = 2};
    unsigned fds = ts_fds();

    use_table(LINE LINE LINE);
    ck_assert_int_eq(kvshm__mounts_each(see, &seen), 77);
    ck_assert_uint_eq(seen.count, 2);
    for (unsigned n = 1; n <= 2; n++) { /* open, pread */
        ts_fail_nth(n, EIO);
        ck_assert_int_eq(kvshm__mounts_each(see, &seen), -EIO);
        ts_fail_off();
    }
    ck_assert_uint_eq(ts_fds(), fds);
    seen.stop_at = 0;
    seen.count = 0;
    ck_assert_int_eq(kvshm__mounts_each(see, &seen), 0); /* the real one */
    ck_assert_uint_gt(seen.count, 0);
}
END_TEST

START_TEST(test_options)
{
    static const char options[] = "rw,pagesize=2M,size=8388608,min_size=4096,plain,empty=";
    char value[16];

    ck_assert(kvshm__mounts_option(options, "pagesize", value, sizeof(value)));
    ck_assert_str_eq(value, "2M");
    ck_assert(kvshm__mounts_option(options, "size", value, sizeof(value)));
    ck_assert_str_eq(value, "8388608");
    ck_assert(kvshm__mounts_option(options, "min_size", value, sizeof(value)));
    ck_assert(kvshm__mounts_option(options, "plain", value, sizeof(value)));
    ck_assert_str_eq(value, "");
    ck_assert(kvshm__mounts_option(options, "empty", value, sizeof(value)));
    ck_assert_str_eq(value, "");
    ck_assert(kvshm__mounts_option(options, "rw", value, sizeof(value)));
    ck_assert(!kvshm__mounts_option(options, "page", value, sizeof(value)));
    ck_assert(!kvshm__mounts_option(options, "huge", value, sizeof(value)));
    ck_assert(!kvshm__mounts_option("", "huge", value, sizeof(value)));
    ck_assert(!kvshm__mounts_option(options, "size", value, 7));
    ck_assert(kvshm__mounts_option(options, "size", value, 8));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mounts");
    TCase *tcase = tcase_create("mounts");

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_fields);
    tcase_add_test(tcase, test_lines_that_are_none);
    tcase_add_test(tcase, test_long_tables);
    tcase_add_test(tcase, test_ends_and_errors);
    tcase_add_test(tcase, test_options);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
