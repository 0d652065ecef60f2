/* Pages out all mappings that it finds, whoever made them, while a thread uses its memory. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096, BYTES = 16 << 20 };

static volatile int done;
static uint64_t *words;
static long wrong;

static void *use(void *nothing) {
    for (uint64_t round = 1; !done; round++) {
        for (size_t at = 0; at < BYTES / 8; at += PAGE / 8) {
            if (words[at] != (round - 1) * BYTES + (round > 1) * at) wrong++;
            words[at] = round * BYTES + at;
        }
    }
    return nothing;
}

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 50;
    pthread_t user;
    char line[512];
    words = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED || pthread_create(&user, NULL, use, NULL)) return 2;
    for (int round = 0; round < rounds; round++) {
        FILE *maps = fopen("/proc/self/maps", "r");
        unsigned long from, to;
        while (fgets(line, sizeof line, maps)) {
            if (sscanf(line, "%lx-%lx", &from, &to) == 2) madvise((void *)from, to - from, MADV_PAGEOUT);
        }
        fclose(maps);
    }
    done = 1;
    pthread_join(user, NULL);
    printf("%ld pages are wrong\n", wrong);
    return wrong != 0;
}
