"""What the shim has imported when it starts the server, and when its first byte goes on: a careless import fails here.

Clients drop the tools of servers that are not ready in about a second, so every module on this path is paid for by
every agent's start.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.fake_server import fake_server
from harness.shim import isolated_env

# Stands in the shim's own process, before anything of ours is imported, and writes down what is loaded when.
HOOK = """
import os, sys
bare = set(sys.modules)
seen = {}
def note(moment):
    if moment not in seen:
        seen[moment] = sorted(set(sys.modules) - bare)
spawn, write = os.posix_spawnp, os.write
def spying_spawn(*args, **named):
    note("spawn")
    return spawn(*args, **named)
def spying_write(fd, data):
    if b'"method"' in bytes(data[:200]) and b'"source"' not in bytes(data):
        note("forwarded")
    return write(fd, data)
os.posix_spawnp, os.write = spying_spawn, spying_write
sys.argv = ["sub", *sys.argv[2:]]
from subluminal.__main__ import main
code = main()
import json
with open(os.environ["IMPORTS_SEEN"], "w") as file:
    json.dump(seen, file)
sys.exit(code)
"""

OURS_BEFORE_SPAWN = {
    "__main__", "adapters", "adapters.stdio", "adapters.stdio.options", "adapters.stdio.shim", "adapters.upstream",
    "adapters.upstream.process", "contracts", "contracts.errors", "contracts.identity", "contracts.vocabulary", "host",
    "host.config", "host.home", "host.identity", "host.secrets", "host.secrets.bindings",
}  # fmt: skip
STANDARD_BEFORE_SPAWN: set[str] = {"__future__", "warnings"}
# `re` with what it needs: the scan of large messages is written with it. `uuid`, `decimal`, `datetime`, `textwrap` and
# their own: msgspec asks for them.
STANDARD_AT_FIRST_BYTE = STANDARD_BEFORE_SPAWN | {
    "_blake2", "encodings.ascii", "_collections", "_datetime", "_decimal", "_functools", "_json", "_operator",
    "_sha2", "_sha256", "_signal", "_sre", "_struct", "_typing", "_uuid", "binascii", "collections",
    "collections.abc", "contextlib", "copyreg", "datetime", "decimal", "enum", "errno", "fcntl", "functools", "gc",
    "itertools", "keyword", "math", "mmap", "numbers", "operator", "platform", "pwd", "re", "re._casefix",
    "re._compiler", "re._constants", "re._parser", "reprlib", "select", "signal", "string", "struct", "textwrap",
    "time", "types", "typing", "typing.io", "typing.re", "uuid", "zlib",
}  # fmt: skip
NATIVE_AT_FIRST_BYTE = {"native", "native.chosen", "native.loading", "native._core"}
FORBIDDEN = {
    "asyncio", "json", "typing_extensions", "dataclasses", "inspect", "yaml", "ruamel", "click", "rich", "subprocess",
    "threading", "logging", "re2", "hashlib", "_hashlib", "ssl", "socket", "sqlite3", "tomllib", "tomlkit", "aiohttp",
    "pathlib", "tempfile", "random", "importlib.metadata", "pkg_resources", "argparse", "shutil", "unicodedata",
    "jsonschema", "referencing", "rpds", "attr", "attrs",
}  # fmt: skip


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    tmp_path: Path = tmp_path_factory.mktemp("imports")
    rule = {
        "rule_id": "no", "kind": "deny", "enabled": True, "severity": "warn",
        "match": {"tool_name": {"glob": ["bad*"]}}, "effect": {"action": "BLOCK"},
    }  # fmt: skip
    bundle = {"policy_id": "p", "version": "1", "mode": "guardrails", "defaults": {"decision_on_error": "BLOCK"}}
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({**bundle, "selectors": {}, "rules": [rule]}))
    env = isolated_env(tmp_path, IMPORTS_SEEN=str(tmp_path / "seen"), SUB_POLICY=str(policy))
    env.pop("SUB_CORE", None)  # whoever insists on a core has it looked for before the server is started
    words = ["shim", "--server-name", "s", "--events", f"file:{tmp_path}/events", "--", *fake_server()]
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"a": 1}}},
    ]
    text = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
    for _ in range(2):  # the first run compiles the policy into a snapshot; the second one finds it
        done = subprocess.run(
            [sys.executable, "-c", HOOK, "sub", *words], input=text, env=env, capture_output=True, timeout=30
        )
        assert done.returncode == 0, done.stderr.decode()
    found: dict[str, list[str]] = json.loads((tmp_path / "seen").read_text())
    return found


def ours(modules: list[str]) -> set[str]:
    return {name.removeprefix("subluminal.") for name in modules if name.startswith("subluminal.")}


def others(modules: list[str]) -> set[str]:
    return {name for name in modules if name != "subluminal" and not name.startswith(("subluminal.", "msgspec"))}


def test_the_server_is_started_before_anything_heavy_is_imported(seen: dict[str, list[str]]) -> None:
    assert ours(seen["spawn"]) - OURS_BEFORE_SPAWN == set()
    assert others(seen["spawn"]) - STANDARD_BEFORE_SPAWN == set()


def test_the_first_byte_goes_on_with_the_pinned_modules_only(seen: dict[str, list[str]]) -> None:
    loaded = others(seen["forwarded"])
    assert loaded & FORBIDDEN == set()
    assert loaded - STANDARD_AT_FIRST_BYTE == set()
    heavy = {"policy.lint.shape", "policy.document.tree", "policy.document.yaml_tree", "contracts.policy"}
    assert not ours(seen["forwarded"]) & heavy
    # The builder of the C part is for whoever builds it.
    assert {name for name in ours(seen["forwarded"]) if name.startswith("native")} <= NATIVE_AT_FIRST_BYTE
