"""Shell lines: the programs that `SUPPORT` runs used. A line that cannot be read with certainty supports none."""

from __future__ import annotations

from functools import lru_cache

from subluminal.control.suggest import SUPPORT
from subluminal.control.suggest.evidence import Values
from subluminal.control.suggest.limits.hosts import urls_of
from subluminal.control.suggest.limits.limit import Limit
from subluminal.control.suggest.tokens import HOME, WORKSPACE, example_of, is_copyable
from subluminal.core.engine.commands import read_line

MAX_PROGRAMS = 150
_KEYS = frozenset(("command", "cmd", "commands[]", "script", "shell_command", "command_line"))
_TOOLS = ("bash", "shell", "exec", "command", "terminal", "run")
# Where lines cannot be told apart with certainty, these are refused, unless runs used them.
UNUSUAL = (
    "at", "chattr", "chown", "crontab", "dd", "doas", "fdisk", "gpg", "insmod", "iptables", "launchctl", "mkfs*",
    "mount", "nc", "ncat", "netcat", "nsenter", "passwd", "rclone", "reboot", "rsync", "scp", "sftp", "shred",
    "shutdown", "socat", "ssh", "su", "sudo", "systemctl", "telnet", "useradd", "usermod", "visudo",
)  # fmt: skip


def is_line_key(tool_name: str, key: str) -> bool:
    named = key in _KEYS
    return named and (key != "script" or any(word in tool_name.lower() for word in _TOOLS))


@lru_cache(200_000)
def programs_of(line: str) -> tuple[str, ...] | None:
    """None: what it runs is not certain."""
    found = read_line(line)
    if found.doubt or found.strict_doubt or not found.split or not found.programs:
        return None
    return tuple(dict.fromkeys(_name(program) for program in found.programs))


def _name(program: str) -> str:
    directory, _, name = program.rpartition("/")
    return name if directory in ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin") else program


def fit(values: Values, level: int) -> Limit | None:
    runs: dict[str, set[int]] = {}
    for line, (_, used) in values.texts.items():
        for program in programs_of(line) or ():
            runs.setdefault(program, set()).update(used)
    known = [name for name, used in runs.items() if len(used) >= SUPPORT and _is_listable(name)]
    known = sorted(sorted(known, key=lambda name: (-len(runs[name]), name))[:MAX_PROGRAMS])
    if not known:
        return None
    examples = [example_of(line) for line in _usual(values)]
    words = "one program" if len(known) == 1 else f"{len(known)} programs"
    if level:
        refused = [name for name in UNUSUAL if len(runs.get(name.rstrip("*"), ())) < SUPPORT]
        words = f"any program but {len(refused)} that no {SUPPORT} runs used"
        limit = Limit("lines", [("but", refused)], words, examples, ["sudo -i"], message="", widest=True)
    else:
        limit = Limit("programs", [("command", {"programs": known})], words, examples, ["unseen-program x"])
    limit.urls = urls_of(values.texts)
    return limit


def _usual(values: Values) -> list[str]:
    supported = [line for line, (_, runs) in values.texts.items() if len(runs) >= SUPPORT and len(line) <= 60]
    lines = sorted(supported, key=lambda line: (-len(values.texts[line][1]), len(line), line))
    return [line for line in lines[:50] if is_copyable(line) and programs_of(line)][:2]


def _is_listable(name: str) -> bool:
    own = name.startswith((WORKSPACE, HOME))
    return not own and name.isprintable() and " " not in name and not set(name) & set("*?[") and is_copyable(name)
