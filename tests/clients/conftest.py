"""Fixtures for tests with the real agent CLIs. They run offline, in a home of their own, against fake models."""

from __future__ import annotations

from pathlib import Path

import pytest

from clients import programs
from harness.npm import InstallError


@pytest.fixture(scope="session")
def cli_dir() -> Path:
    """The directory of the installed CLIs; the test is skipped, with the reason, where they cannot be had."""
    try:
        return programs.install()
    except InstallError as error:
        pytest.skip(f"the agent CLIs are not available: {error}")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home with a project directory in it; the environment holds nothing else that a client could read."""
    place = tmp_path / "home"
    (place / "project").mkdir(parents=True)
    for name, value in programs.base_env(place).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SUB_HOME", str(place / ".subluminal"))
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "SUB_RUN_ID", "SUB_POLICY"):
        monkeypatch.delenv(name, raising=False)
    return place
