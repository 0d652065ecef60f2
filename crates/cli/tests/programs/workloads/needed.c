/* Memory that left comes back when the program says that it will need it, and not because it was
 * touched: 12 MiB, among 60 MiB of a program that may have 32. Nothing here reads or writes a page of it
 * from before it left until it is back.
 *
 * Exit status 1 if it does not leave, does not come back, or is not as it was.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 3072, OTHERS = 4 * PAGES };

static unsigned char is_there[PAGES];

static int there(char *memory)
{
	int found = 0;

	if (mincore(memory, (size_t)PAGES * PAGE, is_there))
		return -1;
	for (int i = 0; i < PAGES; i++)
		found += is_there[i] & 1;
	return found;
}

static unsigned long word(int page, int at)
{
	return at % 24 ? 7 : (page * 512UL + at) * 0x9e3779b97f4a7c15UL;
}

/* Out of order, so that pages are not brought along with others. */
static int nth(int i, int pages)
{
	return i * 5003L % pages;
}

static void fill(char *memory, int pages)
{
	for (int i = 0; i < pages; i++)
		for (int page = nth(i, pages), at = 0; at < PAGE; at += 8)
			*(unsigned long *)(memory + (size_t)page * PAGE + at) = word(page, at);
}

static int wrong(char *memory, int pages)
{
	int wrong = 0;

	for (int i = 0; i < pages; i++)
		for (int page = nth(i, pages), at = 0; at < PAGE; at += 8)
			wrong += *(unsigned long *)(memory + (size_t)page * PAGE + at) != word(page, at);
	return wrong;
}

int main(void)
{
	int rights = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
	char *memory = mmap(0, (size_t)PAGES * PAGE, rights, flags, -1, 0);
	char *others = mmap(0, (size_t)OTHERS * PAGE, rights, flags, -1, 0);

	if (memory == MAP_FAILED || others == MAP_FAILED)
		return perror("mmap"), 2;
	fill(memory, PAGES);
	for (int round = 0; there(memory) > 0; round++) {
		if (round == 100)
			return printf("%d pages stay\n", there(memory)), 1;
		fill(others, OTHERS);
	}
	if (madvise(memory, (size_t)PAGES * PAGE, MADV_WILLNEED))
		return perror("madvise"), 2;
	/* Much longer than it takes. */
	for (int i = 0; i < 6000 && there(memory) < PAGES; i++)
		usleep(10000);
	printf("%d of %d pages are back, ", there(memory), PAGES);
	if (there(memory) < PAGES)
		return puts("too few"), 1;
	int first = wrong(memory, PAGES), second = wrong(others, OTHERS);
	printf("%d and %d words are wrong\n", first, second);
	return first + second > 0;
}
