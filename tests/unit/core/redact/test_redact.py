"""Injected values in any encoding, credentials by shape, and the price of ordinary text."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys

import pytest

from harness.effort import calls_made, cpu_ratio, growth
from harness.secret_corpus import encodings, filler, random_secret
from subluminal.contracts.errors import ConfigError
from subluminal.core.redact.redactor import INJECTED, MAX_LEARNED, Redactor, _shapes
from subluminal.core.redact.spellings import MIN_SECRET_BYTES

SEED = 20261115
GITHUB = "ghp_" + "Ab3dEf6hIj" * 4


def assert_clean(masked: bytes, parts: list[bytes], context: object) -> None:
    body = masked.replace(b"[REDACTED:injected_secret]", b"\0")
    for part in parts:
        assert part not in body, context


@pytest.mark.contract("ERR-004")
@pytest.mark.parametrize("chunk", range(4))
def test_no_encoding_of_a_random_secret_survives(chunk: int) -> None:
    """The short profile; `python bench/redact.py --leaks 10000` is the long one."""
    rng = random.Random(SEED + chunk)
    for _ in range(30):
        secret = random_secret(rng)
        redactor = Redactor([secret])
        for name, text, parts in encodings(secret, rng):
            data = filler(rng).encode() + text + filler(rng).encode()
            masked, flags = redactor.mask(data)
            assert INJECTED in flags, (name, secret, data)
            assert_clean(masked, parts, (name, secret, data))


def test_a_secret_that_is_learned_later_is_masked_like_one_that_was_given() -> None:
    rng = random.Random(SEED)
    given, learned = random_secret(rng), random_secret(rng)
    redactor = Redactor([given])
    text = f"{given} and {learned}"
    assert learned in redactor.mask_text(text)
    redactor.learn(learned)
    assert redactor.mask_text(text) == "[REDACTED:injected_secret] and [REDACTED:injected_secret]"
    for name, encoded, parts in encodings(learned, rng):
        masked, flags = redactor.mask(encoded)
        assert INJECTED in flags, name
        assert_clean(masked, parts, name)


def test_of_many_that_are_learned_the_last_ones_and_those_given_are_masked() -> None:
    redactor = Redactor(["given-at-the-start"])
    for number in range(1000):
        redactor.learn(f"token-number-{number:04}-of-many")
    redactor.learn("abc")
    masked = redactor.mask_text("token-number-0999-of-many given-at-the-start abc")
    assert masked == "[REDACTED:injected_secret] [REDACTED:injected_secret] abc"
    assert redactor.refused == 0, "a token that is too short is its server's matter"
    assert calls_made(lambda: redactor.learn("token-number-0999-of-many")) < 20, "known already"


def test_what_is_told_again_is_in_use_and_not_forgotten() -> None:
    redactor = Redactor()
    for number in range(100):
        redactor.learn("secret-of-the-client", f"token-number-{number:04}-of-many")
    assert redactor.mask_text("secret-of-the-client") == "[REDACTED:injected_secret]"


@pytest.mark.parametrize(
    "secret",
    [
        'quo"ted"value',
        "back\\slash\\\\twice",
        "trailing\\",
        "\\leading",
        "\\\\\\\\",
        "<script>&amp;'x'",
        "two\nlines\r\nand a tab\t",
        "%41%42%25",
        "\\u0041\\n",
        "ünï©ødé-日本語-🙂🙂",
        "!§$%/()=?",
        "    ",
        "aaaaaaaaaaaaaaaaaaaaaaaaa",
        "+/+/+/+/",
    ],
)
def test_a_secret_of_awkward_characters_is_found_in_every_encoding(secret: str) -> None:
    rng = random.Random(SEED)
    redactor = Redactor([secret])
    for name, text, parts in encodings(secret, rng):
        masked, flags = redactor.mask(b"x " + text + b" y")
        assert INJECTED in flags, name
        assert_clean(masked, parts, name)


def test_a_secret_that_is_not_utf8_is_found_raw_and_encoded() -> None:
    secret = bytes([0xFF, 0xFE, 0x00, 0x80, 0x41, 0x42, 0xC3, 0x28, 0x99])
    redactor = Redactor([secret])
    for text in (secret, secret.hex().encode(), json.dumps(secret.decode("latin-1")).encode()):
        assert redactor.mask(b"<" + text + b">")[1] == (INJECTED,)


def test_a_secret_of_8_kib_leaves_nothing() -> None:
    rng = random.Random(SEED)
    secret = "".join(rng.choice('abcdefgh"\\<&\n0123456789/+') for _ in range(8192))
    redactor = Redactor([secret])
    tried = {"raw", "json in json", "percent all", "html", "HEX", "base64 at 1", "base64 at 2, wrapped"}
    found = {name: text for name, text, _ in encodings(secret, rng) if name in tried}
    assert found.keys() == tried
    for name, text in found.items():
        masked, _ = redactor.mask(b"{" + text + b"}")
        assert len(masked) < 120, name


def test_a_key_file_is_masked_even_when_shown_line_by_line() -> None:
    rng = random.Random(SEED)
    lines = ["".join(rng.choice("abcdefghijkLMNOPQ0123456789+/") for _ in range(64)) for _ in range(100)]
    redactor = Redactor(["\n".join(lines)])
    for number, line in enumerate(lines):
        masked, flags = redactor.mask(json.dumps({"line": number, "text": line}).encode())
        assert flags == (INJECTED,)
        assert line[8:].encode() not in masked


def test_a_secret_cut_short_by_its_tool_is_masked_from_its_head() -> None:
    masked, flags = Redactor([GITHUB]).mask(GITHUB[:20].encode() + b"...")
    assert flags == (INJECTED,)
    assert masked == b"[REDACTED:injected_secret]..."


def test_two_secrets_with_a_common_head_are_both_masked_to_their_end() -> None:
    one, two = "commonhead-commonhead-1-tail", "commonhead-commonhead-2-longer-tail"
    masked, _ = Redactor([one, two]).mask(f"{one} {two}".encode())
    assert masked == b"[REDACTED:injected_secret] [REDACTED:injected_secret]"


def test_a_secret_beside_itself_and_inside_a_password_field_leaves_one_kind_of_mask() -> None:
    masked, flags = Redactor([GITHUB]).mask(f'{{"password":"{GITHUB}{GITHUB}x"}}'.encode())
    assert GITHUB[5:15].encode() not in masked
    assert INJECTED in flags


@pytest.mark.parametrize("size", range(MIN_SECRET_BYTES))
def test_a_value_too_short_to_mask_safely_is_refused_and_counted(size: int) -> None:
    redactor = Redactor(["abc"[:size], GITHUB])
    assert redactor.refused == 1
    assert redactor.mask(b'{"text":"abacab"}') == (b'{"text":"abacab"}', ())


def test_the_mask_does_not_show_the_length() -> None:
    assert (
        Redactor(["shorty"]).mask(b"=shorty=")[0]
        == Redactor(["much-longer-value" * 9]).mask(b"=" + b"much-longer-value" * 9 + b"=")[0]
    )


SHAPES = [
    ("aws_key", "AKIAIOSFODNN7EXAMPLE"),
    ("gcp_key", "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q"),
    ("gcp_key", "ya29." + "a0AfH6SMBx1234567890abcdef"),
    ("github_token", GITHUB),
    ("github_token", "github_pat_" + "11ABCDEFG0" * 6),
    ("gitlab_token", "glpat-" + "xYz1234567890abcdefG"),
    ("slack_token", "xoxb-" + "123456789012-abcdefGHIJKL"),
    ("slack_token", "xapp-" + "1-A0123456789-abcdef"),
    ("anthropic_key", "sk-ant-" + "api03-abcDEF123456789_-abcDEF"),
    ("openai_key", "sk-proj-" + "abcDEF123456789abcDEF123"),
    ("stripe_key", "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc"),
    ("npm_token", "npm_" + "a1B2c3D4e5F6" * 3),
    ("pypi_token", "pypi-" + "AgEIcHlwaS5vcmcCJDAwMDAwMDAwLTAwMDAtMDAwMC0"),
    ("huggingface_token", "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh"),
    ("jwt", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"),
    ("sendgrid_key", "SG." + "aBcDeFgHiJkLmNoPqRsTuV.aBcDeFgHiJkLmNoPqRsTuVwXyZ012345"),
    ("digitalocean_token", "dop_v1_" + "0123456789abcdef" * 4),
]


@pytest.mark.parametrize(("flag", "token"), SHAPES)
@pytest.mark.parametrize("frame", ["%s", '{"note":"use %s, please"}', '"{\\"a\\":\\"%s\\"}"', "x=%s&y=1", "(%s)"])
def test_a_known_token_is_masked_wherever_it_stands(flag: str, token: str, frame: str) -> None:
    masked, flags = Redactor().mask((frame % token).encode())
    assert flag in flags
    assert token[4:].encode() not in masked
    assert len(masked) < len(frame) + 40


KEYED = [
    ('{"password":"hunter2!"}', "hunter2!"),
    ('{"password": "with \\"quote\\" inside"}', "inside"),
    ('{"a":"{\\"password\\":\\"hunter2!\\"}"}', "hunter2!"),
    ('{"a":"{\\"password\\":\\"with \\\\\\"quote\\\\\\" inside\\"}"}', "inside"),
    (json.dumps(json.dumps(json.dumps({"password": "hunter2!", "b": 1}))), "hunter2!"),
    ('{"db_password":"x7","user":"me"}', "x7"),
    ('{"apiKey":"abc","n":1}', "abc"),
    ('{"client_secret" : "s3cr3t"}', "s3cr3t"),
    ('{"access_token":"t0k"}', "t0k"),
    ('{"password":123456}', "123456"),
    ("{'passwd': 'hunter2!'}", "hunter2!"),
    ("DB_PASSWORD=hunter2!x", "hunter2!x"),
    ("export API_KEY='hunter two'", "hunter two"),
    ('{"command":"TOKEN=abcdefg ./run"}', "abcdefg"),
    ("https://example.org/?user=a&password=hunterxy&b=2", "hunterxy"),
    ("https://example.org/?api_key=abc123", "abc123"),
    ("postgres://me:hunterxy@db.example.org/app", "hunterxy"),
    ("redis:\\/\\/:hunterxy@db", "hunterxy"),
    ("https://0123456789abcdef0123@github.com/a/b", "0123456789abcdef0123"),
    ("Authorization: Bearer abcdef0123456789", "abcdef0123456789"),
    ('{"Authorization":"Basic dXNlcjpwYXNz"}', "dXNlcjpwYXNz"),
    ("curl -H 'Authorization: Basic dXNlcjpwYXNzMQ=='", "dXNlcjpwYXNzMQ"),
    ("password: hunter2xyz\n", "hunter2xyz"),
    ("password = 'S3cretValue!'", "S3cretValue!"),
    ("mysql --password=hunterxy", "hunterxy"),
    ('["--password","hunter2"]', "hunter2"),
    ("AccountKey=" + "q1W2e3R4t5Y6u7I8o9P0" * 4 + "==;", "q1W2e3R4t5"),
    ("https://x.blob.core.windows.net/c?sv=1&sig=" + "aB3%2Fd" * 6, "aB3%2Fd"),
    ("-----BEGIN RSA PRIVATE KEY-----\\nMIIEowIBAAKCAQEAx\\nabcd\\n-----END RSA PRIVATE KEY-----", "MIIEow"),
    ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5v", "b3BlbnNz"),
    # What a test for words alone once passed over in short texts.
    ('{"token5":"hunter2xyz"}', "hunter2xyz"),
    ("run --token\nhunter2xyz", "hunter2xyz"),
    ("https://x.example/c?sv=1&sig=ab%2Bcd%2Fef%2Bgh%2Fij%2Bkl", "ab%2Bcd"),
    ("whsec_abc+def/ghi+jkl/mno+pqr/stu", "def/ghi"),
    ("Bearer a1+b2/c3+d4/e5+f6/g7", "c3+d4"),
]


@pytest.mark.parametrize(("text", "value"), KEYED)
def test_a_value_under_a_password_like_key_is_masked_and_its_key_is_kept(text: str, value: str) -> None:
    masked, flags = Redactor().mask(text.encode())
    assert flags
    assert value.encode() not in masked


def test_the_rest_of_a_document_stays_readable_around_a_mask() -> None:
    text = '{"a":"{\\"password\\":\\"hun\\\\\\"ter2\\",\\"user\\":\\"me\\"}","b":2}'
    masked, _ = Redactor().mask(text.encode())
    assert masked == b'{"a":"{\\"password\\":\\"[REDACTED:password]\\",\\"user\\":\\"me\\"}","b":2}'


ORDINARY = [
    '{"path":"/srv/app/main.py","max_tokens":100,"keyword":"pass"}',
    '{"next_page_token":"CAUQAA","items":[]}',
    '{"key":"value","primary_key":"id"}',
    "def login(user, password=None, token: str = ''):",
    'password = getpass("Password: ")',
    "password: ${DB_PASSWORD}",
    '{"password":"<your password>"}',
    "The bearer authentication scheme; see https://example.org/a@b",
    "PWD=/home/me OLDPWD=/tmp",
    "git clone git@github.com:a/b.git; mail me@example.org: thanks",
    "550e8400-e29b-41d4-a716-446655440000",
    "sha256:" + "0123456789abcdef" * 4,
    "task-management-system-for-large-teams-v2",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert Redactor(["an injected value"]).mask(text.encode()) == (text.encode(), ())


def test_a_shape_is_found_in_small_and_in_large_texts_alike() -> None:
    for text, value in [*KEYED, *((token, token[4:]) for _, token in SHAPES)]:
        for size in (0, 5000):
            masked, flags = Redactor().mask(b"- " * (size // 2) + b"\n" + text.encode())
            assert flags, text
            assert value.encode() not in masked


def test_custom_patterns_mask_under_their_own_name() -> None:
    masked, flags = Redactor(patterns=[("badge", r"EMP-\d{6}")]).mask("id EMP-123456 ü".encode())
    assert (masked.decode(), flags) == ("id [REDACTED:badge] ü", ("badge",))


@pytest.mark.parametrize(
    ("name", "regex", "says"),
    [
        ("x", "(", "not a valid regular expression"),
        ("x", r"(a)\1", "not a valid regular expression"),
        ("x", "a*", "matches empty text"),
        ("no spaces", "a", "not usable"),
        ("", "a", "not usable"),
    ],
)
def test_a_custom_pattern_that_cannot_work_is_refused_with_a_sentence(name: str, regex: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        Redactor(patterns=[(name, regex)])
    assert caught.value.hint


def test_text_keeps_lone_surrogates_and_is_masked() -> None:
    assert Redactor([GITHUB]).mask_text(f"\ud800 {GITHUB}") == "\ud800 [REDACTED:injected_secret]"
    assert Redactor([GITHUB]).mask_text("plain") == "plain"


HOSTILE = (
    "x=password=",
    "password=",
    '\\"token\\":\\"',
    '"token":"<',
    "%25",
    "&amp;",
    "\\\\",
    "x",
    "://a:",
    "eyJ",
    "\\u0078",
    "\\u0000",
    "\0",
    "eHh4",
    "WHhYeHg4",
    "PB4HQ6DY",
    "78 ",
    "78:",
    "120, ",
)


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_text_takes_linear_time(unit: str) -> None:
    """Four times the text may not take sixteen times as long; twelve leaves room for a busy machine."""
    redactor = Redactor([GITHUB, "x" * 40, 'a"\\' * 20])

    def mask(size: int) -> None:
        redactor.mask((unit * (size // len(unit))).encode())

    mask(4096)
    assert growth(mask, 16_384, 65_536, limit=3) < 3


def test_encoded_text_is_opened_at_a_bounded_price() -> None:
    """Of 10 KiB: ordinary words beside one pass of RE2 over them, and the dearest rows beside ordinary words."""
    bound = Redactor([GITHUB, "another value"])
    words = (b"The quick brown fox jumps over the lazy dog, again. " * 200)[:10_240]
    bound.mask(words)
    search = _shapes().search
    assert cpu_ratio(lambda: bound.mask(words), lambda: search(words), limit=8) < 8
    rng = random.Random(SEED)
    for row in (
        base64.b64encode(rng.randbytes(7680)),
        rng.randbytes(5120).hex().encode(),
        rng.randbytes(3413).hex(" ").encode(),
    ):
        assert bound.mask(row) == (row, ())
        assert calls_made(lambda row=row: bound.mask(row)) < 20_000
        assert cpu_ratio(lambda row=row: bound.mask(row), lambda: bound.mask(words), limit=80) < 80


def test_without_values_nothing_is_loaded_that_opens_encodings() -> None:
    program = (
        "import sys\n"
        "from subluminal.core.redact.redactor import Redactor\n"
        "Redactor().mask(b'QUFBQUFBQUFBQUFBQUFBQUFBQUFB')\n"
        "assert 'subluminal.core.redact.decoded' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-S", "-c", "import sys; sys.path.insert(0, 'src')\n" + program], check=True)


def test_ordinary_arguments_do_not_load_re2() -> None:
    program = (
        "import sys\n"
        "from subluminal.core.redact.redactor import Redactor\n"
        "r = Redactor(['ghp_' + 'Ab3dEf6hIj' * 4, 'another value'])\n"
        'r.mask(b\'{"path":"/srv/app/main.py","content":"def main():\\\\n    return 42\\\\n"}\')\n'
        "loaded = {'re2', 're', 'json', 'base64', 'dataclasses', 'msgspec'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-S", "-c", "import sys; sys.path.insert(0, 'src')\n" + program], check=True)


def test_the_cheap_tests_never_pass_over_what_the_full_search_finds() -> None:
    redactor = Redactor()
    rng = random.Random(SEED)
    samples = [text for text, _ in KEYED] + [token for _, token in SHAPES] + ORDINARY
    marks = " \t\n\"'\\:=&?-_.1Az@/"
    passed = 0
    for _ in range(4000):
        text = rng.choice(samples)
        for _ in range(rng.randrange(4)):
            place = rng.randrange(len(text) + 1)
            change = rng.randrange(3)
            if change == 0:
                text = text[:place] + rng.choice(marks) + text[place:]
            elif change == 1:
                text = text[:place] + text[place + 1 :]
            else:
                text = text[:place] + text[place : place + 1].swapcase() + text[place + 1 :]
        if redactor._ordinary(text.encode()):
            passed += 1
            assert redactor._shape_spans(text.encode()) == [], text
    assert 400 < passed < 3600, "the samples must be of both kinds"


def test_what_comes_up_later_is_masked_from_then_on_and_the_oldest_is_forgotten() -> None:
    redactor = Redactor(["first-secret-value"])
    later = "renewed-token-0123456789"
    assert redactor.mask(later.encode()) == (later.encode(), ())
    redactor.learn(later, "first-secret-value")
    for text in (later, later * 100, "first-secret-value"):
        masked, flags = redactor.mask(text.encode())
        assert later.encode() not in masked and flags == ("injected_secret",)
    for number in range(MAX_LEARNED):
        redactor.learn(f"token-of-minute-{number:04}")
    assert redactor.mask(b"token-of-minute-0000")[1] and redactor.mask(b"first-secret-value")[1]
    assert redactor.mask(later.encode()) == (later.encode(), ())
