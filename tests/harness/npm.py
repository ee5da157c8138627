"""Packages from npm, installed into a directory of `.venv` at the versions of a package.json."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

INSTALL_TIMEOUT_S = 200  # inside the time limit of a test, so that no registry means a skip


class InstallError(Exception):
    """The packages cannot be had here; the message is the reason in one line."""


def installed(directory: Path, package_json: str) -> bool:
    stamp = directory / "installed.json"
    return stamp.exists() and stamp.read_text() == package_json


def install(directory: Path, package_json: str) -> None:
    """Once, whoever asks for it at the same time."""
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not installed(directory, package_json):
            _npm_install(directory, package_json)
            (directory / "installed.json").write_text(package_json)


def placed(source: Path, directory: Path) -> Path:
    """A program beside its packages. In one step: another process of the tests may be starting it."""
    program = directory / source.name
    draft = directory / f".{os.getpid()}-{source.name}"
    draft.write_bytes(source.read_bytes())
    draft.replace(program)
    return program


def _npm_install(directory: Path, package_json: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise InstallError("npm is not installed")
    (directory / "package.json").write_text(package_json)
    command = [npm, "install", "--prefix", str(directory), "--no-audit", "--no-fund", "--no-package-lock"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"npm install did not end within {INSTALL_TIMEOUT_S} s") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise InstallError(f"npm install failed: {lines[0] if lines else done.returncode}")
