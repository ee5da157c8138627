"""Programs that run another one, and their options: where in their words the other one stands.

An option that is not in the table, or is abbreviated, makes the line unjudgeable. The tables hold what GNU, BSD and
busybox spell alike.
"""

from __future__ import annotations

from subluminal.core.engine.shell.word import KEPT, SPLIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subluminal.core.engine.shell.word import Word


class Options:
    """`flags` and `values`: letters without and with a value; `long`, `long_values` likewise.

    `attached`: a value only if it stands in the same word. `last`: behind one of these no option is read. `operands`
    stand between the options and the command.
    """

    __slots__ = ("assignments", "attached", "flags", "last", "long", "long_values", "operands", "values")

    def __init__(
        self,
        flags: str = "",
        values: str = "",
        long: str = "",
        long_values: str = "",
        *,
        attached: str = "",
        operands: int = 0,
        last: tuple[str, ...] = (),
        assignments: bool = False,
    ) -> None:
        self.flags = flags
        self.values = values
        self.long = frozenset(long.split())
        self.long_values = frozenset(long_values.split())
        self.attached = attached
        self.operands = operands
        self.last = last
        self.assignments = assignments


WRAPPERS = {
    "env": Options(
        "iv0",
        "uCS",
        "ignore-environment null debug",
        "unset chdir split-string",
        last=("S", "split-string"),
        assignments=True,
    ),
    "sudo": Options(
        "ABbEHKkNnPSv",
        "CDgpRrTtUu",
        "askpass background bell preserve-env set-home non-interactive preserve-groups stdin validate",
        "close-from chdir group prompt chroot role command-timeout type other-user user",
        assignments=True,
    ),
    "doas": Options("n", "Cu"),
    "nohup": Options(),
    "nice": Options("", "n", "", "adjustment"),
    "timeout": Options("vfp", "ks", "foreground preserve-status verbose", "kill-after signal", operands=1),
    "exec": Options("cl", "a"),
    "command": Options("pvV"),
    "builtin": Options(),
    "time": Options("apqv", "fo", "append portability quiet verbose", "format output"),
    "xargs": Options(
        "0rtpxo",
        "aEILnPsd",
        "null no-run-if-empty verbose interactive exit open-tty",
        "arg-file delimiter max-args max-procs max-chars process-slot-var",
        attached="eil",
    ),
    "stdbuf": Options("", "ioe", "", "input output error"),
    "setsid": Options("cfw", "", "ctty fork wait"),
    "ionice": Options("t", "cn", "ignore", "class classdata"),
    "busybox": Options(),
    "toybox": Options(),
}
# Programs that run others in ways that are not read here.
LAUNCHERS = frozenset([
    "arch", "csh", "elvish", "fish", "nu", "pwsh", "tcsh", "xonsh", "at", "batch", "bwrap", "caffeinate", "chpst",
    "chroot", "chrt", "cpulimit", "dbus-run-session", "dumb-init", "eatmydata", "entr", "expect", "fakeroot",
    "faketime", "firejail", "flock", "gosu", "gtimeout", "linux32", "linux64", "ltrace", "machinectl", "numactl",
    "nsenter", "parallel", "perf", "pkexec", "prlimit", "proot", "proxychains", "proxychains4", "rlwrap", "run-parts",
    "runuser", "screen", "script", "setarch", "setpriv", "sg", "softlimit", "start-stop-daemon", "strace", "su",
    "su-exec", "systemd-run", "taskset", "tini", "tmux", "torify", "torsocks", "trickle", "unbuffer", "unshare",
    "valgrind", "watch", "xvfb-run",
])  # fmt: skip


class Unknown(Exception):
    """An option, or a word that may be one, that cannot be read."""


class Command:
    """Where the command stands in the words of a wrapper, and the options before it."""

    __slots__ = ("at", "chosen", "values")

    def __init__(self) -> None:
        self.at = 0
        self.chosen: set[str] = set()
        self.values: dict[str, Word] = {}


def find_command(words: list[Word], options: Options) -> Command:
    """`words` with the wrapper first. The command may be missing: then `at` is behind the last word."""
    found = Command()
    at = 1
    while at < len(words):
        text = _known(words[at])
        if text == "--":
            at += 1
            break
        if text == "-" and "i" in options.flags and options.assignments:
            at += 1  # `env -`
            continue
        if not text.startswith("-") or text == "-":
            break
        if any(option in found.values for option in options.last):
            break
        at = _long(words, at, options, found) if text.startswith("--") else _short(words, at, options, found)
    done = any(option in found.values for option in options.last)
    while options.assignments and not done and at < len(words) and "=" in _known(words[at]):
        at += 1
    for _ in range(options.operands):
        if at < len(words):
            _known(words[at])
            at += 1
    found.at = min(at, len(words))
    return found


def _known(word: Word) -> str:
    """The text of a word that is looked at, where it is certain enough: a value behind `NAME=` need not be."""
    name, equals, _ = word.text.partition("=")
    if word.open or word.mixed or SPLIT in word.text or (KEPT in word.text and (not equals or KEPT in name)):
        raise Unknown("is given words that are not written out")
    return word.text


def _short(words: list[Word], at: int, options: Options, found: Command) -> int:
    text = words[at].text
    if "n" in options.values and not options.flags and text[1:].isdigit():
        return at + 1  # `nice -5`
    for place, letter in enumerate(text[1:], start=2):
        if letter in options.values:
            if place < len(text):
                found.values[letter] = _part(words[at], place)
                return at + 1
            if at + 1 >= len(words) or SPLIT in words[at + 1].text or words[at + 1].open:
                raise Unknown("is given words that are not written out")
            found.values[letter] = words[at + 1]
            return at + 2
        if letter in options.attached:
            found.values[letter] = _part(words[at], place)
            return at + 1
        if letter not in options.flags:
            raise Unknown(f"has an option that is not known, -{letter if letter.isalnum() else '?'}")
        found.chosen.add(letter)
    return at + 1


def _long(words: list[Word], at: int, options: Options, found: Command) -> int:
    name, equals, _ = words[at].text[2:].partition("=")
    if name in options.long:
        found.chosen.add(name)
        return at + 1
    if name not in options.long_values:
        raise Unknown("has an option that is not known")
    if equals:
        found.values[name] = _part(words[at], len(name) + 3)
        return at + 1
    if at + 1 >= len(words) or SPLIT in words[at + 1].text or words[at + 1].open:
        raise Unknown("is given words that are not written out")
    found.values[name] = words[at + 1]
    return at + 2


def _part(word: Word, start: int) -> Word:
    part = type(word)(word.text[start:])
    part.names = word.names
    return part
