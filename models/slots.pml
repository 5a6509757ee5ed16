/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots.pml - what stands in the spill file, against pages that go while they are written, or after.
 *
 * Stands for slots.c, the writing and erasing of batch.c, the removal of cache.c with kvshm__tier_pass, and what mend.c
 * does to slots. Page A is in the file or will be written, X is in the file, B comes into record and frame of who went. A
 * client writes, one erases, inserts and drops, two remove A. Each dies between any two stores, its transfer lands later.
 * Sections under the writer lock are one step, with a death between any two stores: nobody else looks before the next
 * writer has rebuilt.
 *
 * Holds: once a removal has returned no header of A stands in the file, now or later; a payload that fits the sum
 * of its header is of that page; who removes comes to an end when others go on or are dead.
 */
#define NS 2
#define NR 2
#define NC 5 /* clients 1 .. 4 */
#define NONE 255
#define A 1
#define X 2
#define B 3
#define FREE 0
#define WRITING 10 /* + client */
#define ERASING 20
#define DOOMED 30
#define PAGE 40 /* + record */
#define PAYLOAD 1
#define HEADER 2
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef OPS
#define OPS 2
#endif
byte page[NR]; bool inframe[NR]; byte frame;         /* who a record is, does it stand in the one frame; bytes of that */
byte slot[NR] = NONE; bool written[NR];              /* slot words of records */
byte own[NS]; byte rec[NS] = NONE; byte stamp[NS];   /* slots: owner word, whose page is written, the moment it is of */
byte id[NS]; byte sum[NS]; byte payload[NS];         /* the file */
byte first = NONE; byte second = NONE; bool disordered; /* doomed ones */
byte moment = 1; byte since[NC];                     /* batches; 0: none */
byte pending[NC]; byte pslot[NC]; byte phead[NC]; byte psum[NC]; /* a client's transfer */
bool alive[NC] = true; bool broken; byte deaths; byte fails; bool removed;

#define written_by(s) (rec[s] != NONE && slot[rec[s]] == s)
#define is_whole(r) (slot[r] != NONE && written[r] && own[slot[r]] == PAGE + r)
#define holds(c) (own[0] == WRITING + c || own[0] == ERASING + c || own[1] == WRITING + c || own[1] == ERASING + c)
#define before(c, m) (since[c] != 0 && since[c] <= m)
#define any_before(m) (before(1, m) || before(2, m) || before(3, m) || before(4, m))
#ifdef MUT_ALIVE_ONLY
#define quiet(c) (!alive[c])
#else
#define quiet(c) (!alive[c] && pending[c] == 0)
#endif
#define of_the_dead(c) (quiet(c) && (holds(c) || since[c] != 0))

/* A death between two stores under the lock. */
#define CUT if :: skip :: deaths < DEATHS -> d_step { deaths++; broken = true; alive[me] = false }; goto died fi

inline doom(s, at) {
    own[s] = DOOMED; stamp[s] = at;
    if
    :: first == NONE -> first = s
    :: else -> if :: stamp[first] > at -> disordered = true :: else fi; second = s
    fi
}
inline rebuild() {
    r = 0; /* a slot word that is about something else is taken back */
    do
    :: r < NR ->
        s = slot[r];
        if
        :: s == NONE || is_whole(r)
        :: s != NONE && !is_whole(r) && (written[r] || rec[s] != r || own[s] <= WRITING || own[s] >= ERASING) -> slot[r] = NONE
        :: else
        fi;
        if :: page[r] == 0 -> slot[r] = NONE :: else fi; r++
    :: else -> break
    od;
    first = NONE; second = NONE; disordered = false; s = 0;
    do
    :: s < NS ->
        if
        :: own[s] == DOOMED || (own[s] >= PAGE && (page[own[s] - PAGE] == 0 || slot[own[s] - PAGE] != s)) -> doom(s, 1)
        :: else
        fi; s++
    :: else -> break
    od
}
inline sweep() {
    r = 1;
    do
    :: r < NC -> s = 0;
        do
        :: s < NS ->
            if
            :: !alive[r] && (own[s] == WRITING + r || own[s] == ERASING + r) ->
                if :: own[s] == WRITING + r && written_by(s) -> slot[rec[s]] = NONE :: else fi;
                if :: quiet(r) -> doom(s, 1) :: else fi
            :: else
            fi; s++
        :: else -> break
        od;
        if :: !holds(r) -> since[r] = 0 :: else fi; r++
    :: else -> break
    od
}
inline drop(r) { /* the page of record r goes */
    page[r] = 0; inframe[r] = false; CUT;
    s = slot[r];
    if
    :: s != NONE && is_whole(r) -> slot[r] = NONE; CUT;
#ifdef MUT_NO_ERASE
        own[s] = FREE
#else
        doom(s, moment + 1)
#endif
    :: s != NONE && !is_whole(r) -> slot[r] = NONE
    :: else
    fi;
    s = 0
}
inline transfer(kind, s, i, c) { d_step { pslot[me] = s; phead[me] = i; psum[me] = c; pending[me] = kind }; pending[me] == 0 }

/* One of the doomed, the first. Its batch is as old as what it erases. */
inline erase() {
    atomic {
        first != NONE && !broken;
#ifdef MUT_SINCE_BEGUN
        since[me] = moment + 1; CUT;
#else
        if :: disordered -> since[me] = 1 :: else -> since[me] = stamp[first] fi; CUT;
#endif
        s = first; own[s] = ERASING + me; CUT;
        first = second; second = NONE;
        if :: first == NONE -> disordered = false :: else fi
    };
    transfer(HEADER, s, 0, 0);
    atomic {
        !broken;
        if
        :: own[s] = FREE
#ifndef ALL_ERASED
        :: fails < 1 -> fails++; doom(s, stamp[s])
#endif
        fi;
        CUT; since[me] = 0; s = 0
    }
}
#ifdef MUT_NO_BATCHES
#define PASSED(m) (first == NONE || (!disordered && stamp[first] > m))
#elif defined(MUT_NO_DOOMED)
#define PASSED(m) (!any_before(m))
#elif defined(MUT_NO_ORDER)
#define PASSED(m) (!any_before(m) && (first == NONE || stamp[first] > m))
#else
#define PASSED(m) (!any_before(m) && (first == NONE || (!disordered && stamp[first] > m)))
#endif
#define LEGAL(s) (id[s] == 0 || ((payload[s] != sum[s] || payload[s] == id[s]) && !(removed && id[s] == A)))


proctype Writer(byte me) {
    byte r; byte s; byte i; byte c; byte ops;
    {
        do
        :: ops < OPS -> ops++;
            atomic {
                !broken;
                if :: inframe[0] && slot[0] == NONE -> r = 0 :: inframe[1] && slot[1] == NONE -> r = 1 :: else -> goto done fi;
                if :: own[0] == FREE -> s = 0 :: own[0] != FREE && own[1] == FREE -> s = 1 :: else -> goto done fi;
                since[me] = moment + 1; rec[s] = r; CUT;
                own[s] = WRITING + me; CUT;
                slot[r] = s; written[r] = false; i = page[r]; c = i /* the sum of who made the page */
            };
            transfer(PAYLOAD, s, 0, 0);
#ifdef MUT_SUM_LATE
            c = frame;
#endif
            transfer(HEADER, s, i, c);
            atomic {
                !broken;
                if
                :: written_by(s) -> own[s] = PAGE + rec[s]; CUT; written[rec[s]] = true
#ifdef MUT_STAMP_LATE
                :: else -> doom(s, moment + 1)
#elif defined(MUT_FREE_UNWANTED)
                :: else -> own[s] = FREE
#else
                :: else -> doom(s, since[me])
#endif
                fi;
                CUT; since[me] = 0;
done:           r = 0; s = 0; i = 0; c = 0
            }
        :: else -> break
        od
    } unless { !alive[me] };
died: skip
}
proctype Other(byte me) { /* erases, inserts B where A or X was, drops X or B */
    byte s; byte ops;
    {
        do
        :: ops < OPS -> ops++;
            if
            :: erase()
            :: atomic { page[0] == 0 && !inframe[1] && !broken -> frame = B; page[0] = B; inframe[0] = true }
            :: atomic { page[1] == 0 && !inframe[0] && !broken -> frame = B; page[1] = B; inframe[1] = true }
            :: atomic { page[1] != 0 && !broken -> drop(1) }
            :: skip
            fi
        :: else -> break
        od
    } unless { !alive[me] };
died: skip
}
proctype Remover(byte me) {
    byte s; byte m;
    {
        atomic {
            !broken;
            if :: page[0] == A -> drop(0) :: else fi; CUT;
            moment++; m = moment
        };
        do
        :: atomic { PASSED(m) && !broken -> removed = true; assert(LEGAL(0) && LEGAL(1)); m = 0 }; break
        :: erase()
        od
    } unless { !alive[me] };
died: skip
}
proctype Device(byte c) {
end: do
    :: atomic {
            pending[c] != 0 ->
            if
            :: pending[c] == PAYLOAD -> payload[pslot[c]] = frame
            :: else -> id[pslot[c]] = phead[c]; sum[pslot[c]] = psum[c]
            fi;
            assert(LEGAL(0) && LEGAL(1));
            pending[c] = 0; pslot[c] = 0; phead[c] = 0; psum[c] = 0
        }
    od
}
proctype Next() { /* whoever comes next, and waits for the dead */
    byte r; byte s;
end: do
    :: d_step { broken -> broken = false; rebuild(); r = 0; s = 0 }
    :: d_step { !broken && (of_the_dead(1) || of_the_dead(2) || of_the_dead(3) || of_the_dead(4)) -> sweep(); r = 0; s = 0 }
    od
}
proctype Killer() {
end: do
    :: atomic { deaths < DEATHS && alive[1] -> deaths++; alive[1] = false }
    :: atomic { deaths < DEATHS && alive[2] -> deaths++; alive[2] = false }
    :: atomic { deaths < DEATHS && alive[3] -> deaths++; alive[3] = false }
    od
}
init {
    atomic {
        page[0] = A; inframe[0] = true; frame = A;
        page[1] = X; slot[1] = 1; written[1] = true; own[1] = PAGE + 1; id[1] = X; sum[1] = X; payload[1] = X;
        if
        :: skip
        :: slot[0] = 0; written[0] = true; own[0] = PAGE; id[0] = A; sum[0] = A; payload[0] = A
        fi;
        run Writer(1); run Other(2); run Remover(3);
#ifdef AGAIN
        run Remover(4);
#endif
        run Device(1); run Device(2); run Device(3); run Device(4); run Next(); run Killer()
    }
}
