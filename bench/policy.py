"""Policy evaluation: time per call by number of rules, load time, and beside Cedar and Rego in the same run.

    pip install -r requirements/bench.txt
    python bench/policy.py [--json] [--check]

The policy is a mix of exact names, globs and regexes with ten rules that concern every call (tag, denies with and
without argument predicates, budget, rate limit, breaker, dedupe, allow); the calls go over 50 tools. "new tool" is a
call with a tool name never seen before, which has to find its rules first. "every call" has only denies that concern
every call by their names and none by its arguments: equality, texts, regexes, globs, ranges, keys, hosts and programs
in turn. "language" has 1,000 rules, of which 100 use paths, texts, files, hosts, command lines, alternatives and
exceptions: ten such rules for each of ten tools. Cedar (`cedarpy`) and Rego (`regopy`) decide an equivalent allow/deny
policy, parsed once, over the same calls. `--check` exits with 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import figures

from subluminal.contracts.identity import Identity
from subluminal.contracts.toolcall import ToolCall
from subluminal.core.engine.stack import Engine, Stack
from subluminal.core.engine.state import LocalState
from subluminal.host.places import ThisMachine

SIZES = (10, 100, 1_000, 10_000)
TOOLS = [f"{verb}_{noun}" for verb in ("get", "list", "create", "update", "search") for noun in "abcdefghij"]
ARGS = {"path": "/srv/app", "limit": 20, "query": "open issues"}
MAX_RATIO_1000_TO_10 = 4.0
MAX_US_1000 = 25.0
MAX_US_EVERY_1000 = 40.0  # all of which concern every call
MAX_US_MET = 60.0  # a call that ten rules with such predicates look at
MAX_LOAD_MS = 5.0
MIN_FASTER = 10.0
COMPARED_RULES = 100


def rule(rule_id: str, kind: str, match: dict[str, Any], effect: dict[str, Any]) -> dict[str, Any]:
    head = {"rule_id": rule_id, "kind": kind, "enabled": True, "severity": "warn"}
    return {**head, "match": match, "effect": effect}


def deny(rule_id: str, match: dict[str, Any]) -> dict[str, Any]:
    return rule(rule_id, "deny", match, {"action": "BLOCK", "reason_code": "DENYLIST_MATCH", "message": "no"})


def names(**tool_name: list[str]) -> dict[str, Any]:
    return {"tool_name": tool_name}


def fillers(count: int) -> list[dict[str, Any]]:
    """Denies for other tools: exact, glob and regex in turn."""
    shapes: list[Callable[[int], dict[str, Any]]] = [
        lambda n: names(glob=[f"drop_table_{n}"]),
        lambda n: names(glob=[f"ns{n}_*"]),
        lambda n: names(regex=[f"^svc{n}_[a-z]+$"]),
        lambda n: names(glob=[f"*_secret{n}"]),
        lambda n: names(regex=[f"(purge|wipe){n}"]),
    ]
    return [deny(f"f{n}", shapes[n % len(shapes)](n)) for n in range(count)]


def snapshot(rules: list[dict[str, Any]]) -> dict[str, Any]:
    defaults = {"decision_on_error": "BLOCK", "fail_open_read_tools": False}
    head = {"snapshot_format": 1, "policy_id": "bench", "version": "1", "mode": "guardrails"}
    return {**head, "defaults": defaults, "selectors": {}, "rules": rules, "policy_hash": "0" * 64}


def mixed(count: int) -> dict[str, Any]:
    huge = 10**12
    first = [
        rule("writes", "tag", names(glob=["create_*", "update_*"]), {"tag": {"add_risk_class": ["write_like"]}}),
        deny("no-rm", names(glob=["rm"])),
        deny("no-drop", names(glob=["drop_*"])),
        deny("no-admin", names(regex=["^admin_[a-z]+$"])),
        deny("small-pages", {"args": {"numeric_range": {"limit": {"min": 1_000}}}}),
    ]
    budget = {"scope": "run", "limit_calls": huge, "on_exceed": "BLOCK", "cost_units_per_call": 1}
    rate = {"scope": "server_tool", "capacity": huge, "refill_tokens": huge, "refill_period_ms": 1}
    rate |= {"cost_tokens_per_call": 1, "on_limit": "THROTTLE", "backoff_ms": 500}
    errors = {"scope": "tool", "error_threshold": 5, "window_ms": 60_000, "on_trip": "BLOCK", "latency_count": 1}
    once = {"scope": "tool", "window_ms": 1, "key": "args_hash", "on_duplicate": "BLOCK"}
    last = [
        rule("budget", "budget", {}, {"budget": budget}),
        rule("rate", "rate_limit", {}, {"rate_limit": rate}),
        rule("errors", "breaker", {}, {"breaker": errors}),
        rule("once", "dedupe", {"risk_class": ["write_like"]}, {"dedupe": once}),
        rule("rest", "allow", {}, {"action": "ALLOW", "reason_code": "ALLOWLIST_MATCH", "message": ""}),
    ]
    return snapshot(first + fillers(count - 10) + last)


# What the ten rules of a tool ask; none of them objects to LANGUAGE_ARGS.
ASKED: list[dict[str, Any]] = [
    {"args": {"path_within": {"path": ["/etc", "~/.ssh"]}}},
    {"args": {"host_in": {"url": ["*.evil.example", "private"]}}},
    {"args": {"command": {"command": {"programs": ["rm", "dd", "curl"]}}}},
    {"args": {"key_glob": {"path": ["*.pem", "*/secrets/*"]}}},
    {"args": {"key_regex": {"query": ["(?i)drop +table", "^DELETE "]}}},
    {"args": {"key_contains": {"query": ["BEGIN KEY"]}}},
    {"args": {"key_equals": {"options.force": True}}},
    {"args": {"key_glob": {"files[].path": ["/etc/*"]}}},
    {"any_of": [{"args": {"bytes": {"min": 1_000_000}}}, {"args": {"missing_keys": ["query"]}}]},
    {"unless": {"args": {"path_within": {"path": ["."]}}}},
]
LANGUAGE_ARGS = {
    **ARGS,
    "path": "src/app.py",
    "url": "https://docs.example.com/a",
    "command": "git status && ls -l",
    "options": {"force": False},
    "files": [{"path": "a.py"}, {"path": "b.py"}],
}


def language(count: int) -> dict[str, Any]:
    """`count` rules, a hundred of them ten for each of the tools run_0 to run_9."""
    policy = mixed(count - 100)
    made = []
    for number in range(100):
        asked = dict(ASKED[number % 10])
        unless = {"unless": asked.pop("unless")} if "unless" in asked else {}
        made.append({**deny(f"l{number}", {**names(glob=[f"run_{number // 10}"]), **asked}), **unless})
    return {**policy, "rules": made + policy["rules"]}


# What rules that concern every call compare; none of them objects to LANGUAGE_ARGS.
COMPARED: list[Callable[[int], dict[str, Any]]] = [
    lambda n: {"key_equals": {"query": f"v{n}"}},
    lambda n: {"key_regex": {"query": [f"(?i)drop +table_{n}"]}},
    lambda n: {"key_glob": {"path": [f"*/secret{n}/*"]}},
    lambda n: {"key_contains": {"query": [f"KEY {n} "]}},
    lambda n: {"numeric_range": {"limit": {"min": 1_000 + n}}},
    lambda n: {"key_equals": {f"options.k{n}": True}},
    lambda n: {"host_in": {"url": [f"*.evil{n}.example"]}},
    lambda n: {"command": {"command": {"programs": [f"rm{n}"]}}},
]


def every_call(count: int) -> dict[str, Any]:
    return snapshot([deny(f"e{n}", {**names(glob=["*"]), "args": COMPARED[n % 8](n)}) for n in range(count)])


def met(snapshot_: dict[str, Any]) -> Callable[[int], Any]:
    """Calls that ten of the rules look at."""
    stack = Stack([Engine(snapshot_, Identity("run"), ThisMachine(os.environ, os.getcwd()))])
    state = LocalState()
    raw = json.dumps(LANGUAGE_ARGS).encode()

    def run(number: int) -> Any:
        call = ToolCall("files", f"run_{number % 10}", raw, 400)
        verdict = stack.judge(call, lambda: LANGUAGE_ARGS, lambda: "0" * 64, state, 0, 10 * number)
        assert verdict.decision.action == "ALLOW"
        return verdict

    return run


def p50_us(run: Callable[[int], Any], count: int) -> float:
    for number in range(min(count, 200)):
        run(number)
    gc.collect()
    times = []
    for number in range(count):
        began = time.perf_counter_ns()
        run(200 + number)
        times.append(time.perf_counter_ns() - began)
    return statistics.median(times) / 1_000


def evaluation(snapshot_: dict[str, Any], fresh: bool = False) -> Callable[[int], Any]:
    stack = Stack([Engine(snapshot_, Identity("run"))])
    state = LocalState()
    digest = "0" * 64

    def run(number: int) -> Any:
        tool = f"new_{number}" if fresh else TOOLS[number % len(TOOLS)]
        call = ToolCall("files", tool, b"{}", 64)
        return stack.judge(call, lambda: ARGS, lambda: digest, state, 0, 10 * number)

    return run


def load_ms(snapshot_: dict[str, Any]) -> float:
    best = []
    for _ in range(21):
        began = time.perf_counter_ns()
        Engine(snapshot_, Identity("run"))
        best.append(time.perf_counter_ns() - began)
    return statistics.median(best) / 1_000_000


def access_only(count: int) -> dict[str, Any]:
    """What Cedar and Rego can say as well: denies by exact name, prefix and argument, then allow."""
    rules = []
    for number in range(count - 2):
        rules.append(deny(f"r{number}", names(glob=[f"drop_{number}" if number % 2 else f"ns{number}_*"])))
    rules.append(deny("pages", {"args": {"numeric_range": {"limit": {"min": 1_000}}}}))
    rules.append(rule("rest", "allow", {}, {"action": "ALLOW", "reason_code": "ALLOWLIST_MATCH", "message": ""}))
    return snapshot(rules)


def cedar(count: int) -> Callable[[int], Any]:
    import cedarpy

    texts = ["permit(principal, action, resource);"]
    for number in range(count - 2):
        test = f'context.tool == "drop_{number}"' if number % 2 else f'context.tool like "ns{number}_*"'
        texts.append(f"forbid(principal, action, resource) when {{ {test} }};")
    texts.append("forbid(principal, action, resource) when { context.args.limit >= 1000 };")
    policies = cedarpy.PolicySet.from_str("\n".join(texts))
    entities = cedarpy.Entities.from_json_str("[]")

    def run(number: int) -> Any:
        context = {"tool": TOOLS[number % len(TOOLS)], "args": ARGS}
        request = {"principal": 'Agent::"a"', "action": 'Action::"call"', "resource": 'Server::"files"'}
        return cedarpy.is_authorized({**request, "context": context}, policies, entities)

    assert run(0).allowed
    return run


def rego(count: int) -> Callable[[int], Any]:
    import regopy

    lines = ["package tools", "import rego.v1", "default allow := false", "allow if { not deny }"]
    for number in range(count - 2):
        test = f'input.tool == "drop_{number}"' if number % 2 else f'startswith(input.tool, "ns{number}_")'
        lines.append(f"deny if {{ {test} }}")
    lines.append("deny if { input.args.limit >= 1000 }")
    interpreter = regopy.Interpreter()
    interpreter.add_module("tools", "\n".join(lines))
    bundle = interpreter.build("data.tools.allow", [])

    def run(number: int) -> Any:
        interpreter.set_input({"tool": TOOLS[number % len(TOOLS)], "args": ARGS})
        return interpreter.query_bundle(bundle)

    assert "true" in str(run(0))
    return run


def measure() -> dict[str, Any]:
    results: dict[str, Any] = {"evaluation_us": {}, "new_tool_us": {}, "every_call_us": {}}
    for size in SIZES:
        policy = mixed(size)
        results["evaluation_us"][size] = p50_us(evaluation(policy), 5_000)
        results["new_tool_us"][size] = p50_us(evaluation(policy, fresh=True), 500)
        results["every_call_us"][size] = p50_us(met(every_call(size)), 2_000)
    worded = language(1_000)
    results["language_us"] = {"none met": p50_us(evaluation(worded), 5_000), "ten met": p50_us(met(worded), 5_000)}
    results["load_ms_100"] = load_ms(mixed(100))
    beside = {"subluminal": p50_us(evaluation(access_only(COMPARED_RULES)), 5_000)}
    for name, build in (("cedarpy", cedar), ("regopy", rego)):
        try:
            beside[name] = p50_us(build(COMPARED_RULES), 200)
        except ImportError:
            continue
    results["beside_us"] = beside
    return results


def misses(results: dict[str, Any]) -> list[str]:
    times = results["evaluation_us"]
    found = []
    if times[1_000] > MAX_RATIO_1000_TO_10 * times[10]:
        found.append(f"1,000 rules take {times[1_000] / times[10]:.1f} times as long as 10")
    if times[1_000] > MAX_US_1000:
        found.append(f"1,000 rules take {times[1_000]:.1f} us")
    if results["every_call_us"][1_000] > MAX_US_EVERY_1000:
        found.append(f"1,000 rules that concern every call take {results['every_call_us'][1_000]:.1f} us")
    for name, limit in (("none met", MAX_US_1000), ("ten met", MAX_US_MET)):
        if results["language_us"][name] > limit:
            found.append(f"1,000 rules, 100 of the language, {name}: {results['language_us'][name]:.1f} us")
    if results["load_ms_100"] > MAX_LOAD_MS:
        found.append(f"loading 100 rules takes {results['load_ms_100']:.1f} ms")
    ours = results["beside_us"]["subluminal"]
    found += [
        f"only {other / ours:.1f} times as fast as {name}"
        for name, other in results["beside_us"].items()
        if name != "subluminal" and other < MIN_FASTER * ours
    ]
    return found


def tables(results: dict[str, Any]) -> str:
    columns = ("evaluation_us", "new_tool_us", "every_call_us")
    by_size = [(f"{n:,}", *(f"{results[column][n]:.1f}" for column in columns)) for n in SIZES]
    ours = results["beside_us"]["subluminal"]
    beside = [(name, f"{us:.1f}", f"{us / ours:.0f}x") for name, us in results["beside_us"].items()]
    worded = [(name, f"{us:.1f}") for name, us in results["language_us"].items()]
    return "\n\n".join(
        (
            figures.table(("rules", "p50 us", "new tool, p50 us", "all concern every call, p50 us"), by_size),
            figures.table(("1,000 rules, 100 of them of the language", "p50 us"), worded),
            figures.table((f"allow/deny, {COMPARED_RULES} rules", "p50 us", "ratio"), beside),
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is missed")
    options = parser.parse_args()
    results = measure()
    missed = misses(results)
    figures.save("policy", tables(results))
    if options.json:
        print(json.dumps({**results, "missed": missed}))
    else:
        print("rules     p50 us   new tool us   every call us")
        for size in SIZES:
            times = [results[column][size] for column in ("evaluation_us", "new_tool_us", "every_call_us")]
            print(f"{size:>6,} {times[0]:>9.1f} {times[1]:>13.1f} {times[2]:>15.1f}")
        for name, us in results["language_us"].items():
            print(f"\n1,000 rules, 100 of the language, {name}: {us:.1f} us", end="")
        print(f"\n\nloading a snapshot of 100 rules: {results['load_ms_100']:.2f} ms")
        print(f"\nallow/deny, {COMPARED_RULES} rules, p50 us")
        for name, us in results["beside_us"].items():
            print(f"  {name:<12} {us:>9.1f}   x{us / results['beside_us']['subluminal']:.0f}")
        for line in missed:
            print(f"missed: {line}", file=sys.stderr)
    return 1 if missed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
