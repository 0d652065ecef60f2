// Memory of guests, which bench/guests has stored and restored; see there.
//
// guests CORPUS make IMAGE FILE: writes a memory file: all of a base, and of another image what
//     differs from its base, with holes elsewhere.
// guests CORPUS whole IMAGE FILE: the same, of any image all of it.
// guests CORPUS uffd IMAGE SOCKET PAGES SEED: stands in for a VMM that restores a guest by
//     userfaultfd, and touches random pages that are not zeros, or all pages if PAGES is 0. Prints
//     the microseconds until the first page was there, and until all were; compares all of them.
// guests CORPUS file IMAGE FILE PAGES SEED: the same with a private mapping of a file.
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "../crates/cli/tests/guest/offer.h"

// Images before this number are bases. Of the pages, two fifths are zeros; of others, a sixteenth
// differs in an image from its base.
enum { BASES = 10, PAGE = 4096, PAGES = 256 << 8, ZEROS = 2, OF = 5, CHANGED = 16 };

static const char *corpus;
static size_t corpus_pages;

static uint64_t mixed(uint64_t one, uint64_t two)
{
    uint64_t n = (one + 1) * 0x9e3779b97f4a7c15 ^ (two + 1) * 0xbf58476d1ce4e5b9;
    n = (n ^ n >> 31) * 0x94d049bb133111eb;
    return n ^ n >> 29;
}

static int is_zero(uint64_t image, uint64_t number)
{
    return mixed(image % BASES + 1000000, number) % OF < ZEROS;
}

static int is_own(uint64_t image, uint64_t number)
{
    return image < BASES || mixed(image + 2000000, number) % CHANGED == 0;
}

// A page of the captures, with 16 bytes that no other page has.
static void page(uint64_t image, uint64_t number, char *out)
{
    memset(out, 0, PAGE);
    if (is_zero(image, number))
        return;
    uint64_t of = is_own(image, number) ? image : image % BASES;
    uint64_t words[] = {mixed(of, number), mixed(number, of)};
    memcpy(out, corpus + words[0] % corpus_pages * PAGE, PAGE);
    memcpy(out + 1024, words, sizeof words);
}

static void make(uint64_t image, const char *path, int whole)
{
    int file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    need(file >= 0 && ftruncate(file, (off_t)PAGES * PAGE) == 0, path);
    char bytes[PAGE];
    for (uint64_t number = 0; number < PAGES; number++) {
        if (is_zero(image, number) || !(whole || is_own(image, number)))
            continue;
        page(image, number, bytes);
        need(pwrite(file, bytes, PAGE, number * PAGE) == PAGE, path);
    }
    need(close(file) == 0, path);
}

static uint64_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000ull + at.tv_nsec / 1000;
}

static void touch(uint64_t image, const char *path, uint64_t pages, uint64_t seed, int by_file)
{
    size_t len = (size_t)PAGES * PAGE;
    uint64_t count = pages ? pages : PAGES, *numbers = malloc(count * sizeof *numbers);
    for (uint64_t n = 0, found = 0; found < count; n++) {
        uint64_t number = pages ? mixed(seed, n) % PAGES : n;
        if (!pages || !is_zero(image, number))
            numbers[found++] = number;
    }
    char *memory;
    uint64_t began = now(), first = 0;
    if (by_file) {
        int file = open(path, O_RDONLY);
        need(file >= 0, path);
        memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        need(memory != MAP_FAILED, "mmap");
    } else {
        memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        need(memory != MAP_FAILED, "mmap");
        need(offer(memory, len, path), "userfaultfd");
    }
    for (uint64_t n = 0; n < count; n++) {
        (void)*(volatile char *)(memory + numbers[n] * PAGE);
        if (n == 0)
            first = now();
    }
    uint64_t end = now();
    char right[PAGE];
    for (uint64_t n = 0; n < count; n++) {
        page(image, numbers[n], right);
        if (memcmp(memory + numbers[n] * PAGE, right, PAGE) != 0) {
            printf("page %lu of image %lu is wrong\n", numbers[n], image);
            exit(1);
        }
    }
    printf("%lu %lu\n", first - began, end - began);
}

int main(int count, char **words)
{
    need(count >= 5, "guests CORPUS COMMAND IMAGE FILE [PAGES SEED]");
    int file = open(words[1], O_RDONLY);
    struct stat found;
    need(file >= 0 && fstat(file, &found) == 0, words[1]);
    corpus_pages = found.st_size / PAGE;
    corpus = mmap(NULL, found.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
    need(corpus != MAP_FAILED, words[1]);
    uint64_t image = strtoull(words[3], NULL, 10);
    if (count == 5)
        make(image, words[4], strcmp(words[2], "whole") == 0);
    else
        touch(image, words[4], strtoull(words[5], NULL, 10), strtoull(words[6], NULL, 10),
              strcmp(words[2], "file") == 0);
    return 0;
}
