/* A program that nobody has put under a filter of system calls is told so, and may have the strict mode, in
 * which it may read, write and exit.
 *
 * strict asked|entered
 */
#include "common.h"

int main(int argc, char **argv) {
    if (argc < 2 || !strcmp(argv[1], "asked")) {
        int mode = prctl(PR_GET_SECCOMP, 0, 0, 0, 0);
        if (mode != 0) printf("it is in mode %d\n", mode);
        return verdict(mode == 0);
    }
    // 1: the strict mode.
    if (prctl(PR_SET_SECCOMP, 1, 0, 0, 0)) {
        printf("strict mode: %s\n", strerror(errno));
        return verdict(0);
    }
    if (write(STDOUT_FILENO, "right\n", 6) != 6) syscall(SYS_exit, 1);
    // exit_group, which exit() calls, is not allowed.
    syscall(SYS_exit, 0);
}
