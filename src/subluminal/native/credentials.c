/* Whether a text may hold anything that the shapes of credentials match: "no" is certain, "perhaps" is for RE2.
 *
 * Twin: `may_hold_credential` in core/redact/prefilter.py, the same word for word, and the place that says why each
 * condition is enough. Here the text is passed over once for three bytes out of the middle of each word; whoever has
 * such a word has them. AVX2 where the processor has it, a table elsewhere: both name the same places.
 */
#include "core.h"
#include "text.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(SUB_PORTABLE)
#include <immintrin.h>
#define SUB_AVX2 1
#endif

struct whole {
    text begin, end;
};

static inline unsigned char lower(unsigned char c)
{
    return c >= 'A' && c <= 'Z' ? c | 0x20 : c;
}

static int is_letter(unsigned char c)
{
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

static int is_word(unsigned char c)
{
    return is_letter(c) || is_digit(c) || c == '_';
}

static int is_name(unsigned char c)
{
    return is_word(c) || c == '-' || c == '.';
}

/* Of a token, and of what stands between the words of an address with one. */
static int is_token(unsigned char c)
{
    return is_name(c) || c == '+' || c == '/' || c == '=' || c == '%' || c == '\\';
}

static int is_blank(unsigned char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\f' || c == '\r';
}

/* `word` in small letters, found in any. */
static int stands(struct whole whole, text p, const char *word)
{
    size_t length = strlen(word);
    if (p < whole.begin || p > whole.end || (size_t)(whole.end - p) < length)
        return 0;
    for (size_t i = 0; i < length; i++)
        if (lower(p[i]) != (unsigned char)word[i])
            return 0;
    return 1;
}

static int ends_with(struct whole whole, text end, const char *word)
{
    ptrdiff_t length = (ptrdiff_t)strlen(word);
    return end - whole.begin >= length && stands(whole, end - length, word);
}

/* Where `word` began if its byte number `offset` is at `p`; NULL where that is outside the text. */
static text began(struct whole whole, text p, ptrdiff_t offset)
{
    return p - whole.begin >= offset ? p - offset : NULL;
}

/* What may stand between a key and its value: digits and white space, then a quote, a sign or an escape. White space
 * alone only behind an option of a command line. `begin`: of the key's last word. */
static int is_key(struct whole whole, text begin, text p)
{
    text end = whole.end;
    p = digits_end(p, end);
    text blank = p;
    while (p < end && is_blank(*p))
        p++;
    if (p < end && (*p == '"' || *p == '\'' || *p == '\\' || *p == '=' || *p == ':'))
        return 1;
    if (p == blank)
        return 0;
    for (p = begin; p > whole.begin && is_name(p[-1]); p--)
        if (p[-1] == '-' && p - 1 > whole.begin && p[-2] == '-')
            return 1;
    return 0;
}

static int is_keyed(struct whole whole, text p, ptrdiff_t offset, const char *word)
{
    text begin = began(whole, p, offset);
    return begin != NULL && stands(whole, begin, word) && is_key(whole, begin, begin + strlen(word));
}

static int is_owned_key(struct whole whole, text p)
{
    static const char *const owners[] = {"api",     "access", "private", "account", "encryption",
                                         "signing", "auth",   "master",  "secret"};
    text owner_end = p > whole.begin && (p[-1] == '_' || p[-1] == '-') ? p - 1 : p;
    for (size_t i = 0; i < sizeof owners / sizeof *owners; i++)
        if (ends_with(whole, owner_end, owners[i]))
            return is_key(whole, p, p + 3) || (stands(whole, p + 3, "_id") && is_key(whole, p, p + 6));
    return 0;
}

static int is_authorization(struct whole whole, text p)
{
    text begin = began(whole, p, 5);
    if (begin == NULL || !stands(whole, begin, "authorization") || begin + 13 == whole.end)
        return 0;
    return (!is_letter(begin[13]) && !is_digit(begin[13])) || is_key(whole, begin, begin + 13);
}

static int is_bearer(struct whole whole, text p)
{
    if (!stands(whole, p, "bearer") || p + 6 == whole.end || (p > whole.begin && is_word(p[-1])))
        return 0;
    return is_blank(p[6]) || p[6] == '%' || p[6] == '+';
}

static int has_run(struct whole whole, text p, ptrdiff_t length)
{
    if (whole.end - p < length)
        return 0;
    for (ptrdiff_t i = 0; i < length; i++)
        if (!is_token(p[i]))
            return 0;
    return 1;
}

/* `word` exactly so, not inside another word, with `run` characters of a token behind it. */
static int is_token_after(struct whole whole, text p, ptrdiff_t offset, const char *word, ptrdiff_t run)
{
    text begin = began(whole, p, offset);
    size_t length = strlen(word);
    if (begin == NULL || (size_t)(whole.end - begin) < length || memcmp(begin, word, length) != 0)
        return 0;
    if (begin > whole.begin && is_word(begin[-1]))
        return 0;
    return has_run(whole, begin + length, run);
}

/* As above, wherever it stands. */
static int is_anywhere(struct whole whole, text p, ptrdiff_t offset, const char *word, ptrdiff_t run)
{
    text begin = began(whole, p, offset);
    size_t length = strlen(word);
    return begin != NULL && (size_t)(whole.end - begin) >= length && memcmp(begin, word, length) == 0 &&
           has_run(whole, begin + length, run);
}

static int is_gitlab_token(struct whole whole, text p)
{
    if (p > whole.begin && is_word(p[-1]))
        return 0;
    text letters = p + 2, at = letters;
    while (at < whole.end && at - letters < 6 && *at >= 'a' && *at <= 'z')
        at++;
    if (p[0] != 'g' || p[1] != 'l' || at - letters < 2 || at - letters > 5)
        return 0;
    return at < whole.end && *at == '-' && has_run(whole, at + 1, 20);
}

#define THREE(a, b, c) ((uint32_t)(a) << 16 | (uint32_t)(b) << 8 | (uint32_t)(c))

/* Whether the word whose three bytes are at `p` is one that counts. At least three bytes are there. */
static int counts(struct whole whole, text p)
{
    switch (THREE(lower(p[0]), lower(p[1]), lower(p[2]))) {
    case THREE('s', 's', 'w'):
        return is_keyed(whole, p, 2, "password") || is_keyed(whole, p, 2, "passwd");
    case THREE('s', 's', 'p'):
        return is_keyed(whole, p, 2, "passphrase");
    case THREE('s', 's', 'c'):
        return is_keyed(whole, p, 2, "passcode");
    case THREE('p', 'w', 'd'):
        return is_keyed(whole, p, 0, "pwd");
    case THREE('i', 'n', '"'): case THREE('i', 'n', '\\'):
        return is_keyed(whole, p, 1, "pin");
    case THREE('c', 'r', 'e'):
        return is_keyed(whole, p, 2, "secret") || is_keyed(whole, p, 0, "credential") ||
               is_keyed(whole, p, 0, "credentials");
    case THREE('t', 'o', 'k'):
        return is_keyed(whole, p, 0, "token");
    case THREE('k', 'e', 'y'):
        return is_owned_key(whole, p);
    case THREE('r', 'i', 'z'):
        return is_authorization(whole, p);
    case THREE('b', 'e', 'a'):
        return is_bearer(whole, p);
    case THREE('-', '-', 'b'):
        return is_anywhere(whole, p, 3, "-----BEGIN ", 0);
    case THREE('k', 's', '.'):
        return is_anywhere(whole, p, 3, "hooks.slack.com", 20);
    case THREE('i', 'g', '='):
        return is_anywhere(whole, p, 1, "sig=", 20);
    case THREE('a', 'k', 'i'):
        return is_token_after(whole, p, 0, "AKIA", 16);
    case THREE('a', 's', 'i'):
        return is_token_after(whole, p, 0, "ASIA", 16);
    case THREE('a', 'i', 'z'):
        return is_token_after(whole, p, 0, "AIza", 35);
    case THREE('a', '2', '9'):
        return is_token_after(whole, p, 1, "ya29.", 20);
    case THREE('g', 'o', 'c'):
        return is_token_after(whole, p, 0, "GOCSPX-", 20);
    case THREE('h', 'p', '_'):
        return is_token_after(whole, p, 1, "ghp_", 30);
    case THREE('h', 'o', '_'):
        return is_token_after(whole, p, 1, "gho_", 30);
    case THREE('h', 'u', '_'):
        return is_token_after(whole, p, 1, "ghu_", 30);
    case THREE('h', 's', '_'):
        return is_token_after(whole, p, 1, "ghs_", 30);
    case THREE('h', 'r', '_'):
        return is_token_after(whole, p, 1, "ghr_", 30);
    case THREE('u', 'b', '_'):
        return is_token_after(whole, p, 4, "github_pat_", 40);
    case THREE('g', 'l', 'p'): case THREE('g', 'l', 'd'): case THREE('g', 'l', 'r'): case THREE('g', 'l', 's'):
    case THREE('g', 'l', 'c'): case THREE('g', 'l', 'f'): case THREE('g', 'l', 'i'): case THREE('g', 'l', 'a'):
    case THREE('g', 'l', 'o'):
        return is_gitlab_token(whole, p);
    case THREE('x', 'o', 'x'):
        return is_token_after(whole, p, 0, "xox", 12);
    case THREE('p', 'p', '-'):
        return is_token_after(whole, p, 2, "xapp-", 12);
    case THREE('s', 'k', '-'):
        return is_token_after(whole, p, 0, "sk-", 20);
    case THREE('s', 'k', '_'):
        return is_token_after(whole, p, 0, "sk_live_", 10) || is_token_after(whole, p, 0, "sk_test_", 10);
    case THREE('r', 'k', '_'):
        return is_token_after(whole, p, 0, "rk_live_", 10) || is_token_after(whole, p, 0, "rk_test_", 10);
    case THREE('e', 'c', '_'):
        return is_token_after(whole, p, 3, "whsec_", 20);
    case THREE('p', 'm', '_'):
        return is_token_after(whole, p, 1, "npm_", 36);
    case THREE('p', 'i', '-'):
        return is_token_after(whole, p, 2, "pypi-", 40);
    case THREE('h', 'f', '_'):
        return is_token_after(whole, p, 0, "hf_", 30);
    case THREE('s', 'g', '.'):
        return is_token_after(whole, p, 0, "SG.", 33);
    case THREE('o', 'o', '_'):
        return is_token_after(whole, p, 1, "doo_v1_", 40);
    case THREE('o', 'p', '_'):
        return is_token_after(whole, p, 1, "dop_v1_", 40);
    case THREE('o', 'r', '_'):
        return is_token_after(whole, p, 1, "dor_v1_", 40);
    case THREE('e', 'y', 'j'):
        return is_token_after(whole, p, 0, "eyJ", 10);
    default:
        return 0;
    }
}

/* Every group of three that `counts` knows, in groups of bytes that are told apart by their nibbles. What a group takes
 * beyond its words only costs another look. Small letters stand for both. */
static const char *const GROUPS[8][3] = {
    {"sp", "sw", "wpcd"},          /* password, passphrase, passcode, pwd */
    {"cb", "re", "ea"},            /* secret, credential, bearer */
    {"kr", "ei", "yz"},            /* key, authorization */
    {"tgx", "ol", "kpdrscfiaox"},  /* token, the tokens of GitLab and Slack */
    {"AG", "KSIO", "IzC"},         /* the keys of clouds */
    {"Skai", "Gs2g", ".9="},       /* SG., hooks.slack, ya29., sig= */
    {"e-i", "y-n", "JB\"\\"},      /* eyJ, -----BEGIN, pin */
    {"hpsrueo", "pousrmfkbci", "_-"},
};
/* Groups whose letters are meant in both cases. */
static const unsigned BOTH_CASES = 0x4F;

static unsigned char by_byte[3][256];
static unsigned char by_low[3][16], by_high[3][16];
static int has_avx2;

static void put(int place, int group, unsigned char c)
{
    by_byte[place][c] |= (unsigned char)(1 << group);
    by_low[place][c & 15] |= (unsigned char)(1 << group);
    by_high[place][c >> 4] |= (unsigned char)(1 << group);
}

/* Once, before anybody asks. */
void prepare_credentials(void)
{
    for (int group = 0; group < 8; group++)
        for (int place = 0; place < 3; place++)
            for (const char *c = GROUPS[group][place]; *c; c++) {
                put(place, group, (unsigned char)*c);
                if (BOTH_CASES >> group & 1 && is_letter((unsigned char)*c))
                    put(place, group, (unsigned char)*c ^ 0x20);
            }
#ifdef SUB_AVX2
    __builtin_cpu_init();
    has_avx2 = __builtin_cpu_supports("avx2");
#endif
}

static int any_from(struct whole whole, text p)
{
    for (; whole.end - p >= 3; p++)
        if ((by_byte[0][p[0]] & by_byte[1][p[1]] & by_byte[2][p[2]]) && counts(whole, p))
            return 1;
    return 0;
}

#ifdef SUB_AVX2
__attribute__((target("avx2"))) static inline __m256i groups_at(text p, __m256i low, __m256i high)
{
    __m256i nibble = _mm256_set1_epi8(15);
    __m256i bytes = _mm256_loadu_si256((const __m256i *)p);
    __m256i upper = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble);
    return _mm256_and_si256(_mm256_shuffle_epi8(low, _mm256_and_si256(bytes, nibble)),
                            _mm256_shuffle_epi8(high, upper));
}

__attribute__((target("avx2"))) static inline __m256i table(const unsigned char *nibbles)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)nibbles));
}

__attribute__((target("avx2"))) static int any_with_avx2(struct whole whole)
{
    text p = whole.begin;
    __m256i low0 = table(by_low[0]), low1 = table(by_low[1]), low2 = table(by_low[2]);
    __m256i high0 = table(by_high[0]), high1 = table(by_high[1]), high2 = table(by_high[2]);
    for (; whole.end - p >= 34; p += 32) {
        __m256i groups = _mm256_and_si256(groups_at(p, low0, high0), groups_at(p + 1, low1, high1));
        groups = _mm256_and_si256(groups, groups_at(p + 2, low2, high2));
        unsigned none = (unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi8(groups, _mm256_setzero_si256()));
        for (unsigned found = ~none; found; found &= found - 1)
            if (counts(whole, p + __builtin_ctz(found)))
                return 1;
    }
    return any_from(whole, p);
}
#endif

/* `//user:password@` or a long name before the sign; nothing else ends so. */
static int is_in_address(struct whole whole, text at)
{
    text p = at;
    int has_colon = 0;
    while (p > whole.begin) {
        unsigned char c = p[-1];
        if (c == '/')
            return has_colon || at - p >= 20;
        if (is_blank(c) || c == '?' || c == '#' || c == '@' || c == '"' || c == '\'' || c == '<' || c == '>')
            return 0;
        has_colon |= c == ':';
        p--;
    }
    return 0;
}

static int has_address(struct whole whole)
{
    text p = whole.begin;
    while (p < whole.end && (p = memchr(p, '@', (size_t)(whole.end - p))) != NULL) {
        if (is_in_address(whole, p))
            return 1;
        p++;
    }
    return 0;
}

int may_hold_credential(const unsigned char *data, size_t size)
{
    struct whole whole = {data, data + size};
    if (has_address(whole))
        return 1;
#ifdef SUB_AVX2
    if (has_avx2)
        return any_with_avx2(whole);
#endif
    return any_from(whole, whole.begin);
}
