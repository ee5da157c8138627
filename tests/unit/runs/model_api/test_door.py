"""`sub run --model-api` with real processes: the door is there before the command, and gone with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.model_policies import NO_RM, RM, bundle
from harness.model_server import calls, says, scripted_model, text
from harness.processes import (
    MARKER_VARIABLE,
    assert_no_processes,
    command_line,
    kill_marked,
    new_marker,
    processes_with,
)
from harness.shim import isolated_env, write_policy
from harness.waiting import GENEROUS_S, wait_for

# A client: asks its model once, says what it heard, and waits if it is told to.
CLIENT = """#!{python}
import http.client, json, os, signal, sys, urllib.parse
base = os.environ.get("ANTHROPIC_BASE_URL") if "codex" not in sys.argv[0] else None
for word in sys.argv:
    if word.startswith("openai_base_url="):
        base = word.partition("=")[2].strip('"')  # of several the last one holds
url = urllib.parse.urlsplit(base)
headers = dict(line.split(": ", 1) for line in os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "").split("\\n") if line)
def ask():
    connection = http.client.HTTPConnection(url.netloc, timeout=20)
    path = "/v1/messages" if not url.path else url.path + "/responses"
    body = json.dumps({{"model": "m", "max_tokens": 9, "messages": [], "input": []}})
    connection.request("POST", path, body, {{"Content-Type": "application/json", **headers}})
    answer = connection.getresponse()
    print(json.dumps({{"status": answer.status, "body": json.loads(answer.read())}}), flush=True)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
ask()
while "wait" in sys.argv:
    signal.sigwait([signal.SIGINT])
    ask()
sys.exit(3)
"""


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.marker = new_marker()
        self.env = {**isolated_env(folder), MARKER_VARIABLE: self.marker}
        for name in ("claude", "codex"):
            program = folder / name
            program.write_text(CLIENT.format(python=sys.executable))
            program.chmod(0o755)
        self.events = folder / "events.jsonl"

    def start(self, *words: str, **env: str) -> subprocess.Popen[str]:
        policy = write_policy(self.folder, bundle(NO_RM))
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "subluminal", "run", "--model-api", "--policy", str(policy), *words],
            env={**self.env, "SUB_EVENTS": f"file:{self.events}", **env},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def recorded(self, kind: str) -> list[dict[str, Any]]:
        lines = self.events.read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["type"] == kind]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    try:
        yield made
        assert_no_processes(made.marker)
    finally:
        kill_marked(made.marker)


def doors(place: Place) -> list[int]:
    return [pid for pid in processes_with(place.marker) if "--until-stdin-ends" in command_line(pid)]


def test_a_client_asks_through_the_door_in_its_run_and_nothing_is_left(place: Place) -> None:
    with scripted_model(says(calls("Bash", RM))) as model:
        run = place.start("--run-id", "run-m", "--", "./claude", ANTHROPIC_BASE_URL=model.url)
        out, err = run.communicate(timeout=GENEROUS_S)
        assert (run.returncode, err) == (3, "")
        heard = json.loads(out)
        assert heard["body"]["content"][0]["name"] == "subluminal_refused__Bash"
        assert "subluminal-run-id" not in model.heard[0].headers
    (decision,) = place.recorded("tool_call_decision")
    assert (decision["run_id"], decision["decision"]["rule_id"]) == ("run-m", "no-rm")
    ended = [event["run"] for event in place.recorded("run_end") if event["run"].get("counts") == "run"]
    assert [(run_["summary"]["calls_total"], run_["status"]) for run_ in ended] == [(1, "FAILED")]


def test_codex_is_led_there_by_its_command_line(place: Place) -> None:
    with scripted_model(lambda heard, wire: wire.json({"id": "resp_1", "object": "response", "output": []})) as model:
        run = place.start("--", "./codex", "-c", f"openai_base_url={model.url}/v1", "exec")
        out, err = run.communicate(timeout=GENEROUS_S)
        assert json.loads(out)["status"] == 200, (out, err)
        assert model.heard[0].target == "/v1/responses"


def test_what_lies_in_the_directory_of_the_run_is_no_part_of_the_door(place: Place) -> None:
    for name in ("asyncio", "httptools", "uvloop"):
        (place.folder / f"{name}.py").write_text(f"open({str(place.folder / 'ran')!r}, 'w')\nraise ImportError\n")
    with scripted_model(says(text("one"))) as model:
        run = place.start("--", "./claude", ANTHROPIC_BASE_URL=model.url)
        out, err = run.communicate(timeout=GENEROUS_S)
        assert "one" in out, err
    assert not (place.folder / "ran").exists()


def test_a_key_that_the_door_found_in_the_environment_is_not_in_the_commands(place: Place) -> None:
    home = Path(place.env["SUB_HOME"])
    home.mkdir(mode=0o700, exist_ok=True)
    with scripted_model(says(text("one"))) as model:
        (home / "config.toml").write_text(
            "[servers.model]\n"
            f'confirmed = [{{ url = "{model.url}/" }}]\n'
            'secret_bindings = [{ inject_as = "header:x-api-key", secret_ref = "PROVIDERS_KEY" }]\n'
        )
        (home / "config.toml").chmod(0o600)
        key = "sk-a-key-of-the-provider"
        run = place.start(
            "--", "sh", "-c", "env; exec ./claude", "claude", ANTHROPIC_BASE_URL=model.url, PROVIDERS_KEY=key
        )
        out, err = run.communicate(timeout=GENEROUS_S)
        assert model.heard[0].headers.get("x-api-key") == key, err
    assert key not in out + err and "PROVIDERS_KEY=" in out
    assert key not in place.events.read_text()


def test_ctrl_c_is_the_commands_and_the_door_stays(place: Place) -> None:
    with scripted_model(says(text("one")), says(text("two"))) as model:
        run = place.start("--", "./claude", "wait", ANTHROPIC_BASE_URL=model.url)
        assert run.stdout is not None
        assert "one" in run.stdout.readline()
        os.killpg(run.pid, signal.SIGINT)
        assert "two" in run.stdout.readline()
        run.terminate()
        run.communicate(timeout=GENEROUS_S)
        assert run.returncode == 128 + signal.SIGTERM


def test_a_run_that_is_killed_leaves_no_door_behind(place: Place) -> None:
    with scripted_model(says(text("one"))) as model:
        run = place.start("--", "./claude", "wait", ANTHROPIC_BASE_URL=model.url)
        assert run.stdout is not None and "one" in run.stdout.readline()
        assert doors(place)
        run.kill()
        run.wait()
        wait_for(lambda: not doors(place), what="the door has ended")
        kill_marked(place.marker)
        run.communicate()


def test_without_its_door_the_command_is_not_started(place: Place) -> None:
    config = Path(place.env["SUB_HOME"], "config.toml")
    config.parent.mkdir(exist_ok=True)
    binding = 'secret_ref = "KEY"\nsource = "env"\ninject_as = "header:host"\n'
    config.write_text("[[servers.model.secret_bindings]]\n" + binding)
    run = place.start("--", "./claude", ANTHROPIC_BASE_URL="https://127.0.0.1:1")
    out, err = run.communicate(timeout=GENEROUS_S)
    assert (run.returncode, out) == (2, "")
    assert "the door before the model's API could not be started" in err and "Traceback" not in err


@pytest.mark.parametrize("address", ["https://ada:s3cr3t@127.0.0.1:1", "https://127.0.0.1:1/?key=s3cr3t", "nonsense"])
def test_an_address_with_a_secret_in_it_stands_on_no_command_line(place: Place, address: str) -> None:
    run = place.start("--", "./claude", ANTHROPIC_BASE_URL=address)
    out, err = run.communicate(timeout=GENEROUS_S)
    assert (run.returncode, out) == (2, "")
    assert "the address of the model's API" in err and "s3cr3t" not in err
    assert "could not be started" not in err, "nothing was started with it"


def test_a_door_that_dies_ends_the_run(place: Place) -> None:
    with scripted_model(says(text("one"))) as model:
        run = place.start("--", "./claude", "wait", ANTHROPIC_BASE_URL=model.url)
        assert run.stdout is not None and "one" in run.stdout.readline()
        (door,) = doors(place)
        os.kill(door, signal.SIGKILL)
        _, err = run.communicate(timeout=GENEROUS_S)
        assert run.returncode == 1
        assert "the door before the model's API has ended, and the run with it" in err
    ended = [event["run"] for event in place.recorded("run_end") if event["run"].get("counts") == "run"]
    assert [each["status"] for each in ended] == ["FAILED"]


def test_an_address_needs_the_option_it_belongs_to(place: Place) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "subluminal", "run", "--model-api-upstream", "https://x.example", "--", "true"],
        env=place.env,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 2 and "needs --model-api" in run.stderr
