"""Every command line that README and docs print, run as it is printed, on the machine of a reader (`machine`).

`lines.yaml` has what is not simply run and must end with 0: what is typed, when a command that follows is stopped,
another exit code and why, and the few lines that cannot be run here, each with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml

from pages.machine import Machine, Outcome, port_taken
from pages.printed import Printed, printed

LINES: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("lines.yaml").read_text(encoding="utf-8"))
# The reference of all commands begins anew with each of them; another page is read from its top.
SCENES = {
    key: list(lines)
    for key, lines in groupby(
        printed(), lambda each: f"{each.page} {each.section}" if each.page == "cli.md" else each.page
    )
}
MASKS = [
    (re.compile(r"\d{8}T\d{6}\.\d+Z"), "MOMENT"),
    (re.compile(r"(\d{4}-\d\d-\d\d )?\b\d\d:\d\d(:\d\d)?\b"), "TIME"),
    (re.compile(r"\b(run-)?[0-9a-f]{8,}\b"), "ID"),
    (re.compile(r"\b[0-9a-f]{4}-\d+$"), "CALL"),
    (re.compile(r"<?\b\d+(\.\d+)? m?s\b"), "DURATION"),
    (re.compile(r"chain [\d,]+, rows [\d,]+"), "PACE"),
    (re.compile(r"[▁▂▃▄▅▆▇█ ]{3,}"), " "),  # when calls came
    (re.compile(r"\s+"), " "),
]


def expectation(line: Printed) -> dict[str, Any]:
    return LINES.get(f"{line.page}: {line.line}") or LINES.get(line.line) or {}


def outcome_of(machine: Machine, line: Printed) -> Outcome | None:
    """None: it is not run."""
    wanted = expectation(line)
    for before in wanted.get("before", ()):
        assert machine.run(before).code == 0, before
    if "not_run" in wanted:
        return None
    if "until" in wanted:
        return machine.follow(line.line, wanted["until"], env=wanted.get("env"))
    return machine.run(line.line, stdin=wanted.get("stdin", ""), env=wanted.get("env"))


def carry_out(machine: Machine, line: Printed) -> None:
    wanted, outcome = expectation(line), outcome_of(machine, line)
    if outcome is None:
        return
    where = f"{line.page}:{line.number}: {line.line}\nended with {outcome.code} and said:\n{outcome.text}"
    codes = wanted.get("exit", 0)
    assert outcome.code in (codes if isinstance(codes, list) else [codes]), where
    assert "Traceback" not in outcome.text, where
    for text in wanted.get("says", ()):
        assert text in outcome.text, where
    if line.shown:
        assert_shown(line, outcome)


def masked(line: str) -> str:
    line = line.strip()
    for pattern, word in MASKS:
        line = pattern.sub(word, line)
    return line


def assert_shown(line: Printed, outcome: Outcome) -> None:
    """Each line of the page stands in what came out, in this order; `...` stands for anything."""
    came = [masked(text) for text in outcome.text.splitlines()]
    for shown in line.shown:
        pattern = re.compile(".*".join(re.escape(piece.strip()) for piece in masked(shown).split("...")))
        while came and not pattern.fullmatch(came[0]):
            came.pop(0)
        assert came, f"{line.page} shows {shown!r} below `{line.line}`, which says:\n{outcome.text}"


def typed_here(scene: str) -> list[Printed]:
    """Without the lines whose port another program has: looked at before the first of them listens itself."""
    return [line for line in SCENES[scene] if not port_taken(line.line)]


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Machine, Path]]:
    folder = tmp_path_factory.mktemp("pages")
    with Machine(folder / "m") as machine:
        machine.settle_in()
        machine.keep(folder / "kept")
        yield machine, folder / "kept"


OF_A_FLEET = ("sub fleet", "sub policy sign", "sub policy verify")
NEWCOMERS = ("README.md", "tour.md")


@pytest.mark.parametrize("scene", [scene for scene in SCENES if scene in NEWCOMERS])
def test_what_a_newcomer_reads_can_be_typed(scene: str, tmp_path: Path) -> None:
    with Machine(tmp_path / "m") as machine:
        for line in typed_here(scene):
            carry_out(machine, line)


@pytest.mark.parametrize("scene", [scene for scene in SCENES if scene not in NEWCOMERS])
def test_what_a_page_prints_can_be_typed(scene: str, settled: tuple[Machine, Path]) -> None:
    if any(line.line.startswith(OF_A_FLEET) for line in SCENES[scene]):
        pytest.importorskip("tuf", reason="needs the extra `fleet` (make test-fleet)")
    machine, kept = settled
    machine.again(kept)
    for line in typed_here(scene):
        carry_out(machine, line)


def test_nothing_is_expected_of_a_line_that_no_page_prints() -> None:
    known = {line.line for line in printed()} | {f"{line.page}: {line.line}" for line in printed()}
    assert not [line for line in LINES if line not in known]


def test_a_line_that_is_not_run_says_why() -> None:
    assert all(len(wanted["not_run"]) > 10 for wanted in LINES.values() if "not_run" in wanted)
    assert sum("not_run" in expectation(line) for line in printed()) < len(list(printed())) / 10
