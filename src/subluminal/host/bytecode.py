"""Compiled modules for what a shim imports, where the way of installing has left none.

pip compiles what it installs; uv does not, and Python itself writes nothing where PYTHONDONTWRITEBYTECODE is set, as in
many containers: then every shim compiles its modules anew at every start. Whoever routes servers through us has a
moment to do it once. Where the installation cannot be written, nothing happens and nothing is said: it costs
milliseconds, no more.
"""

from __future__ import annotations

import os
from importlib.util import cache_from_source, find_spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# What a shim with a policy imports, of ours and of others.
_ROOMS = ("adapters", "contracts", "core", "host", "mcp", "native", "policy", "producer", "surface")
_OTHERS = ("msgspec", "re2")


def compile_missing() -> int:
    """How many modules were compiled."""
    done = 0
    for path in _sources():
        cached = cache_from_source(path)
        if not os.path.exists(cached):
            done += _compiled(path, cached)
    return done


def _compiled(path: str, cached: str) -> bool:
    from py_compile import PyCompileError, compile  # nearly every installation has them all

    try:
        compile(path, cached, doraise=True, quiet=2)
    except (OSError, PyCompileError):
        return False
    return True


def _sources() -> Iterator[str]:
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    yield from _modules(ours)
    for room in _ROOMS:
        for directory, _, _ in os.walk(os.path.join(ours, room)):
            yield from _modules(directory)
    for name in _OTHERS:
        spec = find_spec(name)
        if spec is not None and spec.origin is not None:
            is_package = spec.submodule_search_locations is not None
            yield from _modules(os.path.dirname(spec.origin)) if is_package else [spec.origin]


def _modules(directory: str) -> list[str]:
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    return [os.path.join(directory, name) for name in sorted(names) if name.endswith(".py")]
