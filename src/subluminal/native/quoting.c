/* A string as JSON, in the bytes that msgspec writes, and what is shown of a message: ASCII; all else is left to Python. */
#include "core.h"
#include "text.h"

static const char HEX[] = "0123456789abcdef";

/* The letter of a short escape, `u` for a long one. */
static unsigned char escape_letter(unsigned char c)
{
    switch (c) {
    case '\b':
        return 'b';
    case '\t':
        return 't';
    case '\n':
        return 'n';
    case '\f':
        return 'f';
    case '\r':
        return 'r';
    case '"': case '\\':
        return c;
    default:
        return 'u';
    }
}

static size_t quoted_length(text p, text end)
{
    size_t length = (size_t)(end - p) + 2;
#ifdef SUB_SSE2
    for (; end - p >= 16; p += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)p);
        __m128i escaped = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')),
                                       _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\')));
        if (_mm_movemask_epi8(_mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20))))
            break; /* a control: its escape is short or long */
        for (int places = _mm_movemask_epi8(escaped); places; places &= places - 1)
            length++;
    }
#endif
    for (p = plain_end(p, end); p < end; p = plain_end(p + 1, end))
        length += escape_letter(*p) == 'u' ? 5 : 1;
    return length;
}

static void write_quoted(unsigned char *out, unsigned char *out_end, text p, text end)
{
    *out++ = '"';
    for (;;) {
        text next = copy_plain(&out, out_end, p, end);
        if (next == end)
            break;
        unsigned char letter = escape_letter(*next);
        *out++ = '\\';
        *out++ = letter;
        if (letter == 'u') {
            *out++ = '0';
            *out++ = '0';
            *out++ = (unsigned char)HEX[*next >> 4];
            *out++ = (unsigned char)HEX[*next & 15];
        }
        p = next + 1;
    }
    *out = '"';
}

/* ASCII text, between quotes. */
static PyObject *quoted(text begin, text end)
{
    size_t length = quoted_length(begin, end);
    PyObject *string = PyUnicode_New((Py_ssize_t)length, 127);
    if (string != NULL) {
        unsigned char *out = PyUnicode_1BYTE_DATA(string);
        write_quoted(out, out + length, begin, end);
    }
    return string;
}

PyObject *quote(PyObject *self, PyObject *value)
{
    if (!PyUnicode_CheckExact(value) || !PyUnicode_IS_COMPACT_ASCII(value))
        return left_to_twin(self, &value, 1);
    text begin = PyUnicode_1BYTE_DATA(value);
    return quoted(begin, begin + PyUnicode_GET_LENGTH(value));
}

static int is_ascii(text p, text end)
{
#ifdef SUB_SSE2
    for (; end - p >= 16; p += 16)
        if (_mm_movemask_epi8(_mm_loadu_si128((const __m128i *)p)))
            return 0;
#endif
    for (; p < end; p++)
        if (*p >= 0x80)
            return 0;
    return 1;
}

/* What is shown of a message: as JSON, whether it was cut, and what was masked. Bound: (twin, limit, redactor, "only_shapes"). Taken is
 * what is shown as it stands: ASCII, not above the limit, without anything that may be a credential, while the redactor
 * looks for nothing else. Twin: `previewer` in core/redact/preview.py. */
PyObject *preview(PyObject *self, PyObject *raw)
{
    if (!is_bound(self) || PyTuple_GET_SIZE(self) != 4 || !PyBytes_CheckExact(raw) || PyBytes_GET_SIZE(raw) == 0)
        return left_to_twin(self, &raw, 1);
    text begin = (text)PyBytes_AS_STRING(raw);
    text end = begin + PyBytes_GET_SIZE(raw);
    Py_ssize_t limit = PyLong_AsSsize_t(PyTuple_GET_ITEM(self, 1));
    PyObject *only_shapes = PyErr_Occurred() ? NULL : PyObject_GetAttr(PyTuple_GET_ITEM(self, 2), PyTuple_GET_ITEM(self, 3));
    if (only_shapes == NULL)
        return NULL;
    Py_DECREF(only_shapes);
    if (only_shapes != Py_True || end - begin > limit || !is_ascii(begin, end) ||
        may_hold_credential(begin, (size_t)(end - begin)))
        return left_to_twin(self, &raw, 1);
    PyObject *string = quoted(begin, end), *nothing = PyTuple_New(0), *shown = NULL;
    if (string != NULL && nothing != NULL)
        shown = PyTuple_Pack(3, string, Py_False, nothing);
    Py_XDECREF(string);
    Py_XDECREF(nothing);
    return shown;
}
