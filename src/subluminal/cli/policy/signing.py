"""`sub policy sign` and `sub policy verify`: one file outside of a fleet's repository."""

from __future__ import annotations

import click

from subluminal.cli.fleet.options import passphrase_of
from subluminal.cli.render.output import print_json
from subluminal.reports.printable import printable


@click.command("sign")
@click.argument("policy", type=click.Path())
@click.option("--key", required=True, metavar="FILE", help="The private key (`sub fleet key` makes one).")
@click.option("--out", metavar="FILE", help="Where the signature goes.  [POLICY.sig]")
@click.option("--passphrase-env", metavar="NAME", help="The variable that holds the key's passphrase.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def sign_command(policy: str, key: str, out: str | None, passphrase_env: str | None, as_json: bool) -> int:
    """Sign one policy file with an Ed25519 key. A policy that does not compile is not signed.

    A signature says who wrote a file, not whether there is a newer one: for many machines use `sub fleet`.

    \b
    Examples:
      sub policy sign policy.yaml --key author.pem
    """
    from subluminal.fleet.signing import SUFFIX, sign_policy

    made = sign_policy(policy, key, passphrase_of(passphrase_env), out)
    if as_json:
        print_json(made)
    else:
        print(f"{printable(out or policy + SUFFIX)}: {made.policy_id} {made.policy_version}, key {made.key}")
    return 0


@click.command("verify")
@click.argument("policy", type=click.Path())
@click.option("--key", required=True, metavar="FILE", help="The public key of who should have signed it (.pub).")
@click.option("--signature", metavar="FILE", help="The signature.  [POLICY.sig]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def verify_command(policy: str, key: str, signature: str | None, as_json: bool) -> int:
    """Check that a policy file is exactly what the holder of a key has signed.

    Exit code: 0 it is; 1 it is not; 2 a file is missing.

    \b
    Examples:
      sub policy verify policy.yaml --key author.pub
    """
    from subluminal.fleet.signing import verify_policy

    found = verify_policy(policy, key, signature)
    if as_json:
        print_json(found)
    else:
        print(f"{found.policy_id} {found.policy_version} is what key {found.key} has signed")
    return 0
