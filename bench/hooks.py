"""What a hook adds to a call of a client's own tool, beside a hook that does nothing (/bin/true).

As clients run them: /bin/sh with the line of the settings, the payload on stdin, the answer on stdout, and the judge of
this process behind it, with a policy of ten rules and every event written. They take turns in one run; beside them a
Python that does nothing, the floor for the hook command where there is no compiler. Pre is the hook before a call
(judged, recorded, answered), Post the one after it.

    python bench/hooks.py [--calls N] [--limit-c MS] [--limit-python MS]
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

import figures
import in_process

NOTHING = "/bin/true"


def _ms(command: str, payload: bytes) -> float:
    began = time.perf_counter_ns()
    done = subprocess.run(["/bin/sh", "-c", command], input=payload, stdout=subprocess.PIPE, check=False)
    took = (time.perf_counter_ns() - began) / 1e6
    if done.returncode or done.stdout:
        raise SystemExit(f"not allowed: {done.returncode} {done.stdout[:300]!r}")
    return took


def _payload(event: str, number: int) -> bytes:
    members = {
        "session_id": "0b7a2b9e-5a11-4f0e-8a5e-3f1f0b1f6f11",
        "transcript_path": "/home/user/.claude/projects/project/transcript.jsonl",
        "cwd": os.getcwd(),
        "permission_mode": "default",
        "hook_event_name": event,
        "tool_name": "Bash",
        "tool_input": {"command": "git status --short", "description": "Show what has changed"},
        "tool_use_id": f"toolu_{number:024}",
    }
    if event == "PostToolUse":
        members |= {"tool_response": {"stdout": "M README.md", "stderr": "", "interrupted": False}, "duration_ms": 12}
    return json.dumps(members, separators=(",", ":")).encode()


def _measure(home: str, calls: int) -> dict[str, list[float]]:
    from subluminal.adapters.hook.build import build_client, client_words
    from subluminal.adapters.hook.command import hook_command

    lines = {}
    python = ""
    for name, compiler in (("Python", None), ("C", "cc")):
        build_client(home, compiler=compiler)
        python = python or f"{shlex.join(client_words(home)[:-1])} -c pass"
        lines[name] = {event: hook_command("claude", home, event) for event in ("PreToolUse", "PostToolUse")}
    took: dict[str, list[float]] = {
        name: [] for name in ("nothing", "Python, nothing", "C, Pre", "C, Post", "Python, Pre", "Python, Post")
    }
    _ms(lines["C"]["PreToolUse"], _payload("PreToolUse", 0))  # starts the judge
    number = 0
    for _ in range(calls):
        took["nothing"].append(_ms(NOTHING, _payload("PreToolUse", 0)))
        took["Python, nothing"].append(_ms(python, _payload("PreToolUse", 0)))
        for name in ("C", "Python"):
            number += 1
            for event, word in (("PreToolUse", "Pre"), ("PostToolUse", "Post")):
                took[f"{name}, {word}"].append(_ms(lines[name][event], _payload(event, number)))
    return took


def _again_with_a_home() -> int:
    """The judge takes over the environment that its client was started with: a process of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        with open(f"{home}/policy.yaml", "w", encoding="utf-8") as file:
            json.dump(in_process.POLICY, file)
        environ = {**os.environ, "SUB_HOME": home, "HOME": home, "SUB_EVENTS": f"file:{home}/events.jsonl"}
        return subprocess.run([sys.executable, *sys.argv], env=environ, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--limit-c", type=float, default=4.0, help="fail above this median over /bin/true")
    parser.add_argument("--limit-python", type=float, default=20.0)
    options = parser.parse_args()
    if "SUB_HOME" not in os.environ or not os.environ.get("SUB_EVENTS", "").startswith(
        f"file:{os.environ['SUB_HOME']}/"
    ):
        return _again_with_a_home()
    took = _measure(os.environ["SUB_HOME"], options.calls)
    base = statistics.median(took["nothing"])
    rows = []
    for name, times in took.items():
        median, p90 = statistics.median(times), statistics.quantiles(times, n=10)[-1]
        rows.append((name, f"{median:.2f}", f"{p90:.2f}", "" if name == "nothing" else f"{median - base:.2f}"))
    text = figures.table(("hook", "median ms", "p90 ms", "over /bin/true, ms"), rows)
    print(text)
    figures.save("hooks", text)
    over = {name: statistics.median(took[f"{name}, Pre"]) - base for name in ("C", "Python")}
    return int(over["C"] > options.limit_c or over["Python"] > options.limit_python)


if __name__ == "__main__":
    sys.exit(main())
