"""The hooks of `sub import` and `sub restore`: clients' own tools beside their servers."""

from __future__ import annotations

import os
from collections.abc import Collection

from subluminal.adapters.hook.build import build_client
from subluminal.cli.render.output import note, print_json
from subluminal.clients.base import Place
from subluminal.clients.hooks.installing import import_hooks
from subluminal.clients.hooks.managed import managed_hooks
from subluminal.clients.hooks.places import WITH_HOOKS, is_used
from subluminal.clients.hooks.restoring import restore_hooks
from subluminal.clients.hooks.survey import is_installed
from subluminal.clients.importing import Choice
from subluminal.clients.registry import client_named
from subluminal.clients.report import FileReport
from subluminal.contracts.errors import ClientConfigError, UsageError
from subluminal.host import home
from subluminal.policy.closed import keep_markers
from subluminal.reports.printable import printable

_CLIENTS = " and ".join(WITH_HOOKS)


def check_asked(client: str | None, hooks: bool, managed: bool, path: str | None) -> None:
    if managed and not hooks:
        raise UsageError("--managed is about hooks", hint="For example: sub import claude --hooks --managed")
    if managed and client is None:
        raise UsageError("say whose managed file", hint="For example: sub import codex --hooks --managed")
    if hooks and path is not None:
        raise UsageError("--hooks has files of its own and takes no --file")
    if hooks and client is not None and client_named(client).name not in WITH_HOOKS:
        raise UsageError(f"hooks are written for {_CLIENTS}", hint=f"Leave --hooks away: sub import {client}")


def hooks_imported(client: str | None, choice: Choice, *, sub: str, dry_run: bool, foreign: bool) -> list[FileReport]:
    """For one client, or for each that is used here."""
    place = Place()
    if not dry_run:
        _make_ready()
    names = [client] if client is not None else [name for name in WITH_HOOKS if is_used(name, place)]
    return [
        report
        for name in names
        for report in import_hooks(name, place, choice, sub=sub, dry_run=dry_run, foreign=foreign)
    ]


def _make_ready() -> None:
    """What the hooks run, and what they go by when they can ask nobody."""
    try:
        build_client()
        keep_markers(os.environ, os.getcwd())
    except OSError as error:
        message = f"the hook command cannot be put into {home.bin_dir()}: {error.strerror or error}"
        raise ClientConfigError(f"{message}; nothing was changed") from None


def hooks_restored(clients: Collection[str], choice: Choice, *, dry_run: bool, foreign: bool) -> list[FileReport]:
    place = Place()
    return [
        report
        for name, client in WITH_HOOKS.items()
        if name in clients
        for report in restore_hooks(client, place, choice, dry_run=dry_run, foreign=foreign)
    ]


def show_managed(client: str, as_json: bool) -> int:
    found = managed_hooks(client, Place())
    if as_json:
        print_json({"command": "import", "dry_run": True, "managed": [found._asdict()]})
        return 0
    note(found.path)
    print(found.content, end="")
    for line in found.advice:
        note(line)
    return 0


def hook_lines(report: FileReport) -> list[tuple[str, str]]:
    """One line for each thing that became of hooks: the status, and the events."""
    statuses = dict.fromkeys(hook.status for hook in report.hooks)
    return [
        (status, printable("hooks: " + ", ".join(hook.event for hook in report.hooks if hook.status == status)))
        for status in statuses
    ]


def say_what_is_not_governed(reports: list[FileReport], hooks: bool) -> None:
    """An import of servers alone leaves the client's own tools as they are."""
    clients = dict.fromkeys(report.client for report in reports if report.client in WITH_HOOKS)
    if hooks:
        if any(report.hooks for report in reports):
            note("Hooks are a guardrail, not a sandbox; what turns them off: sub doctor")
        return
    place = Place()
    for name in clients:
        if not is_installed(name, place):
            note(f"Built-in tools of {WITH_HOOKS[name].title} are not governed by this:  sub import {name} --hooks")
