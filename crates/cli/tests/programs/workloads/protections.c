/* A reservation of which parts are made usable, a few pages each: first touches that follow each
 * other cross the end of a mapping. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096, STRIDE = 16, USED = 5 };

int main(void) {
    size_t bytes = (size_t)96 << 20;
    unsigned char *all =
        mmap(0, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return 2;
    for (size_t at = 0; at < bytes; at += STRIDE * PAGE)
        if (mprotect(all + at, USED * PAGE, PROT_READ | PROT_WRITE)) return 2;
    for (int round = 0; round < 4; round++) {
        unsigned long sum = 0;
        for (size_t at = 0; at < bytes; at += STRIDE * PAGE)
            for (int page = 0; page < USED; page++) {
                unsigned char *here = all + at + page * PAGE;
                here[0] += at / PAGE + page + round;
                here[100] = rand();
                sum = sum * 31 + here[0] + here[100];
            }
        printf("%lx\n", sum);
    }
}
