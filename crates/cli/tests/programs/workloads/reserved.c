/*
 * Reserves a terabyte, as allocators and sandboxes do, and uses 32 MiB here and there in it. Nobody
 * may make its page tables much larger than that needs.
 */
#include <stdio.h>
#include <sys/mman.h>

#define PAGE 4096
#define RESERVED (1UL << 40)
#define PLACES 64
#define USED (512UL << 10)
#define TABLES_MAX_KB 6000

static long tables_kb(void)
{
	char line[256];
	long kb = -1;
	FILE *status = fopen("/proc/self/status", "r");
	while (status && fgets(line, sizeof line, status))
		sscanf(line, "VmPTE: %ld kB", &kb);
	if (status)
		fclose(status);
	return kb;
}

int main(void)
{
	unsigned char *all = mmap(0, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (all == MAP_FAILED)
		return perror("mmap"), 2;
	for (int turn = 0; turn < 4; turn++)
		for (int place = 0; place < PLACES; place++) {
			unsigned char *here = all + place * (RESERVED / PLACES);
			if (turn == 0 && mprotect(here, USED, PROT_READ | PROT_WRITE))
				return perror("mprotect"), 2;
			for (size_t at = 0; at < USED; at += PAGE) {
				if (turn && here[at] != (unsigned char)(place + at / PAGE)) {
					printf("place %d, page %zu: %d\n", place, at / PAGE, here[at]);
					return 1;
				}
				here[at] = (unsigned char)(place + at / PAGE);
			}
		}
	long kb = tables_kb();
	if (kb < 0 || kb > TABLES_MAX_KB) {
		printf("page tables take %ld kB\n", kb);
		return 1;
	}
	puts("every page was right");
	return 0;
}
