/* A process and so many children, each with memory of its own, which are there at once, wait, and then look at it.
 *
 * crowd CHILDREN KIB
 */
#include "common.h"

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int children = atoi(argv[1]), made = 0, gate[2], ready[2], bad = 0, status;
    size_t bytes = atoi(argv[2]) * 1024UL;
    char byte;
    if (pipe(gate) || pipe(ready)) missing("pipe");
    for (int child = 0; child < children; child++) {
        pid_t pid = fork();
        if (pid == 0) {
            close(gate[1]);
            char *memory = map(bytes);
            fill(memory, bytes, child);
            int told = write(ready[1], "", 1) == 1 && read(gate[0], &byte, 1) == 0;
            _exit(told && wrong(memory, bytes, child) == 0 ? 0 : 9);
        }
        made += pid > 0;
    }
    for (int child = 0; child < made; child++) bad += read(ready[0], &byte, 1) != 1;
    close(gate[1]);
    while (wait(&status) > 0) bad += status != 0;
    if (made < children) printf("%d of %d forks failed\n", children - made, children);
    return verdict(bad == 0 && made == children);
}
