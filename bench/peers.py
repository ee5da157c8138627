"""Other MCP proxies beside ours: the same driver, the same server, interleaved in one run.

    python bench/peers.py [--rounds N] [--calls N]

Each peer of requirements/peers.txt gets an environment of its own under .venv/peers-NAME, made on first use (wheels
only: nothing is built). It wraps the server as its documentation says. A peer that cannot be installed, fails or does
not answer in time is reported in a line and costs nobody else their figures.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import figures
import shim

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements" / "peers.txt"
INSTALL_S = 300
RUN_S = 90  # a peer at 10 ms a call is done in a third of this
FIREWALL = "defaultAction: allow\nglobalRateLimit:\n  enabled: false\n"

DOES = {
    "direct": "no proxy",
    "relay": "C, copies bytes",
    "shim": "Subluminal: policy of 10 rules, run state, events to the ledger",
    "mcp-rec": "copies bytes, records messages; no policy",
    "mcp-firewall": "its checks and audit log, set to allow; its limit of 200 calls a minute switched off",
    "fastmcp": "speaks MCP anew on both sides; no policy, no record",
}
NOT_MEASURED = {
    "mcp-proxy (PyPI)": "turns stdio into HTTP or HTTP into stdio; has no stdio-to-stdio mode",
    "mcp-proxy, supergateway, mcp-remote (npm)": "by their descriptions they change the transport (stdio and HTTP)",
    "mcp-hub (npm)": "by its description a manager of servers, not a wrapper of one",
    "mcp-guardian (PyPI)": "a library without a command; nothing that wraps a stdio server from outside",
    "mcp-recorder (PyPI)": "records stdio servers, but serves its client over HTTP",
    "mcp-gateway (PyPI)": "renames every tool to SERVER_TOOL, so the same calls cannot be sent through it; 1.2.1 also "
    "fails to import with mcp 2.x, which its requirements admit",
}


class Failed(Exception):
    """Why a peer has no figures."""


def pinned_versions() -> dict[str, str]:
    lines = REQUIREMENTS.read_text(encoding="utf-8").split()
    return {line.partition("==")[0]: line for line in lines}


def install(name: str, requirement: str) -> Path:
    """The peer's own bin directory."""
    home = ROOT / ".venv" / f"peers-{name}"
    stamp = home / ".installed"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != requirement:
        venv.create(home, with_pip=True, clear=True)
        command = [str(home / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        run([*command, "--only-binary", ":all:", requirement], INSTALL_S, os.environ, None)
        stamp.write_text(requirement, encoding="utf-8")
    return home / "bin"


def wrapped(name: str, bin_directory: Path, home: Path, server: list[str]) -> list[str]:
    """How the peer's documentation says to stand in front of a stdio server."""
    program = str(bin_directory / name)
    if name == "mcp-rec":
        return [program, "record", "-o", str(home / "session.jsonl"), "--", *server]
    if name == "mcp-firewall":
        (home / "firewall.yaml").write_text(FIREWALL, encoding="utf-8")
        return [program, "wrap", "--config", str(home / "firewall.yaml"), "--", *server]
    if name == "fastmcp":
        config = {"mcpServers": {"bench": {"command": server[0], "args": server[1:]}}}
        (home / "mcp.json").write_text(json.dumps(config), encoding="utf-8")
        return [program, "run", "--no-banner", str(home / "mcp.json")]
    raise Failed("nobody has written down how it wraps a server")


def run(command: list[str], seconds: float, environment: Any, directory: Path | None) -> str:
    """Its stdout. Ends the whole group when the time is over: a proxy must not outlive its benchmark."""
    with subprocess.Popen(
        command,
        env=environment,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise Failed(f"no end within {seconds:.0f} s") from None
    if process.returncode:
        lines = err.strip().splitlines()
        raise Failed(lines[-1] if lines else f"exit code {process.returncode}")
    return out


def measure(command: list[str], home: Path, calls: int) -> dict[str, Any]:
    driver = [str(shim.BUILD / "driver"), "--calls", str(calls), "--size", "100", "--pipelined", str(2 * calls)]
    environment = {**os.environ, "HOME": str(home), "SUB_HOME": str(home / "sub"), "SUB_LEDGER_IDLE_S": "5"}
    read: dict[str, Any] = json.loads(run(shim.on_one_core([*driver, *command]), RUN_S, environment, home))
    return read


def subjects(home: Path, failed: dict[str, str]) -> dict[str, list[str]]:
    server = [str(shim.BUILD / "echo")]
    commands = shim.subjects(str(home), server)
    for name, requirement in pinned_versions().items():
        try:
            commands[name] = wrapped(name, install(name, requirement), home, server)
        except (Failed, OSError, subprocess.SubprocessError) as fault:
            failed[name] = f"cannot be installed here: {fault}"
    return commands


def rounds(count: int, calls: int, home: Path, failed: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    commands = subjects(home, failed)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in commands}
    for _ in range(count):
        for name in [name for name in commands if name not in failed]:
            try:
                results[name].append(measure(commands[name], home, calls))
            except (Failed, ValueError) as fault:
                failed[name] = str(fault)
    environment = {**os.environ, "SUB_HOME": str(home / "sub")}
    subprocess.run([str(shim.SUB), "ledgerd", "--stop"], env=environment, capture_output=True, timeout=30, check=False)
    return results


def report(results: dict[str, list[dict[str, Any]]], failed: dict[str, str]) -> str:
    measured = {name: taken for name, taken in results.items() if taken and name not in failed}
    ours = statistics.median(taken["p50_us"] for taken in measured["shim"]) if "shim" in measured else None
    rows = []
    for name, taken in measured.items():
        p50, p99, rate, start, rss = (
            statistics.median(float(one[key]) for one in taken)
            for key in ("p50_us", "p99_us", "calls_per_s", "start_ms", "idle_rss_kib")
        )
        ratio = f"{p50 / ours:.2f}x" if ours else ""
        figures_of = (f"{p50:,.0f}", ratio, f"{p99:,.0f}", f"{rate:,.0f}", f"{start:,.0f}", f"{rss / 1024:.1f}")
        rows.append((pinned_versions().get(name, name), *figures_of, DOES.get(name, "")))
    header = ("", "p50 us", "p50 / shim", "p99 us", "calls/s, 64 open", "start ms", "idle RSS MiB", "what it does")
    lines = [figures.table(header, rows), ""]
    lines += [f"- {name}: failed: {reason}" for name, reason in failed.items()]
    lines += [f"- {name}: not measured: {reason}." for name, reason in NOT_MEASURED.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=500)
    arguments = parser.parse_args()
    shim.build()
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        text = report(rounds(arguments.rounds, arguments.calls, Path(home), failed), failed)
    print(text)
    figures.save("peers", text)


if __name__ == "__main__":
    sys.exit(main())
