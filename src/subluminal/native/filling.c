/* Text made of fixed pieces and of what stands between them: events, of which most is the same every time.
 *
 * Twins: the templates in core/emit/emitter.py. The pieces are what a twin itself writes around its arguments.
 */
#include "core.h"

#include <string.h>

/* More than any event has. */
#define MOST 32
/* As many as a long long has, with its sign. */
#define DIGITS 20

struct part {
    const char *text;
    size_t length;
};

/* Only what is one byte a character and looks the same as UTF-8. */
static int is_ascii(PyObject *value, struct part *part)
{
    if (!PyUnicode_CheckExact(value) || !PyUnicode_IS_COMPACT_ASCII(value))
        return 0;
    part->text = (const char *)PyUnicode_1BYTE_DATA(value);
    part->length = (size_t)PyUnicode_GET_LENGTH(value);
    return 1;
}

/* An integer as decimal text at the end of `digits`. */
static int is_integer(PyObject *value, struct part *part, char digits[DIGITS])
{
    int overflow;
    if (!PyLong_CheckExact(value))
        return 0;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow)
        return 0;
    unsigned long long left = number < 0 ? 0ULL - (unsigned long long)number : (unsigned long long)number;
    char *first = digits + DIGITS;
    do
        *--first = (char)('0' + left % 10);
    while (left /= 10);
    if (number < 0)
        *--first = '-';
    part->text = first;
    part->length = (size_t)(digits + DIGITS - first);
    return 1;
}

/* Bound: (twin, pieces); what is made is a piece, an argument, a piece, and so on. There is one more piece. */
PyObject *filled(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    if (!is_bound(self) || PyTuple_GET_SIZE(self) != 2 || count >= MOST)
        return left_to_twin(self, arguments, count);
    PyObject *pieces = PyTuple_GET_ITEM(self, 1);
    if (!PyTuple_CheckExact(pieces) || PyTuple_GET_SIZE(pieces) != count + 1)
        return left_to_twin(self, arguments, count);
    struct part parts[2 * MOST];
    char digits[MOST][DIGITS];
    size_t length = 0;
    for (Py_ssize_t i = 0; i <= 2 * count; i++) {
        PyObject *value = i % 2 ? arguments[i / 2] : PyTuple_GET_ITEM(pieces, i / 2);
        if (!is_ascii(value, &parts[i]) && (i % 2 == 0 || !is_integer(value, &parts[i], digits[i / 2])))
            return left_to_twin(self, arguments, count);
        length += parts[i].length;
    }
    PyObject *made = PyUnicode_New((Py_ssize_t)length, 127);
    if (made == NULL)
        return NULL;
    char *to = (char *)PyUnicode_1BYTE_DATA(made);
    for (Py_ssize_t i = 0; i <= 2 * count; i++) {
        memcpy(to, parts[i].text, parts[i].length);
        to += parts[i].length;
    }
    return made;
}
