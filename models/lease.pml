/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease.pml - a lease against everything that wants its pages.
 *
 * Stands for lease.c (claim; then word, place and, last, sequence), evict.c (take away; then scan, then free), insert.c
 * (recall from limbo; publish) and mend.c. A chain P <- C, three records, three frames; readers lease P or C. Attacked by
 * eviction, sweep, reuse of frame and record, recall, death of writer, mender and reader at every step.
 *
 * Holds: from the lease to its release, record, links, frame and bytes are those of the page that was looked for, and
 * of its parent. At the end all frames and records come back.
 */
#define IDS 2
#define P 0
#define C 1
#define NR 3
#define NF 3
#define MORE(what, r) false
#ifndef OPS
#define OPS 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef READERS
#define READERS 1
#endif
#include "chain.inc"
bool rdone[2];

proctype Writer() {
    byte r; byte f; byte H; byte q = NONE; byte g; byte ops;
again:
    {
        if :: deaths > 0 ->
#ifdef MUT_NO_REBUILD
            skip
#else
            rebuild()
#endif
        :: else fi;
        do
        :: ops < OPS -> ops++;
            if
            :: evict()
            :: scan(); free_limbo()
            :: atomic { cached(P, NONE) -> q = idx[P]; if :: st[q] == AWAY -> st[q] = RES :: else fi }; /* insert C, or only recall P */
                if
                :: skip
                :: atomic { cached(C, q) -> r = idx[C]; if :: st[r] == AWAY -> st[r] = RES :: else fi }
                :: atomic { !cached(C, q) -> skip }; reserve(); if :: r != NONE -> publish(C, q) :: else fi
                fi
            :: atomic { !cached(P, NONE) -> skip }; reserve(); if :: r != NONE -> publish(P, NONE) :: else fi
            :: atomic { !cached(P, NONE) -> skip }; reserve(); /* insert P and C: records, owners leaf first, words root first */
                content[f] = P; PAGE_RECORD(P, NONE); q = r; g = f;
                reserve();
                if
                :: r != NONE ->
                    content[f] = C; PAGE_RECORD(C, q); own[f] = PAGE + r; own[g] = PAGE + q; idx[P] = q; idx[C] = r
                :: else -> own[g] = PAGE + q; idx[P] = q
                fi
            fi;
            atomic { r = 0; f = 0; g = 0; H = 0; q = NONE }
        :: atomic { else -> (rdone[0] || !counts[0]) && (rdone[1] || !counts[1]) }; break
        od;
        /* all goes, and all comes back */
        do :: STORE_OR_BREAK(LEAF(r), st[r] = AWAY) od;
        scan(); free_limbo();
        atomic {
            r = 0; do :: r < NR -> assert(st[r] == 0); r++ :: else -> break od;
            r = 0; do :: r < NF -> assert(own[r] < PAGE); r++ :: else -> break od;
            assert(idx[P] == NONE && idx[C] == NONE)
        }
    } unless { DIE; g = 0; goto again }
}

/* One look at the record that a word names: atomic, as the sequence makes it (index.pml). */
#define LOOK(r, t, p, s) \
    atomic { (st[r] == RES && !(seq[r] & 1) && id[r] == t && par[r] == p && (p == NONE || pseq[r] == s1)) -> s = seq[r] }

proctype Reader(byte k) {
    byte r1; byte s1; byte r2; byte s2; byte t;
    {
        if :: atomic { idx[P] != NONE -> r1 = idx[P] } :: else -> goto miss fi;
        if :: LOOK(r1, P, NONE, s1) :: else -> goto miss fi;
        if
        :: t = P; r2 = r1; s2 = s1
        :: t = C; if :: atomic { idx[C] != NONE -> r2 = idx[C] } :: else -> goto miss fi;
            if :: LOOK(r2, C, r1, s2) :: else -> goto miss fi
        fi;
#ifdef MUT_CLAIM_LAST
        if :: st[r2] != RES -> goto miss :: else fi;
#endif
        atomic { word[k] = r2; wseq[k] = s2 };
        if :: idx[t] != r2 -> goto miss :: else fi;
#ifdef MUT_SEQ_BEFORE_PLACE
        if :: seq[r2] != s2 -> goto miss :: else fi;
#endif
#if !defined(MUT_NO_PLACE) && !defined(MUT_CLAIM_LAST)
        if :: st[r2] != RES -> goto miss :: else fi;
#endif
#if !defined(MUT_NO_SEQ) && !defined(MUT_SEQ_BEFORE_PLACE)
        if :: seq[r2] != s2 -> goto miss :: else fi;
#endif
        /* leased; a walk up, and a look at the bytes, at any time from now on */
        d_step {
            assert(seq[r2] == s2 && id[r2] == t && st[r2] != 0 && content[fr[r2]] == t);
            if
            :: t == C -> assert(par[r2] == r1 && seq[r1] == s1 && st[r1] != 0 && content[fr[r1]] == P)
            :: else
            fi
        };
miss:   atomic { word[k] = NONE; wseq[k] = 0; r1 = 0; s1 = 0; r2 = 0; s2 = 0; t = 0; rdone[k] = true }
    } unless { !counts[k] }
}

proctype Killer() {
end: do
    :: atomic { !die && deaths < DEATHS -> die = true }
#ifdef KILL_READER
    :: atomic { counts[0] -> counts[0] = false }
#endif
    od
}

init {
    atomic {
        idx[P] = 0; id[0] = P; st[0] = RES; fr[0] = 0; own[0] = PAGE; content[0] = P;
        idx[C] = 1; id[1] = C; st[1] = RES; fr[1] = 1; own[1] = PAGE + 1; content[1] = C; par[1] = 0;
        run Writer(); run Reader(0);
#if READERS > 1
        run Reader(1);
#else
        rdone[1] = true;
#endif
        run Killer()
    }
}
