"""The state a rule may read: copied when it is made, readers only afterwards.

`bindings` carry what the host knows of this one call (server name, arguments, time): immutable scalars only, so that
nothing can change between the judgement and the call. `bind_call` makes them.
"""

from __future__ import annotations

from subluminal.admission.bps import ArithmeticFault, checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    Binding = int | str | bytes | None

_NAMES = ("reputation", "tokens", "stakes", "epoch", "event_count", "fork_id", "rule_version", "bindings")


class ReadOnlyState:
    """`ReadOnlyState()` is the empty state. Unknown names read as 0."""

    __slots__ = tuple("_" + name for name in _NAMES)

    _reputation: dict[str, int]
    _tokens: dict[str, int]
    _stakes: dict[str, int]
    _epoch: int
    _event_count: int
    _fork_id: str
    _rule_version: str
    _bindings: dict[str, Binding]

    def __init__(
        self,
        *,
        reputation: Mapping[str, int] | None = None,
        tokens: Mapping[str, int] | None = None,
        stakes: Mapping[str, int] | None = None,
        epoch: int = 0,
        event_count: int = 0,
        fork_id: str = "",
        rule_version: str = "",
        bindings: Mapping[str, Binding] | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "_reputation", _amounts("reputation", reputation))
        put(self, "_tokens", _amounts("tokens", tokens))
        put(self, "_stakes", _amounts("stakes", stakes))
        put(self, "_epoch", _integer("epoch", epoch))
        put(self, "_event_count", _integer("event_count", event_count))
        put(self, "_fork_id", _string("fork_id", fork_id))
        put(self, "_rule_version", _string("rule_version", rule_version))
        put(self, "_bindings", _scalars(bindings))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"ReadOnlyState is read-only: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"ReadOnlyState is read-only: {name} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReadOnlyState):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __copy__(self) -> ReadOnlyState:
        return self

    def __deepcopy__(self, memo: object) -> ReadOnlyState:
        return self

    __hash__ = None  # type: ignore[assignment]  # compared by content, which is a dictionary

    def reputation(self, who: str) -> int:
        return self._reputation.get(who, 0)

    def tokens(self, who: str) -> int:
        return self._tokens.get(who, 0)

    def stake(self, who: str) -> int:
        return self._stakes.get(who, 0)

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def event_count(self) -> int:
        return self._event_count

    @property
    def fork_id(self) -> str:
        return self._fork_id

    @property
    def rule_version(self) -> str:
        return self._rule_version

    def binding(self, name: str) -> Binding:
        return self._bindings.get(name)


def bind_call(
    *,
    server_name: str,
    args: bytes | None,
    bytes_in: int | None = None,
    wall_ms: int | None = None,
    mono_ms: int | None = None,
) -> ReadOnlyState:
    """The snapshot of one call for a registry made from a policy.

    `args` is the JSON text of the arguments, or None when it is not known: then rules on arguments fall to the policy's
    `decision_on_error`. Without times the registry takes its own.
    """
    size = bytes_in if bytes_in is not None else len(args or b"")
    return ReadOnlyState(
        bindings={"server_name": server_name, "args": args, "bytes_in": size, "wall_ms": wall_ms, "mono_ms": mono_ms}
    )


def _amounts(name: str, given: Mapping[str, int] | None) -> dict[str, int]:
    copied = dict(given or {})
    for key, value in copied.items():
        _string(f"a key of {name}", key)
        _integer(f"{name}[{key!r}]", value)
    return copied


def _integer(name: str, value: int) -> int:
    try:
        return checked(value)
    except ArithmeticFault:
        raise TypeError(f"{name} must be an integer of 64 bits") from None


def _string(name: str, value: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string")
    return value


def _scalars(given: Mapping[str, Binding] | None) -> dict[str, Binding]:
    copied = dict(given or {})
    for key, value in copied.items():
        _string("the name of a binding", key)
        if value is not None and not isinstance(value, (str, bytes)):
            _integer(f"binding {key!r}", value)
    return copied
