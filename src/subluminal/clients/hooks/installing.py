"""`sub import CLIENT --hooks`: read, plan and prove every file first, then back up and write.

In Codex two files may have to change. What is trusted is written before the hooks themselves: trust without a hook is
nothing, a hook without trust would be passed over in silence.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from subluminal.clients import backups, files
from subluminal.clients.base import Client, ConfigFile, Place
from subluminal.clients.codex import CODEX
from subluminal.clients.document import Document
from subluminal.clients.hooks import editing, trust
from subluminal.clients.hooks.groups import Known, fault, handlers, read_file
from subluminal.clients.hooks.places import CLAUDE_SETTINGS, CODEX_HOOKS, config_toml
from subluminal.clients.importing import Choice, refusal
from subluminal.clients.literals import masked_diff
from subluminal.clients.report import FileReport, HookReport
from subluminal.clients.spans import SyntaxProblem
from subluminal.contracts.errors import ClientConfigError, UsageError
from subluminal.host.clock import utc_now

_MISSING_MODE = 0o600


class _Target(NamedTuple):
    """A file as it is; `snapshot` is None where there is none."""

    client: Client
    file: ConfigFile
    snapshot: files.Snapshot | None
    text: str

    @property
    def dialect(self) -> str:
        return self.client.dialect


class _Change(NamedTuple):
    """What is to become of one file."""

    target: _Target
    text: str
    report: FileReport
    added: backups.AddedHooks


def import_hooks(
    client: str, place: Place, choice: Choice, *, sub: str, dry_run: bool = False, foreign: bool = False
) -> list[FileReport]:
    """Put our hooks into the client's files; a file that is refused is a report, and then nothing is written at all."""
    known = Known(client)
    try:
        changes = _codex(place, choice, known) if client == CODEX.name else _claude(place, choice, known)
        for change in changes:
            _prepare(change, known, dry_run=dry_run, foreign=foreign)
    except _Refused as refused:
        return [refused.report]
    if not dry_run:
        for change in changes:
            _write(change, known, sub)
    return [change.report for change in changes]


class _Refused(Exception):
    def __init__(self, report: FileReport) -> None:
        self.report = report


def _claude(place: Place, choice: Choice, known: Known) -> list[_Change]:
    found = [file for file in CLAUDE_SETTINGS.find(place) if _is_chosen(file, choice)]
    return [_with_hooks(_load(CLAUDE_SETTINGS, file), known) for file in found]


def _is_chosen(file: ConfigFile, choice: Choice) -> bool:
    return file.scope in choice.scopes if choice.scopes else file.default


def _codex(place: Place, choice: Choice, known: Known) -> list[_Change]:
    if choice.scopes and "user" not in choice.scopes:
        raise UsageError("hooks of Codex are installed for the user", hint="Leave --scope away, or say --scope user.")
    config = _load(CODEX, config_toml(place))
    if any(True for _ in _read_handlers(config)):
        change = _with_hooks(config, known)
        text, trusted, keys = _trusted(change.text, change.text, "toml", trust.called(config.file.path, place), known)
        added = backups.AddedHooks(change.added.commands, trusted, [*change.added.keys, *keys], change.added.created)
        return [change._replace(text=text, added=added)]
    [file] = CODEX_HOOKS.find(place)
    change = _with_hooks(_load(CODEX_HOOKS, file), known)
    text, trusted, keys = _trusted(config.text, change.text, "json", trust.called(file.path, place), known)
    report = FileReport(config.client.name, config.file.path, config.file.scope, "unchanged")
    if text != config.text:
        report.hooks = [HookReport(each.event, "trusted") for each in change.report.hooks]
    added = backups.AddedHooks(list(known.current.values()), trusted, keys, config.snapshot is None)
    return [_Change(config, text, report, added), change]


def _read_handlers(target: _Target) -> list[object]:
    try:
        return list(handlers(editing.read(target.text, target.dialect)))
    except ClientConfigError as error:
        raise _refused(target, error) from None


def _load(client: Client, file: ConfigFile) -> _Target:
    """A file that is not there, or has nothing in it, is one to be written."""
    try:
        snapshot, text = read_file(file.path)
    except ClientConfigError as error:
        raise _Refused(refusal(client, file, error)) from None
    return _Target(client, file, snapshot, text)


def _with_hooks(target: _Target, known: Known) -> _Change:
    report = FileReport(target.client.name, target.file.path, target.file.scope, "unchanged")
    try:
        if target.dialect == "json" and not target.text.strip("\ufeff \t\r\n"):
            text, report.hooks, keys = editing.whole_file(target.client.name)
        else:
            text, report.hooks, keys = _beside_others(target, known)
    except ClientConfigError as error:
        raise _refused(target, error) from None
    created = target.snapshot is None
    return _Change(target, text, report, backups.AddedHooks(list(known.current.values()), [], keys, created))


def _beside_others(target: _Target, known: Known) -> tuple[str, list[HookReport], editing.Keys]:
    odd = fault(editing.read(target.text, target.dialect), target.client.name)
    if odd is not None:
        raise ClientConfigError(odd)
    text, reports, keys = editing.install(target.text, target.dialect, target.client.name, known)
    _prove(target, text, known, keys)
    return text, reports, keys


def _refused(target: _Target, error: ClientConfigError) -> _Refused:
    error.args = (f"{target.file.path}: {error}",)
    if isinstance(error, SyntaxProblem):
        error.hint = error.hint or "The file was left as it is. Mend that line and run the command again."
    return _Refused(refusal(target.client, target.file, error))


def _prove(target: _Target, text: str, known: Known, keys: editing.Keys) -> None:
    """Without our hooks the new text is the old one, to the byte; and it holds one hook for each event."""
    events = [handler.event.key for handler in known.ours(editing.read(text, target.dialect))]
    old = editing.uninstall(target.text, target.dialect, known, keys)
    if editing.uninstall(text, target.dialect, known, keys) != old or len(events) != len(set(events)):
        raise ClientConfigError("could not be changed without side effects; it was left alone")


def _trusted(config: str, hooks: str, dialect: str, named: str, known: Known) -> tuple[str, list[str], editing.Keys]:
    """The text of `config.toml` that trusts our hooks in the file that Codex calls `named`."""
    document: Document = editing.read(hooks, dialect)
    wanted = [trust.trust_of(handler, document, named) for handler in known.ours(document)]
    text, keys = trust.trust(config, wanted, known.trusted)
    return text, [each.hash for each in wanted], keys


def _prepare(change: _Change, known: Known, *, dry_run: bool, foreign: bool) -> None:
    target, report = change.target, change.report
    if change.text == target.text:
        return
    try:
        editing.read(change.text, target.dialect)
        if target.snapshot is not None:
            report.warnings += files.warnings(target.snapshot)
            files.check_writable(target.snapshot, foreign=foreign)
    except ClientConfigError as error:
        raise _Refused(refusal(target.client, target.file, error)) from None
    report.status = "changed"
    if dry_run:
        old = target.text if target.text.strip() or target.dialect == "toml" else "{}"
        report.diff = masked_diff(target.file.path, target.dialect, old, change.text)


def _write(change: _Change, known: Known, sub: str) -> None:
    target, data = change.target, change.text.encode()
    if change.report.status != "changed":
        return
    snapshot = target.snapshot
    path = os.path.abspath(target.file.path)
    original = snapshot.data if snapshot is not None else b""
    record = backups.Record(
        id=backups.new_id(target.client.name),
        client=target.client.name,
        scope=target.file.scope,
        path=path,
        real_path=snapshot.real if snapshot is not None else os.path.realpath(path),
        created_at=utc_now(),
        original_sha256=backups.digest(original),
        written_sha256=backups.digest(data),
        size=len(original),
        mode=snapshot.stat.st_mode & 0o7777 if snapshot is not None else _MISSING_MODE,
        sub=sub,
        wrapped=[],
        holds=target.client.holds,
        hooks=change.added,
    )
    backups.save(record, original)
    try:
        if snapshot is not None:
            files.replace(snapshot, data)
        else:
            files.create(path, data)
    except BaseException:
        backups.discard(record)
        raise
    change.report.backup = backups.backup_path(record) if snapshot is not None else None
