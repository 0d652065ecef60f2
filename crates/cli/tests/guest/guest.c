// A stand-in for a VMM: maps memory, sends its regions and a userfaultfd to the socket, compares
// all pages with a file, and stays until its stdin ends.
// guest SOCKET FILE
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/stat.h>

#include "offer.h"

int main(int count, char **words)
{
    need(count == 3, "guest SOCKET FILE");
    int file = open(words[2], O_RDONLY);
    struct stat found;
    need(file >= 0 && fstat(file, &found) == 0, words[2]);
    size_t len = found.st_size;
    int kind = MAP_PRIVATE | MAP_ANONYMOUS;
    char *right = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    char *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, kind, -1, 0);
    need(right != MAP_FAILED && memory != MAP_FAILED, "mmap");

    if (!offer(memory, len, words[1])) {
        puts("none");
        return 0;
    }

    // The last page is touched when the test says so.
    int wrong = memcmp(memory, right, len - 4096) != 0;
    puts(wrong ? "wrong" : "right");
    fflush(stdout);
    while (getchar() == '\n') {
        puts(memcmp(memory, right, len) == 0 ? "right" : "wrong");
        fflush(stdout);
    }
    return wrong;
}
