"""Ids of traces and spans, out of ours: the same call has the same ids whoever exports it, and however often."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

# W3C Trace Context; later versions may append to it.
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class Parent(NamedTuple):
    trace_id: bytes
    span_id: bytes


def trace_id(run_id: str) -> bytes:
    return _digest("trace", run_id)[:16]


def run_span_id(run_id: str) -> bytes:
    return _digest("run", run_id)[:8]


def call_span_id(run_id: str, shim_id: str, call_id: str) -> bytes:
    return _digest("call", run_id, shim_id, call_id)[:8]


def parent_of(run_id: str, traceparent: object) -> Parent:
    """What the client said in `params._meta.traceparent`, where that is one; else the span of the run."""
    match = _TRACEPARENT.fullmatch(traceparent) if isinstance(traceparent, str) else None
    if match is None or match[1] == "ff" or (match[5] and match[1] == "00"):
        return Parent(trace_id(run_id), run_span_id(run_id))
    told = Parent(bytes.fromhex(match[2]), bytes.fromhex(match[3]))
    return told if any(told.trace_id) and any(told.span_id) else Parent(trace_id(run_id), run_span_id(run_id))


def is_sampled(trace: bytes, ratio: float) -> bool:
    """By the trace, so that whoever else samples by it keeps the same ones."""
    return int.from_bytes(trace[8:16], "big") < ratio * 2**64


def _digest(*words: str) -> bytes:
    """A length before each word: no two lists of words are the same bytes."""
    whole = hashlib.sha256()
    for word in words:
        raw = word.encode("utf-8", "surrogatepass")
        whole.update(len(raw).to_bytes(4, "big") + raw)
    return whole.digest()
