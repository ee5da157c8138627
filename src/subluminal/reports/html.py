"""A run as one HTML page that opens from a file: no script, nothing fetched, and every foreign text escaped.

The page forbids itself to load anything (Content-Security-Policy), so that even a mistake in escaping could not act.
"""

from __future__ import annotations

from html import escape
from importlib import resources

from subluminal.contracts.vocabulary import ALLOW, THROTTLE
from subluminal.ledger.fold.call import Call
from subluminal.ledger.fold.run_facts import Refusal, RunFacts
from subluminal.reports.printable import printable
from subluminal.reports.usage import usage_told

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def html(facts: RunFacts, verdict: str, failed: bool, problems: list[str]) -> str:
    title = f"{facts.agent_id or 'agent'}: {verdict}"
    sections = [_head(facts, verdict, failed), _tiles(facts)]
    if problems:
        items = "".join(f"<li>{_t(problem)}</li>" for problem in problems)
        sections.append(f'<section class="problems"><h2>Problems</h2><ul>{items}</ul></section>')
    sections += [_refusals(facts), _tools(facts), _recent(facts)]
    style = resources.files("subluminal.reports").joinpath("report.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{_t(title)}</title><style>{style}</style></head>\n<body><main>\n"
        + "\n".join(filter(None, sections))
        + "\n</main></body></html>\n"
    )


def _t(text: object) -> str:
    """Foreign text: escaped, and its control and direction characters made visible."""
    return escape(printable(str(text)), quote=True)


def _head(facts: RunFacts, verdict: str, failed: bool) -> str:
    rows = {
        "Run": facts.run_id,
        "The agent": facts.status or "still running when this was written",
        "Client": facts.client,
        "Environment": facts.env,
        "Principal": facts.principal or "unknown",
        "Mode": facts.mode or "unknown",
        "Policy": ", ".join(f"{p.policy_id} {p.policy_version}" for p in facts.policies.values()) or "unknown",
        "Started": facts.started_at,
        "Ended": facts.ended_at or "unknown",
        **({} if facts.usage is None else {"Model": usage_told(facts.usage)}),
        **{name.replace("_", " "): value for name, value in (facts.workload or {}).items()},
    }
    cells = "".join(f"<div><dt>{_t(name)}</dt><dd>{_t(value)}</dd></div>" for name, value in rows.items())
    state = "bad" if failed else "good"
    return (
        f'<header><p class="brand">Subluminal run report</p><h1>{_t(facts.agent_id or "agent")}</h1>'
        f'<p class="verdict {state}">{_t(verdict)}</p><dl>{cells}</dl></header>'
    )


def _tiles(facts: RunFacts) -> str:
    counts = facts.counts
    figures = [
        ("calls", counts.total, ""),
        ("allowed", counts.allowed, ""),
        ("refused", counts.blocked, "bad" if counts.blocked else ""),
        ("throttled", counts.throttled, "warn" if counts.throttled else ""),
        ("errors", counts.errors, "warn" if counts.errors else ""),
    ]
    if facts.would_refuse:
        figures.append(("would be refused", facts.would_refuse, "warn"))
    tiles = "".join(
        f'<div class="tile {state}"><b>{value:,}</b><span>{name}</span></div>' for name, value, state in figures
    )
    return f'<section class="tiles">{tiles}</section>'


def _refusals(facts: RunFacts) -> str:
    if not facts.refusals:
        return '<section><h2>Refused calls</h2><p class="none">None.</p></section>'
    items = "".join(map(_refusal, facts.refusals))
    left = facts.refused - len(facts.refusals)
    more = f'<p class="none">and {left:,} more in events.jsonl.</p>' if left > 0 else ""
    return f"<section><h2>Refused calls</h2>{items}{more}</section>"


def _refusal(refusal: Refusal) -> str:
    rule = refusal.rule_id or refusal.reason_code
    return (
        f'<article class="refusal {_t(refusal.severity)}"><h3><span class="action">{_t(refusal.action)}</span> '
        f"<code>{_t(refusal.server_name)}/{_t(refusal.tool_name)}</code></h3><p>{_t(refusal.summary)}</p>"
        f'<p class="advice">{_t(refusal.advice)}</p><p class="small">{_t(refusal.ts)} · rule <code>{_t(rule)}</code>'
        f" ({_t(refusal.severity)}) of {_t(refusal.policy_id)} · {_t(refusal.reason_code)} · call "
        f"<code>{_t(refusal.call_id)}</code></p></article>"
    )


def _tools(facts: RunFacts) -> str:
    most = max((tool.counts.total for tool in facts.tools.values()), default=1) or 1
    rows = []
    for (server, name), tool in sorted(facts.tools.items(), key=lambda item: -item[1].counts.total):
        counts = tool.counts
        allowed = counts.total - counts.blocked - counts.throttled
        bar = "".join(
            f'<i class="{kind}" style="width:{100 * value / most:.2f}%"></i>'
            for kind, value in (("good", allowed), ("warn", counts.throttled), ("bad", counts.blocked))
            if value > 0
        )
        mean = f"{tool.latency_ms / counts.total:.0f}" if counts.total else ""
        rows.append(
            f"<tr><td><code>{_t(server)}</code></td><td><code>{_t(name)}</code></td><td class=bar>{bar}</td>"
            f"<td class=n>{counts.total:,}</td><td class=n>{counts.blocked:,}</td><td class=n>{counts.errors:,}</td>"
            f"<td class=n>{mean}</td></tr>"
        )
    head = "<th>server<th>tool<th><th class=n>calls<th class=n>refused<th class=n>errors<th class=n>mean ms"
    return f"<section><h2>Tools</h2><table><thead><tr>{head}</thead><tbody>{''.join(rows)}</tbody></table></section>"


def _recent(facts: RunFacts) -> str:
    rows = "".join(map(_call, facts.recent))
    head = "<th>time<th>tool<th>decision<th>rule<th>status<th class=n>ms"
    shown = "All calls" if facts.counts.total == len(facts.recent) else f"The last {len(facts.recent)} calls"
    return (
        f"<section><details{' open' if facts.counts.total <= 40 else ''}><summary>{shown}</summary>"
        f"<table><thead><tr>{head}</thead><tbody>{rows}</tbody></table></details></section>"
    )


def _call(call: Call) -> str:
    state = "good" if call.decision == ALLOW else "warn" if call.decision == THROTTLE else "bad"
    latency = "" if call.latency_ms is None else str(call.latency_ms)
    return (
        f"<tr><td>{_t(call.created_at[11:23])}</td><td><code>{_t(call.server_name)}/{_t(call.tool_name)}</code></td>"
        f'<td><span class="{state}">{_t(call.decision or "unknown")}</span></td><td>{_t(call.rule_id or "")}</td>'
        f"<td>{_t(call.status or 'unknown')}</td><td class=n>{latency}</td></tr>"
    )
