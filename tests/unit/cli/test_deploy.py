"""What is shipped for CI: the image's recipe, the GitHub action and the GitLab template, checked without an engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness import places
from harness.ci_agent import ci_agent
from harness.shim import isolated_env

ROOT = places.ROOT
DEPLOY = ROOT / "deploy"


def instructions() -> list[tuple[str, str]]:
    text = (DEPLOY / "Dockerfile").read_text()
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.M).replace("\\\n", " ")
    return [(line.split()[0], line.split(None, 1)[1].strip()) for line in text.splitlines() if line.strip()]


class TestDockerfile:
    def test_its_instructions_are_known_and_in_a_sensible_order(self) -> None:
        names = [name for name, _ in instructions()]
        known = {"ARG", "FROM", "COPY", "RUN", "ENV", "USER", "WORKDIR", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
        assert set(names) <= known
        assert names[0] == "ARG" and names.count("FROM") == 2 and names[-2:] == ["ENTRYPOINT", "CMD"]
        last = len(names) - 1 - names[::-1].index("FROM")
        assert "RUN" not in names[names.index("USER") :], "nothing is changed after root is given up"
        assert names.index("USER") > last

    def test_it_runs_as_a_user_with_a_number_and_starts_sub_without_a_shell(self) -> None:
        by_name = dict(instructions())
        assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", by_name["USER"])
        assert json.loads(by_name["ENTRYPOINT"]) == ["sub"]
        assert json.loads(by_name["CMD"]) == ["--help"]
        uid = by_name["USER"].split(":")[0]
        assert any(name == "RUN" and f"useradd --uid {uid} " in text for name, text in instructions())

    def test_it_names_no_registry_no_secret_and_no_floating_download(self) -> None:
        text = (DEPLOY / "Dockerfile").read_text()
        assert "://" not in text and not re.search(r"(?i)token|password|secret", text)
        assert not any(name == "RUN" and re.search(r"curl|wget|apt", words) for name, words in instructions())

    def test_everything_it_copies_is_in_the_build_context(self) -> None:
        allowed = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
        copies = [words for name, words in instructions() if name == "COPY" and not words.startswith("--from")]
        sources = [source for words in copies for source in words.split()[:-1]]
        assert "src" in {source.rstrip("/") for source in sources}
        for source in sources:
            assert (ROOT / source).exists() and f"!{source}" in allowed

    def test_its_steps_give_a_sub_that_works(self, tmp_path: Path) -> None:
        """The same files, built and unpacked into an empty root; the dependencies are borrowed from this Python.

        Unpacked, not installed: pip would take away the project's own installation here.
        """
        source, root = tmp_path / "src", tmp_path / "root"
        source.mkdir()
        for name, words in instructions():
            if name == "COPY" and not words.startswith("--from"):
                *files, target = words.split()
                for file in files:
                    copy(ROOT / file, source / Path(target).relative_to("/src"))
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
        build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(tmp_path), str(source)]
        subprocess.run([*pip, *build], check=True, timeout=100)
        (wheel,) = tmp_path.glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            assert {"subluminal/reports/report.css", "subluminal/policy/edit/templates/starter.yaml"} <= set(
                packed.namelist()
            )
            packed.extractall(root)
        env = isolated_env(tmp_path, PYTHONPATH=str(root), CI="true")
        version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
        where = [sys.executable, "-c", "import subluminal; print(subluminal.__version__, subluminal.__file__)"]
        told = subprocess.run(where, env=env, cwd=tmp_path, capture_output=True, encoding="utf-8", check=True)
        assert told.stdout.split() == [version, str(root / "subluminal" / "__init__.py")]
        run = [sys.executable, "-m", "subluminal", "run", "--strict", "--bundle", "trace", "--"]
        done = subprocess.run(
            [*run, *ci_agent(say="hello")], env=env, cwd=tmp_path, capture_output=True, encoding="utf-8", check=False
        )
        assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
        assert (tmp_path / "trace" / "report.html").exists()


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.mkdir(parents=True, exist_ok=True)  # every file goes into a directory
        shutil.copy(source, target)


def can_be_process_1() -> bool:
    command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.skipif(not can_be_process_1(), reason="no new pid namespace can be made here: process 1 was not tested")
def test_as_process_1_sub_run_buries_the_orphans_of_the_agent(tmp_path: Path) -> None:
    """The agent leaves orphans that end at once, then looks for zombies until there are none."""
    agent = (
        "import os, sys, time\n"
        "assert os.getppid() == 1\n"
        "for _ in range(5):\n"
        "    if os.fork() == 0:\n"
        "        if os.fork() == 0: time.sleep(0.05)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
        "def processes():\n"
        "    return [name for name in os.listdir('/proc') if name.isdigit()]\n"
        "give_up = time.monotonic() + 10\n"
        "while len(processes()) != 2 and time.monotonic() < give_up: time.sleep(0.02)\n"
        "sys.exit(0 if len(processes()) == 2 else 9)\n"
    )
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-m", "subluminal", "run", "--headless"]
    done = subprocess.run(
        [*command, "--", sys.executable, "-S", "-c", agent],
        env=isolated_env(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def scripts_of(value: Any) -> list[str]:
    if isinstance(value, dict):
        here = [value["run"]] if isinstance(value.get("run"), str) else []
        return here + [text for item in value.values() for text in scripts_of(item)]
    return [text for item in value for text in scripts_of(item)] if isinstance(value, list) else []


class TestAction:
    action = yaml.safe_load((DEPLOY / "action.yml").read_text())

    def test_no_input_becomes_part_of_a_script(self) -> None:
        scripts = scripts_of(self.action)
        assert len(scripts) == 2
        assert not any("${{" in script for script in scripts)

    def test_every_input_is_described_and_used(self) -> None:
        text = (DEPLOY / "action.yml").read_text()
        for name, facts in self.action["inputs"].items():
            assert facts["description"]
            assert re.search(rf"inputs\.{re.escape(name)}\b", text), name

    def test_its_script_gives_the_flags_that_were_asked_for(self, tmp_path: Path) -> None:
        (step,) = (step for step in self.action["runs"]["steps"] if step["name"] == "Run the agent")
        fake = tmp_path / "sub"
        fake.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\n')
        fake.chmod(0o755)
        hostile = "echo $(touch owned); true"
        env = {
            **{name: str(self.action["inputs"][word]["default"]) for name, word in WANTED.items()},
            "SUB_INPUT_COMMAND": hostile,
            "SUB_INPUT_POLICY": "a b.yaml; touch owned",
            "SUB_INPUT_MAX_BLOCKED": "3",
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
        }
        done = subprocess.run(
            ["bash", "-c", step["run"]], env=env, cwd=tmp_path, capture_output=True, encoding="utf-8", check=True
        )
        assert done.stdout.splitlines() == [
            *("run", "--headless", "--bundle", "subluminal-trace", "--timeout", "0", "--strict"),
            *("--policy", "a b.yaml; touch owned", "--max-blocked", "3"),
            *("--", "bash", "-eo", "pipefail", "-c", hostile),
        ]
        assert not (tmp_path / "owned").exists()


WANTED = {
    "SUB_INPUT_STRICT": "strict",
    "SUB_INPUT_FAIL_ON": "fail-on",
    "SUB_INPUT_TIMEOUT": "timeout",
    "SUB_INPUT_BUNDLE": "bundle",
}


def test_the_gitlab_template_keeps_the_trace_whatever_becomes_of_the_job() -> None:
    job = yaml.safe_load((DEPLOY / "gitlab.yml").read_text())[".subluminal"]
    assert job["artifacts"]["when"] == "always"
    assert job["artifacts"]["reports"]["junit"] == "$SUB_BUNDLE/junit.xml"
    assert any(line.startswith("sub run --headless") for line in job["script"])
