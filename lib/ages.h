/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ages.h - in an arena with a spill file, two lists of entries: those that have left memory, the longest gone first, and those
 * that may have to be written, the longest waiting first.
 *
 * All calls need the writer lock. An entry is in one list at most. Both are derived.
 */
#ifndef KVSHM_AGES_H
#define KVSHM_AGES_H

#include "handle.h"

enum kvshm__ages_list { KVSHM__AGES_NONE = 0, KVSHM__AGES_LEFT = 1, KVSHM__AGES_UNWRITTEN = 2 };

/* To the list's end, out of whichever it was in; its stamp of now is kept. */
void kvshm__ages_append(kvshm *kv, uint32_t record, enum kvshm__ages_list list);

/* Into no list. */
void kvshm__ages_remove(kvshm *kv, uint32_t record);

/* In which list is it? */
enum kvshm__ages_list kvshm__ages_list_of(const kvshm *kv, uint32_t record);

/* Was it used since it was appended? */
bool kvshm__ages_used(const kvshm *kv, uint32_t record);

/* The ends of a list; KVSHM__NO_RECORD: it is empty. */
uint32_t kvshm__ages_first(const kvshm *kv, enum kvshm__ages_list list);
uint32_t kvshm__ages_last(const kvshm *kv, enum kvshm__ages_list list);

/* The record is in no list, without a look at the lists; and both are empty. */
void kvshm__ages_forget(kvshm *kv, uint32_t record);
void kvshm__ages_forget_all(kvshm *kv);

#endif /* KVSHM_AGES_H */
