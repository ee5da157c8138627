"""Write `schema/*.json` from the contract types; a file that belongs to no schema is removed.

    python tools/generate_schemas.py [--check]

With --check nothing is written; exits with 1 if a file is not current.
"""

from __future__ import annotations

import sys
from pathlib import Path

from subluminal.contracts.schemas import schema_text, schemas

DIRECTORY = Path(__file__).parents[1] / "schema"


def main(args: list[str]) -> int:
    if args not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    wanted = {DIRECTORY / name: schema_text(schema) for name, schema in schemas().items()}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
    stale += [path for path in DIRECTORY.glob("*.json") if path not in wanted]
    for path in stale:
        if args:
            print(f"schema/{path.name} is not current", file=sys.stderr)
        elif path in wanted:
            path.write_text(wanted[path], "utf-8")
            print(f"schema/{path.name} written", file=sys.stderr)
        else:
            path.unlink()
            print(f"schema/{path.name} removed", file=sys.stderr)
    return 1 if args and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
