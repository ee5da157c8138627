"""Commands that start fast: their options as plain data, from which both a small parser and a click command are made.

Importing click costs more than most of these commands do. The small parser takes an ordinary command line; whatever it
does not take (`--help`, a mistake, completion) goes to click, which is built from the same table and says it well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from subluminal.contracts.filters import word_meant

if TYPE_CHECKING:
    import click

Values = dict[str, Any]


class Option:
    __slots__ = ("choices", "default", "flags", "help", "is_flag", "kind", "metavar", "multiple", "name")

    def __init__(
        self,
        flags: str,
        name: str,
        help: str,
        *,
        metavar: str | None = None,
        multiple: bool = False,
        is_flag: bool = False,
        kind: type[str] | type[int] = str,
        choices: Sequence[str] = (),
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
        self.default = default

    def initial(self) -> Any:
        return False if self.is_flag else () if self.multiple else self.default

    def value(self, text: str) -> Any:
        """ValueError: click shall explain what is wrong."""
        if self.kind is int:
            return int(text)
        if self.choices:
            word = word_meant(text, self.choices)
            if word is None:
                raise ValueError(text)
            return word
        return text


class Command:
    """`work` gets the values by name and returns the exit code."""

    __slots__ = ("argument", "help", "name", "options", "otherwise", "work")

    def __init__(
        self,
        name: str,
        work: Callable[[Values], int],
        help: str,
        options: list[Option],
        argument: str | None = None,
        otherwise: str | None = None,
    ) -> None:
        """`otherwise`: what the argument is where it is left out."""
        self.name = name
        self.work = work
        self.help = help
        self.options = options
        self.argument = argument
        self.otherwise = otherwise

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
        except (KeyError, ValueError, StopIteration):
            return None
        if self.otherwise is not None and not plain:
            plain = [self.otherwise]
        if len(plain) != (self.argument is not None):
            return None
        if self.argument is not None:
            values[self.argument] = plain[0]
        return values

    def click_command(self) -> click.Command:
        import click

        params: list[click.Parameter] = []
        if self.argument is not None:
            metavar = self.argument.upper() if self.otherwise is None else f"[{self.argument.upper()}]"
            params.append(click.Argument([self.argument], metavar=metavar, default=self.otherwise))
        for option in self.options:
            kind: Any = _words(option.choices) if option.choices else option.kind
            params.append(
                click.Option(
                    [option.name, *option.flags],
                    help=option.help,
                    metavar=option.metavar or ("|".join(option.choices) if option.choices else None),
                    multiple=option.multiple,
                    is_flag=option.is_flag,
                    type=None if option.is_flag else kind,
                    default=False if option.is_flag else None if option.multiple else option.default,
                )
            )

        def callback(**values: Any) -> int:
            return self.work(values)

        return click.Command(self.name, callback=callback, params=params, help=self.help)


def _words(choices: Sequence[str]) -> click.Choice[str]:
    """Words as `Option.value` takes them; another one is answered with the list."""
    import click

    class Words(click.Choice[str]):
        def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
            return super().convert(word_meant(str(value), choices) or value, param, ctx)

    return Words(choices)
