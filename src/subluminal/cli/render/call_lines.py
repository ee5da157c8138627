"""One call in lines for a person: what happened on the first, why on indented ones below it.

Everything that came from an agent or a server is made printable here; nothing else may put it on a terminal.
"""

from __future__ import annotations

from typing import Any

from subluminal.cli.render.columns import PIPE_CELLS, cut, pad, width
from subluminal.cli.render.moments import clock, duration
from subluminal.cli.render.output import DECISION_COLOURS, paint
from subluminal.cli.render.rows import json_text
from subluminal.contracts.short_ids import short
from subluminal.reports.printable import printable

Row = dict[str, Any]

INDENT = " " * 10


_MAX_DETAIL_LINES = 4
_WORDS = {"REJECT_WITH_HINT": "REJECT", "TERMINATE_RUN": "TERMINATE"}


def call_lines(row: Row, columns: int | None, *, tag: str = "", elapsed_ms: int | None = None) -> list[str]:
    """`columns` is the terminal's width or None; `elapsed_ms` how long a call that has no end yet has run."""
    return [_first_line(row, columns, tag, elapsed_ms), *_detail_lines(row, columns)]


def _first_line(row: Row, columns: int | None, tag: str, elapsed_ms: int | None) -> str:
    word, colour = state_word(row)
    took = latency(row) if row["status"] else "" if elapsed_ms is None or _refused(row) else duration(elapsed_ms)
    head = f"{clock(row['created_at'])}  "
    state = pad(word, 9)
    name = f"{row['server_name']}/{row['tool_name']}"
    args = row.get("args_preview") or ("" if not row["preview_truncated"] else "[TRUNCATED]")
    call = f"  {printable(short(row['call_id']))}"
    room = (PIPE_CELLS if columns is None else columns) - width(head) - 9
    # The call's name is what `sub show` is asked with: a narrow terminal goes without the rest first.
    call = call if width(call) < room // 3 else ""
    rest = cut(f"  {pad(took, 8, right=True)}  {tag}{printable(name)}", room - width(call))
    left = room - width(rest) - width(call) - 2
    shown = cut(printable(readable(args)), left) if left > 3 else ""
    shown = "  " + shown if shown else ""
    gap = "" if columns is None else " " * (room - width(rest) - width(shown) - width(call))
    return paint(head, "bright_black") + paint(state, colour) + rest + paint(shown + gap + call, "bright_black")


def latency(row: Row) -> str:
    """Nothing for a call that was refused: it never ran."""
    return "" if row["latency_ms"] is None or _refused(row) else duration(row["latency_ms"])


def readable(preview: str) -> str:
    """A preview's JSON with its letters as letters: clients escape them as they like."""
    if "\\u" not in preview:
        return preview[: 4 * PIPE_CELLS]
    import json

    try:
        return json_text(json.loads(preview))[: 4 * PIPE_CELLS]
    except (ValueError, RecursionError):
        return preview[: 4 * PIPE_CELLS]


def state_word(row: Row) -> tuple[str, str | None]:
    decision, status = row["decision"], row["status"]
    if decision and decision != "ALLOW":
        return _WORDS.get(decision) or str(decision), DECISION_COLOURS.get(decision)
    if status is None:
        return "running…", "cyan"
    if status == "OK":
        return ("OK", "yellow") if row["would_action"] else ("OK", DECISION_COLOURS["ALLOW"])
    return str(status), "red"


def _refused(row: Row) -> bool:
    return row["decision"] not in (None, "ALLOW")


def _detail_lines(row: Row, columns: int | None) -> list[str]:
    lines: list[str] = []
    for text, colour in details(row):
        for piece in wrapped(printable(" ".join(text.split())), columns):
            lines.append(paint(INDENT + piece, colour))
    return lines


def details(row: Row) -> list[tuple[str, str | None]]:
    """(sentence, colour): why the call was refused or failed, and what the agent was told to do."""
    said: list[tuple[str, str | None]] = []
    decision = row["decision"]
    if _refused(row):
        said.append((f"{row['reason_code']}{_by(row)}: {row['summary']}", DECISION_COLOURS[decision]))
    if row["backoff_ms"]:
        said.append((f"retry in {duration(row['backoff_ms'])}", None))
    if row["would_action"] and row["would_action"] != "ALLOW":
        said.append(
            (f"would {row['would_action']}{_rule(row['would_rule_id'])} ({row['would_reason_code']})", "yellow")
        )
    hint = row.get("hint")
    if hint:
        if not is_told(hint["hint_text"], [text for text, _ in said]):
            said.append((f"hint: {hint['hint_text']}", None))
        if hint.get("suggested_args") is not None:
            said.append((f"try: {json_text(hint['suggested_args'])}", None))
        if hint.get("retry_advice") and not is_told(hint["retry_advice"], [text for text, _ in said]):
            said.append((hint["retry_advice"], None))
    if row["ambiguous"]:
        said.append((f"ambiguous message: {row['ambiguous']}", "yellow"))
    if row["status"] not in (None, "OK") and not _refused(row):
        parts = [part for part in (row["error_class"], row["error_code"]) if part]
        message = row["error_message"] or ""
        if parts or message:
            said.append((" ".join(parts) + (f": {message}" if message else ""), "red"))
    return said


def is_told(text: str, told: list[str]) -> bool:
    """Whether every sentence of it stands in what was said before."""
    before = " ".join(" ".join(told).split())
    sentences = [sentence.strip(" .") for sentence in " ".join(text.split()).split(". ")]
    return all(sentence in before for sentence in sentences)


def _by(row: Row) -> str:
    """The rule, unless the summary names it."""
    return "" if (row["rule_id"] or "") in (row["summary"] or "") else _rule(row["rule_id"])


def _rule(rule_id: str | None) -> str:
    return f" by rule {rule_id}" if rule_id else ""


def wrapped(text: str, columns: int | None) -> list[str]:
    """Broken between words to fit beside the indent, and cut after a few lines; one line where there is no width."""
    if columns is None:
        return [text]
    room = max(20, columns - len(INDENT))
    lines: list[str] = []
    while text and len(lines) < _MAX_DETAIL_LINES:
        if len(lines) == _MAX_DETAIL_LINES - 1 or width(text) <= room:
            lines.append(cut(text, room))
            break
        head = cut(text, room + 1)[:-1] if width(text) > room + 1 else text
        space = head.rfind(" ")
        at = space if space > room // 3 else len(head)
        lines.append(text[:at].rstrip())
        text = text[at:].lstrip()
    return lines or [""]
