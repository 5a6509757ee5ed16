/* SPDX-License-Identifier: Apache-2.0 */
/*
 * create_options.h - the options of `kvshmctl create` and `load`, and how their values are read.
 *
 * An option is a line of a table, which makes the line of --help, and says how the value is read and where in struct
 * kvshm_config it belongs. The library judges the values; only what cannot be written at all is refused here.
 */
#ifndef KVSHM_TOOLS_CREATE_OPTIONS_H
#define KVSHM_TOOLS_CREATE_OPTIONS_H

#include <argp.h>
#include <stddef.h>

#include "kvshm.h"

enum value_kind {
    VALUE_U32,
    VALUE_U64,
    VALUE_LIMIT,
    VALUE_SIZE,
    VALUE_MODE,
    VALUE_GROUP,
    VALUE_FINGERPRINT,
    VALUE_DTYPE,
    VALUE_BACKING,
    VALUE_NUMA,
    VALUE_FILE,
    VALUE_ADMISSION
};

struct create_option {
    const char *name;
    const char *arg;
    enum value_kind kind;
    size_t offset; /* in struct kvshm_config */
    const char *help;
    int group; /* of --help */
};

/* For argp; filled before use by create_options_fill(). What is the file's is no option of load. */
extern struct argp_option create_argp_options[], load_argp_options[];

/* The key of option number N is first_key + N. */
void create_options_fill(int first_key);

/* NULL: there is no option of that number. */
const struct create_option *create_option_at(int number);

/* Set the option's field; NULL, or what is wrong with the value. */
const char *create_option_set(struct kvshm_config *config, const struct create_option *option,
                              const char *value);

#endif /* KVSHM_TOOLS_CREATE_OPTIONS_H */
