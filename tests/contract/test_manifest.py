"""The manifest and the tests agree, in both directions, and the documentation shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from contract.manifest import NOT_YET, REQUIREMENTS
from contract.marks import places_by_id

ROOT = Path(__file__).resolve().parent.parent.parent


def test_every_mark_names_an_id_of_the_manifest() -> None:
    unknown = {name: places for name, places in places_by_id().items() if name not in REQUIREMENTS}
    assert not unknown


def test_every_requirement_has_a_test_or_stands_in_not_yet() -> None:
    untested = set(REQUIREMENTS) - set(places_by_id()) - set(NOT_YET)
    assert not untested, "write a test, or say in NOT_YET why there is none"


def test_not_yet_only_shrinks() -> None:
    done = set(NOT_YET) & set(places_by_id())
    assert not done, f"these have tests now: remove them from NOT_YET in tests/contract/manifest.py: {sorted(done)}"
    assert set(NOT_YET) <= set(REQUIREMENTS)


def test_the_documentation_is_current() -> None:
    tool = ROOT / "tools" / "generate_contract_docs.py"
    check = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, timeout=60)
    assert check.returncode == 0, check.stderr


def test_marks_are_found_wherever_they_may_stand(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(
        "import pytest\n"
        'pytestmark = pytest.mark.contract("A-1")\n'
        '@pytest.mark.contract("B-1", "B-2")\n'
        "class TestThis:\n"
        '    @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.contract("C-1"))])\n'
        "    async def test_that(self, x): ...\n"
    )
    assert places_by_id(tmp_path) == {
        "A-1": ["test_sample.py"],
        "B-1": ["test_sample.py::TestThis"],
        "B-2": ["test_sample.py::TestThis"],
        "C-1": ["test_sample.py::TestThis::test_that"],
    }


def test_a_mark_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text("@pytest.mark.contract(NAME)\ndef test_it(): ...\n")
    with pytest.raises(ValueError, match="plain strings"):
        places_by_id(tmp_path)
