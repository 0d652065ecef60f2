/* Makes 14 MiB and has 60 children at once, which check some of it when all are there. */
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 3584, CHILDREN = 60 };

static unsigned char *pages;

/* Returns whether every so manyth page is right. */
static int right(int step) {
    for (int page = 0; page < PAGES; page += step)
        for (int at = 0; at < PAGE; at += 512)
            if (pages[page * PAGE + at] != (unsigned char)(page + at / 512)) return 0;
    return 1;
}

int main(void) {
    int gate[2], wrong = 0, status;
    char byte;
    struct rlimit limit;
    pages = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || pipe(gate)) return 2;
    for (int page = 0; page < PAGES; page++)
        for (int at = 0; at < PAGE; at += 512)
            pages[page * PAGE + at] = (unsigned char)(page + at / 512);
    for (int child = 0; child < CHILDREN; child++) {
        pid_t pid = fork();
        if (pid < 0) return perror("fork"), 2;
        if (pid == 0) {
            close(gate[1]);
            if (read(gate[0], &byte, 1) != 0) _exit(3);
            _exit(!right(64));
        }
    }
    close(gate[1]);
    for (int child = 0; child < CHILDREN; child++) {
        if (wait(&status) < 0) return perror("wait"), 2;
        wrong += status != 0;
    }
    getrlimit(RLIMIT_NOFILE, &limit);
    printf("%d wrong, %s, %d descriptors\n", wrong, right(1) ? "right" : "WRONG", (int)limit.rlim_cur);
    return wrong > 0;
}
