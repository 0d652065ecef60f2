/* Threads use a store, a cache, a pool and a region while the process forks children, which are told
 * ZFOLD_FORKED by each of them, close them, and use their own. Each child has a deadline: one that
 * waits for a lock that a thread of its parent held at the fork is killed by SIGALRM. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
/* A child does not run what its parent does at its end. */
#define END _exit
#include "check.h"

enum { CHILDREN = 200, THREADS = 3, DEADLINE = 60 };

static const uint64_t room = 1 << 20;
static zfold_store *store;
static zfold_cache *cache;
static zfold_pool *pool;
static zfold_region *region;
static zfold_pin *pin;
static uint64_t kept;
static volatile int stop;

static void make(uint64_t limit) {
    static const uint8_t object[64] = "an object";
    store = NULL, cache = NULL, pool = NULL, region = NULL;
    CHECK(zfold_store_open(256, 0, NULL, &store) == 0);
    CHECK(zfold_cache_open(limit, NULL, &cache) == 0);
    CHECK(zfold_pool_open(&pool) == 0);
    CHECK(zfold_pool_insert(pool, object, sizeof object, &kept) == 0);
    CHECK(zfold_region_new(4 * room, room, NULL, 0, &region) == 0);
    CHECK(zfold_region_pin(region, 0, 4096, &pin) == 0);
}

/* Every call that takes a lock, and compactions under the cache's limit. */
static void use(uint64_t n) {
    uint8_t page[ZFOLD_PAGE], key[8];
    uint64_t len, handle, pages, at = n * 7 % 256;
    zfold_store_stats stats;
    memset(page, (int)n, sizeof page);
    memcpy(page, &n, sizeof n);
    memcpy(key, &at, sizeof at);
    stats.size = sizeof stats;
    CHECK(zfold_store_store(store, at, page) == 0 && zfold_store_get_stats(store, &stats) == 0);
    CHECK(zfold_cache_insert(cache, key, sizeof key, page, n % sizeof page) == 0);
    (void)zfold_cache_get(cache, key, sizeof key, page, sizeof page, &len);
    CHECK(zfold_pool_insert(pool, page, 1 + n % sizeof page, &handle) == 0);
    CHECK(zfold_pool_read(pool, handle, page, sizeof page, &len) == 0);
    CHECK(zfold_pool_free(pool, handle) == 0);
    if (n % 64 == 0) CHECK(zfold_pool_compact(pool, &pages) == 0);
    zfold_region_pointer(region)[n * 4096 % (4 * room)] = (uint8_t)n;
    if (n % 16 == 0) CHECK(zfold_region_pageout(region, at * 4096, 4096) == 0);
}

static void *hammer(void *seed) {
    uint64_t n = (uint64_t)(uintptr_t)seed << 20;
    while (!stop) use(n++);
    return NULL;
}

static void refused(void) {
    uint8_t page[ZFOLD_PAGE] = {0};
    uint64_t n = 0, len = 0;
    zfold_store_stats of_store;
    zfold_cache_stats of_cache;
    zfold_pin *other = NULL;
    of_store.size = sizeof of_store, of_cache.size = sizeof of_cache;
    CHECK(zfold_store_load(store, 1, page) == ZFOLD_FORKED);
    CHECK(strstr(zfold_error(), "after a fork") != NULL);
    CHECK(zfold_store_store(store, 1, page) == ZFOLD_FORKED);
    CHECK(zfold_store_invalidate(store, 1) == ZFOLD_FORKED);
    CHECK(zfold_store_get_stats(store, &of_store) == ZFOLD_FORKED);
    CHECK(zfold_cache_insert(cache, page, 8, page, 100) == ZFOLD_FORKED);
    CHECK(zfold_cache_get(cache, page, 8, page, sizeof page, &len) == ZFOLD_FORKED);
    CHECK(zfold_cache_remove(cache, page, 8) == ZFOLD_FORKED);
    CHECK(zfold_cache_get_stats(cache, &of_cache) == ZFOLD_FORKED);
    CHECK(zfold_pool_insert(pool, page, 8, &n) == ZFOLD_FORKED);
    CHECK(zfold_pool_read(pool, kept, page, sizeof page, &len) == ZFOLD_FORKED);
    CHECK(zfold_pool_free(pool, kept) == ZFOLD_FORKED);
    CHECK(zfold_pool_compact(pool, &n) == ZFOLD_FORKED);
    CHECK(zfold_region_pointer(region) == NULL);
    CHECK(zfold_region_pin(region, 0, 4096, &other) == ZFOLD_FORKED && other == NULL);
    CHECK(zfold_region_pageout(region, 0, 4096) == ZFOLD_FORKED);
    CHECK(zfold_region_prefetch(region, 0, 4096) == ZFOLD_FORKED);
}

static void end(void) {
    zfold_pin_release(pin);
    zfold_region_free(region);
    zfold_pool_close(pool);
    zfold_cache_close(cache);
    zfold_store_close(store);
}

static void child(int n) {
    uint64_t at;
    signal(SIGALRM, SIG_DFL);
    alarm(DEADLINE);
    refused();
    end();
    make(room);
    for (at = 0; at < 20; at++) use(at);
    end();
    /* Both ends of a process: without and with what it has registered for its end. */
    n % 2 == 0 ? _exit(0) : exit(0);
}

int main(void) {
    pthread_t threads[THREADS];
    uint8_t back[64];
    uint64_t len;
    int n, status;
    make(room);
    for (n = 0; n < THREADS; n++) {
        CHECK(pthread_create(&threads[n], NULL, hammer, (void *)(uintptr_t)(n + 1)) == 0);
    }
    for (n = 0; n < CHILDREN; n++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) child(n);
        CHECK(waitpid(pid, &status, 0) == pid);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
            fprintf(stderr, "child %d waited for %d s\n", n, DEADLINE);
            _exit(1);
        }
        CHECK(status == 0);
    }
    stop = 1;
    for (n = 0; n < THREADS; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    CHECK(zfold_pool_read(pool, kept, back, sizeof back, &len) == 0);
    CHECK(strcmp((const char *)back, "an object") == 0);
    end();
    printf("%d children\n", CHILDREN);
    return 0;
}
