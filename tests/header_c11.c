/* SPDX-License-Identifier: Apache-2.0 */
/* header_c11.c - the public header is all that a C11 program needs; compiled by header.sh, with nothing before it. */
#include <kvshm.h>

_Static_assert(sizeof(struct kvshm_lease) == 128, "128 bytes for ever");
_Static_assert(sizeof(struct kvshm_reservation) == 128, "128 bytes for ever");

int main(void)
{
    struct kvshm_config config;
    struct kvshm_info info;
    struct kvshm_stats stats;
    struct kvshm_prefix prefix;
    const uint32_t tokens[] = {1, 2, 3};

    kvshm_config_init(&config);
    kvshm_info_init(&info);
    kvshm_stats_init(&stats);
    kvshm_prefix_init(&prefix, 0, 0, tokens, 3);
    return config.capacity != KVSHM_UNLIMITED || info.size != sizeof(info) ||
           stats.size != sizeof(stats) || prefix.n != 3 ||
           kvshm_hash_tokens(tokens, 3) != UINT64_C(0x66a30a673a9d4659);
}
