"""`sub version`: the package, and the contracts that it writes and reads."""

from __future__ import annotations

import json
from pathlib import Path

from harness.command_line import run_sub
from subluminal import __version__
from subluminal.contracts.vocabulary import INTERFACE_VERSION


def test_both_versions_are_named(tmp_path: Path) -> None:
    told = run_sub(tmp_path, "version").stdout
    assert told.startswith(f"subluminal {__version__}\ncontracts  {INTERFACE_VERSION}")
    assert run_sub(tmp_path, "--version").stdout == told


def test_programs_read_them_as_json(tmp_path: Path) -> None:
    told = json.loads(run_sub(tmp_path, "version", "--json").stdout)
    assert told["package"] == __version__
    assert told["contracts"] == {"written": INTERFACE_VERSION, "read_from": "0.1.0", "snapshot_format": 1}
