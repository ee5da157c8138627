"""What the C part takes, its twins take as well and in the same sense: a short run of `make fuzz-native`."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from harness import places

FUZZ = places.ROOT / "tests" / "fuzz" / "fuzz_native.py"
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.mark.parametrize("variant", ["plain", "portable"])
def test_no_text_is_read_differently_in_c_and_in_python(variant: str) -> None:
    command = [sys.executable, str(FUZZ), "--count", "2000", "--variant", variant]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no difference" in done.stdout
