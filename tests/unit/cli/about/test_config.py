"""`sub config`: what is in force, and where each setting comes from."""

from __future__ import annotations

import json
import subprocess
import sys

from harness.command_line import run_sub
from harness.ledger import sub_environment


def settings(home, cwd, **extra):
    done = subprocess.run(
        [sys.executable, "-m", "subluminal", "config", "--json"],
        env=sub_environment(home, **extra),
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
    )
    return {row["name"]: (row["value"], row["source"]) for row in map(json.loads, done.stdout.splitlines())}


def test_each_setting_names_the_place_that_it_comes_from(tmp_path):
    home, work = tmp_path / "sub", tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    (work / ".subluminal").mkdir()
    home.mkdir(mode=0o700)
    own, project = home / "config.toml", work / ".subluminal" / "config.toml"
    own.write_text(
        '[shim]\ntimeout_ms = 9000\nmax_preview_bytes = 500\n[servers.git]\naudit = "before"\nrecord.results = "all"\n'
        "[record]\nmax_result_bytes = 7\n"
    )
    own.chmod(0o600)
    project.write_text("[shim]\nmax_preview_bytes = 100\n")
    found = settings(home, work, SUB_HEALTH_MS="1000")
    assert found["shim.timeout_ms"] == (9000, str(own))
    assert found["shim.max_preview_bytes"] == (100, str(project))
    assert found["shim.health_ms"] == (1000, "SUB_HEALTH_MS")
    assert found["shim.refusal_style"] == ("error", "default")
    assert found["servers.git.audit"] == ("before", str(own))
    assert found["servers.git.record.results"] == ("all", str(own))
    assert (found["record.results"], found["record.max_result_bytes"]) == (("off", "default"), (7, str(own)))
    assert settings(home, work, SUB_RECORD_RESULTS="all")["record.results"] == ("all", "SUB_RECORD_RESULTS")
    assert found["home"] == (str(home), "SUB_HOME")


def test_without_a_file_it_says_where_one_would_be(tmp_path):
    done = run_sub(tmp_path / "sub", "config")
    assert done.returncode == 0 and "SETTING" in done.stdout
    assert str(tmp_path / "sub" / "config.toml") in done.stderr
    assert not (tmp_path / "sub").exists()


def test_a_file_that_cannot_be_used_is_a_sentence(tmp_path):
    home = tmp_path / "sub"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("[shim]\ntimeout = 5\n")
    done = run_sub(home, "config")
    assert done.returncode == 2 and "timeout" in done.stderr and "Traceback" not in done.stderr
