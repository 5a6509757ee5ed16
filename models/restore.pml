/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restore.pml - a page comes back from the file, claimed by two clients.
 *
 * Stands for claim_chain, kvshm__restore_settle and unclaim (spill.c), kvshm__batch_restore (batch.c), forsake (evict.c), the
 * sweep of frames.c, restore_from_frames (insert.c) and mend.c. C, in the file alone, stands behind P, in memory.
 * Two readers claim it, each also from the other, who may be stopped. Meanwhile C is evicted, inserted or removed, all is
 * cleared, record and slot become those of X. Each reader dies at any step, and what it was reading lands later.
 *
 * Holds: what is read lands in a frame that is still the reader's; a page in memory has its own bytes, in a frame of
 * its own, below a parent that is there.
 */
#define NF 3
#define P 1
#define C 2
#define X 3
#define FREE 0
#define READING 10 /* + client */
#define PAGE 20    /* + record */
#define RES 1
#define SPILLED 2
#define RST 3
#ifndef OPS
#define OPS 3
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
byte st[2]; byte fr[2]; byte count[2];       /* places: state, frame, count of moves */
byte own[NF]; byte content[NF];
byte id = C; byte file = C;                  /* who record 1 is; what its slot holds */
byte pending[3]; bool alive[3] = true;       /* frame that is read into, + 1 */
bool broken; byte deaths;

#define CHECK assert(st[1] != RES || (st[0] == RES && content[fr[1]] == id && own[fr[1]] == PAGE + 1))
#define CUT if :: skip :: deaths < DEATHS -> d_step { deaths++; broken = true; alive[me] = false }; goto died fi
#define MOVE(r, to) st[r] = to; count[r] = count[r] + 1
#define FRAME_OF(f) if :: own[0] == FREE -> f = 0 :: own[0] && own[1] == FREE -> f = 1 :: else -> f = 2 fi
#define SOME_FREE (own[0] == FREE || own[1] == FREE || own[2] == FREE)
#ifdef MUT_NO_QUIET
#define quiet(c) (!alive[c])
#else
#define quiet(c) (!alive[c] && !pending[c])
#endif
#ifdef MUT_NO_PLACE
#define MINE (st[1] == RST)
#elif defined(NO_COUNT)
#define MINE (st[1] == RST && fr[1] == f)
#else
#define MINE (st[1] == RST && fr[1] == f && count[1] == m)
#endif
#ifdef MUT_NO_PARENT
#define PARENT true
#else
#define PARENT (st[0] == RES)
#endif
proctype Reader(byte me) {
    byte f; byte m; byte sum; byte n;
    {
        do
        :: n < 2 -> n++;
            atomic {
                if
                :: !broken && st[0] == RES && SOME_FREE && (st[1] == SPILLED || (st[1] == RST && own[fr[1]] != READING + me))
                :: !broken -> goto done
                fi;
                FRAME_OF(f);
#ifdef MUT_SAME_FRAME
                if :: st[1] == RST -> f = fr[1] :: else fi;
#endif
                own[f] = READING + me; CUT;
                MOVE(1, RST); fr[1] = f; m = count[1]; sum = id
            };
            pending[me] = f + 1; pending[me] == 0;
            atomic {
                !broken;
                if
                :: MINE && content[f] == sum && PARENT -> own[f] = PAGE + 1; CUT; MOVE(1, RES); fr[1] = f; CHECK
                :: else ->
                    if :: MINE -> MOVE(1, SPILLED) :: else fi; CUT;
                    if :: own[f] == READING + me -> own[f] = FREE :: else fi
                fi;
done:           f = 0; m = 0; sum = 0
            }
        :: else -> break
        od
    } unless { !alive[me] };
died: skip
}
proctype Device(byte me) {
end: do
    :: atomic { pending[me] -> assert(own[pending[me] - 1] == READING + me); content[pending[me] - 1] = file; pending[me] = 0; CHECK }
    od
}
proctype Other() {
    byte ops; byte f;
    do
    :: ops < OPS -> ops++;
        if
        :: atomic { !broken && st[1] == RES -> own[fr[1]] = FREE; MOVE(1, SPILLED) } /* evicted */
        :: atomic { !broken && (st[1] == SPILLED || st[1] == RST) && st[0] == RES && SOME_FREE -> /* inserted */
                FRAME_OF(f); content[f] = id; own[f] = PAGE + 1; MOVE(1, RES); fr[1] = f; CHECK }
        :: atomic { !broken && st[1] -> if :: st[1] == RES -> own[fr[1]] = FREE :: else fi; MOVE(1, 0) } /* removed, or of a cleared epoch */
        :: atomic { !broken && st[0] == RES && st[1] != RES -> own[fr[0]] = FREE; MOVE(0, 0) } /* P is of a cleared epoch */
        :: atomic { !broken && st[0] == 0 && SOME_FREE -> FRAME_OF(f); content[f] = P; own[f] = PAGE; MOVE(0, RES); fr[0] = f }
        :: atomic { !broken && st[1] == 0 && id == C -> file = X; id = X; MOVE(1, SPILLED) }
        :: skip
        fi; f = 0
    :: else -> break
    od
}
inline forsake() { if :: st[1] == RST && !(own[fr[1]] == READING + 1 && alive[1]) && !(own[fr[1]] == READING + 2 && alive[2]) -> MOVE(1, SPILLED) :: else fi }
proctype Next() { /* whoever comes next, and sweeps */
    byte f;
end: do
    :: d_step { broken -> broken = false; forsake(); f = 0;
            do
            :: f < NF -> if :: own[f] == PAGE + 1 && !(st[1] == RES && fr[1] == f) -> own[f] = FREE :: else fi; f++
            :: else -> break
            od; f = 0 }
    :: d_step { !broken && (quiet(1) || quiet(2)) && (own[0] > READING && own[0] < PAGE || own[1] > READING && own[1] < PAGE || own[2] > READING && own[2] < PAGE) ->
            forsake(); f = 0;
            do
            :: f < NF ->
                if :: (own[f] == READING + 1 && quiet(1)) || (own[f] == READING + 2 && quiet(2)) -> own[f] = FREE :: else fi; f++
            :: else -> break
            od; f = 0 }
    od
}
proctype Killer() {
end: do
    :: atomic { deaths < DEATHS && alive[1] -> deaths++; alive[1] = false }
    :: atomic { deaths < DEATHS && alive[2] -> deaths++; alive[2] = false }
    od
}
init {
    atomic {
        st[0] = RES; own[0] = PAGE; content[0] = P; st[1] = SPILLED;
        run Reader(1); run Reader(2); run Device(1); run Device(2); run Other(); run Next(); run Killer()
    }
}
