/* SPDX-License-Identifier: Apache-2.0 */
#include "writer.h"

#include <pthread.h>

#include "client.h"
#include "config.h"
#include "message.h"
#include "sys.h"

#define SPINS 200
#define SLEEP_NS 10000000u

/*
 * The most that counts between two looks at an owner. A waiter that did not run for longer was stopped itself, perhaps
 * with the owner (a debugger, a frozen control group), and has not seen that the owner stood still.
 */
#define UNWATCHED_NS 100000000u

/* What a waiter saw of the owner: the same again means that it has not moved. */
struct sight {
    uint64_t owner, turn, progress;
};

static struct sight look(const struct kvshm_lock *lock)
{
    struct sight s;
    s.owner = KVSHM__LOAD_ACQ((kvshm_a64 *)&lock->word);
    s.turn = KVSHM__LOAD((kvshm_a64 *)&lock->turn);
    s.progress = KVSHM__LOAD((kvshm_a64 *)&lock->progress);
    return s;
}

static bool same(struct sight a, struct sight b)
{
    return a.owner == b.owner && a.turn == b.turn && a.progress == b.progress;
}

/* The half of the word that a futex sees. */
static uint32_t *futex_half(struct kvshm_lock *lock)
{
    return (uint32_t *)&lock->word + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

static bool take(kvshm *kv, uint64_t from)
{
    return kvshm__cas(&kv->header->lock.word, from, kv->client);
}

static void sleep_on(struct kvshm_lock *lock, uint64_t owner)
{
    atomic_fetch_add_explicit(&lock->waiters, 1, memory_order_seq_cst);
    kvshm__sys.futex_wait(futex_half(lock), (uint32_t)owner, SLEEP_NS);
    atomic_fetch_sub_explicit(&lock->waiters, 1, memory_order_seq_cst);
}

/* How long one that does not move is waited for; what the setting says beyond its range is damage. */
static uint64_t stall_ms(const kvshm *kv)
{
    uint64_t ms = KVSHM__LOAD(&kv->header->settings.stall_ms);

    return ms < KVSHM__STALL_MS_MAX ? ms : KVSHM__STALL_MS_MAX;
}

static int stalled(kvshm *kv, struct sight s)
{
    char who[128];

    kv->stalled_owner = s.owner;
    kv->stalled_turn = s.turn;
    kv->stalled_progress = s.progress;
    kvshm__count(kv, KVSHM__CNT_stalls, 1);
    kvshm__client_describe(kv, s.owner, who, sizeof(who));
    return kvshm__fail(KVSHM_E_STALLED,
                       "the writer lock of arena %s is held by client %llu, %s, which has not moved for %llu ms; "
                       "continue that process (SIGCONT) or kill it, then call again",
                       kv->name, (unsigned long long)s.owner, who,
                       (unsigned long long)stall_ms(kv));
}

/* One look at a lock that is not free. 1: taken over; 0: free now or owned by someone alive. */
static int take_over_from_dead(kvshm *kv, uint64_t owner)
{
    /* Own number without being inside, or a number that the kernel knows nobody for: nobody will give it back. */
    bool dead = owner == kv->client || (owner != 0 && !kvshm__client_alive(kv, owner));

    return dead && take(kv, owner);
}

static int acquire_contended(kvshm *kv)
{
    struct kvshm_lock *lock = &kv->header->lock;
    struct sight before = {0, 0, 0};
    struct sight known = {kv->stalled_owner, kv->stalled_turn, kv->stalled_progress};
    uint64_t watched_ns = 0, last_ns = 0;

    for (;;) {
        if (take(kv, 0))
            return 0;
        struct sight now = look(lock);
        if (now.owner == 0)
            continue;
        if (take_over_from_dead(kv, now.owner))
            return 1;
        if (same(now, known))
            return stalled(kv, now);
        uint64_t now_ns = kvshm__sys.monotonic_ns();
        if (!same(now, before)) {
            before = now;
            watched_ns = 0;
        } else {
            watched_ns += now_ns - last_ns < UNWATCHED_NS ? now_ns - last_ns : UNWATCHED_NS;
        }
        last_ns = now_ns;
        if (watched_ns / 1000000 >= stall_ms(kv))
            return stalled(kv, now);
        sleep_on(lock, now.owner);
    }
}

int kvshm__writer_acquire(kvshm *kv)
{
    int cancel_state, got;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    pthread_mutex_lock(&kv->mutex);
    kv->cancel_state = cancel_state;
    for (int i = 0; i < SPINS; i++) {
        if (KVSHM__LOAD(&kv->header->lock.word) == 0 && take(kv, 0))
            return 0;
        kvshm__pause();
    }
    got = acquire_contended(kv);
    if (got < 0) {
        pthread_mutex_unlock(&kv->mutex);
        pthread_setcancelstate(cancel_state, NULL);
    }
    return got;
}

void kvshm__writer_release(kvshm *kv)
{
    struct kvshm_lock *lock = &kv->header->lock;
    int cancel_state = kv->cancel_state;

    KVSHM__STORE(&lock->turn, KVSHM__LOAD(&lock->turn) + 1);
    (void)kvshm__cas(&lock->word, kv->client, 0);
    if (atomic_load_explicit(&lock->waiters, memory_order_seq_cst) != 0)
        kvshm__sys.futex_wake(futex_half(lock), 1);
    pthread_mutex_unlock(&kv->mutex);
    pthread_setcancelstate(cancel_state, NULL);
}
