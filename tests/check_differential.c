/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_differential.c - random calls, against the model of what they mean
 *
 * Each case makes an arena and a model of one setting, and puts random calls to both: all answers, counts, stamps and
 * the bytes of all served pages must be the same. Calls go through two writing handles and, where nothing is leased, a
 * read-only one. Prompts are made of few blocks, so that they share heads, end inside each other's pages, and return.
 *
 * Where frames run out, the model cannot say how many entries leave; then what has left must be the oldest that no lease
 * names, no more of them than were needed, or than a batch.
 *
 * The seed is printed; KVSHM_TEST_SEED makes the same calls again.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "differ.h"

static uint64_t first_seed;

static void begin(struct run *r, const char *verb, unsigned flags)
{
    r->verb = verb;
    r->flags = flags;
    r->calls++;
}

/* The entry was touched by the call just made: its stamp is the latest of all. Learns it. */
static void learn_stamp(struct run *r, struct model_entry *e)
{
    struct kvshm_lease lease;
    struct kvshm_prefix prefix;

    differ_prefix_of_entry(&prefix, e);
    differ_same(r, "a peek at the entry just touched",
                kvshm_lookup(r->observer, &prefix, KVSHM_PEEK, &lease), 0);
    differ_same(r, "its stamp is the latest", lease.last_used > r->last_stamp, 1);
    e->last_used = r->last_stamp = lease.last_used;
}

static void touched(struct run *r, struct model_entry *e)
{
    model_touch(&r->model, e);
    learn_stamp(r, e);
}

/* One entry that runs through the page was touched, the library chose which. */
static void touched_through(struct run *r, const struct model_page *page)
{
    struct model_entry *chosen = NULL;
    struct kvshm_lease lease;
    struct kvshm_prefix prefix;
    unsigned changed = 0;

    for (size_t i = 0; i < r->model.entries; i++) {
        struct model_entry *e = r->model.entry[i];

        differ_prefix_of_entry(&prefix, e);
        if (!model_runs_through(e, page))
            continue;
        differ_same(r, "a peek at an entry through the page served",
                    kvshm_lookup(r->observer, &prefix, KVSHM_PEEK, &lease), 0);
        if (lease.last_used != e->last_used) {
            chosen = e;
            changed++;
        }
    }
    differ_same(r, "entries touched through the page served", changed, 1);
    touched(r, chosen);
}

/* ---- Finding ------------------------------------------------------------------------------------------- */

static kvshm *random_handle(struct run *r, bool observer_too)
{
    r->handle = (unsigned)differ_chance(r, HANDLES + observer_too);
    return r->handle == HANDLES ? r->observer : r->kv[r->handle];
}

static void same_answer(const struct run *r, int code, const struct kvshm_lease *lease,
                        const struct model_answer *a)
{
    differ_same(r, "the answer", code, a->outcome);
    differ_same(r, ".tokens", lease->tokens, a->tokens);
    differ_same(r, ".pages", lease->pages, a->pages);
    differ_same(r, ".pending_tokens", lease->pending_tokens, 0);
    if (code != 0)
        differ_all_zero(r, "bytes set in the lease of a miss", lease, sizeof(*lease));
}

/* The touch that the call was to make, if any, was made; .last_used counts it. */
static void same_touch(struct run *r, const struct kvshm_lease *lease, const struct model_answer *a)
{
    if (a->entry && r->flags != KVSHM_PEEK)
        touched(r, a->entry);
    else if (r->flags & KVSHM_TOUCH)
        touched_through(r, a->page);
    differ_same(r, ".last_used", (int64_t)lease->last_used,
                a->entry ? (int64_t)a->entry->last_used : 0);
}

/* Looks at what the lease serves; keeps it in a slot, or releases it. */
static void keep_or_release(struct run *r, struct kvshm_lease *lease, const struct model_answer *a)
{
    struct slot *slot = &r->slot[differ_chance(r, SLOTS)];
    struct model_lease here = {.page = a->page, .tokens = a->tokens, .pages = a->pages};

    differ_same_pages(r, lease, &here);
    if (!slot->model.page && differ_chance(r, 3) == 0) {
        slot->lease = *lease;
        slot->handle = r->handle;
        model_lease(&r->model, a, &slot->model);
        return;
    }
    kvshm_release(r->kv[r->handle], lease);
    differ_all_zero(r, "bytes set in a released lease", lease, sizeof(*lease));
}

static void do_find(struct run *r)
{
    static const unsigned flags[] = {0, 0, 0, KVSHM_TOUCH, KVSHM_PEEK, KVSHM_PEEK | KVSHM_TOUCH};
    bool match = differ_chance(r, 2);
    struct kvshm_lease lease;
    struct model_answer a;
    kvshm *kv = NULL;
    int code = 0;

    differ_random_prefix(r, true);
    if (!r->prefix.tokens)
        match = false;
    begin(r, match ? "match" : "lookup", flags[differ_chance(r, 6)]);
    if (!r->prefix.tokens && differ_chance(r, 3) == 0)
        r->prefix.n = 0;
    kv = random_handle(r, r->flags == KVSHM_PEEK);
    memset(&lease, 0x5a, sizeof(lease));
    a = match ? model_walk(&r->model, &r->prefix) : model_look(&r->model, &r->prefix);
    code = match ? kvshm_match(kv, &r->prefix, r->flags, &lease)
                 : kvshm_lookup(kv, &r->prefix, r->flags, &lease);
    same_answer(r, code, &lease, &a);
    if (code != 0)
        return;
    if (r->flags & KVSHM_PEEK)
        differ_same(r, "pages leased by a peek", kvshm_lease_page(&lease, 0) != NULL, 0);
    same_touch(r, &lease, &a);
    if (!(r->flags & KVSHM_PEEK))
        keep_or_release(r, &lease, &a);
}

static void do_contains(struct run *r)
{
    differ_random_prefix(r, true);
    begin(r, "contains", 0);
    if (!r->prefix.tokens && differ_chance(r, 3) == 0)
        r->prefix.n = 0;
    differ_same(r, "the answer", kvshm_contains(random_handle(r, true), &r->prefix),
                model_find(&r->model, &r->prefix) != NULL);
}

static void do_copy_out(struct run *r)
{
    uint8_t bytes[DEPTH * PAGE_BYTES];
    uint32_t n = 1 + (uint32_t)differ_chance(r, DEPTH);
    struct model_answer a;
    uint32_t first = 0;
    uint32_t copied = 0;
    uint32_t i = 0;
    kvshm *kv = NULL;

    differ_random_prefix(r, true);
    a = model_look(&r->model, &r->prefix);
    begin(r, "copy_out", 0);
    kv = random_handle(r, true);
    first = a.pages ? (uint32_t)differ_chance(r, a.pages) : 0;
    copied = a.pages - first < n ? a.pages - first : n;
    differ_same(r, "pages copied", kvshm_copy_out(kv, &r->prefix, first, n, bytes), copied);
    if (a.outcome != 0)
        return;
    i = a.pages;
    for (const struct model_page *page = a.page; page; page = page->parent)
        if (--i >= first && i < first + copied)
            differ_same_bytes(r, bytes + (i - first) * PAGE_BYTES, page);
    if (kv != r->observer)
        touched(r, a.entry);
}

static void do_release(struct run *r)
{
    struct slot *slot = &r->slot[differ_chance(r, SLOTS)];

    if (!slot->model.page)
        return;
    begin(r, "release", 0);
    r->handle = slot->handle;
    differ_same_pages(r, &slot->lease, &slot->model);
    kvshm_release(r->kv[slot->handle], &slot->lease);
    differ_all_zero(r, "bytes set in a released lease", &slot->lease, sizeof(slot->lease));
    model_release(&r->model, &slot->model);
}

/* ---- Filling ------------------------------------------------------------------------------------------- */

static bool still_cached(const struct run *r, const struct model_entry *e)
{
    struct kvshm_prefix prefix;

    differ_prefix_of_entry(&prefix, e);
    return kvshm_contains(r->observer, &prefix);
}

/*
 * Frames ran out: what has left are the oldest entries that no lease names, and the last of them was needed, or filled
 * a batch.
 */
static void same_evicted(struct run *r, uint64_t wanted)
{
    uint64_t batch = r->setting->frames / 64;
    uint64_t had = differ_frames_free(r);
    bool stayed = false;

    batch = batch < 1 ? 1 : batch > 64 ? 64 : batch;
    for (size_t i = 0; i < r->model.entries;) {
        struct model_entry *e = r->model.entry[i];
        uint64_t now = differ_frames_free(r);

        if (model_leased(&r->model, e->page) || still_cached(r, e)) {
            stayed |= !model_leased(&r->model, e->page);
            differ_same(r, "an entry that is cached, of those that are", still_cached(r, e), 1);
            i++;
            continue;
        }
        differ_same(r, "entries evicted although older ones stayed", stayed, 0);
        differ_same(r, "entries evicted although frames were free",
                    now >= wanted && now - had >= batch, 0);
        model_drop(&r->model, e);
    }
    differ_same(r, "frames free after evictions suffice", differ_frames_free(r) >= wanted, 1);
}

/* Reserves and fills; false: there is no space, and the model says so too. */
static bool reserve(struct run *r, unsigned handle, uint32_t n, struct kvshm_reservation *to)
{
    uint64_t available = r->setting->frames - model_pages_held(&r->model) - r->reserved;
    int code = 0;

    memset(to, 0x5a, sizeof(*to));
    code = kvshm_reserve(r->kv[handle], n, 0, to);
    differ_same(r, "the answer of reserve", code, n <= available ? 0 : -ENOSPC);
    if (code != 0) {
        differ_all_zero(r, "bytes set in a reservation that was refused", to, sizeof(*to));
        return false;
    }
    differ_same(r, ".pages of the reservation", to->pages, n);
    if (n > differ_frames_free(r))
        same_evicted(r, n);
    r->reserved += n;
    return true;
}

static void cancel(struct run *r, unsigned handle, struct kvshm_reservation *reservation)
{
    r->reserved -= reservation->pages;
    kvshm_cancel(r->kv[handle], reservation);
    differ_all_zero(r, "bytes set in a cancelled reservation", reservation, sizeof(*reservation));
}

/* A head to insert behind, if the prefix can be made one that goes on from it. */
static struct slot *random_head(struct run *r)
{
    struct slot *slot = &r->slot[differ_chance(r, SLOTS)];
    struct model_page *page = slot->model.page;
    uint32_t n = 0;

    if (!page || page->key_only || differ_chance(r, 3) == 0)
        return NULL;
    differ_page_words(r->tokens, page);
    n = slot->model.tokens;
    if (differ_chance(r, 4) != 0 && slot->model.pages < DEPTH) {
        n += 1 + (uint32_t)differ_chance(r, r->setting->page_tokens + 1);
        differ_random_tokens(r, slot->model.tokens, n);
    }
    if (model_pages_for(&r->model, n) > DEPTH)
        n = DEPTH * r->setting->page_tokens;
    kvshm_prefix_init(&r->prefix, page->adapter_id, page->tenant, r->tokens, n);
    return slot;
}

/* After an insert that the model has made too. */
static void inserted(struct run *r, struct slot *slot)
{
    struct kvshm_prefix any = r->prefix;
    struct model_entry *e = NULL;

    if (!any.tokens)
        any.n = 0;
    e = model_find(&r->model, &any);
    if (e)
        learn_stamp(r, e);
    if (slot && e && r->flags & KVSHM_HOLD)
        differ_same(r, ".last_used of the new lease", (int64_t)slot->lease.last_used,
                    (int64_t)e->last_used);
    if (slot) {
        slot->handle = r->handle;
        differ_same_pages(r, &slot->lease, &slot->model);
    }
}

static uint64_t evicted_entries(const struct run *r)
{
    struct kvshm_stats stats;

    kvshm_stats_init(&stats);
    differ_same(r, "the answer of stats", kvshm_stats(r->observer, &stats), 0);
    return stats.evicted_entries;
}

/* Entries that the insert itself replaces or extends. */
static bool is_its_own(const struct run *r, const struct slot *slot, const struct model_entry *e)
{
    struct kvshm_prefix any_length = r->prefix;

    if (!any_length.tokens)
        any_length.n = 0;
    return e == model_find(&r->model, &any_length) ||
           (slot && (r->flags & KVSHM_EXTEND) && e->page == slot->model.page);
}

/*
 * Where frames run out the insert itself evicts only for want of an index word, which is by chance: where words may
 * stand hangs on the arena's secret. Each such eviction is of one entry; those of its own are the model's to drop.
 */
static void same_crowded_out(struct run *r, const struct slot *slot, uint64_t evicted)
{
    uint64_t gone = 0;
    uint64_t own = 0;

    for (size_t i = 0; evicted > 0 && i < r->model.entries;) {
        struct model_entry *e = r->model.entry[i];

        if (is_its_own(r, slot, e)) {
            own++;
        } else if (!still_cached(r, e)) {
            model_drop(&r->model, e);
            gone++;
            continue;
        }
        i++;
    }
    differ_same(r, "entries gone, of those that the insert evicted",
                gone <= evicted && evicted <= gone + own, 1);
}

/* Puts the insert to both; the reservation is full. */
static void insert(struct run *r, struct slot *slot, struct kvshm_reservation *reservation,
                   bool stale)
{
    struct kvshm_lease before = {0};
    struct kvshm_lease *head = slot ? &slot->lease : NULL;
    uint32_t pages = reservation->pages;
    uint64_t evicted = evicted_entries(r);
    int code = 0;

    if (slot)
        before = slot->lease;
    code = kvshm_insert(r->kv[r->handle], &r->prefix, head,
                        pages || differ_chance(r, 2) ? reservation : NULL, r->flags);
    if (stale) {
        differ_same(r, "the answer", code, KVSHM_E_STALE);
        differ_same(r, "frames kept by an error", reservation->pages, pages);
        differ_same(r, "head changed by an error", slot && memcmp(&before, head, sizeof(before)),
                    0);
        if (pages)
            cancel(r, r->handle, reservation);
        return;
    }
    r->reserved -= pages;
    if (r->setting->capacity == KVSHM_UNLIMITED)
        same_crowded_out(r, slot, evicted_entries(r) - evicted);
    differ_same(
        r, "the answer", code,
        model_insert(&r->model, &r->prefix, slot ? &slot->model : NULL, r->contents, r->flags));
    differ_all_zero(r, "bytes set in a consumed reservation", reservation, sizeof(*reservation));
    inserted(r, slot);
}

static void do_insert(struct run *r)
{
    static const unsigned flags[] = {0, 0, KVSHM_HOLD, KVSHM_EXTEND, KVSHM_HOLD | KVSHM_EXTEND};
    struct kvshm_reservation reservation = {0};
    struct slot *slot = NULL;
    uint32_t whole = 0;
    uint32_t need = 0;
    bool stale = false;

    begin(r, "insert", flags[differ_chance(r, 5)]);
    r->handle = (unsigned)differ_chance(r, HANDLES);
    r->contents++;
    slot = random_head(r);
    if (slot) {
        r->handle = slot->handle;
        whole = slot->model.tokens / r->setting->page_tokens;
        stale = slot->model.page->epoch != r->model.epoch;
    } else {
        differ_random_prefix(r, differ_chance(r, 4) == 0);
        slot = &r->slot[differ_chance(r, SLOTS)];
        if (slot->model.page || (!(r->flags & KVSHM_HOLD) && differ_chance(r, 2)))
            slot = NULL;
        if (!slot)
            r->flags &= ~KVSHM_HOLD;
    }
    need = model_pages_for(&r->model, r->prefix.n) - whole;
    if (need && !reserve(r, r->handle, need, &reservation))
        return;
    differ_fill(r, &reservation, whole);
    insert(r, slot, &reservation, stale);
    if (slot && !slot->model.page)
        differ_all_zero(r, "bytes set in an empty head", &slot->lease, sizeof(slot->lease));
}

/* Frames are reserved now, and inserted or cancelled by a later step. */
static void do_pending(struct run *r)
{
    struct pending *p = &r->pending[differ_chance(r, PENDING)];
    uint32_t n = 1 + (uint32_t)differ_chance(r, DEPTH - 1);

    r->handle = p->handle;
    if (!p->reservation.pages) {
        begin(r, "reserve", 0);
        p->handle = r->handle = (unsigned)differ_chance(r, HANDLES);
        p->epoch = r->model.epoch;
        reserve(r, p->handle, n, &p->reservation);
    } else if (differ_chance(r, 3) == 0) {
        begin(r, "cancel", 0);
        cancel(r, p->handle, &p->reservation);
    } else {
        begin(r, "insert of frames reserved before", 0);
        r->contents++;
        differ_random_prefix(r, false);
        n = p->reservation.pages * r->setting->page_tokens;
        if (r->prefix.tokens)
            differ_random_tokens(r, 0, n);
        r->prefix.n = n;
        differ_fill(r, &p->reservation, 0);
        insert(r, NULL, &p->reservation, p->epoch != r->model.epoch);
    }
}

/* ---- Giving up ----------------------------------------------------------------------------------------- */

static void do_evict(struct run *r)
{
    begin(r, "evict_lru", 0);
    differ_same(r, "frames given back", kvshm_evict_lru(random_handle(r, false)),
                (int64_t)model_evict_lru(&r->model));
}

static void do_remove(struct run *r)
{
    differ_random_prefix(r, true);
    begin(r, "remove", 0);
    if (!r->prefix.tokens && differ_chance(r, 3) == 0)
        r->prefix.n = 0;
    differ_same(r, "the answer", kvshm_remove(random_handle(r, false), &r->prefix),
                model_remove(&r->model, &r->prefix));
}

static void do_clear(struct run *r)
{
    begin(r, "clear", 0);
    differ_same(r, "the answer", kvshm_clear(random_handle(r, false)), 0);
    model_clear(&r->model);
}

/* All frames that the model knows to be free can be had, and no entry goes for them. */
static void do_take_all(struct run *r)
{
    struct kvshm_reservation all = {0};
    uint32_t n = (uint32_t)differ_frames_free(r);

    if (n == 0)
        return;
    begin(r, "reserve of all free frames", 0);
    r->handle = (unsigned)differ_chance(r, HANDLES);
    reserve(r, r->handle, n, &all);
    differ_same_counts(r);
    cancel(r, r->handle, &all);
}

static void step(struct run *r)
{
    uint64_t pick = differ_chance(r, 1000);

    if (r->model.entries > MANY && differ_chance(r, 2))
        do_evict(r);
    else if (pick < 300)
        do_find(r);
    else if (pick < 350)
        do_contains(r);
    else if (pick < 400)
        do_copy_out(r);
    else if (pick < 500)
        do_release(r);
    else if (pick < 770)
        do_insert(r);
    else if (pick < 830)
        do_pending(r);
    else if (pick < 880)
        do_evict(r);
    else if (pick < 990)
        do_remove(r);
    else if (pick < 996)
        differ_same_counts(r);
    else if (pick < 998)
        differ_same_order(r);
    else if (pick < 999 || differ_chance(r, 4))
        do_take_all(r);
    else
        do_clear(r);
}

/* ---- Cases --------------------------------------------------------------------------------------------- */

static void run_open(struct run *r, const struct setting *setting, uint64_t seed)
{
    struct kvshm_config config = ts_config(PAGE_BYTES, setting->page_tokens, setting->frames);

    memset(r, 0, sizeof(*r));
    r->setting = setting;
    r->seed = r->random = seed;
    r->verb = "create";
    config.capacity = setting->capacity;
    config.max_clients = 4;
    config.max_leases = 16;
    model_init(&r->model, setting->page_tokens, setting->capacity);
    r->kv[0] = ts_create("differential", &config);
    r->kv[1] = ts_attach("differential", 0);
    r->observer = ts_attach("differential", KVSHM_RDONLY);
}

/* Everything is given back; then everything is free. */
static void run_close(struct run *r)
{
    for (unsigned i = 0; i < PENDING; i++)
        if (r->pending[i].reservation.pages)
            cancel(r, r->pending[i].handle, &r->pending[i].reservation);
    for (unsigned i = 0; i < SLOTS; i++) {
        kvshm_release(r->kv[r->slot[i].handle], &r->slot[i].lease);
        model_release(&r->model, &r->slot[i].model);
    }
    differ_same_order(r);
    while (r->model.entries)
        do_evict(r);
    differ_same(r, "frames given back by an empty arena", kvshm_evict_lru(r->kv[0]), 0);
    do_take_all(r);
    differ_same(r, "frames free at the end", (int64_t)differ_frames_free(r),
                (int64_t)r->setting->frames);
    ts_detach(r->observer);
    ts_detach(r->kv[1]);
    ts_detach(r->kv[0]);
    model_free(&r->model);
}

static void run(const struct setting *setting, uint64_t seed, uint64_t calls)
{
    struct run *r = calloc(1, sizeof(*r));

    ck_assert_ptr_nonnull(r);
    run_open(r, setting, seed);
    while (r->calls < calls)
        step(r);
    run_close(r);
    free(r);
}

static const uint32_t page_tokens[] = {1, 4, 7, 64};
static const uint64_t capacities[] = {0, 1, 2, 3, 8, 100, KVSHM_UNLIMITED};
static const uint64_t short_of_frames[] = {6, 24, 100, 300};

#define COUNT(table) ((int)(sizeof(table) / sizeof((table)[0])))

START_TEST(test_calls_mean_what_the_model_says)
{
    struct setting setting = {
        .page_tokens = page_tokens[_i % COUNT(page_tokens)],
        .capacity = capacities[_i / COUNT(page_tokens)],
        .frames = 2400,
    };

    run(&setting, first_seed + (uint64_t)_i, ts_amount(1800, 36000, 400000));
}
END_TEST

START_TEST(test_oldest_leave_when_frames_run_out)
{
    struct setting setting = {
        .page_tokens = page_tokens[_i % COUNT(page_tokens)],
        .capacity = KVSHM_UNLIMITED,
        .frames = short_of_frames[_i / COUNT(page_tokens)],
    };

    run(&setting, first_seed + 1000 + (uint64_t)_i, ts_amount(1000, 20000, 200000));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("differential");
    TCase *tcase = tcase_create("differential");
    SRunner *runner = srunner_create(suite);
    int failed = 0;

    first_seed = ts_seed();
    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_loop_test(tcase, test_calls_mean_what_the_model_says, 0,
                        COUNT(page_tokens) * COUNT(capacities));
    tcase_add_loop_test(tcase, test_oldest_leave_when_frames_run_out, 0,
                        COUNT(page_tokens) * COUNT(short_of_frames));
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
