// SPDX-License-Identifier: Apache-2.0
// header_cxx17.cc - the same for a C++17 program; compiled by header.sh, with nothing before it.
#include <kvshm.h>

static_assert(sizeof(kvshm_lease) == 128, "128 bytes for ever");
static_assert(sizeof(kvshm_reservation) == 128, "128 bytes for ever");

int main()
{
    kvshm_config config;
    struct kvshm_info info; // there is a call of the name too
    struct kvshm_stats stats;
    kvshm_prefix prefix;
    const uint32_t tokens[] = {1, 2, 3};

    kvshm_config_init(&config);
    kvshm_info_init(&info);
    kvshm_stats_init(&stats);
    kvshm_prefix_init(&prefix, 0, 0, tokens, 3);
    return config.capacity != KVSHM_UNLIMITED || info.size != sizeof(info) ||
           stats.size != sizeof(stats) || prefix.n != 3 ||
           kvshm_hash_tokens(tokens, 3) != UINT64_C(0x66a30a673a9d4659);
}
