"""Which paths are of which operation, and whether a path has one reading."""

from __future__ import annotations

import pytest

from subluminal.adapters.http_api.paths import Path
from subluminal.adapters.http_api.queries import read_query
from subluminal.adapters.http_api.templates import BadTemplate, read_template

ISSUE = "/repos/{owner}/issues/{number:int}"


@pytest.mark.parametrize(
    ("template", "path", "found"),
    [
        (ISSUE, "/repos/ada/issues/7", {"owner": "ada", "number": 7}),
        (ISSUE, "/repos/a%20b/issues/0", {"owner": "a b", "number": 0}),
        (ISSUE, "/repos/%C3%A9%2B+/issues/1", {"owner": "é++", "number": 1}),
        (ISSUE, "/repos/ada/issues/seven", None),
        (ISSUE, "/repos/ada/issues/07", None),
        (ISSUE, "/repos/ada/issues/7/", None),
        (ISSUE, "/REPOS/ada/issues/7", None),
        (ISSUE, "/%72epos/ada/issues/7", None),
        (ISSUE, "/repos/ada/issues", None),
        ("/", "/", {}),
        ("/items/", "/items/", {}),
        ("/items/", "/items", None),
        ("/f/{path...}", "/f/a/b%20c", {"path": "a/b c"}),
        ("/f/{path...}", "/f/a", {"path": "a"}),
        ("/f/{path...}", "/f", None),
        ("/a.b~c/x:run", "/a.b~c/x:run", {}),
    ],
)
def test_a_path_is_of_a_template_exactly_as_it_is_spelled(
    template: str, path: str, found: dict[str, object] | None
) -> None:
    read = Path(path)
    assert read.doubt is None
    assert read_template(template).match(read) == found


@pytest.mark.parametrize(
    "segment",
    [
        "a%2Fb", "a%2fb", "a%5Cb", "a\\b", "a%00", "a%0a", "%2e", "%2E%2e", ".", "..", "a%2541", "a%25", "", "a;x=1",
        "a%3Bx",
        "%ff", "%c0%af", "a.", "a%20", "%20a", "a%", "a%4", "a%zz", "a{b", 'a"', "a|b", "a^b", "[a]", "a%7F",
        "%E2%80%A8", "a%3Fb", "a%23b",
    ],
)  # fmt: skip
def test_a_segment_that_servers_read_in_two_ways_is_in_doubt(segment: str) -> None:
    assert Path(f"/repos/{segment}/issues").doubt is not None


@pytest.mark.parametrize("segment", ["a", "a.b", "...a", "a+b", "a%20b", "%41", "%C3%A9", "~a-_!$&'()*,=:@"])
def test_a_segment_with_one_reading_is_not(segment: str) -> None:
    assert Path(f"/repos/{segment}/issues").doubt is None


@pytest.mark.parametrize(
    "path",
    [
        "/REPOS/ada/Issues/7", "/repos/ada/issues/7/", "/repos//ada/issues/7", "/%72epos/ada/issues/7",
        "/x/../repos/ada/issues/7", "/x/%2e%2e/repos/ada/issues/7", "/repos%2Fada%2Fissues%2F7",
        "/repos%252Fada/issues/7",
        "/repos\\ada\\issues\\7", "/repos;v=1/ada/issues/7", "/repos/ada/issues/007", "/repos/ada/issues/+7",
        "/repos/ada/issues/7abc", "/repos./ada/issues/7", "//repos/ada/issues/7", "/repos/ada/issues/%207",
    ],
)  # fmt: skip
def test_what_a_generous_server_could_find_is_nearly_it(path: str) -> None:
    template = read_template(ISSUE)
    read = Path(path)
    assert read.doubt is not None or template.match(read) is None
    assert template.nearly(read.generously())


@pytest.mark.parametrize("path", ["/repos/ada/issues", "/other/ada/issues/7", "/repos/ada/issues/x", "/../../.."])
def test_what_is_another_path_is_not(path: str) -> None:
    assert not read_template(ISSUE).nearly(Path(path).generously())


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("/a/{x}", "/a/{y}", True),
        ("/a/{x}", "/a/b", True),
        ("/a/{x:int}", "/a/b", False),
        ("/a/{x:int}", "/a/7", True),
        ("/a/{x:int}", "/a/{y}", True),
        ("/{x}/b", "/a/{y}", True),
        ("/{x}/b", "/{y}/c", False),
        ("/a", "/A", True),
        ("/a", "/a/", True),
        ("/a/b", "/a", False),
        ("/a/{x...}", "/a/b/c/d", True),
        ("/a/{x...}", "/a", False),
        ("/a/{x...}", "/b/{y...}", False),
        ("/a/{x...}", "/{y}/b/{z...}", True),
        ("/i/{n:int}/comments", "/i/comments/{n:int}", False),
    ],
)
def test_two_templates_meet_where_one_path_is_of_both(one: str, other: str, meet: bool) -> None:
    assert read_template(one).meets(read_template(other)) is meet
    assert read_template(other).meets(read_template(one)) is meet


@pytest.mark.parametrize(
    "text",
    ["repos", "/a//b", "/a/{x}.json", "/{x}/{x}", "/{x...}/a", "/{x...}/", "/a b", "/a%20b", "/..", "/a?b=c", "/{}",
     "/{1x}", "/{x:float}", "/a;b", "/a.", "/" + "/".join("a" * 40)],
)  # fmt: skip
def test_a_template_that_cannot_be_meant_says_what_to_write(text: str) -> None:
    with pytest.raises(BadTemplate) as caught:
        read_template(text)
    assert str(caught.value) and caught.value.fix


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", {}),
        ("a=1&b=2", {"a": "1", "b": "2"}),
        ("a=x+y%20z%2B", {"a": "x y z+"}),
        ("a=", {"a": ""}),
        ("a=b=c", {"a": "b=c"}),
        ("a=%C3%A9&b=[1]{2}", {"a": "é", "b": "[1]{2}"}),
        ("a=100%25", {"a": "100%"}),
    ],
)
def test_a_query_is_texts_by_name(query: str, found: dict[str, str]) -> None:
    assert read_query(query, None, ()) == (found, None)


@pytest.mark.parametrize(
    "query",
    [
        "a=1&a=2", "a=1&A=2", "a.b=1&a_b=2", "a[]=1", "a[0]=1", "%61=1", "a%5B%5D=1", "a", "=1", "a=1&&b=2", "a=1&",
        "&a=1",
        "a=1;b=2", "a=%ff", "a=%zz", "a=%", "a=%2541", "a=%00", "owner=x", "Owner=x", "_method=DELETE",
        "_METHOD=DELETE", "+a=1",
    ],
)  # fmt: skip
def test_a_query_that_servers_read_in_two_ways_is_in_doubt(query: str) -> None:
    assert read_query(query, None, ("owner",))[1] is not None


def test_a_query_has_only_the_names_of_the_mapping_where_it_names_some() -> None:
    assert read_query("page=1", {"page"}, ()) == ({"page": "1"}, None)
    assert read_query("page=1&force=true", {"page"}, ())[1] is not None
    assert read_query("page=1", frozenset(), ())[1] is not None
