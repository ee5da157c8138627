"""Figures that were reported to us and cannot be measured here, as a table of their own: `python bench/reported.py`.

The compiled implementation of the same specification (Go) is not part of this repository. What is known of it was taken
on another day, on a quiet machine of two cores, all subjects in one run with an earlier version of ours: ten rules,
events to a file, Python alone. Ratios are of the p50 to the C relay's; only they can be held against other tables.
"""

from __future__ import annotations

import figures

HEADER = ("reported, not measured here", "ours, then", "Go", "ours / Go")
ROWS = (
    ("p50, 100 B, to the relay", "3.4x", "6.8x", "0.49x"),
    ("p50, 10 KiB, to the relay", "6.0x", "16.9x", "0.36x"),
    ("calls/s, 64 outstanding, 100 B", "", "", "2.3x"),
    ("calls/s, 64 outstanding, 10 KiB", "", "", "1.9x"),
)


def main() -> None:
    text = figures.table(HEADER, ROWS)
    print(text)
    figures.save("reported", text)


if __name__ == "__main__":
    main()
