/* SHA-256 as hexadecimal text.
 *
 * Twin: `sha256_hex` in contracts/digest.py.
 */
#include "core.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(SUB_PORTABLE)
#include <cpuid.h>
#include <immintrin.h>
#define SUB_SHA 1
#endif

#define BLOCK 64
/* Longer input is left to the twin, which lets other threads run meanwhile. */
#define MOST (64 * 1024)
/* Without instructions for it OpenSSL, which the twin takes for longer input, is twice as fast. */
#define MOST_WITHOUT 1024

static const uint32_t rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};
static const uint32_t start[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};
static int has_sha;

static inline uint32_t turned(uint32_t word, int bits)
{
    return word >> bits | word << (32 - bits);
}

static void take_blocks(uint32_t state[8], const unsigned char *data, size_t blocks)
{
    for (; blocks; blocks--, data += BLOCK) {
        uint32_t w[64];
        for (int i = 0; i < 16; i++)
            w[i] = (uint32_t)data[4 * i] << 24 | (uint32_t)data[4 * i + 1] << 16 | (uint32_t)data[4 * i + 2] << 8 |
                   data[4 * i + 3];
#pragma GCC unroll 8
        for (int i = 16; i < 64; i++)
            w[i] = w[i - 16] + (turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
                   (turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10);
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
        uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
#pragma GCC unroll 8
        for (int i = 0; i < 64; i++) {
            uint32_t one = h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + (g ^ (e & (f ^ g))) + rounds[i] + w[i];
            uint32_t two = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) | (c & (a | b)));
            h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
        }
        state[0] += a, state[1] += b, state[2] += c, state[3] += d;
        state[4] += e, state[5] += f, state[6] += g, state[7] += h;
    }
}

#ifdef SUB_SHA
/* The instructions keep the state as ABEF and CDGH, and take two rounds at a time of four words that wait in `w`. */
__attribute__((target("sha,sse4.1"))) static void take_blocks_with_sha(uint32_t state[8], const unsigned char *data,
                                                                       size_t blocks)
{
    const __m128i from_big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
    __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xb1);
    __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1b);
    __m128i abef = _mm_alignr_epi8(abcd, efgh, 8), cdgh = _mm_blend_epi16(efgh, abcd, 0xf0);
    for (; blocks; blocks--, data += BLOCK) {
        __m128i abef_before = abef, cdgh_before = cdgh, w[4];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            __m128i *now = &w[i & 3];
            if (i < 4) {
                *now = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * i)), from_big_endian);
            } else {
                __m128i last = w[(i - 1) & 3];
                __m128i sum = _mm_sha256msg1_epu32(*now, w[(i - 3) & 3]);
                sum = _mm_add_epi32(sum, _mm_alignr_epi8(last, w[(i - 2) & 3], 4));
                *now = _mm_sha256msg2_epu32(sum, last);
            }
            __m128i with_constants = _mm_add_epi32(*now, _mm_loadu_si128((const __m128i *)(rounds + 4 * i)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, with_constants);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(with_constants, 0x0e));
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}
#endif

void prepare_digests(void)
{
#ifdef SUB_SHA
    unsigned int a, b = 0, c, d;
    __builtin_cpu_init();
    has_sha = __builtin_cpu_supports("sse4.1") && __get_cpuid_count(7, 0, &a, &b, &c, &d) && b >> 29 & 1;
#endif
}

static void take(uint32_t state[8], const unsigned char *data, size_t blocks)
{
#ifdef SUB_SHA
    if (has_sha) {
        take_blocks_with_sha(state, data, blocks);
        return;
    }
#endif
    take_blocks(state, data, blocks);
}

PyObject *sha256_hex(PyObject *self, PyObject *data)
{
    if (!PyBytes_CheckExact(data) || PyBytes_GET_SIZE(data) > (has_sha ? MOST : MOST_WITHOUT))
        return left_to_twin(self, &data, 1);
    const unsigned char *bytes = (const unsigned char *)PyBytes_AS_STRING(data);
    size_t size = (size_t)PyBytes_GET_SIZE(data), rest = size % BLOCK;
    uint32_t state[8];
    memcpy(state, start, sizeof state);
    take(state, bytes, size / BLOCK);
    /* What is left, one bit, zeros, and the length in bits. */
    unsigned char last[2 * BLOCK] = {0};
    size_t blocks = rest < BLOCK - 8 ? 1 : 2;
    memcpy(last, bytes + size - rest, rest);
    last[rest] = 0x80;
    for (int i = 0; i < 8; i++)
        last[blocks * BLOCK - 1 - (size_t)i] = (unsigned char)((uint64_t)size * 8 >> 8 * i);
    take(state, last, blocks);
    PyObject *text = PyUnicode_New(64, 127);
    if (text == NULL)
        return NULL;
    Py_UCS1 *digit = PyUnicode_1BYTE_DATA(text);
    for (int i = 0; i < 8; i++)
        for (int shift = 28; shift >= 0; shift -= 4)
            *digit++ = (Py_UCS1)"0123456789abcdef"[state[i] >> shift & 15];
    return text;
}
