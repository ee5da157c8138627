/* The table of a run's state as bytes: what others did to it, and what a call does, where entries stay where they are.
 *
 * Twins: Table._load and Table._change in host/run/table.py; host/run/pages.py says what the bytes are. All is checked
 * before anything is changed.
 */
#include "core.h"

#include <stdint.h>
#include <string.h>

enum { KEY = 16, POOL_AT = 16, COUNT_AT = 17, HEAD = 20, FRONT = 24, CRC = 4 };
enum { MARK = 2, LABEL = 4, USUAL = 3, MOST_VALUES = 66 };
/* More than nearly every call changes. */
#define MOST_OPS 16

static uint32_t steps[8][256];

void prepare_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t rest = byte;
        for (int bit = 0; bit < 8; bit++)
            rest = rest & 1 ? rest >> 1 ^ 0xEDB88320u : rest >> 1;
        steps[0][byte] = rest;
    }
    for (int step = 1; step < 8; step++)
        for (int byte = 0; byte < 256; byte++)
            steps[step][byte] = steps[step - 1][byte] >> 8 ^ steps[0][steps[step - 1][byte] & 255];
}

/* As zlib's. */
static uint32_t crc32_of(const unsigned char *data, size_t size, uint32_t crc)
{
    crc = ~crc;
    for (; size >= 8; data += 8, size -= 8) {
        crc ^= (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        crc = steps[7][crc & 255] ^ steps[6][crc >> 8 & 255] ^ steps[5][crc >> 16 & 255] ^ steps[4][crc >> 24] ^
              steps[3][data[4]] ^ steps[2][data[5]] ^ steps[1][data[6]] ^ steps[0][data[7]];
    }
    while (size--)
        crc = crc >> 8 ^ steps[0][(crc ^ *data++) & 255];
    return ~crc;
}

static uint64_t number(const unsigned char *from, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i--;)
        value = value << 8 | from[i];
    return value;
}

static void put_number(unsigned char *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++, value >>= 8)
        to[i] = (unsigned char)value;
}

static unsigned char *bytes_of(PyObject *array)
{
    return (unsigned char *)PyByteArray_AS_STRING(array);
}

/* An argument that is a number of at most this size; otherwise nothing is sure. */
static int is_number(PyObject *value, uint64_t most, uint64_t *found)
{
    int overflow;
    if (!PyLong_Check(value))
        return 0;
    long long read = PyLong_AsLongLongAndOverflow(value, &overflow);
    *found = (uint64_t)read;
    return !overflow && read >= 0 && *found <= most;
}

/* Whether the same entries stand at the same places, whatever their values. */
static int same_heads(const unsigned char *known, const unsigned char *found, size_t length)
{
    size_t at = FRONT;
    while (at < length) {
        if (length - at < HEAD || memcmp(known + at, found + at, HEAD) != 0)
            return 0;
        at += HEAD + 8 * (size_t)known[at + COUNT_AT];
    }
    return at == length;
}

/* table_taken(raw, at, copy, image, seldom, tail, tail_crc, room): version, calls and tail_crc of the copy that stands
 * at `at`, taken over into image and tail; None: it is not whole, or more has changed than values and what was appended. */
PyObject *table_taken(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    (void)self;
    uint64_t at, copy, tail_crc, room;
    if (count != 8 || !PyBytes_CheckExact(arguments[0]) || !PyByteArray_CheckExact(arguments[3]) ||
        !PyBytes_CheckExact(arguments[4]) || !PyByteArray_CheckExact(arguments[5]) ||
        !is_number(arguments[1], UINT32_MAX, &at) || !is_number(arguments[2], 1, &copy) ||
        !is_number(arguments[6], UINT32_MAX, &tail_crc) || !is_number(arguments[7], UINT32_MAX, &room))
        Py_RETURN_NONE;
    PyObject *image = arguments[3], *tail = arguments[5];
    size_t size = (size_t)PyBytes_GET_SIZE(arguments[0]), seldom = (size_t)PyBytes_GET_SIZE(arguments[4]);
    size_t length = (size_t)PyByteArray_GET_SIZE(image), known = (size_t)PyByteArray_GET_SIZE(tail);
    if (length < FRONT || length > room || at > size || size - at < CRC + seldom + length)
        Py_RETURN_NONE;
    const unsigned char *raw = (const unsigned char *)PyBytes_AS_STRING(arguments[0]) + at;
    const unsigned char *front = raw + CRC + seldom;
    uint64_t long_as = number(front, 4), appended = number(front + 4, 4);
    uint64_t version = number(front + 8, 8), calls = number(front + 16, 8);
    if (long_as != length || appended < known || appended > size - at - CRC - seldom - length ||
        (version & 1) != copy || memcmp(raw + CRC, PyBytes_AS_STRING(arguments[4]), seldom) != 0 ||
        memcmp(front + length, bytes_of(tail), known) != 0 || !same_heads(bytes_of(image), front, length))
        Py_RETURN_NONE;
    uint32_t crc = crc32_of(front + length + known, (size_t)appended - known, (uint32_t)tail_crc);
    if (crc32_of(front, length, crc) != (uint32_t)number(raw, CRC))
        Py_RETURN_NONE;
    PyObject *found = Py_BuildValue("KKI", (unsigned long long)version, (unsigned long long)calls, (unsigned int)crc);
    if (found != NULL && appended > known) {
        if (PyByteArray_Resize(tail, (Py_ssize_t)appended) < 0) {
            Py_DECREF(found);
            return NULL;
        }
        memcpy(bytes_of(tail) + known, front + length + known, (size_t)appended - known);
    }
    if (found != NULL)
        memcpy(bytes_of(image), front, length);
    return found;
}

struct op {
    PyObject *key, *values;
    long long numbers[MOST_VALUES];
    Py_ssize_t count;
    uint64_t pool, place;
    int is_new; /* it goes to the tail */
};

/* What this operation changes; 0: more than is sure. Earlier ones may make an entry only once. */
static int read_op(PyObject *tuple, PyObject *kept, PyObject *seen, size_t length, const struct op *ops, int earlier,
                   struct op *op)
{
    if (!PyTuple_CheckExact(tuple) || PyTuple_GET_SIZE(tuple) != 3 ||
        !is_number(PyTuple_GET_ITEM(tuple, 0), LABEL - 1, &op->pool))
        return 0;
    op->key = PyTuple_GET_ITEM(tuple, 1);
    op->values = PyTuple_GET_ITEM(tuple, 2);
    if (!PyBytes_CheckExact(op->key) || PyBytes_GET_SIZE(op->key) != KEY || !PyTuple_CheckExact(op->values))
        return 0;
    op->count = PyTuple_GET_SIZE(op->values);
    op->is_new = op->pool >= MARK;
    if (op->count > MOST_VALUES || (!op->is_new && op->count != USUAL))
        return 0;
    for (Py_ssize_t i = 0; i < op->count; i++) {
        int overflow;
        PyObject *value = PyTuple_GET_ITEM(op->values, i);
        if (!PyLong_CheckExact(value))
            return 0;
        op->numbers[i] = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow)
            return 0;
    }
    PyObject *found = PyDict_GetItemWithError(op->is_new ? seen : kept, op->key);
    if (found == NULL)
        return 0;
    if (!op->is_new)
        return is_number(found, length, &op->place) && op->place >= FRONT &&
               length - op->place >= HEAD + 8 * USUAL;
    for (int i = 0; i < earlier; i++)
        if (ops[i].is_new && memcmp(PyBytes_AS_STRING(ops[i].key), PyBytes_AS_STRING(op->key), KEY) == 0)
            return 0;
    return found == Py_None;
}

/* table_changed(ops, image, tail, kept, seen, seldom, tail_crc, version, calls, room): the copy to be written, and its
 * tail_crc; with version 0 nothing is to be written yet. None: an entry is not where `kept` says, or there is no room. */
PyObject *table_changed(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    (void)self;
    uint64_t tail_crc, version, calls, room;
    if (count != 10 || !PyList_CheckExact(arguments[0]) || !PyByteArray_CheckExact(arguments[1]) ||
        !PyByteArray_CheckExact(arguments[2]) || !PyDict_CheckExact(arguments[3]) ||
        !PyDict_CheckExact(arguments[4]) || !PyBytes_CheckExact(arguments[5]) ||
        !is_number(arguments[6], UINT32_MAX, &tail_crc) || !is_number(arguments[7], INT64_MAX, &version) ||
        !is_number(arguments[8], INT64_MAX, &calls) || !is_number(arguments[9], UINT32_MAX, &room))
        Py_RETURN_NONE;
    PyObject *image = arguments[1], *tail = arguments[2], *seen = arguments[4];
    size_t length = (size_t)PyByteArray_GET_SIZE(image), known = (size_t)PyByteArray_GET_SIZE(tail);
    size_t seldom = (size_t)PyBytes_GET_SIZE(arguments[5]), longer = known;
    Py_ssize_t many = PyList_GET_SIZE(arguments[0]);
    struct op ops[MOST_OPS];
    if (many > MOST_OPS || length < FRONT)
        Py_RETURN_NONE;
    for (int i = 0; i < (int)many; i++) {
        if (!read_op(PyList_GET_ITEM(arguments[0], i), arguments[3], seen, length, ops, i, &ops[i])) {
            if (PyErr_Occurred())
                return NULL;
            Py_RETURN_NONE;
        }
        longer += ops[i].is_new ? HEAD + 8 * (size_t)ops[i].count : 0;
    }
    if (length > room || longer > room - length)
        Py_RETURN_NONE;
    if (longer > known && PyByteArray_Resize(tail, (Py_ssize_t)longer) < 0)
        return NULL;
    unsigned char *to = bytes_of(tail) + known;
    for (int i = 0; i < (int)many; i++) {
        unsigned char *values = bytes_of(image) + ops[i].place + HEAD;
        if (ops[i].is_new) {
            memcpy(to, PyBytes_AS_STRING(ops[i].key), KEY);
            to[POOL_AT] = (unsigned char)ops[i].pool;
            to[COUNT_AT] = (unsigned char)ops[i].count;
            to[COUNT_AT + 1] = to[COUNT_AT + 2] = 0;
            values = to + HEAD;
            to += HEAD + 8 * (size_t)ops[i].count;
        }
        for (Py_ssize_t j = 0; j < ops[i].count; j++)
            put_number(values + 8 * j, (uint64_t)ops[i].numbers[j], 8);
        if (PyDict_SetItem(seen, ops[i].key, ops[i].values) < 0)
            return NULL;
    }
    uint32_t crc = crc32_of(bytes_of(tail) + known, longer - known, (uint32_t)tail_crc);
    if (version == 0)
        return Py_BuildValue("y#I", "", (Py_ssize_t)0, (unsigned int)crc);
    PyObject *whole = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(CRC + seldom + length + longer));
    if (whole == NULL)
        return NULL;
    unsigned char *front = bytes_of(image), *copy = (unsigned char *)PyBytes_AS_STRING(whole);
    put_number(front, length, 4);
    put_number(front + 4, longer, 4);
    put_number(front + 8, version, 8);
    put_number(front + 16, calls, 8);
    put_number(copy, crc32_of(front, length, crc), CRC);
    memcpy(copy + CRC, PyBytes_AS_STRING(arguments[5]), seldom);
    memcpy(copy + CRC + seldom, front, length);
    memcpy(copy + CRC + seldom + length, bytes_of(tail), longer);
    return Py_BuildValue("NI", whole, (unsigned int)crc);
}
