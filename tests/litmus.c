/* SPDX-License-Identifier: Apache-2.0 */
/* litmus.c - see litmus.h */
#include "litmus.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "support.h"
#include "sys.h"

#define CELLS     512u
#define SPINS     1000u /* looks at the other before a sleep */
#define SLEEP_NS  10000000u
#define DELAY_MAX 48u /* turns of an empty loop */

struct meeting {
    _Alignas(64) kvshm_a64 number; /* that the side has come to; a futex is its low half */
    kvshm_a64 awaited;             /* the other sleeps */
};

struct shared {
    struct meeting met[2];
    _Alignas(64) kvshm_a64 goes_on; /* left: another batch follows */
    struct litmus_counts counts;
    struct litmus_cell cells[CELLS];
};

struct player {
    const struct litmus *litmus;
    struct shared *shared;
    unsigned side;
    uint64_t meetings;
    uint64_t random;
    uint64_t least, most; /* rounds */
    unsigned awaited;     /* outcomes */
};

/* Processors that we may use: those of the first call, so that a child of a pinned process has a choice too. */
static const cpu_set_t *processors(void)
{
    static cpu_set_t set;
    static bool known;

    if (!known)
        ts_need(sched_getaffinity(0, sizeof(set), &set) == 0);
    known = true;
    return &set;
}

bool litmus_possible(void)
{
    return CPU_COUNT(processors()) >= 2;
}

void litmus_pin(unsigned side)
{
    cpu_set_t one;
    int cpu = 0;

    for (unsigned seen = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, processors()) && seen++ == side)
            break;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ts_need(sched_setaffinity(0, sizeof(one), &one) == 0);
}

void litmus_unpin(void)
{
    ts_need(sched_setaffinity(0, sizeof(*processors()), processors()) == 0);
}

static uint32_t *low_half(struct meeting *meeting)
{
    return (uint32_t *)&meeting->number + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

/*
 * Who waits long sleeps, and so has the processor at once when the other comes: where both processors are busy with
 * other work, two that only look would seldom run at the same moment.
 */
static void meet(struct player *player)
{
    struct meeting *mine = &player->shared->met[player->side],
                   *other = &player->shared->met[!player->side];
    uint64_t number = ++player->meetings, seen;
    unsigned looks = 0;

    KVSHM__STORE_REL(&mine->number, number);
    if (KVSHM__LOAD(&mine->awaited))
        kvshm__sys.futex_wake(low_half(mine), 1);
    while ((seen = KVSHM__LOAD_ACQ(&other->number)) < number) {
        kvshm__pause();
        if (++looks % SPINS != 0)
            continue;
        KVSHM__STORE(&other->awaited, 1);
        kvshm__sys.futex_wait(low_half(other), (uint32_t)seen, SLEEP_NS);
        KVSHM__STORE(&other->awaited, 0);
    }
}

static void delay(struct player *player)
{
    for (uint64_t n = ts_random(&player->random, DELAY_MAX); n > 0; n--)
        __asm__ volatile("");
}

static void batch(struct player *player)
{
    const struct litmus *litmus = player->litmus;

    for (uint32_t i = 0; i < CELLS; i++) {
        struct litmus_cell *cell = &player->shared->cells[i];

        meet(player);
        delay(player);
        litmus->side[player->side](cell);
        if (litmus->reset[0] == NULL)
            continue;
        meet(player);
        litmus->reset[player->side](cell);
    }
}

static bool all_met(const struct litmus_counts *counts, unsigned awaited)
{
    for (unsigned outcome = 0; outcome < LITMUS_OUTCOMES; outcome++)
        if (awaited >> outcome & 1 && counts->of[outcome] == 0)
            return false;
    return true;
}

/* The left one counts, while the right one waits. */
static bool count(struct player *player)
{
    struct shared *shared = player->shared;

    meet(player);
    if (player->side == 0) {
        for (uint32_t i = 0; i < CELLS; i++)
            shared->counts.of[player->litmus->outcome(&shared->cells[i])]++;
        memset(shared->cells, 0, sizeof(shared->cells));
        shared->counts.rounds += CELLS;
        shared->goes_on =
            shared->counts.rounds < player->least ||
            (shared->counts.rounds < player->most && !all_met(&shared->counts, player->awaited));
    }
    meet(player);
    return shared->goes_on;
}

static int play(void *arg)
{
    struct player *player = arg;
    const struct litmus *litmus = player->litmus;

    litmus_pin(player->side);
    if (litmus->begin[player->side])
        litmus->begin[player->side]();
    do
        batch(player);
    while (count(player));
    if (litmus->end[player->side])
        litmus->end[player->side]();
    return 0;
}

/* Both, in whichever order they end; if one fails the other would wait for it for ever. */
static void wait_for_both(pid_t pids[2])
{
    for (unsigned ended = 0; ended < 2; ended++) {
        int status = 0;
        pid_t pid = waitpid(-1, &status, 0);
        unsigned side = pid == pids[1];

        ck_assert_int_eq(pid, pids[side]);
        pids[side] = 0;
        if (status == 0)
            continue;
        if (pids[!side])
            ts_kill(pids[!side]);
        ck_abort_msg("a side has ended with %#x", status);
    }
}

struct litmus_counts litmus_run(const struct litmus *litmus, uint64_t least, uint64_t most,
                                unsigned awaited)
{
    struct shared *shared = ts_shared(sizeof(*shared));
    struct litmus_counts counts;
    pid_t pids[2];

    for (unsigned side = 0; side < 2; side++) {
        struct player player = {.litmus = litmus,
                                .shared = shared,
                                .side = side,
                                .random = ts_seed() + side,
                                .least = least,
                                .most = most,
                                .awaited = awaited};

        pids[side] = ts_fork(play, &player);
    }
    wait_for_both(pids);
    counts = shared->counts;
    munmap(shared, sizeof(*shared));
    printf("%s: %llu rounds: left first %llu, right first %llu, together %llu, forbidden %llu\n",
           litmus->name, (unsigned long long)counts.rounds,
           (unsigned long long)counts.of[LITMUS_LEFT_FIRST],
           (unsigned long long)counts.of[LITMUS_RIGHT_FIRST],
           (unsigned long long)counts.of[LITMUS_TOGETHER],
           (unsigned long long)counts.of[LITMUS_FORBIDDEN]);
    return counts;
}

void litmus_met(const struct litmus *litmus, const struct litmus_counts *counts, unsigned awaited)
{
    static const char *const names[LITMUS_OUTCOMES] = {"left first", "right first", "together",
                                                       "the forbidden outcome"};

    for (unsigned outcome = 0; outcome < LITMUS_OUTCOMES; outcome++)
        if (awaited >> outcome & 1 && counts->of[outcome] == 0)
            ck_abort_msg("%s: %s was not met in %llu rounds", litmus->name, names[outcome],
                         (unsigned long long)counts->rounds);
}
