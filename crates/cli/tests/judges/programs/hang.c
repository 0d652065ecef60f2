/* A process that is not root any more spoils its helper, or is frozen with it. Its parent, which is root and
 * has nothing to do with that, needs more memory than there is, and gets it.
 *
 * hang PAGE spin|exit|unmap SECONDS: so long it may take at most
 * hang PAGE freeze FOLDER FILE FROZEN THAWED: a control group, its file, and what to write there
 */
#include "helper.h"

#define BYTES (24 * MIB)

/* exit_group(0) */
static const unsigned char EXIT[] = {0xb8, 231, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05};
/* jmp to itself */
static const unsigned char SPIN[] = {0xeb, 0xfe};

/* Has the helper execute other code when the next of its calls returns. */
static void spoil(unsigned char *page, const unsigned char *code, size_t len) {
    size_t ends[16], count = 0;
    for (size_t end = call_end(page, 0); end && count < 16; end = call_end(page, end))
        if (!traps(page + end)) ends[count++] = end;
    open_page(page);
    while (count-- > 0) memcpy(page + ends[count], code, len);
}

/* Takes away what the helper has beside its page. */
static void unmap_rest(unsigned char *page) {
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long start, end, all[16][2];
    int count = 0;
    char line[512];
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx", &start, &end) == 2 && start > (unsigned long)page &&
            start < (unsigned long)page + 64 * MIB && count < 16)
            all[count][0] = start, all[count++][1] = end;
    fclose(maps);
    while (count-- > 0) munmap((void *)all[count][0], all[count][1] - all[count][0]);
}

static void spoiler(unsigned char *page, const char *how, int ready) {
    size_t bytes = 512 * PAGE;
    char *memory = map(bytes);
    page_out(memory, bytes);
    drop_rights();
    if (!strcmp(how, "spin")) spoil(page, SPIN, sizeof SPIN);
    if (!strcmp(how, "exit")) spoil(page, EXIT, sizeof EXIT);
    if (!strcmp(how, "unmap")) unmap_rest(page);
    if (write(ready, "", 1) != 1) _exit(9);
    for (;;) {
        for (size_t at = 0; at < bytes; at += PAGE) memory[at]++;
        milliseconds(20);
    }
}

static void tell(const char *folder, const char *file, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    int to = open(path, O_WRONLY | O_CLOEXEC);
    if (to < 0 || write(to, text, strlen(text)) < 0) missing(path);
    close(to);
}

/* Enters the control group, and executes this program again there, so that its helper is there, too. */
static void enter(char **argv, int ready) {
    char number[16];
    sprintf(number, "%d", getpid());
    tell(argv[3], "cgroup.procs", number);
    sprintf(number, "%d", ready);
    execl("/proc/self/exe", argv[0], argv[1], number, NULL);
    missing("exec");
}

/* Uses memory without an end. */
static void to_be_frozen(int ready) {
    size_t bytes = 10 * MIB;
    char *memory = map(bytes);
    fill(memory, bytes, 0);
    if (write(ready, "", 1) != 1) _exit(9);
    for (unsigned round = 0;; round++) fill(memory, bytes, round);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    // It was executed again, with what it tells that it is ready.
    if (atoi(argv[2]) > 0) to_be_frozen(atoi(argv[2]));
    begin();
    int ready[2], right = 1, freezes = argc == 7;
    char byte;
    if (pipe(ready)) missing("pipe");
    pid_t other = fork();
    if (other == 0) {
        close(ready[0]);
        if (freezes) enter(argv, ready[1]);
        spoiler(helper_page(argv[1]), argv[2], ready[1]);
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1) return verdict(1);
    if (freezes) tell(argv[3], argv[4], argv[5]);
    // So that it has been asked for something.
    milliseconds(300);
    char *memory = map(BYTES);
    // For some seconds: a run that is to end does so then.
    for (unsigned round = 0; round < 12; round++) {
        time_t began = time(NULL);
        fill(memory, BYTES, round);
        right &= wrong(memory, BYTES, round) == 0;
        right &= freezes || time(NULL) - began < atoi(argv[3]);
        milliseconds(250);
    }
    kill(other, SIGKILL);
    if (freezes) tell(argv[3], argv[4], argv[6]);
    waitpid(other, NULL, 0);
    return verdict(right);
}
