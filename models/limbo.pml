/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limbo.pml - pages that were evicted while a lease held them, and the inserts that need them.
 *
 * Stands for use_existing, recall_chain and hold of insert.c, with evict.c and mend.c. A leases C of P <- C and inserts D
 * behind it, held, whatever has become of P and C meanwhile; X inserts P, C and D from frames of its own; others
 * evict and sweep; A releases. Each call, that of A too, dies at any step; then A's words count no more, or still, if a
 * living client has joined A.
 *
 * Holds: a published page's parent is published, at every step; A finds its head whole, and after its insert all three
 * pages are published; no second page is made of one that is there; at the end nothing is lost.
 */
#define IDS 3
#define P 0
#define C 1
#define D 2
#define NR 4
#define NF 4
#define MORE(what, r) what(3, r)
#ifndef OPS
#define OPS 4
#endif
#ifndef DEATHS
#define DEATHS 2
#endif
#include "chain.inc"
bool a_done; bool as_a; /* A has inserted, released or died; its call is under way */

#define orphan(x) (st[x] == RES && par[x] != NONE && !(pseq[x] == seq[par[x]] && st[par[x]] == RES))
#define twins(x, y) (st[x] != 0 && st[y] != 0 && id[x] == id[y])

#ifdef MUT_SECOND_PAGE
#define there(t, p) (cached(t, p) && st[idx[t]] == RES)
#else
#define there(t, p) cached(t, p)
#endif
inline use(t, p) { /* page t behind p, from what is there or anew, into r; NONE: no room */
    if
    :: atomic { there(t, p) -> r = idx[t]; if :: st[r] == AWAY -> st[r] = RES :: else fi }
    :: atomic { !there(t, p) -> skip }; reserve(); if :: r != NONE -> publish(t, p) :: else fi
    fi
}
inline recall(t) { atomic { r = word[0]; if :: t == P -> r = par[r] :: else fi; if :: st[r] == AWAY -> st[r] = RES :: else fi } }
inline insert_behind_head() {
    as_a = true;
    assert(names(0, 1) && st[1] != 0 && linked(1, 0) && st[0] != 0 && content[fr[0]] == P && content[fr[1]] == C);
#ifdef MUT_LEAF_FIRST
    recall(C); recall(P);
#else
    recall(P); recall(C);
#endif
    q = 1;
    if
    :: atomic { cached(D, q) -> r = idx[D]; word[1] = r; wseq[1] = seq[r]; if :: st[r] == AWAY -> st[r] = RES :: else fi }
    :: atomic { !cached(D, q) -> skip }; reserve();
        if
        :: r != NONE -> atomic { word[1] = r; wseq[1] = seq[r] + 2 }; publish(D, q);
            assert(idx[P] == 0 && idx[C] == 1 && idx[D] == r && st[0] == RES && st[1] == RES && st[r] == RES && names(1, r))
        :: else
        fi
    fi;
    atomic { word[0] = NONE; wseq[0] = 0; as_a = false; a_done = true }
}
proctype Writer() {
    byte r; byte f; byte H; byte q = NONE; byte ops;
again:
    {
        if
        :: deaths > 0 ->
            atomic {
                if
                :: as_a -> as_a = false; a_done = true; if :: counts[0] = false; counts[1] = false :: skip fi /* joined */
                :: else
                fi
            };
            rebuild()
        :: else
        fi;
        do
        :: ops < OPS -> ops++;
            if
            :: evict()
            :: scan(); free_limbo()
            :: q = NONE; use(P, q); q = r; /* X: P, or P and C, or all three */
                if :: q != NONE -> use(C, q); q = r; if :: q != NONE -> use(D, q) :: skip fi :: skip fi
            :: !a_done -> insert_behind_head()
            :: atomic { !a_done -> word[0] = NONE; wseq[0] = 0; a_done = true }
            fi;
            atomic {
                assert(!(twins(0, 1) || twins(0, 2) || twins(0, 3) || twins(1, 2) || twins(1, 3) || twins(2, 3)));
                r = 0; f = 0; H = 0; q = NONE
            }
        :: else -> break
        od;
        atomic { word[0] = NONE; word[1] = NONE; a_done = true };
        do :: STORE_OR_BREAK(LEAF(r), st[r] = AWAY) od;
        scan(); free_limbo();
        atomic {
            r = 0; do :: r < NR -> assert(st[r] == 0); r++ :: else -> break od;
            r = 0; do :: r < NF -> assert(own[r] < PAGE); r++ :: else -> break od;
            assert(idx[P] == NONE && idx[C] == NONE && idx[D] == NONE)
        }
    } unless { DIE; goto again }
}
proctype Monitor() { end: do :: atomic { orphan(0) || orphan(1) || orphan(2) || orphan(3) -> assert(false) } od }
proctype Killer() { end: do :: atomic { !die && deaths < DEATHS -> die = true } od }
init {
    atomic {
        idx[P] = 0; id[0] = P; st[0] = RES; fr[0] = 0; own[0] = PAGE; content[0] = P;
        idx[C] = 1; id[1] = C; st[1] = RES; fr[1] = 1; own[1] = PAGE + 1; content[1] = C; par[1] = 0;
        word[0] = 1;
        run Writer(); run Monitor(); run Killer()
    }
}
