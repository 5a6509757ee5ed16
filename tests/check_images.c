/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_images.c - death at any instruction of any call that writes shared memory is mended.
 *
 * A client is stepped through a call. Whenever an instruction has changed the segment, a copy of it is what its death
 * there would leave, and is recovered (images.h). Of images in which the writer lock is held, some are recovered by a
 * client that is stepped through its rebuild, and dies at each of its changes; of the images that this leaves, some again.
 *
 * KVSHM_TEST_VERBOSE shows each scene.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "images.h"
#include "step.h"
#include "watch.h"

static struct {
    uint64_t scenes, instructions, images, locked, rebuilds, rebuild_images, twice, killed;
} total;

static uint64_t chance;

static enum im_company any_company(void)
{
    static const enum im_company often[] = {IM_ALONE, IM_ALONE, IM_READING, IM_OTHER, IM_JOINED};

    return often[ts_random(&chance, 5)];
}

static uint64_t recover(const struct im_case *c, const struct watch *w, enum im_company company)
{
    total.images++;
    return im_recover(c, w->last, w->bytes, company);
}

/* ---- Rebuilds, interrupted ------------------------------------------------------------------------------ */

/* Of the changes of a rebuild, about one in so many is followed by the death of a second mender. */
#define TWICE 60

/*
 * Step a client through the rebuild of an image in which the lock is held. Each image of that must serve the same names,
 * and keep what is held, to the same company.
 */
static void interrupt(struct im_case c, uint8_t *image, size_t bytes, uint64_t served,
                      enum im_company company, unsigned depth)
{
    static const char *const names[] = {"mended", "mended-again"};
    uint64_t *change = &c.rebuild[depth], again = ts_random(&chance, TWICE);
    int others_locks = im_write(names[depth], image, bytes, c.play->told, &company);
    struct step mender;
    struct watch w;
    uint64_t now;

    if (depth == 0)
        c.origin = image;
    step_fork(&mender, im_mender, (void *)names[depth]);
    if (!step_to_mark(&mender) || !watch_begin(&w, names[depth], false))
        ck_abort_msg("the mender did not come to its mark");
    while (step_one(&mender)) {
        total.instructions++;
        if (!watch_changed(&w))
            continue;
        ++*change;
        total.rebuild_images++;
        now = recover(&c, &w, company);
        if (now != served && !im_may_leave(image, served, now, false))
            im_found(&c, "a rebuild changes what is served");
        if (depth == 0 && *change == again && im_lock(w.last) != 0) {
            total.twice++;
            interrupt(c, w.last, bytes, served, company, 1);
        }
    }
    step_finish(&mender);
    watch_end(&w);
    if (others_locks >= 0)
        close(others_locks);
    total.rebuilds++;
}

/* ---- One scene ----------------------------------------------------------------------------------------- */

#define IMAGES_MAX 4096
#define KEPT_MAX   4

/* Images of a scene: what each serves, and those whose rebuild is to be interrupted. */
struct album {
    uint64_t n, n_locked;
    uint64_t served[IMAGES_MAX];
    unsigned keep, n_kept;
    struct {
        struct im_case c;
        uint8_t *image;
        uint64_t served;
    } kept[KEPT_MAX];
};

/* Each locked image is as likely to be kept as any other. */
static void keep(struct album *a, const struct im_case *c, const struct watch *w, uint64_t served)
{
    uint64_t at = a->n_locked++;

    if (at >= a->keep)
        at = ts_random(&chance, a->n_locked);
    if (at >= a->keep)
        return;
    if (at >= a->n_kept)
        a->kept[a->n_kept++].image = malloc(w->bytes);
    memcpy(a->kept[at].image, w->last, w->bytes);
    a->kept[at].c = *c;
    a->kept[at].served = served;
}

static void take_image(struct album *a, struct im_case *c, const struct watch *w)
{
    uint64_t served;

    c->image = a->n;
    served = recover(c, w, any_company());
    if (a->n == IMAGES_MAX)
        ck_abort_msg("too many images");
    a->served[a->n++] = served;
    if (im_lock(w->last) == 0)
        return;
    total.locked++;
    keep(a, c, w, served);
}

/* Do what the images serve, one after the other, agree with what the call may do? */
static void check_order(struct im_case *c, const struct album *a)
{
    const struct im_deed *deed = im_deed(c->play->scene.deed);
    uint64_t old = UINT64_C(1) << deed->old_name, new = UINT64_C(1) << deed->new_name;
    uint64_t before = a->n > 0 ? a->served[0] : 0, after = a->n > 0 ? a->served[a->n - 1] : 0;
    uint64_t flipped = 0;

    for (c->image = 1; c->image < a->n; c->image++) {
        uint64_t now = a->served[c->image], flips = now ^ a->served[c->image - 1];

        if (flips & flipped)
            im_found(c, "names %#llx come and go", (unsigned long long)(flips & flipped));
        flipped |= flips;
        if (deed->rule == IM_SAME && now != before)
            im_found(c, "names %#llx came or went", (unsigned long long)(now ^ before));
        if (deed->rule == IM_ATOMIC && now != before && now != after)
            im_found(c, "half done: %#llx", (unsigned long long)now);
        if ((deed->rule == IM_REPLACES || deed->rule == IM_EXTENDS) && before & old &&
            !(now & (old | new)))
            im_found(c, "the old entry is gone, the new one is not there");
        if (deed->rule == IM_REPLACES && (now & old) && (now & new))
            im_found(c, "two entries of one key");
    }
}

/* Is there an arena of that name? */
static bool named(void)
{
    char path[320];

    snprintf(path, sizeof(path), "%s/inside", getenv("KVSHM_DIR"));
    return access(path, F_OK) == 0;
}

/* The name comes once, or goes once, or is not touched. */
static void check_named(const struct im_case *c, int *state)
{
    bool now = named();

    if (now == (*state > 0))
        return;
    if (*state == 2 || *state == -2 || !(im_deed(c->play->scene.deed)->names > 0) == now)
        im_found(c, "the name %s", now ? "comes" : "goes");
    *state = now ? 2 : -2;
}

/* Step the child through its deed. */
static void step_through(struct step *child, struct im_case *c, struct album *a, struct watch *w)
{
    const struct im_deed *deed = im_deed(c->play->scene.deed);
    int state = deed->names > 0 ? -1 : 1;
    bool inside = true;

    if (watch_begin(w, "inside", deed->frames))
        take_image(a, c, w);
    while (inside) {
        bool fresh;

        inside = step_one(child);
        c->instruction = child->instructions;
        if (deed->names != 0 || !inside)
            check_named(c, &state);
        fresh = w->now == NULL && watch_begin(w, "inside", deed->frames);
        if (fresh || watch_changed(w))
            take_image(a, c, w);
    }
    if (state != 1 && state != 2 * deed->names)
        im_found(c, "the name is %s", named() ? "there" : "not there");
    total.instructions += child->instructions;
}

static void play(const struct im_scene *scene, unsigned keep_images)
{
    static struct album a;
    struct im_told *told = ts_shared(sizeof(*told));
    struct im_play play = {*scene, told};
    struct im_case c = {.play = &play};
    struct step child;
    struct watch w;

    memset(&a, 0, sizeof(a));
    a.keep = keep_images;
    step_fork(&child, im_perform, &play);
    if (!step_to_mark(&child))
        ck_abort_msg("the client did not come to its mark");
    step_through(&child, &c, &a, &w);
    step_finish(&child);
    check_order(&c, &a);
    for (unsigned i = 0; i < a.n_kept; i++) {
        interrupt(a.kept[i].c, a.kept[i].image, w.bytes, a.kept[i].served, any_company(), 0);
        free(a.kept[i].image);
    }
    watch_end(&w);
    total.scenes++;
    if (getenv("KVSHM_TEST_VERBOSE") != NULL)
        printf("%s, %s: %llu instructions, %llu images, %llu with the lock, answer %lld\n",
               im_deed(scene->deed)->name, im_shape(scene->shape),
               (unsigned long long)c.instruction, (unsigned long long)a.n,
               (unsigned long long)a.n_locked, (long long)told->answer);
    munmap(told, sizeof(*told));
    if (kvshm_unlink("inside", 0) != -ENOENT && watch_begin(&w, "inside", false))
        ck_abort_msg("the arena cannot be removed: %s", kvshm_errmsg(NULL));
}

/* ---- All of them ----------------------------------------------------------------------------------------- */

static struct im_scene scene_of(unsigned deed, enum im_shape shape)
{
    bool crowded = shape == IM_CROWDED;

    return (struct im_scene){
        .deed = deed,
        .shape = shape,
        .page_tokens = crowded ? 4 : 2u << ts_random(&chance, 3),
        .frames = crowded ? 20 : 14 + (uint32_t)ts_random(&chance, 3),
        .max_clients = 4,
        .seed = ts_random(&chance, UINT64_MAX),
    };
}

/* Of each deed in_all shapes, drawn of those that it is done in; 0: now and then one. */
static void play_some(unsigned deed, uint64_t in_all, uint64_t rebuild_one_in)
{
    unsigned start = (unsigned)ts_random(&chance, IM_SHAPES);

    if (in_all == 0)
        in_all = ts_random(&chance, 4) == 0;
    for (unsigned i = 0; i < IM_SHAPES && in_all > 0; i++) {
        struct im_scene scene = scene_of(deed, (enum im_shape)((start + i) % IM_SHAPES));

        if (!im_possible(&scene))
            continue;
        in_all--;
        play(&scene, ts_random(&chance, rebuild_one_in) == 0);
    }
}

START_TEST(test_death_at_any_instruction_is_mended)
{
    const char *why = step_refused();

    if (why != NULL) {
        printf("SKIP test_death_at_any_instruction_is_mended: %s\n", why);
        return;
    }
    chance = ts_seed();
    /* A short round may draw no scene, or no rebuild. */
    for (uint64_t round = 0; round < step_amount(1, 1, 2) || (total.rebuilds == 0 && round < 1000);
         round++) {
        for (unsigned deed = 0; im_deed(deed) != NULL; deed++)
            play_some(deed, step_amount(0, 1, IM_SHAPES), step_amount(4, 4, 1));
    }
    printf("%llu scenes, %llu instructions stepped, %llu images recovered (%llu of calls with the "
           "lock "
           "held, %llu of rebuilds), %llu rebuilds interrupted at each change, %llu of them twice, "
           "%llu faults\n",
           (unsigned long long)total.scenes, (unsigned long long)total.instructions,
           (unsigned long long)total.images, (unsigned long long)total.locked,
           (unsigned long long)total.rebuild_images, (unsigned long long)total.rebuilds,
           (unsigned long long)total.twice, (unsigned long long)im_wrong);
    ck_assert_uint_eq(im_wrong, 0);
    ck_assert_uint_gt(total.images, total.scenes);
    ck_assert_uint_gt(total.rebuilds, 0);
}
END_TEST

/* ---- Killed while the name comes or goes ------------------------------------------------------------------- */

/* Step a client so far, and kill it. The steps that the deed took, if it came to its end before. */
static uint64_t kill_at(const struct im_play *play, uint64_t at)
{
    struct step child;

    step_fork(&child, im_perform, (void *)play);
    if (!step_to_mark(&child))
        ck_abort_msg("the client did not come to its mark");
    while (child.instructions < at) {
        if (!step_one(&child)) {
            step_finish(&child);
            return child.instructions;
        }
    }
    step_kill(&child);
    total.killed++;
    return at;
}

/* What it left is an arena that is whole, or nothing. */
static void check_left(const struct im_case *c)
{
    struct kvshm_config config = ts_config(IN_PAGE_BYTES, 4, 8);
    struct kvshm_prefix prefix = in_range(1, 4);
    unsigned names = ts_dir_names();
    kvshm *kv = NULL;

    if (names != (unsigned)named())
        im_found(c, "the folder holds %u names", names);
    if (named() ? kvshm_attach("inside", NULL, 0, &kv) != 0
                : kvshm_create("inside", &config, 0, &kv) != 0)
        ck_abort_msg("what a client left when it was killed: %s", kvshm_errmsg(NULL));
    if (audit(kv, stderr) != 0 || in_insert(kv, &prefix, NULL, 0) < 0)
        im_found(c, "killed: what is left is no good: %s", kvshm_errmsg(kv));
    ts_is(kvshm_detach(kv), 0);
    ts_is(kvshm_unlink("inside", 0), 0);
}

static void kill_some(unsigned deed, uint64_t kills)
{
    struct im_play play = {scene_of(deed, IM_EMPTY), ts_shared(sizeof(*play.told))};
    struct im_case c = {.play = &play};
    uint64_t steps = kill_at(&play, UINT64_MAX);

    check_left(&c);
    for (; kills > 0; kills--) {
        c.instruction = ts_random(&chance, steps);
        kill_at(&play, c.instruction);
        check_left(&c);
    }
    munmap(play.told, sizeof(*play.told));
}

START_TEST(test_killed_while_its_name_comes_or_goes)
{
    const char *why = step_refused();

    if (why != NULL) {
        printf("SKIP test_killed_while_its_name_comes_or_goes: %s\n", why);
        return;
    }
    chance = ts_seed() + 1;
    for (unsigned deed = 0; im_deed(deed) != NULL; deed++) {
        if (im_deed(deed)->names != 0)
            kill_some(deed, step_amount(1, 3, 60));
    }
    printf("%llu clients killed while an arena got or lost its name\n",
           (unsigned long long)total.killed);
    ck_assert_uint_eq(im_wrong, 0);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("images");
    TCase *tcase = tcase_create("images");

    (void)argc;
    step_environment(argv);
    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_death_at_any_instruction_is_mended);
    tcase_add_test(tcase, test_killed_while_its_name_comes_or_goes);
    tcase_set_timeout(tcase, 0);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
