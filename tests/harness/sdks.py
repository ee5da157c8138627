"""What the two MCP SDKs' own validators read in a value, by the type that a tool asks for.

The Python SDK comes with `make setup`. The TypeScript SDK comes from npm with `make fuzz`; what it read in the table of
spellings is in `tests/fixtures/readings.json`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any

from harness import npm

TESTS = Path(__file__).resolve().parent.parent
SOURCE = TESTS / "fuzz" / "sdks"
INSTALL_DIR = TESTS.parent / ".venv" / "sdks"
PACKAGE_JSON = (SOURCE / "package.json").read_text()

Readings = dict[str, Any]


def python_versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("mcp", "pydantic")}


def python_reader() -> Callable[[str], Readings]:
    """A JSON text in, what the tools of a server with this SDK are called with out."""
    from mcp.server.mcpserver.utilities.func_metadata import func_metadata
    from pydantic import Field, ValidationError
    from pydantic_core import from_json

    class Level(IntEnum):
        low = 1
        high = 42

    types = {
        "bool": bool,
        "int": int,
        "float": float,
        "str": str,
        "str coerce_numbers_to_str": Annotated[str, Field(coerce_numbers_to_str=True)],
        "Decimal": Decimal,
        "IntEnum": Level,
        "bool | None": bool | None,
        "int | str": int | str,
    }

    def metadata(wanted: Any) -> Any:
        def tool(value: Any) -> None: ...

        tool.__annotations__["value"] = wanted
        return func_metadata(tool)

    tools = {name: metadata(wanted) for name, wanted in types.items()}

    def read(text: str) -> Readings:
        found = {}
        for name, tool in tools.items():
            try:
                value = tool.validate_arguments({"value": from_json(text)})["value"]
            except ValidationError:
                continue
            if isinstance(value, (bool, str)):
                found[name] = value
            elif isinstance(value, int):
                found[name] = int(value)
            elif value is not None and abs(float(value)) < float("inf"):
                found[name] = float(value)
        return found

    return read


def typescript_versions() -> dict[str, str]:
    return dict(json.loads(PACKAGE_JSON)["dependencies"])


def typescript_installed() -> bool:
    return npm.installed(INSTALL_DIR, PACKAGE_JSON)


class TypeScriptReader:
    """The same for the TypeScript SDK, in a process of its own."""

    def __init__(self) -> None:
        npm.install(INSTALL_DIR, PACKAGE_JSON)
        program = npm.placed(SOURCE / "typescript.mjs", INSTALL_DIR)
        self._node = subprocess.Popen(["node", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, text: str) -> Readings:
        assert self._node.stdin is not None and self._node.stdout is not None
        self._node.stdin.write(text + "\n")
        self._node.stdin.flush()
        return dict(json.loads(self._node.stdout.readline()))

    def close(self) -> None:
        self._node.communicate()


if __name__ == "__main__":
    try:
        npm.install(INSTALL_DIR, PACKAGE_JSON)
    except npm.InstallError as error:
        sys.exit(f"the TypeScript SDK cannot be had here, its tests are skipped: {error}")
