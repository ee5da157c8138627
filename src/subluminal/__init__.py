"""Subluminal: the data plane between AI agents and their tools.

Imports only point down:

    cli > agents | clients > adapters > admission > ledger | policy > host > core > contracts > native

`contracts` is what we promise, `core` decides, `host` is the machine we run on, `adapters` speak
protocols, `ledger` keeps the record, `policy` is governance as code, `cli` is for people.
This file imports nothing: the shim starts from here.
"""

__version__ = "0.1.0"
