"""Two runs aligned: nothing is lost or turned around, and as much is the same as can be."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from harness import places

WEB = places.ROOT / "web"
pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not (WEB / "node_modules" / "esbuild").exists(),
    reason="the page's tools are not installed (make web)",
)
Call = list[str]  # tool, arguments
# `same` and `alike` as the page has them: tool with arguments, and the tool alone.
SCRIPT = """
import { align } from "./align.mjs";
const lines = [];
for await (const piece of process.stdin) lines.push(piece);
const found = JSON.parse(lines.join("")).map(([left, right]) =>
  align(left, right, (call) => call.join(" "), (call) => call[0]).map(({ left, right }) => [left, right]));
process.stdout.write(JSON.stringify(found));
"""


def aligned(path: Path, pairs: list[tuple[list[Call], list[Call]]]) -> list[list[tuple[Call | None, Call | None]]]:
    bundle = [str(WEB / "node_modules" / ".bin" / "esbuild"), str(WEB / "src" / "align.ts"), "--format=esm"]
    subprocess.run([*bundle, f"--outfile={path / 'align.mjs'}"], check=True, capture_output=True, timeout=60)
    (path / "run.mjs").write_text(SCRIPT)
    ran = subprocess.run(
        ["node", str(path / "run.mjs")],
        input=json.dumps(pairs),
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    found: list[list[tuple[Call | None, Call | None]]] = json.loads(ran.stdout)
    return found


def longest_common(left: list[Call], right: list[Call]) -> int:
    row = [0] * (len(right) + 1)
    for one in left:
        before = row
        row = [0]
        for at, other in enumerate(right):
            row.append(before[at] + 1 if one == other else max(before[at + 1], row[at]))
    return row[-1]


def test_every_call_stands_once_in_order_and_the_most_that_can_are_the_same(tmp_path: Path) -> None:
    chance = random.Random(23)

    def run(most: int) -> list[Call]:
        return [[chance.choice("abc"), str(chance.randrange(3))] for _ in range(chance.randrange(most))]

    pairs = [(run(14), run(14)) for _ in range(400)] + [(run(90), run(90)) for _ in range(20)]
    changed = run(60)
    pairs += [([], []), (changed, []), ([], changed), (changed, changed), (changed, changed[5:40] + changed[43:])]
    for (left, right), found in zip(pairs, aligned(tmp_path, pairs), strict=True):
        assert [one for one, _ in found if one is not None] == left
        assert [other for _, other in found if other is not None] == right
        both = [(one, other) for one, other in found if one is not None and other is not None]
        assert all(one[0] == other[0] for one, other in both)
        assert sum(one == other for one, other in both) >= longest_common(left, right)


def test_runs_that_have_nothing_in_common_are_not_compared_for_long(tmp_path: Path) -> None:
    left = [[f"tool-{number % 7}", f"left {number}"] for number in range(8_000)]
    right = [[f"tool-{number % 5}", f"right {number}"] for number in range(8_000)]
    (found,) = aligned(tmp_path, [(left, right)])
    assert [one for one, _ in found if one is not None] == left
    assert [other for _, other in found if other is not None] == right
