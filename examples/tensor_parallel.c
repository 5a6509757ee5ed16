/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_parallel - one server in three processes: a scheduler, and two ranks that each own a GPU.
 *
 * A page is cut into as many shards as there are ranks. The scheduler alone calls reserve, insert and lookup. It
 * sends the ranks the offsets of the pages; each rank writes or reads its own shard there. Offsets mean the same
 * in every process, wherever it has mapped the arena.
 *
 * Round 1: the scheduler reserves, the ranks fill, the scheduler inserts and looks up, the ranks read.
 * Round 2: the scheduler is killed while the ranks fill. They have joined it, so the frames under their hands are
 * given to nobody else until both have left. Then all frames are to be had again: nothing is lost.
 *
 * Exit status 0: all of this was seen to be so.
 */
#include <err.h>
#include <errno.h>
#include <kvshm.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARENA       "example-tensor-parallel"
#define RANKS       2
#define PAGES       4
#define PAGE_TOKENS 16
#define TOKENS      (PAGES * PAGE_TOKENS)
#define FRAMES      10

/* What a rank is told to do, for whom, and where. */
struct message {
    enum { JOIN, FILL, READ, LEAVE } order;
    uint32_t prompt;
    uint64_t client; /* the scheduler's number */
    uint64_t offset[PAGES];
};

static int to_rank[RANKS]; /* a socket to each rank */

static void check(bool right, const char *claim)
{
    if (!right)
        errx(1, "not so: %s; the last error was: %s", claim, kvshm_errmsg(NULL));
}

/* Every process opens the same arena: a page is 16 KiB, of two layers and four heads of 32 bf16; a shard 8 KiB. */
static kvshm *open_arena(const char *label, struct kvshm_info *info)
{
    struct kvshm_config config;
    kvshm *kv;

    kvshm_config_init(&config);
    config.label = label;
    config.geometry.num_layers = 2;
    config.geometry.num_kv_heads = 4;
    config.geometry.head_dim = 32;
    config.geometry.dtype = KVSHM_BF16;
    config.geometry.page_tokens = PAGE_TOKENS;
    config.geometry.shards = RANKS;
    config.frames = FRAMES;
    check(kvshm_open(ARENA, &config, 0, &kv) == 0, "the arena can be opened");
    kvshm_info_init(info);
    check(kvshm_info(kv, info) == 0, "it says what it is");
    return kv;
}

/* What the rank's kernels compute for a page of a prompt: here, one byte, again and again. */
static unsigned char computed(uint32_t prompt, uint32_t rank, uint32_t page)
{
    return (unsigned char)(prompt * 100 + rank * 10 + page + 1);
}

/* Writes or reads this rank's shard of each page. */
static void use_shards(kvshm *kv, uint32_t rank, size_t shard_bytes, const struct message *m)
{
    for (uint32_t i = 0; i < PAGES; i++) {
        unsigned char byte = computed(m->prompt, rank, i);
        uint64_t shard = m->offset[i] + rank * shard_bytes;

        if (m->order == FILL) {
            memset(kvshm_at_writable(kv, shard), byte, shard_bytes);
        } else {
            const unsigned char *at = kvshm_at(kv, shard);

            for (size_t b = 0; b < shard_bytes; b++)
                check(at[b] == byte, "the shard is as written");
        }
    }
}

/* A process that does what it is told, and answers each message when that is done. */
static void rank_main(uint32_t rank, int scheduler)
{
    struct kvshm_info info;
    kvshm *kv = open_arena("rank", &info); /* what its parent opened before fork is not for it */
    uint64_t joined = 0;
    struct message m;

    while (read(scheduler, &m, sizeof(m)) == sizeof(m)) {
        if (m.order == JOIN) {
            /* From here on the scheduler's frames stay, whatever becomes of it. */
            joined = m.client;
            check(kvshm_join(kv, joined) == 0, "a living client can be joined");
        } else if (m.order == LEAVE) {
            check(kvshm_leave(kv, joined) == 0, "a joined client can be left, dead or alive");
        } else {
            use_shards(kv, rank, info.page_bytes / info.geometry.shards, &m);
        }
        check(write(scheduler, "done", 1) == 1, "the socket takes a byte");
    }
    check(kvshm_detach(kv) == 0, "the rank detaches");
    _exit(0);
}

static void tell(int rank, const struct message *m)
{
    check(write(to_rank[rank], m, sizeof(*m)) == sizeof(*m), "the socket takes a message");
}

static void await(int rank)
{
    char c;

    check(read(to_rank[rank], &c, 1) == 1, "the rank answers");
}

static void ask_both(const struct message *m)
{
    tell(0, m);
    tell(1, m);
    await(0);
    await(1);
}

/* Caches a prompt through the ranks and has them read it; or, with die, is killed while they fill. */
static pid_t start_scheduler(uint32_t prompt, bool die)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    struct kvshm_info info;
    kvshm *kv = open_arena("scheduler", &info);
    struct message m = {.order = JOIN, .prompt = prompt, .client = info.client};
    uint32_t tokens[TOKENS];
    struct kvshm_reservation reservation;
    struct kvshm_prefix prefix;
    struct kvshm_lease lease;

    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = prompt * 1000 + i;
    kvshm_prefix_init(&prefix, 0, 0, tokens, TOKENS);
    ask_both(&m);

    check(kvshm_reserve(kv, PAGES, 0, &reservation) == 0, "there are frames");
    check(kvshm_reservation_offsets(&reservation, 0, PAGES, m.offset) == PAGES,
          "each frame has an offset");
    m.order = FILL;
    tell(0, &m);
    tell(1, &m);
    if (die)
        raise(SIGKILL);
    await(0);
    await(1); /* all of the page must be there before anyone can find it */
    check(kvshm_insert(kv, &prefix, NULL, &reservation, 0) == 0, "the prompt is cached");

    /* From now on any server of the host finds it. The lease is the scheduler's; the ranks need only offsets. */
    check(kvshm_lookup(kv, &prefix, 0, &lease) == 0 && lease.pages == PAGES, "the prompt is found");
    check(kvshm_lease_offsets(&lease, 0, PAGES, m.offset) == PAGES, "each page has an offset");
    m.order = READ;
    ask_both(&m);
    kvshm_release(kv, &lease);
    m.order = LEAVE;
    ask_both(&m);
    check(kvshm_detach(kv) == 0, "the scheduler detaches");
    _exit(0);
}

static pid_t start_rank(uint32_t rank)
{
    int pair[2];

    check(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, "there is a socket");
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]);
        rank_main(rank, pair[1]);
    }
    close(pair[1]);
    to_rank[rank] = pair[0];
    return pid;
}

/* Waits for a process: the signal that killed it, 0 if it ended well. */
static int end_of(pid_t pid)
{
    int status;

    check(waitpid(pid, &status, 0) == pid, "the process ran");
    check(WIFSIGNALED(status) || WEXITSTATUS(status) == 0, "the process had no complaint");
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* The scheduler is dead, the ranks have joined it: who gets its frames, and when? */
static void watch_frames(kvshm *kv)
{
    const struct message leave = {.order = LEAVE};
    struct kvshm_reservation all;

    await(0);
    await(1); /* they went on writing into frames whose owner is dead */
    check(kvshm_reserve(kv, FRAMES - PAGES, 0, &all) == 0, "all other frames are to be had");
    kvshm_cancel(kv, &all);
    for (int rank = 0; rank < RANKS; rank++) {
        check(kvshm_reserve(kv, FRAMES, 0, &all) == -ENOSPC,
              "no frame is given away that a rank may write");
        tell(rank, &leave);
        await(rank);
    }
    check(kvshm_reserve(kv, FRAMES, 0, &all) == 0, "both left: every frame is to be had");
    kvshm_cancel(kv, &all);
}

int main(void)
{
    struct kvshm_info info;
    kvshm *kv = open_arena("other server", &info);
    pid_t rank_pid[RANKS];

    for (uint32_t rank = 0; rank < RANKS; rank++)
        rank_pid[rank] = start_rank(rank);

    check(end_of(start_scheduler(1, false)) == 0, "the first scheduler ends well");
    printf("round 1: %d ranks filled %d pages by offset, and read them by offset\n", RANKS, PAGES);
    check(end_of(start_scheduler(2, true)) == SIGKILL,
          "the second scheduler is killed while the ranks fill");
    watch_frames(kv);
    printf("round 2: the scheduler was killed, its %d frames came back when both ranks had left\n",
           PAGES);

    close(to_rank[0]);
    close(to_rank[1]);
    check(end_of(rank_pid[0]) == 0 && end_of(rank_pid[1]) == 0, "the ranks end well");
    check(kvshm_detach(kv) == 0 && kvshm_unlink(ARENA, 0) == 0, "the arena is removed");
    return 0;
}
