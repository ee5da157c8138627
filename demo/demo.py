"""Subluminal in a minute: a scripted agent, a real server, a guardrails policy, and the live record beside it.

    make demo

Everything happens in a temporary directory; nothing of yours is touched.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from subluminal.adapters.hook.build import build_client
from subluminal.adapters.hook.command import hook_command

HERE = Path(__file__).resolve().parent
SUB = Path(sys.executable).with_name("sub")
COLOURS = {"agent": "36", "ledger": "2", "demo": "1"}
DECISIONS = {"ALLOW": "32", "BLOCK": "31", "REJECT_WITH_HINT": "35", "TERMINATE_RUN": "91", "THROTTLE": "33"}
TAIL_READY_S = 10


def colour(text: str, code: str) -> str:
    wanted = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return f"\033[{code}m{text}\033[0m" if wanted else text


def show(who: str, line: str) -> None:
    decision = next((word for word in DECISIONS if who == "ledger" and word in line), None)
    print(colour(f"{who:>6} │ ", COLOURS[who]) + (colour(line, DECISIONS[decision]) if decision else line), flush=True)


def follow(who: str, process: subprocess.Popen[str]) -> threading.Thread:
    def run() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            show(who, line.rstrip("\n"))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def main() -> int:
    print(colour("Subluminal: between an agent and its tools", "1"))
    print(
        "An agent works with a ticket tracker. Every call passes `sub shim`, which decides it under demo/policy.yaml."
    )
    print("Before it uses a tool of its own, it asks a hook, which decides under the same policy.")
    print("Left: who is speaking. `ledger` is `sub tail`, live.\n")
    with tempfile.TemporaryDirectory(prefix="subluminal-demo-") as home:
        build_client(home)
        environ = {
            **os.environ,
            "SUB_HOME": home,
            "SUB_LEDGER_IDLE_S": "120",
            "DEMO_HOOK": hook_command("claude", home),
        }
        for name in ("SUB_RUN_ID", "SUB_POLICY", "SUB_POLICY_JSON", "SUB_EVENTS", "CI"):
            environ.pop(name, None)
        tail = subprocess.Popen(
            [SUB, "tail"], env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        follow("ledger", tail)
        wait_for(Path(home) / "ledgerd.sock")
        shim = [str(SUB), "shim", "--server-name", "tickets", "--", sys.executable, str(HERE / "server.py")]
        run = [str(SUB), "run", "--agent-id", "demo", "--policy", str(HERE / "policy.yaml"), "--"]
        agent = subprocess.Popen(
            [*run, sys.executable, str(HERE / "agent.py"), *shim],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        talking = follow("agent", agent)
        agent.wait()
        talking.join()
        time.sleep(0.5)  # the last lines of the record are on their way to the screen
        tail.terminate()
        tail.wait()
        for words in (["runs"], ["query", "--group-by", "tool,decision"], ["verify", "last"]):
            show("demo", colour("$ sub " + " ".join(words), "1"))
            subprocess.run([SUB, *words], env=environ, check=False)
            print()
        show_page(environ)
        subprocess.run([SUB, "ledgerd", "--stop"], env=environ, check=False, capture_output=True)
    print("Try next:")
    print(f"  {SUB} import            see which of your agents' MCP servers it would route through the shim")
    print(f"  {SUB} policy init       a commented policy to start from")
    print(f"  {SUB} doctor            check this installation")
    return 0


def show_page(environ: dict[str, str]) -> None:
    """The run that was just made, as a page. It is gone with the temporary directory, so a person is waited for."""
    show("demo", colour("$ sub ui --run last --no-open", "1"))
    subprocess.run([SUB, "ui", "--run", "last", "--no-open"], env=environ, check=False)
    if sys.stdin.isatty() and sys.stdout.isatty():
        input("Look at it in your browser; Enter ends the demo. ")
    print()


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + TAIL_READY_S
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
