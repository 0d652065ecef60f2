/* What these programs share. Each prints one line at its end, and exits with 0 if all was right, 1 if
 * not, and MISSING if the system does not let it do its work; then the line says what is missing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define MIB (1UL << 20)
#define MISSING 77

/* Ends with what is missing, and why. */
static inline void missing(const char *what) {
    printf("%s: %s\n", what, strerror(errno));
    exit(MISSING);
}

/* Returns what main returns, after the last line. */
static inline int verdict(int right) {
    puts(right ? "right" : "WRONG");
    return !right;
}

static inline void milliseconds(long count) {
    struct timespec time = {count / 1000, count % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Returns new memory that may be read and written. */
static inline char *map(size_t bytes) {
    char *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) missing("mmap");
    return memory;
}

/* The word that belongs at an offset: other in each page and with each tag. */
static inline uint64_t word(size_t at, unsigned tag) {
    return (at / PAGE + 1) * 0x9e3779b97f4a7c15 + at % PAGE / 512 + tag;
}

static inline void fill(char *memory, size_t bytes, unsigned tag) {
    for (size_t at = 0; at < bytes; at += 64) *(volatile uint64_t *)(memory + at) = word(at, tag);
}

/* Returns how many words are not what `fill` wrote. */
static inline size_t wrong(const char *memory, size_t bytes, unsigned tag) {
    size_t count = 0;
    for (size_t at = 0; at < bytes; at += 64)
        count += *(volatile const uint64_t *)(memory + at) != word(at, tag);
    return count;
}

/* Uses so many MiB for a while, so that what lies elsewhere leaves; returns whether they were right. */
static inline int press(size_t mib) {
    char *memory = map(mib * MIB);
    int right = 1;
    for (unsigned round = 0; round < 2; round++) {
        fill(memory, mib * MIB, round);
        right &= wrong(memory, mib * MIB, round) == 0;
    }
    munmap(memory, mib * MIB);
    return right;
}
