/* Moves locked memory to where it can grow: the kernel then fills what it grows by, before it tells
 * anybody that it was moved.
 *
 * Exit status 1 if a page is wrong.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096UL
#define PAGES 6144UL
#define PIECE 4UL
#define STEP 64UL

static void fill(char *page, uint64_t tag)
{
	for (size_t i = 0; i < PAGE / 8; i++)
		((uint64_t *)page)[i] = tag * (2 * i + 1) ^ i;
}

static int differs(const char *page, uint64_t tag)
{
	for (size_t i = 0; i < PAGE / 8; i++)
		if (((const uint64_t *)page)[i] != (tag ? tag * (2 * i + 1) ^ i : 0))
			return 1;
	return 0;
}

int main(void)
{
	size_t moved = 0, wrong = 0, pieces = PAGES / STEP;
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	char *from = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
	char *to = mmap(0, pieces * 3 * PIECE * PAGE, PROT_NONE, flags | MAP_NORESERVE, -1, 0);
	if (from == MAP_FAILED || to == MAP_FAILED)
		return perror("mmap"), 2;
	for (size_t n = 0; n < PAGES; n++)
		fill(from + n * PAGE, n + 1);
	for (size_t piece = 0; piece < pieces; piece++) {
		char *at = from + piece * STEP * PAGE, *there = to + piece * 3 * PIECE * PAGE;
		if (mlock(at, PIECE * PAGE))
			return perror("mlock"), 2;
		if (mremap(at, PIECE * PAGE, 2 * PIECE * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, there) !=
		    there)
			return perror("mremap"), 2;
		moved++;
		for (size_t n = 0; n < 2 * PIECE; n++)
			wrong += differs(there + n * PAGE, n < PIECE ? piece * STEP + n + 1 : 0);
	}
	for (size_t n = 0; n < PAGES; n++)
		if (n % STEP >= PIECE)
			wrong += differs(from + n * PAGE, n + 1);
	printf("%zu pieces moved, %zu pages wrong\n", moved, wrong);
	return wrong > 0;
}
