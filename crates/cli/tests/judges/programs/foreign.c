/* Executes so many programs of 32 bits, one after the other, each by another name: none of them can be managed.
 * It begins with a line, and waits for one, or for the end of its input.
 *
 * foreign COUNT
 */
#include "common.h"
#include <elf.h>
#include <stddef.h>

/* exit(0) of a program of 32 bits */
static const unsigned char CODE[] = {0x31, 0xdb, 0x31, 0xc0, 0x40, 0xcd, 0x80};

struct program {
    Elf32_Ehdr head;
    Elf32_Phdr segment;
    unsigned char code[sizeof CODE];
};

#define AT 0x10000

static void make(const char *path) {
    struct program program = {
        .head = {.e_type = ET_EXEC, .e_machine = EM_386, .e_version = EV_CURRENT,
                 .e_entry = AT + offsetof(struct program, code),
                 .e_phoff = offsetof(struct program, segment), .e_ehsize = sizeof(Elf32_Ehdr),
                 .e_phentsize = sizeof(Elf32_Phdr), .e_phnum = 1},
        .segment = {.p_type = PT_LOAD, .p_vaddr = AT, .p_paddr = AT, .p_flags = PF_R | PF_X,
                    .p_filesz = sizeof program, .p_memsz = sizeof program, .p_align = 4096},
    };
    memcpy(program.head.e_ident, ELFMAG, SELFMAG);
    program.head.e_ident[EI_CLASS] = ELFCLASS32;
    program.head.e_ident[EI_DATA] = ELFDATA2LSB;
    program.head.e_ident[EI_VERSION] = EV_CURRENT;
    memcpy(program.code, CODE, sizeof CODE);
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    if (file < 0 || write(file, &program, sizeof program) != sizeof program) missing(path);
    close(file);
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 1, bad = 0, status;
    char own[512] = "", path[600], line[16];
    if (readlink("/proc/self/exe", own, sizeof own - 1) < 0) missing("/proc/self/exe");
    // Where this program lies, which goes with it.
    *strrchr(own, '/') = 0;
    puts("ready");
    fflush(stdout);
    if (read(STDIN_FILENO, line, sizeof line) < 0) return 2;
    for (int number = 0; number < count; number++) {
        snprintf(path, sizeof path, "%s/%d", own, number);
        make(path);
        pid_t child = fork();
        if (child == 0) {
            execl(path, path, NULL);
            _exit(MISSING);
        }
        waitpid(child, &status, 0);
        unlink(path);
        if (number == 0 && status == MISSING << 8) missing("programs of 32 bits");
        if (status && bad++ == 0) printf("a program of 32 bits: status %x\n", status);
    }
    puts("done");
    return verdict(bad == 0);
}
