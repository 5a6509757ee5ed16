/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mend.h - the writer lock for all who change the arena, and the rebuild after an owner's death.
 *
 * What is true: the index words, the records they name and their places, stamps, the owner words of frames, the
 * lease words that count. All else is derived (layout.h) and made anew from them, always, when the lock was taken
 * over. Readers go on meanwhile: no word of what is whole is touched.
 *
 * After it: every page that was published whole is still; an insert, removal or eviction that was under way has
 * left its entry or not, and no page without an entry below it; limbo holds exactly the pages that are not
 * published and are held, with all that stands above them; every frame is free, reserved, or of a page that names it.
 */
#ifndef KVSHM_MEND_H
#define KVSHM_MEND_H

#include "handle.h"

/*
 * Become the one writer. 0, and kvshm__mend_unlock() is due; or, with a message, KVSHM_E_FORKED, _READ_ONLY,
 * _UNLINKED, _STALLED.
 */
int kvshm__mend_lock(kvshm *kv);
void kvshm__mend_unlock(kvshm *kv);

/* For who had the lock before, and has to tell what became of it, in an arena that was unlinked too. 0 or KVSHM_E_STALLED. */
int kvshm__mend_lock_again(kvshm *kv);

/* What changing the arena needs of the handle's own memory, for who changes one that has no name yet. 0 or -ENOMEM. */
int kvshm__mend_prepare(kvshm *kv);

/* Make everything derived anew. With the writer lock. */
void kvshm__mend_rebuild(kvshm *kv);

#endif /* KVSHM_MEND_H */
