"""Is the home directory there, ours alone, and with room for the record? What have runs left in it?"""

from __future__ import annotations

import os
import shutil
import stat

from subluminal.doctor.findings import ERROR, WARNING, Area, quoted
from subluminal.host import home
from subluminal.host.run.listing import list_runs
from subluminal.host.run.registration import stale_registrations
from subluminal.host.run.view import wide_state
from subluminal.reports.printable import count

# Below this the ledger will soon be unable to grow.
_LOW_DISK_BYTES = 200 * 1024 * 1024


def check_home() -> Area:
    directory = home.sub_home()
    area = Area("home", facts={"path": directory, "exists": os.path.isdir(directory)})
    area.summary = directory if os.path.isdir(directory) else f"{directory} (made on first use)"
    if not os.path.isdir(directory):
        _check_future_home(area, directory)
        return area
    if not os.access(directory, os.W_OK | os.X_OK):
        message = f"{directory} cannot be written: nothing can be recorded"
        area.summary = f"{directory} cannot be used"
        area.add(ERROR, "home-read-only", message, quoted("chmod", "u+rwx", directory), safe=True)
    for path, wanted in home.private_places():
        _check_private(area, path, wanted)
    free = shutil.disk_usage(directory).free
    area.facts["free_bytes"] = free
    if free < _LOW_DISK_BYTES:
        message = f"only {free // 2**20} MiB are free where the record is kept"
        area.add(WARNING, "disk-low", message, "sub prune --older-than 30d")
    return area


def _check_future_home(area: Area, home: str) -> None:
    if os.path.lexists(home):
        area.summary = f"{home} cannot be used"
        area.add(ERROR, "home-no-directory", f"{home} is not a directory", quoted("mv", home, home + ".old"))
        return
    above = os.path.dirname(os.path.abspath(home))
    while not os.path.exists(above):
        above = os.path.dirname(above)
    if not os.access(above, os.W_OK | os.X_OK):
        mend = quoted("export", f"SUB_HOME={os.path.expanduser('~/.subluminal')}")
        area.summary = f"{home} cannot be made"
        area.add(ERROR, "home-unmakeable", f"{home} cannot be made: {above} is not writable", mend)


def _check_private(area: Area, path: str, wanted: int) -> None:
    may_be_link = path in (home.sub_home(), home.user_policy(), home.config_file(), home.ledger_db())
    try:
        status = os.stat(path, follow_symlinks=may_be_link)
    except OSError:
        return
    is_right = (stat.S_ISDIR if wanted == 0o700 else _is_file_or_socket)(status.st_mode)
    if not is_right:
        what = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not what we made"
        message = f"{path} is {what}: nothing is read from it or written through it"
        area.add(ERROR, "not-ours", message, quoted("mv", path, path + ".old"))
        return
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.geteuid():
        message = f"{path} belongs to another user (uid {status.st_uid})"
        area.add(ERROR, "foreign-owner", message, quoted("sudo", "chown", str(os.geteuid()), path))
    # Others may read a policy; nobody else may change anything, or look at the rest.
    elif mode & (0o022 if path in (home.user_policy(), home.config_file()) else 0o077):
        level = ERROR if mode & 0o022 else WARNING
        mend = quoted("chmod", f"{wanted:o}", path)
        area.add(level, "open-to-others", f"{path} is open to others ({mode:04o})", mend, safe=True)


def _is_file_or_socket(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def check_runs() -> Area:
    runs = list_runs()
    stale = stale_registrations()
    stopped = [run for run in runs if run.terminated is not None]
    area = Area("runs", facts={"with_state": len(runs), "stopped": len(stopped), "stale_registrations": stale})
    area.summary = f"{count(len(runs), 'run')} with state" if runs else "none yet"
    if stopped:
        area.summary += f", {len(stopped)} stopped"
    for run in runs:
        if run.damage:
            message = f"the state of run {run.run_id or run.path} is damaged: {run.damage}"
            area.add(ERROR, "state-damaged", message, quoted("sub", "state", run.run_id or "RUN", "--reset"))
    wide = wide_state()
    if wide is not None and wide.damage:
        message = f"the state of this machine ({wide.path}) is damaged: {wide.damage}"
        area.add(ERROR, "state-damaged", message, "sub state --machine --reset")
    if stale:
        message = f"{count(len(stale), 'registration')} of a `sub run` that was killed"
        area.add(WARNING, "stale-registration", message, quoted("rm", *stale), safe=True)
    return area
