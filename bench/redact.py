"""What redaction costs on ordinary text, and how often it is wrong about it.

python bench/redact.py                    times, and false positives on this Python's standard library
python bench/redact.py --corpus DIR       the same on another tree of text
python bench/redact.py --leaks 10000      random secrets in every encoding: none may survive
python bench/redact.py --show             print what was masked
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import sysconfig
import timeit
from collections import Counter
from collections.abc import Callable, Iterator

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tests"))

import figures

from harness.secret_corpus import encodings, filler, random_secret
from subluminal.core.redact.preview import preview
from subluminal.core.redact.redactor import INJECTED, Redactor

SEED = 20261115
PIECE = 8192
ARGUMENTS = b'{"path":"/srv/app/src/main.py","content":"def main():\\n    return 42\\n","mode":"overwrite","line":117}'
LINE = b"The quick brown fox, on a light day, jumps over the lazy dog while reading line %d of the file.\\n"


def best_us(work: Callable[[], object], rounds: int) -> float:
    """The best of many short rounds: on a shared machine a long one always meets somebody else."""
    return round(min(timeit.repeat(work, number=rounds, repeat=400)) / rounds * 1e6, 2)


def times() -> dict[str, float]:
    text = b"".join(LINE % number for number in range(400))
    result = {}
    for label, secrets in (("no secret", []), ("one secret", ["ghp_" + "Ab3dEf6hIj" * 4])):
        redactor = Redactor(secrets)
        result[f"{len(ARGUMENTS)} B, {label}, us"] = best_us(lambda r=redactor: r.mask(ARGUMENTS), 100)
        result[f"10 KiB, {label}, us"] = best_us(lambda r=redactor: r.mask(text[:10_240]), 5)
        result[f"16 KiB preview, {label}, us"] = best_us(lambda r=redactor: preview(text[:16_384], 16_384, r), 5)
    return result


def files(root: str) -> Iterator[str]:
    for directory, names, members in os.walk(root):
        names[:] = sorted(name for name in names if name not in ("__pycache__", "site-packages"))
        for member in sorted(members):
            if member.endswith((".py", ".txt", ".md", ".rst", ".json", ".toml", ".js", ".html")):
                yield os.path.join(directory, member)


def false_positives(root: str, show: bool) -> dict[str, object]:
    """Every mask in published sources counts as wrong; test suites apart, since they do hold made-up passwords."""
    redactor = Redactor()
    sizes: Counter[str] = Counter()
    masks: dict[str, Counter[str]] = {"sources": Counter(), "tests": Counter()}
    for path in files(root):
        kind = "tests" if "test" in os.path.relpath(path, root) else "sources"
        with open(path, "rb") as file:
            data = file.read()
        sizes[kind] += len(data)
        for start in range(0, len(data), PIECE):
            # As arguments of a tool call carry it: text inside a JSON string.
            text = json.dumps(data[start : start + PIECE].decode("utf-8", "replace")).encode()
            masked, flags = redactor.mask(text)
            for flag in flags:
                masks[kind][flag] += masked.count(b"[REDACTED:%b]" % flag.encode())
            if flags and show:
                shown = [masked[max(0, i - 60) : i + 30] for i in find_all(masked, b"[REDACTED:")]
                print(path, *shown, sep="\n    ", file=sys.stderr)
    return {
        kind: {
            "bytes": sizes[kind],
            "masks": dict(masks[kind]),
            "per MB": round(sum(masks[kind].values()) / max(1, sizes[kind]) * 1e6, 2),
        }
        for kind in masks
    }


def find_all(data: bytes, word: bytes) -> list[int]:
    places, at = [], data.find(word)
    while at >= 0:
        places.append(at)
        at = data.find(word, at + 1)
    return places


def leaks(count: int) -> dict[str, int]:
    rng = random.Random(SEED)
    texts = leaked = 0
    for _ in range(count):
        secret = random_secret(rng)
        redactor = Redactor([secret])
        for name, text, parts in encodings(secret, rng):
            masked, flags = redactor.mask(filler(rng).encode() + text + filler(rng).encode())
            body = masked.replace(b"[REDACTED:injected_secret]", b"\0")
            texts += 1
            if INJECTED not in flags or any(part in body for part in parts):
                leaked += 1
                print("leak:", name, repr(secret), file=sys.stderr)
    return {"seed": SEED, "secrets": count, "texts": texts, "leaks": leaked}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default=sysconfig.get_path("stdlib"), help="a tree of ordinary text")
    parser.add_argument("--leaks", type=int, default=0, metavar="N", help="try N random secrets in every encoding")
    parser.add_argument("--show", action="store_true", help="print what was masked in the corpus")
    options = parser.parse_args()
    costs = times()
    report: dict[str, object] = {"times": costs, "false positives": false_positives(options.corpus, options.show)}
    if options.leaks:
        report["leaks"] = leaks(options.leaks)
    print(json.dumps(report, indent=2))
    figures.save("redact", figures.table(("what", "figure"), costs.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
