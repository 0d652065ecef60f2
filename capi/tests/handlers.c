/* Regions beside handlers of signals that the program has: installed before the first region or after
 * it, for one time, on a stack of their own, leaving by siglongjmp, interrupting faults; and beside
 * others who read the memory. Each case runs in a process of its own. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

enum { PAGE = 4096, PAGES = 1024 };

static zfold_region *region;
static uint8_t *memory;
static sigjmp_buf back;
static volatile sig_atomic_t calls;
static struct sigaction zfolds;
static _Atomic(volatile uint8_t *) touched;

static uint8_t byte_of(int page) { return (uint8_t)(page % 251 + 1); }

/* A region of which a quarter is resident. */
static void make_region(void) {
    int n;
    CHECK(zfold_region_new(PAGES * PAGE, PAGES * PAGE / 4, NULL, 0, &region) == 0);
    memory = zfold_region_pointer(region);
    for (n = 0; n < PAGES; n++) memset(memory + n * PAGE, byte_of(n), PAGE);
}

static void all_there(void) {
    int n;
    for (n = 0; n < PAGES; n++) CHECK(memory[n * PAGE] == byte_of(n) && memory[n * PAGE + 4095] == byte_of(n));
}

/* Where a touch raises a SIGBUS that is not the region's: behind the end of a file. */
static volatile uint8_t *foreign(void) {
    FILE *file = tmpfile();
    void *at;
    CHECK(file != NULL);
    at = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fileno(file), 0);
    CHECK(at != MAP_FAILED);
    return (volatile uint8_t *)at;
}

static void handle(int number, void (*handler)(int, siginfo_t *, void *), int flags, struct sigaction *old) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | flags;
    CHECK(sigaction(number, &action, old) == 0);
}

static void jumps(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    calls++;
    siglongjmp(back, 1);
}

static int blocked(int number) {
    sigset_t mask;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0);
    return sigismember(&mask, number);
}

/* One that leaves by siglongjmp, on this stack or its own, is called each time, and the region works on. */
static void jumps_before(int flags) {
    static uint8_t stack[64 << 10];
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    volatile uint8_t *at = foreign();
    volatile int round;
    if (flags & SA_ONSTACK) CHECK(sigaltstack(&own, NULL) == 0);
    handle(SIGBUS, jumps, flags, NULL);
    make_region();
    for (round = 0; round < 20; round++) {
        if (sigsetjmp(back, 1) == 0) {
            CHECK(*at == 0 && "a fault");
        }
        CHECK(calls == round + 1 && !blocked(SIGBUS) && !blocked(SIGALRM));
        all_there();
    }
    zfold_region_free(region);
    /* Its memory is nobody's now. */
}

static void jumps_plain(void) { jumps_before(0); }
static void jumps_nodefer(void) { jumps_before(SA_NODEFER); }
static void jumps_on_stack(void) { jumps_before(SA_ONSTACK); }

/* One for one time is called once; the fault after that kills. */
static void once(void) {
    volatile uint8_t *at = foreign();
    handle(SIGBUS, jumps, SA_RESETHAND, NULL);
    make_region();
    if (sigsetjmp(back, 1) == 0) CHECK(*at == 0 && "a fault");
    all_there();
    CHECK(calls == 1);
    CHECK(*at == 0 && "a fault");
}

static void passes_on(int number, siginfo_t *info, void *context) {
    calls++;
    zfolds.sa_sigaction(number, info, context);
}

/* One installed later gets all faults, and passes them on. */
static void after(int flags) {
    make_region();
    handle(SIGBUS, passes_on, flags, &zfolds);
    all_there();
    CHECK(calls > 16 && !blocked(SIGBUS) && !blocked(SIGUSR1));
    zfold_region_free(region);
}

static void after_plain(void) { after(0); }
static void after_nodefer(void) { after(SA_NODEFER | SA_ONSTACK); }

/* One installed later for one time: the second missing page kills, and gives no zeros. */
static void after_once(void) {
    make_region();
    handle(SIGBUS, passes_on, SA_RESETHAND, &zfolds);
    all_there();
}

/* Touches the page that the thread was about to touch, or is just bringing. */
static void touches(int number, siginfo_t *info, void *context) {
    volatile uint8_t *at = touched;
    (void)number, (void)info, (void)context;
    calls++;
    if (at != NULL) CHECK(*at == byte_of((int)((at - memory) / PAGE)));
}

static atomic_int stop;

static void *signals(void *thread) {
    struct timespec some = {0, 20000};
    while (!stop) {
        pthread_kill(*(pthread_t *)thread, SIGUSR1);
        nanosleep(&some, NULL);
    }
    return NULL;
}

/* Signals come all the time, and their handler touches what is just being brought. */
static void interrupted(int later) {
    pthread_t self = pthread_self(), other;
    unsigned n = 1;
    alarm(60);
    make_region();
    handle(SIGUSR1, touches, SA_RESTART, NULL);
    if (later) handle(SIGBUS, passes_on, SA_NODEFER, &zfolds);
    CHECK(pthread_create(&other, NULL, signals, &self) == 0);
    for (calls = 0; calls < 20000;) {
        n = n * 1103515245 + 12345;
        touched = memory + (n >> 16) % PAGES * PAGE;
        CHECK(*touched == byte_of((int)((touched - memory) / PAGE)));
    }
    stop = 1;
    pthread_join(other, NULL);
    all_there();
}

static void interrupted_alone(void) { interrupted(0); }
static void interrupted_later(void) { interrupted(1); }

/* Signals come all the time, and their handler leaves what they interrupt, faults too. */
static void left(int later) {
    pthread_t self = pthread_self(), other;
    static volatile unsigned n = 1;
    alarm(60);
    make_region();
    handle(SIGUSR1, jumps, 0, NULL);
    if (later) handle(SIGBUS, passes_on, SA_NODEFER, &zfolds);
    sigsetjmp(back, 1);
    if (n == 1) CHECK(pthread_create(&other, NULL, signals, &self) == 0);
    while (calls < 20000) {
        volatile uint8_t *at;
        n = n * 1103515245 + 12345;
        at = memory + (n >> 16) % PAGES * PAGE;
        CHECK(*at == byte_of((int)((at - memory) / PAGE)));
    }
    handle(SIGUSR1, touches, 0, NULL);
    stop = 1;
    all_there();
}

static void left_alone(void) { left(0); }
static void left_later(void) { left(1); }

/* The kernel cannot bring pages to others: they get an error, or what is there; never zeros. */
static void read_by_others(void) {
    static uint8_t seen[PAGE];
    int n, mem, missing = 0, read_by_proc, read_by_vm;
    make_region();
    mem = open("/proc/self/mem", O_RDWR);
    CHECK(mem >= 0);
    for (n = 0; n < PAGES; n++) {
        struct iovec to = {seen, PAGE}, from = {memory + n * PAGE, PAGE};
        memset(seen, 0, PAGE);
        read_by_proc = pread(mem, seen, PAGE, (off_t)(uintptr_t)(memory + n * PAGE)) == PAGE;
        if (read_by_proc) CHECK(seen[0] == byte_of(n) && seen[4095] == byte_of(n));
        else CHECK(errno == EIO || errno == EFAULT);
        memset(seen, 0, PAGE);
        read_by_vm = process_vm_readv(getpid(), &to, 1, &from, 1, 0) == PAGE;
        if (read_by_vm) CHECK(seen[0] == byte_of(n));
        missing += !read_by_proc;
        /* Written by another way, a page is what was written, or is as before. */
        seen[0] = byte_of(n);
        if (pwrite(mem, seen, 1, (off_t)(uintptr_t)(memory + n * PAGE)) < 0) CHECK(errno == EIO || errno == EFAULT);
    }
    CHECK(missing > PAGES / 2);
    all_there();
    /* Pinned, they are there for all. */
    {
        zfold_pin *pin;
        CHECK(zfold_region_pin(region, 0, 8 * PAGE, &pin) == 0);
        for (n = 0; n < 8; n++) {
            CHECK(pread(mem, seen, PAGE, (off_t)(uintptr_t)(memory + n * PAGE)) == PAGE && seen[0] == byte_of(n));
        }
        zfold_pin_release(pin);
    }
}

/* Where threads bring pages, calls that can wait for one get them all; /proc/PID/mem cannot. */
static void read_by_others_from_threads(void) {
    static uint8_t seen[PAGE];
    int n, mem = open("/proc/self/mem", O_RDONLY);
    if (zfold_region_new(PAGES * PAGE, PAGES * PAGE / 4, NULL, 1, &region) != 0) {
        printf("SKIPPED: handlers: reading by others, with threads: %s\n", zfold_error());
        fflush(stdout);
        return;
    }
    memory = zfold_region_pointer(region);
    for (n = 0; n < PAGES; n++) memset(memory + n * PAGE, byte_of(n), PAGE);
    for (n = 0; n < PAGES; n++) {
        struct iovec to = {seen, PAGE}, from = {memory + n * PAGE, PAGE};
        if (pread(mem, seen, PAGE, (off_t)(uintptr_t)(memory + n * PAGE)) == PAGE) CHECK(seen[0] == byte_of(n));
        CHECK(process_vm_readv(getpid(), &to, 1, &from, 1, 0) == PAGE);
        CHECK(seen[0] == byte_of(n) && seen[4095] == byte_of(n));
    }
    all_there();
    zfold_region_free(region);
}

/* A program that touches a region in a handler of SIGBUS of its own. */
static void touches_in_sigbus(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    all_there();
    siglongjmp(back, 1);
}

static void touch_inside(int flags) {
    volatile uint8_t *at = foreign();
    handle(SIGBUS, touches_in_sigbus, flags, NULL);
    make_region();
    if (sigsetjmp(back, 1) == 0) CHECK(*at == 0 && "a fault");
    all_there();
}

static void touch_inside_plain(void) { touch_inside(0); }
static void touch_inside_nodefer(void) { touch_inside(SA_NODEFER); }

static int failures;

/* Runs a case in a child, which ends by itself, or by `signal`. */
static void ends(const char *name, void (*run)(void), int by) {
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        run();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (by == 0 ? !(WIFEXITED(status) && WEXITSTATUS(status) == 0)
                : !(WIFSIGNALED(status) && WTERMSIG(status) == by)) {
        fprintf(stderr, "%s: status %#x\n", name, (unsigned)status);
        failures++;
    }
}

int main(void) {
    ends("jumps", jumps_plain, 0);
    ends("jumps, SA_NODEFER", jumps_nodefer, 0);
    ends("jumps, SA_ONSTACK", jumps_on_stack, 0);
    ends("before, SA_RESETHAND", once, SIGBUS);
    ends("after", after_plain, 0);
    ends("after, SA_NODEFER and SA_ONSTACK", after_nodefer, 0);
    ends("after, SA_RESETHAND", after_once, SIGBUS);
    ends("interrupted", interrupted_alone, 0);
    ends("interrupted, after", interrupted_later, 0);
    ends("left", left_alone, 0);
    ends("left, after", left_later, 0);
    ends("read by others", read_by_others, 0);
    ends("read by others, from threads", read_by_others_from_threads, 0);
    ends("touched in a handler of SIGBUS", touch_inside_plain, SIGBUS);
    ends("touched in a handler of SIGBUS, SA_NODEFER", touch_inside_nodefer, 0);
    if (failures == 0) puts("15 cases");
    return failures != 0;
}
