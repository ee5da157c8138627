"""Which pod of Kubernetes this is: namespace, pod, service account and labels, as the downward API gives them (§1.3.1).

    POD_NAMESPACE      metadata.namespace          else the namespace that is mounted with the service account
    POD_NAME           metadata.name               else HOSTNAME
    SERVICE_ACCOUNT    spec.serviceAccountName
    SUB_POD_LABELS_FILE   the path of a downward API volume's file for metadata.labels; /etc/podinfo/labels if not set

The service account's token is never read. Files are bounded and nothing is waited for: whoever may write them must not
stop a tool. Loaded only where this is a pod.
"""

from __future__ import annotations

import os
from stat import S_ISREG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

LABELS_FILE = "/etc/podinfo/labels"
# Workload stands in every event. A label's key has at most 317 characters, its value 63; real pods have about ten.
MAX_LABELS = 64
MAX_LABELS_BYTES = 16_384
MAX_NAME_CHARS = 317
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"', "'": "'"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_DIGITS = frozenset("0123456789abcdefABCDEF")


class LabelsFault(ValueError):
    """Why the labels cannot be taken, as the end of a sentence."""


def describe(environ: Mapping[str, str], account_dir: str, say: Callable[[str], None]) -> dict[str, Any]:
    """The workload of this pod; what is not told is absent. `say` gets a sentence about labels that cannot be read."""
    workload: dict[str, Any] = {}
    namespace = _name(environ.get("POD_NAMESPACE", "")) or _mounted_namespace(account_dir)
    for word, value in (
        ("namespace", namespace),
        ("service_account", _name(environ.get("SERVICE_ACCOUNT", ""))),
        ("pod", _name(environ.get("POD_NAME", "")) or _name(environ.get("HOSTNAME", ""))),
    ):
        if value:
            workload[word] = value
    path = environ.get("SUB_POD_LABELS_FILE") or LABELS_FILE
    try:
        labels = read_labels(path)
    except FileNotFoundError:
        labels = {}
        if environ.get("SUB_POD_LABELS_FILE"):
            say(f"SUB_POD_LABELS_FILE: there is no {path}; policies that select by labels do not apply")
    except (OSError, LabelsFault) as fault:
        why = fault.strerror if isinstance(fault, OSError) else str(fault)
        labels = {}
        say(f"the pod's labels in {path} are ignored: {why}; policies that select by labels do not apply")
    if labels:
        workload["labels"] = labels
    return workload


def read_labels(path: str) -> dict[str, str]:
    """The file of a downward API volume: `key="value"` on each line, the value quoted as Go quotes a string."""
    raw = _read_small(path, MAX_LABELS_BYTES)
    if len(raw) > MAX_LABELS_BYTES:
        raise LabelsFault(f"it has more than {MAX_LABELS_BYTES} bytes")
    labels: dict[str, str] = {}
    for number, line in enumerate(raw.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            key, value = _label(line.decode())
        except ValueError:
            raise LabelsFault(f'line {number} is not of the form key="value"') from None
        labels[key] = value
        if len(labels) > MAX_LABELS:
            raise LabelsFault(f"it has more than {MAX_LABELS} labels")
    return labels


def _label(line: str) -> tuple[str, str]:
    """Raises ValueError for what the downward API would not have written."""
    key, equals, quoted = line.rstrip("\r").partition("=")
    if not equals or not key or len(key) > MAX_NAME_CHARS or len(quoted) < 2 or quoted[0] != '"' or quoted[-1] != '"':
        raise ValueError(line)
    return key, _unquoted(quoted[1:-1])


def _unquoted(text: str) -> str:
    parts: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == '"':
            raise ValueError(text)
        if text[at] != "\\":
            parts.append(text[at])
            at += 1
            continue
        letter = text[at + 1 : at + 2]
        digits = _HEX_DIGITS.get(letter, 0)
        if digits:
            code = text[at + 2 : at + 2 + digits]
            if len(code) != digits or not _DIGITS.issuperset(code):
                raise ValueError(text)
            parts.append(_character(int(code, 16)))
        elif letter in _ESCAPES:
            parts.append(_ESCAPES[letter])
        else:
            raise ValueError(text)
        at += 2 + digits
    return "".join(parts)


def _character(code: int) -> str:
    """No surrogates: what cannot be written in an event is not taken."""
    if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
        raise ValueError(code)
    return chr(code)


def _mounted_namespace(account_dir: str) -> str:
    try:
        return _name(_read_small(os.path.join(account_dir, "namespace"), 512).decode("utf-8", "replace").strip())
    except OSError:
        return ""


def _name(text: str) -> str:
    """A name as an event can hold it; empty for what is far too long to be one."""
    return text.encode("utf-8", "replace").decode() if len(text) <= MAX_NAME_CHARS else ""


def _read_small(path: str, limit: int) -> bytes:
    """At most one byte more than `limit`, of a regular file; a FIFO or a device is refused, not waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is not a regular file", path)
        return os.read(descriptor, limit + 1)
    finally:
        os.close(descriptor)
