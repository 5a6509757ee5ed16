/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.c - attached processes: numbers, liveness by kernel locks, places, joining.
 *
 * A number is drawn by a fetch-add and never given twice. Two bytes of the segment file, far behind its end and no other
 * number's, are locked for it: "alive" by the descriptor kv->fd, "quiet" by kv->quiet_fd, which is another open file
 * description. The kernel lets both fall when the last copy of their descriptor is closed, however that comes about.
 * Clients lock for writing; who asks, asks as a reader would, so the read lock of one who may only read the file answers
 * nothing.
 *
 * Taking a place: a number, both locks, and only then the place, by one compare-and-swap of its number. From then on it
 * is this client's alone: counters are exchanged for 0 and added to the totals, the words of the client before are
 * cleared, the rest is overwritten.
 *
 * Invariants
 * C1  A number that stands in a place had both its locks before, so a place in use whose number is not alive belongs to
 *     the dead.
 * C2  A dead client's place is taken over only if no living client had joined it when it was looked at after its death
 *     was found. A joiner stores its word first and looks whether the client lives then (kvshm__client_join), so of the
 *     two one sees the other. Partners: the fence in kvshm__client_join, the one in kvshm__client_counts.
 * C3  A counter's value is in its place or in the totals, never in both. A death between the exchange and the adding
 *     loses it.
 * C4  Detach stores 0 in the place and closes descriptors. It never unlocks.
 *
 * Until the taker of a place has cleared the lease words of the dead one, they count as its own: they hold pages
 * longer, never shorter. Everything read from shared memory is bounded by the private counts of the handle.
 *
 * Lock order: the handle's join_mutex, and nothing under it.
 */
#include "client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "sys.h"

/* A byte that should be nobody's is locked: someone plays tricks, or next_client was damaged. */
#define NUMBER_TRIES 64

static uint64_t alive_byte(uint64_t number)
{
    return KVSHM__LOCK_BASE + 2 * number;
}

static uint64_t quiet_byte(uint64_t number)
{
    return alive_byte(number) + 1;
}

static kvshm_a64 *number_of(const kvshm *kv, uint32_t place)
{
    return &kv->clients[place].number;
}

static struct kvshm_lease_word *leases_of(const kvshm *kv, uint32_t place)
{
    return kv->leases + (size_t)place * kv->max_leases;
}

/* ---- Liveness ---------------------------------------------------------------------------------------- */

/* A refusal of the system counts as held. */
static bool held(const kvshm *kv, uint64_t byte)
{
    return kvshm__sys.lock_ask(kv->fd, F_RDLCK, byte, 1) != 0;
}

static bool number_possible(uint64_t number)
{
    return number != 0 && number <= KVSHM__CLIENT_NUMBER_MAX;
}

bool kvshm__client_alive(const kvshm *kv, uint64_t number)
{
    if (!number_possible(number))
        return false;
    return number == kv->client || held(kv, alive_byte(number));
}

bool kvshm__client_quiet(const kvshm *kv, uint64_t number)
{
    if (!number_possible(number))
        return true;
    return number != kv->client && !held(kv, quiet_byte(number));
}

static bool place_joins(const kvshm *kv, uint32_t place, uint64_t number)
{
    for (unsigned i = 0; i < KVSHM__JOINS; i++) {
        if (KVSHM__LOAD_SEQ(&kv->clients[place].joins[i]) == number)
            return true;
    }
    return false;
}

bool kvshm__client_joined(const kvshm *kv, uint64_t number)
{
    if (!number_possible(number))
        return false;
    for (uint32_t place = 0; place < kv->max_clients; place++) {
        uint64_t joiner = KVSHM__LOAD_ACQ(number_of(kv, place));

        if (joiner != 0 && place_joins(kv, place, number) && kvshm__client_alive(kv, joiner))
            return true;
    }
    return false;
}

bool kvshm__client_counts(const kvshm *kv, uint64_t number)
{
    if (kvshm__client_alive(kv, number))
        return true;
    KVSHM__FENCE(memory_order_seq_cst); /* C2: death found first, join words read after */
    return kvshm__client_joined(kv, number);
}

int kvshm__client_find(const kvshm *kv, uint64_t number)
{
    if (!number_possible(number))
        return -1;
    for (uint32_t place = 0; place < kv->max_clients; place++) {
        if (KVSHM__LOAD_ACQ(number_of(kv, place)) == number)
            return (int)place;
    }
    return -1;
}

int kvshm__client_displaced(const kvshm *kv)
{
    uint64_t number = KVSHM__LOAD(number_of(kv, kv->place));

    return kvshm__fail(KVSHM_E_DAMAGED,
                       "place %u of arena %s is client %" PRIu64 "'s, and holds number %" PRIu64
                       ": what this client leases and reserves would not count; detach and attach anew",
                       kv->place, kv->name, kv->client, number);
}

uint32_t kvshm__client_count_alive(const kvshm *kv)
{
    uint32_t count = 0;

    for (uint32_t place = 0; place < kv->max_clients; place++)
        count += kvshm__client_alive(kv, KVSHM__LOAD_ACQ(number_of(kv, place)));
    return count;
}

int kvshm__client_any(int fd)
{
    return kvshm__sys.lock_ask(fd, F_RDLCK, KVSHM__LOCK_BASE, 0);
}

/* ---- For people -------------------------------------------------------------------------------------- */

void kvshm__client_label(const struct kvshm_client *client, char *buf)
{
    size_t i;

    memcpy(buf, client->label, KVSHM_LABEL_MAX);
    for (i = 0; i < KVSHM_LABEL_MAX && buf[i] != '\0'; i++) {
        unsigned char c = (unsigned char)buf[i];

        if (c < 0x20 || c >= 0x7f)
            buf[i] = '?';
    }
    buf[i] = '\0';
}

const char *kvshm__client_describe(const kvshm *kv, uint64_t number, char *buf, size_t size)
{
    int place = kvshm__client_find(kv, number);
    char label[KVSHM_LABEL_MAX + 1];

    if (place < 0) {
        snprintf(buf, size, "client %" PRIu64, number);
    } else {
        kvshm__client_label(&kv->clients[place], label);
        snprintf(buf, size, "pid %u (%s)", kv->clients[place].pid, label);
    }
    return buf;
}

const char *kvshm__client_describe_alive(const kvshm *kv, char *buf, size_t size)
{
    char words[KVSHM__CLIENT_WORDS];
    size_t used = 0, room = size > 32 ? size - 32 : 0; /* for "and N more" */
    unsigned more = 0;

    buf[0] = '\0';
    for (uint32_t place = 0; place < kv->max_clients; place++) {
        uint64_t number = KVSHM__LOAD_ACQ(number_of(kv, place));
        size_t length;

        if (number == kv->client || !kvshm__client_alive(kv, number))
            continue;
        kvshm__client_describe(kv, number, words, sizeof(words));
        length = strlen(words) + 2;
        if (more > 0 || used + length >= room)
            more++;
        else
            used += (size_t)sprintf(buf + used, "%s%s", used > 0 ? ", " : "", words);
    }
    if (more > 0)
        snprintf(buf + used, size - used, "%s%u more", used > 0 ? " and " : "", more);
    return buf;
}

/* ---- Taking a place ---------------------------------------------------------------------------------- */

/* Draw a number and take its two locks. */
static int take_number(kvshm *kv)
{
    int code = -EAGAIN;

    for (unsigned i = 0; i < NUMBER_TRIES && (code == -EAGAIN || code == -EACCES); i++) {
        uint64_t number =
            1 + atomic_fetch_add_explicit(&kv->header->next_client, 1, memory_order_seq_cst);

        if (!number_possible(number))
            return kvshm__fail(KVSHM_E_DAMAGED,
                               "header field next_client is %" PRIu64 ", beyond %" PRIu64
                               "; remove the arena and create it anew",
                               number, (uint64_t)KVSHM__CLIENT_NUMBER_MAX);
        /* One that stands in a place was given before: next_client was damaged. */
        code = kvshm__client_find(kv, number) >= 0 ? -EAGAIN : 0;
        if (code == 0)
            code = kvshm__sys.lock_set(kv->fd, F_WRLCK, alive_byte(number), 1);
        if (code == 0)
            code = kvshm__sys.lock_set(kv->quiet_fd, F_WRLCK, quiet_byte(number), 1);
        if (code == 0)
            kv->client = number;
    }
    if (code < 0)
        return kvshm__fail(code, "lock of a client's byte of the segment: %s",
                           kvshm_strerror(code));
    return 0;
}

/* May the place of this number be taken over? */
static bool abandoned(const kvshm *kv, uint32_t place, uint64_t number)
{
    return !kvshm__client_counts(kv, number) && kvshm__client_quiet(kv, number) &&
           KVSHM__LOAD(&kv->clients[place].device_frames) == 0;
}

/* Into kv->place; the number that stood there, 0: none. false: all are taken. */
static bool take_free_place(kvshm *kv, uint64_t *before)
{
    for (unsigned pass = 0; pass < 2; pass++) {
        for (uint32_t place = 0; place < kv->max_clients; place++) {
            uint64_t number = KVSHM__LOAD_ACQ(number_of(kv, place));

            if (pass == 0 ? number != 0 : number == 0 || !abandoned(kv, place, number))
                continue;
            /* First, so that a sweep finds its frames when its number stands nowhere, whatever stops us here. */
            if (number != 0)
                KVSHM__STORE_REL(&kv->header->sweep_wanted, 1);
            if (!kvshm__cas(number_of(kv, place), number, kv->client))
                continue;
            kv->place = place;
            kv->own = &kv->clients[place];
            kv->own_leases = kv->leases + (size_t)place * kv->max_leases;
            *before = number;
            return true;
        }
    }
    return false;
}

/* C3 */
static void move_counter(kvshm_a64 *from, kvshm_a64 *total)
{
    uint64_t value = KVSHM__LOAD(from);

    if (value == 0)
        return;
    value = atomic_exchange_explicit(from, 0, memory_order_relaxed);
    KVSHM__ADD(total, value);
}

/* Lease words and their counters, and the words of the reservation table, of the client before. */
static void clear_words(kvshm *kv)
{
    struct kvshm_client *client = &kv->clients[kv->place];
    struct kvshm_lease_word *leases = leases_of(kv, kv->place);
    kvshm_a64 *reservations = kv->reservations + (size_t)kv->place * kv->max_leases;
    kvshm_a64 *totals = kv->header->totals;
    uint32_t high = KVSHM__LOAD(&client->lease_high);
    bool cancelled = false;

    for (uint32_t i = 0; i < high && i < kv->max_leases; i++) {
        KVSHM__STORE_REL(&leases[i].word, 0);
        KVSHM__STORE(&leases[i].tag, 0);
        KVSHM__STORE(&leases[i].tag_ns, 0);
        for (unsigned c = 0; c < KVSHM__LEASE_COUNTERS; c++)
            move_counter(&leases[i].counters[c], &totals[KVSHM__COUNTERS_ROOM - 4 + c]);
    }
    KVSHM__STORE_REL(&client->lease_high, 0);
    KVSHM__STORE(&client->device_frames, 0); /* a rebuild that ran while the place was given back */
    for (uint32_t i = 0; i < kv->max_leases; i++) {
        if (KVSHM__LOAD(&reservations[i]) == KVSHM__RESERVATION_EMPTY)
            continue;
        KVSHM__STORE_REL(&reservations[i], KVSHM__RESERVATION_EMPTY);
        cancelled = true;
    }
    /* Whoever gave the place back had cancelled them, and a sweep that runs no longer finds them marked here. */
    if (cancelled)
        KVSHM__STORE_REL(&kv->header->sweep_wanted, 1);
}

/* Field 22 of /proc/self/stat; 0 if it cannot be told. It comes behind the last ')', the end of field 2. */
static uint64_t start_ticks(void)
{
    char text[1024] = {0};
    const char *at;
    int fd = kvshm__sys.open("/proc/self/stat", O_RDONLY, 0);

    if (fd < 0)
        return 0;
    kvshm__sys.pread(fd, text, sizeof(text) - 1, 0);
    kvshm__sys.close(fd);
    at = strrchr(text, ')');
    for (unsigned field = 2; at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at == NULL ? 0 : strtoull(at, NULL, 10);
}

static uint64_t pid_namespace(void)
{
    struct stat status;

    return kvshm__sys.fstatat(AT_FDCWD, "/proc/self/ns/pid", &status, 0) == 0 ? status.st_ino : 0;
}

static void store_engine(struct kvshm_client *client, uint32_t engine, const char *reason)
{
    uint64_t words[KVSHM__REASON_BYTES / 8] = {0};

    static_assert(sizeof(words) == sizeof(client->engine_reason), "layout");
    memcpy(words, reason, strnlen(reason, sizeof(words) - 1));
    for (size_t i = 0; i < KVSHM__REASON_BYTES / 8; i++)
        KVSHM__STORE(&client->engine_reason[i], words[i]);
    KVSHM__STORE_REL(&client->engine, engine);
}

void kvshm__client_set_engine(kvshm *kv, uint32_t engine, const char *reason)
{
    store_engine(kv->own, engine, reason);
}

uint32_t kvshm__client_engine(const struct kvshm_client *client, char *buf)
{
    uint32_t engine = KVSHM__LOAD_ACQ((kvshm_a32 *)&client->engine);
    uint64_t words[KVSHM__REASON_BYTES / 8];

    for (size_t i = 0; i < KVSHM__REASON_BYTES / 8; i++)
        words[i] = KVSHM__LOAD((kvshm_a64 *)&client->engine_reason[i]);
    memcpy(buf, words, sizeof(words));
    buf[KVSHM__REASON_BYTES - 1] = '\0';
    return engine;
}

static void describe_self(struct kvshm_client *client, const char *label)
{
    client->pid = kvshm__sys.pid();
    client->uid = kvshm__sys.uid();
    client->pid_namespace = pid_namespace();
    client->start_ticks = start_ticks();
    client->attached_ns = kvshm__sys.realtime_ns();
    store_engine(client, KVSHM_ENGINE_NONE, "");
    memset(client->label, 0, sizeof(client->label));
    memcpy(client->label, label, strnlen(label, KVSHM_LABEL_MAX));
}

static int all_taken(kvshm *kv)
{
    char alive[3 * KVSHM__CLIENT_WORDS];

    kvshm__client_describe_alive(kv, alive, sizeof(alive));
    return kvshm__fail(KVSHM_E_CLIENTS,
                       "all %u client places are taken: alive are %s; others wait for who joined "
                       "them, or for kvshmctl reap. Stop one, or create the arena with more "
                       "(max_clients)",
                       kv->max_clients, alive[0] != '\0' ? alive : "none");
}

int kvshm__client_take(kvshm *kv, const char *label)
{
    struct kvshm_client *client;
    uint64_t before = 0;
    int code = take_number(kv);

    if (code == 0 && !take_free_place(kv, &before))
        code = all_taken(kv);
    if (code < 0) {
        kv->client = 0;
        return code;
    }
    client = &kv->clients[kv->place];
    for (unsigned i = 0; i < KVSHM__JOINS; i++)
        KVSHM__STORE(&client->joins[i], 0);
    clear_words(kv);
    for (unsigned i = 0; i < KVSHM__COUNTERS_ROOM; i++)
        move_counter(&client->counters[i], &kv->header->totals[i]);
    describe_self(client, label);
    if (before != 0)
        KVSHM__STORE_REL(&kv->header->sweep_wanted, 1);
    return 0;
}

void kvshm__client_give(kvshm *kv)
{
    for (unsigned i = 0; i < KVSHM__JOINS; i++)
        KVSHM__STORE_REL(&kv->clients[kv->place].joins[i], 0);
    /* All of them are cancelled. Who takes the place and dies at once must not leave it with our count. */
    KVSHM__STORE_REL(&kv->clients[kv->place].device_frames, 0);
    kvshm__cas(number_of(kv, kv->place), kv->client, 0);
}

/* ---- Joining ----------------------------------------------------------------------------------------- */

static int join_locked(kvshm *kv, uint64_t number)
{
    kvshm_a64 *joins = kv->clients[kv->place].joins;
    unsigned i = 0;

    if (place_joins(kv, kv->place, number))
        return 0;
    while (i < KVSHM__JOINS && KVSHM__LOAD(&joins[i]) != 0)
        i++;
    if (i == KVSHM__JOINS)
        return kvshm__fail(-ENOSPC,
                           "join of client %" PRIu64 ": %d are joined already; leave one first",
                           number, KVSHM__JOINS);
    atomic_store_explicit(&joins[i], number, memory_order_seq_cst);
    KVSHM__FENCE(memory_order_seq_cst); /* C2: the word first, then the look */
    if (kvshm__client_alive(kv, number))
        return 0;
    KVSHM__STORE_REL(&joins[i], 0);
    return kvshm__fail(-ESRCH, "client %" PRIu64 " is not alive", number);
}

int kvshm__client_join(kvshm *kv, uint64_t number)
{
    int code;

    if (!number_possible(number) || number == kv->client)
        return kvshm__fail(-EINVAL, "join of client %" PRIu64 ": %s; give .client of its info",
                           number,
                           number == kv->client ? "it is this one" : "no client has that number");
    pthread_mutex_lock(&kv->join_mutex);
    code = join_locked(kv, number);
    pthread_mutex_unlock(&kv->join_mutex);
    return code;
}

int kvshm__client_leave(kvshm *kv, uint64_t number)
{
    kvshm_a64 *joins = kv->clients[kv->place].joins;
    int code = -ENOENT;

    pthread_mutex_lock(&kv->join_mutex);
    for (unsigned i = 0; number != 0 && i < KVSHM__JOINS; i++) {
        if (KVSHM__LOAD(&joins[i]) == number) {
            KVSHM__STORE_REL(&joins[i], 0);
            code = 0;
        }
    }
    pthread_mutex_unlock(&kv->join_mutex);
    if (code < 0)
        return kvshm__fail(code, "client %" PRIu64 " was not joined", number);
    return 0;
}
