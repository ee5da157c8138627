"""A server behind a URL: a complete client of MCP over HTTP, in every revision, between two pipes.

It lives in one thread with one loop, reads the lines that were judged, and writes what the server says as lines. Who
may import it: `adapters.upstream.url`, which starts it. No shim that starts a process loads any of it.
"""
