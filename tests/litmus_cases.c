/* SPDX-License-Identifier: Apache-2.0 */
/*
 * litmus_cases.c - each pair of steps by which a reader and a writer agree, in as few accesses as show it, and why it holds
 *
 * Words. C11 speaks of threads; processes that share memory are taken for threads of one execution, since the atomics
 * used are lock-free, and so address-free (7.17.5). "Synchronizes with", "happens before", modification order and the
 * four coherence rules are those of 5.1.2.4; S is the single total order of all seq_cst operations of 7.17.3, which
 * agrees with happens before and with each modification order; fences are those of 7.17.4. Every compare-and-swap of
 * the library is seq_cst (kvshm__cas). Writers follow one another: a writer's steps happen before those of the next
 * one, through the lock's word (W) or through death (D). So two steps under the lock are always ordered, and only
 * steps of readers, of owners and of the dead need what follows.
 *
 * Each case has a control, which must show the forbidden outcome, or else the run has shown nothing. Of x86-64's
 * processors only a load may come before an older store to another word. Where the pair rests on that order (lease,
 * mark, join, cancel, waiters), the control is the same code with a weaker order in one place. In the others no
 * weaker order makes a difference here, only on processors such as arm64's, and in a compiler; their control takes
 * two steps in the order in which such a processor may take them.
 *
 * S  sequence (W1, W2; R1, R2 of atomics.h). A reader uses data between two looks at the sequence that saw the
 *    same even number s. (a) Not older than s: the look that read s, acquire, reads from the release store W2 that
 *    wrote s (or from a mender's, D), and they synchronize; all data of s happen before the loads, which by write-
 *    read coherence read them or something later. (b) Not newer: were one load to read a store of a later write,
 *    W1's release fence comes before that store, and R2's acquire fence after that load: the fences synchronize
 *    (7.17.4), the store of the odd number happens before the second look, and by write-read coherence that look
 *    reads it or something later, which is not s, since the sequence only grows. The data are relaxed atomics:
 *    there is no data race (5.1.2.4). A record finished by a mender may hold half of two pages under an even
 *    number; its place is NONE until it is written anew, so no look finds it (L2).
 * I1 publication. Content, record, place, frame's owner and stamp are written, then the index word, release. A
 *    reader loads the word, acquire, and reads from that store or from none: they synchronize, and all of that
 *    happens before whatever the reader does with the word. For a page above, whose word it may not have read: it
 *    was published by an earlier writer, whose steps happen before the later one's release store. The content was
 *    written by whoever filled the frame, before it (or another thread that it synchronized with) called
 *    kvshm_insert. Ending a sequence, settling a place, naming an entry by its stamp and a length at its parent are
 *    release stores as well, and each is loaded with acquire on the way to a page: for its content any one of them
 *    would do (check_tsan.c). The first fingerprint is published alike (four words, then has_fingerprint).
 * L1 lease against take-away. The reader claims a lease word (seq_cst), then loads the place (seq_cst). The writer
 *    takes the place away (seq_cst), then loads all lease words (seq_cst). Call them A, B, C, D; A is before B and
 *    C before D in S, since S agrees with sequenced before. If B does not see C, it reads what is older than C in
 *    the place's modification order, and B is before C in S: a seq_cst load that follows C in S reads C, or
 *    something newer, or a modification that is not seq_cst and does not happen before C (7.17.3), and there is
 *    none of these that is older: every modification of a place is a seq_cst compare-and-swap or is made under the
 *    lock, where it is ordered with C. Then A, B, C, D is their order in S, and D reads A, or something newer: the
 *    lease holds, or has been dropped. (The drop of the lease that had the word before is not seq_cst, but it
 *    happens before A, which read its 0; so D does not read it.) If the page was called back in between, by a
 *    store after C, the next take-away is the C of this argument. Both looks must be seq_cst: acquire would do on
 *    x86, but not where an acquire load may pass an older release store (LDAPR of arm64).
 * L2 record reuse. After the place the sequence is loaded, acquire. If the record is another page's by now and the
 *    place read is that page's, the load of the place (seq_cst, so acquire) synchronizes with the release store
 *    that settled it; the sequence was moved on before that, so the last look sees it. Read the other way round, a
 *    reader may lease a page that its word does not name.
 * L3 high mark. A scan loads words below the mark only, and the mark after the take-away (all seq_cst). A claim
 *    raises the mark before its word if it is not high enough. If the scan's load H does not see the raise R: H is
 *    before R in S, as in L1, and C before H, R before A, A before B; so C is before B, and the reader sees that
 *    the page is away. A thread that finds the mark high enough has loaded it (seq_cst) from another thread's R: R
 *    is before that load in S, and before A.
 * F  release of a frame. The reader's loads of a page are sequenced before its drop of the lease word, a release
 *    store. The scan that finds the word dropped loads it, acquire, reads from that store, or from a later claim,
 *    which is a read-modify-write and so in the same release sequence (5.1.2.4), and synchronizes with it. What
 *    fills the frame next comes after the scan, through the lock. So the reads happen before the writes, and by
 *    read-write coherence, and for plain bytes since nothing races, they see nothing of them. A cancelled
 *    reservation goes back alike.
 * C  copy without a lease. The place is loaded, acquire; bytes are copied; then an acquire fence, place and
 *    sequence. A frame is refilled only after its place was moved on, V, and after the fence with which
 *    kvshm_reserve ends; V happens before that fence, through the lock. If one byte copied is of the new fill,
 *    that fence and the copier's synchronize (7.17.4; seq_cst includes release), V happens before the second look
 *    at the place, and that look sees a count that has moved: counts are never reset. Fill and copy are plain
 *    accesses, which C11 calls a data race; the argument takes the bytes for relaxed atomics, as the
 *    ThreadSanitizer build does: what is copied is thrown away, and no processor or compiler in use moves a memcpy
 *    over a fence.
 * J  join. The joiner stores its word, then a seq_cst fence, then asks whether the client lives. Who frees asks
 *    whether it lives, then a seq_cst fence, then loads the join words. Death is the fall of a lock in the kernel,
 *    before which the one asked and after which the other: the kernel takes one spin lock of the file for each
 *    answer, so the word, stored before the first answer, is seen after the second (D). With the fences the same
 *    holds if death is thought of as a store: X and Y are the fences; if X is before Y in S the word is seen
 *    (7.17.3: A is sequenced before X, B follows Y), else death is. So of the two one sees the other.
 * X  cancel. The owner stores CANCELLED, then sweep_wanted = 1, both release. The sweeper exchanges sweep_wanted
 *    for 0, then loads the words. If the exchange reads that 1, it synchronizes, and the word is seen. If not, the
 *    1 comes after the 0 in its modification order, and stands for the next sweep. A store in place of the
 *    exchange may come after the loads, and wipe out a 1 whose word was not seen.
 * W  writer lock. Taking is a compare-and-swap that reads the releaser's compare-and-swap, which synchronizes with
 *    it.
 * Q  waiters. Who is to sleep counts itself (seq_cst) and then the kernel looks at the word; who gives back
 *    changes the word and then loads the count (all seq_cst): S as in L1. Missed, it would cost a sleep of 10 ms,
 *    no more.
 * D  death. The kernel closes a dead process's files after each of its threads has run its last instruction, under
 *    a spin lock of the file, and answers who asks for the lock under the same. So all that the dead stored comes
 *    before an answer that it is dead, and what comes after the answer sees it. This is the kernel's promise, not
 *    C11's: its spin locks release and acquire on every processor. (Who asks as a client holds locks of the file
 *    too, so there is a list to be looked at under it.)
 * T  touch against eviction. Both are compare-and-swaps of one stamp from the value seen: in its modification
 *    order one is first, and the other fails.
 */
#include "litmus_cases.h"

#include "index.h"

/* Words of a cell, as the cases use them. */
#define WORD(cell)  (&(cell)->at[0].word) /* of a lease, of the index, of a reservation, of a join */
#define PLACE(cell) (&(cell)->at[1].word)
#define HIGH(cell)  (&(cell)->at[2].word)
#define SEQ(cell)   (&(cell)->at[2].word)
#define DATA(cell)  (&(cell)->at[3].word)
#define MORE(cell)  (&(cell)->at[4].word)
#define FLAG(cell)  (&(cell)->at[5].word)

/* What a side saw, and how it shows to the other cases' outcome. */
static void note(struct litmus_cell *cell, unsigned side, unsigned i, uint64_t value)
{
    cell->saw[side].note[i] = value;
}

static uint64_t noted(const struct litmus_cell *cell, unsigned side, unsigned i)
{
    return cell->saw[side].note[i];
}

/* Each side changes a word of its own and looks at the other's. Neither saw the other: that may not be. */
static enum litmus_outcome each_saw(const struct litmus_cell *cell)
{
    bool left = noted(cell, 0, 0) != 0, right = noted(cell, 1, 0) != 0;

    return left && right ? LITMUS_TOGETHER
           : right       ? LITMUS_LEFT_FIRST
           : left        ? LITMUS_RIGHT_FIRST
                         : LITMUS_FORBIDDEN;
}

/* ---- L1 ------------------------------------------------------------------------------------------------------ */

static void lease_left(struct litmus_cell *cell)
{
    kvshm__cas(WORD(cell), 0, 1);
    note(cell, 0, 0, KVSHM__LOAD_SEQ(PLACE(cell)));
}

static void lease_left_weak(struct litmus_cell *cell)
{
    KVSHM__STORE_REL(WORD(cell), 1);
    note(cell, 0, 0, KVSHM__LOAD_ACQ(PLACE(cell)));
}

static void lease_right(struct litmus_cell *cell)
{
    kvshm__cas(PLACE(cell), 0, 1);
    note(cell, 1, 0, KVSHM__LOAD_SEQ(WORD(cell)));
}

static void lease_right_weak(struct litmus_cell *cell)
{
    KVSHM__STORE_REL(PLACE(cell), 1);
    note(cell, 1, 0, KVSHM__LOAD_ACQ(WORD(cell)));
}

/* ---- L3 ------------------------------------------------------------------------------------------------------ */

static void mark_left(struct litmus_cell *cell)
{
    kvshm__cas(HIGH(cell), 0, 1);
    kvshm__cas(WORD(cell), 0, 1);
    note(cell, 0, 0, KVSHM__LOAD_SEQ(PLACE(cell)));
}

/* The mark after the word, and not seq_cst. */
static void mark_left_weak(struct litmus_cell *cell)
{
    kvshm__cas(WORD(cell), 0, 1);
    KVSHM__STORE_REL(HIGH(cell), 1);
    note(cell, 0, 0, KVSHM__LOAD_ACQ(PLACE(cell)));
}

static void mark_right(struct litmus_cell *cell)
{
    kvshm__cas(PLACE(cell), 0, 1);
    note(cell, 1, 0, KVSHM__LOAD_SEQ(HIGH(cell)) == 1 && KVSHM__LOAD_SEQ(WORD(cell)) == 1);
}

/* ---- J ------------------------------------------------------------------------------------------------------- */

static void join_left(struct litmus_cell *cell)
{
    atomic_store_explicit(WORD(cell), 1, memory_order_seq_cst);
    KVSHM__FENCE(memory_order_seq_cst);
    note(cell, 0, 0, KVSHM__LOAD(FLAG(cell)));
}

static void join_left_weak(struct litmus_cell *cell)
{
    KVSHM__STORE_REL(WORD(cell), 1);
    note(cell, 0, 0, KVSHM__LOAD(FLAG(cell)));
}

/* The flag is death. */
static void join_right(struct litmus_cell *cell)
{
    KVSHM__STORE(FLAG(cell), 1);
    KVSHM__FENCE(memory_order_seq_cst);
    note(cell, 1, 0, KVSHM__LOAD_SEQ(WORD(cell)));
}

/* ---- Q ------------------------------------------------------------------------------------------------------- */

static void waiters_left(struct litmus_cell *cell)
{
    atomic_fetch_add_explicit(MORE(cell), 1, memory_order_seq_cst);
    note(cell, 0, 0, KVSHM__LOAD(WORD(cell)));
}

static void waiters_right(struct litmus_cell *cell)
{
    kvshm__cas(WORD(cell), 0, 1);
    note(cell, 1, 0, KVSHM__LOAD_SEQ(MORE(cell)));
}

static void waiters_right_weak(struct litmus_cell *cell)
{
    KVSHM__STORE_REL(WORD(cell), 1);
    note(cell, 1, 0, KVSHM__LOAD_ACQ(MORE(cell)));
}

/* ---- X ------------------------------------------------------------------------------------------------------- */

static void cancel_left(struct litmus_cell *cell)
{
    KVSHM__STORE_REL(WORD(cell), 1);
    KVSHM__STORE_REL(FLAG(cell), 1);
}

static void cancel_right(struct litmus_cell *cell)
{
    note(cell, 1, 0, atomic_exchange_explicit(FLAG(cell), 0, memory_order_seq_cst));
    note(cell, 1, 1, KVSHM__LOAD_ACQ(WORD(cell)));
}

static void cancel_right_weak(struct litmus_cell *cell)
{
    note(cell, 1, 0, KVSHM__LOAD_ACQ(FLAG(cell)));
    KVSHM__STORE(FLAG(cell), 0);
    note(cell, 1, 1, KVSHM__LOAD_ACQ(WORD(cell)));
}

/* The word was not seen, and no sweep is wanted. */
static enum litmus_outcome cancel_outcome(const struct litmus_cell *cell)
{
    bool wanted = KVSHM__LOAD((kvshm_a64 *)FLAG(cell)) != 0, seen = noted(cell, 1, 1) != 0;

    if (!seen && !wanted)
        return LITMUS_FORBIDDEN;
    return !seen ? LITMUS_RIGHT_FIRST : noted(cell, 1, 0) ? LITMUS_LEFT_FIRST : LITMUS_TOGETHER;
}

/* ---- S ------------------------------------------------------------------------------------------------------- */

static void sequence_left(struct litmus_cell *cell)
{
    uint64_t seq = kvshm__seq_read_begin(SEQ(cell));

    note(cell, 0, 1, KVSHM__LOAD(DATA(cell)));
    note(cell, 0, 2, KVSHM__LOAD(MORE(cell)));
    note(cell, 0, 0, !(seq & 1) && !kvshm__seq_read_retry(SEQ(cell), seq) ? 1 + seq : 0);
}

/* Without the second look. */
static void sequence_left_weak(struct litmus_cell *cell)
{
    uint64_t seq = kvshm__seq_read_begin(SEQ(cell));

    note(cell, 0, 1, KVSHM__LOAD(DATA(cell)));
    note(cell, 0, 2, KVSHM__LOAD(MORE(cell)));
    note(cell, 0, 0, !(seq & 1) ? 1 + seq : 0);
}

static void sequence_right(struct litmus_cell *cell)
{
    kvshm__seq_write_begin(SEQ(cell));
    KVSHM__STORE(DATA(cell), 1);
    KVSHM__STORE(MORE(cell), 1);
    kvshm__seq_write_end(SEQ(cell));
}

/* Data of another sequence than the one accepted. */
static enum litmus_outcome sequence_outcome(const struct litmus_cell *cell)
{
    uint64_t accepted = noted(cell, 0, 0), wanted = accepted > 1;

    if (accepted == 0)
        return LITMUS_TOGETHER;
    if (noted(cell, 0, 1) != wanted || noted(cell, 0, 2) != wanted)
        return LITMUS_FORBIDDEN;
    return wanted ? LITMUS_RIGHT_FIRST : LITMUS_LEFT_FIRST;
}

/* ---- I1 ------------------------------------------------------------------------------------------------------ */

static void publication_left(struct litmus_cell *cell)
{
    note(cell, 0, 0, KVSHM__LOAD_ACQ(WORD(cell)));
    note(cell, 0, 1, KVSHM__LOAD(MORE(cell)) + KVSHM__LOAD(DATA(cell)));
}

static void publication_right(struct litmus_cell *cell)
{
    KVSHM__STORE(DATA(cell), 1);
    KVSHM__STORE(MORE(cell), 1);
    kvshm__index_set(WORD(cell), 77, 5);
}

/* Published before it is written. */
static void publication_right_weak(struct litmus_cell *cell)
{
    kvshm__index_set(WORD(cell), 77, 5);
    KVSHM__STORE(DATA(cell), 1);
    KVSHM__STORE(MORE(cell), 1);
}

/* The word was seen, and not all behind it. */
static enum litmus_outcome publication_outcome(const struct litmus_cell *cell)
{
    bool word = noted(cell, 0, 0) != 0;
    uint64_t data = noted(cell, 0, 1);

    if (word)
        return data == 2 ? LITMUS_RIGHT_FIRST : LITMUS_FORBIDDEN;
    return data == 0 ? LITMUS_LEFT_FIRST : LITMUS_TOGETHER;
}

/* ---- L2 ------------------------------------------------------------------------------------------------------ */

static void reuse_left(struct litmus_cell *cell)
{
    note(cell, 0, 0, KVSHM__LOAD_SEQ(PLACE(cell)));
    note(cell, 0, 1, KVSHM__LOAD_ACQ(SEQ(cell)));
}

/* The place last. */
static void reuse_left_weak(struct litmus_cell *cell)
{
    note(cell, 0, 1, KVSHM__LOAD_ACQ(SEQ(cell)));
    note(cell, 0, 0, KVSHM__LOAD_SEQ(PLACE(cell)));
}

/* As kvshm__pages_write() and kvshm__pages_settle(). */
static void reuse_right(struct litmus_cell *cell)
{
    kvshm__seq_write_begin(SEQ(cell));
    KVSHM__STORE(DATA(cell), 1);
    kvshm__seq_write_end(SEQ(cell));
    KVSHM__STORE_REL(PLACE(cell), 1);
}

/* The place of the new page, and the sequence of the old one. */
static enum litmus_outcome reuse_outcome(const struct litmus_cell *cell)
{
    bool place = noted(cell, 0, 0) != 0, seq = noted(cell, 0, 1) == 2;

    if (place)
        return seq ? LITMUS_RIGHT_FIRST : LITMUS_FORBIDDEN;
    return noted(cell, 0, 1) == 0 ? LITMUS_LEFT_FIRST : LITMUS_TOGETHER;
}

/* ---- F ------------------------------------------------------------------------------------------------------- */

/* A page takes a while to read. The word is 1 when the lease is dropped. */
static void read_on(void)
{
    for (int i = 0; i < 16; i++)
        kvshm__pause();
}

static void release_left(struct litmus_cell *cell)
{
    read_on();
    note(cell, 0, 0, KVSHM__LOAD(DATA(cell)));
    KVSHM__STORE_REL(WORD(cell), 1);
}

/* Dropped before the last byte is read. */
static void release_left_weak(struct litmus_cell *cell)
{
    KVSHM__STORE_REL(WORD(cell), 1);
    read_on();
    note(cell, 0, 0, KVSHM__LOAD(DATA(cell)));
}

static void release_right(struct litmus_cell *cell)
{
    for (int i = 0; i < 24 && noted(cell, 1, 0) == 0; i++) {
        note(cell, 1, 0, KVSHM__LOAD_SEQ(WORD(cell)));
        kvshm__pause();
    }
    if (noted(cell, 1, 0))
        KVSHM__STORE(DATA(cell), 1);
}

/* Bytes of the next fill under the lease. */
static enum litmus_outcome release_outcome(const struct litmus_cell *cell)
{
    if (noted(cell, 0, 0))
        return LITMUS_FORBIDDEN;
    return noted(cell, 1, 0) ? LITMUS_LEFT_FIRST : LITMUS_RIGHT_FIRST;
}

/* ---- C ------------------------------------------------------------------------------------------------------- */

static void copy_left(struct litmus_cell *cell)
{
    uint64_t place = KVSHM__LOAD_ACQ(PLACE(cell));

    note(cell, 0, 1, KVSHM__LOAD(DATA(cell)));
    KVSHM__FENCE(memory_order_acquire);
    note(cell, 0, 0, place == KVSHM__LOAD(PLACE(cell)) ? 1 + place : 0);
}

static void copy_right(struct litmus_cell *cell)
{
    KVSHM__STORE_REL(PLACE(cell), 1);
    KVSHM__FENCE(memory_order_seq_cst);
    KVSHM__STORE(DATA(cell), 1);
}

/* Filled before the place moves. */
static void copy_right_weak(struct litmus_cell *cell)
{
    KVSHM__STORE(DATA(cell), 1);
    KVSHM__STORE_REL(PLACE(cell), 1);
}

/* The copy is taken for the old page's, and has a byte of the new fill. */
static enum litmus_outcome copy_outcome(const struct litmus_cell *cell)
{
    uint64_t accepted = noted(cell, 0, 0);

    if (accepted == 1)
        return noted(cell, 0, 1) ? LITMUS_FORBIDDEN : LITMUS_LEFT_FIRST;
    return accepted ? LITMUS_RIGHT_FIRST : LITMUS_TOGETHER;
}

/* ---- The table ------------------------------------------------------------------------------------------------- */

#define CASE(name, left, right, outcome)                          \
    {                                                             \
        name, {left, right}, outcome, {NULL, NULL}, {NULL, NULL}, \
        {                                                         \
            NULL, NULL                                            \
        }                                                         \
    }

const struct litmus_case litmus_cases[] = {
    {CASE("L1 lease", lease_left, lease_right, each_saw),
     {CASE("L1, claimed by a release store", lease_left_weak, lease_right, each_saw),
      CASE("L1, taken away by a release store", lease_left, lease_right_weak, each_saw)}},
    {CASE("L2 reuse", reuse_left, reuse_right, reuse_outcome),
     {CASE("L2, place read last", reuse_left_weak, reuse_right, reuse_outcome)}},
    {CASE("L3 mark", mark_left, mark_right, each_saw),
     {CASE("L3, raised last, by a release store", mark_left_weak, mark_right, each_saw)}},
    {CASE("S sequence", sequence_left, sequence_right, sequence_outcome),
     {CASE("S, one look", sequence_left_weak, sequence_right, sequence_outcome)}},
    {CASE("I1 publication", publication_left, publication_right, publication_outcome),
     {CASE("I1, published first", publication_left, publication_right_weak, publication_outcome)}},
    {CASE("F release", release_left, release_right, release_outcome),
     {CASE("F, dropped first", release_left_weak, release_right, release_outcome)}},
    {CASE("C copy", copy_left, copy_right, copy_outcome),
     {CASE("C, filled first", copy_left, copy_right_weak, copy_outcome)}},
    {CASE("J join", join_left, join_right, each_saw),
     {CASE("J, without the joiner's fence", join_left_weak, join_right, each_saw)}},
    {CASE("X cancel", cancel_left, cancel_right, cancel_outcome),
     {CASE("X, a store for the exchange", cancel_left, cancel_right_weak, cancel_outcome)}},
    {CASE("Q waiters", waiters_left, waiters_right, each_saw),
     {CASE("Q, given back by a release store", waiters_left, waiters_right_weak, each_saw)}},
};

const unsigned litmus_case_count = sizeof(litmus_cases) / sizeof(litmus_cases[0]);
