"""Which `sub` clients are told to start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from subluminal.contracts.errors import ConfigError
from subluminal.host.executable import find_sub, may_vanish


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with an interpreter and a `sub` beside it."""
    program = tmp_path / "venv" / "bin" / "sub"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program.parent / "python"))
    monkeypatch.setattr(sys, "argv", ["/somewhere/__main__.py"])
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    return program


def test_the_one_beside_the_interpreter(installed: Path) -> None:
    assert find_sub() == str(installed)


def test_a_link_the_user_typed_is_kept_because_it_survives_upgrades(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "local" / "sub"
    link.parent.mkdir()
    link.symlink_to(installed)
    monkeypatch.setattr(sys, "argv", [str(link)])
    assert find_sub() == str(link)


def test_a_link_on_the_path_is_preferred_to_what_it_leads_to(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "local" / "sub"
    link.parent.mkdir()
    link.symlink_to(installed)
    monkeypatch.setenv("PATH", str(link.parent))
    assert find_sub() == str(link)


def test_another_program_of_that_name_on_the_path_is_not_taken(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other" / "sub"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    assert find_sub() == str(installed)


def test_a_relative_call_gives_an_absolute_path(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(installed.parent)
    monkeypatch.setattr(sys, "argv", ["./sub"])
    assert find_sub() == str(installed)
    assert os.path.isabs(find_sub())


def test_no_sub_at_all_is_an_error_with_a_way_out(installed: Path) -> None:
    installed.unlink()
    with pytest.raises(ConfigError) as error:
        find_sub()
    assert "Install" in (error.value.hint or "")


def test_environments_made_for_one_use_are_recognised() -> None:
    assert may_vanish("/home/me/.cache/uv/archive-v0/abc/bin/sub")
    assert not may_vanish("/home/me/.local/bin/sub")
