/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_segment.c - the header of a segment, guided by coverage (clang's libFuzzer): make fuzz-segment
 *
 * The input is the fixed part of a header, made whole by the right signature, order of bytes, boot and checksum where its last
 * byte asks for that, and the size of the file. What is found valid must be: sections inside the file, apart from each
 * other, with room for what the counts say. Begins from nothing but the header of a small arena, made in memory.
 */
#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "validate.h"

struct input {
    struct kvshm_static fixed;
    uint64_t file_bytes;
    uint8_t forge;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* The header of an arena of 20 frames. */
static void make_valid(struct input *in)
{
    struct kvshm_config config;
    struct kvshm__config checked;
    struct kvshm__plan plan;
    struct kvshm_static *f = &in->fixed;

    kvshm_config_init(&config);
    config.geometry.page_bytes = 4096;
    config.frames = 20;
    must(kvshm__config_create(&config, &checked) == 0 &&
         kvshm__plan_make(&checked, 4096, &plan) == 0);
    memset(in, 0, sizeof(*in));
    f->header_bytes = KVSHM__HEADER_BYTES;
    f->client_bytes = sizeof(struct kvshm_client);
    f->record_bytes = sizeof(struct kvshm_record);
    f->links_bytes = sizeof(struct kvshm_links);
    f->lease_word_bytes = sizeof(struct kvshm_lease_word);
    f->segment_bytes = plan.segment_bytes;
    f->page_bytes = plan.page_bytes;
    f->frame_stride = plan.frame_stride;
    f->frames = plan.frames;
    f->records = plan.records;
    f->buckets = plan.buckets;
    f->text_stride = plan.text_stride;
    f->max_clients = config.max_clients;
    f->max_leases = config.max_leases;
    f->page_size = 4096;
    f->clock = KVSHM__CLOCK_SHARED;
    f->backing = KVSHM_BACKING_SMALL;
    f->geometry = checked.asked.geometry;
    strcpy(f->name, "a");
    memcpy(f->directory, plan.section, sizeof(f->directory));
    in->file_bytes = plan.segment_bytes;
    in->forge = 1;
}

static void forge(struct kvshm_static *f)
{
    memcpy(f->magic, KVSHM__MAGIC, sizeof(f->magic));
    f->layout_version = KVSHM__LAYOUT_VERSION;
    f->byte_order = KVSHM__BYTE_ORDER;
    f->word_bytes = sizeof(void *);
    f->incompat = f->ro_compat = 0;
    must(kvshm__boot_id(f->boot_id) == 0);
    f->checksum = kvshm__validate_checksum(f);
}

/* What kvshm__validate_fill() will believe. */
static void check_sections(const struct kvshm_static *f, uint64_t file_bytes)
{
    unsigned found = 0;

    must(f->segment_bytes == file_bytes);
    for (unsigned i = 0; i < KVSHM__DIRECTORY_ROOM; i++) {
        const struct kvshm_section *s = &f->directory[i];

        if (s->kind == 0)
            continue;
        must(s->offset >= KVSHM__HEADER_BYTES && s->offset <= file_bytes &&
             s->length <= file_bytes - s->offset);
        for (unsigned j = 0; j < i; j++) {
            const struct kvshm_section *o = &f->directory[j];

            must(o->kind == 0 || s->offset + s->length <= o->offset ||
                 o->offset + o->length <= s->offset || s->length == 0 || o->length == 0);
        }
        if (s->kind == KVSHM__SEC_FRAMES)
            must(f->frames <= s->length / f->frame_stride && f->page_bytes <= f->frame_stride);
        if (s->kind == KVSHM__SEC_TEXTS)
            must(f->records <= s->length / f->text_stride &&
                 (uint64_t)f->geometry.page_tokens * 4 <= f->text_stride);
        if (s->kind == KVSHM__SEC_RECORDS)
            must(f->records <= s->length / sizeof(struct kvshm_record) && f->records >= f->frames);
        found += s->kind < KVSHM__SEC_KINDS;
    }
    must(found == KVSHM__SEC_KINDS - (f->slots > 0 ? 1 : 3));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in;

    make_valid(&in);
    memcpy(&in, data, size < sizeof(in) ? size : sizeof(in));
    if (in.forge & 1)
        forge(&in.fixed);
    if (kvshm__validate_fixed(&in.fixed, in.file_bytes, in.forge & 2, "fuzzed") == 0)
        check_sections(&in.fixed, in.file_bytes);
    return 0;
}

/* Begins with what is valid, since chance alone makes no header. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    struct input in;

    if (size < sizeof(in) && max_size >= sizeof(in)) {
        make_valid(&in);
        memcpy(data, &in, sizeof(in));
        size = sizeof(in);
    }
    (void)seed;
    return LLVMFuzzerMutate(data, size, max_size);
}
