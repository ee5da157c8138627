"""A bundle without what differs from run to run: ids, times, durations, versions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3}Z)?|\b\d\d:\d\d:\d\d\.\d{3}\b")
_ZEROED = frozenset(("latency_ms", "overhead_us", "duration_ms"))


class Normaliser:
    """Ids get numbers in the order of their first appearance, in every file of the bundle alike."""

    def __init__(self, events: bytes, folder: Path) -> None:
        self._ids: dict[str, str] = {str(folder): "FOLDER"}
        for line in events.splitlines():
            source = json.loads(line)["source"]
            for word in ("host_id", "proc_id", "shim_id"):
                self._ids.setdefault(source[word], f"{word}-{sum(v.startswith(word) for v in self._ids.values()) + 1}")

    def text(self, text: str) -> str:
        for found, name in sorted(self._ids.items(), key=lambda item: -len(item[0])):
            text = text.replace(found, name)
        text = _TIME.sub("TIME", text)
        text = re.sub(r'"version": "[^"]*"(?=,\s*"rules")', '"version": "VERSION"', text)
        text = re.sub(r'(testcase [^>]*|testsuite [^>]*)time="[0-9.]+"', r'\1time="0"', text)
        return re.sub(r"<td class=n>\d+</td></tr>", "<td class=n>MS</td></tr>", text)

    def events(self, data: bytes) -> str:
        lines = [json.dumps(self._value(json.loads(line)), ensure_ascii=False) for line in data.splitlines()]
        return self.text("\n".join(lines) + "\n")

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            named = {"command": "python"} if "command" in value else {}
            return {key: 0 if key in _ZEROED else self._value(item) for key, item in value.items()} | named
        return [self._value(item) for item in value] if isinstance(value, list) else value


def normalised(bundle: Path) -> dict[str, str]:
    """The text of every file but the manifest, which is all hashes and sizes."""
    events = (bundle / "events.jsonl").read_bytes()
    rules = Normaliser(events, bundle.parent)
    texts = {"events.jsonl": rules.events(events)}
    for name in ("summary.json", "summary.md", "junit.xml", "results.sarif", "report.html"):
        texts[name] = rules.text((bundle / name).read_text(encoding="utf-8"))
    return texts
