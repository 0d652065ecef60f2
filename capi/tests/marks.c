/* Whatever could take the protection of a region's pages away, or write to them by another way than a
 * thread's own, at once: mprotect, advice, merging, forks, process_vm_writev and io_uring, while threads
 * check each value that they read. marks [SECONDS [SEED]] */
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "check.h"

enum { PAGE = 4096, PAGES = 1024, THREADS = 2, RESIDENT = 1 << 20 };
enum { MERGE = 67, COLD = 20, PAGEOUT = 21, WRITE_ALL = 23 };

typedef _Atomic uint64_t word;

/* A ring of one request. */
struct ring {
    int fd;
    uint8_t *sq, *cq;
    struct io_uring_sqe *sqes;
    struct io_uring_params at;
};

static zfold_region *region;
static uint8_t *memory;
static atomic_int stop;
static time_t ends;

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

/* The number of a thread in a page. Those of four pages are equal at first. */
static word *number(uint64_t page, uint64_t thread) {
    return (word *)(void *)(memory + page * PAGE) + thread;
}

static int ring_open(struct ring *ring) {
    const int access = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
    struct io_uring_params *at = &ring->at;
    memset(at, 0, sizeof *at);
    ring->fd = (int)syscall(SYS_io_uring_setup, 2, at);
    if (ring->fd < 0) return 0;
    ring->sq = mmap(NULL, at->sq_off.array + at->sq_entries * 4, access, flags, ring->fd, IORING_OFF_SQ_RING);
    ring->cq = mmap(NULL, at->cq_off.cqes + at->cq_entries * sizeof(struct io_uring_cqe), access, flags,
                    ring->fd, IORING_OFF_CQ_RING);
    ring->sqes = mmap(NULL, at->sq_entries * sizeof *ring->sqes, access, flags, ring->fd, IORING_OFF_SQES);
    CHECK(ring->sq != MAP_FAILED && ring->cq != MAP_FAILED && ring->sqes != MAP_FAILED);
    return 1;
}

/* Has the kernel read eight bytes from the start of a file to an address; returns how many. */
static int ring_read(struct ring *ring, int file, void *to) {
    struct io_uring_sqe *sqe = ring->sqes;
    _Atomic uint32_t *tail = (void *)(ring->sq + ring->at.sq_off.tail);
    _Atomic uint32_t *head = (void *)(ring->cq + ring->at.cq_off.head);
    uint32_t mask = ring->at.sq_entries - 1, at = *tail & mask;
    struct io_uring_cqe *cqes = (void *)(ring->cq + ring->at.cq_off.cqes);
    int result;
    sqe += at;
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = IORING_OP_READ, sqe->fd = file, sqe->addr = (uintptr_t)to, sqe->len = 8;
    ((uint32_t *)(void *)(ring->sq + ring->at.sq_off.array))[at] = at;
    (*tail)++;
    while (syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0) {
    }
    result = cqes[*head & (ring->at.cq_entries - 1)].res;
    (*head)++;
    return result;
}

/* Writes a value by one of three ways; by a thread's own if the other finds a page missing. */
static void put(word *to, uint64_t value, uint64_t how, struct ring *ring, int file) {
    struct iovec from = {&value, 8}, into = {(void *)to, 8};
    if (how == 0 && process_vm_writev(getpid(), &from, 1, &into, 1, 0) == 8) return;
    if (how == 1 && ring->fd >= 0) {
        CHECK(pwrite(file, &value, 8, 0) == 8);
        if (ring_read(ring, file, (void *)to) == 8) return;
    }
    *to = value;
}

static void *work(void *seed) {
    uint64_t state = (uintptr_t)seed, thread = state % THREADS, page, n;
    uint64_t *known = malloc(PAGES * sizeof *known);
    int file = memfd_create("numbers", MFD_CLOEXEC);
    struct ring ring;
    CHECK(known != NULL && file >= 0);
    ring_open(&ring);
    for (page = 0; page < PAGES; page++) known[page] = *number(page, thread);
    while (!stop) {
        for (page = 0; page < PAGES; page++) CHECK(*number(page, thread) == known[page]);
        usleep((useconds_t)(next(&state) % 10000));
        for (n = next(&state) % 200; n > 0; n--) {
            page = next(&state) % PAGES;
            CHECK(*number(page, thread) == known[page]);
            known[page] += 1 + next(&state) % 3;
            put(number(page, thread), known[page], next(&state) % 4, &ring, file);
        }
    }
    for (page = 0; page < PAGES; page++) CHECK(*number(page, thread) == known[page]);
    if (ring.fd >= 0) close(ring.fd);
    close(file);
    free(known);
    return NULL;
}

/* Does one thing that could change marks, and no contents. */
static void disturb(uint64_t *state) {
    static const int advice[] = {COLD, PAGEOUT, WRITE_ALL, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_MERGEABLE};
    uint64_t first = next(state) % PAGES, pages = 1 + next(state) % (PAGES - first);
    uint8_t *at = memory + first * PAGE;
    pid_t child;
    switch (next(state) % 8) {
    case 0: (void)madvise(at, pages * PAGE, advice[next(state) % 6]); break;
    case 1:
        (void)mprotect(at, pages * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
        (void)mprotect(at, pages * PAGE, PROT_READ | PROT_WRITE);
        break;
    case 2: CHECK(zfold_region_pageout(region, first * PAGE, pages * PAGE) == 0); break;
    case 3:
        child = fork();
        CHECK(child >= 0);
        if (child == 0) _exit(zfold_region_pointer(region) != NULL);
        CHECK(waitpid(child, &(int){0}, 0) == child);
        break;
    case 4: (void)prctl(MERGE, 1, 0, 0, 0); break;
    default: usleep((useconds_t)(next(state) % 10000));
    }
}

static void round_of(uint64_t seed, int by_threads) {
    pthread_t threads[THREADS];
    uint64_t n, state = seed;
    time_t until = time(NULL) + 2;
    if (zfold_region_new(PAGES * PAGE, RESIDENT, "lz4", by_threads, &region) != 0) {
        CHECK(by_threads);
        return;
    }
    memory = zfold_region_pointer(region);
    for (n = 0; n < PAGES * THREADS; n++) *number(n / THREADS, n % THREADS) = n / THREADS / 4;
    stop = 0;
    for (n = 0; n < THREADS; n++) {
        void *own = (void *)(uintptr_t)(next(&state) / THREADS * THREADS + n);
        CHECK(pthread_create(&threads[n], NULL, work, own) == 0);
    }
    while (time(NULL) < until && time(NULL) < ends) disturb(&state);
    stop = 1;
    for (n = 0; n < THREADS; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    zfold_region_free(region);
}

int main(int count, char **arguments) {
    uint64_t rounds, seed = count > 2 ? strtoull(arguments[2], NULL, 10) : (uint64_t)getpid();
    ends = time(NULL) + (count > 1 ? atoi(arguments[1]) : 2);
    for (rounds = 0; time(NULL) < ends || rounds < 2; rounds++) {
        round_of((seed << 20 | rounds << 2) + 1, rounds % 4 == 3);
    }
    printf("seed %llu: %llu rounds\n", (unsigned long long)seed, (unsigned long long)rounds);
    return 0;
}
