"""The lines under "Installing" in the README, each in a place of its own: what comes out is a `sub` that works.

Dependencies come from wherever pip gets its packages; `make test-install` brings pipx and uv.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness import places

INSTALLERS = places.ROOT / ".venv" / "installers"
pytestmark = [
    pytest.mark.skipif(
        not (INSTALLERS / "bin" / "uv").exists(), reason="pipx and uv are not there (make test-install)"
    ),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What git has of this tree, as it stands here."""
    clone = tmp_path_factory.mktemp("checkout") / "subluminal"
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=places.ROOT, check=True, capture_output=True).stdout.decode().split("\0")
    for name in filter(None, names):
        if (places.ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(places.ROOT / name, clone / name)
    git = ["git", "-c", "user.name=Ann", "-c", "user.email=ann@example.com"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "The tree"]):
        subprocess.run([*git, *command], cwd=clone, check=True)
    return clone


class Place:
    """A home of its own; what an installer puts there is found."""

    def __init__(self, root: Path) -> None:
        self.root = root
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_", "http"))}
        self.env = {
            **kept,
            "HOME": str(root),
            "PATH": f"{root / '.local' / 'bin'}:{INSTALLERS / 'bin'}:/usr/bin:/bin",
            "PIPX_DEFAULT_PYTHON": sys.executable,
            "UV_PYTHON": sys.executable,
            "UV_PYTHON_DOWNLOADS": "never",
            "LANG": "C.UTF-8",
        }
        if "PIP_CERT" in kept:  # uv reads no settings of pip
            self.env.setdefault("SSL_CERT_FILE", kept["PIP_CERT"])

    def run(self, *command: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            command, cwd=cwd or self.root, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}"
        return done.stdout

    def assert_works(self, sub: str = "sub") -> None:
        versions = json.loads(self.run(sub, "version", "--json"))
        assert versions["core"] == "py" and versions["package"]
        server = '[{"jsonrpc":"2.0","id":1}]'  # a line that is answered by nobody: the shim ends with its server
        self.run("sh", "-c", f"echo '{server}' | {sub} shim --server-name x -- true")
        assert self.run(sub, "import", "--json") is not None
        assert "Traceback" not in self.run("sh", "-c", f"{sub} doctor || true")


def test_pipx_install_of_a_checkout(checkout: Path, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.run("pipx", "install", ".", cwd=checkout)
    place.assert_works()
    place.run("pipx", "uninstall", "subluminal")
    assert shutil.which("sub", path=str(tmp_path / ".local" / "bin")) is None


def test_uv_tool_install_of_a_checkout(checkout: Path, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.run("uv", "tool", "install", ".", cwd=checkout)
    place.assert_works()


@pytest.mark.parametrize("source", [".", ".[keychain]", "git+file://{checkout}"])
def test_pip_install(checkout: Path, tmp_path: Path, source: str) -> None:
    place = Place(tmp_path)
    place.run(sys.executable, "-m", "venv", "own")
    what = source.format(checkout=checkout)
    place.run(str(tmp_path / "own" / "bin" / "pip"), "install", "-q", what, cwd=checkout)
    place.assert_works(str(tmp_path / "own" / "bin" / "sub"))
