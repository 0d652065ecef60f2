// A guest without an operating system, for VMMs that start a kernel by PVH. It runs in ring 3, fills
// memory, and checks every word of it, as it is told by bytes at the serial port:
// f: fills all pages; w: writes every third page anew; c: compares all of them; b: gives every fifth
// page up by a balloon, the first time from the first page on, then from the second, and so on.
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

// Pages that were given up, and are zeros until they are written to.
static unsigned char given_up[END];

static unsigned char in(unsigned short port)
{
    unsigned char value;
    __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

static unsigned in_4(unsigned short port)
{
    unsigned value;
    __asm__ volatile("inl %1, %0" : "=a"(value) : "Nd"(port));
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
    if (given_up[page])
        return 0;
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

// A balloon by virtio 1.0 over PCI: one request at a time, for whose end it looks again and again.
enum { ROOM = 4, MOST = 256 };

static struct {
    struct {
        unsigned long at;
        unsigned len;
        unsigned short flags, next;
    } request[ROOM];
    volatile struct {
        unsigned short flags, next, ring[ROOM + 1];
    } offered;
    volatile struct {
        unsigned short flags, next;
        struct {
            unsigned request, len;
        } ring[ROOM + 1];
    } done;
} queues[2] __attribute__((aligned(64)));

static volatile unsigned char *bell;

extern unsigned long directory[512], pointers[512];
static unsigned long far_pointers[512] __attribute__((aligned(4096)));
static unsigned long far_places[512] __attribute__((aligned(4096)));

// Maps 2 MiB of addresses behind all memory.
static volatile unsigned char *mapped(unsigned long at)
{
    unsigned long *of = pointers;
    if (at >> 39) {
        directory[at >> 39 & 511] = (unsigned long)far_pointers | 7;
        of = far_pointers;
    }
    of[at >> 30 & 511] = (unsigned long)far_places | 7;
    far_places[at >> 21 & 511] = (at & ~0x1fffffUL) | 0x97;
    return (volatile unsigned char *)at;
}

// Reads four bytes of the configuration of a device.
static unsigned pci(unsigned device, unsigned at)
{
    __asm__ volatile("outl %0, %1"
                     : : "a"(1u << 31 | device << 11 | (at & ~3u)), "Nd"((unsigned short)0xcf8));
    return in_4(0xcfc) >> 8 * (at & 3);
}

// Sets the balloon up; returns whether there is one.
static int has_balloon(void)
{
    unsigned device = 0;
    while (pci(device, 0) != 0x10451af4)
        if (++device == 32)
            return 0;
    // Its first range of addresses has all: common and notifications, as the capabilities say.
    unsigned long at = pci(device, 0x10);
    if (at & 4)
        at |= (unsigned long)pci(device, 0x14) << 32;
    volatile unsigned char *all = mapped(at & ~15UL), *common = 0;
    for (unsigned cap = pci(device, 0x34) & 0xff; cap; cap = pci(device, cap) >> 8 & 0xff) {
        unsigned kind = pci(device, cap) & 0xff, of = pci(device, cap) >> 24;
        if (kind == 9 && of == 1)
            common = all + pci(device, cap + 8);
        if (kind == 9 && of == 2)
            bell = all + pci(device, cap + 8);
    }
    common[20] = 0;
    common[20] = 1 | 2;
    *(volatile unsigned *)(common + 8) = 1; // Version 1, and nothing else.
    *(volatile unsigned *)(common + 12) = 1;
    common[20] = 1 | 2 | 8;
    for (unsigned short queue = 0; queue < 2; queue++) {
        *(volatile unsigned short *)(common + 22) = queue;
        *(volatile unsigned short *)(common + 24) = ROOM;
        unsigned long places[] = {(unsigned long)queues[queue].request,
                                  (unsigned long)&queues[queue].offered,
                                  (unsigned long)&queues[queue].done};
        for (unsigned n = 0; n < 6; n++)
            *(volatile unsigned *)(common + 32 + 4 * n) = places[n / 2] >> n % 2 * 32;
        *(volatile unsigned short *)(common + 28) = 1;
    }
    common[20] = 1 | 2 | 8 | 4;
    return 1;
}

static void give_up(unsigned *pages, unsigned number)
{
    queues[0].request[0].at = (unsigned long)pages;
    queues[0].request[0].len = number * 4;
    queues[0].offered.ring[queues[0].offered.next % ROOM] = 0;
    __asm__ volatile("mfence" : : : "memory");
    queues[0].offered.next++;
    __asm__ volatile("mfence" : : : "memory");
    *(volatile unsigned short *)bell = 0;
    while (queues[0].done.next != queues[0].offered.next) {
    }
}

static int inflate(void)
{
    static unsigned pages[MOST], round;
    unsigned number = 0;
    if (!bell && !has_balloon())
        return 0;
    for (unsigned long page = FIRST + round++ % 5; page < END; page += 5) {
        (void)*(volatile unsigned long *)(page * 4096); // What never came is as it was, not zeros.
        given_up[page] = 1;
        pages[number++] = page;
        if (number == MOST || page + 5 >= END) {
            give_up(pages, number);
            number = 0;
        }
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
                given_up[page] = 0;
                write(page);
            }
            say("written\n");
            break;
        case 'b':
            say(inflate() ? "given up\n" : "no balloon\n");
            break;
        case 'c':
            say(is_right() ? "right\n" : "wrong\n");
            break;
        }
    }
}
