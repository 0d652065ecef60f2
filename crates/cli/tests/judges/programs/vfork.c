/* SIGTERM ends a process at once that waits for its child of vfork.
 *
 * vfork MIB
 */
#include "common.h"

int main(int argc, char **argv) {
    int gate[2], begun[2], ended = 0, status = 0;
    char byte;
    int right = press(argc > 1 ? atoi(argv[1]) : 1);
    if (pipe(gate) || pipe(begun)) missing("pipe");
    pid_t waiting = fork();
    if (waiting == 0) {
        close(gate[1]);
        if (vfork() == 0) {
            // It needs no memory but its stack.
            if (write(begun[1], "", 1) == 1 && read(gate[0], &byte, 1) == 0) _exit(0);
            _exit(9);
        }
        _exit(0);
    }
    if (read(begun[0], &byte, 1) != 1) return verdict(0);
    kill(waiting, SIGTERM);
    // At once, even on a busy machine; the child of vfork lives as long as the gate.
    for (int tenths = 0; !ended && tenths < 50; tenths++) {
        milliseconds(100);
        ended = waitpid(waiting, &status, WNOHANG) == waiting;
    }
    close(gate[1]);
    if (!ended) {
        puts("SIGTERM did not end what waits for a child of vfork");
        waitpid(waiting, &status, 0);
    }
    return verdict(right && ended && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}
