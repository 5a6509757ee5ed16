/* SPDX-License-Identifier: Apache-2.0 */
#include "tier.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "batch.h"
#include "client.h"
#include "config.h"
#include "evict.h"
#include "fork.h"
#include "mend.h"
#include "message.h"
#include "private.h"
#include "spill.h"
#include "sys.h"

/* How often is looked again while another client is at it, or the writer lock is not to be had. */
#define POLL_NS UINT64_C(10000000)

#define NS_PER_S UINT64_C(1000000000)

/* A chain that somebody wants back. */
struct wish {
    struct wish *next;
    uint32_t record;
    uint64_t seq;
    bool waited_for;  /* by a call of its own, which looks at done, and frees it */
    bool done;
    int result;
};

struct kvshm__tier {
    kvshm *kv;
    char path[KVSHM__SPILL_PATH_BYTES];
    struct kvshm__batch batch; /* the thread's, but for erasing */
    pthread_t thread;

    pthread_mutex_t mutex; /* of what follows; nothing is taken under it */
    pthread_cond_t work;   /* for the thread */
    pthread_cond_t came;   /* for those who wait */
    bool running, stop;
    bool kicked;           /* pages are to be written if there are too few that can leave */
    bool needed;           /* pages are to be written in any case */
    unsigned send;         /* so many entries are to leave memory */
    bool flush;            /* everything is to be written */
    unsigned flushes;      /* calls that asked for it */
    int flush_result;
    uint64_t flush_moved_ns; /* when a batch of it was written last */
    struct wish *first, **last, *served; /* the last: out of the queue, the thread is at it */
    uint64_t batches;      /* finished, of spilling */
    int spill_result;      /* of the last one: pages, or -errno */
    uint64_t events;       /* wishes that came or failed, not told yet */
    uint64_t open_wishes;  /* not done, that nobody waits for by a call of its own */
    unsigned waiting;      /* calls that wait for the thread */
};

static int sync_file(const struct kvshm__tier *t)
{
    int code = kvshm__sys.sync_data(t->batch.file.fd);

    return code < 0 ? kvshm__fail(code, "spill file %s: fdatasync: %s", t->path, kvshm_strerror(code)) : 0;
}

static uint64_t now_ns(void)
{
    return kvshm__sys.monotonic_ns();
}

static struct timespec time_at(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

/* ---- The thread ------------------------------------------------------------------------------------------- */

static void finish(struct kvshm__tier *t, struct wish *wish, int result)
{
    if (wish->waited_for) {
        wish->result = result;
        wish->done = true;
    } else {
        t->events++;
        t->open_wishes--;
        kvshm__private_free(wish);
        if (t->kv->event_fd >= 0)
            kvshm__sys.event_signal(t->kv->event_fd);
    }
    pthread_cond_broadcast(&t->came);
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

    t->served = wish;
    pthread_mutex_unlock(&t->mutex);
    while (code == 1) {
        code = kvshm__batch_restore(&t->batch, wish->record, wish->seq, false);
        if (code == -ENOBUFS) { /* first what would be dropped else goes to the file */
            code = kvshm__batch_spill(&t->batch, KVSHM__SPILL_URGENT);
            code = code > 0 ? 1 : code == -EAGAIN ? code : kvshm__batch_restore(&t->batch, wish->record, wish->seq, true);
        }
    }
    pthread_mutex_lock(&t->mutex);
    t->served = NULL;
    if ((code == -EAGAIN || code == KVSHM_E_STALLED) && !t->stop) {
        push(t, wish);
        sleep_until(t, POLL_NS / 10);
    } else {
        finish(t, wish, code);
    }
}

/* A batch of a flush is over. Others that do not go on with what they write end it after stall_ms. */
static void flush_went(struct kvshm__tier *t, int code)
{
    uint64_t limit = KVSHM__LOAD(&t->kv->header->settings.stall_ms) * 1000000;

    if (code != -EAGAIN)
        t->flush_moved_ns = now_ns();
    if (code > 0 || (code == -EAGAIN && now_ns() - t->flush_moved_ns <= limit))
        return;
    t->flush = false;
    t->flush_result = code == -EAGAIN ? KVSHM_E_STALLED : code;
}

/* What entries are to leave does so, now that a batch was written. How many still are to. */
static unsigned send_away(kvshm *kv, unsigned n)
{
    if (n == 0 || kvshm__mend_lock(kv) < 0)
        return n;
    while (n > 0 && kvshm__evict_lru(kv, false) >= 0)
        n--;
    kvshm__mend_unlock(kv);
    return n;
}

/* One batch. flush: of everything; -EAGAIN if others are at the rest. */
static int spill_some(struct kvshm__tier *t, bool flush, bool needed, unsigned *send)
{
    int code = 0;

    if (flush || needed || *send > 0 || kvshm__spill_wanted(t->kv, true))
        code = kvshm__batch_spill(&t->batch, flush                ? KVSHM__SPILL_ALL
                                             : needed || *send > 0 ? KVSHM__SPILL_URGENT
                                                                   : KVSHM__SPILL_AHEAD);
    if (flush && t->batch.failed < 0)
        code = t->batch.failed;
    *send = send_away(t->kv, *send);
    return code;
}

/* With the mutex, which is given back meanwhile. */
static void spill(struct kvshm__tier *t)
{
    bool flush = t->flush, needed = t->needed;
    unsigned send = t->send, flushes = t->flushes;

    t->needed = false;
    t->send = 0;
    pthread_mutex_unlock(&t->mutex);
    int code = spill_some(t, flush, needed, &send);
    pthread_mutex_lock(&t->mutex);
    if (code == -EAGAIN)
        sleep_until(t, POLL_NS / 10);
    if (code > 0 || code == -EAGAIN)
        t->send += send; /* the oldest are not all written yet */
    if (needed) {
        t->spill_result = code == -EAGAIN ? 1 : code;
        t->batches++;
    }
    if (code <= 0 && code != -EAGAIN)
        t->kicked = false;
    if (flush && flushes == t->flushes) /* else what a later call asks for may have come behind this batch */
        flush_went(t, code);
    pthread_cond_broadcast(&t->came);
}

static void *run(void *arg)
{
    struct kvshm__tier *t = arg;

    pthread_mutex_lock(&t->mutex);
    while (!t->stop) {
        bool wished = t->first != NULL, spilling = t->flush || t->kicked || t->needed || t->send > 0;
        if (wished)
            serve_wish(t);
        if (spilling)
            spill(t);
        if (!wished && !spilling)
            pthread_cond_wait(&t->work, &t->mutex);
    }
    while (t->first)
        finish(t, pop(t), -ECANCELED);
    if (t->flush)
        t->flush_result = -ECANCELED;
    t->flush = false;
    pthread_cond_broadcast(&t->came);
    pthread_mutex_unlock(&t->mutex);
    kvshm__batch_rest(&t->batch);
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
        if (code < 0)
            kvshm__fail(code, "the thread that moves pages of arena %s to and from %s: %s", t->kv->name, t->path,
                        kvshm_strerror(code));
    }
    pthread_cond_signal(&t->work);
    return code;
}

/* ---- Up and down ------------------------------------------------------------------------------------------ */

int kvshm__tier_open(kvshm *kv, const struct kvshm__spill_file *file, const char *path)
{
    struct kvshm__tier *t = kvshm__private_alloc(sizeof(*t));
    pthread_condattr_t attributes;

    if (!t)
        return kvshm__fail(-ENOMEM, "no memory for the tier of a handle");
    t->kv = kv;
    snprintf(t->path, sizeof(t->path), "%s", path);
    kvshm__batch_open(&t->batch, kv, file);
    kv->slot_bytes = file->shape.header_stride + file->shape.payload_stride;
    kv->spill_fixed_bytes = file->shape.file_bytes - file->shape.slots * kv->slot_bytes;
    t->last = &t->first;
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

int kvshm__tier_name(kvshm *kv, const uint8_t *fingerprint)
{
    struct kvshm__tier *t = kv->tier;

    if (!t)
        return kvshm__fail(KVSHM_E_NOSPILL, "arena %s has no fingerprint yet, and a spill file, which is to have it too; name it "
                           "first with a handle that has the file", kv->name);
    return kvshm__spill_name(&t->batch.file, t->path, fingerprint);
}

/* The thread ends its batch, and then itself; it begins anew when it is needed. */
static void end_thread(struct kvshm__tier *t)
{
    pthread_mutex_lock(&t->mutex);
    bool running = t->running;
    t->stop = true;
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->mutex);
    if (running)
        pthread_join(t->thread, NULL);
    pthread_mutex_lock(&t->mutex);
    t->running = t->stop = false;
    pthread_mutex_unlock(&t->mutex);
}

int kvshm__tier_rest(kvshm *kv)
{
    struct kvshm__tier *t = kv->tier;

    if (!t)
        return 0;
    pthread_mutex_lock(&t->mutex);
    unsigned waiting = t->waiting;
    pthread_mutex_unlock(&t->mutex);
    if (waiting == 0) {
        end_thread(t);
        pthread_mutex_lock(&t->mutex);
        waiting = t->waiting;
        if (waiting > 0) /* who came meanwhile may wait for the thread that ended */
            wake(t);
        pthread_mutex_unlock(&t->mutex);
    }
    if (waiting > 0)
        return kvshm__fail(-EBUSY, "another thread waits for the spill file of arena %s; wait until its call has returned", kv->name);
    return 0;
}

void kvshm__tier_close(kvshm *kv)
{
    struct kvshm__tier *t = kv->tier;

    if (!t)
        return;
    end_thread(t);
    kvshm__batch_close(&t->batch);
    kvshm__fork_close(&kv->event_fd);
    kvshm__fork_close(&kv->spill_fd);
    pthread_cond_destroy(&t->came);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->mutex);
    kvshm__private_free(t);
    kv->tier = NULL;
}

/* ---- For those who wait ----------------------------------------------------------------------------------- */

static struct wish *make_wish(uint32_t record, uint64_t seq, bool waited_for)
{
    struct wish *wish = kvshm__private_alloc(sizeof(*wish));

    if (wish)
        *wish = (struct wish){.record = record, .seq = seq, .waited_for = waited_for};
    return wish;
}

/* Is it wanted by somebody who will be told, as the next one is then? */
static bool is_wanted(const struct kvshm__tier *t, uint32_t record, uint64_t seq)
{
    const struct wish *wish = t->served;

    if (wish && !wish->waited_for && wish->record == record && wish->seq == seq)
        return true;
    for (wish = t->first; wish; wish = wish->next) {
        if (!wish->waited_for && wish->record == record && wish->seq == seq)
            return true;
    }
    return false;
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

int kvshm__tier_want(kvshm *kv, uint32_t record, uint64_t seq)
{
    struct kvshm__tier *t = kv->tier;
    struct wish *wish = make_wish(record, seq, false);
    int code = 0;

    if (!wish)
        return -ENOMEM;
    pthread_mutex_lock(&t->mutex);
    if (is_wanted(t, record, seq)) {
        pthread_mutex_unlock(&t->mutex);
        kvshm__private_free(wish);
        return 0;
    }
    push(t, wish);
    code = wake(t);
    if (code == 0) {
        t->open_wishes++;
    } else { /* no thread will ever end it */
        take_out(t, wish);
        kvshm__private_free(wish);
    }
    pthread_mutex_unlock(&t->mutex);
    return code;
}

static uint64_t deadline(uint64_t timeout_ns)
{
    uint64_t now = now_ns();

    return timeout_ns > UINT64_MAX / 4 - now ? UINT64_MAX / 4 : now + timeout_ns;
}

int kvshm__tier_wait_for(kvshm *kv, uint32_t record, uint64_t seq, uint64_t timeout_ns)
{
    struct kvshm__tier *t = kv->tier;
    struct wish *wish = make_wish(record, seq, true);
    struct timespec until = time_at(deadline(timeout_ns));

    if (!wish)
        return -ENOMEM;
    pthread_mutex_lock(&t->mutex);
    push(t, wish);
    t->waiting++;
    int code = wake(t);
    while (code == 0 && !wish->done)
        code = -pthread_cond_timedwait(&t->came, &t->mutex, &until);
    if (wish->done) {
        code = wish->result;
    } else if (!take_out(t, wish)) { /* the thread is at it, and has it from here on */
        wish->waited_for = false;
        t->open_wishes++;
        wish = NULL;
    }
    t->waiting--;
    pthread_mutex_unlock(&t->mutex);
    kvshm__private_free(wish);
    return code;
}

void kvshm__tier_kick(kvshm *kv)
{
    struct kvshm__tier *t = kv->tier;

    if (!t || !kvshm__spill_wanted(kv, false))
        return;
    pthread_mutex_lock(&t->mutex);
    if (!t->kicked)
        t->kicked = wake(t) == 0;
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
    t->waiting++;
    code = wake(t);
    while (code == 0 && t->batches == before)
        code = -pthread_cond_timedwait(&t->came, &t->mutex, &until);
    if (code == 0 && t->spill_result <= 0)
        code = t->spill_result < 0 ? t->spill_result : -ENOSPC;
    t->waiting--;
    pthread_mutex_unlock(&t->mutex);
    return code;
}

int kvshm__tier_send(kvshm *kv)
{
    struct kvshm__tier *t = kv->tier;

    pthread_mutex_lock(&t->mutex);
    t->send++;
    int code = wake(t);
    pthread_mutex_unlock(&t->mutex);
    return code;
}

int kvshm__tier_flush(kvshm *kv)
{
    struct kvshm__tier *t = kv->tier;

    pthread_mutex_lock(&t->mutex);
    t->flush = true;
    t->flushes++;
    t->flush_moved_ns = now_ns();
    t->waiting++;
    int code = wake(t);
    while (code == 0 && t->flush)
        pthread_cond_wait(&t->came, &t->mutex);
    if (code == 0)
        code = t->flush_result;
    t->waiting--;
    pthread_mutex_unlock(&t->mutex);
    if (code == KVSHM_E_STALLED)
        return kvshm__fail(code, "arena %s: another client does not go on with pages that it writes to %s; continue that "
                           "process (SIGCONT) or kill it (kvshm -p -o pid,transfers shows which), then call again",
                           kv->name, t->path);
    if (code == -ENOSPC)
        return kvshm__fail(code, "spill file %s: not all of what is resident could be written: of its %u slots spill_bytes "
                           "leaves too few, or its disk is full; let it have more (kvshmctl set), or evict", t->path,
                           kv->slot_count);
    if (code < 0)
        return kvshm__fail(code, "spill file %s: not all of what is resident could be written: %s", t->path,
                           kvshm_strerror(code));
    return sync_file(t);
}

int kvshm__tier_without(kvshm *kv)
{
    return kvshm__fail(KVSHM_E_NOSPILL, "arena %s has a spill file, and this handle was attached without it (KVSHM_NOTIER); "
                       "what is in the file can be forgotten or replaced only by a handle with it", kv->name);
}

/* Waits for others end when nothing moves for stall_ms. */
struct patience {
    uint64_t limit_ns, moved_ns;
};

static struct patience patience(const kvshm *kv)
{
    return (struct patience){.limit_ns = KVSHM__LOAD(&kv->header->settings.stall_ms) * 1000000, .moved_ns = now_ns()};
}

/* false: it is over. */
static bool wait_more(const struct patience *p)
{
    if (now_ns() - p->moved_ns > p->limit_ns)
        return false;
    kvshm__sys.sleep_ns(POLL_NS / 10);
    return true;
}

static int stalled(kvshm *kv, uint64_t client)
{
    char who[KVSHM__CLIENT_WORDS];

    return kvshm__fail(KVSHM_E_STALLED,
                       "pages are gone from the memory of arena %s, but not from its spill file: client %llu, %s, has not "
                       "ended what it began before; continue that process (SIGCONT) or kill it, then call again",
                       kv->name, (unsigned long long)client, kvshm__client_describe(kv, client, who, sizeof(who)));
}

/* -EAGAIN: not yet; *client is whom it waits for. */
static int passed(kvshm *kv, uint64_t mark, uint64_t *client)
{
    int code = kvshm__mend_lock(kv);

    if (code == 0) {
        code = kvshm__slots_passed(kv, mark, client) ? 0 : -EAGAIN;
        kvshm__mend_unlock(kv);
    }
    return code;
}

int kvshm__tier_pass(kvshm *kv, uint64_t mark)
{
    struct kvshm__tier *t = kv->tier;
    struct patience p = patience(kv);
    uint64_t client;
    int code;

    if (!t)
        return kvshm__tier_without(kv);
    while ((code = passed(kv, mark, &client)) == -EAGAIN) {
        int n = kvshm__batch_erase(&t->batch);
        if (n < 0)
            return kvshm__fail(n, "spill file %s: slots of pages that went: %s", t->path, kvshm_strerror(n));
        if (n > 0)
            p.moved_ns = now_ns();
        else if (!wait_more(&p))
            return stalled(kv, client);
    }
    return code < 0 ? code : sync_file(t);
}

int kvshm__tier_rename(kvshm *kv, uint32_t record, uint64_t seq)
{
    struct kvshm__tier *t = kv->tier;
    struct patience p = patience(kv);
    int code;

    while ((code = kvshm__batch_rename(&t->batch, record, seq)) == -EAGAIN) {
        if (!wait_more(&p))
            return stalled(kv, 0);
    }
    return code < 0 ? kvshm__fail(code, "spill file %s: header of a page: %s", t->path, kvshm_strerror(code)) : 0;
}

int kvshm__tier_epoch(kvshm *kv, uint64_t seen, uint64_t *epoch)
{
    struct kvshm__tier *t = kv->tier;

    pthread_mutex_lock(&t->batch.erasing); /* threads share the place's block */
    int code = kvshm__spill_epoch_read(&t->batch.file, epoch);
    if (code == 0) {
        *epoch = (*epoch > seen ? *epoch : seen) + 1;
        code = kvshm__spill_epoch_write(&t->batch.file, kv->place, *epoch);
    }
    pthread_mutex_unlock(&t->batch.erasing);
    return code < 0 ? kvshm__fail(code, "spill file %s: the epoch after a clear: %s", t->path, kvshm_strerror(code)) : 0;
}

int kvshm__tier_wait(kvshm *kv, uint64_t timeout_ns)
{
    struct kvshm__tier *t = kv->tier;
    struct timespec until = time_at(deadline(timeout_ns));
    int code = 0;

    pthread_mutex_lock(&t->mutex);
    t->waiting++;
    while (code == 0 && t->events == 0 && t->open_wishes > 0)
        code = -pthread_cond_timedwait(&t->came, &t->mutex, &until);
    t->waiting--;
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
