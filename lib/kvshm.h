/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvshm - the KV-cache pages of prompt prefixes in one shared-memory arena
 *
 * All the inference servers of a host share one cache: a prefix computed by one process is read by every
 * other, in place, without a copy and without a system call. There is no daemon. kvshm(7) has the
 * guarantees and their limits.
 *
 * Caveats, first
 *
 * - Who may write to an arena may damage it: give it the mode and the group of those you trust with every
 *   prompt in it. Damage to tables is answered by an error or a miss, never by a crash; the bytes of frames are as
 *   good as those who may write them.
 * - A page's identity is (adapter, tenant, the tokens before it, its tokens): equal identity is taken for
 *   equal content. What else makes content differ belongs in the fingerprint, the adapter id or the tenant.
 * - A client counts as alive while any copy of its descriptors is open: a child made by a raw clone, without
 *   exec, keeps its dead parent's leases.
 * - After fork the child's calls on the parent's handle answer KVSHM_E_FORKED and touch nothing; it must
 *   attach anew.
 *
 * Conventions
 *
 * Calls that return int answer 0, a positive outcome (enum kvshm_outcome), or a negative error: -errno, or
 * KVSHM_E_... below -4095. After an error kvshm_errmsg() gives a sentence with the values, the limits and the
 * remedy. The library never prints, exits, sets errno or installs signal handlers.
 *
 * A handle may be used by any number of threads at once, and any thread may release what another leased.
 * No call is async-signal-safe. An unknown flag is -EINVAL. Token counts and page counts are 32 bits wide.
 */
#ifndef KVSHM_H
#define KVSHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) && __GNUC__ >= 4
#define KVSHM_API __attribute__((visibility("default")))
#else
#define KVSHM_API
#endif

#define KVSHM_VERSION_MAJOR 0
#define KVSHM_VERSION_MINOR 1
#define KVSHM_VERSION_PATCH 0

/* Longest name of an arena, and longest label of a client, in bytes without the final NUL. */
#define KVSHM_NAME_MAX 64
#define KVSHM_LABEL_MAX 63
#define KVSHM_FINGERPRINT_BYTES 32
#define KVSHM_KEY_BYTES 32

/* No limit: .capacity, .wait_ms. */
#define KVSHM_UNLIMITED UINT64_MAX

/* One attached arena, of this process. */
typedef struct kvshm kvshm;

/* What a call that did not fail may answer besides 0. */
enum kvshm_outcome {
    KVSHM_MISS = 1,     /* not cached */
    KVSHM_PENDING = 2,  /* cached, and pages of it (lookup) or all of them (match) are in the spill file alone; no lease.
                           They are being read back, unless KVSHM_PEEK was given */
    KVSHM_EXISTS = 3,   /* insert: the entry was there already and was touched; the reservation is consumed */
    KVSHM_REPLACED = 4, /* insert: the key-only entry was there and has the new pages now */
};

/* Each has its sentence, meaning and remedy in kvshm_errors(7). */
enum kvshm_error {
    KVSHM_E_FORMAT = -4101, /* not a kvshm arena */
    KVSHM_E_VERSION = -4102, /* arena of another layout version */
    KVSHM_E_FEATURE = -4103, /* arena uses a feature this library lacks */
    KVSHM_E_BYTE_ORDER = -4104, /* arena of another byte order or word size */
    KVSHM_E_BOOT = -4105, /* arena of an earlier boot */
    KVSHM_E_DAMAGED = -4106, /* arena is damaged */
    KVSHM_E_GEOMETRY = -4107, /* geometry differs or is not valid */
    KVSHM_E_FINGERPRINT = -4108, /* fingerprint differs */
    KVSHM_E_UNLINKED = -4109, /* arena was unlinked */
    KVSHM_E_FORKED = -4110, /* handle belongs to the parent process */
    KVSHM_E_STALLED = -4111, /* the writer lock is held by a stopped process */
    KVSHM_E_STALE = -4112, /* made before the arena was cleared */
    KVSHM_E_READ_ONLY = -4113, /* handle is read-only */
    KVSHM_E_CLIENTS = -4114, /* all client places are taken */
    KVSHM_E_LEASES = -4115, /* all lease words of this client are taken */
    KVSHM_E_CONFLICT = -4116, /* the name exists in two places */
    KVSHM_E_BUSY_CREATORS = -4117, /* another process is creating an arena */
    KVSHM_E_NOSPILL = -4118, /* the arena's spill file is not to be had */
};

/* Flags of calls. */
#define KVSHM_RDONLY 0x0001u   /* attach, open: map read-only, take no lock and no place; peek, copy, list only */
#define KVSHM_POPULATE 0x0002u /* attach, open, create: fault in all mappings now */
#define KVSHM_NOTIER 0x0004u   /* attach, open: without the spill file. Pages in it alone are misses for this handle. It
                                  leases, reserves and inserts; for want of frames only pages that are in the file leave;
                                  what would have to change the file is KVSHM_E_NOSPILL: remove, clear, replacing a
                                  key-only entry */
#define KVSHM_FORCE 0x0010u    /* unlink: even with living clients */
#define KVSHM_PEEK 0x0100u     /* lookup, match: tell how much is cached; no lease, no touch */
#define KVSHM_TOUCH 0x0200u    /* match: touch an entry that runs through the last page served, if none ends there;
                                  with KVSHM_PEEK: touch although peeking */
#define KVSHM_WAIT 0x0400u     /* wait for the disk, the arena's wait_ms at most. lookup, match: until nothing that is asked
                                  for is pending; without effect beside KVSHM_PEEK. reserve: until the disk has taken what
                                  would be dropped else. Without effect on handles without a spill file */
#define KVSHM_DEVICE 0x1000u   /* reserve: devices write into these frames; after death only reap frees them */
#define KVSHM_EXTEND 0x2000u   /* insert: the head's entry grows, instead of a second one being named */
#define KVSHM_HOLD 0x4000u     /* insert: .head becomes a lease of the whole prefix */

enum kvshm_dtype {
    KVSHM_F32 = 0, /* 4 bytes */
    KVSHM_F16 = 1, /* 2 bytes */
    KVSHM_BF16 = 2,
    KVSHM_FP8 = 3, /* 1 byte */
    KVSHM_INT8 = 4,
    KVSHM_INT4 = 5, /* half a byte */
};

enum kvshm_backing {
    KVSHM_BACKING_AUTO = 0,       /* the best that is to be had */
    KVSHM_BACKING_SMALL = 1,      /* the system's small pages */
    KVSHM_BACKING_THP = 2,        /* transparent hugepages of a tmpfs */
    KVSHM_BACKING_HUGETLB_2M = 3, /* a mount of hugetlbfs with pages of 2 MiB */
    KVSHM_BACKING_HUGETLB_1G = 4, /* one with pages of 1 GiB */
};

/* On which nodes memory is. Other values are of a node: KVSHM_NUMA_NODE(n). */
enum kvshm_numa {
    KVSHM_NUMA_AUTO = 0,       /* asked: interleaved where there is more than one node, as far as the system lets */
    KVSHM_NUMA_LOCAL = 1,      /* no policy: each page where the system puts it, mostly near who creates */
    KVSHM_NUMA_INTERLEAVE = 2, /* pages in turn on all nodes that this process may have memory of */
    KVSHM_NUMA_MIXED = 3,      /* had: a policy was set, and pages are elsewhere, where there was room */
};
/* Preferably on node n, 0 to 1023. */
#define KVSHM_NUMA_NODE(n) (256u + (n))

/* Which pages are written to the spill file. */
enum kvshm_admission {
    KVSHM_ADMIT_ALL = 0,    /* all that would leave memory */
    KVSHM_ADMIT_REUSED = 1, /* those of entries that were used since they were inserted; the others are dropped when memory
                               is needed. kvshm_flush() writes all */
};

/*
 * What a page is. Either num_layers, num_kv_heads, head_dim and dtype are set (a page is then
 * [num_layers, 2, page_tokens, num_kv_heads * head_dim] of dtype), or page_bytes alone (an opaque page).
 * With shards > 1 a page is that many equal parts, one behind the other, one for each tensor-parallel rank;
 * a part must be a multiple of 64 bytes, and the heads (or page_bytes) must divide.
 */
struct kvshm_geometry {
    uint32_t num_layers;   /* 1 to 65535, or 0 with page_bytes */
    uint32_t num_kv_heads; /* 1 to 65535, or 0 with page_bytes */
    uint32_t head_dim;     /* 1 to 65535, or 0 with page_bytes */
    uint32_t dtype;        /* enum kvshm_dtype; default KVSHM_F32 */
    uint64_t page_bytes;   /* bytes of an opaque page, 1 to 2^40, or 0 */
    uint32_t page_tokens;  /* tokens a page holds, 1 to 2^20; default 64 */
    uint32_t shards;       /* equal parts of a page, 1 to 65535; default 1 */
    uint32_t token_scale;  /* what one token stands for, for display only, at least 1; default 1 */
    uint32_t reserved;     /* 0 */
};

/* Set all fields with kvshm_config_init() first. */
struct kvshm_config {
    size_t size; /* sizeof(struct kvshm_config) of the caller */
    struct kvshm_geometry geometry;
    uint8_t fingerprint[KVSHM_FINGERPRINT_BYTES]; /* all zero: none named */
    const char *label;     /* shown to people, at most KVSHM_LABEL_MAX bytes; NULL: the program's name */
    uint64_t capacity;     /* entries kept, 0 keeps none; default KVSHM_UNLIMITED: memory alone decides */
    uint64_t frames;       /* pages that memory holds, 1 to 2^28 - 1; or 0, with memory_bytes */
    uint64_t memory_bytes; /* bytes of the whole segment; or 0, with frames */
    uint32_t max_clients;  /* attached processes that write, 1 to 4096; default 64 */
    uint32_t max_leases;   /* leases one client holds at once, and reservations likewise, 1 to 65535; default 512 */
    uint32_t backing;      /* enum kvshm_backing; default KVSHM_BACKING_AUTO */
    uint32_t numa;         /* enum kvshm_numa, or KVSHM_NUMA_NODE(n); default KVSHM_NUMA_AUTO */
    uint32_t mode;         /* permission bits of the file, whatever the umask; default 0600 */
    uint32_t group;        /* gid of the file; default UINT32_MAX: the creator's */
    uint32_t stall_ms;     /* how long a writer waits for another that does not move, and who wants a page back for another
                              that reads it, at most 3600000; default 1000 */
    uint32_t reserved;     /* 0 */

    uint32_t admission;    /* enum kvshm_admission; default KVSHM_ADMIT_ALL */
    const char *spill_path; /* file or block device that pages leave memory for, less than 256 bytes; others see it as it
                               stands here. NULL (the default): none, or, at attach, what KVSHM_SPILL or else the creator
                               says */
    uint64_t spill_bytes;  /* with spill_path: the most bytes that the file may have, one page's at least; default 0 */
    uint64_t wait_ms;      /* longest wait of KVSHM_WAIT; KVSHM_UNLIMITED: no bound; default 1000 */
};

/* A prompt prefix, by which entries are found. It borrows the caller's tokens for the time of the call. */
struct kvshm_prefix {
    uint64_t adapter_id;     /* 0: the base model */
    uint64_t tenant;         /* no lookup, match or insert crosses tenants */
    const uint32_t *tokens;  /* n token ids; NULL: key-only */
    uint32_t n;              /* tokens; a key-only lookup may say 0: whatever length */
    uint32_t reserved;       /* the library's own */
    uint8_t key[KVSHM_KEY_BYTES]; /* key-only: all 32 bytes are compared */
};

/*
 * The right to read a chain of pages in place, until released. 128 bytes for ever; all zero is empty.
 * lookup and match write the whole struct without reading it, whatever they answer.
 */
struct kvshm_lease {
    uint32_t tokens;         /* tokens the leased pages hold */
    uint32_t pages;          /* pages leased */
    uint32_t pending_tokens; /* tokens of what was found behind these pages, which are in the spill file and not in memory:
                                being read back, unless KVSHM_PEEK was given. 0 on handles without the file */
    uint32_t reserved;
    uint64_t last_used;      /* recency stamp of the entry that ends here, this use included; 0: none ends here */
    /* the library's own, not to be touched */
    kvshm *kv;
    uint64_t page_seq;
    uint32_t page;
    uint32_t word;
    uint64_t spare[10];
};

/* Frames being filled, found by no lookup until inserted. 128 bytes for ever; all zero is empty. */
struct kvshm_reservation {
    uint32_t pages; /* frames reserved */
    uint32_t flags; /* KVSHM_DEVICE or 0 */
    /* the library's own, not to be touched */
    kvshm *kv;
    uint32_t *frames;
    uint64_t epoch;
    uint32_t word;
    uint32_t reserved;
    uint64_t spare[11];
};

/* What kvshm_foreach() shows of an entry. */
struct kvshm_entry {
    size_t size; /* sizeof(struct kvshm_entry) of the library */
    uint64_t adapter_id;
    uint64_t tenant;
    uint64_t last_used;   /* recency stamp; larger is later */
    uint32_t tokens;      /* prefix_len */
    uint32_t pages;
    uint32_t leases;      /* lease words of the living that name its deepest page */
    bool key_only;
    uint8_t key[KVSHM_KEY_BYTES]; /* of a key-only entry, else zero */
    uint64_t page_id[2];  /* of its deepest page; never used twice */
};

/* How a client moves pages between memory and the spill file. */
enum kvshm_engine {
    KVSHM_ENGINE_NONE = 0,  /* not yet, or not at all */
    KVSHM_ENGINE_SYNC = 1,  /* pread and pwrite */
    KVSHM_ENGINE_RING = 2,  /* io_uring */
    KVSHM_ENGINE_FIXED = 3, /* io_uring with registered buffers */
};

struct kvshm_info {
    size_t size;
    char name[KVSHM_NAME_MAX + 1];
    char path[256];           /* where the segment is; empty if longer */
    uint64_t client;          /* this client's number; 0: read-only */
    uint64_t arena_id[2];
    uint64_t epoch;           /* 1, or the largest in the spill file that it was made on, and one more for each clear */
    struct kvshm_geometry geometry;
    uint8_t fingerprint[KVSHM_FINGERPRINT_BYTES];
    bool has_fingerprint;
    bool read_only;           /* this handle */
    bool hardware_clock;      /* recency stamps come from the invariant hardware counter, not a shared one */
    uint32_t backing_asked;   /* enum kvshm_backing */
    uint32_t backing;         /* had */
    char backing_reason[128]; /* why not a better one */
    uint32_t numa_asked;      /* enum kvshm_numa, or KVSHM_NUMA_NODE(n) */
    uint32_t numa;            /* had, when it was created: never KVSHM_NUMA_AUTO */
    uint64_t segment_bytes;
    uint64_t page_bytes;
    uint64_t frame_stride;    /* bytes from one frame to the next */
    const void *read_base;    /* the read-only mapping of the segment; offsets count from here */
    void *write_base;         /* the writable one, NULL if read-only; offsets count from here alike */
    uint64_t frames_offset;   /* of the frames in both */
    uint64_t frames_length;
    uint64_t frames;          /* in all */
    uint64_t frames_free;
    uint64_t frames_reserved; /* being filled, or of cancelled reservations not swept yet */
    uint64_t pages;           /* published, in memory */
    uint64_t pages_limbo;     /* evicted or removed, and still leased */
    uint64_t entries;         /* in memory and in the spill file */
    uint64_t capacity;
    uint32_t max_clients;
    uint32_t max_leases;
    uint32_t clients;         /* alive, that write */
    uint32_t stall_ms;
    uint32_t mode;            /* permission bits */
    uint32_t uid, gid;        /* of the file */
    uint32_t creator_pid, creator_uid;
    uint64_t created_ns;      /* CLOCK_REALTIME */
    uint64_t last_insert_ns;  /* 0: never */
    uint64_t last_evict_ns;
    uint64_t index_bytes;     /* of the segment: index words, page records, recency, frame owners */
    uint64_t token_bytes;     /* of the segment: tokens and keys */
    uint64_t slots;           /* of the spill file; 0: none */
    uint64_t slots_free;      /* those neither free nor of a page are being written, or their headers are to be erased */
    uint64_t pages_spilled;   /* in the spill file alone, being read back, or about to leave memory */
    uint64_t entries_spilled; /* that gave up their claim to memory */
    uint64_t wait_ms;
    uint32_t admission;       /* enum kvshm_admission */
    uint32_t engine;          /* of this handle: enum kvshm_engine */
    char engine_reason[64];   /* why not a better one */
};

/* The arena's counters since it was created, the same of the dead and the living; and what this process holds. */
struct kvshm_stats {
    size_t size;
    /* of this process, not of the arena: all its handles together */
    uint64_t private_bytes; /* bytes: of its own memory that the library holds now */
    int64_t private_arena; /* the jemalloc arena that they are in; -1: in none of its own, as on the C library */
    /* of the arena */
    uint64_t lookup_hits; /* calls: lookups answered with a lease */
    uint64_t match_hits; /* calls: matches answered with a lease */
    uint64_t hit_pages; /* pages: pages leased by lookups and matches */
    uint64_t hit_tokens; /* tokens: tokens leased by lookups and matches */
    uint64_t lookup_misses; /* calls: lookups of prefixes that are not cached */
    uint64_t match_misses; /* calls: matches that found no page */
    uint64_t gave_up; /* calls: lookups and matches that met a change at every look and answered a miss */
    uint64_t copied_pages; /* pages: pages copied out */
    uint64_t inserted_entries; /* entries: entries inserted */
    uint64_t existing_entries; /* entries: inserts of entries that existed */
    uint64_t replaced_entries; /* entries: key-only entries replaced */
    uint64_t extended_entries; /* entries: entries that grew */
    uint64_t published_pages; /* pages: pages published from a reservation */
    uint64_t shared_pages; /* pages: pages of an insert that were cached already */
    uint64_t recalled_pages; /* pages: pages called back from limbo */
    uint64_t evicted_entries; /* entries: entries evicted */
    uint64_t evicted_pages; /* pages: pages taken away since no entry needed them any more */
    uint64_t removed_entries; /* entries: entries removed by name */
    uint64_t cleared_entries; /* entries: entries dropped by clear */
    uint64_t reserved_pages; /* pages: frames reserved */
    uint64_t cancelled_pages; /* pages: frames of cancelled reservations */
    uint64_t no_space; /* calls: reservations refused because all frames were held */
    uint64_t takeovers; /* calls: writer locks taken over from the dead, each followed by a rebuild */
    uint64_t stalls; /* calls: calls refused because the holder of the writer lock had stopped */
    uint64_t left_pages; /* pages: pages that left memory and stay in the spill file */
    uint64_t spilled_pages; /* pages: pages written to the spill file */
    uint64_t restored_pages; /* pages: pages read back from the spill file */
    uint64_t pending_lookups; /* calls: lookups and matches answered before pages of theirs came from the spill file */
    uint64_t restore_failures; /* pages: pages that could not be read back, or were not what was written */
    uint64_t spill_failures; /* pages: pages that could not be written to the spill file */
    uint64_t spill_full; /* calls: times that the spill file had no slot to give */
    uint64_t spill_bytes_written; /* bytes: bytes written to the spill file, headers included */
    uint64_t spill_bytes_read; /* bytes: bytes read from the spill file */
};

/* ---- Version, errors -------------------------------------------------------------------------------- */

/* "major.minor.patch" of the library that runs; static storage, any thread, never NULL. */
KVSHM_API const char *kvshm_version(void);

/*
 * The sentence of a code: 0, an outcome, -errno or KVSHM_E_...; never NULL, static storage (of the calling
 * thread for -errno).
 */
KVSHM_API const char *kvshm_strerror(int code);

/*
 * What went wrong in the last call of the calling thread that failed, with values, limits and the remedy.
 * kv may be NULL (a call that made no handle). Good until the thread's next call that fails. Never NULL.
 */
KVSHM_API const char *kvshm_errmsg(kvshm *kv);

/* ---- Making, attaching, removing --------------------------------------------------------------------- */

/*
 * Set size and all defaults. The function takes the caller's size, for languages without macros; bytes
 * beyond it are not touched.
 */
KVSHM_API void kvshm_config_init_sized(struct kvshm_config *config, size_t size);
#define kvshm_config_init(config) kvshm_config_init_sized((config), sizeof(struct kvshm_config))

/*
 * Create an arena and attach to it.
 *
 * name    [A-Za-z0-9][A-Za-z0-9._-]{0,63}; it becomes a file in KVSHM_DIR if that is set, else in a mount of hugetlbfs
 *         or in the POSIX shared-memory directory, as .backing wants it
 * config  geometry and one of .frames and .memory_bytes at least. With .spill_path the arena has a spill file: made if
 *         nothing, an empty file or a zeroed device is there; adopted with the pages in it if a spill file is, which
 *         keeps its size, and must have the same page, geometry and fingerprint (or neither has one)
 * flags   KVSHM_POPULATE or 0
 * out     the handle; NULL after an error
 *
 * 0; -EINVAL (name, flag, a field, a node that has no memory for this process), KVSHM_E_GEOMETRY, -EEXIST,
 * KVSHM_E_CONFLICT; -ENOSPC: the file system, a pool, a cgroup or the host has too little (numbers and remedy in the
 * message); -ENODEV, -ENOMEM, -EACCES, -EROFS (the backing asked for is not to be had), -EFBIG (RLIMIT_FSIZE), -E2BIG
 * (too many mounts); -ENOMEM also: a process that took the memory was killed, or could not be made; -EPERM,
 * -EOPNOTSUPP: a NUMA policy that was asked for by name cannot be set; KVSHM_E_BUSY_CREATORS, -errno of the system; of
 * the spill file: -EBUSY (another arena's clients or a tool have it open), -EINVAL, -ENOSPC, KVSHM_E_FORMAT, _VERSION,
 * _BYTE_ORDER, _DAMAGED, _GEOMETRY, _FINGERPRINT: it stays as it was. Nothing is left behind by an error, nor by a
 * creator that is killed, but for a new spill file of the latter. Blocks while it takes the memory, by child processes
 * of its own that no handler of the caller's meets, and up to 10 s while others create.
 */
KVSHM_API int kvshm_create(const char *name, const struct kvshm_config *config, unsigned flags, kvshm **out);

/*
 * Attach to an arena that exists.
 *
 * expect  may be NULL. Taken: .label, .spill_path and .fingerprint (all zero: none named). .geometry is compared if
 *         .num_layers or .page_bytes is set. All else is the creator's and is not looked at
 * flags   KVSHM_RDONLY, KVSHM_POPULATE, KVSHM_NOTIER or 0
 *
 * An arena with a spill file: it is looked for at .spill_path, else at KVSHM_SPILL of the environment (not in programs
 * with more rights than their user), else at the creator's path, a hint: that has to belong to the segment's owner. No
 * symbolic link is followed, and the file's header has to have the arena's id, read under a shared lock. If it is not
 * to be had: KVSHM_E_NOSPILL. KVSHM_RDONLY and KVSHM_NOTIER do not look for it.
 *
 * 0; -EINVAL, -ENOENT, -EACCES, -ELOOP (the name is a symbolic link), KVSHM_E_FORMAT, _VERSION, _FEATURE, _BYTE_ORDER,
 * _BOOT, _DAMAGED, _GEOMETRY, _FINGERPRINT, _CLIENTS, _CONFLICT, _UNLINKED, _NOSPILL, _STALLED (it names the arena's
 * first fingerprint, as a writer), -ENOMEM, -errno of the system.
 */
KVSHM_API int kvshm_attach(const char *name, const struct kvshm_config *expect, unsigned flags, kvshm **out);

/*
 * Attach with config as expect, or create if there is no arena of the name. Many processes may open one name
 * at the same moment: one creates, the others attach. Errors of both; config is NULL: -EINVAL. With KVSHM_RDONLY it
 * only attaches, and config may be NULL. KVSHM_NOTIER is of no effect on who creates.
 */
KVSHM_API int kvshm_open(const char *name, const struct kvshm_config *config, unsigned flags, kvshm **out);

/*
 * Give the handle back. -EBUSY while this handle holds leases or reservations, or another thread is inside a call on it
 * that changes the arena, joins or leaves, or waits for the spill file (nothing is changed then). No other thread may
 * be inside any other call on it, nor use it after. Waits for transfers of the handle that are in flight; prefixes not
 * begun are not read; nothing is flushed. In a forked child it frees the child's copy.
 * kv may be NULL.
 */
KVSHM_API int kvshm_detach(kvshm *kv);

/*
 * Remove the name and with its last user the memory; the spill file stays. -EBUSY while clients are alive, named in
 * the message, unless flags has KVSHM_FORCE: they go on reading, and their next write is KVSHM_E_UNLINKED, as may be
 * that of a client that attaches at this very moment. -ENOENT,
 * -EINVAL, KVSHM_E_FORMAT (the file is no arena), _CONFLICT, _UNLINKED (another was faster), _BUSY_CREATORS, -errno.
 */
KVSHM_API int kvshm_unlink(const char *name, unsigned flags);

/* Called for each arena; a non-zero answer stops the list and becomes kvshm_list's. Strings last for the call. */
typedef int (*kvshm_name_fn)(const char *name, const char *path, void *arg);

/* All names in the places where arenas live, in no order; files that are no arenas are passed over. 0, fn's answer, or
   -errno (-ENOENT: KVSHM_DIR names a folder that is not there). */
KVSHM_API int kvshm_list(kvshm_name_fn fn, void *arg);

/* ---- Pure functions ---------------------------------------------------------------------------------- */

/* FxHash of n token ids as rustc-hash 2.1 computes it for a [u32] slice. tokens may be NULL if n is 0. */
KVSHM_API uint64_t kvshm_hash_tokens(const uint32_t *tokens, size_t n);

/* Bytes of one page; 0: the geometry is not valid, or the size overflows. */
KVSHM_API uint64_t kvshm_page_bytes(const struct kvshm_geometry *geometry);

/* Pages that hold so many tokens: rounded up; 0 if either is 0. */
KVSHM_API uint32_t kvshm_pages_for_tokens(uint32_t tokens, uint32_t page_tokens);

/* A prefix of n >= 1 tokens; they are borrowed, not copied. With tokens NULL or n 0 every call is -EINVAL. */
KVSHM_API void kvshm_prefix_init(struct kvshm_prefix *prefix, uint64_t adapter_id, uint64_t tenant,
                                 const uint32_t *tokens, uint32_t n);

/* A key-only prefix as the 64-bit hash of n tokens: the key is the hash's eight bytes, little-endian, then zero. */
KVSHM_API void kvshm_prefix_init_hash(struct kvshm_prefix *prefix, uint64_t adapter_id, uint64_t tenant,
                                      uint64_t token_hash, uint32_t n);

/* A key-only prefix: the caller vouches that equal keys mean equal content. n = 0 in a query: whatever length. */
KVSHM_API void kvshm_prefix_init_key(struct kvshm_prefix *prefix, uint64_t adapter_id, uint64_t tenant,
                                     const uint8_t key[KVSHM_KEY_BYTES], uint32_t n);

/* ---- Finding ----------------------------------------------------------------------------------------- */

/*
 * Lease the entry with exactly these tokens (or this key and length).
 *
 * flags   KVSHM_PEEK: no lease, no touch (.tokens and .pages tell what is in memory, .pending_tokens what is behind
 *         it in the spill file); with KVSHM_TOUCH: touch it. KVSHM_WAIT: see below
 * lease   written in full: the lease, or empty
 *
 * All or nothing: while a page of it is in the spill file alone the answer is KVSHM_PENDING, and the client's I/O
 * thread reads it back (not with KVSHM_PEEK); look again later, or see kvshm_wait(). With KVSHM_WAIT the call waits
 * first, and KVSHM_PENDING says that wait_ms are over, or that it cannot be read now (no frame, no memory). A page
 * that cannot be read, or is not what was inserted, is no longer cached, nor is what is behind it. Pages come back
 * root first.
 *
 * 0; KVSHM_PENDING; KVSHM_MISS; -EINVAL; KVSHM_E_LEASES, _FINGERPRINT, _READ_ONLY, _DAMAGED (this client's place in
 * the tables was overwritten: what it leased would not count; these three without PEEK, or with TOUCH), _FORKED.
 * Without KVSHM_WAIT it waits for nobody, ever; a hit makes no system call and allocates nothing. With it, and pages
 * pending, it waits wait_ms at most; what is in flight for it then goes on.
 */
KVSHM_API int kvshm_lookup(kvshm *kv, const struct kvshm_prefix *prefix, unsigned flags, struct kvshm_lease *lease);

/*
 * Lease the longest cached prefix of these tokens: whole pages from the first, then at most one page that
 * holds fewer tokens than it could, all of which equal the next ones. .tokens and .pages tell how much. Touches
 * the entry that ends where the answer ends; with KVSHM_TOUCH, if none ends there, one that runs through it.
 *
 * Of what is cached a head may be in memory and the rest in the spill file: the head is leased, the answer 0, and
 * .pending_tokens the rest, which is being read back; without a head, KVSHM_PENDING. With KVSHM_WAIT the call first
 * waits until nothing of it is pending; when time is up it answers as without.
 *
 * As kvshm_lookup; key-only prefixes are -EINVAL.
 */
KVSHM_API int kvshm_match(kvshm *kv, const struct kvshm_prefix *prefix, unsigned flags, struct kvshm_lease *lease);

/* Is there an entry with exactly these tokens (or this key), in memory or in the spill file of this handle? No lease, no
   touch, nothing is read back; false also after any error. */
KVSHM_API bool kvshm_contains(kvshm *kv, const struct kvshm_prefix *prefix);

/* Page i of the lease, page_bytes long, read-only; NULL past the end, or if the tables were damaged. Good until the
   release. */
KVSHM_API const void *kvshm_lease_page(const struct kvshm_lease *lease, uint32_t i);

/* Pages first to first + n - 1 into out[0..n-1]; all in one walk. How many were given: fewer at the end, 0 past it,
   and of an empty lease, or if the tables were damaged; KVSHM_E_FORKED. */
KVSHM_API int kvshm_lease_pages(const struct kvshm_lease *lease, uint32_t first, uint32_t n, const void **out);

/* The same as offsets into the segment, from .read_base and .write_base alike (see kvshm_at). */
KVSHM_API int kvshm_lease_offsets(const struct kvshm_lease *lease, uint32_t first, uint32_t n, uint64_t *out);

/* A tag and the time of this call, which kvshm -p shows beside the lease. */
KVSHM_API void kvshm_lease_tag(struct kvshm_lease *lease, uint32_t tag);

/*
 * End the lease: one store, from any thread. An empty lease is let be, and so is one of another handle than kv. The
 * struct is empty afterwards.
 */
KVSHM_API void kvshm_release(kvshm *kv, struct kvshm_lease *lease);

/*
 * Copy pages first_page to first_page + n - 1 of the entry with exactly these tokens (or this key) to dst,
 * page_bytes apart. The number of pages copied (fewer at the end); 0: a miss, n is 0, or first_page is past the end.
 * An entry with pages in the spill file alone is a miss; a writing client has them read back.
 * A writing client takes a lease for it, and touches; a read-only one copies and then proves that no page moved
 * meanwhile. -EINVAL (prefix; dst is NULL), KVSHM_E_LEASES, _FINGERPRINT, _DAMAGED, _FORKED.
 */
KVSHM_API int64_t kvshm_copy_out(kvshm *kv, const struct kvshm_prefix *prefix, uint32_t first_page, uint32_t n,
                                 void *dst);

/* ---- Filling ----------------------------------------------------------------------------------------- */

/*
 * Reserve npages >= 1 frames to write into; the oldest entries leave if frames run out. With a spill file, pages that
 * are in it leave memory first, and stay cached; if these do not suffice the oldest entries are dropped, counted.
 *
 * flags   KVSHM_DEVICE; KVSHM_WAIT: before entries are dropped that the file can take, wait for the disk, wait_ms at
 *         most
 * r       written in full
 *
 * 0; -ENOSPC at once if what is not leased or reserved does not suffice, and for more pages than the arena has
 * frames; with KVSHM_NOTIER also if only pages that are not in the file are left; -EINVAL, KVSHM_E_LEASES, _STALLED,
 * _UNLINKED, _READ_ONLY, _FORKED, _DAMAGED, -ENOMEM, -errno of the system. Content of the frames is undefined. May
 * wait up to stall_ms for another writer, and with KVSHM_WAIT for the disk.
 */
KVSHM_API int kvshm_reserve(kvshm *kv, uint32_t npages, unsigned flags, struct kvshm_reservation *r);

/* Frame i of the reservation, page_bytes long, writable; NULL past the end. */
KVSHM_API void *kvshm_reservation_page(const struct kvshm_reservation *r, uint32_t i);

/* Offsets of frames first to first + n - 1 into out; how many were given, or KVSHM_E_FORKED. */
KVSHM_API int kvshm_reservation_offsets(const struct kvshm_reservation *r, uint32_t first, uint32_t n, uint64_t *out);

/* Give the frames back unused: from any thread, never waits. An empty reservation, or one of another handle, is let be. */
KVSHM_API void kvshm_cancel(kvshm *kv, struct kvshm_reservation *r);

/*
 * Publish the reserved frames as the pages of prefix, behind the whole pages of head.
 *
 * head    a lease whose tokens prefix begins with, or NULL or empty. Pages needed = pages of the prefix - whole
 *         pages of head; r must hold exactly so many (r may be NULL or empty if that is 0)
 * flags   KVSHM_EXTEND, KVSHM_HOLD (then head is not NULL, but may be empty)
 *
 * 0: a new entry. KVSHM_EXISTS: it was there and was touched. KVSHM_REPLACED: the key-only entry was there; the
 * new pages are served now. Every outcome >= 0 consumes r. With KVSHM_HOLD head is then a lease of the whole
 * prefix. Where an equal page is cached already it is used, and our frame goes back.
 *
 * -EINVAL: n is 0, counts that do not fit, a head of other tokens, adapter or tenant, a key-only prefix behind a
 * head that is not empty; KVSHM_E_STALE, _FINGERPRINT, _STALLED, _UNLINKED, _LEASES, _READ_ONLY, _FORKED,
 * _DAMAGED, -ENOSPC (no index word to be had), -ENOMEM, -errno of the system. An error keeps r and head.
 *
 * In an arena with a spill file checksums of the frames are taken first; the disk is not waited for, but by who
 * replaces a key-only entry: the call returns when the old pages are gone from the file too, durably. If they are not,
 * KVSHM_E_STALLED (another client did not go on with what it was writing for stall_ms) or -errno: then memory has the
 * new pages, and r is consumed (.pages is 0). With KVSHM_NOTIER it is KVSHM_E_NOSPILL, and nothing has changed.
 */
KVSHM_API int kvshm_insert(kvshm *kv, const struct kvshm_prefix *prefix, struct kvshm_lease *head,
                           struct kvshm_reservation *r, unsigned flags);

/* ---- Other processes of the same server --------------------------------------------------------------- */

/*
 * The address of an offset in this process, read-only and writable; NULL unless it is in a frame. Valid while
 * the client that leased or reserved the frame holds it, or has died and this one has joined it.
 */
KVSHM_API const void *kvshm_at(kvshm *kv, uint64_t offset);
KVSHM_API void *kvshm_at_writable(kvshm *kv, uint64_t offset);

/*
 * Join a client (its info.client): what it leases or reserves stays after its death until this one leaves, or
 * dies too. 0, also if joined already; -ESRCH: it is not alive; -EINVAL: own number or 0; -ENOSPC: eight are
 * joined; KVSHM_E_READ_ONLY, _FORKED.
 */
KVSHM_API int kvshm_join(kvshm *kv, uint64_t client);

/* Leave it: one store. 0; -ENOENT: was not joined. */
KVSHM_API int kvshm_leave(kvshm *kv, uint64_t client);

/*
 * The calls below change the arena, and so may answer, besides what is said there, KVSHM_E_STALLED (after stall_ms),
 * _UNLINKED, _READ_ONLY, _FORKED, _DAMAGED, -EINVAL (handle or prefix), or -errno of the system.
 */

/* ---- Giving up ---------------------------------------------------------------------------------------- */

/*
 * Forget the entry. 0 or KVSHM_MISS. Leases of its pages stay good. With a spill file both mean that the file has
 * forgotten it too, durably, and what was removed before: the call erases, and waits for the disk, and for clients
 * that were writing as long as they go on within stall_ms. Else KVSHM_E_STALLED or -errno: memory has forgotten it,
 * and an arena made on the file may have it again, until a later call, for any prefix, answers 0 or KVSHM_MISS.
 * KVSHM_E_NOSPILL: KVSHM_NOTIER; nothing has changed.
 */
KVSHM_API int kvshm_remove(kvshm *kv, const struct kvshm_prefix *prefix);

/*
 * Evict the least recently used entry. The number of frames given back at once (pages that are leased come
 * back when released, shared ones stay), 0 also if nothing is cached; or a negative error. With a spill file the entry
 * leaves memory for it; what has to be written first leaves when that is done, and is not counted or waited for; what
 * is not admitted is dropped. With KVSHM_NOTIER the oldest that is in the file already leaves. -EAGAIN: no thread is
 * to be had.
 */
KVSHM_API int64_t kvshm_evict_lru(kvshm *kv);

/*
 * Forget every entry, of all clients. Leases stay good; reservations and heads from before are KVSHM_E_STALE at
 * insert. 0. With a spill file its new epoch is durable there before it is in memory, so that nothing from before
 * comes back; an error may leave it in the file alone: then memory has all as before, and an arena made on the file
 * later begins without it. KVSHM_E_NOSPILL: KVSHM_NOTIER; nothing has changed.
 */
KVSHM_API int kvshm_clear(kvshm *kv);

/* ---- The spill file ----------------------------------------------------------------------------------- */

/*
 * Pages move by one thread of the client, which the first call that needs it starts, with all signals blocked; it ends
 * at detach. After a kill, what it was reading is read by those who want it, at once; frames and slots of its
 * transfers come back when these have landed. In a forked child there is no such thread, and all descriptors of the
 * handle are closed.
 */

/*
 * Start reading back what of these n prefixes is in the spill file and not in memory: of tokens the longest cached
 * prefix, of a key its entry. How many have something pending (0 also on handles without a spill file). Waits for
 * nobody. -EINVAL (prefixes is NULL and n not 0, a prefix), -ENOMEM, -EAGAIN (no thread is to be had), KVSHM_E_FORKED;
 * prefixes before the one at fault were asked for. No tokens are kept. Any thread.
 */
KVSHM_API int kvshm_prefetch(kvshm *kv, const struct kvshm_prefix *prefixes, size_t n);

/*
 * Wait until some of what lookups and matches without KVSHM_WAIT of this handle found pending, or it has prefetched,
 * came or failed, timeout at most (NULL: no bound). How many since the last call, each told once, and those asked for
 * again before they were begun counted once; look again to see which. 0: time is up, or nothing is pending. -EINVAL
 * (timeout), -ENOTSUP (the handle has no spill file), KVSHM_E_FORKED. Any thread.
 */
KVSHM_API int kvshm_wait(kvshm *kv, const struct timespec *timeout);

/*
 * A descriptor that is readable when kvshm_wait() has something to tell; only that call makes it unreadable. The
 * handle's, the same at each call, closed at detach and in a forked child; not to be read, written or closed. -ENOTSUP
 * (no spill file), KVSHM_E_FORKED, -errno of the system.
 */
KVSHM_API int kvshm_eventfd(kvshm *kv);

/*
 * Write all pages that are in memory alone, whatever the admission, and sync. 0: what was cached when the call began,
 * and was not given up since, is on the device. Entries that are in the file alone are dropped if slots run out. Waits
 * for the disk, without a bound, and for other clients that write, as long as they go on within stall_ms. -ENOTSUP (no
 * spill file), -ENOSPC (fewer slots than pages in memory), -EIO or another -errno of disk or system, KVSHM_E_STALLED,
 * _UNLINKED, _DAMAGED, _FORKED: a part may have been written, and nothing is lost. Any thread.
 */
KVSHM_API int kvshm_flush(kvshm *kv);

/* ---- Looking ------------------------------------------------------------------------------------------ */

/* The function takes the caller's size; bytes beyond it are never touched. */
KVSHM_API void kvshm_info_init_sized(struct kvshm_info *info, size_t size);
#define kvshm_info_init(info) kvshm_info_init_sized((info), sizeof(struct kvshm_info))
KVSHM_API void kvshm_stats_init_sized(struct kvshm_stats *stats, size_t size);
#define kvshm_stats_init(stats) kvshm_stats_init_sized((stats), sizeof(struct kvshm_stats))

/* What the arena is and holds now. 0, -EINVAL (size), KVSHM_E_FORKED, -errno of the system. Also of a read-only handle. */
KVSHM_API int kvshm_info(kvshm *kv, struct kvshm_info *info);

/* The counters, and what this process holds. 0, -EINVAL (size), KVSHM_E_FORKED. Also of a read-only handle. */
KVSHM_API int kvshm_stats(kvshm *kv, struct kvshm_stats *stats);

/* A non-zero answer stops the walk and becomes kvshm_foreach's. The entry lasts for the call. */
typedef int (*kvshm_entry_fn)(const struct kvshm_entry *entry, void *arg);

/*
 * Each entry, in no order, without a lock: one that is there throughout is shown once; one that comes, goes or
 * is replaced meanwhile may be missed. fn may call any function on kv but kvshm_detach(). 0, fn's answer, -EINVAL,
 * -ENOMEM, KVSHM_E_FORKED.
 */
KVSHM_API int kvshm_foreach(kvshm *kv, kvshm_entry_fn fn, void *arg);

#ifdef __cplusplus
}
#endif

#endif /* KVSHM_H */
