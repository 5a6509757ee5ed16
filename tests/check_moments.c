/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_moments.c - a reader is stopped at any of its instructions while a writer does a whole thing, and goes on
 *
 * A reader is stepped to an instruction of its call. There it stays while a writer takes away what it looks for, fills
 * its frames, makes its records those of others, or puts another in its place. Then it goes on to the end of its call.
 * Before it looks at the bytes that it got, all frames that can be had are filled with others. What it got is right, or
 * a miss where the writer made one possible. Rounds go through all the call's instructions, or each so-manieth.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"
#include "step.h"

#include "evict.h"
#include "frames.h"
#include "index.h"
#include "mend.h"
#include "pages.h"
#include "recency.h"

#define FRAMES 16

/* Shared with the reader: what it is to do, and what came of it. */
static struct talk {
    unsigned scene;
    bool end;
    int64_t answer;
    uint32_t tokens, pages;
    uint64_t last_used;
    uint64_t wrong; /* bytes */
} * talk;

static kvshm *writer;

/* ---- What is asked -------------------------------------------------------------------------------------------------- */

static struct kvshm_prefix of_two_pages(void)
{
    return in_range(0, 8);
}

static struct kvshm_prefix of_one_page(void)
{
    return in_range(0, 4);
}

static struct kvshm_prefix of_more_pages(void)
{
    return in_range(0, 15);
}

static struct kvshm_prefix of_a_key(void)
{
    return in_key(3, 0);
}

static uint8_t copied[4][IN_PAGE_BYTES];

static int64_t lookup(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *lease)
{
    return kvshm_lookup(kv, prefix, 0, lease);
}

static int64_t peek(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *lease)
{
    return kvshm_lookup(kv, prefix, KVSHM_PEEK, lease);
}

static int64_t peek_longest(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *lease)
{
    return kvshm_match(kv, prefix, KVSHM_PEEK, lease);
}

static int64_t match(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *lease)
{
    return kvshm_match(kv, prefix, 0, lease);
}

static int64_t copy(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *lease)
{
    (void)lease;
    return kvshm_copy_out(kv, prefix, 0, 2, copied);
}

static int64_t find_key(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *lease)
{
    struct kvshm__walk walk;

    kvshm__index_find_key(kv, prefix, kvshm__index_aim(kv, prefix), &walk);
    lease->tokens = walk.tokens;
    lease->pages = walk.pages;
    return walk.deepest.record != KVSHM__NO_RECORD ? 0 : KVSHM_MISS;
}

/* A page whose first half is that of a text, its second that of another, under the hash of both. */
static const uint32_t texts[2][4] = {{1, 1, 1, 1}, {2, 2, 2, 2}};
static const uint32_t mixed[4] = {1, 1, 2, 2};

static struct kvshm__page_spec spec_of(const uint32_t *tokens)
{
    return (struct kvshm__page_spec){
        .parent = KVSHM__NO_RECORD, .length = 4, .tokens = tokens, .hash = 77};
}

static int64_t find_mixed(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *lease)
{
    struct kvshm__page_spec spec = spec_of(mixed);
    struct kvshm__found found;
    bool gave_up = false;

    (void)prefix;
    (void)lease;
    return kvshm__index_find(kv, &spec, 0, false, &found, &gave_up) ? 0 : KVSHM_MISS;
}

/* ---- What the writer does ------------------------------------------------------------------------------------------- */

/* Fill all frames that can be had with other bytes, and give them back. */
static void scribble(void)
{
    struct kvshm_reservation r;
    uint32_t n = FRAMES;

    while (n > 0 && (in_free(writer) < n || kvshm_reserve(writer, n, 0, &r) != 0))
        n--;
    for (uint32_t i = 0; i < n; i++)
        memset(kvshm_reservation_page(&r, i), 0xff, IN_PAGE_BYTES);
    if (n > 0) {
        kvshm_cancel(writer, &r);
        ts_is(kvshm__mend_lock(writer), 0);
        kvshm__frames_sweep(writer, 0);
        kvshm__mend_unlock(writer);
    }
}

static void put_two_pages(void)
{
    in_put(writer, 0, 8);
}

static void put_a_key(void)
{
    struct kvshm_prefix key = in_key(3, 5);

    ts_is(in_insert(writer, &key, NULL, 0), 0);
}

static void remove_two_pages(void)
{
    struct kvshm_prefix prefix = of_two_pages();

    ts_is(kvshm_remove(writer, &prefix), 0);
    scribble();
}

/* Its records, and frames, are other pages'. */
static void reuse_records(void)
{
    struct kvshm_prefix prefix = of_two_pages();

    ts_is(kvshm_remove(writer, &prefix), 0);
    in_put(writer, 100, 4);
    in_put(writer, 200, 4);
    scribble();
}

/* The same prefix is there again, elsewhere. */
static void put_again(void)
{
    reuse_records();
    put_two_pages();
    scribble();
}

static void clear(void)
{
    ts_is(kvshm_clear(writer), 0);
    in_put(writer, 100, 8);
    scribble();
}

/* What was its deepest page is the first of another entry. */
static void replace_a_key(void)
{
    struct kvshm_prefix key = in_key(3, 6);

    ts_is(in_insert(writer, &key, NULL, 0), KVSHM_REPLACED);
    in_put(writer, 400, 4);
    in_put(writer, 300, 16);
    scribble();
}

static void replace_a_key_alone(void)
{
    struct kvshm_prefix key = in_key(3, 6);

    ts_is(in_insert(writer, &key, NULL, 0), KVSHM_REPLACED);
}

static void publish_text(void)
{
    struct kvshm__page_spec spec = spec_of(texts[0]);
    uint32_t record, frame;

    ts_is(kvshm__mend_lock(writer), 0);
    record = kvshm__pages_take(writer);
    frame =
        kvshm__frames_take(writer, kvshm__owner_reserved(KVSHM__OWNER_RESERVED, writer->client, 0));
    kvshm__pages_write(writer, record, &spec);
    kvshm__pages_settle(writer, record, frame);
    kvshm__frames_to_page(writer, frame, record);
    kvshm__recency_add(writer, record);
    kvshm__index_set(kvshm__index_empty(writer, 77), 77, record);
    kvshm__mend_unlock(writer);
}

/* Of the page under hash 77: the record of the other text, as if it had been reused. */
static void write_other_text(void)
{
    struct kvshm__page_spec spec = spec_of(texts[0]);
    struct kvshm__found found;
    struct kvshm_record *r;
    bool gave_up = false;

    ck_assert(kvshm__index_find(writer, &spec, 0, false, &found, &gave_up));
    r = &writer->records[found.record];
    kvshm__seq_write_begin(&r->seq);
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t word;

        memcpy(&word, texts[1] + 2 * i, sizeof(word));
        KVSHM__STORE(&kvshm__text(writer, found.record)[i], word);
    }
    kvshm__seq_write_end(&r->seq);
}

static void forget_fingerprint(void)
{
    KVSHM__STORE(&writer->header->has_fingerprint, 0);
}

/* The reader named none: what is cached from now on is not for it. */
static void name_fingerprint(void)
{
    struct kvshm_config expect;
    kvshm *kv;

    kvshm_config_init(&expect);
    memset(expect.fingerprint, 7, sizeof(expect.fingerprint));
    ts_is(kvshm_attach("inside", &expect, 0, &kv), 0);
    in_put(kv, 0, 8);
    ts_detach(kv);
}

/* ---- Scenes ----------------------------------------------------------------------------------------------------------- */

enum may { HIT = 1, MISS = 2, TOLD = 4 /* KVSHM_E_FINGERPRINT */ };

static const struct scene {
    const char *name;
    struct kvshm_prefix (*asked)(void);
    int64_t (*call)(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *lease);
    void (*prepare)(void), (*act)(void);
    unsigned may; /* enum may */
    bool read_only;
} scenes[] = {
    {"lookup of what is removed", of_two_pages, lookup, put_two_pages, remove_two_pages, HIT | MISS,
     false},
    {"lookup of records reused", of_two_pages, lookup, put_two_pages, reuse_records, HIT | MISS,
     false},
    {"lookup of what comes again", of_two_pages, lookup, put_two_pages, put_again, HIT | MISS,
     false},
    {"lookup at a clear", of_two_pages, lookup, put_two_pages, clear, HIT | MISS, false},
    {"match of records reused", of_more_pages, match, put_two_pages, reuse_records, HIT | MISS,
     false},
    {"lookup of a key replaced", of_a_key, lookup, put_a_key, replace_a_key, HIT, false},
    {"peek at a key replaced", of_a_key, peek, put_a_key, replace_a_key, HIT, false},
    {"look for a key replaced", of_a_key, find_key, put_a_key, replace_a_key_alone, HIT, false},
    {"peek at a page that is no entry", of_one_page, peek, put_two_pages, reuse_records, MISS,
     false},
    {"copy of what is removed", of_two_pages, copy, put_two_pages, remove_two_pages, HIT | MISS,
     true},
    {"copy of records reused", of_two_pages, copy, put_two_pages, reuse_records, HIT | MISS, true},
    {"copy of what comes again", of_two_pages, copy, put_two_pages, put_again, HIT | MISS, true},
    {"look for a key whose record is reused", of_a_key, find_key, put_a_key, replace_a_key, HIT,
     false},
    {"look at two texts", of_one_page, find_mixed, publish_text, write_other_text, MISS, false},
    {"lookup of a key replaced, its record left", of_a_key, lookup, put_a_key, replace_a_key_alone,
     HIT, false},
    {"lookup while a fingerprint is named", of_two_pages, lookup, forget_fingerprint,
     name_fingerprint, MISS | TOLD, false},
    {"match while a fingerprint is named", of_more_pages, match, forget_fingerprint,
     name_fingerprint, MISS | TOLD, false},
    {"peek at records reused", of_two_pages, peek, put_two_pages, reuse_records, HIT | MISS, false},
    {"peek at the longest of records reused", of_more_pages, peek_longest, put_two_pages,
     reuse_records, HIT | MISS, false},
};
#define SCENES ((int)(sizeof(scenes) / sizeof(*scenes)))

/* ---- The reader ------------------------------------------------------------------------------------------------------- */

/* Bytes that are not those of the prefix. What keys hold is of one filling, of the length that was told. */
static uint64_t wrong_bytes(const struct scene *scene, const struct kvshm_lease *lease)
{
    struct kvshm_prefix prefix = scene->asked();
    uint64_t wrong = 0;

    if (scene->call == copy) {
        for (uint32_t i = 0; i < 2 && talk->answer > 0; i++)
            wrong += ts_filled(copied[i], IN_PAGE_BYTES, 0, 0, prefix.tokens, 4 * (i + 1));
        return wrong;
    }
    return lease->kv ? in_wrong(lease, &prefix) : 0;
}

static int reader(void *arg)
{
    const struct scene *scene = &scenes[talk->scene];
    kvshm *kv;

    (void)arg;
    ts_need(kvshm_attach("inside", NULL, scene->read_only ? KVSHM_RDONLY : 0, &kv) == 0);
    while (!talk->end) {
        struct kvshm_prefix prefix = scene->asked();
        struct kvshm_lease lease;
        int64_t answer;

        memset(&lease, 0, sizeof(lease));
        step_begin();
        answer = scene->call(kv, &prefix, &lease);
        step_end();
        talk->answer = answer;
        step_begin(); /* here the writer fills what it can get */
        step_end();
        talk->tokens = lease.tokens;
        talk->pages = lease.pages;
        talk->last_used = lease.last_used;
        talk->wrong = wrong_bytes(scene, &lease);
        kvshm_release(kv, &lease);
    }
    return 0;
}

/* ---- Rounds ------------------------------------------------------------------------------------------------------------- */

static bool is_hit(const struct scene *scene)
{
    return scene->call == copy ? talk->answer > 0 : talk->answer == 0;
}

static bool right_length(const struct scene *scene)
{
    if (scene->call == copy)
        return talk->answer == 2;
    if (scene->call == find_mixed)
        return true;
    if (scene->asked == of_a_key && talk->tokens != 5 && talk->tokens != 6)
        return false;
    if (scene->asked != of_a_key && scene->asked != of_more_pages &&
        talk->tokens != scene->asked().n)
        return false;
    return talk->pages == kvshm_pages_for_tokens(talk->tokens, 4);
}

static bool is_peek(const struct scene *scene)
{
    return scene->call == peek || scene->call == peek_longest;
}

/* When the entry that a peek is for was used last; 0: there is none. */
static uint64_t used(const struct scene *scene)
{
    struct kvshm_prefix prefix = scene->asked();
    struct kvshm_lease lease;

    if (!is_peek(scene))
        return 0;
    return scene->call(writer, &prefix, &lease) == 0 ? lease.last_used : 0;
}

static void check_used(const struct scene *scene, uint64_t before, uint64_t after, uint64_t at)
{
    if (is_peek(scene) && is_hit(scene) && talk->last_used != before && talk->last_used != after)
        ck_abort_msg("%s, at its instruction %llu: last used %llu, which is of another entry",
                     scene->name, (unsigned long long)at, (unsigned long long)talk->last_used);
}

static void check_answer(const struct scene *scene, uint64_t at)
{
    bool hit = is_hit(scene), right = true;

    if (talk->answer == KVSHM_E_FINGERPRINT)
        right = scene->may & TOLD;
    else if (hit)
        right = scene->may & HIT && talk->wrong == 0 && right_length(scene);
    else
        right = scene->may & MISS &&
                (scene->call == copy ? talk->answer == 0 : talk->answer == KVSHM_MISS);
    if (!right)
        ck_abort_msg(
            "%s, at its instruction %llu: answer %lld, %u tokens, %u pages, %llu wrong bytes",
            scene->name, (unsigned long long)at, (long long)talk->answer, talk->tokens, talk->pages,
            (unsigned long long)talk->wrong);
}

/* The writer acts at that instruction of the reader's call; false: the call is over before. */
static bool round_at(const struct scene *scene, struct step *reading, uint64_t at)
{
    bool inside = true;
    uint64_t before, after;

    ts_is(kvshm_clear(writer), 0);
    scene->prepare();
    before = used(scene);
    while (inside && reading->instructions < at)
        inside = step_one(reading);
    scene->act();
    after = used(scene);
    ck_assert(step_to_mark(reading));
    scribble();
    ck_assert(step_to_mark(reading));
    check_answer(scene, at);
    check_used(scene, before, after, at);
    if (scene->call != find_mixed) /* whose pages are made by hand */
        in_audit(writer);
    return inside;
}

START_TEST(test_a_reader_is_overtaken_at_any_instruction)
{
    const struct scene *scene = &scenes[_i];
    uint64_t chance = ts_seed(), rounds = 0, hits = 0, at = 0, stride = ts_amount(61, 13, 1);
    struct step reading;
    bool inside;

    if (step_refused()) {
        printf("SKIP test_a_reader_is_overtaken_at_any_instruction: %s\n", step_refused());
        return;
    }
    if (is_peek(scene) && scene->may & HIT && stride > 6)
        stride = 6; /* few instructions stand between the look at a page and that at its stamp */
    writer = in_create(4, FRAMES, 8);
    talk = ts_shared(sizeof(*talk));
    talk->scene = (unsigned)_i;
    step_fork(&reading, reader, NULL);
    ck_assert(step_to_mark(&reading));
    do {
        inside = round_at(scene, &reading, at);
        at += 1 + ts_random(&chance, 2 * stride - 1);
        rounds++;
        hits += is_hit(scene);
    } while (inside);
    ck_assert_int_eq(is_hit(scene), (scene->may & HIT) != 0); /* of a call that was over before */
    talk->end = true;
    ts_is(kvshm_clear(writer), 0);
    scene->prepare();
    ck_assert(step_to_mark(&reading));
    step_finish(&reading);
    printf("%s: %llu rounds, %llu hits, up to instruction %llu\n", scene->name,
           (unsigned long long)rounds, (unsigned long long)hits, (unsigned long long)at);
    ck_assert_uint_gt(rounds, 2);
    ts_detach(writer);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("moments");
    TCase *tcase = tcase_create("moments");

    (void)argc;
    step_environment(argv);
    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_loop_test(tcase, test_a_reader_is_overtaken_at_any_instruction, 0, SCENES);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
