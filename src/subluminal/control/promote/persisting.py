"""A promote in the text of a policy: proposed, and written if nobody has touched the file meanwhile."""

from __future__ import annotations

import os
from typing import Any

from msgspec import Struct, structs

from subluminal.contracts.errors import ConfigError
from subluminal.contracts.vocabulary import ALLOWLIST_MATCH, DENYLIST_MATCH
from subluminal.control.promote.making import Made, make, persistent_id
from subluminal.control.promote.record import who
from subluminal.control.promote.wish import CannotPromote, Recorded, Wish
from subluminal.host.clock import utc_now
from subluminal.host.files import replace_file
from subluminal.policy.compile.bundle import compile_bundle
from subluminal.policy.compile.snapshot import read_source
from subluminal.policy.edit.changes import Change
from subluminal.policy.edit.splice import changed_policy, with_test
from subluminal.policy.files import tests_beside
from subluminal.policy.replay.recorded import rejudge, remains_of


class Proposal(Struct, eq=False):
    """`files`: what each file was when it was read (None: it is not there), and what it becomes."""

    path: str
    made: Made
    old: dict[str, Any]
    files: dict[str, tuple[bytes | None, bytes]]

    @property
    def before(self) -> bytes:
        return self.files[self.path][0] or b""

    @property
    def after(self) -> bytes:
        return self.files[self.path][1]


def propose(recorded: Recorded, wish: Wish, path: str, add_test: bool) -> Proposal:
    """Raises CannotPromote or InvalidPolicy. What decides today counts, not what decided when the call was made."""
    source = read_source(path)
    old = compile_bundle(source, path)
    now = rejudge(old, recorded.run, recorded.call).explanation.decision
    policy_id = (recorded.known["policy"] or {}).get("policy_id")
    if policy_id != old["policy_id"]:
        raise CannotPromote(
            f"{path} is policy {old['policy_id']}; the call was decided by {policy_id}.",
            hint="The strictest policy in force decides: a change of another one changes nothing.",
        )
    if not wish.deny and now["action"] == "ALLOW":
        raise CannotPromote(f"{path} lets the call through as it is now: nothing has to be changed.")
    known = {**recorded.known, "rule_id": now["rule_id"], "reason_code": now["reason_code"]}
    if wish.deny:
        known = recorded.known
    made = make(structs.replace(recorded, known=known), wish, old, persistent_id(recorded, old, wish.deny), {})
    change = _for_good(made.change, recorded, wish)
    files: dict[str, tuple[bytes | None, bytes]] = {}
    comment = f"Promoted by {change.by} on {change.at[:10]}: call {recorded.call.call_id}."
    files[path] = (source, changed_policy(source, path, change, comment))
    if add_test:
        name, test = _tests(path, recorded, made, wish)
        files[name] = test
    return Proposal(path, structs.replace(made, change=change), old, files)


def _for_good(change: Change, recorded: Recorded, wish: Wish) -> Change:
    rule = change.rule
    if rule is not None:
        code = DENYLIST_MATCH if wish.deny else ALLOWLIST_MATCH
        effect = {name: value for name, value in rule["effect"].items() if name != "reason_code"}
        rule = {**rule, "effect": {**effect, "reason_code": code}}
    place = f"above {change.rule_id}" if change.rule_id is not None else "as the last rule"
    told = ", ".join(f"{name} {limit}" for name, limit in change.limits.items())
    summary = f"Rule {rule['rule_id']} stands {place}." if rule is not None else f"Rule {change.rule_id} has {told}."
    return structs.replace(
        change, rule=rule, summary=summary, call_id=recorded.call.call_id, by=who(), at=utc_now(),
        promote_id=f"promote-{os.urandom(4).hex()}",
    )  # fmt: skip


def _tests(path: str, recorded: Recorded, made: Made, wish: Wish) -> tuple[str, tuple[bytes | None, bytes]]:
    call, remains = recorded.call, remains_of(recorded.call)
    if remains.why is not None or remains.value is None:
        raise CannotPromote(f"The call cannot be a test: {remains.why}.", hint="Leave out --test.")
    action = made.judged.explanation.decision["action"]
    expect: Any = {"action": action, "rule_id": made.change.rule["rule_id"]} if made.change.rule else action
    said: dict[str, Any] = {"server_name": call.server_name, "tool_name": call.tool_name, "args": remains.value}
    verb = "is refused" if wish.deny else "is let through"
    case = {
        "name": f"{call.tool_name} on {call.server_name} {verb} ({call.call_id})",
        "calls": [{**said, "expect": expect}],
    }
    beside = tests_beside(path)
    name = beside[0] if beside else os.path.splitext(path)[0] + ".test.yaml"
    source = read_source(name) if beside else None
    empty = b"policy: %s\ntests: []\n" % _quoted(os.path.basename(path))
    return name, (source, with_test(source or empty, name, case))


def _quoted(name: str) -> bytes:
    from subluminal.contracts.jsontext import quote

    return quote(name).encode()


def write(proposal: Proposal) -> None:
    """All that were proposed; nothing where one of the files is not what it was."""
    for path, (before, _) in proposal.files.items():
        if _present(path) != before:
            raise ConfigError(
                f"{path} was changed by somebody else meanwhile: nothing was written.", hint="Promote the call again."
            )
    for path, (before, after) in proposal.files.items():
        _replace(path, before, after)


def _present(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {(error.strerror or 'error').lower()}") from None


def _replace(path: str, before: bytes | None, after: bytes) -> None:
    """In one step, with its permissions; a symbolic link keeps pointing to it."""
    target = os.path.realpath(path)

    def unchanged(_: int) -> None:
        if _present(target) != before:
            raise ConfigError(f"{path} was changed by somebody else meanwhile.", hint="Promote the call again.")

    try:
        mode = os.stat(target).st_mode & 0o777 if before is not None else 0o644
        if before is not None and not os.access(target, os.W_OK):
            raise ConfigError(f"{path} is read-only.", hint="Whoever keeps it changes it; nothing was written.")
        replace_file(target, after, mode=mode, finish=unchanged)
    except OSError as error:
        why = (error.strerror or "error").lower()
        raise ConfigError(f"{path} cannot be written: {why}", hint="Check the directory and its permissions.") from None
