/* A trivially fast MCP server over HTTP/1.1: the cheapest real peer a proxy can have.
 *
 *     http_server [--event-us N]
 *
 * Prints the port of 127.0.0.1 that it listens on. A POST is answered with its own arguments as structuredContent; the
 * answer to `initialize` opens a session. A GET is an event stream: one comment at once, and with --event-us an event
 * every so often that says when it was sent (CLOCK_MONOTONIC, ns). One thread, epoll, connections kept.
 */
#include "http_common.h"

enum { BUFFER = 16 * 1024 };

typedef struct {
    int fd;
    int stream;
    size_t used;
    char *buffer; /* only while a request is under way: idle streams are many */
} peer;

static long sessions;
static peer **streams;
static size_t stream_count, stream_room;

static void add_stream(peer *p) {
    if (stream_count == stream_room) streams = realloc(streams, (stream_room = stream_room * 2 + 64) * sizeof *streams);
    p->stream = 1;
    streams[stream_count++] = p;
}

static void drop(peer *p) {
    for (size_t i = 0; p->stream && i < stream_count; i++)
        if (streams[i] == p) streams[i--] = streams[--stream_count];
    close(p->fd);
    free(p->buffer);
    free(p);
}

static void begin_stream(peer *p) {
    static const char head[] =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
        "transfer-encoding: chunked\r\n\r\n3\r\n:\n\n\r\n";
    send_all(p->fd, head, sizeof head - 1);
    add_stream(p);
    free(p->buffer);
    p->buffer = NULL;
    p->used = 0;
}

static void answer(peer *p, const char *body, const char *end) {
    char out[BUFFER + 512], content[BUFFER + 256], session[64] = "";
    const char *id = memmem(body, end - body, "\"id\":", 5);
    const char *arguments = memmem(body, end - body, "\"arguments\":", 12);
    size_t id_length = id ? strspn(id += 5, "0123456789") : 0;
    int size;
    if (!id_length) {
        static const char accepted[] = "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n";
        send_all(p->fd, accepted, sizeof accepted - 1);
        return;
    }
    if (memmem(body, end - body, "\"initialize\"", 12)) {
        snprintf(session, sizeof session, "mcp-session-id: bench-%ld\r\n", ++sessions);
        size = snprintf(content, sizeof content,
            "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{}},"
            "\"serverInfo\":{\"name\":\"bench\",\"version\":\"1\"}}}", (int)id_length, id);
    } else if (memmem(body, end - body, "\"tools/list\"", 12)) {
        size = snprintf(content, sizeof content,
            "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":{\"tools\":[{\"name\":\"echo\",\"inputSchema\":{\"type\":\"object\"}}]}}",
            (int)id_length, id);
    } else {
        if (arguments) arguments += 12;
        size = snprintf(content, sizeof content,
            "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"ok\"}],\"structuredContent\":%.*s}}",
            (int)id_length, id, arguments ? (int)(end - 2 - arguments) : 2, arguments ? arguments : "{}");
    }
    int total = snprintf(out, sizeof out,
        "HTTP/1.1 200 OK\r\ndate: Mon, 01 Jan 2024 00:00:00 GMT\r\nserver: bench\r\ncontent-type: application/json\r\n"
        "%scontent-length: %d\r\n\r\n%s", session, size, content);
    send_all(p->fd, out, total);
}

/* Whether the connection goes on. */
static int received(peer *p) {
    if (p->buffer == NULL) p->buffer = malloc(BUFFER + 1);
    ssize_t got = recv(p->fd, p->buffer + p->used, BUFFER - p->used, 0);
    if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
    p->used += got;
    p->buffer[p->used] = 0;
    for (;;) {
        char *head_end = memmem(p->buffer, p->used, "\r\n\r\n", 4);
        if (head_end == NULL) return p->used < BUFFER;
        char *body = head_end + 4;
        if (p->buffer[0] == 'G') {
            begin_stream(p);
            return 1;
        }
        long length = header_number(p->buffer, head_end, "content-length:");
        if (length < 0) length = 0;
        if (length > BUFFER - 4096) return 0;
        if (body + length > p->buffer + p->used) return 1;
        answer(p, body, body + length);
        size_t taken = body + length - p->buffer;
        memmove(p->buffer, p->buffer + taken, p->used -= taken);
        if (!p->used) return 1;
    }
}

static void emit(void) {
    char event[256], framed[300];
    int size = snprintf(event, sizeof event,
        "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":1,\"progress\":%lld}}\n\n",
        (long long)now_ns());
    int total = snprintf(framed, sizeof framed, "%x\r\n%s\r\n", size, event);
    for (size_t i = 0; i < stream_count; i++) send_all(streams[i]->fd, framed, total);
}

int main(int argc, char **argv) {
    long event_us = argc > 2 && !strcmp(argv[1], "--event-us") ? atol(argv[2]) : 0;
    signal(SIGPIPE, SIG_IGN);
    many_files();
    int port = 0, listener = listen_on_loopback(&port), events = epoll_create1(0);
    watch(events, listener, EPOLLIN, NULL);
    printf("%d\n", port);
    fflush(stdout);
    int64_t next = now_ns() + event_us * 1000;
    for (;;) {
        struct epoll_event ready[256];
        struct timespec wait = {0, 0};
        int64_t left = next - now_ns();
        if (event_us && left > 0) wait.tv_nsec = left % 1000000000, wait.tv_sec = left / 1000000000;
        int count = epoll_pwait2(events, ready, 256, event_us ? &wait : NULL, NULL);
        if (event_us && now_ns() >= next) {
            emit();
            next += event_us * 1000;
        }
        for (int i = 0; i < count; i++) {
            peer *p = ready[i].data.ptr;
            if (p == NULL) {
                int fd;
                while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                    peer *fresh = calloc(1, sizeof *fresh);
                    fresh->fd = fd;
                    no_delay(fd);
                    watch(events, fd, EPOLLIN, fresh);
                }
            } else if (!received(p)) {
                drop(p);
            }
        }
    }
}
