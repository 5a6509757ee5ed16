/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_torture_gone.c - what was removed or cleared, and must not be served
 *
 * Entries and pages have names, places in a table of digests. For each name inserts are counted as they begin. Who has removed an entry notes the count from before, if no insert of it was being made then: as
 * long as the count is that, whoever is served the entry is served what had gone, in this arena or another one on its
 * spill file. A clear notes it for all names. A server that is killed makes no insert any more; a child of it may.
 */
#include <string.h>

#include "bench_content.h"
#include "bench_torture.h"

enum kind { KEY = 1, ENTRY, PAGE };

/* Where the digest stands, or is to stand. */
static uint32_t name_of(const struct torture_shared *shared, uint64_t digest, enum kind kind,
                        uint64_t *mixed)
{
    uint32_t at;

    *mixed = bench_mix(digest + kind) | 1;
    at = (uint32_t)(*mixed >> 32) % TORTURE_NAMES;
    while (shared->names[at].digest != 0 && shared->names[at].digest != *mixed)
        at = (at + 1) % TORTURE_NAMES;
    return at;
}

/* The digests of an entry, and of its first so many tokens' pages behind it. How many. */
static uint32_t digests_of(const struct torture_prompt *prompt, uint32_t tokens,
                           uint64_t digests[TORTURE_DEPTH + 1])
{
    const struct kvshm_prefix *prefix = &prompt->prefix;
    uint32_t n = 0;

    digests[n++] =
        prefix->tokens ? bench_digest(prompt->root, prompt->tokens, prefix->n) : prompt->root;
    if (!prefix->tokens)
        return n;
    for (uint32_t end = TORTURE_PAGE_TOKENS; end <= tokens; end += TORTURE_PAGE_TOKENS)
        digests[n++] = bench_digest(prompt->root, prompt->tokens, end);
    if (tokens == prefix->n && tokens % TORTURE_PAGE_TOKENS)
        digests[n++] = bench_digest(prompt->root, prompt->tokens, tokens);
    return n;
}

static enum kind kind_of(const struct torture_prompt *prompt, uint32_t i)
{
    return i > 0 ? PAGE : prompt->prefix.tokens ? ENTRY : KEY;
}

static uint32_t names_of(const struct torture_shared *shared, const struct torture_prompt *prompt,
                         uint32_t tokens, uint32_t names[TORTURE_DEPTH + 1])
{
    uint64_t digests[TORTURE_DEPTH + 1], mixed;
    uint32_t n = digests_of(prompt, tokens, digests);

    for (uint32_t i = 0; i < n; i++)
        names[i] = name_of(shared, digests[i], kind_of(prompt, i), &mixed);
    return n;
}

static void give_names(struct torture_shared *shared, const struct torture_prompt *prompt)
{
    uint64_t digests[TORTURE_DEPTH + 1], mixed;
    uint32_t n = digests_of(prompt, prompt->prefix.n, digests);

    for (uint32_t i = 0; i < n; i++) {
        uint32_t name = name_of(shared, digests[i], kind_of(prompt, i), &mixed);

        shared->names[name].digest = mixed;
    }
}

/* Prompts, those that end where a page of one ends, and keys. */
void torture_gone_begin(struct torture_shared *shared)
{
    struct torture_prompt prompt;

    for (uint32_t number = 0; number < TORTURE_PROMPTS; number++) {
        torture_prompt_tokens(&prompt, number);
        for (uint32_t n = prompt.prefix.n; n > 0;
             n = (n - 1) / TORTURE_PAGE_TOKENS * TORTURE_PAGE_TOKENS) {
            prompt.prefix.n = n;
            give_names(shared, &prompt);
        }
    }
    for (uint32_t number = 0; number < TORTURE_KEYS; number++) {
        torture_prompt_key(&prompt, number);
        give_names(shared, &prompt);
    }
}

void torture_gone_insert(struct torture_shared *shared, struct torture_place *place,
                         const struct torture_prompt *prompt, bool child)
{
    uint32_t names[TORTURE_DEPTH + 1], n = names_of(shared, prompt, prompt->prefix.n, names);

    for (uint32_t i = 0; i < n; i++) {
        if (child)
            atomic_store(&shared->names[names[i]].unknown, 1);
        else
            atomic_store(&place->inserting[i], names[i] + 1);
        atomic_fetch_add(&shared->names[names[i]].begun, 1);
    }
}

void torture_gone_inserted(struct torture_place *place)
{
    for (uint32_t i = 0; i <= TORTURE_DEPTH; i++)
        atomic_store(&place->inserting[i], 0);
}

void torture_gone_before(const struct torture_run *run, struct torture_gone *gone)
{
    for (uint32_t name = 0; name < TORTURE_NAMES; name++)
        gone->begun[name] = atomic_load(&run->shared->names[name].begun);
    for (uint32_t server = 0; server < run->procs; server++) {
        for (uint32_t i = 0; i <= TORTURE_DEPTH; i++) {
            uint32_t name = atomic_load(&run->shared->places[server].inserting[i]);

            if (name > 0)
                gone->begun[name - 1] = UINT64_MAX;
        }
    }
}

static void note(const struct torture_run *run, const struct torture_gone *gone, uint32_t name)
{
    if (gone->begun[name] != UINT64_MAX)
        atomic_store(&run->shared->names[name].gone, gone->begun[name] + 1);
}

void torture_gone_removed(const struct torture_run *run, const struct torture_prompt *prompt,
                          bool page, const struct torture_gone *gone)
{
    uint32_t names[TORTURE_DEPTH + 1], n = names_of(run->shared, prompt, prompt->prefix.n, names);

    if (page)
        note(run, gone, names[n - 1]);
    note(run, gone, names[0]);
}

void torture_gone_cleared(const struct torture_run *run, const struct torture_gone *gone)
{
    for (uint32_t name = 0; name < TORTURE_NAMES; name++)
        note(run, gone, name);
}

void torture_gone_ask(const struct torture_run *run, const struct torture_prompt *prompt,
                      struct torture_serving *serving)
{
    uint32_t names[TORTURE_DEPTH + 1], n = names_of(run->shared, prompt, prompt->prefix.n, names);

    for (uint32_t i = 0; i < n; i++)
        serving->gone[i] = atomic_load(&run->shared->names[names[i]].gone);
}

bool torture_gone_served(const struct torture_run *run, const struct torture_prompt *prompt,
                         uint32_t tokens, bool entry, const struct torture_serving *serving)
{
    uint32_t names[TORTURE_DEPTH + 1], n = names_of(run->shared, prompt, tokens, names);

    for (uint32_t i = entry ? 0 : 1; i < n; i++) {
        const struct torture_name *name = &run->shared->names[names[i]];

        if (serving->gone[i] > 0 && serving->gone[i] == atomic_load(&name->begun) + 1 &&
            !atomic_load(&name->unknown))
            return false;
    }
    return true;
}

static bool is_gone(const struct torture_name *name)
{
    return atomic_load(&name->gone) == atomic_load(&name->begun) + 1;
}

/* Of an entry that was longer the file may have had the head alone. */
static void forget(const struct torture_run *run, const struct torture_prompt *prompt)
{
    uint32_t names[TORTURE_DEPTH + 1], n = names_of(run->shared, prompt, prompt->prefix.n, names);

    if (!is_gone(&run->shared->names[names[n - 1]]))
        atomic_store(&run->shared->names[names[0]].gone, 0);
}

void torture_gone_anew(const struct torture_run *run)
{
    struct torture_prompt prompt;

    for (uint32_t number = 0; number < TORTURE_PROMPTS; number++) {
        torture_prompt_tokens(&prompt, number);
        forget(run, &prompt);
    }
}

void torture_gone_settle(const struct torture_run *run)
{
    for (uint32_t i = 0; i < TORTURE_NAMES; i++) {
        struct torture_name *name = &run->shared->names[i];

        if (atomic_exchange(&name->unknown, 0))
            atomic_store(&name->gone, 0);
    }
}
