// A guest without an operating system, for VMMs that start a kernel by PVH. It runs in ring 3, fills
// memory, and checks every word of it, as it is told by bytes at the serial port:
// f: fills all pages; w: writes every third page anew; c: compares all of them.
//
// gcc -m64 -nostdlib -static -ffreestanding -fno-pie -no-pie -mno-red-zone -Ttext=0x100000

// Pages of the memory that it fills, from 16 to 112 MiB of 128.
enum { FIRST = 16 << 8, END = 112 << 8, WORDS = 4096 / 8 };

__asm__(".section .note.pvh, \"a\", @note\n"
        ".balign 4\n"
        ".long 4, 4, 18\n" // The entry in 32 bits.
        ".asciz \"Xen\"\n"
        ".long entry\n"

        ".section .text.entry, \"ax\"\n"
        ".code32\n"
        ".globl entry\n"
        "entry: mov $stack, %esp\n"
        "mov $descriptors, %eax\n"
        "lgdt (%eax)\n"
        "mov %cr4, %eax\n"
        "or $0x620, %eax\n" // PAE, and SSE.
        "mov %eax, %cr4\n"
        "mov $directory, %eax\n"
        "mov %eax, %cr3\n"
        "mov $0xc0000080, %ecx\n" // Long mode.
        "rdmsr\n"
        "or $0x100, %eax\n"
        "wrmsr\n"
        "mov %cr0, %eax\n"
        "or $0x80000001, %eax\n"
        "mov %eax, %cr0\n"
        "ljmp $16, $long\n"
        ".code64\n"
        "long: mov $task, %eax\n" // All ports are permitted to ring 3.
        "mov %ax, table + 66\n"
        "shr $16, %eax\n"
        "mov %al, table + 68\n"
        "mov %ah, table + 71\n"
        "mov $64, %ax\n"
        "ltr %ax\n"
        "mov %rsp, %rax\n"
        "pushq $0x2b\n"
        "pushq %rax\n"
        "pushq $2\n"
        "pushq $0x33\n"
        "pushq $run\n"
        "iretq\n"

        ".data\n"
        ".balign 8\n"
        "table: .quad 0, 0, 0x00af9b000000ffff, 0x00cf93000000ffff\n"
        ".quad 0x00cffb000000ffff, 0x00cff3000000ffff, 0x00affb000000ffff, 0\n"
        ".quad 0x0000890000002068, 0\n"
        "descriptors: .word 79\n"
        ".long table\n"
        ".balign 4096\n"
        "directory: .quad pointers + 7\n"
        ".fill 511, 8, 0\n"
        "pointers: .quad places + 7\n"
        ".fill 511, 8, 0\n"
        "places: .set at, 0x87\n"
        ".rept 64\n"
        ".quad at\n"
        ".set at, at + 0x200000\n"
        ".endr\n"
        ".fill 448, 8, 0\n"
        "task: .fill 102, 1, 0\n"
        ".word 104\n"
        ".fill 8200, 1, 0\n"
        ".bss\n"
        ".balign 16\n"
        ".fill 16384\n"
        "stack:\n"
        ".text\n");

static unsigned char versions[END];

static unsigned char in(unsigned short port)
{
    unsigned char value;
    __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

static void say(const char *text)
{
    for (; *text; text++) {
        while (!(in(0x3fd) & 0x20)) {
        }
        __asm__ volatile("outb %0, %1" : : "a"(*text), "Nd"((unsigned short)0x3f8));
    }
}

static unsigned long mixed(unsigned long n)
{
    n = (n ^ n >> 31) * 0x9e3779b97f4a7c15;
    return (n ^ n >> 29) * 0xbf58476d1ce4e5b9;
}

// What a word must be: of zeros, of equal pages, of numbers that can be compressed, or of random ones.
static unsigned long right(unsigned long page, unsigned long word)
{
    unsigned long version = versions[page];
    if (page % 8 == 0)
        return version;
    if (page % 8 == 1)
        return (word / 7) << version;
    if (page % 8 < 6)
        return page * 1000 + version * 7 + word / 16;
    return mixed(page << 20 | version << 10 | word);
}

static void write(unsigned long page)
{
    volatile unsigned long *words = (volatile unsigned long *)(page * 4096);
    for (unsigned long word = 0; word < WORDS; word++)
        words[word] = right(page, word);
}

static int is_right(void)
{
    for (unsigned long page = FIRST; page < END; page++) {
        volatile unsigned long *words = (volatile unsigned long *)(page * 4096);
        for (unsigned long word = 0; word < WORDS; word++)
            if (words[word] != right(page, word))
                return 0;
    }
    return 1;
}

void run(void)
{
    say("ready\n");
    for (;;) {
        while (!(in(0x3fd) & 1)) {
        }
        switch (in(0x3f8)) {
        case 'f':
            for (unsigned long page = FIRST; page < END; page++)
                write(page);
            say("filled\n");
            break;
        case 'w':
            for (unsigned long page = FIRST; page < END; page += 3) {
                versions[page]++;
                write(page);
            }
            say("written\n");
            break;
        case 'c':
            say(is_right() ? "right\n" : "wrong\n");
            break;
        }
    }
}
