"""Every test has a home of its own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SUB_HOME", str(home / ".subluminal"))
    for name in ("SUB_POLICY", "SUB_POLICY_JSON"):
        monkeypatch.delenv(name, raising=False)
    return home
