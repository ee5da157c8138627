"""A machine that has joined no fleet imports, starts and requires nothing of one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.shim import isolated_env

# What a command has loaded when it has ended, beyond what `-m` itself loads.
_TELL = """
import sys
from subluminal.__main__ import main
sys.argv = ["sub", *{words!r}]
try:
    main()
except SystemExit:
    pass
finally:
    print("LOADED", *sorted(sys.modules), file=sys.stderr)
"""
_WITHOUT_TUF = """
import importlib.util as util, sys
found = util.find_spec
util.find_spec = lambda name, *more: None if name == "tuf" else found(name, *more)
from subluminal.__main__ import main
sys.exit(main())
"""
PARTS = ("subluminal.fleet", "subluminal.policy.laid", "tuf", "securesystemslib", "cryptography", "subprocess")


@pytest.mark.parametrize(
    "words",
    [["ledgerd", "--foreground", "--quiet"], ["query"], ["policy", "in-force", "--json"], ["doctor", "--json"]],
)
def test_a_command_loads_nothing_of_a_fleet(tmp_path: Path, words: list[str]) -> None:
    environ = isolated_env(tmp_path, SUB_LEDGER_IDLE_S="0")
    command = [sys.executable, "-c", _TELL.format(words=words)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    loaded = done.stderr.rsplit("LOADED", 1)[1].split()
    parts = PARTS[:-1] if words[0] == "doctor" else PARTS
    assert [name for name in loaded if name.startswith(parts)] == []


def test_without_the_extra_a_command_says_what_to_install(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _WITHOUT_TUF, "fleet", "init", str(tmp_path / "fleet")]
    done = subprocess.run(words, env=isolated_env(tmp_path), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, json.dumps(done.stderr)
    assert "not installed: tuf" in done.stderr and "[fleet]" in done.stderr
