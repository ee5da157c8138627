"""Which core is used, who may insist on one, and what is said where it cannot be had."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from harness import places
from harness.command_line import run_sub
from harness.shim import isolated_env
from subluminal.native import chosen, loading

NATIVE = places.ROOT / "src" / "subluminal" / "native"
# None is the import system's own mark for "absent".
UNBUILT = "import sys; sys.modules['subluminal.native._core'] = None; "
MAIN = "from subluminal.__main__ import main; sys.exit(main())"


def unbuilt(tmp_path: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`sub` of an installation that has no C part."""
    program = UNBUILT + f"sys.argv = ['sub', *{words!r}]; " + MAIN
    env = isolated_env(tmp_path, **variables)
    return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)


def test_the_pinned_sources_are_those_that_are_here() -> None:
    found = runpy.run_path(str(NATIVE / "build.py"))["sources_hash"]()
    assert found == loading.SOURCES, f'the C sources have changed: set SOURCES in loading.py to "{found}"'


def test_where_nothing_is_built_the_twins_do_everything(tmp_path: Path) -> None:
    done = unbuilt(tmp_path, "version", "--json", SUB_CORE="")
    assert json.loads(done.stdout)["core"] == "py"


def test_an_extension_of_other_sources_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModuleType("_core")
    other.SOURCES = "of yesterday"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "subluminal.native._core", other)
    monkeypatch.setattr("subluminal.native._core", other, raising=False)
    assert loading.load("") is None
    with pytest.raises(loading.CoreError, match=r"not built for this Python and this version.*native\.build"):
        loading.load("c")


def test_whoever_insists_on_c_without_it_hears_so_before_a_server_is_started(tmp_path: Path) -> None:
    started = tmp_path / "started"
    done = unbuilt(tmp_path, "shim", "--server-name", "s", "--", "touch", str(started), SUB_CORE="c")
    assert done.returncode == 2
    assert done.stderr.startswith("sub: SUB_CORE asks for the core in C, which is not built")
    assert "-m subluminal.native.build" in done.stderr and "Traceback" not in done.stderr
    assert not started.exists()


def test_a_run_that_insists_on_c_is_heard_by_a_shim_whose_environment_was_scrubbed(tmp_path: Path) -> None:
    """A client that passes on no variables: the shim takes them over from the process above it that has a run."""
    started = tmp_path / "started"
    words = ["sub", "shim", "--server-name", "s", "--", "touch", str(started)]
    shim = UNBUILT + f"sys.argv = {words!r}; " + MAIN
    scrubbed = isolated_env(tmp_path)
    scrubbed.pop("SUB_CORE", None)
    client = f"import subprocess, sys; child = [sys.executable, '-c', {shim!r}]; env = {scrubbed!r}; "
    client += "sys.exit(subprocess.run(child, env=env).returncode)"
    env = isolated_env(tmp_path, SUB_CORE="c", SUB_RUN_ID="r1")
    done = subprocess.run([sys.executable, "-c", client], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("sub: The run that this shim belongs to: SUB_CORE asks for the core in C"), (
        done.stderr
    )
    assert "-m subluminal.native.build" in done.stderr and "Traceback" not in done.stderr
    assert not started.exists()


def test_a_core_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    done = run_sub(tmp_path, "version", SUB_CORE="rust")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "sub: SUB_CORE is 'rust', which is no core.\n  Set it to `c` or `py`, or leave it out.\n"


def test_version_names_the_core_that_is_used(tmp_path: Path) -> None:
    assert "core       py" in run_sub(tmp_path, "version", SUB_CORE="py").stdout
    told = run_sub(tmp_path, "version", "--json", SUB_CORE=chosen.NAME).stdout
    assert json.loads(told)["core"] == chosen.NAME


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_wheel_is_pure_unless_asked_and_where_the_compiler_fails(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    source = tmp_path / "source"
    shutil.copytree(places.ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copytree(places.ROOT / "tools", source / "tools")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(places.ROOT / name, source / name)
    for name, variables in {
        "pure": {},
        "failed": {"SUB_BUILD": "c", "CC": "false"},
        "built": {"SUB_BUILD": "c"},
    }.items():
        env = isolated_env(tmp_path, **variables)
        command = [*build, "-d", str(tmp_path / name)]
        subprocess.run(command, cwd=source, env=env, check=True, capture_output=True)
        (wheel,) = (tmp_path / name).iterdir()
        has_extension = any(member.endswith(".so") for member in zipfile.ZipFile(wheel).namelist())
        assert has_extension is (name == "built") is not wheel.name.endswith("-none-any.whl")
