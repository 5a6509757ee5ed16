/* SPDX-License-Identifier: Apache-2.0 */
#include "step.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

/* More than any call takes, in any build. */
#define STEPS_MAX UINT64_C(100000000)

#if defined(__x86_64__)
#define BREAK() __asm__ volatile("int3" ::: "memory")
#else
#define BREAK() raise(SIGTRAP)
#endif

/* Of the child that is this process. */
static volatile uint64_t *own_marks;

/* ---- The child ----------------------------------------------------------------------------------------- */

void step_begin(void)
{
    *own_marks += 1;
    BREAK();
}

void step_end(void)
{
    *own_marks += 1;
}

static int traced(int (*fn)(void *arg), void *arg)
{
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
        perror("PTRACE_TRACEME");
        return 1;
    }
    return fn(arg);
}

void step_fork(struct step *child, int (*fn)(void *arg), void *arg)
{
    child->marks = ts_shared(sizeof(*child->marks));
    child->instructions = 0;
    child->running = true;
    fflush(NULL);
    child->pid = fork();
    ck_assert_int_ge(child->pid, 0);
    if (child->pid == 0) {
        own_marks = child->marks;
        _exit(traced(fn, arg));
    }
}

/* ---- Its tracer ---------------------------------------------------------------------------------------- */

static void forget(struct step *child)
{
    munmap((void *)child->marks, sizeof(*child->marks));
    child->marks = NULL;
    child->pid = 0;
}

static int wait_for_stop(struct step *child)
{
    int status;

    while (waitpid(child->pid, &status, 0) != child->pid) {
        if (errno != EINTR)
            ck_abort_msg("waitpid: %s", strerror(errno));
    }
    return status;
}

/* Wait for it to stop at a trap; false: it ended with status 0. That children of its own ended is nothing to it. */
static bool wait_for_trap(struct step *child)
{
    int status = wait_for_stop(child);

    while (WIFSTOPPED(status) && WSTOPSIG(status) == SIGCHLD) {
        if (ptrace(PTRACE_CONT, child->pid, NULL, NULL) != 0)
            ck_abort_msg("PTRACE_CONT: %s", strerror(errno));
        status = wait_for_stop(child);
    }
    if (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP)
        return true;
    if (WIFSTOPPED(status)) {
        kill(child->pid, SIGKILL);
        ck_abort_msg("the child got signal %d, after %llu steps", WSTOPSIG(status),
                     (unsigned long long)child->instructions);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        ck_abort_msg("the child ended: %#x, after %llu steps", (unsigned)status,
                     (unsigned long long)child->instructions);
    forget(child);
    return false;
}

bool step_to_mark(struct step *child)
{
    if (!child->running && ptrace(PTRACE_CONT, child->pid, NULL, NULL) != 0)
        ck_abort_msg("PTRACE_CONT: %s", strerror(errno));
    if (!wait_for_trap(child))
        return false;
    if (*child->marks % 2 != 1)
        ck_abort_msg("a trap that is no mark");
    if (child->running &&
        ptrace(PTRACE_SETOPTIONS, child->pid, NULL, (void *)PTRACE_O_EXITKILL) != 0)
        ck_abort_msg("PTRACE_O_EXITKILL: %s", strerror(errno));
    child->running = false;
    child->instructions = 0;
    return true;
}

bool step_one(struct step *child)
{
    if (ptrace(PTRACE_SINGLESTEP, child->pid, NULL, NULL) != 0)
        ck_abort_msg("PTRACE_SINGLESTEP: %s", strerror(errno));
    child->instructions++;
    if (!wait_for_trap(child))
        ck_abort_msg("the child ended between its marks");
    if (child->instructions >= STEPS_MAX)
        ck_abort_msg("the child does not come to its mark");
    return *child->marks % 2 == 1;
}

bool step_at_system_call(const struct step *child)
{
#if defined(__x86_64__)
    static const uint8_t entries[][2] = {{0x0f, 0x05}, {0x0f, 0x34}, {0xcd, 0x80}};
    uintptr_t at = (uintptr_t)ptrace(PTRACE_PEEKUSER, child->pid,
                                     (void *)offsetof(struct user_regs_struct, rip), NULL);

    /* syscall, sysenter, int 0x80; what it is about to do stands at the same address here. */
    for (unsigned i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
        if (memcmp((const void *)at, entries[i], 2) == 0)
            return true;
    }
#else
    (void)child;
#endif
    return false;
}

void step_finish(struct step *child)
{
    if (ptrace(PTRACE_CONT, child->pid, NULL, NULL) != 0)
        ck_abort_msg("PTRACE_CONT: %s", strerror(errno));
    if (wait_for_trap(child))
        ck_abort_msg("the child has another mark");
}

void step_kill(struct step *child)
{
    int status;

    ck_assert_int_eq(kill(child->pid, SIGKILL), 0);
    while (waitpid(child->pid, &status, 0) == child->pid && WIFSTOPPED(status))
        ;
    ck_assert(WIFSIGNALED(status));
    forget(child);
}

/* ---- Can it be done here? ------------------------------------------------------------------------------ */

static int refused(void *arg)
{
    (void)arg;
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        return 1;
    raise(SIGSTOP);
    return 0;
}

const char *step_refused(void)
{
#if !defined(__x86_64__)
    return "steps are told from system calls on x86-64 only";
#else
    const char *sanitizers = getenv("KVSHM_SANITIZERS");
    const char *why = NULL;
    pid_t pid;
    int status;

    if (sanitizers != NULL && strstr(sanitizers, "thread") != NULL)
        return "ThreadSanitizer runs threads of its own in the child";
    pid = ts_fork(refused, NULL);
    while (waitpid(pid, &status, 0) < 0)
        ck_assert_int_eq(errno, EINTR);
    if (!WIFSTOPPED(status))
        return "the system refuses ptrace";
    if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0)
        why = "the system refuses to step by ptrace";
    ts_kill(pid);
    return why;
#endif
}

uint64_t step_amount(uint64_t quick, uint64_t normal, uint64_t much)
{
    const char *sanitizers = getenv("KVSHM_SANITIZERS");
    bool slow = sanitizers != NULL && sanitizers[0] != '\0' && getenv("KVSHM_TEST_LONG") == NULL;

    return slow ? quick : ts_amount(quick, normal, much);
}

void step_environment(char **argv)
{
    if (getenv("KVSHM_TEST_STEPPED") != NULL)
        return;
    setenv("KVSHM_TEST_STEPPED", "1", 1);
    setenv("LD_BIND_NOW", "1", 1);
    setenv(
        "GLIBC_TUNABLES",
        "glibc.cpu.x86_rep_stosb_threshold=100000000:glibc.cpu.x86_rep_movsb_threshold=100000000",
        1);
    execv("/proc/self/exe", argv);
    perror("/proc/self/exe"); /* slower, and right */
}
