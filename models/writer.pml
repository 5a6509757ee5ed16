/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer.pml - the writer lock, and reservations, which are given up without it.
 *
 * Stands for writer.c (take, give back, take over by compare-and-swap from a number that the kernel says is not alive),
 * frames.c (owner words; EMPTY, HELD, CANCELLED, SWEPT), kvshm_cancel, what insert.c does with a reserved frame, the frame
 * side of mend.c. Three clients reserve, fill, cancel or insert, evict and sweep; each dies at any step, two
 * of them if need be, the mender too.
 *
 * Holds: one writer at a time; a frame is filled by one living client at most; when the lock is given back, the free
 * list is that of the owner words, and no frame names an EMPTY word (F2); nobody waits for ever.
 */
#define NC 4 /* clients 1 .. 3 */
#define NF 2
#define FREE 0
#define PAGE 10
#define EMPTY 0
#define HELD 1
#define CANCELLED 2
#define SWEPT 3
#ifndef KILLS
#define KILLS 2
#endif
byte lock; byte inside;                        /* the word; who is between taking and giving back */
byte own[NF]; bool listed[NF] = true; bool pub[NF]; /* owner words; free list (derived); published */
byte user[NF];                                 /* who fills it */
byte resw[NC];                                 /* reservation word of each client */
bool alive[NC]; byte kills;

#define f2_of(c) (resw[c] != EMPTY || (own[0] != c && own[1] != c) || !alive[c])
#define consistent ((own[0] == FREE) == listed[0] && (own[1] == FREE) == listed[1] && f2_of(1) && f2_of(2) && f2_of(3))

inline give(f) { own[f] = FREE; listed[f] = true }
inline rebuild() {
    i = 0;
    do
    :: i < NF ->
        if
        :: own[i] == PAGE && !pub[i] -> own[i] = FREE
#ifdef MUT_MEND_RESERVED
        :: own[i] > FREE && own[i] < PAGE -> own[i] = FREE
#endif
        :: else
        fi; i++
    :: else -> break
    od;
    listed[0] = (own[0] == FREE); listed[1] = (own[1] == FREE); i = 0
}
#define ENTER lock = me; x = 0; assert(inside == 0 || !alive[inside]); inside = me
#ifdef MUT_TIMEOUT
#define DEAD(c) (c != me)
#else
#define DEAD(c) (c != me && !alive[c])
#endif
inline acquire() {
    do
    :: atomic { lock == 0 -> ENTER }; break
    :: atomic { lock != 0 && DEAD(lock) -> x = lock }; /* the kernel was asked; now the compare-and-swap */
        if
#ifdef MUT_PLAIN_STORE
        :: atomic { ENTER };
#else
        :: atomic { lock == x -> ENTER };
#endif
#ifndef MUT_NO_REBUILD
            rebuild();
#endif
            break
        :: atomic { lock != x -> x = 0 }
        fi
    od
}
inline release() { atomic { assert(consistent); i = 0; inside = 0; lock = 0 } }
#ifdef MUT_NO_MARK
#define MARK CANCELLED
#else
#define MARK SWEPT
#endif
inline sweep() {
    i = 1;
    do :: i < NC -> d_step { if :: resw[i] == CANCELLED -> resw[i] = MARK :: else fi; i++ } :: else -> break od;
    i = 0;
    do
    :: i < NF -> if :: own[i] > FREE && own[i] < PAGE && (resw[own[i]] == MARK || !alive[own[i]]) -> give(i) :: else fi; i++
    :: else -> break
    od;
    i = 1;
    do :: i < NC -> d_step { if :: resw[i] == MARK -> resw[i] = EMPTY :: else fi; i++ } :: else -> break od
}
proctype Client(byte me; byte rounds) {
    byte i; byte f; byte x;
    {
        do
        :: rounds > 0 -> rounds--;
            acquire();
            if
            :: resw[me] == EMPTY -> /* reserve */
                resw[me] = HELD;
                atomic { if :: listed[0] -> f = 0 :: !listed[0] && listed[1] -> f = 1 :: else -> f = NF fi };
                if
                :: f < NF ->
                    listed[f] = false; own[f] = me;
                    atomic { assert(user[f] == 0 || !alive[user[f]]); user[f] = me };
                    release();
                    if
                    :: atomic { assert(user[f] == me); user[f] = 0 };
#ifdef MUT_CANCEL_EMPTIES
                        resw[me] = EMPTY
#else
                        resw[me] = CANCELLED /* cancel: one store, without the lock */
#endif
                    :: skip ->
                        acquire();
                        atomic { assert(user[f] == me && own[f] == me); user[f] = 0 };
#ifdef MUT_PUBLISH_FIRST
                        pub[f] = true; own[f] = PAGE;
#else
                        own[f] = PAGE; pub[f] = true;
#endif
                        resw[me] = EMPTY; release()
                    fi
                :: else -> resw[me] = EMPTY; release()
                fi
            :: pub[0] || pub[1] -> /* evict */
                atomic { if :: pub[0] -> f = 0 :: else -> f = 1 fi; pub[f] = false }; give(f); release()
            :: skip -> sweep(); release()
            fi; f = 0
        :: else -> break
        od
    } unless { !alive[me] }
}
proctype Killer() {
end: do
    :: atomic { kills < KILLS && alive[1] -> kills++; alive[1] = false }
    :: atomic { kills < KILLS && alive[2] -> kills++; alive[2] = false }
#ifdef MUT_NUMBERS_AGAIN
    :: atomic { kills < 9 && !alive[2] -> kills = 9; alive[2] = true; run Again() }
#endif
    od
}
#ifdef MUT_NUMBERS_AGAIN
proctype Again() { /* another client with the number of the dead client 2 */
    atomic { (lock == 0 || lock == 2) -> lock = 2; assert(inside == 0 || inside == 2 || !alive[inside]); inside = 2 };
    atomic { inside = 0; lock = 0 }
}
#endif
init {
    atomic {
        alive[1] = true; alive[2] = true; alive[3] = true;
        run Client(1, 1); run Client(2, 1); run Client(3, 2); run Killer()
    }
}
