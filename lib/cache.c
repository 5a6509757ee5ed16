/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache.c - the public calls that find, lease, copy and remove pages, and those about the spill file (fill.c has those
 * that fill them).
 *
 * The retries of a hit, and the shape of answers; what they stand on is in index.h, lease.h, evict.h.
 */
#include <errno.h>
#include <string.h>

#include "calls.h"
#include "evict.h"
#include "frames.h"
#include "index_look.h"
#include "lease.h"
#include "mend.h"
#include "recency.h"
#include "slots.h"
#include "sys.h"

/* How often a hit is begun again whose page moved between the look and the lease. */
#define TRIES 8

/* ---- Finding ------------------------------------------------------------------------------------------------ */

enum sight {
    ABSENT,
    PRESENT,
    PENDING, /* in the file, not, or not all of it, in memory */
    MOVED, /* what was found is no more, and something else may have taken its place: look again */
};

static uint64_t stamp_of(const kvshm *kv, const struct kvshm__walk *walk)
{
    return KVSHM__LOAD_ACQ(&kv->records[walk->deepest.record].stamp);
}

/* Is the deepest record no longer the page that was found? What was read of it is then of another. */
static bool moved(const kvshm *kv, const struct kvshm__walk *walk)
{
    return kvshm__seq_read_retry(&kv->records[walk->deepest.record].seq, walk->deepest.seq);
}

/*
 * The entry of exactly this prefix; *stamp is its recency. A replacement stores the index word and then takes the old
 * page's stamp: a page without one is no entry only if its word is still the same.
 */
static KVSHM__HOT enum sight find_entry(const kvshm *kv, const struct kvshm_prefix *prefix, uint64_t hash,
                                        struct kvshm__walk *walk, uint64_t *stamp)
{
    if (prefix->tokens) {
        struct kvshm__walk found; /* its address leaves this function, so that of walk need not */
        kvshm__index_find_prefix(kv, prefix, hash, &found);
        *walk = found;
    } else {
        kvshm__look_for_key(kv, prefix, hash, walk);
    }
    if (walk->deepest.record == KVSHM__NO_RECORD ||
        (walk->tokens != prefix->n && (prefix->tokens || prefix->n != 0)))
        return ABSENT;
    if (walk->deepest.pending && prefix->tokens) {
        struct kvshm__walk found;
        kvshm__index_walk(kv, prefix, &found); /* which says what is in memory */
        *walk = found;
        if (walk->tokens != prefix->n)
            return MOVED;
    }
    *stamp = stamp_of(kv, walk);
    if (*stamp == 0 && KVSHM__LOAD_ACQ(walk->deepest.at) != walk->deepest.word)
        return MOVED;
    if (moved(kv, walk))
        return MOVED;
    if (*stamp == 0)
        return ABSENT;
    if (!walk->deepest.pending)
        return PRESENT;
    walk->wanted = walk->deepest;
    walk->pending_tokens = walk->tokens - walk->resident_tokens;
    return PENDING;
}

/* The longest cached prefix; *stamp is that of the entry that ends there, or 0. */
static inline enum sight find_longest(const kvshm *kv, const struct kvshm_prefix *prefix, uint64_t hash,
                                      struct kvshm__walk *walk, uint64_t *stamp)
{
    (void)hash;
    kvshm__index_match(kv, prefix, walk);
    if (walk->pages == 0)
        return ABSENT;
    if (walk->deepest.pending) {
        walk->wanted = walk->deepest;
        walk->pending_tokens = walk->tokens - walk->resident_tokens;
        walk->deepest = walk->resident;
        walk->pages = walk->resident_pages;
        walk->tokens = walk->resident_tokens;
        if (walk->pages == 0)
            return PENDING;
    }
    *stamp = stamp_of(kv, walk);
    return moved(kv, walk) ? MOVED : PRESENT;
}

typedef uint64_t aim_fn(const kvshm *, const struct kvshm_prefix *);
typedef enum sight find_fn(const kvshm *, const struct kvshm_prefix *, uint64_t, struct kvshm__walk *, uint64_t *);

/* Find without a lease. ABSENT: there is none, or (walk->gave_up) that is not known. */
static enum sight settle(const kvshm *kv, find_fn *find, const struct kvshm_prefix *prefix, uint64_t hash,
                         struct kvshm__walk *walk, uint64_t *stamp)
{
    for (int i = 0; i < TRIES; i++) {
        enum sight sight = find(kv, prefix, hash, walk, stamp);
        if (sight != MOVED)
            return sight;
    }
    walk->gave_up = true;
    return ABSENT;
}

/* Children looked at on each level for one that is published. */
#define SIBLINGS 64

/* A published child of the page that was found; false: none among the first few. */
static bool child_of(const kvshm *kv, const struct kvshm__found *parent, struct kvshm__found *child)
{
    uint32_t child1 = KVSHM__LOAD(&kv->links[parent->record].child1);

    for (int i = 0; i < SIBLINGS && child1 - 1 < kv->record_count; i++) {
        const struct kvshm_record *r = &kv->records[child1 - 1];
        child->record = child1 - 1;
        child->seq = kvshm__seq_read_begin(&r->seq);
        bool right = !(child->seq & 1) && KVSHM__LOAD((kvshm_a32 *)&r->parent1) == parent->record + 1 &&
                     KVSHM__LOAD((kvshm_a64 *)&r->parent_seq) == parent->seq &&
                     kvshm__place_published(KVSHM__LOAD((kvshm_a64 *)&r->place));
        child1 = KVSHM__LOAD(&kv->links[child1 - 1].next1);
        if (!kvshm__seq_read_retry(&r->seq, child->seq) && right)
            return true;
    }
    return false;
}

/* KVSHM_TOUCH: one entry that runs through the page, since none ends there. */
static void touch_below(const kvshm *kv, struct kvshm__found page, uint64_t now)
{
    struct kvshm__found child;

    for (uint32_t i = 0; i < kv->record_count && child_of(kv, &page, &child); i++) {
        uint64_t stamp = KVSHM__LOAD(&kv->records[child.record].stamp);
        if (stamp != 0) {
            kvshm__recency_touch(kv, child.record, stamp, now);
            return;
        }
        page = child;
    }
}

/* A match aims at nothing; it begins at the root. */
static uint64_t aim_at_root(const kvshm *kv, const struct kvshm_prefix *prefix)
{
    (void)kv, (void)prefix;
    return 0;
}

static KVSHM__HOT uint64_t aim_at_entry(const kvshm *kv, const struct kvshm_prefix *prefix)
{
    return prefix->tokens ? kvshm__aim_at_tokens(kv, prefix) : kvshm__aim_at_key(kv, prefix);
}

/* What a call that leases looks for, and how it counts. */
struct quest {
    aim_fn *aim;
    find_fn *find;
    enum kvshm_lease_counter hits;
    enum kvshm_counter misses;
};
static const struct quest exact = {aim_at_entry, find_entry, KVSHM__LCNT_lookup_hits, KVSHM__CNT_lookup_misses};
static const struct quest longest = {aim_at_root, find_longest, KVSHM__LCNT_match_hits, KVSHM__CNT_match_misses};

static KVSHM__HOT void touch(const kvshm *kv, const struct kvshm__walk *walk, uint64_t stamp, uint64_t now,
                             unsigned flags, struct kvshm_lease *lease)
{
    lease->last_used = kvshm__recency_touch(kv, walk->deepest.record, stamp, now);
    if (stamp == 0 && (flags & KVSHM_TOUCH))
        touch_below(kv, walk->deepest, now);
}

static int miss(kvshm *kv, const struct quest *quest, bool gave_up)
{
    kvshm__count(kv, quest->misses, 1);
    if (gave_up)
        kvshm__count(kv, KVSHM__CNT_gave_up, 1);
    return KVSHM_MISS;
}

static int peek(kvshm *kv, const struct kvshm_prefix *prefix, const struct quest *quest, unsigned flags,
                struct kvshm_lease *lease)
{
    struct kvshm__walk walk;
    uint64_t stamp, hash = quest->aim(kv, prefix), now = flags & KVSHM_TOUCH ? kvshm__recency_now(kv) : 0;

    enum sight sight = settle(kv, quest->find, prefix, hash, &walk, &stamp);
    if (sight == ABSENT || (sight == PENDING && !kvshm__tier_has(kv)))
        return walk.gave_up ? miss(kv, quest, true) : KVSHM_MISS;
    lease->pending_tokens = kvshm__tier_has(kv) ? walk.pending_tokens : 0;
    if (sight == PENDING) {
        lease->tokens = walk.resident_tokens;
        lease->pages = walk.resident_pages;
        return KVSHM_PENDING;
    }
    lease->tokens = walk.tokens;
    lease->pages = walk.pages;
    lease->last_used = stamp;
    if (flags & KVSHM_TOUCH)
        touch(kv, &walk, stamp, now, flags, lease);
    return 0;
}

/* wanted: what of the answer is pending; its record is KVSHM__NO_RECORD: nothing. */
static KVSHM__HOT int take(kvshm *kv, const struct kvshm_prefix *prefix, const struct quest *quest, unsigned flags,
                           struct kvshm_lease *lease, struct kvshm__found *wanted)
{
    struct kvshm__walk walk;
    uint64_t hash = quest->aim(kv, prefix), now = kvshm__recency_now(kv), stamp;
    uint32_t word;

    wanted->record = KVSHM__NO_RECORD;

    for (int i = 0; i < TRIES; i++) {
        enum sight sight = quest->find(kv, prefix, hash, &walk, &stamp);
        if (sight == MOVED)
            continue;
        if (sight == ABSENT || (sight == PENDING && !kvshm__tier_has(kv)))
            return miss(kv, quest, walk.gave_up);
        if (sight == PENDING) {
            lease->pending_tokens = walk.pending_tokens;
            *wanted = walk.wanted;
            return KVSHM_PENDING;
        }
        enum kvshm__leased got = kvshm__lease_take(kv, &walk.deepest, &word);
        if (got == KVSHM__LEASE_CHANGED)
            continue;
        if (got == KVSHM__LEASE_NONE_LEFT)
            return kvshm__fail(KVSHM_E_LEASES, "all %u lease words of this client are taken; release some, or create "
                               "the arena with a larger max_leases", kv->max_leases);
        /* Named since we asked, and perhaps before the page was made: then it is not for this handle. */
        int err = kvshm__check_leasing(kv);
        if (err) {
            kvshm__lease_drop(kv, word);
            return err;
        }
        lease->tokens = walk.tokens;
        lease->pages = walk.pages;
        lease->kv = kv;
        lease->page = walk.deepest.record;
        lease->page_seq = walk.deepest.seq;
        lease->word = word;
        if (walk.pending_tokens > 0 && kvshm__tier_has(kv)) {
            lease->pending_tokens = walk.pending_tokens;
            *wanted = walk.wanted;
        }
        touch(kv, &walk, stamp, now, flags, lease);
        kvshm__lease_count(kv, word, quest->hits, walk.pages, walk.tokens);
        return 0;
    }
    return miss(kv, quest, true);
}

/* Wait until nothing is pending, or it failed, or limit_ns are over. false: it is pending still. */
static bool wait_for_it(kvshm *kv, const struct kvshm_prefix *prefix, const struct quest *quest, uint64_t limit_ns)
{
    uint64_t began = kvshm__sys.monotonic_ns(), waited = 0;
    struct kvshm__walk walk;
    uint64_t hash = quest->aim(kv, prefix), stamp;

    while (settle(kv, quest->find, prefix, hash, &walk, &stamp) != ABSENT && walk.pending_tokens > 0) {
        if (waited >= limit_ns ||
            kvshm__tier_wait_for(kv, walk.wanted.record, walk.wanted.seq, limit_ns - waited) < 0)
            return false;
        waited = kvshm__sys.monotonic_ns() - began;
    }
    return true;
}

static KVSHM__HOT int find_and_take(kvshm *kv, const struct kvshm_prefix *prefix, const struct quest *quest,
                                    unsigned flags, struct kvshm_lease *lease)
{
    uint64_t limit_ns = (flags & KVSHM_WAIT) && kvshm__tier_has(kv) ? kvshm__wait_limit_ns(kv) : 0;
    bool waits = limit_ns > 0;
    struct kvshm__found wanted;
    int outcome;

    for (;;) {
        waits = waits && wait_for_it(kv, prefix, quest, limit_ns);
        outcome = take(kv, prefix, quest, flags, lease, &wanted);
        if (wanted.record == KVSHM__NO_RECORD || !waits)
            break;
        kvshm_release(kv, lease); /* what came has left again */
        kvshm__lease_empty(lease);
    }
    if (wanted.record != KVSHM__NO_RECORD) {
        kvshm__count(kv, KVSHM__CNT_pending_lookups, 1);
        kvshm__tier_want(kv, wanted.record, wanted.seq);
    }
    return outcome;
}

static KVSHM__HOT int find(kvshm *kv, const struct kvshm_prefix *prefix, const struct quest *quest, unsigned flags,
                           struct kvshm_lease *lease)
{
    int err;

    if (!lease)
        return kvshm__fail(-EINVAL, "the lease is NULL");
    kvshm__lease_empty(lease);
    if ((err = kvshm__check_handle(kv)) || (err = kvshm__check_flags(flags, KVSHM_PEEK | KVSHM_TOUCH | KVSHM_WAIT)) ||
        (err = kvshm__check_prefix(prefix)))
        return err;
    if (!(flags & KVSHM_PEEK) || (flags & KVSHM_TOUCH)) {
        if ((err = kvshm__check_leasing(kv)))
            return err;
    }
    return flags & KVSHM_PEEK ? peek(kv, prefix, quest, flags, lease) : find_and_take(kv, prefix, quest, flags, lease);
}

KVSHM_API int kvshm_lookup(kvshm *kv, const struct kvshm_prefix *prefix, unsigned flags, struct kvshm_lease *lease)
{
    return find(kv, prefix, &exact, flags, lease);
}

KVSHM_API int kvshm_match(kvshm *kv, const struct kvshm_prefix *prefix, unsigned flags, struct kvshm_lease *lease)
{
    if (lease && prefix && !prefix->tokens && kv && !kvshm__forked(kv)) {
        kvshm__lease_empty(lease);
        return kvshm__fail(-EINVAL, "a key-only prefix has no tokens to match; use kvshm_lookup()");
    }
    return find(kv, prefix, &longest, flags, lease);
}

KVSHM_API bool kvshm_contains(kvshm *kv, const struct kvshm_prefix *prefix)
{
    struct kvshm__walk walk;
    uint64_t stamp;

    if (kvshm__check_handle(kv) || kvshm__check_prefix(prefix))
        return false;
    enum sight sight = settle(kv, find_entry, prefix, kvshm__index_aim(kv, prefix), &walk, &stamp);
    return sight == PRESENT || (sight == PENDING && kvshm__tier_has(kv));
}

/* ---- Leases ------------------------------------------------------------------------------------------------- */

static bool lease_good(const struct kvshm_lease *lease)
{
    return lease && lease->kv && !kvshm__forked(lease->kv) && lease->page < lease->kv->record_count &&
           KVSHM__LOAD(&lease->kv->records[lease->page].seq) == lease->page_seq;
}

/* Offset of the frame a leased page stands in; 0: damage. */
static uint64_t offset_of(const kvshm *kv, uint32_t record)
{
    uint64_t place = KVSHM__LOAD_ACQ(&kv->records[record].place);
    uint32_t frame = kvshm__place_frame(place);

    if (kvshm__place_state(place) == KVSHM__PLACE_NONE || frame >= kv->frame_count ||
        KVSHM__LOAD(&kv->owners[frame].owner) != kvshm__owner_page(record))
        return 0;
    return kvshm__frame_offset(kv, frame);
}

KVSHM_API const void *kvshm_lease_page(const struct kvshm_lease *lease, uint32_t i)
{
    uint64_t offset;

    return kvshm_lease_offsets(lease, i, 1, &offset) == 1 ? lease->kv->read_base + offset : NULL;
}

KVSHM_API int kvshm_lease_offsets(const struct kvshm_lease *lease, uint32_t first, uint32_t n, uint64_t *out)
{
    if (lease && lease->kv && kvshm__forked(lease->kv))
        return kvshm__check_handle(lease->kv);
    if (!lease_good(lease) || first >= lease->pages || n == 0 || !out)
        return 0;
    const kvshm *kv = lease->kv;
    if (n > lease->pages - first)
        n = lease->pages - first;
    if (KVSHM__LOAD(&kv->records[lease->page].depth) != lease->pages - 1)
        return 0;
    uint32_t record = kvshm__pages_ancestor(kv, lease->page, first + n - 1), page = record;
    for (uint32_t i = n; i-- > 0; record = kvshm__pages_parent(kv, page)) {
        page = record;
        out[i] = page == KVSHM__NO_RECORD ? 0 : offset_of(kv, page);
        if (out[i] == 0)
            return 0;
    }
    /* The last of them is the root, or has a parent, as a page so deep must (else: damage). */
    bool deep = first == 0 ? kvshm__pages_root(&kv->records[page]) : record != KVSHM__NO_RECORD;
    return deep ? (int)n : 0;
}

KVSHM_API int kvshm_lease_pages(const struct kvshm_lease *lease, uint32_t first, uint32_t n, const void **out)
{
    static_assert(sizeof(void *) == sizeof(uint64_t), "offsets and addresses are of one size");
    int got = kvshm_lease_offsets(lease, first, n, (uint64_t *)out);

    for (int i = 0; i < got; i++) {
        uint64_t offset;
        memcpy(&offset, &out[i], sizeof(offset));
        out[i] = lease->kv->read_base + offset;
    }
    return got;
}

KVSHM_API void kvshm_lease_tag(struct kvshm_lease *lease, uint32_t tag)
{
    if (!lease_good(lease))
        return;
    struct kvshm_lease_word *own = &kvshm__own_leases(lease->kv)[lease->word];
    KVSHM__STORE(&own->tag, tag);
    KVSHM__STORE(&own->tag_ns, kvshm__sys.realtime_ns());
}

KVSHM_API void kvshm_release(kvshm *kv, struct kvshm_lease *lease)
{
    if (!lease || !kv || lease->kv != kv)
        return;
    /* Its own word says so itself, whatever became of the record. */
    if (!kvshm__forked(kv) && lease->word < kv->max_leases &&
        KVSHM__LOAD(&kvshm__own_leases(kv)[lease->word].word) == kvshm__lease_value(lease->page, lease->page_seq))
        kvshm__lease_drop(kv, lease->word);
    kvshm__lease_empty(lease);
}

/* ---- Copying out -------------------------------------------------------------------------------------------- */

static void copy_page(void *to, const uint8_t *from, uint64_t bytes)
{
#ifdef KVSHM_TSAN
    /* Without a lease a writer may fill the frame meanwhile; what was copied is then thrown away. */
    for (uint64_t i = 0; i < bytes; i++)
        ((uint8_t *)to)[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
#else
    memcpy(to, from, bytes);
#endif
}

/* Copy the page of a record and prove that it stood where it was read, all the time. */
static bool copy_unleased(const kvshm *kv, uint32_t record, uint64_t seq, uint8_t *to)
{
    struct kvshm_record *r = &kv->records[record];
    uint64_t place = KVSHM__LOAD_ACQ(&r->place);
    uint32_t frame = kvshm__place_frame(place);

    if (!kvshm__place_published(place) || frame >= kv->frame_count ||
        KVSHM__LOAD(&kv->owners[frame].owner) != kvshm__owner_page(record))
        return false;
    if (to)
        copy_page(to, kv->read_base + kvshm__frame_offset(kv, frame), kv->page_bytes);
    KVSHM__FENCE(memory_order_acquire);
    /* A hit may call an eviction off meanwhile: the same move, the same frame. */
    uint64_t after = KVSHM__LOAD(&r->place);
    return kvshm__place_published(after) && kvshm__place_frame(after) == frame && after >> 32 == place >> 32 &&
           !kvshm__seq_read_retry(&r->seq, seq);
}

/* The chain from its deepest page up; each parent is the one that its child named, or all is given up. */
static int64_t copy_chain(const kvshm *kv, const struct kvshm__walk *walk, uint32_t first, uint32_t n, uint8_t *dst)
{
    uint32_t record = walk->deepest.record;
    uint64_t seq = walk->deepest.seq;

    for (uint32_t i = walk->pages; i-- > first;) {
        if (record >= kv->record_count)
            return 0;
        const struct kvshm_record *r = &kv->records[record];
        uint32_t parent1 = KVSHM__LOAD((kvshm_a32 *)&r->parent1);
        uint64_t parent_seq = KVSHM__LOAD((kvshm_a64 *)&r->parent_seq);
        uint8_t *to = i - first < n ? dst + (uint64_t)(i - first) * kv->page_bytes : NULL;
        bool linked = KVSHM__LOAD((kvshm_a32 *)&r->depth) == i &&
                      (i == 0 || kvshm__pages_parent(kv, record) != KVSHM__NO_RECORD);
        if (!linked || !copy_unleased(kv, record, seq, to))
            return 0;
        record = parent1 - 1;
        seq = parent_seq;
    }
    return n;
}

static int64_t copy_leased(kvshm *kv, struct kvshm_lease *lease, uint32_t first, uint32_t n, uint8_t *dst)
{
    uint32_t done = 0;

    while (done < n) {
        uint64_t offsets[64];
        uint32_t ask = n - done < 64 ? n - done : 64;
        int got = kvshm_lease_offsets(lease, first + done, ask, offsets);
        if (got <= 0)
            return 0;
        for (int i = 0; i < got; i++, done++)
            memcpy(dst + done * kv->page_bytes, kv->read_base + offsets[i], kv->page_bytes);
    }
    return done;
}

KVSHM_API int64_t kvshm_copy_out(kvshm *kv, const struct kvshm_prefix *prefix, uint32_t first_page, uint32_t n,
                                 void *dst)
{
    struct kvshm_lease lease;
    int64_t copied = 0;
    int err;

    if ((err = kvshm__check_handle(kv)) || (err = kvshm__check_prefix(prefix)))
        return err;
    if (n > 0 && !dst)
        return kvshm__fail(-EINVAL, "dst is NULL");
    if (kv->read_only) {
        uint64_t hash = kvshm__index_aim(kv, prefix);
        for (int i = 0; i < TRIES && copied == 0; i++) {
            struct kvshm__walk walk;
            uint64_t stamp;
            enum sight sight = find_entry(kv, prefix, hash, &walk, &stamp);
            if (sight == MOVED)
                continue;
            if (sight != PRESENT || first_page >= walk.pages)
                return 0;
            copied = copy_chain(kv, &walk, first_page, n < walk.pages - first_page ? n : walk.pages - first_page, dst);
        }
        return copied;
    }
    err = kvshm_lookup(kv, prefix, 0, &lease);
    if (err != 0)
        return err < 0 ? err : 0;
    if (first_page < lease.pages)
        copied = copy_leased(kv, &lease, first_page, n < lease.pages - first_page ? n : lease.pages - first_page, dst);
    kvshm_release(kv, &lease);
    kvshm__count(kv, KVSHM__CNT_copied_pages, (uint64_t)copied);
    return copied;
}

/* ---- Removing ---------------------------------------------------------------------------------------------- */

KVSHM_API int kvshm_remove(kvshm *kv, const struct kvshm_prefix *prefix)
{
    struct kvshm__walk walk;
    uint64_t stamp, mark = 0;
    int err, gone = 0;

    if ((err = kvshm__check_handle(kv)) || (err = kvshm__check_prefix(prefix)) || (err = kvshm__check_file(kv)) ||
        (err = kvshm__mend_lock(kv)))
        return err;
    enum sight sight = find_entry(kv, prefix, kvshm__index_aim(kv, prefix), &walk, &stamp);
    if (sight == PRESENT || sight == PENDING) {
        kvshm__evict_drop_entry(kv, walk.deepest.record);
        kvshm__evict_sweep_limbo(kv);
        kvshm__count(kv, KVSHM__CNT_removed_entries, 1);
    } else {
        err = KVSHM_MISS;
    }
    if (kv->slots)
        mark = kvshm__slots_mark(kv);
    kvshm__mend_unlock(kv);
    /* Also after a miss: whoever removes again wants it gone from the file. The page may stay, under other entries. */
    if (kv->slots && walk.deepest.record != KVSHM__NO_RECORD)
        gone = kvshm__tier_rename(kv, walk.deepest.record, walk.deepest.seq);
    if (kv->slots && gone == 0)
        gone = kvshm__tier_pass(kv, mark);
    return gone < 0 ? gone : err;
}

/* ---- The spill file ----------------------------------------------------------------------------------------- */

static int check_tier(kvshm *kv)
{
    int err = kvshm__check_handle(kv);

    if (err == 0 && !kvshm__tier_has(kv))
        err = kvshm__fail(-ENOTSUP, "this handle of arena %s has no spill file", kv->name);
    return err;
}

KVSHM_API int kvshm_prefetch(kvshm *kv, const struct kvshm_prefix *prefixes, size_t n)
{
    int err = kvshm__check_handle(kv), wanted = 0;

    if (err == 0 && n > 0 && !prefixes)
        err = kvshm__fail(-EINVAL, "prefixes is NULL");
    for (size_t i = 0; err == 0 && i < n; i++) {
        struct kvshm__walk walk;
        uint64_t stamp;
        err = kvshm__check_prefix(&prefixes[i]);
        if (err || !kvshm__tier_has(kv))
            continue;
        if (prefixes[i].tokens)
            settle(kv, find_longest, &prefixes[i], 0, &walk, &stamp);
        else
            settle(kv, find_entry, &prefixes[i], kvshm__index_aim(kv, &prefixes[i]), &walk, &stamp);
        if (walk.pending_tokens > 0) {
            err = kvshm__tier_want(kv, walk.wanted.record, walk.wanted.seq);
            wanted++;
        }
    }
    return err ? err : wanted;
}

KVSHM_API int kvshm_wait(kvshm *kv, const struct timespec *timeout)
{
    uint64_t ns = UINT64_MAX;
    int err = check_tier(kv);

    if (err)
        return err;
    if (timeout && (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1000000000))
        return kvshm__fail(-EINVAL, "timeout is no time: %lld s, %ld ns", (long long)timeout->tv_sec, timeout->tv_nsec);
    if (timeout && (uint64_t)timeout->tv_sec < UINT64_MAX / 2000000000u)
        ns = (uint64_t)timeout->tv_sec * 1000000000u + (uint64_t)timeout->tv_nsec;
    return kvshm__tier_wait(kv, ns);
}

KVSHM_API int kvshm_eventfd(kvshm *kv)
{
    int err = check_tier(kv);

    if (err == 0 && (err = kvshm__tier_eventfd(kv)) < 0)
        kvshm__fail(err, "eventfd: %s", kvshm_strerror(err));
    return err;
}

KVSHM_API int kvshm_flush(kvshm *kv)
{
    int err = check_tier(kv);

    return err ? err : kvshm__tier_flush(kv);
}
