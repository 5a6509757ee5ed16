/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_generate.c - a trace of requests from a model
 *
 * Prompts are lists of block ids; a new block takes the next id. Each request is one of (of 100):
 *
 *   CONTINUE      a conversation goes on: its last prompt, whose last block (it was not full) gives way to new ones
 *   BEGIN         a conversation begins: a system prompt, and new blocks
 *   ASK           a question about a document: a system prompt, the document, one block for the question
 *   the others    a prompt that nobody repeats, without a system prompt
 *
 * Of the system prompts the first is the most frequent. A conversation goes on, and a document is asked about
 * again, when at least PAUSE other requests have come in between: people read and think. A conversation that has
 * grown to its limit, or that chance ends, is forgotten; the oldest are, when there are too many.
 *
 * Only whole numbers are used, so that a seed gives the same trace on every machine.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "bench_content.h"

enum {
    CONTINUE_PERCENT = 45,
    BEGIN_PERCENT = 15,
    ASK_PERCENT = 20,
    ASK_AGAIN_PERCENT = 70, /* of the questions: about a document that was asked about before */
    END_PERCENT = 10,       /* of a conversation's turns: the last one */

    SYSTEM_PROMPTS = 6,
    SYSTEM_BLOCKS = 3, /* at most; likewise below */
    BEGIN_BLOCKS = 4,
    TURN_BLOCKS = 3,
    DOCUMENT_BLOCKS = 32,
    ONE_OFF_BLOCKS = 12,

    PROMPT_BLOCKS = 96, /* a conversation does not grow beyond */
    TOPICS = 512,       /* conversations, and documents, that are remembered */
    PAUSE = 96,         /* requests between two of one topic */

    GAP_MS = 600, /* at most, from one request to the next */
    REPLY_TOKENS = 1024
};

/* A conversation or a document: the blocks that its next prompt begins with. */
struct topic {
    uint64_t last; /* request it was in */
    uint32_t count;
    uint64_t ids[PROMPT_BLOCKS];
};

/* The topics of one kind, from the one that was asked about longest ago to the last one. */
struct topics {
    uint32_t count;
    struct topic *order[TOPICS];
    struct topic all[TOPICS];
};

struct model {
    uint64_t random;
    uint64_t next_id;
    uint64_t request;
    uint64_t timestamp_ms;
    struct topics conversations;
    struct topics documents;
    uint32_t system_count[SYSTEM_PROMPTS];
    uint64_t system_ids[SYSTEM_PROMPTS][SYSTEM_BLOCKS];
    uint32_t count; /* the prompt being made */
    uint64_t ids[PROMPT_BLOCKS + SYSTEM_BLOCKS + DOCUMENT_BLOCKS + 1];
};

static uint32_t from_one_to(struct model *model, uint32_t most)
{
    return 1 + (uint32_t)bench_below(&model->random, most);
}

static void add_new(struct model *model, uint32_t blocks)
{
    for (uint32_t i = 0; i < blocks; i++)
        model->ids[model->count++] = model->next_id++;
}

static void add_known(struct model *model, const uint64_t *ids, uint32_t count)
{
    memcpy(model->ids + model->count, ids, count * sizeof(*ids));
    model->count += count;
}

/* System prompt i is drawn with a chance of 1 / 2^(i + 1); the last one takes what is left. */
static uint32_t draw_system_prompt(struct model *model)
{
    uint32_t i = 0;

    while (i < SYSTEM_PROMPTS - 1 && bench_below(&model->random, 2))
        i++;
    return i;
}

/* Begin the prompt with a system prompt, whose blocks are made when it is first used. */
static void add_system_prompt(struct model *model, uint32_t which)
{
    if (model->system_count[which] == 0) {
        model->system_count[which] = from_one_to(model, SYSTEM_BLOCKS);
        add_new(model, model->system_count[which]);
        memcpy(model->system_ids[which], model->ids, model->count * sizeof(model->ids[0]));
        return;
    }
    add_known(model, model->system_ids[which], model->system_count[which]);
}

/* Take the topic at this place of the order out; it may be used again at once. */
static struct topic *topic_take(struct topics *topics, uint32_t place)
{
    struct topic *topic = topics->order[place];

    topics->count--;
    memmove(topics->order + place, topics->order + place + 1,
            (topics->count - place) * sizeof(topics->order[0]));
    topics->order[topics->count] = topic;
    return topic;
}

/* Put a topic at the end: the one that topic_take gave last. */
static void topic_put(struct topics *topics, const struct model *model)
{
    topics->order[topics->count++]->last = model->request;
}

/* A new topic, not put yet: an unused one, else the one that was asked about longest ago. */
static struct topic *topic_new(struct topics *topics)
{
    return topics->count < TOPICS ? topics->order[topics->count] : topic_take(topics, 0);
}

/* One that has rested long enough, taken out; NULL: none has. */
static struct topic *topic_draw(struct topics *topics, struct model *model)
{
    uint32_t rested = 0;

    while (rested < topics->count && topics->order[rested]->last + PAUSE < model->request)
        rested++;
    return rested ? topic_take(topics, (uint32_t)bench_below(&model->random, rested)) : NULL;
}

/* The prompt that was just made is what the conversation's next one begins with, but for its last block. */
static void conversation_keep(struct model *model, struct topic *conversation)
{
    if (bench_below(&model->random, 100) < END_PERCENT || model->count > PROMPT_BLOCKS)
        return;
    conversation->count = model->count - 1;
    memcpy(conversation->ids, model->ids, conversation->count * sizeof(model->ids[0]));
    topic_put(&model->conversations, model);
}

static void conversation_begin(struct model *model)
{
    struct topic *conversation = topic_new(&model->conversations);

    add_system_prompt(model, draw_system_prompt(model));
    add_new(model, from_one_to(model, BEGIN_BLOCKS));
    conversation_keep(model, conversation);
}

static void conversation_go_on(struct model *model)
{
    struct topic *conversation = topic_draw(&model->conversations, model);

    if (!conversation) {
        conversation_begin(model);
        return;
    }
    add_known(model, conversation->ids, conversation->count);
    add_new(model, from_one_to(model, TURN_BLOCKS));
    conversation_keep(model, conversation);
}

static void document_ask(struct model *model)
{
    struct topic *document = NULL;

    if (bench_below(&model->random, 100) < ASK_AGAIN_PERCENT)
        document = topic_draw(&model->documents, model);
    if (document) {
        add_known(model, document->ids, document->count);
    } else {
        document = topic_new(&model->documents);
        add_system_prompt(model, draw_system_prompt(model));
        add_new(model, from_one_to(model, DOCUMENT_BLOCKS));
        document->count = model->count;
        memcpy(document->ids, model->ids, model->count * sizeof(model->ids[0]));
    }
    topic_put(&model->documents, model);
    add_new(model, 1);
}

static void make_prompt(struct model *model)
{
    uint64_t kind = bench_below(&model->random, 100);

    model->count = 0;
    if (kind < CONTINUE_PERCENT)
        conversation_go_on(model);
    else if (kind < CONTINUE_PERCENT + BEGIN_PERCENT)
        conversation_begin(model);
    else if (kind < CONTINUE_PERCENT + BEGIN_PERCENT + ASK_PERCENT)
        document_ask(model);
    else
        add_new(model, from_one_to(model, ONE_OFF_BLOCKS));
}

static void print_request(struct model *model)
{
    uint64_t tokens =
        (uint64_t)(model->count - 1) * BENCH_BLOCK_TOKENS + from_one_to(model, BENCH_BLOCK_TOKENS);

    printf("{\"timestamp\": %llu, \"input_length\": %llu, \"output_length\": %u, \"hash_ids\": [",
           (unsigned long long)model->timestamp_ms, (unsigned long long)tokens,
           from_one_to(model, REPLY_TOKENS));
    for (uint32_t i = 0; i < model->count; i++)
        printf("%s%llu", i ? ", " : "", (unsigned long long)model->ids[i]);
    printf("]}\n");
    model->timestamp_ms += bench_below(&model->random, GAP_MS + 1);
}

int bench_generate(const struct bench_generate_options *options)
{
    struct model *model = calloc(1, sizeof(*model));

    if (!model) {
        tool_error("no memory for the model");
        return TOOL_FAILED;
    }
    model->random = options->seed;
    for (uint32_t i = 0; i < TOPICS; i++) {
        model->conversations.order[i] = &model->conversations.all[i];
        model->documents.order[i] = &model->documents.all[i];
    }
    while (model->request < options->requests && !ferror(stdout)) {
        make_prompt(model);
        print_request(model);
        model->request++;
    }
    free(model);
    return tool_finish(TOOL_DONE);
}
