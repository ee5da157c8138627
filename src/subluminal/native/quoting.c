/* A string as JSON, in the bytes that msgspec writes: ASCII strings; all others are left to it. */
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

PyObject *quote(PyObject *module, PyObject *value)
{
    (void)module;
    if (!PyUnicode_CheckExact(value) || !PyUnicode_IS_COMPACT_ASCII(value)) {
        Py_INCREF(Py_None);
        return Py_None;
    }
    text begin = PyUnicode_1BYTE_DATA(value);
    text end = begin + PyUnicode_GET_LENGTH(value);
    size_t length = quoted_length(begin, end);
    PyObject *quoted = PyUnicode_New((Py_ssize_t)length, 127);
    if (quoted != NULL) {
        unsigned char *out = PyUnicode_1BYTE_DATA(quoted);
        write_quoted(out, out + length, begin, end);
    }
    return quoted;
}
