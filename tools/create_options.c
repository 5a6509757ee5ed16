/* SPDX-License-Identifier: Apache-2.0 */
#include "create_options.h"

#include "common.h"

static const char *const dtypes[] = {"f32", "f16", "bf16", "fp8", "int8", "int4", NULL};

#define AT(field) offsetof(struct kvshm_config, field)

static const struct create_option create_options[] = {
    {"layers", "N", VALUE_U32, AT(geometry.num_layers), "Layers of the model", 1},
    {"kv-heads", "N", VALUE_U32, AT(geometry.num_kv_heads), "Heads of keys and values a layer", 1},
    {"head-dim", "N", VALUE_U32, AT(geometry.head_dim), "Elements of a head", 1},
    {"dtype", "TYPE", VALUE_DTYPE, AT(geometry.dtype),
     "Type of an element: f32 (default), f16, bf16, fp8, int8 or int4", 1},
    {"page-bytes", "SIZE", VALUE_SIZE, AT(geometry.page_bytes),
     "Size of an opaque page, instead of layers, heads and type", 1},
    {"page-tokens", "N", VALUE_U32, AT(geometry.page_tokens), "Tokens a page holds (default 64)",
     1},
    {"shards", "N", VALUE_U32, AT(geometry.shards),
     "Equal parts of a page, one for each rank (default 1)", 1},
    {"token-scale", "N", VALUE_U32, AT(geometry.token_scale),
     "What one token stands for when shown (default 1)", 1},
    {"fingerprint", "HEX", VALUE_FINGERPRINT, AT(fingerprint),
     "What makes caches incompatible, as 64 hexadecimal digits", 1},
    {"frames", "N", VALUE_U64, AT(frames), "Pages that memory holds", 2},
    {"memory", "SIZE", VALUE_SIZE, AT(memory_bytes),
     "Size of the whole segment, instead of --frames", 2},
    {"capacity", "N", VALUE_LIMIT, AT(capacity), "Entries to keep, or 'unlimited' (default)", 2},
    {"backing", "KIND", VALUE_BACKING, AT(backing),
     "What memory is made of: auto (default: the best that is to be had), hugetlb-1g, "
     "hugetlb-2m, thp or small",
     2},
    {"numa", "WHERE", VALUE_NUMA, AT(numa),
     "Nodes that memory is on: auto (default), interleave, local, or the number of one", 2},
    {"spill", "FILE", VALUE_FILE, AT(spill_path),
     "File or block device that pages leave memory for, and come back from", 3},
    {"spill-size", "SIZE", VALUE_SIZE, AT(spill_bytes), "The most that it may hold", 3},
    {"admission", "WHICH", VALUE_ADMISSION, AT(admission),
     "Pages that are written to it: all (default), or reused, those asked for again", 3},
    {"wait-ms", "N", VALUE_LIMIT, AT(wait_ms),
     "Milliseconds that a lookup waits for it if it is to, or 'unlimited' (default 1000)", 3},
    {"max-clients", "N", VALUE_U32, AT(max_clients), "Clients that may attach at once (default 64)",
     3},
    {"max-leases", "N", VALUE_U32, AT(max_leases),
     "Leases one client may hold, and reservations likewise (default 512)", 4},
    {"stall-ms", "N", VALUE_U32, AT(stall_ms),
     "Milliseconds that a writer waits for one that stopped (default 1000)", 4},
    {"mode", "MODE", VALUE_MODE, AT(mode),
     "Permission bits in octal, whatever the umask (default 0600)", 4},
    {"group", "GROUP", VALUE_GROUP, AT(group), "Group of the file, by name or number", 4},
};
#define CREATE_OPTIONS (sizeof create_options / sizeof create_options[0])

struct argp_option create_argp_options[CREATE_OPTIONS + 1];
struct argp_option load_argp_options[CREATE_OPTIONS + 1];

static bool is_of_file(const struct create_option *option)
{
    return option->group == 1 || option->kind == VALUE_FILE || option->offset == AT(spill_bytes);
}

void create_options_fill(int first_key)
{
    size_t of_load = 0;

    for (size_t i = 0; i < CREATE_OPTIONS; i++) {
        create_argp_options[i] = (struct argp_option){.name = create_options[i].name,
                                                      .key = first_key + (int)i,
                                                      .arg = create_options[i].arg,
                                                      .doc = create_options[i].help,
                                                      .group = create_options[i].group};
        if (!is_of_file(&create_options[i]))
            load_argp_options[of_load++] = create_argp_options[i];
    }
}

const char *create_option_set(struct kvshm_config *config, const struct create_option *option,
                              const char *value)
{
    char *field = (char *)config + option->offset;
    const char *wrong = NULL;
    uint64_t number;

    switch (option->kind) {
    case VALUE_U32:
        wrong = tool_parse_number(value, UINT32_MAX, &number);
        *(uint32_t *)field = (uint32_t)number;
        return wrong;
    case VALUE_U64:
        return tool_parse_number(value, UINT64_MAX, (uint64_t *)field);
    case VALUE_LIMIT:
        return tool_parse_limit(value, (uint64_t *)field);
    case VALUE_SIZE:
        return tool_parse_size(value, (uint64_t *)field);
    case VALUE_MODE:
        return tool_parse_mode(value, (uint32_t *)field);
    case VALUE_GROUP:
        return tool_parse_group(value, (uint32_t *)field);
    case VALUE_FINGERPRINT:
        return tool_parse_hex(value, (uint8_t *)field, KVSHM_FINGERPRINT_BYTES);
    case VALUE_DTYPE:
        return tool_parse_word(value, dtypes, (uint32_t *)field);
    case VALUE_BACKING:
        return tool_parse_word(value, tool_backings, (uint32_t *)field);
    case VALUE_NUMA:
        return tool_parse_numa(value, (uint32_t *)field);
    case VALUE_FILE:
        return tool_parse_path(value, (const char **)field);
    case VALUE_ADMISSION:
        return tool_parse_word(value, tool_admissions, (uint32_t *)field);
    }
    return NULL;
}

const struct create_option *create_option_at(int number)
{
    return number >= 0 && number < (int)CREATE_OPTIONS ? &create_options[number] : NULL;
}
