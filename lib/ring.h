/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.h - transfers between memory and one file: many at once by io_uring, or one after another by pread and pwrite.
 *
 * A ring is of one thread: all calls but kvshm__ring_forget() are that thread's, from open to close. A transfer is a
 * read, a write or a sync; it carries a cookie, by which its caller knows it again when it is done. Transfers are
 * carried out in any order; a sync covers the writes whose results were taken before it was queued. What the kernel
 * moves only in part is continued, what it puts off is repeated; a result is 0 or a -errno, never a part.
 *
 * A ring does not end with its process: what is in flight at its death lands in memory or file later. For as long the
 * ring keeps the open file description of .quiet, and the locks that belong to it (I3).
 *
 * Alignment for O_DIRECT is the caller's: of memory, bytes and offset.
 */
#ifndef KVSHM_RING_H
#define KVSHM_RING_H

#include <stdbool.h>
#include <stdint.h>

/* Transfers in flight in one ring, at most. */
#define KVSHM__RING_DEPTH_MAX 4096

/* Room for the sentence that says why the engine is no better one, its 0 byte included. */
#define KVSHM__RING_REASON_BYTES 64

/* How transfers are made, a better way by a larger number. */
enum kvshm__engine {
    KVSHM__ENGINE_NONE,  /* no ring is open */
    KVSHM__ENGINE_SYNC,  /* pread and pwrite, in order, by the caller of kvshm__ring_wait() */
    KVSHM__ENGINE_RING,  /* io_uring */
    KVSHM__ENGINE_FIXED, /* io_uring, and .memory is registered with it */
};

struct kvshm__ring;

struct kvshm__ring_setup {
    int file;                /* all transfers are of this file */
    int quiet;               /* holds locks that must not fall before all transfers have landed */
    enum kvshm__engine best; /* no better engine is tried; KVSHM__ENGINE_NONE: the best there is */
    unsigned depth;          /* transfers in flight at most, 1 to KVSHM__RING_DEPTH_MAX */
    uint32_t
        align; /* a part of a transfer begins at a multiple of this from its offset on; 1 or more */
    void *
        memory; /* what transfers mostly go to and come from: writable, mapped while the ring is open */
    uint64_t bytes;  /* of it; 0: none */
    uint64_t stride; /* a transfer stays between two multiples of this in .memory; 1 or more */
    int *
        descriptor; /* while the ring is open its own descriptor stands here, else -1 (I4); not NULL */
};

/*
 * Open a ring of the best engine that the system grants; the sentence of kvshm__ring_reason() tells why there is no
 * better one. Both descriptors stay the caller's, and have to be open until the ring is closed. 0, or with a message
 * -EINVAL for a setup out of its ranges, or -ENOMEM.
 */
int kvshm__ring_open(const struct kvshm__ring_setup *setup, struct kvshm__ring **out);

enum kvshm__engine kvshm__ring_engine(const struct kvshm__ring *ring);

/* Why the engine is no better one; "" if it is the best. Good until the ring is closed. */
const char *kvshm__ring_reason(const struct kvshm__ring *ring);

/* How an engine is called before people. */
const char *kvshm__ring_engine_name(enum kvshm__engine engine);

/*
 * Queue a transfer of bytes (1 or more) between memory, inside .memory or not, and the file from offset on. Memory is
 * the ring's until the result was taken. A read that meets the end of the file ends with -ENODATA. 0, or -EBUSY: as
 * many as .depth are in flight.
 */
int kvshm__ring_read(struct kvshm__ring *ring, void *memory, uint32_t bytes, uint64_t offset,
                     uint64_t cookie);
int kvshm__ring_write(struct kvshm__ring *ring, const void *memory, uint32_t bytes, uint64_t offset,
                      uint64_t cookie);

/* Queue an fdatasync of the file, in the same way. */
int kvshm__ring_sync(struct kvshm__ring *ring, uint64_t cookie);

/* Transfers that were queued and whose result was not taken yet. */
unsigned kvshm__ring_in_flight(const struct kvshm__ring *ring);

/*
 * Hand what is queued to the kernel, without waiting; KVSHM__ENGINE_SYNC leaves it to kvshm__ring_wait(). 0, or the
 * -errno of a kernel that takes nothing more, with a message; then all stays queued.
 */
int kvshm__ring_submit(struct kvshm__ring *ring);

struct kvshm__ring_done {
    uint64_t cookie;
    int result; /* 0: all bytes have moved; else -errno */
};

/*
 * Hand what is queued to the kernel, and take results into done, which has room for max (1 or more). Waits until want
 * results are there (1 to max and all in flight are the limits of want) or timeout_ns is over (0: does not wait; less:
 * no bound). One system call at most in each round of waiting, none if want results are there and nothing is queued.
 * How many were taken, 0 too; or, if none, the -errno of a kernel that refuses, with a message: then what is in flight
 * stays so. KVSHM__ENGINE_SYNC carries out want transfers, however long they take.
 */
int kvshm__ring_wait(struct kvshm__ring *ring, unsigned want, struct kvshm__ring_done *done,
                     unsigned max, int64_t timeout_ns);

/*
 * Wait for all in flight, without a bound, and give the ring back. How many results were lost with it, which nobody
 * had taken; or a -errno if the kernel would not wait: then transfers may still land, and .quiet is kept until then.
 */
int kvshm__ring_close(struct kvshm__ring *ring);

/* In a forked child: give back what the child has of its parent's ring, which goes on as if nothing was. */
void kvshm__ring_forget(struct kvshm__ring *ring);

/*
 * The calls of liburing that may fail, each as there; a test replaces members. They answer 0 or more, or -errno.
 */
struct io_uring;
struct io_uring_params;
struct io_uring_probe;
struct io_uring_cqe;
struct iovec;
struct __kernel_timespec;

/* CALL(name, (parameters), (arguments)): io_uring_<name>; enter is io_uring_submit_and_wait_timeout without signals. */
#define KVSHM__URING_CALLS(CALL)                                                               \
    CALL(queue_init_params,                                                                    \
         (unsigned entries, struct io_uring *uring, struct io_uring_params *params),           \
         (entries, uring, params))                                                             \
    CALL(ring_dontfork, (struct io_uring * uring), (uring))                                    \
    CALL(register_probe, (struct io_uring * uring, struct io_uring_probe * probe, unsigned n), \
         (uring, probe, n))                                                                    \
    CALL(register_files, (struct io_uring * uring, const int *files, unsigned n),              \
         (uring, files, n))                                                                    \
    CALL(register_buffers, (struct io_uring * uring, const struct iovec *buffers, unsigned n), \
         (uring, buffers, n))                                                                  \
    CALL(unregister_files, (struct io_uring * uring), (uring))                                 \
    CALL(unregister_buffers, (struct io_uring * uring), (uring))                               \
    CALL(submit, (struct io_uring * uring), (uring))                                           \
    CALL(enter,                                                                                \
         (struct io_uring * uring, struct io_uring_cqe * *first, unsigned want,                \
          struct __kernel_timespec *timeout),                                                  \
         (uring, first, want, timeout))

struct kvshm__uring {
#define KVSHM__URING_MEMBER(name, parameters, arguments) int(*name) parameters;
    KVSHM__URING_CALLS(KVSHM__URING_MEMBER)
#undef KVSHM__URING_MEMBER
};

/* NULL in a library that was built without liburing. */
extern struct kvshm__uring *const kvshm__uring;

#endif /* KVSHM_RING_H */
