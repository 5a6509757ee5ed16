/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.pml - index words and records under their sequence: a look finds what was asked for, or nothing.
 *
 * Stands for index_look.h (look_at, look_at_word), kvshm__pages_write, the publication and the key-only replacement of
 * insert.c, and mend.c as far as words and sequences go. A bucket of two words; identities are pairs, so that a torn
 * read of two others looks like the one sought: K = (1,1) may be read out of (1,2) and (2,1). The writer publishes,
 * replaces K by one store, evicts, uses records again, dies at any step, and its successor mends. The reader, stopped
 * anywhere for any time, looks LOOKS times at a word.
 *
 * Holds: a record taken for K is K's, whole, and no version that a replacement or an eviction had ended before the
 * look began; where K was published all the time, a look that did not give up finds it; the reader always comes to an
 * end, and what is published has an even sequence.
 */
#define NR 3
#define NONE 0
#define AWAY 1
#define RES 2
#ifndef OPS
#define OPS 3
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef LOOKS
#define LOOKS 2
#endif
byte w[2];                                       /* index words: record + 1 */
byte seq[NR]; byte a[NR]; byte b[NR]; byte st[NR]; byte moves[NR]; /* records, places */
byte va[NR]; byte vb[NR];                        /* in which write each half was stored */
byte writes; byte ended;                         /* writes so far; versions of K below ended are gone */
bool gap;                                        /* K was not published at some time since the look began */
bool die; byte deaths;

#define is_k(r) (a[r] == 1 && b[r] == 1)
#define res_in(i) (w[i] != 0 && st[w[i] - 1] == RES)
#define k_in(i) (res_in(i) && is_k(w[i] - 1))
#define NOTE_GAP if :: !(k_in(0) || k_in(1)) -> gap = true :: else fi
#define MOVE(r, to) d_step { st[r] = to; moves[r]++ }
#define FIRST(cond) r = 0; do :: r < NR && !(cond) -> r++ :: else -> break od

inline write(x, y) { /* the free record r becomes (x, y) */
#ifdef MUT_SEQ_RESET
    seq[r] = 1;
#else
    seq[r] = seq[r] + 1;
#endif
    atomic { writes++; a[r] = x; va[r] = writes };
    atomic { b[r] = y; vb[r] = writes };
    seq[r] = seq[r] + 1
}
#ifdef MUT_PUBLISH_FIRST
#define PUBLISH(x, y) w[i] = r + 1; MOVE(r, RES); write(x, y)
#else
#define PUBLISH(x, y) write(x, y); MOVE(r, RES); w[i] = r + 1
#endif
#define END_K(r) if :: is_k(r) && ended <= va[r] -> ended = va[r] + 1 :: else fi
inline free_record() { /* r, which is AWAY */
    atomic { if :: w[0] == r + 1 -> w[0] = 0 :: w[1] == r + 1 -> w[1] = 0 :: else fi; NOTE_GAP };
    MOVE(r, NONE)
}
inline rebuild() {
#ifndef MUT_ODD_LEFT
    do :: atomic { FIRST(seq[r] & 1); if :: r < NR -> seq[r] = seq[r] + 1 :: else -> break fi } od;
#endif
    if :: w[0] != 0 && st[w[0] - 1] == NONE -> w[0] = 0 :: else fi;
    if :: w[1] != 0 && st[w[1] - 1] == NONE -> w[1] = 0 :: else fi;
    do :: atomic { FIRST(st[r] == RES && w[0] != r + 1 && w[1] != r + 1); if :: r < NR -> MOVE(r, AWAY) :: else -> break fi } od;
    do :: atomic { FIRST(st[r] == AWAY); if :: r < NR :: else -> break fi }; free_record() od
}
proctype Writer() {
    byte r; byte i; byte old; byte ops;
again:
    {
        if :: deaths > 0 -> rebuild() :: else fi;
        do
        :: ops < OPS -> ops++;
            if
            :: /* publish one that is not there */
                atomic { (w[0] == 0 || w[1] == 0) -> FIRST(st[r] == NONE); if :: w[0] == 0 -> i = 0 :: else -> i = 1 fi };
                if :: !(k_in(0) || k_in(1)) -> PUBLISH(1, 1) :: PUBLISH(1, 2) :: PUBLISH(2, 1) fi
            :: /* replace K */
                atomic { (k_in(0) || k_in(1)) -> FIRST(st[r] == NONE); if :: k_in(0) -> i = 0 :: else -> i = 1 fi; old = w[i] - 1 };
                write(1, 1);
                MOVE(r, RES);
#ifdef MUT_TWO_STORES
                w[i] = 0; w[i] = r + 1;
#elif defined(MUT_WORD_MOVES)
                if :: w[1 - i] == 0 -> w[1 - i] = r + 1; w[i] = 0 :: else -> w[i] = r + 1 fi;
#else
                w[i] = r + 1;
#endif
                MOVE(old, AWAY);
                atomic { END_K(old); MOVE(old, NONE) }
            :: /* evict; freed now, or held in limbo, where it keeps its word */
                if :: atomic { res_in(0) -> r = w[0] - 1 } :: atomic { res_in(1) -> r = w[1] - 1 } fi;
                atomic { MOVE(r, AWAY); NOTE_GAP };
                if :: free_record() :: skip fi;
                atomic { END_K(r) }
            :: /* sweep */
                atomic { (st[0] == AWAY || st[1] == AWAY || st[2] == AWAY) -> FIRST(st[r] == AWAY) }; free_record()
            fi;
            atomic {
                FIRST(st[r] == RES && (seq[r] & 1)); assert(r == NR); /* else readers would miss it for ever */
                r = 0; i = 0; old = 0
            }
        :: else -> break
        od
    } unless { atomic { die -> die = false; deaths++; r = 0; i = 0; old = 0 }; goto again }
}
proctype Reader() {
    byte i; byte looks; byte r; byte s; byte x; byte y; byte vx; byte vy; byte place; byte m; byte least; bool gave_up;
    atomic { least = ended; gap = false; NOTE_GAP };
    do
    :: i < 2 ->
look:   if :: looks == LOOKS -> gave_up = true; goto next_word :: else -> looks++ fi;
        atomic { r = w[i]; if :: r == 0 -> goto next_word :: else -> r-- fi };
        s = seq[r];
        if :: s & 1 -> goto look :: else fi;
        atomic { place = st[r]; m = moves[r] }; atomic { x = a[r]; vx = va[r] }; atomic { y = b[r]; vy = vb[r] };
#ifndef MUT_NO_RETRY
        if :: seq[r] != s -> goto look :: else fi;
#endif
#ifdef MUT_NO_PLACE
        place = RES;
#endif
        if :: x == 1 && y == 1 && place == RES -> assert(vx == vy && vx >= least); goto out :: else fi;
#ifndef MUT_NO_IS_NO /* not here: true only if word and page are still those that were looked at */
        if :: w[i] != r + 1 -> goto look :: else fi;
#ifndef MUT_WORD_ONLY
        if :: moves[r] != m -> goto look :: else fi; /* it may name the same record again */
#endif
#endif
next_word: atomic { i++; looks = 0; r = 0; s = 0; x = 0; y = 0; vx = 0; vy = 0; place = 0; m = 0 }
    :: else -> break
    od;
    assert(gap || gave_up);
out: skip
}
proctype Killer() { end: do :: atomic { !die && deaths < DEATHS -> die = true } od }
init { atomic { run Writer(); run Reader(); run Killer() } }
