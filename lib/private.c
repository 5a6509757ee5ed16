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
 */
#include "private.h"

#include <pthread.h>
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

/*
 * Of the C library: calloc() leaves large memory untouched and aligned_alloc() does not zero it, so a line more is
 * asked for, and the word before the aligned address says where it began.
 */
static void *c_alloc(size_t size)
{
    void *whole;
    uintptr_t address;

    if (size > SIZE_MAX - LINE - sizeof(void *))
        return NULL;
    whole = calloc(1, size + LINE + sizeof(void *));
    if (whole == NULL)
        return NULL;
    address = ((uintptr_t)whole + sizeof(void *) + LINE - 1) & ~(uintptr_t)(LINE - 1);
    ((void **)address)[-1] = whole;
    return (void *)address;
}

void *kvshm__private_alloc(size_t size)
{
    if (!on_jemalloc())
        return c_alloc(size);
    pthread_once(&arena_once, make_arena);
    return mallocx(size == 0 ? 1 : size,
                   JEMALLOC_LG_ALIGN(6) | JEMALLOC_ZERO | JEMALLOC_NO_CACHE | arena_flag);
}

void kvshm__private_free(void *memory)
{
    if (memory == NULL)
        return;
    if (on_jemalloc())
        dallocx(memory, JEMALLOC_NO_CACHE);
    else
        free(((void **)memory)[-1]);
}
