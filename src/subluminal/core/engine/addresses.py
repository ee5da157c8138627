"""IP addresses in every spelling that a program connects to, and the networks that the words of a policy name.

IPv4 by hand, as numbers: `inet_aton` and browsers take decimal, octal and hexadecimal parts, and fewer than four.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ipaddress import IPv6Address

LOOPBACK = "loopback"
PRIVATE = "private"
# 0.0.0.0 and :: reach the machine itself.
_LOOPBACK_NETWORKS = ("127.0.0.0/8", "0.0.0.0/32", "::1/128", "::/128")
# RFC 1918, link-local with the metadata services, carrier-grade NAT, "this network", protocol assignments, benchmarks;
# unique local, link-local and site-local.
_PRIVATE_NETWORKS = (
    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10", "0.0.0.0/8", "192.0.0.0/24",
    "198.18.0.0/15", "fc00::/7", "fe80::/10", "fec0::/10",
)  # fmt: skip
_DIGITS = {8: frozenset("01234567"), 10: frozenset("0123456789"), 16: frozenset("0123456789abcdef")}


class Networks:
    """A set of networks. Asked with the numbers that `ipv4` and `ipv6` give."""

    __slots__ = ("_four", "_six")

    def __init__(self, *networks: str) -> None:
        from ipaddress import ip_network  # not imported at the start of a shim

        self._four: list[tuple[int, int]] = []
        self._six: list[tuple[int, int]] = []
        for text in networks:
            network = ip_network(text, strict=False)
            kept = self._four if network.version == 4 else self._six
            kept.append((int(network.network_address), network.max_prefixlen - network.prefixlen))

    def hold(self, version: int, number: int) -> bool:
        kept = self._four if version == 4 else self._six
        return any((number ^ network) >> bits == 0 for network, bits in kept)


def named_networks(word: str) -> Networks:
    return Networks(*(_LOOPBACK_NETWORKS if word == LOOPBACK else _PRIVATE_NETWORKS))


def is_network(pattern: str) -> bool:
    """An address, or a network such as 10.0.0.0/8."""
    if not pattern[-1:].isalnum() and pattern[-1:] != ":":
        return False
    if "/" not in pattern and ":" not in pattern and not pattern.replace(".", "").isdecimal():
        return False
    from ipaddress import ip_network

    try:
        ip_network(pattern, strict=False)
    except ValueError:
        return False
    return True


def ipv4(host: str) -> tuple[set[int], bool]:
    """The addresses that a host in lower case may be read as, and whether that is certain.

    None where it is a name. A part with a leading zero is octal to most and decimal to some; what ends in a number and
    is no address is refused by some and looked up by others.
    """
    parts = host.split(".")
    last = parts[-1]
    if not last.isdecimal() and not (last.startswith("0x") and _DIGITS[16].issuperset(last[2:])):
        return set(), True
    found = {_address(parts, zero_is_octal) for zero_is_octal in (True, False)}
    # The bare prefix is 0 to browsers and no number to the C library.
    return {number for number in found if number is not None}, None not in found and "0x" not in parts


def _address(parts: list[str], zero_is_octal: bool) -> int | None:
    if len(parts) > 4:
        return None
    numbers = [_number(part, zero_is_octal) for part in parts]
    *heads, tail = numbers
    if tail is None or tail >= 256 ** (5 - len(parts)):
        return None
    address = tail
    for at, head in enumerate(heads):
        if head is None or head > 255:
            return None
        address += head << 8 * (3 - at)
    return address


def _number(part: str, zero_is_octal: bool) -> int | None:
    base = 10
    if part.startswith("0x"):
        base, part = 16, part[2:] or "0"
    elif zero_is_octal and len(part) > 1 and part.startswith("0"):
        base, part = 8, part[1:]
    if not part or len(part) > 64 or not _DIGITS[base].issuperset(part):
        return None
    return int(part, base)


def ipv6(host: str) -> IPv6Address | None:
    """An address without brackets; a zone says where on this machine, not which one."""
    from ipaddress import IPv6Address

    try:
        return IPv6Address(host.partition("%")[0])
    except ValueError:
        return None


def embedded(address: IPv6Address) -> int | None:
    """The IPv4 address that an IPv6 address leads to: mapped, compatible, NAT64 or 6to4."""
    number = int(address)
    if number >> 32 in (0xFFFF, 0x64FF9B << 64) or (number >> 32 == 0 and number > 0xFFFF):
        return number & 0xFFFFFFFF
    if number >> 112 == 0x2002:
        return number >> 80 & 0xFFFFFFFF
    return None


def dotted(number: int) -> str:
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
