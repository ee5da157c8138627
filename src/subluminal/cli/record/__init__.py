"""Commands that read the record or keep it: query, runs, show, export, ingest, verify, prune, ledgerd."""
