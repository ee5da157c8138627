"""config.toml: defaults, order, clear refusals, and a project that can only tighten."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from subluminal.contracts.errors import ConfigError
from subluminal.host.config import Config, idle_exit_s, load_config


def load(tmp_path: Path, text: str | None = None, project: str | None = None, **environ: str) -> Config:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    if text is not None:
        (home / "config.toml").write_text(text)
        (home / "config.toml").chmod(0o600)
    work = tmp_path / "repo" / "deep"
    work.mkdir(parents=True, exist_ok=True)
    (tmp_path / "repo" / ".git").mkdir(exist_ok=True)
    if project is not None:
        (tmp_path / "repo" / ".subluminal").mkdir(exist_ok=True)
        (tmp_path / "repo" / ".subluminal" / "config.toml").write_text(project)
    return load_config({"SUB_HOME": str(home), **environ}, str(work))


def test_without_a_file_the_contract_s_defaults_hold(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert (config.max_inspect_bytes, config.max_preview_bytes) == (1_048_576, 16_384)
    assert config.max_message_bytes == 256 * 1024 * 1024
    server = config.server("any")
    assert (server.audit, server.refusal_style, server.timeout_ms) == ("after", "error", None)
    assert (server.secret_bindings, server.env_allowlist) == ([], None)


def test_without_a_file_nothing_heavy_is_imported(tmp_path: Path) -> None:
    program = (
        "import sys, os; sys.path.insert(0, 'src')\n"
        "from subluminal.host.config import load_config\n"
        "from subluminal.host.secrets.bindings import spawn_environ\n"
        "config = load_config(os.environ)\n"
        "spawn_environ(os.environ, config.server('x'), config.other_bindings('x'))\n"
        "loaded = {'tomllib', 're', 'json', 're2', 'typing', 'difflib', 'keyring', 'msgspec'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    environ = {"SUB_HOME": str(tmp_path), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    subprocess.run([sys.executable, "-S", "-c", program], check=True, env=environ)


def test_a_server_s_own_settings_win_over_the_general_ones(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
        [shim]
        timeout_ms = 5000
        refusal_style = "result"
        [ledger]
        idle_exit_s = 1.5
        [servers.github]
        timeout_ms = 100
        audit = "before"
        env_allowlist = ["GH_*"]
        [[servers.github.secret_bindings]]
        inject_as = "GITHUB_TOKEN"
        secret_ref = "github_token"
        source = "keychain"
        required = false
        """,
    )
    assert idle_exit_s({"SUB_HOME": str(tmp_path / "home")}) == 1.5
    github, other = config.server("github"), config.server("other")
    assert (github.timeout_ms, github.audit, github.refusal_style) == (100, "before", "result")
    assert (other.timeout_ms, other.audit, other.refusal_style) == (5000, "after", "result")
    (binding,) = github.secret_bindings
    assert (binding.inject_as, binding.secret_ref, binding.source) == ("GITHUB_TOKEN", "github_token", "keychain")
    assert (binding.redact, binding.required) == (True, False)
    assert config.other_bindings("other") == [binding]
    assert config.other_bindings("github") == []


def test_results_are_kept_where_somebody_asked_for_it(tmp_path: Path) -> None:
    assert not load(tmp_path).keeps_results() and not load(tmp_path).keeps_results("any")
    one = load(tmp_path, '[servers.github]\nrecord.results = "all"\n')
    assert (one.keeps_results(), one.keeps_results("github"), one.keeps_results("fs")) == (True, True, False)
    text = '[record]\nresults = "all"\nmax_result_bytes = 9\n[servers.github.record]\nresults = "off"\n'
    most = load(tmp_path, text)
    assert (most.keeps_results("github"), most.keeps_results("fs"), most.max_result_bytes) == (False, True, 9)
    assert not load(tmp_path, text, SUB_RECORD_RESULTS="off").keeps_results()
    assert load(tmp_path, text, SUB_RECORD_RESULTS="all").keeps_results("github")


def test_a_project_may_turn_results_off_but_not_on(tmp_path: Path) -> None:
    text = '[record]\nresults = "all"\n[servers.github]\nrecord.results = "all"\n'
    off = load(tmp_path, text, project='[record]\nresults = "off"\n')
    assert (off.keeps_results(), off.keeps_results("github"), off.warnings) == (False, False, [])
    on = load(tmp_path, "", project='[record]\nresults = "all"\nmax_result_bytes = 5\n')
    assert not on.keeps_results() and on.max_result_bytes == 1_048_576
    assert "only make settings stricter; left out: max_result_bytes, results" in on.warnings[0]


def test_shims_and_ledgerd_judge_the_ledger_s_table_alike(tmp_path: Path) -> None:
    for text in ("[ledger]\nidle_exit_s = 0", "[ledger]\nidle_exit_s = 'soon'", "[ledger]\nidle = 3", "ledger = 3"):
        with pytest.raises(ConfigError) as shim:
            load(tmp_path, text)
        with pytest.raises(ConfigError) as daemon:
            idle_exit_s({"SUB_HOME": str(tmp_path / "home")})
        assert (str(shim.value), shim.value.hint) == (str(daemon.value), daemon.value.hint)


def test_a_fault_in_another_table_does_not_keep_ledgerd_from_the_record(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[shim]\nnonsense = 1\n[ledger]\nidle_exit_s = 7\n")
    assert idle_exit_s({"SUB_HOME": str(tmp_path)}) == 7.0
    assert idle_exit_s({"SUB_HOME": str(tmp_path), "SUB_LEDGER_IDLE_S": "0.5"}) == 0.5
    with pytest.raises(ConfigError, match="SUB_LEDGER_IDLE_S must be a number of seconds above 0, not 'soon'"):
        idle_exit_s({"SUB_HOME": str(tmp_path), "SUB_LEDGER_IDLE_S": "soon"})


def test_the_environment_wins_over_files(tmp_path: Path) -> None:
    text = '[shim]\ntimeout_ms = 5000\n[servers.a]\ntimeout_ms = 7\n[servers.b]\naudit = "before"\n'
    config = load(tmp_path, text, SUB_TIMEOUT_MS="9", SUB_MAX_PREVIEW_BYTES="100")
    assert config.server("a").timeout_ms == 9
    assert config.server("b").audit == "before"
    assert config.max_preview_bytes == 100


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("[shim", "not valid TOML", None),
        ("[shimm]", "unknown key 'shimm'", "Did you mean 'shim'"),
        ("[shim]\nmax_previw_bytes = 1", "unknown key 'max_previw_bytes'", "max_preview_bytes"),
        ("[shim]\nmax_preview_bytes = -1", "whole number from 0", None),
        ("[shim]\nmax_preview_bytes = true", "whole number", None),
        ('[shim]\naudit = "never"', "'after' or 'before'", None),
        ("shim = 3", "must be a table", None),
        ("[servers]\ngithub = 3", "must be a table", None),
        ("[servers.github]\nsecret_binding = []", "unknown key 'secret_binding'", "secret_bindings"),
        ("[servers.github]\nsecret_bindings = 3", "must be a list", "inject_as"),
        ("[servers.github]\nsecret_bindings = [{inject_as='A'}]", "needs secret_ref", "secret_ref"),
        ("[servers.g]\nsecret_bindings = [{inject_as='A=B', secret_ref='x'}]", "not a name of an environment", None),
        ("[servers.g]\nsecret_bindings = [{inject_as='A', secret_ref='../x'}]", "not usable", "letters"),
        (
            "[servers.g]\nsecret_bindings = [{inject_as='A', secret_ref='x', source='vault'}]",
            "'vault' is unknown",
            "env",
        ),
        ("[servers.g]\nsecret_bindings = [{inject_as='A', secret_ref='x', redakt=true}]", "unknown key", "redact"),
        (
            "[servers.g]\nsecret_bindings = [{inject_as='A', secret_ref='x'}, {inject_as='A', secret_ref='y'}]",
            "two",
            None,
        ),
        ("[servers.g]\nenv_allowlist = 'PATH'", "list of names", None),
        ('[record]\nresults = "some"', "'off' or 'all'", None),
        ("[record]\nresult = 1", "unknown key 'result'", "results"),
        ("[servers.g]\nrecord = 1", "record must be a table with `results`", "all"),
        ("[servers.g]\nrecord.max_result_bytes = 1", "record must be a table with `results`", "all"),
        ("ledger = 3", "[ledger] must be a table", None),
        ("[ledger]\nidle_exit_s = 0", "number of seconds above 0", None),
        ("[ledger]\nidle_exit_s = true", "number of seconds above 0", None),
        ("[ledger]\nidle_exit = 3", "[ledger] has an unknown key 'idle_exit'", "idle_exit_s"),
        ("[redaction]\npatterns = [{name='x', regex='('}]", "not a valid regular expression", "RE2"),
        ("[redaction]\npatterns = [{name='x'}]", "needs name and regex", "regex"),
        ("[redaction]\npattern = []", "unknown key 'pattern'", "patterns"),
    ],
)
def test_a_mistake_is_refused_with_a_sentence(tmp_path: Path, text: str, says: str, hint: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert says in str(caught.value)
    if hint:
        assert hint in (caught.value.hint or "")


def test_a_mistake_in_the_environment_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="SUB_TIMEOUT_MS"):
        load(tmp_path, SUB_TIMEOUT_MS="soon")
    with pytest.raises(ConfigError, match="SUB_SECRET_BINDINGS is not JSON"):
        load(tmp_path, SUB_SECRET_BINDINGS="{").server("x")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config({"SUB_HOME": str(tmp_path)}, str(tmp_path))


def test_a_project_can_tighten(tmp_path: Path) -> None:
    project = """
        [shim]
        audit = "before"
        max_preview_bytes = 10
        timeout_ms = 100
        [redaction]
        patterns = [{ name = "badge", regex = "EMP-[0-9]+" }]
    """
    config = load(tmp_path, "[servers.a]\naudit = 'after'\n", project)
    assert (config.audit, config.max_preview_bytes, config.timeout_ms) == ("before", 10, 100)
    assert config.patterns == [("badge", "EMP-[0-9]+")]
    assert config.server("a").audit == "before"
    assert config.warnings == []


def test_a_hostile_project_cannot_loosen_or_claim_secrets(tmp_path: Path) -> None:
    project = """
        [shim]
        max_preview_bytes = 1000000
        max_message_bytes = 65536
        refusal_style = "result"
        nonsense = 1
        [servers.evil]
        secret_bindings = [{ inject_as = "T", secret_ref = "github_token", source = "keychain" }]
        env_allowlist = ["*"]
    """
    config = load(tmp_path, None, project)
    assert config.max_preview_bytes == 16_384
    assert config.max_message_bytes == 256 * 1024 * 1024
    assert config.refusal_style == "error"
    assert config.server("evil").secret_bindings == []
    assert config.server("evil").env_allowlist is None
    assert any("stricter" in warning and "[servers]" in warning for warning in config.warnings)


@pytest.mark.parametrize(
    "project", ["[shim", "redaction = 3", "shim = 3", "[redaction]\npatterns = [{name='x', regex='('}]"]
)
def test_a_broken_project_file_never_stops_a_tool(tmp_path: Path, project: str) -> None:
    config = load(tmp_path, None, project)
    assert config.patterns == []
    assert config.audit == "after"


def test_the_search_for_a_project_ends_at_the_repository_root(tmp_path: Path) -> None:
    (tmp_path / ".subluminal").mkdir()
    (tmp_path / ".subluminal" / "config.toml").write_text('[shim]\naudit = "before"\n')
    assert load(tmp_path).audit == "after"


def test_a_config_that_others_can_change_is_warned_about(tmp_path: Path) -> None:
    load(tmp_path, "")
    (tmp_path / "home" / "config.toml").chmod(0o666)
    assert any("chmod 600" in warning for warning in load(tmp_path).warnings)


def test_a_fifo_or_a_huge_file_in_a_repository_never_holds_up_a_tool(tmp_path: Path) -> None:
    load(tmp_path, project="")
    place = tmp_path / "repo" / ".subluminal" / "config.toml"
    place.unlink()
    os.mkfifo(place)
    assert load(tmp_path).server("any").audit == "after"
    place.unlink()
    with place.open("wb") as file:
        file.truncate(1 << 40)
    assert load(tmp_path).server("any").audit == "after"


def test_a_fifo_in_the_place_of_one_s_own_settings_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    os.mkfifo(tmp_path / "home" / "config.toml", 0o600)
    with pytest.raises(ConfigError, match="is not a regular file"):
        load(tmp_path)
