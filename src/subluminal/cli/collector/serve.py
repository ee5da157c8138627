"""`sub collector serve`."""

from __future__ import annotations

import click

from subluminal.cli.render.output import note, print_json
from subluminal.contracts.errors import UsageError

DEFAULT_LISTEN = "127.0.0.1:7790"


@click.command("serve")
@click.option(
    "--store", metavar="DSN", envvar="SUB_COLLECTOR_STORE", help="clickhouse://…, postgresql://… or chdb:///DIR."
)
@click.option("--listen", metavar="HOST:PORT", default=DEFAULT_LISTEN, help=f"Where to listen.  [{DEFAULT_LISTEN}]")
@click.option("--metrics-listen", metavar="HOST:PORT", help="Serve /metrics here, and not where machines send.")
@click.option("--tokens", metavar="FILE", help="Bearer tokens, as `sub collector token` writes them.")
@click.option("--tls-cert", metavar="FILE", help="Certificate of this service.")
@click.option("--tls-key", metavar="FILE", help="Its key.")
@click.option("--client-ca", metavar="FILE", help="Take client certificates of this authority: O tenant, CN machine.")
@click.option(
    "--issuer", metavar="URL", help="Take service-account tokens of this issuer: namespace tenant, pod machine."
)
@click.option("--audience", metavar="NAME", help="The audience that those tokens must have.")
@click.option("--jwks", metavar="FILE|URL", help="The issuer's keys.")
@click.option("--behind-tls", is_flag=True, help="Listen without TLS: something in front ends it.")
@click.option("--quota", metavar="N", type=int, default=0, help="Events a second for a tenant; 0: no limit.  [0]")
@click.option("--tenant-quota", metavar="TENANT=N", multiple=True, help="For one tenant.")
@click.option("--commit-ms", metavar="MS", type=int, default=200, help="How long segments gather, 100 to 500.  [200]")
@click.option("--retention-days", metavar="DAYS", type=int, default=0, help="Remove what is older; 0: nothing.  [0]")
@click.option(
    "--question-s", metavar="S", type=int, default=40, help="Give a question up after so long, 1 to 600.  [40]"
)
@click.option("--json", "as_json", is_flag=True, help="The line that says it is ready, as a JSON object.")
def serve_command(
    store: str | None,
    listen: str,
    metrics_listen: str | None,
    tokens: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    client_ca: str | None,
    issuer: str | None,
    audience: str | None,
    jwks: str | None,
    behind_tls: bool,
    quota: int,
    tenant_quota: tuple[str, ...],
    commit_ms: int,
    retention_days: int,
    question_s: int,
    as_json: bool,
) -> int:
    """Take segments and answer questions, until ended. Any number may stand behind a load balancer.

    Tables are made and migrated at the start. A segment is acknowledged after its commit; where the store is down or
    behind, machines are told to come again. Counters for Prometheus are at /metrics, which asks for no credential
    and names tenants: --metrics-listen gives it a listener of its own, with the same certificate.
    A password in a DSN is seen by whoever sees the command line: SUB_COLLECTOR_STORE holds it as well.

    \b
    Examples:
      sub collector serve --store chdb:///var/lib/sub --tokens tokens.json
      sub collector serve --store postgresql://db.example/sub --tokens tokens.json --quota 2000
      sub collector serve --listen 0.0.0.0:7790 --tls-cert tls.crt --tls-key tls.key --client-ca ca.crt
    """
    from subluminal.fleet.extras import require_extra

    require_extra("zstandard")
    from subluminal.fleet.collector.serving import COMMIT_MS, Settings, serve

    if store is None:
        raise UsageError("--store is needed.", hint="Or set SUB_COLLECTOR_STORE.")
    if not COMMIT_MS[0] <= commit_ms <= COMMIT_MS[1]:
        raise UsageError(f"--commit-ms must be between {COMMIT_MS[0]} and {COMMIT_MS[1]}.")
    if quota < 0 or retention_days < 0:
        raise UsageError("--quota and --retention-days must not be negative.")
    if not 1 <= question_s <= 600:
        raise UsageError("--question-s must be between 1 and 600.")
    host, port = _address("--listen", listen)
    settings = Settings(
        store=store,
        host=host,
        port=port,
        tokens=tokens,
        certificate=tls_cert,
        key=tls_key,
        client_ca=client_ca,
        issuer=issuer,
        audience=audience,
        jwks=jwks,
        behind_tls=behind_tls,
        events_per_s=quota,
        tenant_events_per_s=dict(map(_tenant_quota, tenant_quota)),
        commit_ms=commit_ms,
        retention_days=retention_days,
        question_s=question_s,
        metrics=None if metrics_listen is None else _address("--metrics-listen", metrics_listen),
    )

    def ready(url: str, metrics_url: str | None) -> None:
        if as_json:
            print_json({"url": url, **({} if metrics_url is None else {"metrics_url": metrics_url})})
        else:
            note(f"sub collector: listening on {url}" + (f", metrics on {metrics_url}" if metrics_url else ""))

    serve(settings, ready)
    return 0


def _address(option: str, listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise UsageError(f"{option} {listen!r} is no address.", hint="Such as 127.0.0.1:7790 or [::1]:7790.")
    return host.strip("[]"), int(port)


def _tenant_quota(text: str) -> tuple[str, float]:
    tenant, equals, number = text.rpartition("=")
    if not equals or not tenant or not (number.isascii() and number.isdigit()):
        raise UsageError(f"--tenant-quota {text!r} is no tenant and number.", hint="Such as acme=5000.")
    return tenant, float(number)
