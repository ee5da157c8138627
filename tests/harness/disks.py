"""Small disks that are really full: a tmpfs of its own, where this user may mount one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True).returncode == 0


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    """`place` is a directory on a disk of this size; the test is skipped where there can be none."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.geteuid() != 0 or not mount("-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(place)):
        pytest.skip("this user cannot mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def resize(place: Path, size: str) -> None:
    assert mount("-o", f"remount,size={size}", str(place))


def fill(place: Path) -> Path:
    """Take all the room there is; remove the file to give it back."""
    filler = place / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass
    return filler
