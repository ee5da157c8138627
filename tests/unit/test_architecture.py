"""docs/ARCHITECTURE.md says what `make check` enforces, and the tree matches it."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from harness import places

PAGE = (places.ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
SOURCE = places.ROOT / "src" / "subluminal"
RULES: list[dict[str, Any]] = tomllib.loads((places.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "importlinter"
]["contracts"]


def rule(name: str) -> dict[str, Any]:
    (found,) = [rule for rule in RULES if rule["name"] == name]
    return found


def test_the_layers_of_the_page_are_those_that_are_checked() -> None:
    layers = [layer for layer in rule("Imports only point down")["layers"] if layer != "__main__"]
    (told,) = re.findall(r"Layers: `([^`]+)`", PAGE)
    assert told.split() == " > ".join(layers).split()
    contributing = (places.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert " ".join(told.split()) in " ".join(contributing.split())


def test_every_package_has_a_row_in_the_map_and_every_row_a_package() -> None:
    rows = re.findall(r"^\| ((?:`[a-z_]+/`(?:, )?)+) \|", PAGE, re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`([a-z_]+)/`", row)}
    assert told == {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}


def test_the_rooms_without_io_are_those_that_are_checked() -> None:
    rooms = rule("The sans-IO rooms do no I/O and own no clock")["source_modules"]
    (told,) = re.findall(r"^- (.*) do no I/O and own no clock", PAGE, re.MULTILINE)
    assert sorted(re.findall(r"`([a-z/]+)`", told)) == sorted(
        room.removeprefix("subluminal.").replace(".", "/") for room in rooms
    )


def test_the_files_that_a_call_visits_are_there() -> None:
    walk = PAGE[PAGE.index("## One call through the shim") : PAGE.index("## One home for each fact")]
    named = set(re.findall(r"\b((?:adapters|mcp|core|host|producer)(?:/[a-z_]+)+)\b", walk))
    assert len(named) > 15
    for name in named:
        assert (SOURCE / f"{name}.py").exists() or (SOURCE / name).is_dir(), name


def test_every_package_says_what_it_is_for_and_nothing_else() -> None:
    for path in SOURCE.rglob("__init__.py"):
        text = path.read_text(encoding="utf-8")
        assert text.startswith('"""'), path
