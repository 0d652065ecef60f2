/* The heap grows and shrinks; each page says where it is and when it was written. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES_MAX = 24 << 20 };

static uint32_t written_in[BYTES_MAX / PAGE];
static char *base;

static uint64_t *word(size_t at) { return (uint64_t *)(base + at); }

static uint64_t content(size_t at) { return at + 1 + ((uint64_t)written_in[at / PAGE] << 32); }

int main(int count, char **arguments) {
    unsigned rounds = count > 1 ? atoi(arguments[1]) : 100, seed = 1;
    size_t len = 0;
    long wrong = 0;
    base = (char *)(((uintptr_t)sbrk(0) + PAGE - 1) & -(uintptr_t)PAGE);
    for (unsigned round = 1; round <= rounds; round++) {
        seed = seed * 1103515245 + 12345;
        size_t to = ((seed >> 8) % BYTES_MAX) & -(size_t)PAGE;
        if (brk(base + to)) return 2;
        for (size_t at = len; at < to; at += PAGE) {
            wrong += *word(at) != 0;
            written_in[at / PAGE] = round;
            *word(at) = content(at);
        }
        len = to;
        for (size_t at = 0; at < len; at += PAGE) wrong += *word(at) != content(at);
    }
    /* Not by printf before: it would use the heap. */
    printf("%ld pages are wrong\n", wrong);
    return wrong != 0;
}
