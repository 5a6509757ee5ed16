/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit.h - does everything derived agree with what is true?
 *
 * For an arena in which nobody is inside a call that changes it. It looks through a handle (also a read-only one), takes
 * no lock and changes nothing. What it knows it reads from the segment itself, the slow way: no list, count or heap is
 * used to check another.
 */
#ifndef KVSHM_TESTS_AUDIT_H
#define KVSHM_TESTS_AUDIT_H

#include <stdio.h>

#include "handle.h"

/*
 * Every derived word against what is true (mend.h): lists and counts of frames and records, lists of children, jumps,
 * lengths of partial pages (more of them may be named than there are), limbo, the heap and its positions; index words,
 * places and owner words against each other; that published pages have published parents, an entry or a published child
 * below (E3), and hashes of what they hold; that no page is there twice (I2); that what a lease holds is there. One line
 * each into out; how many. Pages of an earlier epoch may still wait for their sweep.
 */
unsigned audit(const kvshm *kv, FILE *out);

/* After a sweep or a rebuild: is each page in limbo held by a lease that counts, itself or from below? */
unsigned audit_limbo_held(const kvshm *kv, FILE *out);

#endif /* KVSHM_TESTS_AUDIT_H */
