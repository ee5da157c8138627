"""`args.path_within`: the directions, the entries, and what cannot be judged."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.effort import calls_made
from subluminal.core.engine.faults import Unavailable
from subluminal.core.engine.paths import MAX_CHARS, PathWithin, entry_fault, shortened
from subluminal.core.engine.spellings import MAX_SPELLINGS, percent_decoded, spellings
from subluminal.host.places import ThisMachine


class Here:
    """A directory `repo` with a home beside it."""

    def __init__(self, base: Path) -> None:
        self.base = base.resolve()
        self.repo = self.base / "repo"
        (self.repo / "sub").mkdir(parents=True)
        (self.repo / ".git").mkdir()
        (self.base / "home").mkdir()
        (self.base / "outside").mkdir()
        self.places = ThisMachine({"HOME": str(self.base / "home"), "OUT": str(self.base / "outside")}, str(self.repo))

    def allow(self, *entries: str) -> Any:
        return self._fresh(PathWithin(list(entries), False, self.places))

    def deny(self, *entries: str) -> Any:
        return self._fresh(PathWithin(list(entries), True, self.places))

    def _fresh(self, predicate: PathWithin) -> Any:
        def ask(value: Any) -> bool:
            self.places.seen.clear()
            return predicate(value)

        return ask


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def test_relative_entries_start_at_the_root_and_tilde_is_the_home(here: Here) -> None:
    assert here.allow("sub")("sub/x") and not here.allow("sub")("x")
    assert here.allow(".")(str(here.repo)) and here.allow("./")("x") and here.allow("./sub/..")("x")
    assert here.allow("~")(f"{here.base}/home/x") and not here.allow("~/work")(f"{here.base}/home/x")
    assert here.allow("/")("/etc/passwd") and here.allow("..")("x")


def test_a_name_that_only_begins_alike_is_another_directory(here: Here) -> None:
    (here.base / "repository").mkdir()
    assert not here.deny(".")(f"{here.base}/repository/x")
    assert not here.deny("sub")("subway")


def test_a_directory_is_not_within_what_lies_below_it(here: Here) -> None:
    assert not here.deny("sub")(".")


def test_one_link_and_two_dots_are_judged_both_ways(here: Here) -> None:
    (here.repo / "link").symlink_to(here.base / "outside" / "deep")
    (here.base / "outside" / "deep").mkdir()
    assert here.deny("../outside")("link/../x") and here.deny(".")("link/../x")
    assert not here.allow("../outside")("link/../x") and not here.allow(".")("link/../x")
    assert here.allow(".", "../outside")("link/../x")


@pytest.mark.parametrize(
    "value",
    [
        "../outside/x",
        "~/x",
        "$OUT/x",
        "${OUT}/x",
        "$NOT_SET/etc/passwd",
        "${NOT_SET}/etc/passwd",
        '{"path": "/etc/passwd"}',
        ' {"path": "x"}',
        "file:../outside/x",
        "%2e%2e/outside/x",
        "..\\outside\\x",
        " ../outside/x",
        '"../outside/x"',
        "%252e%252e/outside/x",
        "%2e%2e%5coutside",
        "../outside/x\0",
        "x\0",
        "\ud800",
    ],
)
def test_what_any_server_might_open_elsewhere_is_not_let_through(here: Here, value: str) -> None:
    assert here.allow(".")(value) is False


@pytest.mark.parametrize("value", [5, 1.5, True, None])
def test_a_number_is_a_name_to_what_stops_and_nothing_to_what_lets_through(here: Here, value: Any) -> None:
    assert here.deny(".")(value) and not here.allow(".")(value)
    assert not here.deny("/nowhere")(value)


@pytest.mark.parametrize("value", [{}, {"path": "x"}, []])
def test_what_holds_values_is_no_path(here: Here, value: Any) -> None:
    assert not here.deny(".")(value) and not here.allow(".")(value)


def test_an_empty_text_is_the_working_directory(here: Here) -> None:
    assert here.allow(".")("") and here.deny(".")("") and not here.deny("sub")("")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("loop/x", "too many links"),
        ("x" * (MAX_CHARS + 1), "too long"),
        ("/proc/self/cwd/x", "one process"),
        ("%" + "25" * 70 + "2e", "too many ways"),
    ],
)
def test_what_cannot_be_judged_says_why(here: Here, value: str, why: str) -> None:
    (here.repo / "loop").symlink_to("loop")
    for ask in (here.allow("/nowhere") if "ways" not in why else here.deny("/nowhere"), here.deny("/nowhere")):
        with pytest.raises(Unavailable) as raised:
            ask(value)
        assert why in raised.value.why


def test_a_reading_that_leads_nowhere_does_not_hide_the_other(here: Here) -> None:
    """`link/../f` is a loop to who shortens the text, and a file outside to who does not."""
    (here.base / "outside" / "deep").mkdir()
    (here.repo / "link").symlink_to(here.base / "outside" / "deep")
    (here.repo / "f").symlink_to("f")
    assert here.deny("../outside")("link/../f")
    assert here.allow("sub")("link/../f") is False


@pytest.mark.parametrize("path", ["./" * MAX_CHARS, "sub/../" * MAX_CHARS, "/" * MAX_CHARS])
def test_a_path_too_long_to_open_is_stopped_by_what_is_left_when_it_is_shortened(here: Here, path: str) -> None:
    value = (str(here.base) if path[0] == "/" else "..") + "/" + path + "outside/x"
    if path[0] == "s":
        value = path + "../outside/x"
    assert here.deny("../outside")(value)
    with pytest.raises(Unavailable):
        here.allow("/")(value)
    assert here.allow("sub")(value) is False


def test_brackets_that_nest_too_deep_for_json_hide_no_path(here: Here) -> None:
    value = '{"a":' + "[" * 3_000 + "/../../outside/x"
    assert here.deny("../outside")(value)
    assert here.allow("/")(value) is False


def test_an_entry_that_became_a_loop_does_not_hide_one_that_became_a_link(here: Here) -> None:
    ask = here.deny("first", "second")
    (here.repo / "first").symlink_to("first")
    (here.repo / "second").symlink_to(here.base / "outside")
    assert ask(f"{here.base}/outside/x")


def test_readings_and_rules_share_what_was_looked_up(here: Here) -> None:
    """However many directories a server is given, a tree in which they all lie is walked once."""
    deep = "b/" * 400
    (here.repo / deep).mkdir(parents=True)
    starts = [f"{here.repo}/{'b/' * depth}" for depth in range(1, 17)]

    def judged(*words: str) -> int:
        places = ThisMachine({}, str(here.repo), command=["server", *words])
        ask = PathWithin(["/nowhere"], True, places)
        assert len(places.starts) == len(words) + 1
        return calls_made(lambda: ask(deep), of="lstat")

    assert judged(*starts) < 1.1 * judged()


def test_a_file_url_of_another_host_cannot_be_let_through_and_is_stopped_by_its_path(here: Here) -> None:
    url = f"file://host{here.repo}/x"
    with pytest.raises(Unavailable):
        here.allow("/")(url)
    assert here.deny(".")(url) and here.allow("/nowhere")(url) is False


def test_without_places_nothing_can_be_judged() -> None:
    with pytest.raises(Unavailable) as raised:
        PathWithin(["."], True, None)("x")
    assert "where paths lead" in raised.value.why


def test_a_link_made_later_does_not_move_an_allow(here: Here) -> None:
    allow, deny = here.allow("build"), here.deny("build")
    (here.repo / "build").symlink_to(here.base / "outside")
    assert not allow("build/x") and not allow(f"{here.base}/outside/x")
    assert deny("build/x") and deny(f"{here.base}/outside/x"), "a deny follows what did not exist when it was loaded"


def test_an_entry_that_is_a_link_is_what_it_led_to_when_it_was_loaded(here: Here) -> None:
    (here.repo / "data").symlink_to(here.base / "outside")
    allow = here.allow("data")
    assert allow("data/x") and allow(f"{here.base}/outside/x")
    (here.repo / "data").unlink()
    (here.repo / "data").symlink_to("/etc")
    assert not allow("data/x") and allow(f"{here.base}/outside/x")


def test_an_entry_that_cannot_be_followed_leaves_the_others(here: Here) -> None:
    (here.repo / "loop").symlink_to("loop")
    assert here.allow("loop", ".")("x") and here.deny("loop", ".")("x")
    for ask in (here.allow("loop"), here.deny("loop")):
        with pytest.raises(Unavailable):
            ask("x")


class IgnoresCase(ThisMachine):
    """A file system to which `A` and `a` are one name, like that of macOS."""

    def same(self, path: str, other: str) -> bool:
        return path.lower() == other.lower()


def test_where_case_is_ignored_another_case_is_the_same_directory(here: Here) -> None:
    for places, same in ((IgnoresCase({}, str(here.repo)), True), (here.places, False)):
        for generous in (True, False):
            asked = PathWithin(["sub"], generous, places)
            assert asked(f"{here.repo}/SUB/x") is same
            assert asked(f"{str(here.repo).upper()}/Sub") is same
            assert asked(f"{here.repo}/SUBWAY") is False


def test_what_a_value_was_read_as_is_told(here: Here) -> None:
    within = PathWithin(["."], True, here.places)
    assert within.reading("sub/../x") == f"sub/../x is {here.repo}/x"
    assert within.reading("~/x") == f"~/x is {here.repo}/~/x or {here.base}/home/x"
    assert "too long" in within.reading("x" * 5000) and len(within.reading("x" * 5000)) < 300
    assert within.reading("a\x1b\ud800").isprintable()


@pytest.mark.parametrize("entry", [".", "~", "~/work", "/", "../x", "a b", "$x", "é"])
def test_entries_that_are_directories_have_no_fault(entry: str) -> None:
    assert entry_fault(entry) is None


@pytest.mark.parametrize("entry", ["~root/x", "file:///x", "src/*", "a\nb", "x" * 5000])
def test_entries_that_are_none_have_one(entry: str) -> None:
    assert entry_fault(entry)


# -- hostile texts ------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        "..",
        ".",
        "/",
        "//",
        "a",
        "sub",
        "%2e",
        "%2f",
        "%25",
        "\\",
        "~",
        "$OUT",
        "${",
        "}",
        "file:",
        "FILE://",
        "localhost",
        " ",
        "\n",
        '"',
        "\0",
        "é",
        "e\u0301",
        "\ud800",
        "\udcff",
        "?",
        "#",
        ":",
        "%c0",
        "%",
        "<",
        ">",
    ]
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)


@given(TEXTS)
def test_nothing_but_an_answer_or_a_reason_comes_of_a_text(value: str) -> None:
    places = ThisMachine({"HOME": "/home/x", "OUT": "/out"}, "/usr/lib")
    answers = []
    for generous in (True, False):
        within = PathWithin(["/usr", "~"], generous, places)
        try:
            answers.append(within(value))
        except Unavailable as unavailable:
            assert unavailable.why
            answers.append(None)
        assert within.reading(value).isprintable()
    assert answers != [False, True], "what lets through lets through less than what stops stops"


@given(TEXTS)
def test_the_number_of_readings_is_bounded(value: str) -> None:
    found, doubt = spellings(value, {"OUT": "$OUT/$OUT%2f"}.get)
    assert found[0] == value and len(found) == len(set(found))
    assert doubt or len(found) <= MAX_SPELLINGS
    assert len(found) < 2 * MAX_SPELLINGS


@given(st.lists(st.sampled_from(["..", ".", "", "a", "b"]), max_size=10).map("/".join))
def test_a_path_is_shortened_as_python_shortens_it(path: str) -> None:
    assert shortened("/" + path) == "/" + os.path.normpath("/" + path).lstrip("/")


@given(st.text())
def test_percent_signs_are_decoded_as_python_decodes_them(text: str) -> None:
    from urllib.parse import unquote

    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert percent_decoded(text) == unquote(text, errors="surrogateescape")
