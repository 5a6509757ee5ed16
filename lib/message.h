/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message.h - the sentence that says what went wrong.
 *
 * Each thread has one buffer of KVSHM__MESSAGE_BYTES in thread-local storage. A call that fails writes it once, at
 * the place that knows the values; calls above add nothing to it, but an attach without its spill file what can be
 * done. A sentence names the value, the limit and the remedy, has no newline and no full stop.
 */
#ifndef KVSHM_MESSAGE_H
#define KVSHM_MESSAGE_H

#include "kvshm.h"

#define KVSHM__MESSAGE_BYTES 512

/*
 * Store the sentence for the calling thread and answer code, so that a caller writes
 * return kvshm__fail(-EINVAL, "...", ...). A sentence that does not fit is cut. Takes no lock, keeps errno.
 */
int kvshm__fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));

#endif /* KVSHM_MESSAGE_H */
