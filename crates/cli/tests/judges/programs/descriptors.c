/* A process that may not have the kernel's own faults told takes the descriptors of all who share its memory:
 * such as one by which they are told.
 */
#include "helper.h"
#include <dirent.h>

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

/* Which processes have the same memory: kcmp's KCMP_VM. */
static int shares_memory(pid_t process) {
    return process != getpid() && syscall(SYS_kcmp, getpid(), process, 1, 0, 0) == 0;
}

int main(int argc, char **argv) {
    int taken = 0, shared = 0;
    (void)argc;
    if (getuid() == 0) {
        // Its helper has the rights that it begins with.
        drop_rights();
        execv("/proc/self/exe", argv);
        missing("exec");
    }
    begin();
    char *memory = map(256 * PAGE);
    page_out(memory, 256 * PAGE);
    DIR *all = opendir("/proc");
    for (struct dirent *entry; (entry = readdir(all));) {
        pid_t process = atoi(entry->d_name);
        if (process <= 0 || !shares_memory(process)) continue;
        shared++;
        int handle = syscall(SYS_pidfd_open, process, 0);
        for (int number = 0; number < 16; number++) {
            int got = syscall(SYS_pidfd_getfd, handle, number, 0);
            char path[64], link[64] = "";
            if (got < 0) continue;
            taken++;
            sprintf(path, "/proc/self/fd/%d", got);
            if (readlink(path, link, sizeof link - 1) < 0) link[0] = 0;
            printf("descriptor %d of process %d: %s\n", number, process, link);
        }
    }
    printf("%d share this memory, %d descriptors taken\n", shared, taken);
    return verdict(taken == 0);
}
