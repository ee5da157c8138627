"""Where a headless run without a bundle keeps its journals: `SUB_HOME/headless/<run>/`, until it has ended.

Afterwards they go to the spool, where ledgerd finds them whenever it is started. A run that was killed leaves its
directory behind; the next one takes it over. Each directory is locked by the `sub run` it belongs to.
"""

from __future__ import annotations

import fcntl
import os
import shutil

from subluminal.host import home
from subluminal.host.record.journal import SUFFIX, journal_name, list_journals, take_if_dead
from subluminal.ledger.trace.run_directory import JOURNALS, writers_left


def headless_dir(run_id: str) -> str:
    """A new directory for this run, locked while this process lives."""
    home.ensure_private_dir(home.headless_dir())
    name = journal_name(run_id).removesuffix(SUFFIX)
    directory = os.path.join(home.headless_dir(), f"{name}.{os.getpid()}")
    hidden = os.path.join(home.headless_dir(), f".{name}.{os.getpid()}")
    os.mkdir(hidden, 0o700)
    fcntl.flock(os.open(hidden, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_EX)  # open until the process ends
    os.rename(hidden, directory)
    return directory


def spool_journals(journals_dir: str) -> None:
    """Hand journals to the ledger. Renamed, so that each is in one place only and its writer can go on."""
    spool = home.ensure_private_dir(home.spool_dir())
    for name in list_journals(journals_dir):
        if not os.path.lexists(os.path.join(spool, name)):
            os.rename(os.path.join(journals_dir, name), os.path.join(spool, name))


def adopt_left_behind() -> None:
    """The journals of runs whose `sub run` was killed and whose shims have ended go to the spool."""
    try:
        names = [name for name in os.listdir(home.headless_dir()) if not name.startswith(".")]
    except OSError:
        return
    for name in names:
        directory = os.path.join(home.headless_dir(), name)
        try:
            owner = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if take_if_dead(owner) and not writers_left(os.path.join(directory, JOURNALS)):
                spool_journals(os.path.join(directory, JOURNALS))
                shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            pass  # it stays for the next run
        finally:
            os.close(owner)
