"""A run as the page of `sub ui` in one file: it opens anywhere, asks nobody, and loads nothing.

The file allows itself its own script and style, by their hashes, and nothing else: not what a field of the record might
smuggle in, and no address. The record stands in it deflated and in base64, which no parser of HTML can mistake.
"""

from __future__ import annotations

import base64
import gzip
from hashlib import sha256
from html import escape
from typing import Any

import msgspec

from subluminal import __version__
from subluminal.reports.printable import printable
from subluminal.ui.files import content

Record = dict[str, Any]


def page(record: Record, written_at: str) -> str:
    """`record`: of `ledger.read.whole`."""
    script, style = content("app.js").decode(), content("app.css").decode()
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types"
    )
    title = escape(printable(f"Run {record['run']['run_id']} · Subluminal"))
    data = msgspec.json.encode({"version": __version__, "written_at": written_at, **record})
    packed = base64.b64encode(gzip.compress(data, 6, mtime=0)).decode()
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{title}</title><style>{style}</style></head>\n"
        '<body><div id="page"></div><noscript>This file needs JavaScript. The same is in the bundle that '
        "<code>sub export run</code> writes.</noscript>\n"
        f'<script type="text/plain" id="record">{packed}</script>\n<script>{script}</script></body></html>\n'
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"
