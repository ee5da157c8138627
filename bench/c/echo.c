/* A trivially fast MCP server: the cheapest real peer a shim can have.
 *
 * Line-delimited JSON-RPC on stdin and stdout. tools/call answers with the request's own arguments as
 * structuredContent, byte for byte. Finds its members with a real scan, so key order and white space do not matter.
 * Ends at end of file.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *start;
    size_t length;
} span;

static char *input, *output;
static size_t input_size = 1 << 16, input_used, output_size = 1 << 16, output_used;

static void put(const char *data, size_t length) {
    while (output_used + length > output_size) output = realloc(output, output_size *= 2);
    memcpy(output + output_used, data, length);
    output_used += length;
}

static void put_text(const char *text) { put(text, strlen(text)); }

static void flush_output(void) {
    for (size_t done = 0; done < output_used;) {
        ssize_t wrote = write(1, output + done, output_used - done);
        if (wrote < 0 && errno != EINTR) exit(1);
        if (wrote > 0) done += wrote;
    }
    output_used = 0;
}

static const char *skip_space(const char *p, const char *end) {
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r')) p++;
    return p;
}

static const char *skip_string(const char *p, const char *end) {
    for (p++; p < end; p++) {
        if (*p == '\\') p++;
        else if (*p == '"') return p + 1;
    }
    return end;
}

static const char *skip_value(const char *p, const char *end) {
    p = skip_space(p, end);
    if (p >= end) return end;
    if (*p == '"') return skip_string(p, end);
    if (*p != '{' && *p != '[') {
        while (p < end && *p != ',' && *p != '}' && *p != ']') p++;
        return p;
    }
    for (int depth = 0; p < end;) {
        if (*p == '"') {
            p = skip_string(p, end);
            continue;
        }
        if (*p == '{' || *p == '[') depth++;
        if ((*p == '}' || *p == ']') && --depth == 0) return p + 1;
        p++;
    }
    return end;
}

/* The value of a member of the object that begins at `p`. */
static int member(const char *p, const char *end, const char *key, span *value) {
    size_t key_length = strlen(key);
    p = skip_space(p, end);
    if (p >= end || *p++ != '{') return 0;
    while (p < end) {
        p = skip_space(p, end);
        if (p >= end || *p != '"') return 0;
        const char *name = p + 1;
        p = skip_string(p, end);
        size_t name_length = p - 1 - name;
        p = skip_space(p, end);
        if (p < end && *p == ':') p++;
        p = skip_space(p, end);
        value->start = p;
        p = skip_value(p, end);
        value->length = p - value->start;
        if (name_length == key_length && !memcmp(name, key, key_length)) return 1;
        p = skip_space(p, end);
        if (p >= end || *p++ != ',') return 0;
    }
    return 0;
}

static int is(span value, const char *text) {
    size_t length = strlen(text);
    return value.length == length + 2 && !memcmp(value.start + 1, text, length);
}

static void answer(const char *line, const char *end) {
    span id, method, params, arguments;
    if (!member(line, end, "id", &id) || !member(line, end, "method", &method)) return;
    put_text("{\"jsonrpc\":\"2.0\",\"id\":");
    put(id.start, id.length);
    if (is(method, "tools/call")) {
        put_text(",\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"ok\"}]");
        if (member(line, end, "params", &params) &&
            member(params.start, params.start + params.length, "arguments", &arguments)) {
            put_text(",\"structuredContent\":");
            put(arguments.start, arguments.length);
        }
        put_text("}}\n");
    } else if (is(method, "initialize")) {
        put_text(",\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{}},"
                 "\"serverInfo\":{\"name\":\"bench-echo\",\"version\":\"1\"}}}\n");
    } else if (is(method, "tools/list")) {
        put_text(",\"result\":{\"tools\":[{\"name\":\"echo\",\"inputSchema\":{\"type\":\"object\"}}]}}\n");
    } else {
        put_text(",\"result\":{}}\n");
    }
}

int main(int argc, char **argv) {
    /* A server that needs a while to start, as real ones do: --start-ms N. */
    if (argc == 3 && !strcmp(argv[1], "--start-ms")) usleep(atoi(argv[2]) * 1000);
    input = malloc(input_size);
    output = malloc(output_size);
    size_t scanned = 0;
    for (;;) {
        if (input_used == input_size) input = realloc(input, input_size *= 2);
        ssize_t got = read(0, input + input_used, input_size - input_used);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got < 0;
        input_used += got;
        size_t begin = 0;
        char *newline;
        while ((newline = memchr(input + scanned, '\n', input_used - scanned))) {
            answer(input + begin, newline);
            begin = scanned = newline - input + 1;
        }
        scanned = input_used;
        if (begin) {
            memmove(input, input + begin, input_used - begin);
            input_used -= begin;
            scanned -= begin;
        }
        if (output_used) flush_output();
    }
}
