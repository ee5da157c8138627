"""The MCP stdio adapter: `sub shim`.

Without I/O: `wire` reads lines (`exact` where a quick look is not proof, `scan` where a line is too large to hold),
`session` knows who asked what (`legs`: calls of several replies). With I/O: `shim` starts the server (`prepare`,
`supervise`) and then loads the rest; `relay` is the poll loop on top of `pipes` (descriptors) and `ending` (how a
session ends); `parties` brings in sink, identity, policy and gate.
"""
