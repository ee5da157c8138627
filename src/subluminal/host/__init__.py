"""The machine we run on: paths, configuration, identity, run state shared between processes, sinks, key stores.

Rules: may do I/O; never decides. Imported by adapters, ledger and the CLI; imports only `contracts` and `core`.
"""
