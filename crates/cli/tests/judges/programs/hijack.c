/* A program that was root changes the code of its helper, which still is. The helper then makes calls for it,
 * and goes on as before.
 *
 * hijack PAGE file PATH             it makes a file where only root may
 * hijack PAGE filtered PATH         the same, of a program under a filter of its own that allows no open
 * hijack PAGE signal PROCESS        its socket is to send SIGIO to that process
 */
#include "helper.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>

/* Makes two calls, and goes on where a system call of the helper returned to. */
__asm__(".text\n"
        "hook:\n"
        "mov %rax, hook_data(%rip)\n"
        "mov %rdi, hook_data+8(%rip)\n"
        "mov %rsi, hook_data+16(%rip)\n"
        "mov %rdx, hook_data+24(%rip)\n"
        "mov hook_data+40(%rip), %rax\n"
        "mov hook_data+48(%rip), %rdi\n"
        "mov hook_data+56(%rip), %rsi\n"
        "mov hook_data+64(%rip), %rdx\n"
        "syscall\n"
        "mov %rax, hook_data+40(%rip)\n"
        "mov hook_data+72(%rip), %rax\n"
        "mov hook_data+80(%rip), %rdi\n"
        "mov hook_data+88(%rip), %rsi\n"
        "mov hook_data+96(%rip), %rdx\n"
        "syscall\n"
        "mov %rax, hook_data+72(%rip)\n"
        "mov hook_data(%rip), %rax\n"
        "mov hook_data+8(%rip), %rdi\n"
        "mov hook_data+16(%rip), %rsi\n"
        "mov hook_data+24(%rip), %rdx\n"
        "jmp *hook_data+32(%rip)\n"
        ".balign 8\n"
        "hook_data: .fill 13, 8, 0\n"
        "hook_end:\n");
extern const unsigned char hook[], hook_data[], hook_end[];

/* The number of a call, and then its result; and its arguments. */
struct call {
    long number, first, second, third;
};

struct data {
    long saved[4], back;
    struct call calls[2];
};

#define COPY 1024
#define HOOKS 1600
#define HOOK_BYTES 384
#define TEXT 3800

/* Has the helper make the calls when the next of its own returns; returns what the hooks work with. */
static int patch(unsigned char *page, const struct call calls[2], struct data *all[]) {
    int count = 0;
    memcpy(page + COPY, page, CODE);
    for (size_t end = call_end(page, 0); end; end = call_end(page, end)) {
        unsigned char *own = page + HOOKS + count * HOOK_BYTES;
        if (traps(page + end) || count == 5) continue;
        memcpy(own, hook, hook_end - hook);
        struct data *data = (struct data *)(own + (hook_data - hook));
        data->back = (long)(page + COPY + end);
        memcpy(data->calls, calls, sizeof data->calls);
        all[count++] = data;
        int distance = own - (page + end + 5);
        page[end] = 0xe9;
        memcpy(page + end + 1, &distance, 4);
    }
    return count;
}

/* Executes this program again under a filter that forbids the ways to open a file. */
static void forbid_open(char **argv) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_open, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_creat, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program))
        missing("a filter of system calls");
    argv[2] = "file";
    execv("/proc/self/exe", argv);
    missing("exec");
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    if (!strcmp(argv[2], "filtered")) forbid_open(argv);
    begin();
    size_t bytes = 256 * PAGE;
    char *memory = map(bytes);
    unsigned char *page = helper_page(argv[1]);
    struct data *hooks[8];
    page_out(memory, bytes);
    drop_rights();
    open_page(page);
    char *text = (char *)page + TEXT;
    struct call calls[2] = {{SYS_getpid, 0, 0, 0}, {SYS_getpid, 0, 0, 0}};
    if (!strcmp(argv[2], "file")) {
        strncpy(text, argv[3], PAGE - TEXT - 1);
        calls[0] = (struct call){SYS_open, (long)text, O_CREAT | O_WRONLY, 0600};
    } else {
        int numbers[2] = {atoi(argv[3]), 1};
        memcpy(text, numbers, sizeof numbers);
        calls[0] = (struct call){SYS_ioctl, 0, 0x8901 /* FIOSETOWN */, (long)text};
        calls[1] = (struct call){SYS_ioctl, 0, FIOASYNC, (long)(text + sizeof(int))};
    }
    int count = patch(page, calls, hooks), made = 0;
    for (int round = 0; round < 20; round++) {
        page_out(memory, bytes);
        milliseconds(20);
    }
    for (int one = 0; one < count; one++) made += hooks[one]->saved[0] != 0;
    printf("%d hooks, %d reached: results %ld and %ld\n", count, made, hooks[0]->calls[0].number,
           hooks[0]->calls[1].number);
    return 0;
}
