/* SPDX-License-Identifier: Apache-2.0 */
/*
 * join.pml - what a dead client held stays while a living one has joined it.
 *
 * Stands for client.c (join, leave, "does it count?", taking a place over), the scan of lease.c, the sweep of frames.c,
 * insert.c with KVSHM_HOLD, and mend.c. O, in place 0, leases the page of frame 0 and reserved frames 1 and 2, which it
 * inserts as a chain of two pages, held. J, in place 1, joins O and uses all three frames until it leaves. M evicts,
 * sweeps and mends, one after another; N takes over a place. O, J and M die at any step.
 *
 * Holds: no frame is freed that O, alive, holds, or that J, alive and joined, uses; and no page above one
 * that J's joining holds.
 */
#define FREE 0
#define PAGE 100 /* owner of a frame: FREE, 1 (reserved by O), or PAGE + record; record r stands in frame r */
#define AWAY 1
#define RES 2
byte number[2];                     /* of the clients in the two places: O is 1, J is 2, N is 5 */
byte join_word[2]; byte word[2] = 9; byte wseq[2]; /* join word of each place; two lease words of place 0: record, or 9 */
bool alive[6];
byte seq[3]; bool linked; byte st[3]; bool named[3]; byte own[3]; /* records; linked: 2 names 1 as its parent */
byte lock; bool juse; bool die; byte kills; bool oheld = true;
#define OPS 2   /* of M */
#define KILLS 2 /* of O, J and M together */
#define FREED(f) assert(!(juse && alive[2])); assert(!(oheld && alive[1]))

inline hold() { atomic { word[1] = 2; wseq[1] = seq[2] + 2 } }
inline write_record(r) { seq[r] = seq[r] + 1; if :: r == 2 -> linked = true :: else fi; seq[r] = seq[r] + 1; st[r] = RES }

proctype O() {
    {
        atomic { lock == 0 -> lock = 1 };
#ifdef MUT_HOLD_LATE
        own[1] = PAGE + 1; write_record(1); named[1] = true; own[2] = PAGE + 2; write_record(2); named[2] = true; hold();
#elif defined(MUT_OWNER_FIRST)
        hold(); own[1] = PAGE + 1; write_record(1); named[1] = true; own[2] = PAGE + 2; write_record(2); named[2] = true;
#elif defined(MUT_OWNER_ROOT_FIRST)
        hold(); write_record(1); write_record(2); own[1] = PAGE + 1; own[2] = PAGE + 2; named[1] = true; named[2] = true;
#else
        hold(); write_record(1); write_record(2); own[2] = PAGE + 2; own[1] = PAGE + 1; named[1] = true; named[2] = true;
#endif
        lock = 0
    } unless { !alive[1] }
}

proctype J() {
    {
#ifdef MUT_LOOK_FIRST
        if :: !alive[1] -> goto out :: else fi;
        join_word[1] = 1;
#else
        join_word[1] = 1;
        if :: !alive[1] -> join_word[1] = 0; goto out :: else fi;
#endif
        juse = true;
        juse = false;
        join_word[1] = 0;
out:    skip
    } unless { !alive[2] }
}

/* Does client n count, into h? Only place 1 ever names one. */
inline joined() { k = number[1]; atomic { if :: join_word[1] == n && k != 0 && alive[k] -> h = true :: else fi; k = 0 } }
inline counts() {
#ifdef MUT_NO_JOIN
    h = alive[n]
#elif defined(MUT_JOIN_FIRST)
    h = false; joined(); if :: alive[n] -> h = true :: else fi
#else
    if :: atomic { alive[n] -> h = true } :: atomic { else -> h = false }; joined() fi
#endif
}
inline scan() { /* H: the records that words of place 0 name, and the parent of 2 */
    n = number[0];
    atomic {
        if :: word[0] == 0 && st[0] != 0 -> H = 1 :: else fi; /* nothing writes record 0 */
        if :: word[1] == 2 && wseq[1] == seq[2] && st[2] != 0 -> H = H | 4; if :: linked -> H = H | 2 :: else fi :: else fi
    };
    if :: H != 0 && n != 0 -> counts(); atomic { if :: !h -> H = 0 :: else fi; h = false; n = 0 } :: else -> H = 0 fi
}
#define held(r) ((H >> (r)) & 1)
inline free_page(r) {
    named[r] = false;
    atomic { if :: own[r] == PAGE + r -> own[r] = FREE; FREED(r) :: else fi };
    st[r] = 0
}
inline rebuild() {
    atomic { if :: seq[1] & 1 -> seq[1] = seq[1] + 1 :: else fi; if :: seq[2] & 1 -> seq[2] = seq[2] + 1 :: else fi };
    if :: st[2] == RES && (!named[2] || own[2] != PAGE + 2 || st[1] != RES) -> st[2] = AWAY :: else fi;
    if :: st[1] == RES && (!named[1] || own[1] != PAGE + 1 || st[2] != RES) -> st[1] = AWAY :: else fi; /* or no entry below */
    scan();
#ifndef MUT_NO_FINISH /* the insert of who died, where a lease that counts holds its pages */
    if :: st[1] == AWAY && held(1) && own[1] == 1 -> own[1] = PAGE + 1 :: else fi;
    if :: st[2] == AWAY && held(2) && own[2] == 1 -> own[2] = PAGE + 2 :: else fi;
#endif
    if :: st[1] == AWAY && !(held(1) && own[1] == PAGE + 1) -> free_page(1) :: else fi;
    if :: st[2] == AWAY && !(held(2) && own[2] == PAGE + 2) -> free_page(2) :: else fi;
    atomic { if :: own[1] == PAGE + 1 && st[1] == 0 -> own[1] = FREE; FREED(1) :: else fi };
    atomic { if :: own[2] == PAGE + 2 && st[2] == 0 -> own[2] = FREE; FREED(2) :: else fi }
}
proctype M() {
    byte n; byte k; byte H; bool h; byte ops;
again:
    {
        if :: lock == 3 -> rebuild(); lock = 0 :: else fi;
        do
        :: ops < OPS -> ops++;
            if :: atomic { lock == 0 -> lock = 3 } :: atomic { lock == 1 && !alive[1] -> lock = 3 }; rebuild() fi;
            if
            :: skip -> /* evict: each page that is published, leaf first; then the scan */
                if :: st[0] == RES -> st[0] = AWAY :: else fi;
                if :: st[2] == RES -> st[2] = AWAY :: else fi;
                if :: st[1] == RES && st[2] != RES -> st[1] = AWAY :: else fi;
                scan();
                if :: st[0] == AWAY && !held(0) -> free_page(0) :: else fi;
                if :: st[2] == AWAY && !held(2) -> free_page(2) :: else fi;
                if :: st[1] == AWAY && !held(1) && !(linked && st[2] != 0) -> free_page(1) :: else fi
            :: !alive[1] -> /* other pages take the records that are free */
                if :: atomic { st[1] == 0 -> seq[1] = seq[1] + 2; linked = false } :: else fi;
                if :: atomic { st[2] == 0 -> seq[2] = seq[2] + 2; linked = false } :: else fi
            :: skip -> /* sweep reserved frames of who does not count */
                n = 1; counts();
                atomic { if :: !h && own[1] == 1 -> own[1] = FREE; FREED(1) :: else fi };
                atomic { if :: !h && own[2] == 1 -> own[2] = FREE; FREED(2) :: else fi }
            fi;
            assert(!(juse && alive[2] && linked && st[2] != 0) || st[1] != 0); /* no page without its parent */
            atomic { lock = 0; n = 0; k = 0; H = 0; h = false }
        :: else -> break
        od
    } unless { atomic { die -> die = false; n = 0; k = 0; H = 0; h = false }; goto again }
}

proctype N() { /* has its number and its locks, and looks for a place */
    byte q; byte k; bool h; byte n;
    q = 0;
    do
    :: q < 2 -> n = number[q];
#ifdef MUT_PLACE_OF_JOINED
        h = alive[n];
#else
        counts();
#endif
        if
        :: atomic { !h && number[q] == n -> number[q] = 5 };
            join_word[q] = 0;
            if :: q == 0 -> word[0] = 9; word[1] = 9 :: else fi;
            break
        :: else -> q++
        fi
    :: else -> break
    od
}
proctype Killer() {
end: do
    :: atomic { kills < KILLS && alive[1] -> kills++; alive[1] = false }
    :: atomic { kills < KILLS && alive[2] -> kills++; alive[2] = false }
    :: atomic { kills < KILLS && !die -> kills++; die = true }
    od
}
init {
    atomic {
        number[0] = 1; number[1] = 2; alive[1] = true; alive[2] = true; alive[3] = true; alive[5] = true;
        st[0] = RES; named[0] = true; own[0] = PAGE; own[1] = 1; own[2] = 1; word[0] = 0;
        run O(); run J(); run M(); run N(); run Killer()
    }
}
