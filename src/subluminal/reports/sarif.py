"""SARIF 2.1.0, as code scanning services take it. What goes in is the caller's."""

from __future__ import annotations

from typing import Any

from subluminal import __version__
from subluminal.reports.printable import printable


def sarif(
    tool_name: str, rules: dict[str, str], results: list[dict[str, Any]], about: dict[str, Any] | None = None
) -> dict[str, Any]:
    """`rules`: what each id is about, in the order of the document. `about`: what else is known of the run."""
    described = [{"id": rule, "shortDescription": message(text)} for rule, text in rules.items()]
    numbers = {rule: number for number, rule in enumerate(rules)}
    run = {
        "tool": {"driver": {"name": tool_name, "version": __version__, "rules": described}},
        **(about or {}),
        "results": [{"ruleId": one["ruleId"], "ruleIndex": numbers[one["ruleId"]], **one} for one in results],
    }
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}


def message(text: str) -> dict[str, str]:
    """Services show it on their pages: nothing in it is obeyed there, or hidden."""
    return {"text": printable(text, keep="\n")}


def result(rule: str, level: str, text: str, location: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"ruleId": rule, "level": level, "message": message(text), "locations": [location], **more}


def place(uri: str, **region: int) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}
