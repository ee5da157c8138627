"""The protocol-agnostic enforcement core: a tool call in, a decision and its events out.

Rules: no I/O, no clock, no randomness; time and identifiers are passed in. Knows nothing of MCP.
`gate` is the only entry for adapters; the other modules serve it.
"""
