/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step.h - a child stepped one instruction at a time, between two marks that it sets itself.
 *
 * The child is a fork of the test without exec, so code stands at the same addresses in both. Nobody else traces it, and
 * it has one thread. Between two steps it is stopped, and what it has written to shared memory is there to be read.
 */
#ifndef KVSHM_TESTS_STEP_H
#define KVSHM_TESTS_STEP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct step {
    pid_t pid;
    bool running;             /* from its start to its first mark */
    uint64_t instructions;    /* stepped since step_to_mark() */
    volatile uint64_t *marks; /* shared: odd while the child is between two marks */
};

/* NULL, or why children cannot be stepped here. */
const char *step_refused(void);

/*
 * First in main(): without it a memset is one step a byte, and the first call of each function of a library some
 * thousand. Executes the program again with what the C library is to be told in the environment, once.
 */
void step_environment(char **argv);

/* As ts_amount(); quick in a build whose sanitizers make ten instructions of one. */
uint64_t step_amount(uint64_t quick, uint64_t normal, uint64_t much);

/* Run fn(arg) in a child that is traced from its first mark on. It is killed when the test ends. */
void step_fork(struct step *child, int (*fn)(void *arg), void *arg);

/* In the child. Without a tracer they kill it. */
void step_begin(void);
void step_end(void);

/* Let it run to its next step_begin(); false: it ended, with status 0. Any other end fails the test. */
bool step_to_mark(struct step *child);

/* One instruction, that of a system call and of a repetition too. false: it is behind step_end(). */
bool step_one(struct step *child);

/* Would the next step enter the kernel? */
bool step_at_system_call(const struct step *child);

/* Let it run to its end, which must be status 0. */
void step_finish(struct step *child);

/* Kill it, wherever it is, and wait for it. */
void step_kill(struct step *child);

#endif /* KVSHM_TESTS_STEP_H */
