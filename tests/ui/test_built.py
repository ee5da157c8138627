"""The page that is committed is the page that its sources make, small enough, and nothing in it leads elsewhere."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness import places

WEB = places.ROOT / "web"
BUILT = places.ROOT / "src" / "subluminal" / "ui"
NAMES = ("app.js", "app.css", "index.html", "landing.html", "landing.js", "icon.svg")


def test_the_types_of_the_page_are_those_of_the_document() -> None:
    command = [sys.executable, str(places.ROOT / "tools" / "generate_web_types.py"), "--check"]
    assert subprocess.run(command, check=False, capture_output=True, text=True).stderr == ""


@pytest.mark.skipif(
    shutil.which("node") is None or not (WEB / "node_modules" / "esbuild").exists(),
    reason="the page's tools are not installed (make web)",
)
def test_what_is_committed_is_what_the_sources_make_from_any_directory(tmp_path: Path) -> None:
    for name in ("one", "a/much/deeper/directory"):
        copy, made = tmp_path / name / "web", tmp_path / name / "made"
        shutil.copytree(WEB, copy, ignore=shutil.ignore_patterns("node_modules"))
        (copy / "node_modules").symlink_to(WEB / "node_modules")
        made.mkdir()
        subprocess.run(["node", str(copy / "build.mjs"), str(made)], check=True, timeout=100)
        for file in NAMES:
            assert (made / file).read_bytes() == (BUILT / file).read_bytes(), f"{file}: run `make web`"


def test_the_whole_page_is_small() -> None:
    assert sum(len(gzip.compress((BUILT / name).read_bytes())) for name in NAMES) <= 200 << 10


def test_the_lock_names_no_place_to_download_from_and_no_script_runs() -> None:
    lock = json.loads((WEB / "package-lock.json").read_text())
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
    assert "ignore-scripts=true" in (WEB / ".npmrc").read_text()


def test_no_file_of_the_page_names_another_server() -> None:
    for name in NAMES:
        text = (BUILT / name).read_text(encoding="utf-8").replace("http://www.w3.org/", "")
        assert "http://" not in text and "https://" not in text, name
