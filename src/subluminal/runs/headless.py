"""`sub run --headless`: a run in CI. No prompt, no colour, no daemon; the verdict is in the exit code.

The shims write journals into a directory of the run (the bundle's, or one below SUB_HOME) and this process gathers
them: into events.jsonl, into the stream that was asked for, and into the figures that the verdict is made of. When the
agent has ended, the bundle is sealed; a bundle that could not be sealed is read from its journals.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from typing import TYPE_CHECKING

from subluminal.contracts.errors import ConfigError, SubluminalError, UsageError
from subluminal.contracts.moments import rfc3339
from subluminal.host import home
from subluminal.host.identity import default_env
from subluminal.host.run.listing import list_runs
from subluminal.ledger.fold.run_facts import RunFacts
from subluminal.ledger.trace.run_directory import HOLD_MS, RunDirectory, writers_left
from subluminal.producer.producer import Producer
from subluminal.reports.printable import printable
from subluminal.runs.command import Outcome, Say, execute, guess_client
from subluminal.runs.headless_dirs import adopt_left_behind, headless_dir, spool_journals
from subluminal.runs.options import HeadlessOptions, RunOptions
from subluminal.runs.run import Run, run_environment
from subluminal.runs.stream import Stream
from subluminal.runs.verdict import Strictness, Verdict, exit_code, judge, report

if TYPE_CHECKING:
    from subluminal.runs.artefacts import Artefacts

# The shims of an agent that has ended end their servers first: TERM, grace, KILL.
WRITERS_GRACE_S = 10.0
_HELD_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_headless(command: list[str], options: RunOptions, headless: HeadlessOptions, say: Say) -> Outcome:
    environ = run_environment(os.environ, options, guess_client(command[0]))
    if default_env(environ) == "dev":  # nobody is at a desk; in a pod it is prod
        environ.setdefault("SUB_ENV", "ci")
    if environ["SUB_CLIENT"] == "custom" and not options.client and not os.environ.get("SUB_CLIENT"):
        environ["SUB_CLIENT"] = "headless"
    gathered = Gathered(environ["SUB_RUN_ID"], headless, environ.get("SUB_EVENTS") or "")
    environ["SUB_EVENTS"] = gathered.directory.sink
    run = Run(environ, options)
    producer = run.producer()
    stdout = 2 if gathered.stream is not None and gathered.stream.takes_stdout else None
    job = Job(run, producer, gathered, headless)
    try:
        try:
            ended = execute(command, run, producer, say, options, on_tick=job.tick, stdout=stdout)
        except SubluminalError as error:
            job.finish(Outcome(error.exit_code, "FAILED"), say)
            raise
        return job.finish(ended, say)
    finally:
        run.membership.leave()


class Gathered:
    """The events of all shims of the run: in a directory of their own, in the stream that was asked for, as facts."""

    def __init__(self, run_id: str, options: HeadlessOptions, inherited: str) -> None:
        """`inherited`: what SUB_EVENTS asked for; it stands in for `--events`."""
        if inherited.startswith("dir:"):
            inherited = ""  # the directory of an outer run: ours has its own
        asked = inherited.removeprefix("file:")
        target = options.events
        if target is None and asked not in ("", "ledger", "none"):
            target = asked
        self.stream = None if target is None else Stream(target)
        self._to_ledger = target is None and asked != "none"
        self.bundle = options.bundle
        self.facts = RunFacts(run_id)
        try:
            self.directory = RunDirectory(_make_directory(run_id, options.bundle), run_id, self.facts.add)
        except OSError as error:
            raise ConfigError(
                f"the run cannot be recorded: {error.filename or ''}: {error.strerror}",
                hint="Name a directory that can be written with --bundle, or set SUB_HOME.",
            ) from None

    def pump(self) -> None:
        self.directory.pump(rfc3339(time.time_ns() // 1_000_000 - HOLD_MS))
        if self.stream is not None:
            self.stream.feed(self.directory.path)

    def close(self) -> list[str]:
        """Take everything in until the last shim has gone; those that do not go in time."""
        give_up = time.monotonic() + WRITERS_GRACE_S
        while True:
            left = writers_left(self.directory.journals_dir)
            while self.directory.pump(None):
                pass
            if not left or time.monotonic() > give_up:
                break
            time.sleep(0.02)
        if self.stream is not None:
            self.stream.feed(self.directory.path, wait=True)
            self.stream.close()
        self.directory.close()
        return left

    def hand_over(self) -> None:
        """Where no bundle keeps the journals, the ledger gets them, unless a stream took everything."""
        if self._to_ledger or self.trouble is not None:
            spool_journals(self.directory.journals_dir)
        shutil.rmtree(self.directory.directory, ignore_errors=True)

    @property
    def trouble(self) -> str | None:
        """Why the stream did not take everything."""
        return self.stream.trouble if self.stream is not None else None


def _make_directory(run_id: str, bundle: str | None) -> str:
    if bundle is None:
        adopt_left_behind()
        return headless_dir(run_id)
    directory = os.path.abspath(bundle)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    if os.listdir(directory):
        hint = "Name a new directory: a bundle is one run."
        raise UsageError(f"--bundle {bundle}: there is something in it already", hint=hint)
    return directory


class Job:
    """What the run means for its CI job: the bundle with its reports, the verdict, the exit code."""

    def __init__(self, run: Run, producer: Producer, gathered: Gathered, options: HeadlessOptions) -> None:
        self._run = run
        self._policy_error = producer.policy_error
        self._gathered = gathered
        self._strictness = Strictness(options.strict, options.fail_on, options.max_blocked)
        self._calls_before = self._calls_counted()
        self._artefacts: Artefacts | None = None

    def tick(self) -> None:
        self._gathered.pump()
        if self._gathered.bundle is not None:
            self._reports().refresh(self._problems())

    def finish(self, ended: Outcome, say: Say) -> Outcome:
        """`ended`: how the command did. The code returned is the job's."""
        # What remains is to be written whole; a second signal must not cut it short.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_SIGNALS)
        try:
            gathered = self._gathered
            left = gathered.close()
            problems = self._problems(left, ended=True)
            terminated = self._run.membership.terminated is not None
            verdict = judge(gathered.facts, problems, terminated, self._strictness)
            code = exit_code(ended.code, verdict)
            if gathered.bundle is None:
                gathered.hand_over()
            elif (fault := self._write_bundle(ended.code, code, verdict, problems, bool(left))) is not None:
                say(f"sub: the bundle could not be finished: {fault.strerror}; its journals are kept")
            self._tell(verdict, problems, say)
            return Outcome(code, ended.status, gathered.facts, verdict, tuple(problems))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _problems(self, left: list[str] | None = None, ended: bool = False) -> list[str]:
        facts = self._gathered.facts
        errors = [self._policy_error] if self._policy_error is not None else []
        errors = list(dict.fromkeys([*errors, *facts.policy_errors]))
        problems = [f"a policy could not be loaded: {error}" for error in errors]
        problems += self._gathered.directory.faults
        problems += [f"shim {shim_id} was still writing when the recording ended" for shim_id in left or ()]
        if ended:
            missing = self._calls_counted() - self._calls_before - facts.counts.total
            if missing > 0:
                problems.append(f"{missing} more calls were judged than were recorded: a shim was killed or diverted")
        return problems

    def _calls_counted(self) -> int:
        """What the run's shared state counts, whatever was recorded."""
        return next((info.calls for info in list_runs() if info.run_id == self._run.run_id), 0)

    def _reports(self) -> Artefacts:
        if self._artefacts is None:
            from subluminal.runs.artefacts import Artefacts
            from subluminal.runs.places import rule_places

            places = rule_places(self._run.environ, os.getcwd())
            self._artefacts = Artefacts(self._gathered.directory.directory, self._gathered.facts, places)
        return self._artefacts

    def _write_bundle(self, child: int, code: int, verdict: Verdict, problems: list[str], busy: bool) -> OSError | None:
        from subluminal.ledger.trace.seal import seal
        from subluminal.runs.page import write_page

        try:
            reports = self._reports()
            reports.write(verdict, child, code, problems)
            write_page(reports.directory, self._gathered.facts)
            if not busy:
                seal(reports.directory, self._run.run_id, reports.policies)
        except OSError as error:
            return error
        return None

    def _tell(self, verdict: Verdict, problems: list[str], say: Say) -> None:
        gathered = self._gathered
        if gathered.stream is not None and gathered.trouble is not None:
            kept = "the bundle has" if gathered.bundle is not None else f"{home.spool_dir()} keeps"
            say(f"sub: --events {gathered.stream.target}: {gathered.trouble}; {kept} all events")
        for line in report(gathered.facts, verdict):
            say(line)
        if not verdict.failed:
            for problem in problems:
                say(printable(f"sub: {problem}"))
        page = os.environ.get("GITHUB_STEP_SUMMARY")
        if page:
            from subluminal.runs.artefacts import add_step_summary

            add_step_summary(page, gathered.facts, verdict, problems)
