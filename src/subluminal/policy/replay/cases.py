"""The format of a policy's test file: call sequences, their times, and the decisions they should meet.

policy: policy.yaml            beside this file; left out, `x.test.yaml` tests `x.yaml`
tests:
  - name: the fourth write is refused
    identity: {env: ci}
    calls:
      - {server_name: fs, tool_name: write_file, args: {path: a}, repeat: 3, expect: ALLOW}
      - {server_name: fs, tool_name: write_file, at_ms: 1000, expect: {action: BLOCK, rule_id: write-budget}}
"""

# Annotations are values here and not texts, which msgspec would compile again in every process.
import os
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, inspect

from subluminal.contracts.moments import is_moment
from subluminal.contracts.terms import Action, Client, Env, HintKind, Severity, Status, Timestamp
from subluminal.policy.compile.snapshot import read_source
from subluminal.policy.document.tree import parse_policy
from subluminal.policy.lint.findings import ERROR, Finding, InvalidPolicy
from subluminal.policy.lint.shape import Checker, expanded

SUFFIXES = (".test.yaml", ".test.yml", ".test.json")
_SKIPPED = frozenset((".git", ".venv", "node_modules", "__pycache__"))
# A test is a sketch of a run; a longer loop belongs in a benchmark.
MAX_REPEAT = 10_000


class Part(Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class WouldExpect(Part):
    action: Action
    rule_id: str | UnsetType | None = UNSET
    reason_code: str | UnsetType = UNSET


class Expect(WouldExpect):
    """Members that are left out are not compared. `would` is for policies that only observe."""

    severity: Severity | UnsetType = UNSET
    backoff_ms: int | UnsetType = UNSET
    hint_kind: HintKind | UnsetType = UNSET
    suggested_args: dict[str, Any] | UnsetType = UNSET
    terminate_code: str | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    would: WouldExpect | UnsetType = UNSET


class Call(Part):
    server_name: str
    tool_name: str
    expect: Action | Expect
    args: dict[str, Any] = msgspec.field(default_factory=dict)
    at_ms: Annotated[int, Meta(ge=0)] | UnsetType = UNSET  # left out: the time of the call before
    repeat: Annotated[int, Meta(ge=1, le=MAX_REPEAT)] = 1
    every_ms: Annotated[int, Meta(ge=0)] = 0  # time between repeats
    risk_class: list[str] = msgspec.field(default_factory=list)  # what the server says of the tool
    status: Status = "OK"  # how the call ends, if it is allowed
    latency_ms: Annotated[int, Meta(ge=0)] = 0


class Who(Part):
    agent_id: str = "unknown"
    client: Client = "unknown"
    env: Env = "unknown"
    workload: dict[str, Any] | UnsetType = UNSET


class Test(Part):
    name: Annotated[str, Meta(min_length=1)]
    calls: Annotated[list[Call], Meta(min_length=1)]
    identity: Who = msgspec.field(default_factory=Who)
    at: Timestamp = "2026-01-01T12:00:00Z"  # the wall clock at at_ms 0

    def __post_init__(self) -> None:
        if not is_moment(self.at):
            raise ValueError(f"{self.at} is not in the calendar")


class CaseFile(Part):
    tests: list[Test]
    policy: str | UnsetType = UNSET


def find_case_files(path: str) -> list[str]:
    """A test file itself, or all of them below a directory."""
    if not os.path.isdir(path):
        return [path]
    found = []
    for directory, names, files in os.walk(path):
        names[:] = sorted(name for name in names if name not in _SKIPPED)
        found += [os.path.join(directory, name) for name in sorted(files) if name.endswith(SUFFIXES)]
    return found


def load_cases(path: str) -> CaseFile:
    """Read and check a test file; raises InvalidPolicy with the place of every fault."""
    root = parse_policy(read_source(path), path)
    expected = inspect.type_info(CaseFile)
    checker = Checker(path, "the test file")
    checker.check(root, expected, "")
    if checker.findings:
        raise InvalidPolicy(checker.findings)
    try:
        return msgspec.convert(expanded(root, expected), CaseFile)
    except msgspec.ValidationError as error:
        fault = Finding(ERROR, "contract", str(error), "compare with docs/policy.md", path, 1, 1)
        raise InvalidPolicy([fault]) from None


def policy_of(path: str, cases: CaseFile) -> str:
    """The bundle that a test file is about."""
    directory, name = os.path.split(path)
    if cases.policy is not UNSET:
        return os.path.join(directory, cases.policy)
    suffix = next((s for s in SUFFIXES if name.endswith(s)), "")
    stem = name[: -len(suffix)] if suffix else os.path.splitext(name)[0]
    for extension in (".yaml", ".yml", ".json"):
        candidate = os.path.join(directory, stem + extension)
        if os.path.exists(candidate) and candidate != path:
            return candidate
    return os.path.join(directory, stem + ".yaml")
