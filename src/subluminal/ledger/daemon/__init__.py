"""`sub ledgerd`: the process that owns the writer, and how others reach it."""
