"""`sub restore` of hooks: byte for byte where a file is as an import left it, else without our entries."""

from __future__ import annotations

from subluminal.clients import backups, files
from subluminal.clients.base import Client, ConfigFile, Place
from subluminal.clients.document import decode
from subluminal.clients.hooks import editing, trust
from subluminal.clients.hooks.groups import Known, handlers
from subluminal.clients.hooks.wanted import EVENTS
from subluminal.clients.importing import Choice, refusal
from subluminal.clients.literals import masked_diff
from subluminal.clients.report import FileReport, HookReport
from subluminal.contracts.errors import ClientConfigError


def restore_hooks(
    client: Client, place: Place, choice: Choice, *, dry_run: bool = False, foreign: bool = False
) -> list[FileReport]:
    """Undo what imports of hooks did to the files that hold nothing else of ours."""
    if choice.servers:
        return []
    found = {file.path: file for file in client.find(place)}
    for record in backups.records():
        if record.client == client.name and record.holds == client.holds and record.restored_at is None:
            found.setdefault(record.path, ConfigFile(record.path, record.scope))
    chosen = [file for file in found.values() if not choice.scopes or file.scope in choice.scopes]
    reports = [_restore_file(client, file, dry_run=dry_run, foreign=foreign) for file in chosen]
    return [report for report in reports if report is not None]


def _restore_file(client: Client, file: ConfigFile, *, dry_run: bool, foreign: bool) -> FileReport | None:
    try:
        snapshot = files.read(file.path)
        if snapshot is None:
            return _gone(client, file)
        return _restore(client, file, snapshot, dry_run=dry_run, foreign=foreign)
    except ClientConfigError as error:
        return refusal(client, file, error)


def _gone(client: Client, file: ConfigFile) -> FileReport | None:
    mine = [r for r in backups.records() if r.path == file.path and r.client == client.name and not r.restored_at]
    kept = [record for record in mine if record.hooks is not None and not record.hooks.created]
    if not kept:
        for record in mine:
            backups.mark_restored(record)  # we made it, and it is not there any more
        return None
    report = FileReport(client.name, file.path, file.scope, "gone", backup=backups.backup_path(kept[0]))
    report.warnings.append("the file no longer exists; its first backup is kept")
    return report


def _restore(
    client: Client, file: ConfigFile, snapshot: files.Snapshot, *, dry_run: bool, foreign: bool
) -> FileReport | None:
    history = backups.history(client.name, snapshot.real)
    in_force = [record for record in history if record.restored_at is None]
    rewound, used = backups.rewind(snapshot.data, history)
    data = without_hooks(client.name, client.dialect, rewound, in_force)
    if data == snapshot.data:
        for record in in_force if not dry_run else ():
            backups.mark_restored(record)  # others have taken ours out: there is nothing left to restore
        return None
    files.check_writable(snapshot, foreign=foreign)
    report = FileReport(client.name, file.path, file.scope, "restored", exact=bool(used) and data == rewound)
    report.hooks = removed(client.name, client.dialect, snapshot.data)
    report.warnings += moved(client.name, client.dialect, snapshot.data)
    if dry_run:
        shown = decode(data) if data.strip() else "{}"
        report.diff = masked_diff(file.path, client.dialect, decode(snapshot.data), shown)
        return report
    if was_made(in_force) and is_blank(data):
        files.remove(snapshot)
    else:
        files.replace(snapshot, data)
    for record in in_force:
        backups.mark_restored(record)
    return report


def removed(client: str, dialect: str, data: bytes) -> list[HookReport]:
    """The events of our hooks in a file, or of those that it trusts, in the order in which they are added."""
    known = Known(client)
    try:
        document = editing.read(decode(data), dialect)
        present = {trust.event_label(handler.event.key) for handler in known.ours(document)}
    except ClientConfigError:
        return []
    if dialect == "toml":
        hashes = known.trusted | trust.usual()
        present |= {key.rsplit(":", 3)[-3] for key, (found, _) in trust.stated(document).items() if found in hashes}
    wanted = [each.event for each in EVENTS[client] if trust.event_label(each.event) in present]
    return [HookReport(event, "removed") for event in wanted]


def moved(client: str, dialect: str, data: bytes) -> list[str]:
    """Codex trusts a hook by its place: those of the user behind ours get another one when ours go."""
    known = Known(client)
    try:
        found = list(handlers(editing.read(decode(data), dialect))) if client == "codex" else []
    except ClientConfigError:
        return []
    first = {each.event.key: each.group_at for each in reversed(found) if known.covers(each)}
    events = {e.event.key for e in found if not known.covers(e) and e.group_at > first.get(e.event.key, e.group_at)}
    return [f"your hooks on {', '.join(sorted(events))} moved up; trust them again in Codex (/hooks)"] if events else []


def was_made(in_force: list[backups.Record]) -> bool:
    """Whether there was no such file before the first import that is in force."""
    return bool(in_force) and in_force[0].hooks is not None and in_force[0].hooks.created


def is_blank(data: bytes) -> bool:
    return not data.strip() or data.split() in ([b"{}"], [b"{", b"}"])


def without_hooks(client: str, dialect: str, data: bytes, in_force: list[backups.Record]) -> bytes:
    """What is left without our hooks and without what is trusted because of them."""
    text = decode(data)
    if client not in EVENTS or (dialect == "json" and not text.strip("\ufeff \t\r\n")):
        return data
    known = Known(client)
    keys = [key for record in in_force if record.hooks is not None for key in record.hooks.keys]
    # Before the handlers go: a state names them by their places.
    if dialect == "toml":
        text = trust.distrust(text, known.trusted | trust.usual(), keys)
    return editing.uninstall(text, dialect, known, keys).encode()
