/* Maps all that a limit of its addresses allows, after it has used some memory again and again, and prints
 * how many KiB that is.
 *
 * budget LIMIT_MIB MIB    0: the limit that it has
 */
#include "common.h"
#include <sys/resource.h>

#define PIECE (64UL << 10)

int main(int argc, char **argv) {
    if (argc < 3) return 9;
    size_t limit = atoi(argv[1]);
    if (limit) {
        struct rlimit limits;
        getrlimit(RLIMIT_AS, &limits);
        limits.rlim_cur = limit * MIB;
        if (setrlimit(RLIMIT_AS, &limits)) missing("setrlimit");
        // Another program with the same limit has it from its first instruction on.
        execl("/proc/self/exe", argv[0], "0", argv[2], NULL);
        missing("exec");
    }
    if (!press(atoi(argv[2]))) return verdict(0);
    size_t pieces = 0;
    while (mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) pieces++;
    printf("%zu\n", pieces * (PIECE >> 10));
    return 0;
}
