/* Makes functions in memory, as just-in-time compilers do: some where it may always write, the others where it
 * may write or execute. Each of them returns its own number whenever it is called.
 *
 * code MIB [MIB]: of the first kind, and of the second, 4 MiB
 */
#include "common.h"

#define STEP 512

/* mov eax, number; ret */
static void make(char *at, int number) {
    *at = (char)0xb8;
    memcpy(at + 1, &number, sizeof number);
    at[5] = (char)0xc3;
}

static void make_all(char *code, size_t bytes, int first) {
    for (size_t at = 0; at < bytes; at += STEP) make(code + at, first + (int)(at / STEP));
}

static size_t call_all(char *code, size_t bytes, int first) {
    size_t bad = 0;
    for (size_t at = 0; at < bytes; at += STEP)
        bad += ((int (*)(void))(code + at))() != first + (int)(at / STEP);
    return bad;
}

int main(int argc, char **argv) {
    size_t bytes = argc > 1 ? atoi(argv[1]) * MIB : MIB, bad = 0;
    size_t may_turn = argc > 2 ? atoi(argv[2]) * MIB : 4 * MIB;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *both = mmap(NULL, bytes, PROT_READ | PROT_WRITE | PROT_EXEC, flags, -1, 0);
    char *turned = map(may_turn);
    if (both == MAP_FAILED) missing("mmap");
    for (int round = 0; round < 3; round++) {
        if (mprotect(turned, may_turn, PROT_READ | PROT_WRITE)) missing("mprotect");
        make_all(both, bytes, round);
        make_all(turned, may_turn, round);
        if (mprotect(turned, may_turn, PROT_READ | PROT_EXEC)) missing("mprotect");
        bad += call_all(both, bytes, round) + call_all(turned, may_turn, round);
        bad += !press(8) + call_all(both, bytes, round);
    }
    return verdict(bad == 0);
}
