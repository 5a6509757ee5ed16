/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - every byte of the segment. Structs, constants, static asserts; no code.
 *
 * The segment is one file, mapped by every client: the header (4096 bytes), then the sections its directory
 * names, then, page-aligned, the frames. All zero is the empty state of every section, so a new arena is made
 * by writing its header alone. There are no pointers, only numbers of places and offsets from the segment's
 * first byte; no libc types; all integers in the byte order of the host, which the header states.
 *
 * Who may write a field is said beside it:
 *   creator  before the segment has its name, never after
 *   lock     the owner of the writer lock
 *   owner    the client whose place it stands in (any of its threads)
 *   any      any writing client, by the atomic step described
 * A field marked "derived" can be rebuilt from the others (see mend.c) and may be wrong after a death, until the
 * next writer has rebuilt it; readers never rely on it.
 *
 * Numbers: a record number or frame number is 0 .. count - 1; where 0 has to mean "none" the number is stored
 * plus one, and the field's name ends in 1.
 *
 * Bytes of the index besides tokens, for each page, whether or not an entry ends there: record 128, links 24, index words
 * 16, heap 16, and 16 of the frame's owner: 200. Of these 48 are there for an entry that ends at the page (stamp, policy,
 * heap, 16 of the caller's), 152 for the page.
 *
 * Room for what comes later, so that it needs no change of this layout:
 *   slots and transfers, event ring, limits of tenants   free entries of the directory, kinds 11 to 14 below
 *   slot of a page                                       kvshm_record.slot (a word outside the sequence)
 *   states of a place: leaving, restoring                KVSHM__PLACE_LEAVING (readers know it), KVSHM__PLACE_RESTORING
 *   8 bytes of a policy beside each recency stamp        kvshm_record.policy
 *   16 bytes of the caller's in an entry                 kvshm_record.caller
 *   settings of a second tier                            kvshm_settings: wait_ms, admission, watermarks, spill_bytes
 *   I/O engine of a client and its reason                kvshm_client.engine, .engine_reason
 *   the quiet byte                                       taken and asked by client.c from the start
 *   a path of a spill file                               kvshm_static.spill_path
 *   more counters                                        48 words a client and in the totals, 20 in use
 */
#ifndef KVSHM_LAYOUT_H
#define KVSHM_LAYOUT_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "kvshm.h"

typedef _Atomic(uint64_t) kvshm_a64;
typedef _Atomic(uint32_t) kvshm_a32;

#define KVSHM__MAGIC "KVSHM\r\n\032"
#define KVSHM__LAYOUT_VERSION 1u
#define KVSHM__BYTE_ORDER 0x01020304u
#define KVSHM__HEADER_BYTES 4096u
#define KVSHM__LINE 64u

/* Feature masks: bits a library must know to attach at all, to attach writing, or not at all. None yet. */
#define KVSHM__INCOMPAT_KNOWN 0u
#define KVSHM__RO_COMPAT_KNOWN 0u

#define KVSHM__FRAMES_MAX ((1u << 28) - 1)
#define KVSHM__CLIENT_NUMBER_MAX ((UINT64_C(1) << 44) - 1)
#define KVSHM__CLIENTS_MAX 4096u
#define KVSHM__JOINS 8
#define KVSHM__COUNTERS_ROOM 48
#define KVSHM__SECRET_BYTES 192
#define KVSHM__BUCKET_WORDS 8

/* The lock bytes of client n: alive at BASE + 2n, quiet at BASE + 2n + 1. Beyond any segment's end. */
#define KVSHM__LOCK_BASE (UINT64_C(1) << 50)

enum kvshm_section_kind {
    KVSHM__SEC_CLIENTS = 1,      /* struct kvshm_client[max_clients] */
    KVSHM__SEC_LEASES = 2,       /* struct kvshm_lease_word[max_clients * max_leases] */
    KVSHM__SEC_RESERVATIONS = 3, /* kvshm_a64[max_clients * max_leases] */
    KVSHM__SEC_BUCKETS = 4,      /* struct kvshm_bucket[buckets] */
    KVSHM__SEC_RECORDS = 5,      /* struct kvshm_record[records] */
    KVSHM__SEC_LINKS = 6,        /* struct kvshm_links[records] */
    KVSHM__SEC_TEXTS = 7,        /* words of text[records], text_stride bytes each */
    KVSHM__SEC_HEAP = 8,         /* struct kvshm_heap_slot[records] */
    KVSHM__SEC_OWNERS = 9,       /* struct kvshm_owner[frames] */
    KVSHM__SEC_FRAMES = 10,      /* frames, frame_stride bytes each */
    KVSHM__SEC_SLOTS = 11,       /* struct kvshm_slot[slots]; only with a spill file */
    KVSHM__SEC_AGES = 12,        /* struct kvshm_age[records]; only with a spill file */
    /* kept for: 13 event ring, 14 limits of tenants */
    KVSHM__SEC_KINDS = 13,
};
#define KVSHM__DIRECTORY_ROOM 16

struct kvshm_section {
    uint32_t kind;     /* enum kvshm_section_kind; 0: not in use */
    uint32_t reserved; /* 0 */
    uint64_t offset;   /* from the segment's first byte, a multiple of 64; of frames: of the page size */
    uint64_t length;   /* bytes */
    uint64_t stride;   /* bytes from one item to the next */
};

/*
 * Bytes 0 .. 2047: written by the creator, never after. Valid if and only if checksum is XXH3_64bits of the
 * bytes before it.
 */
struct kvshm_static {
    char magic[8];
    uint32_t layout_version;
    uint32_t byte_order;
    uint32_t header_bytes;
    uint32_t word_bytes;      /* sizeof(void *) of the creator: 8 */
    uint64_t compat;          /* feature masks */
    uint64_t ro_compat;
    uint64_t incompat;
    uint32_t client_bytes;    /* sizes of the structs below, as the creator knows them */
    uint32_t record_bytes;
    uint32_t links_bytes;
    uint32_t lease_word_bytes;
    uint64_t arena_id[2];     /* random */
    uint8_t boot_id[16];      /* of the kernel's boot in which it was made */
    uint64_t opening_id;      /* random: first half of the page ids given since */
    uint64_t created_ns;      /* CLOCK_REALTIME */
    uint32_t creator_pid;
    uint32_t creator_uid;
    uint64_t segment_bytes;
    uint64_t page_bytes;
    uint64_t frame_stride;
    uint64_t frames;
    uint64_t records;         /* frames and slots together */
    uint64_t buckets;
    uint64_t text_stride;
    uint32_t max_clients;
    uint32_t max_leases;
    uint32_t page_size;       /* of the mapping: a file made on larger pages has larger */
    uint32_t clock;           /* enum kvshm_clock */
    uint32_t backing_asked;
    uint32_t backing;
    uint32_t numa_asked;      /* enum kvshm_numa, or KVSHM_NUMA_NODE(n) */
    uint32_t numa;            /* had, never KVSHM_NUMA_AUTO */
    struct kvshm_geometry geometry;
    char name[72];
    char backing_reason[128];
    uint8_t secret[KVSHM__SECRET_BYTES]; /* key of the placement hash, random */
    char spill_path[256];     /* room: a hint to be proven; empty */
    struct kvshm_section directory[KVSHM__DIRECTORY_ROOM];
    uint64_t slots;           /* of the spill file; 0: none */
    uint8_t room[624];        /* 0 */
    uint64_t checksum;
};
static_assert(sizeof(struct kvshm_static) == 2048, "layout");

enum kvshm_clock {
    KVSHM__CLOCK_SHARED = 1,   /* kvshm_header.clock, one step a stamp */
    KVSHM__CLOCK_HARDWARE = 2, /* the invariant counter of the processor */
};

/*
 * The writer lock. word holds the client number of its owner, 0: free. Taken by compare-and-swap 0 -> own
 * number; given back by exchange with 0; taken over by compare-and-swap from a number that is not alive, and
 * then everything derived is rebuilt. Waiters sleep on the futex that is word's low half, 10 ms at most.
 */
struct kvshm_lock {
    kvshm_a64 word;
    kvshm_a32 waiters;  /* any: a hint that someone sleeps; the dead may leave it high */
    uint32_t reserved;
    kvshm_a64 turn;     /* lock: one more at each giving back: has the owner moved? */
    kvshm_a64 progress; /* lock: one more at each slice of a rebuild, or of other long work */
    uint8_t room[32];
};

/* lock (kvshmctl set): read at use. */
struct kvshm_settings {
    kvshm_a64 capacity;    /* entries; KVSHM_UNLIMITED */
    kvshm_a64 stall_ms;
    kvshm_a64 wait_ms;     /* room */
    kvshm_a64 admission;   /* room */
    kvshm_a64 spill_bytes; /* room */
    kvshm_a64 watermarks;  /* room: low and high, 32 bits each */
    uint8_t room[16];
};

/* Everything here is derived, and written under the lock. */
struct kvshm_derived {
    kvshm_a32 free_frame1;     /* first of the list of free frames through kvshm_owner.next1 */
    kvshm_a32 fresh_frame;     /* frames from here on have never been used */
    kvshm_a32 free_record1;    /* first of the list of free records through kvshm_links.link1 */
    kvshm_a32 fresh_record;    /* records from here on have never been used */
    kvshm_a32 limbo_first1;    /* list of pages in limbo through kvshm_links.link1, oldest first */
    kvshm_a32 limbo_last1;
    kvshm_a32 sweep_record;    /* records below hold nothing of an earlier epoch */
    kvshm_a32 heap_length;     /* entries in the heap; those behind are set aside for a while (recency.c) */
    kvshm_a64 frames_free;
    kvshm_a64 frames_reserved;
    kvshm_a64 pages;           /* published, of this epoch or not swept yet */
    kvshm_a64 limbo;           /* pages in limbo */
    kvshm_a64 entries;         /* in the heap and set aside */
    kvshm_a64 last_insert_ns;  /* CLOCK_REALTIME; not rebuilt */
    kvshm_a64 last_evict_ns;
    kvshm_a64 clear_ns;
    uint8_t room[32];
};

/* A list of entries through kvshm_age, in the order in which they came into it. */
struct kvshm_age_list {
    kvshm_a32 first1;
    kvshm_a32 last1;
    kvshm_a64 length;
};

/* The same, of the second tier; but moment is no derived one. */
struct kvshm_tier_derived {
    kvshm_a32 free_slot1;      /* first of the list of free slots through kvshm_slot.next1 */
    kvshm_a32 fresh_slot;      /* slots from here on have never been used */
    kvshm_a64 slots_free;
    kvshm_a64 slots_written;   /* those of pages */
    kvshm_a64 pages_spilled;   /* SPILLED, RESTORING and PARTING */
    kvshm_a64 pages_kept;      /* in the heap, though no entry ends at them */
    kvshm_a64 frames_restoring;
    struct kvshm_age_list left; /* entries that gave up memory */

    /* 64 */
    kvshm_a32 doomed_first1;   /* list of slots whose headers are to be erased, through kvshm_slot.next1, the first doomed first */
    kvshm_a32 doomed_last1;
    kvshm_a64 doomed;          /* slots that ever came into it, */
    kvshm_a64 undoomed;        /* and that were taken out of it */
    kvshm_a32 disordered;      /* 1: the list is not in the order of moments, until it is empty */
    uint32_t reserved;
    kvshm_a64 moment;          /* advanced by all whose pages have to go from the file (slots.h) */
    struct kvshm_age_list unwritten; /* entries in memory that may not be in the file, or not all of them */
    uint8_t room[8];
};
static_assert(sizeof(struct kvshm_tier_derived) == 2 * KVSHM__LINE, "layout");

struct kvshm_header {
    struct kvshm_static fixed;

    /* 2048: read by every lookup; written at a clear and when the fingerprint is named. */
    kvshm_a64 epoch;           /* lock: 1, one more at each clear. A page of another epoch is not cached */
    kvshm_a32 has_fingerprint; /* lock: 0 or 1, after the four words */
    uint32_t reserved0;
    kvshm_a64 fingerprint[4];  /* lock, once, while has_fingerprint is 0 */
    uint8_t room0[16];

    /* 2112: read by matches; lock. Lengths of partial pages without a parent (see kvshm_record.partials). */
    kvshm_a64 root_partials;
    uint8_t room1[56];

    /* 2176 */
    struct kvshm_lock lock;

    /* 2240 */
    kvshm_a64 next_client;     /* any, fetch-add: the number given last */
    kvshm_a32 sweep_wanted;    /* any, store of 1: reservations were cancelled, or their owner's place was taken */
    uint32_t reserved2;
    uint8_t room2[48];

    /* 2304: any, fetch-add; in use if fixed.clock says so. */
    kvshm_a64 clock;
    uint8_t room3[56];

    /* 2368 */
    struct kvshm_settings settings;

    /* 2432 */
    kvshm_a64 next_page_id;    /* lock: second half of the page id given last */
    uint8_t room4[56];

    /* 2496 */
    struct kvshm_derived derived;

    /* 2624: any, fetch-add: counters of clients whose places were taken over. */
    kvshm_a64 totals[KVSHM__COUNTERS_ROOM];

    /* 3008 */
    struct kvshm_tier_derived tier;
    uint8_t room5[960];
};
static_assert(sizeof(struct kvshm_header) == KVSHM__HEADER_BYTES, "layout");
static_assert(offsetof(struct kvshm_header, epoch) == 2048, "layout");
static_assert(offsetof(struct kvshm_header, lock) == 2176, "layout");
static_assert(offsetof(struct kvshm_header, derived) == 2496, "layout");
static_assert(offsetof(struct kvshm_header, totals) == 2624, "layout");

/*
 * The place of a client. In use if number is not 0. Taken (compare-and-swap from 0, or from a number that is not
 * alive, is quiet, is joined by none living, and holds no KVSHM_DEVICE frames) by a client that holds both its
 * locks; then its counters are added to the totals and the rest is overwritten. Given back by a store of 0.
 */
struct kvshm_client {
    kvshm_a64 number;         /* any */
    kvshm_a32 lease_high;     /* owner: lease words from here on have never been used by this client */
    uint32_t reserved;
    kvshm_a64 device_frames;  /* lock: frames reserved with KVSHM_DEVICE under this number */
    kvshm_a64 swept;          /* derived, lock: the number whose frames were swept after its death */
    uint8_t room0[32];
    kvshm_a64 joins[KVSHM__JOINS]; /* owner: numbers of the clients it has joined, 0: none */
    char label[64];           /* owner, at attach; for people */
    uint32_t pid;             /* owner, at attach; for people, in its own PID namespace */
    uint32_t uid;
    uint64_t pid_namespace;   /* inode of /proc/self/ns/pid, 0: unknown */
    uint64_t start_ticks;     /* field 22 of /proc/self/stat */
    uint64_t attached_ns;     /* CLOCK_REALTIME */
    kvshm_a32 engine;         /* owner, after its reason: enum kvshm_engine; for people */
    uint32_t reserved1;
    kvshm_a64 since[2];       /* lock: of its batch of slots that is being written, and erased: the earliest moment of what it
                                 is at; 0: there is none */
    uint8_t room1[8];
    kvshm_a64 engine_reason[8]; /* owner: text, why no better one; for people */
    uint8_t room2[64];
    kvshm_a64 counters[KVSHM__COUNTERS_ROOM]; /* owner, fetch-add: those of counters.def that stand on no lease line */
};
static_assert(sizeof(struct kvshm_client) == 768, "layout");
static_assert(offsetof(struct kvshm_client, counters) == 384, "layout");

/*
 * A lease word, on a line of its own. word is 0 or names the deepest page of a leased chain: bits 0-31 the
 * record number + 1, bits 32-39 flags (0), bits 40-63 the low bits of the record's sequence / 2. It counts if and
 * only if the client of its place is alive, or is joined by a living one.
 */
struct kvshm_lease_word {
    kvshm_a64 word;    /* owner: claimed by compare-and-swap 0 -> word; released by a store of 0 */
    kvshm_a32 tag;     /* owner */
    uint32_t reserved;
    kvshm_a64 tag_ns;  /* owner; CLOCK_REALTIME */
    kvshm_a64 counters[4]; /* owner, by who holds word: the lease counters of counters.def */
    uint8_t room[8];
};
static_assert(sizeof(struct kvshm_lease_word) == 64, "layout");

/* Words of a client's reservation table. */
enum kvshm_reservation_state {
    KVSHM__RESERVATION_EMPTY = 0,     /* lock: no frame names it */
    KVSHM__RESERVATION_HELD = 1,      /* lock, at reserve */
    KVSHM__RESERVATION_CANCELLED = 2, /* owner: its frames are to be swept */
    KVSHM__RESERVATION_SWEPT = 3,     /* lock: its frames are being swept */
};

/*
 * One cache line of the index. A word is 0 or names a record: bits 0-31 the record number + 1, bits 32-63 the low
 * half of the page's placement hash. A page's word stands in one of the two buckets that its hash gives, and
 * never moves. lock.
 *
 * A page is published if and only if a word names its record and has the record's hash, its place is RESIDENT
 * or LEAVING, and its epoch is the arena's. An entry is published if and only if its deepest page is, and that
 * page's stamp is not 0.
 */
struct kvshm_bucket {
    kvshm_a64 word[KVSHM__BUCKET_WORDS];
};
static_assert(sizeof(struct kvshm_bucket) == KVSHM__LINE, "layout");

/* The place word of a page: bits 0-27 frame, bits 28-31 state, bits 32-63 count of moves, never reset. */
enum kvshm_place_state {
    KVSHM__PLACE_NONE = 0,      /* in no frame: the record is free */
    KVSHM__PLACE_RESIDENT = 1,  /* in its frame */
    KVSHM__PLACE_LEAVING = 2,   /* the same, being evicted: a hit calls it off by compare-and-swap to RESIDENT */
    KVSHM__PLACE_AWAY = 3,      /* taken away: found by no reader; in limbo while held */
    KVSHM__PLACE_RESTORING = 4, /* its frame is being read into, by the client that the frame's owner word names */
    KVSHM__PLACE_SPILLED = 5,   /* in no frame, but in its slot */
    KVSHM__PLACE_PARTING = 6,   /* to be SPILLED as soon as nothing holds its frame; in limbo */
};

/* The state of a page's slot. */
enum kvshm_slot_state {
    KVSHM__SLOT_NONE = 0,
    KVSHM__SLOT_WRITING = 1, /* by the client that the slot's owner word names */
    KVSHM__SLOT_WRITTEN = 2, /* header and payload are on the device */
};

/*
 * A page's record. Its first line is what walks read; hits write the second (stamp) and nothing of the first. Fields
 * marked S are guarded by seq: written only between its two steps (odd, then even), only while no word names the
 * record and its place is NONE. seq is never reset, so a child can name its parent by number and sequence; it begins at
 * the record's number + 1 in its high half, so no two records share one, and of a link of which one half is damaged
 * number and sequence do not agree. Fields not marked S stand outside the sequence.
 */
struct kvshm_record {
    kvshm_a64 seq;        /* lock */
    kvshm_a64 place;      /* lock; readers: LEAVING -> RESIDENT */
    kvshm_a64 adapter_id; /* S */
    kvshm_a64 tenant;     /* S */
    kvshm_a64 parent_seq; /* S: of the parent record when this was written; 0: a root */
    kvshm_a32 parent1;    /* S: parent record + 1; 0: a root */
    kvshm_a32 depth;      /* S: pages above this one */
    kvshm_a32 length;     /* S: tokens in this page, and the flags KVSHM__KEY_... */
    kvshm_a32 epoch;      /* S: low half of the arena's epoch */
    kvshm_a64 partials;   /* derived, lock: bit b is set if a child holds m < page_tokens tokens, b = (m - 1) >> shift */

    /* 64 */
    kvshm_a64 stamp;      /* lock: 0 -> now, any -> 0; readers: compare-and-swap from the value seen to a later one.
                             Not 0: an entry ends at this page, last used then */
    kvshm_a64 policy;     /* room */
    kvshm_a64 slot;       /* lock: bits 0-27 slot of the spill file, bits 28-31 state of it; 0: none */
    kvshm_a64 hash;       /* S: placement hash of the prefix that ends here */
    kvshm_a64 page_id[2]; /* S: opening id, counter; never used twice */
    kvshm_a64 caller[2];  /* room: 16 bytes of the caller's */
};
static_assert(sizeof(struct kvshm_record) == 2 * KVSHM__LINE, "layout");
static_assert(offsetof(struct kvshm_record, stamp) == KVSHM__LINE, "layout");
#define KVSHM__KEY_ONLY 0x80000000u /* of a key-only entry */
#define KVSHM__KEY_END 0x40000000u  /* its deepest page */
#define KVSHM__LENGTH 0x3fffffffu   /* the tokens */

/* What a record is linked to; only jump1 and jump_check are read without the lock, by those who hold a lease. */
struct kvshm_links {
    kvshm_a32 jump1;  /* S: an ancestor further up + 1 (Myers 1983), so that a walk up is O(log n) */
    kvshm_a32 child1; /* derived, lock: first of the list of children, published or in limbo, through next1 */
    kvshm_a32 next1;  /* derived, lock: list of the parent's children */
    kvshm_a32 prev1;  /* derived, lock */
    kvshm_a32 link1;  /* derived, lock: list of free records, or of limbo (END: the last) */
    kvshm_a32 jump_check; /* S: of the sequence that the record of jump1 had when this was written (pages.c) */
};
static_assert(sizeof(struct kvshm_links) == 24, "layout");
#define KVSHM__LIST_END 0xffffffffu

/*
 * The text of a page: 64-bit words, S, text_stride bytes a record. Token ids, two a word, the last padded with 0; or the
 * 32-byte key.
 */
#define KVSHM__TEXT_BYTES_MIN 32

/*
 * Min-heap of entries, 4 children a node, by recorded stamp: derived, lock. A recorded stamp is at most the
 * entry's own. Slot i also says where in the heap record i is: two arrays that share their lines.
 */
struct kvshm_heap_slot {
    kvshm_a64 stamp;
    kvshm_a32 record;
    kvshm_a32 position1; /* of record i (not of the record above): 0: in no heap */
};
static_assert(sizeof(struct kvshm_heap_slot) == 16, "layout");

/*
 * Whose a frame is: bits 60-63 kind. RESERVED and DEVICE: bits 16-59 client number, bits 0-15 word of its
 * reservation table. PAGE: bits 0-31 the record. Changes only under the lock, and before an index word makes the
 * page found.
 */
struct kvshm_owner {
    kvshm_a64 owner;   /* lock */
    kvshm_a32 next1;   /* derived, lock: list of free frames */
    kvshm_a32 since_ms; /* lock: low half of the monotonic clock, in ms, when a read into the frame began: others wait for
                          it no longer than stall_ms */
};
static_assert(sizeof(struct kvshm_owner) == 16, "layout");
enum kvshm_owner_kind {
    KVSHM__OWNER_FREE = 0,
    KVSHM__OWNER_RESERVED = 1,
    KVSHM__OWNER_DEVICE = 2,
    KVSHM__OWNER_PAGE = 3,
    KVSHM__OWNER_RESTORING = 4, /* of a frame: bits 16-59 client that reads into it */
    KVSHM__OWNER_WRITING = 5,   /* of a slot: bits 16-59 client */
    KVSHM__OWNER_ERASING = 6,   /* of a slot: bits 16-59 client */
    KVSHM__OWNER_DOOMED = 7,    /* of a slot: its header is to be erased */
};

/* Whose a slot is: as a frame's owner word. */
struct kvshm_slot {
    kvshm_a64 owner;   /* lock */
    kvshm_a64 sum;     /* lock: checksum of the payload, while it is a page's; of a doomed one the moment (slots.h) */
    kvshm_a32 record;  /* lock: the page that is being written into it */
    kvshm_a32 next1;   /* derived, lock: list of free slots, or of doomed ones */
    kvshm_a32 flags;   /* lock: those of the header, while it is a page's */
    uint32_t reserved;
};
static_assert(sizeof(struct kvshm_slot) == 32, "layout");

/* Of a record in an arena with a spill file; derived, lock, but for sum. */
struct kvshm_age {
    kvshm_a64 kept;     /* not 0: since then the page is kept in memory, though no entry ends at it */
    kvshm_a64 sum;      /* lock; not derived: checksum of the bytes in the page's frame, taken by who inserted them */
    kvshm_a32 spilled1; /* first of the list of children that are in no frame, through kvshm_links.next1 */
    kvshm_a32 older1;   /* neighbours in the list of entries, */
    kvshm_a32 newer1;
    kvshm_a32 list;     /* which is this one (enum kvshm__ages_list) */
    kvshm_a64 queued;   /* stamp of the entry when it came into the list */
};
static_assert(sizeof(struct kvshm_age) == 40, "layout");

#endif /* KVSHM_LAYOUT_H */
