"""What a release consists of, built from this checkout and tried; and that what the pages say of installing is so."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent.parent


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """`make dist`, with the environment that the tests run in."""
    pytest.importorskip("hatchling")
    place = tmp_path_factory.mktemp("dist") / "dist"
    environ = {**os.environ, "PATH": "/usr/bin:/bin"}  # no Docker: the image is tried where there is a daemon
    command = ["make", "-s", "dist", f"DIST={place}", f"PYTHON={sys.executable}", "-o", "setup"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "subluminal 0." in done.stdout, "the wheel was installed and asked for its version"
    return place


def test_wheel_sources_and_checksums_are_there(dist):
    names = sorted(path.name for path in dist.iterdir())
    assert [name.rpartition(".")[2] for name in names] == ["SHA256SUMS", "whl", "gz"] or len(names) == 3
    for line in (dist / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest


def test_the_wheel_has_the_manual_page_and_the_topics(dist):
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("share/man/man1/sub.1") for name in names)
    assert any(name.endswith("topics/quickstart.txt") for name in names)


def test_the_action_installs_its_own_checkout_by_default():
    text = (ROOT / "deploy" / "action.yml").read_text()
    assert '"${SUB_INPUT_SOURCE:-$GITHUB_ACTION_PATH/..}"' in text
    assert (ROOT / "deploy" / ".." / "pyproject.toml").exists()


def test_no_page_names_a_package_that_is_not_published():
    shipped = [path for path in (ROOT / "deploy").rglob("*") if path.is_file()]
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *shipped]
    for page in pages:
        text = page.read_text()
        assert "pip install subluminal" not in text and "pip install 'subluminal[" not in text, page
