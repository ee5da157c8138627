"""Many machines under one policy: signed policies and stops out, every decision in.

    joined.py      which fleet this machine has joined: the one home of `joined.json`
    published.py   what is published: the policies of a tenant, and stops; read strictly
    keys.py        Ed25519 keys as files;  signing.py: one signed policy outside a repository
    repository/    the publisher's side: a TUF repository, any static directory as its origin
    machine/       the machine's side: what it trusts of its origin, and how that is laid
    keeper/        the process beside ledgerd that refreshes, polls and ships
    segments.py    exact lines on their way;  chains.py: the chain of a run followed over what has arrived
    shipping/      a machine's ledger to a collector;  client.py: a collector asked as if it were a ledger
    folded.py      runs fetched from a collector, as ledgers of their own;  page/: `sub ui --fleet`
    collector/     the service that takes segments and answers questions;  stores/: where it keeps them
    telemetry/     spans and figures for OpenTelemetry
    sidecar.py     the first process of a pod's sidecar

Rules: nothing here is imported, started or required on a machine that has joined no fleet; `tuf` and `cryptography`
(the extra `fleet`) are imported where they are used. Shims never come here: they read what was laid (`policy/laid`).
May be imported by `cli` alone.
"""
