from __future__ import annotations

from pathlib import Path

import pytest

from harness.client_files import ClientHome


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClientHome:
    return ClientHome(tmp_path, monkeypatch)
