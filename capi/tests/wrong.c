/* Wrong lengths, null pointers, odd ones, rooms too short, handles of nothing and a system without memory:
 * each call is refused with its code, or does what the header says, and touches no byte that it was not
 * given. What is passed lies at the end of a page behind which there is none. An argument: without regions,
 * and with as much memory as there is. */
#define _DEFAULT_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include "check.h"

/* Lengths that no buffer has: they wrap, are negative to others, or are as long as all memory. */
static const uint64_t WRONG[] = {
    UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 4095, ((uint64_t)1 << 63) + 1, (uint64_t)1 << 63,
    ((uint64_t)1 << 63) - 1, ((uint64_t)1 << 63) - 4096, (uint64_t)1 << 62, (uint64_t)1 << 56,
};
enum { WRONGS = sizeof WRONG / sizeof WRONG[0] };

/* `len` bytes, and behind them nothing. */
static uint8_t *edge(size_t len) {
    size_t page = 4096, pages = (len + page - 1) / page + 1;
    uint8_t *all = (uint8_t *)mmap(NULL, pages * page, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(all != MAP_FAILED);
    CHECK(mprotect(all + (pages - 1) * page, page, PROT_NONE) == 0);
    return all + (pages - 1) * page - len;
}

static uint8_t *key, *value;

static int has(const zfold_cache *cache, uint64_t key_len) {
    uint64_t len = 77;
    int code = zfold_cache_get(cache, key, key_len, NULL, 0, &len);
    if (code == ZFOLD_MISSING) CHECK(len == 77);
    return code != ZFOLD_MISSING;
}

static void lengths_of_keys_and_values(void) {
    zfold_cache *cache = NULL;
    uint64_t len = 0;
    uint8_t back[8];
    int n;
    CHECK(zfold_cache_open(1 << 20, NULL, &cache) == 0);
    for (n = 0; n < WRONGS; n++) {
        int refused = WRONG[n] >> 63 ? ZFOLD_ARGUMENT : ZFOLD_FULL;
        /* What failed leaves no value, least of all the one before. */
        CHECK(zfold_cache_insert(cache, key, 3, value, 8) == 0 && has(cache, 3));
        CHECK(zfold_cache_insert(cache, key, 3, value, WRONG[n]) == refused && !has(cache, 3));
        CHECK(zfold_cache_insert(cache, key, 3, value, 8) == 0);
        CHECK(zfold_cache_insert(cache, key, 3, NULL, WRONG[n]) == ZFOLD_ARGUMENT && !has(cache, 3));
        /* No key is so long. */
        CHECK(zfold_cache_insert(cache, NULL, WRONG[n], value, 8) == ZFOLD_ARGUMENT);
        CHECK(zfold_cache_get(cache, NULL, WRONG[n], back, 8, &len) == ZFOLD_ARGUMENT);
        CHECK(zfold_cache_remove(cache, NULL, WRONG[n]) == ZFOLD_ARGUMENT);
        if (WRONG[n] >> 63) {
            CHECK(zfold_cache_insert(cache, key, WRONG[n], value, 8) == ZFOLD_ARGUMENT);
            CHECK(zfold_cache_get(cache, key, WRONG[n], back, 8, &len) == ZFOLD_ARGUMENT);
            CHECK(zfold_cache_remove(cache, key, WRONG[n]) == ZFOLD_ARGUMENT);
        }
    }
    CHECK(zfold_cache_insert(cache, key, 3, value, 8) == 0);
    CHECK(zfold_cache_insert(cache, key, 3, NULL, 1) == ZFOLD_ARGUMENT && !has(cache, 3));
    /* A key of no bytes is one, wherever it is said to be. */
    CHECK(!has(cache, 0) && zfold_cache_remove(cache, NULL, 0) == ZFOLD_MISSING);
    CHECK(zfold_cache_insert(cache, NULL, 0, value, 8) == 0 && has(cache, 0));
    CHECK(zfold_cache_insert(cache, key + 3, 0, value, 5) == 0);
    CHECK(zfold_cache_get(cache, NULL, 0, back, 8, &len) == 0 && len == 5);
    CHECK(zfold_cache_remove(cache, key, 0) == 0 && !has(cache, 0));
    zfold_cache_close(cache);
}

static void rooms(void) {
    zfold_cache *cache = NULL;
    zfold_pool *pool = NULL;
    uint64_t len = 0, handle = 0;
    uint8_t *room = edge(8);
    int n;
    CHECK(zfold_cache_open(1 << 20, NULL, &cache) == 0 && zfold_pool_open(&pool) == 0);
    CHECK(zfold_cache_insert(cache, key, 3, value, 8) == 0);
    CHECK(zfold_pool_insert(pool, value, 8, &handle) == 0);
    for (n = 0; n < 8; n++) {
        memset(room, 0xee, 8);
        CHECK(zfold_cache_get(cache, key, 3, room, (uint64_t)n, &len) == ZFOLD_BUFFER && len == 8);
        CHECK(zfold_pool_read(pool, handle, room, (uint64_t)n, &len) == ZFOLD_BUFFER && len == 8);
        CHECK(room[0] == 0xee && memcmp(room, room + 1, 7) == 0);
    }
    /* Room that is said to be larger than it is: nothing behind the value is written. */
    for (n = 0; n < WRONGS; n++) {
        len = 0;
        CHECK(zfold_cache_get(cache, key, 3, room, WRONG[n], &len) == 0 && len == 8);
        CHECK(memcmp(room, value, 8) == 0);
        CHECK(zfold_pool_read(pool, handle, room, WRONG[n], &len) == 0 && len == 8);
        CHECK(zfold_cache_get(cache, key, 3, NULL, WRONG[n], &len) == ZFOLD_ARGUMENT && len == 8);
        CHECK(zfold_pool_read(pool, handle, NULL, WRONG[n], &len) == ZFOLD_ARGUMENT);
    }
    memset(room, 0xee, 8);
    CHECK(zfold_cache_get(cache, key, 3, room, 8, NULL) == ZFOLD_ARGUMENT && room[0] == 0xee);
    CHECK(zfold_pool_read(pool, handle, room, 8, NULL) == ZFOLD_ARGUMENT && room[0] == 0xee);
    for (n = 0; n < WRONGS; n++) {
        handle = 1;
        CHECK(zfold_pool_insert(pool, value, WRONG[n], &handle) == ZFOLD_ARGUMENT && handle == 0);
        CHECK(zfold_pool_insert(pool, NULL, WRONG[n], &handle) == ZFOLD_ARGUMENT);
    }
    CHECK(zfold_pool_insert(pool, NULL, 0, &handle) == ZFOLD_ARGUMENT);
    CHECK(zfold_pool_insert(pool, value, 8, NULL) == ZFOLD_ARGUMENT);
    zfold_pool_close(pool);
    zfold_cache_close(cache);
}

static void pages(void) {
    zfold_store *store = NULL;
    uint8_t *page = edge(ZFOLD_PAGE), *back = edge(ZFOLD_PAGE);
    int n;
    for (n = 0; n < ZFOLD_PAGE; n++) page[n] = (uint8_t)(n / 20);
    CHECK(zfold_store_open(10, 0, NULL, &store) == 0);
    CHECK(zfold_store_store(store, 9, page) == 0);
    memset(back, 0, ZFOLD_PAGE);
    CHECK(zfold_store_load(store, 9, back) == 0 && memcmp(page, back, ZFOLD_PAGE) == 0);
    CHECK(zfold_store_load(store, 9, NULL) == ZFOLD_ARGUMENT);
    for (n = 0; n < WRONGS; n++) {
        CHECK(zfold_store_store(store, WRONG[n], page) == ZFOLD_ARGUMENT);
        CHECK(zfold_store_store(store, WRONG[n], NULL) == ZFOLD_ARGUMENT);
        CHECK(zfold_store_load(store, WRONG[n], back) == ZFOLD_ARGUMENT);
        CHECK(zfold_store_invalidate(store, WRONG[n]) == ZFOLD_ARGUMENT);
    }
    CHECK(zfold_store_load(store, 9, back) == 0);
    /* What failed leaves no page, least of all the one before. */
    CHECK(zfold_store_store(store, 9, NULL) == ZFOLD_ARGUMENT);
    CHECK(zfold_store_load(store, 9, back) == ZFOLD_MISSING);
    zfold_store_close(store);
}

/* Sizes of structures: as much is written as the caller knows, and never behind that. */
static void figures(void) {
    zfold_store *store = NULL;
    zfold_cache *cache = NULL;
    uint64_t size;
    CHECK(zfold_store_open(10, 0, NULL, &store) == 0 && zfold_cache_open(1 << 20, NULL, &cache) == 0);
    for (size = 0; size < 200; size++) {
        uint64_t whole = size / 8 * 8;
        uint8_t *at = edge(whole < 8 ? 8 : whole);
        memcpy(at, &size, 8);
        if (whole != size && size > 8) continue;
        CHECK(zfold_store_get_stats(store, (zfold_store_stats *)(void *)at) == (size < 8 ? ZFOLD_ARGUMENT : 0));
        CHECK(zfold_cache_get_stats(cache, (zfold_cache_stats *)(void *)at) == (size < 8 ? ZFOLD_ARGUMENT : 0));
        CHECK(memcmp(at, &size, 8) == 0);
    }
    CHECK(zfold_store_get_stats(store, NULL) == ZFOLD_ARGUMENT);
    CHECK(zfold_cache_get_stats(cache, NULL) == ZFOLD_ARGUMENT);
    zfold_store_close(store);
    zfold_cache_close(cache);
}

/* What is opened absurdly large is refused, or opened; it ends no program. */
static void openings(void) {
    static char text[100001];
    zfold_store *store = NULL;
    zfold_cache *cache = NULL;
    uint8_t back[ZFOLD_PAGE];
    uint64_t len;
    int n;
    for (n = 0; n < WRONGS; n++) {
        int code = zfold_store_open(WRONG[n], WRONG[n], NULL, &store);
        CHECK(code == 0 ? store != NULL : code == ZFOLD_SYSTEM && store == NULL);
        if (code == 0) CHECK(zfold_store_load(store, WRONG[n] - 1, back) == ZFOLD_MISSING);
        zfold_store_close(store);
        CHECK(zfold_cache_open(WRONG[n], NULL, &cache) == 0);
        CHECK(zfold_cache_insert(cache, key, 3, value, ((uint64_t)1 << 63) - 1) == ZFOLD_SYSTEM);
        CHECK(zfold_cache_insert(cache, key, 3, value, 8) == 0);
        zfold_cache_close(cache);
    }
    CHECK(zfold_store_open(0, 0, NULL, &store) == ZFOLD_ARGUMENT && store == NULL);
    CHECK(zfold_cache_open(0, NULL, &cache) == 0);
    CHECK(zfold_cache_insert(cache, key, 3, value, 8) == ZFOLD_FULL);
    CHECK(zfold_cache_get(cache, key, 3, NULL, 0, &len) == ZFOLD_MISSING);
    zfold_cache_close(cache);
    CHECK(zfold_store_open(10, 0, NULL, NULL) == ZFOLD_ARGUMENT);
    CHECK(zfold_cache_open(10, NULL, NULL) == ZFOLD_ARGUMENT && zfold_pool_open(NULL) == ZFOLD_ARGUMENT);
    /* Names of codecs are not believed, either. */
    memset(text, '%', sizeof text - 1);
    CHECK(zfold_cache_open(1 << 20, text, &cache) == ZFOLD_ARGUMENT && cache == NULL);
    CHECK(zfold_cache_open(1 << 20, "", &cache) == ZFOLD_ARGUMENT);
    CHECK(zfold_cache_open(1 << 20, "zstd:99999999999999999999", &cache) == ZFOLD_ARGUMENT);
    CHECK(zfold_cache_open(1 << 20, "lz4\xff\xfe\n", &cache) == ZFOLD_ARGUMENT);
}

/* Places for results at odd addresses, as packed structures have them. */
static void odd_places(void) {
    uint8_t *at = edge(81), out[8];
    void *result = at;
    zfold_store *store;
    zfold_cache *cache;
    zfold_pool *pool;
    uint64_t number, size = 80, *numbers = (uint64_t *)result;
    CHECK(zfold_store_open(10, 0, NULL, (zfold_store **)result) == 0);
    memcpy(&store, at, sizeof store);
    CHECK(zfold_cache_open(1 << 20, NULL, (zfold_cache **)result) == 0);
    memcpy(&cache, at, sizeof cache);
    CHECK(zfold_pool_open((zfold_pool **)result) == 0);
    memcpy(&pool, at, sizeof pool);
    CHECK(zfold_pool_insert(pool, value, 8, numbers) == 0);
    memcpy(&number, at, sizeof number);
    CHECK(zfold_pool_read(pool, number, out, 8, numbers) == 0 && memcmp(out, value, 8) == 0);
    CHECK(memcmp(at, "\10\0\0\0\0\0\0", 8) == 0 && zfold_pool_compact(pool, numbers) == 0);
    CHECK(zfold_cache_insert(cache, key, 3, value, 8) == 0);
    memset(at, 0xee, 8);
    CHECK(zfold_cache_get(cache, key, 3, out, 8, numbers) == 0);
    CHECK(memcmp(at, "\10\0\0\0\0\0\0", 8) == 0);
    memcpy(at, &size, 8);
    CHECK(zfold_cache_get_stats(cache, (zfold_cache_stats *)result) == 0);
    memcpy(&number, at + 32, 8);
    CHECK(number == 1);
    CHECK(zfold_store_get_stats(store, (zfold_store_stats *)result) == 0);
    zfold_pool_close(pool);
    zfold_cache_close(cache);
    zfold_store_close(store);
}

/* A result where the call has read: what was read is what was passed. */
static void same_places(void) {
    union {
        uint64_t number;
        uint8_t bytes[8];
        char text[8];
        zfold_store *store;
    } place;
    zfold_cache *cache = NULL;
    zfold_pool *pool = NULL;
    uint8_t out[8];
    uint64_t len;
    CHECK(zfold_cache_open(1 << 20, NULL, &cache) == 0 && zfold_pool_open(&pool) == 0);
    memcpy(place.bytes, "12345678", 8);
    CHECK(zfold_pool_insert(pool, place.bytes, 8, &place.number) == 0);
    CHECK(zfold_pool_read(pool, place.number, out, 8, &len) == 0 && memcmp(out, "12345678", 8) == 0);
    memcpy(place.bytes, "12345678", 8);
    CHECK(zfold_cache_insert(cache, place.bytes, 8, place.bytes, 8) == 0);
    CHECK(zfold_cache_get(cache, place.bytes, 8, out, 8, &place.number) == 0 && place.number == 8);
    CHECK(memcmp(out, "12345678", 8) == 0);
    CHECK(zfold_cache_get(cache, out, 8, out, 8, &len) == 0 && memcmp(out, "12345678", 8) == 0);
    memcpy(place.text, "none", 5);
    CHECK(zfold_store_open(10, 0, place.text, &place.store) == ZFOLD_ARGUMENT && place.store == NULL);
    CHECK(strstr(zfold_error(), "none") != NULL);
    memcpy(place.text, "zstd:1", 7);
    CHECK(zfold_store_open(10, 0, place.text, &place.store) == 0);
    zfold_store_close(place.store);
    zfold_pool_close(pool);
    zfold_cache_close(cache);
}

/* The system has no memory for a long value: the call says so, and the cache stays usable. */
static void no_memory(void) {
    enum { LEN = 64 << 20 };
    zfold_cache *cache = NULL;
    struct rlimit all, none;
    uint64_t len = 0;
    uint8_t *zeros = (uint8_t *)calloc(LEN, 1);
    CHECK(zeros != NULL && zfold_cache_open((uint64_t)1 << 30, NULL, &cache) == 0);
    CHECK(zfold_cache_insert(cache, key, 3, zeros, LEN) == 0);
    CHECK(getrlimit(RLIMIT_DATA, &all) == 0);
    /* 0 would be no limit, to Linux. */
    none = all;
    none.rlim_cur = ZFOLD_PAGE;
    CHECK(setrlimit(RLIMIT_DATA, &none) == 0);
    CHECK(zfold_cache_get(cache, key, 3, zeros, LEN, &len) == ZFOLD_SYSTEM);
    CHECK(setrlimit(RLIMIT_DATA, &all) == 0);
    CHECK(zfold_cache_get(cache, key, 3, zeros, LEN, &len) == 0 && len == LEN);
    zfold_cache_close(cache);
    free(zeros);
}

/* Null objects are refused by all calls, and closed by none. */
static void nulls(void) {
    zfold_cache_stats cache_stats;
    zfold_store_stats store_stats;
    zfold_pin *pin = NULL;
    uint64_t len = 0;
    uint8_t page[ZFOLD_PAGE];
    memset(page, 0, sizeof page);
    cache_stats.size = sizeof cache_stats;
    store_stats.size = sizeof store_stats;
    CHECK(zfold_cache_insert(NULL, key, 3, value, 8) == ZFOLD_ARGUMENT);
    CHECK(zfold_cache_get(NULL, key, 3, page, 8, &len) == ZFOLD_ARGUMENT);
    CHECK(zfold_cache_remove(NULL, key, 3) == ZFOLD_ARGUMENT);
    CHECK(zfold_cache_get_stats(NULL, &cache_stats) == ZFOLD_ARGUMENT);
    CHECK(zfold_store_store(NULL, 0, page) == ZFOLD_ARGUMENT);
    CHECK(zfold_store_load(NULL, 0, page) == ZFOLD_ARGUMENT);
    CHECK(zfold_store_invalidate(NULL, 0) == ZFOLD_ARGUMENT);
    CHECK(zfold_store_get_stats(NULL, &store_stats) == ZFOLD_ARGUMENT);
    CHECK(zfold_pool_insert(NULL, page, 8, &len) == ZFOLD_ARGUMENT);
    CHECK(zfold_pool_read(NULL, 1, page, 8, &len) == ZFOLD_ARGUMENT);
    CHECK(zfold_pool_free(NULL, 1) == ZFOLD_ARGUMENT && zfold_pool_compact(NULL, &len) == ZFOLD_ARGUMENT);
    CHECK(zfold_region_pin(NULL, 0, 1, &pin) == ZFOLD_ARGUMENT);
    CHECK(zfold_region_pageout(NULL, 0, 1) == ZFOLD_ARGUMENT);
    CHECK(zfold_region_prefetch(NULL, 0, 1) == ZFOLD_ARGUMENT);
    zfold_cache_close(NULL);
    zfold_store_close(NULL);
    zfold_pool_close(NULL);
    zfold_region_free(NULL);
    zfold_pin_release(NULL);
}

static void ranges(void) {
    zfold_region *region = NULL;
    zfold_pin *pin = NULL;
    uint64_t len = 1 << 20;
    int n, m;
    for (n = 0; n < WRONGS; n++) {
        CHECK(zfold_region_new(WRONG[n], 1 << 20, NULL, 0, &region) < 0 && region == NULL);
        CHECK(zfold_region_new(len, WRONG[n], NULL, 0, &region) != ZFOLD_PANIC);
        zfold_region_free(region);
        region = NULL;
    }
    CHECK(zfold_region_new(len, 1 << 20, NULL, 0, NULL) == ZFOLD_ARGUMENT);
    CHECK(zfold_region_new(len - 5, 1 << 20, NULL, 0, &region) == 0);
    for (n = 0; n < WRONGS; n++) {
        for (m = 0; m < WRONGS; m++) {
            CHECK(zfold_region_pin(region, WRONG[n], WRONG[m], &pin) == ZFOLD_ARGUMENT && pin == NULL);
            CHECK(zfold_region_pageout(region, WRONG[n], WRONG[m]) == ZFOLD_ARGUMENT);
            /* Together they wrap to a range of the region. */
            CHECK(zfold_region_pin(region, WRONG[n], 0 - WRONG[n] + 8, &pin) == ZFOLD_ARGUMENT);
        }
        CHECK(zfold_region_pin(region, 0, WRONG[n], &pin) == ZFOLD_ARGUMENT);
        CHECK(zfold_region_pageout(region, 1, WRONG[n]) == ZFOLD_ARGUMENT);
        CHECK(zfold_region_pin(region, WRONG[n], 0, &pin) == ZFOLD_ARGUMENT);
    }
    CHECK(zfold_region_pin(region, len - 5, 1, &pin) == ZFOLD_ARGUMENT);
    CHECK(zfold_region_pin(region, 0, 1, NULL) == ZFOLD_ARGUMENT);
    /* None of its bytes, at either end. */
    CHECK(zfold_region_pin(region, 0, 0, &pin) != ZFOLD_PANIC);
    zfold_pin_release(pin);
    pin = NULL;
    CHECK(zfold_region_pin(region, len - 5, 0, &pin) != ZFOLD_PANIC);
    zfold_pin_release(pin);
    pin = NULL;
    CHECK(zfold_region_pageout(region, len - 5, 0) != ZFOLD_PANIC);
    /* A pin that outlives its region. */
    CHECK(zfold_region_pin(region, 0, 4096, &pin) == 0);
    zfold_region_free(region);
    zfold_pin_release(pin);
}

int main(int count, char **arguments) {
    (void)arguments;
    key = edge(3);
    value = edge(8);
    memcpy(key, "key", 3);
    memcpy(value, "12345678", 8);
    lengths_of_keys_and_values();
    rooms();
    pages();
    figures();
    openings();
    odd_places();
    same_places();
    nulls();
    if (count == 1) {
        ranges();
        no_memory();
    }
    puts("all refused");
    return 0;
}
