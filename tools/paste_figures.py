"""Put the tables of bench/results/ into docs/PERFORMANCE.md.

    python tools/paste_figures.py [NAME...]

What stands between `<!-- figures: NAME -->` and `<!-- end -->` is replaced by bench/results/NAME.md, for each NAME
given or for all that have been measured. Everything else in the page stays as it is.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "PERFORMANCE.md"
RESULTS = ROOT / "bench" / "results"
_SPOT = re.compile(r"(<!-- figures: ([a-z_-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pasted(page: str, tables: dict[str, str]) -> str:
    """The page with each table in its spot; a spot without a table keeps what it has."""

    def fill(spot: re.Match[str]) -> str:
        table = tables.get(spot[2])
        return spot[0] if table is None else f"{spot[1]}{table.strip()}\n{spot[3]}"

    return _SPOT.sub(fill, page)


def main(wanted: list[str]) -> int:
    page = PAGE.read_text(encoding="utf-8")
    spots = {spot[2] for spot in _SPOT.finditer(page)}
    names = set(wanted) or {name for name in spots if (RESULTS / f"{name}.md").exists()}
    for name in sorted(names):
        if name not in spots:
            print(f"{PAGE.name} has no spot <!-- figures: {name} -->", file=sys.stderr)
            return 2
        if not (RESULTS / f"{name}.md").exists():
            print(f"bench/results/{name}.md does not exist: run the benchmark first", file=sys.stderr)
            return 2
    tables = {name: (RESULTS / f"{name}.md").read_text(encoding="utf-8") for name in names}
    PAGE.write_text(pasted(page, tables), encoding="utf-8")
    print("pasted:", ", ".join(sorted(names)) or "nothing", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
