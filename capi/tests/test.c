/* Every function of zfold.h, once as C99 and once as C++11. An argument: without regions. */
#include <string.h>
#include "check.h"

static const uint8_t *bytes(const char *text) { return (const uint8_t *)text; }

static void stores(void) {
    zfold_store *store = NULL;
    zfold_store_stats stats;
    uint8_t page[ZFOLD_PAGE], back[ZFOLD_PAGE];
    int n;
    for (n = 0; n < ZFOLD_PAGE; n++) page[n] = (uint8_t)(n / 20);
    CHECK(zfold_store_open(10, 0, "nothing", &store) == ZFOLD_ARGUMENT && store == NULL);
    CHECK(strstr(zfold_error(), "nothing") != NULL);
    CHECK(zfold_store_open(10, 1 << 20, NULL, &store) == 0);
    CHECK(zfold_store_store(store, 7, page) == 0);
    CHECK(zfold_store_load(store, 7, back) == 0 && memcmp(page, back, ZFOLD_PAGE) == 0);
    CHECK(zfold_store_load(store, 6, back) == ZFOLD_MISSING);
    CHECK(zfold_store_load(store, 10, back) == ZFOLD_ARGUMENT);
    CHECK(zfold_store_load(NULL, 1, back) == ZFOLD_ARGUMENT);
    CHECK(zfold_store_store(store, 1, NULL) == ZFOLD_ARGUMENT);
    memset(&stats, 0xff, sizeof stats);
    stats.size = 0;
    CHECK(zfold_store_get_stats(store, &stats) == ZFOLD_ARGUMENT);
    stats.size = 16;
    CHECK(zfold_store_get_stats(store, &stats) == 0);
    CHECK(stats.stored_pages == 1 && stats.held_bytes == UINT64_MAX && stats.size == 16);
    stats.size = sizeof stats;
    CHECK(zfold_store_get_stats(store, &stats) == 0 && stats.held_bytes > stats.compressed_bytes);
    CHECK(zfold_store_invalidate(store, 7) == 0 && zfold_store_invalidate(store, 99) == ZFOLD_ARGUMENT);
    CHECK(zfold_store_load(store, 7, back) == ZFOLD_MISSING);
    zfold_store_close(store);
    zfold_store_close(NULL);
}

static void caches(void) {
    zfold_cache *cache = NULL;
    zfold_cache_stats stats;
    uint64_t len = 0;
    uint8_t *value = (uint8_t *)malloc(100000), small[10];
    CHECK(value != NULL);
    memset(value, 5, 100000);
    CHECK(zfold_cache_open(4 << 20, "zstd:1", &cache) == 0);
    CHECK(zfold_cache_insert(cache, bytes("key"), 3, value, 100000) == 0);
    CHECK(zfold_cache_insert(cache, bytes("none"), 4, NULL, 0) == 0);
    CHECK(zfold_cache_get(cache, bytes("key"), 3, small, 10, &len) == ZFOLD_BUFFER && len == 100000);
    memset(value, 0, 100000);
    CHECK(zfold_cache_get(cache, bytes("key"), 3, value, 100000, &len) == 0 && value[99999] == 5);
    CHECK(zfold_cache_get(cache, bytes("none"), 4, NULL, 0, &len) == 0 && len == 0);
    CHECK(zfold_cache_get(cache, bytes("ke"), 2, value, 100000, &len) == ZFOLD_MISSING);
    stats.size = sizeof stats;
    CHECK(zfold_cache_get_stats(cache, &stats) == 0 && stats.values == 2 && stats.misses_total == 1);
    CHECK(zfold_cache_remove(cache, bytes("key"), 3) == 0);
    CHECK(zfold_cache_remove(cache, bytes("key"), 3) == ZFOLD_MISSING);
    CHECK(zfold_cache_insert(cache, NULL, 3, value, 1) == ZFOLD_ARGUMENT);
    CHECK(zfold_cache_insert(cache, bytes("key"), UINT64_MAX, value, 1) == ZFOLD_ARGUMENT);
    zfold_cache_close(cache);
    free(value);
}

static void pools(void) {
    zfold_pool *pool = NULL;
    uint64_t handle = 0, len = 0, pages = 9;
    uint8_t back[64];
    CHECK(zfold_pool_open(&pool) == 0);
    CHECK(zfold_pool_insert(pool, bytes("forty-two"), 9, &handle) == 0 && handle != 0);
    CHECK(zfold_pool_read(pool, handle, back, 3, &len) == ZFOLD_BUFFER && len == 9);
    CHECK(zfold_pool_read(pool, handle, back, sizeof back, &len) == 0);
    CHECK(len == 9 && memcmp(back, "forty-two", 9) == 0);
    CHECK(zfold_pool_insert(pool, back, 0, &handle) == ZFOLD_ARGUMENT && handle == 0);
    CHECK(zfold_pool_free(pool, 0) == ZFOLD_MISSING);
    CHECK(zfold_pool_insert(pool, back, 9, &handle) == 0 && zfold_pool_free(pool, handle) == 0);
    CHECK(zfold_pool_free(pool, handle) == ZFOLD_MISSING);
    CHECK(zfold_pool_compact(pool, &pages) == 0 && pages < 9);
    zfold_pool_close(pool);
}

/* Freed handles, those of another pool and made-up numbers are refused, and harm nothing. */
static void handles(void) {
    enum { OBJECTS = 300 };
    zfold_pool *pool = NULL, *other = NULL;
    uint64_t live[OBJECTS], foreign[OBJECTS], n, m, bit, forged, len = 0;
    uint8_t object[64], back[64];
    CHECK(zfold_pool_open(&pool) == 0 && zfold_pool_open(&other) == 0);
    for (n = 0; n < OBJECTS; n++) {
        memset(object, (int)n, sizeof object);
        CHECK(zfold_pool_insert(pool, object, sizeof object, &live[n]) == 0);
        CHECK(zfold_pool_insert(other, object, sizeof object, &foreign[n]) == 0);
    }
    for (n = 1; n < OBJECTS; n += 2) CHECK(zfold_pool_free(pool, live[n]) == 0);
    for (n = 1; n < 10000; n++) {
        CHECK(zfold_pool_free(pool, n) == ZFOLD_MISSING);
        CHECK(zfold_pool_read(pool, n << 32, back, sizeof back, &len) == ZFOLD_MISSING);
    }
    CHECK(zfold_pool_free(pool, UINT64_MAX) == ZFOLD_MISSING);
    for (n = 0; n < OBJECTS; n++) {
        if (n % 2 == 1) CHECK(zfold_pool_free(pool, live[n]) == ZFOLD_MISSING);
        for (bit = 0; bit <= 64; bit++) {
            forged = bit == 64 ? foreign[n] : live[n] ^ (uint64_t)1 << bit;
            /* One that is by chance the number of a live object names that. */
            for (m = 0; m < OBJECTS && live[m] != forged; m += 2) continue;
            if (m < OBJECTS) continue;
            CHECK(zfold_pool_read(pool, forged, back, sizeof back, &len) == ZFOLD_MISSING);
            CHECK(zfold_pool_free(pool, forged) == ZFOLD_MISSING);
        }
    }
    for (n = 0; n < OBJECTS; n += 2) {
        memset(object, (int)n, sizeof object);
        CHECK(zfold_pool_read(pool, live[n], back, sizeof back, &len) == 0 && len == sizeof object);
        CHECK(memcmp(object, back, sizeof object) == 0 && zfold_pool_free(pool, live[n]) == 0);
    }
    zfold_pool_close(pool);
    zfold_pool_close(other);
}

static void regions(void) {
    zfold_region *region = NULL;
    zfold_pin *pin = NULL;
    uint64_t n, len = 16 << 20;
    uint64_t *numbers;
    CHECK(zfold_region_new(len, 1024, NULL, 0, &region) == ZFOLD_ARGUMENT && region == NULL);
    CHECK(zfold_region_new(0, 1 << 20, NULL, 0, &region) == ZFOLD_ARGUMENT);
    CHECK(zfold_region_new(len, 1 << 20, NULL, 0, &region) == 0);
    numbers = (uint64_t *)(void *)zfold_region_pointer(region);
    for (n = 0; n < len / 8; n++) numbers[n] = n / 3;
    for (n = 0; n < len / 8; n++) CHECK(numbers[n] == n / 3);
    CHECK(zfold_region_pageout(region, 0, len) == 0);
    CHECK(zfold_region_prefetch(region, 4096, 65536) == 0 && numbers[512] == 170);
    CHECK(zfold_region_pin(region, 4096, 8192, &pin) == 0 && numbers[512] == 170);
    zfold_pin_release(pin);
    CHECK(zfold_region_pin(region, len, 1, &pin) == ZFOLD_ARGUMENT && pin == NULL);
    CHECK(zfold_region_pin(region, 0, len, &pin) == ZFOLD_FULL);
    zfold_region_free(region);
    CHECK(zfold_region_pointer(NULL) == NULL);
}

int main(int count, char **arguments) {
    (void)arguments;
    CHECK(strchr(zfold_version(), '.') != NULL);
    stores();
    caches();
    pools();
    handles();
    if (count == 1) regions();
    puts("all right");
    return 0;
}
