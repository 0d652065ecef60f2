// What stand-ins for a VMM share: memory is offered to zfold as Firecracker offers it.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
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

// Sends memory and its userfaultfd to the socket of an image. Returns 0 without userfaultfd.
static int offer(const char *memory, size_t len, const char *path)
{
    int uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    if (uffd < 0)
        return 0;
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_EVENT_REMOVE};
    need(ioctl(uffd, UFFDIO_API, &api) == 0, "UFFDIO_API");
    struct uffdio_register all = {
        .range = {(uintptr_t)memory, len}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    need(ioctl(uffd, UFFDIO_REGISTER, &all) == 0, "UFFDIO_REGISTER");

    int to = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strncpy(at.sun_path, path, sizeof at.sun_path - 1);
    need(connect(to, (struct sockaddr *)&at, sizeof at) == 0, path);
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
    return 1;
}
