"""Logins against the public conformance suite's authorization servers (`make test-servers` installs it).

Left out: `auth/basic-cimd` (a client id that is a URL of ours, of which there is none) and the extensions in which no
user takes part.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import login_client, places

SCENARIOS = [
    "metadata-default", "metadata-var1", "metadata-var2", "metadata-var3", "scope-from-www-authenticate",
    "scope-from-scopes-supported", "scope-omitted-when-undefined", "scope-step-up", "scope-retry-limit",
    "token-endpoint-auth-basic", "token-endpoint-auth-post", "token-endpoint-auth-none", "pre-registration",
    "2025-03-26-oauth-metadata-backcompat", "2025-03-26-oauth-endpoint-fallback", "resource-mismatch",
    "offline-access-scope", "offline-access-not-supported",
]  # fmt: skip


@pytest.mark.skipif(not login_client.installed(), reason="the conformance suite is not installed (make test-servers)")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_login_conforms(scenario: str, tmp_path: Path) -> None:
    programs = login_client.INSTALL_DIR / "node_modules" / ".bin"
    program = programs.parent / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    command = [programs / "node", program, "client", "--command", f"{sys.executable} -m harness.login_client"]
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(places.ROOT / "tests")}
    result = subprocess.run(
        [*command, "--scenario", f"auth/{scenario}"],
        env=env,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "OVERALL: PASSED" in result.stdout + result.stderr, result.stdout + result.stderr
