"""tools/paste_figures.py: tables go into their spots of the page, and nothing else of it changes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from harness import places

ROOT = places.ROOT
PAGE = "# Page\n\n<!-- figures: shim -->\nold\n<!-- end -->\ntext\n<!-- figures: peers -->\nkept\n<!-- end -->\n"


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("paste_figures", ROOT / "tools" / "paste_figures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "PERFORMANCE.md").write_text(PAGE)
    (tmp_path / "shim.md").write_text("| a |\n|---|\n| \\1 |\n")
    monkeypatch.setattr(module, "PAGE", tmp_path / "PERFORMANCE.md")
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


def test_a_measured_table_replaces_the_old_one_and_an_unmeasured_spot_keeps_its_text(tool: ModuleType) -> None:
    assert tool.main([]) == 0
    wanted = PAGE.replace("old", "| a |\n|---|\n| \\1 |")
    assert tool.PAGE.read_text() == wanted
    assert tool.main([]) == 0
    assert tool.PAGE.read_text() == wanted, "pasting twice changes nothing more"


@pytest.mark.parametrize(("name", "said"), [("peers", "run the benchmark first"), ("other", "has no spot")])
def test_a_name_that_cannot_be_pasted_is_said_and_the_page_stays(
    tool: ModuleType, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    assert tool.main(["shim", name]) == 2
    assert said in capsys.readouterr().err
    assert tool.PAGE.read_text() == PAGE


def test_every_spot_of_the_page_is_closed_and_named_once(tool: ModuleType) -> None:
    page = (ROOT / "docs" / "PERFORMANCE.md").read_text()
    names = [spot[2] for spot in tool._SPOT.finditer(page)]
    assert len(names) == len(set(names)) == page.count("<!-- figures:") == page.count("<!-- end -->") > 0
