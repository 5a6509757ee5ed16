/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sys.c - the real system calls behind kvshm__sys.
 *
 * Each function is one call and turns the result of libc into 0, a count, or -errno. None keeps state, loops, or looks
 * at more than its arguments; what is to be done about an error is the caller's business.
 */
#include "sys.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/futex.h>
#include <linux/mempolicy.h>
#include <linux/stat.h> /* statx, which not every C library has */
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)

/* What libc answered, as the library wants it; errno is put back. */
static int outcome(long answer, int before)
{
    int code = answer < 0 ? -errno : (int)answer;

    errno = before;
    return code;
}
#define OUTCOME(call)                    \
    do {                                 \
        int before_ = errno;             \
        return outcome((call), before_); \
    } while (0)

static size_t at_most_int(size_t size)
{
    return size < INT_MAX ? size : INT_MAX;
}

static struct timespec time_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

static int real_open(const char *path, int flags, unsigned mode)
{
    OUTCOME(open(path, flags | O_CLOEXEC, mode));
}

static int real_openat(int dir, const char *name, int flags)
{
    OUTCOME(openat(dir, name, flags | O_CLOEXEC));
}

static int real_close(int fd)
{
    OUTCOME(close(fd));
}

static int real_fstat(int fd, struct stat *out)
{
    OUTCOME(fstat(fd, out));
}

static int real_fstatat(int dir, const char *name, struct stat *out, int flags)
{
    OUTCOME(fstatat(dir, name, out, flags));
}

static int real_fstatvfs(int fd, struct statvfs *out)
{
    OUTCOME(fstatvfs(fd, out));
}

static int real_may_write(int dir)
{
    OUTCOME(faccessat(dir, ".", W_OK | X_OK, AT_EACCESS));
}

static int real_truncate(int fd, uint64_t size)
{
    OUTCOME(ftruncate(fd, (off_t)size));
}

static int real_space(int fd, uint64_t offset, uint64_t length)
{
    OUTCOME(fallocate(fd, 0, (off_t)offset, (off_t)length));
}

static int real_punch(int fd, uint64_t offset, uint64_t length)
{
    OUTCOME(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)length));
}

static int real_fchmod(int fd, unsigned mode)
{
    OUTCOME(fchmod(fd, (mode_t)mode));
}

static int real_fchown(int fd, uint32_t uid, uint32_t gid)
{
    OUTCOME(fchown(fd, uid, gid));
}

static int real_pread(int fd, void *to, size_t size, uint64_t offset)
{
    OUTCOME(pread(fd, to, at_most_int(size), (off_t)offset));
}

static int real_pwrite(int fd, const void *from, size_t size, uint64_t offset)
{
    OUTCOME(pwrite(fd, from, at_most_int(size), (off_t)offset));
}

static int real_event_make(void)
{
    OUTCOME(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

static int real_event_signal(int fd)
{
    OUTCOME(eventfd_write(fd, 1));
}

static int real_event_clear(int fd)
{
    eventfd_t value;

    OUTCOME(eventfd_read(fd, &value));
}

static int real_sync(int fd)
{
    OUTCOME(fsync(fd));
}

static int real_sync_data(int fd)
{
    OUTCOME(fdatasync(fd));
}

static int real_direct_align(int fd, uint32_t *memory, uint32_t *offset)
{
    struct statx status;
    int before = errno;
    int code = outcome(syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status), before);

    *memory = code == 0 && status.stx_mask & STATX_DIOALIGN ? status.stx_dio_mem_align : 0;
    *offset = code == 0 && status.stx_mask & STATX_DIOALIGN ? status.stx_dio_offset_align : 0;
    return code;
}

static int real_device_bytes(int fd, uint64_t *out)
{
    OUTCOME(ioctl(fd, BLKGETSIZE64, out));
}

static int real_linkat(const char *path, int dir, const char *name)
{
    OUTCOME(linkat(AT_FDCWD, path, dir, name, AT_SYMLINK_FOLLOW));
}

static int real_unlinkat(int dir, const char *name)
{
    OUTCOME(unlinkat(dir, name, 0));
}

static int real_dir_read(int dir, void *to, size_t size)
{
    OUTCOME(getdents64(dir, to, at_most_int(size)));
}

static int real_flock(int fd, int operation)
{
    OUTCOME(flock(fd, operation));
}

static struct flock range(int kind, uint64_t offset, uint64_t length)
{
    struct flock lock;

    memset(&lock, 0, sizeof(lock)); /* l_pid must be 0 for an OFD lock */
    lock.l_type = (short)kind;
    lock.l_whence = SEEK_SET;
    lock.l_start = (off_t)offset;
    lock.l_len = (off_t)length;
    return lock;
}

static int real_lock_set(int fd, int kind, uint64_t offset, uint64_t length)
{
    struct flock lock = range(kind, offset, length);

    OUTCOME(fcntl(fd, F_OFD_SETLK, &lock));
}

static int real_lock_ask(int fd, int kind, uint64_t offset, uint64_t length)
{
    struct flock lock = range(kind, offset, length);
    int before = errno;
    int code = outcome(fcntl(fd, F_OFD_GETLK, &lock), before);

    return code < 0 ? code : lock.l_type != F_UNLCK;
}

static int real_map(uint64_t size, int protection, int flags, int fd, void **out)
{
    int before = errno;
    void *address = mmap(NULL, size, protection, flags, fd, 0);

    if (address == MAP_FAILED)
        return outcome(-1, before);
    *out = address;
    return 0;
}

static int real_map_at(void *address, uint64_t size, int protection, int flags, int fd)
{
    OUTCOME(mmap(address, size, protection, flags | MAP_FIXED, fd, 0) == MAP_FAILED ? -1 : 0);
}

static int real_unmap(void *address, uint64_t size)
{
    OUTCOME(munmap(address, size));
}

static int real_advise(void *address, uint64_t size, int advice)
{
    OUTCOME(madvise(address, size, advice));
}

static int real_futex_wait(void *word, uint32_t expected, uint64_t timeout_ns)
{
    struct timespec timeout = time_of(timeout_ns);

    OUTCOME(syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, NULL, 0));
}

static int real_futex_wake(void *word, int n)
{
    OUTCOME(syscall(SYS_futex, word, FUTEX_WAKE, n, NULL, NULL, 0));
}

static int real_random(void *to, size_t size)
{
    OUTCOME(getrandom(to, size, 0));
}

static int real_file_limit(uint64_t *out)
{
    struct rlimit limit;
    int before = errno;
    int code = outcome(getrlimit(RLIMIT_FSIZE, &limit), before);

    if (code == 0)
        *out = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
    return code;
}

static int real_sleep_ns(uint64_t ns)
{
    struct timespec time = time_of(ns);

    OUTCOME(nanosleep(&time, NULL));
}

static int real_fstatfs(int fd, struct statfs *out)
{
    OUTCOME(fstatfs(fd, out));
}

/* All arguments are 0, so their order, which differs between architectures, does not matter. */
static int real_child(void)
{
    OUTCOME(syscall(SYS_clone, 0, 0, 0, 0, 0));
}

static int real_child_wait(int pid, bool now, int *status)
{
    int before = errno;
    int code = outcome(waitpid(pid, status, __WALL | (now ? WNOHANG : 0)), before);

    return code > 0 ? 1 : code;
}

static int real_child_kill(int pid)
{
    OUTCOME(kill(pid, SIGKILL));
}

static int real_signals(const sigset_t *mask, sigset_t *before)
{
    return -pthread_sigmask(SIG_SETMASK, mask, before);
}

static int real_keep_only(int fd)
{
    int before = errno;
    int code = 0;

    if (fd > 0)
        code = outcome(syscall(SYS_close_range, 0u, (unsigned)fd - 1, 0u), before);
    if (code == 0)
        code = outcome(syscall(SYS_close_range, (unsigned)fd + 1, ~0u, 0u), before);
    return code;
}

static int real_die_with(uint32_t parent)
{
    int before = errno;
    int code = outcome(prctl(PR_SET_PDEATHSIG, SIGKILL), before);

    uint32_t now = (uint32_t)getppid();

    /* 0: the parent is in another PID namespace. */
    return code == 0 && now != parent && now != 0 ? -ESRCH : code;
}

static int real_cpus(void)
{
    cpu_set_t set;
    int before = errno;
    int code = outcome(sched_getaffinity(0, sizeof(set), &set), before);

    return code < 0 ? code : CPU_COUNT(&set);
}

static int real_policy_set(void *address, uint64_t size, int mode, const uint64_t *nodes,
                           unsigned words)
{
    OUTCOME(syscall(SYS_mbind, address, size, mode, nodes, words * 64ul + 1, 0u));
}

static int real_policy_allowed(uint64_t *nodes, unsigned words)
{
    OUTCOME(syscall(SYS_get_mempolicy, NULL, nodes, words * 64ul, NULL, (unsigned long)MPOL_F_MEMS_ALLOWED));
}

static int real_pages_where(void **pages, unsigned n, int *nodes)
{
    OUTCOME(syscall(SYS_move_pages, 0, (unsigned long)n, pages, NULL, nodes, 0));
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now = {0};

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static uint64_t real_monotonic_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static uint64_t real_realtime_ns(void)
{
    return clock_ns(CLOCK_REALTIME);
}

static uint32_t real_pid(void)
{
    return (uint32_t)getpid();
}

static uint32_t real_uid(void)
{
    return (uint32_t)geteuid();
}

/* As the child was made, past the C library: what a sanitizer does at _exit() waits for locks that another thread held. */
static void real_exit(int status)
{
    syscall(SYS_exit_group, status);
}

#define REAL_MEMBER(name, parameters, arguments) .name = real_##name,
#define REAL_ALL                                                           \
    {                                                                      \
        KVSHM__SYS_CALLS(REAL_MEMBER).monotonic_ns = real_monotonic_ns,    \
        .realtime_ns = real_realtime_ns, .pid = real_pid, .uid = real_uid, \
        .exit = real_exit,                                                 \
    }

const struct kvshm__sys kvshm__sys_real = REAL_ALL;
struct kvshm__sys kvshm__sys = REAL_ALL;
