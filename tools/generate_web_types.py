"""Write web/src/api.gen.ts from the OpenAPI document: types of answers and the table of filters; `--check` compares."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from subluminal.ledger.http.openapi import document

TARGET = Path(__file__).resolve().parent.parent / "web" / "src" / "api.gen.ts"
HEAD = "// Made by tools/generate_web_types.py from the OpenAPI document. Do not edit.\n"
# How the types of answers are called in the page.
ANSWERS = {
    "/v1/runs": "RunPage",
    "/v1/runs/{run_id}": "WholeRun",
    "/v1/runs/{run_id}/timeline": "Timeline",
    "/v1/sparks": "Sparks",
    "/v1/recovery": "Recoveries",
    "/v1/calls": "CallPage",
    "/v1/calls/{call_id}": "WholeCall",
    "/v1/calls/{call_id}/explanation": "Explained",
    "/v1/groups": "Groups",
    "/v1/hints": "Hints",
    "/v1/over_time": "OverTime",
    "/v1/policies": "Policies",
    "/v1/policies/diff": "PolicyDiff",
    "/v1/tools": "Tools",
    "/v1/tool": "WholeTool",
    "/v1/promote": "Proposal",
    "/v1/session": "Session",
}
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def typed(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(json.dumps(word) for word in schema["enum"])
    kinds = schema.get("type", [])
    return " | ".join(_typed(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds)) or "unknown"


def _typed(kind: str, schema: dict[str, Any]) -> str:
    if kind == "array":
        return f"Array<{typed(schema.get('items', {}))}>"
    if kind == "object":
        known = schema.get("properties")
        if known is None:
            return "Record<string, unknown>"
        needed = schema.get("required", [])
        members = [f"{name}{'' if name in needed else '?'}: {typed(inner)}" for name, inner in known.items()]
        return "{ " + "; ".join(members) + " }"
    return _PLAIN[kind]


def filters(parameters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [one for one in parameters if "x-option" in one]
    return [
        {
            "name": one["name"],
            "word": one["x-option"][2:],
            "help": one["description"],
            "many": one["schema"]["type"] == "array",
            "number": one["schema"]["type"] == "integer",
            "words": one["schema"].get("items", one["schema"]).get("enum", []),
        }
        for one in found
    ]


def text() -> str:
    made = document()
    lines = [HEAD]
    for name, schema in made["components"]["schemas"].items():
        if name not in ANSWERS.values():
            lines.append(f"export type {name} = {typed(schema)};\n")
    for path, name in ANSWERS.items():
        schema = made["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        lines.append(f"export type {name} = {typed(schema)};\n")
    kind = "{ name: string; word: string; help: string; many: boolean; number: boolean; words: string[] }"
    lines.append(f"export type Filter = {kind};\n")
    for constant, path in (("CALL_FILTERS", "/v1/calls"), ("RUN_FILTERS", "/v1/runs"), ("HINT_FILTERS", "/v1/hints")):
        table = json.dumps(filters(made["paths"][path]["get"]["parameters"]), indent=2, ensure_ascii=False)
        lines.append(f"export const {constant}: Filter[] = {table};\n")
    return "\n".join(lines)


def main() -> int:
    wanted = text()
    if sys.argv[1:] == ["--check"]:
        if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != wanted:
            print("web/src/api.gen.ts is out of date: run `make web`", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
