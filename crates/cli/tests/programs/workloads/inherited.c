/* Children that share memory which cannot leave, because it is read-only, and have some of their own
 * that can. Nobody uses any while the parent waits until at most so much is resident.
 * argv: MiB that may be resident in all. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, CHILDREN = 6 };
static const size_t SHARED = (size_t)16 << 20, OWN = (size_t)6 << 20;

static unsigned char *map(size_t bytes) {
    return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static int child(const unsigned char *shared, int number, int until) {
    unsigned char *own = map(OWN);
    char end;
    for (size_t at = 0; at < OWN; at += PAGE) memset(own + at, at / PAGE + number, PAGE - 96);
    if (read(until, &end, 1) != 0) return 1;
    for (size_t at = 0; at < OWN; at += PAGE)
        if (own[at + 1] != (unsigned char)(at / PAGE + number)) return 1;
    for (size_t at = 0; at < SHARED; at += PAGE)
        if (shared[at] != 7) return 1;
    return 0;
}

/* What a process has of anonymous memory, each page divided by those who share it. */
static long anonymous_kib(int pid) {
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", pid);
    FILE *file = fopen(path, "r");
    if (!file) exit(2);
    while (fgets(line, sizeof line, file)) sscanf(line, "Pss_Anon: %ld", &kib);
    fclose(file);
    return kib;
}

int main(int count, char **words) {
    if (count != 2) return 2;
    long most = atol(words[1]), sum = 0;
    int until[2], children[CHILDREN];
    unsigned char *shared = map(SHARED);
    memset(shared, 7, SHARED);
    if (mprotect(shared, SHARED, PROT_READ) || pipe(until)) return 2;
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        if (children[i] < 0) return 2;
        if (children[i] == 0) {
            close(until[1]);
            _exit(child(shared, i, until[0]));
        }
    }
    /* Much longer than it takes. */
    for (int i = 0; i < 6000; i++) {
        sum = anonymous_kib(getpid());
        for (int k = 0; k < CHILDREN; k++) sum += anonymous_kib(children[k]);
        if (sum >> 10 <= most) break;
        usleep(20000);
    }
    close(until[1]);
    int status, wrong = 0;
    while (wait(&status) > 0) wrong += status != 0;
    printf("%ld MiB, %d wrong\n", sum >> 10, wrong);
    return wrong != 0 || sum >> 10 > most;
}
