/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slow_file.c - the process that serves a slow file, speaking with the kernel as <linux/fuse.h> says
 *
 * The file is the root of its file system: mounted on a file, it needs no names.
 */
#include "slow_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "support.h"

#define MAX_WRITE  (1 << 17)
#define MAX_PAGES  (MAX_WRITE / 4096)
#define HELD_MAX   64
#define FOR_EVER_S 100000

struct request {
    struct fuse_in_header header;
    union {
        struct fuse_read_in read;
        struct fuse_write_in write;
    };
    unsigned char bytes[MAX_WRITE + 65536]; /* what is written */
};
static_assert(sizeof(struct fuse_read_in) == sizeof(struct fuse_write_in) &&
                  offsetof(struct fuse_read_in, size) == offsetof(struct fuse_write_in, size),
              "reads and writes are asked for alike");

struct server {
    int fd;
    struct ts_slow_words *words;
    unsigned held_first, held_n; /* transfers taken and not answered, in order */
    struct request *held[HELD_MAX];
    struct request *request;
};

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void answer(struct server *server, const struct request *request, int error, const void *out,
                   size_t size)
{
    struct fuse_out_header header = {.unique = request->header.unique, .error = -error};
    struct iovec parts[2] = {{&header, sizeof(header)},
                             {(void *)(uintptr_t)out, error == 0 ? size : 0}};

    header.len = (uint32_t)(sizeof(header) + parts[1].iov_len);
    if (writev(server->fd, parts, 2) < 0 && errno != ENOENT) /* ENOENT: who asked is gone */
        _exit(3);
}

static int error_now(struct ts_slow_words *words)
{
    int times = atomic_load(&words->error_times);

    if (times == 0)
        return 0;
    if (times > 0)
        atomic_store(&words->error_times, times - 1);
    return atomic_load(&words->error);
}

/* Carry a transfer out, and answer it. */
static void land(struct server *server, const struct request *request)
{
    struct ts_slow_words *words = server->words;
    uint32_t part = atomic_load(&words->part_bytes);
    uint32_t size = request->read.size; /* stands where that of a write does */
    uint64_t offset = request->read.offset;
    int error = error_now(words);

    if (part != 0 && size > part)
        size = part;
    if (offset >= TS_SLOW_BYTES)
        size = 0;
    else if (size > TS_SLOW_BYTES - offset)
        size = (uint32_t)(TS_SLOW_BYTES - offset);
    if (request->header.opcode == FUSE_READ) {
        answer(server, request, error, words->bytes + offset, size);
        return;
    }
    if (error == 0)
        memcpy(words->bytes + offset, request->bytes, size);
    answer(server, request, error, &(struct fuse_write_out){.size = size},
           sizeof(struct fuse_write_out));
}

static void take_transfer(struct server *server)
{
    bool is_held = atomic_load(&server->words->hold_after) || server->held_n > 0;

    atomic_fetch_add(&server->words->taken, 1);
    if (is_held) {
        if (server->held_n == HELD_MAX)
            _exit(4);
        server->held[(server->held_first + server->held_n++) % HELD_MAX] = server->request;
        server->request = malloc(sizeof(*server->request));
        if (server->request == NULL)
            _exit(5);
    } else {
        land(server, server->request);
    }
}

static void land_held(struct server *server)
{
    while (server->held_n > 0 && !atomic_load(&server->words->hold_after)) {
        struct request *request = server->held[server->held_first];

        server->held_first = (server->held_first + 1) % HELD_MAX;
        server->held_n--;
        land(server, request);
        free(request);
    }
}

static void answer_init(struct server *server)
{
    struct fuse_init_out out = {
        .major = FUSE_KERNEL_VERSION,
        .minor = 31,
        .flags = FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_ASYNC_DIO | FUSE_MAX_PAGES,
        .max_background = HELD_MAX,
        .congestion_threshold = HELD_MAX,
        .max_write = MAX_WRITE,
        .time_gran = 1,
        .max_pages = MAX_PAGES,
    };

    answer(server, server->request, 0, &out, sizeof(out));
}

static void answer_attributes(struct server *server)
{
    struct fuse_attr_out out = {
        .attr_valid = FOR_EVER_S,
        .attr = {.ino = FUSE_ROOT_ID,
                 .size = TS_SLOW_BYTES,
                 .blocks = TS_SLOW_BYTES / 512,
                 .mode = S_IFREG | 0600,
                 .nlink = 1,
                 .blksize = 4096},
    };

    answer(server, server->request, 0, &out, sizeof(out));
}

static void serve_request(struct server *server)
{
    switch (server->request->header.opcode) {
    case FUSE_INIT:
        answer_init(server);
        break;
    case FUSE_GETATTR:
    case FUSE_SETATTR:
        answer_attributes(server);
        break;
    case FUSE_OPEN:
        answer(server, server->request, 0, &(struct fuse_open_out){.open_flags = FOPEN_DIRECT_IO},
               sizeof(struct fuse_open_out));
        break;
    case FUSE_READ:
    case FUSE_WRITE:
        take_transfer(server);
        break;
    case FUSE_FSYNC:
        atomic_fetch_add(&server->words->synced, 1);
        answer(server, server->request, error_now(server->words), NULL, 0);
        break;
    case FUSE_RELEASE:
        atomic_fetch_add(&server->words->released, 1);
        answer(server, server->request, 0, NULL, 0);
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break;
    default:
        answer(server, server->request, ENOSYS, NULL, 0);
    }
}

/* Until the mount is gone, or the test. */
static int serve(struct server *server)
{
    struct ts_slow_words *words = server->words;

    for (;;) {
        struct pollfd ready = {.fd = server->fd, .events = POLLIN};
        ssize_t size;

        land_held(server);
        if (poll(&ready, 1, 1) <= 0)
            continue;
        if (atomic_load(&words->hold_before)) {
            atomic_store(&words->is_asked, true);
            nap();
            continue;
        }
        size = read(server->fd, server->request, sizeof(*server->request));
        if (size < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT))
            continue;
        if (size < (ssize_t)sizeof(struct fuse_in_header))
            return 0;
        serve_request(server);
    }
}

static bool mount_file(struct ts_slow *slow, int *fd, const char *case_name)
{
    char options[100];
    const char *failed = "unshare";
    bool is_mounted = false;

    *fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (*fd < 0) {
        failed = "open /dev/fuse";
    } else if (unshare(CLONE_NEWNS) == 0) {
        int made = open(slow->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

        close(made);
        snprintf(options, sizeof(options), "fd=%d,rootmode=100000,user_id=0,group_id=0", *fd);
        failed = "mount";
        is_mounted = made >= 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                     mount("slow", slow->path, "fuse", MS_NOSUID | MS_NODEV, options) == 0;
    }
    if (!is_mounted)
        printf("SKIP %s: no file system of its own (FUSE, as root): %s: %s\n", case_name, failed,
               strerror(errno));
    return is_mounted;
}

/*
 * Let the kernel learn what it need not ask: at close, else a process that dies waits for an answer; before a transfer,
 * else that is not what is held. And how large the file is, else it waits for the end of each write, since that could
 * make the file longer.
 */
static void warm_up(const struct ts_slow *slow)
{
    int fd = open(slow->path, O_RDWR | O_CLOEXEC);
    struct stat status;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fstat(fd, &status), 0);
    ck_assert_int_eq(status.st_size, TS_SLOW_BYTES);
    poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0);
    fgetxattr(fd, "security.capability", NULL, 0);
    close(fd);
    while (atomic_load(&slow->words->released) == 0)
        nap();
}

bool ts_slow_make(struct ts_slow *slow, const char *case_name)
{
    struct server server = {.words = ts_shared(sizeof(*slow->words))};

    slow->words = server.words;
    snprintf(slow->path, sizeof(slow->path), "%s/slow", getenv("KVSHM_DIR"));
    if (!mount_file(slow, &server.fd, case_name))
        return false;
    fflush(NULL);
    slow->server = fork();
    ck_assert_int_ge(slow->server, 0);
    if (slow->server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        server.request = malloc(sizeof(*server.request));
        _exit(server.request == NULL ? 5 : serve(&server));
    }
    close(server.fd);
    warm_up(slow);
    return true;
}

void ts_slow_end(struct ts_slow *slow)
{
    ck_assert_int_eq(umount2(slow->path, MNT_DETACH), 0);
    ts_kill(slow->server);
}

void ts_slow_until_asked(struct ts_slow *slow)
{
    while (!atomic_load(&slow->words->is_asked))
        nap();
}

void ts_slow_until_taken(struct ts_slow *slow, unsigned n)
{
    while (atomic_load(&slow->words->taken) < n)
        nap();
}
