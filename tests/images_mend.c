/* SPDX-License-Identifier: Apache-2.0 */
/*
 * images_mend.c - a fresh client attaches to a copy of an image, and all must be well.
 */
#include "images.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "frames.h"
#include "lease.h"
#include "reap.h"

/* Faults that are told of one image, and in all. */
#define TOLD_MAX  4
#define WRONG_MAX 100

uint64_t im_wrong;
static unsigned told_of_image;

#define HELD_MAX 128

/* One recovery. */
struct mend {
    const struct im_case *c;
    const struct im_scene *scene;
    const uint8_t *image;
    enum im_company company;
    int fd; /* of the copy: the other's locks; -1 */
    kvshm *kv;
    struct {
        uint32_t record, frame;
        uint64_t seq;
    } held[HELD_MAX]; /* pages under leases that count, some of them more than once */
    uint32_t n_held;
    uint64_t reserved, device; /* frames of the living or joined; of the dead, for devices */
    uint64_t devices[8];       /* numbers of these dead */
    uint32_t n_devices;
};

/* ---- Faults -------------------------------------------------------------------------------------------- */

void im_found(const struct im_case *c, const char *fmt, ...)
{
    const struct im_scene *s = &c->play->scene;
    va_list arguments;

    im_wrong++;
    if (told_of_image++ >= TOLD_MAX)
        return;
    fprintf(stderr, "KVSHM_TEST_SEED=%llu, %s, %s, m %u, %u frames, instruction %llu, image %llu",
            (unsigned long long)ts_seed(), im_deed(s->deed)->name, im_shape(s->shape),
            s->page_tokens, s->frames, (unsigned long long)c->instruction,
            (unsigned long long)c->image);
    if (c->rebuild[0] > 0)
        fprintf(stderr, ", change %llu of its rebuild", (unsigned long long)c->rebuild[0]);
    if (c->rebuild[1] > 0)
        fprintf(stderr, ", change %llu of the rebuild after it", (unsigned long long)c->rebuild[1]);
    fprintf(stderr, ": ");
    va_start(arguments, fmt);
    vfprintf(stderr, fmt, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    if (im_wrong >= WRONG_MAX)
        ck_abort_msg("too many faults");
}

#define FOUND(m, ...) im_found((m)->c, __VA_ARGS__)

static const char *company_name(enum im_company company)
{
    static const char *const names[] = {"alone", "reading", "with the other",
                                        "joined by the other"};

    return names[company];
}

/* The audit's findings go to standard error; the case is told behind them. */
static void expect_sound(const struct mend *m, const char *when)
{
    kvshm_a64 *capacity = &m->kv->header->settings.capacity;
    uint64_t before = KVSHM__LOAD(capacity);
    unsigned findings;

    if (im_deed(m->scene->deed)->capacity && im_lock(m->image) == 0)
        KVSHM__STORE(capacity, KVSHM_UNLIMITED);
    findings = audit(m->kv, stderr);
    KVSHM__STORE(capacity, before);
    if (findings > 0)
        FOUND(m, "%s, %s: the audit found %u faults", when, company_name(m->company), findings);
}

static void expect(const struct mend *m, const char *what, int64_t is, int64_t wanted)
{
    if (is != wanted)
        FOUND(m, "%s, %s: %lld, wanted %lld; message: %s", what, company_name(m->company),
              (long long)is, (long long)wanted, kvshm_errmsg(NULL));
}

/* ---- The copy ------------------------------------------------------------------------------------------ */

static void path_of(const char *name, char path[320])
{
    snprintf(path, 320, "%s/%s", getenv("KVSHM_DIR"), name);
}

static const struct kvshm_header *header_of(const uint8_t *image)
{
    return (const struct kvshm_header *)image;
}

uint64_t im_lock(const uint8_t *image)
{
    return KVSHM__LOAD((kvshm_a64 *)&header_of(image)->lock.word);
}

bool im_may_leave(const uint8_t *image, uint64_t served, uint64_t now, bool all)
{
    uint64_t capacity = KVSHM__LOAD((kvshm_a64 *)&header_of(image)->settings.capacity);
    uint64_t before = (uint64_t)__builtin_popcountll(served);
    uint64_t after = (uint64_t)__builtin_popcountll(now);

    return before > capacity && (served & now) == now &&
           (all ? after == capacity : after >= capacity);
}

static struct kvshm_client *client_of(const uint8_t *image, uint64_t number)
{
    const struct kvshm_static *f = &header_of(image)->fixed;
    struct kvshm_client *clients =
        (struct kvshm_client *)(image + f->directory[KVSHM__SEC_CLIENTS - 1].offset);

    for (uint32_t i = 0; number != 0 && i < f->max_clients; i++) {
        if (KVSHM__LOAD(&clients[i].number) == number)
            return &clients[i];
    }
    return NULL;
}

/* Take the other's two locks on an arena file: it lives there. The descriptor that holds them. */
static int let_live(const char *name, uint64_t number)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 2};
    char path[320];
    int fd;

    lock.l_start = (off_t)(KVSHM__LOCK_BASE + 2 * number);
    path_of(name, path);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fcntl(fd, F_OFD_SETLK, &lock) != 0)
        ck_abort_msg("%s: %s", path, strerror(errno));
    return fd;
}

int im_write(const char *name, uint8_t *image, size_t bytes, const struct im_told *told,
             enum im_company *company)
{
    struct kvshm_client *other = client_of(image, told->other);
    char path[320];
    int fd;

    if (*company >= IM_OTHER && other == NULL)
        *company = IM_ALONE;
    if (*company == IM_JOINED)
        KVSHM__STORE(&other->joins[KVSHM__JOINS - 1], told->client);
    path_of(name, path);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || pwrite(fd, image, bytes, 0) != (ssize_t)bytes || ftruncate(fd, (off_t)bytes) != 0)
        ck_abort_msg("%s: %s", path, strerror(errno));
    close(fd);
    return *company >= IM_OTHER ? let_live(name, told->other) : -1;
}

static void attach(struct mend *m)
{
    struct kvshm_config right = im_expect(false), wrong = im_expect(true);
    bool fingerprint = im_deed(m->scene->deed)->fingerprint;
    int answer;

    if (fingerprint && KVSHM__LOAD((kvshm_a32 *)&header_of(m->image)->has_fingerprint) != 0) {
        answer = kvshm_attach("copy", &wrong, 0, &m->kv);
        expect(m, "attaching with another fingerprint", answer, KVSHM_E_FINGERPRINT);
    }
    answer = kvshm_attach("copy", fingerprint ? &right : NULL, 0, &m->kv);
    if (answer < 0)
        ck_abort_msg("attaching to a copy: %s (%s, %s, image %llu)", kvshm_errmsg(NULL),
                     im_deed(m->scene->deed)->name, im_shape(m->scene->shape),
                     (unsigned long long)m->c->image);
}

/* ---- What must not be lost ------------------------------------------------------------------------------ */

/* Our handle, looking at another image of the same segment. */
static struct kvshm looking_at(const kvshm *kv, const uint8_t *image)
{
    struct kvshm view = *kv;

#define MOVE(field) view.field = (void *)(image + ((const uint8_t *)kv->field - kv->base))
    MOVE(header);
    MOVE(clients);
    MOVE(leases);
    MOVE(reservations);
    MOVE(records);
    MOVE(links);
    MOVE(owners);
#undef MOVE
    return view;
}

static void note_chain(struct mend *m, const kvshm *view, uint64_t value)
{
    uint32_t record = kvshm__index_record(view, value);

    if (value == 0 || record == KVSHM__NO_RECORD ||
        kvshm__lease_value(record, KVSHM__LOAD(&view->records[record].seq)) != value)
        return;
    for (; record != KVSHM__NO_RECORD; record = kvshm__pages_parent(view, record)) {
        uint64_t place = KVSHM__LOAD(&view->records[record].place);

        if (kvshm__place_state(place) == KVSHM__PLACE_NONE || m->n_held == HELD_MAX)
            return;
        m->held[m->n_held].record = record;
        m->held[m->n_held].frame = kvshm__place_frame(place);
        m->held[m->n_held++].seq = KVSHM__LOAD(&view->records[record].seq);
    }
}

/* Of a cancelled reservation, or of a client that has detached, and so had no other? */
static bool given_up(const kvshm *view, uint64_t owner)
{
    int place = kvshm__client_find(view, kvshm__owner_client(owner));

    return place < 0 ||
           KVSHM__LOAD(
               &view->reservations[(size_t)place * view->max_leases + kvshm__owner_word(owner)]) >=
               KVSHM__RESERVATION_CANCELLED;
}

static void note_device(struct mend *m, uint64_t number)
{
    m->device++;
    for (uint32_t i = 0; i < m->n_devices; i++) {
        if (m->devices[i] == number)
            return;
    }
    m->devices[m->n_devices++] = number;
}

/* Frames under leases that count, as bits. */
static uint64_t frames_leased(const struct mend *m)
{
    uint64_t frames = 0;

    for (uint32_t i = 0; i < m->n_held; i++)
        frames |= UINT64_C(1) << m->held[i].frame;
    return frames;
}

/* Whose is the frame? Of a page under a lease, even if its insert has not come to the owner word: see mend.c. */
static void note_frame(struct mend *m, const kvshm *view, uint32_t frame)
{
    uint64_t owner = KVSHM__LOAD(&view->owners[frame].owner);
    enum kvshm_owner_kind kind = kvshm__owner_kind(owner);

    if ((kind != KVSHM__OWNER_RESERVED && kind != KVSHM__OWNER_DEVICE) || given_up(view, owner) ||
        frames_leased(m) >> frame & 1)
        return;
    if (kvshm__client_counts(view, kvshm__owner_client(owner)))
        m->reserved++;
    else if (kind == KVSHM__OWNER_DEVICE)
        note_device(m, kvshm__owner_client(owner));
}

/* From what the image says that has not been mended yet. */
static void note_held(struct mend *m)
{
    struct kvshm view = looking_at(m->kv, m->c->origin != NULL ? m->c->origin : m->image);

    for (uint32_t place = 0; place < view.max_clients; place++) {
        uint64_t number = KVSHM__LOAD(&view.clients[place].number);

        if (number == 0 || !kvshm__client_counts(&view, number))
            continue;
        for (uint32_t i = 0; i < view.max_leases; i++)
            note_chain(m, &view,
                       KVSHM__LOAD(&view.leases[(size_t)place * view.max_leases + i].word));
    }
    for (uint32_t frame = 0; frame < view.frame_count; frame++)
        note_frame(m, &view, frame);
}

/* Pages under leases that count are the same pages, in the same frames, with the same bytes. */
static void expect_held(const struct mend *m, const char *when)
{
    const kvshm *kv = m->kv;

    for (uint32_t i = 0; i < m->n_held; i++) {
        const struct kvshm_record *r = &kv->records[m->held[i].record];
        uint64_t place = KVSHM__LOAD((kvshm_a64 *)&r->place);
        uint64_t offset = kvshm__frame_offset(kv, m->held[i].frame);

        if (KVSHM__LOAD((kvshm_a64 *)&r->seq) != m->held[i].seq ||
            kvshm__place_state(place) == KVSHM__PLACE_NONE ||
            kvshm__place_frame(place) != m->held[i].frame)
            FOUND(m, "%s: the leased record %u is lost", when, m->held[i].record);
        else if (memcmp(kv->read_base + offset, m->image + offset, IN_PAGE_BYTES) != 0)
            FOUND(m, "%s: the bytes of the leased record %u changed", when, m->held[i].record);
    }
}

/* ---- What is served ------------------------------------------------------------------------------------- */

/* The names that are cached, as bits; the bytes of all are compared. One of them stays leased. */
static uint64_t read_all(const struct mend *m, const char *when, struct kvshm_lease *keep,
                         struct kvshm_prefix *kept)
{
    uint64_t served = 0;

    for (unsigned name = 0; name < IM_NAMES; name++) {
        struct kvshm_prefix prefix = im_name(m->scene, m->c->play->told, name);
        struct kvshm_lease lease;
        int answer;

        if (prefix.n == 0)
            continue;
        answer = kvshm_lookup(m->kv, &prefix, 0, &lease);
        if (answer == KVSHM_MISS)
            continue;
        expect(m, "a lookup", answer, 0);
        served |= UINT64_C(1) << name;
        if (lease.tokens != prefix.n || in_wrong(&lease, &prefix) != 0)
            FOUND(m, "%s: name %u has %u tokens of %u, and %llu wrong bytes", when, name,
                  lease.tokens, prefix.n, (unsigned long long)in_wrong(&lease, &prefix));
        if (keep != NULL && keep->kv == NULL) {
            *keep = lease;
            *kept = prefix;
        } else {
            kvshm_release(m->kv, &lease);
        }
    }
    return served;
}

static void expect_counts(const struct mend *m, uint64_t served)
{
    const kvshm *kv = m->kv;
    uint64_t reserved = KVSHM__LOAD(&kv->header->derived.frames_reserved);
    uint64_t limbo_held = in_limbo(kv);

    expect(m, "entries that are no names", (int64_t)in_entries(kv), __builtin_popcountll(served));
    expect(m, "frames reserved", (int64_t)reserved, (int64_t)(m->reserved + m->device));
    expect(m, "frames lost",
           (int64_t)(kv->frame_count - in_free(kv) - in_pages(kv) - limbo_held - reserved), 0);
    if (m->n_held == 0)
        expect(m, "pages in limbo", (int64_t)limbo_held, 0);
    if (audit_limbo_held(kv, stderr) != 0)
        FOUND(m, "limbo keeps what nobody holds");
}

/* ---- What comes after ----------------------------------------------------------------------------------- */

/* Frames that device wrote into come back by reap, of a client that can be named. */
static void reap_devices(struct mend *m)
{
    for (uint32_t i = 0; i < m->n_devices; i++) {
        if (kvshm__client_find(m->kv, m->devices[i]) < 0)
            FOUND(m, "client %llu has device frames and no place",
                  (unsigned long long)m->devices[i]);
        if (kvshm__reap(m->kv, m->devices[i], NULL) <= 0)
            FOUND(m, "device frames of client %llu do not come back: %s",
                  (unsigned long long)m->devices[i], kvshm_errmsg(NULL));
    }
}

/* As many new entries as there are frames. */
static void insert_all(const struct mend *m)
{
    uint32_t held = (uint32_t)(__builtin_popcountll(frames_leased(m)) + (int)m->reserved);
    uint32_t n = m->kv->frame_count - held, page = m->scene->page_tokens;
    uint64_t capacity = KVSHM__LOAD(&m->kv->header->settings.capacity);
    struct kvshm_reservation all, more;
    struct kvshm_lease lease;

    memset(&all, 0, sizeof(all));
    if (n > 0)
        expect(m, "reserving all frames", kvshm_reserve(m->kv, n, 0, &all), 0);
    expect(m, "reserving one more", kvshm_reserve(m->kv, 1, 0, &more), -ENOSPC);
    kvshm_cancel(m->kv, &all);
    kvshm_cancel(m->kv, &more);
    for (uint32_t i = 0; i < n; i++) {
        struct kvshm_prefix prefix = in_range(5000000 + 100 * i, page);
        expect(m, "a new insert", in_insert(m->kv, &prefix, NULL, 0), 0);
    }
    for (uint32_t i = 0; i < n && i < capacity; i++) {
        struct kvshm_prefix prefix = in_range(5000000 + 100 * (n - 1 - i), page);
        int answer = kvshm_lookup(m->kv, &prefix, 0, &lease);

        expect(m, "a new entry", answer, 0);
        if (answer == 0 && in_wrong(&lease, &prefix) != 0)
            FOUND(m, "a new entry has wrong bytes");
        kvshm_release(m->kv, &lease);
    }
}

/* The first write: the lock is taken over if the image holds it, and everything derived rebuilt. */
static void first_write(const struct mend *m, uint64_t served)
{
    struct kvshm_prefix nothing = in_range(9000000, 1), kept;
    struct kvshm_lease keep = {0};

    expect(m, "names served before and after a look",
           (int64_t)read_all(m, "torn", m->company == IM_READING ? &keep : NULL, &kept),
           (int64_t)served);
    expect(m, "the first write", kvshm_remove(m->kv, &nothing), KVSHM_MISS);
    expect_sound(m, "after the first write");
    if (keep.kv != NULL && in_wrong(&keep, &kept) != 0)
        FOUND(m, "the rebuild changed a page that is read meanwhile");
    kvshm_release(m->kv, &keep);
    expect_held(m, "after the first write");
}

static void end(struct mend *m)
{
    expect(m, "detaching", kvshm_detach(m->kv), 0);
    if (m->fd >= 0)
        close(m->fd);
}

uint64_t im_recover(const struct im_case *c, const uint8_t *image, size_t bytes,
                    enum im_company company)
{
    static uint8_t copy[1 << 20] __attribute__((aligned(8)));
    struct mend m = {.c = c, .scene = &c->play->scene, .company = company};
    uint64_t served, after;

    told_of_image = 0;
    if (bytes > sizeof(copy))
        ck_abort_msg("an image of %zu bytes", bytes);
    memcpy(copy, image, bytes);
    m.image = copy;
    m.fd = im_write("copy", copy, bytes, c->play->told, &m.company);
    attach(&m);
    if (im_lock(image) == 0)
        expect_sound(&m, "with a free lock");
    note_held(&m);
    served = read_all(&m, "torn", NULL, NULL);
    first_write(&m, served);
    if (kvshm__reap(m.kv, 0, NULL) < 0)
        FOUND(&m, "reap: %s", kvshm_errmsg(NULL));
    expect_sound(&m, "after a reap");
    after = read_all(&m, "mended", NULL, NULL);
    if (after != served && !im_may_leave(copy, served, after, true))
        FOUND(&m, "names %#llx were served, and %#llx are, mended", (unsigned long long)served,
              (unsigned long long)after);
    expect_counts(&m, after);
    reap_devices(&m);
    insert_all(&m);
    expect_sound(&m, "in the end");
    expect_held(&m, "in the end");
    end(&m);
    return served;
}
