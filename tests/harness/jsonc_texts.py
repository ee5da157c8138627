"""Random JSON values in random spellings: white space, comments, trailing commas, escapes, a byte order mark."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

SPACE = st.text(" \t\n\r", max_size=3)
LINE = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=6).map(lambda t: f"//{t}\n")
BLOCK = (
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
    .filter(lambda t: "*/" not in t + "*")
    .map(lambda t: f"/*{t} */")
)
GAP = st.lists(st.one_of(SPACE, LINE, BLOCK), max_size=2).map("".join)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@st.composite
def written(draw: st.DrawFn, values: st.SearchStrategy[Any] = VALUES) -> tuple[str, Any]:
    """A value and one of the many ways to write it down."""

    def write(value: Any) -> str:
        if isinstance(value, list):
            return "[" + parts([write(item) for item in value]) + "]"
        if isinstance(value, dict):
            return "{" + parts([write(k) + draw(GAP) + ":" + draw(GAP) + write(v) for k, v in value.items()]) + "}"
        return json.dumps(value, ensure_ascii=draw(st.booleans()))

    def parts(texts: list[str]) -> str:
        inside = ",".join(draw(GAP) + text + draw(GAP) for text in texts)
        return inside + ("," + draw(GAP) if texts and draw(st.booleans()) else draw(GAP))

    value = draw(values)
    return draw(st.sampled_from(["", "\ufeff"])) + draw(GAP) + write(value) + draw(GAP), value
