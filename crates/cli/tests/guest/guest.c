// A stand-in for a VMM: maps memory, sends its regions and a userfaultfd to the socket, compares
// all pages with a file, and stays until its stdin ends.
// guest SOCKET FILE
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static void need(int right, const char *what)
{
    if (!right) {
        perror(what);
        exit(1);
    }
}

int main(int count, char **words)
{
    need(count == 3, "guest SOCKET FILE");
    int file = open(words[2], O_RDONLY);
    struct stat found;
    need(file >= 0 && fstat(file, &found) == 0, words[2]);
    size_t len = found.st_size;
    int kind = MAP_PRIVATE | MAP_ANONYMOUS;
    char *right = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    char *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, kind, -1, 0);
    need(right != MAP_FAILED && memory != MAP_FAILED, "mmap");

    int uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    if (uffd < 0) {
        puts("none");
        return 0;
    }
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_EVENT_REMOVE};
    need(ioctl(uffd, UFFDIO_API, &api) == 0, "UFFDIO_API");
    struct uffdio_register all = {
        .range = {(uintptr_t)memory, len}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    need(ioctl(uffd, UFFDIO_REGISTER, &all) == 0, "UFFDIO_REGISTER");

    int to = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strncpy(at.sun_path, words[1], sizeof at.sun_path - 1);
    need(connect(to, (struct sockaddr *)&at, sizeof at) == 0, words[1]);
    char text[200];
    int length = snprintf(text, sizeof text,
        "[{\"base_host_virt_addr\":%zu,\"size\":%zu,\"offset\":0,\"page_size\":4096,"
        "\"page_size_kib\":4096}]", (size_t)memory, len);
    char beside[CMSG_SPACE(sizeof uffd)] = {0};
    struct iovec bytes = {text, length};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1,
        .msg_control = beside, .msg_controllen = sizeof beside};
    struct cmsghdr *fd = CMSG_FIRSTHDR(&message);
    *fd = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof uffd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(fd), &uffd, sizeof uffd);
    need(sendmsg(to, &message, 0) == length, "sendmsg");

    // The last page is touched when the test says so.
    int wrong = memcmp(memory, right, len - 4096) != 0;
    puts(wrong ? "wrong" : "right");
    fflush(stdout);
    while (getchar() == '\n') {
        puts(memcmp(memory, right, len) == 0 ? "right" : "wrong");
        fflush(stdout);
    }
    return wrong;
}
