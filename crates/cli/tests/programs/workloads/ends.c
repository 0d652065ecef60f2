/* Threads end while everything that the kernel accesses then is away: it clears their numbers, and
 * tells of the robust mutexes that they hold, but waits for no page. Whoever waits for them would
 * wait for ever.
 *
 * Exit status 1 if a number is not cleared, or a mutex is not told of.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096UL
#define THREADS 16
#define MUTEXES 8
/* From an entry to its mutex. */
#define OFFSET (2 * PAGE - 64)

/* What a thread has, each in pages of its own. */
struct place {
	struct { int number; char rest[PAGE - sizeof(int)]; } number;
	struct { struct robust_list_head head; char rest[PAGE - sizeof(struct robust_list_head)]; } list;
	struct { struct robust_list entry; char rest[OFFSET - sizeof(struct robust_list)]; int word; char end[60]; } mutex[MUTEXES + 1];
	char stack[4 * PAGE];
};

static volatile int ready, go;

static int run(void *argument)
{
	struct place *place = argument;
	int self = syscall(SYS_gettid);

	for (int i = 0; i <= MUTEXES; i++) {
		struct robust_list *next = i + 1 < MUTEXES ? &place->mutex[i + 1].entry : &place->list.head.list;

		place->mutex[i].entry.next = next;
		place->mutex[i].word = self;
	}
	place->list.head.list.next = &place->mutex[0].entry;
	place->list.head.futex_offset = OFFSET;
	/* This one was about to be entered. */
	place->list.head.list_op_pending = &place->mutex[MUTEXES].entry;
	syscall(SYS_set_robust_list, &place->list.head, sizeof place->list.head);
	__sync_fetch_and_add(&ready, 1);
	while (!go)
		sched_yield();
	syscall(SYS_exit, 0);
	return 0;
}

int main(void)
{
	int rights = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
	struct place *places = mmap(0, THREADS * sizeof *places, rights, flags, -1, 0);
	int threads[THREADS], cleared = 0, told = 0;
	char name[64];

	if (places == MAP_FAILED)
		return perror("mmap"), 2;
	for (int i = 0; i < THREADS; i++) {
		int kind = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
			   CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
		int *number = &places[i].number.number;

		/* None of them is only zeros. */
		memset(&places[i], 7, sizeof places[i]);
		threads[i] = clone(run, places[i].stack + 4 * PAGE, kind, &places[i], number, 0, number);
		if (threads[i] < 0)
			return perror("clone"), 2;
	}
	while (ready < THREADS)
		sched_yield();
	for (int i = 0; i < THREADS; i++)
		madvise(&places[i], (char *)places[i].stack - (char *)&places[i], MADV_PAGEOUT);
	go = 1;
	for (int i = 0; i < THREADS; i++) {
		snprintf(name, sizeof name, "/proc/self/task/%d", threads[i]);
		while (!access(name, F_OK))
			usleep(1000);
	}
	for (int i = 0; i < THREADS; i++) {
		cleared += places[i].number.number == 0;
		for (int k = 0; k <= MUTEXES; k++)
			told += places[i].mutex[k].word == FUTEX_OWNER_DIED;
	}
	printf("%d numbers cleared, %d mutexes told of\n", cleared, told);
	return cleared < THREADS || told < THREADS * (MUTEXES + 1);
}
