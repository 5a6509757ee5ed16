/* SPDX-License-Identifier: Apache-2.0 */
/*
 * populate.c - takes the memory of a segment.
 *
 * Memory that is not there is often told by a signal: SIGKILL of the OOM killer beyond a memory cgroup's limit, SIGBUS
 * beyond that of a hugetlb cgroup. So memory is taken by child processes, which the OOM killer is told to prefer: such a
 * signal ends a child, and the caller gets an error. Several, since clearing pages is what takes the time; processes
 * rather than threads, since a child of a process with threads may call nothing that makes threads. They share out the
 * file by slices; for each a child
 *
 *   takes the space (fallocate), so that a file system without room says so by an error;
 *   touches it (MADV_POPULATE_WRITE, or a store to each page on kernels that lack it): pages are cleared now, and not
 *   when a server stores into them. Of a file on a disk nothing is touched: it has the space, and pages come and go.
 *
 * Where transparent hugepages are wanted it touches first, since fallocate alone would give small pages: a mount with
 * huge= gives hugepages at the first touch, elsewhere they are put together (MADV_COLLAPSE). Where that fails there are
 * small pages.
 *
 * The children
 *
 * C1  They are made by a raw clone without an exit signal: no handler of the host runs (pthread_atfork, SIGCHLD), no
 *     wait of the host's finds them, and they can be waited for even where SIGCHLD is ignored.
 * C2  In a child all signals are blocked, it calls nothing but kvshm__sys, and it writes nothing that others see but
 *     the file and struct crew.
 * C3  A child ends with the thread that made it, and has no other descriptor than the file's (but on kernels without
 *     close_range), so it keeps nothing of a dead host alive.
 * C4  All have been waited for when the call returns; what they had of the file has then gone with their mappings.
 */
#include "populate.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backing.h"
#include "limit.h"
#include "message.h"
#include "numa.h"
#include "sys.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define CHILDREN_MAX    8
#define SLICE_BYTES_MAX (UINT64_C(32) << 20)
#define SLICE_BYTES_MIN (UINT64_C(64) << 10)
#define LOOK_NS         UINT64_C(20000000)
#define OOM_PATH        "/proc/self/oom_score_adj"
#define OOM_PREFERRED   "1000"

void (*kvshm__populate_watch)(uint64_t done_bytes, uint64_t all_bytes);

/* Shared by the caller and the children. */
struct crew {
    kvshm_a64 next_slice; /* the first that nobody has begun */
    kvshm_a64 done_bytes;
    kvshm_a32 stop;       /* 1: one has failed */
    kvshm_a32 ended;      /* how many have ended by themselves; a futex, waited for */
    struct {
        kvshm_a32 ended; /* 1: what follows was written */
        kvshm_a32 code;  /* of it: 0 or errno */
    } child[CHILDREN_MAX];
    kvshm_a64 nodes[KVSHM__NODES_MAX];
};

/* The work, the same in all children. */
struct work {
    const struct kvshm__populate *request;
    struct crew *crew;
    enum kvshm__memory memory;
    uint64_t bytes;
    uint64_t slice_bytes;
    uint64_t touch_bytes; /* from one store to the next */
    uint32_t parent;
    bool count_nodes;
};

struct child {
    int pid; /* 0: none, or waited for */
    int code;
    int signal;   /* that ended it, of others */
    bool stopped; /* it was ended by us */
};

/* ---- In a child -------------------------------------------------------------------------------------- */

/* A signal makes the system undo and give up a whole piece; all are blocked, but someone may trace this process. */
static int take_space(const struct work *work, uint64_t at, uint64_t bytes)
{
    uint64_t page_size = work->request->plan->page_size;
    uint64_t least = page_size > SLICE_BYTES_MIN ? page_size : SLICE_BYTES_MIN;
    uint64_t end = at + bytes, piece = bytes;
    int code = 0;

    while (code == 0 && at < end) {
        uint64_t length = end - at < piece ? end - at : piece;

        code = kvshm__sys.space(work->request->fd, at, length);
        if (code == 0) {
            at += length;
        } else if (code == -EINTR) {
            piece = piece / 2 > least ? piece / 2 : least;
            code = 0;
        }
    }
    return code;
}

static int touch(const struct work *work, uint8_t *from, uint64_t bytes)
{
    int code = kvshm__sys.advise(from, bytes, MADV_POPULATE_WRITE);

    if (code == -EINVAL || code == -ENOSYS) {
        for (uint64_t at = 0; at < bytes; at += work->touch_bytes)
            KVSHM__STORE((kvshm_a64 *)(from + at), 0);
        code = 0;
    }
    return code == -EFAULT ? -ENOSPC : code; /* EFAULT stands for the SIGBUS that a store would get */
}

/*
 * One small page of each is touched: where the mount gives hugepages that is all of it, elsewhere the rest is put to it
 * cleared, instead of copied (tried: ten times as fast). What does not work here is told by fallocate, or by who counts
 * the hugepages.
 */
static void touch_hugepages(const struct work *work, uint8_t *from, uint64_t bytes)
{
    uint64_t page_size = work->request->plan->page_size;

    for (uint64_t at = 0; at < bytes; at += page_size) {
        if (touch(work, from + at, work->touch_bytes) == 0 &&
            kvshm__sys.advise(from + at, page_size, MADV_COLLAPSE) == -EAGAIN)
            kvshm__sys.advise(from + at, page_size, MADV_COLLAPSE);
    }
}

/* Slice at .. of the file, mapped at base (NULL: it is not touched). */
static int fill_slice(const struct work *work, uint8_t *base, uint64_t at)
{
    uint64_t left = work->bytes - at;
    uint64_t bytes = left < work->slice_bytes ? left : work->slice_bytes;
    int code;

    if (base != NULL && work->request->transparent)
        touch_hugepages(work, base + at, bytes);
    code = take_space(work, at, bytes);
    if (code == 0 && base != NULL)
        code = touch(work, base + at, bytes);
    if (code < 0)
        return code;
    if (base != NULL && work->count_nodes)
        kvshm__numa_count(base + at, bytes, work->touch_bytes, work->crew->nodes);
    KVSHM__ADD(&work->crew->done_bytes, bytes);
    return 0;
}

static int map_file(const struct work *work, uint8_t **base)
{
    void *address;
    int code;

    *base = NULL;
    if (work->memory == KVSHM__MEMORY_DISK)
        return 0;
    code = kvshm__backing_map(work->request->fd, work->bytes, work->request->plan->page_size,
                              PROT_READ | PROT_WRITE, &address);
    if (code < 0)
        return code;
    *base = address;
    if (work->request->transparent)
        kvshm__sys.advise(address, work->bytes, MADV_HUGEPAGE);
    return 0;
}

static void ask_to_be_preferred(void)
{
    int fd = kvshm__sys.open(OOM_PATH, O_WRONLY, 0);

    if (fd < 0)
        return;
    kvshm__sys.pwrite(fd, OOM_PREFERRED, sizeof(OOM_PREFERRED) - 1, 0);
    kvshm__sys.close(fd);
}

static int fill_slices(const struct work *work)
{
    uint8_t *base;
    int code = map_file(work, &base);

    while (code == 0 && KVSHM__LOAD(&work->crew->stop) == 0) {
        uint64_t at = KVSHM__ADD(&work->crew->next_slice, 1) * work->slice_bytes;

        if (at >= work->bytes)
            break;
        code = fill_slice(work, base, at);
    }
    return code;
}

/* All that a child does. */
static void be_child(const struct work *work, unsigned number)
{
    struct crew *crew = work->crew;
    int code = kvshm__sys.die_with(work->parent);

    if (code == -ESRCH)
        kvshm__sys.exit(1);
    kvshm__sys.keep_only(work->request->fd);
    ask_to_be_preferred();
    code = fill_slices(work);
    if (code < 0)
        KVSHM__STORE(&crew->stop, 1);
    KVSHM__STORE(&crew->child[number].code, (uint32_t)-code);
    KVSHM__STORE_REL(&crew->child[number].ended, 1);
    atomic_fetch_add_explicit(&crew->ended, 1, memory_order_release);
    kvshm__sys.futex_wake(&crew->ended, 1);
    kvshm__sys.exit(0);
}

/* ---- The caller -------------------------------------------------------------------------------------- */

/* Make up to n children; how many there are. A negative answer: not one. */
static int make_children(const struct work *work, unsigned n, struct child *children)
{
    sigset_t all, before;
    int code, pid = 0;
    unsigned made = 0;

    sigfillset(&all);
    code = kvshm__sys.signals(&all, &before);
    if (code < 0)
        return code;
    while (made < n) {
        pid = kvshm__sys.child();
        if (pid == 0)
            be_child(work, made);
        if (pid < 0)
            break;
        children[made++].pid = pid;
    }
    kvshm__sys.signals(&before, NULL);
    return made > 0 ? (int)made : pid;
}

/* Wait for one child: until it has ended, or now only. true: it has. */
static bool wait_for(const struct work *work, unsigned number, struct child *child)
{
    bool ended = KVSHM__LOAD_ACQ(&work->crew->child[number].ended) != 0;
    int status = 0, code;

    do
        code = kvshm__sys.child_wait(child->pid, !ended, &status);
    while (code == -EINTR);
    if (code == 0)
        return false;
    if (code < 0 && code != -ECHILD) {
        kvshm__sys.child_kill(child->pid); /* it cannot be waited for: it must not go on */
        child->code = code;
    } else if (code > 0 && WIFSIGNALED(status) && !ended) {
        child->signal = child->stopped ? 0 : WTERMSIG(status);
    } else if (ended || KVSHM__LOAD_ACQ(&work->crew->child[number].ended) != 0) {
        child->code = -(int)KVSHM__LOAD(&work->crew->child[number].code);
    } else {
        child->code = -ECHILD;
    }
    child->pid = 0;
    return true;
}

static void stop_others(const struct work *work, struct child *children, unsigned n)
{
    KVSHM__STORE(&work->crew->stop, 1);
    for (unsigned i = 0; i < n; i++) {
        children[i].stopped = children[i].pid != 0;
        if (children[i].stopped)
            kvshm__sys.child_kill(children[i].pid);
    }
}

static void wait_for_all(const struct work *work, struct child *children, unsigned n)
{
    unsigned living = n;
    bool stopped = false;

    for (;;) {
        uint32_t ended = KVSHM__LOAD_ACQ(&work->crew->ended);
        bool failed = false;

        for (unsigned i = 0; i < n; i++) {
            if (children[i].pid != 0 && wait_for(work, i, &children[i]))
                living--;
            failed = failed || children[i].signal != 0 || children[i].code < 0;
        }
        if (kvshm__populate_watch != NULL)
            kvshm__populate_watch(KVSHM__LOAD(&work->crew->done_bytes), work->bytes);
        if (living == 0)
            return;
        if (failed && !stopped) {
            stop_others(work, children, n);
            stopped = true;
            continue;
        }
        kvshm__sys.futex_wait(&work->crew->ended, ended, LOOK_NS);
    }
}

/* ---- What came of it --------------------------------------------------------------------------------- */

static int killed(const struct work *work, int signal)
{
    uint64_t done = KVSHM__LOAD(&work->crew->done_bytes);
    const char *path = work->request->path;

    if (signal == SIGBUS)
        return kvshm__fail(-ENOMEM,
                           "%s: the process that took its memory was ended by SIGBUS at %" PRIu64
                           " of %" PRIu64 " bytes: the pool of hugepages or the limit of a hugetlb "
                           "cgroup is used up; ask for less (config.frames, config.memory_bytes), or "
                           "enlarge it",
                           path, done, work->bytes);
    return kvshm__fail(-ENOMEM,
                       "%s: the process that took its memory was killed by signal %d at %" PRIu64
                       " of %" PRIu64 " bytes%s",
                       path, signal, done, work->bytes,
                       signal != SIGKILL ? ""
                                         : ", by the OOM killer if nobody else did it: memory, or the "
                                           "limit of a memory cgroup, is used up; ask for less "
                                           "(config.frames, config.memory_bytes), raise the limit, or "
                                           "stop what uses the memory");
}

static int failed(const struct work *work, int code)
{
    const struct kvshm__populate *request = work->request;

    if (work->memory == KVSHM__MEMORY_POOL && (code == -ENOSPC || code == -ENOMEM))
        return kvshm__fail(-ENOSPC,
                           "%s needs %" PRIu64 " bytes in hugepages of %" PRIu64 ", and their pool, "
                           "its mount or a hugetlb cgroup has fewer; enlarge it, or ask for less "
                           "(config.frames, config.memory_bytes)",
                           request->path, work->bytes, work->touch_bytes);
    if (code == -ENOSPC)
        return kvshm__limit_no_room(request->fd, request->plan, request->path);
    return kvshm__fail(code, "space of %s: %s", request->path, kvshm_strerror(code));
}

/* A child that was killed explains more than one that was stopped for it. */
static int outcome(const struct work *work, const struct child *children, unsigned n)
{
    int code = 0, signal = 0;

    for (unsigned i = 0; i < n; i++) {
        if (code == 0)
            code = children[i].code;
        if (signal == 0)
            signal = children[i].signal;
    }
    if (code < 0)
        return failed(work, code);
    return signal != 0 ? killed(work, signal) : 0;
}

static unsigned children_for(const struct work *work)
{
    uint64_t slices = (work->bytes + work->slice_bytes - 1) / work->slice_bytes;
    int cpus = kvshm__sys.cpus();
    uint64_t n = cpus < 1 ? 1 : (uint64_t)cpus;

    if (work->memory == KVSHM__MEMORY_DISK)
        n = 1;
    if (n > CHILDREN_MAX)
        n = CHILDREN_MAX;
    return (unsigned)(n < slices ? n : slices);
}

static int fill(const struct work *work)
{
    struct child children[CHILDREN_MAX];
    int made;

    memset(children, 0, sizeof(children));
    if (work->memory != KVSHM__MEMORY_DISK) {
        int code = kvshm__sys.truncate(work->request->fd, work->bytes);

        if (code < 0)
            return failed(work, code);
    }
    made = make_children(work, children_for(work), children);
    if (made < 0)
        return kvshm__fail(made,
                           "a process that takes the memory of %s: %s; raise the limit of processes "
                           "(ulimit -u, pids.max of the cgroup)",
                           work->request->path, kvshm_strerror(made));
    wait_for_all(work, children, (unsigned)made);
    return outcome(work, children, (unsigned)made);
}

static int prepare(struct work *work)
{
    const struct kvshm__plan *plan = work->request->plan;
    long page = sysconf(_SC_PAGESIZE);
    void *memory;
    int code = kvshm__limit_memory(work->request->fd, &work->memory);

    if (code == 0)
        code = kvshm__sys.map(sizeof(struct crew), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, &memory);
    if (code < 0)
        return kvshm__fail(code, "space of %s: %s", work->request->path, kvshm_strerror(code));
    work->crew = memory;
    work->bytes = plan->segment_bytes;
    work->slice_bytes = plan->page_size > SLICE_BYTES_MAX ? plan->page_size : SLICE_BYTES_MAX;
    work->touch_bytes = work->memory == KVSHM__MEMORY_POOL ? plan->page_size : (uint64_t)page;
    work->parent = kvshm__sys.pid();
    return 0;
}

int kvshm__populate(struct kvshm__populate *request)
{
    struct work work = {.request = request};
    struct kvshm__numa numa;
    int code;

    code = prepare(&work);
    if (code < 0)
        return code;
    code = kvshm__numa_set(request->fd, work.bytes, work.memory != KVSHM__MEMORY_DISK,
                           request->numa_asked, request->path, &numa);
    work.count_nodes = numa.set != KVSHM_NUMA_LOCAL;
    if (code == 0)
        code = fill(&work);
    if (code == 0)
        request->numa = kvshm__numa_had(&numa, work.crew->nodes);
    kvshm__sys.unmap(work.crew, sizeof(*work.crew));
    return code;
}
