"""Which schema counts: all of the pins; where a text was masked or left out, the listed one that is the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from subluminal.core.engine.faults import Unavailable
from subluminal.producer.schemas import NOT_KEPT, InputSchemas
from subluminal.surface.differences import Version
from subluminal.surface.items import TOOL, Gathered, read_item
from subluminal.surface.pins import Pin, parse, render

NARROW = {"type": "object", "properties": {"path": {"type": "string"}}, "additionalProperties": False}
WIDE = {"type": "object", "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}}}
READ = ("read", "pinned")


def version(schema: Any, description: str = "Reads.") -> Version:
    definition = {"name": "read", "description": description, **({} if schema is None else {"inputSchema": schema})}
    item = read_item(TOOL, "read", json.dumps(definition).encode())
    assert item.definition is not None
    return Version(item.fingerprint, item.fields, item.definition.decode())


def pinned(of: Version, masked: str | None = None) -> Pin:
    """As a lock says it, once it was written and read."""
    text = of.definition if masked is None else masked
    lock = {"fs": {"read": Pin(of.fingerprint, of.fields, text, TOOL, "read")}}
    return parse(render(lock))["fs"]["read"]


def said(pins: list[Pin], listed: Version | None, **args: Any) -> str | None:
    schemas = InputSchemas()
    schemas.learn(READ, pins, listed)
    return schemas.first_error(READ, args)


def test_the_pin_counts_and_not_what_is_listed_now() -> None:
    pin, now = pinned(version(NARROW)), version(WIDE)
    assert "`lines` is not known" in str(said([pin], now, lines=1))
    assert said([pin], now, path="/x") is None
    assert said([], now, lines=1) is None


def test_of_several_pins_each_must_be_satisfied() -> None:
    pins = [pinned(version(WIDE)), pinned(version(NARROW))]
    assert "`lines` is not known" in str(said(pins, None, lines=1))
    assert "`lines` must be of type integer" in str(said(pins[:1], None, lines="1"))


def test_a_pin_that_was_masked_is_judged_by_the_listed_schema_that_has_its_digest() -> None:
    true = version({**NARROW, "default": {"path": "ghp_0123456789"}})
    masked = pinned(true, true.definition.replace("ghp_0123456789", "[REDACTED:github]"))
    assert "`lines` is not known" in str(said([masked], true, lines=1))
    with pytest.raises(Unavailable) as fault:
        said([masked], version(WIDE), path="/x")
    assert (fault.value.reason_code, fault.value.why) == ("UNJUDGED_ARGS", NOT_KEPT)


def test_a_mask_outside_of_the_schema_does_not_matter() -> None:
    true = version(NARROW, "Reads with ghp_0123456789.")
    masked = pinned(true, true.definition.replace("ghp_0123456789", "[REDACTED:github]"))
    assert "`lines` is not known" in str(said([masked], None, lines=1))


def test_a_tool_without_a_schema_takes_everything_and_one_that_stands_twice_cannot_be_judged() -> None:
    assert said([pinned(version(None))], None, anything=1) is None
    both = Gathered()
    for schema in (NARROW, WIDE):
        both.add(read_item(TOOL, "read", json.dumps({"name": "read", "inputSchema": schema}).encode()))
    (item,) = both.items
    with pytest.raises(Unavailable):
        said([], Version(item.fingerprint, item.fields, (item.definition or b"").decode()), path="/x")
