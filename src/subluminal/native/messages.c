/* The reading of `tools/call` and of replies as clients and servers write them: compact, no key twice, nothing else.
 *
 * Twins: `read_message` and `read_reply` in mcp/message/wire.py.
 */
#include "core.h"
#include "text.h"

struct span {
    text begin, end;
};

static PyObject *bytes_of(struct span span)
{
    return PyBytes_FromStringAndSize((const char *)span.begin, span.end - span.begin);
}

/* Whether `word` stands at `*p`, which then moves behind it. */
static int takes(text *p, text end, const char *word, size_t length)
{
    text behind = word_end(*p, end, word, length);
    if (behind == NULL)
        return 0;
    *p = behind;
    return 1;
}
#define TAKES(p, end, word) takes(p, end, word, sizeof(word) - 1)

/* A value that begins here, into a span that is empty still: a key that stands twice is left to the twin. */
static int takes_value(text *p, text end, struct span *span, text (*ends)(text, text))
{
    if (span->begin != NULL)
        return 0;
    text behind = ends(*p, end);
    if (behind == NULL)
        return 0;
    span->begin = *p;
    span->end = *p = behind;
    return 1;
}

/* An id as everybody writes one: an integer or a string. */
static text id_end(text p, text end)
{
    struct string_facts facts;
    if (p < end && *p == '"')
        return string_end(p + 1, end, &facts);
    return integer_end(p, end);
}

static text object_end(text p, text end)
{
    return p < end && *p == '{' ? value_end(p, end) : NULL;
}

/* A name of plain ASCII, at least one character. */
static text name_end(text p, text end)
{
    if (p == end || *p != '"')
        return NULL;
    text last = plain_end(p + 1, end);
    return last < end && *last == '"' && last > p + 1 ? last + 1 : NULL;
}

static text version_end(text p, text end)
{
    return word_end(p, end, "\"2.0\"", 5);
}

static text call_method_end(text p, text end)
{
    return word_end(p, end, "\"tools/call\"", 12);
}

struct call {
    struct span jsonrpc, id, method, name, arguments, meta;
    int has_params;
};

static int takes_params(text *p, text end, struct call *call)
{
    if (call->has_params || !TAKES(p, end, "{"))
        return 0;
    call->has_params = 1;
    do {
        int taken = TAKES(p, end, "\"name\":")        ? takes_value(p, end, &call->name, name_end)
                    : TAKES(p, end, "\"arguments\":") ? takes_value(p, end, &call->arguments, object_end)
                    : TAKES(p, end, "\"_meta\":")     ? takes_value(p, end, &call->meta, object_end)
                                                      : 0;
        if (!taken)
            return 0;
    } while (TAKES(p, end, ","));
    return TAKES(p, end, "}") && call->name.begin != NULL;
}

static int takes_call(text p, text end, struct call *call)
{
    if (!TAKES(&p, end, "{"))
        return 0;
    do {
        int taken = TAKES(&p, end, "\"jsonrpc\":")  ? takes_value(&p, end, &call->jsonrpc, version_end)
                    : TAKES(&p, end, "\"id\":")     ? takes_value(&p, end, &call->id, id_end)
                    : TAKES(&p, end, "\"method\":") ? takes_value(&p, end, &call->method, call_method_end)
                    : TAKES(&p, end, "\"params\":") ? takes_params(&p, end, call)
                                                    : 0;
        if (!taken)
            return 0;
    } while (TAKES(&p, end, ","));
    return TAKES(&p, end, "}") && p == end && call->id.begin != NULL && call->method.begin != NULL &&
           call->has_params;
}

/* What `make` makes of four references of our own, or they as a tuple; any of them NULL is an error that is set. */
static PyObject *made_of(PyObject *make, PyObject *parts[4])
{
    PyObject *made = NULL;
    if (parts[0] && parts[1] && parts[2] && parts[3])
        made = make == NULL ? PyTuple_Pack(4, parts[0], parts[1], parts[2], parts[3])
                            : PyObject_Vectorcall(make, parts, 4, NULL);
    for (int i = 0; i < 4; i++)
        Py_XDECREF(parts[i]);
    return made;
}

static PyObject *none(void)
{
    Py_INCREF(Py_None);
    return Py_None;
}

static PyObject *bytes_or_none(struct span span)
{
    return span.begin == NULL ? none() : bytes_of(span);
}

/* Bound: (twin, class, kind, method); what is made is `class(kind, line, id, name, arguments, meta, method)`. */
PyObject *read_call(PyObject *self, PyObject *line)
{
    if (!PyBytes_CheckExact(line))
        return left_to_twin(self, &line, 1);
    struct call call = {0};
    text begin = (text)PyBytes_AS_STRING(line);
    if (!takes_call(begin, begin + PyBytes_GET_SIZE(line), &call))
        return left_to_twin(self, &line, 1);
    Py_ssize_t length = call.name.end - call.name.begin - 2;
    PyObject *name = PyUnicode_New(length, 127);
    if (name == NULL)
        return NULL;
    memcpy(PyUnicode_1BYTE_DATA(name), call.name.begin + 1, (size_t)length);
    PyObject *arguments =
        call.arguments.begin == NULL ? PyBytes_FromStringAndSize("{}", 2) : bytes_of(call.arguments);
    PyObject *parts[4] = {bytes_of(call.id), name, arguments, bytes_or_none(call.meta)};
    if (!is_bound(self))
        return made_of(NULL, parts);
    PyObject *reading = NULL;
    if (parts[0] && parts[2] && parts[3] && PyTuple_GET_SIZE(self) == 4) {
        PyObject *members[7] = {PyTuple_GET_ITEM(self, 2), line,     parts[0], parts[1], parts[2], parts[3],
                                PyTuple_GET_ITEM(self, 3)};
        reading = PyObject_Vectorcall(PyTuple_GET_ITEM(self, 1), members, 7, NULL);
    }
    for (int i = 0; i < 4; i++)
        Py_XDECREF(parts[i]);
    return reading;
}

struct reply {
    struct span jsonrpc, id, result, error;
    int ends_well; /* the result has none of the members that change how a call ended */
};

static int is_word(struct span key, const char *word)
{
    size_t length = strlen(word);
    return (size_t)(key.end - key.begin) == length && memcmp(key.begin, word, length) == 0;
}

/* Behind a result that is an object, with a look at its own keys. */
static int takes_result(text *p, text end, struct reply *reply)
{
    if (reply->result.begin != NULL || *p == end || **p != '{')
        return takes_value(p, end, &reply->result, value_end);
    reply->ends_well = 1;
    reply->result.begin = *p;
    text at = space_end(*p + 1, end);
    if (at < end && *at == '}') {
        reply->result.end = *p = at + 1;
        return 1;
    }
    for (;;) {
        struct string_facts facts;
        struct span key;
        at = space_end(at, end);
        if (at == end || *at != '"')
            return 0;
        key.begin = at + 1;
        at = string_end(key.begin, end, &facts);
        if (at == NULL)
            return 0;
        key.end = at - 1;
        if (facts.escapes || is_word(key, "isError") || is_word(key, "resultType") || is_word(key, "task"))
            reply->ends_well = 0;
        at = space_end(at, end);
        if (at == end || *at != ':')
            return 0;
        at = value_end(space_end(at + 1, end), end);
        if (at == NULL)
            return 0;
        at = space_end(at, end);
        if (at == end || (*at != ',' && *at != '}'))
            return 0;
        if (*at++ == '}') {
            reply->result.end = *p = at;
            return 1;
        }
    }
}

static int takes_reply(text p, text end, struct reply *reply)
{
    if (!TAKES(&p, end, "{"))
        return 0;
    do {
        int taken = TAKES(&p, end, "\"jsonrpc\":")  ? takes_value(&p, end, &reply->jsonrpc, version_end)
                    : TAKES(&p, end, "\"id\":")     ? takes_value(&p, end, &reply->id, id_end)
                    : TAKES(&p, end, "\"result\":") ? takes_result(&p, end, reply)
                    : TAKES(&p, end, "\"error\":")  ? takes_value(&p, end, &reply->error, value_end)
                                                    : 0;
        if (!taken)
            return 0;
    } while (TAKES(&p, end, ","));
    return TAKES(&p, end, "}") && p == end && reply->id.begin != NULL;
}

/* Bound: (twin, class); what is made is `class(id, result, error, ends_well)`. */
PyObject *read_reply(PyObject *self, PyObject *line)
{
    if (!PyBytes_CheckExact(line))
        return left_to_twin(self, &line, 1);
    struct reply reply = {0};
    text begin = (text)PyBytes_AS_STRING(line);
    if (!takes_reply(begin, begin + PyBytes_GET_SIZE(line), &reply))
        return left_to_twin(self, &line, 1);
    PyObject *parts[4] = {bytes_of(reply.id), bytes_or_none(reply.result), bytes_or_none(reply.error),
                          PyBool_FromLong(reply.ends_well)};
    return made_of(is_bound(self) && PyTuple_GET_SIZE(self) == 2 ? PyTuple_GET_ITEM(self, 1) : NULL, parts);
}
