"""The TOML reader: spans, errors with their line, and files made to break it."""

from __future__ import annotations

import pytest

from harness.effort import growth
from subluminal.clients import toml_spans
from subluminal.clients.spans import SyntaxProblem, plain


def test_spans_cover_exactly_the_values() -> None:
    text = 'a = "x" # c\nb.c = [1, \'y\']\n[t]\nd = { e = """z""", f = 1979-05-27 07:32:00 }\n'
    root = toml_spans.read(text)
    a, b, t = root.get("a"), root.get("b"), root.get("t")
    assert a and b and t
    c, d = b.get("c"), t.get("d")
    assert c and d
    found = [text[node.start : node.end] for node in (a, c, *c.items, d, *(m.node for m in d.members))]
    table = '{ e = """z""", f = 1979-05-27 07:32:00 }'
    assert found == ['"x"', "[1, 'y']", "1", "'y'", table, '"""z"""', "1979-05-27 07:32:00"]


@pytest.mark.parametrize(
    "text",
    [
        'a = """"quoted" at both ends""""\n',
        "a = '''''two'''''\n",
        'a = """\\\n  folded \\"" """\n',
        'a = "# no comment" # comment\n',
        "a = [ # [\n  1, # ]\n]\n",
        '"a.b".c = 1\n["a.b".d]\ne = 2\n',
        "[[x]]\na = 1\n[x.y]\nb = 2\n[[x]]\n[x.y]\nb = 3\n",
        "a = [[], [{}], [{b = [1]}]]\n",
    ],
)
def test_awkward_but_valid_files_are_read_as_the_standard_library_reads_them(text: str) -> None:
    assert toml_spans.read(text).members


@pytest.mark.parametrize(
    "text",
    [
        "[" + ".".join("a" * 5000) + "]\n",
        ".".join("a" * 5000) + " = 1\n",
        "a = " + "[" * 5000 + "]" * 5000,
        "a = " + "{b." * 150 + "c = 1" + "}" * 150,
        "[" + ".".join("a" * 150) + "]\nx = {" + ".".join("b" * 150) + " = 1}\n",
    ],
    ids=["header", "dotted key", "arrays", "inline tables", "header and key"],
)
def test_files_nested_to_exhaust_the_stack_are_refused(text: str) -> None:
    with pytest.raises(SyntaxProblem, match=r"nested|line 1"):
        toml_spans.read(text)


def test_nesting_that_is_merely_unusual_is_read() -> None:
    text = "[" + ".".join("a" * 100) + "]\nb = " + "[" * 90 + "]" * 90 + "\n"
    assert plain(toml_spans.read(text), text)


def test_reading_time_grows_with_the_file_and_not_with_its_square() -> None:
    def read(tables: int) -> None:
        toml_spans.read("".join(f"[x.t{i}]\na = 1\n" for i in range(tables)))

    assert growth(read, 1500, 12_000, limit=4) < 4
