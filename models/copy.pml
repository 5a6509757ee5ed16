/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.pml - copying a chain without a lease, as a read-only handle does.
 *
 * Stands for copy_chain and copy_unleased of cache.c (place; bytes; place and its count of moves again; sequence),
 * against pages that are taken away, called back, freed, and whose frames and records others fill anew. A chain P <- C
 * of two records, three frames, each of two bytes. Writers are one at a time, and die at any step: the next one mends.
 *
 * Holds: a copy that is not thrown away is of the pages that were found.
 */
#define P 1
#define C 2
#define X 3
#define NONE 0
#define AWAY 1
#define RES 2
#ifndef OPS
#define OPS 4
#endif
byte idx[4]; byte seq[2]; byte id[2]; byte pseq;       /* record 1 names 0 as its parent, by this sequence */
byte fr[2]; byte st[2]; byte moves[2];                 /* places */
byte low[3]; byte high[3]; bool taken[3];              /* frames: two bytes; taken: of a page */
bool die; bool mend;

#ifdef NO_COUNT /* nothing brings a page back into a frame yet but a recall, which finds it there: not needed so far */
#define NEXT(m) m
#else
#define NEXT(m) (m + 1)
#endif
#define MOVE(r, to) d_step { st[r] = to; moves[r] = NEXT(moves[r]) }

inline copy(r, found, what) {
    d_step { f = fr[r]; m = moves[r]; place = st[r] };
    if :: place != RES -> goto miss :: else fi;
    x = low[f]; y = high[f];
#ifndef MUT_NO_PLACE
    d_step { ok = (st[r] == RES && fr[r] == f && moves[r] == m) };
    if :: !ok -> goto miss :: else fi;
#endif
#ifndef MUT_NO_SEQ
    if :: seq[r] != found -> goto miss :: else fi;
#endif
    assert(x == what && y == what)
}
proctype Reader() {
    byte s0; byte s1; byte f; byte m; byte place; byte x; byte y; bool ok;
    /* the walk: two looks, each as atomic as the sequence makes it (index.pml) */
    if :: idx[P] != 1 -> goto miss :: else fi;
    atomic { ok = (id[0] == P && st[0] == RES && !(seq[0] & 1)); s0 = seq[0] }; if :: !ok -> goto miss :: else fi;
    if :: idx[C] != 2 -> goto miss :: else fi;
    atomic { ok = (id[1] == C && pseq == s0 && st[1] == RES && !(seq[1] & 1)); s1 = seq[1] }; if :: !ok -> goto miss :: else fi;
    copy(1, s1, C);
    copy(0, s0, P);
miss: skip
}

inline fill(what) { low[f] = what; high[f] = what }
inline free_frame() { f = 0; do :: f < 3 && taken[f] -> f++ :: else -> break od }
inline free_page() { if :: idx[id[r]] == r + 1 -> idx[id[r]] = 0 :: else fi; taken[fr[r]] = false; MOVE(r, NONE) }
inline publish(t) { /* record r, free, in the free frame f */
    fill(t);
    seq[r] = seq[r] + 1; id[r] = t; if :: r == 1 -> pseq = seq[0] :: else fi; seq[r] = seq[r] + 1;
    taken[f] = true;
    d_step { fr[r] = f; st[r] = RES; moves[r] = NEXT(moves[r]) };
    idx[t] = r + 1
}
proctype Writer() {
    byte r; byte f; byte ops;
again:
    {
        if
        :: mend ->
            if :: seq[0] & 1 -> seq[0] = seq[0] + 1 :: else fi; if :: seq[1] & 1 -> seq[1] = seq[1] + 1 :: else fi;
            r = 1;
            do
            :: if :: st[r] == RES && idx[id[r]] != r + 1 -> MOVE(r, AWAY) :: else fi;
                if :: st[r] == AWAY -> free_page() :: else fi;
                if :: r == 0 -> break :: else -> r = 0 fi
            od;
            atomic { f = 0; do :: f < 3 -> taken[f] = ((st[0] != NONE && fr[0] == f) || (st[1] != NONE && fr[1] == f)); f++ :: else -> break od; f = 0 };
            mend = false
        :: else
        fi;
        do
        :: ops < OPS -> ops++;
            if
            :: atomic { st[0] == RES || st[1] == RES -> if :: st[1] == RES -> r = 1 :: else -> r = 0 fi };
#ifdef MUT_FRAME_FIRST
                f = fr[r]; fill(X); /* in another's hands before its page's place has moved */
#endif
                MOVE(r, AWAY);
                if :: free_page() :: MOVE(r, RES) fi /* freed, or called back from limbo */
            :: atomic { free_frame() }; fill(X) /* reserved, filled, cancelled */
            :: atomic { st[0] == NONE && st[1] == NONE -> r = 0; free_frame() }; publish(P)
            :: atomic { st[0] == RES && st[1] == NONE -> r = 1; free_frame() }; if :: publish(C) :: publish(X) fi
            fi;
            atomic { r = 0; f = 0 }
        :: else -> break
        od
    } unless { atomic { die -> die = false; mend = true; r = 0; f = 0 }; goto again }
}
proctype Killer() { if :: die = true :: skip fi }
init {
    atomic {
        idx[P] = 1; id[0] = P; st[0] = RES; taken[0] = true; low[0] = P; high[0] = P;
        idx[C] = 2; id[1] = C; st[1] = RES; fr[1] = 1; taken[1] = true; low[1] = C; high[1] = C;
        low[2] = X; high[2] = X;
        run Reader(); run Writer(); run Killer()
    }
}
