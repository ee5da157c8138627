"""The table: what each scenario comes out as, direct and through us. Exits with 1 where there is a difference.

python -m conformance [server|client] [--only TEXT] [--keep DIRECTORY]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from conformance import suite
from conformance.meant import reason
from conformance.ways import WAYS, reached
from harness.npm import InstallError

SAME = "="
MEANT = "*"
AT_ONCE = 2


def short(outcome: suite.Outcome | None) -> str:
    """How many checks came out well and how many did not."""
    if outcome is None:
        return "not run"
    good = sum(count for (_, status), count in outcome.items() if status == "SUCCESS")
    bad = {status: 0 for _, status in outcome if status != "SUCCESS"}
    for (_, status), count in outcome.items():
        if status in bad:
            bad[status] += count
    return ", ".join([f"{good} ok", *(f"{count} {status.lower()}" for status, count in sorted(bad.items()))])


def differences(direct: suite.Outcome, other: suite.Outcome | None) -> dict[str, str]:
    """By check."""
    if other is None:
        return {"": "it did not run"}
    return {
        check: f"{_statuses(direct, check)} direct, {_statuses(other, check)} so"
        for check in sorted({check for check, _ in {*direct, *other}})
        if _statuses(direct, check) != _statuses(other, check)
    }


def _statuses(outcome: suite.Outcome, check: str) -> str:
    found = [f"{count} {status.lower()}" for (name, status), count in sorted(outcome.items()) if name == check]
    return " and ".join(found) or "nothing"


class Table:
    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self.differing: list[str] = []
        self.meant: set[str] = set()
        self.rows = 0

    def head(self, title: str) -> None:
        print(f"\n{title}")
        print(f"| scenario | {' | '.join(self.columns)} |")
        print(f"|{'---|' * (len(self.columns) + 1)}", flush=True)

    def row(self, title: str, scenario: str, by_way: dict[str, suite.Outcome | None]) -> None:
        first, *others = self.columns
        direct = by_way[first] or {}
        cells = [short(direct)]
        for way in others:
            found = differences(direct, by_way[way])
            reasons = {reason(way, scenario, check) for check in found}
            mark = "" if None in reasons else MEANT
            cells.append(f"{short(by_way[way])} (differs{mark})" if found else SAME)
            self.meant |= {each for each in reasons if each is not None}
            self.differing += [
                f"{title}, {scenario}, {way}: {check} {what}"
                for check, what in found.items()
                if reason(way, scenario, check) is None
            ]
        self.rows += 1
        print(f"| {scenario} | {' | '.join(cells)} |", flush=True)


def servers(table: Table, place: Path, only: str) -> None:
    for package, revisions in suite.SERVER_REVISIONS.items():
        for revision in revisions:
            by_way: dict[str, dict[str, suite.Outcome]] = {}
            for way in table.columns:
                at = place / "server" / suite.VERSIONS[package] / revision / way
                results = at / "results"
                results.mkdir(parents=True)
                with reached(way, at) as url:
                    arguments = ["server", "--url", url, "--spec-version", revision]
                    arguments += ["--scenario", only] if only else ["--suite", "all"]
                    (at / "printed").write_text(suite.run(package, arguments, results))
                by_way[way] = suite.outcomes(results)
            title = f"servers, suite {suite.VERSIONS[package]}, revision {revision}"
            table.head(title)
            for scenario in by_way[table.columns[0]]:
                table.row(title, scenario, {way: found.get(scenario) for way, found in by_way.items()})


CLIENTS = {"direct": "", "proxy": " --proxy"}


def clients(table: Table, place: Path, only: str) -> None:
    for package in suite.SERVER_REVISIONS:
        scenarios = suite.client_scenarios(package, place)
        left_out = [name for name, revisions in scenarios.items() if not revisions]
        for revision in sorted({each for revisions in scenarios.values() for each in revisions}):
            title = f"clients, suite {suite.VERSIONS[package]}, revision {revision}"
            table.head(title)
            names = [name for name, revisions in scenarios.items() if revision in revisions and only in name]
            with ThreadPoolExecutor(AT_ONCE) as pool:
                found = pool.map(lambda name: _as_client(table, place, package, revision, name), names)  # noqa: B023
                for name, by_way in zip(names, found, strict=True):
                    table.row(title, name, by_way)
        print(f"\nleft out, being extensions: {', '.join(left_out)}")


def _as_client(table: Table, place: Path, package: str, revision: str, name: str) -> dict[str, suite.Outcome | None]:
    by_way: dict[str, suite.Outcome | None] = {}
    for way in table.columns:
        at = place / "client" / suite.VERSIONS[package] / revision / way / name
        results = at / "results"
        results.mkdir(parents=True)
        command = f"{sys.executable} -W ignore -m conformance.reference_client{CLIENTS[way]}"
        arguments = ["client", "--command", command, "--scenario", name, "--spec-version", revision]
        (at / "printed").write_text(suite.run(package, arguments, results))
        by_way[way] = next(iter(suite.outcomes(results).values()), None)
    return by_way


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance")
    parser.add_argument("mode", nargs="?", choices=["server", "client"], help="of the suite; without it both")
    parser.add_argument("--ways", default=",".join(WAYS), help="of reaching the server, separated by commas")
    parser.add_argument("--only", default="", metavar="SCENARIO")
    parser.add_argument("--keep", metavar="DIRECTORY", help="where results stay")
    given = parser.parse_args()
    try:
        suite.install()
    except InstallError as reason:
        print(f"skipped: the conformance suite is not to be had here: {reason}")
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(given.keep or temporary).absolute()
        place.mkdir(parents=True, exist_ok=True)
        tables = [Table(tuple(given.ways.split(","))), Table(tuple(CLIENTS))]
        if given.mode != "client":
            servers(tables[0], place, given.only)
        if given.mode != "server":
            clients(tables[1], place, given.only)
    differing = [each for table in tables for each in table.differing]
    print(f"\n{sum(table.rows for table in tables)} scenarios, {len(differing)} differences")
    for each in differing:
        print(f"  {each}")
    for each in sorted({each for table in tables for each in table.meant}):
        print(f"{MEANT} as it should be: {each}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
