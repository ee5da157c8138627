"""Clients' own hooks, by which their built-in tools are judged: put into their files, and taken out again.

Rules: as for servers (a user's file is changed only atomically, after a backup, in our own entries alone). Hooks of the
user keep their order and, in Codex, the places by which they are trusted: ours are added behind them.
"""
