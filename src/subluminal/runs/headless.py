"""`sub run --headless`: a run in CI. No prompt, no colour, no daemon; the verdict is in the exit code.

The shims write journals into a directory of the run (the bundle's, or one below SUB_HOME) and this process gathers
them: into events.jsonl, into the stream that was asked for, and into the figures that the verdict is made of. When the
agent has ended, the bundle is sealed; a bundle that could not be sealed is read from its journals.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from typing import Any

from subluminal.contracts.errors import ConfigError, UsageError
from subluminal.core.emit.emitter import rfc3339
from subluminal.host import home
from subluminal.host.run.state import list_runs
from subluminal.ledger.fold.run_facts import RunFacts
from subluminal.ledger.trace.run_directory import HOLD_MS, Recording
from subluminal.reports.printable import printable
from subluminal.runs.headless_dirs import adopt_left_behind, headless_dir, spool_journals
from subluminal.runs.runner import Runner, note
from subluminal.runs.stream import Stream
from subluminal.runs.verdict import Strictness, exit_code, judge, report

# The shims of an agent that has ended end their servers first: TERM, grace, KILL.
WRITERS_GRACE_S = 10.0
_HELD_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class HeadlessRunner(Runner):
    def __init__(self, command: list[str], given: dict[str, Any]) -> None:
        self.strictness = Strictness(bool(given.get("strict")), given.get("fail_on"), given.get("max_blocked"))
        self.bundle: str | None = given.get("bundle")
        self.given = given
        self.stream: Stream | None = None
        self.keep = "none" if given.get("events") or self.bundle else "ledger"
        super().__init__(command, given)
        if self.identity.workload and "SUB_WORKLOAD" not in self.environ:
            # For shims whose client scrubs the CI system's own variables.
            self.environ["SUB_WORKLOAD"] = json.dumps(self.identity.workload)
        self.calls_before = self._calls_counted()
        self.artefacts: Any = None

    def prepare(self) -> None:
        environ = self.environ
        environ.setdefault("SUB_ENV", "ci")
        if environ["SUB_CLIENT"] == "custom" and not self.given.get("client") and not os.environ.get("SUB_CLIENT"):
            environ["SUB_CLIENT"] = "headless"
        self.facts = RunFacts(self.run_id)
        self._open_stream(self.given.get("events"), environ.get("SUB_EVENTS") or "")
        try:
            self.directory = self._directory()
            self.recording = Recording(self.directory, self.run_id, self.facts.add)
        except OSError as error:
            raise ConfigError(
                f"the run cannot be recorded: {error.filename or ''}: {error.strerror}",
                hint="Name a directory that can be written with --bundle, or set SUB_HOME.",
            ) from None
        environ["SUB_EVENTS"] = self.recording.sink

    def _directory(self) -> str:
        if self.bundle is None:
            adopt_left_behind()
            return headless_dir(self.run_id)
        directory = os.path.abspath(self.bundle)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        if os.listdir(directory):
            raise UsageError(
                f"--bundle {self.bundle}: there is something in it already",
                hint="Name a new directory: a bundle is one run.",
            )
        return directory

    def _open_stream(self, wanted: str | None, inherited: str) -> None:
        """`--events`, or else what SUB_EVENTS asked for before we pointed it at the recording."""
        if wanted is None and inherited.startswith("dir:"):
            inherited = ""  # an outer run's recording: ours is its own
        if wanted is None:
            wanted = inherited.removeprefix("file:")
            if wanted in ("", "ledger"):
                return
            self.keep = "none"
            if wanted == "none":
                return
        self.stream = Stream(wanted)
        if self.stream.takes_stdout:
            self.child_stdout = 2

    def _stop_reason(self) -> str | None:
        self._tick()
        return super()._stop_reason()

    def _tick(self) -> None:
        self.recording.pump(rfc3339(time.time_ns() // 1_000_000 - HOLD_MS))
        if self.stream is not None:
            self.stream.feed(self.recording.path)
        if self.bundle is not None:
            if self.artefacts is None:
                self.artefacts = self._make_artefacts()
            self.artefacts.refresh(self._problems())

    def _make_artefacts(self) -> Any:
        from subluminal.runs.artefacts import Artefacts
        from subluminal.runs.places import rule_places

        return Artefacts(self.directory, self.facts, rule_places(self.environ, os.getcwd()))

    def run(self) -> int:
        try:
            code = super().run()
        except UsageError as error:
            self._finish(error.exit_code)
            raise
        return self._finish(code)

    def _finish(self, child: int) -> int:
        # What remains is to be written whole; a second signal must not cut it short.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_SIGNALS)
        try:
            left = self._wait_for_writers()
            if self.stream is not None:
                self.stream.feed(self.recording.path, wait=True)
                self.stream.close()
            self.recording.close()
            problems = self._problems(left, ended=True)
            verdict = judge(self.facts, problems, self.state.terminated is not None, self.strictness)
            code = exit_code(child, verdict)
            if self.bundle is not None:
                self._write_bundle(child, code, verdict, problems, bool(left))
            else:
                self._keep_record()
            self._tell(verdict, problems)
            return code
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _wait_for_writers(self) -> list[str]:
        """Take everything in until the last shim has gone; those that do not go in time."""
        give_up = time.monotonic() + WRITERS_GRACE_S
        while True:
            left = self.recording.writers_left()
            while self.recording.pump(None):
                pass
            if not left or time.monotonic() > give_up:
                return left
            time.sleep(0.02)

    def _problems(self, left: list[str] | None = None, ended: bool = False) -> list[str]:
        problems = []
        errors = [self.policy.error] if self.policy.error is not None else []
        for error in dict.fromkeys([*errors, *self.facts.policy_errors]):
            problems.append(f"a policy could not be loaded: {error}")
        problems += self.recording.faults
        problems += [f"shim {shim_id} was still writing when the recording ended" for shim_id in left or ()]
        if ended:
            missing = self._calls_counted() - self.calls_before - self.facts.counts.total
            if missing > 0:
                problems.append(f"{missing} more calls were judged than were recorded: a shim was killed or diverted")
        return problems

    def _calls_counted(self) -> int:
        """What the run's shared state counts, whatever was recorded."""
        return next((info.calls for info in list_runs() if info.run_id == self.run_id), 0)

    def _write_bundle(self, child: int, code: int, verdict: Any, problems: list[str], busy: bool) -> None:
        from subluminal.ledger.trace.seal import seal

        try:
            self.artefacts = self.artefacts or self._make_artefacts()
            self.artefacts.write(verdict, child, code, problems)
            if not busy:
                seal(self.directory, self.run_id, self.artefacts.policies)
        except OSError as error:
            note(f"sub: the bundle could not be finished: {error.strerror}; its journals are kept")

    def _keep_record(self) -> None:
        if self.keep == "ledger" or (self.stream is not None and self.stream.trouble is not None):
            spool_journals(self.recording.journals_dir)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _tell(self, verdict: Any, problems: list[str]) -> None:
        if self.stream is not None and self.stream.trouble is not None:
            kept = "the bundle has" if self.bundle is not None else f"{home.spool_dir()} keeps"
            note(f"sub: --events {self.stream.target}: {self.stream.trouble}; {kept} all events")
        for line in report(self.facts, verdict):
            note(line)
        if not verdict.failed:
            for problem in problems:
                note(printable(f"sub: {problem}"))
        page = os.environ.get("GITHUB_STEP_SUMMARY")
        if page:
            from subluminal.runs.artefacts import add_step_summary

            add_step_summary(page, self.facts, verdict, problems)
