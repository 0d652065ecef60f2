/* A process that has joined its only other thread may have a namespace of users, which the kernel refuses to
 * those that have threads. A thread can be there for a moment after its join, also alone: of some hundred
 * rounds one may fail, but not one in fifty.
 */
#include "common.h"

#define ROUNDS 400

static void *nothing(void *argument) {
    // Others wait for its end by then.
    milliseconds(1);
    return argument;
}

int main(void) {
    int refused = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            pthread_t thread;
            if (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL)) _exit(9);
            _exit(unshare(CLONE_NEWUSER) ? errno : 0);
        }
        if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return verdict(0);
        errno = WEXITSTATUS(status);
        if (errno && errno != EINVAL) missing("unshare(CLONE_NEWUSER)");
        refused += errno == EINVAL;
    }
    if (refused * 50 > ROUNDS) printf("refused %d times of %d\n", refused, ROUNDS);
    return verdict(refused * 50 <= ROUNDS);
}
