/* Unmaps the end of a mapping and maps it again at once, over and over: nobody tells of that as long
   as the memory is open, and it must not be taken for memory that is closed. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 400, SPACES = 8 };

static char *map(char *at, size_t pages) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0);
    char *got = mmap(at, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (got == MAP_FAILED) exit(2);
    return got;
}

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 2000;
    unsigned seed = 1;
    long wrong = 0;
    char *spaces[SPACES] = {0};
    for (int round = 1; round <= rounds; round++) {
        char **space = &spaces[round % SPACES];
        if (*space) munmap(*space, PAGES * PAGE);
        *space = map(NULL, PAGES);
        for (int turn = 0; turn < 6; turn++) {
            seed = seed * 1103515245 + 12345;
            size_t from = (seed >> 8) % PAGES;
            munmap(*space + from * PAGE, (PAGES - from) * PAGE);
            map(*space + from * PAGE, PAGES - from);
            for (size_t page = from; page < PAGES; page++) {
                uint64_t *word = (uint64_t *)(*space + page * PAGE);
                wrong += *word != 0;
                *word = (uint64_t)round << 32 | turn << 16 | page;
            }
            for (size_t page = from; page < PAGES; page++) {
                uint64_t *word = (uint64_t *)(*space + page * PAGE);
                wrong += *word != ((uint64_t)round << 32 | turn << 16 | page);
            }
        }
    }
    printf("%ld pages are wrong\n", wrong);
    return wrong != 0;
}
