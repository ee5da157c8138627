/* The value of arguments and their canonical form, where the text is canonical but for the order of its members.
 *
 * Such a text has no white space, no needless escape, no fraction and no exponent, so its canonical form is as long as
 * itself: the same members, sorted. Sorted already, it is its own canonical form. Twin: `read_args` in
 * contracts/canonical.py. NULL without an exception set: left to the twin.
 */
#include "core.h"
#include "text.h"

/* Levels of brackets that are followed; each costs a frame of the C stack. */
#define MAX_ARGS_LEVELS 24
/* Members of an object whose order has to be found. One that is in order may have any number. */
#define MAX_UNSORTED 32
/* What a C integer of 64 bits holds, whatever the digits are. */
#define MAX_DIGITS 18

/* One member of an object: the key's first character, its closing quote, the value's end. */
struct member {
    text key, value, end;
};

struct reader {
    text at, end;
    int unsorted, unsorted_inside;
    /* Of the outermost object, in order. */
    Py_ssize_t count;
    struct member members[MAX_UNSORTED];
};

static PyObject *read_value(struct reader *reader, int levels);

static uint32_t read_utf8(text *p)
{
    uint32_t code = 0;
    *p += utf8_length(*p, *p + 4, &code); /* was found to be valid, so no byte behind it is looked at */
    return code;
}

/* The character that the escape at `*p` stands for; one that `escape_end` took and called minimal. */
static uint32_t read_escape(text *p)
{
    unsigned char c = (*p)[1];
    if (c == 'u') {
        uint32_t unit = (uint32_t)(hex_digit((*p)[4]) << 4 | hex_digit((*p)[5]));
        *p += 6;
        return unit;
    }
    *p += 2;
    switch (c) {
    case 'b':
        return '\b';
    case 't':
        return '\t';
    case 'n':
        return '\n';
    case 'f':
        return '\f';
    case 'r':
        return '\r';
    default:
        return c;
    }
}

static void write_ascii(unsigned char *out, unsigned char *out_end, text p, text end)
{
    for (;;) {
        p = copy_plain(&out, out_end, p, end);
        if (p == end)
            return;
        *out++ = (unsigned char)read_escape(&p);
    }
}

static void write_wide(PyObject *string, text p, text end)
{
    int kind = PyUnicode_KIND(string);
    void *data = PyUnicode_DATA(string);
    for (Py_ssize_t at = 0; p < end; at++) {
        uint32_t code = *p == '\\' ? read_escape(&p) : *p < 0x80 ? *p++ : read_utf8(&p);
        PyUnicode_WRITE(kind, data, at, code);
    }
}

/* A string whose first character is at `reader->at`. `escapes`: whether it may have any. */
static PyObject *read_string(struct reader *reader, int escapes)
{
    struct string_facts facts;
    text begin = reader->at;
    text behind = string_end(begin, reader->end, &facts);
    if (behind == NULL || !facts.minimal || (facts.escapes && !escapes))
        return NULL;
    reader->at = behind;
    text last = behind - 1;
    Py_ssize_t length = last - begin - (Py_ssize_t)facts.saved;
    PyObject *string = PyUnicode_New(length, facts.highest > 127 ? facts.highest : 127);
    if (string == NULL || length == 0)
        return string;
    if (facts.highest == 0)
        write_ascii(PyUnicode_1BYTE_DATA(string), PyUnicode_1BYTE_DATA(string) + length, begin, last);
    else
        write_wide(string, begin, last);
    return string;
}

static PyObject *read_integer(struct reader *reader)
{
    text p = reader->at;
    text behind = integer_end(p, reader->end);
    if (behind == NULL || behind - p > MAX_DIGITS)
        return NULL;
    /* A fraction or an exponent: no canonical form without a look at its value. */
    if (behind < reader->end && (*behind == '.' || (*behind | 0x20) == 'e'))
        return NULL;
    reader->at = behind;
    int negative = *p == '-';
    long long value = 0;
    for (p += negative; p < behind; p++)
        value = value * 10 + (*p - '0');
    return PyLong_FromLongLong(negative ? -value : value);
}

static int takes(struct reader *reader, unsigned char byte)
{
    if (reader->at == reader->end || *reader->at != byte)
        return 0;
    reader->at++;
    return 1;
}

/* Keys have no escapes here, and UTF-8 sorts as code points do. */
static int compare_keys(struct member a, struct member b)
{
    size_t a_size = (size_t)(a.value - a.key), b_size = (size_t)(b.value - b.key);
    int order = memcmp(a.key, b.key, a_size < b_size ? a_size : b_size);
    return order != 0 ? order : (a_size > b_size) - (a_size < b_size);
}

/* Into its place among `members`, which are in order. */
static void insert(struct member *members, int count, struct member member)
{
    for (; count > 0 && compare_keys(members[count - 1], member) > 0; count--)
        members[count] = members[count - 1];
    members[count] = member;
}

/* One member, into `object`. */
static int read_member(struct reader *reader, PyObject *object, int levels, struct member *member)
{
    if (!takes(reader, '"'))
        return 0;
    member->key = reader->at;
    PyObject *name = read_string(reader, 0);
    if (name == NULL)
        return 0;
    member->value = reader->at - 1;
    PyObject *value = takes(reader, ':') ? read_value(reader, levels) : NULL;
    member->end = reader->at;
    int done = value != NULL && PyDict_SetItem(object, name, value) == 0;
    Py_DECREF(name);
    Py_XDECREF(value);
    return done;
}

static PyObject *read_object(struct reader *reader, int levels)
{
    PyObject *object = PyDict_New();
    if (object == NULL || takes(reader, '}'))
        return object;
    struct member member, before;
    int is_outermost = levels == MAX_ARGS_LEVELS - 1, unsorted = 0;
    Py_ssize_t count = 0;
    do {
        if (!read_member(reader, object, levels, &member))
            break;
        if (count != 0 && compare_keys(before, member) >= 0)
            unsorted = 1;
        if (is_outermost && count < MAX_UNSORTED)
            insert(reader->members, (int)count, member);
        before = member;
        count++;
        if (takes(reader, '}')) {
            if (is_outermost)
                reader->count = count;
            else
                reader->unsorted_inside |= unsorted;
            reader->unsorted |= unsorted;
            if (PyDict_GET_SIZE(object) == count)
                return object;
            break; /* a key that stood twice */
        }
    } while (takes(reader, ','));
    Py_DECREF(object);
    return NULL;
}

static PyObject *read_array(struct reader *reader, int levels)
{
    PyObject *array = PyList_New(0);
    if (array == NULL || takes(reader, ']'))
        return array;
    do {
        PyObject *value = read_value(reader, levels);
        if (value == NULL)
            break;
        int failed = PyList_Append(array, value);
        Py_DECREF(value);
        if (failed)
            break;
        if (takes(reader, ']'))
            return array;
    } while (takes(reader, ','));
    Py_DECREF(array);
    return NULL;
}

static PyObject *constant(struct reader *reader, const char *word, size_t length, PyObject *value)
{
    text behind = word_end(reader->at, reader->end, word, length);
    if (behind == NULL)
        return NULL;
    reader->at = behind;
    Py_INCREF(value);
    return value;
}

static PyObject *read_value(struct reader *reader, int levels)
{
    if (reader->at == reader->end)
        return NULL;
    switch (*reader->at) {
    case '"':
        reader->at++;
        return read_string(reader, 1);
    case '{':
        reader->at++;
        return levels == 0 ? NULL : read_object(reader, levels - 1);
    case '[':
        reader->at++;
        return levels == 0 ? NULL : read_array(reader, levels - 1);
    case 't':
        return constant(reader, "true", 4, Py_True);
    case 'f':
        return constant(reader, "false", 5, Py_False);
    case 'n':
        return constant(reader, "null", 4, Py_None);
    default:
        return read_integer(reader);
    }
}

static unsigned char *write_sorted(unsigned char *out, text p, text end);

static unsigned char *copy(unsigned char *out, text begin, text end)
{
    memcpy(out, begin, (size_t)(end - begin));
    return out + (end - begin);
}

static unsigned char *write_object(unsigned char *out, text p, text end)
{
    struct member members[MAX_UNSORTED];
    int count = 0;
    while (*p != '}') {
        struct string_facts facts;
        struct member member = {p + 2, NULL, NULL}; /* behind `{"` or `,"` */
        member.value = string_end(member.key, end, &facts) - 1;
        member.end = p = value_end(member.value + 2, end);
        if (count == MAX_UNSORTED)
            return NULL;
        insert(members, count++, member);
    }
    for (int i = 0; i < count; i++) {
        *out++ = i ? ',' : '{';
        out = copy(out, members[i].key - 1, members[i].value + 2);
        out = write_sorted(out, members[i].value + 2, members[i].end);
        if (out == NULL)
            return NULL;
    }
    *out++ = '}';
    return out;
}

/* The value from `p` to `end`, which was read and found good, with the members of its objects in order. */
static unsigned char *write_sorted(unsigned char *out, text p, text end)
{
    if ((*p != '{' && *p != '[') || end - p == 2)
        return copy(out, p, end);
    if (*p == '{')
        return write_object(out, p, end);
    while (*p != ']') {
        *out++ = *p++; /* `[` or `,` */
        text behind = value_end(p, end);
        out = write_sorted(out, p, behind);
        if (out == NULL)
            return NULL;
        p = behind;
    }
    *out++ = ']';
    return out;
}

/* NULL without an exception: too many members to sort. */
static PyObject *canonical_of(PyObject *raw, text begin, struct reader *reader)
{
    if (!reader->unsorted) {
        Py_INCREF(raw);
        return raw;
    }
    if (reader->count > MAX_UNSORTED)
        return NULL;
    PyObject *canonical = PyBytes_FromStringAndSize(NULL, reader->end - begin);
    if (canonical == NULL)
        return NULL;
    unsigned char *out = (unsigned char *)PyBytes_AS_STRING(canonical);
    if (reader->unsorted_inside) {
        if (write_sorted(out, begin, reader->end) == NULL)
            Py_CLEAR(canonical);
        return canonical;
    }
    /* Only the outermost object, as with most tools. */
    for (Py_ssize_t i = 0; i < reader->count; i++) {
        *out++ = i ? ',' : '{';
        out = copy(out, reader->members[i].key - 1, reader->members[i].end);
    }
    *out = '}';
    return canonical;
}

PyObject *read_args(PyObject *self, PyObject *raw)
{
    PyObject *value = NULL, *canonical = NULL, *both = NULL;
    if (PyBytes_CheckExact(raw)) {
        text begin = (text)PyBytes_AS_STRING(raw);
        struct reader reader;
        reader.at = begin;
        reader.end = begin + PyBytes_GET_SIZE(raw);
        reader.unsorted = reader.unsorted_inside = 0;
        reader.count = 0;
        value = read_value(&reader, MAX_ARGS_LEVELS);
        if (value != NULL && reader.at == reader.end)
            canonical = canonical_of(raw, begin, &reader);
        if (canonical != NULL)
            both = PyTuple_Pack(2, value, canonical);
        Py_XDECREF(value);
        Py_XDECREF(canonical);
    }
    return both == NULL && !PyErr_Occurred() ? left_to_twin(self, &raw, 1) : both;
}
