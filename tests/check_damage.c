/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_damage.c - whatever is changed in a segment, each call ends with an answer that kvshm.h names, touches nothing outside,
 * and a hit's bytes are right (damage.h says what that is)
 *
 * Each byte of the header and of each item of each table, changed to 0, 255, one more, one less, and each bit; a changed byte
 * of the header's fixed part both with the checksum that then is wrong and with the right one. All runs take all values for one
 * item of each table that pages are made of; KVSHM_TEST_LONG those for the header too, and of all other bytes every seventh case,
 * so that each is met; quick runs some by chance, as many of each kind. Then words changed at random, several at once.
 *
 * A worker meets the cases one after the other; one that dies is told, and another goes on behind that case. A case that takes
 * minutes hangs.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "damage.h"

#define CASE_S 120u

static struct dm_image image;
static struct dm_item items[DM_ITEMS];
static unsigned item_count;

/* ---- Workers -------------------------------------------------------------------------------------------- */

/* A list of cases, told by number: false, past the last. */
typedef bool (*cases_fn)(uint64_t number, enum dm_company company);

struct work {
    cases_fn cases;
    enum dm_company company;
    uint64_t next; /* shared: the next worker begins here */
};

static int worker(void *argument)
{
    struct work *work = argument;

    dm_guard();
    for (;;) {
        alarm(CASE_S);
        if (!work->cases(work->next++, work->company))
            return 0;
    }
}

static void run(cases_fn cases, enum dm_company company)
{
    struct work *work = ts_shared(sizeof(*work));
    unsigned deaths = 0;
    int status;

    *work = (struct work){.cases = cases, .company = company};
    while ((status = ts_wait(ts_fork(worker, work))) != 0) {
        fprintf(stderr, "%s; %s: %s (%d)\n", dm_score->doing, dm_score->call,
                status == 128 + SIGALRM ? "it hung" : "it died", status);
        dm_score->wrong++;
        ts_dir();
        if (++deaths == 20)
            break;
    }
    munmap(work, sizeof(*work));
}

static void say(enum dm_company company, const char *what, const struct dm_item *item, uint64_t at,
                uint8_t value, bool forge)
{
    snprintf(dm_score->doing, sizeof(dm_score->doing),
             "%s, %s: %s %s %u, byte %" PRIu64 " of %" PRIu64 ": %u -> %u%s", image.shape->name,
             dm_companies[company], what, item->kind, item->number, at, item->length,
             image.data[item->offset + at], value, forge ? ", checksum made right" : "");
}

/* ---- Cases ---------------------------------------------------------------------------------------------- */

static bool in_fixed(const struct dm_item *item)
{
    return item->offset == 0;
}

static bool meet_byte(const struct dm_item *item, uint64_t at, uint8_t value, bool forge,
                      enum dm_company company)
{
    struct dm_change change = {item->offset + at, value};

    say(company, "changed", item, at, value, forge);
    dm_meet(&image, company, &change, 1, forge);
    return true;
}

/* Every byte, every value: number counts through them; the place in the lists is kept, since numbers come in order. */
static bool every_byte(uint64_t number, enum dm_company company)
{
    static uint64_t base, at;
    static unsigned i;
    uint8_t values[12];

    if (number < base)
        base = at = i = 0;
    while (i < item_count) {
        unsigned n = dm_values(image.data[items[i].offset + at], values),
                 all = in_fixed(&items[i]) ? 2 * n : n;

        if (number < base + all)
            return meet_byte(&items[i], at, values[(number - base) % n], number - base >= n,
                             company);
        base += all;
        if (++at == items[i].length) {
            at = 0;
            i++;
        }
    }
    return false;
}

static uint64_t sample_size, sample_seed;

/* Every seventh of them: a byte has at least seven other values, so each is met. */
#define STRIDE 7u

static bool each_byte(uint64_t number, enum dm_company company)
{
    return every_byte(number * STRIDE + sample_seed % STRIDE, company);
}

/* Items of a kind stand together: one of a kind by chance, each kind as often as another. */
static const struct dm_item *item_by_chance(uint64_t *chance)
{
    unsigned first[32], kinds = 0;

    for (unsigned i = 0; i < item_count; i++) {
        if (i == 0 || strcmp(items[i].kind, items[i - 1].kind) != 0)
            first[kinds++] = i;
    }
    unsigned kind = (unsigned)ts_random(chance, kinds);
    unsigned end = kind + 1 < kinds ? first[kind + 1] : item_count;

    return &items[first[kind] + ts_random(chance, end - first[kind])];
}

/* Some bytes of all. */
static bool some_bytes(uint64_t number, enum dm_company company)
{
    uint64_t chance = sample_seed + number * 1000003 + company;
    uint8_t values[12];

    if (number == sample_size)
        return false;
    const struct dm_item *item = item_by_chance(&chance);
    uint64_t at = ts_random(&chance, item->length);
    unsigned n = dm_values(image.data[item->offset + at], values);

    return meet_byte(item, at, values[ts_random(&chance, n)],
                     in_fixed(item) && ts_random(&chance, 4) != 0, company);
}

/* One item of each table that pages are made of, in a long run the header too. */
static unsigned keep_one_of_each(bool header)
{
    static const struct {
        const char *kind;
        uint32_t number; /* 13: a page in the midst of a chain; 14: below it, the last */
    } some[] = {{"record", 13}, {"record", 14},   {"links", 13},
                {"owner", 13},  {"heap slot", 0}, {"lease word", 0}};
    unsigned kept = 0;
    bool bucket = false;

    for (unsigned i = 0; i < item_count; i++) {
        bool keep =
            !bucket && strcmp(items[i].kind, "bucket") == 0 && image.data[items[i].offset] != 0;

        bucket |= keep;
        keep |= header && strncmp(items[i].kind, "header", strlen("header")) == 0;
        for (unsigned j = 0; j < sizeof(some) / sizeof(*some); j++)
            keep |= strcmp(items[i].kind, some[j].kind) == 0 && items[i].number == some[j].number;
        if (keep)
            items[kept++] = items[i];
    }
    return kept;
}

/* Fields that name or describe pages. */
static const struct {
    const char *kind;
    uint64_t at, width;
} fields[] = {
#define FIELD(kind, type, field)                                              \
    {                                                                         \
        kind, offsetof(struct type, field), sizeof(((struct type *)0)->field) \
    }
    FIELD("record", kvshm_record, seq),
    FIELD("record", kvshm_record, place),
    FIELD("record", kvshm_record, parent_seq),
    FIELD("record", kvshm_record, parent1),
    FIELD("record", kvshm_record, depth),
    FIELD("record", kvshm_record, length),
    FIELD("record", kvshm_record, epoch),
    FIELD("record", kvshm_record, stamp),
    FIELD("record", kvshm_record, hash),
    FIELD("links", kvshm_links, jump1),
    FIELD("links", kvshm_links, jump_check),
    FIELD("links", kvshm_links, child1),
    FIELD("owner", kvshm_owner, owner),
    /* Parent and depth together: a page in the midst of a chain that says of itself that it is a root. */
    {"record", offsetof(struct kvshm_record, parent1), 8},
};
#define FIELDS (sizeof(fields) / sizeof(*fields))

/* Has an item before the b-th the same value in the field? */
static bool seen_before(unsigned field, unsigned b)
{
    const uint8_t *value = image.data + items[b].offset + fields[field].at;

    for (unsigned i = 0; i < b; i++) {
        if (strcmp(items[i].kind, fields[field].kind) == 0 &&
            memcmp(value, image.data + items[i].offset + fields[field].at, fields[field].width) ==
                0)
            return true;
    }
    return false;
}

static bool meet_field(unsigned field, unsigned to, unsigned from, enum dm_company company)
{
    struct dm_change changes[8];

    snprintf(dm_score->doing, sizeof(dm_score->doing),
             "%s, %s: %s %u, byte %" PRIu64 " on: as in %u", image.shape->name,
             dm_companies[company], items[to].kind, items[to].number, fields[field].at,
             items[from].number);
    for (unsigned i = 0; i < fields[field].width; i++)
        changes[i] = (struct dm_change){items[to].offset + fields[field].at + i,
                                        image.data[items[from].offset + fields[field].at + i]};
    dm_meet(&image, company, changes, (unsigned)fields[field].width, false);
    return true;
}

/* Each field of each item as it is in each other one. */
static bool fields_of_others(uint64_t number, enum dm_company company)
{
    static uint64_t base;
    static unsigned field, to, from;

    if (number < base)
        base = field = to = from = 0;
    for (; field < FIELDS; field++, to = 0) {
        for (; to < item_count; to++, from = 0) {
            for (; from < item_count; from++) {
                const uint64_t at = fields[field].at, width = fields[field].width;

                if (strcmp(items[to].kind, fields[field].kind) != 0 ||
                    strcmp(items[from].kind, fields[field].kind) != 0 ||
                    memcmp(image.data + items[to].offset + at, image.data + items[from].offset + at,
                           width) == 0 ||
                    seen_before(field, from))
                    continue;
                if (base++ == number)
                    return meet_field(field, to, from++, company);
            }
        }
    }
    return false;
}

/* Several words at once, each to a number that may be one of the arena's, or to anything. */
static bool scribbles(uint64_t number, enum dm_company company)
{
    uint64_t chance = sample_seed + number * 7000003 + company;
    struct dm_change changes[64];
    unsigned n = 0, words = 1 + (unsigned)ts_random(&chance, 8);

    if (number == sample_size)
        return false;
    int used = snprintf(dm_score->doing, sizeof(dm_score->doing), "%s, %s: scribble %" PRIu64 ":",
                        image.shape->name, dm_companies[company], number);
    for (unsigned i = 0; i < words; i++) {
        const struct dm_item *item = item_by_chance(&chance);
        unsigned width = ts_random(&chance, 2) ? 8 : 4;
        uint64_t at = item->offset + ts_random(&chance, item->length / width) * width;
        uint64_t value =
            ts_random(&chance, 3) ? ts_random(&chance, 64) : ts_random(&chance, UINT64_MAX);

        used += snprintf(dm_score->doing + used, sizeof(dm_score->doing) - (size_t)used,
                         " %s %u, byte %" PRIu64 ": %#" PRIx64 ",", item->kind, item->number,
                         at - item->offset, value);
        for (unsigned b = 0; b < width; b++)
            changes[n++] = (struct dm_change){at + b, (uint8_t)(value >> 8 * b)};
    }
    dm_meet(&image, company, changes, n, true);
    return true;
}

/* ---- The tests ------------------------------------------------------------------------------------------ */

static void setup(void)
{
    ts_setup();
    dm_score = ts_shared(sizeof(*dm_score));
    dm_score->call = "no call";
    sample_seed = ts_seed();
}

static void teardown(void)
{
    munmap(dm_score, sizeof(*dm_score));
    ts_teardown();
}

static void take_image(unsigned shape)
{
    dm_make(&image, &dm_shapes[shape]);
    item_count = dm_items(&image, items);
}

static void end(void)
{
    dm_print();
    dm_free(&image);
    ck_assert_uint_eq(dm_score->wrong, 0);
    ck_assert_uint_gt(dm_score->hits, 0);
}

/* Nothing is changed: all of the image's names are found as they should be, and no page is refused. */
START_TEST(test_unchanged)
{
    for (unsigned company = 0; company < DM_COMPANIES; company++) {
        take_image((unsigned)_i);
        snprintf(dm_score->doing, sizeof(dm_score->doing), "%s, %s: nothing changed",
                 image.shape->name, dm_companies[company]);
        dm_meet(&image, (enum dm_company)company, NULL, 0, false);
        ck_assert_uint_eq(dm_score->refused, 0);
        if (company + 1 < DM_COMPANIES)
            dm_free(&image);
    }
    end();
}
END_TEST

START_TEST(test_any_byte)
{
    uint64_t quick = ts_amount(100, 600, UINT64_MAX);

    take_image((unsigned)_i);
    sample_size = quick;
    for (unsigned company = 0; company < DM_COMPANIES; company++)
        run(quick == UINT64_MAX ? each_byte : some_bytes, (enum dm_company)company);
    end();
}
END_TEST

/* The same in any run, for what any chance might miss. */
START_TEST(test_one_item_of_each)
{
    bool header = ts_amount(0, 0, 1);

    take_image(0);
    item_count = keep_one_of_each(header);
    ck_assert_uint_eq(item_count, header ? 9 : 7);
    run(every_byte, DM_HELD);
    end();
}
END_TEST

/* A client whose number is overwritten takes nothing more: it would not count. */
START_TEST(test_own_place_overwritten)
{
    struct kvshm_config config = dm_expect(&dm_shapes[0]);
    kvshm *kv = ts_create("damaged", &config);
    struct kvshm_prefix prefix = dm_name(&dm_shapes[0], DM_A);
    struct kvshm_reservation r, before;
    struct kvshm_lease lease;

    ts_is(in_insert(kv, &prefix, NULL, 0), 0);
    ts_is(kvshm_reserve(kv, 1, 0, &before), 0);
    KVSHM__STORE(&kv->clients[kv->place].number, kv->client + 100);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), KVSHM_E_DAMAGED);
    ts_says("detach and attach anew");
    ts_is(kvshm_match(kv, &prefix, 0, &lease), KVSHM_E_DAMAGED);
    ts_is(kvshm_lookup(kv, &prefix, KVSHM_PEEK, &lease), 0);
    ts_is(kvshm_copy_out(kv, &prefix, 0, 1, &r), KVSHM_E_DAMAGED);
    ts_is(kvshm_reserve(kv, 1, 0, &r), KVSHM_E_DAMAGED);
    ts_is(kvshm_insert(kv, &prefix, NULL, &before, 0), KVSHM_E_DAMAGED);
    ts_is(kvshm_remove(kv, &prefix), KVSHM_E_DAMAGED);
    ts_is(kvshm_evict_lru(kv), KVSHM_E_DAMAGED);
    ts_is(kvshm_clear(kv), KVSHM_E_DAMAGED);
    kvshm_cancel(kv, &before);
    ts_detach(kv);
    ts_is(kvshm_attach("damaged", NULL, 0, &kv), 0);
    in_hit(kv, &prefix);
    ts_is(kvshm_reserve(kv, 1, 0, &r), 0);
    kvshm_cancel(kv, &r);
    ts_detach(kv);
}
END_TEST

static int attach_and_die(void *unused)
{
    kvshm *kv;

    (void)unused;
    ts_need(kvshm_attach("damaged", NULL, 0, &kv) == 0 && kv->client == 2);
    return 0;
}

/* Numbers begin again at 1: those that stand in a place, the dead's too, are passed over. */
START_TEST(test_a_number_is_not_given_twice)
{
    struct kvshm_config config = dm_expect(&dm_shapes[0]);
    kvshm *kv = ts_create("damaged", &config), *other;

    ck_assert_int_eq(ts_wait(ts_fork(attach_and_die, NULL)), 0);
    KVSHM__STORE(&kv->header->next_client, 0);
    other = ts_attach("damaged", 0);
    ck_assert_uint_eq(other->client, 3);
    ts_detach(other);
    ts_detach(kv);
}
END_TEST

START_TEST(test_fields_of_others)
{
    take_image(0);
    run(fields_of_others, DM_READING);
    run(fields_of_others, DM_HELD);
    end();
}
END_TEST

START_TEST(test_scribbles)
{
    take_image((unsigned)_i);
    sample_size = ts_amount(50, 200, 20000);
    for (unsigned company = 0; company < DM_COMPANIES; company++)
        run(scribbles, (enum dm_company)company);
    end();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("damage");
    TCase *tcase = tcase_create("damage");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_unchanged, 0, DM_SHAPES);
    tcase_add_loop_test(tcase, test_any_byte, 0, DM_SHAPES);
    tcase_add_test(tcase, test_own_place_overwritten);
    tcase_add_test(tcase, test_a_number_is_not_given_twice);
    tcase_add_test(tcase, test_one_item_of_each);
    tcase_add_test(tcase, test_fields_of_others);
    tcase_add_loop_test(tcase, test_scribbles, 0, DM_SHAPES);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
