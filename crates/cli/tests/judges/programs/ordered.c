/* Threads that share memory in order. Built with ThreadSanitizer, which reserves most addresses before main
 * and refuses mappings that it does not expect.
 *
 * ordered MIB
 */
#include "common.h"

#define THREADS 4

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static char *memory;
static size_t bytes, bad;

static void *use(void *argument) {
    unsigned tag = (unsigned)(uintptr_t)argument;
    for (int round = 0; round < 2; round++) {
        pthread_mutex_lock(&turn);
        fill(memory, bytes, tag);
        bad += wrong(memory, bytes, tag);
        pthread_mutex_unlock(&turn);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    bytes = (argc > 1 ? atoi(argv[1]) : 1) * MIB;
    memory = map(bytes);
    for (uintptr_t number = 0; number < THREADS; number++)
        if (pthread_create(&threads[number], NULL, use, (void *)number)) missing("pthread_create");
    for (int number = 0; number < THREADS; number++) pthread_join(threads[number], NULL);
    return verdict(bad == 0);
}
