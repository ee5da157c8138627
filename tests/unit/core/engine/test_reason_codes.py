"""Every reason code has its paragraph in docs/reason-codes.md, and no paragraph is about a code that is not."""

from __future__ import annotations

from harness import places
from subluminal.contracts.vocabulary import REASON_CODES

PAGE = places.ROOT / "docs" / "reason-codes.md"


def test_the_page_explains_each_reason_code_once() -> None:
    sections = PAGE.read_text().split("\n### ")[1:]
    titles = [section.split("\n", 1)[0] for section in sections]
    assert sorted(titles) == sorted(REASON_CODES)
    for title, section in zip(titles, sections, strict=True):
        assert len(section) > len(title) + 100, title
