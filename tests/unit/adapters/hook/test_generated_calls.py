"""Generated calls of each client through the real hook command: whatever the policy refuses by name, path or command is
denied, however it is written, and what it does not refuse may run."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from harness.hooks import HookClient

CALLS = 500
AT_ONCE = 25
POLICY: dict[str, Any] = {
    "policy_id": "generated",
    "version": "1",
    "mode": "guardrails",
    "defaults": {"decision_on_error": "BLOCK"},
    "selectors": {},
    "rules": [
        {
            "rule_id": "names",
            "kind": "deny",
            "match": {"tool_name": {"glob": ["Kill*", "delete_*"]}},
            "effect": {"action": "BLOCK"},
        },
        {
            "rule_id": "paths",
            "kind": "deny",
            "match": {"tool_name": {"glob": ["Write", "Edit", "NotebookEdit"]}},
            "unless": {
                "any_of": [
                    {"args": {"path_within": {"file_path": "."}}},
                    {"args": {"path_within": {"notebook_path": "."}}},
                ]
            },
            "effect": {"action": "REJECT_WITH_HINT", "hint_text": "Stay here."},
        },
        {
            "rule_id": "settings",
            "kind": "deny",
            "match": {"args": {"path_within": {"file_path": [".claude", "~/.claude"]}}},
            "effect": {"action": "BLOCK"},
        },
        {
            "rule_id": "patches",
            "kind": "deny",
            "match": {"tool_name": {"glob": ["apply_patch"]}},
            "unless": {"args": {"path_within": {"paths[]": "."}}},
            "effect": {"action": "BLOCK"},
        },
        {
            "rule_id": "patches-by-shell",
            "kind": "deny",
            "match": {"tool_name": {"glob": ["Bash"]}, "args": {"path_within": {"paths[]": "/srv"}}},
            "effect": {"action": "BLOCK"},
        },
        {
            "rule_id": "commands",
            "kind": "deny",
            "match": {"tool_name": {"glob": ["Bash"]}, "args": {"command": {"command": {"programs": ["rm", "curl"]}}}},
            "effect": {"action": "BLOCK"},
        },
    ],
}
WRAPPED = (
    "{}", "/usr/bin/{}", "sudo {}", "env A=1 {}", "sh -c '{}'", "bash -lc '{}'", "echo a; {}", "true && {}",
    "false || {}",
    "echo $({})", "echo `{}`", "ls | xargs {}", "cd /tmp && {}", "if true; then {}; fi", "for i in 1 2; do {}; done",
    "nohup {} &", "eval {}", "bash <<EOF\n{}\nEOF", "({})", "{{ {}; }}", "time {}", "exec {}", "command {}", "A=1 {}",
    "find . -exec {} +", "ls\n{}", "ls # a\n{}", "timeout 5 {}", "\\{}", "! {}", "cat <(({}))",
)  # fmt: skip
PROGRAMS = ("rm -rf build", "rm x", "curl http://example.com", '"rm" x', "'rm' x", "r\\m x", "r''m x", 'c"u"rl x')
BENIGN = (
    "ls -l",
    "git status",
    "echo hi",
    "make test",
    "cat a.txt | head",
    "python3 x.py",
    "mkdir -p a/b && touch a/b/c",
)
OUTSIDE = (
    "/etc/passwd", "../x", "a/../../x", "./../x", "/", "link/x", "link/../x", "~root/x", "//etc//x", "a/b/../../../x",
    ".claude/settings.json", "./.claude//settings.json", "a/../.claude/x", "/srv/x",
)  # fmt: skip
INSIDE = ("a.txt", "./a.txt", "a/b.txt", "a/../c.txt", "a//b")
Call = tuple[str, Any, bool]  # tool, arguments, whether it is refused


class Generator:
    def __init__(self, client: str, place: Path, seed: int) -> None:
        self.client, self.place, self.chosen = client, place, random.Random(seed)

    def call(self) -> Call:
        kinds = [self._by_name, self._by_command, self._by_command, self._allowed, self._allowed]
        kinds += [self._by_patch, self._by_shell_patch] if self.client == "codex" else [self._by_path, self._by_path]
        return self.chosen.choice(kinds)()

    def _by_name(self) -> Call:
        tool = self.chosen.choice(("KillShell", "KillBash", "mcp__box__delete_all", "mcp__a-b__delete_x", "delete_me"))
        return tool, self.chosen.choice(({}, {"shell_id": "1"}, {"text": "x" * 200})), True

    def _by_command(self) -> Call:
        line = self.chosen.choice(WRAPPED).format(self.chosen.choice(PROGRAMS))
        return "Bash", {"command": line, **self._beside()}, True

    def _by_path(self) -> Call:
        tool = self.chosen.choice(("Write", "Edit", "NotebookEdit"))
        key = "notebook_path" if tool == "NotebookEdit" else "file_path"
        paths = OUTSIDE if key == "file_path" else [path for path in OUTSIDE if ".claude" not in path]
        return tool, {key: self._spelled(paths), "content": "x", **self._beside()}, True

    def _patch(self, paths: tuple[str, ...] | list[str]) -> str:
        path = self._spelled(paths)
        hunk = self.chosen.choice(
            (f"*** Add File: {path}\n+x\n", f"*** Delete File: {path}\n", f"*** Update File: {path}\n@@\n-a\n+b\n")
        )
        first = self.chosen.choice(("", "*** Add File: a.txt\n+x\n", "*** Update File: a.txt\n@@\n-a\n+b\n"))
        return f"*** Begin Patch\n{first}{hunk}*** End Patch"

    def _by_patch(self) -> Call:
        paths = [path for path in OUTSIDE if ".claude" not in path and not path.startswith("~")]
        if self.chosen.random() < 0.3:
            move = f"*** Update File: a.txt\n*** Move to: {self._spelled(paths)}\n@@\n-a\n+b\n"
            moved = f"*** Begin Patch\n{move}*** End Patch"
            return "apply_patch", {"command": moved}, True
        return "apply_patch", {"command": self._patch(paths)}, True

    def _by_shell_patch(self) -> Call:
        patch = f"*** Begin Patch\n*** Add File: /srv/{self.chosen.randrange(9)}\n+x\n*** End Patch"
        line = self.chosen.choice(
            ("apply_patch <<'EOF'\n{}\nEOF", "cd a && apply_patch <<'EOF'\n{}\nEOF", "apply_patch '{}'")
        )
        return "Bash", {"command": line.format(patch)}, True

    def _allowed(self) -> Call:
        if self.client == "codex" and self.chosen.random() < 0.4:
            return "apply_patch", {"command": self._patch(INSIDE)}, False
        if self.client == "claude" and self.chosen.random() < 0.4:
            return "Write", {"file_path": self._spelled(INSIDE), "content": "x"}, False
        return "Bash", {"command": self.chosen.choice(BENIGN), **self._beside()}, False

    def _spelled(self, paths: tuple[str, ...] | list[str]) -> str:
        path = self.chosen.choice(paths)
        if path.startswith(("/", "~")) or self.chosen.random() < 0.5:
            return path
        return f"{self.place}/{path}"

    def _beside(self) -> dict[str, Any]:
        return self.chosen.choice(({}, {"description": "a line"}, {"timeout": 5}, {"": None}, {"x": ["rm", {"y": 1}]}))

    def text(self, payload: bytes) -> bytes:
        """The same, spelled otherwise: a reader of JSON sees no difference."""
        value = json.loads(payload)
        way = self.chosen.randrange(4)
        if way == 0:
            return json.dumps(value, indent=2).encode()
        if way == 1:
            return json.dumps(dict(reversed(value.items())), ensure_ascii=False).encode()
        if way == 2:
            spelled = json.dumps(value, separators=(",", ":"))
            return "".join(f"\\u{ord(char):04x}" if char in "rKdW" else char for char in spelled).encode()
        return payload


@pytest.mark.parametrize("client", ["claude", "codex"])
def test_nothing_that_the_policy_refuses_may_run(tmp_path: Path, client: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("/etc")
    seed = 18
    generator = Generator(client, tmp_path, seed)
    refused = 0
    with HookClient(tmp_path, client=client, policy=POLICY) as hooked:
        for start in range(0, CALLS, AT_ONCE):
            calls = [generator.call() for _ in range(AT_ONCE)]
            payloads = [
                generator.text(
                    hooked.payload("PreToolUse", tool_name=tool, tool_input=given, tool_use_id=f"id_{start + number}")
                )
                for number, (tool, given, _) in enumerate(calls)
            ]
            for (tool, given, wanted), told in zip(calls, hooked.at_once(payloads), strict=True):
                assert bool(told.reason) == wanted, (seed, tool, given, told)
                refused += wanted
    assert CALLS / 3 < refused < CALLS, "both happen"
    ended = hooked.events.wait_type("run_end")
    assert ended["run"]["summary"]["calls_total"] == CALLS
    assert ended["run"]["summary"]["calls_blocked"] == refused
