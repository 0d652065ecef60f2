/* Children share memory with their parent that nobody may write to, which stays, and have some of their own,
 * which can leave. What they share is there once.
 *
 * shared CHILDREN SHARED_MIB OWN_MIB
 */
#include "common.h"

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    int children = atoi(argv[1]), bad = 0, status, begun[2], gate[2];
    size_t shared = atoi(argv[2]) * MIB, own = atoi(argv[3]) * MIB;
    char *all = map(shared), byte;
    fill(all, shared, 1);
    if (mprotect(all, shared, PROT_READ) || pipe(begun) || pipe(gate)) missing("mprotect");
    for (int child = 0; child < children; child++) {
        if (fork() == 0) {
            char *memory = map(own);
            close(gate[1]);
            fill(memory, own, child);
            // All are there before one ends.
            if (write(begun[1], "", 1) != 1 || read(gate[0], &byte, 1) != 0) _exit(9);
            _exit(wrong(memory, own, child) || wrong(all, shared, 1) ? 1 : 0);
        }
    }
    for (int child = 0; child < children; child++) bad += read(begun[0], &byte, 1) != 1;
    // Time for what is too much to leave, or to be seen.
    milliseconds(500);
    close(gate[1]);
    while (wait(&status) > 0) bad += status != 0;
    return verdict(bad == 0);
}
