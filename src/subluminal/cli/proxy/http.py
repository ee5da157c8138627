"""`sub proxy http`: a plain HTTP API, its operations governed as tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from subluminal.cli.proxy.listening import listening_options, read_header, read_listening

if TYPE_CHECKING:
    from subluminal.adapters.http_api.mapping import Mapping, Operation


@click.command("http")
@click.option("--config", "path", metavar="FILE", required=True, help="The mapping: which requests are which tools.")
@click.option("--check", is_flag=True, help="Only check the mapping, and print its operations.")
@click.option(
    "--header-env", "header_envs", multiple=True, metavar="NAME=VARIABLE", help="Send the API this header; repeat."
)
@click.option("--bearer-env", metavar="VARIABLE", help="Send the API `Authorization: Bearer` with its value.")
@listening_options
def http_command(
    path: str, check: bool, header_envs: tuple[str, ...], bearer_env: str | None, as_json: bool, **listening: Any
) -> int:
    """Stand before a plain HTTP API: each operation is a tool, judged and recorded as any other.

    FILE (YAML, JSON or TOML) names the server, its address and its operations. A request is passed on in its own bytes,
    once it has one reading; a refusal is 403, or 429 with Retry-After. Docs: docs/http-api.md

    \b
    Examples:
      sub proxy http --config tracker.yaml --listen 127.0.0.1:8800
      sub proxy http --config tracker.yaml --bearer-env TRACKER_TOKEN
      sub proxy http --config tracker.yaml --check
      sub proxy http --config tracker.yaml --check --json

    \b
    A mapping:
      server: tracker
      upstream: https://tracker.example/api
      operations:
        - {tool: get_issue, method: GET, path: "/issues/{number:int}"}
        - {tool: create_issue, method: POST, path: /issues}
    """
    from subluminal.adapters.http_api.files import load_mapping

    mapping = _loaded(path) if check else load_mapping(path)
    if check:
        _show(mapping, as_json)
        return 0
    from subluminal.adapters.http_api.service import serve
    from subluminal.adapters.listening.specs import spec_of_url
    from subluminal.http.loop import run

    options = read_listening(as_json=as_json, **listening)
    headers = [read_header(text) for text in header_envs]
    spec = spec_of_url(options.config, mapping.server, mapping.upstream, None, headers, bearer_env)
    return run(serve(options, spec, mapping))


def _loaded(path: str) -> Mapping:
    """Where only the file is asked for, everything that is wrong with it is told."""
    from subluminal.adapters.http_api.files import InvalidMapping, load_mapping
    from subluminal.cli.render.output import note
    from subluminal.reports.printable import printable

    try:
        return load_mapping(path)
    except InvalidMapping as invalid:
        for finding in invalid.findings[1:]:
            note(f"sub: {printable(finding.text())}\n  Fix: {printable(finding.fix)}")
        raise InvalidMapping(invalid.findings[:1]) from None


def _show(mapping: Mapping, as_json: bool) -> None:
    from subluminal.cli.render.output import print_json, table

    operations = [_told(each) for each in mapping.operations]
    if as_json:
        top = {"server": mapping.server, "upstream": _shown_url(mapping), "unmapped": mapping.unmapped}
        print_json({**top, "operations": operations})
        return
    header = ["tool", "method", "path", "query", "body", "risk_class"]
    rows = [[_cell(told[name]) for name in header] for told in operations]
    print(f"{mapping.server}  {_shown_url(mapping)}  unmapped: {mapping.unmapped}")
    print(table(rows, header))


def _told(operation: Operation) -> dict[str, Any]:
    return {
        "tool": operation.tool,
        "method": operation.method,
        "path": operation.template.text,
        "query": None if operation.query is None else sorted(operation.query),
        "body": operation.body,
        "risk_class": sorted(operation.risk_class),
    }


def _cell(value: Any) -> str:
    from subluminal.reports.printable import printable

    if value is None:
        return "any"
    return printable(", ".join(value) or "-" if isinstance(value, list) else str(value))


def _shown_url(mapping: Mapping) -> str:
    """An address may hold a secret."""
    from subluminal.host.secrets.addresses import public_form

    return public_form(mapping.upstream)
