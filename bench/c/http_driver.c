/* The load of bench/mcp_http.py.
 *
 *     http_driver PORT PATH calls CONNECTIONS WARM CALLS    tools/call, one outstanding on each connection
 *     http_driver PORT PATH events COUNT                    how long an event of a stream was on its way
 *     http_driver PORT PATH idle COUNT                      streams that stay open: "ready", until stdin ends
 *
 * Prints JSON. Every answer is checked: status 200, the id that was asked, a result.
 */
#include "http_common.h"

enum { BUFFER = 16 * 1024, OPENING = 64 };

typedef struct {
    int fd;
    int state; /* of a stream: 0 asked, 1 open */
    long id;
    int64_t sent;
    size_t used;
    char session[64];
    char *buffer;
} peer;

static int port, events;
static const char *path;
static long next_id = 1000;

static int dial(void) {
    struct sockaddr_in address = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    no_delay(fd);
    return fd;
}

static void post(peer *p, const char *body, int size) {
    char out[4096];
    int total = snprintf(out, sizeof out,
        "POST %s HTTP/1.1\r\nhost: 127.0.0.1:%d\r\naccept: application/json, text/event-stream\r\n"
        "accept-encoding: gzip, deflate\r\nconnection: keep-alive\r\nuser-agent: python-httpx/0.28.1\r\n"
        "content-type: application/json\r\n%s%s%s%scontent-length: %d\r\n\r\n%s",
        path, port, *p->session ? "mcp-session-id: " : "", p->session, *p->session ? "\r\n" : "",
        *p->session ? "mcp-protocol-version: 2025-06-18\r\n" : "", size, body);
    p->used = 0;
    p->sent = now_ns();
    send_all(p->fd, out, total);
}

static void call(peer *p) {
    char body[512];
    p->id = next_id++;
    int size = snprintf(body, sizeof body,
        "{\"jsonrpc\":\"2.0\",\"id\":%ld,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":"
        "{\"path\":\"/src/main.py\",\"n\":%ld,\"text\":\"def f(x): return x + 1  # note, def f(x): retu\"}}}",
        p->id, p->id);
    post(p, body, size);
}

static void wrong(peer *p, const char *what) {
    fprintf(stderr, "http_driver: %s: %.*s\n", what, (int)p->used, p->buffer);
    exit(1);
}

/* Whether the answer is whole. */
static int is_whole(peer *p) {
    p->buffer[p->used] = 0;
    char *end = strstr(p->buffer, "\r\n\r\n");
    if (end == NULL) return 0;
    long length = header_number(p->buffer, end, "content-length:");
    if (length >= 0) return p->used >= (size_t)(end + 4 - p->buffer) + length;
    return p->used > 7 && !memcmp(p->buffer + p->used - 7, "\r\n0\r\n\r\n", 7);
}

static int take(peer *p) {
    ssize_t got = recv(p->fd, p->buffer + p->used, BUFFER - p->used, 0);
    if (got <= 0) wrong(p, "the connection ended");
    p->used += got;
    return is_whole(p);
}

static void check(peer *p) {
    char *id = strstr(p->buffer, "\"id\":");
    int good = !strncmp(p->buffer, "HTTP/1.1 200 ", 13) && id != NULL && atol(id + 5) == p->id;
    if (!good || strstr(id, "\"result\":") == NULL) wrong(p, "not the answer");
}

static void ask(peer *p, const char *method, const char *params) {
    char body[512];
    p->id = next_id++;
    int size = snprintf(body, sizeof body, "{\"jsonrpc\":\"2.0\",\"id\":%ld,\"method\":\"%s\",\"params\":%s}", p->id,
        method, params);
    post(p, body, size);
    while (!take(p)) {}
    check(p);
}

/* As a client does: `initialize`, the session that it is given, and the list of tools. */
static void open_session(peer *p) {
    ask(p, "initialize", "{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\"clientInfo\":{\"name\":\"bench\",\"version\":\"1\"}}");
    char *session = strcasestr(p->buffer, "mcp-session-id: ");
    if (session == NULL || sscanf(session + 16, "%60[!-~]", p->session) != 1) wrong(p, "no session");
    ask(p, "tools/list", "{}");
}

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double at(int64_t *sorted, long count, double share) { return sorted[(long)((count - 1) * share)] / 1000.0; }

static void calls(int connections, long warm, long count) {
    int64_t *took = malloc((count + connections) * sizeof *took), began = now_ns();
    peer *peers = calloc(connections, sizeof *peers);
    long asked = 0, answered = 0, goal = warm + count;
    for (int i = 0; i < connections; i++) {
        peers[i].fd = dial();
        peers[i].buffer = malloc(BUFFER + 1);
        open_session(&peers[i]);
        watch(events, peers[i].fd, EPOLLIN, &peers[i]);
    }
    for (int i = 0; i < connections && asked < goal; i++, asked++) call(&peers[i]);
    while (answered < goal) {
        struct epoll_event ready[256];
        int found = epoll_wait(events, ready, 256, 30000);
        if (found == 0) exit((fprintf(stderr, "http_driver: no answer within 30 s\n"), 1));
        for (int i = 0; i < found; i++) {
            peer *p = ready[i].data.ptr;
            if (!take(p)) continue;
            int64_t now = now_ns();
            check(p);
            if (answered == warm) {
                began = now;
                printf("warm\n");
                fflush(stdout);
            }
            if (answered >= warm) took[answered - warm] = now - p->sent;
            answered++;
            if (asked < goal) {
                asked++;
                call(p);
            }
        }
    }
    double seconds = (now_ns() - began) / 1e9;
    qsort(took, count, sizeof *took, by_size);
    printf("{\"calls\": %ld, \"p50_us\": %.2f, \"p99_us\": %.2f, \"calls_per_s\": %.1f, \"seconds\": %.3f}\n", count,
        at(took, count, 0.5), at(took, count, 0.99), count / seconds, seconds);
}

static void ask_stream(peer *p) {
    char out[512];
    int size = snprintf(out, sizeof out,
        "GET %s HTTP/1.1\r\nhost: 127.0.0.1:%d\r\naccept: text/event-stream\r\nmcp-session-id: bench-0\r\n"
        "mcp-protocol-version: 2025-06-18\r\n\r\n", path, port);
    p->fd = dial();
    send_all(p->fd, out, size);
    watch(events, p->fd, EPOLLIN | EPOLLRDHUP, p);
}

static void idle(int count) {
    peer *peers = calloc(count, sizeof *peers);
    char buffer[BUFFER + 1];
    int asked = 0, open = 0, lost = 0;
    watch(events, 0, EPOLLIN, NULL);
    while (asked < count && asked < OPENING) ask_stream(&peers[asked++]);
    for (;;) {
        struct epoll_event ready[256];
        int found = epoll_wait(events, ready, 256, open < count ? 60000 : -1);
        if (found == 0) exit((fprintf(stderr, "http_driver: %d of %d streams are open\n", open, count), 1));
        for (int i = 0; i < found; i++) {
            peer *p = ready[i].data.ptr;
            if (p == NULL) {
                printf("{\"open\": %d, \"lost\": %d}\n", open, lost);
                return;
            }
            ssize_t got = recv(p->fd, buffer, BUFFER, 0);
            if (got <= 0) {
                lost++;
                close(p->fd);
                continue;
            }
            buffer[got] = 0;
            if (p->state || strstr(buffer, "\r\n\r\n") == NULL) continue; /* heads are small: they come whole */
            if (strncmp(buffer, "HTTP/1.1 200 ", 13)) exit((fprintf(stderr, "http_driver: %s\n", buffer), 1));
            p->state = 1;
            if (asked < count) ask_stream(&peers[asked++]);
            if (++open == count) {
                printf("ready\n");
                fflush(stdout);
            }
        }
    }
}

static void stream_events(long count) {
    static const char mark[] = "\"progress\":";
    int64_t *took = malloc(count * sizeof *took);
    peer p = {.buffer = malloc(BUFFER + 1)};
    long seen = -20; /* the first ones find nothing warm */
    ask_stream(&p);
    while (seen < count) {
        ssize_t got = recv(p.fd, p.buffer, BUFFER, 0);
        int64_t now = now_ns();
        if (got <= 0) exit((fprintf(stderr, "http_driver: the stream ended\n"), 1));
        p.buffer[got] = 0;
        char *stamp = strstr(p.buffer, mark);
        if (stamp == NULL) continue;
        if (seen >= 0) took[seen] = now - atoll(stamp + sizeof mark - 1);
        seen++;
    }
    qsort(took, count, sizeof *took, by_size);
    printf("{\"events\": %ld, \"p50_us\": %.2f, \"p99_us\": %.2f, \"max_us\": %.2f}\n", count, at(took, count, 0.5),
        at(took, count, 0.99), at(took, count, 1.0));
}

int main(int argc, char **argv) {
    if (argc < 5) return fprintf(stderr, "http_driver: see the head of its source\n"), 2;
    port = atoi(argv[1]);
    path = argv[2];
    many_files();
    events = epoll_create1(0);
    if (!strcmp(argv[3], "calls") && argc == 7) calls(atoi(argv[4]), atol(argv[5]), atol(argv[6]));
    else if (!strcmp(argv[3], "idle")) idle(atoi(argv[4]));
    else stream_events(atol(argv[4]));
    return 0;
}
