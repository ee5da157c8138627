"""JSON as it is shown and exported: equal in value to what it was made from, and nothing in it is obeyed or hidden."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from subluminal.contracts.jsontext import escaped, to_json

TEXTS = st.text(st.characters() | st.sampled_from("\x7f\x80\x9b\u200b\u202e\u2028\u2029\ufeff\ud83d\udc96💖\U000e0041"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


@given(VALUES)
def test_escaping_keeps_the_value_and_leaves_nothing_that_is_not_printable(value: object) -> None:
    indented = json.dumps(value, ensure_ascii=False, indent=1)
    for text in (json.dumps(value, ensure_ascii=False), indented, to_json(value)):
        shown = escaped(text)
        # Two lone surrogates side by side are one character to whoever reads them: so they are without us.
        assert json.loads(shown) == json.loads(json.dumps(value))
        assert all(c.isprintable() or c in "\n\r\t" for c in shown)


def test_letters_stay_letters() -> None:
    assert escaped('"日本語 é 💖"') == '"日本語 é 💖"'
    assert escaped('"a\u202eb\x9b\U000e0041"') == r'"a\u202eb\u009b\udb40\udc41"'
