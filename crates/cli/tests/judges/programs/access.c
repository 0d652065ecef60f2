/* Uses memory that may be written and executed, or only written, as just-in-time compilers do.
 *
 * access rwx|wx|w MIB
 */
#include "common.h"

int main(int argc, char **argv) {
    size_t bytes = argc > 2 ? atoi(argv[2]) * MIB : MIB, bad = 0;
    int access = PROT_WRITE;
    if (strchr(argv[1], 'r')) access |= PROT_READ;
    if (strchr(argv[1], 'x')) access |= PROT_EXEC;
    char *memory = mmap(NULL, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) missing("mmap");
    for (unsigned round = 0; round < 3; round++) {
        fill(memory, bytes, round);
        // The processor cannot forbid to read what may be written.
        bad += wrong(memory, bytes, round);
    }
    milliseconds(300);
    return verdict(bad == 0);
}
