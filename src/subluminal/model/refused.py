"""How a refused call is told: under another name, so that the client has no such tool and the loop goes on.

The client sends its history with every request. There the call stands under our name with everything in it that is
needed to put it back: what the model wrote, and why it was refused. So nothing is kept here, and a session that goes on
tomorrow, or through another process, is restored the same.

    refused_name("Bash")                          subluminal_refused__Bash
    wrapped(original, "DENYLIST_MATCH: ...")      {"refused": "DENYLIST_MATCH: ...", "call": ORIGINAL}
    unwrapped(arguments)                          (original, text), or None: not one of ours

What a client does with such a call is to answer that there is no such tool; the provider is shown our text instead.
"""

from __future__ import annotations

from subluminal.contracts.digest import blake2b
from subluminal.contracts.jsontext import to_json
from subluminal.contracts.members import members, text_of
from subluminal.model.words import ModelFault

PREFIX = "subluminal_refused__"
# The shortest that an API takes for a name, and the alphabet that all take.
MAX_NAME_CHARS = 64
_DIGEST_CHARS = 12
_REASON = "refused"
_CALL = "call"


def refused_name(name: str) -> str:
    """A long name is cut, and told from others by a digest: the name itself is in the wrapped call."""
    spelled = "".join(char if char.isascii() and (char.isalnum() or char in "_-") else "_" for char in name)
    if spelled == name and len(PREFIX) + len(name) <= MAX_NAME_CHARS:
        return PREFIX + name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_CHARS // 2).hexdigest()
    return PREFIX + spelled[: MAX_NAME_CHARS - len(PREFIX) - _DIGEST_CHARS - 1] + "_" + digest


def fault_of_name(name: str) -> str | None:
    """A model that forges a refused call would find another in its history than the one it made."""
    return "its name is kept for calls that were refused" if name.startswith(PREFIX) else None


def wrapped(original: bytes, text: str) -> bytes:
    """`original` is a JSON value: the call as the model wrote it."""
    reason = to_json(text).encode("utf-8", "replace")  # half a surrogate pair is nothing that every parser takes
    return b'{"%b":%b,"%b":%b}' % (_REASON.encode(), reason, _CALL.encode(), original)


def unwrapped(arguments: bytes) -> tuple[bytes, str] | None:
    """Exactly what `wrapped` makes, however a client has spelled it since: some sort keys."""
    try:
        found = members(arguments)
    except ModelFault:
        return None
    if found.keys() != {_REASON, _CALL}:
        return None
    text = text_of(found[_REASON].of(arguments))
    return None if text is None else (found[_CALL].of(arguments), text)
