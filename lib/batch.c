/* SPDX-License-Identifier: Apache-2.0 */
#include "batch.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "client.h"
#include "evict.h"
#include "mend.h"
#include "slots.h"
#include "spill.h"
#include "sys.h"

/* Between two looks for the writer lock. */
#define PAUSE_NS UINT64_C(1000000)

/* ---- Transfers ---------------------------------------------------------------------------------------------- */

static uint8_t *frame_at(const kvshm *kv, uint32_t frame)
{
    return kv->write_base + kv->frames_offset + frame * kv->frame_stride;
}

static int make_headers(struct kvshm__batch *b)
{
    b->headers_bytes = (uint64_t)KVSHM__BATCH_MAX * b->file.shape.header_stride;
    return b->headers ? 0
                      : kvshm__sys.map(b->headers_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                                       &b->headers);
}

static int start_ring(struct kvshm__batch *b)
{
    kvshm *kv = b->kv;
    struct kvshm__ring_setup setup = {
        .file = b->file.fd,
        .quiet = kv->quiet_fd,
        .depth = 2 * KVSHM__BATCH_MAX,
        .align = b->file.shape.block_bytes,
        .memory = kv->write_base + kv->frames_offset,
        .bytes = kv->frame_count * kv->frame_stride,
        .stride = kv->frame_stride,
        .descriptor = &kv->ring_fd,
    };
    int code = 0;

    if (b->ring)
        return 0;
    code = make_headers(b);
    if (code == 0)
        code = kvshm__ring_open(&setup, &b->ring);
    if (code == 0)
        kvshm__client_set_engine(kv, kvshm__ring_engine(b->ring), kvshm__ring_reason(b->ring));
    return code;
}

/* Wait for n transfers whose cookies are numbers of moves. -EAGAIN means elsewhere that others are at it: a disk that puts
   off for ever has failed. */
static void wait_all(struct kvshm__batch *b, struct kvshm__move *moves, unsigned n)
{
    struct kvshm__ring_done done[KVSHM__BATCH_MAX];

    while (n > 0) {
        int got = kvshm__ring_wait(b->ring, 1, done, KVSHM__BATCH_MAX, -1);
        if (got < 0) {
            uint64_t pause = PAUSE_NS;
            kvshm__sys.sleep_ns(pause);
            continue;
        }
        for (int i = 0; i < got; i++) {
            if (done[i].result < 0)
                moves[done[i].cookie].result = done[i].result == -EAGAIN ? -EIO : done[i].result;
        }
        n -= (unsigned)got;
    }
}

static void move_payloads(struct kvshm__batch *b, struct kvshm__move *moves, unsigned n, bool write)
{
    const struct kvshm__spill_shape *s = &b->file.shape;
    unsigned queued = 0;

    for (unsigned i = 0; i < n; i++) {
        uint64_t offset = kvshm__spill_payload_offset(s, moves[i].slot);
        void *memory = frame_at(b->kv, moves[i].frame);
        moves[i].result = write ? kvshm__ring_write(b->ring, memory, (uint32_t)s->payload_stride, offset, i)
                                : kvshm__ring_read(b->ring, memory, (uint32_t)s->payload_stride, offset, i);
        queued += moves[i].result == 0;
    }
    wait_all(b, moves, queued);
}

/*
 * A page that went while it was written gets no header: its frame may have been another's when it was read. Which of
 * them still stand in theirs is looked at after the payload was taken, so that a header never belongs to other bytes.
 */
static void leave_out_the_gone(const kvshm *kv, struct kvshm__move *moves, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (moves[i].result == 0 && !kvshm__slots_awaited(kv, moves[i].record, moves[i].slot))
            moves[i].result = -ECANCELED;
    }
}

/* Headers that lie side by side go in one write. Of pages whose payload was not written, nothing is. */
static void write_headers(struct kvshm__batch *b, struct kvshm__move *moves, unsigned n)
{
    const struct kvshm__spill_shape *s = &b->file.shape;
    unsigned run[KVSHM__BATCH_MAX], queued = 0, end;
    char *headers = b->headers;

    for (unsigned i = 0; i < n; i = end) {
        end = i + 1;
        run[i] = i;
        if (moves[i].result < 0)
            continue;
        while (end < n && moves[end].result == 0 && moves[end].slot == moves[end - 1].slot + 1)
            run[end++] = i;
        int code = kvshm__ring_write(b->ring, headers + (size_t)i * s->header_stride, (end - i) * s->header_stride,
                                     kvshm__spill_header_offset(s, moves[i].slot), i);
        moves[i].result = code;
        queued += code == 0;
    }
    wait_all(b, moves, queued);
    for (unsigned i = 0; i < n; i++) /* the first of a run tells of all of it */
        moves[i].result = moves[run[i]].result;
}

/* ---- Erasing ---------------------------------------------------------------------------------------------- */

/* What a batch has done must be said, however long another has the lock. */
static void lock_at_last(kvshm *kv)
{
    while (kvshm__mend_lock_again(kv) < 0)
        kvshm__sys.sleep_ns(PAUSE_NS);
}

/* Slots that lie side by side, in one write; if that fails, each in its own. Sets codes; returns that of the last that failed. */
static int erase_run(const struct kvshm__batch *b, uint32_t slot, unsigned n, int *codes)
{
    int code = kvshm__spill_erase(&b->file, slot, n), last = code;

    for (unsigned i = 0; i < n; i++) {
        codes[i] = code == 0 || n == 1 ? code : kvshm__spill_erase(&b->file, slot + i, 1);
        last = codes[i] < 0 ? codes[i] : last;
    }
    return last;
}

static int erase_headers(const struct kvshm__batch *b, const uint32_t *slots, unsigned n, int *codes)
{
    unsigned end;
    int last = 0;

    for (unsigned i = 0; i < n; i = end) {
        end = i + 1;
        while (end < n && slots[end] == slots[end - 1] + 1)
            end++;
        int code = erase_run(b, slots[i], end - i, codes + i);
        last = code < 0 ? code : last;
    }
    return last;
}

/* Backwards, so that they are taken again in their order. How many are erased. */
static int settle_erased(struct kvshm__batch *b, const uint32_t *slots, const int *codes, unsigned n)
{
    int erased = 0;

    lock_at_last(b->kv);
    for (unsigned i = n; i-- > 0;) {
        kvshm__slots_erased(b->kv, &slots[i], 1, codes[i] == 0);
        erased += codes[i] == 0;
    }
    kvshm__slots_end(b->kv, KVSHM__BATCH_ERASING);
    kvshm__mend_unlock(b->kv);
    return erased;
}

int kvshm__batch_erase(struct kvshm__batch *b)
{
    kvshm *kv = b->kv;
    uint32_t slots[KVSHM__BATCH_MAX];
    int codes[KVSHM__BATCH_MAX], erased = 0;
    unsigned n = 0;

    pthread_mutex_lock(&b->erasing);
    int code = kvshm__mend_lock(kv);
    if (code == 0) {
        n = kvshm__slots_claim(kv, slots, KVSHM__BATCH_MAX);
        if (n == 0)
            kvshm__slots_end(kv, KVSHM__BATCH_ERASING);
        kvshm__mend_unlock(kv);
    }
    if (n > 0) {
        code = erase_headers(b, slots, n, codes);
        for (unsigned i = 0; i < n && kvshm__spill_allowed(kv) < kv->slot_count; i++) {
            if (codes[i] == 0)
                kvshm__spill_punch(&b->file, slots[i]);
        }
        erased = settle_erased(b, slots, codes, n);
    }
    pthread_mutex_unlock(&b->erasing);
    return erased > 0 ? erased : code;
}

/* ---- Headers alone ---------------------------------------------------------------------------------------- */

/* 1: the header of the page is to be written anew, since an entry ends there now, or no more. -EAGAIN: somebody is at it. */
static int claim_header(kvshm *kv, uint32_t record, uint64_t seq, struct kvshm_slot_header *header)
{
    struct kvshm_record *r = &kv->records[record];
    uint32_t wanted = KVSHM__LOAD(&r->stamp) != 0 ? KVSHM__SLOT_ENTRY : 0;

    if (KVSHM__LOAD(&r->seq) != seq || KVSHM__LOAD(&r->epoch) != (uint32_t)KVSHM__LOAD(&kv->header->epoch))
        return 0;
    if (kvshm__slots_rewritten(kv, record))
        kvshm__slots_sweep(kv); /* by somebody who may have died */
    if (kvshm__slots_writer(kv, record) != 0 || kvshm__slots_rewritten(kv, record))
        return -EAGAIN;
    if (!kvshm__slots_whole(kv, record))
        return 0;
    if ((kvshm__slots_flags(kv, record) & (KVSHM__SLOT_ENTRY | KVSHM__SLOT_UNSURE)) == wanted)
        return 0;
    kvshm__slots_begin(kv, KVSHM__BATCH_ERASING);
    kvshm__slots_rewrite(kv, record);
    kvshm__spill_header(kv, record, kvshm__slot_number(KVSHM__LOAD(&r->slot)), header);
    if (wanted == 0)
        header->flags |= KVSHM__SLOT_REMOVED;
    return 1;
}

static int write_header(struct kvshm__batch *b, struct kvshm_slot_header *header)
{
    kvshm *kv = b->kv;

    kvshm__slot_seal(&b->file, header);
    int code = kvshm__spill_header_write(&b->file, header);
    lock_at_last(kv);
    if (code == 0)
        kvshm__slots_settle(kv, (uint32_t)header->slot, header->payload_sum, header->flags);
    else
        kvshm__spill_lost(kv, (uint32_t)header->slot);
    kvshm__slots_end(kv, KVSHM__BATCH_ERASING);
    kvshm__mend_unlock(kv);
    return code;
}

int kvshm__batch_rename(struct kvshm__batch *b, uint32_t record, uint64_t seq)
{
    kvshm *kv = b->kv;
    const struct kvshm__spill_shape *s = &b->file.shape;
    void *block;
    int code = kvshm__sys.map(s->header_stride, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, &block);

    if (code < 0)
        return code;
    pthread_mutex_lock(&b->erasing);
    code = kvshm__mend_lock(kv);
    if (code == 0) {
        code = claim_header(kv, record, seq, block);
        kvshm__mend_unlock(kv);
    }
    if (code > 0)
        code = write_header(b, block);
    pthread_mutex_unlock(&b->erasing);
    kvshm__sys.unmap(block, s->header_stride);
    return code;
}

/* ---- To the file -------------------------------------------------------------------------------------------- */

static void settle_spilled(kvshm *kv, struct kvshm__move *moves, unsigned n)
{
    lock_at_last(kv);
    for (unsigned i = 0; i < n; i++)
        kvshm__spill_settle(kv, &moves[i]);
    kvshm__evict_sweep_limbo(kv);
    kvshm__slots_end(kv, KVSHM__BATCH_WRITING);
    kvshm__mend_unlock(kv);
}

/* Choose pages. How many; -EAGAIN: there are none until others have done theirs, or slots are erased; or -errno. */
static int pick(struct kvshm__batch *b, struct kvshm__move *moves, enum kvshm__spill_zeal zeal, struct kvshm__spill_rest *rest)
{
    kvshm *kv = b->kv;
    int code = kvshm__mend_lock(kv);

    if (code < 0)
        return code;
    memset(b->headers, 0, b->headers_bytes);
    kvshm__slots_begin(kv, KVSHM__BATCH_WRITING);
    kvshm__spill_make_room(kv, 0);
    code = (int)kvshm__spill_pick(kv, moves, b->max, b->headers, b->file.shape.header_stride, zeal, rest);
    if (code == 0) {
        kvshm__slots_end(kv, KVSHM__BATCH_WRITING);
        if (rest->hindered == -ENOSPC && kvshm__slots_orphaned(kv))
            kvshm__slots_sweep(kv);
        if (rest->hindered == -ENOSPC)
            kvshm__spill_make_room(kv, b->max);
        code = rest->hindered == -ENOSPC && kvshm__slots_doomed(kv) > 0 ? -EAGAIN : rest->hindered;
    }
    kvshm__mend_unlock(kv);
    return code;
}

/* How many were written. */
static int write_batch(struct kvshm__batch *b, struct kvshm__move *moves, unsigned n)
{
    const struct kvshm__spill_shape *s = &b->file.shape;
    unsigned failed = 0, gone = 0;
    int code = 0;

    for (unsigned i = 0; i < n; i++)
        kvshm__slot_seal(&b->file, (void *)((char *)b->headers + (size_t)i * s->header_stride));
    move_payloads(b, moves, n, true);
    leave_out_the_gone(b->kv, moves, n);
    write_headers(b, moves, n);
    for (unsigned i = 0; i < n; i++) {
        bool is_gone = moves[i].result == -ECANCELED;
        gone += is_gone;
        failed += moves[i].result < 0 && !is_gone;
        code = code == 0 && !is_gone ? moves[i].result : code;
    }
    kvshm__count(b->kv, KVSHM__CNT_spill_bytes_written,
                 (n - failed) * s->payload_stride + (n - failed - gone) * s->header_stride);
    settle_spilled(b->kv, moves, n);
    b->failed = code;
    return failed == n ? code : (int)(n - failed);
}

int kvshm__batch_spill(struct kvshm__batch *b, enum kvshm__spill_zeal zeal)
{
    struct kvshm__move moves[KVSHM__BATCH_MAX];
    struct kvshm__spill_rest rest = {.unnamed = KVSHM__NO_RECORD};
    int n = start_ring(b), erased = 0;

    b->failed = 0;
    if (n == 0 && kvshm__slots_doomed(b->kv) > 0)
        erased = kvshm__batch_erase(b);
    if (n == 0)
        n = pick(b, moves, zeal, &rest);
    if (n == -EAGAIN && rest.hindered == -ENOSPC && erased < 0)
        n = erased; /* the slots that could be written are those that cannot be erased */
    if (n > 0)
        n = write_batch(b, moves, (unsigned)n);
    if (rest.unnamed != KVSHM__NO_RECORD && (n >= 0 || n == -EAGAIN)) {
        int code = kvshm__batch_rename(b, rest.unnamed, rest.unnamed_seq);
        n = code < 0 ? code : n > 0 ? n : 1;
    }
    return n;
}

/* ---- From the file ------------------------------------------------------------------------------------------ */

/* One batch of a chain. 0: it is all there; 1: there is more; or -errno. */
int kvshm__batch_restore(struct kvshm__batch *b, uint32_t record, uint64_t seq, bool may_drop)
{
    kvshm *kv = b->kv;
    struct kvshm__move moves[KVSHM__BATCH_MAX];
    int code = start_ring(b);

    if (code == 0)
        code = kvshm__mend_lock(kv);
    if (code < 0)
        return code;
    int n = kvshm__restore_claim(kv, record, seq, moves, b->max, may_drop);
    kvshm__mend_unlock(kv);
    if (n <= 0)
        return n;
    move_payloads(b, moves, (unsigned)n, false);
    for (int i = 0; i < n; i++) {
        if (moves[i].result == 0 && kvshm__payload_sum(frame_at(kv, moves[i].frame), kv->page_bytes) != moves[i].sum)
            moves[i].result = -EBADMSG;
    }
    kvshm__count(kv, KVSHM__CNT_spill_bytes_read, (unsigned)n * b->file.shape.payload_stride);
    lock_at_last(kv);
    unsigned done = kvshm__restore_settle(kv, moves, (unsigned)n);
    kvshm__mend_unlock(kv);
    return done > 0 ? 1 : moves[0].result < 0 ? moves[0].result : -EAGAIN;
}

/* ---- Up and down ------------------------------------------------------------------------------------------ */

void kvshm__batch_open(struct kvshm__batch *b, kvshm *kv, const struct kvshm__spill_file *file)
{
    uint32_t part = kv->frame_count / 16 + 1;

    *b = (struct kvshm__batch){
        .kv = kv,
        .file = *file,
        .max = part < KVSHM__BATCH_MAX ? part : KVSHM__BATCH_MAX,
    };
    pthread_mutex_init(&b->erasing, NULL);
}

void kvshm__batch_rest(struct kvshm__batch *b)
{
    if (b->ring)
        kvshm__ring_close(b->ring);
    b->ring = NULL;
}

void kvshm__batch_close(struct kvshm__batch *b)
{
    kvshm__batch_rest(b);
    if (b->headers)
        kvshm__sys.unmap(b->headers, b->headers_bytes);
    pthread_mutex_destroy(&b->erasing);
}
