"""What was confirmed is compared word for word, together with what gives the words their meaning."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from subluminal.contracts.errors import ConfigError
from subluminal.host.config import load_config
from subluminal.host.secrets.confirmation import Started

WORDS = st.lists(
    st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), min_size=1), min_size=1
)


def started(command: list[str], cwd: Path | str = "/nowhere", **environ: str) -> Started:
    return Started(command, {"PATH": "/bin", **environ}, str(cwd))


@given(WORDS, WORDS)
def test_only_the_confirmed_words_pass(confirmed: list[str], other: list[str]) -> None:
    record = started(confirmed).record()
    assert started(confirmed).fault([record]) is None
    assume(confirmed != other and started(other).command != started(confirmed).command)
    assert started(other).fault([record]) is not None


@given(st.sampled_from(["NODE_OPTIONS", "LD_PRELOAD", "A_URL", "https_proxy", "BASH_ENV"]), st.text(), st.text())
def test_a_variable_that_steers_passes_with_the_value_it_was_confirmed_with(name: str, value: str, other: str) -> None:
    record = started(["x"], **{name: value}).record()
    assert started(["x"], **{name: value}).fault([record]) is None
    assert started(["x"]).fault([record]) is None
    assume(value != other)
    assert name in (started(["x"], **{name: other}).fault([record]) or "")
    if len(value) > 3:
        assert value not in str(record["env"]), "an address may hold a password"


def test_nothing_confirmed_means_nothing_given() -> None:
    assert started(["x"]).fault([]) == "no command line was confirmed for it"


@pytest.mark.parametrize(
    "text", ["1", "['x']", "[{}]", "[{command='x'}]", "[{command=[]}]", "[{command=[1]}]", "[{command=['x'],env=1}]",
             "[{command=['x'],directory=1}]", "[{command=['x'],argv=[]}]"],
)  # fmt: skip
def test_a_confirmation_that_cannot_be_understood_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(f"[servers.a]\nconfirmed = {text}\n")
    with pytest.raises(ConfigError, match="confirmed"):
        load_config({"SUB_HOME": str(tmp_path)}, str(tmp_path))
