"""What is known of a line: the programs it names, in order, and what is not certain about it.

There are two kinds of doubt. `doubt`: a program may run that is not listed, so nobody can say that a denied one does
not. `strict_doubt`: all names are listed, but an allow cannot rely on them: another file may run under a listed name
(`PATH`, `LD_PRELOAD`), or dash, which agents are rarely given, reads the line otherwise than bash and zsh.

Variables are followed for one reason: bash and zsh evaluate the value of a variable that is used in arithmetic, and a
value such as `a[$(rm x)]` runs a program. A variable is tame if all that this line assigns to it are whole numbers.
"""

from __future__ import annotations

# A line of a person has a few hundred characters; a script in one argument some thousands.
MAX_CHARS = 65_536
MAX_COMMANDS = 1_000
# Groups, substitutions and quotes within each other, of all nested lines together; a substitution in quotes takes
# four. Bounds the recursion.
MAX_NESTING = 64
# `sh -c`, `eval`, `trap`: lines within lines.
MAX_LINES_DEEP = 3

# A redirection writes without any program: it counts as one of this name.
WRITES = ">"

# Variables whose value the shell itself runs or expands, sooner or later.
_CODE = frozenset([
    "BASH_ENV", "ENV", "PS0", "PS1", "PS2", "PS3", "PS4", "PROMPT", "PROMPT2", "PROMPT3", "PROMPT4", "RPROMPT",
    "RPS1", "PROMPT_COMMAND", "SHELLOPTS", "BASHOPTS", "NULLCMD", "READNULLCMD", "BASH_ALIASES", "BASH_CMDS",
    "aliases", "galiases", "saliases", "functions", "commands", "builtins", "options", "precmd_functions",
    "preexec_functions", "chpwd_functions", "periodic_functions", "zshexit_functions",
])  # fmt: skip
# Variables that decide which file runs under a name, or what is loaded into it.
_STEERING = frozenset([
    "PATH", "path", "FPATH", "fpath", "MODULE_PATH", "module_path", "ZDOTDIR", "HOME", "IFS", "CDPATH",
    "BASH_LOADABLES_PATH", "GCONV_PATH", "LOCPATH", "GLIBC_TUNABLES", "POSIXLY_CORRECT",
])  # fmt: skip
# Variables that shells take a number for: what is assigned to them is evaluated.
_INTEGERS = frozenset([
    "RANDOM", "SRANDOM", "SECONDS", "OPTIND", "TMOUT", "LINENO", "HISTCMD", "HISTSIZE", "SAVEHIST", "COLUMNS",
    "LINES", "SHLVL", "BASHPID", "EPOCHSECONDS", "DIRSTACKSIZE", "KEYTIMEOUT", "LISTMAX", "MAILCHECK", "FUNCNEST",
    "UID", "EUID", "GID", "EGID", "ERRNO", "TTYIDLE", "BAUD", "status",
])  # fmt: skip
_STEERING_PREFIXES = ("LD_", "DYLD_", "_RLD")
_CODE_PREFIXES = ("BASH_FUNC_",)
# Parameters that are whole numbers by nature.
_NUMBERS = frozenset("#?$!")


class Stop(Exception):
    """The rest of a line cannot be split; what was found before it stays found."""


class Findings:
    __slots__ = (
        "_assigned",
        "_commands",
        "_declared",
        "_evaluated",
        "_lists",
        "doubt",
        "programs",
        "split",
        "strict_doubt",
    )

    def __init__(self) -> None:
        self.programs: dict[str, None] = {}  # as written, in order
        self.doubt = ""
        self.strict_doubt = ""
        self.split = True  # False: the line is not one that a shell takes, or too large
        self._commands = 0
        self._assigned: dict[str, bool] = {}
        self._evaluated: set[str] = set()
        self._lists: set[str] = set()
        self._declared: set[str] = set()

    def add(self, program: str) -> None:
        self.count()
        self.programs[program] = None

    def count(self) -> None:
        """A program, or what stands in the place of one: an assignment, a redirection."""
        self._commands += 1
        if self._commands > MAX_COMMANDS:
            raise Stop(f"the command line has more than {MAX_COMMANDS:,} commands")

    def unsure(self, why: str) -> None:
        self.doubt = self.doubt or why

    def unsure_if_strict(self, why: str) -> None:
        self.strict_doubt = self.strict_doubt or why

    def assign(self, name: str, *, tame: bool = False) -> None:
        self.count()
        self._assigned[name] = tame and self._assigned.get(name, True)
        if name in _INTEGERS and not tame:
            self.unsure(f"the command line sets {name} to a value that is not a plain number, which can run commands")
        if name in _CODE or name.startswith(_CODE_PREFIXES):
            self.unsure(f"the command line sets {name}, which a shell runs")
        elif name in _STEERING or name.startswith(_STEERING_PREFIXES):
            self.unsure_if_strict(f"the command line sets {name}, which changes what runs")

    def assign_list(self, name: str) -> None:
        self.assign(name)
        self._lists.add(name)

    def declare(self, name: str) -> None:
        """A text is given to this variable by `declare`: for one that is a list, bash expands it."""
        self._declared.add(name)

    def evaluate(self, name: str) -> None:
        """The value of this parameter is read as arithmetic, or as the name of another one. Empty: any output."""
        self._evaluated.add(name)

    def finish(self) -> None:
        if self._declared & self._lists:
            self.unsure("the command line sets a list by a text, which can run commands")
        for name in sorted(self._evaluated - _NUMBERS):
            if name not in self._assigned and (name[:1].isalpha() or name[:1] == "_"):
                self.unsure_if_strict(f"the command line computes with {name}, whose value is not known")
            elif not self._assigned.get(name):
                self.unsure("the command line computes with a value that is not known, which can run commands")
