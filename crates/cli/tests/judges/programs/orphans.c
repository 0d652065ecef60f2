/* A process that is given the orphans of others: a subreaper, or process 1 of a namespace. wait() must
 * return its child, with the child's status, the grandchild that it was given, and no process else.
 *
 * orphans subreaper|namespace MIB
 */
#include "common.h"

/* Waits for what a child leaves, and its own child's end. Returns whether that is all there was. */
static int round_of(size_t bytes) {
    int pair[2], status, ended = 0, given = 0;
    pid_t own, grandchild = 0, next;
    if (pipe(pair)) missing("pipe");
    if ((own = fork()) == 0) {
        pid_t parent = getpid(), other = fork();
        char *memory = map(bytes);
        fill(memory, bytes, 1);
        if (other == 0) {
            while (getppid() == parent) milliseconds(5);
            _exit(5);
        }
        if (write(pair[1], &other, sizeof other) != sizeof other) _exit(9);
        _exit(wrong(memory, bytes, 1) ? 9 : 3);
    }
    if (read(pair[0], &grandchild, sizeof grandchild) != sizeof grandchild) return 0;
    while ((next = wait(&status)) > 0) {
        if (next == own && status == 3 << 8) {
            ended++;
        } else if (next == grandchild && status == 5 << 8) {
            given++;
        } else {
            printf("children %d and %d, but wait: %d, status %x\n", own, grandchild, next, status);
            return 0;
        }
    }
    close(pair[0]), close(pair[1]);
    return ended == 1 && given == 1;
}

static int all_rounds(size_t bytes) {
    int right = 1;
    for (int round = 0; round < 5; round++) right &= round_of(bytes);
    return right;
}

int main(int argc, char **argv) {
    size_t bytes = argc > 2 ? atoi(argv[2]) * MIB : MIB;
    int status;
    if (strcmp(argv[1], "namespace")) {
        if (prctl(PR_SET_CHILD_SUBREAPER, 1)) missing("PR_SET_CHILD_SUBREAPER");
        return verdict(all_rounds(bytes));
    }
    if (unshare(CLONE_NEWPID)) missing("unshare(CLONE_NEWPID), which needs root");
    if (fork() == 0) _exit(!all_rounds(bytes));
    wait(&status);
    return verdict(status == 0);
}
