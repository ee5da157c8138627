"""Tests open one state many times over, as many processes would: what they leave open is closed behind them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from subluminal.host.run.table import Table


@pytest.fixture(autouse=True)
def close_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made: list[Table] = []
    make = Table.__init__

    def remembered(self: Table, fd: int, salt: int) -> None:
        make(self, fd, salt)
        made.append(self)

    monkeypatch.setattr(Table, "__init__", remembered)
    yield
    for table in made:
        table.close()
