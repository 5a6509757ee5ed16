/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_pauseless.c - a reader finishes beside writers that never pause (rule 1)
 *
 * Between any two instructions of a reader's call a writer does a whole thing to just what the reader looks for: it
 * replaces the key-only entry, or removes the entry and makes it anew. No schedule is worse. The call's instructions are
 * counted; none enters the kernel; it ends within the bound of check_bounds.c for a writer that runs,
 *
 *     8 * (places * (1 + 16 * KVSHM__LOOKS) + 2) * U
 *
 * with the right bytes or a miss.
 */
#include <stdio.h>
#include <string.h>

#include "inside.h"
#include "step.h"

#include "index.h"

/* Shared with the reader: what it is to ask, and what came of it. */
static struct talk {
    unsigned scene;
    int answer;
    uint64_t wrong; /* bytes */
    uint64_t gave_up;
} * talk;

static struct kvshm_prefix by_key(void)
{
    return in_key(3, 8);
}

static struct kvshm_prefix by_tokens(void)
{
    return in_range(0, 8);
}

static void replace(kvshm *kv, const struct kvshm_prefix *prefix)
{
    ck_assert_int_ge(in_insert(kv, prefix, NULL, 0), 0);
}

static void remove_and_insert(kvshm *kv, const struct kvshm_prefix *prefix)
{
    ck_assert_int_ge(kvshm_remove(kv, prefix), 0);
    replace(kv, prefix);
}

static int lookup(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *lease)
{
    return kvshm_lookup(kv, prefix, 0, lease);
}

static int peek(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *lease)
{
    return kvshm_lookup(kv, prefix, KVSHM_PEEK, lease);
}

static int match(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *lease)
{
    return kvshm_match(kv, prefix, 0, lease);
}

static const struct scene {
    const char *name;
    struct kvshm_prefix (*prefix)(void);
    int (*ask)(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *lease);
    void (*change)(kvshm *kv, const struct kvshm_prefix *prefix);
    unsigned places; /* pages looked for, by a match twice, and lengths of partial pages */
} scenes[] = {
    {"lookup by key, replaced", by_key, lookup, replace, 1},
    {"lookup by key, removed and made anew", by_key, lookup, remove_and_insert, 1},
    {"peek by key, replaced", by_key, peek, replace, 1},
    {"lookup of two pages, removed and made anew", by_tokens, lookup, remove_and_insert, 2},
    {"match of two pages, removed and made anew", by_tokens, match, remove_and_insert, 7},
};
#define SCENES (sizeof(scenes) / sizeof(scenes[0]))

/* The call between two marks; then what it got is looked at. Once beside nobody, once beside the writer. */
static int reader(void *arg)
{
    const struct scene *scene = &scenes[talk->scene];
    kvshm *kv = in_attach();
    (void)arg;

    for (int round = 0; round < 2; round++) {
        struct kvshm_prefix prefix = scene->prefix();
        struct kvshm_lease lease;

        step_begin();
        talk->answer = scene->ask(kv, &prefix, &lease);
        step_end();
        talk->wrong = lease.kv != NULL ? in_wrong(&lease, &prefix) : 0;
        talk->gave_up = in_counter(kv, KVSHM__CNT_gave_up);
        kvshm_release(kv, &lease);
    }
    return 0;
}

/* To the end of the call; the writer works between any two instructions, if there is one. */
static uint64_t run(struct step *child, kvshm *writer, const struct scene *scene)
{
    struct kvshm_prefix prefix = scene->prefix();

    ck_assert(step_to_mark(child));
    do {
        ck_assert(!step_at_system_call(child));
        if (writer)
            scene->change(writer, &prefix);
    } while (step_one(child));
    return child->instructions;
}

START_TEST(test_readers_finish_beside_a_writer_that_never_pauses)
{
    const struct scene *scene = &scenes[_i];
    kvshm *writer = in_create(4, 16, 8);
    struct kvshm_prefix prefix = scene->prefix();
    struct step child;
    uint64_t alone, beside, bound;

    if (step_refused()) {
        printf("SKIP test_readers_finish_beside_a_writer_that_never_pauses: %s\n", step_refused());
        return;
    }
    replace(writer, &prefix);
    talk = ts_shared(sizeof(*talk));
    talk->scene = (unsigned)_i;
    step_fork(&child, reader, NULL);
    alone = run(&child, NULL, scene);
    beside = run(&child, writer, scene);
    step_finish(&child);
    /* Alone it took the places once, with what comes with any call: more than U for each is not counted as U. */
    bound = 8 * (scene->places * (1 + 16 * KVSHM__LOOKS) + 2) * (alone / scene->places);
    printf("%s: %llu instructions alone, %llu beside a writer that never pauses, bound %llu; answer %d, gave up %llu\n",
           scene->name, (unsigned long long)alone, (unsigned long long)beside, (unsigned long long)bound, talk->answer,
           (unsigned long long)talk->gave_up);
    ck_assert_uint_le(beside, bound);
    /* It is there between any two instructions: a miss is one that gave up, and no look at a key's one page can succeed. */
    ck_assert(talk->answer == KVSHM_MISS || (talk->answer == 0 && scene->prefix != by_key));
    ck_assert_uint_eq(talk->gave_up, talk->answer == KVSHM_MISS);
    ck_assert_uint_eq(talk->wrong, 0);
    in_audit(writer);
    ts_detach(writer);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("pauseless");
    TCase *tcase = tcase_create("pauseless");

    (void)argc;
    step_environment(argv);
    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_loop_test(tcase, test_readers_finish_beside_a_writer_that_never_pauses, 0, SCENES);
    tcase_set_timeout(tcase, 0);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
