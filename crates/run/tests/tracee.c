// Programs for the tests of the tracer, one for each first argument. What they print does not
// depend on chance, so that it can be compared with a run that is not traced.
#define _GNU_SOURCE
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static const char *self;

#define PAGE ((unsigned long)sysconf(_SC_PAGESIZE))
#define AT ((char *)0x100000000000)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
#define RW (PROT_READ | PROT_WRITE)

static void say(const char *what, long result) {
    printf("%s: %ld %s\n", what, result, result < 0 ? strerrorname_np(errno) : "");
    fflush(stdout);
}

// Changes at fixed addresses; the test knows them one by one.
static int changes(void) {
    mmap(AT, 8 * PAGE, RW, PRIVATE | MAP_FIXED, -1, 0);
    mmap(AT + 16 * PAGE, PAGE + 1, PROT_NONE, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0);
    madvise(AT, 2 * PAGE, MADV_DONTNEED);
    madvise(AT, 1, MADV_FREE);
    madvise(AT, PAGE, MADV_NORMAL);
    munmap(AT + 1, PAGE);
    munmap(AT + 7 * PAGE, PAGE);
    mremap(AT, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, AT + 32 * PAGE);
    mremap(AT + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP | MREMAP_FIXED, AT + 33 * PAGE);
    int file = open(self, O_RDONLY);
    mmap(AT + 2 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0);
    mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, 0);
    struct iovec advised[] = {{AT + 3 * PAGE, PAGE}, {AT + 5 * PAGE, PAGE}};
    syscall(SYS_process_madvise, -10001, advised, 2, MADV_DONTNEED, 0);
    syscall(SYS_munmap, AT + 16 * PAGE, 2 * PAGE);
    return 0;
}

static void *nothing(void *argument) {
    return argument;
}

static int joins(void) {
    for (int i = 0; i < 300; i++) {
        pthread_t id;
        pthread_create(&id, NULL, nothing, NULL);
        pthread_join(id, NULL);
    }
    say("joins", 300);
    return 6;
}

static void *rest(void *argument) {
    for (;;) {
        pause();
    }
}

static void *run(void *argument) {
    for (;;) {
        getppid();
    }
}

static void *become(void *argument) {
    usleep(300);
    execl(self, self, "say", "from the thread of a crowd", NULL);
    _exit(9);
}

// Processes of several threads end in all ways, while some of these run, wait, or end.
static int crowds(void) {
    for (int i = 0; i < 40; i++) {
        pid_t child = fork();
        if (child == 0) {
            void *(*kinds[])(void *) = {rest, run, nothing};
            pthread_t id;
            int leaves = i % 4 == 3;
            for (int k = 0; k < 6; k++) {
                pthread_create(&id, NULL, leaves ? nothing : kinds[k % 3], NULL);
            }
            if (i % 4 == 0) {
                exit(i);
            } else if (i % 4 == 1) {
                pthread_create(&id, NULL, become, NULL);
            } else if (leaves) {
                pthread_exit(NULL);
            }
            for (;;) {
                pause();
            }
        }
        if (i % 4 == 2) {
            usleep(i * 50);
            kill(child, i % 8 == 2 ? SIGKILL : SIGTERM);
        }
        int status = 0;
        waitpid(child, &status, 0);
        say("status", status);
    }
    return 3;
}

static void *map_and_unmap(void *argument) {
    long sum = 0;
    for (long i = 0; i < 50; i++) {
        char *at = mmap(NULL, 16 * PAGE, RW, PRIVATE, -1, 0);
        for (long page = 0; page < 16; page++) {
            at[page * PAGE] = (char)page;
        }
        for (long page = 0; page < 16; page++) {
            sum += at[page * PAGE];
        }
        munmap(at, 16 * PAGE);
    }
    return (void *)(sum + (long)argument);
}

static int threads(void) {
    long sum = 0;
    for (int round = 0; round < 5; round++) {
        pthread_t ids[8];
        for (long i = 0; i < 8; i++) {
            pthread_create(&ids[i], NULL, map_and_unmap, (void *)i);
        }
        for (int i = 0; i < 8; i++) {
            void *one;
            pthread_join(ids[i], &one);
            sum += (long)one;
        }
    }
    say("threads", sum);
    return 4;
}

static int forks(void) {
    char *shared = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *own = malloc(1 << 20);
    memset(own, 7, 1 << 20);
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) {
            free(malloc(1 << 20));
            pid_t grandchild = fork();
            if (grandchild == 0) {
                shared[i] = own[i] + i;
                _exit(i);
            }
            int status;
            waitpid(grandchild, &status, 0);
            _exit(WEXITSTATUS(status) + own[5]);
        }
        int status;
        say("waited", waitpid(child, &status, 0) == child);
        say("status", status);
        say("shared", shared[i]);
    }
    return 0;
}

static int on_a_stack(void *argument) {
    return *(int *)argument;
}

static int spawns(void) {
    int status;
    pid_t child = vfork();
    if (child == 0) {
        _exit(3);
    }
    waitpid(child, &status, 0);
    say("vfork", status);
    char *arguments[] = {"sh", "-c", "exit 9", NULL};
    posix_spawnp(&child, "sh", NULL, NULL, arguments, environ);
    waitpid(child, &status, 0);
    say("spawn", status);
    say("system", system("exit 11"));
    FILE *pipe = popen("echo hello | tr a-z A-Z", "r");
    char line[64] = "";
    fgets(line, sizeof line, pipe);
    printf("%s", line);
    say("pclose", pclose(pipe));
    static char stack[65536] __attribute__((aligned(16)));
    int value = 21;
    child = clone(on_a_stack, stack + sizeof stack, CLONE_VM | SIGCHLD, &value);
    waitpid(child, &status, 0);
    say("clone with memory", status);
    child = clone(on_a_stack, stack + sizeof stack, CLONE_VM, &value);
    say("no signal", waitpid(child, &status, 0));
    say("with __WALL", waitpid(child, &status, __WALL) == child);
    say("status", status);
    child = clone(on_a_stack, stack + sizeof stack, SIGCHLD | CLONE_UNTRACED, &value);
    waitpid(child, &status, 0);
    say("untraced", status);
    return 0;
}

static void *exec_other(void *unused) {
    execl(self, self, "say", "from a thread", NULL);
    return NULL;
}

static void *wait_for_ever(void *unused) {
    for (;;) {
        pause();
    }
    return unused;
}

static int exec_thread(void) {
    pthread_t id;
    for (int i = 0; i < 3; i++) {
        pthread_create(&id, NULL, wait_for_ever, NULL);
    }
    pthread_create(&id, NULL, exec_other, NULL);
    pthread_join(id, NULL);
    return 1;
}

static void *exit_later(void *unused) {
    usleep(20000);
    exit(6);
}

static int exit_thread(void) {
    pthread_t id;
    pthread_create(&id, NULL, wait_for_ever, NULL);
    pthread_create(&id, NULL, exit_later, NULL);
    pthread_join(id, NULL);
    return 1;
}

static int leader_exits(void) {
    pthread_t id;
    pthread_create(&id, NULL, exit_later, NULL);
    pthread_exit(NULL);
}

static int jobs(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        mmap(NULL, PAGE, RW, PRIVATE, -1, 0);
        wait_for_ever(NULL);
    }
    /* In an orphaned group, as of a container, SIGTSTP stops nobody: its own has a parent. */
    setpgid(child, child);
    for (int i = 0; i < 3; i++) {
        kill(child, i == 1 ? SIGTSTP : SIGSTOP);
        waitpid(child, &status, WUNTRACED);
        say("stopped", WIFSTOPPED(status) ? WSTOPSIG(status) : -1);
        kill(child, SIGCONT);
        waitpid(child, &status, WCONTINUED);
        say("continued", WIFCONTINUED(status));
    }
    say("still runs", waitpid(child, &status, WNOHANG));
    kill(child, SIGTERM);
    waitpid(child, &status, 0);
    say("killed", status);
    raise(SIGKILL);
    return 1;
}

static void repair(int signal, siginfo_t *info, void *context) {
    char *page = (char *)((uintptr_t)info->si_addr & ~(PAGE - 1));
    mmap(page, PAGE, RW, PRIVATE | MAP_FIXED, -1, 0);
    page[1] = (char)signal;
}

static int handlers(void) {
    struct sigaction action = {.sa_sigaction = repair, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    char *at = mmap(NULL, 4 * PAGE, PROT_NONE, PRIVATE, -1, 0);
    at[PAGE] = 5;
    say("written", at[PAGE]);
    say("signal", at[PAGE + 1]);
    char name[] = "/tmp/tracee-XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    volatile char *beyond = mmap(NULL, PAGE, RW, MAP_SHARED, file, 0);
    beyond[0] = 6;
    say("written", beyond[0]);
    say("signal", beyond[1]);
    fflush(stdout);
    signal(SIGSEGV, SIG_DFL);
    *(volatile char *)8 = 1;
    return 1;
}

static void wait_for_none(void) {
    int status;
    say("wait", waitpid(-1, &status, 0));
    say("at once", waitpid(-1, &status, WNOHANG));
    say("group", waitpid(0, &status, 0));
    siginfo_t info;
    say("waitid", waitid(P_ALL, 0, &info, WEXITED | WNOHANG));
}

static int waits(void) {
    map_and_unmap(NULL);
    wait_for_none();
    pid_t child = fork();
    if (child == 0) {
        map_and_unmap(NULL);
        _exit(1);
    }
    int status;
    say("the child", wait(&status) == child);
    wait_for_none();
    return 0;
}

// Whether what was a child before exec is one still.
static int exec_waits(void) {
    map_and_unmap(NULL);
    execl(self, self, "waits-all", NULL);
    return 1;
}

static int waits_all(void) {
    int status;
    say("any at all", waitpid(-1, &status, __WALL));
    return 0;
}

static int descriptors(void) {
    map_and_unmap(NULL);
    for (int number = 0; number < 1024; number++) {
        if (fcntl(number, F_GETFD) >= 0) {
            say("descriptor", number);
        }
    }
    say("new", dup(0));
    struct sigaction action;
    for (int signal = 1; signal < 32; signal++) {
        sigaction(signal, NULL, &action);
        say("disposition", (long)action.sa_handler);
    }
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    say("mask", *(long *)&mask);
    say("no new privileges", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    say("death signal", prctl(PR_GET_PDEATHSIG, &mask));
    int threads = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (readdir(tasks) != NULL) {
        threads++;
    }
    say("threads", threads - 2);
    return 0;
}

static volatile int alarms;

static void count(int signal) {
    alarms++;
}

static void alarm_in(long microseconds, int flags) {
    struct sigaction action = {.sa_handler = count, .sa_flags = flags};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {.it_value = {microseconds / 1000000, microseconds % 1000000}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static pid_t child_after(long microseconds, int (*action)(int), int argument) {
    pid_t child = fork();
    if (child == 0) {
        usleep(microseconds);
        _exit(action(argument));
    }
    return child;
}

static int write_one(int file) {
    return write(file, "x", 1);
}

static int signal_parent(int number) {
    return kill(getppid(), number);
}

static int return_it(int value) {
    return value;
}

// Blocks in one call for so many microseconds.
static int blocked(const char *how, long window_us) {
    struct timespec window = {window_us / 1000000, window_us % 1000000 * 1000};
    int ends[2];
    pipe(ends);
    char byte;
    sigset_t set;
    sigemptyset(&set);
    if (!strcmp(how, "nanosleep")) {
        struct timespec left = {9, 9};
        say(how, nanosleep(&window, &left));
    } else if (!strcmp(how, "read")) {
        child_after(window_us, write_one, ends[1]);
        say(how, read(ends[0], &byte, 1));
    } else if (!strcmp(how, "read-eintr")) {
        alarm_in(window_us, 0);
        say(how, read(ends[0], &byte, 1));
    } else if (!strcmp(how, "read-restart")) {
        child_after(window_us * 5 / 4, write_one, ends[1]);
        alarm_in(window_us, SA_RESTART);
        say(how, read(ends[0], &byte, 1));
        say("alarms", alarms);
    } else if (!strcmp(how, "futex")) {
        int word = 1;
        say(how, syscall(SYS_futex, &word, FUTEX_WAIT, 1, &window, NULL, 0));
    } else if (!strcmp(how, "poll")) {
        struct pollfd one = {ends[0], POLLIN, 0};
        say(how, poll(&one, 1, window_us / 1000));
    } else if (!strcmp(how, "ppoll")) {
        sigset_t none;
        sigemptyset(&none);
        sigaddset(&set, SIGALRM);
        sigprocmask(SIG_BLOCK, &set, NULL);
        alarm_in(window_us, 0);
        struct pollfd one = {ends[0], POLLIN, 0};
        say(how, ppoll(&one, 1, NULL, &none));
        say("alarms", alarms);
    } else if (!strcmp(how, "epoll")) {
        int epoll = epoll_create1(0);
        struct epoll_event event = {EPOLLIN, {0}};
        epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event);
        child_after(window_us, write_one, ends[1]);
        say(how, epoll_wait(epoll, &event, 1, -1));
    } else if (!strcmp(how, "epoll-eintr")) {
        int epoll = epoll_create1(0);
        struct epoll_event event;
        alarm_in(window_us, SA_RESTART);
        say(how, epoll_wait(epoll, &event, 1, -1));
    } else if (!strcmp(how, "select")) {
        fd_set files;
        FD_ZERO(&files);
        FD_SET(ends[0], &files);
        child_after(window_us, write_one, ends[1]);
        say(how, select(ends[0] + 1, &files, NULL, NULL, NULL));
    } else if (!strcmp(how, "pause")) {
        alarm_in(window_us, SA_RESTART);
        say(how, pause());
        say("alarms", alarms);
    } else if (!strcmp(how, "sigsuspend")) {
        sigaddset(&set, SIGALRM);
        sigprocmask(SIG_BLOCK, &set, NULL);
        alarm_in(window_us, SA_RESTART);
        sigemptyset(&set);
        say(how, sigsuspend(&set));
        say("alarms", alarms);
    } else if (!strcmp(how, "sigtimedwait")) {
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, NULL);
        child_after(window_us, signal_parent, SIGUSR1);
        siginfo_t info;
        say(how, sigwaitinfo(&set, &info));
    } else if (!strcmp(how, "semop")) {
        int id = semget(IPC_PRIVATE, 1, 0600);
        struct sembuf down = {0, -1, 0};
        say(how, semtimedop(id, &down, 1, &window));
        semctl(id, 0, IPC_RMID);
    } else if (!strcmp(how, "msgrcv")) {
        int id = msgget(IPC_PRIVATE, 0600);
        alarm_in(window_us, SA_RESTART);
        say(how, msgrcv(id, &window, 8, 0, 0));
        msgctl(id, IPC_RMID, NULL);
    } else if (!strcmp(how, "recv")) {
        int sockets[2];
        socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
        struct timeval limit = {5, 0};
        setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        child_after(window_us, write_one, sockets[1]);
        say(how, recv(sockets[0], &byte, 1, 0));
    } else if (!strcmp(how, "wait")) {
        int status;
        pid_t child = child_after(window_us, return_it, 12);
        say(how, wait(&status) == child);
        say("status", status);
    } else if (!strcmp(how, "vfork")) {
        int status;
        pid_t child = vfork();
        if (child == 0) {
            syscall(SYS_nanosleep, &window, NULL);
            _exit(2);
        }
        waitpid(child, &status, 0);
        say(how, status);
    } else if (!strcmp(how, "spin")) {
        struct timespec start, now;
        double sum = 0;
        clock_gettime(CLOCK_MONOTONIC, &start);
        do {
            sum = 0;
            for (int i = 1; i < 100000; i++) {
                sum += 1.0 / i;
            }
            clock_gettime(CLOCK_MONOTONIC, &now);
        } while ((now.tv_sec - start.tv_sec) * 1000000 + (now.tv_nsec - start.tv_nsec) / 1000 < window_us);
        printf("%.15f\n", sum);
    } else if (!strcmp(how, "stopped")) {
        pid_t child = fork();
        if (child == 0) {
            usleep(window_us);
            kill(getppid(), SIGCONT);
            _exit(0);
        }
        raise(SIGSTOP);
        say(how, wait(NULL) == child);
    } else {
        return 2;
    }
    return 0;
}

// A timer interrupts everything a thousand times a second.
static int storm(void) {
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &timer, NULL);
    long sum = 0;
    for (int i = 0; i < 20; i++) {
        sum += (long)map_and_unmap(NULL);
        pid_t child;
        while ((child = fork()) < 0) {
        }
        if (child == 0) {
            _exit((long)map_and_unmap(NULL) == 6000 ? 1 : 2);
        }
        int status;
        waitpid(child, &status, 0);
        sum += status;
    }
    say("sum", sum);
    return 0;
}

static void set_own_filter(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE | 5),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EDOM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int own_filter(void) {
    set_own_filter();
    say("traced", syscall(SYS_getppid));
    say("refused", syscall(SYS_getpgid, 0));
    map_and_unmap(NULL);
    return 0;
}

// Makes calls for so many milliseconds that fail unless there is a tracer that lets them pass.
static int asks_in_vain(long window_ms) {
    set_own_filter();
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    long passed = 0;
    do {
        for (int i = 0; i < 1000; i++) {
            passed += syscall(SYS_getppid) >= 0;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < window_ms);
    say("passed", passed);
    return 0;
}

// Writes two pages of one anonymous mapping and waits until the test has looked at them.
static int pages(const char *gate) {
    char *at = mmap(AT, 4 * PAGE, RW, PRIVATE | MAP_FIXED, -1, 0);
    memset(at, 'a', PAGE);
    memset(at + PAGE, 'b', PAGE);
    printf("ready\n");
    fflush(stdout);
    char byte;
    read(open(gate, O_RDONLY), &byte, 1);
    say("first", at[0]);
    say("second", at[PAGE]);
    return 0;
}

// Is attached while a child of vfork has its memory; waits until it is filtered itself.
static int filtered_after_vfork(void) {
    int status;
    pid_t child = vfork();
    if (child == 0) {
        usleep(500 * 1000);
        _exit(3);
    }
    waitpid(child, &status, 0);
    int mode = 0;
    for (int i = 0; i < 5000 && mode == 0; i++) {
        usleep(1000);
        // Not by prctl, which is answered as if there were no filter.
        FILE *status = fopen("/proc/self/status", "r");
        char line[256];
        while (fgets(line, sizeof line, status)) {
            sscanf(line, "Seccomp: %d", &mode);
        }
        fclose(status);
    }
    say("seccomp", mode);
    return 0;
}

static int repeat(long times) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (long i = 0; i < times; i++) {
        munmap(mmap(NULL, PAGE, RW, PRIVATE, -1, 0), PAGE);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    double took = (end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec);
    fprintf(stderr, "%.0f ns for each pair of mmap and munmap\n", took / times);
    return 0;
}

int main(int argc, char **argv) {
    self = argv[0];
    const char *what = argc > 1 ? argv[1] : "";
    const char *more = argc > 2 ? argv[2] : "";
    struct { const char *name; int (*run)(void); } programs[] = {
        {"changes", changes}, {"threads", threads}, {"forks", forks}, {"spawns", spawns},
        {"exec-thread", exec_thread}, {"exit-thread", exit_thread},
        {"leader-exits", leader_exits}, {"jobs", jobs}, {"handlers", handlers},
        {"waits", waits}, {"exec-waits", exec_waits}, {"waits-all", waits_all}, {"descriptors", descriptors},
        {"storm", storm}, {"own-filter", own_filter},
        {"filtered-after-vfork", filtered_after_vfork}, {"joins", joins}, {"crowds", crowds},
    };
    for (unsigned i = 0; i < sizeof programs / sizeof *programs; i++) {
        if (!strcmp(what, programs[i].name)) {
            return programs[i].run();
        }
    }
    if (!strcmp(what, "say")) {
        puts(more);
        return 8;
    }
    if (!strcmp(what, "asks-in-vain")) {
        return asks_in_vain(atol(more));
    }
    if (!strcmp(what, "repeat")) {
        return repeat(atol(more));
    }
    if (!strcmp(what, "pages")) {
        return pages(more);
    }
    return !strcmp(what, "blocked") ? blocked(more, atol(argv[3]) * 1000) : 2;
}
