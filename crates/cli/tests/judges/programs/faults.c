/* A program that handles page faults itself (userfaultfd), and fills what is missing in one range by moving pages
 * there from another. The kernel may ask to try again, and then something must have moved sooner or later.
 *
 * faults MIB
 */
#include "common.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

/* Newer than the headers of some systems. */
struct move {
    uint64_t dst, src, len, mode;
    int64_t moved;
};
#define MOVE _IOWR(UFFDIO, 0x05, struct move)

#define PIECE (256 * PAGE)
#define TRIES 1000

int main(int argc, char **argv) {
    size_t bytes = argc > 1 ? atoi(argv[1]) * MIB : MIB, bad = 0;
    struct uffdio_api api = {.api = UFFD_API};
    int faults = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (faults < 0 || ioctl(faults, UFFDIO_API, &api)) missing("userfaultfd");
    char *from = map(bytes), *to = map(bytes);
    struct uffdio_register range = {
        .range = {(uint64_t)to, bytes}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (ioctl(faults, UFFDIO_REGISTER, &range)) missing("UFFDIO_REGISTER");
    for (unsigned round = 0; round < 2; round++) {
        fill(from, bytes, round);
        for (size_t at = 0, tries = 0; at < bytes && tries < TRIES;) {
            size_t len = bytes - at < PIECE ? bytes - at : PIECE;
            struct move move = {(uint64_t)to + at, (uint64_t)from + at, len, 0, 0};
            int failed = ioctl(faults, MOVE, &move) ? errno : 0;
            if (failed == EINVAL) missing("UFFDIO_MOVE, which needs Linux 6.8");
            if (move.moved > 0) {
                at += move.moved;
                tries = 0;
            } else if (failed == EAGAIN) {
                tries++;
            } else {
                printf("round %u: %zu MiB: UFFDIO_MOVE: %s\n", round, at / MIB, strerror(failed));
                return verdict(0);
            }
            if (tries == TRIES) {
                printf("round %u: nothing moves at %zu MiB\n", round, at / MIB);
                return verdict(0);
            }
        }
        bad += wrong(to, bytes, round);
        madvise(to, bytes, MADV_DONTNEED);
    }
    return verdict(bad == 0);
}
