"""Contract B, field by field: each case gives the history that shows the field, and how it would look if ignored."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from harness.engine import FlatPlaces, Run, compiled, rule, tools
from subluminal.contracts import policy as contract
from subluminal.contracts.identity import Identity
from subluminal.contracts.toolcall import ToolCall

Script = Callable[[Run], Any]
DELETE = object()


class Case:
    """`field` is `Struct.field` of contracts.policy; `path` leads to it in the snapshot; `ignored` is its stand-in."""

    def __init__(
        self,
        field: str,
        rules: list[dict[str, Any]],
        path: tuple[Any, ...],
        script: Script,
        expected: Any,
        *,
        ignored: Any = DELETE,
        identity: Identity | None = None,
        places: Any = None,
        **bundle: Any,
    ) -> None:
        self.field = field
        self.places = places
        self.snapshot = compiled(*rules, **bundle)
        self.path = path
        self.script = script
        self.expected = expected
        self.ignored = ignored
        self.identity = identity

    def outcome(self, snapshot: dict[str, Any]) -> Any:
        return self.script(Run(snapshot, identity=self.identity, places=self.places))

    def without_field(self) -> dict[str, Any]:
        snapshot = copy.deepcopy(self.snapshot)
        at = snapshot
        for step in self.path[:-1]:
            at = at[step]
        if self.ignored is DELETE:
            del at[self.path[-1]]
        else:
            at[self.path[-1]] = self.ignored
        return snapshot


def actions(*calls: Any) -> Script:
    """Each call is a tool, or (tool, args), or a dict of keywords."""

    def script(run: Run) -> list[str]:
        seen = []
        for call in calls:
            if isinstance(call, dict):
                seen.append(run.action(**call))
            elif isinstance(call, tuple):
                seen.append(run.action(*call))
            else:
                seen.append(run.action(call))
        return seen

    return script


def timed(*steps: tuple[int, str]) -> Script:
    """(milliseconds to wait, tool)"""

    def script(run: Run) -> list[str]:
        seen = []
        for wait, tool in steps:
            run.at += wait
            seen.append(run.action(tool))
        return seen

    return script


def failing(*steps: tuple[int, str, bool, int]) -> Script:
    """(milliseconds to wait, tool, whether the call succeeds, its latency)"""

    def script(run: Run) -> list[str]:
        seen = []
        for number, (wait, tool, ok, latency_ms) in enumerate(steps):
            run.at += wait
            verdict = run.call(tool, {"n": number})
            run.end(verdict, ok, latency_ms)
            seen.append(verdict.decision.action)
        return seen

    return script


def at_hours(*hours: int) -> Script:
    def script(run: Run) -> list[str]:
        seen = []
        for hour in hours:
            run.wall = 1_700_006_400_000 + hour * 3_600_000  # from a midnight
            seen.append(run.action("t"))
        return seen

    return script


def with_schemas(run: Run) -> str:
    """By a judge of schemas that nothing fits."""
    run.stack.judge_schemas_by({"s": lambda tool, args, which: f"no {which} schema is ever satisfied"})
    return run.action("t")


def decision(member: str, *calls: Any) -> Script:
    """One member of the last decision."""

    def script(run: Run) -> Any:
        last = None
        for call in calls:
            last = run.call(*call) if isinstance(call, tuple) else run.call(call)
        assert last is not None
        found: Any = last.decision
        for name in member.split("."):
            found = getattr(found, name) if not isinstance(found, tuple) else found[int(name)]
        return found

    return script


A, B, R, T, X = "ALLOW", "BLOCK", "REJECT_WITH_HINT", "THROTTLE", "TERMINATE_RUN"
DENY = rule("d", "deny")
CI = Identity(
    "run",
    "bot",
    "codex",
    "ci",
    workload={"namespace": "n1", "service_account": "a1", "labels": {"k": "v"}, "repo": "r1", "branch": "b1"},
)


def selector(field: str, value: Any) -> Case:
    return Case(
        f"Selectors.{field}",
        [DENY],
        ("selectors", field),
        actions("t"),
        [A],
        identity=CI,
        selectors={field: value},
    )


def workload(field: str, value: Any) -> Case:
    return Case(
        f"WorkloadSelector.{field}",
        [DENY],
        ("selectors", "workload", field),
        actions("t"),
        [A],
        identity=CI,
        selectors={"workload": {field: value}},
    )


def match(
    field: str, spec: dict[str, Any], path: tuple[str, ...], *calls: Any, expected: list[str], ignored: Any = DELETE
) -> Case:
    rules = [rule("d", "deny", spec)]
    return Case(field, rules, ("rules", 0, "match", *path), actions(*calls), expected, ignored=ignored)


def asked(field: str, wanted: Any, *calls: Any, expected: list[str], **more: Any) -> Case:
    """One member of `match.args`."""
    rules = [rule("d", "deny", {"args": {field: wanted}})]
    path = ("rules", 0, "match", "args", field)
    return Case(f"ArgsMatch.{field}", rules, path, actions(*calls), expected, **more)


def alternative(field: str, wanted: Any, *calls: Any, expected: list[str]) -> Case:
    """One member of an alternative; the other alternative never holds."""
    never = {"tool_name": {"glob": ["never"]}}
    rules = [rule("d", "deny", {"any_of": [never, {field: wanted}]})]
    path = ("rules", 0, "match", "any_of", 1, field)
    return Case(f"Alternative.{field}", rules, path, actions(*calls), expected)


def effect(kind: str, field: str, members: dict[str, Any], script: Script, expected: Any, **more: Any) -> Case:
    struct = {"budget": "Budget", "rate_limit": "RateLimit", "breaker": "Breaker", "dedupe": "Dedupe", "tag": "Tag"}
    name = f"{struct[kind]}.{field}"
    return Case(name, [rule("x", kind, **members)], ("rules", 0, "effect", kind, field), script, expected, **more)


BUDGET = {"scope": "run", "limit_calls": 2, "on_exceed": "BLOCK"}
COST = {"scope": "run", "limit_cost_units": 5, "cost_units_per_call": 2, "on_exceed": "BLOCK"}
RATE = {
    "scope": "run",
    "capacity": 2,
    "refill_tokens": 1,
    "refill_period_ms": 100,
    "on_limit": "THROTTLE",
    "backoff_ms": 500,
}
ERRORS = {"scope": "run", "error_threshold": 2, "window_ms": 100, "on_trip": "BLOCK"}
REPEAT = {"scope": "run", "repeat_threshold": 2, "repeat_window_ms": 100, "on_trip": "BLOCK"}
SLOW = {"scope": "run", "latency_threshold_ms": 50, "latency_count": 2, "window_ms": 100, "on_trip": "BLOCK"}
DEDUPE = {"scope": "tool", "window_ms": 100, "on_duplicate": "BLOCK"}
FIX = {"limit": 10}
SECOND_SERVER = {"tool": "t", "server": "other"}
ADVICE = [
    Case(
        f"Advice.{field}",
        [rule("x", kind, **{**members, on: R, field: value})],
        ("rules", 0, "effect", field) if kind == "deny" else ("rules", 0, "effect", kind, field),
        decision(f"hint.{field}", *["t"] * 3),
        value,
    )
    for kind, members, on in (
        ("deny", {}, "action"),
        ("budget", BUDGET, "on_exceed"),
        ("rate_limit", RATE, "on_limit"),
        ("breaker", REPEAT, "on_trip"),
        ("dedupe", DEDUPE, "on_duplicate"),
    )
    for field, value in (("hint_text", "Try less."), ("suggested_args", FIX), ("retry_advice", "Tomorrow."))
]

KINDS_THAT_REFUSE = (
    ("deny", {}, "action"),
    ("budget", BUDGET, "on_exceed"),
    ("rate_limit", RATE, "on_limit"),
    ("breaker", REPEAT, "on_trip"),
    ("dedupe", DEDUPE, "on_duplicate"),
)
PRICED = {"scope": "run", "limit_cost_units": 5, "on_exceed": "BLOCK"}
CUSTOM = {**DEDUPE, "key": "custom", "key_args": ["id"]}
PER_SERVER = actions("t", SECOND_SERVER, "t")
EFFECTS = [
    *(
        Case(
            f"Advice.{field}",
            [rule("x", kind, **{**members, on: R, field: value})],
            ("rules", 0, "effect", field) if kind == "deny" else ("rules", 0, "effect", kind, field),
            script,
            expected,
        )
        for kind, members, on in KINDS_THAT_REFUSE
        for field, value, script, expected in (
            ("reason_code", "MINE", decision("reason_code", *["t"] * 3), "MINE"),
            ("message", "Not so.", lambda run: "Not so." in decision("summary", *["t"] * 3)(run), True),
        )
    ),
    Case("Defaults.fail_open_classes",
         [rule("g", "tag", add_risk_class=["mine"]), rule("d", "deny", {"args": {"has_keys": ["k"]}})],
         ("defaults", "fail_open_classes"), lambda run: run.action("t", uninspected=True), A,
         defaults={"decision_on_error": "BLOCK", "fail_open_classes": ["mine"]}),
    effect("budget", "scope", {**BUDGET, "scope": "server", "limit_calls": 1}, PER_SERVER, [A, A, B], ignored="run"),
    effect("budget", "scope", {**BUDGET, "scope": "server", "limit_calls": 1}, actions("t", "u"), [A, B],
           ignored="server_tool"),
    effect("rate_limit", "scope", {**RATE, "scope": "server", "capacity": 1}, PER_SERVER, [A, A, T], ignored="run"),
    effect("breaker", "scope", {**ERRORS, "scope": "server", "error_threshold": 1},
           lambda run: [run.failing("t"), run.action("u", server="other"), run.action("u")], [A, A, B],
           ignored="run"),
    effect("dedupe", "scope", {**DEDUPE, "scope": "server"}, actions("t", SECOND_SERVER, "u"), [A, A, B],
           ignored="run"),
    effect("budget", "window_ms", {**BUDGET, "window_ms": 100},
           timed((0, "t"), (60, "t"), (39, "t"), (1, "t"), (59, "t"), (1, "t")), [A, A, B, A, B, A]),
    effect("budget", "window_ms", {**COST, "window_ms": 600},
           timed((0, "t"), (0, "t"), (599, "t"), (11, "t")), [A, A, B, A]),
    effect("budget", "cost_units_from", {**PRICED, "cost_units_from": {"arg": "n"}},
           actions(("t", {"n": 4}), ("t", {"n": "2"}), ("t", {})), [A, B, A]),
    Case("CostFrom.arg", [rule("x", "budget", **PRICED, cost_units_from={"arg": "n"})],
         ("rules", 0, "effect", "budget", "cost_units_from", "arg"), actions(("t", {"n": 6, "m": 1})), [B],
         ignored="m"),
    Case("CostFrom.per", [rule("x", "budget", **PRICED, cost_units_from={"arg": "n", "per": 10})],
         ("rules", 0, "effect", "budget", "cost_units_from", "per"), actions(("t", {"n": 50}), "t"), [A, B],
         ignored=1),
    effect("budget", "cost_units_by_tool", {**PRICED, "cost_units_by_tool": {"dear": 5, "d*": 2}},
           actions("dull", "dear", "dull", "t", "t"), [A, B, A, A, B]),
    effect("dedupe", "key_args", CUSTOM, actions(("t", {"id": 1, "n": 1}), ("t", {"id": 1, "n": 2}), ("t", {"id": 2})),
           [A, B, A], ignored=["n"]),
    effect("dedupe", "key", CUSTOM, actions(("t", {"id": 1, "n": 1}), ("t", {"id": 1, "n": 2})), [A, B],
           ignored="args_hash"),
    Case("AllowEffect.override", [rule("x", "dedupe", **DEDUPE), rule("a", "allow", override=["dedupe"])],
         ("rules", 1, "effect", "override"), actions("t", "t"), [A, A]),
]  # fmt: skip

CASES = [
    *EFFECTS,
    Case("Bundle.mode", [DENY], ("mode",), actions("t"), [A], mode="observe", ignored="guardrails"),
    Case("Bundle.mode", [DENY], ("mode",), actions("t"), [R], mode="control", ignored="guardrails"),
    Case("Bundle.policy_id", [DENY], ("policy_id",), decision("policy.policy_id", "t"), "p", ignored="other"),
    Case("Bundle.version", [DENY], ("version",), decision("policy.policy_version", "t"), "1", ignored="2"),
    Case("Bundle.rules", [DENY], ("rules",), actions("t"), [B], ignored=[]),
    Case("Bundle.selectors", [DENY], ("selectors",), actions("t"), [A], selectors={"env": ["prod"]}),
    Case("Bundle.defaults", [rule("d", "deny", {"args": {"has_keys": ["k"]}})], ("defaults",),
         lambda run: run.action("t", uninspected=True), A, on_error="ALLOW"),
    Case("Defaults.decision_on_error", [rule("d", "deny", {"args": {"has_keys": ["k"]}})],
         ("defaults", "decision_on_error"), lambda run: run.action("t", uninspected=True), A, on_error="ALLOW"),
    Case("Defaults.fail_open_read_tools",
         [rule("g", "tag", add_risk_class=["read_like"]), rule("d", "deny", {"args": {"has_keys": ["k"]}})],
         ("defaults", "fail_open_read_tools"), lambda run: run.action("t", uninspected=True), A,
         defaults={"decision_on_error": "BLOCK", "fail_open_read_tools": True}),
    Case("Defaults.max_legs", [], ("defaults", "max_legs"), lambda run: run.action("t", continues="c", leg=3), B,
         defaults={"decision_on_error": "BLOCK", "max_legs": 2}),
    Case("Defaults.changed_tools", [], ("defaults", "changed_tools"),
         lambda run: run.action("t", risk_classes=frozenset({"changed"})), B,
         defaults={"decision_on_error": "BLOCK", "changed_tools": "quarantine"}),
    Case("Defaults.hide_denied_tools", [DENY], ("defaults", "hide_denied_tools"),
         lambda run: run.stack.listing.hides(ToolCall("s", "t", None, 0)), True,
         defaults={"decision_on_error": "BLOCK", "hide_denied_tools": True}),
    Case("Defaults.check_schemas", [rule("a", "allow")], ("defaults", "check_schemas"), with_schemas, R,
         defaults={"decision_on_error": "BLOCK", "check_schemas": "pinned"}),
    selector("env", ["prod"]),
    selector("agent_id", ["other"]),
    selector("client", ["claude"]),
    selector("workload", {"repo": ["other"]}),
    workload("namespace", ["n2"]),
    workload("service_account", ["a2"]),
    workload("labels", {"k": "other"}),
    workload("repo", ["r2"]),
    workload("branch", ["b2"]),
    Case("RuleBase.rule_id", [DENY], ("rules", 0, "rule_id"), decision("rule_id", "t"), "d", ignored="z"),
    Case("RuleBase.kind", [DENY], ("rules", 0, "kind"), actions("t"), [B], ignored="allow"),
    Case("RuleBase.enabled", [{**DENY, "enabled": False}], ("rules", 0, "enabled"), actions("t"), [A], ignored=True),
    Case("RuleBase.match", [rule("d", "deny", tools("u"))], ("rules", 0, "match"), actions("t", "u"), [A, B]),
    Case("RuleBase.effect", [rule("d", "deny", reason_code="MINE")], ("rules", 0, "effect"),
         decision("reason_code", "t"), "MINE"),
    Case("RuleBase.severity", [{**DENY, "severity": "critical"}], ("rules", 0, "severity"),
         decision("severity", "t"), "critical", ignored="info"),
    match("Match.server_name", {"server_name": {"glob": ["git*"]}}, ("server_name",), "t", {"server": "github"},
          expected=[A, B]),
    match("Match.tool_name", tools("rm*"), ("tool_name",), "ls", "rm", expected=[A, B]),
    match("Match.risk_class", {"risk_class": ["write_like"]}, ("risk_class",), "t",
          {"risk_classes": frozenset({"write_like"})}, expected=[A, B]),
    match("Match.args", {"args": {"has_keys": ["k"]}}, ("args",), "t", ("t", {"k": 1}), expected=[A, B]),
    match("Match.time", {"time": {"utc_hours": [0]}}, ("time",), "t", expected=[A]),
    match("NameMatch.glob", {"tool_name": {"glob": ["a*"], "regex": ["^b"]}}, ("tool_name", "glob"), "a", "b", "c",
          expected=[B, B, A]),
    match("NameMatch.regex", {"tool_name": {"glob": ["a*"], "regex": ["^b"]}}, ("tool_name", "regex"), "a", "b", "c",
          expected=[B, B, A]),
    match("ArgsMatch.has_keys", {"args": {"has_keys": ["k"]}}, ("args", "has_keys"), "t", ("t", {"k": None}),
          expected=[A, B]),
    match("ArgsMatch.key_equals", {"args": {"key_equals": {"k": 1}}}, ("args", "key_equals"), ("t", {"k": 2}),
          ("t", {"k": 1}), ("t", {"k": True}), expected=[A, B, B]),
    match("ArgsMatch.key_in", {"args": {"key_in": {"k": ["a", "b"]}}}, ("args", "key_in"), ("t", {"k": "c"}),
          ("t", {"k": "b"}), expected=[A, B]),
    match("ArgsMatch.numeric_range", {"args": {"numeric_range": {"k": {"min": 5}}}}, ("args", "numeric_range"),
          ("t", {"k": 4}), ("t", {"k": 5}), expected=[A, B]),
    asked("has_keys", ["f[].p"], ("t", {"f": [{}]}), ("t", {"f": [{"p": 1}]}), expected=[A, B]),
    asked("key_equals", {"o.force": True}, ("t", {"o": {"force": False}}), ("t", {"o": {"force": True}}),
          ("t", {"o.force": True}), expected=[A, B, B]),
    asked("missing_keys", ["k"], ("t", {"k": 1}), "t", expected=[A, B]),
    asked("key_glob", {"k": ["/etc/*"]}, ("t", {"k": "/home"}), ("t", {"k": "/etc/x/y"}), expected=[A, B]),
    asked("key_regex", {"k": ["^a[0-9]+$"]}, ("t", {"k": "a"}), ("t", {"k": "a12"}), expected=[A, B]),
    asked("key_contains", {"k": ["DROP"]}, ("t", {"k": "SELECT"}), ("t", {"k": "x DROP y"}), expected=[A, B]),
    asked("bytes", {"min": 100}, "t", ("t", {"k": "x" * 100}), expected=[A, B]),
    asked("path_within", {"k": ["/etc"]}, ("t", {"k": "/srv/x"}), ("t", {"k": "/etc/passwd"}), expected=[A, B],
          places=FlatPlaces()),
    asked("host_in", {"k": ["*.example.com"]}, ("t", {"k": "https://example.org/"}),
          ("t", {"k": "https://a.example.com/"}), expected=[A, B]),
    asked("command", {"k": {"programs": ["rm"]}}, ("t", {"k": "ls"}), ("t", {"k": "ls; rm x"}), expected=[A, B]),
    match("CommandMatch.programs", {"args": {"command": {"k": {"programs": ["rm"]}}}},
          ("args", "command", "k", "programs"), ("t", {"k": "git status"}), ("t", {"k": "rm x"}), expected=[A, B],
          ignored=["git"]),
    match("ByteRange.min", {"args": {"bytes": {"min": 20, "max": 40}}}, ("args", "bytes", "min"), "t",
          ("t", {"k": "x" * 20}), expected=[A, B]),
    match("ByteRange.max", {"args": {"bytes": {"min": 20, "max": 40}}}, ("args", "bytes", "max"),
          ("t", {"k": "x" * 50}), ("t", {"k": "x" * 20}), expected=[A, B]),
    match("Match.any_of", {"any_of": [tools("a"), tools("b")]}, ("any_of",), "a", "b", "c", expected=[B, B, A]),
    alternative("server_name", {"glob": ["git*"]}, "t", {"server": "github"}, expected=[A, B]),
    alternative("tool_name", {"glob": ["rm*"]}, "ls", "rm", expected=[A, B]),
    alternative("risk_class", ["w"], "t", {"risk_classes": frozenset({"w"})}, expected=[A, B]),
    alternative("args", {"has_keys": ["k"]}, "t", ("t", {"k": 1}), expected=[A, B]),
    alternative("time", {"utc_hours": [0]}, "t", expected=[A]),
    Case("RuleBase.unless", [{**DENY, "unless": tools("u")}], ("rules", 0, "unless"), actions("t", "u"), [B, A]),
    Case("RuleBase.unless", [{**rule("a", "allow"), "unless": tools("u")}, DENY], ("rules", 0, "unless"),
         actions("t", "u"), [A, B]),
    match("NumericRange.min", {"args": {"numeric_range": {"k": {"min": 5, "max": 9}}}},
          ("args", "numeric_range", "k", "min"), ("t", {"k": 4}), ("t", {"k": 5}), expected=[A, B]),
    match("NumericRange.max", {"args": {"numeric_range": {"k": {"min": 5, "max": 9}}}},
          ("args", "numeric_range", "k", "max"), ("t", {"k": 10}), ("t", {"k": 9}), expected=[A, B]),
    Case("TimeMatch.utc_hours", [rule("d", "deny", {"time": {"utc_hours": ["22-1"]}})],
         ("rules", 0, "match", "time", "utc_hours"), at_hours(21, 22, 1, 2), [A, B, B, A]),
    Case("AllowEffect.action", [rule("a", "allow"), DENY], ("rules", 0, "kind"), actions("t"), [A], ignored="tag"),
    Case("AllowEffect.reason_code", [rule("a", "allow", reason_code="MINE")], ("rules", 0, "effect", "reason_code"),
         decision("reason_code", "t"), "MINE"),
    Case("AllowEffect.message", [rule("a", "allow", message="Fine.")], ("rules", 0, "effect", "message"),
         decision("summary", "t"), "Fine."),
    Case("DenyEffect.action", [rule("d", "deny", action=R)], ("rules", 0, "effect", "action"), actions("t"), [R]),
    Case("DenyEffect.reason_code", [rule("d", "deny", reason_code="MINE")], ("rules", 0, "effect", "reason_code"),
         decision("reason_code", "t"), "MINE"),
    Case("DenyEffect.message", [rule("d", "deny", message="Not on Sundays")], ("rules", 0, "effect", "message"),
         lambda run: "Not on Sundays" in run.call("t").decision.summary, True),
    Case("BudgetEffect.budget", [rule("x", "budget", **BUDGET)], ("rules", 0, "effect", "budget"),
         actions(*"ttt"), [A, A, B]),
    effect("budget", "scope", {**BUDGET, "scope": "run"}, actions("t", "u", "t"), [A, A, B], ignored="tool"),
    effect("budget", "scope", {**BUDGET, "scope": "tool", "limit_calls": 1},
           actions("t", "u", "t", SECOND_SERVER), [A, A, B, B], ignored="server_tool"),
    effect("budget", "scope", {**BUDGET, "scope": "server_tool", "limit_calls": 1},
           actions("t", SECOND_SERVER, "t"), [A, A, B], ignored="tool"),
    effect("budget", "limit_calls", BUDGET, actions(*"ttt"), [A, A, B]),
    effect("budget", "limit_cost_units", COST, actions(*"ttt"), [A, A, B]),
    effect("budget", "cost_units_per_call", COST, actions(*"ttt"), [A, A, B]),
    effect("budget", "on_exceed", {**BUDGET, "on_exceed": X}, actions(*"ttt"), [A, A, X]),
    Case("RateLimitEffect.rate_limit", [rule("x", "rate_limit", **RATE)], ("rules", 0, "effect", "rate_limit"),
         actions(*"tt"), [A, A], ignored={"scope": "run"}),
    effect("rate_limit", "scope", RATE, actions("t", "u", "t"), [A, A, T], ignored="tool"),
    effect("rate_limit", "scope", {**RATE, "capacity": 1, "scope": "tool"}, actions("t", "u", SECOND_SERVER),
           [A, A, T], ignored="server_tool"),
    effect("rate_limit", "scope", {**RATE, "capacity": 1, "scope": "server_tool"}, actions("t", SECOND_SERVER, "t"),
           [A, A, T], ignored="tool"),
    effect("rate_limit", "capacity", RATE, actions(*"ttt"), [A, A, T]),
    effect("rate_limit", "refill_tokens", RATE, timed((0, "t"), (0, "t"), (0, "t"), (100, "t")), [A, A, T, A]),
    effect("rate_limit", "refill_period_ms", RATE, timed((0, "t"), (0, "t"), (99, "t"), (1, "t")), [A, A, T, A]),
    effect("rate_limit", "cost_tokens_per_call", {**RATE, "cost_tokens_per_call": 2}, actions(*"tt"), [A, T]),
    effect("rate_limit", "on_limit", {**RATE, "on_limit": B}, actions(*"ttt"), [A, A, B]),
    effect("rate_limit", "backoff_ms", RATE, decision("backoff_ms", *"ttt"), 500),
    Case("BreakerEffect.breaker", [rule("x", "breaker", **REPEAT)], ("rules", 0, "effect", "breaker"),
         actions("t", "t"), [A, B]),
    effect("breaker", "scope", ERRORS, failing((0, "t", False, 1), (0, "u", False, 1), (0, "t", True, 1)), [A, A, B],
           ignored="tool"),
    effect("breaker", "scope", {**ERRORS, "scope": "server_tool", "error_threshold": 1},
           lambda run: [run.failing("t"), run.action("t", server="other"), run.action("t", {"x": 1})], [A, A, B],
           ignored="tool"),
    effect("breaker", "error_threshold", ERRORS, failing(*[(0, "t", False, 1)] * 3), [A, A, B]),
    effect("breaker", "window_ms", ERRORS, failing((0, "t", False, 1), (101, "t", False, 1), (0, "t", True, 1)),
           [A, A, A], ignored=10_000),
    effect("breaker", "repeat_threshold", REPEAT, timed((0, "t"), (0, "t")), [A, B]),
    effect("breaker", "repeat_window_ms", REPEAT, timed((0, "t"), (100, "t"), (99, "t")), [A, A, B],
           ignored=10_000),
    effect("breaker", "latency_threshold_ms", SLOW,
           failing((0, "t", True, 51), (0, "t", True, 50), (0, "t", True, 51), (0, "t", True, 1)), [A, A, A, B]),
    effect("breaker", "latency_count", SLOW, failing(*[(0, "t", True, 51)] * 3), [A, A, B]),
    effect("breaker", "on_trip", {**REPEAT, "on_trip": X}, actions("t", "t"), [A, X]),
    effect("breaker", "terminate_code", {**REPEAT, "on_trip": X, "terminate_code": "LOOP"},
           decision("terminate.0", "t", "t"), "LOOP"),
    Case("DedupeEffect.dedupe", [rule("x", "dedupe", **DEDUPE)], ("rules", 0, "effect", "dedupe"),
         actions("t", "t"), [A, B]),
    effect("dedupe", "scope", {**DEDUPE, "scope": "run"}, actions("t", "u"), [A, B], ignored="tool"),
    effect("dedupe", "scope", {**DEDUPE, "scope": "server_tool"}, actions("t", SECOND_SERVER), [A, A], ignored="tool"),
    effect("dedupe", "window_ms", DEDUPE, timed((0, "t"), (99, "t"), (1, "t")), [A, B, A], ignored=10_000),
    effect("dedupe", "on_duplicate", {**DEDUPE, "on_duplicate": R}, actions("t", "t"), [A, R]),
    Case("TagEffect.tag", [rule("x", "tag", add_risk_class=["w"]), rule("d", "deny", {"risk_class": ["w"]})],
         ("rules", 0, "effect", "tag"), actions("t"), [B]),
    Case("Tag.add_risk_class", [rule("x", "tag", add_risk_class=["w"]), rule("d", "deny", {"risk_class": ["w"]})],
         ("rules", 0, "effect", "tag", "add_risk_class"), actions("t"), [B]),
    *ADVICE,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.field)
def test_a_field_of_the_contract_has_the_effect_it_promises(case: Case) -> None:
    assert case.outcome(case.snapshot) == case.expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.field)
def test_the_case_above_would_fail_if_the_field_were_ignored(case: Case) -> None:
    assert case.outcome(case.without_field()) != case.expected


# They describe the bundle to people.
WITHOUT_EFFECT = {"RuleBase.description", "Bundle.description", "Bundle.owner", "Bundle.created_at"}
# A snapshot has the `_ms` field in their place (tests of `policy.compile`).
DURATIONS = {
    "Budget.window", "Breaker.window", "Breaker.repeat_window", "Breaker.latency_threshold", "Dedupe.window",
    "RateLimit.backoff", "RateLimit.refill_period",
}  # fmt: skip


def test_no_field_of_the_contract_is_left_out() -> None:
    structs = [
        contract.Bundle, contract.Defaults, contract.Selectors, contract.WorkloadSelector, contract.Match,
        contract.Alternative, contract.NameMatch, contract.NumericRange, contract.ByteRange, contract.CommandMatch,
        contract.ArgsMatch, contract.TimeMatch, contract.Advice,
        contract.RuleBase, contract.AllowEffect, contract.DenyEffect, contract.Budget, contract.RateLimit,
        contract.Breaker, contract.Dedupe, contract.Tag, contract.BudgetEffect, contract.RateLimitEffect,
        contract.BreakerEffect, contract.DedupeEffect, contract.TagEffect, contract.CostFrom,
    ]  # fmt: skip
    advice = {field.name for field in msgspec.structs.fields(contract.Advice)}
    promised = {
        f"{struct.__name__}.{field.name}"
        for struct in structs
        for field in msgspec.structs.fields(struct)
        if struct is contract.Advice or field.name not in advice
    }
    shown = {case.field for case in CASES} | WITHOUT_EFFECT | DURATIONS
    assert promised - shown == set()
