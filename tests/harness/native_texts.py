"""Texts for the C part and its twins: as clients and servers write them, and broken in every way. Seeded."""

from __future__ import annotations

import random

from harness.native_tables import Step, step

KEYS = [
    b"a",
    b"b",
    b"path",
    b"n",
    b"text",
    b"\xc3\xa9",
    b"\xf0\x9f\x98\x80",
    b"\xef\xbf\xbd",
    b"A",
    b"ab",
    b"",
    b"a\\n",
]
SCALARS = [
    *(b"0", b"1", b"-1", b"-0", b"01", b"123456789012345678", b"1234567890123456789", b"-999999999999999999"),
    *(b"9" * 30, b"9" * 700, b"1.5", b"1e5", b"1E+5", b"1e400", b"-1.0", b"1.", b".5", b"+1", b"NaN", b"Infinity"),
    *(b"true", b"false", b"null", b"tru", b"nulls", b"True", b"''", b"0x1", b"1_0"),
]
PIECES = [
    *(b"word", b"src/main.py", b" ", b"x" * 15, b"y" * 16, b"z" * 40, b"\\n", b'\\"', b"\\\\", b"\\t", b"\\b", b"\\f"),
    *(b"\\r", b"\\/", b"\\u0000", b"\\u001f", b"\\u001F", b"\\u000a", b"\\u0041", b"\\u00e9", b"\\ud83d\\ude00"),
    *(b"\\ud800", b"\\udc00", b"\\ud800\\u0041", b"\\u12", b"\\x41", b"\\", b"\xc3\xa9", b"\xe2\x82\xac", b"\x7f"),
    *(b"\xf0\x9f\x98\x80", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x00", b"\x1f"),
    *(b"\t", b"\r", b"\xef\xbb\xbf", b"\xc2\x85", b"\xe2\x80\xa8", b"{", b"}", b"[", b":", b",", b"'", b"/*"),
]
# Of the pieces, those that are JSON: most strings must be good, or nothing would be read to its end.
GOOD = [
    *(b"word", b"src/main.py", b" ", b"x" * 15, b"y" * 16, b"z" * 40, b"\\n", b'\\"', b"\\\\", b"\\t", b"\\b", b"\\f"),
    *(b"\\r", b"\\u0000", b"\\u001f", b"\xc3\xa9", b"\xe2\x82\xac", b"\xf0\x9f\x98\x80", b"\x7f"),
]
NAMES = [b"echo", b"read_file", b"a", b"", b"\xc3\xa9", b"e\\u0063ho", b"e\x00", b"x" * 200, b"a\\n", b"a b", b"\x7f"]
IDS = [b"1", b"42", b'"abc"', b'"a\\u0041"', b"null", b"1.5", b"-7", b"-0", b"{}", b"[1]", b"true", b"01", b'"\xff"']
MEMBERS = [
    *(b'"jsonrpc":"2.0"', b'"jsonrpc":"1.0"', b'"jsonrpc":""', b'"jsonrpc":"2.\\u0030"', b'"jsonrpc":2', b'"extra":1'),
    *(b'"method":"tools/call"', b'"method":"tools\\/call"', b'"method":"ping"', b'"Method":"tools/call"', b'"id":2'),
    *(b'"m\\u0065thod":"ping"', b'"method":1', b'"result":{}', b'"error":{"code":1}', b'"params":{}', b'"result":1'),
]
PARAMS = [b'"task":{}', b'"requestState":"x"', b'"name":"other"', b'"arguments":[1]', b'"arguments":null', b'"x":1']
RESULTS = [
    b'"isError":true',
    b'"isError":false',
    b'"resultType":"x"',
    b'"task":{}',
    b'"is\\u0045rror":true',
    b'"Task":1',
]
MUTATIONS = [
    b"",
    b" ",
    b"\t",
    b"\n",
    b"\r",
    b"\x00",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\xff",
    b"\xef\xbb\xbf",
]

WORDS = [
    *(b"password", b"passwd", b"passphrase", b"passcode", b"pwd", b"secret", b"credential", b"credentials", b"token"),
    *(
        b"api",
        b"access",
        b"private",
        b"account",
        b"encryption",
        b"signing",
        b"auth",
        b"master",
        b"key",
        b"_key",
        b"-key",
    ),
    *(b"KEY_ID", b"pin", b"authorization", b"bearer", b"Basic ", b"AKIA", b"ASIA", b"AIza", b"ya29.", b"GOCSPX-"),
    *(
        b"ghp_",
        b"gho_",
        b"ghu_",
        b"ghs_",
        b"ghr_",
        b"github_pat_",
        b"glpat-",
        b"gldt-",
        b"glrtr-",
        b"glagent-",
        b"glo-",
    ),
    *(b"xox", b"xoxb-", b"xoxe.xoxp-", b"xapp-1-", b"hooks.slack.com", b"/services/", b"sk-", b"sk-ant-", b"sk_live_"),
    *(b"rk_test_", b"whsec_", b"npm_", b"pypi-", b"hf_", b"SG.", b"dop_v1_", b"doo_v1_", b"dor_v1_", b"eyJ", b".eyJ"),
    *(b"sig=", b"?sig=", b"&sig=", b"-----", b"BEGIN ", b"PRIVATE KEY", b"https://", b"http:\\/\\/", b"@", b"user:pw@"),
    *(
        b"--",
        b"--token",
        b" ",
        b"  ",
        b"\n",
        b"\t",
        b'"',
        b'\\"',
        b'\\\\\\"',
        b"'",
        b"=",
        b":",
        b": ",
        b'" : "',
        b'":"',
    ),
    *(
        b'\\":\\"',
        b":=",
        b"=>",
        b"a",
        b"1",
        b"42",
        b".",
        b"-",
        b"_",
        b"/",
        b"\\",
        b"\x00",
        b"\xff",
        b"\xe9",
        b"\f",
        b"\v",
    ),
    *(b"a1b2c3d4e5f6a1b2c3d4e5f6", b"ABCDEFGHIJKLMNOP", b"x" * 10, b"z9" * 25, b"{", b"}", b",", b"\r", b"%20", b"+"),
    *(b"-----BEGIN RSA PRIVATE KEY-----", b"u0026", b"?", b"&", b";", b"#", b"<", b">", b"b'", b"${X}", b"hunter2x9"),
]


class Texts:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def string(self) -> bytes:
        rng = self.rng
        pieces = GOOD if rng.random() < 0.9 else PIECES
        return b'"' + b"".join(rng.choices(pieces, k=rng.choice((0, 1, 1, 2, 3, 6)))) + b'"'

    def value(self, levels: int = 3) -> bytes:
        rng = self.rng
        draw = rng.random()
        if draw < 0.4 or levels == 0:
            return self.string()
        if draw < 0.6:
            return rng.choice(SCALARS[:4] if rng.random() < 0.8 else SCALARS)
        if draw < 0.98:
            return self.object(levels - 1) if draw < 0.85 else self.array(levels - 1)
        deep = rng.choice((23, 24, 25, 63, 64, 65, 255, 256, 300))
        return rng.choice((b"[" * deep + b"]" * deep, b'{"a":' * deep + b"1" + b"}" * deep))

    def object(self, levels: int = 3) -> bytes:
        rng = self.rng
        count = rng.choice((0, 1, 2, 3, 3, 5)) if rng.random() < 0.995 else rng.choice((31, 32, 33, 40))
        keys: list[bytes] = rng.sample(KEYS, min(count, len(KEYS)))
        keys += [b"k%d" % rng.randrange(500) for _ in range(count - len(keys))]
        if rng.random() < 0.3:
            keys.sort()
        if keys and rng.random() < 0.03:
            keys.append(rng.choice(keys))
        return b"{" + b",".join(b'"%s":%s' % (key, self.value(levels)) for key in keys) + b"}"

    def array(self, levels: int) -> bytes:
        return b"[" + b",".join(self.value(levels) for _ in range(self.rng.choice((0, 1, 2, 4)))) + b"]"

    def broken(self, text: bytes) -> bytes:
        """Now and then something is wrong with it."""
        rng = self.rng
        if rng.random() < 0.8:
            return text
        for _ in range(rng.choice((1, 1, 2))):
            at = rng.randrange(len(text) + 1)
            draw = rng.random()
            if draw < 0.3:
                text = text[:at] + text[at + 1 :]
            elif draw < 0.8:
                text = text[:at] + rng.choice(MUTATIONS) + text[at:]
            elif draw < 0.9:
                text = text[:at]
            else:
                text = text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]
        return text

    def _members(self, members: list[bytes], others: list[bytes]) -> bytes:
        rng = self.rng
        if rng.random() < 0.4:
            rng.shuffle(members)
        if rng.random() < 0.15:
            members.insert(rng.randrange(len(members) + 1), rng.choice(others))
        return b"{" + b",".join(members) + b"}"

    def call(self) -> bytes:
        rng = self.rng
        usual = rng.random() < 0.8
        params = [b'"name":"%s"' % (b"echo" if usual else rng.choice(NAMES)), b'"arguments":%s' % self.object(2)]
        if rng.random() < 0.2:
            params.append(b'"_meta":%s' % self.object(1))
        members = [b'"id":%s' % (b"7" if usual else rng.choice(IDS)), b'"method":"tools/call"']
        members.append(b'"params":' + self._members(params, PARAMS))
        if rng.random() < 0.9:
            members.insert(0, b'"jsonrpc":"2.0"')
        return self.broken(self._members(members, MEMBERS))

    def reply(self) -> bytes:
        rng = self.rng
        members = [b'"id":%s' % (b"7" if rng.random() < 0.8 else rng.choice(IDS))]
        if rng.random() < 0.8:
            result = self.value(2) if rng.random() < 0.1 else self.object(2)
            if rng.random() < 0.2 and result[:1] == b"{" and len(result) > 2:
                result = result[:-1] + b"," + rng.choice(RESULTS) + b"}"
            members.append(b'"result":' + result)
        else:
            members.append(b'"error":' + self.object(1))
        members.insert(0, b'"jsonrpc":"2.0"')
        return self.broken(self._members(members, MEMBERS))

    def arguments(self) -> bytes:
        return self.broken(self.object() if self.rng.random() < 0.9 else self.value())

    def plain(self) -> str:
        """A string of Python: what is shown of a message."""
        rng = self.rng
        if rng.random() < 0.2:
            return "".join(map(chr, rng.choices(range(0x180), k=rng.randrange(60))))
        return b"".join(rng.choices(PIECES, k=rng.randrange(12))).decode("utf-8", "replace")

    def preview(self) -> bytes:
        """A message, or what may be a credential, around the limit of what is shown."""
        draw = self.rng.random()
        data = self.arguments() if draw < 0.6 else self.credentials() if draw < 0.8 else self.plain().encode()
        return data * self.rng.choice((1, 1, 1, 2, 3))

    def hashed(self) -> bytes | bytearray:
        """Bytes of every length that a few blocks can have, and some of many; now and then not `bytes`."""
        rng = self.rng
        data = rng.randbytes(rng.randrange(300) if rng.random() < 0.9 else rng.randrange(5_000))
        return data if rng.random() < 0.9 else bytearray(data)

    def event(self) -> list[str | int]:
        """What a template of thirteen places is given: text and integers, most of them as every event has them."""
        rng = self.rng
        numbers = (0, 7, -1, rng.randrange(10**6), 2**63 - 1, -(2**63))
        values: list[str | int] = [
            rng.choice(numbers) if rng.random() < 0.4 else "".join(rng.choices('ab {}%\0\n"\x7f', k=rng.randrange(40)))
            for _ in range(13)
        ]
        if rng.random() < 0.3:
            unusual = (2**63, -(2**63) - 1, True, "\x80", "\u20ac", "\U0001f600", "\ud800")
            values[rng.randrange(13)] = rng.choice(unusual)
        return values

    def state(self) -> Step:
        """What a process does to its run's state."""
        return step(self.rng)

    def credentials(self) -> bytes:
        """Words that credentials are made of, in any order, in both cases, among others."""
        rng = self.rng
        data = b"".join(rng.choices(WORDS, k=rng.randrange(1, 14)))
        draw = rng.random()
        if draw < 0.2:
            data = bytes(c ^ 0x20 if 65 <= (c & 0xDF) <= 90 and rng.random() < 0.5 else c for c in data)
        elif draw < 0.3:
            at = rng.randrange(len(data))
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        if rng.random() < 0.3:
            data = b"lorem ipsum " * rng.randrange(6) + data + b" dolor sit" * rng.randrange(6)
        return data
