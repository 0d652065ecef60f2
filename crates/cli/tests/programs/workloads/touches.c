// touches MIB HOT SECONDS [EACH]: fills so much memory, then touches HOT MiB of it in a circle, all
// twice a second; other HOT MiB after each EACH seconds.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int count, char **words) {
    const size_t page = sysconf(_SC_PAGESIZE), mib = 1 << 20;
    const size_t all = atoi(words[1]) * mib, hot = atoi(words[2]) * mib;
    const double seconds = atof(words[3]), each = count > 4 ? atof(words[4]) : 1e9;
    char *memory = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    for (size_t at = 0; at < all; at += page)
        memset(memory + at, 1 + at / page % 250, page / 2);
    const double began = now();
    size_t from = 0;
    for (double time = 0; time < seconds; time = now() - began) {
        from = (size_t)(time / each) * hot % (all - all % hot);
        for (size_t at = from; at < from + hot; at += page)
            memory[at + page - 1]++;
        usleep(500000);
    }
    // Of the last ones only: all others stay untouched.
    for (size_t at = from; at < from + hot; at += page)
        if (memory[at] != (char)(1 + at / page % 250))
            return 2;
    puts("touched");
    return 0;
}
