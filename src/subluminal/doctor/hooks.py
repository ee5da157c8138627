"""Are clients' own tools judged, and what would keep their hooks from being asked?"""

from __future__ import annotations

import os
from collections.abc import Iterator

from subluminal.clients.base import Place
from subluminal.clients.hooks.places import WITH_HOOKS, is_used
from subluminal.clients.hooks.survey import SurveyedHooks, survey_hooks
from subluminal.clients.hooks.switches import OPTIONS, ManagedFiles, options_in_use
from subluminal.contracts.errors import PolicyError
from subluminal.doctor.findings import ERROR, NOTE, WARNING, Area, edit_command, quoted
from subluminal.host import home
from subluminal.host.files import read_private
from subluminal.policy.closed import fails_closed
from subluminal.policy.sources import find_policies
from subluminal.reports.printable import count

_WHAT_THEY_ARE = "a guardrail, not a sandbox"
# A directory's name, and what a process says of itself.
_MAX_MARKER_BYTES = 8192
_MAX_ARGV_BYTES = 65_536


def check_hooks(cwd: str, managed: ManagedFiles | None = None) -> Area:
    place = Place(cwd)
    found = [survey_hooks(name, place, managed) for name in WITH_HOOKS if is_used(name, place)]
    area = Area("hooks", facts={"hooks": found})
    for surveyed in found:
        _check(area, surveyed)
    if any(each.installed or each.is_managed for each in found):
        _check_marker(area, cwd)
        _check_processes(area)
    told = [_told(each) for each in found]
    area.summary = "; ".join(told) if told else "no client with hooks is used here"
    if any(each.installed for each in found):
        area.summary += f"; {_WHAT_THEY_ARE}"
    return area


def _told(found: SurveyedHooks) -> str:
    title = WITH_HOOKS[found.client].title
    if found.is_managed:
        return f"{title}: managed hooks"
    if not found.installed:
        return f"{title}: none, its built-in tools are not governed (sub import {found.client} --hooks)"
    return f"{title}: {count(len(found.installed), 'hook')} in {', '.join(found.paths)}"


def _check(area: Area, found: SurveyedHooks) -> None:
    if not found.installed and not found.is_managed and not found.missing:
        return
    title = WITH_HOOKS[found.client].title
    mend = quoted("sub", "import", found.client, "--hooks")
    if found.error is not None:
        area.add(ERROR, "hooks-unreadable", found.error, edit_command(found.error.split(": ")[0]))
    if found.missing:
        area.add(ERROR, "hooks-missing", f"{title}: no hook on {', '.join(found.missing)}", mend)
    if found.outdated:
        message = f"{title}: not as an import writes it: the hook on {', '.join(found.outdated)}"
        area.add(WARNING, "hooks-changed", message, mend)
    if len(found.paths) > 1:
        message = f"{title}: hooks are in {' and '.join(found.paths)}; each call is asked about twice"
        area.add(NOTE, "hooks-twice", message)
    for program in found.programs:
        area.add(ERROR, "hook-missing", f"{title}: {program}, which its hooks run, is not there", mend)
    if found.untrusted:
        whys = dict.fromkeys(found.untrusted.values())
        for why in whys:
            events = ", ".join(event for event, each in found.untrusted.items() if each == why)
            message = f"{title} passes over its hooks in silence: {why}: {events}"
            area.add(ERROR, "hooks-untrusted", message, mend if why != "switched off" else None)
    for switch in found.switches:
        if found.is_managed and switch.spares_managed:
            continue
        area.add(ERROR, switch.code, f"{title}: {switch.message}", edit_command(switch.path) if switch.path else None)
    area.add(NOTE, "hooks-options", f"{title}: no file shows how it is started: {OPTIONS[found.client]}")


def _check_marker(area: Area, cwd: str) -> None:
    """A hook that can ask nobody refuses where a marker says so; without one it lets the call through."""
    closed = _closed_places()
    area.facts["closed"] = closed
    here = os.path.realpath(cwd)
    if any(place == "/" or here == place or here.startswith(place.rstrip("/") + "/") for place in closed):
        return
    if any(_fails_closed(cwd)):
        message = "the policy here says BLOCK where a call cannot be judged, but a hook that fails would not know it"
        area.add(WARNING, "marker-missing", message, "sub import --all --hooks")


def _closed_places() -> list[str]:
    directory = home.closed_dir()
    found = []
    try:
        for name in sorted(os.listdir(directory)):
            found.append(os.fsdecode(read_private(os.path.join(directory, name), _MAX_MARKER_BYTES).rstrip(b"\n")))
    except OSError:
        pass
    return found


def _fails_closed(cwd: str) -> Iterator[bool]:
    for source in find_policies(os.environ, cwd):
        if source.origin != "builtin":
            try:
                yield fails_closed(source.load())
            except PolicyError:
                yield True


def _check_processes(area: Area) -> None:
    """Clients that run now and were started with an option that turns hooks off."""
    for pid, argv in _own_processes():
        option = options_in_use(argv)
        if option is not None:
            name = os.path.basename(argv[0])
            area.add(WARNING, "hooks-off-now", f"process {pid} ({name}) runs without hooks of yours: {option}")


def _own_processes() -> Iterator[tuple[int, list[str]]]:
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return
    for pid in pids:
        try:
            if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
                continue
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read(_MAX_ARGV_BYTES).split(b"\0")
        except OSError:
            continue
        yield pid, [word.decode("utf-8", "replace") for word in words if word]
