"""What an argument may be: by distinct runs, never by calls, and no wider than the evidence."""

from __future__ import annotations

import re
from typing import Any

import pytest

from subluminal.control.suggest.evidence import Values
from subluminal.control.suggest.limits import hosts, numbers, paths, programs, statements, texts
from subluminal.control.suggest.tokens import HOME, WORKSPACE


def seen(*runs: Any) -> Values:
    """The values of one argument: each item is what one run used, a value or a list of them."""
    values = Values()
    for number, used in enumerate(runs):
        for value in used if isinstance(used, list) else [used]:
            values.add(value, number)
    return values


def entries(values: Values, level: int = 0) -> Any:
    limit = paths.fit(values, level)
    return None if limit is None else limit.predicates[0][1]


def test_a_value_that_two_runs_used_is_not_learned_however_often() -> None:
    limit = texts.fit(seen(*["open"] * 20, *["closed"] * 20, ["drop"] * 50, ["drop"] * 50), 0)
    assert limit is not None and limit.predicates == [("key_in", ["closed", "open"])]


def test_two_values_never_become_any_value() -> None:
    limit = texts.fit(seen(*["a"] * 5, *["b"] * 5), 0)
    assert limit is not None and limit.predicates == [("key_in", ["a", "b"])]


def test_tickets_are_known_by_how_they_begin() -> None:
    limit = texts.fit(seen(*[f"WEB-{n}" for n in range(100, 160)], *[f"OPS-{n}" for n in range(40)]), 0)
    assert limit is not None
    ((name, (regex,)),) = limit.predicates
    assert name == "key_regex" and re.search(regex, "WEB-7") and re.search(regex, "OPS-7")
    for other in ("HR-7", "WEB-7; rm -rf /", "WEB-7x", "xWEB-7", "WEB-7\n"):
        assert not re.fullmatch(regex.removesuffix("$") + r"\Z", other), other


def test_two_runs_do_not_widen_a_shape() -> None:
    names = [f"{a}{n}" for n in range(10) for a in "abcdefghijklmnopqrstuvwxyz"]
    limit = texts.fit(seen(*names, "x; rm -rf /", "$(curl evil)"), 0)
    assert limit is not None and limit.predicates == [("key_regex", ["^[A-Za-z0-9_-]+$"])]


def test_addresses_are_learned_by_their_domain_and_no_name_is_copied() -> None:
    limit = texts.fit(seen(*[f"person{n}@acme.example" for n in range(9)], "thief@evil.invalid"), 0)
    assert limit is not None
    ((_, (regex,)),) = limit.predicates
    assert re.search(regex, "anyone@ACME.example") and not re.search(regex, "a@evil.invalid")
    assert not re.search(regex, "a@acme.example, b@evil.invalid") and "person" not in str(limit)


def test_statements_are_made_of_known_words_only() -> None:
    used = [f"SELECT id, total FROM orders WHERE total > {n} AND name = 'x y'" for n in range(8)]
    limit = statements.fit(seen(*used).texts, 0)
    assert limit is not None
    ((_, (regex,)),) = limit.predicates
    assert re.search(regex, "select total from orders where id = 3 and name = 'whoever it is'")
    for other in (
        "SELECT id FROM orders, salaries",
        "SELECT id FROM orders; DROP TABLE orders",
        "SELECT id FROM orders -- x",
        "SELECT id FROM orders UNION SELECT total FROM users",
        'SELECT id FROM "salaries"',
        "DELETE FROM orders",
    ):
        assert not re.search(regex, other), other


def test_a_directory_needs_three_children_and_has_a_floor() -> None:
    two = seen(*[f"/srv/reports/{name}.csv" for name in ("a", "b") for _ in range(4)])
    assert entries(two) == ["/srv/reports/a.csv", "/srv/reports/b.csv"]
    three = seen(*[f"/srv/reports/{name}.csv" for name in ("a", "b", "c") for _ in range(4)])
    assert entries(three) == ["/srv/reports"]
    high = seen(*[f"/{name}.conf" for name in ("a", "b", "c") for _ in range(4)])
    assert entries(high) == ["/a.conf", "/b.conf", "/c.conf"]


def test_home_itself_is_never_an_entry() -> None:
    used = seen(*[f"{HOME}/{name}/x.md" for name in ("notes", "work", "music", "papers") for _ in range(5)])
    assert entries(used) == [f"~/{name}/x.md" for name in ("music", "notes", "papers", "work")]
    assert all(entry not in ("~", "/", "/home") for entry in entries(used, 1))


def test_two_runs_do_not_make_a_directory_of_a_file() -> None:
    attack = [f"/srv/data/{n}" for n in range(50)]
    assert entries(seen(*["/srv/data/a.csv"] * 30, attack, attack)) == ["/srv/data/a.csv"]
    assert entries(seen(*["/srv/data/a.csv"] * 30, attack[:25], attack[25:])) == ["/srv/data/a.csv"]


def test_the_project_is_one_place_in_every_project() -> None:
    used = seen(*[f"{WORKSPACE}/{place}/f{n}.py" for place in ("src", "tests", "docs") for n in range(4)])
    assert entries(used) == ["."]
    assert entries(seen(*["src/a.py"] * 3, *["src/b.py"] * 3, *["src/c.py"] * 3)) == ["src"]


def test_hosts_are_exact_and_never_of_two_runs() -> None:
    used = ["https://a.example.com/x", "https://b.example.com/", "https://c.example.com/", "https://docs.rs/a"]
    limit = hosts.fit(seen(*used * 3, "https://evil.invalid/", "https://evil.invalid/"), 0)
    assert limit is not None
    assert limit.predicates == [("host_in", ["a.example.com", "b.example.com", "c.example.com", "docs.rs"])]
    wide = hosts.fit(seen(*used * 3), 1)
    assert wide is not None and "*.example.com" in wide.predicates[0][1] and "*.rs" not in wide.predicates[0][1]


@pytest.mark.parametrize(
    ("text", "admitted"),
    [
        ("see https://docs.rs/a and https://docs.rs:443/b", True),
        ("no address: at all", True),
        ("https://docs.rs.evil.invalid/", False),
        ("https://docs.rs@evil.invalid/", False),
        ("https://docs.rs:1@evil.invalid/", False),
        ("https://docs.rs/ https://evil.invalid/", False),
        ("::://evil.invalid", False),
        (":/:// evil", False),
    ],
)
def test_texts_have_urls_of_known_hosts_only(text: str, admitted: bool) -> None:
    assert bool(re.search(hosts.only_these(["docs.rs"]), text)) is admitted


def test_numbers_reach_what_three_runs_reached() -> None:
    limit = numbers.fit(seen(*[10, 20, 50] * 5, 10**9, 10**9), 0)
    assert limit is not None and limit.predicates == [("numeric_range", {"min": 0, "max": 50})]
    many = numbers.fit(seen(*range(1, 100)), 0)
    assert many is not None and many.predicates[0][1]["max"] == 200
    assert numbers.fit(seen(1, 2), 0) is None


def test_programs_are_those_of_lines_that_are_certain() -> None:
    limit = programs.fit(seen(*["git status && ls | head"] * 3, *["$CMD x"] * 5, *["curl x"] * 2), 0)
    assert limit is not None and limit.predicates == [("command", {"programs": ["git", "head", "ls"]})]


def test_what_looks_like_a_secret_is_in_no_set() -> None:
    key = "ghp_" + "a1B2" * 9
    limit = texts.fit(seen(*[key] * 9, *["plain"] * 9), 0)
    assert limit is not None and key not in str(limit)
