/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_reap.c - settings, and what is given back of the dead (reap.h)
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inside.h"

#include "client.h"
#include "reap.h"

#define FRAMES 24

/* ---- Settings ------------------------------------------------------------------------------------------------------- */

START_TEST(test_a_smaller_capacity_evicts_at_once)
{
    kvshm *kv = in_create(4, FRAMES, 4), *other = in_attach();

    for (uint32_t i = 0; i < 10; i++)
        in_put(kv, 100 * i, 6);
    ts_is(kvshm__setting_set(other, "capacity", 3), 0);
    ck_assert_uint_eq(in_entries(kv), 3);
    ck_assert_uint_eq(in_free(kv), FRAMES - 6);
    for (uint32_t i = 0; i < 10; i++) {
        struct kvshm_prefix prefix = in_range(100 * i, 6);

        ck_assert_int_eq(kvshm_contains(kv, &prefix), i >= 7);
    }
    in_audit_swept(kv);
    in_put(kv, 1000, 4);
    ck_assert_uint_eq(in_entries(kv), 3);
    ts_is(kvshm__setting_set(kv, "capacity", KVSHM_UNLIMITED), 0);
    in_put(kv, 1100, 4);
    ck_assert_uint_eq(in_entries(kv), 4);
    ts_is(kvshm__setting_set(kv, "capacity", 0), 0);
    ck_assert_uint_eq(in_free(kv), FRAMES);
    in_audit_swept(kv);
    ts_detach(other);
    ts_detach(kv);
}
END_TEST

START_TEST(test_settings_are_checked)
{
    kvshm *kv = in_create(4, FRAMES, 4), *observer;

    ts_is(kvshm__setting_set(kv, "stall_ms", 3600000), 0);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->header->settings.stall_ms), 3600000);
    ts_is(kvshm__setting_set(kv, "stall_ms", 3600001), -EINVAL);
    ts_says("3600001");
    ck_assert_uint_eq(KVSHM__LOAD(&kv->header->settings.stall_ms), 3600000);
    ts_is(kvshm__setting_set(kv, "stall_ms", 0), 0);
    ts_is(kvshm__setting_set(kv, "wait_ms", KVSHM_UNLIMITED), 0);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->header->settings.wait_ms), KVSHM_UNLIMITED);
    ts_is(kvshm__setting_set(kv, "admission", KVSHM_ADMIT_REUSED), 0);
    ck_assert_uint_eq(KVSHM__LOAD(&kv->header->settings.admission), KVSHM_ADMIT_REUSED);
    ts_is(kvshm__setting_set(kv, "admission", 2), -EINVAL);
    ts_says("admission 2");
    ts_is(kvshm__setting_set(kv, "spill_bytes", 1), -EINVAL);
    ts_says("no spill file");
    ts_is(kvshm__setting_set(kv, "capacities", 1), -EINVAL);
    ts_says("capacities");
    ts_is(kvshm__setting_set(kv, "", 1), -EINVAL);
    observer = ts_attach("inside", KVSHM_RDONLY);
    ts_is(kvshm__setting_set(observer, "capacity", 1), KVSHM_E_READ_ONLY);
    ts_is(kvshm__reap(observer, 0, NULL), KVSHM_E_READ_ONLY);
    ts_detach(observer);
    ts_detach(kv);
}
END_TEST

/* ---- Reaping ---------------------------------------------------------------------------------------------------------- */

/* A process that holds two frames, three for a device, and a lease of the range 0 .. 7. */
struct victim {
    const char *label;
    pid_t pid;
    uint64_t *client;
    struct ts_gate ready;
};

static int hold_and_wait(void *arg)
{
    struct victim *v = arg;
    struct kvshm_prefix prefix = in_range(0, 8);
    struct kvshm_reservation r[2];
    struct kvshm_config config;
    struct kvshm_lease lease;
    kvshm *kv;

    kvshm_config_init(&config);
    config.label = v->label;
    ts_need(kvshm_attach("inside", &config, 0, &kv) == 0);
    ts_need(kvshm_reserve(kv, 2, 0, &r[0]) == 0);
    ts_need(kvshm_reserve(kv, 3, KVSHM_DEVICE, &r[1]) == 0);
    ts_need(kvshm_lookup(kv, &prefix, 0, &lease) == 0);
    *v->client = kv->client;
    ts_gate_open(&v->ready);
    pause();
    return 0;
}

static void begin(struct victim *v, const char *label)
{
    v->label = label;
    v->client = ts_shared(sizeof(*v->client));
    ts_gate_make(&v->ready);
    v->pid = ts_fork(hold_and_wait, v);
    ck_assert(ts_gate_wait(&v->ready));
}

static void gives_back(kvshm *kv, uint64_t client, const char *label, int64_t wanted)
{
    ts_is(kvshm__reap(kv, client, label), wanted);
    in_audit_swept(kv);
}

/* Reservations and leases of the dead come back; a device's frames do not, but to who names the client. */
START_TEST(test_reap_of_a_client)
{
    kvshm *kv = in_create(4, FRAMES, 4);
    struct kvshm_prefix prefix = in_range(0, 8);
    struct victim v;

    in_put(kv, 0, 8);
    begin(&v, "victim");
    ts_is(kvshm_remove(kv, &prefix), 0);
    gives_back(kv, 0, NULL, 0);
    gives_back(kv, *v.client, NULL, -EBUSY);
    ts_says("victim");
    gives_back(kv, kv->client, NULL, -EBUSY);
    ts_kill(v.pid);
    gives_back(kv, 0, NULL, 2 + 2); /* reserved, leased */
    gives_back(kv, 0, NULL, 0);
    gives_back(kv, in_dead_number(kv), NULL, 0);
    ck_assert_uint_eq(in_free(kv), FRAMES - 3);
    gives_back(kv, *v.client, NULL, 3);
    gives_back(kv, *v.client, NULL, 0);
    ck_assert_uint_eq(in_free(kv), FRAMES);
    ts_detach(kv);
}
END_TEST

/* By label: all the dead that have it, none of the living, none of the dead with another. */
START_TEST(test_reap_of_a_label)
{
    kvshm *kv = in_create(4, FRAMES, 4);
    struct victim v[3];

    in_put(kv, 0, 8);
    begin(&v[0], "rank");
    begin(&v[1], "rank");
    begin(&v[2], "scheduler");
    gives_back(kv, 0, "rank", -ENOENT);
    ts_says("rank");
    ts_kill(v[0].pid);
    ts_kill(v[2].pid);
    gives_back(kv, 0, "none", -ENOENT);
    gives_back(kv, 0, "rank",
               2 + 3 + 2); /* reservations of all the dead, device frames of the label */
    gives_back(kv, *v[2].client, NULL, 3);
    ts_kill(v[1].pid);
    gives_back(kv, 0, "rank", 5);
    ck_assert_uint_eq(in_free(kv), FRAMES - 2);
    ts_detach(kv);
}
END_TEST

/* Whom a living client has joined is let be until it leaves. */
START_TEST(test_reap_lets_the_joined_be)
{
    kvshm *kv = in_create(4, FRAMES, 4), *rank = in_attach();
    struct kvshm_prefix prefix = in_range(0, 8);
    struct victim v;

    in_put(kv, 0, 8);
    begin(&v, "victim");
    ts_is(kvshm_join(rank, *v.client), 0);
    ts_kill(v.pid);
    ts_is(kvshm_remove(kv, &prefix), 0);
    gives_back(kv, 0, NULL, 0);
    gives_back(kv, *v.client, NULL, -EBUSY);
    gives_back(kv, 0, "victim", -ENOENT);
    ck_assert_uint_eq(in_limbo(kv), 2);
    ts_is(kvshm_leave(rank, *v.client), 0);
    gives_back(kv, *v.client, NULL, 7);
    ck_assert_uint_eq(in_free(kv), FRAMES);
    ts_detach(rank);
    ts_detach(kv);
}
END_TEST

/* A dead client that has device frames keeps its place, and its label, until they are reaped. */
START_TEST(test_place_is_kept_for_device_frames)
{
    kvshm *kv = in_create(4, FRAMES, 4), *more[3];
    struct victim v;
    kvshm *none;

    in_put(kv, 0, 8);
    begin(&v, "victim");
    ts_kill(v.pid);
    more[0] = in_attach();
    more[1] = in_attach();
    ts_is(kvshm_attach("inside", NULL, 0, &none), KVSHM_E_CLIENTS);
    ck_assert_int_ge(kvshm__client_find(kv, *v.client), 0);
    gives_back(kv, 0, "victim", 5);
    more[2] = in_attach();
    ck_assert_int_lt(kvshm__client_find(kv, *v.client), 0);
    in_audit_swept(kv);
    for (unsigned i = 0; i < 3; i++)
        ts_detach(more[i]);
    ts_detach(kv);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reap");
    TCase *tcase = tcase_create("reap");
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_a_smaller_capacity_evicts_at_once);
    tcase_add_test(tcase, test_settings_are_checked);
    tcase_add_test(tcase, test_reap_of_a_client);
    tcase_add_test(tcase, test_reap_of_a_label);
    tcase_add_test(tcase, test_reap_lets_the_joined_be);
    tcase_add_test(tcase, test_place_is_kept_for_device_frames);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
