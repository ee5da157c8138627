"""One layout for all policies. Comments, key order, quotes and meaning stay as they were.

ruamel.yaml is given only what the bounded reader has accepted, and what comes out must read back as the same values:
a formatter that could change a rule would be worse than none.
"""

from __future__ import annotations

import io
import json

from subluminal.policy.document.tree import parse_policy, plain_value
from subluminal.policy.lint.findings import ERROR, Finding, InvalidPolicy

# Lines are never broken: a folded sentence reads worse than a long one, and a folded pattern is a trap.
LINE_WIDTH = 4096


def format_policy(source: bytes, filename: str) -> bytes:
    """The formatted bytes; raises InvalidPolicy if the source is not one well-formed document."""
    before = parse_policy(source, filename)
    if filename.lower().endswith(".json"):
        return (json.dumps(plain_value(before), indent=2, ensure_ascii=False) + "\n").encode()
    formatted = _format_yaml(source)
    if plain_value(parse_policy(formatted, filename)) != plain_value(before):
        fault = Finding(ERROR, "format", "formatting would change its meaning", "format it by hand", filename, 1, 1)
        raise InvalidPolicy([fault])
    return formatted


def _format_yaml(source: bytes) -> bytes:
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = LINE_WIDTH
    yaml.brace_single_entry_mapping_in_flow_sequence = True  # `[a: 1]` is legal, and read by few
    yaml.indent(mapping=2, sequence=4, offset=2)
    text = source.decode("utf-8-sig").replace("\r\n", "\n")
    out = io.StringIO()
    yaml.dump(yaml.load(text), out)
    return (out.getvalue().rstrip("\n") + "\n").encode()
