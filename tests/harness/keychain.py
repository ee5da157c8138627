"""Choose the backend of `keyring`, so that no test touches the keychain of whoever runs it."""

from __future__ import annotations

from pathlib import Path

import keyring.core
import pytest

NONE = "keyring.backends.fail.Keyring"
# A real backend that keeps its data under XDG_DATA_HOME.
FILE = "keyrings.alt.file.PlaintextKeyring"


def use_keychain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", backend)
    keyring.core.init_backend()
