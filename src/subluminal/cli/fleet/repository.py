"""`sub fleet init`, `tenant`, `publish`, `renew`, `revoke`, `key`: the publisher's side."""

from __future__ import annotations

import os
import time

import click

from subluminal.cli.fleet.options import milliseconds_of, open_repository, passphrase_of, repository_options
from subluminal.cli.render.output import note, print_json
from subluminal.contracts.errors import FleetError, UsageError
from subluminal.host.clock import utc_now
from subluminal.reports.printable import count, printable


def _policies(number: int) -> str:
    return "1 policy" if number == 1 else f"{number} policies"


_PASSPHRASE = click.option("--passphrase-env", metavar="NAME", help="The variable that holds the keys' passphrase.")
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object.")


@click.command("init")
@click.argument("directory", metavar="DIR")
@click.option("--tenant", "tenants", metavar="NAME", multiple=True, help="A tenant, with a key of its own.")
@click.option("--timestamp-life", default="1d", metavar="TIME", help="How long a timestamp holds.  [1d]")
@click.option("--snapshot-life", default="7d", metavar="TIME", help="How long a snapshot holds.  [7d]")
@_PASSPHRASE
@_JSON
def init_command(
    directory: str,
    tenants: tuple[str, ...],
    timestamp_life: str,
    snapshot_life: str,
    passphrase_env: str | None,
    as_json: bool,
) -> int:
    """Make a repository in DIR: keys, roles, and an origin that any web server or object store can serve.

    Afterwards: take root-1, root-2 and root-3 away from here, to three places; give each author the key of their
    tenant, and those on call the key `stop`. Only `snapshot` and `timestamp` stay where `sub fleet renew` runs. Serve
    DIR/origin, and give machines DIR/root.json by hand.

    \b
    Examples:
      sub fleet init fleet --tenant payments --tenant research
      sub fleet init fleet --passphrase-env FLEET_PASSPHRASE
    """
    from subluminal.fleet.repository.store import Lives

    repository = open_repository(directory, (), passphrase_env)
    lives = Lives(
        timestamp=max(1, milliseconds_of(timestamp_life, "--timestamp-life") // 1000),
        snapshot=max(1, milliseconds_of(snapshot_life, "--snapshot-life") // 1000),
    )
    made = repository.init(list(tenants), lives)
    store = repository.store
    if as_json:
        print_json({"origin": store.origin, "root": store.root_file, "keys": made})
        return 0
    print(f"origin  {printable(store.origin)}   serve this directory")
    print(f"root    {printable(store.root_file)}   give this to machines, by hand")
    print(f"keys    {printable(store.keys)}   {count(len(made), 'key')}")
    note("Take root-1, root-2 and root-3 away from here, to three places; give tenants and those on call theirs.")
    return 0


@click.command("tenant")
@click.argument("name")
@click.option("--public-key", metavar="FILE", help="The author's public key (.pub). Without it a new key is made.")
@repository_options
@_JSON
def tenant_command(
    name: str,
    public_key: str | None,
    repository: str | None,
    keys: tuple[str, ...],
    passphrase_env: str | None,
    as_json: bool,
) -> int:
    """Add a tenant: its policies are a role of their own, signed with the key of their author.

    \b
    Examples:
      sub fleet tenant payments --public-key payments.pub
      sub fleet tenant research
    """
    from subluminal.fleet.keys import load_public, tuf_key

    opened = open_repository(repository, keys, passphrase_env)
    opened.add_tenant(name, tuf_key(load_public(public_key)) if public_key else None)
    if as_json:
        print_json({"tenant": name, "new_key": public_key is None})
    else:
        print(f"tenant {name} is added; its author publishes with: sub fleet publish POLICY --tenant {name}")
    return 0


@click.command("publish")
@click.argument("policies", metavar="POLICY...", nargs=-1, type=click.Path())
@click.option("--tenant", default="all", metavar="NAME", help="Whose policies they are; `all` machines obey `all`.")
@click.option("--none", "empty", is_flag=True, help="Take the tenant's policies away.")
@repository_options
@click.option("--dry-run", is_flag=True, help="Only say what would be published.")
@_JSON
def publish_command(
    policies: tuple[str, ...],
    tenant: str,
    empty: bool,
    repository: str | None,
    keys: tuple[str, ...],
    passphrase_env: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Sign and publish the policies of a tenant, in this order, instead of those before.

    They must compile: a fleet gets no policy that its machines would refuse. Without the online keys the author's part
    is signed and left in the origin, and machines see it after the next `sub fleet renew`.

    \b
    Examples:
      sub fleet publish base.yaml --repository fleet
      sub fleet publish base.yaml payments.yaml --tenant payments --key payments.pem
      sub fleet publish --none --tenant research
    """
    if bool(policies) == empty:
        raise UsageError("name the policies to publish, or --none")
    opened = open_repository(repository, keys, passphrase_env)
    opened.store.lives()
    if dry_run:
        from subluminal.policy.compile.snapshot import load_snapshot

        compiled = [load_snapshot(path) for path in policies]
    else:
        compiled = opened.publish(tenant, list(policies))
    told = [{name: each[name] for name in ("policy_id", "version", "mode", "policy_hash")} for each in compiled]
    if as_json:
        print_json({"tenant": tenant, "published": not dry_run, "policies": told})
        return 0
    for each in told:
        print(f"{each['policy_id']} {each['version']}, {each['mode']}, hash {each['policy_hash'][:12]}")
    verb = "would be" if dry_run else "is" if len(told) == 1 else "are"
    note(f"{_policies(len(told))} of tenant {tenant} {verb} published")
    return 0


@click.command("renew")
@click.option("--role", "roles", metavar="ROLE", multiple=True, help="Also prolong this role: root, targets, ...")
@click.option("--every", metavar="TIME", help="Again and again, and at once when something new lies in the origin.")
@repository_options
@_JSON
def renew_command(
    roles: tuple[str, ...],
    every: str | None,
    repository: str | None,
    keys: tuple[str, ...],
    passphrase_env: str | None,
    as_json: bool,
) -> int:
    """Sign snapshot and timestamp anew, with the online keys: what makes a publication known, and keeps it fresh.

    What authors and those on call have left in the origin is taken in if the key of their role has signed it. Run it
    from a timer, well within the life of a timestamp (a day, unless the repository was made with another), or with
    --every. Root, targets and what authors sign hold for a year; --role prolongs them, with their own keys.

    \b
    Examples:
      sub fleet renew --repository fleet
      sub fleet renew --every 5s
      sub fleet renew --role root --key root-1.pem --key root-2.pem
    """
    opened = open_repository(repository, keys, passphrase_env)
    opened.store.lives()
    if every and roles:
        raise UsageError("--role is for once, and --every for what is online")
    pause_s = milliseconds_of(every, "--every") / 1000 if every else None
    done = opened.renewed(list(roles))
    while True:
        if done and as_json:
            print_json({"renewed": True, **opened.versions()})
        elif done:
            print("snapshot {snapshot}, timestamp {timestamp}".format(**opened.versions()), flush=True)
        if pause_s is None:
            return 0
        time.sleep(pause_s)
        try:
            done = opened.renew_if_due()
        except (FleetError, OSError) as error:  # what is wrong now may be right in a moment; machines wait for us
            done = False
            note(f"sub: {printable(str(error))}")


@click.command("revoke")
@click.argument("role")
@click.option("--public-key", metavar="FILE", help="The new public key (.pub). Without it a new key is made.")
@repository_options
@_JSON
def revoke_command(
    role: str,
    public_key: str | None,
    repository: str | None,
    keys: tuple[str, ...],
    passphrase_env: str | None,
    as_json: bool,
) -> int:
    """Take its key from ROLE and put a new one in its place: what the old key signs counts for nothing from now on.

    ROLE is tenant-NAME or stop (this needs the key `targets`), or targets, snapshot, timestamp, root-1, root-2, root-3
    (this needs two keys of root). What was published stays, signed with the new key: if the old one was stolen, look at
    it first.

    \b
    Examples:
      sub fleet revoke tenant-payments --public-key new.pub --key new.pem
      sub fleet revoke timestamp --key root-1.pem --key root-2.pem
    """
    from subluminal.fleet.keys import load_public, new_key, tuf_key
    from subluminal.fleet.repository.revoking import revoke

    opened = open_repository(repository, keys, passphrase_env)
    opened.store.lives()
    made = None
    if public_key is None:
        moment = "".join(filter(str.isdigit, utc_now()))[:14]
        made = os.path.join(opened.store.keys, f"{role}-{moment}.pem")
        key = tuf_key(new_key(made, passphrase_of(passphrase_env)))
    else:
        key = tuf_key(load_public(public_key))
    try:
        revoke(opened, role, key)
    except Exception:
        if made is not None:
            for path in (made, made.removesuffix(".pem") + ".pub"):
                os.unlink(path)
        raise
    if as_json:
        print_json({"role": role, "key": made or public_key})
    else:
        print(f"{role} has a new key: {printable(made or public_key or '')}")
    return 0


@click.command("key")
@click.argument("file")
@_PASSPHRASE
@_JSON
def key_command(file: str, passphrase_env: str | None, as_json: bool) -> int:
    """Make an Ed25519 key: FILE (0600) and its public half beside it (.pub). For authors, and for `sub policy sign`.

    \b
    Examples:
      sub fleet key payments.pem
      sub fleet key on-call.pem --passphrase-env KEY_PASSPHRASE
    """
    from subluminal.fleet.keys import new_key, public_path

    new_key(file, passphrase_of(passphrase_env))
    if as_json:
        print_json({"private": file, "public": public_path(file)})
    else:
        print(f"{printable(file)} (keep it) and {printable(public_path(file))} (give it away)")
    return 0
