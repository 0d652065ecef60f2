/* Takes the memory of a process that it has killed before that has ended, as those do who look after a
 * machine that is short of memory (process_mrelease).
 *
 * reaped MIB
 */
#include "common.h"

#ifndef SYS_process_mrelease
#define SYS_process_mrelease 448
#endif

int main(int argc, char **argv) {
    size_t bytes = argc > 1 ? atoi(argv[1]) * MIB : MIB;
    int right = 1;
    for (int round = 0; round < 5; round++) {
        int ready[2];
        char byte;
        if (pipe(ready)) missing("pipe");
        pid_t child = fork();
        if (child == 0) {
            fill(map(bytes), bytes, 1);
            if (write(ready[1], "", 1) == 1) pause();
            _exit(9);
        }
        if (read(ready[0], &byte, 1) != 1) return verdict(0);
        int process = syscall(SYS_pidfd_open, child, 0);
        if (process < 0) missing("pidfd_open");
        kill(child, SIGKILL);
        // It may have ended by itself meanwhile.
        if (syscall(SYS_process_mrelease, process, 0) && errno != ESRCH) {
            if (errno == ENOSYS) missing("process_mrelease");
            printf("process_mrelease: %s\n", strerror(errno));
            right = 0;
        }
        waitpid(child, NULL, 0);
        close(process), close(ready[0]), close(ready[1]);
    }
    return verdict(right);
}
