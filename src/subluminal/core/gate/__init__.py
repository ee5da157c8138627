"""The entry to the core, for whoever sees a tool call: a call in, a decision and its events out."""
