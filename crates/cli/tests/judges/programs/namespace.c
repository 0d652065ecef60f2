/* A process leaves its namespace of process numbers for a new one, and then needs memory. Its first child
 * is process 1 there, and there can be more. With `exec` it executes itself in between.
 *
 * namespace stay|exec MIB
 */
#include "common.h"

/* Makes a child that tells its number in the namespace, and ends when the pipe `until` is closed. */
static pid_t child(const int until[2], int *number) {
    int told[2];
    char byte;
    if (pipe(told)) missing("pipe");
    pid_t made = fork();
    if (made == 0) {
        int own = getpid();
        close(until[1]);
        if (write(told[1], &own, sizeof own) != sizeof own) _exit(9);
        _exit(read(until[0], &byte, 1) == 0 ? 7 : 9);
    }
    close(told[1]);
    if (made < 0 || read(told[0], number, sizeof *number) != sizeof *number) *number = 0;
    close(told[0]);
    return made;
}

/* Makes the second child, lets both end, and returns whether all was right. */
static int second(pid_t first, const int until[2]) {
    int number, status = 0;
    pid_t made = child(until, &number), ended = 0;
    close(until[1]);
    // The end of process 1 waits for those of all others.
    if (made < 0 || number < 2 || (ended = waitpid(made, &status, 0)) != made) {
        printf("the second child: %d, process %d of its namespace, %d\n", made, number, ended);
        return 0;
    }
    if ((ended = waitpid(first, &status, 0)) != first || status != 7 << 8) {
        printf("the first child: %d, but %d has ended with status %x\n", first, ended, status);
        return 0;
    }
    return 1;
}

int main(int argc, char **argv) {
    size_t bytes = argc > 2 ? atoi(argv[2]) * MIB : MIB;
    int until[2], number;
    if (argc == 6) {
        until[0] = atoi(argv[4]), until[1] = atoi(argv[5]);
        return verdict(second(atoi(argv[3]), until));
    }
    if (unshare(CLONE_NEWPID)) missing("unshare(CLONE_NEWPID), which needs root");
    char *memory = map(bytes);
    fill(memory, bytes, 1);
    if (pipe(until)) missing("pipe");
    pid_t first = child(until, &number);
    if (first < 0 || number != 1) printf("the first child is process %d\n", number);
    int right = number == 1 && wrong(memory, bytes, 1) == 0;
    if (right && !strcmp(argv[1], "exec")) {
        char words[3][12];
        sprintf(words[0], "%d", first), sprintf(words[1], "%d", until[0]);
        sprintf(words[2], "%d", until[1]);
        execl("/proc/self/exe", argv[0], "exec", argv[2], words[0], words[1], words[2], NULL);
        missing("exec");
    }
    return verdict(right && second(first, until));
}
