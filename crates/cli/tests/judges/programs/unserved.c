/* A child has a call read its argument from a page that its own userfaultfd would have to bring, and nobody
 * does. The child waits; all others go on.
 *
 * unserved clone3|ioctl|process_madvise
 */
#include "common.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif

static void wait_in(const char *call, int ready) {
    struct uffdio_api api = {.api = UFFD_API};
    int faults = syscall(SYS_userfaultfd, O_CLOEXEC);
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api)) _exit(MISSING);
    char *page = map(4 * PAGE);
    struct uffdio_register range = {
        .range = {(uint64_t)page, 4 * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (ioctl(faults, UFFDIO_REGISTER, &range) || write(ready, "", 1) != 1) _exit(MISSING);
    if (!strcmp(call, "clone3")) syscall(SYS_clone3, page, 88);
    if (!strcmp(call, "ioctl")) ioctl(faults, UFFDIO_REGISTER, page);
    if (!strcmp(call, "process_madvise")) {
        int own = syscall(SYS_pidfd_open, getpid(), 0);
        syscall(SYS_process_madvise, own, page, 1, 102 /* MADV_GUARD_INSTALL */, 0);
    }
    _exit(9);
}

int main(int argc, char **argv) {
    int ready[2], status = 0;
    char byte;
    if (argc != 2 || pipe(ready)) return 2;
    pid_t waiting = fork();
    if (waiting == 0) wait_in(argv[1], ready[1]);
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1) {
        waitpid(waiting, &status, 0);
        errno = EPERM;
        missing("a userfaultfd for faults of the kernel, which needs root");
    }
    // Until it waits.
    milliseconds(300);
    int right = press(24);
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        right &= waitpid(child, &status, 0) == child && status == 0;
    }
    right &= waitpid(waiting, &status, WNOHANG) == 0;
    kill(waiting, SIGKILL);
    waitpid(waiting, &status, 0);
    return verdict(right);
}
