"""Read-only questions to the ledger. Needs no daemon, imports little."""
