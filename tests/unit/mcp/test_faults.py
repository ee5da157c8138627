"""Whether a call that failed may succeed later, by the class of its error and the code of the server."""

from __future__ import annotations

import pytest

from subluminal.contracts.vocabulary import ERROR_CLASSES
from subluminal.mcp.faults import fault, tool_error, upstream_error


@pytest.mark.parametrize(
    ("error_class", "retryable"), [("timeout", True), ("transport", True), ("upstream_error", False)]
)
def test_the_class_says_it(error_class: str, retryable: bool) -> None:
    assert error_class in ERROR_CLASSES
    assert fault(error_class, "m") == {"class": error_class, "message": "m", "retryable": retryable}


def test_of_what_nobody_can_tell_nothing_is_said() -> None:
    assert "retryable" not in fault("unknown", "cancelled by the client")


@pytest.mark.parametrize(
    ("code", "retryable"),
    [
        (-32700, False), (-32600, False), (-32601, False), (-32602, False), (-32603, True), (-32001, True),
        (-32002, False), (-32000, False), (400, False), (404, False), (408, True), (429, True), (500, True),
        (503, True), ("429", True), ("-32603", True), ("EBUSY", False), ("\u0664\u0662\u0669", False),
        ("4" * 100_000, False),
        (True, False), (None, False), (4.29, False), ([429], False), (10**40, False),
    ],
    ids=range(24),
)  # fmt: skip
def test_the_code_of_a_server_says_it_where_it_names_a_moment(code: object, retryable: bool) -> None:
    assert upstream_error({"code": code, "message": "m"})["retryable"] is retryable


def test_an_error_of_the_tool_itself_would_come_again() -> None:
    assert tool_error({"content": [{"type": "text", "text": "no such file"}]})["retryable"] is False
    assert upstream_error("nonsense")["retryable"] is False
