"""One module knows every name under SUB_HOME, and the documentation knows what it knows."""

from __future__ import annotations

import ast
import os
import stat
from pathlib import Path

import pytest

from subluminal.host import home
from subluminal.host.secrets.keystore import open_store

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "src" / "subluminal"
# Codex has a `config.toml` in a home of its own; `sub policy init DIRECTORY` writes wherever it is told.
OTHER_HOMES = {"clients/codex.py": {"config.toml"}, "cli/policy/edit.py": {"policy.yaml"}}


def names() -> set[str]:
    return {os.path.basename(path) for path, _ in home.private_places()} - {os.path.basename(home.sub_home())}


def joined_by_hand(path: Path) -> list[str]:
    """Calls of `join` with the home or one of its names, and texts that end in `/<name>`."""
    found = []
    allowed = OTHER_HOMES.get(path.relative_to(SOURCE).as_posix(), set())
    tails = tuple(f"/{name}" for name in names())
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "join":
            texts = {part.value for part in node.args if isinstance(part, ast.Constant)}
            if "sub_home(" in ast.unparse(node) or texts & (names() - allowed):
                found.append(ast.unparse(node))
        elif isinstance(node, ast.JoinedStr):
            texts = [part.value for part in node.values if isinstance(part, ast.Constant)]
            found += [text for text in texts if str(text).endswith(tails)]
    return found


def test_no_other_module_joins_a_name_to_the_home() -> None:
    others = [path for path in SOURCE.rglob("*.py") if path != SOURCE / "host" / "home.py"]
    assert {str(path): found for path in others if (found := joined_by_hand(path))} == {}
    assert joined_by_hand(SOURCE / "host" / "home.py"), "the search finds nothing at all"


def test_the_listing_and_the_documentation_name_every_entry() -> None:
    documented = (ROOT / "docs" / "troubleshooting.md").read_text()
    assert home.__doc__ is not None
    for path, mode in home.private_places()[1:]:
        entry = os.path.relpath(path, home.sub_home()) + ("/" if mode == 0o700 else "")
        assert f"\n{entry} " in home.__doc__, entry
        assert f"| `{entry}` |" in documented, entry


def test_the_home_is_read_at_each_call_and_can_be_handed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUB_HOME", "/one")
    assert home.ledger_db() == "/one/ledger.db"
    monkeypatch.setenv("SUB_HOME", "/two")
    assert home.ledger_db() == "/two/ledger.db"
    assert home.ledger_db("/three") == "/three/ledger.db"
    assert home.config_file(home.sub_home({"HOME": "/home/me"})) == "/home/me/.subluminal/config.toml"


def test_a_home_that_begins_with_a_secret_is_private(tmp_path: Path) -> None:
    place = tmp_path / "home"
    open_store("file", {"SUB_HOME": str(place)}).put("ref", "a value of some length")
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
