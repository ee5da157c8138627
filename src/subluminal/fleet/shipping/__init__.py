"""A machine's half of "decisions in": exact lines of its ledger, in segments, to a collector.

Rules: the ledger is only read. How far it was acknowledged stands in `fleet/shipped.db`, moved in one transaction with
the acknowledgements it rests on; whatever is killed when, a line is sent again rather than never. `progress` needs
nothing of the extra. Imported by `cli`, `fleet/keeper` and `doctor`.
"""
