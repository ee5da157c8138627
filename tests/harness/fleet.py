"""A fleet in a test: a repository of its own, its origin over real HTTP on loopback, and machines with homes of theirs.

with Fleet(tmp_path) as fleet:
    fleet.publish(bundle("no-delete", deny="delete*"))
    machine = fleet.join("a")
    fleet.origin.answers["/metadata/timestamp.json"] = old        # an origin that lies
    assert machine.refused() == "rollback"
"""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.ports import free_port
from subluminal.fleet.joined import Joined
from subluminal.fleet.machine.joining import join
from subluminal.fleet.machine.laying import lay_policies, lay_stops
from subluminal.fleet.machine.origin import STOPS_APART, Origin, Refused
from subluminal.fleet.published import Stop
from subluminal.fleet.repository.publishing import Repository
from subluminal.fleet.repository.store import Lives
from subluminal.host.clock import utc_now
from subluminal.policy.laid import POLICIES, STOPS, read_list
from subluminal.policy.sources import PolicySource, find_policies

NOW_MS = 1_800_000_000_000

# A whole body, or pieces of one that need not end.
Answer = bytes | Callable[[], Iterator[bytes]]


def bundle(policy_id: str, *, deny: str | None = None, reads: str | None = None, **more: Any) -> dict[str, Any]:
    """A policy that forbids the tools of one glob, and tags those of another `reads`."""
    rules: list[dict[str, Any]] = []
    if reads:
        effect = {"tag": {"add_risk_class": ["reads"]}}
        rules.append({"rule_id": "reads", "kind": "tag", "match": {"tool_name": {"glob": [reads]}}, "effect": effect})
    if deny:
        match = {"tool_name": {"glob": [deny]}}
        rules.append({"rule_id": "no", "kind": "deny", "match": match, "effect": {"action": "BLOCK"}})
    defaults = {"decision_on_error": "BLOCK", **more.pop("defaults", {})}
    head = {"policy_id": policy_id, "version": "1", "mode": "guardrails", "defaults": defaults, "selectors": {}}
    return {**head, **more, "rules": rules}


# What a machine says of each kind of attack: who did what, and at the end the library's own words.
SENTENCES = {
    "rollback": r"{url} shows an older version than was seen before: .+\.",
    "expired": r"What {url} shows has expired: .+\.",
    "altered": r"What {url} shows was altered or does not belong together: .+\.",
    "unsigned": r"What {url} shows is not signed by the keys it needs: .+\.",
    "too_large": r"({url} sends more than it may: .+|.+ is said to have \d+ bytes; at most \d+ are taken)\.",
    "slow": r"{url} sends too slowly\.",
    "invalid": r"What {url} shows cannot be read: (?s:.+)\.",
    "unreachable": r"{url} cannot be reached: .+\.",
    "missing": r"{url} answered with HTTP 4\d\d\.",
}


class StaticOrigin:
    """A web server for a directory. `answers` stand before its files; `asked` is every path that was asked for.
    `date`: what time it says it is, instead of what it is."""

    def __init__(self, directory: Path, port: int = 0) -> None:
        self.directory = directory
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.date: str | None = None
        self.port = port or free_port()
        self._server: ThreadingHTTPServer | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        origin = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                origin._answer(self)

            def date_time_string(self, timestamp: float | None = None) -> str:
                return origin.date or super().date_time_string(timestamp)

            def log_message(self, *told: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def end(self) -> None:
        """Nobody listens any more, until `start`."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path)
        answer = self.answers.get(request.path)
        file = self.directory / request.path.lstrip("/")
        if answer is None and not file.is_file():
            request.send_error(404)
            return
        pieces = answer() if callable(answer) else iter([answer if answer is not None else file.read_bytes()])
        request.send_response(200)
        request.end_headers()
        try:
            for piece in pieces:
                request.wfile.write(piece)
        except OSError:  # the machine has seen enough
            pass


class Machine:
    """A machine of the fleet, refreshed by hand: what its keeper does in time."""

    def __init__(self, home: Path, joined: Joined) -> None:
        self.home = str(home)
        self.joined = joined
        self.origin = Origin(joined.url, self.home)
        self.stop_origin = Origin(joined.url, self.home, STOPS_APART)

    def refresh(self, now_ms: int = NOW_MS) -> bool:
        return lay_policies(self.origin, self.joined, self.home, now_ms)

    def look_for_stops(self) -> bool:
        return lay_stops(self.stop_origin, self.joined, self.home, NOW_MS)

    def refused(self) -> str:
        """With which word what the origin shows is refused, after its sentence."""
        try:
            self.refresh()
        except Refused as refused:
            said = SENTENCES[refused.code].format(url=self.joined.url)
            assert re.fullmatch(said, str(refused)), (said, str(refused))
            return refused.code
        raise AssertionError("it was believed")

    def in_force(self) -> list[PolicySource]:
        return find_policies({"SUB_HOME": self.home, "HOME": self.home}, self.home)

    def policy_ids(self) -> list[str]:
        return [str(each["policy_id"]) for each in read_list(POLICIES, self.home).known]

    def stop_ids(self) -> list[str]:
        return [str(each["stop_id"]) for each in read_list(STOPS, self.home).known]


class Fleet:
    def __init__(self, tmp_path: Path, *, tenants: tuple[str, ...] = (), lives: Lives | None = None) -> None:
        self.tmp_path = tmp_path
        self.directory = tmp_path / "fleet"
        self.repository = Repository(str(self.directory))
        self.repository.init(list(tenants), lives or Lives())
        self.origin = StaticOrigin(self.directory / "origin")

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.origin.end()

    @property
    def root(self) -> str:
        return str(self.directory / "root.json")

    @property
    def metadata(self) -> Path:
        return self.directory / "origin" / "metadata"

    def publish(self, *bundles: dict[str, Any], tenant: str = "all") -> None:
        paths = []
        for number, each in enumerate(bundles):
            path = self.tmp_path / f"published-{number}.json"
            path.write_text(json.dumps(each))
            paths.append(str(path))
        self.repository.publish(tenant, paths)

    def stop(self, reason: str = "a test", by: str = "ada", **what: str) -> str:
        stop = Stop(f"stop-{len(self.repository.stops())}", reason, by, utc_now()[:19] + "Z", **what)
        self.repository.stop(stop)
        return stop.stop_id

    def join(self, name: str, tenant: str | None = None, **options: Any) -> Machine:
        home = self.tmp_path / name
        home.mkdir(mode=0o700, exist_ok=True)
        joined = Joined(url=self.origin.url, tenant=tenant, **options)
        join(joined, self.root, str(home))
        return Machine(home, joined)

    def copy_of_origin(self, name: str) -> Path:
        """The origin as it is now, to be shown later."""
        copy = self.tmp_path / name
        shutil.copytree(self.directory / "origin", copy)
        return copy
