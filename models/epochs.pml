/* SPDX-License-Identifier: Apache-2.0 */
/*
 * epochs.pml - clears with a spill file, at the same moment, and a start on the file at any moment.
 *
 * Stands for kvshm_clear (fill.c), kvshm__tier_epoch (tier.c), kvshm__evict_clear (evict.c), the epoch blocks of the file,
 * and the epochs of records and slot headers. Two threads of client 0 share a block, client 1 has its own; all clear.
 * Meanwhile a page is made, headers are written and written anew, a page is removed. Clients die at any step, and what
 * they were writing lands later. A page of an earlier epoch has no slot: what stands in the file is erased for those of
 * this one alone (G3 of slots.h).
 *
 * Holds: what a clear found, or a removal, is there no more when it has returned, nor after a start; if nobody is clearing,
 * or died at it without a later clear having returned, what stands in the file is there after a start.
 */
#define NP 2 /* page 0 is in the file, page 1 is made */
#define NT 3 /* threads that clear */
#define NONE 255
#ifndef DEATHS
#define DEATHS 1
#endif
byte memory = 1; byte block[2];           /* the epoch in memory; those in the file */
byte record[NP]; byte header[NP]; byte writing[NP]; /* epochs of pages, 0: none; headers on their way */
bool gone[NP];                            /* must not be there again */
bool alive[2] = true; byte deaths; bool ill; /* somebody died while clearing */
byte inside = NONE;                       /* the thread of client 0 that has its mutex */
bool clearing[NT]; byte pending[NT];      /* pending: the epoch that is being written */

#define CLIENT(t) (t / 2)
#ifdef MUT_ONE_BLOCK
#define BLOCK(t) 0
#else
#define BLOCK(t) CLIENT(t)
#endif
#define FILE (block[0] > block[1] -> block[0] : (block[1] > 1 -> block[1] : 1))
#define THERE(p) (record[p] == memory || (header[p] != 0 && header[p] == FILE))
#define CALM (!clearing[0] && !clearing[1] && !clearing[2] && !ill)
#define LOST(p) (CALM && header[p] == memory && header[p] != FILE)
#define CHECK assert(!(gone[0] && THERE(0)) && !(gone[1] && THERE(1)) && !LOST(0) && !LOST(1))

#ifdef MUT_PLAIN_STORE
#define RAISE memory = e; CHECK
#elif defined(MUT_BEYOND)
#define RAISE if :: memory < e -> memory = e :: else -> memory++ fi; CHECK
#else
#define RAISE if :: memory < e -> memory = e :: else fi; CHECK
#endif
proctype Clear(byte t; byte rounds) {
    byte e; byte d; bool is1;
    {
        do
        :: rounds > 0 -> rounds--;
            atomic { clearing[t] = true; is1 = record[1] != 0; d = deaths };
#ifndef MUT_NO_MUTEX
            if :: t < 2 -> atomic { inside == NONE -> inside = t } :: else fi;
#endif
            e = memory;
            d_step { if :: FILE > e -> e = FILE :: else fi; e++ };
#ifdef MUT_MEMORY_FIRST
            atomic { RAISE };
#endif
            pending[t] = e;
            atomic { pending[t] == 0; if :: inside == t -> inside = NONE :: else fi };
            atomic {
#ifndef MUT_MEMORY_FIRST
                RAISE;
#endif
                gone[0] = true; if :: is1 -> gone[1] = true :: else fi;
                if :: d == deaths -> ill = false :: else fi;
                clearing[t] = false; e = 0; d = 0; is1 = false; CHECK
            }
        :: else -> break
        od
    } unless { !alive[CLIENT(t)] -> clearing[t] = false }
}
#ifdef MUT_ANY_EPOCH
#define WRITABLE(p) (record[p] != 0)
#else
#define WRITABLE(p) (record[p] == memory)
#endif
#define WRITE(p) if :: atomic { WRITABLE(p) -> h = memory; writing[p] = h }; \
                    atomic { header[p] = h; h = 0; writing[p] = 0; CHECK } :: else fi
proctype Pages() { /* page 1 is made, and written; the header of page 0 is written anew */
    byte h;
    if
    :: atomic { record[1] = memory }; WRITE(1)
    :: WRITE(0)
    fi
}
proctype Remover() {
    if
    :: atomic { record[0] == memory -> record[0] = 0 };
        atomic { writing[0] == 0 -> header[0] = 0 };
        atomic { gone[0] = true; CHECK }
    :: atomic { record[0] != memory && writing[0] == 0 -> gone[0] = true; CHECK } /* it is of an earlier epoch */
    :: skip
    fi
}
#define LAND(t) atomic { pending[t] != 0 -> block[BLOCK(t)] = pending[t]; pending[t] = 0; CHECK }
proctype Device() {
end: do :: LAND(0) :: LAND(1) :: LAND(2) od
}
#define DIE(c, was) atomic { deaths < DEATHS && alive[c] -> deaths++; alive[c] = false; if :: was -> ill = true :: else fi }
proctype Killer() {
end: do :: DIE(0, clearing[0] || clearing[1]) :: DIE(1, clearing[2]) od
}
init {
    atomic {
        record[0] = 1; header[0] = 1;
        run Clear(1, 2);
#ifdef ONE_CLIENT
        run Clear(0, 1);
#else
        run Clear(2, 1);
#endif
        run Pages(); run Remover(); run Device(); run Killer()
    }
}
