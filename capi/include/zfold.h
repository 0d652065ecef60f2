/* zfold: stores, pools, caches and regions in compressed memory.
 *
 * Functions that return int return 0, or a code below zero; zfold_error() then has a text for the
 * calling thread. What zfold_*_open or _new gave belongs to the caller until _close, _release or
 * _free. All may be called from any number of threads, but nothing that is being closed. Codecs are
 * "lz4" (also if NULL), "page", "zstd:3" ...
 *
 * Lengths, offsets, handles and numbers of pages may be anything, and so may a pointer be NULL: what cannot
 * be done is ZFOLD_ARGUMENT, or the code that the call names. What a pointer points to is trusted. UNDEFINED
 * is a call with an object of another type or one that was closed, a buffer shorter than its length says,
 * one that another thread writes meanwhile, and a text without its zero. Results need no alignment, and may
 * be written over what a call has read.
 *
 * An object belongs to the process that made it. In a forked child, calls on objects of its parent
 * return ZFOLD_FORKED at once, and closing them does nothing. Objects that the child makes are its own.
 *
 * EXAMPLE
 *     #include <stdio.h>
 *     #include <string.h>
 *     #include <zfold.h>
 *
 *     int main(void) {
 *         zfold_region *region;
 *         if (zfold_region_new(64 << 20, 1 << 20, "lz4", 0, &region) != 0) {
 *             fprintf(stderr, "no region: %s\n", zfold_error());
 *             return 1;
 *         }
 *         memset(zfold_region_pointer(region), 7, 64 << 20);
 *         printf("%d\n", zfold_region_pointer(region)[12345]);
 *         zfold_region_free(region);
 *         return 0;
 *     }
 *
 * cc program.c $(pkg-config --cflags --libs zfold)
 */
#ifndef ZFOLD_H
#define ZFOLD_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ZFOLD_ARGUMENT (-1)   /* a pointer is null, a value out of range */
#define ZFOLD_MISSING (-2)    /* no such key or object */
#define ZFOLD_FULL (-3)       /* the limit is hit */
#define ZFOLD_DAMAGED (-4)    /* stored bytes do not decode */
#define ZFOLD_PERMISSION (-5) /* the right to handle the kernel's faults is missing */
#define ZFOLD_SYSTEM (-6)     /* the system refused memory, a thread or a file */
#define ZFOLD_BUFFER (-7)     /* the buffer is too small; its length is said */
#define ZFOLD_PANIC (-8)      /* a mistake of the library; do not use the object any more */
#define ZFOLD_FORKED (-9)     /* the object is the parent process's; make one of your own after a fork */

#define ZFOLD_PAGE 4096

/* The text of the calling thread's last error; valid until its next one, never NULL. */
const char *zfold_error(void);
const char *zfold_version(void);

/* Store: pages of ZFOLD_PAGE bytes by number, 0 to keys - 1. limit_bytes 0: no limit. */
typedef struct zfold_store zfold_store;

/* Set size to sizeof(zfold_store_stats) before the call; later versions may append fields. */
typedef struct {
    uint64_t size;
    uint64_t stored_pages;
    uint64_t same_filled_pages;
    uint64_t compressed_bytes;
    uint64_t held_bytes; /* all memory, with tables */
} zfold_store_stats;

int zfold_store_open(uint64_t keys, uint64_t limit_bytes, const char *codec, zfold_store **store);
/* If it fails, the key holds nothing. */
int zfold_store_store(const zfold_store *store, uint64_t key, const uint8_t *page);
int zfold_store_load(const zfold_store *store, uint64_t key, uint8_t *page);
int zfold_store_invalidate(const zfold_store *store, uint64_t key);
int zfold_store_get_stats(const zfold_store *store, zfold_store_stats *stats);
void zfold_store_close(zfold_store *store);

/* Cache: values of any length by keys of bytes; the least recently used leave at the limit. */
typedef struct zfold_cache zfold_cache;

typedef struct {
    uint64_t size; /* as above */
    uint64_t limit_bytes;
    uint64_t held_bytes;
    uint64_t value_bytes;
    uint64_t values;
    uint64_t hits_total;
    uint64_t misses_total;
    uint64_t evictions_total;
} zfold_cache_stats;

int zfold_cache_open(uint64_t limit_bytes, const char *codec, zfold_cache **cache);
/* If it fails, the key has no value. */
int zfold_cache_insert(const zfold_cache *cache, const uint8_t *key, uint64_t key_len,
                       const uint8_t *value, uint64_t value_len);
/* Says the value's length, also where it returns ZFOLD_BUFFER because there is no room for it. */
int zfold_cache_get(const zfold_cache *cache, const uint8_t *key, uint64_t key_len, uint8_t *value,
                    uint64_t value_room, uint64_t *value_len);
int zfold_cache_remove(const zfold_cache *cache, const uint8_t *key, uint64_t key_len);
int zfold_cache_get_stats(const zfold_cache *cache, zfold_cache_stats *stats);
void zfold_cache_close(zfold_cache *cache);

/* Pool: objects of 1 to ZFOLD_PAGE bytes, densely packed, not compressed. A handle is never 0. One that
 * was freed, is another pool's or is made up is ZFOLD_MISSING, unless it is by chance (one in 2^31) the
 * number of an object of this pool: then it names that. Memory and other objects stay sound. */
typedef struct zfold_pool zfold_pool;

int zfold_pool_open(zfold_pool **pool);
int zfold_pool_insert(const zfold_pool *pool, const uint8_t *object, uint64_t len,
                      uint64_t *handle);
int zfold_pool_read(const zfold_pool *pool, uint64_t handle, uint8_t *object, uint64_t room,
                    uint64_t *len);
int zfold_pool_free(const zfold_pool *pool, uint64_t handle);
/* Packs objects together; says how many pages were freed. */
int zfold_pool_compact(const zfold_pool *pool, uint64_t *pages);
void zfold_pool_close(zfold_pool *pool);

/* Region: len bytes of memory, zeros at first, of which resident_bytes are uncompressed. by_threads 0:
 * a handler of SIGBUS brings pages back, system calls fail with EFAULT on missing ones and on those that
 * they would be the first to write (pin first); else threads do, system calls work, and root or
 * /dev/userfaultfd is needed. Linux 6.8. */
typedef struct zfold_region zfold_region;
typedef struct zfold_pin zfold_pin;

int zfold_region_new(uint64_t len, uint64_t resident_bytes, const char *codec, int by_threads,
                     zfold_region **region);
/* NULL for NULL, and in a forked child, where a touch of the region raises SIGSEGV. */
uint8_t *zfold_region_pointer(const zfold_region *region);
int zfold_region_pin(const zfold_region *region, uint64_t offset, uint64_t len, zfold_pin **pin);
void zfold_pin_release(zfold_pin *pin);
int zfold_region_pageout(const zfold_region *region, uint64_t offset, uint64_t len);
/* Brings compressed pages before they are touched, as long as there is room. */
int zfold_region_prefetch(const zfold_region *region, uint64_t offset, uint64_t len);
void zfold_region_free(zfold_region *region);

#ifdef __cplusplus
}
#endif

#endif
