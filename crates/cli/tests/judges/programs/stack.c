/* Recurses deeply on the stack of the main thread. A child that is made at the bottom comes back as its parent does.
 * What lies on the way is right, and whoever looks at the arguments and the environment finds them, though the
 * stack that they lie on leaves.
 *
 * stack MIB
 */
#include "common.h"
#include <sys/resource.h>

#define FRAME (16 * 1024)

static char seen[2][65536];
static ssize_t length[2];

/* Reads what others see of the arguments and of the environment. */
static ssize_t look(int which, char *into) {
    int file = open(which ? "/proc/self/environ" : "/proc/self/cmdline", O_RDONLY);
    ssize_t bytes = file < 0 ? -1 : read(file, into, sizeof seen[0]);
    close(file);
    return bytes;
}

/* Returns whether they are still what they were. */
static int is_seen(void) {
    static char now[sizeof seen[0]];
    int right = 1;
    for (int which = 0; which < 2; which++)
        right &= look(which, now) == length[which] && !memcmp(now, seen[which], length[which]);
    return right;
}

/* Returns how many words were wrong on the way back. */
static size_t deep(int frames, pid_t *child) {
    char frame[FRAME];
    fill(frame, FRAME, frames);
    size_t bad = 0;
    if (frames > 0) {
        bad = deep(frames - 1, child);
    } else {
        bad = !is_seen();
        fflush(stdout);
        *child = fork();
        bad += *child < 0;
    }
    return bad + wrong(frame, FRAME, frames);
}

int main(int argc, char **argv) {
    int mib = argc > 1 ? atoi(argv[1]) : 4, status = 1;
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit)) missing("getrlimit");
    limit.rlim_cur = (mib + 4) * MIB;
    if (setrlimit(RLIMIT_STACK, &limit)) missing("a deep stack");
    for (int which = 0; which < 2; which++)
        if ((length[which] = look(which, seen[which])) <= 0) missing("/proc");
    pid_t child;
    size_t bad = deep(mib * MIB / FRAME, &child);
    if (child == 0) _exit(bad != 0 || !is_seen());
    bad += !press(8) + !is_seen();
    bad += waitpid(child, &status, 0) != child || status != 0;
    return verdict(bad == 0);
}
