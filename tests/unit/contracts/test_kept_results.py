"""Files of kept results: read back as written, a torn end left out, anything else found."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from subluminal.contracts.kept_results import Damaged, frame, frames, link, opening

OPENING = opening("run-é", "s1")
FIRST = frame({"call_id": "s1-1", "bytes": 3}, b"\x00\n\xff")
SECOND = frame({"method": "tools/list", "bytes": 0}, b"")


def test_what_was_written_is_read_back_with_its_chain() -> None:
    read = list(frames(io.BytesIO(OPENING + FIRST + SECOND), "run-é"))
    assert [(header.get("call_id"), header.get("method"), data) for header, data, _ in read] == [
        ("s1-1", None, b"\x00\n\xff"),
        (None, "tools/list", b""),
    ]
    first = link(link(b"", OPENING), FIRST)
    assert [chain for _, _, chain in read] == [first, link(first, SECOND)]


@pytest.mark.parametrize("cut", range(1, len(SECOND) + 1))
def test_a_last_frame_that_was_torn_is_left_out(cut: int) -> None:
    whole = OPENING + FIRST + SECOND
    assert len(list(frames(io.BytesIO(whole[:-cut]), "run-é"))) == 1


@pytest.mark.parametrize("size", [10**12, 2**63 - 1, 10**30])
def test_a_size_that_nothing_could_have_is_a_torn_end(size: int, tmp_path: Path) -> None:
    path = tmp_path / "s1.results"
    path.write_bytes(OPENING + FIRST + b'{"call_id":"s1-2","deflated":%d}\nabc' % size)
    with path.open("rb") as file:
        assert len(list(frames(file, "run-é"))) == 1


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "stands no result"),
        (b'{"format":"other"}\n', "does not begin"),
        (opening("other", "s1"), "another run"),
        (OPENING + b"not json\n", "stands no result"),
        (OPENING + b"[]\n", "stands no result"),
        (OPENING + b'{"deflated":-1}\n', "stands no result"),
        (OPENING + b'{"deflated":true}\nxx', "stands no result"),
        (OPENING + FIRST[:-1] + b"x" + SECOND, "does not end where it says"),
    ],
)
def test_what_nobody_wrote_is_said(data: bytes, says: str) -> None:
    with pytest.raises(Damaged, match=says):
        list(frames(io.BytesIO(data), "run-é"))
