/* Drives an MCP stdio server and prints one JSON object of figures.
 *
 *     driver [--calls N] [--size BYTES] [--window W] [--pipelined N] [--big MIB] COMMAND [ARGS...]
 *
 * One request at a time for latency; W outstanding for throughput; one message of MIB mebibytes for streaming.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long calls = 5000, size = 100, window = 64, pipelined = 20000, warm_up = 300, big_mib;
static int to_server, from_server;
static pid_t server;
static char *replies;
static size_t replies_size = 1 << 20, replies_used, reply_start;

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void fail(const char *what) {
    fprintf(stderr, "driver: %s: %s\n", what, strerror(errno));
    if (server > 0) kill(server, SIGKILL);
    exit(1);
}

static void on_alarm(int number) {
    (void)number;
    static const char text[] = "driver: no answer in time\n";
    if (write(2, text, sizeof text - 1) < 0) _exit(3);
    kill(server, SIGKILL);
    _exit(3);
}

/* A request whose arguments are `size` bytes of something like source code, with JSON escapes in it. */
static size_t make_request(char *out, long id) {
    static const char text[] = "def f(x): return x + 1  # note\\n";
    char *p = out;
    p += sprintf(p, "{\"jsonrpc\":\"2.0\",\"id\":%ld,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":", id);
    char *arguments = p;
    p += sprintf(p, "{\"path\":\"/src/main.py\",\"n\":%ld,\"text\":\"", id);
    long left = size - (p - arguments) - 2;
    for (; left >= (long)sizeof text - 1; left -= sizeof text - 1) p = mempcpy(p, text, sizeof text - 1);
    while (left-- > 0) *p++ = 'x';
    p = mempcpy(p, "\"}}}\n", 5);
    return p - out;
}

static void send_all(const char *data, size_t length) {
    for (size_t done = 0; done < length;) {
        ssize_t wrote = write(to_server, data + done, length - done);
        if (wrote < 0 && errno != EINTR) fail("write");
        if (wrote > 0) done += wrote;
    }
}

static char *next_reply(size_t *length) {
    for (size_t scanned = reply_start;;) {
        char *newline = memchr(replies + scanned, '\n', replies_used - scanned);
        if (newline) {
            char *line = replies + reply_start;
            *length = newline - line;
            reply_start = newline - replies + 1;
            return line;
        }
        memmove(replies, replies + reply_start, replies_used - reply_start);
        replies_used -= reply_start;
        reply_start = 0;
        scanned = replies_used;
        if (replies_used == replies_size) replies = realloc(replies, replies_size *= 2);
        ssize_t got = read(from_server, replies + replies_used, replies_size - replies_used);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) fail("the server closed its output");
        replies_used += got;
    }
}

static long status_kib(const char *key) {
    char path[64], line[256];
    long value = -1;
    sprintf(path, "/proc/%d/status", server);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, key, strlen(key))) value = atol(line + strlen(key) + 1);
    if (file) fclose(file);
    return value;
}

static double cpu_us(void) {
    char path[64], text[1024];
    unsigned long user = 0, system = 0;
    sprintf(path, "/proc/%d/stat", server);
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[length] = 0;
    char *fields = strrchr(text, ')');
    if (fields) sscanf(fields + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    return (user + system) * 1e6 / sysconf(_SC_CLK_TCK);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double pipeline(long first_id) {
    char *batch = malloc((size + 4096) * window);
    size_t waiting = 0, sent = 0;
    long asked = 0, answered = 0;
    static char sink[1 << 17];
    fcntl(to_server, F_SETFL, O_NONBLOCK);
    double start = now_us();
    while (answered < pipelined) {
        if (sent == waiting) {
            sent = waiting = 0;
            while (asked < pipelined && asked - answered < window) waiting += make_request(batch + waiting, first_id + asked++);
        }
        if (sent < waiting) {
            ssize_t wrote = write(to_server, batch + sent, waiting - sent);
            if (wrote < 0 && errno != EAGAIN && errno != EINTR) fail("write");
            if (wrote > 0) sent += wrote;
        }
        struct pollfd watched[2] = {{from_server, POLLIN, 0}, {sent < waiting ? to_server : -1, POLLOUT, 0}};
        if (poll(watched, 2, -1) < 0 || !watched[0].revents) continue;
        ssize_t got = read(from_server, sink, sizeof sink);
        if (got <= 0) fail("the server closed its output");
        for (char *p = sink; (p = memchr(p, '\n', sink + got - p)); p++) answered++;
    }
    double took = now_us() - start;
    fcntl(to_server, F_SETFL, 0);
    free(batch);
    return pipelined * 1e6 / took;
}

/* One large request and its equally large reply; both directions at once, as pipes demand. */
static double stream(long id) {
    size_t bytes = (size_t)big_mib << 20, sent = 0;
    long saved = size;
    size = bytes;
    char *request = malloc(bytes + 4096);
    size_t length = make_request(request, id);
    size = saved;
    static char sink[1 << 20];
    fcntl(to_server, F_SETFL, O_NONBLOCK);
    double start = now_us();
    for (int done = 0; !done;) {
        struct pollfd watched[2] = {{from_server, POLLIN, 0}, {sent < length ? to_server : -1, POLLOUT, 0}};
        if (poll(watched, 2, -1) < 0) continue;
        if (watched[1].revents) {
            ssize_t wrote = write(to_server, request + sent, length - sent);
            if (wrote < 0 && errno != EAGAIN && errno != EINTR) fail("write");
            if (wrote > 0) sent += wrote;
        }
        if (watched[0].revents) {
            ssize_t got = read(from_server, sink, sizeof sink);
            if (got <= 0) fail("the server closed its output");
            done = memchr(sink, '\n', got) != NULL;
        }
    }
    double took = now_us() - start;
    fcntl(to_server, F_SETFL, 0);
    free(request);
    return 2.0 * big_mib * 1e6 / took;
}

int main(int argc, char **argv) {
    int i = 1;
    for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
        long value = atol(argv[i + 1]);
        if (!strcmp(argv[i], "--calls")) calls = value;
        else if (!strcmp(argv[i], "--size")) size = value;
        else if (!strcmp(argv[i], "--window")) window = value;
        else if (!strcmp(argv[i], "--pipelined")) pipelined = value;
        else if (!strcmp(argv[i], "--big")) big_mib = value;
        else return 2;
    }
    if (i >= argc) return 2;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGALRM, on_alarm);
    alarm(120);
    int down[2], up[2];
    if (pipe2(down, O_CLOEXEC) || pipe2(up, O_CLOEXEC)) fail("pipe");
    char *request = malloc(size + 4096);
    replies = malloc(replies_size);
    size_t length;

    double start = now_us();
    server = vfork();
    if (server == 0) {
        dup2(down[0], 0);
        dup2(up[1], 1);
        execvp(argv[i], argv + i);
        _exit(127);
    }
    close(down[0]);
    close(up[1]);
    to_server = down[1];
    from_server = up[0];
    static const char hello[] = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{"
                                "\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},"
                                "\"clientInfo\":{\"name\":\"bench\",\"version\":\"1\"}}}\n";
    send_all(hello, sizeof hello - 1);
    next_reply(&length);
    double start_up = now_us() - start;
    usleep(300000); /* let a shim finish what it puts off, so that idle means idle */
    long idle_kib = status_kib("VmRSS");
    /* As every client does before it calls a tool. */
    static const char list[] = "{\"jsonrpc\":\"2.0\",\"id\":\"list\",\"method\":\"tools/list\"}\n";
    send_all(list, sizeof list - 1);
    next_reply(&length);

    long id = 1;
    for (long k = 0; k < warm_up && calls; k++) {
        send_all(request, make_request(request, id++));
        next_reply(&length);
    }
    double *latencies = malloc(sizeof(double) * (calls + 1)), cpu = cpu_us();
    for (long k = 0; k < calls; k++) {
        size_t bytes = make_request(request, id);
        double begin = now_us();
        send_all(request, bytes);
        char *reply = next_reply(&length);
        latencies[k] = now_us() - begin;
        if (memmem(reply, length, "\"error\"", 7)) fail("a call was answered with an error");
        id++;
    }
    cpu = cpu_us() - cpu;
    qsort(latencies, calls, sizeof(double), ascending);
    double per_second = pipelined ? pipeline(id) : 0;
    long before_big = status_kib("VmRSS");
    double mib_per_second = big_mib ? stream(id + pipelined) : 0;
    long peak = status_kib("VmHWM");
    close(to_server);
    int status = 0;
    waitpid(server, &status, 0);
    printf("{\"start_ms\":%.2f,\"p50_us\":%.2f,\"p99_us\":%.2f,\"cpu_us\":%.2f,\"calls_per_s\":%.0f,"
           "\"big_mib_per_s\":%.0f,\"big_rss_growth_kib\":%ld,\"idle_rss_kib\":%ld,\"exit\":%d}\n",
           start_up / 1e3, calls ? latencies[calls / 2] : 0, calls ? latencies[calls * 99 / 100] : 0,
           calls ? cpu / calls : 0, per_second, mib_per_second, big_mib ? peak - before_big : 0, idle_kib,
           WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return 0;
}
