"""The words a refused agent reads: summaries, hint texts, suggested arguments (§3.2, §3.3).

Some clients show the model nothing but one line of text, so a summary says what was refused, why, and what to do
next. Tool and server names come from outside: they are shortened and stripped of control characters. Argument values
never enter a text; only `suggested_args` repeats them, to the caller who sent them.

Texts of a policy may use {tool} {server} {rule_id} {policy_id} {reason_code} {scope} {limit} {used} {backoff_ms}
{window_ms} {threshold} {count}. Any other brace is left as it is.
"""

from __future__ import annotations

from subluminal.contracts import vocabulary as vocab
from subluminal.contracts.decision import Hint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_SUMMARY_CHARS = 480
MAX_HINT_CHARS = 480
MAX_NAME_CHARS = 80
# Above this, a suggestion holds only what should change: repeating the call's own arguments would drown the agent.
MAX_SUGGESTED_BYTES = 8_192

PLACEHOLDERS = (
    "tool", "server", "rule_id", "policy_id", "reason_code", "scope", "limit", "used", "backoff_ms", "window_ms",
    "threshold", "count",
)  # fmt: skip


def clip(text: str, bound: int) -> str:
    return text if len(text) <= bound else text[: bound - 1] + "…"


def show_name(name: str) -> str:
    """A name from outside, fit to stand in a sentence."""
    clean = "".join(char if char.isprintable() else "�" for char in name[: MAX_NAME_CHARS + 1])
    return clip(clean, MAX_NAME_CHARS)


def fill(template: str, facts: dict[str, Any]) -> str:
    """Replace known placeholders; leave everything else untouched. What is filled in is not read again."""
    if "{" not in template:
        return template
    pieces = template.split("{")
    out = [pieces[0]]
    for piece in pieces[1:]:
        word, brace, rest = piece.partition("}")
        if brace and word in PLACEHOLDERS and facts.get(word) is not None:
            out += (str(facts[word]), rest)
        else:
            out += ("{", piece)
    return "".join(out)


def duration(ms: int) -> str:
    if ms < 1000 or ms % 1000:
        return f"{ms} ms" if ms < 10_000 else f"{ms / 1000:.1f} s"
    seconds = ms // 1000
    for length, name in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds % length == 0 and (seconds > length or name != "days"):
            return f"{seconds // length} {name}"
    return f"{seconds} s"


_LENGTHS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"))


def _each(window_ms: int) -> str:
    """How people say a length of time that a limit is for: "an hour", "in 90 s"."""
    for length, name in _LENGTHS:
        if window_ms == length:
            return f"an {name}" if name == "hour" else f"a {name}"
    return f"in {duration(window_ms)}"


def _at_most(ms: int) -> str:
    """A wait in words, rounded up so that whoever keeps to it has waited long enough."""
    for length, name in _LENGTHS:
        if ms > 2 * length or length == 1_000:
            count = -(-ms // length)
            return f"{count} {name}" if count == 1 else f"{count} {name}s"
    return duration(ms)


def _budget(facts: dict[str, Any]) -> tuple[str, str]:
    limit, unit, window_ms = facts.get("limit"), facts.get("unit", "calls"), facts.get("window_ms")
    if not window_ms:
        why = f"the budget of {limit} {unit} ({_scope(facts)}) is used up"
        return why, "Do not retry; finish with what you have or ask for a larger budget"
    if not facts.get("backoff_ms"):
        why = f"the call does not fit in {limit} {unit} {_each(window_ms)} ({_scope(facts)})"
        return why, "Do not retry; ask for less at once or for a larger budget"
    wait = _at_most(facts["backoff_ms"])
    used_up = f"1 {unit.removesuffix('s')}" if limit == 1 else f"{limit} {unit}"
    verb = "is" if limit == 1 else "are"
    why = f"{used_up} {_each(window_ms)} ({_scope(facts)}) {verb} used up; the next fits in {wait}"
    return why, f"Wait {wait} before you retry, or finish with what you have"


def _why_and_next(reason_code: str, facts: dict[str, Any]) -> tuple[str, str] | None:
    """The standard reason and advice of each reason code that the engine itself gives.

    A rule's own code says nothing to us; `because` is then the engine's.
    """
    get = facts.get
    reason_code = get("because") or reason_code
    if reason_code == vocab.BUDGET_EXCEEDED:
        return _budget(facts)
    if reason_code == vocab.RATE_LIMITED:
        wait = f"Wait {duration(facts['backoff_ms'])}, then retry" if get("backoff_ms") else "Slow down, then retry"
        return f"the rate limit of {get('limit')} calls at once ({_scope(facts)}) is reached", wait
    if reason_code == vocab.DUPLICATE_CALL:
        why = f"the same call was already made within {duration(facts['window_ms'])}"
        return why, "Use the result of the earlier call, or change the arguments"
    if reason_code == vocab.BREAKER_REPEAT:
        why = f"the same call was made {get('count')} times within {duration(facts['window_ms'])}"
        return why, "Do not repeat it; try something else"
    if reason_code == vocab.BREAKER_ERRORS:
        why = f"it failed {get('count')} times within {duration(facts['window_ms'])}"
        return why, "Look at the errors and try another way"
    if reason_code == vocab.BREAKER_LATENCY:
        return f"{get('count')} calls within {duration(facts['window_ms'])} were too slow", "Wait, or try another way"
    if reason_code == vocab.EVALUATION_ERROR:
        why = f" ({facts['why']})" if "why" in facts else ""
        return f"the policy could not be evaluated for this call{why}", "Tell the operator to run `sub doctor`"
    if reason_code == vocab.UNINSPECTED_ARGS:
        return "the arguments are too large to be checked by policy", "Send smaller arguments"
    if reason_code == vocab.UNJUDGED_ARGS:
        why = f"a rule cannot judge the arguments with certainty: {get('why') or 'their meaning is not plain'}"
        return why, "Say the same in a plainer form, or in several smaller calls"
    if reason_code == vocab.TOOL_NOT_LISTED:
        asked = "input schema" if get("rule_id") == "defaults.check_schemas" else "risk class"
        why = f"a rule asks for the tool's {asked}, and its server has not listed the tool yet"
        return why, "List the server's tools (tools/list), then retry"
    if reason_code == vocab.POLICY_OVERDUE:
        return f"{get('why')}, so it cannot be judged", "Do not retry; tell the operator to look at `sub fleet status`"
    if reason_code == vocab.FLEET_STOP:
        return "it was stopped for the whole fleet", "Do not retry; wait until whoever stopped it lets it go on"
    if reason_code == vocab.TOOL_QUARANTINED:
        return "what its server says of it has changed, and nobody has approved the change", _APPROVE.format(**facts)
    if reason_code == vocab.SCHEMA_MISMATCH:
        return f"the arguments do not fit the tool's input schema: {get('why')}", "Correct that, then call again"
    if reason_code == vocab.LEGS_EXCEEDED:
        return f"one call may have {get('limit')} legs", "Stop answering its requests for input; begin a new call"
    if reason_code == vocab.AMBIGUOUS_MESSAGE:
        if facts.get("transport") == "hook":
            return "what the client says of the call can be read in more than one way", _PLAINER
        if facts.get("transport") == "http":
            return "servers can read the request in more than one way", _PLAIN_REQUEST
        if facts.get("transport") == "messages_api":
            return "what the model wrote can be read in more than one way", _PLAINER
        return "the message can be read in more than one way", "Send one well-formed JSON-RPC message per line"
    if reason_code == vocab.RUN_TERMINATED:
        return "this run has been terminated", "Stop; no further tool call will be accepted"
    return None


_APPROVE = "Do without it; a person can look at the change and approve it: sub tools approve {server}/{tool}"
_PLAIN_REQUEST = "Send it with a plain path, each parameter once, and a body of one JSON value or none"
_PLAINER = "Make the call again with plain arguments, each named once"
# A path that lets a call through counts only if every reading of it lies within: some servers take `~` for a name.
_WRITE_OUT = "Write the path out in full, without ~ or a variable; otherwise do not retry the call"
_NOT_AGAIN = "Do not retry the same call"


def _other_arguments(facts: dict[str, Any]) -> str:
    if facts.get("shorthand"):
        return _WRITE_OUT
    return f"{_NOT_AGAIN}; change the arguments or use another tool"


def _scope(facts: dict[str, Any]) -> str:
    scope = facts.get("scope")
    if scope in ("run", "server", "agent", "principal"):
        return f"for this {scope}"
    if scope == "machine":
        return "on this machine"
    return "for this tool" if scope == "tool" else "for this tool on this server"


def summary(reason_code: str, facts: dict[str, Any], message: str | None) -> str:
    """One or two sentences: what was refused, why (the rule's own `message` where it has one), what to do next."""
    subject = f"{facts['tool']} on {facts['server']} was refused"
    rule = f" (rule {facts['rule_id']})" if facts.get("rule_id") else ""
    standard = _why_and_next(reason_code, facts)
    if message:
        why = fill(message, facts).strip()
        text = f"{subject}{rule}: {why}"
        if not text.endswith((".", "!", "?")):
            text += "."
        if standard is None:
            standard = ("", _WRITE_OUT if facts.get("shorthand") else _NOT_AGAIN)
        return clip(f"{text} {standard[1]}.", MAX_SUMMARY_CHARS)
    if standard is None:
        standard = (facts.get("terms") or "policy does not permit this call", _other_arguments(facts))
    return clip(f"{subject}{rule}: {standard[0]}. {standard[1]}.", MAX_SUMMARY_CHARS)


_HINT_KINDS = {vocab.BUDGET_EXCEEDED: "BUDGET", vocab.RATE_LIMITED: "RATE"}
_OTHER = frozenset((
    vocab.DUPLICATE_CALL, vocab.BREAKER_ERRORS, vocab.BREAKER_LATENCY, vocab.BREAKER_REPEAT, vocab.EVALUATION_ERROR,
    vocab.UNINSPECTED_ARGS, vocab.UNJUDGED_ARGS, vocab.TOOL_NOT_LISTED, vocab.LEGS_EXCEEDED,
    vocab.POLICY_OVERDUE,
))  # fmt: skip


def make_hint(
    reason_code: str,
    facts: dict[str, Any],
    *,
    budget_or_rate: str | None,
    hint_text: str | None,
    suggested: dict[str, Any] | None,
    retry_advice: str | None,
    message: str | None,
) -> Hint:
    """`budget_or_rate`: the hint kind that the rule's kind implies; `suggested`: the merged suggestion or None."""
    standard = _why_and_next(reason_code, facts)
    if standard is None and facts.get("terms"):
        standard = (facts["terms"], _other_arguments(facts))
    advice = standard[1] if standard else _other_arguments(facts)
    if standard is None and message and hint_text and not facts.get("shorthand"):
        advice = _NOT_AGAIN  # the rule's own words say the rest, and the summary says this already
    advice += "."
    if hint_text:
        text = fill(hint_text, facts)
    elif message:
        text = f"{fill(message, facts).strip().rstrip('.')}. {advice}"
    else:
        text = (standard[0][:1].upper() + standard[0][1:] + ". " if standard else "") + advice
    kind = budget_or_rate or _HINT_KINDS.get(reason_code)
    if kind is None:
        refused_for = "OTHER" if (facts.get("because") or reason_code) in _OTHER else "SAFETY"
        kind = refused_for if suggested is None else "ARG_FIX"
    if suggested is not None and retry_advice is None:
        advice = "Retry with suggested_args."
    return Hint(clip(text, MAX_HINT_CHARS), kind, suggested, clip(retry_advice or advice, MAX_HINT_CHARS))


def suggest(template: dict[str, Any] | None, args: Any, bytes_in: int, facts: dict[str, Any]) -> dict[str, Any] | None:
    """The rule's template merged over the call's arguments as RFC 7386 does: null takes a key away."""
    if template is None:
        return None
    base = args if isinstance(args, dict) and bytes_in <= MAX_SUGGESTED_BYTES else {}
    return _merge(base, template, facts)


def _merge(base: dict[str, Any], template: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in template.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            below = merged.get(key)
            merged[key] = _merge(below if isinstance(below, dict) else {}, value, facts)
        else:
            merged[key] = fill(value, facts) if isinstance(value, str) else value
    return merged
