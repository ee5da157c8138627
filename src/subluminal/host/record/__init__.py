"""The way of events out of this process: sinks, journals, and the doorbell that wakes the ledger daemon."""
