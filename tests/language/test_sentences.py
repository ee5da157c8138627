"""Two hundred sentences that people say of their agents, each written as policy and put to the engine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import inspect

from harness import places
from harness.sentences import MAX_LINES, Sentence, Story, World, differences, table
from subluminal.contracts.policy import Bundle
from subluminal.policy.compile.bundle import compile_bundle
from subluminal.policy.lint.findings import NOTE
from subluminal.policy.lint.load import load_bundle

TABLE = table()
SENTENCES = [sentence for file in TABLE.values() for sentence in file]
AREAS = {"browser", "ci", "cloud", "database", "filesystem", "git", "github", "mail", "payments", "platform", "search"}
# What says who wrote a policy decides no call.
# What is about lists of tools needs a server that lists some: tests/torture/test_tool_attacks.py, test_tool_doors.py.
NOT_OF_A_SENTENCE = {"policy_id", "version", "owner", "created_at"}
NOT_OF_A_SENTENCE |= {"changed_tools", "hide_denied_tools", "check_schemas"}
every_sentence = pytest.mark.parametrize("sentence", SENTENCES, ids=lambda sentence: sentence.sentence)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world").resolve())


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The root of the run is written down once, below SUB_HOME."""
    from subluminal.host.run.root import settle_root

    monkeypatch.setenv("SUB_HOME", str(world.home / ".subluminal"))
    settle_root("sentences", str(world.root))


@every_sentence
def test_a_sentence_decides_as_it_says(sentence: Sentence, world: World) -> None:
    snapshot = compile_bundle(sentence.source, "sentence.yaml")
    assert sentence.cases
    for case, passes in sentence.cases:
        assert differences(case, passes, Story(snapshot, world)) == []


@every_sentence
def test_a_sentence_is_short_and_lints_without_errors_and_warnings(sentence: Sentence) -> None:
    assert len(sentence.policy.splitlines()) <= MAX_LINES
    findings = load_bundle(sentence.source, "sentence.yaml").findings
    assert [str(finding) for finding in findings if finding.level != NOTE] == []


def test_there_are_two_hundred_and_no_two_are_the_same() -> None:
    assert set(TABLE) >= AREAS
    assert len(SENTENCES) >= 200
    assert [name for name, count in Counter(sentence.sentence for sentence in SENTENCES).items() if count > 1] == []


def test_nearly_all_have_calls_that_pass_and_calls_that_do_not() -> None:
    """A policy that only watches refuses nothing, and one that stops everything lets nothing pass."""
    one_sided = [sentence.sentence for sentence in SENTENCES if not (sentence.passes and sentence.refuse)]
    assert len(one_sided) <= 4


def test_many_refused_calls_are_written_to_get_past_the_rule() -> None:
    tricks = [
        [step.tricky for case in sentence.refuse for step in (case if isinstance(case, list) else [case])]
        for sentence in SENTENCES
    ]
    assert sum(any(each) for each in tricks) >= 40


def fields_of(kind: inspect.Type) -> set[str]:
    names: set[str] = set()
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            names |= {field.encode_name} | fields_of(field.type)
    elif isinstance(kind, inspect.UnionType):
        names |= {name for each in kind.types for name in fields_of(each)}
    elif isinstance(kind, inspect.ListType):
        names |= fields_of(kind.item_type)
    elif isinstance(kind, inspect.DictType):
        names |= fields_of(kind.value_type)
    return names


def words_of(tree: Any) -> set[str]:
    """Every key and every word of a policy."""
    if isinstance(tree, dict):
        return {str(key) for key in tree} | {word for value in tree.values() for word in words_of(value)}
    if isinstance(tree, list):
        return {word for value in tree for word in words_of(value)}
    return {tree} if isinstance(tree, str) else set()


def test_every_field_and_kind_of_the_contract_is_in_several_sentences() -> None:
    used = Counter(word for sentence in SENTENCES for word in words_of(yaml.safe_load(sentence.policy)))
    kinds = {"allow", "deny", "budget", "rate_limit", "breaker", "dedupe", "tag"}
    scopes = {"run", "server", "tool", "server_tool", "agent", "principal", "machine"}
    wanted = (fields_of(inspect.type_info(Bundle)) - NOT_OF_A_SENTENCE) | kinds | scopes
    assert len(wanted) > 80
    assert {word: used[word] for word in sorted(wanted) if used[word] < 2} == {}


def test_what_cannot_be_said_is_written_down_with_its_reason() -> None:
    told = yaml.safe_load((places.ROOT / "tests" / "language" / "cannot_say.yaml").read_text(encoding="utf-8"))
    assert told
    for entry in told:
        assert set(entry) == {"sentence", "reason", "instead"}
        assert all(isinstance(text, str) and text for text in entry.values())
    assert not {entry["sentence"] for entry in told} & {sentence.sentence for sentence in SENTENCES}


def test_the_table_is_read_whole() -> None:
    lines = sum(
        line.startswith("- sentence:")
        for path in Path(places.ROOT / "tests" / "language" / "sentences").glob("*.yaml")
        for line in path.read_text(encoding="utf-8").splitlines()
    )
    assert lines == len(SENTENCES)
