/* Pages that the kernel may drop when it likes lie between memory of the usual kind: that leaves like any other. Of
 * the others each is what was written or zeros.
 *
 * droppable PARTS: of 1 MiB each, behind each of which lies such a page
 */
#include "common.h"

#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08
#endif
#define STEP (MIB + PAGE)

int main(int argc, char **argv) {
    size_t parts = argc > 1 ? atoi(argv[1]) : 4, bad = 0;
    int usable = PROT_READ | PROT_WRITE, fixed = MAP_ANONYMOUS | MAP_FIXED;
    char *all = map(parts * STEP);
    for (size_t part = 0; part < parts; part++) {
        char *page = all + part * STEP + MIB;
        if (mmap(page, PAGE, usable, MAP_DROPPABLE | fixed, -1, 0) != page) missing("MAP_DROPPABLE");
        *page = 1;
    }
    for (unsigned round = 0; round < 3; round++) {
        for (size_t part = 0; part < parts; part++) fill(all + part * STEP, MIB, round + part);
        for (size_t part = 0; part < parts; part++) {
            volatile char *page = all + part * STEP + MIB;
            bad += wrong(all + part * STEP, MIB, round + part) + (*page != 0 && *page != 1);
        }
    }
    return verdict(bad == 0);
}
