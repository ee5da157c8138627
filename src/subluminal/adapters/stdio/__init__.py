"""The client's side over stdio: `sub shim`. Framing (newlines, bare CR), descriptors and the poll loop are here.

What a message means is `mcp`'s; how the server is started and ended is `adapters.upstream`'s.
"""
