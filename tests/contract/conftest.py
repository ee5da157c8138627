"""`adapter`: the test runs once over every adapter. `play`: a whole run through it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from harness.adapters.every import ADAPTERS, Played
from harness.adapters.interface import Adapter

Play = Callable[..., Played]


@pytest.fixture(params=ADAPTERS, ids=[each.name for each in ADAPTERS])
def adapter(request: pytest.FixtureRequest) -> Adapter:
    chosen: Adapter = request.param
    return chosen


@pytest.fixture
def play(adapter: Adapter, tmp_path: Path) -> Play:
    """play(policy, (tool, arguments), ...) -> Played"""
    return partial(Played, adapter, tmp_path / "run")
