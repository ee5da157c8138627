"""Yes, no, and that it cannot be told, which is an exception: how several such answers become one.

Of things that must all hold, one that certainly does not decides; of alternatives, one that certainly does. Otherwise
what cannot be told stands.

Trap: an exception in a local variable of a frame that it passes through is a cycle, and shims collect none.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any


def decided(tests: Iterable[Callable[..., bool]], by: bool, *given: Any) -> bool:
    """`by` if one test says so, else the contrary: all must hold (by False), or one must (by True)."""
    unknown = None
    for test in tests:
        try:
            if bool(test(*given)) is by:
                return by
        except Exception as error:
            unknown = unknown or error
    if unknown is None:
        return not by
    try:
        raise unknown
    finally:
        del unknown


def decided_among(values: Iterable[Any], by: bool, test: Callable[[Any], bool], unknown: Exception | None) -> bool:
    """The same for one test and several values. `unknown` says that there are values beside these."""
    for value in values:
        try:
            if bool(test(value)) is by:
                return by
        except Exception as error:
            unknown = unknown or error
    if unknown is None:
        return not by
    try:
        raise unknown
    finally:
        del unknown
