"""The ledger's schema, as numbered migrations, and the only two ways to open the database.

`PRAGMA user_version` is the number of the last migration applied. A migration that has been released is never edited:
a golden database of every released version is migrated in the tests. The tables `runs`, `tool_calls`, `previews`,
`hints` and `policy_versions` carry the columns of the engineering specification (§11.3); the others are additions.

Traps:
- `tool_calls.id` is the call's time (ms << 16) plus a tie-break, so that every index, which ends in the row id, is
  already in time order: newest-first listings and time ranges need no sort and no further index.
- `tool_calls_stats` covers what groups need: without it, SQLite would sort a million rows to group them.
- No event has a row of its own. It is known by its number n in its run, which `start_event`, `decision_event` and
  `end_event` of a call hold; its exact line is in the segment of its run that covers n: the lines that one flush
  stored, joined by newlines and deflated together, with the hash of the chain after the last of them (`head`) and the
  beginning of that after each (`marks`). The order of segments is the order of arrival; following the ledger goes by
  it, never by time.
- `spans` says by which numbers a producer knows its events: `count` events from n on are its `first_seq` and following.
  A span goes as far as it can, across batches, so that a run's spans follow from its events alone.
- An index holds what a query or the specification asks for and no more: `tool_calls_decision` leaves out the calls that
  were allowed and went well, which nobody looks for by that; `tool_calls_args` holds enough of a hash to find it by.
- Readers open with `mode=ro`, never `immutable`: they must see the WAL.
"""

from __future__ import annotations

import os
import sqlite3

from subluminal.contracts.errors import LedgerError
from subluminal.ledger.store import tool_versions

V1 = """
CREATE TABLE runs (
  run_no INTEGER PRIMARY KEY,
  run_id TEXT NOT NULL UNIQUE,
  agent_id TEXT NOT NULL,
  client TEXT NOT NULL,
  env TEXT NOT NULL,
  started_at TEXT NOT NULL,
  ended_at TEXT,
  status TEXT NOT NULL,
  metadata_json TEXT,
  principal TEXT,
  workload_json TEXT,
  mode TEXT,
  policy_id TEXT,
  policy_version TEXT,
  policy_hash TEXT,
  calls_total INTEGER NOT NULL,
  calls_allowed INTEGER NOT NULL,
  calls_blocked INTEGER NOT NULL,
  calls_throttled INTEGER NOT NULL,
  errors_total INTEGER NOT NULL,
  event_count INTEGER NOT NULL,
  chain_head BLOB NOT NULL
);
CREATE INDEX runs_started ON runs (started_at);

CREATE TABLE tool_calls (
  id INTEGER PRIMARY KEY,
  call_id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  server_name TEXT NOT NULL,
  tool_name TEXT NOT NULL,
  args_hash TEXT NOT NULL,
  decision TEXT,
  rule_id TEXT,
  status TEXT,
  latency_ms INTEGER,
  bytes_in INTEGER,
  bytes_out INTEGER,
  preview_truncated INTEGER NOT NULL,
  created_at TEXT NOT NULL,
  seq INTEGER,
  transport TEXT,
  producer_no INTEGER NOT NULL,
  severity TEXT,
  reason_code TEXT,
  summary TEXT,
  backoff_ms INTEGER,
  would_action TEXT,
  would_rule_id TEXT,
  would_reason_code TEXT,
  error_class TEXT,
  error_code TEXT,
  error_message TEXT,
  ended_at TEXT,
  overhead_us INTEGER,
  waited_ms INTEGER,
  args_stream_hash TEXT,
  result_stream_hash TEXT,
  ambiguous TEXT,
  continues TEXT,
  tags_json TEXT,
  start_event INTEGER,
  decision_event INTEGER,
  end_event INTEGER
);
CREATE UNIQUE INDEX tool_calls_call ON tool_calls (call_id, run_id);
CREATE INDEX tool_calls_run ON tool_calls (run_id, created_at);
CREATE INDEX tool_calls_tool ON tool_calls (server_name, tool_name);
CREATE INDEX tool_calls_decision ON tool_calls (decision, status);
CREATE INDEX tool_calls_args ON tool_calls (args_hash);
CREATE INDEX tool_calls_refused ON tool_calls (decision) WHERE decision <> 'ALLOW';
CREATE INDEX tool_calls_failed ON tool_calls (status) WHERE status <> 'OK';
CREATE INDEX tool_calls_stats ON tool_calls (server_name, tool_name, decision, status, latency_ms);
CREATE INDEX tool_calls_rule ON tool_calls (rule_id) WHERE rule_id IS NOT NULL;

CREATE TABLE previews (
  id INTEGER PRIMARY KEY,
  call_id TEXT NOT NULL,
  args_preview,
  result_preview,
  redaction_flags TEXT
);

CREATE TABLE hints (
  id INTEGER PRIMARY KEY,
  call_id TEXT NOT NULL,
  hint_text TEXT NOT NULL,
  suggested_args_json TEXT,
  created_at TEXT NOT NULL,
  hint_kind TEXT NOT NULL,
  retry_advice TEXT
);

CREATE TABLE policy_versions (
  policy_id TEXT NOT NULL,
  version TEXT NOT NULL,
  mode TEXT,
  rules_hash TEXT NOT NULL,
  rules_json TEXT,
  created_at TEXT NOT NULL,
  PRIMARY KEY (policy_id, version, rules_hash)
);

CREATE TABLE server_tools (
  server_name TEXT NOT NULL,
  tool_name TEXT NOT NULL,
  PRIMARY KEY (server_name, tool_name)
) WITHOUT ROWID;

CREATE TABLE producers (
  producer_no INTEGER PRIMARY KEY,
  shim_id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  host_id TEXT NOT NULL,
  proc_id TEXT NOT NULL,
  journal TEXT,
  last_seq INTEGER NOT NULL,
  started_at TEXT NOT NULL,
  ended_at TEXT,
  status TEXT,
  UNIQUE (shim_id, run_id)
);
CREATE INDEX producers_run ON producers (run_id);
CREATE INDEX producers_journal ON producers (journal) WHERE journal IS NOT NULL;

CREATE TABLE events (
  id INTEGER PRIMARY KEY,
  producer_no INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  hash BLOB NOT NULL
);
CREATE UNIQUE INDEX events_producer ON events (producer_no, seq);

CREATE TABLE segments (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  run_no INTEGER NOT NULL,
  first_n INTEGER NOT NULL,
  lines BLOB NOT NULL
);
CREATE UNIQUE INDEX segments_run ON segments (run_no, first_n);

CREATE TABLE journals (
  name TEXT PRIMARY KEY,
  inode INTEGER NOT NULL,
  offset INTEGER NOT NULL,
  lines INTEGER NOT NULL,
  rejected_bytes INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE rejected (
  id INTEGER PRIMARY KEY,
  source TEXT NOT NULL,
  line_no INTEGER NOT NULL,
  reason TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  at TEXT NOT NULL
);

CREATE TABLE tombstones (
  run_id TEXT PRIMARY KEY,
  event_count INTEGER NOT NULL,
  chain_head BLOB NOT NULL,
  ended_at TEXT,
  pruned_at TEXT NOT NULL
);

CREATE TABLE agent_events (
  id INTEGER PRIMARY KEY,
  run_id TEXT NOT NULL,
  at TEXT NOT NULL,
  agent_kind TEXT NOT NULL,
  kind TEXT NOT NULL,
  channel TEXT,
  text TEXT,
  message TEXT,
  data_json TEXT,
  tool_id TEXT
);
CREATE INDEX agent_events_run ON agent_events (run_id, at);

CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
"""

# What ended with an error is found by `tool_calls_decision`: only a call that was let through counts as one.
V2 = """
ALTER TABLE tool_calls ADD COLUMN tool_use_id TEXT;
DROP INDEX tool_calls_failed;
"""

# A call is one producer's (`fold.ownership`). `conflicts`: who spoke of a call that is another's, and in which event.
V3 = """
DROP INDEX tool_calls_call;
CREATE UNIQUE INDEX tool_calls_call ON tool_calls (call_id, run_id, producer_no);
CREATE TABLE conflicts (
  run_id TEXT NOT NULL,
  call_id TEXT NOT NULL,
  shim_id TEXT NOT NULL,
  claimed_by TEXT NOT NULL,
  event INTEGER NOT NULL,
  PRIMARY KEY (run_id, call_id, claimed_by)
) WITHOUT ROWID;
"""

# `joined`: calls for which that of another door stands (`store.join_rows`).
V4 = """
CREATE INDEX tool_calls_use ON tool_calls (run_id, tool_use_id) WHERE tool_use_id IS NOT NULL;
CREATE TABLE joined (id INTEGER PRIMARY KEY, run_id TEXT NOT NULL);
CREATE INDEX joined_run ON joined (run_id);
"""

# What no event told before: nothing is to be folded again.
V5 = """
ALTER TABLE runs ADD COLUMN usage_json TEXT;
ALTER TABLE tool_calls ADD COLUMN observed INTEGER;
"""

# What stood in a row of `events` is gathered in its segment and in `spans` (`store.gather`, which removes the table). A
# producer is of one run, so that a call need not name both.
V6 = """
ALTER TABLE segments ADD COLUMN head BLOB;
ALTER TABLE segments ADD COLUMN marks BLOB;
CREATE TABLE spans (
  run_no INTEGER NOT NULL,
  first_n INTEGER NOT NULL,
  count INTEGER NOT NULL,
  producer_no INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  PRIMARY KEY (run_no, first_n)
) WITHOUT ROWID;
CREATE UNIQUE INDEX spans_producer ON spans (producer_no, first_seq);
DROP INDEX tool_calls_call;
CREATE UNIQUE INDEX tool_calls_call ON tool_calls (call_id, producer_no);
DROP INDEX tool_calls_args;
CREATE INDEX tool_calls_args ON tool_calls (substr(args_hash, 1, 8));
DROP INDEX tool_calls_refused;
DROP INDEX tool_calls_decision;
CREATE INDEX tool_calls_decision ON tool_calls (decision, status) WHERE decision <> 'ALLOW' OR status <> 'OK';
"""

MIGRATIONS: tuple[str, ...] = (V1, V2, V3, V4, V5, V6, tool_versions.SCHEMA)
SCHEMA_VERSION = len(MIGRATIONS)

# A reader that met a writer's checkpoint, or another writer, waits this long before it gives up.
BUSY_TIMEOUT_MS = 5_000


def schema_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def refuse_newer(version: int, path: str) -> None:
    if version > SCHEMA_VERSION:
        message = f"{path} was written by a newer Subluminal (schema {version}; this one knows up to {SCHEMA_VERSION})."
        raise LedgerError(message, hint="Upgrade Subluminal, or set SUB_HOME to another directory.")


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Bring the schema up to date, each step in a transaction of its own."""
    refuse_newer(schema_version(connection), path)
    while (version := schema_version(connection)) < SCHEMA_VERSION:
        connection.execute("BEGIN IMMEDIATE")
        try:
            if schema_version(connection) == version:
                for statement in MIGRATIONS[version].split(";"):
                    if statement.strip():
                        connection.execute(statement)
                _refold(connection, version)
                connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def _refold(connection: sqlite3.Connection, version: int) -> None:
    """Rows by the rules of the new version. Readers open the schema too, and need none of the types of a fold."""
    if version == 5:
        from subluminal.ledger.store.gather import gather

        gather(connection)
    if version == 0 or connection.execute("SELECT 1 FROM runs LIMIT 1").fetchone() is None:
        return
    if version == 1:
        from subluminal.ledger.store.refold import refold

        refold(connection)
    elif version == 2:
        from subluminal.ledger.store.reown import reown

        reown(connection)
    elif version == 3:
        from subluminal.ledger.store.join_rows import join_all

        join_all(connection)


def open_writer(path: str, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> sqlite3.Connection:
    """The writer's connection: WAL, migrated, owner-only.

    `synchronous=NORMAL`: a commit survives the death of every process, which is what the journals promise too (they are
    written without fsync). FULL would add an fsync to each batch and still not make the newest events survive a power
    cut. A journal is removed only after the WAL was fsynced (`Store.make_durable`): nothing is ever in neither place.
    """
    if path:  # "" is a temporary database of SQLite's own
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=busy_timeout_ms / 1000)
    try:
        if schema_version(connection) == 0:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA cache_size = -32768")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        # Hot index pages change in every batch: writing them back every 16 MiB instead of every 4 saves a fifth.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


class NoLedger(LedgerError):
    """There is none, or a daemon that has just started is about to make it."""

    def __init__(self, path: str) -> None:
        hint = "Run an agent with tools behind Subluminal, or `sub ingest` a file."
        super().__init__(f"There is no ledger at {path} yet.", hint=hint)


def open_reader(path: str) -> sqlite3.Connection:
    """A read-only connection; rows are `sqlite3.Row`."""
    if not os.path.exists(path):
        raise NoLedger(path)
    try:
        place = "file:" + _uri_path(path) + "?mode=ro"
        connection = sqlite3.connect(
            place, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_MS / 1000
        )
        version = schema_version(connection)
        is_begun = version > 0 or connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None
    except sqlite3.Error as error:
        raise LedgerError(f"The ledger {path} cannot be read: {error}.") from None
    refuse_newer(version, path)
    if version < SCHEMA_VERSION:
        connection.close()
        if not is_begun:
            raise NoLedger(path)
        hint = "End the daemon of the earlier version with `sub ledgerd --stop`; `sub ledgerd` then migrates it."
        raise LedgerError(f"The ledger {path} has schema {version}; this Subluminal reads {SCHEMA_VERSION}.", hint=hint)
    connection.row_factory = sqlite3.Row
    return connection


def _uri_path(path: str) -> str:
    for character, escape in (("%", "%25"), ("?", "%3f"), ("#", "%23")):
        path = path.replace(character, escape)
    return path
