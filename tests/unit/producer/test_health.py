"""The heartbeat: of a shim with calls, of one without, and of one that was forgotten."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from harness.fake_server import fake_server
from harness.shim import Shim
from harness.sink import Spool
from harness.waiting import while_passing
from subluminal.contracts.identity import Identity, Source
from subluminal.contracts.toolcall import ToolCall
from subluminal.core.engine.stack import Stack
from subluminal.core.engine.state import LocalState
from subluminal.core.redact.redactor import Redactor
from subluminal.host.record.sinks import Sink
from subluminal.producer.health import BUSY_NS, IDLE_AT_MOST_NS, Heartbeat
from subluminal.producer.producer import Producer

MINUTE_NS = 60_000_000_000


class Kept(Sink):
    spooled = True

    def __init__(self) -> None:
        super().__init__()
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    def beats(self) -> list[dict[str, Any]]:
        events = [json.loads(line) for line in self.data.splitlines()]
        return [event["health"] for event in events if event["type"] == "shim_health"]


class Beating:
    """A producer whose heart is asked once a minute of a time that is passed in."""

    def __init__(self, health_ms: int) -> None:
        self.sink = Kept()
        self.producer = Producer(Identity("r"), Source("h", "p", "s"), self.sink, LocalState(), Stack([]), Redactor(()))
        self.heart = Heartbeat(self.producer, health_ms, 0)
        self.now_ns = 0

    def pass_minutes(self, count: int) -> int:
        """How many beats there were."""
        before = len(self.sink.beats())
        for _ in range(count):
            self.now_ns += MINUTE_NS
            if self.now_ns >= self.heart.next_ns:
                self.heart.beat(self.now_ns, 0)
        return len(self.sink.beats()) - before

    def call(self) -> None:
        self.producer.gate.counts.total += 1


def test_an_idle_shim_beats_slowly_and_one_with_calls_every_minute() -> None:
    beating = Beating(300_000)
    assert beating.pass_minutes(60) == 12
    assert [beat["uptime_ms"] for beat in beating.sink.beats()][:2] == [300_000, 600_000]
    for _ in range(5):
        beating.call()
        assert beating.pass_minutes(1) == 1
    assert beating.sink.beats()[-1]["calls_total"] == 5


def test_a_forgotten_shim_falls_silent_until_the_next_call() -> None:
    beating = Beating(300_000)
    hours = IDLE_AT_MOST_NS // (60 * MINUTE_NS)
    assert beating.pass_minutes(hours * 60) > 0
    assert beating.pass_minutes(24 * 60) == 0
    beating.call()
    assert beating.pass_minutes(11) == 3, "one for the call, and two while it is idle again"


def test_without_an_interval_only_calls_make_it_beat() -> None:
    beating = Beating(0)
    assert beating.pass_minutes(600) == 0
    beating.call()
    assert beating.pass_minutes(10) == 1


def test_an_idle_beat_wakes_nobody_and_one_after_calls_does() -> None:
    beating = Beating(60_000)
    assert beating.pass_minutes(2) == 2
    assert not beating.producer.doorbell.pressed_ns
    beating.call()
    assert beating.pass_minutes(1) == 1
    assert beating.producer.doorbell.pressed_ns


def test_what_a_stuck_sink_holds_does_not_grow_by_idle_beats() -> None:
    beating = Beating(60_000)
    beating.sink.held_bytes = 1
    assert beating.pass_minutes(10) == 0


def test_the_loop_is_asked_no_more_often_than_needed() -> None:
    assert Heartbeat(Beating(0).producer, 0, 5).next_ns == 5 + BUSY_NS
    assert Heartbeat(Beating(0).producer, 300_000, 5).next_ns == 5 + BUSY_NS
    assert Heartbeat(Beating(0).producer, 1_000, 5).next_ns == 5 + 1_000_000_000


def test_a_judged_call_counts_as_one() -> None:
    beating = Beating(0)
    record = beating.producer.gate.judge(ToolCall("s", "t", b"{}", 2), 1, 1)
    beating.producer.gate.announce(record, 1)
    assert beating.pass_minutes(1) == 1
    assert beating.sink.beats()[0]["calls_total"] == 1


def test_a_real_shim_that_nobody_asks_anything_says_that_it_lives(tmp_path: Path) -> None:
    setup = Shim(tmp_path, "notes", fake_server(), env={"SUB_HEALTH_MS": "100"})
    with setup.start() as agent:
        agent.initialize()
        beats = setup.events.wait_count(lambda event: event["type"] == "shim_health", 2)
        agent.finish()
    assert [beat["health"]["calls_total"] for beat in beats[:2]] == [0, 0]
    assert 0 < beats[0]["health"]["uptime_ms"] < beats[1]["health"]["uptime_ms"]


def test_a_real_idle_shim_starts_no_daemon_and_writes_its_journal_only(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "sub" / "spool")
    setup = Shim(tmp_path, "notes", fake_server(), events=spool, env={"SUB_HEALTH_MS": "100"})
    (tmp_path / "sub").mkdir(mode=0o700)
    (tmp_path / "sub" / "ledgerd.pid").mkdir()  # keeps the daemon away, which the start of the run would ask for
    with setup.start() as agent:
        agent.initialize()
        spool.wait_count(lambda event: event["type"] == "shim_health", 1)
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "sub").rglob("*") if "spool" not in path.parts}
        spool.wait_count(lambda event: event["type"] == "shim_health", 3)
        after = {path: path.stat().st_mtime_ns for path in (tmp_path / "sub").rglob("*") if "spool" not in path.parts}
        assert after.keys() == before.keys()
        agent.finish()


def test_where_nothing_is_recorded_nothing_is_written(tmp_path: Path) -> None:
    class Nowhere(Spool):
        def __init__(self) -> None:
            super().__init__(tmp_path / "sub" / "spool")
            self.argument = "none"

    setup = Shim(tmp_path, "notes", fake_server(), events=Nowhere(), env={"SUB_HEALTH_MS": "100"})
    with setup.start() as agent:
        agent.initialize()
        for _ in while_passing(0.7):  # more than a round of the loop
            assert not os.path.exists(tmp_path / "sub" / "spool")
        agent.finish()
