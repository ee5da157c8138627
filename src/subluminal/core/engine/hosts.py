"""`args.host_in`: whether the host of a URL is one of these.

Parsers differ: to a browser a backslash ends the host, tabs and line breaks are not there, `https:evil.com` has a host
and 0x7f.1 is 127.0.0.1; others see something else. So a text may have several hosts, and all of them count. What stops
a call asks whether any of them is meant, what lets it through whether all are. Names are not looked up.

What a text says is the same for ever, so it is remembered across calls.
"""

from __future__ import annotations

from functools import lru_cache

from subluminal.contracts.globs import glob_fault, glob_test
from subluminal.contracts.vocabulary import UNJUDGED_ARGS
from subluminal.core.engine.addresses import LOOPBACK, PRIVATE, Networks, dotted, embedded, ipv4, ipv6, is_network
from subluminal.core.engine.authorities import authorities, split_authority
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.spellings import percent_decoded, printable
from subluminal.core.engine.where import MAX_ELEMENTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MAX_HOST_CHARS = 1_024
# Names in other letters take the longest to read, and no resolver takes a longer one.
MAX_NAME_CHARS = 255
# Texts that are remembered: as many as one predicate looks at, so that of a list none is read again for each rule.
# Longer ones are; what makes them long is passed over quickly.
MAX_KEPT, MAX_KEPT_CHARS = MAX_ELEMENTS, 1_024
MAX_SHOWN = 4
MAX_SHOWN_CHARS = 200
# What no host has, in any reading: who sends it hopes for a parser that stops there.
_FORBIDDEN = frozenset('"#%/:<>?@[\\]^`{|} ') | frozenset(map(chr, range(33))) | {"\x7f"}
_LOCAL_NAMES = frozenset(("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"))
# Reserved for networks of one's own (ICANN, RFC 6762, RFC 8375): a deny takes them for private, an allow does not.
_PRIVATE_ENDINGS = (".internal", ".local", ".home.arpa", ".localdomain")


class Host:
    """One reading of a host: a name, or an address (version and number) with those that it may lead to."""

    __slots__ = ("addresses", "name")

    def __init__(self, name: str, addresses: tuple[tuple[int, int], ...] = ()) -> None:
        self.name = name
        self.addresses = addresses  # what lets through asks the first


class Hosts:
    """All readings. `doubt`: a clause, where there may be others."""

    __slots__ = ("doubt", "hosts")

    def __init__(self, hosts: list[Host], doubt: str) -> None:
        self.hosts = hosts
        self.doubt = doubt


class HostIn:
    """One predicate."""

    __slots__ = ("_generous", "_tests")

    def __init__(self, patterns: list[str], generous: bool) -> None:
        self._generous = generous
        self._tests = [_test(pattern, generous) for pattern in patterns]

    def __call__(self, value: Any) -> bool:
        if value.__class__ is not str:
            return self._generous and self._as_text(value)
        read = hosts_in(value)
        tests = self._tests
        if self._generous:
            for host in read.hosts:
                for test in tests:
                    if test(host):
                        return True
        else:
            for host in read.hosts:
                for test in tests:
                    if test(host):
                        break
                else:
                    return False
        if read.doubt:
            raise Unavailable(UNJUDGED_ARGS, read.doubt)
        return not self._generous and bool(read.hosts)

    def _as_text(self, value: Any) -> bool:
        """2130706433 is 127.0.0.1 to a server that asks for text."""
        if isinstance(value, (list, dict)):
            return False
        from subluminal.core.engine.readings import texts

        return any(self(text) for text in texts(value, MAX_HOST_CHARS) if text is not None)

    def reading(self, value: Any) -> str:
        """What the value was read as, for `explain`."""
        if value.__class__ is not str:
            return ""
        read = read_hosts(value)
        shown = " or ".join(printable(host.name) for host in read.hosts[:MAX_SHOWN])
        text = printable(value[:MAX_SHOWN_CHARS])
        words = f"{text} goes to {shown}" if shown else f"{text} names no host"
        if len(read.hosts) > MAX_SHOWN:
            words += " or others"
        return f"{words}, but {read.doubt}" if read.doubt else words


def pattern_fault(pattern: str) -> str | None:
    """Why a pattern is no host; for the linter."""
    pattern = _unbracketed(pattern)
    if pattern in (LOOPBACK, PRIVATE) or is_network(pattern):
        return None
    if "://" in pattern or "/" in pattern:
        return "is a URL or a path; write the host alone"
    if "@" in pattern or ":" in pattern:
        return "has a user or a port; write the host alone"
    if any(char in pattern for char in " \t\n\\"):
        return "has a blank or a backslash"
    if fault := glob_fault(pattern):
        return fault[0]
    return None


def _unbracketed(pattern: str) -> str:
    """[::1] as URLs write it."""
    return pattern[1:-1] if pattern[:1] == "[" and pattern[-1:] == "]" and ":" in pattern else pattern


def _test(pattern: str, generous: bool) -> Callable[[Host], bool]:
    glob = glob_of_name(pattern)
    if glob is not None:
        named = glob_test(glob)
        return lambda host: named(host.name)
    pattern = _unbracketed(pattern)
    if pattern in (LOOPBACK, PRIVATE):
        return _word_test(pattern, generous)
    networks = Networks(pattern)
    return lambda host: any(networks.hold(*address) for address in _asked(host, generous))


def glob_of_name(pattern: str) -> str | None:
    """What names are compared with; None: the pattern means addresses."""
    pattern = _unbracketed(pattern)
    return None if pattern in (LOOPBACK, PRIVATE) or is_network(pattern) else _pattern_name(pattern)


def _asked(host: Host, generous: bool) -> tuple[tuple[int, int], ...]:
    return host.addresses if generous else host.addresses[:1]


def _word_test(word: str, generous: bool) -> Callable[[Host], bool]:
    from subluminal.core.engine.addresses import named_networks

    networks = named_networks(word)

    def test(host: Host) -> bool:
        if host.addresses:
            return any(networks.hold(*address) for address in _asked(host, generous))
        if word == LOOPBACK:
            return host.name in _LOCAL_NAMES or host.name.endswith(".localhost")
        return generous and host.name.endswith(_PRIVATE_ENDINGS)

    return test


def _pattern_name(pattern: str) -> str:
    """A pattern as hosts are compared: lower case, without a last dot, in ASCII."""
    text = pattern.lower()
    if not text.isascii():
        from subluminal.core.engine.idna import ascii_names

        text = (ascii_names(text)[0] or [text])[0]
    return text.rstrip(".") or text


# -- reading a value ----------------------------------------------------------------------------------------------


def read_hosts(text: str) -> Hosts:
    found: dict[str, Host] = {}
    doubt = ""
    for authority in authorities(text):
        if len(authority) > MAX_HOST_CHARS:
            doubt = "the host of the URL is too long"
            continue
        for name in split_authority(authority):
            for host in _hosts(name):
                if host is None:
                    doubt = doubt or "the host of the URL is not written plainly"
                else:
                    found[host.name] = host
    return Hosts(list(found.values()), doubt)


hosts_of = lru_cache(MAX_KEPT)(read_hosts)


def hosts_in(text: str) -> Hosts:
    return hosts_of(text) if len(text) <= MAX_KEPT_CHARS else read_hosts(text)


def _hosts(text: str) -> list[Host | None]:
    """The readings of a host between user and port. None: one that cannot be told."""
    if text.startswith("[") or text.count(":") > 1:
        inside = text.strip("[]")
        address = ipv6(inside) or ipv6(percent_decoded(inside))
        return [None] if address is None else [_six(address)]
    if "%" in text:
        decoded = percent_decoded(text)
        return [Host(text.lower()), *_named(decoded)] if decoded != text else [None]
    return _named(text)


def _six(address: Any) -> Host:
    inner = embedded(address)
    outer = (6, int(address))
    if inner is None:
        return Host(str(address), (outer,))
    if int(address) >> 32 == 0xFFFF:  # mapped: the system connects to the IPv4 address
        return Host(dotted(inner), ((4, inner), outer))
    return Host(str(address), (outer, (4, inner)))


def _named(text: str) -> list[Host | None]:
    names: list[str] = [text.lower()]
    found: list[Host | None] = []
    if not text.isascii():
        if len(text) > MAX_NAME_CHARS:
            return [None]
        from subluminal.core.engine.idna import ascii_names  # few hosts need it

        names, sure = ascii_names(text)
        if not sure:
            found.append(None)
    for name in names:
        name = name.rstrip(".")
        if not name:
            continue
        if not _FORBIDDEN.isdisjoint(name):
            found.append(None)
            continue
        numbers, sure = ipv4(name)
        found += [Host(dotted(number), ((4, number),)) for number in sorted(numbers)]
        if not sure:
            found.append(None)
        if not numbers or not sure:
            found.append(Host(name))
    return found
