/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork.pml - the lock byte that says a client is alive, and a child that has a copy of its descriptor.
 *
 * Stands for fork.c and for liveness in client.c: an open-file-description lock falls when the last copy of its descriptor
 * is closed, or when anyone who has a copy unlocks it. The client forks, writes and dies at any step; the child closes its
 * copy some time; another takes the writer lock, when it is free or its owner's byte is not locked.
 *
 * Holds: one writer at a time; the lock of the dead is taken over at last, when the child has let go.
 */
byte copies = 1; bool locked = true; bool alive = true; /* descriptor and byte of client 1 */
byte lock; byte inside;

#define ENTER(me) lock = me; assert(inside == 0 || (inside == 1 && !alive)); inside = me
inline close() { atomic { copies--; if :: copies == 0 -> locked = false :: else fi } }

proctype Child() {
#ifdef MUT_UNLOCK
    locked = false; close()
#elif defined(MUT_KEEP) /* as the child of a raw clone, which runs no handler: it keeps its parent alive */
    skip
#else
    close()
#endif
}
proctype Client() {
    {
        atomic { copies++; run Child() };
        atomic { lock == 0 -> ENTER(1) };
        atomic { inside = 0; lock = 0 };
        atomic { lock == 0 -> ENTER(1) };
        atomic { inside = 0; lock = 0 };
        atomic { alive = false; close() }
    } unless { !alive }
}
proctype Other() {
    atomic { lock == 0 || !locked -> ENTER(2) };
    atomic { inside = 0; lock = 0 }
}
proctype Killer() { if :: atomic { alive -> alive = false; close() } :: skip fi }
init { atomic { run Client(); run Other(); run Killer() } }
