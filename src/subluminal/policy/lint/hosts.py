"""Patterns of `host_in`: which covers which, by their words alone."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from subluminal.core.engine.addresses import is_network

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

# The words of the language, and addresses that are certainly meant by them.
_NETWORKS = {
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
    "loopback": ("127.0.0.0/8", "::1/128"),
}


def host_covers(wide: str, narrow: str) -> bool:
    wide, narrow = _normal(wide), _normal(narrow)
    if wide in (narrow, "*"):
        return True
    if wide in _NETWORKS:
        address = _address(narrow)
        return address is not None and any(address in network for network in _networks(wide))
    if wide.startswith("*.") and "*" not in wide[1:]:
        # Names below it; neither the name itself nor a word, nor an address, which is also met by other names.
        if is_network(narrow):
            return False
        return narrow.endswith(wide[1:]) and len(narrow) > len(wide) - 1 and not narrow.startswith(".")
    return False


def _normal(pattern: str) -> str:
    return pattern.lower().removesuffix(".")


@lru_cache
def _networks(word: str) -> list[IPv4Network | IPv6Network]:
    from ipaddress import ip_network  # few policies name addresses

    return [ip_network(text) for text in _NETWORKS[word]]


def _address(text: str) -> IPv4Address | IPv6Address | None:
    from ipaddress import ip_address

    try:
        return ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
