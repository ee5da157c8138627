"""The sink reads complete lines only and refuses what is not an event."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from harness.sink import EventFile, EventPipe, Spool

EVENT = (
    b'{"type":"shim_health","v":"0.2.0","ts":"2025-12-15T12:34:56.789Z","run_id":"r","agent_id":"a","client":"custom",'
    b'"env":"dev","source":{"host_id":"h","proc_id":"p","shim_id":"s"},"health":{"uptime_ms":1,"calls_total":0,'
    b'"calls_pending":0,"events_held":0,"previews_shed":0}}\n'
)


def test_a_half_written_line_is_not_there_yet(tmp_path: Path) -> None:
    sink = EventFile(tmp_path / "events")
    assert sink.events() == []
    (tmp_path / "events").write_bytes(EVENT + EVENT[:50])
    assert sink.types() == ["shim_health"]


@pytest.mark.parametrize("line", [b"{}\n", b"[]\n", b"text\n", EVENT.replace(b'"dev"', b'"moon"'), EVENT[:50] + b"\n"])
def test_a_line_outside_the_contract_fails_the_reader(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "events").write_bytes(line)
    with pytest.raises(AssertionError, match="not an event"):
        EventFile(tmp_path / "events").events()


def test_waiting_sees_what_is_written_later_and_gives_up_in_time() -> None:
    pipe = EventPipe()
    threading.Timer(0.05, os.write, (pipe.write_fd, EVENT)).start()
    assert pipe.wait_type("shim_health")["run_id"] == "r"
    with pytest.raises(AssertionError, match=r"in vain for 1 such events; last seen: \[\]"):
        pipe.wait_type("run_end", timeout=0.05)
    pipe.close_writer()
    pipe.wait_end()


def test_a_spool_is_all_journals_together(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(EVENT)
    (tmp_path / "b.jsonl").write_bytes(EVENT + b'{"half')
    assert len(Spool(tmp_path).events_of("shim_health")) == 2
