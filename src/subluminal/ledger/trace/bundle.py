"""A trace bundle: one run, self-contained, that `sub verify` and `sub ingest` accept on any machine.

    manifest.json            run, number of events, chain head, and size and SHA-256 of every other file
    events.jsonl             the run's events, byte for byte, in chain order
    policies/<hash>.json     compiled policies that were in force, as far as they are known
    results/<shim>.results   results that were kept whole, where they were asked for (`contracts.kept_results`)

as a directory or as `.tar.gz`. A directory in which `sub run --bundle` was still recording when it was killed has no
manifest yet but `journals/`, the shims' own files: it is read as it stands. Bundles come from anywhere: only these
names are ever opened or unpacked, only regular files, never through a link, and never more than the manifest declares
or MAX_BUNDLE_BYTES allows.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from typing import IO

import msgspec

from subluminal import __version__
from subluminal.contracts.errors import LedgerError, UsageError, VerificationError
from subluminal.contracts.vocabulary import INTERFACE_VERSION
from subluminal.host.clock import utc_now
from subluminal.host.files import open_private
from subluminal.ledger.fold.reading import MAX_LINE_BYTES, BadEvent, read_event
from subluminal.ledger.read.ledger import Ledger
from subluminal.ledger.read.policies import stored_text
from subluminal.ledger.store.chain import GENESIS, link
from subluminal.ledger.store.policies import find_snapshot
from subluminal.ledger.trace.report import Fault
from subluminal.ledger.trace.run_directory import JOURNALS, gathered, strangers

FORMAT = "subluminal-trace"
FORMAT_VERSION = 1
MAX_BUNDLE_BYTES = 1 << 30
MAX_MANIFEST_BYTES = 1 << 20
MAX_FILES = 256
_NAMES = re.compile(r"events\.jsonl|policies/[0-9a-f]{64}\.json|results/[A-Za-z0-9_-]{1,120}\.results")


class FileEntry(msgspec.Struct):
    sha256: str
    bytes: int


class Manifest(msgspec.Struct):
    format: str
    format_version: int
    run_id: str
    event_count: int
    chain_head: str
    files: dict[str, FileEntry]
    exported_at: str = ""
    exported_by: str = ""
    interface_version: str = ""


# -- writing --------------------------------------------------------------------------------------------------


def new_manifest(run_id: str, count: int, head: bytes, files: dict[str, FileEntry]) -> Manifest:
    made_by = (utc_now(), f"subluminal {__version__}", INTERFACE_VERSION)
    return Manifest(FORMAT, FORMAT_VERSION, run_id, count, head.hex(), files, *made_by)


def export_run(ledger: Ledger, run_id: str, destination: str, snapshots: str, results: Sequence[str] = ()) -> Manifest:
    """Write the bundle of a run; what is there already is never overwritten. `results`: files of kept results."""
    ledger.connection.execute("BEGIN")  # one snapshot, while the daemon goes on writing
    try:
        files, count, head = _collect(ledger, run_id, snapshots)
    finally:
        ledger.connection.execute("ROLLBACK")
    with ExitStack() as opened:
        for path in results:
            files[f"results/{os.path.basename(path)}"] = open(open_private(path, os.O_RDONLY), "rb")
        for content in files.values():
            opened.enter_context(content)
        if len(files) > MAX_FILES:
            hint = "Export it without --with-results; `sub replay` works where the run was recorded."
            raise LedgerError(f"{run_id} has {len(results)} files of results, more than a bundle holds.", hint=hint)
        entries = {name: entry_of(content) for name, content in files.items()}
        manifest = new_manifest(run_id, count, head, entries)
        text = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
        contents: dict[str, IO[bytes]] = {"manifest.json": io.BytesIO(text), **files}
        try:
            if destination.endswith((".tar.gz", ".tgz")):
                _write_archive(destination, contents)
            else:
                _write_directory(destination, contents)
        except FileExistsError:
            raise UsageError(f"{destination} exists already.", hint="Choose another name with -o.") from None
        except OSError as error:
            hint = "Choose another place."
            raise LedgerError(f"{destination} cannot be written: {error.strerror}.", hint=hint) from None
    return manifest


def _collect(ledger: Ledger, run_id: str, snapshots: str) -> tuple[dict[str, IO[bytes]], int, bytes]:
    events = tempfile.TemporaryFile()
    head, count = GENESIS, 0
    hashes: set[str] = set()
    for line in ledger.lines(run_id):
        events.write(line + b"\n")
        head, count = link(head, line), count + 1
        if b'"policy_hash"' in line:
            hashes.update(re.findall(r'"policy_hash":\s*"([0-9a-f]{64})"', line.decode()))
    files: dict[str, IO[bytes]] = {"events.jsonl": events}
    for policy_hash in sorted(hashes)[: MAX_FILES - 1]:
        snapshot = stored_text(ledger, policy_hash) or find_snapshot(snapshots, policy_hash)
        if snapshot is not None:
            files[f"policies/{policy_hash}.json"] = io.BytesIO(snapshot)
    return files, count, head


def entry_of(content: IO[bytes]) -> FileEntry:
    content.seek(0)
    digest, size = sha256(), 0
    while piece := content.read(1 << 20):
        digest.update(piece)
        size += len(piece)
    return FileEntry(digest.hexdigest(), size)


def _write_archive(destination: str, contents: dict[str, IO[bytes]]) -> None:
    with (
        open(destination, "xb", opener=_private) as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = content.seek(0, io.SEEK_END)
            member.mode = 0o600
            content.seek(0)
            archive.addfile(member, content)


def _write_directory(destination: str, contents: dict[str, IO[bytes]]) -> None:
    os.mkdir(destination, 0o700)
    for name, content in contents.items():
        path = os.path.join(destination, name)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        content.seek(0)
        with open(path, "xb", opener=_private) as file:
            while piece := content.read(1 << 20):
                file.write(piece)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


# -- reading --------------------------------------------------------------------------------------------------


def is_bundle(path: str) -> bool:
    return (
        os.path.isfile(os.path.join(path, "manifest.json"))
        or _is_unsealed(path)
        or (os.path.isfile(path) and path.endswith((".tar.gz", ".tgz")))
    )


def _is_unsealed(path: str) -> bool:
    journals = os.path.join(path, JOURNALS)
    return not os.path.lexists(os.path.join(path, "manifest.json")) and os.path.isdir(journals)


class Bundle:
    """An opened bundle: a directory whose declared files have the declared size and hash."""

    def __init__(self, directory: str, name: str) -> None:
        self.directory = directory
        self.name = name
        self.manifest = _read_manifest(directory, name)
        for file_name, entry in self.manifest.files.items():
            self._check(file_name, entry)

    def _check(self, file_name: str, entry: FileEntry) -> None:
        with _open_inside(self.directory, file_name, self.name) as file:
            if os.fstat(file.fileno()).st_size != entry.bytes or entry_of(file).sha256 != entry.sha256:
                raise VerificationError(f"{self.name}: {file_name} is not the file that the manifest describes.")

    def lines(self) -> Iterator[bytes]:
        with _open_inside(self.directory, "events.jsonl", self.name) as file:
            while line := file.readline(MAX_LINE_BYTES + 1):
                yield line.removesuffix(b"\n")

    def faults(self) -> list[Fault]:
        """What is wrong beside the files and the events."""
        return []

    def results(self) -> Iterator[tuple[str, IO[bytes]]]:
        """Files of kept results, each open while it is looked at."""
        for file_name in self.manifest.files:
            if file_name.startswith("results/"):
                with _open_inside(self.directory, file_name, self.name) as file:
                    yield file_name, file

    def policies(self) -> Iterator[tuple[str, bytes]]:
        for file_name in self.manifest.files:
            if file_name.startswith("policies/"):
                with _open_inside(self.directory, file_name, self.name) as file:
                    yield file_name[len("policies/") : -len(".json")], file.read()


class Unsealed(Bundle):
    """A run whose recording never ended: what its shims wrote, in order. There is no manifest to hold it against."""

    def __init__(self, directory: str, name: str) -> None:
        self.directory = directory
        self.name = name
        self._journals = os.path.join(directory, JOURNALS)
        if os.path.islink(self._journals):
            raise LedgerError(f"{name}: {JOURNALS} is a link.", hint=_HINT)
        run_id, head, count = "", GENESIS, 0
        for line in self.lines():
            head, count = link(head, line), count + 1
            run_id = run_id or _run_of(line)
        self.manifest = Manifest(FORMAT, FORMAT_VERSION, run_id, count, head.hex(), self._policies())

    def lines(self) -> Iterator[bytes]:
        return gathered(self._journals)

    def faults(self) -> list[Fault]:
        return [Fault(f"the journal {name} speaks for another shim") for name in strangers(self._journals)]

    def _policies(self) -> dict[str, FileEntry]:
        found: dict[str, FileEntry] = {}
        directory = os.path.join(self.directory, "policies")
        for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else []:
            if _NAMES.fullmatch(f"policies/{name}") and len(found) < MAX_FILES:
                with _open_inside(self.directory, f"policies/{name}", self.name) as file:
                    found[f"policies/{name}"] = entry_of(file)
        return found


def _run_of(line: bytes) -> str:
    try:
        return read_event(line).run_id
    except BadEvent:
        return ""


@contextmanager
def open_bundle(path: str) -> Iterator[Bundle]:
    """Raises VerificationError for one that was changed and LedgerError for one that is no bundle."""
    if _is_unsealed(path):
        yield Unsealed(path, path)
        return
    if os.path.isdir(path):
        yield Bundle(path, path)
        return
    with tempfile.TemporaryDirectory(prefix="sub-bundle-") as directory:
        _unpack(path, directory)
        yield Bundle(directory, path)


def _unpack(path: str, directory: str) -> None:
    """Unpack by hand: known names only, regular files only, counted bytes only."""
    left, files = MAX_BUNDLE_BYTES, 0
    try:
        with tarfile.open(path, "r|gz") as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                if member.isdir() and name in (".", "policies", "results", ""):
                    continue
                files += 1
                left -= member.size
                if not member.isreg() or member.issparse() or not (name == "manifest.json" or _NAMES.fullmatch(name)):
                    raise LedgerError(f"{path} is no trace bundle: it contains {name!r}.", hint=_HINT)
                if left < 0 or files > MAX_FILES:
                    raise LedgerError(f"{path} unpacks to more than a trace bundle may hold.", hint=_HINT)
                target = os.path.join(directory, name)
                os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
                source = archive.extractfile(member)
                assert source is not None  # regular files always have content
                with open(target, "xb", opener=_private) as file:
                    while piece := source.read(1 << 20):
                        file.write(piece)
    except FileExistsError:
        raise LedgerError(f"{path} is no trace bundle: it holds a file twice.", hint=_HINT) from None
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise LedgerError(f"{path} cannot be unpacked: {error}.", hint=_HINT) from None
    except Exception as error:  # zlib.error and what tarfile lets through on damaged headers
        if isinstance(error, LedgerError):
            raise
        raise LedgerError(f"{path} cannot be unpacked: {type(error).__name__}.", hint=_HINT) from None


_HINT = "`sub export run` writes bundles; do not repack them with other files."


def _read_manifest(directory: str, name: str) -> Manifest:
    with _open_inside(directory, "manifest.json", name) as file:
        raw = file.read(MAX_MANIFEST_BYTES + 1)
    try:
        manifest = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LedgerError(f"{name}: manifest.json cannot be read: {error}.", hint=_HINT) from None
    if manifest.format != FORMAT or manifest.format_version != FORMAT_VERSION:
        message = f"{name} is {manifest.format!r} version {manifest.format_version}; this Subluminal reads {FORMAT} 1."
        raise LedgerError(message, hint="Upgrade Subluminal, or export the run again.")
    if "events.jsonl" not in manifest.files or len(manifest.files) > MAX_FILES:
        raise LedgerError(f"{name}: the manifest lists no events.jsonl, or too many files.", hint=_HINT)
    for file_name, entry in manifest.files.items():
        if not _NAMES.fullmatch(file_name) or not 0 <= entry.bytes <= MAX_BUNDLE_BYTES:
            raise LedgerError(f"{name}: the manifest names {file_name!r}, which no bundle holds.", hint=_HINT)
    return manifest


def _open_inside(directory: str, file_name: str, name: str) -> IO[bytes]:
    """A regular file of the bundle, with no link on the way to it."""
    path = directory
    for part in file_name.split("/"):
        path = os.path.join(path, part)
        if os.path.islink(path):
            raise LedgerError(f"{name}: {file_name} is a link.", hint=_HINT)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise VerificationError(f"{name}: {file_name} is missing.") from None
    except OSError as error:
        raise LedgerError(f"{name}: {file_name} cannot be read: {error.strerror}.", hint=_HINT) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise LedgerError(f"{name}: {file_name} is no regular file.", hint=_HINT)
    return os.fdopen(descriptor, "rb")
