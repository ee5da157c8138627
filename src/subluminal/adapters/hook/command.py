"""The line that stands in a client's settings as a hook.

Every way a client has to run a hook lets the call through when the hook fails, so the line itself decides: what comes
back from the hook command as anything but an answer, a missing file and a crash included, is a refusal where a marker
says so (`policy.closed`), and only there. It is for /bin/sh, and needs nothing but the shell itself.
"""

from __future__ import annotations

import os
import shlex
import sys

from subluminal.adapters.hook.build import client_words
from subluminal.host import home

# What the hook command exits with when the judge has answered 0. Nothing else does by accident: a missing script is a
# 2 of Python's own, and /bin/true in its place a 0.
ANSWERED = 90
# Those at which a client can still be stopped. Anything else would be held up by a refusal, or go round in circles.
CLOSING_EVENTS = ("PreToolUse", "ConfigChange")
# What a client's settings should give the hook: longer than the hook command waits (DEADLINE_S of its source).
TIMEOUT_S = 30
REFUSED = (
    "Subluminal cannot judge this call, and the policy in force refuses what cannot be judged. "
    "Do not try to get round it; tell the user to run: sub doctor"
)


def hook_command(client: str, sub_home: str | None = None, event: str = "PreToolUse") -> str:
    """For the hook `event` of `client` (claude, codex). The hook command is to be built first (`build_client`)."""
    where = os.path.abspath(sub_home or home.sub_home())
    words = [*client_words(where), client, event, home.run_dir(where), sys.executable]
    asked = f"{shlex.join(words)}; case $? in {ANSWERED}) exit 0;; {ANSWERED + 2}) exit 2;; esac"
    if event not in CLOSING_EVENTS:
        return f"{asked}; exit 0"
    marks = shlex.quote(home.closed_dir(where))
    within = 'IFS= read -r d <"$f" && case "$(pwd -P)/" in "$d"*)'
    refuse = f"echo {shlex.quote(REFUSED)} >&2; exit 2;; esac"
    return f'{asked}; for f in {marks}/*; do [ -f "$f" ] && {within} {refuse}; done; exit 0'
