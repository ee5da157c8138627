"""Opens paths as servers written in Python do. A JSON array [mode, op, path] a line in; what it holds, or null, out."""

import json
import os
import sys
from pathlib import Path
from urllib.parse import unquote, urlparse
from urllib.request import url2pathname

WAYS = {
    "open": lambda text: text,
    "expand": lambda text: os.path.expanduser(os.path.expandvars(text)),
    "abspath": os.path.abspath,
    "resolve": lambda text: Path(text).expanduser().resolve(),
    "unquote": unquote,
    "url": lambda text: url2pathname(urlparse(text).path),
    "cut": lambda text: text.removeprefix("file://"),
    "strip": lambda text: text.strip().strip("\"'"),
}

for line in sys.stdin:
    mode, op, text = json.loads(line)
    found = None
    try:
        opened = WAYS[mode](text)
        with open(opened, "w" if op == "write" else "r", encoding="utf-8") as file:
            found = file.write("written") and None if op == "write" else file.read()
    except (OSError, ValueError, RuntimeError):
        pass
    print(json.dumps(found), flush=True)
