"""Whatever installed us, the modules of a shim are compiled once somebody routes servers through it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import subluminal
from harness.places import ROOT

COMPILE = "from subluminal.host.bytecode import compile_missing; print(compile_missing())"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as uv leaves it: without compiled modules."""
    place = tmp_path_factory.mktemp("installed")
    source = Path(subluminal.__file__).parent
    shutil.copytree(source, place / "subluminal", ignore=shutil.ignore_patterns("__pycache__"))
    return place


def run(installed: Path, code: str, **variables: str) -> str:
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(installed), **variables}
    done = subprocess.run([sys.executable, "-c", code], env=environ, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_whoever_routes_servers_through_us_has_them_compiled(installed: Path, tmp_path: Path) -> None:
    compiled = installed / "subluminal" / "core" / "gate" / "__pycache__"
    assert not compiled.exists()
    (tmp_path / ".claude.json").write_text('{"mcpServers": {"a": {"command": "x"}}}', encoding="utf-8")
    command = "import sys; sys.argv = ['sub', 'import', 'claude']; from subluminal.__main__ import main; main()"
    run(installed, command, HOME=str(tmp_path), SUB_HOME=str(tmp_path / "home"))
    assert any(compiled.iterdir())
    for place in (installed / "subluminal").rglob("__pycache__"):
        shutil.rmtree(place)


def test_what_a_shim_imports_is_compiled_once(installed: Path) -> None:
    assert int(run(installed, COMPILE)) > 100
    assert run(installed, COMPILE) == "0\n"
    imported = run(
        installed,
        "import sys; import subluminal.adapters.stdio.shim, subluminal.adapters.stdio.relay\n"
        "ours = [m for n, m in sys.modules.items() if n.startswith('subluminal') and m.__file__.endswith('.py')]\n"
        "print(*(m.__cached__ for m in ours), sep='\\n')",
    )
    paths = imported.split()
    assert len(paths) > 50
    assert all(path.startswith(str(installed)) and os.path.exists(path) for path in paths)


def test_a_place_that_cannot_be_written_is_left_alone(installed: Path) -> None:
    """Root may write anywhere, so a file stands where the directory would be."""
    room = installed / "subluminal" / "mcp" / "__pycache__"
    shutil.rmtree(room)
    room.write_text("in the way", encoding="utf-8")
    assert run(installed, COMPILE) == "0\n"
