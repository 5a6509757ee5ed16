/* SPDX-License-Identifier: Apache-2.0 */
/*
 * private.c - the process's own memory; the only file that knows jemalloc.
 *
 * A library that links jemalloc replaces the malloc of whoever loads it. So its names are weak references: they are
 * there in a process that runs on jemalloc, and then all memory of this library comes from an arena of its own, which
 * jemalloc's statistics show apart; elsewhere they are NULL and the C library is asked.
 *
 * Which of the two is settled when the library is loaded and never changes, so memory always goes back where it came
 * from. No memory is kept in a thread's cache, since it is large and seldom asked for.
 *
 * Before each piece is a line that says where it began and how many bytes were asked for, so that what is held can be
 * told without asking anyone.
 */
#include "private.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define LINE 64

/* jemalloc's public interface, as its manual has it. */
extern void *mallocx(size_t size, int flags) __attribute__((weak));
extern void dallocx(void *memory, int flags) __attribute__((weak));
extern int mallctl(const char *name, void *old, size_t *old_size, void *new, size_t new_size)
    __attribute__((weak));
#define JEMALLOC_LG_ALIGN(lg)  (lg)
#define JEMALLOC_ZERO          0x40
#define JEMALLOC_NO_CACHE      0x100
#define JEMALLOC_ARENA(number) ((int)((number) + 1) << 20)
#define JEMALLOC_ARENAS_MAX    4095

static pthread_once_t arena_once = PTHREAD_ONCE_INIT;
static int arena_flag; /* 0: jemalloc gave no arena; its own choice then */

static bool on_jemalloc(void)
{
    return mallocx != NULL && dallocx != NULL && mallctl != NULL;
}

static void make_arena(void)
{
    unsigned number;
    size_t size = sizeof(number);

    if (mallctl("arenas.create", &number, &size, NULL, 0) == 0 && number < JEMALLOC_ARENAS_MAX)
        arena_flag = JEMALLOC_ARENA(number);
}

/* On the line before a piece. */
struct line {
    void *whole; /* what is given back */
    size_t size; /* asked for */
};
static_assert(sizeof(struct line) <= LINE, "it fits");

static _Atomic(uint64_t) held_bytes;

static struct line *line_of(void *memory)
{
    return (struct line *)((uintptr_t)memory - LINE);
}

/* calloc() leaves large memory untouched and aligned_alloc() does not zero it, so a line more is asked for. */
static void *of_c_library(size_t bytes, void **whole)
{
    *whole = bytes <= SIZE_MAX - LINE ? calloc(1, bytes + LINE) : NULL;
    return (void *)(((uintptr_t)*whole + LINE - 1) & ~(uintptr_t)(LINE - 1));
}

static void *of_jemalloc(size_t bytes, void **whole)
{
    pthread_once(&arena_once, make_arena);
    *whole = mallocx(bytes, JEMALLOC_LG_ALIGN(6) | JEMALLOC_ZERO | JEMALLOC_NO_CACHE | arena_flag);
    return *whole;
}

void *kvshm__private_alloc(size_t size)
{
    void *whole = NULL, *aligned = NULL;
    struct line *line;

    if (size <= SIZE_MAX - LINE)
        aligned =
            on_jemalloc() ? of_jemalloc(size + LINE, &whole) : of_c_library(size + LINE, &whole);
    if (whole == NULL)
        return NULL;
    line = aligned;
    line->whole = whole;
    line->size = size;
    atomic_fetch_add_explicit(&held_bytes, size, memory_order_relaxed);
    return (uint8_t *)aligned + LINE;
}

void kvshm__private_free(void *memory)
{
    void *whole;

    if (memory == NULL)
        return;
    whole = line_of(memory)->whole;
    atomic_fetch_sub_explicit(&held_bytes, line_of(memory)->size, memory_order_relaxed);
    if (on_jemalloc())
        dallocx(whole, JEMALLOC_NO_CACHE);
    else
        free(whole);
}

uint64_t kvshm__private_bytes(void)
{
    return atomic_load_explicit(&held_bytes, memory_order_relaxed);
}

int64_t kvshm__private_arena(void)
{
    if (!on_jemalloc())
        return -1;
    pthread_once(&arena_once, make_arena);
    return arena_flag == 0 ? -1 : (arena_flag >> 20) - 1;
}
