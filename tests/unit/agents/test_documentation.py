"""The page on agent events says what is so: its example runs, and its names and numbers are the code's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from harness import places
from subluminal.agents import recorder, run, stream
from subluminal.agents.lines import MAX_LINE_BYTES
from subluminal.contracts import agent_event

PAGE = (places.ROOT / "docs" / "agent-events.md").read_text()
AGENT = """#!{python}
print('{{"type":"assistant","message":{{"id":"m","content":[{{"type":"text","text":"Hello!"}},'
      '{{"type":"tool_use","id":"t","name":"Bash"}}]}}}}')
print('{{"type":"result","subtype":"success","is_error":false,"result":"Hello!"}}')
"""


def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    program = tmp_path / "claude"
    program.write_text(AGENT.format(python=sys.executable))
    program.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", found.group(1)],
        env={"HOME": str(tmp_path), "SUB_HOME": str(tmp_path / "sub"), "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("Hello!\ncalls Bash\nSUCCEEDED Hello!\n", "")


def test_the_numbers_are_those_of_the_code() -> None:
    for words in (
        f"| `channel` | {agent_event.MAX_CHANNEL_BYTES} bytes |",
        f"| `message` | {agent_event.MAX_MESSAGE_BYTES:,} bytes |",
        f"| `data` | {agent_event.MAX_DATA_BYTES:,} bytes of compact JSON |",
        f"| `text` | {agent_event.MAX_TEXT_BYTES:,} bytes |",
        f"a full buffer ({stream.MAX_HELD_EVENTS} events)",
        f"a grace of {run.TERM_GRACE_S} s",
        f"At most {recorder.MAX_RECORDED_EVENTS:,} events and {recorder.MAX_RECORDED_BYTES >> 20} MiB",
        f"Lines of up to {MAX_LINE_BYTES >> 20} MiB",
    ):
        assert words in PAGE
