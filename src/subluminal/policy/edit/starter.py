"""The starter policy that `sub policy init` writes, with its tests."""

from __future__ import annotations

import os

_HERE = os.path.dirname(os.path.abspath(__file__))


def starter_files(path: str) -> dict[str, bytes]:
    """File name -> content, for a policy that is to stand at `path`."""
    stem, extension = os.path.splitext(path)
    tests = _read("starter.test.yaml").replace(b"policy: policy.yaml", b"policy: " + os.path.basename(path).encode())
    return {path: _read("starter.yaml"), f"{stem}.test{extension or '.yaml'}": tests}


def _read(name: str) -> bytes:
    with open(os.path.join(_HERE, name), "rb") as file:
        return file.read()
