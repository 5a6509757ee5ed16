/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.c - transfers, their parts, and the two ways to make them.
 *
 * Owns the transfers of a ring and all that io_uring has of them. A transfer is free, waiting (in a list, in order of
 * queueing), or the kernel's. Waiting ones are handed over by submit and wait. What comes back settles its transfer:
 * it is over, or waits again with the rest of its bytes. KVSHM__ENGINE_SYNC takes the first waiting one, makes one
 * system call, and settles it in the same way.
 *
 * Invariants
 * I1  At most .depth transfers are not free, and a transfer is at most once with the kernel. The submission queue has
 *     .depth entries or more and the completion queue twice as many: neither can be full.
 * I2  A part that moved ends at a multiple of .align from the transfer's offset on, or at its end: with O_DIRECT the
 *     rest is as aligned as the whole was.
 * I3  File and .quiet are registered with the kernel's ring, and transfers name the registered file. After the death
 *     of the process the kernel gives the ring's files back when its last transfer has landed, so the locks of
 *     .quiet's description fall after that. A ring that cannot register both is not used. pread and pwrite need
 *     nothing: a process has its descriptors until its last system call has ended.
 * I4  The ring's descriptor keeps what the ring keeps. It stands in *.descriptor before a fork can happen
 *     (kvshm__fork_hold), so that a forked child can close it; the ring's memory is in no child (MADV_DONTFORK).
 * I5  Registered pieces of .memory are of at most 1 GiB, which is the kernel's limit, and end at multiples of .stride,
 *     so that each transfer inside .memory lies in one piece. Others are made without registered memory.
 *
 * No call to the kernel is repeated without a bound, but the wait of who asks for no bound: a transfer that is put off
 * (-EAGAIN, -EINTR), or moves less than .align, comes to its end after TRIES such answers in a row, with pauses between.
 */
#include "ring.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "fork.h"
#include "message.h"
#include "private.h"
#include "sys.h"

#ifdef KVSHM_LIBURING
#include <liburing.h>
#endif

#define PIECE_MAX     (UINT64_C(1) << 30)
#define NS_PER_S      INT64_C(1000000000)
#define TRIES         16
#define PAUSE_NS      UINT64_C(50000)
#define PAUSE_GROWS   7 /* times that a pause is twice the one before: 6.4 ms at most */
#define NO_TRANSFER   UINT32_MAX
#define NO_PIECE      UINT32_MAX
#define CLOSE_AT_ONCE 64

enum kind { READ, WRITE, SYNC };

struct transfer {
    uint64_t cookie;
    uint64_t offset;
    char *memory;
    uint32_t bytes;
    uint32_t moved; /* bytes of it that have moved (I2) */
    uint32_t tries; /* answers in a row after which nothing had moved */
    uint32_t next;  /* of the list it is in */
    enum kind kind;
};

struct kvshm__ring {
    enum kvshm__engine engine;
    char reason[KVSHM__RING_REASON_BYTES];
    int file;
    int *descriptor;
    char *memory;
    uint64_t bytes;
    uint64_t piece_bytes; /* I5 */
    uint32_t align;
    unsigned in_flight;
    uint32_t free;        /* list */
    uint32_t first, last; /* list of the waiting ones; last is good if there is a first */
    uint64_t pause_ns;    /* before the next part is begun */
#ifdef KVSHM_LIBURING
    struct io_uring uring;
#endif
    struct transfer transfers[];
};

/* ---- Transfers ----------------------------------------------------------------------------------------- */

static void wait_in_line(struct kvshm__ring *ring, uint32_t index)
{
    ring->transfers[index].next = NO_TRANSFER;
    if (ring->first == NO_TRANSFER)
        ring->first = index;
    else
        ring->transfers[ring->last].next = index;
    ring->last = index;
}

static int queue(struct kvshm__ring *ring, const struct transfer *wanted)
{
    uint32_t index = ring->free;

    if (index == NO_TRANSFER)
        return -EBUSY;
    ring->free = ring->transfers[index].next;
    ring->transfers[index] = *wanted;
    ring->in_flight++;
    wait_in_line(ring, index);
    return 0;
}

int kvshm__ring_read(struct kvshm__ring *ring, void *memory, uint32_t bytes, uint64_t offset,
                     uint64_t cookie)
{
    return queue(
        ring,
        &(struct transfer){
            .kind = READ, .memory = memory, .bytes = bytes, .offset = offset, .cookie = cookie});
}

int kvshm__ring_write(struct kvshm__ring *ring, const void *memory, uint32_t bytes, uint64_t offset,
                      uint64_t cookie)
{
    return queue(ring, &(struct transfer){.kind = WRITE,
                                          .memory = (void *)(uintptr_t)memory,
                                          .bytes = bytes,
                                          .offset = offset,
                                          .cookie = cookie});
}

int kvshm__ring_sync(struct kvshm__ring *ring, uint64_t cookie)
{
    return queue(ring, &(struct transfer){.kind = SYNC, .cookie = cookie});
}

/* Its result is taken. */
static void finish(struct kvshm__ring *ring, uint32_t index, int result,
                   struct kvshm__ring_done *done)
{
    struct transfer *t = &ring->transfers[index];

    *done = (struct kvshm__ring_done){.cookie = t->cookie, .result = result};
    t->next = ring->free;
    ring->free = index;
    ring->in_flight--;
}

/* Nothing has moved: over with this code (true), or to be tried again after a pause? */
static bool give_up(struct kvshm__ring *ring, struct transfer *t, int code, int *result)
{
    uint64_t pause_ns = PAUSE_NS << (t->tries < PAUSE_GROWS ? t->tries : PAUSE_GROWS);

    *result = code;
    if (++t->tries >= TRIES)
        return true;
    if (ring->pause_ns < pause_ns)
        ring->pause_ns = pause_ns;
    return false;
}

/* The kernel's answer to a transfer's next part: is the transfer over, and with what result? */
static bool settle(struct kvshm__ring *ring, struct transfer *t, int64_t answer, int *result)
{
    uint32_t rest = t->bytes - t->moved, whole;
    int at_an_end = t->kind == READ ? -ENODATA : -EIO;

    *result = 0;
    if (answer == -EAGAIN || answer == -EINTR)
        return give_up(ring, t, (int)answer, result);
    if (answer < 0 || t->kind == SYNC || answer == rest) {
        *result = answer < 0 ? (int)answer : 0;
        return true;
    }
    if (answer == 0 || answer > rest) {
        *result = answer == 0 ? at_an_end : -EIO;
        return true;
    }
    whole = (uint32_t)answer / ring->align * ring->align; /* I2 */
    if (whole == 0)
        return give_up(ring, t, at_an_end, result);
    t->moved += whole;
    t->tries = 0;
    return false;
}

static void pause_if_asked(struct kvshm__ring *ring)
{
    if (ring->pause_ns != 0)
        kvshm__sys.sleep_ns(ring->pause_ns);
    ring->pause_ns = 0;
}

/* ---- By pread and pwrite ------------------------------------------------------------------------------- */

static int64_t move_part(const struct kvshm__ring *ring, const struct transfer *t)
{
    if (t->kind == SYNC)
        return kvshm__sys.sync_data(ring->file);
    if (t->kind == READ)
        return kvshm__sys.pread(ring->file, t->memory + t->moved, t->bytes - t->moved,
                                t->offset + t->moved);
    return kvshm__sys.pwrite(ring->file, t->memory + t->moved, t->bytes - t->moved,
                             t->offset + t->moved);
}

static int wait_sync(struct kvshm__ring *ring, unsigned want, struct kvshm__ring_done *done)
{
    unsigned n = 0;

    while (n < want) {
        uint32_t index = ring->first;
        struct transfer *t = &ring->transfers[index];
        int result;

        pause_if_asked(ring);
        if (!settle(ring, t, move_part(ring, t), &result))
            continue;
        ring->first = t->next;
        finish(ring, index, result, &done[n++]);
    }
    return (int)n;
}

/* ---- By io_uring --------------------------------------------------------------------------------------- */

#ifdef KVSHM_LIBURING

/* The user data of what belongs to no transfer. */
#define PROOF UINT64_MAX

/* The places of the registered files. */
enum { FILE_PLACE, QUIET_PLACE, FILE_PLACES };

static int enter(struct io_uring *uring, struct io_uring_cqe **first, unsigned want,
                 struct __kernel_timespec *timeout)
{
    return io_uring_submit_and_wait_timeout(uring, first, want, timeout, NULL);
}

static struct kvshm__uring uring_calls = {
    .queue_init_params = io_uring_queue_init_params,
    .ring_dontfork = io_uring_ring_dontfork,
    .register_probe = io_uring_register_probe,
    .register_files = io_uring_register_files,
    .register_buffers = io_uring_register_buffers,
    .unregister_files = io_uring_unregister_files,
    .unregister_buffers = io_uring_unregister_buffers,
    .submit = io_uring_submit,
    .enter = enter,
};
struct kvshm__uring *const kvshm__uring = &uring_calls;

/* The registered piece in which all bytes of the transfer lie, or NO_PIECE. */
static uint32_t piece_of(const struct kvshm__ring *ring, const struct transfer *t)
{
    uint64_t at = (uintptr_t)t->memory - (uintptr_t)ring->memory;

    if (ring->engine != KVSHM__ENGINE_FIXED || at >= ring->bytes || t->bytes > ring->bytes - at ||
        at / ring->piece_bytes != (at + t->bytes - 1) / ring->piece_bytes)
        return NO_PIECE;
    return (uint32_t)(at / ring->piece_bytes);
}

/* Fill an entry of the submission queue with the next part of a read or write. */
static void prepare_part(const struct kvshm__ring *ring, const struct transfer *t,
                         struct io_uring_sqe *sqe)
{
    uint32_t piece = piece_of(ring, t), rest = t->bytes - t->moved;
    char *memory = t->memory + t->moved;
    uint64_t offset = t->offset + t->moved;

    if (t->kind == READ && piece == NO_PIECE)
        io_uring_prep_read(sqe, FILE_PLACE, memory, rest, offset);
    else if (t->kind == READ)
        io_uring_prep_read_fixed(sqe, FILE_PLACE, memory, rest, offset, (int)piece);
    else if (piece == NO_PIECE)
        io_uring_prep_write(sqe, FILE_PLACE, memory, rest, offset);
    else
        io_uring_prep_write_fixed(sqe, FILE_PLACE, memory, rest, offset, (int)piece);
}

/* All that waits goes into the submission queue. */
static void hand_over(struct kvshm__ring *ring)
{
    if (ring->first != NO_TRANSFER)
        pause_if_asked(ring);
    while (ring->first != NO_TRANSFER) {
        struct transfer *t = &ring->transfers[ring->first];
        struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);

        assert(sqe != NULL); /* I1 */
        if (t->kind == SYNC)
            io_uring_prep_fsync(sqe, FILE_PLACE, IORING_FSYNC_DATASYNC);
        else
            prepare_part(ring, t, sqe);
        io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
        io_uring_sqe_set_data64(sqe, ring->first);
        ring->first = t->next;
    }
}

/* Take the results that are there, without a system call; how many of at most max. */
static unsigned take_results(struct kvshm__ring *ring, struct kvshm__ring_done *done, unsigned max)
{
    unsigned n = 0, seen = 0, head;
    struct io_uring_cqe *cqe;

    io_uring_for_each_cqe(&ring->uring, head, cqe)
    {
        uint32_t index = (uint32_t)cqe->user_data;
        int result;

        if (n == max)
            break;
        seen++;
        if (settle(ring, &ring->transfers[index], cqe->res, &result))
            finish(ring, index, result, &done[n++]);
        else
            wait_in_line(ring, index);
    }
    io_uring_cq_advance(&ring->uring, seen);
    return n;
}

/* Does the kernel take what is queued when it is asked again? */
static bool is_put_off(int code)
{
    return code == -EAGAIN || code == -EBUSY || code == -EINTR;
}

static int refused(int code)
{
    return kvshm__fail(code,
                       "the kernel refuses to go on with transfers that it took (io_uring_enter: "
                       "%s); close the ring and open it anew",
                       kvshm_strerror(code));
}

static int submit_ring(struct kvshm__ring *ring)
{
    int code;

    hand_over(ring);
    if (io_uring_sq_ready(&ring->uring) == 0)
        return 0;
    code = kvshm__uring->submit(&ring->uring);
    return code >= 0 || is_put_off(code) ? 0 : refused(code);
}

/* Enter the kernel once, until want results are there or the time of kvshm__sys.monotonic_ns() is until_ns. */
static int enter_until(struct kvshm__ring *ring, unsigned want, int64_t timeout_ns,
                       uint64_t until_ns)
{
    struct __kernel_timespec left = {0};
    struct io_uring_cqe *first;

    if (timeout_ns < 0)
        return kvshm__uring->enter(&ring->uring, &first, want, NULL);
    if (timeout_ns > 0) {
        int64_t left_ns = (int64_t)(until_ns - kvshm__sys.monotonic_ns());

        if (left_ns > 0) {
            left.tv_sec = left_ns / NS_PER_S;
            left.tv_nsec = left_ns % NS_PER_S;
        }
    }
    return kvshm__uring->enter(&ring->uring, &first, want, &left);
}

static int wait_ring(struct kvshm__ring *ring, unsigned want, struct kvshm__ring_done *done,
                     unsigned max, int64_t timeout_ns)
{
    uint64_t until_ns = timeout_ns > 0 ? kvshm__sys.monotonic_ns() + (uint64_t)timeout_ns : 0;
    unsigned n = take_results(ring, done, max), tries = 0;

    for (;;) {
        int code;

        hand_over(ring);
        if (n >= want && io_uring_sq_ready(&ring->uring) == 0)
            return (int)n;
        code = enter_until(ring, n < want ? want - n : 0, timeout_ns, until_ns);
        n += take_results(ring, done + n, max - n);
        if (n >= want || code == -ETIME)
            return (int)n;
        if (code >= 0)
            continue;
        if (!is_put_off(code) || ++tries == TRIES)
            return n > 0 ? (int)n : refused(code);
        kvshm__sys.sleep_ns(PAUSE_NS);
    }
}

/* Why a ring is no better one: what, the words of the code, and what helps; cut to its room. */
static void because(struct kvshm__ring *ring, const char *what, int code, const char *remedy)
{
    snprintf(ring->reason, sizeof(ring->reason), "%s: %s%s", what, kvshm_strerror(code), remedy);
}

static const char *ring_remedy(int code)
{
    if (code == -EPERM || code == -EACCES)
        return "; seccomp or io_uring_disabled";
    return code == -ENOSYS ? "; old kernel or seccomp" : "";
}

/* Make the kernel's ring, with as few interrupts of this thread as the kernel knows to make. */
static int make_ring(struct kvshm__ring *ring, unsigned depth)
{
    static const unsigned flags[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
        IORING_SETUP_COOP_TASKRUN,
        0,
    };
    int code = -EINVAL;

    for (unsigned i = 0; i < sizeof(flags) / sizeof(*flags) && code == -EINVAL; i++) {
        struct io_uring_params params = {.flags = flags[i]};

        kvshm__fork_hold(); /* I4 */
        code = kvshm__uring->queue_init_params(depth, &ring->uring, &params);
        if (code >= 0)
            *ring->descriptor = ring->uring.ring_fd;
        kvshm__fork_let();
    }
    return code < 0 ? code : kvshm__uring->ring_dontfork(&ring->uring);
}

/* 0 if the kernel knows all that transfers need; -ENOSYS if not. */
static int knows_enough(struct kvshm__ring *ring)
{
    static const int needed[] = {IORING_OP_NOP,        IORING_OP_READ,  IORING_OP_WRITE,
                                 IORING_OP_READ_FIXED, IORING_OP_FSYNC, IORING_OP_WRITE_FIXED};
    enum { OPS = 256 };
    struct io_uring_probe *probe =
        kvshm__private_alloc(sizeof(*probe) + OPS * sizeof(struct io_uring_probe_op));
    int code = probe == NULL ? -ENOMEM : kvshm__uring->register_probe(&ring->uring, probe, OPS);

    for (unsigned i = 0; i < sizeof(needed) / sizeof(*needed) && code >= 0; i++) {
        if (!io_uring_opcode_supported(probe, needed[i]))
            code = -ENOSYS;
    }
    if (code >= 0 && !(ring->uring.features & IORING_FEAT_EXT_ARG))
        code = -ENOSYS;
    kvshm__private_free(probe);
    return code;
}

/* One round through the kernel, since who may make a ring need not be let into it. */
static int prove(struct kvshm__ring *ring)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);
    struct __kernel_timespec limit = {.tv_sec = 10};
    struct io_uring_cqe *cqe = NULL;
    int code;

    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data64(sqe, PROOF);
    code = kvshm__uring->enter(&ring->uring, &cqe, 1, &limit);
    if (code < 0)
        return code;
    if (cqe == NULL || cqe->user_data != PROOF || cqe->res < 0)
        return -EIO;
    io_uring_cq_advance(&ring->uring, 1);
    return 0;
}

/*
 * The kernel lets go of a closed ring when it comes to it. With nothing in flight, locks and locked memory come back at
 * once by being asked for; if that is refused, later.
 */
static void unmake_ring(struct kvshm__ring *ring)
{
    if (*ring->descriptor < 0)
        return;
    if (ring->in_flight == 0) {
        kvshm__uring->unregister_files(&ring->uring);
        kvshm__uring->unregister_buffers(&ring->uring);
    }
    kvshm__fork_hold();
    io_uring_queue_exit(&ring->uring);
    *ring->descriptor = -1;
    kvshm__fork_let();
}

/* Get a ring of the kernel, or say why there is none. */
static bool open_ring(struct kvshm__ring *ring, const struct kvshm__ring_setup *setup)
{
    const int files[FILE_PLACES] = {[FILE_PLACE] = setup->file, [QUIET_PLACE] = setup->quiet};
    const char *what = "io_uring";
    int code = make_ring(ring, setup->depth);

    if (code >= 0)
        code = knows_enough(ring);
    if (code >= 0) {
        what = "io_uring files"; /* I3 */
        code = kvshm__uring->register_files(&ring->uring, files, FILE_PLACES);
    }
    if (code >= 0) {
        what = "io_uring";
        code = prove(ring);
    }
    if (code >= 0) {
        ring->engine = KVSHM__ENGINE_RING;
        return true;
    }
    unmake_ring(ring);
    because(ring, what, code, ring_remedy(code));
    return false;
}

/* Register the memory, or say why it is not (I5). */
static void register_memory(struct kvshm__ring *ring, const struct kvshm__ring_setup *setup)
{
    uint64_t piece = PIECE_MAX / setup->stride * setup->stride;
    uint64_t n = piece == 0 ? 0 : (setup->bytes + piece - 1) / piece;
    struct iovec *pieces;
    int code = -ENOMEM;

    if (n == 0 || n > UINT32_MAX) {
        snprintf(ring->reason, sizeof(ring->reason), "buffers: %s",
                 setup->bytes == 0 ? "there are none" : "a frame has more than 1 GiB");
        return;
    }
    pieces = kvshm__private_alloc(n * sizeof(*pieces));
    for (uint64_t i = 0; i < n && pieces != NULL; i++) {
        uint64_t left = setup->bytes - i * piece;

        pieces[i].iov_base = ring->memory + i * piece;
        pieces[i].iov_len = left < piece ? left : piece;
    }
    if (pieces != NULL)
        code = kvshm__uring->register_buffers(&ring->uring, pieces, (unsigned)n);
    kvshm__private_free(pieces);
    if (code < 0) {
        because(ring, "buffers", code, code == -ENOMEM ? "; raise RLIMIT_MEMLOCK" : "");
        return;
    }
    ring->piece_bytes = piece;
    ring->engine = KVSHM__ENGINE_FIXED;
}

static void choose_engine(struct kvshm__ring *ring, const struct kvshm__ring_setup *setup)
{
    if (setup->best == KVSHM__ENGINE_SYNC) {
        snprintf(ring->reason, sizeof(ring->reason), "io_uring: not wanted");
        return;
    }
    if (!open_ring(ring, setup))
        return;
    if (setup->best == KVSHM__ENGINE_RING)
        snprintf(ring->reason, sizeof(ring->reason), "buffers: not wanted");
    else
        register_memory(ring, setup);
}

#else /* without liburing */

struct kvshm__uring *const kvshm__uring = NULL;

static int submit_ring(struct kvshm__ring *ring)
{
    (void)ring;
    return 0;
}

static int wait_ring(struct kvshm__ring *ring, unsigned want, struct kvshm__ring_done *done,
                     unsigned max, int64_t timeout_ns)
{
    (void)max;
    (void)timeout_ns;
    return wait_sync(ring, want, done);
}

static void unmake_ring(struct kvshm__ring *ring)
{
    (void)ring;
}

static void choose_engine(struct kvshm__ring *ring, const struct kvshm__ring_setup *setup)
{
    (void)setup;
    snprintf(ring->reason, sizeof(ring->reason), "io_uring: built without liburing");
}

#endif

/* ---- The ring ------------------------------------------------------------------------------------------ */

static int check_setup(const struct kvshm__ring_setup *setup)
{
    if (setup->file < 0 || setup->quiet < 0)
        return kvshm__fail(-EINVAL,
                           "descriptors %d and %d: both the file and the lock's have to be open",
                           setup->file, setup->quiet);
    if (setup->depth == 0 || setup->depth > KVSHM__RING_DEPTH_MAX)
        return kvshm__fail(-EINVAL, "depth %u is not from 1 to %d transfers", setup->depth,
                           KVSHM__RING_DEPTH_MAX);
    if (setup->align == 0 || setup->stride == 0)
        return kvshm__fail(-EINVAL, "align %u and stride %llu have to be 1 byte or more",
                           setup->align, (unsigned long long)setup->stride);
    return 0;
}

int kvshm__ring_open(const struct kvshm__ring_setup *setup, struct kvshm__ring **out)
{
    struct kvshm__ring *ring;
    int code = check_setup(setup);

    if (code < 0)
        return code;
    ring = kvshm__private_alloc(sizeof(*ring) + setup->depth * sizeof(*ring->transfers));
    if (ring == NULL)
        return kvshm__fail(-ENOMEM, "no memory for a ring of %u transfers", setup->depth);
    ring->engine = KVSHM__ENGINE_SYNC;
    ring->file = setup->file;
    ring->descriptor = setup->descriptor;
    *ring->descriptor = -1;
    ring->memory = setup->memory;
    ring->bytes = setup->bytes;
    ring->align = setup->align;
    ring->first = NO_TRANSFER;
    ring->free = NO_TRANSFER;
    for (uint32_t i = setup->depth; i-- > 0;) {
        ring->transfers[i].next = ring->free;
        ring->free = i;
    }
    choose_engine(ring, setup);
    *out = ring;
    return 0;
}

enum kvshm__engine kvshm__ring_engine(const struct kvshm__ring *ring)
{
    return ring->engine;
}

const char *kvshm__ring_reason(const struct kvshm__ring *ring)
{
    return ring->reason;
}

const char *kvshm__ring_engine_name(enum kvshm__engine engine)
{
    switch (engine) {
    case KVSHM__ENGINE_NONE:
        return "none";
    case KVSHM__ENGINE_SYNC:
        return "pread";
    case KVSHM__ENGINE_RING:
        return "io_uring";
    case KVSHM__ENGINE_FIXED:
        return "io_uring-registered";
    }
    return "unknown";
}

unsigned kvshm__ring_in_flight(const struct kvshm__ring *ring)
{
    return ring->in_flight;
}

int kvshm__ring_submit(struct kvshm__ring *ring)
{
    return ring->engine == KVSHM__ENGINE_SYNC ? 0 : submit_ring(ring);
}

int kvshm__ring_wait(struct kvshm__ring *ring, unsigned want, struct kvshm__ring_done *done,
                     unsigned max, int64_t timeout_ns)
{
    if (ring->in_flight == 0)
        return 0;
    if (want > max)
        want = max;
    if (want > ring->in_flight)
        want = ring->in_flight;
    if (want == 0)
        want = 1;
    if (ring->engine == KVSHM__ENGINE_SYNC)
        return wait_sync(ring, want, done);
    return wait_ring(ring, want, done, max, timeout_ns);
}

int kvshm__ring_close(struct kvshm__ring *ring)
{
    struct kvshm__ring_done done[CLOSE_AT_ONCE];
    int lost = 0, n = 0;

    while (ring->in_flight > 0 && n >= 0) {
        n = kvshm__ring_wait(ring, CLOSE_AT_ONCE, done, CLOSE_AT_ONCE, -1);
        lost += n;
    }
    unmake_ring(ring);
    kvshm__private_free(ring);
    return n < 0 ? n : lost;
}

void kvshm__ring_forget(struct kvshm__ring *ring)
{
    if (*ring->descriptor >= 0)
        kvshm__sys.close(*ring->descriptor);
    *ring->descriptor = -1;
    kvshm__private_free(ring);
}
