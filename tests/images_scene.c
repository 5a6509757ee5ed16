/* SPDX-License-Identifier: Apache-2.0 */
/*
 * images_scene.c - the client that is stepped: it makes an arena of a shape, and does one call on it.
 */
#include "images.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reap.h"
#include "step.h"
#include "sys.h"

#define MAX_LEASES 16

enum { FILLERS = 8, CROWD = IM_FILLER + FILLERS };
static_assert(CROWD + IN_CROWD <= IM_NAMES, "names");
#define BIT(name) (1u << (name))

struct stage {
    const struct im_scene *scene;
    struct im_told *told;
    kvshm *kv, *other, *late; /* late: attached by the deed */
    bool other_idle;          /* the other holds nothing */
    uint64_t orphan;
    struct kvshm_lease head, held[2 * MAX_LEASES];
    unsigned n_held;
    struct kvshm_reservation r;
};

struct deed {
    struct im_deed shown;
    uint32_t needs;  /* names that are cached before, as bits */
    unsigned prefix; /* what it is about */
    unsigned head1;  /* a name that it inserts behind, plus one; 0: none */
    bool fills;      /* it inserts what was reserved before */
    unsigned flags;  /* of the call */
    uint32_t shapes; /* as bits; 0: all but IM_CROWDED */
    bool device;     /* that was reserved with KVSHM_DEVICE */
    bool other_idle;
    void (*prepare)(struct stage *s, const struct deed *d);
    int64_t (*run)(struct stage *s, const struct deed *d);
};

/* ---- Names --------------------------------------------------------------------------------------------- */

static void tokens_from(uint32_t *tokens, uint32_t from, uint32_t first, uint32_t n)
{
    for (uint32_t i = from; i < n; i++)
        tokens[i] = first + i;
}

static struct kvshm_prefix token_name(const struct im_scene *scene, unsigned name)
{
    static const struct {
        uint16_t first, pages, half, more; /* n = pages * m + half * m / 2 + more */
    } of[] = {
        [IM_A] = {1000, 2, 0, 0}, [IM_B] = {1000, 2, 0, 0}, [IM_C] = {1000, 1, 1, 0},
        [IM_D] = {3000, 1, 0, 0}, [IM_E] = {4000, 2, 0, 1}, [IM_G] = {1000, 3, 0, 1},
        [IM_H] = {1000, 1, 0, 0}, [IM_N] = {5000, 2, 1, 0},
    };
    static uint32_t room[IM_NAMES][IM_TOKENS_MAX];
    uint32_t *tokens = room[name], m = scene->page_tokens, base = (uint32_t)scene->seed & 0xffff;
    struct kvshm_prefix prefix;
    uint32_t n = m;

    if (name >= IM_FILLER) {
        tokens_from(tokens, 0, base + 6000 + 100 * name, m);
    } else {
        n = of[name].pages * m + of[name].half * m / 2 + of[name].more;
        tokens_from(tokens, 0, base + of[name].first, n);
        if (name == IM_B)
            tokens_from(tokens, m, base + 2000, n);
    }
    kvshm_prefix_init(&prefix, 0, 0, tokens, n);
    return prefix;
}

struct kvshm_prefix im_name(const struct im_scene *scene, const struct im_told *told, unsigned name)
{
    struct kvshm_prefix prefix = {.n = 0};

    if (name >= CROWD + IN_CROWD || (name >= CROWD && scene->shape != IM_CROWDED))
        return prefix;
    if (name >= CROWD)
        kvshm_prefix_init(&prefix, 0, 0, told->crowd[name - CROWD], 4);
    else if (name == IM_K || name == IM_K_NEW)
        prefix = in_key(7, name == IM_K ? scene->page_tokens + 1 : 2 * scene->page_tokens + 1);
    else if (name == IM_L)
        prefix = in_key(8, 1);
    else
        prefix = token_name(scene, name);
    return prefix;
}

static struct kvshm_prefix name_of(const struct stage *s, unsigned name)
{
    return im_name(s->scene, s->told, name);
}

/* ---- What scenes are made of --------------------------------------------------------------------------- */

/* The same in each run of a seed. */
static uint64_t chance;

static int seeded_random(void *to, size_t size)
{
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)to)[i] = (uint8_t)ts_random(&chance, 256);
    return (int)size;
}

static struct kvshm_config config_of(const struct im_scene *scene)
{
    struct kvshm_config config = ts_config(IN_PAGE_BYTES, scene->page_tokens, scene->frames);

    config.max_clients = scene->max_clients;
    config.max_leases = MAX_LEASES;
    return config;
}

struct kvshm_config im_expect(bool other)
{
    struct kvshm_config config;

    kvshm_config_init(&config);
    memset(config.fingerprint, other ? 3 : 7, sizeof(config.fingerprint));
    return config;
}

/* Cache it, unless frames would have to be taken from others. */
static void put(struct stage *s, unsigned name)
{
    struct kvshm_prefix prefix = name_of(s, name);

    if (in_free(s->kv) >= kvshm_pages_for_tokens(prefix.n, s->scene->page_tokens))
        ts_need(in_insert(s->kv, &prefix, NULL, 0) >= 0);
}

static void lease(struct stage *s, kvshm *kv, unsigned name)
{
    struct kvshm_prefix prefix = name_of(s, name);

    if (prefix.n != 0 && kvshm_lookup(kv, &prefix, 0, &s->held[s->n_held]) == 0)
        s->n_held++;
}

static void let_go(struct stage *s, unsigned name)
{
    struct kvshm_prefix prefix = name_of(s, name);

    ts_need(kvshm_remove(s->kv, &prefix) >= 0);
}

/* ---- The dead ------------------------------------------------------------------------------------------ */

static int die(struct stage *s, bool device)
{
    struct kvshm_config expect;
    struct kvshm_lease one;
    struct kvshm_reservation r;
    struct kvshm_prefix prefix = name_of(s, IM_B);
    kvshm *kv;

    kvshm_config_init(&expect);
    expect.label = "orphan";
    ts_need(kvshm_attach("inside", &expect, 0, &kv) == 0);
    s->told->answer = (int64_t)kv->client;
    kvshm_lookup(kv, &prefix, 0, &one);
    if (in_free(kv) > 2)
        ts_need(kvshm_reserve(kv, 2, 0, &r) == 0);
    if (device && in_free(kv) > 0)
        ts_need(kvshm_reserve(kv, 1, KVSHM_DEVICE, &r) == 0);
    return 0;
}

/* A client that attached, leased, reserved and died. */
static void orphan(struct stage *s, bool device)
{
    int status;
    pid_t pid = fork();

    ts_need(pid >= 0);
    if (pid == 0)
        _exit(die(s, device));
    ts_need(waitpid(pid, &status, 0) == pid && status == 0);
    s->orphan = (uint64_t)s->told->answer;
}

static void needs_orphan(struct stage *s, const struct deed *d)
{
    (void)d;
    if (s->orphan == 0)
        orphan(s, true);
}

/* No client place is left but those of the dead. */
static void all_places_taken(struct stage *s, const struct deed *d)
{
    (void)d;
    for (uint32_t i = 0; i < s->scene->max_clients; i++) {
        if (KVSHM__LOAD(&s->kv->clients[i].number) == 0)
            orphan(s, false);
    }
}

/* ---- Shapes -------------------------------------------------------------------------------------------- */

/* What comes before the deed's own entries. */
static void shape_before(struct stage *s)
{
    if (s->scene->shape == IM_CLEARED) {
        put(s, IM_A);
        put(s, IM_E);
        lease(s, s->kv, IM_A);
        if (!s->other_idle)
            lease(s, s->other, IM_E);
        ts_need(kvshm_clear(s->kv) == 0);
    } else if (s->scene->shape == IM_CROWDED) {
        for (unsigned i = 0; i < IN_CROWD; i++)
            memcpy(s->told->crowd[i], in_crowd(s->kv, i).tokens, sizeof(s->told->crowd[i]));
        for (unsigned i = 0; i < 2 * KVSHM__BUCKET_WORDS; i++)
            put(s, CROWD + i);
    } else if (s->scene->shape == IM_ORPHANS) {
        put(s, IM_B);
        orphan(s, true);
    }
}

static void lease_all(struct stage *s)
{
    for (unsigned name = 0; name < CROWD; name++)
        lease(s, s->kv, name);
}

static void go_to_limbo(struct stage *s)
{
    struct kvshm_lease one = {0};
    struct kvshm_prefix prefix = name_of(s, IM_D);

    lease(s, s->kv, IM_A);
    lease(s, s->kv, IM_E);
    kvshm_lookup(s->kv, &prefix, 0, &one);
    let_go(s, IM_A);
    let_go(s, IM_E);
    let_go(s, IM_D);
    kvshm_release(s->kv, &one);
}

static void shape(struct stage *s)
{
    static const unsigned heads[] = {IM_A, IM_B, IM_C, IM_D, IM_E, IM_K};
    enum im_shape shape = s->scene->shape;

    if (shape == IM_EMPTY || shape == IM_CROWDED)
        return;
    for (unsigned i = 0; i < sizeof(heads) / sizeof(*heads); i++)
        put(s, heads[i]);
    for (unsigned i = 0; (shape == IM_FULL || shape == IM_LEASED) && i < FILLERS; i++)
        put(s, IM_FILLER + i);
    if (!s->other_idle) {
        lease(s, s->other, IM_B);
        lease(s, s->other, IM_E);
    }
    if (shape == IM_LEASED)
        lease_all(s);
    else if (shape == IM_LIMBO)
        go_to_limbo(s);
    else if (shape == IM_CAPACITY)
        ts_need(kvshm__setting_set(s->kv, "capacity", in_entries(s->kv)) == 0);
}

/* ---- Preparations -------------------------------------------------------------------------------------- */

static void reserve_one(struct stage *s, const struct deed *d)
{
    (void)d;
    kvshm_reserve(s->kv, 2, 0, &s->r);
}

static void other_cancels(struct stage *s, const struct deed *d)
{
    if (kvshm_reserve(s->other, 1, d->flags, &s->r) == 0)
        kvshm_cancel(s->other, &s->r);
}

static void join_other(struct stage *s, const struct deed *d)
{
    (void)d;
    ts_need(kvshm_join(s->kv, s->told->other) == 0);
}

static void lease_one(struct stage *s, const struct deed *d)
{
    struct kvshm_prefix prefix = name_of(s, d->prefix);

    kvshm_lookup(s->kv, &prefix, 0, &s->head);
}

/* All lease words are taken. */
static void lease_words(struct stage *s, const struct deed *d)
{
    unsigned before;

    (void)d;
    do {
        before = s->n_held;
        lease(s, s->kv, IM_B);
    } while (s->n_held > before);
}

static void detach_all(struct stage *s, const struct deed *d)
{
    (void)d;
    ts_need(kvshm_detach(s->other) == 0 && kvshm_detach(s->kv) == 0);
}

/* ---- Deeds --------------------------------------------------------------------------------------------- */

static int64_t create(struct stage *s, const struct deed *d)
{
    struct kvshm_config config = config_of(s->scene);

    (void)d;
    return kvshm_create("inside", &config, 0, &s->kv);
}

static int64_t attach(struct stage *s, const struct deed *d)
{
    struct kvshm_config expect = im_expect(false);

    return kvshm_attach("inside", d->shown.fingerprint ? &expect : NULL, 0, &s->late);
}

static int64_t detach(struct stage *s, const struct deed *d)
{
    (void)d;
    return kvshm_detach(s->other);
}

static int64_t unlink_name(struct stage *s, const struct deed *d)
{
    (void)s;
    return kvshm_unlink("inside", d->flags);
}

static int64_t reserve(struct stage *s, const struct deed *d)
{
    return kvshm_reserve(s->kv, 3, d->flags, &s->r);
}

static int64_t fill(struct stage *s, const struct deed *d)
{
    uint32_t token = 5;

    (void)d;
    for (uint32_t i = 0; i < s->r.pages; i++)
        ts_fill(kvshm_reservation_page(&s->r, i), IN_PAGE_BYTES, 0, 0, &token, 1);
    return 0;
}

static int64_t cancel(struct stage *s, const struct deed *d)
{
    (void)d;
    kvshm_cancel(s->kv, &s->r);
    return 0;
}

static int64_t insert(struct stage *s, const struct deed *d)
{
    struct kvshm_prefix prefix = name_of(s, d->prefix);

    return kvshm_insert(s->kv, &prefix, &s->head, &s->r, d->flags);
}

static int64_t lookup(struct stage *s, const struct deed *d)
{
    struct kvshm_prefix prefix = name_of(s, d->prefix);
    int answer = kvshm_lookup(s->kv, &prefix, d->flags, &s->head);

    kvshm_release(s->kv, &s->head);
    return answer;
}

static int64_t match(struct stage *s, const struct deed *d)
{
    struct kvshm_prefix prefix = name_of(s, d->prefix);
    int answer = kvshm_match(s->kv, &prefix, d->flags, &s->head);

    kvshm_release(s->kv, &s->head);
    return answer;
}

static int64_t tag(struct stage *s, const struct deed *d)
{
    (void)d;
    kvshm_lease_tag(&s->head, 77);
    kvshm_release(s->kv, &s->head);
    return 0;
}

static int64_t copy_out(struct stage *s, const struct deed *d)
{
    struct kvshm_prefix prefix = name_of(s, d->prefix);
    uint8_t room[2 * IN_PAGE_BYTES];

    return kvshm_copy_out(s->kv, &prefix, 0, 2, room);
}

static int64_t join(struct stage *s, const struct deed *d)
{
    (void)d;
    return kvshm_join(s->kv, s->told->other);
}

static int64_t leave(struct stage *s, const struct deed *d)
{
    (void)d;
    return kvshm_leave(s->kv, s->told->other);
}

static int64_t evict(struct stage *s, const struct deed *d)
{
    (void)d;
    return kvshm_evict_lru(s->kv);
}

static int64_t remove_name(struct stage *s, const struct deed *d)
{
    struct kvshm_prefix prefix = name_of(s, d->prefix);

    return kvshm_remove(s->kv, &prefix);
}

static int64_t clear(struct stage *s, const struct deed *d)
{
    (void)d;
    return kvshm_clear(s->kv);
}

static int64_t set_capacity(struct stage *s, const struct deed *d)
{
    (void)d;
    return kvshm__setting_set(s->kv, "capacity", 2);
}

static int64_t set_stall(struct stage *s, const struct deed *d)
{
    (void)d;
    return kvshm__setting_set(s->kv, "stall_ms", 77);
}

static int64_t reap(struct stage *s, const struct deed *d)
{
    (void)d;
    return kvshm__reap(s->kv, s->orphan, NULL);
}

static int64_t reap_label(struct stage *s, const struct deed *d)
{
    (void)d;
    return kvshm__reap(s->kv, 0, "orphan");
}

/* ---- The table ----------------------------------------------------------------------------------------- */

#define EMPTY_ONLY (1u << IM_EMPTY)
#define CALL(what, may, ...)                                   \
    {                                                          \
        .shown.name = (what), .shown.rule = (may), __VA_ARGS__ \
    }
#define INSERT(what, may, ...) CALL(what, may, .fills = true, .run = insert, __VA_ARGS__)
#define BEHIND_A               .head1 = IM_A + 1, .needs = BIT(IM_A)

static const struct deed deeds[] = {
    CALL("create", IM_SAME, .shown.names = 1, .shapes = EMPTY_ONLY, .run = create),
    CALL("attach", IM_SAME, .run = attach),
    CALL("attach in a dead one's place", IM_SAME, .prepare = all_places_taken, .run = attach),
    CALL("attach, naming the fingerprint", IM_SAME, .shown.fingerprint = true, .shapes = EMPTY_ONLY,
         .run = attach),
    CALL("detach", IM_SAME, .other_idle = true, .prepare = other_cancels, .run = detach),
    CALL("detach, sweeping its frames", IM_SAME, .other_idle = true, .flags = KVSHM_DEVICE,
         .prepare = other_cancels, .run = detach),
    CALL("unlink", IM_SAME, .shown.names = -1, .other_idle = true,
         .shapes = EMPTY_ONLY | 1u << IM_FULL, .prepare = detach_all, .run = unlink_name),
    CALL("unlink by force", IM_SAME, .shown.names = -1, .flags = KVSHM_FORCE, .run = unlink_name),
    CALL("reserve", IM_BETWEEN, .run = reserve),
    CALL("reserve for a device", IM_BETWEEN, .flags = KVSHM_DEVICE, .run = reserve),
    CALL("fill", IM_SAME, .shown.frames = true, .prepare = reserve_one, .run = fill),
    CALL("cancel", IM_SAME, .prepare = reserve_one, .run = cancel),
    INSERT("insert", IM_BETWEEN, .prefix = IM_N),
    INSERT("insert behind a head", IM_BETWEEN, .prefix = IM_G, BEHIND_A),
    INSERT("insert, extending", IM_EXTENDS, .shown.old_name = IM_A, .shown.new_name = IM_G,
           .prefix = IM_G, BEHIND_A, .flags = KVSHM_EXTEND),
    INSERT("insert, holding", IM_BETWEEN, .prefix = IM_N, .flags = KVSHM_HOLD),
    INSERT("insert, extending and holding", IM_EXTENDS, .shown.old_name = IM_A,
           .shown.new_name = IM_G, .prefix = IM_G, BEHIND_A, .flags = KVSHM_EXTEND | KVSHM_HOLD),
    INSERT("insert, replacing", IM_REPLACES, .shown.old_name = IM_K, .shown.new_name = IM_K_NEW,
           .prefix = IM_K_NEW, .needs = BIT(IM_K)),
    INSERT("insert, sharing pages", IM_BETWEEN, .prefix = IM_G, .needs = BIT(IM_A)),
    INSERT("insert behind half a page, extending", IM_EXTENDS, .shown.old_name = IM_C,
           .shown.new_name = IM_G, .prefix = IM_G, .needs = BIT(IM_C), .head1 = IM_C + 1,
           .flags = KVSHM_EXTEND),
    INSERT("insert of frames for a device", IM_BETWEEN, .prefix = IM_N, .device = true),
    INSERT("insert, holding, with no lease word left", IM_BETWEEN, .prefix = IM_N,
           .needs = BIT(IM_B), .flags = KVSHM_HOLD, .prepare = lease_words),
    INSERT("insert a new key", IM_BETWEEN, .prefix = IM_L),
    INSERT("insert an existing entry", IM_BETWEEN, .prefix = IM_A, .needs = BIT(IM_A)),
    INSERT("insert an existing entry, holding", IM_BETWEEN, .prefix = IM_A, .needs = BIT(IM_A),
           .flags = KVSHM_HOLD),
    INSERT("insert, naming an existing page", IM_BETWEEN, .prefix = IM_H, .needs = BIT(IM_A)),
    INSERT("insert where no word is free", IM_BETWEEN, .prefix = CROWD + IN_CROWD - 1,
           .shapes = 1u << IM_CROWDED),
    CALL("lookup and release", IM_SAME, .prefix = IM_B, .needs = BIT(IM_B), .run = lookup),
    CALL("lookup of a key and release", IM_SAME, .prefix = IM_K, .needs = BIT(IM_K), .run = lookup),
    CALL("lookup, a miss", IM_SAME, .prefix = IM_N, .run = lookup),
    CALL("match and release", IM_SAME, .prefix = IM_G, .needs = BIT(IM_A), .run = match),
    CALL("match, touching below", IM_SAME, .prefix = IM_H, .needs = BIT(IM_A),
         .flags = KVSHM_PEEK | KVSHM_TOUCH, .run = match),
    CALL("tag and release", IM_SAME, .prefix = IM_B, .needs = BIT(IM_B), .prepare = lease_one,
         .run = tag),
    CALL("copy out", IM_SAME, .prefix = IM_B, .needs = BIT(IM_B), .run = copy_out),
    CALL("join", IM_SAME, .run = join),
    CALL("leave", IM_SAME, .prepare = join_other, .run = leave),
    CALL("evict", IM_ATOMIC, .run = evict),
    CALL("remove", IM_ATOMIC, .prefix = IM_E, .needs = BIT(IM_E), .run = remove_name),
    CALL("remove a key", IM_ATOMIC, .prefix = IM_K, .needs = BIT(IM_K), .run = remove_name),
    CALL("clear", IM_ATOMIC, .run = clear),
    CALL("set capacity", IM_BETWEEN, .shown.capacity = true,
         .needs = BIT(IM_A) | BIT(IM_B) | BIT(IM_D), .run = set_capacity),
    CALL("set stall_ms", IM_SAME, .run = set_stall),
    CALL("reap by number", IM_SAME, .prepare = needs_orphan, .run = reap),
    CALL("reap by label", IM_SAME, .prepare = needs_orphan, .run = reap_label),
};
#define DEEDS (sizeof(deeds) / sizeof(*deeds))

const struct im_deed *im_deed(unsigned deed)
{
    return deed < DEEDS ? &deeds[deed].shown : NULL;
}

const char *im_shape(enum im_shape shape)
{
    static const char *const names[] = {"empty",    "full",    "leased",  "heads",  "limbo",
                                        "capacity", "cleared", "orphans", "crowded"};

    return names[shape];
}

bool im_possible(const struct im_scene *scene)
{
    uint32_t shapes = deeds[scene->deed].shapes;

    if (shapes == 0)
        shapes = ((1u << IM_SHAPES) - 1) & ~(1u << IM_CROWDED);
    return shapes >> scene->shape & 1;
}

/* ---- The child ----------------------------------------------------------------------------------------- */

/* Reserve and fill what is to be inserted. */
static void fill_for(struct stage *s, const struct deed *d)
{
    struct kvshm_prefix prefix = name_of(s, d->prefix);
    uint32_t page = s->scene->page_tokens, pages = kvshm_pages_for_tokens(prefix.n, page);

    if (!d->device) {
        ts_need(in_fill(s->kv, &prefix, &s->head, &s->r) == 0);
        return;
    }
    ts_need(kvshm_reserve(s->kv, pages, KVSHM_DEVICE, &s->r) == 0);
    for (uint32_t i = 0; i < pages; i++)
        ts_fill(kvshm_reservation_page(&s->r, i), IN_PAGE_BYTES, 0, 0, prefix.tokens,
                (i + 1) * page < prefix.n ? (i + 1) * page : prefix.n);
}

static void set_up(struct stage *s, const struct deed *d)
{
    struct kvshm_config config = config_of(s->scene);
    struct kvshm_reservation r;

    ts_need(kvshm_create("inside", &config, 0, &s->kv) == 0);
    ts_need(kvshm_attach("inside", NULL, 0, &s->other) == 0);
    s->told->client = s->kv->client;
    s->told->other = s->other->client;
    s->other_idle = d->other_idle;
    shape_before(s);
    for (unsigned name = 0; name < 32; name++) {
        if (d->needs >> name & 1)
            put(s, name);
    }
    if (d->head1 != 0) {
        struct kvshm_prefix prefix = name_of(s, d->head1 - 1);
        kvshm_lookup(s->kv, &prefix, 0, &s->head);
    }
    if (d->fills)
        fill_for(s, d);
    if (!d->other_idle)
        ts_need(kvshm_reserve(s->other, 1, 0, &r) == 0);
    shape(s);
    if (d->prepare)
        d->prepare(s, d);
    if (d->run == detach) {
        s->told->client = s->other->client;
        s->told->other = s->kv->client;
    }
}

int im_perform(void *argument)
{
    const struct im_play *play = argument;
    const struct deed *d = &deeds[play->scene.deed];
    static struct stage s;

    s.scene = &play->scene;
    s.told = play->told;
    chance = play->scene.seed;
    kvshm__sys.random = seeded_random;
    if (d->run != create)
        set_up(&s, d);
    step_begin();
    play->told->answer = d->run(&s, d);
    step_end();
    return 0;
}

int im_mender(void *name)
{
    static uint32_t nothing[] = {0};
    struct kvshm_prefix prefix;
    kvshm *kv;
    int answer;

    ts_need(kvshm_attach(name, NULL, 0, &kv) == 0);
    kvshm_prefix_init(&prefix, 9, 9, nothing, 1);
    step_begin();
    answer = kvshm_remove(kv, &prefix);
    step_end();
    ts_need(answer == KVSHM_MISS);
    return 0;
}
