"""Timestamps of the contract: the calendar's own, both ways."""

from __future__ import annotations

import ast
import datetime
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from subluminal.contracts.moments import epoch_ms, is_moment, normal_ts, rfc3339

SOURCE = Path(__file__).resolve().parents[3] / "src" / "subluminal"
LAST_MS = 253_402_300_799_999
FORM = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z").fullmatch
# What people type and read, and the names of backups, which must sort by more than milliseconds.
CALENDARS = {"cli/render/moments.py", "clients/backups.py"}


@given(st.integers(0, LAST_MS))
def test_times_are_those_of_the_calendar(wall_ms: int) -> None:
    moment = datetime.datetime.fromtimestamp(wall_ms // 1000, datetime.UTC)
    assert rfc3339(wall_ms) == moment.strftime(f"%Y-%m-%dT%H:%M:%S.{wall_ms % 1000:03d}Z").rjust(24, "0")


@given(st.integers(-62_135_596_800_000, LAST_MS))
def test_a_timestamp_leads_back_to_its_moment(wall_ms: int) -> None:
    text = rfc3339(wall_ms)
    assert epoch_ms(text) == wall_ms
    assert is_moment(text) and normal_ts(text) == text


def calendar_has(text: str) -> bool:
    """The standard library's answer; a second may be any two figures, as in the contract's pattern."""
    try:
        return FORM(text) is not None and datetime.datetime.fromisoformat(text[:16]) is not None
    except ValueError:
        return False


PART = st.integers(0, 99).map("{:02d}".format)
DATES = st.builds("{}-{}-{}T{}:{}:{}".format, st.integers(0, 9999).map("{:04d}".format), PART, PART, PART, PART, PART)
TAILS = st.sampled_from(["Z", ".5Z", ".123Z", ".123456Z", ".Z", ".1", "", "z", "+00:00", "Z\n", ".1\n2Z", " Z", ".٣Z"])


@given(DATES | st.dates().map("{}T10:00:00".format) | st.text(max_size=24), TAILS)
@example("0000-01-01T00:00:00", "Z")
@example("2026-02-29T00:00:00", "Z")
@example("2024-02-29T00:00:00", ".000Z")
@example("+202-01-01T00:00:00", "Z")
@example("2026-01-01 00:00:00", "Z")
@example("２０２６-01-01T00:00:00", "Z")
def test_only_timestamps_that_the_calendar_has_are_moments(date: str, tail: str) -> None:
    assert is_moment(date + tail) == calendar_has(date + tail)


@pytest.mark.parametrize("ts", ["2026-01-31T10:00:00Z", "2026-01-31T10:00:00.1Z", "2026-01-31T10:00:00.123456Z"])
def test_any_number_of_decimals_becomes_three(ts: str) -> None:
    moment = datetime.datetime.fromisoformat(ts)
    assert normal_ts(ts) == moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert epoch_ms(ts) == epoch_ms(normal_ts(ts)) == int(moment.timestamp() * 1000)


def test_it_costs_the_shim_no_import() -> None:
    program = (
        "import sys, __future__, subluminal; before = set(sys.modules); import subluminal.contracts.moments;"
        "print(sorted(m for m in set(sys.modules) - before if not m.startswith('subluminal')))"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"


def test_no_other_module_writes_or_reads_timestamps() -> None:
    names = {"isoformat", "fromisoformat", "strftime", "strptime", "gmtime", "timegm"}
    found = set()
    for module in SOURCE.rglob("*.py"):
        text = module.read_text()
        for node in ast.walk(ast.parse(text)) if any(name in text for name in names) else ():
            if isinstance(node, ast.Attribute) and node.attr in names:
                found.add(module.relative_to(SOURCE).as_posix())
    assert found == CALENDARS
