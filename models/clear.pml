/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clear.pml - one store of the epoch, against lookups, inserts and the sweep that follows it.
 *
 * Stands for kvshm__evict_clear and _clear_slice (evict.c), the epoch in look_at (index_look.h), check_epoch (insert.c) and
 * mend.c. A chain P <- C at the start; the writer, that dies at any step, reserves, fills, inserts P and C again, clears,
 * sweeps in slices of a record with other calls between them, and evicts. A reader looks for C and leases it.
 *
 * Holds: a lookup that began after the store finds nothing of before; what was filled before it is never published
 * after it; a lease from before keeps its pages; at the end nothing is lost.
 */
#define NR 4
#define NF 4
#define NONE 255
#define P 0
#define C 1
#define FREE 0
#define ME 1     /* owner of a frame: FREE, ME (reserved), PAGE + record */
#define PAGE 100
#define AWAY 1
#define RES 2
#define OPS 5
byte epoch = 1;
bool named[NR]; byte seq[NR]; byte id[NR]; byte par[NR] = NONE; byte pseq[NR]; byte ep[NR]; /* ep: epoch of the record */
byte st[NR]; byte fr[NR]; byte own[NF]; byte content[NF];                                   /* content: 10 * epoch + id */
byte swept = NR;                                                    /* records below hold nothing of an earlier epoch */
byte word = NONE; byte wseq; bool rdone; bool die; bool dead;
byte rf = NONE; byte repoch;                                        /* the reservation: frame, epoch */

#define linked(x, r) (par[x] == r && pseq[x] == seq[r] && st[x] != 0)
#define children(r) (linked(0, r) || linked(1, r) || linked(2, r) || linked(3, r))
#define FIRST(cond) r = 0; do :: r < NR && !(cond) -> r++ :: else -> break od
#define is(r, t) (named[r] && id[r] == t && ep[r] == epoch && st[r] == RES)
#define held(r) (H == r)

inline scan() { atomic { if :: word != NONE && wseq == seq[word] -> H = word :: else -> H = NONE fi } }
inline release_page() {
    named[r] = false;
    atomic { if :: own[fr[r]] == PAGE + r -> own[fr[r]] = FREE :: else fi };
    st[r] = 0
}
inline free_limbo() {
    do
    :: atomic { FIRST(st[r] == AWAY && !held(r) && !children(r)); if :: r < NR :: else -> break fi }; release_page()
    od
}
inline slice() { /* one record */
    if
    :: swept < NR ->
#ifdef MUT_SCAN_FIRST
        scan();
#endif
        if
        :: ep[swept] != epoch && st[swept] == RES -> st[swept] = AWAY; named[swept] = false
        :: else
        fi;
        swept++;
#ifdef MUT_SCAN_FIRST
        free_limbo()
#else
        if :: scan(); free_limbo() :: skip fi /* swept now or later */
#endif
    :: else
    fi
}
inline rebuild() {
    do :: atomic { FIRST(seq[r] & 1); if :: r < NR -> seq[r] = seq[r] + 1 :: else -> break fi } od;
    do :: atomic { FIRST(named[r] && (st[r] == 0 || ep[r] != epoch)); if :: r < NR -> named[r] = false :: else -> break fi } od;
    do
    :: atomic {
            FIRST(st[r] == RES && (!named[r] || own[fr[r]] != PAGE + r || (par[r] != NONE && st[par[r]] != RES)));
            if :: r < NR -> st[r] = AWAY :: else -> break fi
        }
    od;
    scan();
    do
    :: atomic {
            FIRST(st[r] == AWAY && !held(r) && !(H != NONE && linked(H, r)));
            if :: r < NR :: else -> break fi
        };
        release_page()
    od;
    r = 0;
    do
    :: r < NF -> d_step { if :: own[r] == ME || (own[r] >= PAGE && st[own[r] - PAGE] == 0) -> own[r] = FREE :: else fi; r++ }
    :: else -> break
    od;
    swept = NR
}
inline insert() { /* P, or C behind P, in the reserved frame */
    atomic { FIRST(is(r, P)); q = NONE; if :: r < NR -> q = r :: else fi; FIRST(is(r, C)); if :: r < NR -> q = NR :: else fi };
    if
    :: q == NR -> own[rf] = FREE /* both there */
    :: else ->
        atomic { FIRST(st[r] == 0) };
        if
        :: r == NR -> own[rf] = FREE
        :: else ->
            seq[r] = seq[r] + 1;
            atomic {
                ep[r] = epoch; par[r] = q;
                if :: q != NONE -> id[r] = C; pseq[r] = seq[q] :: else -> id[r] = P; pseq[r] = 0 fi;
                content[rf] = (content[rf] / 10) * 10 + id[r] /* what was filled is of this page */
            };
            seq[r] = seq[r] + 1;
            d_step { st[r] = RES; fr[r] = rf };
            own[rf] = PAGE + r;
            atomic { named[r] = true; assert(content[rf] / 10 == ep[r]) }
        fi
    fi;
    rf = NONE
}
#ifdef MUT_NO_STALE
#define STALE false
#else
#define STALE (repoch != epoch)
#endif
proctype Writer() {
    byte r; byte q = NONE; byte H = NONE; byte ops;
again:
    {
        if :: dead -> rebuild() :: else fi;
        do
        :: ops < OPS -> ops++;
            if
            :: rf == NONE -> /* reserve and fill */
                atomic { FIRST(own[r] == FREE); if :: r < NF -> own[r] = ME; rf = r; repoch = epoch :: else fi };
                if :: rf != NONE -> content[rf] = 10 * repoch :: else fi
            :: rf != NONE ->
                if :: STALE -> own[rf] = FREE; rf = NONE :: else -> insert() fi
            :: epoch == 1 ->
#ifdef MUT_EPOCH_LAST
                swept = 0; do :: swept < NR -> slice() :: else -> break od; epoch++
#elif defined(MUT_NO_RESTART)
                epoch++
#else
                swept = 0; epoch++
#endif
            :: swept < NR -> slice()
            :: /* evict a leaf of this epoch */
                atomic { FIRST(st[r] == RES && ep[r] == epoch && !children(r)); if :: r < NR -> st[r] = AWAY :: else fi };
                scan(); free_limbo()
            fi;
            atomic { r = 0; q = NONE; H = NONE }
        :: else -> break
        od;
        rdone;
        do :: swept < NR -> slice() :: else -> break od;
        do :: atomic { FIRST(st[r] == RES && ep[r] == epoch); if :: r < NR -> st[r] = AWAY :: else -> break fi } od;
        scan(); free_limbo();
        atomic {
            FIRST(st[r] != 0); assert(r == NR);
            r = 0; do :: r < NF -> assert(own[r] < PAGE); r++ :: else -> break od
        }
    } unless { atomic { die -> die = false; dead = true; rf = NONE; r = 0; q = NONE; H = NONE }; goto again }
}
#define LOOK(r, t, p, s) \
    if :: r = 0 :: r = 1 :: r = 2 :: r = 3 fi; \
    if :: named[r] :: else -> goto miss fi; \
    if :: atomic { st[r] == RES && !(seq[r] & 1) && id[r] == t && (p == NONE || (par[r] == p && pseq[r] == s1)) -> s = seq[r]; e = ep[r] } \
       :: else -> goto miss fi; \
    if :: e == epoch || NO_COMPARE :: else -> goto miss fi
#ifdef MUT_NO_COMPARE
#define NO_COMPARE true
#else
#define NO_COMPARE false
#endif
proctype Reader() {
    byte r1; byte s1; byte r2; byte s2; byte e; byte least;
    least = epoch;
    LOOK(r1, P, NONE, s1);
    LOOK(r2, C, r1, s2);
    atomic { word = r2; wseq = s2 };
    if :: !named[r2] -> goto miss :: else fi;
    if :: st[r2] != RES -> goto miss :: else fi;
    if :: seq[r2] != s2 -> goto miss :: else fi;
    d_step {
        assert(ep[r2] >= least && ep[r1] == ep[r2]);
        assert(seq[r2] == s2 && st[r2] != 0 && content[fr[r2]] == 10 * ep[r2] + C);
        assert(seq[r1] == s1 && st[r1] != 0 && content[fr[r1]] == 10 * ep[r1] + P)
    };
miss: atomic { word = NONE; r1 = 0; s1 = 0; r2 = 0; s2 = 0; e = 0; least = 0; rdone = true }
}
proctype Killer() { if :: die = true :: skip fi }
init {
    atomic {
        named[0] = true; id[0] = P; ep[0] = 1; st[0] = RES; fr[0] = 0; own[0] = PAGE; content[0] = 10 + P;
        named[1] = true; id[1] = C; ep[1] = 1; st[1] = RES; fr[1] = 1; own[1] = PAGE + 1; content[1] = 10 + C; par[1] = 0;
        run Writer(); run Reader(); run Killer()
    }
}
