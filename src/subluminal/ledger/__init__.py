"""The record of what agents did: a single-writer SQLite store, its daemon, and read-only queries.

Rules: only `store` writes the database and only the daemon (or an explicit command) runs it.
Readers open the database read-only, so looking back never needs the daemon.
"""
