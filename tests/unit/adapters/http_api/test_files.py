"""The file of a mapping: what is wrong with it is told with its place and what to write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.places import ROOT
from subluminal.adapters.http_api.files import InvalidMapping, load_mapping, read_mapping

TOP = "server: tracker\nupstream: https://tracker.example/api\n"
ONE = '  - {tool: get_issue, method: GET, path: "/issues/{number}"}\n'


def invalid(text: str, name: str = "m.yaml") -> InvalidMapping:
    with pytest.raises(InvalidMapping) as caught:
        read_mapping(text.encode(), name)
    return caught.value


def test_a_mapping_of_a_real_apis_shape_is_read() -> None:
    mapping = load_mapping(str(ROOT / "tests" / "fixtures" / "http_api" / "tracker.yaml"))
    assert len(mapping.operations) >= 20
    by_tool = {operation.tool: operation for operation in mapping.operations}
    assert by_tool["create_issue"].body == "json" and by_tool["delete_repo"].body == "none"
    assert by_tool["get_issue"].risk_class == {"read_like"} and by_tool["create_issue"].risk_class == {"write_like"}
    assert by_tool["delete_repo"].risk_class == {"write_like", "destructive"}
    assert by_tool["get_me"].query == frozenset() and by_tool["get_repo"].query is None


def test_json_and_toml_say_the_same() -> None:
    operation = {"tool": "get_issue", "method": "GET", "path": "/issues/{number}", "query": ["page"]}
    value = {"server": "tracker", "upstream": "https://tracker.example/api", "operations": [operation]}
    toml = 'server = "tracker"\nupstream = "https://tracker.example/api"\n\n[[operations]]\n'
    toml += 'tool = "get_issue"\nmethod = "GET"\npath = "/issues/{number}"\nquery = ["page"]\n'
    for name, text in (("m.json", json.dumps(value)), ("m.toml", toml), ("m.yaml", json.dumps(value))):
        mapping = read_mapping(text.encode(), name)
        (read,) = mapping.operations
        assert (mapping.server, mapping.upstream, mapping.unmapped) == ("tracker", value["upstream"], "refuse")
        assert (read.tool, read.method, read.template.text, read.query) == (*list(operation.values())[:3], {"page"})


def test_an_unknown_key_is_told_with_the_one_that_was_meant() -> None:
    fault = invalid(TOP + "operations:\n" + ONE.replace("method:", "metod:"))
    assert str(fault).startswith('m.yaml:4:23: error: unknown key "metod"')
    assert fault.hint == 'Fix: did you mean "method"?'
    assert invalid(TOP + "unmaped: pass\noperations:\n" + ONE).hint == 'Fix: did you mean "unmapped"?'


def test_two_templates_for_one_path_are_told_with_both_lines() -> None:
    text = TOP + "operations:\n" + ONE + '  - {tool: latest, method: GET, path: "/issues/latest"}\n'
    fault = invalid(text)
    assert "m.yaml:5:" in str(fault) and "/issues/{number} (line 4) match the same path" in str(fault)
    read_mapping(text.replace("{number}", "{number:int}").encode(), "m.yaml")
    read_mapping(text.replace("latest, method: GET", "latest, method: PUT").encode(), "m.yaml")


def test_everything_that_is_wrong_is_found_at_once() -> None:
    text = "upstream: ftp://x\nunmapped: maybe\noperations:\n  - {tool: '(x)', method: get, path: x}\n  - 7\n"
    fault = invalid(text)
    assert {finding.code for finding in fault.findings} == {
        "missing-key", "bad-url", "unknown-word", "bad-name", "bad-path", "bad-operation",
    }  # fmt: skip
    assert "(and " in str(fault)
    assert any('did you mean "GET"?' in finding.fix for finding in fault.findings)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "7", "a: [", TOP, TOP + "operations: []", TOP + "operations: {a: b}", TOP + "operations: [[]]",
        TOP + "operations:\n" + ONE.replace("GET", "HEAD"), TOP + "operations:\n" + ONE.replace("GET", "7"),
        TOP + "operations:\n" + ONE.replace("{number}", "{number}.json"),
        TOP + "operations:\n" + ONE.rstrip("}\n") + ", query: [number]}\n",
        TOP + "operations:\n" + ONE.rstrip("}\n") + ", query: ['a[]']}\n",
        TOP + "operations:\n" + ONE.rstrip("}\n") + ", body: form}\n",
        TOP + "operations:\n" + ONE.rstrip("}\n") + ", risk_class: [7]}\n",
        TOP.replace("api", "api?key=1") + "operations:\n" + ONE, TOP.replace("tracker\n",
        "..\n") + "operations:\n" + ONE,
        TOP + "server: again\noperations:\n" + ONE, "server: 7\n",
    ],
)  # fmt: skip
def test_a_bad_file_is_a_sentence_with_its_place_and_a_fix(text: str) -> None:
    fault = invalid(text)
    assert str(fault).startswith("m.yaml:") and fault.hint and "policy" not in f"{fault} {fault.hint}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("server = ", 1),
        ('server = "x"\nupstream = "http://h/"\n[[operations]]\ntool = "a"\n', 3),
        ('server = "x"\nupstream = "http://h/"\noperations = 7\n', 1),
        ("a = " + "[" * 40 + "]" * 40, 1),
        ("a = " + "9" * 5_000, 1),
    ],
)
def test_a_bad_toml_file_is_too(text: str, line: int) -> None:
    assert str(invalid(text, "m.toml")).startswith(f"m.toml:{line}:")


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidMapping, match="cannot read the mapping: No such file"):
        load_mapping(str(tmp_path / "none.yaml"))
    with pytest.raises(InvalidMapping, match="cannot read the mapping: Is a directory"):
        load_mapping(str(tmp_path))


def test_a_mapping_has_a_bound() -> None:
    operations = [{"tool": f"t{n}", "method": "GET", "path": f"/p{n}"} for n in range(1_001)]
    text = json.dumps({"server": "s", "upstream": "http://h/", "operations": operations})
    assert "1,001 operations; there may be 1,000" in str(invalid(text, "m.json"))
