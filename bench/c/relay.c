/* A two-hop byte relay: the physical floor for any shim that reads and writes pipes.
 *
 *     relay COMMAND [ARGS...]        one thread, poll(), no look at the bytes
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

static int copy(int from, int to) {
    static char buffer[65536];
    ssize_t got = read(from, buffer, sizeof buffer);
    if (got <= 0) return 0;
    for (ssize_t done = 0; done < got;) {
        ssize_t wrote = write(to, buffer + done, got - done);
        if (wrote < 0 && errno != EINTR) return 0;
        if (wrote > 0) done += wrote;
    }
    return 1;
}

int main(int argc, char **argv) {
    int down[2], up[2], status = 0;
    if (argc < 2 || pipe2(down, O_CLOEXEC) || pipe2(up, O_CLOEXEC)) return 2;
    pid_t child = fork();
    if (child == 0) {
        dup2(down[0], 0);
        dup2(up[1], 1);
        execvp(argv[1], argv + 1);
        _exit(127);
    }
    close(down[0]);
    close(up[1]);
    struct pollfd watched[2] = {{0, POLLIN, 0}, {up[0], POLLIN, 0}};
    for (;;) {
        if (poll(watched, 2, -1) < 0) continue;
        if (watched[0].revents && !copy(0, down[1])) {
            close(down[1]);
            watched[0].fd = -1;
        }
        if (watched[1].revents && !copy(up[0], 1)) break;
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
