"""What servers say, as it is kept here: can the locks be read, and is what policies ask for at hand?"""

from __future__ import annotations

import importlib.util
import os

from subluminal.contracts.errors import PolicyError, ToolsError
from subluminal.doctor.findings import ERROR, Area, quoted
from subluminal.host.home import REPOSITORY_TOOLS_LOCK, repository_files, tools_lock_file
from subluminal.host.tools.known import all_known
from subluminal.host.tools.locks import read_lock
from subluminal.policy.sources import find_policies
from subluminal.reports.printable import count


def check_tools(cwd: str) -> Area:
    known = all_known()
    mine = tools_lock_file()
    area = Area("tools", facts={"servers": len(known), "locks": []})
    locks = (mine, *repository_files(cwd, REPOSITORY_TOOLS_LOCK))
    pinned = sum(_check_lock(area, path, path == mine) for path in locks)
    area.summary = f"{count(len(known), 'server')} seen, {pinned} pinned" if known or pinned else "none seen yet"
    if _checks_schemas(cwd) and importlib.util.find_spec("jsonschema") is None:
        message = (
            "a policy in force says `check_schemas`, and the package jsonschema is not installed: no call can be judged"
        )
        area.add(ERROR, "schemas-missing", message, "pip install jsonschema")
    return area


def _check_lock(area: Area, path: str, mine: bool) -> int:
    """How many pins it has."""
    try:
        lock = read_lock(path, mine)
    except ToolsError as fault:
        area.facts["locks"].append({"path": path, "pins": None, "error": str(fault)})
        message = f"{path} {fault}: every tool counts as changed until it is mended"
        mend = quoted("mv", path, path + ".old") if mine else quoted("git", "checkout", "--", path)
        area.add(ERROR, "lock-unreadable", message, mend)
        return 0
    pins = sum(map(len, lock.values()))
    if pins:
        area.facts["locks"].append({"path": path, "pins": pins, "error": None})
    return pins


def _checks_schemas(cwd: str) -> bool:
    for source in find_policies(os.environ, cwd):
        try:
            if source.load()["defaults"].get("check_schemas", "none") != "none":
                return True
        except PolicyError:  # told by its own area
            continue
    return False
