"""`sub proxy mcp` as a user types it: what is wrong is said before anything listens."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from harness.command_line import SUB, run_sub
from harness.ledger import sub_environment

HERE = ("--server-name", "x", "--url", "http://127.0.0.1:1/mcp")
BROKEN = "policy_id: p\nversion: '1'\nmode: guardrails\nrules: [{rule_id: r, kind: nonsense}]\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "no server is named"),
        (("--server-name", "x"), "nothing is said of where x is"),
        (("--url", "http://127.0.0.1:1/mcp"), "--server-name is needed"),
        (("--server-name", "x", "--url", "nonsense"), "does not begin with http://"),
        ((*HERE, "--", "cat"), "either --url or a command"),
        ((*HERE, "--listen", "here"), "--listen here: write it as HOST:PORT"),
        ((*HERE, "--listen", "0.0.0.0:0"), "--token-env VARIABLE"),
        ((*HERE, "--token-env", "NOT_SET"), "NOT_SET does not hold a token"),
        ((*HERE, "--bearer-env", "NOT_SET"), "NOT_SET is not set"),
        ((*HERE, "--public-url", "here"), "--public-url: it "),
        ((*HERE, "--header-env", "nonsense"), "write it as NAME=VARIABLE"),
        (("--server-name", "x", "--", "/no/such/program"), "there is no program '/no/such/program'"),
    ],
)
def test_what_is_wrong_is_a_sentence(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    done = run_sub(tmp_path, "proxy", "mcp", *words)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_policy_that_is_named_must_be_there_and_right(tmp_path: Path) -> None:
    for text, code in ((None, 2), (BROKEN, 1)):
        if text is not None:
            (tmp_path / "mine.yaml").write_text(text)
        done = run_sub(tmp_path, "proxy", "mcp", *HERE, "--policy", str(tmp_path / "mine.yaml"))
        assert done.returncode == code and "mine.yaml" in done.stderr and done.stdout == ""


def test_a_policy_of_the_users_that_is_broken_is_told_at_the_start(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "policy.yaml").write_text(BROKEN)
    process = subprocess.Popen(
        [*SUB, "proxy", "mcp", "--json", *HERE],
        env=sub_environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["ready"] is True
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    assert b"policy.yaml" in said and b"No call is allowed until that is mended." in said
