/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork.c - handles and fork.
 *
 * A child must not use its parent's handles: they speak in the parent's name, and an open copy of the descriptors
 * keeps the parent alive in the eyes of others after its death.
 *
 * - Each handle has a page that the kernel wipes in every child, raw clone's too (MADV_WIPEONFORK). It holds 1 in the
 *   process that attached. Every public call looks at it first.
 * - The segment's mappings are not in the child at all (MADV_DONTFORK); one would keep the parent alive as a descriptor does.
 * - All handles of the process stand in a list. fork() in the child, before it returns, closes their descriptors.
 *   A raw clone runs no handler; its child keeps the parent alive until it ends or executes a program.
 *
 * Invariants
 * F1  A descriptor of a segment that a forked child may inherit stands in a handle of the list: it is opened and
 *     stored while no fork can happen (kvshm__fork_hold).
 * F2  The list's mutex is held over fork itself, so the child's copy of the list is whole.
 *
 * The handler is registered once, through the part of pthread_atfork that is linked into this object, so it goes
 * when the object is unloaded. The list's mutex is innermost: nothing else is locked under it.
 */
#include "fork.h"

#include <sys/mman.h>
#include <unistd.h>

#include "message.h"
#include "sys.h"

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static kvshm *list;
static bool registered;

static void before_fork(void)
{
    pthread_mutex_lock(&list_mutex);
}

static void parent_after_fork(void)
{
    pthread_mutex_unlock(&list_mutex);
}

static void child_after_fork(void)
{
    for (kvshm *kv = list; kv != NULL; kv = kv->next) {
        int *fds[] = {&kv->fd, &kv->quiet_fd, &kv->spill_fd, &kv->ring_fd, &kv->event_fd};
        for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++) {
            if (*fds[i] >= 0)
                kvshm__sys.close(*fds[i]);
            *fds[i] = -1;
        }
    }
    list = NULL;
    pthread_mutex_unlock(&list_mutex);
}

void kvshm__fork_hold(void)
{
    pthread_mutex_lock(&list_mutex);
}

void kvshm__fork_let(void)
{
    pthread_mutex_unlock(&list_mutex);
}

void kvshm__fork_close(int *fd)
{
    kvshm__fork_hold();
    if (*fd >= 0)
        kvshm__sys.close(*fd);
    *fd = -1;
    kvshm__fork_let();
}

static uint64_t page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static int make_page(kvshm *kv)
{
    void *page;
    int code = kvshm__sys.map(page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                              &page);

    if (code < 0)
        return code;
    code = kvshm__sys.advise(page, page_bytes(), MADV_WIPEONFORK);
    if (code < 0) {
        kvshm__sys.unmap(page, page_bytes());
        return code;
    }
    KVSHM__STORE((kvshm_a64 *)page, 1);
    kv->fork_page = page;
    return 0;
}

int kvshm__fork_add(kvshm *kv)
{
    int code = make_page(kv);

    if (code < 0)
        return code;
    kv->fd = kv->quiet_fd = kv->spill_fd = kv->ring_fd = kv->event_fd = -1;
    kvshm__fork_hold();
    if (!registered) {
        code = -pthread_atfork(before_fork, parent_after_fork, child_after_fork);
        registered = code == 0;
    }
    if (code == 0) {
        kv->next = list;
        list = kv;
    }
    kvshm__fork_let();
    if (code < 0)
        kvshm__sys.unmap((void *)kv->fork_page, page_bytes());
    return code;
}

bool kvshm__fork_remove(kvshm *kv)
{
    /* In the child of a raw clone the mutex may be held by a thread that the child does not have. */
    if (!kvshm__forked(kv))
        kvshm__fork_hold();
    else if (pthread_mutex_trylock(&list_mutex) != 0)
        return false;
    for (kvshm **at = &list; *at != NULL; at = &(*at)->next) {
        if (*at == kv) {
            *at = kv->next;
            break;
        }
    }
    kvshm__fork_let();
    kvshm__sys.unmap((void *)kv->fork_page, page_bytes());
    kv->fork_page = NULL;
    return true;
}

int kvshm__fork_hide(void *address, uint64_t size)
{
    int code = kvshm__sys.advise(address, size, MADV_DONTFORK);

    return code < 0 ? code : kvshm__sys.advise(address, size, MADV_DONTDUMP);
}

int kvshm__fork_check(const kvshm *kv)
{
    if (!kvshm__forked(kv))
        return 0;
    return kvshm__fail(KVSHM_E_FORKED, "the handle of arena %s belongs to the parent process; attach anew", kv->name);
}
