"""`sub policy suggest`: a least-privilege policy out of what agents did."""

from __future__ import annotations

import gc
import os
import sys
import time
from typing import Any

import click

from subluminal.cli.policy.files import create_files, write_file
from subluminal.cli.policy.source import compiled
from subluminal.cli.render.moments import moment_ms
from subluminal.cli.render.output import note, print_json
from subluminal.contracts.errors import ConfigError, UsageError
from subluminal.control.suggest import SUPPORT
from subluminal.control.suggest.against import changes
from subluminal.control.suggest.cases import cases_text
from subluminal.control.suggest.fitting import Suggestion, suggest
from subluminal.control.suggest.gathering import Gathered, gather
from subluminal.control.suggest.wording import NEVER_CAUGHT, policy_text, proof_words, seen_words
from subluminal.reports.printable import count, printable

_MOST_NAMED = 5


@click.command("suggest")
@click.option(
    "--from", "sources", multiple=True, metavar="PATH", help="What to learn from; may be given several times."
)
@click.option(
    "--since", metavar="TIME", help="From then on: 15m, 2h, 3d ago, today, yesterday, a date or an RFC 3339 time."
)
@click.option("--client", type=click.Choice(("claude", "codex")), help="Only what this client did.")
@click.option(
    "--target-refusals", default="2%", metavar="SHARE", help="Calls of ordinary work that may be refused: 2%, 0.005."
)
@click.option("--against", metavar="POLICY", help="Propose changes of this policy only.")
@click.option("--output", "-o", metavar="FILE", help="Write the policy here, and its tests beside it.")
@click.option("--force", is_flag=True, help="Overwrite FILE and its tests.")
@click.option("--dry-run", is_flag=True, help="Write nothing; say what would be written.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, with the policy and its tests as texts.")
def suggest_command(
    sources: tuple[str, ...],
    since: str | None,
    client: str | None,
    target_refusals: str,
    against: str | None,
    output: str | None,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Suggest a policy that allows what agents did and little else, with the evidence in comments, and its tests.

    Without --from it learns from the ledger of this machine and from the transcripts that Claude Code and Codex keep on
    disk. A PATH is a ledger.db, a trace bundle, a JSONL file of events, a transcript (.jsonl, .jsonl.zst), a directory
    of them, or `ledger`. It learns on the older runs and proves on the newer ones: how many calls of ordinary work it
    would have refused, and how many calls beside them it would have let through. What fewer than three runs did is not
    learned; secrets and places of a person are not copied.

    \b
    Exit codes:
      0  suggested
      1  nothing that was seen has the support of three runs
      2  usage error, nothing to learn from, or a file cannot be read or written

    \b
    Examples:
      sub policy suggest
      sub policy suggest --client claude --since 30d -o .subluminal/policy.yaml
      sub policy suggest --from ~/.codex/sessions --target-refusals 0.5%
      sub policy suggest --against .subluminal/policy.yaml
    """
    target = _share(target_refusals)
    files = _targets(output, force, dry_run)
    existing = compiled(against) if against is not None else None
    gc.disable()  # millions of small objects, hardly any cycles, and the process ends afterwards
    progress = _Progress()
    since_ms = 0 if since is None else moment_ms(since, time.time_ns() // 1_000_000)
    gathered = gather(sources, os.environ, client=client, since_ms=since_ms, progress=progress.read)
    if not gathered.runs:
        progress.end()
        _tell_unread(gathered)
        hint = "Let an agent work first (with `sub run`, Claude Code or Codex), or name what there is with --from."
        raise UsageError("There is nothing to learn from: no run with a tool call was found.", hint=hint)
    found = suggest(gathered.runs, target, progress.say)
    progress.end()
    _tell_unread(gathered)
    if not found.draft.tools:
        note(f"Nothing is suggested: no tool was used in {SUPPORT} runs with values that repeat.")
        note(printable(seen_words(found, gathered.sources)))
        if as_json:
            print_json(_facts(found, gathered, None, None, [], None))
        return 1
    if existing is not None:
        proposed = changes(existing, found, gathered.runs)
        policy, tests = proposed.text(printable(str(against))), None
    else:
        proposed, policy = None, policy_text(found, gathered.sources)
        tests = cases_text(found, gathered.runs, os.path.basename(output or "policy.yaml"))
    written = _write(files, policy, tests, force) if files and not dry_run else []
    if as_json:
        print_json(_facts(found, gathered, policy, tests, written, proposed))
    elif not files:
        sys.stdout.write(policy)
    _tell(found, gathered, files, written)
    return 0


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise UsageError(f"--target-refusals {text} is no share", hint="Write 2% or 0.02: at least 0, and less than 1.")
    return share


def _targets(output: str | None, force: bool, dry_run: bool) -> list[str]:
    if output is None:
        return []
    stem, extension = os.path.splitext(output)
    if extension not in (".yaml", ".yml"):
        raise UsageError(f"{output}: a suggestion is YAML", hint="Let the name end in .yaml or .yml.")
    files = [output, f"{stem}.test{extension}"]
    for path in files:
        if os.path.lexists(path) and not (force or dry_run):
            raise ConfigError(f"{path} exists already", hint="Give another name, or --force to overwrite it.")
    return files


def _write(files: list[str], policy: str, tests: str | None, force: bool) -> list[str]:
    contents = {path: text.encode() for path, text in zip(files, (policy, tests), strict=True) if text is not None}
    if force:
        for path, content in contents.items():
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            write_file(path, content)
    else:
        create_files(contents)
    return list(contents)


def _facts(
    found: Suggestion, gathered: Gathered, policy: str | None, tests: str | None, written: list[str], proposed: Any
) -> dict[str, Any]:
    proof = found.proof
    facts: dict[str, Any] = {
        "policy": policy,
        "tests": tests,
        "written": written,
        "runs": found.runs,
        "calls": found.calls,
        "first_ms": found.first_ms,
        "last_ms": found.last_ms,
        "sources": gathered.sources,
        "target_refusals": found.target,
        "reached": found.reached,
        "proof": None,
        "levels": [
            {"server_name": s, "tool_name": t, "key": k, "level": level}
            for (s, t, k), level in sorted(found.levels.items())
        ],
        "left_out": found.draft.left_out,
        "not_limited": found.draft.unlimited,
        "never_caught": list(NEVER_CAUGHT),
        "unread": {"files": gathered.unread.files, "lines": gathered.unread.lines, "calls": gathered.unread.calls},
        "not_learned": gathered.not_learned,
        "runs_beyond": gathered.beyond,
    }
    if proof is not None:
        facts["proof"] = {
            "runs": proof.runs,
            "calls": proof.calls,
            "refused": proof.refused,
            "refusals": proof.refusals,
            "near_misses": proof.near,
            "near_misses_admitted": proof.near_admitted,
            "near_miss_admission": proof.near_miss_admission,
            "by_rule": proof.by_rule,
        }
    if proposed is not None:
        facts["changes"] = {"loosen": len(proposed.loosen), "tighten": len(proposed.tighten)}
    return facts


def _tell(found: Suggestion, gathered: Gathered, files: list[str], written: list[str]) -> None:
    note(printable(seen_words(found, gathered.sources)))
    for words in proof_words(found):
        note(printable(words))
    if gathered.not_learned:
        note(f"Not learned from: {count(gathered.not_learned, 'call')} that failed or were refused.")
    if gathered.beyond:
        note(f"Older than what is kept in mind, and left out: {count(gathered.beyond, 'run')}.")
    for path in files:
        note(f"{'wrote' if path in written else 'would write'} {printable(path)}")
    if written:
        note(printable(f"Next: read it; sub policy lint {written[0]}; sub policy test {written[0]}"))


def _tell_unread(gathered: Gathered) -> None:
    """What was there and was not learned from, never silently."""
    unread = gathered.unread
    for path, why in list(unread.files.items())[:_MOST_NAMED]:
        note(printable(f"Not read: {path} ({why})"))
    if len(unread.files) > _MOST_NAMED:
        note(f"Not read: {count(len(unread.files) - _MOST_NAMED, 'other file')}")
    if unread.lines:
        note(f"Passed over: {count(unread.lines, 'line')} that cannot be read (torn, too long, or no JSON)")
    if unread.calls:
        note(f"Passed over: {count(unread.calls, 'call')} whose arguments are not whole in the record")


class _Progress:
    """On a terminal, one line that is written over; elsewhere nothing."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._last = 0.0

    def read(self, done: int, total: int) -> None:
        if self._shown and time.monotonic() - self._last > 0.1:
            self._last = time.monotonic()
            self.say(f"reading transcripts: {done >> 20} of {total >> 20} MiB")

    def say(self, words: str) -> None:
        if self._shown:
            sys.stderr.write(f"\r\x1b[K{printable(words)[:100]}")
            sys.stderr.flush()

    def end(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
