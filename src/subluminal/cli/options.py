"""Commands that start fast: their options as plain data, from which both a small parser and a click command are made.

Importing click costs more than most of these commands do. The small parser takes an ordinary command line; whatever it
does not take (`--help`, a mistake, completion) goes to click, which is built from the same table and says it well. A
command that finds a mistake by itself raises `Misused`, before it does anything: then click says that too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from subluminal.contracts.filters import word_meant

if TYPE_CHECKING:
    import click

Values = dict[str, Any]
# name -> (module, attribute, one-line help). What is named in capitals is a `Command` or a `Group`, else click's own.
Table = dict[str, tuple[str, str, str]]


class Misused(Exception):
    """What was given does not go together; the sentence is for whoever gave it."""


class Option:
    """`choices` are taken as `word_meant` says; with `exact`, as they are written. `bounds`: of a whole number."""

    __slots__ = (
        "bounds", "choices", "default", "exact", "flags", "help", "is_flag", "kind", "metavar", "multiple", "name",
    )  # fmt: skip

    def __init__(
        self,
        flags: str,
        name: str,
        help: str | None,
        *,
        metavar: str | None = None,
        multiple: bool = False,
        is_flag: bool = False,
        kind: type[str] | type[int] = str,
        choices: Sequence[str] = (),
        exact: bool = False,
        bounds: tuple[int, int] | None = None,
        default: Any = None,
    ) -> None:
        self.flags = flags.split("/")
        self.name = name
        self.help = help
        self.metavar = metavar
        self.multiple = multiple
        self.is_flag = is_flag
        self.kind = kind
        self.choices = choices
        self.exact = exact
        self.bounds = bounds
        self.default = default

    def initial(self) -> Any:
        return False if self.is_flag else () if self.multiple else self.default

    def value(self, text: str) -> Any:
        """ValueError: click shall explain what is wrong."""
        if self.kind is int:
            number = int(text)
            if self.bounds is not None and not self.bounds[0] <= number <= self.bounds[1]:
                raise ValueError(text)
            return number
        if self.choices:
            word = (
                text if self.exact and text in self.choices else None if self.exact else word_meant(text, self.choices)
            )
            if word is None:
                raise ValueError(text)
            return word
        return text


class Argument:
    """One word, or with `many` a tuple of them. `otherwise`: what one is that is left out."""

    __slots__ = ("many", "metavar", "name", "otherwise", "required")

    def __init__(
        self, name: str, metavar: str, *, required: bool = False, many: bool = False, otherwise: str | None = None
    ) -> None:
        self.name = name
        self.metavar = metavar
        self.required = required
        self.many = many
        self.otherwise = otherwise

    def value(self, words: list[str]) -> Any:
        """ValueError: too few words, or too many."""
        if len(words) < self.required or (len(words) > 1 and not self.many):
            raise ValueError(words)
        if self.many:
            return tuple(words)
        return words[0] if words else self.otherwise

    def click_argument(self) -> click.Argument:
        import click

        # To click, a default of None is a default: nothing would be missing.
        default = {} if self.otherwise is None else {"default": self.otherwise}
        nargs = -1 if self.many else 1
        return click.Argument([self.name], metavar=self.metavar, required=self.required, nargs=nargs, **default)


class Command:
    """`work` gets the values by name and returns the exit code."""

    __slots__ = ("argument", "help", "name", "options", "work")

    def __init__(
        self,
        name: str,
        work: Callable[[Values], int],
        help: str,
        options: list[Option],
        argument: Argument | None = None,
    ) -> None:
        self.name = name
        self.work = work
        self.help = help
        self.options = options
        self.argument = argument

    def parse(self, args: list[str]) -> Values | None:
        """The values of an ordinary command line; None: leave it to click."""
        known = {flag: option for option in self.options for flag in option.flags}
        values: Values = {option.name: option.initial() for option in self.options}
        plain: list[str] = []
        rest = iter(args)
        try:
            for word in rest:
                if not word.startswith("-") or word == "-":
                    plain.append(word)
                    continue
                flag, equals, text = word.partition("=") if word.startswith("--") else (word, "", "")
                option = known[flag]
                if option.is_flag:
                    if equals:
                        return None
                    values[option.name] = True
                    continue
                value = option.value(text if equals else next(rest))
                values[option.name] = (*values[option.name], value) if option.multiple else value
            if self.argument is not None:
                values[self.argument.name] = self.argument.value(plain)
            elif plain:
                return None
        except (KeyError, ValueError, StopIteration):
            return None
        return values

    def click_command(self) -> click.Command:
        import click

        params: list[click.Parameter] = []
        if self.argument is not None:
            params.append(self.argument.click_argument())
        for option in self.options:
            named = option.choices and not option.exact
            params.append(
                click.Option(
                    [option.name, *option.flags],
                    help=option.help,
                    metavar=option.metavar or ("|".join(option.choices) if named else None),
                    multiple=option.multiple,
                    is_flag=option.is_flag,
                    type=None if option.is_flag else _kind(option),
                    default=False if option.is_flag else None if option.multiple else option.default,
                )
            )

        def callback(**values: Any) -> int:
            try:
                return self.work(values)
            except Misused as mistake:
                raise click.UsageError(str(mistake)) from None

        return click.Command(self.name, callback=callback, params=params, help=self.help)


class Group:
    """Commands below a word. Each lives in a module of its own, imported when it is used."""

    __slots__ = ("epilog", "help", "name", "table")

    def __init__(self, name: str, table: Table, help: str, epilog: str | None = None) -> None:
        self.name = name
        self.table = table
        self.help = help
        self.epilog = epilog

    def click_command(self) -> click.Group:
        from subluminal.cli.lazy import LazyGroup

        return LazyGroup(self.name, table=self.table, help=self.help, epilog=self.epilog)


def _kind(option: Option) -> Any:
    import click

    if option.choices:
        return click.Choice(option.choices) if option.exact else _words(option.choices)
    return option.kind if option.bounds is None else click.IntRange(*option.bounds)


def _words(choices: Sequence[str]) -> click.Choice[str]:
    """Words as `Option.value` takes them; another one is answered with the list."""
    import click

    class Words(click.Choice[str]):
        def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
            return super().convert(word_meant(str(value), choices) or value, param, ctx)

    return Words(choices)
