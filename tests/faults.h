/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults.h - what the files of check_faults share: a stage that is built anew for each run, and the scenes on it
 */
#ifndef KVSHM_TESTS_FAULTS_H
#define KVSHM_TESTS_FAULTS_H

#include "inside.h"

#define FAULTS_FRAMES  12
#define FAULTS_CLIENTS 3
#define FAULTS_LEASES  4
#define FAULTS_SPILL   "spill-b"

/* The arena "b" and who is attached to it; zero and NULL what a scene does not have. */
struct stage {
    kvshm *kv;     /* a writer */
    kvshm *other;  /* another, alive */
    kvshm *reader; /* read-only */
    kvshm *made;   /* the handle that the step makes */
    uint64_t dead; /* number of one that has died */
    struct kvshm_lease lease;
    struct kvshm_reservation r;
    unsigned seen; /* names, entries */
};

struct scene {
    const char *name;
    int64_t answer;                  /* of the step when nothing fails */
    void (*before)(struct stage *);  /* builds the stage; no call fails */
    int64_t (*step)(struct stage *); /* one public call */
    void (*undo)(struct stage *);    /* after a step that answered >= 0: what else is held by it */
    const int64_t *answers;          /* besides those, and -errno of what failed; ends with 0 */
    bool again; /* an earlier scene makes nearly the same calls */
    bool large; /* takes long: in the long form only, and where the host grants what it asks for */
};

/* The large ones come last. */
extern const struct scene faults_scenes[];
extern const size_t faults_scene_count;

/* Called when the library sleeps in its turn, before it does. */
extern void (*faults_on_sleep)(void);

/* Give back all that the stage holds. */
void faults_leave(struct stage *stage);

/* Remove a file of the folder if it is there. */
void faults_remove(const char *file);

struct kvshm_config faults_config(void);

#endif /* KVSHM_TESTS_FAULTS_H */
