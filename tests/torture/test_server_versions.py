"""Real servers, pinned: twice the same, and of the version that followed only what really differs is a change.

What it finds stands as a table in docs/tools.md (written anew with UPDATE_SERVER_TABLE=1).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import places
from harness.server_versions import PATIENCE_S, ServerVersion, missing, pairs
from harness.shim import Shim

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(missing()), reason=missing() or "installed"),
]
PAGE = places.ROOT / "docs" / "tools.md"
HEAD = """\
| server | versions | tools | pinned twice | classes of the text | what differs in the later version |
|---|---|---|---|---|---|
"""
OF_TEXT = {"hidden_text", "injection_like", "shadowed"}
# Each class is asked for, so that each is judged.
POLICY = {
    "policy_id": "p", "version": "1", "mode": "observe", "selectors": {},
    "defaults": {"decision_on_error": "BLOCK", "changed_tools": "quarantine"},
    "rules": [{"rule_id": "asks", "kind": "deny", "effect": {"action": "BLOCK"},
               "match": {"risk_class": ["new", "unpinned", *sorted(OF_TEXT)]}}],
}  # fmt: skip
rows: dict[str, str] = {}


class Desk:
    """One name of a server, whatever version stands behind it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.setup: Shim | None = None
        self._direct: dict[int, list[dict[str, Any]]] = {}

    def listed(self, server: ServerVersion, run: str) -> list[dict[str, Any]]:
        """One session through the shim; what its list has told, tool by tool."""
        events = self.place / f"events-{server.name}.jsonl"
        told = len(events.read_bytes()) if events.exists() else 0
        self.setup = Shim(self.place, server.name, server.command, policy=POLICY, env={"SUB_RUN_ID": run})
        with self.setup.start(timeout=PATIENCE_S) as agent:
            agent.initialize()
            assert agent.request("tools/list")["result"]["tools"] == self.directly(server)
            agent.finish()
        self.setup.events.wait_type("run_end")
        lines = [json.loads(line) for line in events.read_bytes()[told:].splitlines()]
        return [item for line in lines if line["type"] == "tools_seen" for item in line["tools"]["items"]]

    def directly(self, server: ServerVersion) -> list[dict[str, Any]]:
        if server.which not in self._direct:
            self._direct[server.which] = server.tools(self.place)
        return self._direct[server.which]

    def sub(self, *words: str) -> list[dict[str, Any]]:
        assert self.setup is not None
        env = {name: value for name, value in self.setup.env.items() if name != "SUB_RUN_ID"}
        done = subprocess.run(
            [sys.executable, "-m", "subluminal", "tools", *words, "--json"],
            env=env, cwd=self.place, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    @property
    def lock(self) -> bytes:
        return (self.place / "sub" / "tools.lock").read_bytes()


def really_changed(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> dict[str, list[str]]:
    """By comparing the definitions themselves, member by member."""
    old, found = {each["name"]: each for each in before}, {}
    for new in after:
        was = old.get(new["name"])
        if was is not None and was != new:
            found[new["name"]] = sorted(name for name in {**was, **new} if was.get(name) != new.get(name))
    return found


@pytest.mark.parametrize("name", pairs())
def test_a_real_server_has_no_false_change_and_no_false_class(tmp_path: Path, name: str) -> None:
    earlier, later = pairs()[name]
    desk = Desk(tmp_path)
    first = desk.listed(earlier, "run-1")
    tools = [item for item in first if item["kind"] == "tool"]
    assert tools and {item["state"] for item in first} == {"new"}
    classes = sorted({word for item in first for word in item["classes"]} & OF_TEXT)
    desk.sub("pin", name)
    pinned = desk.lock
    assert desk.listed(earlier, "run-2") == [], "the same again is no news"
    desk.sub("pin", name)
    assert desk.lock == pinned, "pinned twice, the lock has the same bytes"
    second = desk.listed(later, "run-3")
    truth = really_changed(desk.directly(earlier), desk.directly(later))
    moved = [item for item in second if item["kind"] == "tool" and item["state"] == "changed"]
    changed = {item["name"]: sorted(item["changed"]) for item in moved}
    assert changed == truth
    assert sorted(row["name"] for row in desk.sub("check") if row["kind"] == "tool") == sorted(truth)
    classes += sorted({word for item in second for word in item["classes"]} & OF_TEXT)
    assert classes == []
    fields = sorted({field for each in truth.values() for field in each})
    what = f"{', '.join(fields)} of {_named(sorted(truth), len(tools))}" if truth else "nothing"
    versions = f"{earlier.version}, {later.version}"
    rows[name] = f"| `{earlier.package}` | {versions} | {len(tools)} | the same bytes | none | {what} |\n"


def _named(names: list[str], of: int) -> str:
    if len(names) == of and of > 2:
        return f"all {of}"
    return ", ".join(f"`{name}`" for name in names)


def test_the_table_of_the_page_is_what_was_found() -> None:
    if rows.keys() != pairs().keys():
        pytest.skip("only where all of them have been looked at")
    table = HEAD + "".join(rows[name] for name in pairs())
    page = PAGE.read_text(encoding="utf-8")
    begin, end = page.index(HEAD.splitlines()[0]), page.index("\n\n", page.index(HEAD.splitlines()[0])) + 1
    if os.environ.get("UPDATE_SERVER_TABLE"):
        PAGE.write_text(page[:begin] + table + page[end:], encoding="utf-8")
    else:
        assert page[begin:end] == table
