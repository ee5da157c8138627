"""The hint ledger, above what the record alone tells: which calls of a client were made at once, by its transcripts.

The rule of recovery is `ledger/fold/recovery`; the figures are `ledger/read/hints`.
"""
