"""Copy the Python that runs this into a directory of its own, which works wherever it is mounted.

    python tools/standalone.py /opt/subluminal

For the image (deploy/Dockerfile): an init container hands the directory on to a container that has another Python, or
none. What it still needs of that container is the C library, not older than here, and for TLS and SQLite their
libraries; the shim needs neither. Files keep their times, so that the byte code beside them stays good.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

# Of the standard library: what no program of ours asks for, and half of its size.
LEFT_OUT = (
    "test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "site-packages", "dist-packages",
    "config-*", "EXTERNALLY-MANAGED",
)  # fmt: skip


def copy_python(target: Path) -> Path:
    """The interpreter in its new place."""
    version = f"python{sysconfig.get_python_version()}"
    library = target / "lib" / version
    shutil.copytree(
        sysconfig.get_path("stdlib"), library, ignore=shutil.ignore_patterns(*LEFT_OUT), ignore_dangling_symlinks=True
    )
    dynamic = Path(sysconfig.get_config_var("DESTSHARED") or "")
    if dynamic.is_dir() and not (library / dynamic.name).exists():
        shutil.copytree(dynamic, library / dynamic.name)
    (library / "site-packages").mkdir(exist_ok=True)
    # Debian builds the interpreter without it, whatever its configuration says.
    shared = Path(sysconfig.get_config_var("LIBDIR") or "") / (sysconfig.get_config_var("INSTSONAME") or "")
    if sysconfig.get_config_var("Py_ENABLE_SHARED") and shared.is_file():
        shutil.copy2(shared, target / "lib" / shared.name)
    (target / "bin").mkdir(parents=True, exist_ok=True)
    python = target / "bin" / version
    shutil.copy2(os.path.realpath(sys.executable), python)
    for name in ("python3", "python"):
        (target / "bin" / name).symlink_to(version)
    return python


def stands_alone(python: Path, target: Path) -> None:
    """SystemExit with a sentence where it still leans on where it came from."""
    asked = "import os, sys; print(sys.prefix); print(os.__file__)"
    done = subprocess.run([str(python), "-I", "-c", asked], capture_output=True, text=True, check=False, env={})
    if done.returncode != 0:
        sys.exit(f"standalone: the copy does not start: {done.stderr.strip()[-300:]}")
    elsewhere = [line for line in done.stdout.splitlines() if not Path(line).resolve().is_relative_to(target.resolve())]
    if elsewhere:
        sys.exit(f"standalone: the copy still uses {elsewhere[0]}; build from another PYTHON_IMAGE")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: standalone.py DIRECTORY")
    target = Path(sys.argv[1])
    if target.exists() and any(target.iterdir()):
        sys.exit(f"standalone: {target} is not empty")
    stands_alone(copy_python(target), target)
    print(f"standalone: {sys.version.split()[0]} in {target}")


if __name__ == "__main__":
    main()
