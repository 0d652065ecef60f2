/* Memory that cannot leave: shared by three processes, and locked if that is permitted. They have it
 * until their input ends. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 2 };
static const size_t SHARED = (size_t)24 << 20, LOCKED = (size_t)12 << 20;

int main(void) {
    int usable = PROT_READ | PROT_WRITE;
    unsigned char *shared = mmap(0, SHARED, usable, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned char *locked = mmap(0, LOCKED, usable, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(shared, 1, SHARED);
    for (int i = 0; i < CHILDREN; i++)
        if (fork() == 0) {
            unsigned long sum = 0;
            for (size_t at = 0; at < SHARED; at += 4096) sum += shared[at];
            /* Nobody waits for ever. */
            struct pollfd input = {0, POLLIN, 0};
            _exit(poll(&input, 1, 300000) != 1 || sum != SHARED / 4096);
        }
    puts(mlock(locked, LOCKED) ? "not locked" : "locked");
    fflush(stdout);
    int status, wrong = 0;
    while (wait(&status) > 0) wrong += status != 0;
    return wrong;
}
