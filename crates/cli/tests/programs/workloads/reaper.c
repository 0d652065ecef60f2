// Changes pages of SIZE MiB at random and asks after all of its children every few changes, as a supervisor
// does: a helper steps aside each time, also while pages are on their way out.
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#ifndef __WALL
#define __WALL 0x40000000
#endif

int main(int count, char **arguments)
{
    size_t size = (size_t)atoi(arguments[1]) << 20;
    long rounds = atol(arguments[2]);
    unsigned char *memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned long random = 1, sum = 0;
    if (memory == MAP_FAILED)
        return 1;
    for (size_t at = 0; at < size; at += 4096)
        memory[at] = at >> 12;
    for (long round = 0; round < rounds; round++) {
        for (int change = 0; change < 500; change++) {
            random = random * 6364136223846793005UL + 1;
            memory[(random >> 20) % size]++;
        }
        waitpid(-1, 0, __WALL | WNOHANG);
    }
    for (size_t at = 0; at < size; at++)
        sum = sum * 31 + memory[at];
    printf("%lx\n", sum);
}
