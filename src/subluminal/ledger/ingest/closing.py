"""The last words of a shim that was killed: its open calls and its run are closed in its own journal.

What is written is honest about where it comes from: every event carries `closed_by: "ledgerd"` and `closed_at`. `ts`,
`ended_at` and the durations go by the last sign of life (the journal's last write), the latest moment that is known;
when the shim really died is not.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from subluminal.contracts.counts import Counts
from subluminal.contracts.moments import epoch_ms
from subluminal.contracts.vocabulary import INTERFACE_VERSION
from subluminal.host.clock import utc_now
from subluminal.ledger.store.lines import LineReader

CLOSED_BY = "ledgerd"
MESSAGE = "shim ended before the reply"


def open_producers(connection: sqlite3.Connection, journal: str) -> list[tuple[int, str, int, str]]:
    """(producer_no, run_id, last_seq, started_at) of the producers of a journal that have not ended."""
    sql = "SELECT producer_no, run_id, last_seq, started_at FROM producers WHERE journal = ? AND ended_at IS NULL"
    return connection.execute(sql, (journal,)).fetchall()


def closing_lines(connection: sqlite3.Connection, producer: tuple[int, str, int, str], last_alive: str) -> list[bytes]:
    """The events that close one producer, in order, numbered on from its last."""
    producer_no, run_id, seq, started_at = producer
    envelope = _envelope(connection, producer_no)
    last_alive = max(last_alive, envelope["ts"])
    envelope["ts"] = last_alive
    closing: dict[str, Any] = {"closed_by": CLOSED_BY, "closed_at": utc_now()}
    lines: list[bytes] = []
    counts = Counts()
    calls = connection.execute(
        "SELECT call_id, server_name, tool_name, args_hash, created_at, decision, status FROM tool_calls"
        " WHERE run_id = ? AND producer_no = ? ORDER BY id",
        (run_id, producer_no),
    )
    for call_id, server_name, tool_name, args_hash, created_at, decision, status in calls:
        if status is None:
            seq += 1
            reference = {"call_id": call_id, "server_name": server_name, "tool_name": tool_name, "args_hash": args_hash}
            body = {
                "call": reference,
                "status": "ERROR",
                "latency_ms": max(0, epoch_ms(last_alive) - epoch_ms(created_at)),
                "bytes_out": 0,
                "preview": {"truncated": False},
                "error": {"class": "transport", "message": MESSAGE, "retryable": True},
            }
            lines.append(_line("tool_call_end", envelope, seq, body, closing))
        counts.total += 1
        if decision is not None:
            counts.decided(decision)
        counts.ended(decision, status or "ERROR")
    duration = max(0, epoch_ms(last_alive) - epoch_ms(started_at))
    run = {"run": {"ended_at": last_alive, "status": "FAILED", "summary": counts.as_summary(duration)}}
    lines.append(_line("run_end", envelope, seq + 1, run, closing))
    return lines


def _envelope(connection: sqlite3.Connection, producer_no: int) -> dict[str, Any]:
    """The identity of the producer, from the last event it wrote itself."""
    sql = "SELECT run_no, first_n + count - 1 FROM spans WHERE producer_no = ? ORDER BY first_seq DESC LIMIT 1"
    event = msgspec.json.decode(LineReader(connection).line(*connection.execute(sql, (producer_no,)).fetchone()))
    names = ("ts", "run_id", "agent_id", "client", "env", "source", "principal", "workload")
    return {name: event[name] for name in names if name in event}


def _line(kind: str, envelope: dict[str, Any], seq: int, body: dict[str, Any], closing: dict[str, Any]) -> bytes:
    event = {"type": kind, "v": INTERFACE_VERSION, **envelope, **body, **closing}
    event["source"] = {**envelope["source"], "seq": seq}
    return msgspec.json.encode(event)
