"""Where telemetry goes, if anywhere: `[telemetry]` of the user's `config.toml`, or SUB_TELEMETRY_ENDPOINT.

[telemetry]
endpoint = "http://127.0.0.1:4318"        # what stands before /v1/traces and /v1/metrics
header_env = {Authorization = "OTLP_AUTH"}  # headers, their values in variables
metrics_every_s = 60
sample = 0.1                              # of traces; what was refused or failed is always sent

A repository's file has no say in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from subluminal.contracts.errors import ConfigError
from subluminal.host.config import user_settings

VARIABLE = "SUB_TELEMETRY_ENDPOINT"
HINT = 'For example: [telemetry] endpoint = "http://127.0.0.1:4318"'
_KEYS = ("endpoint", "header_env", "metrics_every_s", "sample")


class Settings(NamedTuple):
    endpoint: str
    headers: dict[str, str]
    metrics_every_s: float = 60.0
    sample: float = 1.0


def read_settings(environ: Mapping[str, str]) -> Settings | None:
    """None: nothing is to be sent, which is how it is unless somebody says otherwise."""
    own = user_settings(environ).get("telemetry", {})
    if not isinstance(own, dict):
        raise ConfigError("config.toml: [telemetry] must be a table", hint=HINT)
    for key in own:
        if key not in _KEYS:
            raise ConfigError(f"config.toml: [telemetry] has no setting {key!r}", hint=f"Known: {', '.join(_KEYS)}.")
    named = environ.get(VARIABLE) or own.get("endpoint")
    if not named:
        return None
    return Settings(
        check_endpoint(named, VARIABLE if environ.get(VARIABLE) else "config.toml: [telemetry] endpoint"),
        _headers(own.get("header_env", {}), environ),
        _number(own, "metrics_every_s", 60.0, 1.0, 86_400.0),
        _number(own, "sample", 1.0, 0.0, 1.0),
    )


def check_endpoint(text: Any, where: str) -> str:
    """Nothing of it is quoted: whoever puts a password into a URL must not find it in a log."""
    try:
        parts = urlsplit(text) if isinstance(text, str) and text.isascii() and text.isprintable() else None
        fine = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, fine = None, False
    if parts is None or not fine or parts.query or parts.fragment or parts.username is not None:
        raise ConfigError(f"{where} is not an http or https URL without user name, query and fragment", hint=HINT)
    return str(text).rstrip("/")


def _headers(table: Any, environ: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(table, dict):
        raise ConfigError(
            "config.toml: [telemetry] header_env must be a table", hint='header_env = {Name = "VARIABLE"}'
        )
    headers = {}
    for name, variable in table.items():
        value = environ.get(variable, "") if isinstance(variable, str) else ""
        if not value or not value.isascii() or not value.isprintable() or not name.replace("-", "").isalnum():
            raise ConfigError(f"config.toml: [telemetry] header_env: {name[:40]}: its variable holds no usable value")
        headers[name] = value
    return headers


def _number(own: dict[str, Any], key: str, default: float, least: float, most: float) -> float:
    value = own.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ConfigError(f"config.toml: [telemetry] {key} must be a number from {least:g} to {most:g}")
    return float(value)
