"""`sub fleet sidecar`: the first process of a sidecar in a pod."""

from __future__ import annotations

import os

import click

from subluminal.cli.fleet.options import bytes_of, milliseconds_of
from subluminal.cli.render.output import note, print_json
from subluminal.contracts.errors import UsageError


@click.command("sidecar")
@click.option("--prepare", is_flag=True, help="Only join, unless this home has joined; then end.")
@click.option("--url", metavar="URL", help="With --prepare: the fleet's origin.")
@click.option("--root", metavar="FILE", help="With --prepare: its root.json.")
@click.option("--tenant", metavar="NAME", help="With --prepare: obey this tenant's policies too.")
@click.option("--collector", metavar="URL", help="With --prepare: where decisions are shipped to.")
@click.option("--token-file", metavar="FILE", help="With --prepare: the file with the credential for the collector.")
@click.option("--max-disk", metavar="SIZE", help="With --prepare: remove what goes first beyond this, by itself.")
@click.option(
    "--drain", default="25s", metavar="TIME", help="At the end, how long to wait until all is shipped.  [25s]"
)
@click.option("--json", "as_json", is_flag=True, help="With --prepare: one JSON object.")
def sidecar_command(
    prepare: bool,
    url: str | None,
    root: str | None,
    tenant: str | None,
    collector: str | None,
    token_file: str | None,
    max_disk: str | None,
    drain: str,
    as_json: bool,
) -> int:
    """ledgerd and the keeper as the sidecar of a pod: joined before the agent starts, drained before the pod ends.

    With --prepare, in an init container, it verifies and lays the fleet's policies: where that fails, the pod does not
    start. Without, it runs ledgerd (which starts the keeper) until SIGTERM, then waits until every journal is in the
    ledger and the collector has acknowledged everything. Exit code 1: it could not, within --drain.

    \b
    Examples:
      sub fleet sidecar --prepare --url https://fleet.example.com --root /etc/subluminal/root.json
      sub fleet sidecar --drain 25s
    """
    from subluminal.ledger.daemon.contact import private_home

    home = private_home()
    if not prepare:
        if url or root or tenant or collector or token_file or max_disk:
            raise UsageError("--url, --root, --tenant, --collector, --token-file and --max-disk are for --prepare")
        return _run(home, milliseconds_of(drain, "--drain") / 1000)
    if not url or not root:
        raise UsageError("--prepare needs --url and --root")
    if (token_file or max_disk) and not collector:
        raise UsageError("a credential or --max-disk is for a collector: --collector URL is missing")
    from subluminal.fleet import sidecar
    from subluminal.fleet.joined import Joined

    token = os.path.abspath(token_file) if token_file else None
    bound = bytes_of(max_disk, "--max-disk") if max_disk else 0
    joined = Joined(url=url.rstrip("/"), tenant=tenant, collector=collector, token_file=token, max_disk_bytes=bound)
    is_new = sidecar.prepare(joined, root, home)
    if as_json:
        print_json({"joined": is_new, "url": joined.url})
    else:
        print("joined" if is_new else "had joined already")
    return 0


def _run(home: str, drain_s: float) -> int:
    from subluminal.fleet.sidecar import Sidecar, unshipped

    return Sidecar(drain_s, lambda: unshipped(home), lambda text: note(f"sub: {text}")).run()
