"""`sub fleet telemetry`: what has ended, as OpenTelemetry spans, once. The keeper does it all the time."""

from __future__ import annotations

import os
from typing import Any

import click

from subluminal.cli.render.output import note, print_json
from subluminal.contracts.errors import UsageError


@click.command("telemetry")
@click.option("--endpoint", metavar="URL", help="Send there; else where [telemetry] of config.toml says.")
@click.option("--from-start", is_flag=True, help="Everything the ledger holds, not only what is new.")
@click.option("--dry-run", is_flag=True, help="Send nothing; print the spans, one JSON object per line.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def telemetry_command(endpoint: str | None, from_start: bool, dry_run: bool, as_json: bool) -> int:
    """Send what has ended since the last time to an OpenTelemetry receiver (OTLP over HTTP), once.

    Off unless an endpoint is named. A span has the names of tool, server, rule and policy, ids, times and words of the
    contract; never arguments, results or texts. Ids are derived: sent twice, it is the same span. On a joined machine
    the keeper does this by itself, and sends figures too.

    \b
    Examples:
      sub fleet telemetry --dry-run --from-start
      sub fleet telemetry --endpoint http://127.0.0.1:4318
    """
    from subluminal.fleet.extras import require_extra
    from subluminal.fleet.telemetry.settings import Settings, check_endpoint, read_settings
    from subluminal.ledger.daemon.contact import private_home

    require_extra("opentelemetry.proto")
    home = private_home()
    settings = read_settings(os.environ)
    if endpoint is not None:
        headers = settings.headers if settings is not None else {}
        settings = Settings(check_endpoint(endpoint, "--endpoint"), headers)
    if dry_run:
        return _print_spans(home, settings, from_start)
    if settings is None:
        hint = "Give --endpoint, or set [telemetry] endpoint in config.toml."
        raise UsageError("Telemetry is off: no endpoint is named.", hint=hint)
    return _send(home, settings, from_start, as_json)


def _send(home: str, settings: Any, from_start: bool, as_json: bool) -> int:
    from subluminal.fleet.telemetry.exporting import batches

    sent = refused = left_out = 0
    for batch, not_taken in batches(home, settings, from_start=from_start):
        sent, refused, left_out = sent + batch.size - not_taken, refused + not_taken, left_out + batch.left_out
    if as_json:
        print_json({"sent": sent, "refused": refused, "left_out": left_out})
    else:
        print(f"sent {sent} spans" + (f", {left_out} left out by sampling" if left_out else ""))
        if refused:
            note(f"sub: the receiver did not take {refused} spans")
    return 1 if refused else 0


def _print_spans(home: str, settings: Any, from_start: bool) -> int:
    from subluminal.fleet.telemetry.exporting import look
    from subluminal.fleet.telemetry.shown import span_facts

    for batch in look(home, settings.sample if settings is not None else 1.0, from_start=from_start):
        for spans in batch.spans.values():
            for span in spans:
                print_json(span_facts(span))
    return 0
