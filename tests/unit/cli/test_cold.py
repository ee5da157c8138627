"""What a command loads and collects on its way: most of its time on small input, counted instead of measured.

`bench/cold.py` has the times. A careless import fails here.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.ledger import sub_environment
from harness.places import ROOT

# Runs a command as `sub` does, and says on a line of its own what is loaded and what was collected meanwhile.
PROBE = """
import gc, sys
bare = set(sys.modules)
from subluminal.__main__ import main
gc.collect()  # so that none is due before the command begins
collected = sum(each["collections"] for each in gc.get_stats())
code = main()
sys.stdout.flush()
found = {
    "code": code,
    "modules": sorted(set(sys.modules) - bare),
    "collections": sum(each["collections"] for each in gc.get_stats()) - collected,
    "left": len(gc.get_objects()),
    "frozen": gc.get_freeze_count(),
    "threshold": gc.get_threshold(),
}
import json
sys.stderr.write("\\n" + json.dumps(found))
"""

# What no command needs on small input, each for its time: click alone is a third of one.
NEVER = {
    "click", "inspect", "typing_extensions", "asyncio", "ssl", "logging", "email", "http", "importlib.metadata",
    "aiohttp", "argparse", "subprocess", "tempfile", "pathlib", "hashlib", "secrets", "random", "difflib", "fractions",
    "keyring", "subluminal.contracts.events", "subluminal.ledger.store.writer", "subluminal.ledger.trace.verify",
}  # fmt: skip
# On the way to a policy: neither the clients nor the ledger.
POLICY = NEVER | {"sqlite3", "socket", "ipaddress", "tomllib", "subluminal.clients", "subluminal.ledger"}

# Command, what it may not load, and how many modules it may: a tenth more than it needs today.
COMMANDS = [
    ("policy lint policy.yaml", POLICY | {"subluminal.core.engine.stack", "ruamel"}, 188),
    ("policy compile policy.yaml", POLICY | {"subluminal.core.engine.stack", "ruamel"}, 194),
    ("policy fmt --check policy.yaml", POLICY | {"subluminal.core.engine.stack", "re2"}, 168),
    ("policy test policy.yaml", POLICY | {"ruamel"}, 205),
    ("policy explain policy.yaml --server s --tool t", NEVER - {"difflib"} | {"ruamel", "socket"}, 257),
    ("policy in-force", POLICY | {"yaml", "re2"}, 111),
    ("doctor", NEVER - {"difflib"} | {"yaml", "re2", "tomllib", "platform"}, 253),
    ("agent kinds", {"click", "asyncio", "ssl", "subluminal.runs"}, 104),
]


def probed(home: Path, work: Path, command: str) -> dict[str, object]:
    environ = sub_environment(home, PATH="/nowhere")
    probe = [sys.executable, "-c", PROBE, *command.split()]
    done = subprocess.run(probe, cwd=work, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stderr.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("cold") / "work"
    (work / ".git").mkdir(parents=True)
    init = [sys.executable, "-m", "subluminal", "policy", "init", "policy.yaml"]
    subprocess.run(init, cwd=work, env=sub_environment(work.parent / "sub"), capture_output=True, check=True)
    return work


@pytest.mark.parametrize(("command", "unwanted", "modules"), COMMANDS, ids=[each[0] for each in COMMANDS])
def test_a_command_loads_what_it_needs_and_collects_nothing(
    work: Path, command: str, unwanted: set[str], modules: int
) -> None:
    found = probed(work.parent / "sub", work, command)
    loaded = found["modules"]
    assert found["code"] == 0 and isinstance(loaded, list)
    assert {name for name in loaded if name in unwanted or name.partition(".")[0] in unwanted} == set()
    assert len(loaded) <= modules
    assert found["collections"] == 0


def test_when_a_command_has_ended_the_interpreter_has_nothing_to_search_for_cycles(work: Path) -> None:
    found = probed(work.parent / "sub", work, "version")
    assert isinstance(found["left"], int) and isinstance(found["frozen"], int)
    assert found["left"] * 20 < found["frozen"]


def test_what_may_live_for_days_collects_as_usual(work: Path) -> None:
    assert probed(work.parent / "sub", work, "proxy mcp --help")["threshold"] == list(gc.get_threshold())


def test_the_commands_are_those_that_the_benchmark_times() -> None:
    timed = (ROOT / "bench" / "cold.py").read_text()
    assert [command for command, _, _ in COMMANDS if f'"{command}"' not in timed] == []
