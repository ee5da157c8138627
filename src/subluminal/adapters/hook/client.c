/* The hook command: hands what its client says to the judge of that client's process, and answers in its words.
 *
 *     sub-hook CLIENT EVENT RUN_DIR PYTHON
 *
 * Exits with ANSWERED plus what the judge says (0 or 2). Anything else, a plain 0 too, is no answer of ours: the shell
 * around it then refuses or not (see command.py). Linux only: the client's process is found through /proc. client.py
 * does the same in Python. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FAILED = 3, ANSWERED = 90, DEADLINE_S = 20, MAX_ANCESTORS = 24, HEAD = 9 };

/* Between a client and its hook; as in host/client_process.py. */
static const char *const shells[] = {"sh", "bash", "dash", "zsh", "ash", "fish", "env", "npx", "uvx", "timeout"};

static void give_up(int number) {
    (void)number;
    _exit(FAILED);
}

/* The parent of a process, its command and its start; 0 where there is none. The command may hold anything. */
static long facts(long pid, char *command, char *started) {
    char path[64], text[4096], *end, *field;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    if (size <= 0) return 0;
    text[size] = 0;
    char *name = strchr(text, '(');
    if (name == NULL || (end = strrchr(text, ')')) == NULL) return 0;
    *end = 0;
    snprintf(command, 64, "%s", name + 1);
    long parent = 0;
    int number = 0;
    for (field = strtok(end + 1, " "); field != NULL; field = strtok(NULL, " "), number++) {
        if (number == 1) parent = atol(field);
        if (number == 19) {
            snprintf(started, 32, "%s", field);
            return parent;
        }
    }
    return 0;
}

static int is_shell(const char *command) {
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (strcmp(command, shells[i]) == 0) return 1;
    return 0;
}

/* The nearest process above us that is no shell. */
static long find_client(char *started) {
    char command[64];
    long pid = getppid(), parent;
    for (int i = 0; i < MAX_ANCESTORS && pid > 0; i++) {
        if ((parent = facts(pid, command, started)) == 0 && pid != 1) return 0;
        if (parent <= 1 || !is_shell(command)) return pid;
        pid = parent;
    }
    return 0;
}

/* Connected to a judge of our own user, or -1. By its name from its directory: a path may be too long for a socket. */
static int reach(const char *directory, const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (strlen(name) >= sizeof address.sun_path || chdir(directory) != 0) return -1;
    strcpy(address.sun_path, name);
    int judge = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (judge < 0) return -1;
    if (connect(judge, (struct sockaddr *)&address, sizeof address) == 0 &&
        getsockopt(judge, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid())
        return judge;
    close(judge);
    return -1;
}

static int start(char **words, long pid, char *started, int here) {
    char number[32];
    int status;
    snprintf(number, sizeof number, "%ld", pid);
    char *argv[] = {words[4], "-I", "-m", "subluminal.adapters.hook.start", words[1], words[3], number, started, NULL};
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0);
        dup2(null, 1);
        if (here < 0 || fchdir(here) != 0) _exit(FAILED);
        execv(argv[0], argv);
        _exit(FAILED);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int put(int file, const char *data, size_t size) {
    while (size > 0) {
        ssize_t done = write(file, data, size);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return 0;
        data += done;
        size -= (size_t)done;
    }
    return 1;
}

int main(int count, char **words) {
    static char buffer[65536];
    char started[32], name[96];
    if (count != 5) return FAILED;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGALRM, give_up);
    alarm(DEADLINE_S);
    long pid = find_client(started);
    if (pid == 0) return FAILED;
    snprintf(name, sizeof name, "judge-%ld-%s.sock", pid, started);
    int here = open(".", O_RDONLY | O_CLOEXEC);
    int judge = reach(words[3], name);
    if (judge < 0 && start(words, pid, started, here)) judge = reach(words[3], name);
    if (judge < 0) return FAILED;
    int size = snprintf(buffer, sizeof buffer, "%s %s\n", words[1], words[2]);
    int going = put(judge, buffer, (size_t)size);
    ssize_t done;
    while (going && ((done = read(0, buffer, sizeof buffer)) > 0 || (done < 0 && errno == EINTR)))
        going = done < 0 || put(judge, buffer, (size_t)done);
    shutdown(judge, SHUT_WR);
    size_t held = 0;
    while (held < sizeof buffer &&
           ((done = read(judge, buffer + held, sizeof buffer - held)) > 0 || (done < 0 && errno == EINTR)))
        held += done > 0 ? (size_t)done : 0;
    if (held < HEAD) return FAILED;
    const unsigned char *head = (const unsigned char *)buffer;
    uint32_t out = (uint32_t)head[1] << 24 | head[2] << 16 | head[3] << 8 | head[4];
    uint32_t err = (uint32_t)head[5] << 24 | head[6] << 16 | head[7] << 8 | head[8];
    if ((head[0] != 0 && head[0] != 2) || (uint64_t)HEAD + out + err != held) return FAILED;
    if (!put(1, buffer + HEAD, out) || !put(2, buffer + HEAD + out, err)) return FAILED;
    return ANSWERED + head[0];
}
