/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_tier_mend.c - a client dies before any store of what it does with a spill file; nothing is lost, wrong, or back
 *
 * By chance: what is cached, written, and gone from memory; what the client does; before which store it kills itself. The
 * library is linked in the build that calls kvshm__step() before each store (local.mk). No thread moves pages here: batches
 * are run by the test.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "inside.h"

#include "batch.h"
#include "client.h"
#include "evict.h"
#include "frames.h"
#include "mend.h"
#include "slots.h"
#include "spill_file.h"

#define FRAMES 64u /* more than all names have: nothing leaves because room is needed */
#define SPILL_BYTES (64u * 8192u + 65536u)

/* ---- Names ------------------------------------------------------------------------------------------------ */

#define NAMES 7u
static struct kvshm_prefix name(unsigned i)
{
    switch (i) {
    case 0:
        return in_range(0, 22);
    case 1:
        return in_range(0, 14); /* shares three pages */
    case 2:
        return in_range(0, 12); /* ends at a page of both */
    case 3:
        return in_range(50, 8);
    case 4:
        return in_range(100, 10);
    case 5:
        return in_key(7, 9);
    default:
        return in_key(8, 2);
    }
}

/* The one that ends at a page of others is drawn more often: what it is called alone changes. */
static unsigned draw(uint64_t *chance)
{
    return ts_random(chance, 3) == 0 ? 2 : (unsigned)ts_random(chance, NAMES);
}

static bool is_there(kvshm *kv, unsigned i)
{
    struct kvshm_prefix prefix = name(i);
    struct kvshm_lease lease;
    int code = kvshm_lookup(kv, &prefix, KVSHM_PEEK, &lease);

    ck_assert(code == 0 || code == KVSHM_MISS || code == KVSHM_PENDING);
    return code != KVSHM_MISS;
}

static unsigned all_there(kvshm *kv)
{
    unsigned there = 0;

    for (unsigned i = 0; i < NAMES; i++)
        there |= (unsigned)is_there(kv, i) << i;
    return there;
}

/* ---- The arena, its file, and batches -------------------------------------------------------------------------- */

static char path[256];
static struct kvshm__batch batch;

static struct kvshm_config config_of(void)
{
    struct kvshm_config config = ts_config(IN_PAGE_BYTES, 4, FRAMES);

    config.max_clients = 4;
    config.max_leases = 8;
    config.spill_path = path;
    config.spill_bytes = SPILL_BYTES;
    return config;
}

static void open_batch(kvshm *kv)
{
    struct kvshm__spill_file file;

    ts_is(kvshm__spill_open(path, NULL, &file), 0);
    kvshm__batch_open(&batch, kv, &file);
    batch.max = 3;
}

static void close_batch(void)
{
    int fd = batch.file.fd;

    kvshm__batch_close(&batch);
    close(fd);
}

static kvshm *start(void)
{
    struct kvshm_config config = config_of();
    kvshm *kv = ts_create("inside", &config);

    open_batch(kv);
    return kv;
}

static void end(kvshm *kv)
{
    close_batch();
    ts_detach(kv);
    ts_is(kvshm_unlink("inside", 0), 0);
}

static void write_all(void)
{
    int code;

    while ((code = kvshm__batch_spill(&batch, KVSHM__SPILL_ALL)) > 0 || code == -EAGAIN)
        continue;
    ts_is(code, 0);
}

static void erase_all(kvshm *kv)
{
    while (kvshm__slots_doomed(kv) > 0)
        ck_assert_int_ge(kvshm__batch_erase(&batch), 0);
}

/* Bring a name back into memory; nothing, if it is not there. */
static int restore(kvshm *kv, unsigned i)
{
    struct kvshm_prefix prefix = name(i);
    struct kvshm__walk walk;
    int code = 0;

    if (prefix.tokens)
        kvshm__index_find_prefix(kv, &prefix, kvshm__index_aim(kv, &prefix), &walk);
    else
        kvshm__index_find_key(kv, &prefix, kvshm__index_aim(kv, &prefix), &walk);
    if (walk.deepest.record == KVSHM__NO_RECORD)
        return 0;
    while ((code = kvshm__batch_restore(&batch, walk.deepest.record, walk.deepest.seq, true)) == 1)
        continue;
    return code;
}

static void insert(kvshm *kv, unsigned i)
{
    struct kvshm_prefix prefix = name(i);
    int code = in_insert(kv, &prefix, NULL, 0);

    ck_assert_msg(code >= 0, "insert: %d: %s", code, kvshm_errmsg(NULL));
}

/* The oldest entry leaves memory, if it is in the file. */
static void leave(kvshm *kv)
{
    ts_is(kvshm__mend_lock(kv), 0);
    int64_t back = kvshm__evict_lru(kv, true);
    kvshm__mend_unlock(kv);
    ck_assert_int_ge(back, 0);
}

/* ---- Deeds ------------------------------------------------------------------------------------------------ */

enum deed { WRITE, RESTORE, LEAVE, INSERT, REMOVE, DROP, CLEAR, DEEDS };

static struct {
    enum deed deed;
    unsigned on; /* the name */
    uint64_t kill_at;
} order;

static uint64_t *steps_of; /* shared: stores that a deed took, with the lock or without */

static struct {
    bool on;
    uint64_t left, done;
} stepping;

void kvshm__step(void)
{
    if (!stepping.on)
        return;
    stepping.done++;
    if (stepping.left-- == 0)
        kill(getpid(), SIGKILL);
}

static void drop(kvshm *kv)
{
    if (kvshm__mend_lock(kv) < 0)
        return;
    kvshm__evict_oldest(kv);
    kvshm__evict_sweep_limbo(kv);
    kvshm__mend_unlock(kv);
    kvshm__batch_erase(&batch);
}

static int client(void *arg)
{
    struct kvshm_prefix prefix = name(order.on);
    struct kvshm_reservation r = {0};
    kvshm *kv;

    (void)arg;
    ts_need(kvshm_attach("inside", NULL, 0, &kv) == 0);
    open_batch(kv);
    if (order.deed == INSERT)
        ts_need(in_fill(kv, &prefix, NULL, &r) == 0);
    stepping.left = order.kill_at;
    stepping.on = true;
    switch (order.deed) {
    case WRITE:
        while (kvshm__batch_spill(&batch, KVSHM__SPILL_ALL) > 0)
            continue;
        break;
    case RESTORE:
        restore(kv, order.on);
        break;
    case LEAVE:
        leave(kv);
        break;
    case INSERT:
        ts_need(kvshm_insert(kv, &prefix, NULL, &r, 0) >= 0);
        break;
    case REMOVE:
        ts_need(kvshm_remove(kv, &prefix) >= 0);
        break;
    case DROP:
        drop(kv);
        break;
    default:
        ts_need(kvshm_clear(kv) == 0);
    }
    stepping.on = false;
    steps_of[order.deed] = stepping.done;
    return 0;
}

/* ---- Before and after --------------------------------------------------------------------------------------- */

/* What is there, in which state, by chance. */
static void make_state(kvshm *kv, uint64_t *chance)
{
    for (unsigned i = 0; i < 14; i++) {
        switch (ts_random(chance, 6)) {
        case 0:
            kvshm__batch_spill(&batch, KVSHM__SPILL_URGENT);
            break;
        case 1:
            write_all();
            break;
        case 2:
            for (uint64_t n = ts_random(chance, 4); n > 0; n--)
                leave(kv);
            break;
        case 3: {
            struct kvshm_prefix prefix = name(draw(chance));
            ck_assert_int_ge(kvshm_remove(kv, &prefix), 0);
            break;
        }
        default:
            insert(kv, draw(chance));
        }
    }
}

/* The dead one's transfers have landed, and what it left is swept. */
static void mend(kvshm *kv)
{
    for (uint32_t i = 0; i < kv->max_clients; i++) {
        uint64_t number = KVSHM__LOAD(&kv->clients[i].number);
        while (number != 0 && number != kv->client && !kvshm__client_quiet(kv, number))
            usleep(1000);
    }
    ts_is(kvshm__mend_lock(kv), 0);
    kvshm__slots_sweep(kv);
    kvshm__frames_sweep(kv, 0);
    if (kv->forsaken)
        kvshm__evict_forsake(kv);
    kvshm__evict_sweep_limbo(kv);
    kvshm__mend_unlock(kv);
    in_audit_swept(kv);
}

/* Each name that is there comes back with its bytes; no frame and no slot is lost. */
static void check_all(kvshm *kv, unsigned there)
{
    for (unsigned i = 0; i < NAMES; i++) {
        struct kvshm_prefix prefix = name(i);
        if (!(there & 1u << i))
            continue;
        ts_is(restore(kv, i), 0);
        in_hit(kv, &prefix);
    }
    write_all();
    erase_all(kv);
    in_audit_swept(kv);
    ck_assert_uint_eq(kvshm__slots_free(kv) + KVSHM__LOAD(&kv->header->tier.slots_written), kv->slot_count);
    ck_assert_uint_eq(in_free(kv) + in_pages(kv) + in_limbo(kv), FRAMES);
    ck_assert_uint_eq(in_limbo(kv), 0);
}

/* May the name have come or gone by what was ordered? */
static bool concerned(unsigned i)
{
    return order.deed == DROP || order.deed == CLEAR || ((order.deed == INSERT || order.deed == REMOVE) && order.on == i);
}

static void compare(unsigned before, unsigned after, bool died)
{
    for (unsigned i = 0; i < NAMES; i++) {
        bool was = before & 1u << i, is = after & 1u << i;
        if (!concerned(i))
            ck_assert_msg(was == is, "deed %d at store %llu: name %u was %s", order.deed,
                          (unsigned long long)order.kill_at, i, was ? "lost" : "made");
        else if (!died && order.deed != DROP)
            ck_assert_msg(is == (order.deed == INSERT), "deed %d was done, name %u is %s", order.deed, i,
                          is ? "there" : "not there");
    }
    if (order.deed == CLEAR)
        ck_assert_msg(after == before || after == 0, "a clear left some: %#x of %#x", after, before);
}

/* The arena ends, and begins anew on its file. */
static kvshm *start_again(kvshm *kv)
{
    end(kv);
    return start();
}

static void one_round(uint64_t *chance)
{
    kvshm *kv = start();

    make_state(kv, chance);
    in_audit(kv);
    unsigned before = all_there(kv);
    order.deed = (enum deed)ts_random(chance, DEEDS);
    order.on = draw(chance);
    order.kill_at = ts_random(chance, steps_of[order.deed] + 8);
    int status = ts_wait(ts_fork(client, NULL));
    ck_assert_msg(status == 0 || status == 128 + SIGKILL, "the client ended with %d", status);
    mend(kv);
    unsigned after = all_there(kv);
    compare(before, after, status != 0);
    if (order.deed == REMOVE && status != 0) { /* whoever removes again */
        struct kvshm_prefix prefix = name(order.on);
        ck_assert_int_ge(kvshm_remove(kv, &prefix), 0);
        after &= ~(1u << order.on);
    }
    if (ts_random(chance, 2))
        check_all(kv, after);
    else
        write_all();
    kv = start_again(kv);
    in_audit_swept(kv);
    unsigned again = all_there(kv);
    if (order.deed == CLEAR && status != 0 && again == 0) /* the file was told, memory not any more */
        after = 0;
    ck_assert_msg((again & after) == after, "after a start %#x is there of %#x (deed %d at store %llu)", again, after,
                  order.deed, (unsigned long long)order.kill_at);
    ck_assert_msg(again == after || order.deed == DROP, "after a start %#x is there, only %#x should be (deed %d at store %llu)",
                  again, after, order.deed, (unsigned long long)order.kill_at);
    check_all(kv, again);
    order.on = draw(chance);
    struct kvshm_prefix prefix = name(order.on);
    ck_assert_int_ge(kvshm_remove(kv, &prefix), 0);
    kv = start_again(kv);
    unsigned third = all_there(kv);
    ck_assert_msg(third == (again & ~(1u << order.on)), "name %u was removed after a start; after another %#x is there of %#x",
                  order.on, third, again);
    end(kv);
    unlink(path);
}

START_TEST(test_a_client_dies)
{
    uint64_t seed = ts_seed() + (uint64_t)_i;

    snprintf(path, sizeof(path), "%s/file", ts_dir());
    steps_of = ts_shared(DEEDS * sizeof(*steps_of));
    for (unsigned i = 0; i < DEEDS; i++)
        steps_of[i] = 200;
    for (uint64_t round = 0; round < ts_amount(200, 500, 20000); round++) {
        uint64_t chance = seed + round * 1000003;
        fprintf(stderr, "seed %llu\n", (unsigned long long)chance);
        one_round(&chance);
    }
}
END_TEST

/* ---- What a start does not use --------------------------------------------------------------------------------- */

static void move_header(uint32_t slot, void *block, bool to_file)
{
    const struct kvshm__spill_shape *s = &batch.file.shape;
    off_t at = (off_t)kvshm__spill_header_offset(s, slot);
    int fd = open(path, O_RDWR | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    ssize_t n =
        to_file ? pwrite(fd, block, s->header_stride, at) : pread(fd, block, s->header_stride, at);
    ck_assert_int_eq(n, s->header_stride);
    close(fd);
}

static void forget(kvshm *kv, unsigned i)
{
    struct kvshm_prefix prefix = name(i);

    ts_is(kvshm_remove(kv, &prefix), 0);
}

/* An earlier filling of a key stands in the file beside the later one: it is never served, nor back when that one has gone. */
START_TEST(test_what_a_start_does_not_use_is_erased)
{
    struct kvshm_prefix key = name(6);
    uint8_t block[8192];

    snprintf(path, sizeof(path), "%s/file", ts_dir());
    kvshm *kv = start();
    ck_assert_uint_le(batch.file.shape.header_stride, sizeof(block));
    insert(kv, 6);
    write_all();
    uint32_t slot = kvshm__slot_number(KVSHM__LOAD(&kv->records[in_record(kv, &key)].slot));
    move_header(slot, block, false);
    forget(kv, 6);
    insert(kv, 3); /* where that was */
    write_all();
    insert(kv, 6);
    write_all();
    ck_assert_uint_ne(kvshm__slot_number(KVSHM__LOAD(&kv->records[in_record(kv, &key)].slot)),
                      slot);
    forget(kv, 3);
    move_header(slot, block, true);
    kv = start_again(kv);
    ck_assert_uint_eq(kvshm__slots_doomed(kv), 1);
    in_audit_swept(kv);
    ts_is(restore(kv, 6), 0);
    in_hit(kv, &key);
    forget(kv, 6);
    kv = start_again(kv);
    ck_assert_uint_eq(all_there(kv), 0);
    check_all(kv, 0);
    end(kv);
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tier_mend");
    TCase *tcase = tcase_create("tier_mend");

    tcase_add_checked_fixture(tcase, ts_setup, ts_teardown);
    tcase_add_test(tcase, test_a_client_dies);
    tcase_add_test(tcase, test_what_a_start_does_not_use_is_erased);
    suite_add_tcase(suite, tcase);
    return ts_run(suite);
}
