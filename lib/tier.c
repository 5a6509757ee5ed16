/* SPDX-License-Identifier: Apache-2.0 */
#include "tier.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "fork.h"
#include "frames.h"
#include "mend.h"
#include "message.h"
#include "private.h"
#include "ring.h"
#include "slots.h"
#include "spill.h"
#include "evict.h"
#include "sys.h"

/* Pages of one batch. */
#define BATCH 64

/* How often is looked again while another client is at it, or the writer lock is not to be had. */
#define POLL_NS UINT64_C(10000000)

#define NS_PER_S UINT64_C(1000000000)

/* A chain that somebody wants back. */
struct wish {
    struct wish *next;
    uint32_t record;
    uint64_t seq;
    bool waited_for;  /* its memory is a waiter's, who looks at done */
    bool done;
    int result;
};

struct kvshm__tier {
    kvshm *kv;
    struct kvshm__spill_file file;
    struct kvshm__ring *ring; /* the thread's */
    void *headers;            /* of a batch, the thread's */
    uint64_t headers_bytes;
    unsigned batch;           /* pages moved at once, at most: no large part of memory */
    pthread_t thread;

    pthread_mutex_t mutex; /* of what follows; nothing is taken under it */
    pthread_cond_t work;   /* for the thread */
    pthread_cond_t came;   /* for those who wait */
    bool running, stop;
    bool kicked;           /* pages are to be written if there are too few that can leave */
    bool needed;           /* pages are to be written in any case */
    bool flush;            /* everything is to be written */
    int flush_result;
    struct wish *first, **last;
    uint64_t batches;      /* finished, of spilling */
    int spill_result;      /* of the last one: pages, or -errno */
    uint64_t events;       /* wishes that came or failed, not told yet */
    uint64_t open_wishes;  /* not done */
};

static uint64_t now_ns(void)
{
    return kvshm__sys.monotonic_ns();
}

static struct timespec time_at(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

/* ---- Transfers ---------------------------------------------------------------------------------------------- */

static uint8_t *frame_at(const kvshm *kv, uint32_t frame)
{
    return kv->write_base + kv->frames_offset + frame * kv->frame_stride;
}

static int start_ring(struct kvshm__tier *t)
{
    kvshm *kv = t->kv;
    struct kvshm__ring_setup setup = {
        .file = t->file.fd,
        .quiet = kv->quiet_fd,
        .depth = 2 * BATCH,
        .align = t->file.shape.block_bytes,
        .memory = kv->write_base + kv->frames_offset,
        .bytes = kv->frame_count * kv->frame_stride,
        .stride = kv->frame_stride,
        .descriptor = &kv->ring_fd,
    };
    int code;

    if (t->ring)
        return 0;
    t->headers_bytes = (uint64_t)BATCH * t->file.shape.header_stride;
    code = kvshm__sys.map(t->headers_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, &t->headers);
    if (code == 0)
        code = kvshm__ring_open(&setup, &t->ring);
    if (code == 0) {
        struct kvshm_client *client = &kv->clients[kv->place];
        strncpy(client->engine_reason, kvshm__ring_reason(t->ring), sizeof(client->engine_reason) - 1);
        client->engine = kvshm__ring_engine(t->ring);
    }
    return code;
}

/* Wait for n transfers whose cookies are numbers of moves. A ring that ends with errors gives them to all. */
static void wait_all(struct kvshm__tier *t, struct kvshm__move *moves, unsigned n)
{
    struct kvshm__ring_done done[BATCH];

    while (n > 0) {
        int got = kvshm__ring_wait(t->ring, 1, done, BATCH, -1);
        if (got < 0) {
            uint64_t pause = POLL_NS / 10;
            kvshm__sys.sleep_ns(pause);
            continue;
        }
        for (int i = 0; i < got; i++) {
            if (done[i].result < 0)
                moves[done[i].cookie].result = done[i].result;
        }
        n -= (unsigned)got;
    }
}

static void move_payloads(struct kvshm__tier *t, struct kvshm__move *moves, unsigned n, bool write)
{
    const struct kvshm__spill_shape *s = &t->file.shape;
    unsigned queued = 0;

    for (unsigned i = 0; i < n; i++) {
        uint64_t offset = kvshm__spill_payload_offset(s, moves[i].slot);
        void *memory = frame_at(t->kv, moves[i].frame);
        moves[i].result = write ? kvshm__ring_write(t->ring, memory, (uint32_t)s->payload_stride, offset, i)
                                : kvshm__ring_read(t->ring, memory, (uint32_t)s->payload_stride, offset, i);
        queued += moves[i].result == 0;
    }
    wait_all(t, moves, queued);
}

/* Headers that lie side by side go in one write. Of pages whose payload was not written, nothing is. */
static void write_headers(struct kvshm__tier *t, struct kvshm__move *moves, unsigned n)
{
    const struct kvshm__spill_shape *s = &t->file.shape;
    char *headers = t->headers;
    unsigned queued = 0, end;

    for (unsigned i = 0; i < n; i = end) {
        end = i + 1;
        if (moves[i].result < 0)
            continue;
        while (end < n && moves[end].result == 0 && moves[end].slot == moves[end - 1].slot + 1)
            end++;
        int code = kvshm__ring_write(t->ring, headers + (size_t)i * s->header_stride, (end - i) * s->header_stride,
                                     kvshm__spill_header_offset(s, moves[i].slot), i);
        moves[i].result = code;
        queued += code == 0;
    }
    wait_all(t, moves, queued);
    for (unsigned i = 1; i < n; i++) { /* the first of a run tells of all of it */
        if (moves[i].result == 0 && moves[i].slot == moves[i - 1].slot + 1)
            moves[i].result = moves[i - 1].result;
    }
}

/* ---- To the file -------------------------------------------------------------------------------------------- */

static void settle_spilled(kvshm *kv, struct kvshm__move *moves, unsigned n)
{
    bool unwanted = false;

    while (kvshm__mend_lock(kv) < 0)
        kvshm__sys.sleep_ns(POLL_NS);
    for (unsigned i = 0; i < n; i++) {
        unwanted |= kvshm__spill_settle(kv, &moves[i]);
        kvshm__evict_part_page(kv, moves[i].record);
    }
    kvshm__evict_sweep_limbo(kv);
    kvshm__mend_unlock(kv);
    while (unwanted && kvshm__tier_erase(kv) < 0)
        kvshm__sys.sleep_ns(POLL_NS);
}

/* One batch. How many pages were written; -EAGAIN: others are at those that could be; or -errno. */
static int spill_batch(struct kvshm__tier *t, bool all)
{
    kvshm *kv = t->kv;
    bool others;
    struct kvshm__move moves[BATCH];
    int code = start_ring(t), failed = 0;

    if (code == 0)
        code = kvshm__mend_lock(kv);
    if (code < 0)
        return code;
    memset(t->headers, 0, t->headers_bytes);
    unsigned n = kvshm__spill_pick(kv, moves, t->batch, t->headers, t->file.shape.header_stride, all, &others);
    kvshm__mend_unlock(kv);
    if (n == 0)
        return others ? -EAGAIN : 0;
    for (unsigned i = 0; i < n; i++) {
        struct kvshm_slot_header *h = (void *)((char *)t->headers + (size_t)i * t->file.shape.header_stride);
        moves[i].sum = kvshm__payload_sum(frame_at(kv, moves[i].frame), kv->page_bytes, moves[i].page_id);
        h->payload_sum = moves[i].sum;
        kvshm__slot_seal(&t->file, h);
    }
    move_payloads(t, moves, n, true);
    write_headers(t, moves, n);
    for (unsigned i = 0; i < n; i++)
        failed += moves[i].result < 0;
    kvshm__count(kv, KVSHM__CNT_spill_bytes_written,
                 (n - (unsigned)failed) * (t->file.shape.payload_stride + t->file.shape.header_stride));
    settle_spilled(kv, moves, n);
    return (unsigned)failed == n ? moves[0].result : (int)n - failed;
}

/* ---- From the file ------------------------------------------------------------------------------------------ */

/* One batch of a chain. 0: it is all there; 1: there is more; or -errno. */
static int restore_batch(struct kvshm__tier *t, const struct wish *wish, bool may_drop)
{
    kvshm *kv = t->kv;
    struct kvshm__move moves[BATCH];
    int code = start_ring(t);

    if (code == 0)
        code = kvshm__mend_lock(kv);
    if (code < 0)
        return code;
    int n = kvshm__restore_claim(kv, wish->record, wish->seq, moves, t->batch, may_drop);
    kvshm__mend_unlock(kv);
    if (n <= 0)
        return n;
    move_payloads(t, moves, (unsigned)n, false);
    for (int i = 0; i < n; i++) {
        if (moves[i].result == 0 && kvshm__payload_sum(frame_at(kv, moves[i].frame), kv->page_bytes, moves[i].page_id) !=
                                        moves[i].sum)
            moves[i].result = -EBADMSG;
    }
    kvshm__count(kv, KVSHM__CNT_spill_bytes_read, (unsigned)n * t->file.shape.payload_stride);
    while (kvshm__mend_lock(kv) < 0)
        kvshm__sys.sleep_ns(POLL_NS);
    unsigned done = kvshm__restore_settle(kv, moves, (unsigned)n);
    kvshm__mend_unlock(kv);
    return done > 0 ? 1 : moves[0].result < 0 ? moves[0].result : -EAGAIN;
}

/* ---- The thread ------------------------------------------------------------------------------------------- */

static void tell(struct kvshm__tier *t)
{
    pthread_cond_broadcast(&t->came);
    if (t->kv->event_fd >= 0)
        kvshm__sys.event_signal(t->kv->event_fd);
}

static void finish(struct kvshm__tier *t, struct wish *wish, int result)
{
    t->events++;
    t->open_wishes--;
    if (wish->waited_for) {
        wish->result = result;
        wish->done = true;
    } else {
        kvshm__private_free(wish);
    }
    tell(t);
}

static void push(struct kvshm__tier *t, struct wish *wish)
{
    wish->next = NULL;
    *t->last = wish;
    t->last = &wish->next;
}

static struct wish *pop(struct kvshm__tier *t)
{
    struct wish *wish = t->first;

    t->first = wish->next;
    if (!t->first)
        t->last = &t->first;
    return wish;
}

static void sleep_until(struct kvshm__tier *t, uint64_t ns)
{
    struct timespec at = time_at(now_ns() + ns);

    pthread_cond_timedwait(&t->work, &t->mutex, &at);
}

/* With the mutex, which is given back meanwhile. */
static void serve_wish(struct kvshm__tier *t)
{
    struct wish *wish = pop(t);
    int code = 1;

    pthread_mutex_unlock(&t->mutex);
    while (code == 1) {
        code = restore_batch(t, wish, false);
        if (code == -ENOBUFS) { /* first what would be dropped else goes to the file */
            code = spill_batch(t, false);
            code = code > 0 ? 1 : code == -EAGAIN ? code : restore_batch(t, wish, true);
        }
    }
    pthread_mutex_lock(&t->mutex);
    if ((code == -EAGAIN || code == KVSHM_E_STALLED) && !t->stop) {
        push(t, wish);
        sleep_until(t, POLL_NS / 10);
    } else {
        finish(t, wish, code);
    }
}

static void spill(struct kvshm__tier *t)
{
    bool all = t->flush, needed = t->needed;
    int code;

    t->needed = false;

    pthread_mutex_unlock(&t->mutex);
    code = all || needed || kvshm__spill_wanted(t->kv, true) ? spill_batch(t, all) : 0;
    pthread_mutex_lock(&t->mutex);
    if (code == -EAGAIN)
        sleep_until(t, POLL_NS / 10);
    if (needed) {
        t->spill_result = code == -EAGAIN ? 1 : code;
        t->batches++;
    }
    if (code <= 0)
        t->kicked = false;
    if (all && code <= 0 && code != -EAGAIN) {
        t->flush = false;
        t->flush_result = code;
    }
    pthread_cond_broadcast(&t->came);
}

static void *run(void *arg)
{
    struct kvshm__tier *t = arg;

    pthread_mutex_lock(&t->mutex);
    while (!t->stop) {
        if (t->first)
            serve_wish(t);
        else if (t->flush || t->kicked || t->needed)
            spill(t);
        else
            pthread_cond_wait(&t->work, &t->mutex);
    }
    while (t->first)
        finish(t, pop(t), -ECANCELED);
    pthread_mutex_unlock(&t->mutex);
    if (t->ring)
        kvshm__ring_close(t->ring);
    if (t->headers)
        kvshm__sys.unmap(t->headers, t->headers_bytes);
    return NULL;
}

/* With the mutex: the thread runs, and has work. */
static int wake(struct kvshm__tier *t)
{
    sigset_t all, before;
    int code = 0;

    if (!t->running) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        code = -pthread_create(&t->thread, NULL, run, t);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        t->running = code == 0;
    }
    pthread_cond_signal(&t->work);
    return code;
}

/* ---- Up and down ------------------------------------------------------------------------------------------ */

int kvshm__tier_open(kvshm *kv, const struct kvshm__spill_file *file, const char *path)
{
    struct kvshm__tier *t = kvshm__private_alloc(sizeof(*t));
    pthread_condattr_t attributes;

    (void)path;
    if (!t)
        return kvshm__fail(-ENOMEM, "no memory for the tier of a handle");
    t->kv = kv;
    t->file = *file;
    t->last = &t->first;
    t->batch = kv->frame_count / 16 + 1 < BATCH ? kv->frame_count / 16 + 1 : BATCH;
    kv->spill_fd = file->fd;
    pthread_mutex_init(&t->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&t->work, &attributes);
    pthread_cond_init(&t->came, &attributes);
    pthread_condattr_destroy(&attributes);
    kv->tier = t;
    return 0;
}

void kvshm__tier_close(kvshm *kv)
{
    struct kvshm__tier *t = kv->tier;

    if (!t)
        return;
    pthread_mutex_lock(&t->mutex);
    t->stop = true;
    pthread_cond_signal(&t->work);
    bool running = t->running;
    pthread_mutex_unlock(&t->mutex);
    if (running)
        pthread_join(t->thread, NULL);
    kvshm__fork_close(&kv->event_fd);
    kvshm__fork_close(&kv->spill_fd);
    pthread_cond_destroy(&t->came);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->mutex);
    kvshm__private_free(t);
    kv->tier = NULL;
}

/* ---- For those who wait ----------------------------------------------------------------------------------- */

int kvshm__tier_want(kvshm *kv, uint32_t record, uint64_t seq)
{
    struct kvshm__tier *t = kv->tier;
    struct wish *wish = kvshm__private_alloc(sizeof(*wish));
    int code = 0;

    if (!wish)
        return -ENOMEM;
    wish->record = record;
    wish->seq = seq;
    pthread_mutex_lock(&t->mutex);
    for (struct wish *other = t->first; other; other = other->next) {
        if (other->record == record && other->seq == seq) { /* it is wanted already */
            pthread_mutex_unlock(&t->mutex);
            kvshm__private_free(wish);
            return 0;
        }
    }
    push(t, wish);
    t->open_wishes++;
    code = wake(t);
    pthread_mutex_unlock(&t->mutex);
    return code;
}

static uint64_t deadline(uint64_t timeout_ns)
{
    uint64_t now = now_ns();

    return timeout_ns > UINT64_MAX / 4 - now ? UINT64_MAX / 4 : now + timeout_ns;
}

/* Takes a wish out of the queue; false: the thread is at it. */
static bool take_out(struct kvshm__tier *t, struct wish *wish)
{
    for (struct wish **at = &t->first; *at; at = &(*at)->next) {
        if (*at != wish)
            continue;
        *at = wish->next;
        if (t->last == &wish->next)
            t->last = at;
        return true;
    }
    return false;
}

int kvshm__tier_wait_for(kvshm *kv, uint32_t record, uint64_t seq, uint64_t timeout_ns)
{
    struct kvshm__tier *t = kv->tier;
    struct wish wish = {.record = record, .seq = seq, .waited_for = true};
    struct timespec until = time_at(deadline(timeout_ns));

    pthread_mutex_lock(&t->mutex);
    push(t, &wish);
    t->open_wishes++;
    int code = wake(t);
    while (!wish.done) {
        if (code == 0)
            code = -pthread_cond_timedwait(&t->came, &t->mutex, &until);
        if (code != 0 && take_out(t, &wish)) {
            t->open_wishes--;
            break;
        }
        if (code != 0 && !wish.done) /* the batch that is in flight comes to its end */
            pthread_cond_wait(&t->came, &t->mutex);
    }
    pthread_mutex_unlock(&t->mutex);
    return wish.done ? wish.result : code;
}

void kvshm__tier_kick(kvshm *kv)
{
    struct kvshm__tier *t = kv->tier;

    if (!t || !kvshm__spill_wanted(kv, false))
        return;
    pthread_mutex_lock(&t->mutex);
    if (!t->kicked) {
        t->kicked = true;
        wake(t);
    }
    pthread_mutex_unlock(&t->mutex);
}

int kvshm__tier_wait_room(kvshm *kv, uint64_t deadline_ns)
{
    struct kvshm__tier *t = kv->tier;
    struct timespec until = time_at(deadline_ns < UINT64_MAX / 4 ? deadline_ns : UINT64_MAX / 4);
    int code;

    pthread_mutex_lock(&t->mutex);
    uint64_t before = t->batches;
    t->needed = true;
    code = wake(t);
    while (code == 0 && t->batches == before)
        code = -pthread_cond_timedwait(&t->came, &t->mutex, &until);
    if (code == 0 && t->spill_result <= 0)
        code = t->spill_result < 0 ? t->spill_result : -ENOSPC;
    pthread_mutex_unlock(&t->mutex);
    return code;
}

int kvshm__tier_flush(kvshm *kv)
{
    struct kvshm__tier *t = kv->tier;
    int code;

    pthread_mutex_lock(&t->mutex);
    t->flush = true;
    code = wake(t);
    while (code == 0 && t->flush)
        pthread_cond_wait(&t->came, &t->mutex);
    if (code == 0)
        code = t->flush_result;
    pthread_mutex_unlock(&t->mutex);
    return code < 0 ? code : kvshm__sys.sync_data(t->file.fd);
}

/* Some of the slots that this client has to erase, as they stand. */
static unsigned slots_to_erase(const kvshm *kv, uint32_t *records, unsigned max)
{
    unsigned n = 0;

    for (uint32_t slot = 0; slot < kv->slot_count && n < max; slot++) {
        uint32_t record = KVSHM__LOAD(&kv->slots[slot].record);
        uint64_t owner = KVSHM__LOAD(&kv->slots[slot].owner);
        if (kvshm__owner_kind(owner) == KVSHM__OWNER_ERASING && kvshm__owner_client(owner) == kv->client &&
            record < kv->record_count)
            records[n++] = record;
    }
    return n;
}

int kvshm__tier_erase(kvshm *kv)
{
    struct kvshm__tier *t = kv->tier;
    uint32_t records[BATCH];
    unsigned n;
    int code;

    do {
        code = kvshm__mend_lock(kv);
        if (code < 0)
            return code;
        n = slots_to_erase(kv, records, BATCH);
        kvshm__mend_unlock(kv);
        for (unsigned i = 0; i < n && code == 0; i++)
            code = kvshm__spill_erase(&t->file, kvshm__slot_number(KVSHM__LOAD(&kv->records[records[i]].slot)));
        if (code == 0 && n > 0)
            code = kvshm__sys.sync_data(t->file.fd);
        if (code == 0)
            code = kvshm__mend_lock(kv);
        if (code < 0)
            return code;
        for (unsigned i = 0; i < n; i++)
            kvshm__slots_give(kv, records[i]);
        kvshm__evict_sweep_limbo(kv);
        kvshm__mend_unlock(kv);
    } while (n == BATCH);
    return 0;
}

int kvshm__tier_epoch(kvshm *kv, uint64_t seen, uint64_t *epoch)
{
    struct kvshm__tier *t = kv->tier;
    int code = kvshm__spill_epoch_read(&t->file, epoch);

    if (code < 0)
        return code;
    *epoch = (*epoch > seen ? *epoch : seen) + 1;
    return kvshm__spill_epoch_write(&t->file, kv->place, *epoch);
}

int kvshm__tier_wait(kvshm *kv, uint64_t timeout_ns)
{
    struct kvshm__tier *t = kv->tier;
    struct timespec until = time_at(deadline(timeout_ns));
    int code = 0;

    pthread_mutex_lock(&t->mutex);
    while (code == 0 && t->events == 0 && t->open_wishes > 0)
        code = -pthread_cond_timedwait(&t->came, &t->mutex, &until);
    uint64_t events = t->events;
    t->events = 0;
    if (kv->event_fd >= 0)
        kvshm__sys.event_clear(kv->event_fd);
    pthread_mutex_unlock(&t->mutex);
    return (int)events;
}

int kvshm__tier_eventfd(kvshm *kv)
{
    struct kvshm__tier *t = kv->tier;
    int code;

    pthread_mutex_lock(&t->mutex);
    if (kv->event_fd < 0) {
        kvshm__fork_hold();
        code = kvshm__sys.event_make();
        kv->event_fd = code >= 0 ? code : -1;
        kvshm__fork_let();
        if (code >= 0 && t->events > 0)
            kvshm__sys.event_signal(kv->event_fd);
    } else {
        code = kv->event_fd;
    }
    pthread_mutex_unlock(&t->mutex);
    return code;
}
