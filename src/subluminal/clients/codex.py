"""Codex: `$CODEX_HOME/config.toml`, and `.codex/config.toml` of a project.

Codex hands its servers a short list of variables only; whatever else the shim should see must be named in `env_vars`.
Names that are not set are harmless.
"""

from __future__ import annotations

import os

from subluminal.clients.base import Client, ConfigFile, HttpFields, Place

PASSED_VARIABLES = (
    "SUB_RUN_ID", "SUB_AGENT_ID", "SUB_ENV", "SUB_CLIENT", "SUB_PRINCIPAL", "SUB_WORKLOAD",
    "SUB_HOME", "SUB_POLICY", "SUB_POLICY_JSON", "SUB_EVENTS",
)  # fmt: skip


def _files(place: Place) -> list[ConfigFile]:
    home = place.environ.get("CODEX_HOME") or place.at_home(".codex")
    return [
        ConfigFile(os.path.join(home, "config.toml"), "user"),
        *(ConfigFile(path, "project") for path in place.in_project(".codex", "config.toml")),
    ]


CODEX = Client(
    "codex",
    "Codex",
    _files,
    (("mcp_servers",),),
    word="codex",
    dialect="toml",
    passed_variables=PASSED_VARIABLES,
    http=HttpFields(
        headers="http_headers",
        env_headers="env_http_headers",
        bearer="bearer_token_env_var",
        logins=("oauth", "oauth_resource", "scopes"),
    ),
)
