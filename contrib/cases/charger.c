// charger GROUP LIMIT DEVICE: charges what zram holds to a control group of version 1, as version 2 does
// with zswap: keeps the limit of GROUP at LIMIT bytes less what /sys/block/DEVICE holds, about 3,000 times a
// second. Never below what the group uses at that moment: so the group's own tasks free memory at their next
// page, and not this program for them. Ends when the group is gone.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, HELD = 2, PAUSE_NS = 300 * 1000 };

static int opened(const char *folder, const char *name, int how) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, how | O_CLOEXEC);
    if (file < 0) {
        perror(path);
        exit(1);
    }
    return file;
}

// Returns one of the numbers in a file; -1 if it is gone.
static long long number(int file, int which) {
    char text[512];
    ssize_t len = pread(file, text, sizeof text - 1, 0);
    if (len <= 0)
        return -1;
    text[len] = 0;
    char *at = text;
    long long value = 0;
    for (int n = 0; n <= which; n++)
        value = strtoll(at, &at, 10);
    return value;
}

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "charger GROUP LIMIT DEVICE\n");
        return 2;
    }
    char device[256];
    snprintf(device, sizeof device, "/sys/block/%s", words[3]);
    int usage = opened(words[1], "memory.usage_in_bytes", O_RDONLY);
    int limit = opened(words[1], "memory.limit_in_bytes", O_WRONLY);
    int zram = opened(device, "mm_stat", O_RDONLY);
    long long all = atoll(words[2]), last = -1;
    for (;;) {
        long long held = number(zram, HELD), used = number(usage, 0);
        if (held < 0 || used < 0)
            return 0;
        long long left = all - held < used ? used : all - held;
        left = (left + PAGE - 1) / PAGE * PAGE;
        char text[32];
        int len = snprintf(text, sizeof text, "%lld\n", left);
        // More than before may be used by now; then it is tried again.
        if (left != last && pwrite(limit, text, len, 0) == len)
            last = left;
        struct timespec pause = {0, PAUSE_NS};
        nanosleep(&pause, NULL);
    }
}
