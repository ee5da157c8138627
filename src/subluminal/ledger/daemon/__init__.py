"""`sub ledgerd`: the one process that writes the ledger, and how every other reaches it."""
