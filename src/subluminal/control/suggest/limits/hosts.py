"""URLs: the exact hosts that `SUPPORT` runs used. Wider only where three hosts of one domain were used."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from subluminal.control.suggest import SUPPORT
from subluminal.control.suggest.evidence import Values
from subluminal.control.suggest.limits.limit import Limit
from subluminal.control.suggest.tokens import is_copyable
from subluminal.core.engine.hosts import pattern_fault, read_hosts

MAX_HOSTS = 60
# Below these anybody can have a name of their own.
_SHARED = frozenset((
    "github.io", "gitlab.io", "pages.dev", "workers.dev", "vercel.app", "netlify.app", "herokuapp.com", "web.app",
    "firebaseapp.com", "ngrok.io", "amazonaws.com", "cloudfront.net", "azurewebsites.net", "blogspot.com",
    "readthedocs.io", "co.uk", "org.uk", "com.au", "co.jp", "com.br",
))  # fmt: skip
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|[\w.-]+@[\w.-]+:")
# What carries data to a host that is known.
_QUERY = re.compile(r"[?#;]|%[0-9A-Fa-f]{2}|://[^/]*@")
_IN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/\s\"'<>()\[\]{}|\\^`?#]*)")


def is_url(text: str) -> bool:
    return _URL.match(text) is not None


def fit(values: Values, level: int) -> Limit | None:
    runs: dict[str, set[int]] = {}
    for text, (_, used) in values.texts.items():
        for host in _hosts(text):
            runs.setdefault(host, set()).update(used)
    known = _supported(runs)
    if level:
        known = _with_domains(known)
    if not known:
        return None
    words = f"{len(known)} hosts" if len(known) > 1 else "one host"
    unknown = ["https://unseen.invalid/", "http://169.254.169.254/latest/"]
    limit = Limit("host", [("host_in", known)], words, known[:3], unknown, widest=level >= 1)
    asking = {run for text, (_, used) in values.texts.items() if _QUERY.search(text) for run in used}
    if len(asking) < SUPPORT:
        limit.never.append(("query", _QUERY.pattern, "has no query, fragment or escape"))
    return limit


def _supported(runs: dict[str, set[int]]) -> list[str]:
    by_use = sorted(runs, key=lambda host: (-len(runs[host]), host))
    known = [
        host for host in by_use if len(runs[host]) >= SUPPORT and pattern_fault(host) is None and is_copyable(host)
    ]
    return sorted(known[:MAX_HOSTS])


def _hosts(text: str) -> list[str]:
    found = read_hosts(text)
    return [] if found.doubt else [host.name for host in found.hosts]


def _with_domains(known: list[str]) -> list[str]:
    below: dict[str, list[str]] = {}
    for host in known:
        domain = ".".join(host.split(".")[-2:])
        if host.count(".") >= 2 and domain not in _SHARED and not host.replace(".", "").isdigit():
            below.setdefault(domain, []).append(host)
    wide = {domain for domain, hosts in below.items() if len(hosts) >= SUPPORT}
    return sorted({*known, *(f"*.{domain}" for domain in wide)})


def hosts_in_text(text: str) -> list[str]:
    """Of every URL that stands somewhere in a text, in lower case, without user and port."""
    return [found.rpartition("@")[2].partition(":")[0].lower().rstrip(".") for found in _IN_TEXT.findall(text) if found]


def urls_of(texts: dict[str, list[Any]]) -> list[str] | None:
    """Which hosts the URLs within texts may have: none where fewer than `SUPPORT` runs wrote one; None: no limit."""
    runs: dict[str, set[int]] = {}
    calls = unknown = 0
    with_url: set[int] = set()
    said: list[tuple[int, list[str]]] = []
    for text, (times, used) in texts.items():
        if "://" not in text:
            continue
        with_url |= used
        calls += times
        hosts = hosts_in_text(text)
        said.append((times, hosts))
        for host in hosts:
            runs.setdefault(host, set()).update(used)
    if len(with_url) < SUPPORT:
        return []
    known = set(_supported(runs))
    unknown = sum(times for times, hosts in said if not set(hosts) <= known)
    return sorted(known) if unknown * 10 <= calls else None


def only_these(hosts: Iterable[str]) -> str:
    """A regex for texts of which every URL has one of these hosts; nothing may stand between host and port or path."""
    names = "|".join(re.escape(host) for host in hosts)
    host = rf"//(?i:{names})(?::[0-9]+)?(?:[/?#\s\"'`)>,;|]|$)"
    # Behind colons, with single slashes between them, stands no second slash but before a known host.
    return rf"^(?:[^:]|:(?::|/:)*(?:[^:/]|/[^:/]|{host}))*(?::(?::|/:)*/?)?$"
