/* SPDX-License-Identifier: Apache-2.0 */
#include "insert.h"

#include <errno.h>
#include <string.h>

#include "evict.h"
#include "frames.h"
#include "mend.h"
#include "message.h"
#include "private.h"
#include "recency.h"
#include "slots.h"
#include "spill_file.h"
#include "sys.h"
#include "tier.h"
#include "tokens.h"

/* What a page that is perhaps new will need. */
struct fresh {
    uint64_t hash;
    kvshm_a64 *word;   /* kept for it; NULL: none yet */
    uint32_t record;   /* KVSHM__NO_RECORD: none yet */
    uint32_t there;    /* the page was there already */
    uint64_t sum;      /* of the bytes that the caller has filled in, in an arena with a spill file */
};

/* One insert, from its checks to its outcome. */
struct job {
    kvshm *kv;
    const struct kvshm_prefix *prefix;
    struct kvshm_lease *head;     /* NULL if empty */
    struct kvshm_lease *hold;     /* KVSHM_HOLD: becomes the lease */
    struct kvshm_reservation *r;  /* NULL if empty */
    unsigned flags;
    uint32_t pages;               /* of the prefix */
    uint32_t head_pages;          /* whole pages of head */
    uint32_t above;               /* the page at depth head_pages - 1; KVSHM__NO_RECORD: none */
    struct fresh *fresh;          /* of pages head_pages .. pages - 1 */
    struct kvshm__found replaced; /* the key-only entry that was there */
    uint64_t mark; /* when it was dropped */
    uint32_t held_word;           /* of the new lease; KVSHM__NO_WORD */
};

/* ---- Checks, before the lock: what a lease holds does not change -------------------------------------------- */

static uint32_t tokens_of_page(const struct job *j, uint32_t i)
{
    uint32_t m = j->kv->page_tokens;
    return i + 1 < j->pages ? m : j->prefix->n - i * m;
}

static struct kvshm__page_spec spec_of_page(const struct job *j, uint32_t i, uint32_t parent)
{
    bool key_only = j->prefix->tokens == NULL;

    return (struct kvshm__page_spec){
        .parent = parent,
        .length = tokens_of_page(j, i) |
                  (!key_only ? 0 : i + 1 < j->pages ? KVSHM__KEY_ONLY : KVSHM__KEY_ONLY | KVSHM__KEY_END),
        .adapter_id = j->prefix->adapter_id,
        .tenant = j->prefix->tenant,
        .tokens = key_only ? NULL : j->prefix->tokens + (size_t)i * j->kv->page_tokens,
        .key = key_only ? j->prefix->key : NULL,
        .hash = j->fresh && i >= j->head_pages ? j->fresh[i - j->head_pages].hash : 0,
    };
}

static int check_head(struct job *j)
{
    kvshm *kv = j->kv;
    const struct kvshm_lease *head = j->head;

    if (head->kv != kv || head->page >= kv->record_count || head->word >= kv->max_leases ||
        KVSHM__LOAD(&kvshm__own_leases(kv)[head->word].word) != kvshm__lease_value(head->page, head->page_seq) ||
        head->page_seq != KVSHM__LOAD(&kv->records[head->page].seq))
        return kvshm__fail(-EINVAL, "head is not a lease of this handle");
    if (j->prefix->tokens == NULL)
        return kvshm__fail(-EINVAL, "a key-only prefix takes no head: its pages are its own; pass NULL");
    if (KVSHM__LOAD(&kv->records[head->page].length) & KVSHM__KEY_ONLY)
        return kvshm__fail(-EINVAL, "head is a lease of a key-only entry; its tokens are not known");
    if (head->tokens > j->prefix->n || head->tokens != kvshm__pages_tokens(kv, head->page))
        return kvshm__fail(-EINVAL, "head holds %u tokens, the prefix has %u; a head is where the prefix begins",
                           head->tokens, j->prefix->n);
    uint32_t page = head->page;
    for (uint32_t i = head->pages; i-- > 0;) {
        if (page == KVSHM__NO_RECORD)
            return kvshm__fail(KVSHM_E_DAMAGED, "the chain of the head ends below page %u", i + 1);
        struct kvshm__page_spec spec = spec_of_page(j, i, KVSHM__NO_RECORD);
        spec.length = KVSHM__LOAD(&kv->records[page].length);
        if (KVSHM__LOAD(&kv->records[page].depth) != i || spec.length > kv->page_tokens ||
            !kvshm__text_equal(kv, page, &spec))
            return kvshm__fail(-EINVAL, "adapter, tenant or tokens of head and prefix differ in page %u", i);
        page = kvshm__pages_parent(kv, page);
    }
    j->head_pages = head->tokens / kv->page_tokens;
    if (j->head_pages > 0)
        j->above = kvshm__pages_ancestor(kv, head->page, j->head_pages - 1);
    return 0;
}

static int check_reservation(const struct job *j)
{
    uint32_t needed = j->pages - j->head_pages;
    uint32_t have = j->r ? j->r->pages : 0;

    if (j->r && (j->r->kv != j->kv || j->r->word >= j->kv->max_leases || !j->r->frames))
        return kvshm__fail(-EINVAL, "the reservation is not of this handle");
    if (have != needed)
        return kvshm__fail(-EINVAL,
                           "the reservation has %u pages; %u are needed: %u of the prefix (%u tokens of %u a page) "
                           "less %u whole pages of the head", have, needed, j->pages, j->prefix->n,
                           j->kv->page_tokens, j->head_pages);
    return 0;
}

static int make_hashes(struct job *j)
{
    kvshm *kv = j->kv;
    const struct kvshm_prefix *p = j->prefix;
    uint32_t n = j->pages - j->head_pages;
    uint64_t hash = j->above != KVSHM__NO_RECORD ? KVSHM__LOAD(&kv->records[j->above].hash)
                                                 : kvshm__hash_root(kv->secret, p->adapter_id, p->tenant);

    j->fresh = kvshm__private_alloc((n + 1) * sizeof(*j->fresh));
    if (!j->fresh)
        return kvshm__fail(-ENOMEM, "no memory for the hashes of %u pages", n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t page = j->head_pages + i;
        if (p->tokens)
            hash = kvshm__hash_page(kv->secret, hash, p->tokens + (size_t)page * kv->page_tokens, tokens_of_page(j, page));
        else
            hash = kvshm__hash_key(kv->secret, p->adapter_id, p->tenant, p->key,
                                   page + 1 < j->pages ? page : KVSHM__KEY_DEEPEST);
        j->fresh[i] = (struct fresh){.hash = hash, .record = KVSHM__NO_RECORD};
    }
    return 0;
}

/* Before anybody can find the pages, and so before a frame can be another page's (DESIGN: by the producer). */
static void make_sums(struct job *j)
{
    const kvshm *kv = j->kv;

    for (uint32_t i = 0; kv->ages && i < j->pages - j->head_pages && j->r->frames[i] < kv->frame_count; i++)
        j->fresh[i].sum = kvshm__payload_sum(kv->write_base + kv->frames_offset + j->r->frames[i] * kv->frame_stride,
                                             kv->page_bytes);
}

static int check(struct job *j)
{
    kvshm *kv = j->kv;
    int err = 0;

    if (j->prefix->n == 0)
        return kvshm__fail(-EINVAL, "prefix.n is 0; an entry has at least one token");
    j->pages = kvshm_pages_for_tokens(j->prefix->n, kv->page_tokens);
    if (j->head)
        err = check_head(j);
    if (!err)
        err = check_reservation(j);
    if (!err)
        err = make_hashes(j);
    if (!err)
        make_sums(j);
    return err;
}

/* ---- Under the lock ----------------------------------------------------------------------------------------- */

static int check_epoch(const struct job *j)
{
    const kvshm *kv = j->kv;
    uint64_t epoch = KVSHM__LOAD(&kv->header->epoch);

    if (!kv->named_fingerprint && KVSHM__LOAD_ACQ(&kv->header->has_fingerprint))
        return kvshm__fail(KVSHM_E_FINGERPRINT, "arena %s has a fingerprint and this handle named none; attach with it",
                           kv->name);
    if ((j->r && j->r->epoch != epoch) ||
        (j->head && KVSHM__LOAD(&kv->records[j->head->page].epoch) != (uint32_t)epoch))
        return kvshm__fail(KVSHM_E_STALE, "arena %s was cleared since the %s was made; %s it and compute the pages anew",
                           kv->name, j->r && j->r->epoch != epoch ? "reservation" : "head",
                           j->r && j->r->epoch != epoch ? "cancel" : "release");
    for (uint32_t i = 0; j->r && i < j->r->pages; i++) {
        enum kvshm_owner_kind kind = j->r->flags & KVSHM_DEVICE ? KVSHM__OWNER_DEVICE : KVSHM__OWNER_RESERVED;
        uint32_t frame = j->r->frames[i];
        if (frame >= kv->frame_count ||
            KVSHM__LOAD(&kv->owners[frame].owner) != kvshm__owner_reserved(kind, kv->client, j->r->word))
            return kvshm__fail(KVSHM_E_DAMAGED, "frame %u of the reservation is not owned by it", frame);
    }
    return 0;
}

/* The page is published again, if it is in limbo. */
static void recall(kvshm *kv, uint32_t record)
{
    enum kvshm_place_state state = kvshm__place_state(KVSHM__LOAD(&kv->records[record].place));

    if (state != KVSHM__PLACE_AWAY && state != KVSHM__PLACE_PARTING)
        return;
    kvshm__pages_recall(kv, record);
    if (kv->ages)
        kvshm__recency_claim(kv, record, false);
    kvshm__count(kv, KVSHM__CNT_recalled_pages, 1);
}

/* The pages of a head, which are held, are published again, root first. */
static void recall_head(struct job *j)
{
    for (uint32_t i = 0; i < j->head_pages; i++) {
        uint32_t page = kvshm__pages_ancestor(j->kv, j->above, i);
        if (page != KVSHM__NO_RECORD)
            recall(j->kv, page);
    }
}

/*
 * Pages before first that are in the file alone take our frames. What index words cost may have let those above part again,
 * which are called back first: such a page stays in its frame. Nothing can fail from here on.
 */
static void restore_from_frames(struct job *j, uint32_t first)
{
    kvshm *kv = j->kv;

    if (kv->slots)
        recall_head(j);
    for (uint32_t i = j->head_pages; kv->slots && i < first; i++) {
        uint32_t record = j->fresh[i - j->head_pages].there, frame = j->r->frames[i - j->head_pages];
        recall(kv, record);
        if (!kvshm__place_pending(KVSHM__LOAD(&kv->records[record].place)))
            continue;
        kvshm__frames_to_page(kv, frame, record);
        KVSHM__STORE(&kv->ages[record].sum, j->fresh[i - j->head_pages].sum);
        kvshm__pages_restore(kv, record, frame);
        kvshm__recency_claim(kv, record, false);
    }
}

/* How many pages behind the head are there already; *deepest is the last of them, published or pending. */
static uint32_t use_existing(struct job *j, uint32_t *deepest)
{
    kvshm *kv = j->kv;
    uint32_t i = j->head_pages;
    bool gave_up = false;

    recall_head(j);
    *deepest = j->above;
    while (i < j->pages) {
        struct kvshm__page_spec spec = spec_of_page(j, i, *deepest);
        uint64_t parent_seq = *deepest == KVSHM__NO_RECORD ? 0 : KVSHM__LOAD(&kv->records[*deepest].seq);
        struct kvshm__found found;
        if (!kvshm__index_find(kv, &spec, parent_seq, true, &found, &gave_up))
            break;
        recall(kv, found.record);
        j->fresh[i - j->head_pages].there = found.record;
        *deepest = found.record;
        i++;
    }
    kvshm__count(kv, KVSHM__CNT_shared_pages, i - j->head_pages);
    return i;
}

/* A word that names no record: kept for a page that is about to be published. A rebuild clears it. */
#define WORD_KEPT 0xffffffffu

/* Words and records for pages first .. pages - 1, so that publishing cannot fail. */
static int take_all(struct job *j, uint32_t first)
{
    kvshm *kv = j->kv;

    for (uint32_t i = first; i < j->pages; i++) {
        struct fresh *f = &j->fresh[i - j->head_pages];
        f->record = kvshm__pages_take(kv);
        if (f->record == KVSHM__NO_RECORD)
            return kvshm__fail(KVSHM_E_DAMAGED, "no record is free for a reserved frame");
        if (i + 1 == j->pages && j->replaced.record != KVSHM__NO_RECORD)
            continue;
        f->word = kvshm__evict_for_word(kv, f->hash);
        if (!f->word)
            return kvshm__fail(-ENOSPC, "no index word for page %u: all in reach are of pages that are leased", i);
        KVSHM__STORE(f->word, WORD_KEPT);
    }
    return 0;
}

static void give_all(struct job *j)
{
    for (uint32_t i = 0; i < j->pages - j->head_pages; i++) {
        struct fresh *f = &j->fresh[i];
        if (f->word)
            KVSHM__STORE(f->word, 0);
        if (f->record != KVSHM__NO_RECORD)
            kvshm__pages_give(j->kv, f->record);
    }
}

/* I3: the lease word of the page that will be the deepest, before anything else changes. */
static int hold(struct job *j, uint32_t deepest, bool is_new)
{
    kvshm *kv = j->kv;

    if (!j->hold)
        return 0;
    uint64_t seq = is_new ? kvshm__pages_next_seq(kv, deepest) : KVSHM__LOAD(&kv->records[deepest].seq);
    j->held_word = kvshm__lease_claim(kv, kvshm__lease_value(deepest, seq));
    if (j->held_word == KVSHM__NO_WORD)
        return kvshm__fail(KVSHM_E_LEASES, "all %u lease words of this client are taken; release some, or create the "
                           "arena with a larger max_leases", kv->max_leases);
    return 0;
}

/* Write the record of page i behind parent: in its reserved frame, and found by nobody yet. */
static void prepare(struct job *j, uint32_t i, uint32_t parent)
{
    struct fresh *f = &j->fresh[i - j->head_pages];
    struct kvshm__page_spec spec = spec_of_page(j, i, parent);

    kvshm__pages_write(j->kv, f->record, &spec);
    if (j->kv->ages)
        KVSHM__STORE(&j->kv->ages[f->record].sum, f->sum);
    kvshm__pages_settle(j->kv, f->record, j->r->frames[i - j->head_pages]);
}

/* Page i is found from now on; the deepest is an entry from its first moment on. */
static void publish(struct job *j, uint32_t i)
{
    struct fresh *f = &j->fresh[i - j->head_pages];

    if (i + 1 == j->pages)
        kvshm__recency_add(j->kv, f->record);
    kvshm__index_set(f->word ? f->word : j->replaced.at, f->hash, f->record);
    kvshm__count(j->kv, KVSHM__CNT_published_pages, 1);
}

/* Publish pages first .. pages - 1 behind deepest, in the steps of I1 and I3. Nothing changes if it fails. */
static int publish_rest(struct job *j, uint32_t first, uint32_t *deepest)
{
    int err = take_all(j, first);

    if (!err)
        err = hold(j, j->fresh[j->pages - 1 - j->head_pages].record, true);
    if (err) {
        give_all(j);
        return err;
    }
    restore_from_frames(j, first);
    for (uint32_t i = first; i < j->pages; i++) {
        prepare(j, i, *deepest);
        *deepest = j->fresh[i - j->head_pages].record;
    }
    for (uint32_t i = j->pages; i-- > first;)
        kvshm__frames_to_page(j->kv, j->r->frames[i - j->head_pages], j->fresh[i - j->head_pages].record);
    for (uint32_t i = first; i < j->pages; i++)
        publish(j, i);
    return 0;
}

/* All pages are there already: the entry at the deepest one is named, or touched. */
static int name_existing(struct job *j, uint32_t deepest)
{
    kvshm *kv = j->kv;
    uint64_t stamp = KVSHM__LOAD(&kv->records[deepest].stamp);
    int err = hold(j, deepest, false);

    if (err)
        return err;
    restore_from_frames(j, j->pages);
    if (stamp != 0) {
        kvshm__recency_touch(kv, deepest, stamp, kvshm__recency_now(kv));
        if (kv->ages)
            kvshm__recency_claim(kv, deepest, false);
        return KVSHM_EXISTS;
    }
    kvshm__recency_add(kv, deepest);
    return 0;
}

/* KVSHM_EXTEND: the head's entry has become the new one. */
static void extend(struct job *j, uint32_t deepest)
{
    kvshm *kv = j->kv;

    if (!(j->flags & KVSHM_EXTEND) || !j->head || j->head->page == deepest ||
        KVSHM__LOAD(&kv->records[j->head->page].stamp) == 0)
        return;
    kvshm__evict_drop_entry(kv, j->head->page);
    kvshm__count(kv, KVSHM__CNT_extended_entries, 1);
}

static int insert_tokens(struct job *j, uint32_t *deepest)
{
    kvshm *kv = j->kv;
    uint32_t first = use_existing(j, deepest);
    int outcome;

    kv->pinned1 = *deepest + 1; /* KVSHM__NO_RECORD + 1 is 0: none */
    outcome = first < j->pages ? publish_rest(j, first, deepest) : name_existing(j, *deepest);
    kv->pinned1 = 0;
    if (outcome < 0)
        kvshm__evict_take_away(kv, *deepest);
    else
        extend(j, *deepest);
    return outcome;
}

/* All pages of a key-only entry are new. The deepest takes the old one's word, if there is an old one: one store. */
static int insert_key(struct job *j, uint32_t *deepest)
{
    kvshm *kv = j->kv;
    struct kvshm__page_spec spec = spec_of_page(j, j->pages - 1, KVSHM__NO_RECORD);
    bool gave_up = false;

    *deepest = KVSHM__NO_RECORD;
    if (kvshm__index_find(kv, &spec, 0, false, &j->replaced, &gave_up)) {
        if (kv->slots && !kvshm__tier_has(kv))
            return kvshm__tier_without(kv);
        kv->pinned1 = j->replaced.record + 1;
    }
    int err = publish_rest(j, 0, deepest);
    kv->pinned1 = 0;
    if (err)
        kvshm__evict_take_away(kv, j->replaced.record); /* if its entry was evicted meanwhile */
    if (err || j->replaced.record == KVSHM__NO_RECORD)
        return err;
    kvshm__evict_drop_entry(kv, j->replaced.record);
    if (kv->slots)
        j->mark = kvshm__slots_mark(kv);
    return KVSHM_REPLACED;
}

/* ---- Outcomes ----------------------------------------------------------------------------------------------- */

/* Frames of pages that were there already go back, then the reservation's word is empty. */
static void consume(struct job *j)
{
    struct kvshm_reservation *r = j->r;
    kvshm *kv = j->kv;

    if (!r)
        return;
    for (uint32_t i = 0; i < r->pages; i++) {
        uint64_t owner = KVSHM__LOAD(&kv->owners[r->frames[i]].owner);
        if (kvshm__owner_kind(owner) != KVSHM__OWNER_PAGE)
            kvshm__frames_give(kv, r->frames[i]);
    }
    KVSHM__STORE_REL(&kvshm__own_reservations(kv)[r->word], KVSHM__RESERVATION_EMPTY);
    kvshm__private_free(r->frames);
    memset(r, 0, sizeof(*r));
}

static void become_lease(struct job *j, uint32_t deepest)
{
    struct kvshm_lease *lease = j->hold;

    if (!lease)
        return;
    if (j->head)
        kvshm__lease_drop(j->kv, lease->word);
    memset(lease, 0, sizeof(*lease));
    lease->tokens = j->prefix->n;
    lease->pages = j->pages;
    lease->last_used = KVSHM__LOAD(&j->kv->records[deepest].stamp);
    lease->kv = j->kv;
    lease->page = deepest;
    lease->page_seq = KVSHM__LOAD(&j->kv->records[deepest].seq);
    lease->word = j->held_word;
}

static void count_outcome(kvshm *kv, int outcome)
{
    kvshm__count(kv, outcome == 0               ? KVSHM__CNT_inserted_entries
                     : outcome == KVSHM_EXISTS  ? KVSHM__CNT_existing_entries
                                                : KVSHM__CNT_replaced_entries, 1);
    KVSHM__STORE(&kv->header->derived.last_insert_ns, kvshm__sys.realtime_ns());
}

static int insert_locked(struct job *j)
{
    kvshm *kv = j->kv;
    uint32_t deepest;
    int outcome = check_epoch(j);

    if (outcome < 0)
        return outcome;
    outcome = j->prefix->tokens ? insert_tokens(j, &deepest) : insert_key(j, &deepest);
    if (outcome < 0)
        return outcome;
    consume(j);
    become_lease(j, deepest);
    kvshm__evict_to_capacity(kv, KVSHM__CAPACITY_SLICE);
    if (outcome == KVSHM_REPLACED || (j->flags & KVSHM_EXTEND))
        kvshm__evict_sweep_limbo(kv);
    count_outcome(kv, outcome);
    return outcome;
}

int kvshm__insert(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *head,
                  struct kvshm_reservation *r, unsigned flags)
{
    struct job job = {
        .kv = kv,
        .prefix = prefix,
        .head = head && head->kv ? head : NULL,
        .hold = flags & KVSHM_HOLD ? head : NULL,
        .r = r && r->kv ? r : NULL,
        .flags = flags,
        .above = KVSHM__NO_RECORD,
        .replaced = {.record = KVSHM__NO_RECORD},
        .held_word = KVSHM__NO_WORD,
    };
    int outcome = check(&job);

    if (outcome == 0)
        outcome = kvshm__mend_lock(kv);
    if (outcome == 0) {
        outcome = insert_locked(&job);
        kvshm__mend_unlock(kv);
    }
    kvshm__private_free(job.fresh);
    if (outcome == KVSHM_REPLACED && kv->slots) {
        int err = kvshm__tier_pass(kv, job.mark);
        return err < 0 ? err : outcome;
    }
    return outcome;
}
