"""What servers are known to say, as shims have written it down, without any shim."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

from subluminal.host.tools.known import KnownFile
from subluminal.surface.items import TOOL, read_item
from subluminal.surface.known import KnownServer, see


def know(home: Path, server_name: str, name: str, *descriptions: str) -> None:
    """The server said each of these of its tool, in this order; a policy with `changed_tools: quarantine` looked on."""

    def work(server: KnownServer) -> bool:
        for number, description in enumerate(descriptions):
            definition: dict[str, Any] = {"name": name, "description": description, "inputSchema": {"type": "object"}}
            raw = json.dumps(definition).encode()
            item = read_item(TOOL, name, raw)
            at = f"2026-01-0{number + 1}T00:00:00.000Z"
            see(server, item, (item.definition or b"").decode(), at, f"run-{number}", "claude")
            server.items[item.key].guarded = True
        return True

    with mock.patch.dict(os.environ, {"SUB_HOME": str(home)}):
        KnownFile(server_name, "").update(work, 5.0)
