/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.c - how large the parts of a segment are, and where they lie.
 *
 * Behind the header lie the sections in the order of their kinds, each from a multiple of 64 on, and last the frames,
 * from a multiple of the page size on. One function makes a plan of a number of frames; how many frames fit a size is
 * found by bisection, since a plan's bytes grow with its frames.
 *
 * Sums saturate at UINT64_MAX. A segment ends before KVSHM__LOCK_BASE, where its lock bytes begin.
 */
#include "plan.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "message.h"

/* Frames whose pages are at least so large begin on a block that devices read and write. */
#define BLOCK 4096u

static uint64_t add(uint64_t a, uint64_t b)
{
    uint64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t multiply(uint64_t a, uint64_t b)
{
    uint64_t product;

    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* to is a power of two. */
static uint64_t round_up(uint64_t value, uint64_t to)
{
    return add(value, to - 1) & ~(to - 1);
}

uint64_t kvshm__plan_text_stride(uint32_t page_tokens)
{
    return round_up(8 * (((uint64_t)page_tokens + 1) / 2), KVSHM__TEXT_BYTES_MIN);
}

uint32_t kvshm__plan_partial_shift(uint32_t page_tokens)
{
    uint32_t shift = 0;

    /* The longest partial page has page_tokens - 1 tokens. */
    while (page_tokens >= 2 && (page_tokens - 2) >> shift >= 64)
        shift++;
    return shift;
}

/* Append a section of count items at *end, and move *end behind it. */
static void append(struct kvshm__plan *plan, uint32_t kind, uint64_t count, uint64_t stride,
                   uint64_t align, uint64_t *end)
{
    struct kvshm_section *section = &plan->section[kind - 1];

    section->kind = kind;
    section->offset = round_up(*end, align);
    section->stride = stride;
    section->length = multiply(count, stride);
    *end = add(section->offset, section->length);
}

/* Fill in everything that follows from plan->frames; answer the segment's bytes, saturated. */
static uint64_t lay_out(const struct kvshm_config *c, struct kvshm__plan *plan)
{
    uint64_t end = KVSHM__HEADER_BYTES;
    uint64_t words = (uint64_t)c->max_clients * c->max_leases;

    memset(plan->section, 0, sizeof(plan->section));
    plan->records = plan->frames + plan->slots;
    plan->buckets = plan->records / 4 + 2;
    append(plan, KVSHM__SEC_CLIENTS, c->max_clients, sizeof(struct kvshm_client), KVSHM__LINE,
           &end);
    append(plan, KVSHM__SEC_LEASES, words, sizeof(struct kvshm_lease_word), KVSHM__LINE, &end);
    append(plan, KVSHM__SEC_RESERVATIONS, words, sizeof(kvshm_a64), KVSHM__LINE, &end);
    append(plan, KVSHM__SEC_BUCKETS, plan->buckets, sizeof(struct kvshm_bucket), KVSHM__LINE, &end);
    append(plan, KVSHM__SEC_RECORDS, plan->records, sizeof(struct kvshm_record), KVSHM__LINE, &end);
    append(plan, KVSHM__SEC_LINKS, plan->records, sizeof(struct kvshm_links), KVSHM__LINE, &end);
    append(plan, KVSHM__SEC_TEXTS, plan->records, plan->text_stride, KVSHM__LINE, &end);
    append(plan, KVSHM__SEC_HEAP, plan->records, sizeof(struct kvshm_heap_slot), KVSHM__LINE, &end);
    append(plan, KVSHM__SEC_OWNERS, plan->frames, sizeof(struct kvshm_owner), KVSHM__LINE, &end);
    if (plan->slots > 0) {
        append(plan, KVSHM__SEC_SLOTS, plan->slots, sizeof(struct kvshm_slot), KVSHM__LINE, &end);
        append(plan, KVSHM__SEC_AGES, plan->records, sizeof(struct kvshm_age), KVSHM__LINE, &end);
    }
    append(plan, KVSHM__SEC_FRAMES, plan->frames, plan->frame_stride, plan->page_size, &end);
    plan->segment_bytes = round_up(end, plan->page_size);
    return plan->segment_bytes;
}

static uint64_t bytes_for(const struct kvshm_config *c, struct kvshm__plan *plan, uint64_t frames)
{
    plan->frames = frames;
    return lay_out(c, plan);
}

/* The most frames that fit memory_bytes. */
static int fit(const struct kvshm_config *c, struct kvshm__plan *plan)
{
    uint64_t fits = 1, too_many = (uint64_t)KVSHM__FRAMES_MAX + 1;
    uint64_t least = bytes_for(c, plan, 1);

    if (least > c->memory_bytes)
        return kvshm__fail(-EINVAL,
                           "config.memory_bytes is %" PRIu64 "; one frame of %" PRIu64 " bytes "
                           "with the tables of %u clients and %u leases each takes %" PRIu64
                           ": give so much, or ask for fewer clients or leases",
                           c->memory_bytes, plan->page_bytes, c->max_clients, c->max_leases, least);
    while (fits + 1 < too_many) {
        uint64_t middle = fits + (too_many - fits) / 2;

        if (bytes_for(c, plan, middle) <= c->memory_bytes)
            fits = middle;
        else
            too_many = middle;
    }
    bytes_for(c, plan, fits);
    return 0;
}

int kvshm__plan_make(const struct kvshm__config *config, uint32_t page_size,
                     struct kvshm__plan *plan)
{
    const struct kvshm_config *c = &config->asked;
    int code = 0;

    memset(plan, 0, sizeof(*plan));
    plan->page_size = page_size;
    plan->page_bytes = config->page_bytes;
    plan->slots = config->slots;
    plan->frame_stride = round_up(
        plan->page_bytes, plan->page_bytes >= BLOCK || plan->slots > 0 ? BLOCK : KVSHM__LINE);
    if (config->block_bytes > BLOCK) /* whole blocks are read into a frame */
        plan->frame_stride = round_up(plan->frame_stride, config->block_bytes);
    plan->text_stride = kvshm__plan_text_stride(c->geometry.page_tokens);
    if (c->frames != 0)
        bytes_for(c, plan, c->frames);
    else
        code = fit(c, plan);
    if (code == 0 && plan->segment_bytes > KVSHM__LOCK_BASE)
        code = kvshm__fail(-EINVAL,
                           "config.frames is %" PRIu64 ": with pages of %" PRIu64 " bytes that is "
                           "a segment of more than %" PRIu64 " bytes; ask for fewer",
                           plan->frames, plan->page_bytes, KVSHM__LOCK_BASE);
    return code;
}
