"""Secrets made unreadable in whatever leaves us: injected values in any spelling, and what looks like a token."""
