"""`sub restore`: byte for byte where the file is as we left it, entry by entry where someone has worked on it since.

Several imports form a chain: the file as the last import left it leads to the file before that import, and so on. Where
the chain breaks (a client rewrote the file), only the entries we wrapped are unwrapped and everything else is kept.
An entry that was routed before the first import is the user's own: the exact restore brings it back as it was.
"""

from __future__ import annotations

from typing import Any

from subluminal.clients import backups, files, routed, wrapping
from subluminal.clients.base import Client, ConfigFile, Place
from subluminal.clients.document import decode
from subluminal.clients.hooks.restoring import moved, removed, was_made, without_hooks
from subluminal.clients.hooks.wanted import EVENTS
from subluminal.clients.importing import Choice, describe, load, refusal, unwrapped
from subluminal.clients.literals import masked_diff
from subluminal.clients.remote.unrouting import irreversible
from subluminal.clients.report import FileReport
from subluminal.clients.spans import Edit, apply, walk
from subluminal.contracts.errors import ClientConfigError
from subluminal.host.secrets.bindings import PLACEHOLDER


def files_to_restore(client: Client, place: Place) -> list[ConfigFile]:
    """The files found from here, and every other file an import of this client has changed."""
    found = {file.path: file for file in client.find(place)}
    for record in backups.records():
        is_open = record.client == client.name and record.holds == client.holds and record.restored_at is None
        if is_open and record.path not in found:
            found[record.path] = ConfigFile(record.path, record.scope)
    return list(found.values())


def restore_file(
    client: Client, file: ConfigFile, choice: Choice, *, dry_run: bool = False, foreign: bool = False
) -> FileReport | None:
    """Undo what imports did to one file; None if there is neither a file nor anything to undo."""
    try:
        snapshot = files.read(file.path)
        if snapshot is None:
            return _gone(client, file)
        return _restore(client, file, choice, snapshot, dry_run=dry_run, foreign=foreign)
    except ClientConfigError as error:
        return refusal(client, file, error)


def _gone(client: Client, file: ConfigFile) -> FileReport | None:
    mine = [r for r in backups.records() if r.path == file.path and r.client == client.name and not r.restored_at]
    if not mine:
        return None
    report = FileReport(client.name, file.path, file.scope, "gone", backup=backups.backup_path(mine[0]))
    report.warnings.append("the file no longer exists; its first backup is kept")
    return report


def _restore(
    client: Client, file: ConfigFile, choice: Choice, snapshot: files.Snapshot, *, dry_run: bool, foreign: bool
) -> FileReport:
    report = FileReport(client.name, file.path, file.scope, "unchanged")
    history = backups.history(client.name, snapshot.real)
    partial = bool(choice.servers or choice.scopes)
    data, used = (snapshot.data, []) if partial else backups.rewind(snapshot.data, history)
    in_force = [record for record in history if record.restored_at is None]
    data, exact = _unwrap_rest(client, file, choice, data, in_force, report)
    with_hooks = data
    if not partial:
        data = without_hooks(client.name, client.dialect, data, in_force)
    exact = exact and data == with_hooks
    if data == snapshot.data:
        return report
    files.check_writable(snapshot, foreign=foreign)
    report.status = "restored"
    report.exact = bool(used) and exact
    _name_the_restored(client, file, choice, snapshot.data, report)
    if not partial and client.name in EVENTS:
        report.hooks = removed(client.name, client.dialect, snapshot.data)
        report.warnings += moved(client.name, client.dialect, snapshot.data)
    report.warnings += _placeholders(client, data)
    if dry_run:
        report.diff = masked_diff(file.path, client.dialect, decode(snapshot.data), decode(data))
        return report
    if not data and was_made(in_force):
        files.remove(snapshot)
    else:
        files.replace(snapshot, data)
    if not partial:
        for record in in_force:
            backups.mark_restored(record)
    return report


def _unwrap_rest(
    client: Client, file: ConfigFile, choice: Choice, data: bytes, in_force: list[backups.Record], report: FileReport
) -> tuple[bytes, bool]:
    """Unwrap what is still routed; the flag says that nothing was (the bytes are an original as it was)."""
    try:
        document = client.read(decode(data))
    except ClientConfigError:
        load(client, file.path)  # raises with the path and the line
        raise
    known = {(tuple(w.location), w.name, w.occurrence): w for record in in_force for w in record.wrapped}
    own = {key for record in in_force for key in record.routed_before}
    edits: list[Edit] = []
    touched: set[Any] = set()
    for entry in client.entries(document, file.scope):
        found = routed.recognise(entry)
        if found is None or not choice.covers(entry):
            continue
        if entry.key in own:
            report.servers.append(describe(entry, "kept", "was routed before the first import; restore again to undo"))
            continue
        if not found.is_whole:
            report.servers.append(describe(entry, "skipped", "holds no original command after `--`"))
            continue
        obstacle = irreversible(entry, found, client) if found.is_remote else None
        if obstacle is not None:
            report.servers.append(describe(entry, "skipped", obstacle))
            continue
        edits += unwrapped(entry, client, document, known.get(entry.key))
        touched.add(entry.key)
    if not edits:
        return data, True
    after = client.read(apply(document.text, edits))
    wrapping.check(client, file.scope, document, after, touched)
    return after.text.encode(), False


def _name_the_restored(client: Client, file: ConfigFile, choice: Choice, old: bytes, report: FileReport) -> None:
    """Everything that was routed in the file and is not named as kept or skipped has been put back."""
    named = {(server.scope, server.project, server.name) for server in report.servers}
    for entry in client.entries(client.read(decode(old)), file.scope):
        server = describe(entry, "restored")
        is_named = (server.scope, server.project, server.name) in named
        if routed.recognise(entry) and choice.covers(entry) and not is_named:
            report.servers.append(server)


def _placeholders(client: Client, data: bytes) -> list[str]:
    """`sub secrets adopt` left them; without a shim before it a server would take one for its secret."""
    return [
        f"{name} is {node.value}, which only Subluminal can fill in; put the value there"
        f" (sub secrets get {node.value.removeprefix(PLACEHOLDER)} --reveal)"
        for name, node in walk(client.read(decode(data)).root)
        if node.value.startswith(PLACEHOLDER)
    ]
