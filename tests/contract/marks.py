"""Which tests carry which contract ids, read from the source text: quick, and nothing is imported.

A mark must name its ids as literal strings, otherwise it could not be found here.
"""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent


def places_by_id(root: Path = TESTS) -> dict[str, list[str]]:
    """{contract id: ["contract/test_evt.py::test_name", ...]}"""
    found: dict[str, set[str]] = {}
    for path in sorted(root.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if "mark.contract" in source:
            _scan(ast.parse(source, str(path)), path.relative_to(root).as_posix(), found)
    return {name: sorted(places) for name, places in sorted(found.items())}


def _scan(node: ast.AST, place: str, found: dict[str, set[str]]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{place}::{child.name}"
            for decorator in child.decorator_list:
                _collect(decorator, inner, found)
            if isinstance(child, ast.ClassDef):
                _scan(child, inner, found)
        else:
            _collect(child, place, found)


def _collect(node: ast.AST, place: str, found: dict[str, set[str]]) -> None:
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and ast.unparse(each.func).endswith("mark.contract"):
            for argument in each.args:
                if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
                    raise ValueError(f"{place}: a contract mark must name its ids as plain strings")
                found.setdefault(argument.value, set()).add(place)
