from __future__ import annotations

from pathlib import Path

import pytest

from harness.hook_files import HookHome


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HookHome:
    return HookHome(tmp_path, monkeypatch)
