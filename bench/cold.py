"""The whole time of each command on small inputs beside bare Python and `git --version`: cold process, warm files.

python bench/cold.py [ROUNDS]

The median of the times, and the least CPU of all rounds: that one holds on a busy machine too, and the ratio is of it.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from statistics import median

BARE = "python -c pass"
SUB = os.path.join(os.path.dirname(sys.executable), "sub")
COMMANDS = [
    "version", "help", "config", "runs", "query", "query --plot", "tail --no-follow", "show --no-sync", "state",
    "import", "restore --list", "secrets list", "login --list", "agent kinds", "policy lint policy.yaml",
    "policy fmt --check policy.yaml", "policy test policy.yaml", "policy explain policy.yaml --server s --tool t",
    "policy in-force", "policy compile policy.yaml", "doctor", "uninstall", "kill nothing-of-the-kind",
    "hash policy.json", "completion bash", "ledgerd --status", "prune --older-than 90d --dry-run",
]  # fmt: skip


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    with tempfile.TemporaryDirectory() as place:
        work = os.path.join(place, "work")
        os.makedirs(os.path.join(work, ".git"))
        # As on a user's machine: what has run once has left its byte code.
        environ = {
            name: value for name, value in os.environ.items() if not name.startswith(("SUB_", "PYTHONDONTWRITE"))
        }
        environ |= {"HOME": place, "SUB_HOME": os.path.join(place, "sub")}
        subprocess.run([SUB, "policy", "init", "policy.yaml"], cwd=work, env=environ, capture_output=True, check=True)
        with open(os.path.join(work, "policy.json"), "w") as file:
            file.write("{}")
        lines = [
            (BARE, [sys.executable, "-c", "pass"]),
            ("git --version", ["git", "--version"]),
            *((f"sub {each}", [SUB, *each.split()]) for each in COMMANDS),
        ]
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name, _ in lines}
        for _ in range(rounds):
            for name, command in lines:
                begin, used = time.perf_counter(), cpu_seconds()
                subprocess.run(command, cwd=work, env=environ, capture_output=True, check=False)
                taken[name].append(((time.perf_counter() - begin) * 1000, (cpu_seconds() - used) * 1000))
    bare = min(cpu for _, cpu in taken[BARE])
    print(f"{'command':<50} {'ms':>7} {'CPU ms':>7} {'x bare':>7}")
    for name, times in taken.items():
        cpu = min(cpu for _, cpu in times)
        print(f"{name:<50} {median(ms for ms, _ in times):7.1f} {cpu:7.1f} {cpu / bare:7.1f}")
    return 0


def cpu_seconds() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
