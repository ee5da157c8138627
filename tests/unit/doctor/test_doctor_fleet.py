"""What `sub doctor` says of a fleet, from facts."""

from __future__ import annotations

from typing import Any

import pytest

from subluminal.doctor.fleet import check_fleet

SHIPPING = {
    "unacked_events": 0, "unacked_since": None, "behind_s": None, "acked_at": "2026-01-01T00:00:00.000Z", "refused": 0,
    "waits": 0, "last_error": None, "no_credential": False, "error": None,
}  # fmt: skip
FACTS = {
    "url": "https://fleet.example", "collector": "https://collector.example", "version": 3, "error": None, "stops": [],
    "confirmed_at": "2026-01-01T00:00:00.000Z", "overdue": None, "keeper": 7, "tasks": {"ship": {}},
}  # fmt: skip
BEHIND = {"unacked_events": 12, "unacked_since": "2026-01-01T00:00:00.000Z", "behind_s": 700}


@pytest.mark.parametrize(
    ("shipping", "tasks", "findings"),
    [
        ({}, {"ship": {}}, {}),
        ({**BEHIND, "behind_s": 5}, {"ship": {}}, {}),
        (BEHIND, {"ship": {}}, {"fleet-behind": "the collector is 12 events behind, since 2026-01-01T00:00:00.000Z"}),
        (
            {**BEHIND, "behind_s": 5, "waits": 3, "last_error": "It is away."},
            {"ship": {}},
            {
                "fleet-behind": "the collector is 12 events behind, since 2026-01-01T00:00:00.000Z: It is away."
            },
        ),
        (
            {"refused": 1},
            {"ship": {}},
            {"fleet-refused": "the collector has refused 1 event; they are kept, and tried each hour"},
        ),
        ({}, {}, {"fleet-not-shipping": "the keeper ships nothing to https://collector.example: its log says why"}),
        (
            {"no_credential": True, "last_error": "/t cannot be read."},
            {"ship": {"failures": 9, "last_error": "/t cannot be read."}},
            {
                "fleet-no-credential": "nothing is shipped: /t cannot be read."
            },
        ),
        (
            {"error": "it is locked", "unacked_events": None},
            {"ship": {}},
            {"fleet-ship-unknown": "how far the ledger was shipped cannot be read: it is locked"},
        ),
    ],
)  # fmt: skip
def test_how_shipping_fares(shipping: dict[str, Any], tasks: dict[str, Any], findings: dict[str, str]) -> None:
    area = check_fleet({**FACTS, "tasks": tasks, "shipping": {**SHIPPING, **shipping}})
    assert {finding.code: finding.message for finding in area.findings} == findings


def test_a_machine_that_ships_nothing_hears_nothing_of_it() -> None:
    area = check_fleet({**FACTS, "collector": None, "shipping": None, "tasks": {}})
    assert area.findings == [] and "behind" not in area.summary
    assert [finding.code for finding in check_fleet({"error": "It cannot be read."}).findings] == ["fleet-not-laid"]
