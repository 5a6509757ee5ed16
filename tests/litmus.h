/* SPDX-License-Identifier: Apache-2.0 */
/*
 * litmus.h - two processes, each on a processor of its own, that take the two sides of a protocol again and again, at the
 * same moment as nearly as can be; what they saw is counted, round by round.
 *
 * A round takes a fresh cell. Both processes meet (each stores the round's number and waits for the other's), let a
 * random, short while go by, and do their side. Nothing between the meeting and the end of a side orders its accesses
 * but what the side itself does. Cells are looked at, and made zero again, after each CELLS rounds.
 */
#ifndef KVSHM_TESTS_LITMUS_H
#define KVSHM_TESTS_LITMUS_H

#include "atomics.h"

#define LITMUS_WORDS 6

/* All zero at the beginning of a round; each word on a line of its own, and each side's notes too. */
struct litmus_cell {
    struct {
        _Alignas(64) kvshm_a64 word;
    } at[LITMUS_WORDS];
    struct {
        _Alignas(64) uint64_t note[8];
    } saw[2];
};

/* What a round came to. */
enum litmus_outcome { LITMUS_LEFT_FIRST, LITMUS_RIGHT_FIRST, LITMUS_TOGETHER, LITMUS_FORBIDDEN, LITMUS_OUTCOMES };

struct litmus {
    const char *name;
    void (*side[2])(struct litmus_cell *cell); /* left, right */
    enum litmus_outcome (*outcome)(const struct litmus_cell *cell);
    void (*reset[2])(struct litmus_cell *cell); /* after both have done their side; NULL: nothing but zero */
    void (*begin[2])(void);                     /* once, in the process of the side; NULL: nothing */
    void (*end[2])(void);
};

struct litmus_counts {
    uint64_t rounds;
    uint64_t of[LITMUS_OUTCOMES];
};

/* Are there two processors for us? */
bool litmus_possible(void);

/*
 * At least so many rounds, in whole batches, and then until each of the outcomes awaited was met (1 << outcome, added
 * up), since what meets is the scheduler's; but no more than most. Counts are printed. A side that ends by itself fails
 * the test.
 */
struct litmus_counts litmus_run(const struct litmus *litmus, uint64_t least, uint64_t most,
                                unsigned awaited);

/* Fail the test unless each of these outcomes was met. */
void litmus_met(const struct litmus *litmus, const struct litmus_counts *counts, unsigned awaited);

/* Run the calling process on the first or second processor that it may use; on any of them again. */
void litmus_pin(unsigned side);
void litmus_unpin(void);

#endif /* KVSHM_TESTS_LITMUS_H */
