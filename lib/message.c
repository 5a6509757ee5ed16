/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.c - sentences: of the last failure of a thread, and of each code.
 *
 * I1  errors.def and enum kvshm_error name the same codes with the same numbers (checked when this is compiled: each
 *     line of the table against the enum, and by a switch each member of the enum against the table).
 * I2  struct kvshm_stats has the counters of counters.def behind three words, in its order, and nothing behind them.
 */
#include "message.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* I1 */
#define KVSHM_ERROR(code, name, sentence, meaning) \
    static_assert((code) == (int)(name), "errors.def and enum kvshm_error");
#include "errors.def"
#undef KVSHM_ERROR

/* I2 */
enum {
#define KVSHM_COUNTER(name, unit, help)       KVSHM__STAT_##name,
#define KVSHM_LEASE_COUNTER(name, unit, help) KVSHM__STAT_##name,
#include "counters.def"
    KVSHM__STATS
};
#undef KVSHM_COUNTER
#undef KVSHM_LEASE_COUNTER
#define KVSHM_COUNTER(name, unit, help)                                       \
    static_assert(offsetof(struct kvshm_stats, name) ==                       \
                      sizeof(uint64_t) * (3 + KVSHM__STAT_##name),            \
                  "counters.def and struct kvshm_stats");
#define KVSHM_LEASE_COUNTER(name, unit, help) KVSHM_COUNTER(name, unit, help)
#include "counters.def"
#undef KVSHM_COUNTER
#undef KVSHM_LEASE_COUNTER
static_assert(sizeof(struct kvshm_stats) == sizeof(uint64_t) * (3 + KVSHM__STATS),
              "counters.def and struct kvshm_stats");

static _Thread_local char message[KVSHM__MESSAGE_BYTES] = "no call of this thread has failed";
static _Thread_local char unknown[48];

int kvshm__fail(int code, const char *fmt, ...)
{
    int before = errno;
    va_list args;

    va_start(args, fmt);
    vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    errno = before;
    return code;
}

const char *kvshm_errmsg(kvshm *kv)
{
    (void)kv;
    return message;
}

/* NULL: not one of ours. */
static const char *own_sentence(int code)
{
    switch ((enum kvshm_error)code) {
#define KVSHM_ERROR(number, name, sentence, meaning) \
    case name:                                       \
        return sentence;
#include "errors.def"
#undef KVSHM_ERROR
    }
    switch ((enum kvshm_outcome)code) {
    case KVSHM_MISS:
        return "not cached";
    case KVSHM_PENDING:
        return "in the spill file, and being read back";
    case KVSHM_EXISTS:
        return "the entry was there already";
    case KVSHM_REPLACED:
        return "the key-only entry has the new pages now";
    }
    return code == 0 ? "success" : NULL;
}

/* In no language but C's, and for any thread; NULL: there is none. */
static const char *of_system(int error)
{
#ifdef __GLIBC__
    return strerrordesc_np(error);
#else
    return strerror(error); /* musl's are constant */
#endif
}

const char *kvshm_strerror(int code)
{
    const char *sentence = own_sentence(code);
    int before = errno;

    if (sentence != NULL)
        return sentence;
    if (code < 0 && code >= -4095)
        sentence = of_system(-code);
    if (sentence == NULL) {
        snprintf(unknown, sizeof(unknown), "unknown code %d", code);
        sentence = unknown;
    }
    errno = before;
    return sentence;
}

#define TEXT_OF(number)                   TEXT(number)
#define TEXT(number)                      #number
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *kvshm_version(void)
{
    return VERSION_TEXT(KVSHM_VERSION_MAJOR, KVSHM_VERSION_MINOR, KVSHM_VERSION_PATCH);
}
