"""yaml is imported without its patterns, and is the same yaml to whoever uses it afterwards."""

from __future__ import annotations

import subprocess
import sys

import pytest

TEXT = "a: [2026-01-01, 2026-01-01 12:00:00, yes, 1.5, 0x1f, ~, 1e3, !!binary aGk=]\nb: {<<: {c: 1}}\n"
READ = f"""
import yaml
told = [repr(yaml.load({TEXT!r}, Loader=loader)) for loader in (yaml.SafeLoader, yaml.FullLoader, yaml.BaseLoader)]
told.append(yaml.safe_dump({{"a": ["yes", "1", 1.5, "2026-01-01", None]}}))
for bad in ("a: \\x01", "a: [", "!!nothing x"):
    try:
        yaml.load(bad, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        told.append(str(error))
print(told)
"""
OURS = "import subluminal.policy.document.yaml_import\n"
PATTERN = """
import re, yaml
assert re.compile.__module__ == "re"
print(isinstance(yaml.reader.Reader.NON_PRINTABLE, re.Pattern))
"""
THREAD = "import threading\nend = threading.Event()\nthreading.Thread(target=end.wait, daemon=True).start()\n"


def told(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_it_reads_writes_and_refuses_as_ever() -> None:
    assert told(OURS + READ) == told(READ)


@pytest.mark.parametrize(
    ("before", "compiled", "after"),
    [("", "False", ""), ("import yaml\n", "True", ""), (THREAD, "True", "end.set()")],
    ids=["nothing is compiled ahead", "imported before", "beside another thread, as everybody does"],
)
def test_patterns_wait_where_nobody_else_could_notice(before: str, compiled: str, after: str) -> None:
    assert told(before + OURS + PATTERN + after) == f"{compiled}\n"
