/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_plan.c - how large the parts of a segment are, and where they lie
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "support.h"

/* Sections in order, aligned, apart, and the frames last; those of a spill file if there are slots. */
static void check_plan(const struct kvshm__plan *plan)
{
    static const uint32_t order[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, KVSHM__SEC_SLOTS, KVSHM__SEC_AGES, KVSHM__SEC_FRAMES};
    uint64_t end = KVSHM__HEADER_BYTES;

    for (uint32_t i = 0; i < KVSHM__SEC_KINDS - 1; i++) {
        uint32_t kind = order[i];
        const struct kvshm_section *s = &plan->section[kind - 1];

        if (plan->slots == 0 && (kind == KVSHM__SEC_SLOTS || kind == KVSHM__SEC_AGES)) {
            ck_assert_uint_eq(s->kind, 0);
            continue;
        }
        ck_assert_uint_eq(s->kind, kind);
        ck_assert_uint_eq(s->offset % 64, 0);
        ck_assert_uint_ge(s->offset, end);
        end = s->offset + s->length;
    }
    ck_assert_uint_eq(plan->section[KVSHM__SEC_FRAMES - 1].offset % 4096, 0);
    ck_assert_uint_ge(plan->segment_bytes, end);
    ck_assert_uint_lt(plan->segment_bytes, end + 4096);
}

static int make_plan(struct kvshm_config *config, struct kvshm__plan *plan)
{
    struct kvshm__config checked;

    ts_is(kvshm__config_create(config, &checked), 0);
    return kvshm__plan_make(&checked, 4096, plan);
}

START_TEST(test_plan_of_frames)
{
    static const uint64_t page_bytes[] = {1, 64, 65, 4095, 4096, 5000};
    static const uint64_t strides[] = {64, 64, 128, 4096, 4096, 8192};

    for (size_t i = 0; i < sizeof(page_bytes) / sizeof(page_bytes[0]); i++) {
        for (uint64_t frames = 1; frames < 100000; frames = frames * 7 + 3) {
            struct kvshm_config config = ts_config(page_bytes[i], 64, frames);
            struct kvshm__plan plan;

            ts_is(make_plan(&config, &plan), 0);
            ck_assert_uint_eq(plan.frame_stride, strides[i]);
            ck_assert_uint_eq(plan.frames, frames);
            ck_assert_uint_eq(plan.buckets, frames / 4 + 2);
            check_plan(&plan);
        }
    }
    ck_assert_uint_eq(kvshm__plan_text_stride(1), 32);
    ck_assert_uint_eq(kvshm__plan_text_stride(8), 32);
    ck_assert_uint_eq(kvshm__plan_text_stride(9), 64);
    ck_assert_uint_eq(kvshm__plan_text_stride(64), 256);
}
END_TEST

/* The most frames that fit: one more would not. */
/* With a spill file: a record for each slot too, and a frame begins where a block does. */
START_TEST(test_plan_with_slots)
{
    uint64_t state = ts_seed();

    for (unsigned i = 0; i < 200; i++) {
        struct kvshm_config config = ts_config(1 + ts_random(&state, 10000), 64, 1 + ts_random(&state, 1000));
        struct kvshm__config checked;
        struct kvshm__plan plan;

        ts_is(kvshm__config_create(&config, &checked), 0);
        checked.slots = 1 + ts_random(&state, 10000);
        ts_is(kvshm__plan_make(&checked, 4096, &plan), 0);
        check_plan(&plan);
        ck_assert_uint_eq(plan.slots, checked.slots);
        ck_assert_uint_eq(plan.records, plan.frames + plan.slots);
        ck_assert_uint_eq(plan.frame_stride % 4096, 0);
    }
}
END_TEST

START_TEST(test_plan_of_bytes)
{
    uint64_t state = ts_seed();

    for (unsigned i = 0; i < 200; i++) {
        struct kvshm_config config = ts_config(1 + ts_random(&state, 10000), 64, 0);
        struct kvshm__plan plan, more;

        config.memory_bytes = 8000000 + ts_random(&state, 1 << 30);
        ts_is(make_plan(&config, &plan), 0);
        check_plan(&plan);
        ck_assert_uint_le(plan.segment_bytes, config.memory_bytes);
        config.frames = plan.frames + 1;
        uint64_t asked = config.memory_bytes;
        config.memory_bytes = 0;
        ts_is(make_plan(&config, &more), 0);
        ck_assert_uint_gt(more.segment_bytes, asked);
    }
}
END_TEST

START_TEST(test_plan_that_cannot_be)
{
    struct kvshm_config config = ts_config(4096, 64, 0);
    struct kvshm__plan plan;
    unsigned long long least;

    config.memory_bytes = 4096;
    ts_is(make_plan(&config, &plan), -EINVAL);
    ts_says("config.memory_bytes is 4096");
    /* The message names the least: that is enough, and a byte less is not. */
    const char *at = strstr(kvshm_errmsg(NULL), "takes ");
    ck_assert_ptr_nonnull(at);
    least = strtoull(at + 6, NULL, 10);
    config.memory_bytes = least - 1;
    ts_is(make_plan(&config, &plan), -EINVAL);
    config.memory_bytes = least;
    ts_is(make_plan(&config, &plan), 0);
    ck_assert_uint_eq(plan.frames, 1);
    config = ts_config(UINT64_C(1) << 40, 64, (1 << 28) - 1);
    ts_is(make_plan(&config, &plan), -EINVAL);
    ts_says("config.frames is 268435455");
}
END_TEST

START_TEST(test_partial_shift)
{
    for (uint32_t page_tokens = 1; page_tokens <= 1 << 20; page_tokens = page_tokens * 3 / 2 + 1) {
        uint32_t shift = kvshm__plan_partial_shift(page_tokens);

        if (page_tokens >= 2)
            ck_assert_uint_lt((page_tokens - 2) >> shift, 64);
        if (shift > 0)
            ck_assert_uint_ge((page_tokens - 2) >> (shift - 1), 64);
    }
    ck_assert_uint_eq(kvshm__plan_partial_shift(65), 0);
    ck_assert_uint_eq(kvshm__plan_partial_shift(66), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan");
    TCase *tcase = tcase_create("plan");

    tcase_add_test(tcase, test_plan_of_frames);
    tcase_add_test(tcase, test_plan_of_bytes);
    tcase_add_test(tcase, test_plan_with_slots);
    tcase_add_test(tcase, test_plan_that_cannot_be);
    tcase_add_test(tcase, test_partial_shift);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
