"""What a program must be told, and where it would have asked."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from subluminal.contracts.errors import UsageError
from subluminal.runs.model_api.routes import ask_directly, routes

BASE = "http://127.0.0.1:1234"


def told(command: list[str], environ: dict[str, str], upstream: str | None = None) -> tuple[list[str], list[str]]:
    """The command as it is started, and the addresses behind the doors."""
    found = routes(command, environ, upstream)
    for route in found:
        command = route.told(command, environ, BASE)
    return command, [route.upstream for route in found]


def test_claude_is_told_by_its_variables_and_the_users_headers_stay() -> None:
    environ = {"ANTHROPIC_CUSTOM_HEADERS": "X-Mine: 1", "SUB_RUN_ID": "run-1", "SUB_AGENT_ID": "fixer"}
    command, behind = told(["/usr/bin/claude", "-p", "hi"], environ)
    assert ([command[0], *command[3:]], behind) == (["/usr/bin/claude", "-p", "hi"], ["https://api.anthropic.com"])
    assert environ["ANTHROPIC_BASE_URL"] == BASE
    headers = environ["ANTHROPIC_CUSTOM_HEADERS"].split("\n")
    assert headers == ["X-Mine: 1", "Subluminal-Run-Id: run-1", "Subluminal-Agent-Id: fixer"]


def test_who_acts_in_a_run_within_a_run_is_said_once() -> None:
    environ = {"ANTHROPIC_CUSTOM_HEADERS": "subluminal-run-id: outer\r\nX-Mine: 1\n", "SUB_RUN_ID": "inner"}
    told(["claude"], environ)
    assert environ["ANTHROPIC_CUSTOM_HEADERS"].split("\n") == ["X-Mine: 1", "Subluminal-Run-Id: inner"]


def test_the_users_own_address_is_behind_the_door() -> None:
    assert told(["claude"], {"ANTHROPIC_BASE_URL": "https://gate.example/a"})[1] == ["https://gate.example/a"]
    assert told(["claude"], {}, "https://other.example")[1] == ["https://other.example"]


@pytest.mark.parametrize("variable", ["CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"])
def test_where_claude_would_speak_another_api_nothing_is_started(variable: str) -> None:
    with pytest.raises(UsageError, match=variable):
        routes(["claude"], {variable: "1"}, None)


NOT_ELSEWHERE = dict.fromkeys(("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"), "0")
GATE = "https://gate.example"


@pytest.mark.parametrize(
    ("words", "settings", "rest"),
    [
        (["-p", "hi"], {}, ["-p", "hi"]),
        (["-p", "--", "--settings", "{}"], {}, ["-p", "--", "--settings", "{}"]),
        (["--settings", '{"model":"m","env":{"A":"1"}}', "hi"], {"model": "m", "env": {"A": "1"}}, ["hi"]),
        (["--settings", "first.json", '--settings={"model":"m"}', "hi"], {"model": "m"}, ["hi"]),
        (["--settings=mine.json", "hi"], {"model": "of-a-file"}, ["hi"]),
    ],
)
def test_what_claude_is_told_stands_over_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], settings: dict[str, Any], rest: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    Path("mine.json").write_text('{"model": "of-a-file"}')
    command, _ = told(["claude", *words], {"HOME": str(tmp_path)})
    last = max(at for at, word in enumerate(command) if word == "--settings" and "--" not in command[:at])
    env = {**settings.get("env", {}), "ANTHROPIC_BASE_URL": BASE, **NOT_ELSEWHERE}
    given = command[last + 1]
    assert json.loads(given if given.startswith("{") else Path(given).read_text()) == {**settings, "env": env}
    assert command[last + 2 :] == rest


def test_settings_of_a_file_are_not_shown_on_the_command_line(tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    mine.write_text('{"env": {"TOKEN": "a-token-of-mine"}}')
    (route,) = routes(["claude", "--settings", str(mine)], {"HOME": str(tmp_path)}, None)
    command = route.told(["claude", "--settings", str(mine)], {}, BASE)
    assert "a-token-of-mine" not in " ".join(command)
    given = Path(command[2])
    assert "a-token-of-mine" in given.read_text() and given.stat().st_mode & 0o077 == 0
    route.close()
    assert not given.exists() and mine.exists()


def test_an_address_in_claudes_settings_is_behind_the_door(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(json.dumps({"env": {"ANTHROPIC_BASE_URL": GATE}}))
    environ = {"CLAUDE_CONFIG_DIR": str(tmp_path), "ANTHROPIC_BASE_URL": "https://a.example"}
    assert told(["claude"], environ)[1] == [GATE]
    over = json.dumps({"env": {"ANTHROPIC_BASE_URL": "https://over.example"}})
    assert told(["claude", "--settings", over], environ)[1] == ["https://over.example"]
    (tmp_path / "settings.json").write_text(json.dumps({"env": {"CLAUDE_CODE_USE_BEDROCK": "1"}}))
    with pytest.raises(UsageError, match="Bedrock"):
        routes(["claude"], {"CLAUDE_CONFIG_DIR": str(tmp_path)}, None)
    (tmp_path / "settings.json").write_text("no JSON")
    assert told(["claude"], {"CLAUDE_CONFIG_DIR": str(tmp_path)})[1] == ["https://api.anthropic.com"]


@pytest.mark.parametrize("given", ["missing.json", "{", "[]"])
def test_settings_that_cannot_be_read_are_told(tmp_path: Path, given: str) -> None:
    with pytest.raises(UsageError, match="--settings"):
        routes(["claude", "--settings", given], {"HOME": str(tmp_path)}, None)


def test_any_other_command_gets_both_addresses() -> None:
    environ: dict[str, str] = {}
    command, behind = told(["python", "agent.py"], environ)
    assert (command, behind) == (["python", "agent.py"], ["https://api.anthropic.com", "https://api.openai.com/v1"])
    assert (environ["ANTHROPIC_BASE_URL"], environ["OPENAI_BASE_URL"]) == (BASE, f"{BASE}/v1")
    with pytest.raises(UsageError, match="--model-api-upstream"):
        routes(["python"], {}, "https://x.example")


def ours(key: str, provider: str) -> list[str]:
    values = {"model_provider": f'"{provider}"', key: f'"{BASE}/v1"', "features.enable_request_compression": "false"}
    return [word for name, value in values.items() for word in ("-c", f"{name}={value}")]


OURS = ours("openai_base_url", "openai")


@pytest.mark.parametrize(
    ("before", "behind", "config", "upstream"),
    [
        ([], ["exec", "fix it"], "", "https://api.openai.com/v1"),
        ([], ["exec"], 'openai_base_url = "https://gate.example/v1"', "https://gate.example/v1"),
        (["-c", "openai_base_url=https://a.example/v1"], ["exec"], "", "https://a.example/v1"),
        (['--config=openai_base_url="https://a.example/v1"', "-c", "x=1"], [], "", "https://a.example/v1"),
        (["exec", "-copenai_base_url=https://a.example/v1"], ["hi"], "", "https://a.example/v1"),
        (["-c", "x=1", "exec", "-c", "y=2"], ["hi"], "", "https://api.openai.com/v1"),
        ([], ["exec", "--", "-c", "openai_base_url=x"], "", "https://api.openai.com/v1"),
        (["-c", "features.enable_request_compression=true"], [], "", "https://api.openai.com/v1"),
        ([], ["exec"], "this is no TOML", "https://api.openai.com/v1"),
        ([], ["exec", "--ignore-user-config"], 'openai_base_url = "https://a.example"', "https://api.openai.com/v1"),
    ],
)
def test_codex_is_told_behind_what_its_user_says(
    tmp_path: Path, before: list[str], behind: list[str], config: str, upstream: str
) -> None:
    (tmp_path / "config.toml").write_text(config)
    command, upstreams = told(["codex", *before, *behind], {"CODEX_HOME": str(tmp_path)})
    assert (command, upstreams) == (["codex", *before, *OURS, *behind], [upstream])


MINE = '[model_providers.mine]\nbase_url = "https://mine.example/v1"\n'


@pytest.mark.parametrize(
    ("words", "config", "profile"),
    [
        ([], 'model_provider = "mine"\n' + MINE, ""),
        (["-c", "model_provider=mine"], MINE, ""),
        (["-c", "model_provider=mine", "-c", "model_providers.mine.base_url=https://mine.example/v1"], "", ""),
        (["-c", 'model_providers.mine={base_url="https://mine.example/v1"}', "-c", "model_provider=mine"], "", ""),
        (["-c", 'model_providers={mine={base_url="https://mine.example/v1"}}', "-c", "model_provider=mine"], "", ""),
        (["--profile", "work"], MINE, 'model_provider = "mine"'),
        (["-pwork"], 'model_provider = "other"', 'model_provider = "mine"\n' + MINE),
        (["-p", "work", "-c", "model_provider=mine"], MINE, 'model_provider = "other"'),
        (["--profile", "work"], MINE + '[profiles.work]\nmodel_provider = "mine"\n', ""),
        ([], 'profile = "work"\n' + MINE + '[profiles.work]\nmodel_provider = "mine"\n', ""),
    ],
)
def test_a_provider_of_codexs_configuration_is_told_anew(
    tmp_path: Path, words: list[str], config: str, profile: str
) -> None:
    (tmp_path / "config.toml").write_text(config)
    (tmp_path / "work.config.toml").write_text(profile)
    command, upstreams = told(["codex", *words], {"CODEX_HOME": str(tmp_path)})
    assert upstreams == ["https://mine.example/v1"]
    told_anew = ours("model_providers.mine.base_url", "mine")
    if "-c" in words:
        assert command == ["codex", *words, *told_anew], "what is said last holds"
    else:
        assert command == ["codex", *told_anew, *words]


@pytest.mark.parametrize(
    ("upstream", "address"),
    [
        ("https://api.openai.com/v1/", f"{BASE}/v1"),
        ("https://chatgpt.example/backend-api/codex", BASE),
        ("https://a.example/openai/v2", f"{BASE}/v2"),
        ("https://a.example", BASE),
    ],
)
def test_the_version_stands_in_our_address_where_it_stands_in_the_providers(
    tmp_path: Path, upstream: str, address: str
) -> None:
    command, _ = told(["codex"], {"CODEX_HOME": str(tmp_path)}, upstream)
    assert f'openai_base_url="{address}"' in command
    environ = {"OPENAI_BASE_URL": upstream}
    told(["python"], environ)
    assert environ["OPENAI_BASE_URL"] == address


@pytest.mark.parametrize("words", [["--oss"], ["exec", "--local-provider", "ollama"], ["--local-provider=ollama"]])
def test_where_codex_would_ask_a_local_provider_nothing_is_started(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(UsageError, match=r"--oss|--local-provider"):
        routes(["codex", *words], {"CODEX_HOME": str(tmp_path)}, None)
    assert routes(["codex", "exec", "--", "--oss"], {"CODEX_HOME": str(tmp_path)}, None)


def test_a_provider_without_an_address_is_asked_about(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="provider elsewhere"):
        routes(["codex", "-c", "model_provider=elsewhere"], {"CODEX_HOME": str(tmp_path)}, None)
    assert told(["codex", "-c", "model_provider=elsewhere"], {"CODEX_HOME": str(tmp_path)}, "https://e.example")[1] == [
        "https://e.example"
    ]


@pytest.mark.parametrize("value", ["9" * 5_000, "[" * 5_000])
def test_what_python_cannot_read_of_codexs_words_is_left_to_codex(tmp_path: Path, value: str) -> None:
    (tmp_path / "config.toml").write_text(f"x = {value}")
    command, behind = told(["codex", "-c", f"x={value}"], {"CODEX_HOME": str(tmp_path)})
    assert f"x={value}" in command and behind == ["https://api.openai.com/v1"]


def test_a_proxy_of_the_network_is_not_asked_for_our_address() -> None:
    plain: dict[str, str] = {}
    ask_directly(plain)
    assert plain == {}
    behind = {"HTTP_PROXY": "http://proxy.example", "NO_PROXY": "a.example"}
    ask_directly(behind)
    assert behind["NO_PROXY"] == "a.example,127.0.0.1" and behind["no_proxy"] == "127.0.0.1"
