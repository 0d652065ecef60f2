/* Process 1 of a namespace ends all others there by kill(-1, SIGKILL), as init programs do, and goes on
 * with its memory.
 *
 * killall MIB
 */
#include "common.h"

int main(int argc, char **argv) {
    size_t bytes = argc > 1 ? atoi(argv[1]) * MIB : MIB;
    int status;
    if (unshare(CLONE_NEWPID)) missing("unshare(CLONE_NEWPID), which needs root");
    pid_t init = fork();
    if (init == 0) {
        char *memory = map(bytes);
        fill(memory, bytes, 1);
        pid_t child = fork(), next;
        if (child == 0) pause();
        if (kill(-1, SIGKILL)) _exit(9);
        while ((next = wait(&status)) > 0) {
            if (next == child && status == SIGKILL) continue;
            printf("child %d, but wait: %d, status %x\n", child, next, status);
            fflush(stdout);
            _exit(8);
        }
        _exit(wrong(memory, bytes, 1) ? 4 : 3);
    }
    waitpid(init, &status, 0);
    if (status != 3 << 8) printf("process 1 of the namespace: status %x\n", status);
    return verdict(status == 3 << 8);
}
