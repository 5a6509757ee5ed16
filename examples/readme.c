#include <kvshm.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    uint32_t tokens[128]; /* a prompt: two pages of 64 tokens */
    struct kvshm_config config;
    struct kvshm_prefix prefix;
    struct kvshm_reservation r;
    struct kvshm_lease lease;
    kvshm *kv;

    for (uint32_t i = 0; i < 128; i++)
        tokens[i] = 1000 + i;
    kvshm_config_init(&config);
    config.geometry.page_bytes = 4096;
    config.frames = 1000;
    if (kvshm_open("readme", &config, 0, &kv) < 0)
        return fprintf(stderr, "%s\n", kvshm_errmsg(NULL)), 1;

    kvshm_prefix_init(&prefix, 0, 0, tokens, 128);
    if (kvshm_match(kv, &prefix, 0, &lease) == KVSHM_MISS && kvshm_reserve(kv, 2, 0, &r) == 0) {
        puts("not cached: computing two pages");
        memset(kvshm_reservation_page(&r, 0), 'a', 4096);
        memset(kvshm_reservation_page(&r, 1), 'b', 4096);
        kvshm_insert(kv, &prefix, &lease, &r, KVSHM_HOLD); /* others find them now */
    }
    for (uint32_t i = 0; i < lease.pages; i++)
        printf("page %u begins with %c\n", i, *(const char *)kvshm_lease_page(&lease, i));
    kvshm_release(kv, &lease);
    return kvshm_detach(kv) == 0 ? 0 : 1;
}
