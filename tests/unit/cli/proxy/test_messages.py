"""`sub proxy messages` as a user types it: what is wrong is said before anything listens."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.command_line import run_sub
from harness.model_client import messages_proxy
from harness.model_server import scripted_model

HERE = ("--upstream", "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--upstream"),
        ((*HERE, "--upstream-env", "X"), "or with --upstream-env"),
        (("--upstream-env", "NOT_SET_AT_ALL"), "the address in NOT_SET_AT_ALL: it is not understood"),
        (("--upstream", "nonsense"), "--upstream: it is not understood"),
        (("--upstream", "http://127.0.0.1:1/v1?key=1"), "has a query"),
        ((*HERE, "--listen", "here"), "--listen here: write it as HOST:PORT"),
        ((*HERE, "--listen", "0.0.0.0:0"), "--token-env VARIABLE"),
        ((*HERE, "--header-env", "nonsense"), "write it as NAME=VARIABLE"),
        ((*HERE, "--token-env", "NOT_SET"), "NOT_SET does not hold a token"),
        ((*HERE, "--server-name", ""), "--server-name"),
    ],
)
def test_what_is_wrong_is_a_sentence(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    done = run_sub(tmp_path, "proxy", "messages", *words)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_secret_of_the_configuration_is_the_providers_key(tmp_path: Path) -> None:
    home = tmp_path / "sub"
    home.mkdir(mode=0o700)
    config = home / "config.toml"
    config.write_text(
        '[[servers.model.secret_bindings]]\nsecret_ref = "REAL_KEY"\nsource = "env"\ninject_as = "header:x-api-key"\n'
    )
    config.chmod(0o600)
    with scripted_model() as model:
        run_sub(home, "secrets", "confirm", "model", "--url", model.url, REAL_KEY="sk-real-key-0123456789")
        with messages_proxy(tmp_path, upstream=model.url, env={"REAL_KEY": "sk-real-key-0123456789"}) as door:
            answer = door.post({"model": "m", "max_tokens": 9, "messages": []}, x_api_key="dummy")
            assert answer.status == 200
            assert model.heard[0].headers["x-api-key"] == "sk-real-key-0123456789"
    (noted,) = door.events.events_of("secret_injection")
    assert noted["secret"]["success"] is True
    assert "sk-real-key" not in Path(door.events.path).read_text()
