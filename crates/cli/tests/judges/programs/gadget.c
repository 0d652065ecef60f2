/* Calls that the helper's page makes pass the filter of the run. A program that jumps there itself makes a child
 * that nobody traces; what that maps must be as it is alone.
 *
 * gadget PAGE
 */
#include "helper.h"
#include <ucontext.h>

#ifndef CLONE_UNTRACED
#define CLONE_UNTRACED 0x00800000
#endif

/* Goes on where the call was to return to, which is in r15. */
static void trapped(int signal, siginfo_t *info, void *of) {
    ucontext_t *context = of;
    (void)signal, (void)info;
    context->uc_mcontext.gregs[REG_RIP] = context->uc_mcontext.gregs[REG_R15];
}

static long call_from(const unsigned char *at, long number, long first) {
    long result;
    register const void *r10 __asm__("r10") = NULL;
    __asm__ volatile("lea 1f(%%rip), %%r15\n"
                     "jmp *%[at]\n"
                     "1:\n"
                     : "=a"(result)
                     : "a"(number), "D"(first), "S"(0L), "d"(0L), "r"(r10), [at] "b"(at)
                     : "rcx", "r11", "r15", "r8", "r9", "memory");
    return result;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGILL, &action, NULL);
    sigaction(SIGTRAP, &action, NULL);
    // In a child, where the page is not.
    sigaction(SIGSEGV, &action, NULL);
    begin();
    char *memory = map(256 * PAGE);
    page_out(memory, 256 * PAGE);
    unsigned char *page = helper_page(argv[1]);
    size_t end = call_end(page, 0);
    while (end && !traps(page + end)) end = call_end(page, end);
    if (!end) return puts("no such instruction in its page"), 0;
    long child = call_from(page + end - 2, SYS_clone, CLONE_UNTRACED | SIGCHLD);
    if (child == 0) {
        if (mremap(memory, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED) _exit(1);
        _exit(fork() < 0 ? 2 : 0);
    }
    int status = 0;
    if (child < 0) return printf("clone from its page: %s\n", strerror(-child)), 0;
    if (waitpid(child, &status, __WALL) != child) return puts("no child"), 0;
    if (status) printf("the child's status: %x\n", status);
    return verdict(!WIFEXITED(status) || status == 0);
}
