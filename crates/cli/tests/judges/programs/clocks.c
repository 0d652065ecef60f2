/* Enters the namespace of clocks that it has made for its children: the kernel lets a process do so whose
 * memory is its own.
 */
#include "common.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

int main(void) {
    if (unshare(CLONE_NEWTIME)) missing("unshare(CLONE_NEWTIME), which needs root");
    int own = open("/proc/self/ns/time_for_children", O_RDONLY | O_CLOEXEC);
    if (own < 0) missing("/proc/self/ns/time_for_children");
    if (setns(own, CLONE_NEWTIME)) {
        printf("setns: %s\n", strerror(errno));
        return verdict(0);
    }
    return verdict(1);
}
