"""Which policies are in force here: organisation, fleet, then the one that was named, or else user and repository.

    organisation   /etc/subluminal/policy.yaml                    always
    fleet, stop    laid in $SUB_HOME/fleet/policy/                always, on a machine that has joined a fleet
    then           --policy, or SUB_POLICY, or SUB_POLICY_JSON    the first that is set
    or else        $SUB_HOME/policy.yaml  and  .subluminal/policy.yaml of the repository

A policy that the entry of a server names (`--policy` in its command, SUB_POLICY, SUB_POLICY_JSON or SUB_HOME in its
`env`) was chosen by whoever wrote that entry: it is added to those in force without it, and replaces none of them.

A process that serves many runs (`find_for_visitor`) has a policy that was named to it or the user's; those that a run
names and of the repository where its client works are added.

Between the working directory and the repository root (the nearest directory above that holds `.git`) every
`.subluminal/policy.yaml` counts, outermost first: bundles stack and the strictest decision wins, so a nested one can
tighten but never replace the one above it. Outside of a repository only the working directory's own counts: nothing
says how far up the project goes, and `/tmp` or a shared parent is anybody's.

A file that exists but cannot be read is listed, so that loading it fails loudly: "no policy" is only said of files that
are not there. The shim imports this; keep it light.
"""

from __future__ import annotations

import os

from subluminal.host.home import REPOSITORY_POLICY, is_present, joined_file, repository_files, sub_home, user_policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# Not to be moved by the environment: whoever can set a variable must not shed the organisation's policy.
ORGANISATION_POLICY = "/etc/subluminal/policy.yaml"

# The origins of what the user can tighten and never loosen.
ABOVE_THE_USER = ("organisation", "fleet", "stop")

NAMING_VARIABLES = ("SUB_HOME", "SUB_POLICY", "SUB_POLICY_JSON")

BUILTIN_OBSERVE: dict[str, Any] = {
    "snapshot_format": 1,
    "policy_id": "builtin-observe",
    "version": "1",
    "mode": "observe",
    "defaults": {"decision_on_error": "ALLOW", "fail_open_read_tools": False},
    "selectors": {},
    "rules": [],
    "policy_hash": "4592b9228e5a177111e82151f2f26aa355e3af89ce7d9277c7e16369a1a2e84c",
}


class PolicySource:
    """One policy in force: `origin` says why, and either `path` or `inline` where it is (the built-in has neither)."""

    __slots__ = ("inline", "origin", "path")
    overdue: str | None = None  # why a fleet's policy cannot be relied on any more

    def __init__(self, origin: str, path: str | None = None, inline: str | None = None) -> None:
        self.origin = origin
        self.path = path
        self.inline = inline

    def load(self, *, apart: bool = False) -> dict[str, Any]:
        """Its compiled snapshot; raises PolicyError. `apart`: what must be compiled is, in a process of its own."""
        from subluminal.policy.compile.snapshot import load_inline, load_snapshot

        if self.path is not None:
            return load_snapshot(self.path, apart=apart)
        if self.inline is not None:
            return load_inline(self.inline, apart=apart)
        return BUILTIN_OBSERVE


class LaidSource(PolicySource):
    """A snapshot that the fleet has laid, or (`fault`) the list of them that cannot be read."""

    __slots__ = ("fault", "overdue")

    def __init__(self, origin: str, path: str, overdue: str | None = None, fault: str | None = None) -> None:
        super().__init__(origin, path)
        self.overdue = overdue
        self.fault = fault

    def load(self, *, apart: bool = False) -> dict[str, Any]:
        from subluminal.policy.laid import NotLaid, read_snapshot

        if self.fault is not None:
            raise NotLaid(self.fault)
        return read_snapshot(self.path or "", self.overdue)


def find_policies(environ: Mapping[str, str], cwd: str, explicit: str | None = None) -> list[PolicySource]:
    """The policies in force, in order; never empty."""
    found = _above_the_user(sub_home(environ))
    named = _named(environ, cwd, explicit)
    found += [named] if named is not None else _implied(environ, cwd)
    return _without_repeats(found) or [PolicySource("builtin")]


def find_for_entry(
    environ: Mapping[str, str], cwd: str, explicit: str | None, client: Mapping[str, str]
) -> list[PolicySource]:
    """The policies for a server that an entry starts: those in force without its words, then those it names.

    `client` is the environment of the client that starts it. What `environ` has beyond that is the entry's.
    """
    client = {**client, "SUB_HOME": sub_home(client)} if client.get("SUB_HOME") or client.get("HOME") else client
    own = {name: environ[name] for name in NAMING_VARIABLES if environ.get(name) and environ[name] != client.get(name)}
    theirs = {name: client[name] for name in own if name in client}
    found = find_policies({**{n: v for n, v in environ.items() if n not in own}, **theirs}, cwd)
    named = _named(own, cwd, explicit)
    added: list[PolicySource] = [] if named is None else [named]
    if "SUB_HOME" in own:
        added += _laid(own["SUB_HOME"])
        if is_present(user_policy(own["SUB_HOME"])):
            added.append(PolicySource("SUB_HOME", user_policy(own["SUB_HOME"])))
    if added:
        found = [source for source in found if source.origin != "builtin"]
    return _without_repeats(found + added)


def find_for_visitor(
    environ: Mapping[str, str], cwd: str, explicit: str | None, run: Mapping[str, str], directory: str | None
) -> list[PolicySource]:
    """The policies for a run that a process serves beside others: its own, and then those of the run.

    `environ`, `cwd` and `explicit` are the process's: of a repository in which it happens to stand nothing counts.
    `run` is the environment of the run, and `directory` where its client works, if that is known. What a run names and
    where it works adds to what the process has: it can tighten, and never replace.
    """
    found = _above_the_user(sub_home(environ))
    named, user = _named(environ, cwd, explicit), user_policy(sub_home(environ))
    if named is not None:
        found.append(named)
    elif is_present(user):
        found.append(PolicySource("user", user))
    theirs = _named(run, directory or "/", None)
    if theirs is not None:
        found.append(theirs)
    if directory is not None:
        found += [PolicySource("repository", path) for path in repository_files(directory, REPOSITORY_POLICY)]
    return _without_repeats(found) or [PolicySource("builtin")]


def _above_the_user(home: str) -> list[PolicySource]:
    found = [PolicySource("organisation", ORGANISATION_POLICY)] if is_present(ORGANISATION_POLICY) else []
    return found + _laid(home)


def _laid(home: str) -> list[PolicySource]:
    """Of a machine that has joined a fleet: then what is missing is no "no policy"."""
    if not is_present(joined_file(home)):
        return []
    from subluminal.contracts.errors import PolicyError
    from subluminal.host.home import laid_list
    from subluminal.policy.laid import POLICIES, STOPS, in_force

    found: list[PolicySource] = []
    for origin, which in (("fleet", POLICIES), ("stop", STOPS)):
        try:
            found += [LaidSource(origin, path, overdue) for path, overdue in in_force(which, home)]
        except PolicyError as fault:
            found.append(LaidSource(origin, laid_list(which, home), fault=str(fault)))
    return found


def _named(environ: Mapping[str, str], cwd: str, explicit: str | None) -> PolicySource | None:
    if explicit:
        return PolicySource("--policy", _absolute(explicit, cwd))
    if environ.get("SUB_POLICY"):
        return PolicySource("SUB_POLICY", _absolute(environ["SUB_POLICY"], cwd))
    if environ.get("SUB_POLICY_JSON"):
        return PolicySource("SUB_POLICY_JSON", inline=environ["SUB_POLICY_JSON"])
    return None


def _implied(environ: Mapping[str, str], cwd: str) -> list[PolicySource]:
    user = user_policy(sub_home(environ))
    found = [PolicySource("user", user)] if is_present(user) else []
    return found + [PolicySource("repository", path) for path in repository_files(cwd, REPOSITORY_POLICY)]


def _without_repeats(found: list[PolicySource]) -> list[PolicySource]:
    """One file reached in two ways (a home directory that is a repository) is judged once."""
    seen: set[str] = set()
    kept = []
    for source in found:
        real = os.path.realpath(source.path) if source.path is not None else ""
        if not real or real not in seen:
            seen.add(real)
            kept.append(source)
    return kept


def _absolute(path: str, cwd: str) -> str:
    return os.path.join(os.path.abspath(cwd), os.path.expanduser(path))
