/* SPDX-License-Identifier: Apache-2.0 */
/*
 * support.h - what several tests need: a private folder for arenas, processes, page content, failing system calls.
 *
 * Each function ends the test case (ck_abort) when the system refuses what it needs.
 */
#ifndef KVSHM_TESTS_SUPPORT_H
#define KVSHM_TESTS_SUPPORT_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "kvshm.h"

/* ---- Folder ------------------------------------------------------------------------------------------ */

/*
 * A fresh private folder of this process, in KVSHM_DIR from now on; it is removed with its files when the process
 * that made it ends or ts_dir_remove() is called. For a checked fixture. Answers its path, which stays good.
 */
const char *ts_dir(void);
void ts_dir_remove(void);
/* The same as fixtures: void (*)(void). */
void ts_setup(void);
void ts_teardown(void);

/* How many names the folder holds. */
unsigned ts_dir_names(void);

/* Run a suite as the environment says; what main() answers. */
int ts_run(Suite *suite);

/* ---- Arenas ------------------------------------------------------------------------------------------ */

/* Defaults with opaque pages of page_bytes and page_tokens tokens, and that many frames. */
struct kvshm_config ts_config(uint64_t page_bytes, uint32_t page_tokens, uint64_t frames);

/* Each fails the test with kvshm_errmsg() where the call fails. */
kvshm *ts_create(const char *name, const struct kvshm_config *config);
kvshm *ts_attach(const char *name, unsigned flags);
void ts_detach(kvshm *kv);
struct kvshm_stats ts_stats(kvshm *kv);

/* Reserve, fill by ts_fill() and insert a prefix of n tokens without a head; the outcome (>= 0). */
int ts_insert(kvshm *kv, uint64_t adapter, uint64_t tenant, const uint32_t *tokens, uint32_t n);

/* Fail the test unless code is wanted; the message of the library is shown. */
#define ts_is(code, wanted) ts_is_at(__FILE__, __LINE__, (code), (wanted))
void ts_is_at(const char *file, int line, int64_t code, int64_t wanted);

/* Fail the test unless the library's message has this part. */
#define ts_says(part) ts_says_at(__FILE__, __LINE__, (part))
void ts_says_at(const char *file, int line, const char *part);

/* ---- Content ----------------------------------------------------------------------------------------- */

/*
 * The bytes of a page are a function of all tokens from the first to the last of that page, of adapter and tenant:
 * ts_fill() writes them, ts_filled() answers how many bytes of the page differ from them.
 */
void ts_fill(void *page, size_t page_bytes, uint64_t adapter, uint64_t tenant,
             const uint32_t *tokens, size_t n);
size_t ts_filled(const void *page, size_t page_bytes, uint64_t adapter, uint64_t tenant,
                 const uint32_t *tokens, size_t n);

/* ---- Processes --------------------------------------------------------------------------------------- */

/* Run fn(arg) in a child; its answer is the exit status. The child makes no Check results; it exits by _exit(). */
pid_t ts_fork(int (*fn)(void *arg), void *arg);

/* The exit status of the child, or 128 + signal. */
int ts_wait(pid_t pid);

/* Kill a child and wait for it. */
void ts_kill(pid_t pid);

/* Stop a child and wait until it has stopped; let it go on. */
void ts_stop(pid_t pid);
void ts_continue(pid_t pid);

/* In a child: say what failed on standard error, and _exit(1), unless the condition holds. */
#define ts_need(condition) ts_need_at(__FILE__, __LINE__, #condition, (condition))
void ts_need_at(const char *file, int line, const char *what, bool holds);

/* A gate between processes: made before fork; each pass of ts_gate_open() lets one ts_gate_wait() through. */
struct ts_gate {
    int fd[2];
};
void ts_gate_make(struct ts_gate *gate);
void ts_gate_open(struct ts_gate *gate);
/*
 * true: opened; false: all that could open it are gone (close the other end first with ts_gate_only_wait, which
 * changes the struct: of a gate in shared memory, give it a copy).
 */
bool ts_gate_wait(struct ts_gate *gate);
void ts_gate_only_wait(struct ts_gate *gate);
void ts_gate_close(struct ts_gate *gate);

/* Zeroed memory that children made later share. */
void *ts_shared(size_t size);

/* Open descriptors and mappings of this process, to prove that nothing leaked. */
unsigned ts_fds(void);
unsigned ts_maps(void);

/* ---- Chance and amount --------------------------------------------------------------------------------- */

/* quick, normal or long, as the run was asked for (KVSHM_TEST_QUICK, KVSHM_TEST_LONG). */
uint64_t ts_amount(uint64_t quick, uint64_t normal, uint64_t much);

/* KVSHM_TEST_SEED, or one made from the clock; it is printed once. */
uint64_t ts_seed(void);

/* A random number below limit (>= 1); state is any number, and is changed. */
uint64_t ts_random(uint64_t *state, uint64_t limit);

/* ---- Failing system calls ------------------------------------------------------------------------------ */

/*
 * From now on the n-th (from 1) system call of the library in this process that can fail answers -error, once;
 * close and unmap do their work all the same. n = 0: none fails, calls are counted.
 */
void ts_fail_nth(unsigned n, int error);

/* How many were made since ts_fail_nth(); the name of the one that failed, or NULL. */
unsigned ts_fail_calls(void);
const char *ts_fail_name(void);

/* Back to the real ones. */
void ts_fail_off(void);

#endif /* KVSHM_TESTS_SUPPORT_H */
