"""The reports of a headless run: golden, valid against their formats, and harmless whatever an agent writes."""

from __future__ import annotations

import html.parser
import json
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema
import pytest

from harness import places
from harness.golden import normalised
from harness.headless import Job, bundle_of, rule

FIXTURES = places.FIXTURES / "bundles"
INVISIBLE = "\x1b\x7f\x9b\x85\u202e\u2066\u200b\u2028\u2029\ufeff\U000e0041"
HOSTILE = f"<script>alert(1)</script>|`x`\n::error::mine[31m{INVISIBLE} @all [a](http://evil.example)"
POLICY = bundle_of(
    rule("no-script", "deny", "<*", action="BLOCK", message="<img src=http://evil.example/x onerror=alert(2)>"),
    rule("one-write", "budget", "write", "warn", scope="run", limit_calls=1, on_exceed="BLOCK"),
)
CALLS = [["fs", "read", {}], ["fs", HOSTILE, {}], ["fs", "write", {"n": 1}], ["fs", "write", {"n": 2}]]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    (folder / ".git").mkdir()
    done = Job(folder, "--strict", "--bundle", "trace", "--run-id", "golden", policy=POLICY, calls=CALLS).run()
    assert done.returncode == 1, done.stderr
    assert "\x1b" not in done.stderr and "\n::error" not in done.stderr
    return folder / "trace"


@pytest.mark.parametrize(
    "name", ["events.jsonl", "summary.json", "summary.md", "junit.xml", "results.sarif", "report.html"]
)
def test_the_normalised_bundle_is_the_golden_one(trace: Path, name: str) -> None:
    golden = FIXTURES / "refused" / name
    text = normalised(trace)[name]
    if os.environ.get("SUB_UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_the_sarif_is_valid(trace: Path) -> None:
    schema = json.loads((FIXTURES / "sarif.schema.json").read_text())
    sarif = json.loads((trace / "results.sarif").read_text())
    jsonschema.Draft202012Validator(schema).validate(sarif)
    (run,) = sarif["runs"]
    rules = [each["id"] for each in run["tool"]["driver"]["rules"]]
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    assert [result["level"] for result in run["results"]] == ["error", "warning"]


def test_the_junit_xml_is_valid_and_its_counts_are_those_of_its_cases(trace: Path) -> None:
    root = ET.fromstring((trace / "junit.xml").read_bytes())
    (suite,) = root
    cases = suite.findall("testcase")
    assert root.tag == "testsuites" and suite.tag == "testsuite"
    assert next(child.tag for child in suite) == "properties"
    assert int(suite.attrib["tests"]) == len(cases) == 4
    assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure")) == 2
    assert int(suite.attrib["errors"]) == len(suite.findall("testcase/error")) == 0
    assert set(suite.attrib) == {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
    for case in cases:
        assert set(case.attrib) == {"classname", "name", "time"} and float(case.attrib["time"]) >= 0
        assert all(set(child.attrib) == {"message", "type"} for child in case)


class Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def test_the_page_has_no_script_no_link_and_loads_nothing(trace: Path) -> None:
    page = (trace / "report.html").read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(page)
    names = {tag for tag, _ in tags.seen}
    assert not names & {"script", "img", "link", "iframe", "a", "object", "embed", "base", "form", "svg"}
    attributes = {name for _, attrs in tags.seen for name in attrs}
    assert not any(name.startswith("on") or name in ("src", "href", "action") for name in attributes)
    assert "default-src 'none'" in page
    assert "url(" not in page and "@import" not in page


@pytest.mark.parametrize("name", ["summary.json", "results.sarif", "junit.xml", "summary.md", "report.html"])
def test_no_report_holds_what_would_be_obeyed_or_hidden(trace: Path, name: str) -> None:
    text = (trace / name).read_text(encoding="utf-8")
    assert not set(text) & set(INVISIBLE)
    visible = "".join(c.encode("unicode_escape").decode() for c in INVISIBLE)
    if name == "summary.json":
        assert any(INVISIBLE in refusal["tool_name"] for refusal in json.loads(text)["refusals"]), "equal in value"
    else:
        assert visible in text.replace("\\\\", "\\"), "shown, not left out"


def test_the_markdown_holds_hostile_text_as_text(trace: Path) -> None:
    text = (trace / "summary.md").read_text(encoding="utf-8")
    assert "<script" not in text and "<img" not in text
    assert "](http" not in text and "http:" not in text and "@all" not in text
    rows = [line for line in text.splitlines() if line.startswith("| BLOCK")]
    assert len(rows) == 2
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 6 for row in rows)


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: the page was not opened in a browser")
def test_a_real_browser_renders_the_page_and_runs_nothing_of_it(trace: Path, tmp_path: Path) -> None:
    shot = tmp_path / "page.png"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command = [str(CHROMIUM), *flags, "--dump-dom", f"--screenshot={shot}", f"file://{trace}/report.html"]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, encoding="utf-8", timeout=90, check=False)
    assert "Refused calls" in done.stdout and "one-write" in done.stdout
    assert "<script" not in done.stdout and "<img" not in done.stdout
