/* Parts of its memory are out of use for a while, by mprotect, as allocators do with what is free: two at a
 * time, and each of them once in a round. What is back in use can leave as before.
 *
 * protect none|read PARTS: of 4 MiB each
 */
#include "common.h"

#define PART (4 * MIB)
#define MOST 64

int main(int argc, char **argv) {
    int parts = argc > 2 ? atoi(argv[2]) : 4, access = strcmp(argv[1], "read") ? PROT_NONE : PROT_READ;
    char *all[MOST];
    size_t bad = 0;
    for (int part = 0; part < parts; part++) fill(all[part] = map(PART), PART, part);
    for (int turn = 0; turn < 3 * parts; turn++) {
        char *closed = all[turn % parts], *open = all[(turn + parts - 2) % parts];
        if (turn >= 2 && mprotect(open, PART, PROT_READ | PROT_WRITE)) missing("mprotect");
        bad += wrong(closed, PART, turn % parts);
        if (mprotect(closed, PART, access)) missing("mprotect");
        // Others need room meanwhile.
        for (int other = 2; other < 5; other++) {
            int part = (turn + other) % parts;
            bad += wrong(all[part], PART, part);
            fill(all[part], PART, part);
        }
    }
    for (int part = 0; part < parts; part++) {
        if (mprotect(all[part], PART, PROT_READ | PROT_WRITE)) missing("mprotect");
        bad += wrong(all[part], PART, part);
    }
    return verdict(bad == 0);
}
