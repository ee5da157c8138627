"""Writes tests/fixtures/readings.json: a table of spellings, and what the SDKs at the pinned versions read in them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TESTS))

from harness import sdks  # noqa: E402

TEXTS = """true True TRUE yes Yes on y t 1 1.0 false False no off f n 0 0.0 enabled disabled null None undefined
42 +42 -42 --42 0042 42.0 42. 42.00 42.5 .5 1e3 1E3 1e400 1e-400 0x10 0X10 0b11 0o17 -0x10 0x 017
1_000 1__000 _1 1_ 0_1 1_0.0 1,000 4２ ４２ ٤٢ ² ½ inf Infinity -Infinity NaN 1n 1L
9007199254740993 100.99999999999999999999 0.1000000000000000055511151231257827 a A "x" [1] [] {}"""
PADDED = [
    "",
    " ",
    " 42 ",
    "\t42\n",
    "\u00a042",
    "\ufeff42",
    "\u200b42",
    "\u008542",
    "\u001c42",
    "\u300042",
    " true ",
    " a",
]
LONG = ["0" * 400 + "7", "7." + "0" * 400, "9" * 400]
VALUES = """true false null 0 1 2 42 1.0 42.0 42.5 0.0 -0.0 1e3 1e21 1e-7 0.00001 1e23 1e400 1e-400 -5e-324
100.99999999999999999999 0.1000000000000000055511151231257827 9007199254740993 123456789012345680000
12345678901234567890123
[] [0] [1] [[1]] ["1"] [true] [null] ["a"] [["a"]] ["a","b"] [1,[2,"x"]] [[],[]] [{}] {} {"a":1}"""


def main() -> None:
    python, typescript = sdks.python_reader(), sdks.TypeScriptReader()
    texts = [json.dumps(text) for text in TEXTS.split() + PADDED + LONG] + VALUES.split()
    rows = [{"json": text, "python": python(text), "typescript": typescript(text)} for text in texts]
    typescript.close()
    versions = {"python": sdks.python_versions(), "typescript": sdks.typescript_versions()}
    lines = ",\n".join(json.dumps(row, default=str) for row in rows)
    target = TESTS / "fixtures" / "readings.json"
    target.write_text(f'{{"versions": {json.dumps(versions)},\n"spellings": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
