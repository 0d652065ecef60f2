/* A process and so many children, which are there at once and wait, share its memory. One page of each is its own.
 *
 * family CHILDREN MIB
 */
#include "common.h"

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int children = atoi(argv[1]), gate[2], bad = 0, status;
    size_t bytes = atoi(argv[2]) * MIB;
    char *memory = map(bytes), byte;
    fill(memory, bytes, 1);
    if (pipe(gate)) missing("pipe");
    for (int child = 0; child < children; child++) {
        pid_t made = fork();
        if (made < 0) missing("fork");
        if (made == 0) {
            char *own = memory + child * PAGE % bytes;
            close(gate[1]);
            *own = 1;
            _exit(read(gate[0], &byte, 1) == 0 && *own == 1 ? 0 : 9);
        }
    }
    close(gate[1]);
    while (wait(&status) > 0) bad += status != 0;
    return verdict(bad == 0 && wrong(memory, bytes, 1) == 0);
}
