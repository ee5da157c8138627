"""The HTTP face of the ledger, on loopback."""
