"""What a run is asked to be, whoever asks: the command line, a control loop, a page."""

from __future__ import annotations

from typing import NamedTuple


class HeadlessOptions(NamedTuple):
    """A run in CI: where its record goes, and what the job tolerates. None and False: not asked for."""

    events: str | None = None
    bundle: str | None = None
    strict: bool = False
    fail_on: str | None = None
    max_blocked: int | None = None


class RunOptions(NamedTuple):
    """What is None comes from the environment, or else is found out."""

    run_id: str | None = None
    agent_id: str | None = None
    client: str | None = None
    env: str | None = None
    principal: str | None = None
    policy: str | None = None
    meta: tuple[str, ...] = ()  # key=value
    timeout_s: float | None = None
    model_api: bool = False
    model_api_upstream: str | None = None
    headless: HeadlessOptions | None = None
