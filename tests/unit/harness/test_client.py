"""The client process makes one call, and what it started can be found after it was killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from harness.client import ClientProcess
from harness.fake_server import fake_server
from harness.processes import assert_no_processes, is_alive
from harness.waiting import GENEROUS_S


def test_killing_the_client_leaves_a_stubborn_server_which_the_marker_finds() -> None:
    with ClientProcess(fake_server(ignore=["EOF"]), dict(os.environ)) as client:
        client.signal(signal.SIGKILL)
        assert client.process.wait(GENEROUS_S) == -signal.SIGKILL
        assert is_alive(client.server_pid)
        with pytest.raises(AssertionError, match=r"in vain for the end of every process .*fake_server\.py"):
            assert_no_processes(client.marker, within=0.05)
    assert_no_processes(client.marker, within=0)


def test_a_server_that_cannot_be_used_fails_the_test_at_once(tmp_path: Path) -> None:
    command = fake_server(require_env=["NEVER_SET_ANYWHERE"])
    with pytest.raises(AssertionError, match="could not make its call"), ClientProcess(command, dict(os.environ)):
        pass
