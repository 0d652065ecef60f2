/* Threads end while they hold robust mutexes, whose pages have left by then. Who wants one next must be told
 * so. With `pi` others wait for them already, and what they wait for has priority inheritance.
 *
 * robust later|pi MIB
 */
#include "common.h"
#include <stdatomic.h>

#define COUNT 32
#define STACK (256 << 10)

static struct {
    pthread_mutex_t mutex;
} __attribute__((aligned(4096))) pages[COUNT];
static atomic_int held, begun, end, told;

static void *owner(void *number) {
    if (pthread_mutex_lock(&pages[(long)number].mutex)) return NULL;
    held++;
    while (!end) milliseconds(10);
    // Only the kernel is left to say that the mutex is free.
    syscall(SYS_exit, 0);
    return NULL;
}

static void *waiter(void *number) {
    begun++;
    if (pthread_mutex_lock(&pages[(long)number].mutex) == EOWNERDEAD) told++;
    return NULL;
}

static void start(void *(*body)(void *), pthread_t *threads) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    for (long number = 0; number < COUNT; number++)
        if (pthread_create(&threads[number], &attributes, body, (void *)number))
            missing("pthread_create");
}

int main(int argc, char **argv) {
    int pi = !strcmp(argv[1], "pi"), right;
    pthread_t owners[COUNT], waiters[COUNT];
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    if (pi) pthread_mutexattr_setprotocol(&kind, PTHREAD_PRIO_INHERIT);
    for (int number = 0; number < COUNT; number++) pthread_mutex_init(&pages[number].mutex, &kind);
    start(owner, owners);
    while (held < COUNT) milliseconds(1);
    if (pi) {
        start(waiter, waiters);
        while (begun < COUNT) milliseconds(1);
        // They are about to wait.
        milliseconds(100);
    }
    right = press(argc > 2 ? atoi(argv[2]) : 1);
    end = 1;
    for (int number = 0; number < COUNT; number++) pthread_join(owners[number], NULL);
    if (!pi) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 5;
        for (int number = 0; number < COUNT; number++)
            told += pthread_mutex_timedlock(&pages[number].mutex, &until) == EOWNERDEAD;
    }
    for (int tenths = 0; told < COUNT && tenths < 50; tenths++) milliseconds(100);
    if (told < COUNT) printf("%d of %d were told that the owner is dead\n", told, COUNT);
    return verdict(right && told == COUNT);
}
