/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_bounds.c - a reader finishes in a bounded number of its own instructions, wherever a writer stands (rule 1)
 *
 * A writer is stepped through a call, and stays stopped between two of its instructions, wherever that is: no other
 * place can a process be stopped at. There a reader is stepped through its calls: its instructions are counted, and none
 * of them may enter the kernel.
 *
 * The bound. U is what contains() takes in this build, with nobody writing, for an entry of one whole page: a hash, the
 * 16 words of two buckets, one look at a record, one comparison of a page's tokens, and all that comes with any call.
 * A call looks for the pages of its request, and for the pages below if it is to touch there. A match looks for each whole
 * page at most twice: as one of those that the index words suggest, from the last of them up, and, unless all of these are
 * published, from the root down; and then for the lengths of partial pages. These are its places; each costs U at most,
 * since what is stopped changes nothing between two looks: none is made again. What a lease and its count need is less
 * than 2 U. So
 *
 *     instructions <= (places + 2) * U
 *
 * With a writer that runs, each look may be made KVSHM__LOOKS times at each of 16 words, and all of it 8 times: that is
 * 8 * (places * (1 + 16 * KVSHM__LOOKS) + 2) * U.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "images.h"
#include "index.h"
#include "pages.h"
#include "step.h"
#include "watch.h"

/* ---- The reader ---------------------------------------------------------------------------------------- */

typedef int (*call_fn)(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *lease);

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

static int match_touching(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *lease)
{
    return kvshm_match(kv, prefix, KVSHM_TOUCH, lease);
}

static int contains(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *lease)
{
    (void)lease;
    return kvshm_contains(kv, prefix) ? 0 : KVSHM_MISS;
}

static const struct {
    const char *name;
    call_fn run;
    bool partial; /* looks for each length of a partial page */
    bool below;   /* and for entries below */
} calls[] = {
    {"contains", contains, false, false},
    {"lookup", lookup, false, false},
    {"lookup with KVSHM_PEEK", peek, false, false},
    {"match", match, true, false},
    {"match with KVSHM_TOUCH", match_touching, true, true},
};
#define CALLS (sizeof(calls) / sizeof(*calls))

/* Shared with the reader: what it is to do next, and what came of it last. */
struct talk {
    const char *arena;
    const struct im_scene *scene;
    const struct im_told *told;
    bool end;
    unsigned call, name;
    int answer;
    uint32_t tokens;
    uint64_t wrong;
};

static int reader(void *argument)
{
    struct talk *talk = argument;
    struct kvshm_lease lease;
    int answer;
    kvshm *kv;

    ts_need(kvshm_attach(talk->arena, NULL, 0, &kv) == 0);
    while (!talk->end) {
        struct kvshm_prefix prefix = im_name(talk->scene, talk->told, talk->name);

        memset(&lease, 0, sizeof(lease));
        step_begin();
        answer = calls[talk->call].run(kv, &prefix, &lease);
        step_end();
        talk->answer = answer;
        talk->tokens = lease.tokens;
        talk->wrong = lease.kv != NULL ? in_wrong(&lease, &prefix) : 0;
        step_begin();
        kvshm_release(kv, &lease);
        step_end();
    }
    return 0;
}

/* ---- Counting ------------------------------------------------------------------------------------------ */

static struct {
    uint64_t scenes, rebuilds, states, calls, instructions, most, most_places, release, wrong;
} total;
static uint64_t chance, unit;

static struct step reading;
static struct talk *talk;

/* Far beyond the bound. */
#define RUNAWAY 300000

/* Up to its next end. */
static uint64_t count_one(const char *what)
{
    if (!step_to_mark(&reading))
        ck_abort_msg("the reader ended");
    do {
        if (reading.instructions > RUNAWAY)
            ck_abort_msg(
                "KVSHM_TEST_SEED=%llu: a %s does not come to an end, with a writer stopped",
                (unsigned long long)ts_seed(), what);
        if (step_at_system_call(&reading))
            ck_abort_msg("KVSHM_TEST_SEED=%llu: a %s makes a system call, with a writer at work",
                         (unsigned long long)ts_seed(), what);
    } while (step_one(&reading));
    total.instructions += reading.instructions;
    return reading.instructions;
}

/* One call, and the release after it. */
static uint64_t count_call(unsigned call, unsigned name)
{
    uint64_t steps, release;

    talk->call = call;
    talk->name = name;
    steps = count_one(calls[call].name);
    release = count_one("release");
    if (release > total.release)
        total.release = release;
    total.calls++;
    return steps;
}

/* Whole pages twice, and lengths of partial ones. */
static uint64_t match_places(uint32_t tokens, uint32_t page_tokens)
{
    return 2 * (tokens / page_tokens) + page_tokens - 1;
}

static uint64_t places_of(unsigned call, unsigned name)
{
    struct kvshm_prefix prefix = im_name(talk->scene, talk->told, name);
    uint32_t m = talk->scene->page_tokens;
    uint64_t places = kvshm_pages_for_tokens(prefix.n, m);

    if (calls[call].partial)
        places = match_places(prefix.n, m);
    return calls[call].below ? places + talk->scene->frames : places;
}

static void fault(const char *what, unsigned call, unsigned name, uint64_t writer_at,
                  uint64_t steps)
{
    fprintf(stderr,
            "KVSHM_TEST_SEED=%llu, %s, %s, writer at instruction %llu: %s of name %u: %s, in %llu "
            "instructions, %llu places of %llu each\n",
            (unsigned long long)ts_seed(), im_deed(talk->scene->deed)->name,
            im_shape(talk->scene->shape), (unsigned long long)writer_at, calls[call].name, name,
            what, (unsigned long long)steps, (unsigned long long)places_of(call, name),
            (unsigned long long)unit);
    if (++total.wrong > 20)
        ck_abort_msg("too many faults");
}

/* What the reader is asked, again and again. */
struct question {
    unsigned call, name;
    uint64_t quiet;  /* instructions, with nobody at work: the most of before and after the deed */
    bool was_served; /* then, each time */
    uint64_t most;
    uint64_t missed; /* the writer's instruction, if it was missed meanwhile; 0: never */
};

static void ask(struct question *q, uint64_t writer_at)
{
    uint64_t places = places_of(q->call, q->name), steps = count_call(q->call, q->name);

    if (steps > (places + 2) * unit)
        fault("beyond the bound", q->call, q->name, writer_at, steps);
    if (talk->answer < 0 || talk->wrong != 0)
        fault("wrong", q->call, q->name, writer_at, steps);
    if (talk->answer == KVSHM_MISS && q->missed == 0)
        q->missed = writer_at;
    if (steps > q->most)
        q->most = steps;
    if (steps > total.most) {
        total.most = steps;
        total.most_places = places;
    }
}

/* ---- One scene ----------------------------------------------------------------------------------------- */

static const struct question asked[] = {
    {.call = 0, .name = IM_A},     {.call = 1, .name = IM_A}, {.call = 1, .name = IM_K},
    {.call = 1, .name = IM_K_NEW}, {.call = 1, .name = IM_N}, {.call = 1, .name = IM_E},
    {.call = 2, .name = IM_E},     {.call = 3, .name = IM_G}, {.call = 4, .name = IM_H},
    {.call = 3, .name = IM_N},
};
/* So many of them in each scene, drawn. */
#define ASKED 3

static void draw(struct question *questions)
{
    unsigned n = sizeof(asked) / sizeof(*asked), first = (unsigned)ts_random(&chance, n);

    for (unsigned i = 0; i < ASKED; i++)
        questions[i] = asked[(first + i * 3) % n];
}

static void begin_reading(const struct im_play *play, const char *arena)
{
    talk = ts_shared(sizeof(*talk));
    talk->arena = arena;
    talk->scene = &play->scene;
    talk->told = play->told;
    step_fork(&reading, reader, talk);
}

static void end_reading(void)
{
    talk->end = true;
    /* It is behind its last end, and looks there. */
    if (step_to_mark(&reading))
        ck_abort_msg("the reader goes on");
    munmap(talk, sizeof(*talk));
}

static void ask_quiet(struct question *questions, bool first)
{
    for (unsigned i = 0; i < ASKED; i++) {
        struct question *q = &questions[i];
        uint64_t steps = count_call(q->call, q->name);

        if (steps > q->quiet)
            q->quiet = steps;
        q->was_served = (first || q->was_served) && talk->answer == 0;
    }
}

/* U */
static void measure_unit(void)
{
    uint64_t steps = count_call(0, IM_D);

    if (talk->answer == 0 && steps > unit)
        unit = steps;
}

/* An image in which the lock is held: one of those that were met, whichever. */
static struct {
    uint8_t *image;
    size_t bytes;
    uint64_t met;
} torn;

static void keep_torn(const struct watch *w)
{
    if (im_lock(w->now) == 0 || ts_random(&chance, ++torn.met) != 0)
        return;
    torn.image = realloc(torn.image, w->bytes);
    torn.bytes = w->bytes;
    memcpy(torn.image, w->now, w->bytes);
}

/* Step the writer to its end; where it has changed the segment, and at one of so many others, the reader is asked. */
static void write_and_read(struct step *writer, struct watch *w, struct question *questions,
                           uint64_t one_in)
{
    bool inside = true;

    while (inside) {
        inside = step_one(writer);
        if (!watch_changed(w) && ts_random(&chance, 200) != 0)
            continue;
        if (ts_random(&chance, one_in) != 0)
            continue;
        total.states++;
        keep_torn(w);
        ask(&questions[ts_random(&chance, ASKED)], writer->instructions);
        watch_changed(w);
    }
}

/*
 * What was there before and is after was there all the time; and what it cost did not depend on the writer. What a match
 * costs does: while a writer takes pages away, or calls them back, some that have words are published and some are not, and
 * only then it looks for them twice. Its bound is that of ask().
 */
static void check_answers(const struct question *questions)
{
    for (unsigned i = 0; i < ASKED; i++) {
        const struct question *q = &questions[i];

        if (q->was_served && q->missed != 0)
            fault("missed, and there all the time", q->call, q->name, q->missed, q->most);
        if (!calls[q->call].partial && q->most > q->quiet + unit)
            fault("dearer with a writer stopped", q->call, q->name, 0, q->most);
    }
}

static void read_beside(struct step *writer, const struct im_play *play, const char *arena,
                        uint64_t one_in)
{
    struct question questions[ASKED];
    struct watch w;

    draw(questions);
    if (!step_to_mark(writer) || !watch_begin(&w, arena, false))
        ck_abort_msg("the writer did not come to its mark");
    begin_reading(play, arena);
    measure_unit();
    ask_quiet(questions, true);
    watch_changed(&w);
    if (unit != 0) {
        write_and_read(writer, &w, questions, one_in);
        total.scenes++;
    }
    step_finish(writer);
    ask_quiet(questions, false);
    if (unit != 0)
        check_answers(questions);
    end_reading();
    watch_end(&w);
}

/* ---- All of them ----------------------------------------------------------------------------------------- */

static void play(unsigned deed, enum im_shape shape, uint64_t one_in)
{
    struct im_play play = {{deed, shape, 8, 14, 4, ts_random(&chance, UINT64_MAX)},
                           ts_shared(sizeof(*play.told))};
    enum im_company alone = IM_ALONE;
    struct step writer;

    torn.met = 0;
    step_fork(&writer, im_perform, &play);
    read_beside(&writer, &play, "inside", one_in);
    if (torn.met > 0) {
        im_write("mended", torn.image, torn.bytes, play.told, &alone);
        step_fork(&writer, im_mender, (void *)"mended");
        read_beside(&writer, &play, "mended", one_in);
        total.rebuilds++;
    }
    ts_is(kvshm_unlink("inside", 0), 0);
    munmap(play.told, sizeof(*play.told));
}

/* Calls that change entries. */
static bool changes(unsigned deed)
{
    return im_deed(deed)->rule != IM_SAME;
}

static void play_all(uint64_t shapes, uint64_t one_in, uint64_t deed_one_in)
{
    static const enum im_shape which[] = {IM_HEADS, IM_FULL, IM_LIMBO, IM_CAPACITY, IM_EMPTY};

    for (unsigned deed = 0; im_deed(deed) != NULL; deed++) {
        unsigned start = total.scenes == 0 ? 0 : (unsigned)ts_random(&chance, 5);
        struct im_scene scene = {.deed = deed, .shape = IM_HEADS};

        if (!changes(deed) || !im_possible(&scene) || ts_random(&chance, deed_one_in) != 0)
            continue;
        for (unsigned i = 0; i < shapes; i++)
            play(deed, which[(start + i) % 5], one_in);
    }
}

START_TEST(test_readers_take_bounded_steps_beside_a_stopped_writer)
{
    const char *why = step_refused();

    if (why != NULL) {
        printf("SKIP test_readers_take_bounded_steps_beside_a_stopped_writer: %s\n", why);
        return;
    }
    chance = ts_seed() + 2;
    for (unsigned i = 0; i == 0 || (total.states == 0 && i < 1000); i++) /* it may draw no deed */
        play_all(step_amount(1, 1, 5), step_amount(60, 30, 8), step_amount(5, 2, 1));
    printf("%llu writers stopped at %llu instructions, %llu of them in a rebuild; %llu calls of "
           "readers, "
           "%llu instructions stepped, 0 system calls; U is %llu instructions; the most that a "
           "call took "
           "were %llu, for %llu places: the bound was %llu, and is %llu with a writer that runs; a "
           "release takes %llu at most\n",
           (unsigned long long)total.scenes, (unsigned long long)total.states,
           (unsigned long long)total.rebuilds, (unsigned long long)total.calls,
           (unsigned long long)total.instructions, (unsigned long long)unit,
           (unsigned long long)total.most, (unsigned long long)total.most_places,
           (unsigned long long)((total.most_places + 2) * unit),
           (unsigned long long)(8 * (total.most_places * (1 + 16 * KVSHM__LOOKS) + 2) * unit),
           (unsigned long long)total.release);
    ck_assert_uint_eq(total.wrong, 0);
    ck_assert_uint_gt(total.states, 0);
}
END_TEST

/* ---- Pages looked for twice ------------------------------------------------------------------------------ */

#define LONG_PAGES 16u

static struct {
    unsigned pages;
    int answer;
    bool end;
} * called;

/* A match of the long prefix; the first time, contains() of a page, which is U. */
static int long_reader(void *unused)
{
    struct kvshm_prefix prefix = in_range(1000, 4);
    kvshm *kv = in_attach();

    (void)unused;
    step_begin();
    ts_need(kvshm_contains(kv, &prefix));
    step_end();
    prefix = in_range(0, 4 * LONG_PAGES);
    while (!called->end) {
        struct kvshm_lease lease;

        step_begin();
        called->answer = kvshm_match(kv, &prefix, 0, &lease);
        step_end();
        called->pages = lease.pages;
        step_begin();
        kvshm_release(kv, &lease);
        step_end();
    }
    return 0;
}

static uint64_t count_match(uint32_t published)
{
    uint64_t steps = count_one("match");

    count_one("release"); /* before it the answer is noted */
    ck_assert_int_eq(called->answer, published > 0 ? 0 : KVSHM_MISS);
    ck_assert_uint_eq(called->pages, published);
    return steps;
}

/* A chain is called back from limbo, root first, as an insert does; the reader matches after each page of it. */
START_TEST(test_a_match_looks_for_a_whole_page_at_most_twice)
{
    struct kvshm_prefix prefix = in_range(0, 4 * LONG_PAGES);
    kvshm *kv = in_create(4, 2 * LONG_PAGES, 4);
    uint64_t steps[LONG_PAGES + 1], most = 0, u, bound;
    struct kvshm_lease lease;

    if (step_refused()) {
        printf("SKIP test_a_match_looks_for_a_whole_page_at_most_twice: %s\n", step_refused());
        return;
    }
    in_put(kv, 1000, 4);
    in_put(kv, 0, 4 * LONG_PAGES);
    ts_is(kvshm_lookup(kv, &prefix, 0, &lease), 0);
    ts_is(kvshm_remove(kv, &prefix), 0);
    ck_assert_uint_eq(in_limbo(kv), LONG_PAGES);
    called = ts_shared(sizeof(*called));
    step_fork(&reading, long_reader, NULL);
    u = count_one("contains");
    for (uint32_t page = 0; page <= LONG_PAGES; page++) {
        steps[page] = count_match(page);
        most = steps[page] > most ? steps[page] : most;
        if (page < LONG_PAGES)
            kvshm__pages_recall(kv, kvshm__pages_ancestor(kv, lease.page, page));
    }
    bound = (match_places(prefix.n, 4) + 2) * u;
    printf("a match of %u pages takes %llu instructions with none of them called back, %llu with "
           "all but one, %llu with all; U is %llu, the bound %llu\n",
           LONG_PAGES, (unsigned long long)steps[0], (unsigned long long)steps[LONG_PAGES - 1],
           (unsigned long long)steps[LONG_PAGES], (unsigned long long)u, (unsigned long long)bound);
    ck_assert_uint_le(most, bound);
    called->end = true;
    step_finish(&reading);
    munmap(called, sizeof(*called));
    kvshm_release(kv, &lease);
    ts_detach(kv);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("bounds");
    TCase *tcase = tcase_create("bounds");

    (void)argc;
    step_environment(argv);
    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_readers_take_bounded_steps_beside_a_stopped_writer);
    tcase_add_test(tcase, test_a_match_looks_for_a_whole_page_at_most_twice);
    tcase_set_timeout(tcase, 0);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
