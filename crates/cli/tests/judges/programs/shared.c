/* Children share memory with their parent that nobody may write to, which stays, and have some of their own,
 * which can leave. What they share is there once, and so much of the rest leaves that a limit is kept. Right after
 * a fork a run does not know yet what is shared, so only what is there after a while is looked at.
 *
 * shared CHILDREN SHARED_MIB OWN_MIB LIMIT_MIB
 */
#include "common.h"

#define MOST 64

/* Returns a figure of a file in /proc, 0 if it is not there: of memory, in KiB. */
static long figure(const char *path, const char *name) {
    FILE *file = fopen(path, "r");
    char line[256];
    long found = 0;
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name))) found = atol(line + strlen(name));
    if (file) fclose(file);
    return found;
}

/* Its part of what is anonymous; what is shared counts by parts. */
static long resident(pid_t process) {
    char path[64];
    sprintf(path, "/proc/%d/smaps_rollup", process);
    return figure(path, "Pss_Anon:");
}

int main(int argc, char **argv) {
    if (argc != 5 || atoi(argv[1]) > MOST) return 2;
    int children = atoi(argv[1]), bad = 0, status, begun[2], gate[2];
    long limit = atoi(argv[4]) << 10, allowed = limit + limit / 20 + 2048, all_kib = 0;
    pid_t made[MOST];
    size_t shared = atoi(argv[2]) * MIB, own = atoi(argv[3]) * MIB;
    char *all = map(shared), byte;
    fill(all, shared, 1);
    if (mprotect(all, shared, PROT_READ) || pipe(begun) || pipe(gate)) missing("mprotect");
    for (int child = 0; child < children; child++) {
        if ((made[child] = fork()) == 0) {
            char *memory = map(own);
            close(gate[1]);
            fill(memory, own, child);
            // All are there before one ends.
            if (write(begun[1], "", 1) != 1 || read(gate[0], &byte, 1) != 0) _exit(9);
            _exit(wrong(memory, own, child) || wrong(all, shared, 1) ? 1 : 0);
        }
    }
    for (int child = 0; child < children; child++) bad += read(begun[0], &byte, 1) != 1;
    // Nobody keeps a limit for a program that nobody traces.
    int in_a_run = figure("/proc/self/status", "TracerPid:") != 0;
    for (int tenths = 0; in_a_run && tenths < 600; tenths++) {
        all_kib = resident(getpid());
        for (int child = 0; child < children; child++) all_kib += resident(made[child]);
        if (all_kib <= allowed) break;
        milliseconds(100);
    }
    if (in_a_run && all_kib > allowed) {
        printf("%ld KiB are resident after a minute, %ld allowed\n", all_kib, allowed);
        bad++;
    }
    close(gate[1]);
    while (wait(&status) > 0) bad += status != 0;
    return verdict(bad == 0);
}
