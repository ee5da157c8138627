/* JSON text as (pointer, length): where a string, a number or a whole value ends.
 *
 * Everything here is strict JSON in strict UTF-8, and answers NULL wherever it is not sure: the caller then leaves the
 * text to its twin in Python. Nothing allocates, nothing recurses, nothing reads at or behind `end`.
 */
#ifndef SUBLUMINAL_TEXT_H
#define SUBLUMINAL_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__) && !defined(SUB_PORTABLE)
#include <emmintrin.h>
#define SUB_SSE2 1
#endif

typedef const unsigned char *text;

/* One bit for each open bracket. A call with more levels is nobody's ordinary call. */
#define MAX_LEVELS 64

static inline int is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

#ifdef SUB_SSE2
/* A bit for each of sixteen bytes that is not plain. */
static inline unsigned odd_bytes(__m128i bytes)
{
    /* Signed: what is below 0x20 is a control or not ASCII. */
    __m128i odd = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20));
    odd = _mm_or_si128(odd, _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')));
    odd = _mm_or_si128(odd, _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\')));
    return (unsigned)_mm_movemask_epi8(odd);
}
#endif

/* The first byte from `p` on that is no plain character of a string: a quote, a backslash, a control, not ASCII. */
static inline text plain_end(text p, text end)
{
#ifdef SUB_SSE2
    while (end - p >= 16) {
        unsigned odd = odd_bytes(_mm_loadu_si128((const __m128i *)p));
        if (odd)
            return p + __builtin_ctz(odd);
        p += 16;
    }
#endif
    while (p < end && is_plain(*p))
        p++;
    return p;
}

/* As `plain_end`, and what was passed over is at `*out`, which moves on. Nothing is written at or behind `out_end`. */
static inline text copy_plain(unsigned char **out, unsigned char *out_end, text p, text end)
{
#ifdef SUB_SSE2
    while (end - p >= 16 && out_end - *out >= 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)p);
        unsigned odd = odd_bytes(bytes);
        _mm_storeu_si128((__m128i *)*out, bytes);
        int plain = odd ? __builtin_ctz(odd) : 16;
        *out += plain;
        p += plain;
        if (odd)
            return p;
    }
#endif
    while (p < end && *out < out_end && is_plain(*p))
        *(*out)++ = *p++;
    return p;
}

/* What a string is made of. `saved`: bytes of it that become no character. */
struct string_facts {
    size_t saved;
    uint32_t highest; /* code point */
    int escapes;
    int minimal; /* no escape but those that JSON demands, each in its canonical spelling */
};

/* One character that is not ASCII: its length, 0 where it is not UTF-8 (overlong, a surrogate, cut off). */
static inline int utf8_length(text p, text end, uint32_t *code)
{
    ptrdiff_t left = end - p;
    unsigned char c = p[0];
    if (c >= 0xC2 && c <= 0xDF && left >= 2 && (p[1] & 0xC0) == 0x80) {
        *code = (uint32_t)(c & 0x1F) << 6 | (p[1] & 0x3F);
        return 2;
    }
    if (c >= 0xE0 && c <= 0xEF && left >= 3 && (p[1] & 0xC0) == 0x80 && (p[2] & 0xC0) == 0x80) {
        *code = (uint32_t)(c & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 | (p[2] & 0x3F);
        return *code >= 0x800 && (*code < 0xD800 || *code > 0xDFFF) ? 3 : 0;
    }
    if (c >= 0xF0 && c <= 0xF4 && left >= 4 && (p[1] & 0xC0) == 0x80 && (p[2] & 0xC0) == 0x80 &&
        (p[3] & 0xC0) == 0x80) {
        *code = (uint32_t)(c & 0x07) << 18 | (uint32_t)(p[1] & 0x3F) << 12 | (uint32_t)(p[2] & 0x3F) << 6 |
                (p[3] & 0x3F);
        return *code >= 0x10000 && *code <= 0x10FFFF ? 4 : 0;
    }
    return 0;
}

static inline int hex_digit(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The four digits of `\u....`, or -1. */
static inline int hex_unit(text p, text end)
{
    int unit = 0;
    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(p[i]);
        if (digit < 0)
            return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

static inline int has_short_escape(int unit)
{
    return unit == '\b' || unit == '\t' || unit == '\n' || unit == '\f' || unit == '\r';
}

/* Of the character behind a backslash: the escapes of two characters that canonical JSON has. */
static inline int is_short_escape(unsigned char c)
{
    return c == 'n' || c == '"' || c == '\\' || c == 't' || c == 'r' || c == 'b' || c == 'f';
}

/* Behind the escape whose backslash is at `p`. Half of a surrogate pair is not taken: parsers disagree about it. */
static inline text escape_end(text p, text end, struct string_facts *facts)
{
    if (end - p < 2)
        return NULL;
    facts->escapes = 1;
    if (is_short_escape(p[1])) {
        facts->saved += 1;
        return p + 2;
    }
    if (p[1] == '/') {
        facts->minimal = 0;
        return p + 2;
    }
    if (p[1] != 'u')
        return NULL;
    int unit = hex_unit(p + 2, end);
    if (unit < 0)
        return NULL;
    if (unit >= 0xD800 && unit <= 0xDFFF) {
        facts->minimal = 0;
        if (unit > 0xDBFF || end - p < 12 || p[6] != '\\' || p[7] != 'u')
            return NULL;
        int low = hex_unit(p + 8, end);
        return low >= 0xDC00 && low <= 0xDFFF ? p + 12 : NULL;
    }
    if (unit < 0x20 && !has_short_escape(unit) && !(p[5] >= 'A' && p[5] <= 'F'))
        facts->saved += 5;
    else
        facts->minimal = 0;
    return p + 6;
}

/* The first byte from `p` on that is neither plain nor a short escape: often the closing quote. Text is full of `\n`:
 * several in sixteen bytes are passed over with one look. */
static inline text short_escapes_end(text p, text end, struct string_facts *facts)
{
#ifdef SUB_SSE2
    while (end - p > 16) {
        unsigned odd = odd_bytes(_mm_loadu_si128((const __m128i *)p));
        text next = p + 16;
        while (odd) {
            int at = __builtin_ctz(odd);
            if (p[at] != '\\' || !is_short_escape(p[at + 1]))
                return p + at;
            facts->escapes = 1;
            facts->saved++;
            odd &= ~(3u << at);
            if (at == 15)
                next = p + 17;
        }
        p = next;
    }
#endif
    (void)facts;
    return plain_end(p, end);
}

/* Behind the closing quote of the string whose first character is at `p`. `saved` and `highest` hold if `minimal`. */
static inline text string_end(text p, text end, struct string_facts *facts)
{
    facts->saved = 0;
    facts->highest = 0;
    facts->escapes = 0;
    facts->minimal = 1;
    for (;;) {
        p = short_escapes_end(p, end, facts);
        if (p == end)
            return NULL;
        if (*p == '"')
            return p + 1;
        if (*p == '\\') {
            p = escape_end(p, end, facts);
            if (p == NULL)
                return NULL;
        } else if (*p >= 0x80) {
            uint32_t code;
            int length = utf8_length(p, end, &code);
            if (length == 0)
                return NULL;
            if (code > facts->highest)
                facts->highest = code;
            facts->saved += (size_t)length - 1;
            p += length;
        } else {
            return NULL;
        }
    }
}

static inline int is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static inline text digits_end(text p, text end)
{
    while (p < end && is_digit(*p))
        p++;
    return p;
}

/* Behind an integer as canonical JSON writes it; NULL for any other number, and for minus zero. */
static inline text integer_end(text p, text end)
{
    text first = p;
    if (p < end && *p == '-')
        p++;
    text digits = p;
    p = digits_end(p, end);
    if (p == digits || (*digits == '0' && (p - digits > 1 || digits != first)))
        return NULL;
    return p;
}

static inline text number_end(text p, text end)
{
    if (p < end && *p == '-')
        p++;
    text digits = p;
    p = digits_end(p, end);
    if (p == digits || (*digits == '0' && p - digits > 1))
        return NULL;
    if (p < end && *p == '.') {
        digits = ++p;
        p = digits_end(p, end);
        if (p == digits)
            return NULL;
    }
    if (p < end && (*p | 0x20) == 'e') {
        p++;
        if (p < end && (*p == '+' || *p == '-'))
            p++;
        digits = p;
        p = digits_end(p, end);
        if (p == digits)
            return NULL;
    }
    return p;
}

static inline text word_end(text p, text end, const char *word, size_t length)
{
    return (size_t)(end - p) >= length && memcmp(p, word, length) == 0 ? p + length : NULL;
}

/* Behind a string, number or word. */
static inline text scalar_end(text p, text end)
{
    struct string_facts facts;
    switch (*p) {
    case '"':
        return string_end(p + 1, end, &facts);
    case 't':
        return word_end(p, end, "true", 4);
    case 'f':
        return word_end(p, end, "false", 5);
    case 'n':
        return word_end(p, end, "null", 4);
    default:
        return number_end(p, end);
    }
}

static inline text space_end(text p, text end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
        p++;
    return p;
}

/* Behind a key, its colon and the white space after it. */
static inline text key_end(text p, text end)
{
    struct string_facts facts;
    p = space_end(p, end);
    if (p == end || *p != '"')
        return NULL;
    p = string_end(p + 1, end, &facts);
    if (p == NULL)
        return NULL;
    p = space_end(p, end);
    return p < end && *p == ':' ? space_end(p + 1, end) : NULL;
}

/* Behind the value that begins at `p`. White space is allowed inside it. */
static inline text value_end(text p, text end)
{
    uint64_t objects = 0; /* for each open bracket, the last in the lowest bit: whether it is an object's */
    int levels = 0;
    for (;;) {
        if (p == end)
            return NULL;
        if (*p == '{' || *p == '[') {
            int is_object = *p == '{';
            if (levels == MAX_LEVELS)
                return NULL;
            objects = objects << 1 | (uint64_t)is_object;
            levels++;
            p = space_end(p + 1, end);
            if (p == end)
                return NULL;
            if (*p != (is_object ? '}' : ']')) {
                if (is_object && (p = key_end(p, end)) == NULL)
                    return NULL;
                continue;
            }
        } else {
            p = scalar_end(p, end);
            if (p == NULL)
                return NULL;
            if (levels == 0)
                return p;
            p = space_end(p, end);
        }
        /* Behind a value inside a container, or at the bracket of an empty one. */
        for (;;) {
            if (p == end)
                return NULL;
            if (*p == ',') {
                p = space_end(p + 1, end);
                if ((objects & 1) && (p = key_end(p, end)) == NULL)
                    return NULL;
                break;
            }
            if (*p != ((objects & 1) ? '}' : ']'))
                return NULL;
            p++;
            objects >>= 1;
            if (--levels == 0)
                return p;
            p = space_end(p, end);
        }
    }
}

#endif
