/* Machine code in memory that can be read, written and executed, more of it than the limit: each
 * function returns its number, and is written anew several times. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { APART = 512 };

static int put(unsigned char *at, int number) {
    at[0] = 0xb8; /* mov eax, number */
    memcpy(at + 1, &number, sizeof number);
    at[5] = 0xc3; /* ret */
    return 6;
}

int main(void) {
    size_t bytes = (size_t)40 << 20;
    int all = PROT_READ | PROT_WRITE | PROT_EXEC;
    unsigned char *code = mmap(0, bytes, all, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) return 2;
    for (int round = 0; round < 3; round++) {
        for (size_t at = 0; at < bytes; at += APART) put(code + at, at / APART + round);
        for (size_t at = 0; at < bytes; at += APART) {
            int (*function)(void);
            unsigned char *here = code + at;
            memcpy(&function, &here, sizeof function);
            if (function() != (int)(at / APART) + round) return printf("wrong at %zu\n", at), 1;
        }
    }
    puts("right");
}
