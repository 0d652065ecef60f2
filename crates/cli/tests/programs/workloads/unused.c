/* Memory that is taken out of use by mprotect as soon as it is filled, and is in use again: it must
 * leave then although nobody touches it. argv: MiB that may be resident in the end, and KiB that one
 * call takes out of use. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PIECES = 12 };
static const size_t PIECE = (size_t)4 << 20;

static long own_mib(void) {
    long all, resident, shared;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld %ld", &all, &resident, &shared) != 3) exit(2);
    fclose(file);
    return (resident - shared) / 256;
}

int main(int count, char **words) {
    if (count != 3) return 2;
    long most = atol(words[1]);
    size_t step = (size_t)atol(words[2]) << 10;
    unsigned char *pieces[PIECES];
    for (int i = 0; i < PIECES; i++) {
        pieces[i] = mmap(0, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pieces[i] == MAP_FAILED) return 2;
        for (size_t at = 0; at < PIECE; at += 8) pieces[i][at] = at / PAGE + i;
        for (size_t at = 0; at < PIECE; at += step)
            if (mprotect(pieces[i] + at, step, i % 2 ? PROT_NONE : PROT_READ)) return 2;
    }
    printf("out of use: %ld MiB\n", own_mib());
    for (int i = 0; i < PIECES; i++)
        if (mprotect(pieces[i], PIECE, PROT_READ | PROT_WRITE)) return 2;
    /* Much longer than it takes. */
    for (int i = 0; i < 12000 && own_mib() > most; i++) usleep(10000);
    printf("in use: %ld MiB\n", own_mib());
    for (int i = 0; i < PIECES; i++)
        for (size_t at = 0; at < PIECE; at += 8)
            if (pieces[i][at] != (unsigned char)(at / PAGE + i)) return puts("wrong"), 1;
    puts("right");
}
