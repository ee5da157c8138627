"""Generated files of every layout: installing hooks and taking them out are exact inverses, to the byte."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from harness.jsonc_texts import written
from subluminal.clients.hooks import editing
from subluminal.clients.hooks.groups import Known, fault
from subluminal.clients.hooks.wanted import EVENTS
from subluminal.contracts.errors import ClientConfigError

WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)
HANDLERS = st.fixed_dictionaries({"type": st.just("command"), "command": WORDS}, optional={"timeout": st.just(5)})
GROUPS = st.fixed_dictionaries({"hooks": st.lists(HANDLERS, max_size=2)}, optional={"matcher": WORDS})
NAMES = st.sampled_from([*(wanted.event for wanted in EVENTS["claude"]), "Notification"])
FILES = st.fixed_dictionaries(
    {}, optional={"hooks": st.dictionaries(NAMES, st.lists(GROUPS, max_size=2), max_size=3), "other": WORDS}
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(written(FILES))
def test_json(case: tuple[str, Any]) -> None:
    text, _ = case
    known = Known("claude", [])
    installed, reports, keys = editing.install(text, "jsonc", "claude", known)
    assert {report.status for report in reports} == {"added"}
    assert len(known.ours(editing.read(installed, "jsonc"))) == len(EVENTS["claude"])
    again, reports, _ = editing.install(installed, "jsonc", "claude", known)
    assert (again, {report.status for report in reports}) == (installed, {"already"})
    assert editing.uninstall(installed, "jsonc", known, keys) == text


LINES = st.lists(
    st.sampled_from(
        [
            "",
            "# a note",
            "[a]",
            "b = 1",
            "[[hooks.Stop]]",
            'hooks = [{ type = "command", command = "x" }]',
            "[hooks.state]",
        ]
    ),
    max_size=8,
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.sampled_from(["", "\ufeff"]))
def test_toml(lines: list[str], newline: str, is_ended: bool, mark: str) -> None:
    text = mark + newline.join(lines) + (newline if is_ended else "")
    try:
        assume(fault(editing.read(text, "toml"), "codex") is None)
    except ClientConfigError:
        reject()  # a table that is there twice
    known = Known("codex", [])
    installed, _, keys = editing.install(text, "toml", "codex", known)
    assert len(known.ours(editing.read(installed, "toml"))) == len(EVENTS["codex"])
    assert editing.uninstall(installed, "toml", known, keys) == text
