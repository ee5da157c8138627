"""`sub import`: read, plan, prove, back up, replace; one file at a time, each on its own."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any, NamedTuple

from subluminal.clients import backups, files, routed, wrapping
from subluminal.clients.base import Client, ConfigFile, Entry
from subluminal.clients.configured import PROJECT, confirm_entry, settings, withheld_from
from subluminal.clients.document import Document, decode
from subluminal.clients.literals import looks_secret, masked_diff
from subluminal.clients.remote import routing as remote_routing
from subluminal.clients.remote.asking import Answers, address_here, has_login, login_fault, to_ask
from subluminal.clients.remote.reading import NotRouted, own_login, read_entry
from subluminal.clients.remote.unrouting import unwrap as unwrap_remote
from subluminal.clients.report import FileReport, Literal, ServerReport
from subluminal.clients.spans import Edit, SyntaxProblem, apply
from subluminal.contracts.errors import ClientConfigError
from subluminal.contracts.vocabulary import BUILTIN_SERVER, PROVIDER_SERVER
from subluminal.host.clock import utc_now
from subluminal.host.config import Config
from subluminal.logins.wording import login_words

# No client starts so many; a file that claims it is made to keep us busy.
MAX_SERVERS = 10_000
# Reading takes time too, so a file that could hold many times that number is not even read. Histories in a client's
# file may speak of commands as well.
MAX_COMMAND_WORDS = 10 * MAX_SERVERS
_JSON_WORDS = (b"command", b'"url"', b'Url"')
_SERVER_WORDS = {"json": _JSON_WORDS, "jsonc": _JSON_WORDS, "toml": (b"command", b"url")}
# A diff takes time with the square of what has changed, and nobody reads a longer one.
MAX_SHOWN_SERVERS = 1_000
_RESERVED = {
    BUILTIN_SERVER: "the client's own tools",
    PROVIDER_SERVER: "the tools that the model's provider runs itself",
}


class Choice(NamedTuple):
    """Which entries a command is about; empty collections mean all of them."""

    servers: Collection[str] = ()
    scopes: Collection[str] = ()

    def covers(self, entry: Entry) -> bool:
        return (not self.servers or entry.name in self.servers) and (not self.scopes or entry.scope in self.scopes)

    def covers_file(self, file: ConfigFile) -> bool:
        if not self.scopes:
            return file.default
        return file.scope in self.scopes or (file.scope == "user" and "local" in self.scopes)


def load(client: Client, path: str) -> tuple[files.Snapshot, Document] | None:
    """A client's file, read and understood; None if there is no such file."""
    snapshot = files.read(path)
    if snapshot is None:
        return None
    if sum(map(snapshot.data.count, _SERVER_WORDS[client.dialect])) > MAX_COMMAND_WORDS:
        raise _too_many(path)
    try:
        return snapshot, client.read(decode(snapshot.data))
    except SyntaxProblem as error:
        error.args = (f"{path}: {error}",)
        error.hint = error.hint or "The file was left as it is. Mend that line and run the command again."
        raise


def _too_many(path: str) -> ClientConfigError:
    hint = "The file was left as it is. Take out what no client of yours needs."
    return ClientConfigError(f"{path}: holds more than {MAX_SERVERS} servers", hint=hint)


def refusal(client: Client, file: ConfigFile, error: ClientConfigError) -> FileReport:
    line = error.line if isinstance(error, SyntaxProblem) else None
    return FileReport(client.name, file.path, file.scope, "refused", error=str(error), hint=error.hint, line=line)


def import_file(
    client: Client,
    file: ConfigFile,
    sub: str,
    choice: Choice,
    *,
    answers: Answers | None = None,
    dry_run: bool = False,
    foreign: bool = False,
) -> FileReport | None:
    """Route the file's servers through `sub`; None if there is no such file. A refusal is a report, not an error.

    `answers` are those of servers behind a URL that were asked (`remote.probing`).
    """
    try:
        loaded = load(client, file.path)
        if loaded is None or not loaded[1].root.members:
            return None if loaded is None else FileReport(client.name, file.path, file.scope, "unchanged")
        return _import(client, file, sub, choice, answers or {}, *loaded, dry_run=dry_run, foreign=foreign)
    except ClientConfigError as error:
        return refusal(client, file, error)


def to_be_asked(client: Client, file: ConfigFile, choice: Choice) -> list[str]:
    """Addresses of servers behind a URL that this import would route and that may want a login."""
    try:
        loaded = load(client, file.path)
    except ClientConfigError:
        return []  # the import itself tells
    if loaded is None:
        return []
    config = settings()
    found = []
    for entry in client.entries(loaded[1], file.scope)[:MAX_SERVERS]:
        if choice.covers(entry) and entry.node.kind == "table" and routed.is_http(entry):
            remote = read_entry(entry, client, loaded[1])
            if not isinstance(remote, NotRouted) and own_login(entry, client, loaded[1]) is None:
                found.append(to_ask(entry.name, remote, config))
    return [address for address in found if address is not None]


def _import(
    client: Client,
    file: ConfigFile,
    sub: str,
    choice: Choice,
    answers: Answers,
    snapshot: files.Snapshot,
    document: Document,
    *,
    dry_run: bool,
    foreign: bool,
) -> FileReport:
    report = FileReport(client.name, file.path, file.scope, "unchanged", warnings=files.warnings(snapshot))
    plan = _Plan(client, document, sub, report, settings(), answers)
    entries = client.entries(document, file.scope)
    if len(entries) > MAX_SERVERS:
        raise _too_many(file.path)
    for entry in entries:
        if choice.covers(entry):
            plan.consider(entry)
    if not plan.edits:
        return report
    files.check_writable(snapshot, foreign=foreign)
    after = client.read(apply(document.text, plan.edits))
    wrapping.check(client, file.scope, document, after, plan.touched)
    plan.check_reversible(file.scope, after)
    report.status = "changed"
    if dry_run and len(plan.touched) > MAX_SHOWN_SERVERS:
        report.warnings.append(f"the change of {len(plan.touched)} servers is too long to be shown as a diff")
    elif dry_run:
        report.diff = masked_diff(file.path, client.dialect, document.text, after.text)
    else:
        report.backup = _replace(plan, file, snapshot, after.text.encode())
    return report


class _Plan:
    """Goes through the entries of one file and gathers what to change and what to say."""

    def __init__(
        self,
        client: Client,
        document: Document,
        sub: str,
        report: FileReport,
        config: Config | None,
        answers: Answers,
    ) -> None:
        self.answers = answers
        self.client = client
        self.document = document
        self.sub = sub
        self.report = report
        self.config = config
        self.edits: list[Edit] = []
        self.wrapped: list[backups.WrappedEntry] = []
        self.routed: list[backups.EntryKey] = []
        self.touched: set[Any] = set()

    def consider(self, entry: Entry) -> None:
        status, detail = self._treat(entry)
        self.report.servers.append(describe(entry, status, detail))
        self.report.literals += literals_of(entry)
        if entry.name in _RESERVED:
            said = f"a server is named {entry.name}, which is what policies and the record call"
            mend = "rules for one hold for the other. Give it another name"
            self.report.warnings.append(f"{said} {_RESERVED[entry.name]}: {mend}")
        steering = wrapping.reaches_us(entry) if status in ("wrapped", "updated", "corrected", "already") else []
        if steering:
            self.report.warnings.append(f"{entry.name} sets {', '.join(steering)}, which steers Subluminal itself too")
        withheld = withheld_from(entry, self.client, self.document, self.config)
        if withheld is not None:
            mend = confirm_entry(entry.name, entry.scope)
            self.report.warnings.append(f"{entry.name} gets none of its secrets: {withheld}. If you trust it: {mend}")

    def _treat(self, entry: Entry) -> tuple[str, str | None]:
        found = routed.recognise(entry)
        if found is not None:
            self.routed.append(entry.key)
        if entry.scope == PROJECT:
            steering = wrapping.controls(entry)
            if steering:
                return "skipped", f"sets {', '.join(steering)}, which is not for a repository to decide; take it out"
            if found is not None and not found.is_whole:
                found = None  # whatever that program is, it does not start a server as our shim does
        if found is not None and not found.is_whole:
            return "already", "routed by hand without `--`; left as it is"
        if found is not None and found.cut is not None and found.value("--url") is not None:
            return "skipped", "gives the shim a URL and a command; it takes one of them"
        if found is None and entry.node.kind == "table" and routed.is_http(entry):
            return self._treat_remote(entry)
        odd = wrapping.oddity(entry, self.client, self.document)
        if odd is not None:
            return "skipped", odd
        if found is None:
            edits, wrapped = wrapping.wrap(entry, self.client, self.document, self.sub)
            self._take(entry, edits)
            self.wrapped.append(wrapped)
            return "wrapped", None
        if entry.scope == PROJECT and (found.options or found.client not in (None, self.client.word)):
            correct = remote_routing.correct if found.is_remote else wrapping.correct
            self._take(entry, correct(entry, found, self.client, self.document, self.sub))
            dropped = ", ".join(found.options or ["--client"])
            return "corrected", f"had {dropped} of its own, which is not for a repository to decide"
        edits = wrapping.update(entry, found, self.client, self.document, self.sub)
        self._take(entry, edits)
        detail = f"has options of its own: {', '.join(found.options)}" if found.options else None
        return ("updated" if edits else "already"), detail

    def _treat_remote(self, entry: Entry) -> tuple[str, str | None]:
        fault = wrapping.name_fault(entry)
        remote = NotRouted(fault, True) if fault is not None else read_entry(entry, self.client, self.document)
        if isinstance(remote, NotRouted):
            return "skipped" if remote.fault else "http", remote.why
        setting = own_login(entry, self.client, self.document)
        unlogged = login_fault(entry.name, setting, address_here(remote))
        if unlogged is not None:
            return "login", unlogged
        address = to_ask(entry.name, remote, self.config)
        answer = self.answers.get(address or "")
        if address is not None and answer is not None:
            if answer.asks_for_login and not has_login(entry.name, address):
                return "login", f"its server asks for a login: {login_words(entry.name, address)}"
            if answer.fault is not None:
                self.report.warnings.append(f"{entry.name} is routed, but its server {answer.fault}")
        edits, wrapped = remote_routing.wrap(entry, self.client, self.document, self.sub, remote)
        self._take(entry, edits)
        self.wrapped.append(wrapped)
        variables = remote_routing.variables_of(remote.headers)
        secret = [variables[name] for name, value in remote.headers if looks_secret(name, value)]
        self.report.literals += [Literal(entry.name, variable) for variable in secret]
        return "wrapped", None

    def check_reversible(self, scope: str, after: Document) -> None:
        """What an import does to a server behind a URL is undone by the record alone: prove it before writing."""
        wrapped = {(tuple(w.location), w.name, w.occurrence): w for w in self.wrapped}
        if not any(record.spelled for record in self.wrapped) or wrapped.keys() != self.touched:
            return
        edits = [
            edit
            for entry in self.client.entries(after, scope)
            if entry.key in wrapped
            for edit in unwrapped(entry, self.client, after, wrapped[entry.key])
        ]
        if apply(after.text, edits) != self.document.text:
            raise ClientConfigError(
                "a server behind a URL could not be put back byte for byte; the file was left alone"
            )

    def _take(self, entry: Entry, edits: list[Edit]) -> None:
        if edits:
            self.edits += edits
            self.touched.add(entry.key)


def unwrapped(entry: Entry, client: Client, document: Document, record: backups.WrappedEntry | None) -> list[Edit]:
    """The edits that take an entry out of the shim again."""
    found = routed.recognise(entry)
    assert found is not None
    undo = unwrap_remote if found.is_remote else wrapping.unwrap
    return undo(entry, found, client, document, record)


def describe(entry: Entry, status: str, detail: str | None = None) -> ServerReport:
    project = entry.location[1] if entry.location[:1] == ("projects",) else None
    return ServerReport(entry.name, entry.scope, status, detail, project)


def literals_of(entry: Entry) -> list[Literal]:
    if entry.env is None:
        return []
    strings = [m for m in entry.env.members if m.node.kind == "string" and m.key != routed.URL_VARIABLE]
    return [Literal(entry.name, m.key) for m in strings if looks_secret(m.key, m.node.value)]


def _replace(plan: _Plan, file: ConfigFile, snapshot: files.Snapshot, data: bytes) -> str:
    client = plan.client
    in_force = any(record.restored_at is None for record in backups.history(client.name, snapshot.real))
    record = backups.Record(
        id=backups.new_id(client.name),
        client=client.name,
        scope=file.scope,
        path=os.path.abspath(snapshot.path),
        real_path=snapshot.real,
        created_at=utc_now(),
        original_sha256=backups.digest(snapshot.data),
        written_sha256=backups.digest(data),
        size=len(snapshot.data),
        mode=snapshot.stat.st_mode & 0o7777,
        sub=plan.sub,
        wrapped=plan.wrapped,
        routed_before=[] if in_force else plan.routed,
    )
    backups.save(record, snapshot.data)
    try:
        files.replace(snapshot, data)
    except BaseException:
        backups.discard(record)
        raise
    return backups.backup_path(record)
