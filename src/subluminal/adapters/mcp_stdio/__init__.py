"""The MCP stdio adapter: `sub shim`.

`wire` turns bytes into messages and back (no I/O), `session` knows who asked what (no I/O),
`supervise` owns the upstream process, `shim` is the poll loop and the only module that touches descriptors.
"""
