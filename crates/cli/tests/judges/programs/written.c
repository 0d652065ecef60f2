/* Writes to a private mapping of a file: its pages are the program's own then, and are the file's again when they are
 * given up. It has them for a while.
 *
 * written MIB
 */
#include "common.h"

#define SECONDS 10

int main(int argc, char **argv) {
    size_t bytes = (argc > 1 ? atoi(argv[1]) : 4) * MIB, bad = 0;
    FILE *file = tmpfile();
    char page[PAGE];
    for (size_t at = 0; file && at < bytes; at += PAGE) {
        fill(page, PAGE, at / PAGE);
        if (fwrite(page, PAGE, 1, file) != 1) missing("a file");
    }
    if (!file || fflush(file)) missing("a file");
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(file), 0);
    if (memory == MAP_FAILED) missing("mmap");
    fill(memory, bytes, 7);
    bad += !press(8);
    milliseconds(SECONDS * 1000);
    bad += !press(8) + wrong(memory, bytes, 7);
    madvise(memory, bytes, MADV_DONTNEED);
    for (size_t at = 0; at < bytes; at += PAGE) bad += wrong(memory + at, PAGE, at / PAGE);
    return verdict(bad == 0);
}
