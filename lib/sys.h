/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sys.h - every system call of the library but liburing's, in one struct of function pointers.
 *
 * Each answers 0 or a positive result, or -errno; errno itself is kept as it was. A test replaces members, so that
 * the n-th call fails or the clock is one of its own. Nothing in lib/ but sys.c makes a system call, and clocks are
 * read through here as well.
 *
 * Some are points of thread cancellation: a public call that makes any of them first calls kvshm__cancel_off().
 */
#ifndef KVSHM_SYS_H
#define KVSHM_SYS_H

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

/*
 * CALL(name, (parameters), (arguments)): the calls that can fail, in a table, so that a test can wrap them all. How each
 * may fail is in tests/faults.def, which has a line for each.
 *
 * open         also with O_TMPFILE, then path is the directory
 * event_make   eventfd that does not block; event_signal: add 1; event_clear: back to 0
 * sync         fsync; sync_data: fdatasync
 * direct_align statx: multiples that O_DIRECT wants of addresses, and of offsets and lengths; 0, 0: it does not say
 * device_bytes size of a block device
 * dir_read     getdents64: bytes of struct dirent64 read, 0 at the end
 * space        fallocate from offset on; -EINTR is the caller's to repeat
 * punch        fallocate with FALLOC_FL_PUNCH_HOLE: the bytes take no space any more
 * lock_set     OFD lock of length bytes at offset (0: to the end): F_RDLCK, F_WRLCK or F_UNLCK; -EAGAIN if held
 * lock_ask     would a lock of that kind be granted to another description? 1: no, someone holds one; 0: yes
 * may_write    may the effective user make files in the directory? 0; -EACCES, -EROFS
 * map          into *out, at an address of the kernel's choice
 * map_at       in place of what is mapped there, all of which is the caller's
 * futex_wait   while *word is expected, for timeout_ns at most: 0, -EAGAIN, -EINTR, -ETIMEDOUT; across processes
 * futex_wake   how many of at most n were woken
 * random       all of size bytes, at most 256
 * file_limit   RLIMIT_FSIZE: a file longer than that is answered by a deadly signal
 * child        a process like fork's, but no handler of the host runs in either, and no signal tells of its end: 0 in
 *              the child, its pid in the parent. It may use this struct, and no libc that allocates or locks
 * child_wait   for that child and no other, whatever is done with SIGCHLD: 1 with the wait status, 0: not ended (now)
 * signals      set the calling thread's mask; before may be NULL
 * keep_only    in a child: close all descriptors but fd
 * die_with     in a child: SIGKILL when the thread of process parent that made it ends; -ESRCH: it has ended
 * cpus         how many processors the calling thread may run on
 * policy_set   mbind; policy_allowed: the nodes that this process may have memory of, words of 64 bits
 * pages_where  move_pages that moves nothing: the node of each of n pages, or -errno
 */
#define KVSHM__SYS_CALLS(CALL)                                                            \
    CALL(open, (const char *path, int flags, unsigned mode), (path, flags, mode))         \
    CALL(openat, (int dir, const char *name, int flags), (dir, name, flags))              \
    CALL(close, (int fd), (fd))                                                           \
    CALL(fstat, (int fd, struct stat *out), (fd, out))                                    \
    CALL(fstatat, (int dir, const char *name, struct stat *out, int flags),               \
         (dir, name, out, flags))                                                         \
    CALL(fstatvfs, (int fd, struct statvfs *out), (fd, out))                              \
    CALL(may_write, (int dir), (dir))                                                     \
    CALL(truncate, (int fd, uint64_t size), (fd, size))                                   \
    CALL(space, (int fd, uint64_t offset, uint64_t length), (fd, offset, length))         \
    CALL(punch, (int fd, uint64_t offset, uint64_t length), (fd, offset, length))         \
    CALL(fchmod, (int fd, unsigned mode), (fd, mode))                                     \
    CALL(fchown, (int fd, uint32_t uid, uint32_t gid), (fd, uid, gid))                    \
    CALL(pread, (int fd, void *to, size_t size, uint64_t offset), (fd, to, size, offset)) \
    CALL(pwrite, (int fd, const void *from, size_t size, uint64_t offset),                \
         (fd, from, size, offset))                                                        \
    CALL(event_make, (void), ())                                                          \
    CALL(event_signal, (int fd), (fd))                                                    \
    CALL(event_clear, (int fd), (fd))                                                     \
    CALL(sync, (int fd), (fd))                                                            \
    CALL(sync_data, (int fd), (fd))                                                       \
    CALL(direct_align, (int fd, uint32_t *memory, uint32_t *offset), (fd, memory, offset)) \
    CALL(device_bytes, (int fd, uint64_t *out), (fd, out))                                \
    CALL(linkat, (const char *path, int dir, const char *name), (path, dir, name))        \
    CALL(unlinkat, (int dir, const char *name), (dir, name))                              \
    CALL(dir_read, (int dir, void *to, size_t size), (dir, to, size))                     \
    CALL(flock, (int fd, int operation), (fd, operation))                                 \
    CALL(lock_set, (int fd, int kind, uint64_t offset, uint64_t length),                  \
         (fd, kind, offset, length))                                                      \
    CALL(lock_ask, (int fd, int kind, uint64_t offset, uint64_t length),                  \
         (fd, kind, offset, length))                                                      \
    CALL(map, (uint64_t size, int protection, int flags, int fd, void **out),             \
         (size, protection, flags, fd, out))                                              \
    CALL(map_at, (void *address, uint64_t size, int protection, int flags, int fd),       \
         (address, size, protection, flags, fd))                                          \
    CALL(unmap, (void *address, uint64_t size), (address, size))                          \
    CALL(advise, (void *address, uint64_t size, int advice), (address, size, advice))     \
    CALL(futex_wait, (void *word, uint32_t expected, uint64_t timeout_ns),                \
         (word, expected, timeout_ns))                                                    \
    CALL(futex_wake, (void *word, int n), (word, n))                                      \
    CALL(random, (void *to, size_t size), (to, size))                                     \
    CALL(file_limit, (uint64_t * out), (out))                                             \
    CALL(sleep_ns, (uint64_t ns), (ns))                                                   \
    CALL(fstatfs, (int fd, struct statfs *out), (fd, out))                                \
    CALL(child, (void), ())                                                               \
    CALL(child_wait, (int pid, bool now, int *status), (pid, now, status))                \
    CALL(child_kill, (int pid), (pid))                                                    \
    CALL(signals, (const sigset_t *mask, sigset_t *before), (mask, before))               \
    CALL(keep_only, (int fd), (fd))                                                       \
    CALL(die_with, (uint32_t parent), (parent))                                           \
    CALL(cpus, (void), ())                                                                \
    CALL(policy_set,                                                                      \
         (void *address, uint64_t size, int mode, const uint64_t *nodes, unsigned words), \
         (address, size, mode, nodes, words))                                             \
    CALL(policy_allowed, (uint64_t * nodes, unsigned words), (nodes, words))              \
    CALL(pages_where, (void **pages, unsigned n, int *nodes), (pages, n, nodes))

struct kvshm__sys {
#define KVSHM__SYS_MEMBER(name, parameters, arguments) int(*name) parameters;
    KVSHM__SYS_CALLS(KVSHM__SYS_MEMBER)
#undef KVSHM__SYS_MEMBER
    /* These cannot fail. */
    uint64_t (*monotonic_ns)(
        void); /* CLOCK_MONOTONIC: of this process only, time namespaces differ */
    uint64_t (*realtime_ns)(void); /* CLOCK_REALTIME: shown to people, decides nothing */
    uint32_t (*pid)(void);
    uint32_t (*uid)(void); /* effective */
    void (*exit)(int status); /* of a child, at once */
};

extern struct kvshm__sys kvshm__sys;

/* The real ones, for a test that wraps them or puts them back. */
extern const struct kvshm__sys kvshm__sys_real;

/* Switch cancellation of this thread off; the answer is for kvshm__cancel_restore(). */
static inline int kvshm__cancel_off(void)
{
    int before;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void kvshm__cancel_restore(int before)
{
    pthread_setcancelstate(before, NULL);
}

#endif /* KVSHM_SYS_H */
