/* Changes address spaces at random and compares every page with a model: space SEED SECONDS THREADS
 *
 * Each thread has an arena of its own, of which it knows what must be in each page. It maps,
 * unmaps, moves, grows, shrinks, protects, discards, frees, locks and pages out parts of it, lets
 * the kernel read and write it, makes threads and children; children check the arena of the thread
 * that forked, go on for a while, and exec or exit. One thread moves the end of the heap, too.
 *
 * Prints a line for each difference. Exit status 1 if there was one.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef PAGE
#define PAGE 4096UL
#endif
#define PAGES 3072
#define WORDS (PAGE / 8)
#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#define MADV_WIPEONFORK_ 18
#define MADV_KEEPONFORK_ 19

#ifdef __aarch64__
#define INSTRUCTION(at) (at)->uc_mcontext.pc
#else
#define INSTRUCTION(at) (at)->uc_mcontext.gregs[REG_RIP]
#endif

enum { NONE, READ, WRITE };

struct page {
	uint64_t tag; /* 0: zeros */
	char mapped, access, wiped, lazy /* tag or zeros */, locked;
};

struct arena {
	char *at;
	struct page pages[PAGES];
	uint64_t random;
	long ops;
	int pipe[2], index, depth;
	size_t heap;
	uint64_t *heap_at;
};

static double end;
static volatile int failed;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static uint64_t roll(struct arena *a, uint64_t below)
{
	a->random ^= a->random << 13;
	a->random ^= a->random >> 7;
	a->random ^= a->random << 17;
	return (a->random >> 11) % below;
}

static void differs(struct arena *a, const char *what, size_t page, uint64_t found, uint64_t wanted)
{
	printf("thread %d, generation %d, after %ld changes: %s: page %zu has %#lx, not %#lx\n", a->index,
	       a->depth, a->ops, what, page, (long)found, (long)wanted);
	fflush(stdout);
	failed = 1;
}

static uint64_t word(uint64_t tag, size_t at)
{
	return tag ? tag * (2 * at + 1) ^ at : 0;
}

static void fill(uint64_t *to, uint64_t tag)
{
	for (size_t i = 0; i < WORDS; i++)
		to[i] = word(tag, i);
}

/* Whether all of a page is as the tag says; every word, or some. */
static int matches(struct arena *a, const uint64_t *page, uint64_t tag)
{
	size_t step = roll(a, 4) ? 61 : 1;
	for (size_t i = 0; i < WORDS; i += step)
		if (page[i] != word(tag, i))
			return 0;
	return 1;
}

static void check_page(struct arena *a, size_t n, const char *what)
{
	struct page *p = &a->pages[n];
	const uint64_t *at = (const uint64_t *)(a->at + n * PAGE);
	if (!p->mapped || p->access == NONE || matches(a, at, p->tag))
		return;
	if (p->lazy && matches(a, at, 0)) {
		p->tag = 0;
		return;
	}
	for (size_t i = 0; i < WORDS; i++)
		if (at[i] != word(p->tag, i)) {
			differs(a, what, n, at[i], word(p->tag, i));
			break;
		}
	p->tag = 0; /* once is enough */
	if (p->access == WRITE)
		memset((void *)at, 0, PAGE);
}

static void check_all(struct arena *a, const char *what)
{
	for (size_t n = 0; n < PAGES; n++)
		check_page(a, n, what);
}

/* A random part; mostly small. */
static void part(struct arena *a, size_t *from, size_t *len)
{
	size_t max = roll(a, 8) ? 1 + roll(a, 64) : 1 + roll(a, 1024);
	*from = roll(a, PAGES);
	*len = max > PAGES - *from ? PAGES - *from : max;
}

/* The longest run from `from` on that is mapped alike, at most `len` pages. */
static size_t alike(struct arena *a, size_t from, size_t len)
{
	struct page *p = &a->pages[from];
	size_t n = 0;
	while (p->mapped && n < len && from + n < PAGES && a->pages[from + n].mapped &&
	       a->pages[from + n].access == p->access && a->pages[from + n].wiped == p->wiped &&
	       a->pages[from + n].locked == p->locked)
		n++;
	return n;
}

static void forget(struct arena *a, size_t from, size_t len)
{
	memset(a->pages + from, 0, len * sizeof(struct page));
}

static void map(struct arena *a)
{
	size_t from, len;
	part(a, &from, &len);
	int access = roll(a, 8) ? WRITE : (int)roll(a, 3);
	int protection = access == WRITE ? PROT_READ | PROT_WRITE : access == READ ? PROT_READ : PROT_NONE;
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | (roll(a, 8) ? 0 : MAP_POPULATE);
	if (mmap(a->at + from * PAGE, len * PAGE, protection, flags, -1, 0) == MAP_FAILED)
		return;
	forget(a, from, len);
	for (size_t n = from; n < from + len; n++)
		a->pages[n] = (struct page){ .mapped = 1, .access = access };
}

static void unmap(struct arena *a)
{
	size_t from, len;
	part(a, &from, &len);
	if (munmap(a->at + from * PAGE, len * PAGE) == 0)
		forget(a, from, len);
}

static void touch(struct arena *a)
{
	size_t from, len;
	part(a, &from, &len);
	int writes = roll(a, 3) != 0;
	for (size_t n = from; n < from + len; n++) {
		struct page *p = &a->pages[n];
		check_page(a, n, "touched");
		if (writes && p->mapped && p->access == WRITE) {
			p->tag = roll(a, 5) ? a->random | 1 : 0;
			p->lazy = 0;
			fill((uint64_t *)(a->at + n * PAGE), p->tag);
		}
	}
}

static void protect(struct arena *a)
{
	size_t from, len;
	part(a, &from, &len);
	len = alike(a, from, len);
	if (!len)
		return;
	int access = roll(a, 2) ? WRITE : (int)roll(a, 3);
	int protection = access == WRITE ? PROT_READ | PROT_WRITE : access == READ ? PROT_READ : PROT_NONE;
	if (mprotect(a->at + from * PAGE, len * PAGE, protection) == 0)
		for (size_t n = from; n < from + len; n++)
			a->pages[n].access = access;
}

/* Of what is locked the kernel gives up nothing. */
static int give_up(struct arena *a, size_t from, size_t len, int advice)
{
	int given = madvise(a->at + from * PAGE, len * PAGE, advice) == 0;
	if (given == a->pages[from].locked)
		differs(a, "given up", from, given, !given);
	return given;
}

static void discard(struct arena *a)
{
	size_t from, len;
	part(a, &from, &len);
	len = alike(a, from, len);
	if (len && give_up(a, from, len, MADV_DONTNEED))
		for (size_t n = from; n < from + len; n++)
			a->pages[n].tag = a->pages[n].lazy = 0;
}

static void give_free(struct arena *a)
{
	size_t from, len;
	part(a, &from, &len);
	len = alike(a, from, len);
	if (len && give_up(a, from, len, MADV_FREE))
		for (size_t n = from; n < from + len; n++)
			a->pages[n].lazy = 1;
}

static void page_out(struct arena *a)
{
	size_t from, len;
	part(a, &from, &len);
	madvise(a->at + from * PAGE, len * PAGE, MADV_PAGEOUT);
}

static void wipe(struct arena *a)
{
	size_t from, len;
	part(a, &from, &len);
	len = alike(a, from, len);
	int wiped = roll(a, 2);
	if (len && madvise(a->at + from * PAGE, len * PAGE, wiped ? MADV_WIPEONFORK_ : MADV_KEEPONFORK_) == 0)
		for (size_t n = from; n < from + len; n++)
			a->pages[n].wiped = wiped;
}

static void lock(struct arena *a)
{
	size_t from, len;
	part(a, &from, &len);
	len = alike(a, from, len < 32 ? len : 32);
	if (!len)
		return;
	int locked = roll(a, 2);
	int done = locked ? mlock(a->at + from * PAGE, len * PAGE) : munlock(a->at + from * PAGE, len * PAGE);
	/* What cannot be filled is locked all the same. */
	if (done != 0 && locked) {
		done = munlock(a->at + from * PAGE, len * PAGE);
		locked = 0;
	}
	if (done == 0)
		for (size_t n = from; n < from + len; n++)
			a->pages[n].locked = locked;
}

/* Moves, grows, shrinks: within the arena, so that the model knows where to. */
static void move(struct arena *a)
{
	size_t from, len, to, new;
	part(a, &from, &len);
	len = alike(a, from, len);
	if (!len)
		return;
	struct page kind = { .mapped = 1, .access = a->pages[from].access, .wiped = a->pages[from].wiped,
			     .locked = a->pages[from].locked };
	char *old = a->at + from * PAGE;
	switch (roll(a, 4)) {
	case 0: /* in place */
		new = roll(a, 2) ? 1 + roll(a, len) : len + roll(a, 64);
		if (from + new > PAGES || mremap(old, len * PAGE, new * PAGE, 0) == MAP_FAILED)
			return;
		if (new < len)
			forget(a, from + new, len - new);
		for (size_t n = from + len; n < from + new; n++)
			a->pages[n] = kind;
		return;
	default: /* elsewhere, and the place may stay */;
		/* If locked, more than what is moved would be unlocked. */
		int keep = roll(a, 4) == 0 && !kind.locked;
		new = keep || roll(a, 2) ? len : 1 + roll(a, 2 * len);
		if (new > PAGES)
			return;
		to = roll(a, PAGES - new + 1);
		if (to < from + len && from < to + new)
			return;
		int flags = MREMAP_MAYMOVE | MREMAP_FIXED | (keep ? MREMAP_DONTUNMAP : 0);
		void *done = mremap(old, len * PAGE, new * PAGE, flags, a->at + to * PAGE);
		if (done == MAP_FAILED) {
			/* What lay there may be gone or not. */
			munmap(a->at + to * PAGE, new * PAGE);
			forget(a, to, new);
			/* Shrinking comes first. */
			if (new < len) {
				munmap(a->at + (from + new) * PAGE, (len - new) * PAGE);
				forget(a, from + new, len - new);
			}
			return;
		}
		for (size_t n = 0; n < new; n++)
			a->pages[to + n] = n < len ? a->pages[from + n] : kind;
		forget(a, from, len);
		for (size_t n = from; keep && n < from + len; n++)
			a->pages[n] = kind;
	}
}

/* The kernel reads and writes pages. */
static void by_kernel(struct arena *a)
{
	size_t n = roll(a, PAGES - 4), len = 1 + roll(a, 4);
	static __thread uint64_t buffer[4 * WORDS];
	for (size_t i = n; i < n + len; i++)
		if (!a->pages[i].mapped || a->pages[i].access != WRITE)
			return;
	if (roll(a, 2)) {
		uint64_t tag = a->random | 1;
		for (size_t i = 0; i < len; i++)
			fill(buffer + i * WORDS, tag + i);
		if (write(a->pipe[1], buffer, len * PAGE) != (ssize_t)(len * PAGE))
			return differs(a, "write", n, 0, 0);
		if (read(a->pipe[0], a->at + n * PAGE, len * PAGE) != (ssize_t)(len * PAGE))
			return differs(a, "read into the arena", n, 0, 0);
		for (size_t i = 0; i < len; i++)
			a->pages[n + i].tag = tag + i, a->pages[n + i].lazy = 0;
		return;
	}
	if (write(a->pipe[1], a->at + n * PAGE, len * PAGE) != (ssize_t)(len * PAGE))
		return differs(a, "write from the arena", n, 0, 0);
	if (read(a->pipe[0], buffer, len * PAGE) != (ssize_t)(len * PAGE))
		return differs(a, "read", n, 0, 0);
	for (size_t i = 0; i < len; i++)
		if (!matches(a, buffer + i * WORDS, a->pages[n + i].tag) &&
		    !(a->pages[n + i].lazy && matches(a, buffer + i * WORDS, 0)))
			differs(a, "read by the kernel", n + i, buffer[i * WORDS], word(a->pages[n + i].tag, 0));
}

static void *short_life(void *at)
{
	struct arena *a = at;
	for (size_t i = 0; i < 8; i++)
		check_page(a, roll(a, PAGES), "seen by another thread");
	return 0;
}

static void thread(struct arena *a)
{
	pthread_t other;
	if (pthread_create(&other, 0, short_life, a) == 0)
		pthread_join(other, 0);
}

static void heap(struct arena *a)
{
	if (a->index || a->depth)
		return;
	if (!a->heap_at)
		a->heap_at = sbrk(0);
	/* The C library has moved the end as well: what lies behind is its own. */
	if (sbrk(0) != (void *)(a->heap_at + a->heap * WORDS))
		return;
	if (roll(a, 2) && a->heap) {
		size_t less = 1 + roll(a, a->heap);
		if (sbrk(-(intptr_t)(less * PAGE)) != (void *)-1)
			a->heap -= less;
	} else {
		size_t more = 1 + roll(a, 200);
		uint64_t *grown = sbrk(more * PAGE);
		if (grown == (void *)-1)
			return;
		for (size_t i = 0; i < more; i++)
			if (!matches(a, grown + i * WORDS, 0))
				differs(a, "a heap that has grown", i, grown[i * WORDS], 0);
		for (size_t i = 0; i < more; i++)
			fill(grown + i * WORDS, a->heap + i + 1);
		a->heap += more;
	}
	for (size_t i = 0; i < a->heap; i++)
		if (!matches(a, a->heap_at + i * WORDS, i + 1))
			differs(a, "heap", i, a->heap_at[i * WORDS], word(i + 1, 0));
}

static void work(struct arena *a, double until);

static void child(struct arena *a)
{
	if (a->depth >= 2)
		return;
	fflush(stdout);
	pid_t pid = fork();
	if (pid < 0)
		return;
	if (pid > 0) {
		int status;
		pid_t ended;
		while ((ended = waitpid(pid, &status, WUNTRACED)) == pid && WIFSTOPPED(status))
			kill(pid, SIGCONT);
		if (ended != pid || status) {
			printf("thread %d, generation %d: a child ended with %#x\n", a->index, a->depth, status);
			fflush(stdout);
			failed = 1;
		}
		return;
	}
	a->depth++;
	failed = 0;
	if (pipe(a->pipe))
		_exit(9);
	for (size_t n = 0; n < PAGES; n++) {
		struct page *p = &a->pages[n];
		if (p->wiped)
			p->tag = p->lazy = 0;
		p->locked = 0;
	}
	if (roll(a, 4) == 0)
		kill(getpid(), SIGSTOP);
	check_all(a, "after fork");
	if (roll(a, 2))
		work(a, now() + roll(a, 30) / 1000.0);
	if (!failed && roll(a, 8) == 0)
		execl("/bin/true", "true", (char *)0);
	_exit(failed);
}

static void work(struct arena *a, double until)
{
	static void (*const changes[])(struct arena *) = {
		map,  map,	unmap,	 touch,	   touch, touch, touch, touch,	  touch, touch,	 protect,
		move, move,	move,	 discard,  give_free, page_out, by_kernel, by_kernel, lock, wipe, thread, heap,
	};
	while (now() < until && !failed) {
		for (int i = 0; i < 20; i++) {
			changes[roll(a, sizeof changes / sizeof *changes)](a);
			a->ops++;
		}
		if (roll(a, 16) == 0)
			check_all(a, "looked at");
		if (roll(a, 8) == 0)
			child(a);
	}
	check_all(a, "at the end");
}

/* Says where, since nobody looks at cores. */
static void crashed(int signal, siginfo_t *info, void *context)
{
	char line[200];
	ucontext_t *at = context;
	int len = snprintf(line, sizeof line, "signal %d, code %d, address %p, instruction %p (main is at %p)\n",
	                   signal, info->si_code, info->si_addr, (void *)INSTRUCTION(at),
	                   (void *)crashed);
	if (write(1, line, len))
		_exit(139);
	_exit(138);
}

static void *run(void *at)
{
	stack_t stack = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };
	sigaltstack(&stack, 0);
	struct arena *a = at;
	work(a, end);
	return 0;
}

int main(int count, char **words)
{
	if (count < 4)
		return 2;
	struct sigaction action = { .sa_sigaction = crashed, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	sigaction(SIGSEGV, &action, 0);
	sigaction(SIGBUS, &action, 0);
	uint64_t seed = strtoull(words[1], 0, 10);
	end = now() + atof(words[2]);
	int threads = atoi(words[3]);
	struct arena **arenas = calloc(threads, sizeof *arenas);
	pthread_t *ids = calloc(threads, sizeof *ids);
	for (int i = 0; i < threads; i++) {
		struct arena *a = arenas[i] = calloc(1, sizeof **arenas);
		a->index = i;
		a->random = (seed * 1000003 + i) * 0x9e3779b97f4a7c15ull | 1;
		a->at = (char *)(0x200000000000ul + i * 0x100000000ul);
		if (pipe(a->pipe))
			return 9;
	}
	for (int i = 0; i < threads; i++)
		if (pthread_create(&ids[i], 0, run, arenas[i]))
			return 9;
	long ops = 0;
	for (int i = 0; i < threads; i++) {
		pthread_join(ids[i], 0);
		ops += arenas[i]->ops;
	}
	if (!failed)
		printf("every page was right\n");
	fprintf(stderr, "%ld changes\n", ops);
	return failed;
}
