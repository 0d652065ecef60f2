/* What programs know of the helper in their memory: where its page is, and that its system calls are
 * there, one of them followed by an instruction that traps.
 */
#include "common.h"

/* What is looked at of the page. */
#define CODE 512

/* Says that the attack begins: what ended before has shown nothing. */
static inline void begin(void) {
    puts("it begins");
    fflush(stdout);
}

/* Returns the page; ends if it is not there. */
static inline unsigned char *helper_page(const char *address) {
    unsigned char *page = (unsigned char *)strtoul(address, NULL, 16);
    unsigned char there;
    if (mincore(page, PAGE, &there)) missing("no helper is in this memory");
    return page;
}

/* Becomes another user than root. */
static inline void drop_rights(void) {
    if (syscall(SYS_setgroups, 0, NULL) || setresgid(65534, 65534, 65534) ||
        setresuid(65534, 65534, 65534))
        missing("another user, for which one must be root");
}

/* Returns the offset behind the next system call, from `at` on; 0 if there is none. */
static inline size_t call_end(const unsigned char *page, size_t at) {
    for (; at + 2 < CODE; at++)
        if (page[at] == 0x0f && page[at + 1] == 0x05) return at + 2;
    return 0;
}

static inline int traps(const unsigned char *code) {
    return (code[0] == 0x0f && code[1] == 0x0b) || code[0] == 0xcc;
}

/* Has pages leave, and the helper do something for it. */
static inline void page_out(char *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += PAGE) memory[at]++;
    madvise(memory, bytes, 21 /* MADV_PAGEOUT */);
}

/* Lets the page be changed; says so and ends if that is refused. */
static inline void open_page(unsigned char *page) {
    if (mprotect(page, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC)) {
        printf("its page cannot be changed: %s\n", strerror(errno));
        exit(0);
    }
}
