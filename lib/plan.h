/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - how large the parts of a segment are, and where they lie.
 */
#ifndef KVSHM_PLAN_H
#define KVSHM_PLAN_H

#include "config.h"
#include "layout.h"

struct kvshm__plan {
    uint64_t page_bytes;
    uint64_t frame_stride;
    uint64_t text_stride;
    uint64_t frames;
    uint64_t slots;
    uint64_t records; /* frames and slots together */
    uint64_t buckets;
    uint64_t segment_bytes;
    uint32_t page_size;
    struct kvshm_section section[KVSHM__DIRECTORY_ROOM];
};

/*
 * Plan a segment of config's frames, or of the most frames that fit config's memory_bytes, on pages of page_size. 0;
 * -EINVAL: too large, or none fits; the message says how many bytes the least would take.
 */
int kvshm__plan_make(const struct kvshm__config *config, uint32_t page_size,
                     struct kvshm__plan *plan);

/* Bytes from one page's text to the next, for pages of so many tokens. */
uint64_t kvshm__plan_text_stride(uint32_t page_tokens);

/* The shift that makes a bit of kvshm_record.partials of a length. */
uint32_t kvshm__plan_partial_shift(uint32_t page_tokens);

#endif /* KVSHM_PLAN_H */
