"""Messages that try to get a denied tool call past whoever reads along: a table, and a seeded generator."""

from __future__ import annotations

import random
from collections.abc import Iterator

TOOL = "danger"
DECOY = "fine"
CALL = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"danger","arguments":{"path":"/"}}}'
GOOD = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"fine","arguments":{"path":"/"}}}'
PING = b'{"jsonrpc":"2.0","id":%d,"method":"ping"}'
NOTE = b'{"jsonrpc":"2.0","method":"notifications/x","params":%s}'

KEY_SPELLINGS = [
    *("%s", "%s ", " %s", "\\t%s", "%s\\u0000", "%s\\u0000x", "\\ufeff%s"),
]
ODD_BYTES = [
    b"\r",
    b"\x00",
    b"\x0b",
    b"\x0c",
    b"\x1e",
    b"\x7f",
    b"\xa0",
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
]
ODD_BYTES += [
    "\u2028".encode(),
    "\u0085".encode(),
    "\u00a0".encode(),
    "\u200b".encode(),
    b"/**/",
    b"//",
    b"#",
    b"'",
    b"\\",
]


def spellings(word: str) -> Iterator[bytes]:
    """How a JSON key or value could be written so that somebody still takes it for the word."""
    yield word.encode()
    yield word.upper().encode()
    yield word.title().encode()
    yield (word[0].upper() + word[1:]).encode()
    yield "".join(f"\\u{ord(c):04x}" for c in word).encode()
    yield f"\\u{ord(word[0]):04X}{word[1:]}".encode()
    yield "".join(chr(ord(c) + 0xFEE0) if c.isalpha() else c for c in word).encode()
    yield word.replace("s", "ſ").encode()
    yield word.replace("k", "\u212a").encode()
    yield word.replace("/", "\\/").encode()
    for form in KEY_SPELLINGS:
        yield (form % word).encode()


def table() -> list[bytes]:
    """Written by hand; no newline inside any of them."""
    call, good, ping = CALL % 1, GOOD % 2, PING % 3
    found = [call, call + b"\r", b" " + call, call + b" \t", b"[" + call + b"]", b"[[" + call + b"]]"]
    for word in ("method", "params", "name"):
        for spelling in spellings(word):
            found.append(call.replace(b'"%s"' % word.encode(), b'"' + spelling + b'"'))
            found.append(good.replace(b'"%s"' % word.encode(), b'"%s":1,"' % spelling + word.encode() + b'"', 1))
    for spelling in spellings("tools/call"):
        found.append(call.replace(b"tools/call", spelling))
    for spelling in spellings(TOOL):
        found.append(call.replace(TOOL.encode(), spelling))
    for spelling in spellings("name"):
        member = b'"%s":"danger"' % spelling
        found.append(good.replace(b'"name"', member + b',"name"'))
        found.append(good.replace(b'"fine"', b'"fine",' + member))
    for spelling in spellings("method"):
        member = b'"%s":"tools/call"' % spelling
        stub = b'{"jsonrpc":"2.0","id":4,"method":"ping","params":{"name":"danger"}}'
        found.append(stub.replace(b'"method"', member + b',"method"'))
        found.append(stub.replace(b'"ping"', b'"ping",' + member))
    for spelling in spellings("params"):
        member = b'"%s":{"name":"danger"}' % spelling
        found.append(good.replace(b'"params"', member + b',"params"'))
        found.append(good[:-1] + b"," + member + b"}")
    for odd in ODD_BYTES:
        found += [
            odd + call,
            call + odd,
            good + odd + call,
            call + odd + good,
            ping + odd + call,
            call.replace(b",", b"," + odd, 1),
        ]
        found += [
            call.replace(b'"danger"', b'"' + odd + b'danger"'),
            NOTE % (odd + call + odd),
            call.replace(b":", odd + b":", 1),
        ]
        found += [NOTE % (b'"' + odd + call + odd + b'"'), NOTE % (b'"' + odd + call.replace(b'"', b"'") + b'"')]
    for one in (call, b"[" + call + b"]"):
        found += [
            ping + one,
            one + ping,
            b"{}" + one,
            b"1 " + one,
            b"," + one,
            b"]" + one,
            b"\x1e" + one,
            b"data: " + one,
        ]
        found += [b"[" + ping + b"," + one + b"]", b"[" + one + b"," + good + b"]", b"[1,null," + one + b',"\\ud800"]']
        found += [NOTE % one, NOTE % (b'{"method":"tools/call","params":' + one + b"}")]
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-7", "utf-8-sig"):
        found.append(call.decode().encode(encoding).replace(b"\n", b""))
    found += [call[:cut] for cut in range(0, len(call), 3)]
    found += [call.replace(b'"', b"'"), call[:-1] + b",}", call.replace(b'{"path":"/"}', b"[NaN,-Infinity,+1,.5,0x1f]")]
    found += [
        call.replace(b'"id":1', b'"id":' + raw)
        for raw in (b"null", b"1.50", b"1e400", b"true", b"{}", b'"' + b"9" * 3000 + b'"')
    ]
    found += [
        call.replace(b'"id":1,', b""),
        call.replace(b'"id":1', b'"id":1,"id":2'),
        call.replace(b"1,", b"9" * 400 + b",", 1),
    ]
    for depth in (100, 1_000, 10_000):
        for twist in (b"", b"/**/", b"'", b'"name":1,'):
            nest = b'{"a":' * depth + b"[" + twist + b"1]" + b"}" * depth
            found.append(call.replace(b'{"path":"/"}', nest))
            found.append(
                good.replace(b'{"path":"/"}', nest).replace(b'"name":"fine",', b"")[:-2] + b',"name":"danger"}}'
            )
    hidden = (
        b"""{"id":5,"method":"tools/call","params":{"arguments":{"a":%s},"name":"danger","x":{"b":%s},"name":"fine"}}"""
    )
    found += [hidden % (blind, blind) for blind in (b"'\"'", b'1/*"*/', b'1//"', b'\\"')]
    found += [b"[" + hidden % (blind, blind) + b"]" for blind in (b"'\"'", b'1/*"*/')]
    return [line.replace(b"\n", b"") for line in found]


def oversize(bulk: int = 1_600_000) -> list[bytes]:
    """The name before, after and between more than is inspected."""
    filler = b'"' + b"x" * bulk + b'"'
    found = [
        b'{"id":6,"method":"tools/call","params":{"name":"danger","arguments":{"a":%s}}}',
        b'{"id":6,"method":"tools/call","params":{"arguments":{"a":%s},"name":"danger"}}',
        b'{"params":{"arguments":{"a":%s},"name":"danger"},"id":6,"method":"tools/call"}',
        b'{"id":6,"method":"tools/call","params":{"name":"fine","arguments":{"a":%s},"name":"danger"}}',
        b'{"id":6,"method":"tools/call","params":{"name":"danger","arguments":{"a":%s},"name":"fine"}}',
        b'{"id":6,"method":"tools/call","params":{"name":"fine","arguments":{"a":%s},"Name":"danger"}}',
        b'{"id":6,"method":"ping","params":{"name":"danger","arguments":{"a":%s}},"method":"tools/call"}',
        b'{"id":6,"method":"tools/call","params":{"name":"danger","arguments":{"a":%s}},"method":"ping"}',
        b'{"id":6,"params":{"name":"danger","arguments":{"a":%s}},"params":{"name":"fine"},"method":"tools/call"}',
        b'[{"id":6,"method":"tools/call","params":{"name":"danger","arguments":{"a":%s}}}]',
        b'{"method":"notifications/x","params":%s}' + CALL % 6,
        b'{"method":"notifications/x","params":%s}\r' + CALL % 6,
        b'{"method":"notifications/x","params":[%s,\r' + CALL % 6 + b"\r]}",
        b"""{"id":6,"method":"tools/call","params":{"arguments":{"q":'"',"a":%s},"name":"danger","x":{"b":'"'},"name":"fine"}}""",
        b"""{"id":6,"method":"tools/call","params":{"arguments":{"a":%s,"q":'"'},"name":"danger","x":{"b":'"'},"name":"fine"}}""",
        b"""{"id":6,"method":"tools/call","params":{"y":'",' ,"arguments":{"a":%s},"name":"danger"}}""",
        b"""{"id":6,"method":"tools/call","params":{"arguments":{"a":%s/*"*/},"name":"danger","x":[1/*"*/],"name":"fine"}}""",
        b'\xef\xbb\xbf{"id":6,"method":"tools/call","params":{"name":"danger","arguments":{"a":%s}}}',
        b'{"id":6,"method":"Tools/Call","params":{"name":"danger","arguments":{"a":%s}}}',
        b'{"id":6,"method":"tools/call","params":{"name":"danger\\u0000","arguments":{"a":%s}}}',
        b'{"id":6,"method":"tools/call","params":{"name":"danger","arguments":{"a":%s}}}\r',
    ]  # fmt: skip
    return [message.replace(b"%s", filler) for message in found]


class Generator:
    """Mutations of a denied call, one to four at a time. The seed makes them the same everywhere."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def messages(self, count: int) -> Iterator[bytes]:
        for number in range(count):
            line = CALL % number if self.rng.random() < 0.8 else GOOD % number
            for _ in range(self.rng.randint(1, 4)):
                line = self.rng.choice(self.MUTATIONS)(self, line)
            yield line.replace(b"\n", b" ")

    def _insert(self, line: bytes) -> bytes:
        at = self.rng.randrange(len(line) + 1)
        return line[:at] + self.rng.choice([*ODD_BYTES, b" ", b'"', b",", b"{", b"}", b"[", b"]", b":"]) + line[at:]

    def _delete(self, line: bytes) -> bytes:
        at = self.rng.randrange(len(line) + 1)
        return line[:at] + line[at + self.rng.randint(1, 3) :]

    def _flip(self, line: bytes) -> bytes:
        if not line:
            return line
        at = self.rng.randrange(len(line))
        return line[:at] + bytes([line[at] ^ (1 << self.rng.randrange(8))]) + line[at + 1 :]

    def _spell(self, line: bytes) -> bytes:
        word = self.rng.choice(["method", "params", "name", "tools/call", TOOL, "id", "arguments"])
        return line.replace(word.encode(), self.rng.choice(list(spellings(word))), 1)

    def _double(self, line: bytes) -> bytes:
        word = self.rng.choice(["method", "params", "name"])
        spelled = self.rng.choice(list(spellings(word)))
        value = self.rng.choice(
            [b'"danger"', b'"fine"', b'"tools/call"', b'"ping"', b'{"name":"danger"}', b"1", b"null"]
        )
        member = b'"%s":%s' % (spelled, value)
        places = [at for at, byte in enumerate(line) if byte in b"{,"]
        if not places:
            return line
        at = self.rng.choice(places) + 1
        return line[:at] + member + b"," + line[at:]

    def _wrap(self, line: bytes) -> bytes:
        form = self.rng.choice(
            [b"[%s]", b"[1,%s]", b"%s%s", NOTE, b'{"a":%s}', b"%s\r", b"\r%s", b" %s ", b"%s,", b"(%s)"]
        )
        return form.replace(b"%s", line)

    def _encode(self, line: bytes) -> bytes:
        return line.decode("latin-1").encode(self.rng.choice(["utf-8", "utf-16-le", "utf-16", "utf-8-sig"]))

    def _quote(self, line: bytes) -> bytes:
        return line.replace(b'"', b"'", self.rng.randint(1, 30))

    MUTATIONS = (_insert, _insert, _delete, _flip, _spell, _spell, _double, _double, _wrap, _encode, _quote)
