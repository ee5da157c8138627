/* What the HTTP driver and the HTTP server share. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static inline void fail(const char *what) {
    perror(what);
    exit(1);
}

static inline void many_files(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static inline void no_delay(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static inline struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static inline int listen_on_loopback(int *port) {
    struct sockaddr_in address = loopback(*port);
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) || listen(fd, 4096)) fail("listen");
    getsockname(fd, (struct sockaddr *)&address, &size);
    *port = ntohs(address.sin_port);
    return fd;
}

static inline void watch(int events, int fd, uint32_t what, void *whose) {
    struct epoll_event event = {.events = what, .data.ptr = whose};
    if (epoll_ctl(events, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
}

/* Small messages: the socket has room for them, or is waited for. */
static inline void send_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent >= 0) {
            data += sent;
            size -= sent;
        } else if (errno == EAGAIN) {
            struct pollfd wait = {.fd = fd, .events = POLLOUT};
            poll(&wait, 1, 1000);
        } else if (errno != EINTR) {
            return; /* its reader has gone: the next recv says so */
        }
    }
}

/* The number in a header; -1 if it is not there. `name` has its colon. */
static inline long header_number(const char *head, const char *end, const char *name) {
    size_t length = strlen(name);
    for (const char *line = head; line < end;) {
        const char *next = memchr(line, '\n', end - line);
        if ((size_t)(end - line) > length && !strncasecmp(line, name, length)) return atol(line + length);
        if (next == NULL) break;
        line = next + 1;
    }
    return -1;
}
