"""Finds what makes a function's answer depend on more than its arguments: clocks, chance, floats, I/O, coroutines.

The source is read as a tree and the compiled code is scanned as well, for the two need not be the same: a decorator can
show one function's source and run another's code. Where neither can be had the answer is a finding, never "clean".
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import inspect
import textwrap
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

# fmt: off
FORBIDDEN_MODULES = frozenset([
    "asyncio", "concurrent", "ctypes", "datetime", "decimal", "fractions", "http", "io", "locale", "math",
    "multiprocessing", "nt", "numpy", "os", "pathlib", "platform", "posix", "random", "secrets", "select", "signal",
    "socket", "ssl", "statistics", "subprocess", "sys", "tempfile", "threading", "time", "trio", "urllib", "uuid",
])
FORBIDDEN_NAMES = frozenset([
    "float", "complex", "open", "eval", "exec", "compile", "hash", "id", "input", "print", "globals", "locals",
    "vars", "__import__", "breakpoint",
])
# fmt: on
RUNS = 10
_ASYNC_FLAGS = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
_ASYNC_NODES = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)


class NotDeterministic(AssertionError):
    """Two runs of the same function on the same arguments did not agree."""


def inspect_function_forbidden(function: Callable[..., Any]) -> list[str]:
    """The forbidden constructs, one sentence each, sorted; empty if there are none."""
    target = _function(function)
    if target is None:
        return [f"{type(function).__name__}: neither source nor code can be inspected"]
    found = set(_scan_code(target.__code__))
    found.update(_scan_globals(target))
    tree = _tree(target)
    if tree is not None:
        found.update(_scan_tree(tree))
    return sorted(found)


def assert_deterministic(function: Callable[..., Any], *arguments: Any, runs: int = RUNS) -> Any:
    """Run it ten times; all results, or all errors, must agree. Returns the result, or None after an error."""
    first: Any = None
    for run in range(runs):
        outcome = _outcome(function, arguments)
        if run == 0:
            first = outcome
        elif outcome != first:
            raise NotDeterministic(f"run {run + 1} gave {outcome!r}, the first {first!r}")
    return first[1] if first[0] == "returned" else None


def _outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    try:
        return "returned", function(*arguments)
    except Exception as error:  # the same error every time counts as agreement
        return "raised", type(error), str(error)


def _function(function: Any) -> types.FunctionType | None:
    for _ in range(16):
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, types.MethodType):
            function = function.__func__
        elif isinstance(function, types.FunctionType):
            return function
        elif not isinstance(function, type) and isinstance(
            getattr(type(function), "__call__", None),  # noqa: B004  # the function itself is wanted
            types.FunctionType,
        ):
            function = type(function).__call__
        else:
            return None
    return None


def _tree(function: types.FunctionType) -> ast.AST | None:
    """None for a lambda, too: its source is the whole line it stands in, and the code tells the same."""
    if function.__name__ == "<lambda>":
        return None
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None


def _scan_tree(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, _ASYNC_NODES) or (isinstance(node, ast.comprehension) and node.is_async):
            yield "coroutine: async or await"
        elif isinstance(node, ast.Constant) and isinstance(node.value, (float, complex)):
            yield f"literal: {node.value!r}"
        elif isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Div):
            yield "operator: true division"
        elif isinstance(node, ast.Import):
            yield from (f"import: {alias.name}" for alias in node.names if _forbidden(alias.name))
        elif isinstance(node, ast.ImportFrom) and _forbidden(node.module or ""):
            yield f"import: {node.module}"
        elif isinstance(node, ast.Name) and node.id in FORBIDDEN_NAMES:
            yield f"name: {node.id}"


def _scan_code(code: types.CodeType) -> Iterator[str]:
    if code.co_flags & _ASYNC_FLAGS:
        yield "coroutine: async or await"
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if name == "BINARY_OP" and str(instruction.argrepr).rstrip("=") == "/":
            yield "operator: true division"
        elif name == "IMPORT_NAME" and _forbidden(str(instruction.argval)):
            yield f"import: {instruction.argval}"
        elif name in ("LOAD_GLOBAL", "LOAD_NAME") and instruction.argval in FORBIDDEN_NAMES:
            yield f"name: {instruction.argval}"
    for constant in _constants(code.co_consts):
        if isinstance(constant, types.CodeType):
            yield from _scan_code(constant)
        elif isinstance(constant, (float, complex)):
            yield f"literal: {constant!r}"


def _constants(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (tuple, frozenset)):
            yield from _constants(value)
        else:
            yield value


def _scan_globals(function: types.FunctionType) -> Iterator[str]:
    """A module-level import, or an alias of a forbidden builtin, used under whatever name."""
    spaces = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            spaces[name] = cell.cell_contents
        except ValueError:  # not yet filled
            continue
    for name in _names(function.__code__):
        value = spaces.get(name)
        home = _home(value)
        if _forbidden(home):
            yield f"uses: {name} of {home}"
        for forbidden in FORBIDDEN_NAMES:
            if value is not None and value is getattr(builtins, forbidden, None):
                yield f"name: {forbidden}"


def _home(value: Any) -> str:
    """The module a value belongs to; of a bound builtin (`random.random`) that of the object it is bound to."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    home = getattr(value, "__module__", None)
    if home is None and isinstance(value, types.BuiltinFunctionType):
        home = type(value.__self__).__module__
    return home if isinstance(home, str) else ""


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _forbidden(module: str) -> bool:
    return module.partition(".")[0].lstrip("_") in FORBIDDEN_MODULES
