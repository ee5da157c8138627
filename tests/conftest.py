"""For all tests: hypothesis profiles (the same examples on every run of `make test`; new ones, and many, with
`make fuzz`), and the end of daemons that tests have caused to start."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

# No deadline: on a loaded machine it measures the machine.
settings.register_profile("test", deadline=None, derandomize=True)
settings.register_profile("fuzz", deadline=None, max_examples=5000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))
if settings.get_current_profile_name() == "test":
    # It also draws from the constants of every module that is loaded, which depends on what else a worker has run: the
    # same tests would have other examples each time.
    providers._get_local_constants = lambda: providers._local_constants

# A shell that starts us in the background has these ignored, and every program of ours would take that over.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


# What is collected here stays to the end: no pass of the collector need look at its half million objects.
gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def no_daemon_outlives_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """ledgerd starts by itself and stays for a while: those of our own temporary homes end with the session."""
    yield
    mark = b"SUB_HOME=" + os.fsencode(tmp_path_factory.getbasetemp())
    for entry in os.scandir("/proc") if os.path.isdir("/proc") else ():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            with (
                open(f"/proc/{entry.name}/environ", "rb") as environ,
                open(f"/proc/{entry.name}/cmdline", "rb") as line,
            ):
                ours = any(item.startswith(mark) for item in environ.read().split(b"\0"))
                if ours and b"ledgerd" in line.read():
                    os.kill(int(entry.name), signal.SIGTERM)
        except OSError:
            continue
